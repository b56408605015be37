"""FastformerAttention: queries pooled by head, keys times that pooled by head, values times
that."""
import torch

from ..operators import example, mask, operator
from ._heads import from_heads, masked_softmax, scale_of, to_heads
from ._tokens import over_tokens


def _pool(x, heads, weight, bias, scale, allowed):
    """x (B, N, heads * D): the softmax over tokens of its logits, sums of heads, (B, 1,
    heads * D)."""
    logits = x @ weight
    logits = (logits if bias is None else logits + bias).transpose(1, 2)
    weights = masked_softmax(scale * logits, allowed)
    return (weights[:, :, None] @ to_heads(x, heads)).transpose(1, 2).flatten(2)


@operator("FastformerAttention",
          inputs=["Q: heads B N", "K: heads B N", "V: heads B N", "Wq", "Wk", "bq?", "bk?",
                  "key_mask?: B N"],
          outputs=["Y"],
          attributes={"q_num_heads": None, "kv_num_heads": None, "scale": None},
          examples=[
              example(q_num_heads=2, Q=(2, 7, 8), K=(2, 7, 8), V=(2, 7, 8), Wq=(8, 2),
                      Wk=(8, 2)),
              example(q_num_heads=3, scale=0.4, Q=(2, 7, 12), K=(2, 7, 12), V=(2, 7, 12),
                      Wq=(12, 3), Wk=(12, 3), bq=(3,), bk=(3,), key_mask=mask(2, 7)),
              example(Q=(2, 3, 7, 4), K=(2, 3, 7, 4), V=(2, 3, 7, 4), Wq=(12, 3), Wk=(12, 3),
                      bk=(3,)),
          ])
def fastformer_attention(Q, K, V, Wq, Wk, bq, bk, key_mask, *, q_num_heads, kv_num_heads,
                         scale):
    heads = q_num_heads if Q.dim() == 3 else Q.shape[1]
    q, k, v = (x if x.dim() == 3 else x.transpose(1, 2).flatten(2) for x in (Q, K, V))
    scale = scale_of(scale, to_heads(q, heads))
    allowed = over_tokens(key_mask)
    p = k * _pool(q, heads, Wq, bq, scale, allowed)
    y = v * _pool(p, heads, Wk, bk, scale, allowed)
    return from_heads(to_heads(y, heads), Q) if Q.dim() == 3 else to_heads(y, heads)
