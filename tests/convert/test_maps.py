"""Gates and attention over maps: classes of timm and fightingcv-attention, and BAM in its
published form, each replaced by one operator, in a file that ONNX Runtime and attnrun run at
other sizes like PyTorch.

usage: test_maps.py ROOT ATTNRUN [test …]
"""
import sys
from pathlib import Path

import onnx
import torch
from torch import nn

import common
from test_adapters import _plan as plan
from test_adapters import check, randomised

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "attention"))
from golden import timm_layer  # noqa: E402


def maps(channels):
    def feeds(*size):
        generator = torch.Generator().manual_seed(size[1])
        return {"x": torch.randn(size[0], channels, *size[1:], generator=generator)}
    return feeds


AXES = {"x": {0: "batch", 2: "height", 3: "width"}}


class Named(nn.Module):
    """Calls its argument x."""

    def __init__(self, module, run=lambda m, x: m(x)):
        super().__init__()
        self.module, self.run = module, run

    def forward(self, x):
        return self.run(self.module, x)


def one(folder, module, operator, channels=12, sizes=((2, 9, 7), (3, 6, 11)), **more):
    model = randomised(Named(module, **more))
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2)
    check(folder, model, maps(channels), list(sizes), AXES, {operator: 1}, ["y"])


class ChannelAttention(nn.Module):
    """The gate of channels in the form that most code has: layers called fc1, relu1, fc2 or a
    Sequential, of the mean and of the max."""

    def __init__(self, channels, stacked, bias=False):
        super().__init__()
        first, second = (nn.Conv2d(a, b, 1, bias=bias) for a, b in (
            (channels, channels // 4), (channels // 4, channels)))
        self.avg_pool, self.max_pool = nn.AdaptiveAvgPool2d(1), nn.AdaptiveMaxPool2d(1)
        self.stacked = stacked
        if stacked:
            self.fc = nn.Sequential(first, nn.ReLU(), second)
        else:
            self.fc1, self.relu1, self.fc2 = first, nn.ReLU(), second
        self.sigmoid = nn.Sigmoid()

    def forward(self, x):
        run = self.fc if self.stacked else lambda y: self.fc2(self.relu1(self.fc1(y)))
        return self.sigmoid(run(self.avg_pool(x)) + run(self.max_pool(x)))


class SpatialAttention(nn.Module):
    def __init__(self, size, mean_first=True):
        super().__init__()
        self.conv1 = nn.Conv2d(2, 1, size, padding=size // 2, bias=False)
        self.mean_first = mean_first

    def forward(self, x):
        planes = [x.mean(1, keepdim=True), x.max(1, keepdim=True)[0]]
        return torch.sigmoid(self.conv1(torch.cat(
            planes if self.mean_first else planes[::-1], 1)))


class Block(nn.Module):
    """A residual block that multiplies by itself."""

    def __init__(self, stacked, size, mean_first, wrong=None):
        super().__init__()
        self.conv = nn.Conv2d(12, 12, 3, padding=1)
        self.ca = ChannelAttention(12, stacked, bias=not stacked)
        self.sa, self.wrong = SpatialAttention(size, mean_first), wrong

    def forward(self, x):
        y = self.conv(x)
        y = y * self.ca(x if self.wrong == "other map" else y)
        if self.wrong == "before":
            return x + y * self.sa(self.conv(x))
        if self.wrong == "factor":
            return x + y * self.sa(2 * y)
        return x + self.sa(y) * y


def test_cbam_in_the_forward_of_a_block(folder):
    one(folder, Block(True, 7, True), "CBAM")


def test_cbam_in_the_forward_of_a_block_with_biases(folder):
    one(folder, Block(False, 3, False), "CBAM")


def test_gates_of_other_maps_stay(folder):
    """Nearly the same: the gates are made of something else than what they multiply."""
    from attnrun_convert import convert
    for wrong in ("other map", "before", "factor"):
        model = Named(randomised(Block(True, 7, True, wrong))).eval()
        path = convert(model, maps(12)(2, 9, 7), output=folder / "m.onnx", dynamic=AXES,
                       quiet=True, attnrun=common.ATTNRUN)
        kinds = [n.op_type for n in onnx.load(path).graph.node if n.domain == "attnrun"]
        assert kinds == [], (wrong, kinds)


def test_squeeze_excite(folder):
    from fightingcv_attention.attention.SEAttention import SEAttention
    one(folder, SEAttention(12, 4), "SqueezeExcite")


def test_squeeze_excite_of_timm(folder):
    SEModule = timm_layer("squeeze_excite", "SEModule")
    one(folder, SEModule(12, rd_channels=3, add_maxpool=True, norm_layer=nn.BatchNorm2d,
                         gate_layer="hard_sigmoid"), "SqueezeExcite")


class Recalibrate(nn.Module):
    """Squeeze-and-excitation as people write it, under names of their own."""

    def __init__(self, reduce=True, act="module", gate=torch.sigmoid, pool="mean", norm=False,
                 wrong=None):
        super().__init__()
        kind = nn.Conv2d if reduce == "conv" else nn.Linear
        size = (1,) if reduce == "conv" else ()
        self.widen = kind(4, 12, *size, bias=act != "function")  # the second layer stands first
        self.narrow = kind(12, 4, *size)
        self.between = nn.ReLU() if act == "module" else None
        self.norm = nn.BatchNorm2d(4) if norm else None
        self.squash = nn.AdaptiveAvgPool2d(1) if pool == "module" else None
        self.flat, self.gate, self.wrong = reduce != "conv", gate, wrong

    def forward(self, features):
        if self.squash is not None:
            y = self.squash(features)
        else:
            y = features.mean((2, 3), keepdim=True)
        if self.wrong == "sum":
            y = features.sum((2, 3), keepdim=True)
        y = self.narrow(y.flatten(1) if self.flat else y)
        y = y if self.norm is None else self.norm(y)
        if self.wrong == "tanh":
            y = torch.tanh(y)
        else:
            y = nn.functional.silu(y) if self.between is None else self.between(y)
        y = self.gate(self.widen(y)).view(*features.shape[:2], 1, 1)
        if self.wrong == "residual":
            return features + features * y
        return y if self.wrong == "gate alone" else features * y


class HardSigmoid(nn.Module):
    """As code of MobileNetV3 has it."""

    def __init__(self):
        super().__init__()
        self.clip = nn.ReLU6()

    def forward(self, x):
        return self.clip(x + 3) / 6


class Effective(nn.Module):
    """One layer."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Conv2d(12, 12, 1)

    def forward(self, x):
        return x * nn.functional.hardsigmoid(self.mix(nn.functional.adaptive_avg_pool2d(x, 1)))


def test_squeeze_excite_of_any_class(folder):
    for module in (Recalibrate("conv", pool="module"), Recalibrate(act="function"),
                   Recalibrate("conv", norm=True), Recalibrate(gate=HardSigmoid()), Effective()):
        one(folder, module, "SqueezeExcite")


def test_nearly_squeeze_excite_stays(folder):
    """A residual, a gate without its product, a sum in place of the mean, another activation and
    another gate; the files are of the module as it is."""
    x = maps(12)(2, 9, 7)["x"]
    for more in (*({"wrong": word} for word in ("residual", "gate alone", "sum", "tanh")),
                 {"gate": torch.tanh}, {"gate": lambda y: 2 * torch.sigmoid(y)}):
        found = plan(randomised(Named(Recalibrate("conv", act="function", **more))), x)
        assert not found.taken, (more, found.lines(True))
    found = plan(randomised(Named(Recalibrate("conv", act="function"))), x)
    assert [e.adapter.operator for e in found.taken] == ["SqueezeExcite"], found.lines(True)
    for more in ({"between": nn.ReLU6()}, {"gate": lambda y: torch.sigmoid(y).clamp(max=0.9)}):
        module = randomised(Named(Recalibrate("conv")))  # with weights that reach neither bound
        for parameter in module.parameters():
            parameter.data *= 0.1
        for name, value in more.items():
            setattr(module.module, name, value)
        found = plan(module, x)
        assert not found.taken, (more, found.lines(True))


def test_cbam(folder):
    from fightingcv_attention.attention.CBAM import CBAMBlock
    one(folder, CBAMBlock(12, 4, 5), "CBAM")


def test_cbam_of_timm(folder):
    one(folder, timm_layer("cbam", "CbamModule")(12, rd_channels=3), "CBAM")


class ChannelGate(nn.Module):
    """With the names and the pooling of BAM's authors."""

    def __init__(self, channels, low, layers):
        super().__init__()
        sizes = [channels, *[low] * layers]
        self.gate_c = nn.Sequential(nn.Flatten())
        for i, (have, make) in enumerate(zip(sizes, sizes[1:])):
            self.gate_c.add_module(f"gate_c_fc_{i}", nn.Linear(have, make))
            self.gate_c.add_module(f"gate_c_bn_{i + 1}", nn.BatchNorm1d(make))
            self.gate_c.add_module(f"gate_c_relu_{i + 1}", nn.ReLU())
        self.gate_c.add_module("gate_c_fc_final", nn.Linear(low, channels))

    def forward(self, x):
        side = x.shape[2]
        pooled = nn.functional.avg_pool2d(x, side, stride=side)
        return self.gate_c(pooled)[:, :, None, None].expand_as(x)


class SpatialGate(nn.Module):
    def __init__(self, channels, low, dilations):
        super().__init__()
        self.gate_s = nn.Sequential()

        def add(name, number, *layers):
            for kind, layer in zip(("conv", "bn", "relu"), layers):
                self.gate_s.add_module(f"gate_s_{kind}_{name}{number}", layer)
        add("reduce", 0, nn.Conv2d(channels, low, 1), nn.BatchNorm2d(low), nn.ReLU())
        for i, dilation in enumerate(dilations):
            add("di_", i, nn.Conv2d(low, low, 3, padding=dilation,
                                    dilation=dilation), nn.BatchNorm2d(low), nn.ReLU())
        add("final", "", nn.Conv2d(low, 1, 1))

    def forward(self, x):
        return self.gate_s(x).expand_as(x)


class BAM(nn.Module):
    """The published form, which itself cannot be constructed: a name in it is undefined."""

    def __init__(self, channels, low, layers=1, dilations=(4, 4)):
        super().__init__()
        self.channel_att = ChannelGate(channels, low, layers)
        self.spatial_att = SpatialGate(channels, low, dilations)

    def forward(self, x):
        return x * (1 + torch.sigmoid(self.channel_att(x) * self.spatial_att(x)))


SQUARES = ((2, 9, 9), (3, 6, 6), (1, 14, 14))


def test_bam(folder):
    one(folder, BAM(12, 3), "BAM", sizes=SQUARES)


def test_bam_of_other_depth(folder):
    one(folder, BAM(12, 4, 3, (2,)), "BAM", sizes=SQUARES)


def test_bam_without_middle(folder):
    one(folder, BAM(12, 4, 1, ()), "BAM", sizes=SQUARES)


def test_bam_of_a_sum(folder):
    """As the paper has it; at other dilations that class fits no map."""
    from fightingcv_attention.attention.BAM import BAMBlock
    one(folder, BAMBlock(12, 4, 1), "BAM")


def test_bam_of_a_sum_at_small_numbers(folder):
    """At which the product of the gates is as near, or of which both are zeros."""
    from fightingcv_attention.attention.BAM import BAMBlock
    for x in (torch.zeros(2, 12, 7, 7), torch.ones(2, 12, 7, 7), 1e-3 * torch.randn(2, 12, 7, 7)):
        module = randomised(BAMBlock(12, 4, 1))
        for name, weight in module.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(weight)
        found = plan(module, x)
        assert [e.adapter.choice for e in found.taken] == [{"combine": "add"}], found.lines()


def stays(module, reason, size):
    found = plan(randomised(Named(module)), maps(12)(*size)["x"])
    assert not found.taken and [reason in e.reason for e in found.entries] == [True], \
        found.lines()


def test_bam_that_stays(folder):
    stays(BAM(12, 3), "the probe differs by", (2, 7, 11))  # four columns are not pooled
    stays(BAM(12, 3, dilations=(4, 2)), "as much around the map as its dilation", (2, 9, 9))
    gates = BAM(12, 3)
    gates.spatial_att.gate_s.gate_s_relu_di_0 = nn.SiLU()
    stays(gates, "it has a SiLU among its layers", (2, 9, 9))


class SelfAttn(nn.Module):
    """SAGAN's attention, which gives its map of weights, too."""

    def __init__(self, channels):
        super().__init__()
        self.query_conv, self.key_conv = (nn.Conv2d(channels, 3, 1) for _ in range(2))
        self.value_conv = nn.Conv2d(channels, channels, 1)
        self.gamma = nn.Parameter(torch.ones(1))

    def forward(self, x):
        q, k, v = (layer(x).flatten(2)
                   for layer in (self.query_conv, self.key_conv, self.value_conv))
        weights = torch.softmax(q.transpose(1, 2) @ k, -1)
        y = (v @ weights.transpose(1, 2)).unflatten(2, x.shape[2:])
        return self.gamma * y + x, weights


def test_sagan(folder):
    one(folder, SelfAttn(12), "SAGANAttention", run=lambda m, x: m(x)[0])


def test_sagan_with_its_weights(folder):
    model = randomised(Named(SelfAttn(12)))
    check(folder, model, maps(12), [(2, 9, 7), (3, 6, 11)], AXES, {"SAGANAttention": 1},
          ["y", "weights"])


def test_selective_kernel(folder):
    from fightingcv_attention.attention.SKAttention import SKAttention
    one(folder, SKAttention(12, [1, 3, 5], 4, 2, 4), "SKSelect")


def test_external_attention(folder):
    from fightingcv_attention.attention.ExternalAttention import ExternalAttention
    one(folder, ExternalAttention(12, 5), "ExternalAttention",
        run=lambda m, x: m(x.flatten(2).transpose(1, 2)))


def test_external_attention_of_weights_that_vanish(folder):
    """0 / 0 is what its code computes."""
    from fightingcv_attention.attention.ExternalAttention import ExternalAttention
    module = randomised(ExternalAttention(12, 5))
    x = torch.randn(2, 9, 12)
    found = plan(module, x)
    with torch.no_grad():
        want, got = module(1e4 * x), found.taken[0].adapter.forward(1e4 * x)
    assert want.isnan().any() and torch.equal(want.isnan(), got.isnan())


def test_involution(folder):
    from fightingcv_attention.conv.Involution import Involution
    one(folder, Involution(3, 12, 2, 3, 2), "Involution", sizes=((2, 8, 6), (3, 4, 10)))


BLOCKS = ((2, 8, 4), (3, 4, 12))


def test_halo(folder):
    from halonet_pytorch import HaloAttention
    layer = HaloAttention(dim=12, block_size=4, halo_size=1, dim_head=6, heads=2)
    one(folder, layer, "HaloAttention", sizes=BLOCKS)
    assert padding_of(folder) == b"mask"


def test_halo_with_the_inverted_mask(folder):
    from fightingcv_attention.attention.HaloAttention import HaloAttention
    layer = HaloAttention(dim=12, block_size=2, halo_size=1, dim_head=6, heads=2)
    one(folder, layer, "HaloAttention", sizes=((2, 8, 6), (3, 4, 12)))
    assert padding_of(folder) == b"inverted"


def test_halo_of_timm(folder):
    HaloAttn = timm_layer("halo_attn", "HaloAttn")
    one(folder, HaloAttn(12, 8, stride=2, num_heads=2, dim_head=5, block_size=4, halo_size=1,
                         qkv_bias=True), "HaloAttention", sizes=BLOCKS)
    assert padding_of(folder) == b"attend"


def test_halo_of_timm_with_a_mean(folder):
    HaloAttn = timm_layer("halo_attn", "HaloAttn")
    one(folder, HaloAttn(12, stride=2, num_heads=2, block_size=4, halo_size=2, avg_down=True,
                         scale_pos_embed=True), "HaloAttention", sizes=BLOCKS)


def test_halo_with_another_softmax_stays(folder):
    from halonet_pytorch import HaloAttention as Upstream

    class HaloAttention(Upstream):
        def forward(self, x):
            return super().forward(x).softmax(1)

    layer = HaloAttention(dim=12, block_size=4, halo_size=1, dim_head=6, heads=2)
    entry = plan(randomised(Named(layer)), **maps(12)(2, 8, 4)).entries[0]
    assert not entry.taken and "the probe differs" in entry.reason, entry.line()


def padding_of(folder):
    [node] = [n for n in onnx.load(folder / "model.onnx").graph.node if n.domain == "attnrun"]
    return next(a.s for a in node.attribute if a.name == "padding")


if __name__ == "__main__":
    common.main([value for name, value in list(globals().items())
                 if name.startswith("test_")])
