"""Golden cases of SKSelect: SKAttention of fightingcv-attention and SelectiveKernelAttn of
timm, in float64. Their convolutions stay outside: the branches are given."""
import torch

from golden import random, timm_layers, write

timm_layers()
from timm.layers.selective_kernel import SelectiveKernelAttn  # noqa: E402
from fightingcv_attention.attention.SKAttention import SKAttention  # noqa: E402


class Given(torch.nn.Module):
    def __init__(self, y):
        super().__init__()
        self.y = y

    def forward(self, _):
        return self.y


def xmu():
    torch.manual_seed(1)
    module = SKAttention(channel=11, kernels=[1, 3, 5], reduction=4, L=4).double().eval()
    maps = [random(i, 2, 11, 5, 3) for i in (1, 2, 3)]
    module.convs = torch.nn.ModuleList(Given(f.double()) for f in maps)
    wsel = torch.stack([fc.weight for fc in module.fcs]).detach().float()
    bsel = torch.stack([fc.bias for fc in module.fcs]).detach().float()
    w1, b1 = (t.detach().float() for t in (module.fc.weight, module.fc.bias))
    for fc, w, b in zip(module.fcs, wsel, bsel):
        fc.weight.data, fc.bias.data = w.double(), b.double()
    module.fc.weight.data, module.fc.bias.data = w1.double(), b1.double()
    y = module(maps[0].double())
    write("sk_xmu", "SKSelect", {}, [w1, b1, wsel, bsel, None, *maps], [y],
          "fightingcv_attention", "SKAttention, float64")


def timm():
    torch.manual_seed(2)
    module = SelectiveKernelAttn(8, num_paths=2, attn_channels=6).double().eval()
    for p in module.parameters():
        p.data = torch.randn_like(p)
    module.bn.running_mean.normal_()
    module.bn.running_var.uniform_(0.5, 2)
    maps = [random(i, 3, 8, 4, 7) for i in (4, 5)]
    scale = module.bn.weight / (module.bn.running_var + module.bn.eps).sqrt()
    w1 = (scale[:, None] * module.fc_reduce.weight[:, :, 0, 0]).detach().float()
    b1 = (module.bn.bias - scale * module.bn.running_mean).detach().float()
    wsel = module.fc_select.weight[:, :, 0, 0].unflatten(0, (2, 8)).detach().float()
    x = torch.stack([f.double() for f in maps], dim=1)
    y = (x * module(x)).sum(dim=1)
    write("sk_timm", "SKSelect", {"activation": "relu"}, [w1, b1, wsel, None, None, *maps],
          [y], "timm", "SelectiveKernelAttn, float64, normalization folded", (1e-5, 1e-5))


xmu()
timm()
