"""AFMPooling: softmax over pairs of fields of h . relu((e_i * e_j) W + b), sums of e_i * e_j."""
import torch

from ..operators import example, mask, operator
from ._heads import masked_softmax


@operator("AFMPooling",
          inputs=["E: B . .", "W", "h", "b?", "field_mask?: B ."],
          outputs=["Y", "weights"], attributes={"attention": 1},
          note="the body is for one number of fields and forms all pairs",
          examples=[
              example(E=(2, 5, 8), W=(8, 4), h=(4,)),
              example(outputs=2, E=(2, 6, 8), W=(8, 4), h=(4,), b=(4,), field_mask=mask(2, 6)),
              example(attention=0, E=(2, 5, 8), W=(8, 4), h=(4,), field_mask=mask(2, 5)),
          ])
def afm_pooling(E, W, h, b, field_mask, *, attention):
    fields = E.shape[1]
    pairs = [(i, j) for i in range(fields) for j in range(i + 1, fields)]
    first, second = (torch.tensor([pair[k] for pair in pairs], dtype=torch.int64,
                                  device=E.device) for k in range(2))
    products = E.index_select(1, first) * E.index_select(1, second)
    allowed = None
    if field_mask is not None:
        allowed = field_mask.index_select(1, first) & field_mask.index_select(1, second)
    if attention == 0:
        weights = torch.ones_like(products[..., 0])
        weights = weights if allowed is None else weights * allowed
    else:
        hidden = products @ W
        scores = torch.relu(hidden if b is None else hidden + b) @ h
        weights = masked_softmax(scores, allowed)
    return (weights[:, None] @ products)[:, 0], weights
