"""FastformerLayer: FastformerAttention whose values are its queries, with its projections and the
sum with the queries; a mask of floats is added to the logits."""
import torch

from ..operators import example, mask as a_mask, operator
from ._heads import masked_softmax, to_heads


def _linear(x, weight, bias):
    return torch.nn.functional.linear(x, weight, bias)


def _pool(x, heads, weight, bias, mask):
    """x (B, N, A): the sums of heads by the softmax over tokens of its logits, (B, 1, A)."""
    logits = _linear(x, weight, bias).transpose(1, 2) * (x.shape[2] // heads) ** -0.5
    if mask is None or mask.dtype == torch.bool:
        weights = masked_softmax(logits, mask)
    else:
        weights = torch.softmax(logits + mask, dim=2)
    return (weights[:, :, None] @ to_heads(x, heads)).transpose(1, 2).flatten(2)


@operator("FastformerLayer",
          inputs=["x: B N .", "Wq", "bq?", "Wqa", "bqa?", "Wk", "bk?", "Wka", "bka?", "Wt",
                  "bt?", "mask?: B N"],
          outputs=["Y"],
          attributes={"num_heads": 1},
          examples=[  # four products deep: sums of 50, off by some of their last bits
              example(x=(2, 7, 6), Wq=(8, 6), Wqa=(2, 8), Wk=(8, 6), Wka=(2, 8), Wt=(8, 8),
                      num_heads=2, tolerance=(1e-5, 5e-5)),
              example(x=(2, 5, 4), Wq=(6, 4), bq=(6,), Wqa=(3, 6), bqa=(3,), Wk=(6, 4), bk=(6,),
                      Wka=(3, 6), bka=(3,), Wt=(6, 6), bt=(6,), mask=a_mask(2, 5),
                      num_heads=3, tolerance=(1e-5, 5e-5)),
          ])
def fastformer_layer(x, Wq, bq, Wqa, bqa, Wk, bk, Wka, bka, Wt, bt, mask, *, num_heads):
    query, key = _linear(x, Wq, bq), _linear(x, Wk, bk)
    if mask is not None:
        mask = mask.reshape(mask.shape[0], 1, mask.shape[-1])
    pooled = key * _pool(query, num_heads, Wqa, bqa, mask)
    values = query * _pool(pooled, num_heads, Wka, bka, mask)
    return _linear(values, Wt, bt) + query
