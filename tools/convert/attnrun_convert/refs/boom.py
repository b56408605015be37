"""Boom: act(x W + b) in pieces of output_size columns, added up."""
import torch

from ..operators import example, operator

ACTIVATIONS = {"quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
               "gelu": torch.nn.functional.gelu,
               "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
               "relu": torch.relu}


@operator("Boom",
          inputs=["X: B N .", "W", "b?"],
          outputs=["Y"], attributes={"output_size": None, "activation": "quick_gelu"},
          note="the body forms all columns",
          examples=[
              example(X=(2, 5, 6), W=(6, 20)),
              example(X=(2, 5, 6), W=(6, 24), b=(24,), output_size=8, activation="gelu"),
              example(X=(2, 5, 6), W=(6, 13), b=(13,), activation="gelu_tanh"),
              example(X=(2, 5, 6), W=(6, 13), output_size=4, activation="relu"),
          ])
def boom(X, W, b, *, output_size, activation):
    size = X.shape[-1] if output_size is None else output_size
    used = W.shape[1] // size * size
    hidden = X @ W[:, :used]
    hidden = ACTIVATIONS[activation](hidden if b is None else hidden + b[:used])
    return hidden.unflatten(-1, (used // size, size)).sum(dim=-2)
