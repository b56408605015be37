"""Gates over maps and learned slots. The modules take x. Some are those of packages (timm,
fightingcv-attention); the others write the same in other ways. Modules that differ in one point
stay as they are. Only one of two gates is recognised if the second one has another name, or if
another node reads the map between them."""
import sys
from pathlib import Path

import torch
from fightingcv_attention.attention.CBAM import CBAMBlock
from fightingcv_attention.attention.ExternalAttention import ExternalAttention
from fightingcv_attention.attention.SEAttention import SEAttention
from fightingcv_attention.attention.SKAttention import SKAttention
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "attention"))
from golden import timm_layer  # noqa: E402

CbamModule = timm_layer("cbam", "CbamModule")
SelectiveKernel = timm_layer("selective_kernel", "SelectiveKernel")
SEModule = timm_layer("squeeze_excite", "SEModule")
EffectiveSEModule = timm_layer("squeeze_excite", "EffectiveSEModule")
EcaModule = timm_layer("eca", "EcaModule")
GlobalContext = timm_layer("global_context", "GlobalContext")
functional = nn.functional


class Gate(nn.Module):
    """Gates of channels, of pixels or of both; what a near miss changes is a setting."""

    def __init__(self, channels=16, pixels=True, sums=True, linear=False, bias=False,
                 act=functional.relu, gate=torch.sigmoid, kernel=3, padding=1, max_first=False,
                 own=False, factor=1.0, height=False, both=False, expand=False, dilation=1):
        super().__init__()
        self.layers = nn.ModuleList()
        for _ in range(2 if own else 1):
            self.layers.append(nn.ModuleList(
                (nn.Linear if linear else nn.Conv2d)(a, b, *(() if linear else (1,)), bias=bias)
                for a, b in ((channels, 4), (4, channels))))
        self.conv = nn.Conv2d(2, 1, kernel, padding=padding, bias=bias,
                              dilation=dilation)
        self.pixels, self.sums, self.linear, self.act, self.gate = pixels, sums, linear, act, gate
        self.max_first, self.factor, self.height, self.both = max_first, factor, height, both
        self.expand = expand

    def product(self, z, last=0):
        first, second = self.layers[last % len(self.layers)]
        if self.linear:
            z = z.flatten(1)
        return second(self.act(first(z)))

    def channel_gate(self, x):
        mean = functional.adaptive_avg_pool2d(self.factor * x, 1)
        if not self.sums:
            u = self.product(mean)
        elif self.height:
            u = self.product(mean) + self.product(x.amax(2, keepdim=True).mean(3, keepdim=True))
        else:
            u = self.product(mean) + self.product(functional.adaptive_max_pool2d(x, 1), 1)
        g = self.gate(u)
        if self.linear:
            g = g[:, :, None, None]
        return g.expand_as(x) if self.expand else g

    def forward(self, x):
        y = x if self.sums is None else x * self.channel_gate(x)
        if not self.pixels:
            return y
        planes = [torch.mean(y, 1, keepdim=True), torch.max(y, 1)[0].unsqueeze(1)]
        z = torch.sigmoid(self.conv(torch.cat(planes[::-1] if self.max_first else planes, 1)))
        return y * z + y if self.both else z * y


class Whole(Gate):
    """Pools with a window of the whole map, as the authors of CBAM have them."""

    def channel_gate(self, x):
        size = x.shape[2:]
        pools = functional.avg_pool2d(x, size, stride=size), functional.max_pool2d(
            x, size, stride=size)
        return torch.sigmoid(sum(map(self.product, pools))).unsqueeze(2).unsqueeze(3).expand_as(x)


class Apart(Gate):
    """The gate is of another map."""

    def forward(self, x):
        y = torch.tanh(x)
        return y * self.channel_gate(x)


class Slots(nn.Module):
    """External attention over maps, as MenghaoGuo/EANet has it; `tokens`: over tokens."""

    def __init__(self, channels=16, slots=6, epsilon=1e-9, tokens=False, softmax=-1, total=1,
                 bias=False, keep=False, moves=False):
        super().__init__()
        self.tokens, self.epsilon, self.softmax, self.total = tokens, epsilon, softmax, total
        self.keep, self.moves = keep, moves
        if tokens:
            self.first = nn.Linear(channels, slots, bias=bias)
            self.second = nn.Linear(slots, channels)
        else:
            self.first = nn.Conv1d(channels, slots, 1, bias=bias)
            self.second = nn.Conv1d(slots, channels, 1, bias=bias)

    def forward(self, x):
        shape = x.shape
        a = self.first(x if self.tokens or x.dim() == 3 else x.flatten(2)).softmax(self.softmax)
        b = a / (self.epsilon + a.sum(self.total, keepdim=True))
        y = self.second(b).view(shape) if not self.moves else functional.conv1d(
            b, self.second.weight, self.second.weight[:, 0, 0] * x.mean()).view(shape)
        return y + a.mean() if self.keep else y


class Pixels(nn.Module):
    """A layer of tokens over the pixels of a map."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x.flatten(2).transpose(1, 2)).transpose(1, 2).view_as(x)


class Branches(nn.Module):
    """Selective kernels; what a near miss changes is a setting."""

    def __init__(self, maps=3, axis=1, bias=True, factor=1.0, softmax=None, pooled="sum",
                 product=False):
        super().__init__()
        self.product = nn.Parameter(torch.randn(5, maps * 16) / 4) if product else None
        self.maps = nn.ModuleList(nn.Conv2d(16, 16, 1) for _ in range(maps))
        self.first = nn.Linear(16, 5, bias=bias)
        self.select = nn.ModuleList(nn.Linear(5, 16, bias=bias) for _ in range(maps))
        self.axis, self.factor, self.pooled = axis, factor, pooled
        self.softmax = axis if softmax is None else softmax

    def forward(self, x):
        f = [one(x) for one in self.maps]
        stack = torch.stack(f, self.axis)
        s = {"sum": sum(f), "two": f[0] + f[1], "twice": f[0] + sum(f),
             "last_twice": f[0] + (f[1] + f[1])}[self.pooled]
        z = torch.relu(self.first(s.mean((2, 3))))
        if self.product is None:
            logits = torch.stack([one(z)[:, :, None, None] for one in self.select], self.axis)
        else:
            logits = (z @ self.product).view(-1, len(f), 16, 1, 1)
        return (self.factor * logits.softmax(self.softmax) * stack).sum(self.axis)


def behind(module):
    """The module in a network of convolutions."""
    return nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), module)


CBAM, SE, EXTERNAL, SK = "CBAM", "SqueezeExcite", "ExternalAttention", "SKSelect"
KNOWN = (CBAM, SE, EXTERNAL, SK)
SHAPE, MANY = (2, 16, 10, 9), (1, 6, 33)
TOKENS = (2, 40, 16)


def on_maps(module, operator, lengths=MANY, exporters="sd"):
    return module, "x", SHAPE, 2, lengths, exporters, operator


def on_tokens(module, operator, shape=TOKENS, axis=1):
    return module, "x", shape, axis, MANY, "sd", operator


hardswish, hard_sigmoid = functional.hardswish, functional.hardsigmoid
FORMS = {
    "cbam_timm": on_maps(CbamModule(16, rd_channels=4), CBAM),
    "cbam_timm_fixed": on_maps(CbamModule(16, rd_channels=3, spatial_kernel_size=5), CBAM, ()),
    "cbam_fightingcv": on_maps(CBAMBlock(16, 4, 5), CBAM),
    "cbam_authors": on_maps(Whole(linear=True, bias=True, max_first=True), CBAM, ()),
    "cbam_forms": on_maps(Gate(bias=True, max_first=True), CBAM),
    "cbam_linear": on_maps(Gate(linear=True, kernel=7, padding=3), CBAM),
    "cbam_channels": on_maps(Gate(pixels=False, linear=True, expand=True), CBAM),
    "cbam_pixels": on_maps(Gate(sums=None), CBAM),
    "cbam_one_pool": on_maps(Gate(sums=False, act=functional.silu), CBAM),
    "cbam_words": on_maps(Gate(gate=hard_sigmoid), CBAM),  # of two gates, the second
    "cbam_read_between": on_maps(Gate(both=True), CBAM),  # the second alone
    "se_timm": on_maps(SEModule(16, rd_channels=4), SE),
    "se_timm_max": on_maps(SEModule(16, rd_channels=3, add_maxpool=True,
                                    gate_layer="hard_sigmoid"), SE),
    "se_timm_effective": on_maps(EffectiveSEModule(16), SE),
    "se_fightingcv": on_maps(SEAttention(16, 4), SE),
    "se_linear": on_maps(Gate(pixels=False, sums=False, linear=True, bias=True), SE),
    "se_silu": on_maps(Gate(pixels=False, sums=False, bias=True, act=functional.silu), SE),
    "se_hardswish": on_maps(Gate(pixels=False, sums=False, act=hardswish), SE),
    "se_gelu": on_maps(Gate(pixels=False, sums=False, act=functional.gelu), SE),
    "external_fightingcv": on_tokens(ExternalAttention(16, 6), EXTERNAL),
    "external_tokens": on_tokens(Slots(tokens=True, softmax=1, total=2), EXTERNAL),
    "external_map": on_maps(Slots(), EXTERNAL),
    "external_fightingcv_map": on_maps(Pixels(ExternalAttention(16, 6)), EXTERNAL),
    "external_tokens_map": on_maps(Pixels(Slots(tokens=True, softmax=1, total=2)), EXTERNAL),
    "external_channels_first": on_tokens(Slots(), EXTERNAL, (2, 16, 40), 2),
    "sk_timm": on_maps(behind(SelectiveKernel(16, 16, rd_channels=5)), SK),
    "sk_timm_paths": on_maps(behind(SelectiveKernel(16, 16, rd_channels=5, kernel_size=[3, 5, 3],
                                                    split_input=False)), SK),
    "sk_fightingcv": on_maps(behind(SKAttention(channel=16, reduction=4)), SK),
    "sk_forms": on_maps(behind(Branches()), SK),
    "sk_before_batch": on_maps(behind(Branches(2, axis=0, bias=False)), SK),
    "sk_product": on_maps(behind(Branches(product=True)), SK),
    "sk_alone": on_maps(SKAttention(channel=16, reduction=4), None),
    # near misses
    "se_of_conv": on_maps(behind(Gate(pixels=False, sums=False, linear=True)), None),
    "softmax_of_channels": on_maps(behind(Branches(softmax=2)), None),
    "two_of_three": on_maps(behind(Branches(pooled="two")), None),
    "one_twice": on_maps(behind(Branches(pooled="twice")), None),
    "last_twice": on_maps(behind(Branches(2, pooled="last_twice")), None),
    "own_weights": on_maps(Gate(pixels=False, own=True), None),
    "factor": on_maps(Gate(pixels=False, factor=2.0), None),
    "other_map": on_maps(Apart(pixels=False), None),
    "eca_timm": on_maps(EcaModule(16), None),
    "context_timm": on_maps(nn.Sequential(nn.MaxPool2d(3, 1, 1), GlobalContext(16, rd_channels=4)),
                            None),
    "tanh": on_maps(Gate(pixels=False, gate=torch.tanh), None),
    "act": on_maps(Gate(pixels=False, act=torch.tanh), None),
    "dilated": on_maps(Gate(sums=None, padding=2, dilation=2), None),
    "max_of_rows": on_maps(Gate(pixels=False, height=True), None),
    "over_slots": on_tokens(Slots(tokens=True, softmax=2, total=2), None),
    "over_tokens": on_tokens(Slots(tokens=True, softmax=1, total=1), None),
    "bias_of_slots": on_maps(Slots(bias=True), None),
    "bias_of_data": on_tokens(Slots(moves=True), None, (2, 16, 40), 2),
    "weights_read": on_maps(Slots(keep=True), None),
}
SHORT = {name: "sd"[i % 2] for i, name in enumerate(FORMS) if i % 3 == 0}
