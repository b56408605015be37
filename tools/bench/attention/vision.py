"""vision.py - the operators of maps as models of one node (a selective-kernel block has its
convolutions, too), and the published modules that they are set against.

A case's n is the side of its map; one sample, NCHW. Weights are random on both sides: times
do not depend on them.
"""
import sys
from pathlib import Path

from cases import Case, module_of

MODELS = Path(__file__).resolve().parents[3] / "models"

CHANNELS = 256
SELECTING = 32  # channels of what selects a kernel
FULL, PUBLISHED = ((3, 1), (5, 1)), ((3, 1), (3, 2))  # kernels and dilations


def maps(n, **weights):
    return {"x": (1, CHANNELS, n, n), **weights}


def alone(module):
    return module, ("x",)


# ---- upstream ----

def squeeze_excite(_n):
    from fightingcv_attention.attention.SEAttention import SEAttention
    return alone(SEAttention(CHANNELS, 16))


def cbam(_n):
    from fightingcv_attention.attention.CBAM import CBAMBlock
    return alone(CBAMBlock(CHANNELS, 16, 7))


def bam(_n):
    """The authors' class cannot be constructed as published: its formula."""
    import torch
    from torch import nn

    low = CHANNELS // 16

    class Bam(nn.Module):
        def __init__(self):
            super().__init__()
            self.channel = nn.Sequential(nn.Linear(CHANNELS, low), nn.ReLU(),
                                         nn.Linear(low, CHANNELS))
            self.spatial = nn.Sequential(
                nn.Conv2d(CHANNELS, low, 1), nn.ReLU(),
                nn.Conv2d(low, low, 3, padding=4, dilation=4), nn.ReLU(),
                nn.Conv2d(low, low, 3, padding=4, dilation=4), nn.ReLU(),
                nn.Conv2d(low, 1, 1))

        def forward(self, x):
            gate = self.channel(x.mean((2, 3)))[..., None, None]
            return x * (1 + torch.sigmoid(gate * self.spatial(x)))
    return alone(Bam())


def selective_kernel(groups):
    def make(_n):
        from fightingcv_attention.attention.SKAttention import SKAttention
        return alone(SKAttention(CHANNELS, kernels=[3, 5], reduction=16, group=groups))
    return make


def published_block(_n):
    """The paper's: 32 groups, 3x3 and 3x3 of dilation 2, each with norm and relu."""
    sys.path.append(str(MODELS))
    from factories._timm import SelectiveKernel
    return alone(SelectiveKernel(CHANNELS, groups=32, rd_channels=SELECTING,
                                 split_input=False))


def involution(_n):
    from fightingcv_attention.conv.Involution import Involution
    return alone(Involution(7, CHANNELS, group=16))


def halo(_n):
    from halonet_pytorch import HaloAttention
    return alone(HaloAttention(dim=CHANNELS, block_size=8, halo_size=3, dim_head=64, heads=4))


def sagan(_n):
    """Zhang 2019 in the form of the common PyTorch port."""
    import torch
    from torch import nn

    class SelfAttention(nn.Module):
        def __init__(self):
            super().__init__()
            self.query = nn.Conv2d(CHANNELS, CHANNELS // 8, 1)
            self.key = nn.Conv2d(CHANNELS, CHANNELS // 8, 1)
            self.value = nn.Conv2d(CHANNELS, CHANNELS, 1)
            self.gamma = nn.Parameter(torch.ones(1))

        def forward(self, x):
            q, k, v = (f(x).flatten(2) for f in (self.query, self.key, self.value))
            p = torch.softmax(q.transpose(1, 2) @ k, -1)
            return self.gamma * (v @ p.transpose(1, 2)).view_as(x) + x
    return alone(SelfAttention())


def external(_n):
    from fightingcv_attention.attention.ExternalAttention import ExternalAttention
    layer = ExternalAttention(CHANNELS, 64)
    return alone(module_of(lambda x: layer(x.flatten(2).transpose(1, 2))
                           .transpose(1, 2).view_as(x)))


# ---- attnrun ----

def selective_kernel_model(groups, *kernels, select_bias=True, activation="none"):
    """A convolution with Relu for each (kernel, dilation), then SKSelect."""
    def make(_n):
        import numpy as np
        from onnx import helper, numpy_helper

        draw, d, paths, nodes = np.random.default_rng(1), SELECTING, len(kernels), []
        shapes = {"w1": (d, CHANNELS), "b1": (d,), "wsel": (paths, CHANNELS, d)}
        if select_bias:
            shapes["bsel"] = (paths, CHANNELS)
        for i, (k, dilation) in enumerate(kernels):
            shapes[f"kernel{i}"] = (CHANNELS, CHANNELS // groups, k, k)
            shapes[f"bias{i}"] = (CHANNELS,)
            nodes += [helper.make_node("Conv", ["x", f"kernel{i}", f"bias{i}"],
                                       [f"c{i}"],
                                       pads=[k // 2 * dilation] * 4,
                                       dilations=[dilation] * 2, group=groups),
                      helper.make_node("Relu", [f"c{i}"], [f"f{i}"])]
        weights = [numpy_helper.from_array(
            (draw.standard_normal(s) * 0.05).astype(np.float32), k) for k, s in shapes.items()]
        nodes.append(helper.make_node(
            "SKSelect", ["w1", "b1", "wsel", "bsel" if select_bias else "", "",
                         *(f"f{i}" for i in range(paths))],
            ["Y"], domain="attnrun", activation=activation))
        return nodes, weights
    return make


def conv_flops(groups, *kernels):
    return lambda n: 2 * n * n * CHANNELS * CHANNELS // groups * sum(k * k for k, _ in kernels)


ROOT = CHANNELS // 16
VISION = {"heads": False, "linear": False, "vision": True,
          "peers": ("onnxruntime", "openvino", "torch")}
CASES = [
    Case("Squeeze-and-Excitation", "SqueezeExcite",
         lambda n: maps(n, w1=(ROOT, CHANNELS), b1=None, w2=(CHANNELS, ROOT)), None,
         squeeze_excite, "fightingcv-attention SEAttention", 1.0, lengths=(56,), **VISION),
    Case("CBAM", "CBAM",
         lambda n: maps(n, w1=(ROOT, CHANNELS), b1=None, w2=(CHANNELS, ROOT), b2=None,
                        ws=(1, 2, 7, 7), bs=(1,), identity="x"), None, cbam,
         "fightingcv-attention CBAMBlock", 2.0, lengths=(56,), **VISION),
    Case("BAM", "BAM",
         lambda n: maps(n, cw0=(ROOT, CHANNELS), cb0=(ROOT,), cw1=(CHANNELS, ROOT),
                        cb1=(CHANNELS,), sw0=(ROOT, CHANNELS), sb0=(ROOT,),
                        swm=(2, ROOT, ROOT, 3, 3), sbm=(2, ROOT), sw1=(1, ROOT), sb1=(1,)),
         None, bam, "BAM's formula in torch", 0, lengths=(56,), **VISION),
    Case("Selective Kernel, 32 groups", "SKSelect", maps, None, selective_kernel(32),
         "fightingcv-attention SKAttention, 3 and 5", 1.5, lengths=(56,),
         model=selective_kernel_model(32, *FULL), flops=conv_flops(32, *FULL), **VISION),
    Case("Selective Kernel block, 32 groups", "SKSelect", maps, None, published_block,
         "timm SelectiveKernel, 3 and 3 of dilation 2", 1.5, lengths=(56,),
         model=selective_kernel_model(32, *PUBLISHED, select_bias=False, activation="relu"),
         flops=conv_flops(32, *PUBLISHED), **VISION),
    Case("Selective Kernel, 1 group", "SKSelect", maps, None, selective_kernel(1),
         "fightingcv-attention SKAttention, 3 and 5", 1.5, lengths=(28,),
         model=selective_kernel_model(1, *FULL), flops=conv_flops(1, *FULL), **VISION),
    Case("Involution 7×7, 16 groups", "Involution",
         lambda n: maps(n, w1=(64, CHANNELS), b1=(64,), w2=(16 * 49, 64), b2=(16 * 49,)),
         lambda n: {"kernel_size": 7, "groups": 16}, involution,
         "fightingcv-attention Involution", 10, lengths=(28,),
         flops=lambda n: 2 * n * n * (49 * CHANNELS + 64 * CHANNELS + 64 * 16 * 49), **VISION),
    Case("HaloNet, block 8, halo 3", "HaloAttention",
         lambda n: maps(n, wq=(256, CHANNELS), wk=(256, CHANNELS), wv=(256, CHANNELS),
                        rel_h=(27, 64), rel_w=(27, 64), bq=None, bk=None, bv=None,
                        wo=(CHANNELS, 256), bo=(CHANNELS,)),
         lambda n: {"num_heads": 4, "block_size": 8, "halo_size": 3}, halo,
         "halonet-pytorch HaloAttention, 4 heads of 64", 3, lengths=(32,),
         flops=lambda n: n * n * (8 * CHANNELS * 256 + 4 * 196 * 256), **VISION),
    Case("SAGAN self-attention", "SAGANAttention",
         lambda n: maps(n, wq=(32, CHANNELS), bq=(32,), wk=(32, CHANNELS), bk=(32,),
                        wv=(CHANNELS, CHANNELS), bv=(CHANNELS,), gamma=(1,)), None, sagan,
         "SAGAN's formula in torch", 1.15, lengths=(64,),
         flops=lambda n: 2 * n ** 2 * (n ** 2 * (32 + CHANNELS) + CHANNELS * (64 + CHANNELS)),
         **VISION),
    Case("External attention, 64 slots", "ExternalAttention",
         lambda n: maps(n, mk=(64, CHANNELS), mv=(CHANNELS, 64)), None, external,
         "fightingcv-attention ExternalAttention", 1.3, lengths=(64,),
         flops=lambda n: 4 * n * n * CHANNELS * 64, **VISION),
]
