"""ExternalAttention: softmax of mk x over the tokens, divided by its sum over the slots (plus
epsilon), times mv; then bv, identity and the activation."""
import torch

from ..operators import example, operator


def _by_head(weight, rank):
    """(1 or heads, …) of a weight for all heads or one for each."""
    return weight if weight.dim() == rank + 1 else weight[None]


@operator("ExternalAttention",
          inputs=["x: B N . | B . h w", "mk", "mv", "bv?", "identity?: B N . | B . h w"],
          outputs=["Y"],
          attributes={"num_heads": 1, "epsilon": 0.0, "nan_rows": 0,
                      "post_activation": "none"},
          examples=[
              example(x=(2, 7, 12), mk=(5, 12), mv=(9, 5)),
              example(x=(2, 8, 3, 5), mk=(4, 8), mv=(8, 4), bv=(8,), identity=(2, 8, 3, 5),
                      epsilon=1e-9, post_activation="relu"),
              example(x=(1, 5, 12), mk=(3, 5, 4), mv=(3, 6, 5), bv=(3, 6), num_heads=3),
              example(x=(2, 12, 4, 3), mk=(6, 4), mv=(5, 6), identity=(2, 15, 4, 3),
                      num_heads=3, epsilon=0.1),
          ])
def external_attention(x, mk, mv, bv, identity, *, num_heads, epsilon, nan_rows,
                       post_activation):
    tokens = x.flatten(2).transpose(1, 2) if x.dim() == 4 else x
    heads = tokens.unflatten(2, (num_heads, -1)).transpose(1, 2)
    logits = heads @ _by_head(mk, 2).transpose(1, 2)
    a = torch.softmax(logits, dim=2)
    total = epsilon + a.sum(dim=3, keepdim=True)
    a = a / total if nan_rows else torch.where(total == 0, torch.zeros_like(a), a / total)
    y = a @ _by_head(mv, 2).transpose(1, 2)
    if bv is not None:
        y = y + _by_head(bv, 1)[:, None]
    y = y.transpose(1, 2).flatten(2)
    if x.dim() == 4:
        y = y.transpose(1, 2).unflatten(2, x.shape[2:])
    if identity is not None:
        y = y + identity
    return torch.relu(y) if post_activation == "relu" else y
