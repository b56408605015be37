"""Involution: sums over a window around each pixel, weighted by kernels made of the pixel."""
import torch
from torch.nn import functional

from ..operators import REQUIRED, example, operator
from ._maps import ACTIVATIONS, MAP


def weights(x, w1, b1, w2, b2, stride, activation):
    """(B, groups K^2, h, w) of the output."""
    if stride > 1:
        x = functional.avg_pool2d(x, stride, stride)
    hidden = ACTIVATIONS[activation](functional.conv2d(x, w1[:, :, None, None], b1))
    return functional.conv2d(hidden, w2[:, :, None, None], b2)


def windows(n, kernel_size, stride, x):
    """The pixels of each of n windows along a padded axis, one after the other."""
    first = torch.arange(n, device=x.device) * stride
    return (first[:, None] + torch.arange(kernel_size, device=x.device)).flatten()


@operator("Involution",
          inputs=[f"x: {MAP}", "w1?", "b1?", "w2?", "b2?", "kernel?: B . h w"],
          outputs=["Y"],
          attributes={"kernel_size": REQUIRED, "groups": REQUIRED, "stride": 1,
                      "activation": "relu"},
          examples=[
              example(x=(2, 32, 7, 9), w1=(8, 32), b1=(8,), w2=(18, 8), b2=(18,),
                      kernel_size=3, groups=2, tolerance=(1e-4, 1e-4)),
              example(x=(2, 6, 8, 4), w1=(3, 6), w2=(75, 3), kernel_size=5, groups=3,
                      stride=2, activation="silu", sizes={"h": 12, "w": 6},
                      tolerance=(1e-4, 1e-4)),
              example(x=(1, 4, 5, 6), kernel=(1, 98, 5, 6), kernel_size=7, groups=2),
              example(x=(2, 4, 6, 9), kernel=(2, 9, 2, 3), kernel_size=3, groups=1, stride=3,
                      sizes=None),
              example(x=(2, 5, 3, 8), w1=(2, 5), b1=(2,), w2=(5, 2), kernel_size=1, groups=5,
                      activation="hardswish")])
def involution(x, w1, b1, w2, b2, kernel, *, kernel_size, groups, stride, activation):
    if kernel is None:
        kernel = weights(x, w1, b1, w2, b2, stride, activation)
    rows, columns = (windows(n, kernel_size, stride, x) for n in kernel.shape[2:])
    seen = functional.pad(x, [kernel_size // 2] * 4)
    seen = seen.index_select(2, rows).index_select(3, columns)
    seen = seen.unflatten(3, (-1, kernel_size)).unflatten(2, (-1, kernel_size))
    seen = seen.unflatten(1, (groups, -1)).permute(0, 1, 2, 4, 6, 3, 5)
    kernel = kernel.unflatten(1, (groups, 1, kernel_size, kernel_size))
    return (seen * kernel).sum((3, 4)).flatten(1, 2)
