"""RedNet: bottlenecks of a ResNet whose middle convolution is an involution of 7 by 7. The
involution is fightingcv-attention's, swapped, its norm folded; the rest is the factory's."""
import torch
from attnrun_convert.call import call
from torch import nn

from . import _parts as parts
from .resnet import folded, matrix

parts.without_init("fightingcv_attention")
from fightingcv_attention.conv.Involution import Involution  # noqa: E402


def involve(self, x):
    weight, bias = folded(matrix(self.conv1), self.bn)
    scale = self.bn.weight / torch.sqrt(self.bn.running_var + self.bn.eps)
    return call("Involution", x, weight, bias + scale * self.conv1.bias, matrix(self.conv2),
                self.conv2.bias, kernel_size=self.kernel_size, groups=self.group,
                stride=self.stride)


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.reduce = nn.Sequential(nn.Conv2d(inputs, width, 1, bias=False),
                                    nn.BatchNorm2d(width), nn.ReLU())
        self.middle = nn.Sequential(Involution(7, width, stride, group=width // 8),
                                    nn.BatchNorm2d(width), nn.ReLU())
        self.expand = nn.Sequential(nn.Conv2d(width, outputs, 1, bias=False),
                                    nn.BatchNorm2d(outputs))
        self.past = nn.Identity() if inputs == outputs and stride == 1 else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return torch.relu(self.expand(self.middle(self.reduce(x))) + self.past(x))


class RedNet(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16),
                                  nn.ReLU(), Involution(3, 16, group=2),
                                  nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.Sequential(Bottleneck(16, 8, 1), Bottleneck(32, 8, 1),
                                    Bottleneck(32, 16, 2), Bottleneck(64, 16, 1))
        self.head = nn.Linear(64, classes)

    def forward(self, image):
        return self.head(self.blocks(self.stem(image)).mean((2, 3)))


def build():
    upstream = parts.randomise(RedNet())
    sets = [(parts.floats(b, 3, h, w),) for b, h, w in ((2, 64, 64), (1, 48, 80))]
    return parts.swapped(upstream, {Involution: involve}), upstream, sets
