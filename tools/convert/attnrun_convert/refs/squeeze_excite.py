"""SqueezeExcite: x * gate(w2 act(w1 pool(x) + b1) + b2), by channel."""
from torch.nn import functional

from ..operators import example, operator
from ._maps import ACTIVATIONS, MAP, by_channel, gate_of, pooled, tail


def numbers(x, pool):
    if pool == "avg_max":
        return pooled("avg", x) / 2 + pooled("max", x) / 2
    return pooled(pool, x)


@operator("SqueezeExcite",
          inputs=[f"x: {MAP}", "w1", "b1?", "w2?", "b2?", f"identity?: {MAP}"],
          outputs=["Y"],
          attributes={"activation": "relu", "gate": "sigmoid", "pool": "avg",
                      "post_activation": "none"},
          examples=[
              example(x=(2, 32, 7, 9), w1=(4, 32), w2=(32, 4)),
              example(x=(3, 6, 5, 4), w1=(3, 6), b1=(3,), w2=(6, 3), b2=(6,),
                      identity=(3, 6, 5, 4), activation="hardswish", gate="hard_sigmoid",
                      pool="avg_max", post_activation="relu"),
              example(x=(1, 7, 4, 6), w1=(7, 7), b1=(7,), activation="none",
                      gate="hard_sigmoid"),
              example(x=(2, 5, 3, 8), w1=(2, 5), b1=(2,), w2=(5, 2), activation="gelu",
                      pool="max"),
              example(x=(2, 5, 3, 8), w1=(2, 5), w2=(5, 2), b2=(5,), activation="silu")])
def squeeze_excite(x, w1, b1, w2, b2, identity, *, activation, gate, pool, post_activation):
    u = ACTIVATIONS[activation](functional.linear(numbers(x, pool), w1, b1))
    if w2 is not None:
        u = functional.linear(u, w2, b2)
    return tail(x * by_channel(gate_of(gate, u)), identity, post_activation)
