"""modules.py - networks of the benchmark that transformers does not have, in PyTorch: gates of
squeeze-and-excitation and CBAM in a ResNet, MobileNetV3, a U-Net, and a detector of the shape
of YOLOv8n.
They are written for their shapes; weights are random."""
import torch
from torch import nn


def conv(inputs, outputs, kernel=3, stride=1, act=nn.ReLU):
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
                         nn.BatchNorm2d(outputs), act())


# ---- gates ----

class Excite(nn.Module):
    """Hu and others, Squeeze-and-Excitation Networks."""

    def __init__(self, channels):
        super().__init__()
        self.few, self.many = nn.Conv2d(channels, channels // 16, 1), nn.Conv2d(
            channels // 16, channels, 1)

    def forward(self, x):
        few = torch.relu(self.few(x.mean((2, 3), keepdim=True)))
        return x * torch.sigmoid(self.many(few))


class Cbam(Excite):
    """Woo and others, CBAM: a gate of channels from means and maxima, then one of pixels."""

    def __init__(self, channels):
        super().__init__(channels)
        self.pixels = nn.Conv2d(2, 1, 7, padding=3)

    def forward(self, x):
        ends = (x.mean((2, 3), keepdim=True), x.amax((2, 3), keepdim=True))
        x = x * torch.sigmoid(sum(self.many(torch.relu(self.few(e))) for e in ends))
        both = torch.cat((x.mean(1, keepdim=True), x.amax(1, keepdim=True)), 1)
        return x * torch.sigmoid(self.pixels(both))


def with_gates(model, modeling, gate):
    """A gate behind the last convolution of each block of transformers' ResNet."""
    for block in model.modules():
        if isinstance(block, modeling.ResNetBottleNeckLayer):
            channels = block.layer[-1].convolution.out_channels
            block.layer.append(gate(channels))
    return model


# ---- MobileNetV3 ----

class Inverted(nn.Module):
    """Expand, depthwise, squeeze and excite, project."""

    def __init__(self, inputs, outputs, kernel, stride, wide, gated, act):
        super().__init__()
        few = (wide // 4 + 4) // 8 * 8
        self.expand = conv(inputs, wide, 1, 1, act) if wide != inputs else nn.Identity()
        self.depthwise = nn.Sequential(
            nn.Conv2d(wide, wide, kernel, stride, kernel // 2, groups=wide, bias=False),
            nn.BatchNorm2d(wide), act())
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, few, 1), nn.ReLU(),
                                  nn.Conv2d(few, wide, 1), nn.Hardsigmoid()) if gated else None
        self.project = conv(wide, outputs, 1, 1, nn.Identity)
        self.add = stride == 1 and inputs == outputs

    def forward(self, x):
        y = self.depthwise(self.expand(x))
        y = self.project(y * self.gate(y) if self.gate else y)
        return x + y if self.add else y


class MobileNetV3(nn.Module):
    """Howard and others, Searching for MobileNetV3: the large one, table 1."""

    ROWS = ((3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 1, 0, 2),
            (5, 120, 40, 1, 0, 1), (5, 120, 40, 1, 0, 1), (3, 240, 80, 0, 1, 2),
            (3, 200, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1),
            (3, 480, 112, 1, 1, 1), (3, 672, 112, 1, 1, 1), (5, 672, 160, 1, 1, 2),
            (5, 960, 160, 1, 1, 1), (5, 960, 160, 1, 1, 1))

    def __init__(self):
        super().__init__()
        layers, inputs = [conv(3, 16, 3, 2, nn.Hardswish)], 16
        for kernel, wide, outputs, gated, hard, stride in self.ROWS:
            act = nn.Hardswish if hard else nn.ReLU
            layers.append(Inverted(inputs, outputs, kernel, stride, wide, gated, act))
            inputs = outputs
        self.features = nn.Sequential(*layers, conv(160, 960, 1, 1, nn.Hardswish))
        self.head = nn.Sequential(nn.Linear(960, 1280), nn.Hardswish(), nn.Linear(1280, 1000))

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


# ---- U-Net ----

class UNet(nn.Module):
    """Ronneberger and others, U-Net, with padded convolutions: 64 to 1,024 channels."""

    def __init__(self):
        super().__init__()
        sizes = [3, 64, 128, 256, 512, 1024]
        self.down = nn.ModuleList(nn.Sequential(conv(a, b), conv(b, b))
                                  for a, b in zip(sizes, sizes[1:]))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * c, c, 2, 2) for c in sizes[4:0:-1])
        self.join = nn.ModuleList(nn.Sequential(conv(2 * c, c), conv(c, c))
                                  for c in sizes[4:0:-1])
        self.last = nn.Conv2d(64, 2, 1)

    def forward(self, x):
        kept = []
        for i, down in enumerate(self.down):
            x = down(x if i == 0 else nn.functional.max_pool2d(x, 2))
            kept.append(x)
        for up, join, side in zip(self.up, self.join, kept[-2::-1]):
            x = join(torch.cat((side, up(x)), 1))
        return self.last(x)


# ---- a detector ----

class Split(nn.Module):
    """Half of the channels pass n residual blocks, all of whose results are joined (C2f)."""

    def __init__(self, inputs, outputs, n, add=True):
        super().__init__()
        half, self.add = outputs // 2, add
        self.first = conv(inputs, outputs, 1, act=nn.SiLU)
        self.blocks = nn.ModuleList(nn.Sequential(conv(half, half, act=nn.SiLU),
                                                  conv(half, half, act=nn.SiLU))
                                    for _ in range(n))
        self.last = conv((2 + n) * half, outputs, 1, act=nn.SiLU)

    def forward(self, x):
        parts = list(self.first(x).chunk(2, 1))
        for block in self.blocks:
            y = block(parts[-1])
            parts.append(parts[-1] + y if self.add else y)
        return self.last(torch.cat(parts, 1))


class Pyramid(nn.Module):
    """Maxima of three sizes beside the map (SPPF)."""

    def __init__(self, channels):
        super().__init__()
        self.first = conv(channels, channels // 2, 1, act=nn.SiLU)
        self.last = conv(2 * channels, channels, 1, act=nn.SiLU)

    def forward(self, x):
        parts = [self.first(x)]
        for _ in range(3):
            parts.append(nn.functional.max_pool2d(parts[-1], 5, 1, 2))
        return self.last(torch.cat(parts, 1))


class Yolo(nn.Module):
    """Of YOLOv8n's shape: 80 classes and 16 distances a side, on three scales."""

    def __init__(self):
        super().__init__()
        silu = nn.SiLU
        self.stem = nn.Sequential(conv(3, 16, 3, 2, silu), conv(16, 32, 3, 2, silu),
                                  Split(32, 32, 1), conv(32, 64, 3, 2, silu), Split(64, 64, 2))
        self.middle = nn.Sequential(conv(64, 128, 3, 2, silu), Split(128, 128, 2))
        self.deep = nn.Sequential(conv(128, 256, 3, 2, silu), Split(256, 256, 1), Pyramid(256))
        self.up1, self.up2 = Split(384, 128, 1, False), Split(192, 64, 1, False)
        self.down1, self.join1 = conv(64, 64, 3, 2, silu), Split(192, 128, 1, False)
        self.down2, self.join2 = conv(128, 128, 3, 2, silu), Split(384, 256, 1, False)
        self.heads = nn.ModuleList(nn.ModuleList(
            nn.Sequential(conv(c, w, act=silu), conv(w, w, act=silu), nn.Conv2d(w, n, 1))
            for w, n in ((64, 64), (80, 80))) for c in (64, 128, 256))

    def forward(self, x):
        def twice(y):
            return nn.functional.interpolate(y, scale_factor=2.0, mode="nearest")

        a = self.stem(x)
        b = self.middle(a)
        c = self.deep(b)
        u = self.up1(torch.cat((twice(c), b), 1))
        p = self.up2(torch.cat((twice(u), a), 1))
        q = self.join1(torch.cat((self.down1(p), u), 1))
        r = self.join2(torch.cat((self.down2(q), c), 1))
        return torch.cat([torch.cat([h(y) for h in heads], 1).flatten(2)
                          for y, heads in zip((p, q, r), self.heads)], 2)
