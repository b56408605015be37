"""AttentionPooling: sum_n softmax_n(f(tanh(x_n W + b) c + c_bias)) x_n, a head for each
column of c."""
import torch

from ..operators import example, mask, operator
from ._heads import masked_softmax, tiniest
from ._tokens import ACTIVATIONS, over_tokens


def _exp_sum(scores, allowed, epsilon):
    weights = torch.exp(scores)
    if allowed is not None:
        weights = weights * allowed
    # The bound is for runtimes that take + 1e-8 for nothing to add.
    return weights / (weights.sum(dim=-1, keepdim=True) + epsilon).clamp(
        min=tiniest(weights))


@operator("AttentionPooling",
          inputs=["X: B N .", "W", "c", "b?", "c_bias?", "key_mask?: B N"],
          outputs=["Y", "weights"],
          attributes={"score_activation": "none", "normalizer": "softmax", "epsilon": 1e-8},
          examples=[
              example(outputs=2, X=(2, 7, 8), W=(8, 5), c=(5,)),
              example(outputs=2, X=(2, 7, 8), W=(8, 5), c=(5, 3), b=(5,), c_bias=(3,),
                      key_mask=mask(2, 7), score_activation="tanh"),
              example(outputs=2, X=(2, 7, 8), W=(8, 5), c=(5,), b=(5,), c_bias=(1,),
                      key_mask=mask(2, 7), normalizer="exp_sum"),
          ])
def attention_pooling(X, W, c, b, c_bias, key_mask, *, score_activation, normalizer, epsilon):
    hidden = X @ W
    hidden = torch.tanh(hidden if b is None else hidden + b)
    scores = hidden @ (c[:, None] if c.dim() == 1 else c)
    scores = scores if c_bias is None else scores + c_bias
    scores = ACTIVATIONS[score_activation](scores).transpose(1, 2)
    allowed = over_tokens(key_mask)
    if normalizer == "softmax":
        weights = masked_softmax(scores, allowed)
    else:
        weights = _exp_sum(scores, allowed, epsilon)
    y = (weights @ X).flatten(1)
    return y, weights[:, 0] if weights.shape[1] == 1 else weights
