"""Whole layers around attention by kernel features, with their projections and heads. The modules
take x, or x and a context. Some are those of packages (PyPI performer-pytorch,
linear-attention-transformer, timm's EfficientViT); the others write the same in other ways.
Modules that differ in one point stay as they are. A layer with cumulative sums of whole buckets
of keys stays as it is, and a layer that also has heads with a window is recognised only in its
other heads."""
import sys
from pathlib import Path

import torch
from einops import rearrange
from linear_attention_transformer.linear_attention_transformer import (
    LinearAttentionTransformer, SelfAttention)
from performer_pytorch import CrossAttention, Performer
from performer_pytorch import SelfAttention as PerformerSelfAttention
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "models"))
from factories import _timm  # noqa: E402, F401
from timm.models.efficientvit_mit import LiteMLA  # noqa: E402

LINEAR, PERFORMER = "LinearAttention", "PerformerAttention"
KNOWN = (LINEAR, PERFORMER)
functional = nn.functional


class Layer(nn.Module):
    """A stock layer, whose arguments have no names that exporters could bind."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)


class Cross(Layer):
    def forward(self, x, c):
        return self.layer(x, context=c)


def elu1(x):
    return functional.elu(x) + 1


class Linear(nn.Module):
    """Projections, heads and attention by associativity; what a near miss changes is a setting."""

    def __init__(self, form="heads", feature=elu1, epsilon=1e-6, total="keys"):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(24, 24) for _ in range(4))
        self.form, self.feature, self.epsilon, self.total = form, feature, epsilon, total

    def attend(self, q, k, v):
        q, k = self.feature(q), self.feature(k)
        total = {"keys": k.sum(-2), "queries": q.sum(-2), "first": k[:, :, 0] + 1}[self.total]
        z = torch.einsum("bhnd,bhd->bhn", q, total) + self.epsilon
        kv = torch.einsum("bhnd,bhne->bhde", k, v)
        return torch.einsum("bhnd,bhde->bhne", q, kv) / z[..., None]

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.q(x), self.k(x), self.v(x)
        if self.form == "rearranged":
            q, k, v = (rearrange(t, "b n (h d) -> b h n d", h=3) for t in (q, k, v))
            return self.out(rearrange(self.attend(q, k, v), "b h n d -> b n (h d)"))
        if self.form == "tokens":  # idiap/fast-transformers' AttentionLayer
            q, k, v = (self.feature(t.view(b, n, 3, -1)) if i < 2 else t.view(b, n, 3, -1)
                       for i, t in enumerate((q, k, v)))
            kv = torch.einsum("nshd,nshm->nhmd", k, v)
            z = 1 / (torch.einsum("nlhd,nhd->nlh", q, k.sum(dim=1)) + self.epsilon)
            y = torch.einsum("nlhd,nhmd,nlh->nlhm", q, kv, z)
            return self.out(y.reshape(b, n, -1))
        if self.form == "feature first":  # transposes behind the features
            q, k = self.feature(q), self.feature(k)
            q, k, v = (t.view(b, n, 3, -1).transpose(1, 2) for t in (q, k, v))
            y = (q @ (k.transpose(-1, -2) @ v)) / (
                (q * k.sum(-2, keepdim=True)).sum(-1, keepdim=True) + self.epsilon)
            return self.out(y.transpose(1, 2).reshape(b, n, -1))
        q, k, v = (t.view(b, n, 3, -1).transpose(1, 2) for t in (q, k, v))
        return self.out(self.attend(q, k, v).transpose(1, 2).reshape(b, n, -1))


class Maps(nn.Module):
    """lucidrains' denoising-diffusion-pytorch, LinearAttention: dims before pixels."""

    def __init__(self, of_k=-1):
        super().__init__()
        self.qkv, self.out = nn.Conv2d(16, 72, 1, bias=False), nn.Conv2d(24, 16, 1)
        self.of_k = of_k

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = (rearrange(t, "b (h c) x y -> b h c (x y)", h=3)
                   for t in self.qkv(x).chunk(3, dim=1))
        q, k = q.softmax(dim=-2) * 8 ** -0.5, k.softmax(dim=self.of_k)
        context = torch.einsum("b h d n, b h e n -> b h d e", k, v)
        y = torch.einsum("b h d e, b h d n -> b h e n", context, q)
        return self.out(rearrange(y, "b h c (x y) -> b (h c) x y", h=3, x=h, y=w))


class Ones(nn.Module):
    """Sums of weights as one more column of values; what a near miss changes is a setting."""

    def __init__(self, value=1.0, before=False, columns=1, read=False):
        super().__init__()
        self.value, self.before, self.columns, self.read = value, before, columns, read
        self.q, self.k, self.v = (nn.Linear(24, 24) for _ in range(3))

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = (one(x).view(b, n, 3, -1).transpose(1, 2) for one in (self.q, self.k, self.v))
        pads = (1, 0) if self.before else (0, self.columns)
        v = functional.pad(functional.softplus(v), pads, value=self.value)
        p = torch.relu(q) @ (torch.relu(k).transpose(-1, -2) @ v)
        y = p[..., :8] / (p[..., -1:] + 1e-5)
        return (y + p.mean() if self.read else y).transpose(1, 2).reshape(b, n, -1)


SHAPE, MANY = (2, 40, 24), (1, 17, 130)
MAP, ROWS = (2, 16, 10, 9), (1, 6, 33)


def on_tokens(module, operator, inputs="x", lengths=MANY, exporters="sd"):
    return module, inputs, SHAPE, 1, lengths, exporters, operator


def on_maps(module, operator, lengths=ROWS):
    return module, "x", MAP, 2, lengths, "sd", operator


def performer(**settings):
    return Layer(PerformerSelfAttention(24, heads=3, dim_head=8, nb_features=20, **settings))


def transformer(**settings):
    return Layer(SelfAttention(24, 3, **{"causal": False, **settings}))


FORMS = {
    "performer": on_tokens(performer(), PERFORMER),
    "performer_relu": on_tokens(performer(generalized_attention=True), PERFORMER),
    "performer_biases": on_tokens(performer(qkv_bias=True, attn_out_bias=False), PERFORMER),
    "performer_softmax": on_tokens(performer(no_projection=True), LINEAR),
    "performer_cross": on_tokens(Cross(CrossAttention(24, heads=3, dim_head=8, nb_features=20)),
                                 PERFORMER, "xc"),
    "performer_stack": on_tokens(Layer(Performer(24, 2, 3, 8, nb_features=20)), PERFORMER),
    "performer_rezero": on_tokens(Layer(Performer(24, 1, 3, 8, nb_features=20, use_rezero=True,
                                                  ff_glu=True)), PERFORMER),
    "transformer": on_tokens(transformer(), LINEAR),
    "transformer_cross": on_tokens(Cross(transformer(receives_context=True).layer), LINEAR, "xc"),
    "transformer_dims": on_tokens(transformer(dim_head=16), LINEAR),
    "transformer_stack": on_tokens(Layer(LinearAttentionTransformer(24, 2, 512, heads=3)), LINEAR),
    "efficientvit": on_maps(LiteMLA(16, 16), LINEAR),
    "efficientvit_fixed": on_maps(LiteMLA(16, 24, heads=3, scales=(3, 5)), LINEAR, ()),
    "heads": on_tokens(Linear(), LINEAR),
    "rearranged": on_tokens(Linear("rearranged"), LINEAR),
    "tokens": on_tokens(Linear("tokens"), LINEAR),
    "feature_first": on_tokens(Linear("feature first"), LINEAR),
    "relu": on_tokens(Linear(feature=torch.relu, epsilon=1e-3), LINEAR),
    "squares": on_tokens(Linear("rearranged", torch.square), LINEAR),
    "ones": on_tokens(Ones(), LINEAR),
    "diffusion": on_maps(Maps(), LINEAR),
    # near misses
    "transformer_causal": on_tokens(transformer(causal=True, blindspot_size=8), None, lengths=()),
    "sums_of_queries": on_tokens(Linear(total="queries"), None),
    "first_key": on_tokens(Linear(total="first"), None),
    "softmax_of_dims": on_maps(Maps(of_k=-2), None),
    "twos": on_tokens(Ones(value=2.0), None),
    "ones_before": on_tokens(Ones(before=True), None),
    "two_columns": on_tokens(Ones(columns=2), None),
    "columns_read": on_tokens(Ones(read=True), None),
}
SHORT = {name: "sd"[i % 2] for i, name in enumerate(FORMS) if i % 2 == 0 or "_" not in name}
