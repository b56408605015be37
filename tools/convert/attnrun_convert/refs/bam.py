"""BAM: x * (1 + sigmoid(c * s)), or c + s: c an MLP over channel means, s dilated 3x3
convolutions of few channels."""
import torch
from torch.nn import functional

from ..operators import example, operator

MAP = "B . h w"


def channel_gate(x, first, middle, last):
    z = functional.relu(functional.linear(x.mean((2, 3)), *first))
    weights, biases = middle
    for i in range(0 if weights is None else weights.shape[0]):
        z = functional.relu(functional.linear(z, weights[i],
                                              None if biases is None else biases[i]))
    return functional.linear(z, *last)


def spatial_gate(x, first, middle, last, dilation):
    def pointwise(t, weight, bias):
        return functional.conv2d(t, weight[:, :, None, None], bias)

    t = functional.relu(pointwise(x, *first))
    weights, biases = middle
    for i in range(0 if weights is None else weights.shape[0]):
        t = functional.relu(functional.conv2d(
            t, weights[i], None if biases is None else biases[i], padding=dilation,
            dilation=dilation))
    return pointwise(t, *last)


@operator("BAM",
          inputs=[f"x: {MAP}", "cw0", "cb0?", "cw1", "cb1?", "sw0", "sb0?", "swm?", "sbm?",
                  "sw1", "sb1?", "cwm?", "cbm?", f"identity?: {MAP}"],
          outputs=["Y"],
          attributes={"combine": "mul", "dilation": 4, "post_activation": "none"},
          examples=[
              example(x=(2, 32, 9, 7), cw0=(2, 32), cb0=(2,), cw1=(32, 2), cb1=(32,),
                      sw0=(2, 32), sb0=(2,), swm=(2, 2, 2, 3, 3), sbm=(2, 2), sw1=(1, 2),
                      sb1=(1,), tolerance=(1e-4, 1e-5)),
              example(x=(3, 6, 5, 8), cw0=(3, 6), cw1=(6, 3), sw0=(3, 6), sw1=(1, 3),
                      combine="add"),
              example(x=(1, 7, 4, 6), cw0=(4, 7), cb0=(4,), cw1=(7, 4), sw0=(4, 7),
                      swm=(1, 4, 4, 3, 3), sw1=(1, 4), cwm=(2, 4, 4), cbm=(2, 4),
                      identity=(1, 7, 4, 6), dilation=2, post_activation="relu",
                      tolerance=(1e-4, 1e-5))])
def bam(x, cw0, cb0, cw1, cb1, sw0, sb0, swm, sbm, sw1, sb1, cwm, cbm, identity, *, combine,
        dilation, post_activation):
    c = channel_gate(x, (cw0, cb0), (cwm, cbm), (cw1, cb1))[:, :, None, None]
    s = spatial_gate(x, (sw0, sb0), (swm, sbm), (sw1, sb1), dilation)
    y = x * (1 + torch.sigmoid(c * s if combine == "mul" else c + s))
    if identity is not None:
        y = y + identity
    return functional.relu(y) if post_activation == "relu" else y
