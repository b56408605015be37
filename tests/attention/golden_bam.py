"""Golden cases of BAM, in double: a module written after the paper and its published code,
whose class cannot be constructed as it is."""
import torch
from torch import nn

from golden import random, write


class Bam(nn.Module):
    """sigmoid of the product of both gates, as in the code."""

    def __init__(self, channels, low, dilation):
        super().__init__()
        self.channel = nn.Sequential(nn.Linear(channels, low), nn.ReLU(),
                                     nn.Linear(low, channels))
        self.spatial = nn.Sequential(
            nn.Conv2d(channels, low, 1), nn.ReLU(),
            *(layer for _ in range(2) for layer in (
                nn.Conv2d(low, low, 3, padding=dilation, dilation=dilation), nn.ReLU())),
            nn.Conv2d(low, 1, 1))

    def forward(self, x):
        channel = self.channel(x.mean((2, 3)))[..., None, None]
        return x * (1 + torch.sigmoid(channel * self.spatial(x)))


for case, shape, low, dilation in (("bam_plain", (2, 12, 9, 9), 3, 4),
                                   ("bam_dilation_2", (1, 7, 5, 11), 2, 2)):
    torch.manual_seed(4)
    module = Bam(shape[1], low, dilation).eval()
    for p in module.parameters():
        p.data.normal_(std=0.6)
    first, last, (one, two, three, four) = module.channel[0], module.channel[2], (
        module.spatial[i] for i in (0, 2, 4, 6))
    x = random(1, *shape)
    operands = [x, first.weight, first.bias, last.weight, last.bias, one.weight[..., 0, 0],
                one.bias, torch.stack([two.weight, three.weight]),
                torch.stack([two.bias, three.bias]), four.weight[..., 0, 0], four.bias]
    operands = [t.detach().clone() for t in operands]
    wide = module.double()(x.double())
    write(case, "BAM", {"dilation": dilation}, operands, [wide], None,
          "torch module after Park 2018 and the published code, float64", (1e-4, 1e-5))
