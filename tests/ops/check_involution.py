"""Involution whose kernels two convolutions of the same map make is one operator, without a kernel
for each pixel in memory; kernels that are made in other ways, or read elsewhere, stay as they are.
Usage: check_involution.py ATTNRUN"""
import sys
import tempfile
from pathlib import Path

from forms_mechanisms import Involution
from recognise import EXPORTERS, check_form
from torch import nn
from torch.nn.functional import avg_pool2d

SHAPE = (2, 16, 9, 12)


class Other(Involution):
    """Kernels of another map."""

    def forward(self, x):
        return super().forward(x) if self.mode else self.of(x, avg_pool2d(x, 3, 1, 1))

    def of(self, x, made_of):
        kernel = self.span(self.reduce(made_of))
        b, _, h, w = kernel.shape
        near = self.unfold(x).view(b, self.groups, -1, self.size ** 2, h, w)
        kernel = kernel.view(b, self.groups, 1, self.size ** 2, h, w)
        return (kernel * near).sum(dim=3).view(b, -1, h, w)


class Read(Other):
    """The kernels are read elsewhere, too."""

    def of(self, x, made_of):
        return super().of(x, x) + self.span(self.reduce(x)).mean(1, keepdim=True)


def with_layers(reduce, span=None, **settings):
    module = Involution(**settings)
    module.reduce = reduce
    module.span = span or module.span
    return module


def few(*layers, bias=True):
    return nn.Sequential(nn.Conv2d(16, 8, 1, bias=bias), *layers)


# name: module, whether convolutions are left
FORMS = {
    "stock": (Involution(), False),
    "groups": (Involution(size=3, groups=8), False),
    "without_norm": (with_layers(few(nn.ReLU())), False),
    "without_bias": (with_layers(few(nn.ReLU(), bias=False), nn.Conv2d(8, 98, 1, bias=False)),
                     False),
    "stride": (Involution(stride=3), True),
    "gelu": (with_layers(few(nn.GELU())), True),
    "linear": (with_layers(few()), True),
    "wide": (with_layers(nn.Sequential(nn.Conv2d(16, 8, 3, padding=1), nn.ReLU())), True),
    "wide_span": (with_layers(few(nn.ReLU()), nn.Conv2d(8, 98, 3, padding=1)), True),
    "grouped": (with_layers(few(nn.ReLU()), nn.Conv2d(8, 98, 1, groups=2)), True),
    "other": (Other(), True),
    "read": (Read(), True),
}


def main():
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (module, left) in FORMS.items():
            for dynamo in EXPORTERS.values():
                known = ("Involution",) if left else ("Involution", "Conv", "FusedConv",
                                                      "BlockedConv")
                more, _ = check_form(sys.argv[1], Path(folder), name, module, "x", SHAPE, {}, (),
                                     dynamo, known, "Involution", 29)
                failures += more
                if left:  # exactly one of both holds
                    more, _ = check_form(sys.argv[1], Path(folder), name, module, "x", SHAPE, {},
                                         (), dynamo, ("Conv", "FusedConv", "BlockedConv"), None,
                                         29)
                    failures += [f"{name}: its convolutions are gone"] * (not more)
    print("\n".join(failures + [f"{len(failures)} failures"]))
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
