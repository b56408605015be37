"""Attention in windows whose masks belong to the windows of an image, as shifted windows have them:
scores (samples * windows, heads, …) are (samples, windows, heads, …) while masks are added. Models
are those of transformers and take images; the other modules take x (samples, rows, columns,
channels) and write the same in other ways. n is the number of samples. No Softmax is left, but in
modules that differ in one point: they stay as they are."""
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch  # noqa: E402
import transformers as tf  # noqa: E402
from torch import nn  # noqa: E402

FUSED, LEFT = "FusedAttention", "Softmax"
KNOWN = (FUSED, LEFT)
SIDE, WIDTH, HEADS, DIM = 4, 24, 3, 8
WINDOWS, TOKENS = 6, SIDE * SIDE  # 2 rows of 3 windows


def of_windows(*shape):
    """Hides other pairs in each window; never a query from itself."""
    hidden = torch.arange(WINDOWS * TOKENS * TOKENS).view(WINDOWS, TOKENS, TOKENS) * 7 % 11 < 4
    hidden &= ~torch.eye(TOKENS, dtype=torch.bool)
    return (hidden * -100.0).view(*shape, TOKENS, TOKENS)


class Windows(nn.Module):
    """attend(module, scores, values): what the windows of each sample give."""

    def __init__(self, attend):
        super().__init__()
        self.attend, self.qkv = attend, nn.Linear(WIDTH, 3 * WIDTH)
        self.bias = nn.Parameter(torch.zeros(1, HEADS, TOKENS, TOKENS))
        self.register_buffer("mask", of_windows(1, WINDOWS, 1))

    def forward(self, x):
        samples, height, width, _ = x.shape
        x = x.view(samples, height // SIDE, SIDE, width // SIDE, SIDE, WIDTH).transpose(2, 3)
        x = x.reshape(-1, TOKENS, WIDTH)
        q, k, v = self.qkv(x).view(-1, TOKENS, 3, HEADS, DIM).permute(2, 0, 3, 1, 4).unbind(0)
        return self.attend(self, q * DIM ** -0.5 @ k.transpose(-1, -2), v)


def apart(scores, windows=WINDOWS):
    return scores.view(-1, windows, HEADS, TOKENS, TOKENS)


def joined(scores):
    return scores.view(-1, HEADS, TOKENS, TOKENS)


def swin(m, scores, v):
    """Microsoft's code, which timm, SwinIR and HTS-AT have, too."""
    return joined(apart(scores + m.bias) + m.mask).softmax(-1) @ v


def only_mask(m, scores, v):
    return joined(apart(scores) + m.mask).softmax(-1) @ v


def twice(m, scores, v):
    """transformers' Swin V2 adds the mask two times."""
    return joined(apart(scores + m.bias) + m.mask + m.mask).softmax(-1) @ v


def bias_inside(m, scores, v):
    return joined(apart(scores) + m.bias + m.mask).softmax(-1) @ v


def bias_behind(m, scores, v):
    return (joined(m.mask + apart(scores)) + m.bias).softmax(-1) @ v


def bias_of_windows(m, scores, v):
    """Each window has its own bias, of every head."""
    own = m.bias * torch.arange(WINDOWS).view(-1, 1, 1, 1)
    return joined(apart(scores) + own).softmax(-1) @ v


def filled(m, scores, v):
    return joined(apart(scores + m.bias).masked_fill(m.mask < 0, float("-inf"))).softmax(-1) @ v


def filled_behind_sum(m, scores, v):
    return joined((apart(scores) + m.bias).masked_fill(m.mask < 0, -1e9)).softmax(-1) @ v


def of_samples(m, scores, v):
    """Keys of each window of each sample."""
    hidden = (v[..., 0].mean(1) > 0.2).view(-1, WINDOWS, 1, 1, TOKENS)
    return joined(apart(scores).masked_fill(hidden, -1e4) + m.mask).softmax(-1) @ v


def expanded(m, scores, v):
    """transformers' Swin."""
    samples = v.shape[0] // WINDOWS
    mask = m.mask.expand(samples, -1, -1, -1, -1).reshape(-1, 1, TOKENS, TOKENS)
    return (scores + (m.bias + mask)).softmax(-1) @ v


def samples_last(m, scores, v):
    """The number of the sample is the fast one: another window for each of the rows."""
    scores = scores.view(WINDOWS, -1, HEADS, TOKENS, TOKENS) + m.mask.transpose(0, 1)
    return joined(scores).softmax(-1) @ v


def beside_samples(m, scores, v):
    """One mask has the rows of the batch, the other one has windows."""
    own = v.mean((1, 2, 3), keepdim=True) * m.bias
    return joined(apart(scores + own) + m.mask).softmax(-1) @ v


def with_heads(m, scores, v):
    """Windows and heads are one axis."""
    mask = m.mask.expand(-1, -1, HEADS, -1, -1).reshape(1, -1, TOKENS, TOKENS)
    return joined(scores.view(-1, WINDOWS * HEADS, TOKENS, TOKENS) + mask).softmax(-1) @ v


def pairs_of_windows(m, scores, v):
    """A part of the number of the window is among the heads."""
    mask = m.mask.expand(-1, -1, HEADS, -1, -1).reshape(1, 3, 2 * HEADS, TOKENS, TOKENS)
    return joined(scores.view(-1, 3, 2 * HEADS, TOKENS, TOKENS) + mask).softmax(-1) @ v


def regrouped(m, scores, v):
    scores = joined(apart(scores) + m.mask)
    return joined(apart(scores, 2) + m.mask[:, :2]).softmax(-1) @ v


def turned(m, scores, v):
    """The scores of windows change places."""
    return joined(apart(scores).transpose(3, 4) + m.mask).softmax(-1) @ v


def read_between(m, scores, v):
    scores = apart(scores + m.bias)
    return joined(scores + m.mask).softmax(-1) @ v + scores.mean()


class Image(nn.Module):
    """A model of transformers."""

    def __init__(self, kind, **settings):
        super().__init__()
        config = getattr(tf, f"{kind}Config")(**{
            **dict(image_size=32, patch_size=2, embed_dim=24, depths=[2], num_heads=[3],
                   window_size=4, drop_path_rate=0.0), **settings})
        self.model = getattr(tf, f"{kind}Model")(config)

    def forward(self, x):
        return self.model(x)[0]


SHAPE, MANY = (2, 2 * SIDE, 3 * SIDE, WIDTH), (1, 3, 4)


def on_images(attend, operator=FUSED, lengths=MANY):
    return Windows(attend), "x", SHAPE, 0, lengths, "sd", operator


def model(kind, exporters="sd", **settings):
    return Image(kind, **settings), "x", (2, 3, 32, 32), 0, MANY, exporters, FUSED


FORMS = {
    "swin": on_images(swin),
    "swin_fixed": on_images(swin, lengths=()),
    "only_mask": on_images(only_mask),
    "twice": on_images(twice),
    "bias_inside": on_images(bias_inside),
    "bias_behind": on_images(bias_behind),
    "bias_of_windows": on_images(bias_of_windows),
    "filled": on_images(filled),
    "filled_behind_sum": on_images(filled_behind_sum),
    "of_samples": on_images(of_samples),
    "expanded": on_images(expanded),
    "samples_last_fixed": on_images(samples_last, lengths=()),
    "donut": model("DonutSwin"),
    "swin_v2": model("Swinv2"),
    "swin_tf": model("Swin", "s"),
    # near misses
    "samples_last": on_images(samples_last, LEFT),
    "beside_samples": on_images(beside_samples, LEFT),
    "with_heads": on_images(with_heads, LEFT),
    "pairs_of_windows": on_images(pairs_of_windows, LEFT),
    "regrouped": on_images(regrouped, LEFT),
    "turned": on_images(turned, LEFT),
    "read_between": on_images(read_between, LEFT),
}
SHORT = {name: "sd"[i % 2] for i, name in enumerate(FORMS) if i % 2 == 0}
