"""SyntheticAttention: softmax(L) V or L V, L = sum of alpha_m L_m over the components dot,
dense, random, factorized_random and factorized_dense."""
import torch

from ..operators import REQUIRED, example, mask, operator
from ._heads import (HEADS, all_of, from_heads, key_mask_of, masked_softmax, positions,
                     scale_of, to_heads)


def _heads_of(x, heads, width):
    """(B, H or 1, N, width) of (B, N, H * width), (B, N, width) or rank 4."""
    if x.dim() == 4:
        return x
    return to_heads(x, 1 if width == x.shape[2] else heads)


def _chosen(x, rule, other, kv_len):
    """Element j mod n ("tile") or j // other ("repeat") of the last dim, for each key."""
    if rule == "repeat":
        return x.repeat_interleave(other, dim=-1)[..., :kv_len]
    return x.repeat(1, 1, 1, other)[..., :kv_len]


def _logits(component, x, q_len, kv_len, heads, scale, tile_a, tile_b):
    """x: the operands by name, of rank 4 where they are activations."""
    if component == "dot":
        q, k = to_heads(x["q"], heads), to_heads(x["k"], heads)
        return scale_of(scale, q) * (q @ k.transpose(-1, -2))
    if component == "dense":
        hid = _heads_of(x["hid"], heads, x["W2"].shape[1])
        dense = hid @ x["W2"][None, :, :, :kv_len]
        return dense if x["b2"] is None else dense + x["b2"][None, :, None, :kv_len]
    if component == "random":
        return x["R"][None, :, :q_len, :kv_len]
    if component == "factorized_random":
        return (x["R1"][:, :q_len] @ x["R2"][:, :kv_len].transpose(-1, -2))[None]
    if component == "factorized_dense":
        a, b = to_heads(x["a"], heads), to_heads(x["b"], heads)
        return (_chosen(a, tile_a, b.shape[-1], kv_len) *
                _chosen(b, tile_b, a.shape[-1], kv_len))
    raise ValueError(f"component {component} is unknown")


@operator("SyntheticAttention",
          inputs=["V: heads B Nk", "q?: heads B Nq", "k?: heads B Nk", "hid?: heads B Nq",
                  "W2?", "b2?", "a?: heads B Nq", "b?: heads B Nq", "R?", "R1?", "R2?",
                  "alpha?", "key_mask?: B Nk"],
          outputs=["Y"],
          attributes={**HEADS, "components": REQUIRED, "tile_a": "tile", "tile_b": "tile",
                      "normalize": 1},
          examples=[
              example(q_num_heads=2, components=["dense"], V=(2, 7, 8), hid=(2, 5, 6),
                      W2=(2, 3, 12), b2=(2, 12), key_mask=mask(2, 7)),
              example(q_num_heads=2, components=["dot", "random", "factorized_random"],
                      is_causal=1, scale=0.4, V=(2, 6, 10), q=(2, 6, 8), k=(2, 6, 8),
                      R=(1, 10, 11), R1=(2, 10, 3), R2=(1, 12, 3), alpha=(3,),
                      sizes={"B": 3, "Nq": 9, "Nk": 9}),
              example(q_num_heads=2, components=["factorized_dense", "dense"],
                      tile_b="repeat", V=(2, 8, 6), hid=(2, 5, 4), W2=(1, 4, 12),
                      a=(2, 5, 6), b=(2, 5, 8)),
              example(q_num_heads=2, components=["random"], normalize=0, V=(2, 6, 8),
                      R=(2, 9, 9), key_mask=mask(2, 6)),
              example(components=["factorized_dense"], tile_a="repeat", V=(2, 3, 8, 4),
                      a=(2, 3, 5, 4), b=(2, 3, 5, 3), alpha=(1,)),
          ])
def synthetic_attention(V, q, k, hid, W2, b2, a, b, R, R1, R2, alpha, key_mask, *,
                        q_num_heads, kv_num_heads, is_causal, scale, components, tile_a,
                        tile_b, normalize):
    v = to_heads(V, q_num_heads)
    heads, kv_len = v.shape[1], v.shape[2]
    x = dict(q=q, k=k, hid=hid, W2=W2, b2=b2, a=a, b=b, R=R, R1=R1, R2=R2)
    tokens = {"dot": q, "dense": hid, "factorized_dense": a}
    of_queries = [tokens[c] for c in components if tokens.get(c) is not None]
    q_len = of_queries[0].shape[-2] if of_queries else kv_len
    logits = None
    for m, component in enumerate(components):
        part = _logits(component, x, q_len, kv_len, heads, scale, tile_a, tile_b)
        part = part if alpha is None else alpha[m] * part
        logits = part if logits is None else logits + part
    queries, keys = positions(q_len, kv_len, V.device)
    allowed = all_of(keys <= queries if is_causal else None, key_mask_of(key_mask))
    logits = logits.expand(v.shape[0], heads, q_len, kv_len)
    if normalize:
        return from_heads(masked_softmax(logits, allowed) @ v, V)
    weights = logits if allowed is None else torch.where(allowed, logits, v.new_zeros(()))
    return from_heads(weights @ v, V)
