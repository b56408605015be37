"""modules.py - networks of the benchmark that transformers does not have, in PyTorch: gates of
squeeze-and-excitation and CBAM in a ResNet, MobileNetV3, a U-Net, a detector of the shape of
YOLOv8n, and ResNets with halo attention, involution and selective kernels.
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


# ---- attention and involution in a ResNet ----

class Halo(nn.Module):
    """Vaswani and others, Scaling Local Self-Attention: blocks of pixels see windows around
    them. Relative positions as timm adds them, and cells outside of the map take part."""

    def __init__(self, channels, block=7, halo=3, head=32):
        super().__init__()
        self.heads, self.block, self.halo = channels // head, block, halo
        self.window = block + 2 * halo
        self.q = nn.Conv2d(channels, channels, 1, bias=False)
        self.kv = nn.Conv2d(channels, 2 * channels, 1, bias=False)
        self.height, self.width = (nn.Parameter(
            torch.randn(2 * self.window - 1, head) * head**-0.5) for _ in range(2))

    def relative(self, q, table):
        """(pixels of a row, cells of a row of the window), shifted from distances."""
        distances = (q @ table.t()).flatten(0, -3)
        shifted = nn.functional.pad(distances, (0, 1)).flatten(1)
        shifted = nn.functional.pad(shifted, (0, 2 * self.window - 1 - self.block))
        shifted = shifted.unflatten(1, (self.block + 1, 2 * self.window - 1))
        return shifted[:, :self.block, self.window - 1:].reshape(*q.shape[:-1], self.window)

    def forward(self, x):
        side, (b, c, h, w) = self.block, x.shape
        q = self.q(x).reshape(b * self.heads, -1, h // side, side, w // side, side)
        q = q.permute(0, 2, 4, 3, 5, 1).flatten(1, 2)  # (heads, blocks, side, side, head)
        near = nn.functional.unfold(self.kv(x), self.window, stride=side, padding=self.halo)
        near = near.reshape(b, 2, self.heads, c // self.heads, self.window**2, -1)
        k, v = near.permute(1, 0, 2, 5, 4, 3).flatten(1, 2).unbind(0)
        rows = self.relative(q.transpose(2, 3), self.height).transpose(2, 3)
        bias = rows[..., None] + self.relative(q, self.width)[..., None, :]
        q = q.flatten(2, 3)
        scores = q @ k.transpose(-1, -2) * q.shape[-1]**-0.5 + bias.flatten(4).flatten(2, 3)
        y = scores.softmax(-1) @ v
        y = y.reshape(b * self.heads, h // side, w // side, side, side, -1)
        return y.permute(0, 5, 1, 3, 2, 4).reshape(b, c, h, w)


class Involution(nn.Module):
    """Li and others, Involution, as its authors write it; the norm behind `reduce` is folded
    into it."""

    def __init__(self, channels, stride=1, kernel=7, group=16):
        super().__init__()
        self.kernel, self.stride, self.groups = kernel, stride, channels // group
        few = channels // 4
        self.pool = nn.AvgPool2d(stride, stride) if stride > 1 else nn.Identity()
        self.reduce = nn.Conv2d(channels, few, 1)
        self.span = nn.Conv2d(few, kernel**2 * self.groups, 1)
        self.unfold = nn.Unfold(kernel, 1, kernel // 2, stride)

    def forward(self, x):
        weight = self.span(torch.relu(self.reduce(self.pool(x))))
        b, _, h, w = weight.shape
        weight = weight.view(b, self.groups, self.kernel**2, h, w).unsqueeze(2)
        near = self.unfold(x).view(b, self.groups, -1, self.kernel**2, h, w)
        return (weight * near).sum(3).view(b, -1, h, w)


class Select(nn.Module):
    """Li and others, Selective Kernel Networks: the sum of two branches, weighted for each
    channel."""

    def __init__(self, channels):
        super().__init__()
        few = max(32, channels // 16)
        self.few, self.many = nn.Conv2d(channels, few, 1), nn.Conv2d(few, 2 * channels, 1)

    def forward(self, first, second):
        z = torch.relu(self.few((first + second).mean((2, 3), keepdim=True)))
        weights = self.many(z).unflatten(1, (2, -1)).softmax(1)
        return weights[:, 0] * first + weights[:, 1] * second


class Selective(nn.Module):
    """Convolutions of 3x3 and of 3x3 with dilation 2, and a choice between them."""

    def __init__(self, channels, stride, groups):
        super().__init__()
        self.branches = nn.ModuleList(nn.Sequential(
            nn.Conv2d(channels, channels, 3, stride, d, d, groups, bias=False),
            nn.BatchNorm2d(channels), nn.ReLU()) for d in (1, 2))
        self.select = Select(channels)

    def forward(self, x):
        return self.select(*(branch(x) for branch in self.branches))


def normed(unit, channels):
    return nn.Sequential(unit, nn.BatchNorm2d(channels), nn.ReLU())


class Bottleneck(nn.Module):
    """`unit(channels, stride)` in the place of the convolution of 3x3."""

    def __init__(self, inputs, width, outputs, stride, unit):
        super().__init__()
        self.body = nn.Sequential(conv(inputs, width, 1), unit(width, stride),
                                  conv(width, outputs, 1, 1, nn.Identity))
        self.past = (nn.Identity() if inputs == outputs and stride == 1
                     else conv(inputs, outputs, 1, stride, nn.Identity))

    def forward(self, x):
        return torch.relu(self.body(x) + self.past(x))


class Residual(nn.Module):
    """He and others' ResNet with bottlenecks: `width` channels of units in the first stage."""

    def __init__(self, unit, layers, width=64, stem=None):
        super().__init__()
        blocks, inputs = [], 64
        for stage, count in enumerate(layers):
            for i in range(count):
                stride = 2 if stage > 0 and i == 0 else 1
                blocks.append(Bottleneck(inputs, width << stage, 256 << stage, stride, unit))
                inputs = 256 << stage
        self.features = nn.Sequential(stem or conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1), *blocks)
        self.head = nn.Linear(inputs, 1000)

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


def halonet():
    """ResNet-26 with Halo for each 3x3. Blocks of 7 divide the maps of an image of 224; an
    odd block's stride is a pool behind it, as in timm."""
    def unit(channels, stride):
        pool = [nn.AvgPool2d(2)] if stride > 1 else []
        return normed(nn.Sequential(Halo(channels), *pool), channels)
    return Residual(unit, (2, 2, 2, 2))


def rednet():
    """RedNet-26, with its stem of an involution of 3x3 between convolutions."""
    stem = nn.Sequential(conv(3, 32, 3, 2), normed(Involution(32, 1, 3), 32), conv(32, 64))
    return Residual(lambda channels, stride: normed(Involution(channels, stride), channels),
                    (1, 2, 4, 1), stem=stem)


def sknet(groups):
    """SKNet-50; without groups at the widths of ResNet-50."""
    return Residual(lambda channels, stride: Selective(channels, stride, groups), (3, 4, 6, 3),
                    128 if groups > 1 else 64)
