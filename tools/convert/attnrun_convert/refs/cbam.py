"""CBAM: v = x * g by channel, v * s by pixel; g and s are gates made of x and of v."""
import torch
from torch.nn import functional

from ..operators import example, operator
from ._maps import ACTIVATIONS, MAP, by_channel, gate_of, pooled, tail


def channel_gate(x, weights, pools, activation, gate):
    w1, b1, w2, b2 = weights
    logits = None
    for word in pools:
        hidden = ACTIVATIONS[activation](functional.linear(pooled(word, x), w1, b1))
        part = functional.linear(hidden, w2, b2)
        logits = part if logits is None else logits + part
    return by_channel(gate_of(gate, logits))


def pixel_gate(v, ws, bs, gate):
    planes = torch.cat([v.amax(1, keepdim=True), v.mean(1, keepdim=True)], 1)
    return gate_of(gate, functional.conv2d(planes, ws, bs, padding=ws.shape[2] // 2))


@operator("CBAM",
          inputs=[f"x: {MAP}", "w1?", "b1?", "w2?", "b2?", "ws?", "bs?", f"identity?: {MAP}"],
          outputs=["Y"],
          attributes={"pools": ["avg", "max"], "activation": "relu", "gate": "sigmoid",
                      "post_activation": "none"},
          examples=[
              example(x=(2, 32, 7, 9), w1=(4, 32), b1=(4,), w2=(32, 4), b2=(32,),
                      ws=(1, 2, 7, 7)),
              example(x=(3, 6, 5, 4), w1=(3, 6), w2=(6, 3), ws=(1, 2, 3, 3), bs=(1,),
                      identity=(3, 6, 5, 4), pools=["lse", "avg", "lp"], activation="gelu",
                      gate="hard_sigmoid", post_activation="relu"),
              example(x=(1, 7, 4, 6), w1=(2, 7), b1=(2,), w2=(7, 2), b2=(7,), pools=["max"]),
              example(x=(2, 5, 6, 8), ws=(1, 2, 5, 5), bs=(1,), identity=(2, 5, 6, 8))])
def cbam(x, w1, b1, w2, b2, ws, bs, identity, *, pools, activation, gate, post_activation):
    v = x
    if w1 is not None:
        v = v * channel_gate(x, (w1, b1, w2, b2), pools, activation, gate)
    if ws is not None:
        v = v * pixel_gate(v, ws, bs, gate)
    return tail(v, identity, post_activation)
