"""Attention over maps: whole, in blocks with a halo, or along rows. The modules take x and are
those of timm and of PyPI halonet-pytorch and fightingcv-attention. Modules that differ in one
point stay as they are. Biases of relative positions, and sums of the scores, are computed from
the queries."""
import sys
from pathlib import Path

import torch
from fightingcv_attention.attention.HaloAttention import HaloAttention as FightingHalo
from fightingcv_attention.conv.Involution import Involution
from halonet_pytorch import HaloAttention
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "attention"))
from golden import timm_layer  # noqa: E402

FUSED = "FusedAttention"
KNOWN = (FUSED, "Involution", "LinearAttention")


def timm(module, name, *arguments, **settings):
    return timm_layer(module, name)(*arguments, **settings)


class Halo(nn.Module):
    """Blocks of pixels and their surroundings; what a near miss changes is a setting."""

    def __init__(self, fill=None, axis=-1, added="behind", scale=0.3):
        super().__init__()
        self.q, self.kv = nn.Conv2d(16, 16, 1), nn.Conv2d(16, 32, 1)
        self.fill, self.axis, self.added, self.scale = fill, axis, added, scale
        self.fill = -torch.finfo(torch.float32).max if fill is None else fill

    def blocks(self, x, size, halo):
        b, c = x.shape[:2]
        x = nn.functional.unfold(x, size, stride=4, padding=halo)
        return x.view(b, c, size * size, -1).permute(0, 3, 2, 1).flatten(0, 1)

    def forward(self, x):
        q = self.blocks(self.q(x), 4, 0)
        k, v = self.blocks(self.kv(x), 6, 1).chunk(2, -1)
        s = q @ k.transpose(-1, -2) * self.scale
        bias = q[..., :1] * torch.linspace(-1, 1, 36)
        hidden = self.blocks(torch.ones_like(x[:, :1]), 6, 1).transpose(-1, -2) < 0.5
        if self.added == "behind":
            s = s.masked_fill(hidden, self.fill) + bias
        elif self.added == "twice":
            s = (s + bias).masked_fill(hidden, self.fill) + bias
        else:
            s = (s + bias).masked_fill(hidden, self.fill)
        return s.softmax(self.axis) @ v


MAP, SMALL = (1, 16, 16, 16), (2, 16, 8, 12)


def on_maps(module, operator=FUSED, shape=MAP, exporters="sd"):
    return module, "x", shape, 2, (), exporters, operator


def halo(**settings):
    return HaloAttention(**{**dict(dim=16, block_size=4, halo_size=1, dim_head=8, heads=2),
                            **settings})


FORMS = {
    "halo": on_maps(halo()),
    "halo_batch": on_maps(halo(), shape=SMALL),
    "halo_rows": (halo(), "x", MAP, 2, (4, 16, 24), "sd", FUSED),
    "halo_one_head": on_maps(halo(heads=1, halo_size=2)),
    "halo_fightingcv": on_maps(FightingHalo(dim=16, block_size=4, halo_size=1, dim_head=8,
                                            heads=2)),
    "halo_timm": on_maps(timm("halo_attn", "HaloAttn", 16, num_heads=2, block_size=4,
                              halo_size=1), exporters="d"),
    "halo_timm_stride": on_maps(timm("halo_attn", "HaloAttn", 16, num_heads=2, block_size=4,
                                     halo_size=1, stride=2, qkv_bias=True),
                                exporters="d"),
    "bottleneck": on_maps(timm("bottleneck_attn", "BottleneckAttn", 16, feat_size=(16, 16),
                               num_heads=2)),
    "non_local": on_maps(timm("non_local_attn", "NonLocalAttn", 16)),
    "non_local_batch": on_maps(timm("non_local_attn", "NonLocalAttn", 16, use_scale=False),
                               shape=SMALL),
    "blocks": on_maps(Halo(added="before")),
    "blocks_behind": on_maps(Halo()),
    "involution_fightingcv": on_maps(Involution(kernel_size=3, in_channel=16, group=2),
                                     "Involution"),
    "involution_stride": on_maps(Involution(kernel_size=3, in_channel=16, stride=2),
                                 "Involution"),
    "bottleneck_scaled": on_maps(timm("bottleneck_attn", "BottleneckAttn", 16,
                                      feat_size=(16, 16), num_heads=2, scale_pos_embed=True)),
    # near misses
    "lambda": on_maps(timm("lambda_layer", "LambdaLayer", 16, num_heads=2, dim_head=8, r=3), None),
    "over_queries": on_maps(Halo(axis=-2), None),
    "added_twice": on_maps(Halo(added="twice"), None),
}
SHORT = {name: form[5][i % len(form[5])]
         for i, (name, form) in enumerate(FORMS.items()) if i % 2 == 0}
