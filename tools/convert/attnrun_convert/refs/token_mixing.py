"""TokenMixing: Y = W2 act(W1 X + b1 1^T) + b2 1^T, over the tokens."""
from torch.nn import functional

from ..operators import example, operator

ACTIVATIONS = {"gelu": functional.gelu, "relu": functional.relu,
               "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh")}


@operator("TokenMixing", inputs=["X: B . .", "W1", "W2", "b1?", "b2?"], outputs=["Y"],
          attributes={"activation": "gelu"},
          examples=[example(X=(2, 5, 7), W1=(9, 5), W2=(4, 9)),
                    example(X=(1, 6, 3), W1=(4, 6), W2=(6, 4), b1=(4,), b2=(6,),
                            activation="gelu_tanh"),
                    example(X=(2, 3, 4), W1=(8, 3), W2=(3, 8), b2=(3,), activation="relu")])
def token_mixing(X, W1, W2, b1, b2, *, activation):
    hidden = W1 @ X
    if b1 is not None:
        hidden = hidden + b1[:, None]
    mixed = W2 @ ACTIVATIONS[activation](hidden)
    return mixed if b2 is None else mixed + b2[:, None]
