"""Convolutions of doubles, plain and transposed, and the pooling of regions, against torch and
plain loops in double. Usage: check_conv_doubles.py ATTNRUN"""
import math
import sys
import tempfile

import numpy as np
import torch

from cases import check, one_node_model, write_case

random = np.random.default_rng(37)
PLAIN = [torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d]
TRANSPOSED = [torch.nn.functional.conv_transpose1d, torch.nn.functional.conv_transpose2d,
              torch.nn.functional.conv_transpose3d]


def below(high, n):
    return [int(x) for x in random.integers(0, high, n)]


def normal(*shape):
    return random.standard_normal(shape)


def draw(rank):
    """Sizes that all give an output: the kernel fits into the padded image."""
    kernel, dilation = [1 + k for k in below(3, rank)], [1 + d for d in below(2, rank)]
    size = [d * (k - 1) + 1 + more for d, k, more in zip(dilation, kernel, below(6, rank))]
    return size, kernel, dilation, [1 + s for s in below(3, rank)]


def conv(number):
    rank = 1 + number % 3
    size, kernel, dilation, stride = draw(rank)
    batch, groups, each, out = (int(x) for x in random.integers(1, 4, 4))
    begins, ends = below(3, rank), below(3, rank)
    x = normal(batch, groups * each, *size)
    w = normal(groups * out, each, *kernel)
    bias = normal(groups * out) if random.integers(2) else None
    room = [p for pair in zip(reversed(begins), reversed(ends)) for p in pair]
    padded = torch.nn.functional.pad(torch.from_numpy(x), room)
    y = PLAIN[rank - 1](padded, torch.from_numpy(w), None if bias is None else
                        torch.from_numpy(bias), stride, 0, dilation, groups)
    model, inputs = one_node_model(
        "Conv", [("x", x), ("w", w), ("b", bias)], ["y"], opset=11, group=groups,
        kernel_shape=kernel, strides=stride, dilations=dilation, pads=begins + ends,
        constants=("w",) if random.integers(2) else ())
    return model, inputs, [("y", y.numpy())]


def conv_transpose(number):
    rank = 1 + number % 3
    size, kernel, dilation, stride = draw(rank)
    batch, groups, each, out = (int(x) for x in random.integers(1, 4, 4))
    pads = [min(p, (k - 1) * d) for p, k, d in zip(below(2, rank), kernel, dilation)]
    more = [x % max(s, d) for x, s, d in zip(below(3, rank), stride, dilation)]
    x = normal(batch, groups * each, *size)
    w = normal(groups * each, out, *kernel)
    bias = normal(groups * out) if random.integers(2) else None
    y = TRANSPOSED[rank - 1](torch.from_numpy(x), torch.from_numpy(w), None if bias is None else
                             torch.from_numpy(bias), stride, pads, more, groups, dilation)
    model, inputs = one_node_model(
        "ConvTranspose", [("x", x), ("w", w), ("b", bias)], ["y"], opset=11, group=groups,
        kernel_shape=kernel, strides=stride, dilations=dilation, pads=pads + pads,
        output_padding=more)
    return model, inputs, [("y", y.numpy())]


def bin_range(first, last, k, bins, size):
    """The pixels of bin k of a region."""
    pixels = int(max(last - first + 1, 1))
    low, high = first + k * pixels // bins, first - (-(k + 1) * pixels // bins)
    return max(low, 0), min(max(high, 0), size)


def max_roi_pool(number):
    dtype = "f4" if number % 2 else "f8"
    scale = float(random.choice([0.5, 0.7, 1.0]))  # f32(0.7) * 5 is 3.5, but less in f64
    images, channels, height, width = (int(x) for x in random.integers(1, 9, 4))
    shape = [int(s) for s in random.integers(1, 5, 2)]
    if number < 2:  # (29 / 7) * 7 is above 29 in f64, (25 / 11) * 11 above 25
        scale, height, width, shape = 1.0, 32, 32, [7, 11]
    x = normal(images, channels, height, width).astype(dtype)
    corners = np.sort(random.integers(-2, 14, (6, 2, 2)), axis=1).reshape(6, 4)
    if number < 2:
        corners[:] = 0, 0, 24, 28
    rois = np.concatenate([random.integers(0, images, (6, 1)), corners], 1).astype(dtype)
    y = np.zeros((6, channels, *shape), dtype)
    for r, (image, *corner) in enumerate(rois):
        factor = rois.dtype.type(np.float32(scale))
        # Halves are rounded away from zero.
        x0, y0, x1, y1 = (math.copysign(math.floor(abs(c * factor) + 0.5), c) for c in corner)
        for i in range(shape[0]):
            h0, h1 = (int(v) for v in bin_range(y0, y1, i, shape[0], height))
            for k in range(shape[1]):
                w0, w1 = (int(v) for v in bin_range(x0, x1, k, shape[1], width))
                if h0 < h1 and w0 < w1:
                    y[r, :, i, k] = x[int(image), :, h0:h1, w0:w1].max((1, 2))
    model, inputs = one_node_model("MaxRoiPool", [("x", x), ("rois", rois)], ["y"], opset=1,
                                   pooled_shape=shape, spatial_scale=scale)
    return model, inputs, [("y", y)]


def main():
    with tempfile.TemporaryDirectory() as folder:
        for number in range(30):
            write_case(f"{folder}/{number:03}_Conv", *conv(number), "1e-12 1e-12")
            write_case(f"{folder}/{number:03}_ConvTranspose", *conv_transpose(number),
                       "1e-12 1e-12")
            write_case(f"{folder}/{number:03}_MaxRoiPool", *max_roi_pool(number), "0 0")
        check(sys.argv[1], folder)


main()
