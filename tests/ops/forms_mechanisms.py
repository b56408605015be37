"""Attention mechanisms that PyTorch modules write out, as the authors of each publish them, and
modules of packages (timm, PyPI fightingcv-attention). Modules that differ in one point stay as
they are."""
import sys
from pathlib import Path

import torch
from fightingcv_attention.attention.DANet import PositionAttentionModule
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "attention"))
from golden import timm_layer  # noqa: E402

NonLocalAttn = timm_layer("non_local_attn", "NonLocalAttn")


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
    """SAGAN's attention, as heykeetae/Self-Attention-GAN and DANet write it; what a near miss
    changes is a setting."""

    def __init__(self, channels=16, scale=None, gammas=1, squares=False, twice=False,
                 capped=False):
        super().__init__()
        self.q, self.k = nn.Conv2d(channels, 4, 1), nn.Conv2d(channels, 4, 1)
        self.v = nn.Conv2d(channels, channels, 1)
        self.gamma = nn.Parameter(torch.ones(1 if gammas == 1 else (gammas, 1, 1)))
        self.scale, self.squares, self.twice, self.capped = scale, squares, twice, capped

    def forward(self, x):
        b, c, h, w = x.shape
        q = self.q(x * x if self.squares else x).view(b, -1, h * w).permute(0, 2, 1)
        scores = torch.bmm(q, self.k(x).view(b, -1, h * w))
        if self.scale:
            scores = scores * self.scale
        if self.capped:
            scores = torch.tanh(scores / 2) * 2
        weights = scores.softmax(-1)
        y = torch.bmm(self.v(x).view(b, -1, h * w), weights.permute(0, 2, 1))
        y = self.gamma * y.view(b, c, h, w)
        return y + (y if self.twice else x)


class Pooled(Spatial):
    """ajbrock/BigGAN-PyTorch: keys and values of every other pixel."""

    def forward(self, x):
        b, c, h, w = x.shape
        k, v = (nn.functional.max_pool2d(y, 2) for y in (self.k(x), self.v(x)))
        q, k, v = (y.flatten(2) for y in (self.q(x), k, v))
        weights = torch.bmm(q.transpose(1, 2), k).softmax(-1)
        y = torch.bmm(v, weights.transpose(1, 2)).view(b, c, h, w)
        return self.gamma * y + x


class Sums(Spatial):
    """By Einsum, without a look at the sizes of the map."""

    def forward(self, x):
        q, k, v = (y.flatten(2) for y in (self.q(x), self.k(x), self.v(x)))
        weights = torch.einsum("bci,bcj->bij", q, k).softmax(-1)
        return self.gamma * torch.einsum("bij,bcj->bci", weights, v).view(x.shape) + x


class Columns(Spatial):
    """The softmax over queries: no attention."""

    def forward(self, x):
        b, c, h, w = x.shape
        q = self.q(x).view(b, -1, h * w).permute(0, 2, 1)
        weights = torch.bmm(q, self.k(x).view(b, -1, h * w)).softmax(-1)
        return torch.bmm(self.v(x).view(b, -1, h * w), weights).view(b, c, h, w)


class Tokens(nn.Module):
    """Attention by features, as a function of q, k and v."""

    def __init__(self, attend, feature=lambda x: nn.functional.elu(x) + 1):
        super().__init__()
        self.attend, self.feature = attend, feature

    def forward(self, q, k, v):
        return self.attend(self.feature(q), self.feature(k), v)


def performer_features(x):
    """Positive random features of the softmax kernel, of 16 fixed directions."""
    directions = torch.cos(torch.arange(16 * 8).reshape(16, 8) * 1.7)
    projected = torch.einsum("...id,jd->...ij", x * 8 ** -0.25, directions)
    norms = (x ** 2).sum(-1, keepdim=True) / 2 * 8 ** -0.5
    return torch.exp(projected - norms - projected.amax(-1, keepdim=True).detach()) + 1e-4


def by_einsum(q, k, v):
    """idiap/fast-transformers' LinearAttention: tokens before heads."""
    kv = torch.einsum("nshd,nshm->nhmd", k, v)
    z = 1 / (torch.einsum("nlhd,nhd->nlh", q, k.sum(dim=1)) + 1e-6)
    return torch.einsum("nlhd,nhmd,nlh->nlhm", q, kv, z).contiguous()


def by_einsum_of_heads(q, k, v):
    z = 1 / (torch.einsum("bhnd,bhd->bhn", q, k.sum(dim=2)) + 1e-6)
    return torch.einsum("bhnd,bhde,bhn->bhne", q, torch.einsum("bhnd,bhne->bhde", k, v), z)


def by_products(q, k, v):
    return (q @ (k.transpose(-1, -2) @ v)) / (
        (q * k.sum(-2, keepdim=True)).sum(-1, keepdim=True) + 1e-6)


def by_products_of_sums(q, k, v):
    return (q @ (k.transpose(-1, -2) @ v)) / (q @ k.sum(-2).unsqueeze(-1) + 1e-4)


def by_factor(q, k, v):
    d = torch.einsum("bhnd,bhd->bhn", q, k.sum(dim=-2)) + 1e-6
    return torch.einsum("bhde,bhnd->bhne", torch.einsum("bhnd,bhne->bhde", k, v), q) * (
        1 / d).unsqueeze(-1)


def by_dots(q, k, v):
    """lucidrains' performer-pytorch, linear_attention."""
    d_inv = 1. / torch.einsum("...nd,...d->...n", q, k.sum(dim=-2))
    context = torch.einsum("...nd,...ne->...de", k, v)
    return torch.einsum("...de,...nd,...n->...ne", context, q, d_inv)


def sums_apart(q, k, v):
    kv = torch.einsum("bhsd,bhte->bhde", k, v)  # all pairs of keys
    return (q @ kv) / ((q * k.sum(-2, keepdim=True)).sum(-1, keepdim=True) + 1e-6)


def sums_of_queries(q, k, v):
    return (q @ (k.transpose(-1, -2) @ v)) / (
        (q * q.sum(-2, keepdim=True)).sum(-1, keepdim=True) + 1e-6)


def sums_of_dims(q, k, v):
    return (q @ (k.transpose(-1, -2) @ v)) / (
        (q * k.sum(-1, keepdim=True)).sum(-1, keepdim=True) + 1e-6)


def divided_by_key(q, k, v):
    return (q @ (k.transpose(-1, -2) @ v)) / (
        (k * q.sum(-2, keepdim=True)).sum(-1, keepdim=True) + 1e-6)


LINEAR = "LinearAttention"
SAGAN = "SAGANAttention"
KNOWN = ("Involution", "FusedAttention", SAGAN, LINEAR, "PerformerAttention")
MAPS = {"": (1, 16, 14, 14), "_batch": (2, 16, 9, 12), "_small": (1, 16, 6, 8)}
TOKENS, MANY = (2, 3, 40, 8), (1, 33, 300)


def on_maps(name, module, operator, sizes=("",)):
    return {name + size: (module, "x", MAPS[size], 2, (), "sd", operator) for size in sizes}


def on_rows(name, module, operator="Involution"):
    """Maps whose number of rows is a symbol."""
    return {name: (module, "x", MAPS[""], 2, (2, 14, 31), "sd", operator)}


def on_tokens(name, module, operator=LINEAR, axis=2):
    return {name: (module, "qkv", TOKENS, axis, MANY, "sd", operator)}


FORMS = {
    **on_maps("involution", Involution(), "Involution", MAPS),
    **on_maps("involution_3", Involution(size=3, groups=4), "Involution"),
    **on_maps("involution_stride", Involution(stride=2), "Involution", ("", "_small")),
    **on_rows("involution_rows", Involution()),
    **on_rows("involution_rows_3", Involution(size=3, groups=4)),
    **on_maps("sagan", Spatial(), SAGAN, MAPS),
    **on_maps("sagan_scaled", Spatial(scale=0.3), SAGAN, ("_batch",)),
    **on_maps("sagan_pooled", Pooled(), SAGAN),
    **on_maps("sagan_sums", Sums(), SAGAN),
    **on_rows("sagan_rows", Spatial(), SAGAN),
    **on_maps("sagan_non_local", NonLocalAttn(16, rd_channels=8), "FusedAttention"),
    **on_maps("sagan_danet", nn.Sequential(nn.Conv2d(16, 4, 1), PositionAttentionModule(4)),
              "FusedAttention"),
    **on_tokens("linear_einsum", Tokens(by_einsum), axis=1),
    **on_tokens("linear_heads", Tokens(by_einsum_of_heads)),
    **on_tokens("linear_products", Tokens(by_products)),
    **on_tokens("linear_relu", Tokens(by_products, nn.functional.relu)),
    **on_tokens("linear_squares", Tokens(by_products, torch.square)),
    **on_tokens("linear_sums", Tokens(by_products_of_sums)),
    **on_tokens("linear_factor", Tokens(by_factor)),
    **on_tokens("performer_by_key", Tokens(by_dots, performer_features)),
    # near misses
    **on_maps("involution_dilated", Involution(size=3, dilation=2), None),
    **on_maps("involution_ones", Involution(mode="padded by ones"), None),
    **on_maps("involution_taps_first", Involution(mode="taps first"), None),
    **on_rows("involution_rows_dilated", Involution(size=3, dilation=2), None),
    **on_rows("involution_rows_ones", Involution(mode="padded by ones"), None),
    **on_maps("columns", Columns(), None),
    **on_maps("sagan_gammas", Spatial(gammas=16), "FusedAttention"),
    **on_maps("sagan_squares", Spatial(squares=True), "FusedAttention"),
    **on_maps("sagan_twice", Spatial(twice=True), "FusedAttention"),
    **on_maps("sagan_capped", Spatial(capped=True), "FusedAttention"),
    **on_maps("sagan_pooled_odd", Pooled(), "FusedAttention", ("_batch",)),
    **on_tokens("sums_apart", Tokens(sums_apart), None),
    **on_tokens("sums_of_queries", Tokens(sums_of_queries), None),
    **on_tokens("sums_of_dims", Tokens(sums_of_dims), None),
    **on_tokens("divided_by_key", Tokens(divided_by_key), None),
}
SHORT = {name: "sd"[i % 2] for i, name in enumerate(FORMS)}
