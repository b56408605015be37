"""LAMAAttention: softmax_n of act((P' c)_h (Q' x_n)_h), divided by its norm over the heads,
pools the tokens."""
import torch

from ..operators import example, mask, operator
from ._heads import masked_softmax, tiniest
from ._tokens import ACTIVATIONS, over_tokens


def _mean(X, key_mask):
    if key_mask is None:
        return X.mean(dim=1)
    kept = key_mask.to(X.dtype)
    return (X * kept[..., None]).sum(dim=1) / kept.sum(dim=1, keepdim=True).clamp(
        min=tiniest(kept, 1e-9))


@operator("LAMAAttention",
          inputs=["X: B N .", "P", "Q", "context?", "key_mask?: B N"],
          outputs=["Y", "weights"],
          attributes={"activation": "tanh", "normalize": 1, "norm_epsilon": 0.0},
          note="the body takes one context for all samples, or finds them itself",
          examples=[
              example(X=(2, 7, 8), P=(8, 3), Q=(8, 3)),
              example(outputs=2, X=(2, 7, 8), P=(8, 3), Q=(8, 3), key_mask=mask(2, 7)),
              example(outputs=2, normalize=0, activation="none",
                      norm_epsilon=0.1, X=(2, 7, 8), P=(8, 3), Q=(8, 3), context=(1, 8)),
          ])
def lama_attention(X, P, Q, context, key_mask, *, activation, normalize, norm_epsilon):
    context = _mean(X, key_mask) if context is None else context
    f = ACTIVATIONS[activation]((context @ P)[:, None] * (X @ Q)).transpose(1, 2)
    norm = torch.sqrt((f * f).sum(dim=1, keepdim=True)) + norm_epsilon
    weights = f / torch.where(norm == 0, torch.ones_like(norm), norm)
    allowed = over_tokens(key_mask)
    if normalize == 1:
        weights = masked_softmax(weights, allowed)
    elif allowed is not None:
        weights = weights * allowed
    return weights @ X, weights
