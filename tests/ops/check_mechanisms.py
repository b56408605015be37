"""Mechanisms of attention that PyTorch modules write out, by both exporters: which operator they
become, against ONNX Runtime, with and without fusion; near misses become none.
Usage: check_mechanisms.py ATTNRUN [SEED]"""
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from torch import nn

from exported import differ, export_module, operators, run


class Involution(nn.Module):
    """d-li14/involution, involution_naive.py."""

    def __init__(self, channels=16, size=7, groups=2, stride=1, dilation=1, mode=None):
        super().__init__()
        self.size, self.groups, self.mode = size, groups, mode
        self.pool = nn.AvgPool2d(stride) if stride > 1 else nn.Identity()
        self.reduce = nn.Sequential(nn.Conv2d(channels, 8, 1), nn.BatchNorm2d(8), nn.ReLU())
        self.span = nn.Conv2d(8, size * size * groups, 1)
        self.unfold = nn.Unfold(size, dilation, dilation * (size - 1) // 2, stride)

    def forward(self, x):
        kernel = self.span(self.reduce(self.pool(x)))
        b, c, h, w = kernel.shape
        if self.mode == "taps first":
            kernel = kernel.view(b, self.size ** 2, self.groups, h, w).transpose(1, 2)
        kernel = kernel.reshape(b, self.groups, self.size ** 2, h, w).unsqueeze(2)
        if self.mode == "padded by ones":
            x = nn.functional.pad(x, (3, 3, 3, 3), value=1.0)
            near = nn.functional.unfold(x, 7)
        else:
            near = self.unfold(x)
        near = near.view(b, self.groups, -1, self.size ** 2, h, w)
        return (kernel * near).sum(dim=3).view(b, -1, h, w)


class Spatial(nn.Module):
    """SAGAN's attention, as heykeetae/Self-Attention-GAN and DANet write it."""

    def __init__(self, channels=16, scale=None):
        super().__init__()
        self.q, self.k = nn.Conv2d(channels, 4, 1), nn.Conv2d(channels, 4, 1)
        self.v, self.gamma = nn.Conv2d(channels, channels, 1), nn.Parameter(torch.ones(1))
        self.scale = scale

    def forward(self, x):
        b, c, h, w = x.shape
        q = self.q(x).view(b, -1, h * w).permute(0, 2, 1)
        scores = torch.bmm(q, self.k(x).view(b, -1, h * w))
        if self.scale:
            scores = scores * self.scale
        weights = scores.softmax(-1)
        y = torch.bmm(self.v(x).view(b, -1, h * w), weights.permute(0, 2, 1))
        return self.gamma * y.view(b, c, h, w) + x


class Columns(Spatial):
    """The softmax over queries: no attention."""

    def forward(self, x):
        b, c, h, w = x.shape
        q = self.q(x).view(b, -1, h * w).permute(0, 2, 1)
        weights = torch.bmm(q, self.k(x).view(b, -1, h * w)).softmax(-1)
        return torch.bmm(self.v(x).view(b, -1, h * w), weights).view(b, c, h, w)


MAPS = ((1, 16, 14, 14), (2, 16, 9, 12), (1, 16, 6, 8))
# name: (module, shapes, operator that it becomes or None)
FORMS = {
    "involution": (Involution(), MAPS, "Involution"),
    "involution_3": (Involution(size=3, groups=4), MAPS, "Involution"),
    "involution_stride": (Involution(stride=2), ((1, 16, 14, 14), (2, 16, 6, 8)), "Involution"),
    "involution_dilated": (Involution(size=3, dilation=2), MAPS[:1], None),
    "involution_ones": (Involution(mode="padded by ones"), MAPS[:1], None),
    "involution_taps_first": (Involution(mode="taps first"), MAPS[:1], None),
    "sagan": (Spatial(), MAPS, "FusedAttention"),
    "sagan_scaled": (Spatial(scale=0.3), MAPS, "FusedAttention"),
    "columns": (Columns(), MAPS[:1], None),
}
KNOWN = ("Involution", "FusedAttention")


def check(name, module, shape, operator, dynamo, folder, seed):
    torch.manual_seed(seed)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    model = folder / f"{name}_{'x'.join(map(str, shape))}_{'dynamo' if dynamo else 'script'}.onnx"
    x = np.random.default_rng(seed).standard_normal(shape).astype("f4")
    export_module(module.eval(), (torch.from_numpy(x),), str(model), dynamo, {"x": {}}, ["y"])
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    expected = session.run(None, {"x": x})[0]
    failures = []
    for options in ((), ("--no-fusion",), ("--isa", "base"), ("--threads", "1")):
        why = differ(run(ATTNRUN, model, folder, {"x": x}, *options)["y"], expected)
        failures += [f"{model.name}, seed {seed}, {options}: {why}"] * (why is not None)
    there = [op for op in KNOWN if operators(ATTNRUN, model).get(op, 0) > 0]
    if there != ([operator] if operator else []):
        failures.append(f"{model.name}: became {there}, expected {operator}")
    return failures


def main():
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 23
    failures, n = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for name, (module, shapes, operator) in FORMS.items():
            for shape in shapes:
                for dynamo in (False, True):
                    n += 1
                    failures += check(name, module, shape, operator, dynamo, Path(folder), seed)
    print("\n".join(failures + [f"{n} models, {len(failures)} failures"]))
    return bool(failures)


if __name__ == "__main__":
    ATTNRUN = sys.argv[1]
    sys.exit(main())
