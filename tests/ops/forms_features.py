"""Attention by kernel features. The modules take q, k and v. Some are those of packages (PyPI
performer-pytorch, linear-attention-transformer); the others write the same in other ways.
Modules that differ in one point become LinearAttention, if their products are associative, or
stay as they are. The TorchScript exporter writes the loop of a causal Performer with sequences,
which ONNX Runtime refuses."""
from functools import partial

import torch
from linear_attention_transformer.linear_attention_transformer import linear_attn
from performer_pytorch import FastAttention
from torch import nn

LINEAR, PERFORMER = "LinearAttention", "PerformerAttention"
KNOWN = (LINEAR, PERFORMER)


class Stock(nn.Module):
    def __init__(self, **settings):
        super().__init__()
        torch.manual_seed(3)
        self.attend = FastAttention(dim_heads=8, nb_features=20, **settings)

    def forward(self, q, k, v):
        return self.attend(q, k, v)


class Features(nn.Module):
    """Positive random features of the softmax kernel; what a near miss changes is a setting."""

    def __init__(self, form="heads", stable=True, epsilon=1e-4, ratio=None, norms=0.5,
                 key_axes=(-1, -2), other_directions=False, quotient=0.0, function=None,
                 minus=False, key_epsilon=None, one_key_head=False):
        super().__init__()
        torch.manual_seed(4)
        self.register_buffer("w", torch.randn(24, 8))
        self.register_buffer("w_keys", torch.randn(24, 8) if other_directions else self.w)
        self.form, self.stable, self.epsilon, self.norms = form, stable, epsilon, norms
        self.ratio, self.key_axes, self.quotient = ratio, key_axes, quotient
        self.function, self.minus = function, minus
        self.key_epsilon = epsilon if key_epsilon is None else key_epsilon
        self.one_key_head = one_key_head
        if one_key_head:  # its features have as many heads as the directions
            self.w = self.w_keys = self.w.repeat(1, 3, 1, 1)

    def features(self, x, w, axes, epsilon):
        x = x * 8 ** -0.25
        u = x @ w.transpose(-1, -2)
        if self.function is not None:
            return self.function(u) + epsilon
        at = u - self.norms * (x * x).sum(-1, keepdim=True)
        if self.stable:
            at = at - torch.amax(u, dim=axes, keepdim=True)
        y = torch.exp(-at if self.minus else at) + epsilon
        return y if self.ratio is None else y * self.ratio

    def forward(self, q, k, v):
        q = self.features(q, self.w, -1, self.epsilon)
        k = k[:, :1] if self.one_key_head else k
        k = self.features(k, self.w_keys, self.key_axes, self.key_epsilon)
        if self.form == "tokens":
            z = torch.einsum("nlhd,nhd->nlh", q, k.sum(1))
            return torch.einsum("nlhd,nhdm->nlhm", q, torch.einsum(
                "nshd,nshm->nhdm", k, v)) / (z + self.quotient).unsqueeze(-1)
        z = (q * k.sum(-2, keepdim=True)).sum(-1, keepdim=True) + self.quotient
        return q @ (k.transpose(-1, -2) @ v) / z


class Causal(nn.Module):
    """Cumulative sums, as functions of features of q and k."""

    def __init__(self, attend):
        super().__init__()
        self.attend = attend

    def forward(self, q, k, v):
        return self.attend(nn.functional.elu(q) + 1, nn.functional.elu(k) + 1, v)


def causal_tokens(q, k, v, sums=lambda x: x.cumsum(1)):
    """As idiap/fast-transformers' CausalLinearAttention says what it computes."""
    kv = sums(torch.einsum("nshd,nshm->nshdm", k, v))
    z = 1 / (torch.einsum("nlhd,nlhd->nlh", q, k.cumsum(1)) + 1e-6)
    return torch.einsum("nlhd,nlhdm,nlh->nlhm", q, kv, z)


def causal_heads(q, k, v, weights=lambda k: k.cumsum(2)):
    kv = torch.einsum("bhnd,bhne->bhnde", k, v).cumsum(2)
    return torch.einsum("bhnd,bhnde->bhne", q, kv) / (
        (q * weights(k)).sum(-1, keepdim=True) + 1e-5)


def causal_dots(q, k, v, before=0, behind=0):
    """lucidrains' performer-pytorch, causal_linear_attention_noncuda, in one chunk; a near miss
    adds numbers before the quotient, in two steps, or behind it."""
    z = torch.einsum("...nd,...nd->...n", q, k.cumsum(dim=-2))
    d_inv = 1. / (z + 2 * before + -before if before else z)
    d_inv = d_inv + behind if behind else d_inv
    context = torch.einsum("...nd,...ne->...nde", k, v).cumsum(dim=-3)
    return torch.einsum("...nde,...nd,...n->...ne", context, q, d_inv)


def by_rows(q, k, v, squeeze=False):
    """The sum of each token as a matrix, by broadcasting; queries as rows before it."""
    kv = (k[..., None] * v[..., None, :]).cumsum(-3)
    y = q[..., None, :] @ kv
    return (y.squeeze(-2) if squeeze else y[..., 0, :]) / (
        (q * k.cumsum(-2)).sum(-1, keepdim=True) + 1e-6)


def by_columns(q, k, v, of_keys=0.25):
    """The same summed over columns; epsilon is added to each sum of keys."""
    kv = (k[..., None] @ v[..., None, :]).cumsum(-3)
    z = (q * (k.cumsum(-2) + of_keys)).sum(-1, keepdim=True)
    return (q[..., None] * kv).sum(-2) / z


def other_row(q, k, v):
    """Of two queries a row, the second one counts."""
    kv = (k[..., None] * v[..., None, :]).cumsum(-3)
    return (torch.stack([q, q * 2], -2) @ kv)[..., 1, :] / (
        (q * k.cumsum(-2)).sum(-1, keepdim=True) + 1e-6)


def in_chunks(q, k, v, carried=-1, carries_keys=True, size=8):
    """As performer-pytorch's loop over chunks; a near miss carries something else."""
    last_k, last_kv, y = 0, 0, []
    for q, k, v in zip(*(x.split(size, -2) for x in (q, k, v))):
        z = last_k + k.cumsum(-2)
        kv = last_kv + torch.einsum("...nd,...ne->...nde", k, v).cumsum(-3)
        y.append(torch.einsum("...nde,...nd,...n->...ne", kv, q,
                              1 / torch.einsum("...nd,...nd->...n", q, z + 1e-6)))
        last_k = z[:, :, -1:] if carries_keys else 0
        last_kv = kv[:, :, carried:][:, :, :1]
    return torch.cat(y, -2)


def over_heads(q, k, v):
    return causal_tokens(q, k, v, lambda x: x.cumsum(2))


def all_weights(q, k, v):
    return causal_heads(q, k, v, lambda k: k.sum(2, keepdim=True))


def by_key(q, k, v):
    """The weights of queries stand where the dims of values do, which are as many."""
    kv = torch.einsum("bhnd,bhne->bhnde", k, v).cumsum(2)
    z = torch.einsum("bhnd,bhnd->bhn", q, k.cumsum(2))
    return torch.einsum("bhnd,bhnde->bhne", q, kv) / z.unsqueeze(-2)


class Softmaxes(nn.Module):
    """Efficient attention (Shen 2018); what a near miss changes is a setting."""

    def __init__(self, form="heads", of_q=-1, of_k=-2, read=False, by_token=False, scale=0.3):
        super().__init__()
        self.form, self.of_q, self.of_k, self.read, self.scale = form, of_q, of_k, read, scale
        self.by_token = by_token

    def forward(self, q, k, v):
        if self.form == "no heads":
            q, k, v = q[:, 0], k[:, 1], v[:, 2]
        q = q if self.of_q is None else q.softmax(self.of_q)
        k = k.transpose(-1, -2).softmax(-1).transpose(-1, -2) if self.form == "transposed" else (
            k.softmax(self.of_k))
        if self.by_token:
            kv = torch.einsum("bnhd,bnhe->bhde", k, v)
            y = torch.einsum("bnhd,bhde->bnhe", q * self.scale, kv)
        elif self.form == "dims":  # as lucidrains' denoising-diffusion-pytorch
            kv = torch.einsum("bhdn,bhen->bhde", k, v)
            y = torch.einsum("bhde,bhdn->bhen", kv, q * self.scale)
        elif self.form == "keys":
            y = q @ ((k / 7).transpose(-1, -2) @ v)
        else:
            y = q * self.scale @ (k.transpose(-1, -2) @ v)
        return y + k.mean() if self.read else y


class Plain(nn.Module):
    def __init__(self, attend):
        super().__init__()
        self.attend = attend

    def forward(self, q, k, v):
        return self.attend(q, k, v)


def over_slots(q, k, v):
    """The softmax is over dims of keys: tokens compete for nothing."""
    return q.softmax(-1) @ (k.softmax(-1).transpose(-1, -2) @ v)


SHAPE, MANY = (2, 3, 40, 8), (1, 17, 130)
TOKENS = (2, 40, 3, 8)
SHORT = {"stock": "d", "relu": "s", "quotient": "d", "norm_of_one": "s", "minus": "d",
         "causal_tokens": "s", "causal_dots": "d", "over_heads": "s",
         "causal_rows": "s", "causal_columns": "d", "causal_uneven_chunks": "d",
         "stock_causal": "d", "chunks_first_token": "d",
         "by_key": "d", "softmax_stock": "d", "softmax_tokens": "s", "softmax_dims": "d",
         "softmax_over_slots": "s", "other_epsilon": "s", "one_key_head": "s",
         "behind_quotient": "s", "two_sums": "s"}
FORMS = {
    "stock": (Stock(), "qkv", SHAPE, 2, MANY, "sd", PERFORMER),
    "stock_relu": (Stock(generalized_attention=True), "qkv", SHAPE, 2, MANY, "sd", PERFORMER),
    "stock_sigmoid": (Stock(generalized_attention=True, kernel_fn=nn.Sigmoid()), "qkv", SHAPE, 2,
                   MANY, "sd", PERFORMER),
    "features": (Features(), "qkv", SHAPE, 2, MANY, "sd", PERFORMER),
    "ratio": (Features(ratio=24 ** -0.5), "qkv", SHAPE, 2, MANY, "sd", PERFORMER),
    "quotient": (Features(ratio=0.3, quotient=1e-2), "qkv", SHAPE, 2, MANY, "sd", PERFORMER),
    "unstable": (Features(stable=False, epsilon=1e-6), "qkv", SHAPE, 2, MANY, "sd", PERFORMER),
    "relu": (Features(function=torch.relu, epsilon=1e-3), "qkv", SHAPE, 2, MANY, "sd",
             PERFORMER),
    "relu_tokens": (Features(function=torch.relu, form="tokens", epsilon=1e-3), "qkv", TOKENS, 1,
                    MANY, "sd", PERFORMER),
    "unstable_tokens": (Features(stable=False, form="tokens", epsilon=1e-6), "qkv", TOKENS, 1,
                        MANY, "sd", PERFORMER),
    "causal_tokens": (Causal(causal_tokens), "qkv", TOKENS, 1, MANY, "sd", LINEAR),
    "causal_heads": (Causal(causal_heads), "qkv", SHAPE, 2, MANY, "sd", LINEAR),
    "causal_dots": (Causal(causal_dots), "qkv", SHAPE, 2, MANY, "sd", LINEAR),
    "causal_rows": (Causal(by_rows), "qkv", SHAPE, 2, MANY, "sd", LINEAR),
    "causal_squeezed": (Causal(partial(by_rows, squeeze=True)), "qkv", SHAPE, 2, MANY, "sd",
                        LINEAR),
    "causal_columns": (Causal(by_columns), "qkv", SHAPE, 2, MANY, "sd", LINEAR),
    "causal_chunks": (Causal(in_chunks), "qkv", SHAPE, 2, (), "sd", LINEAR),
    "causal_uneven_chunks": (Causal(in_chunks), "qkv", (1, 2, 35, 8), 2, (), "sd", LINEAR),
    "stock_causal": (Stock(causal=True), "qkv", SHAPE, 2, (), "d", PERFORMER),
    "stock_causal_chunks": (Stock(causal=True), "qkv", (1, 2, 300, 8), 2, (), "d", PERFORMER),
    "stock_causal_relu": (Stock(causal=True, generalized_attention=True), "qkv",
                          (1, 2, 200, 8), 2, (), "d", PERFORMER),
    "softmax_stock": (Plain(linear_attn), "qkv", SHAPE, 2, MANY, "sd", LINEAR),
    "softmax_heads": (Softmaxes(), "qkv", SHAPE, 2, MANY, "sd", LINEAR),
    "softmax_transposed": (Softmaxes("transposed"), "qkv", SHAPE, 2, MANY, "sd", LINEAR),
    "softmax_tokens": (Softmaxes(of_k=1, by_token=True), "qkv", TOKENS, 1, MANY, "sd", LINEAR),
    "softmax_no_heads": (Softmaxes("no heads"), "qkv", SHAPE, 2, MANY, "sd", LINEAR),
    "softmax_keys": (Softmaxes("keys", of_q=None), "qkv", SHAPE, 2, MANY, "sd", LINEAR),
    "softmax_queries": (Softmaxes(of_q=-2), "qkv", SHAPE, 2, MANY, "sd", LINEAR),
    "softmax_dims": (Softmaxes("dims", of_q=-2, of_k=-1), "qkv", (2, 3, 8, 40), 3, MANY, "sd",
                     LINEAR),
    # near misses
    "behind_quotient": (Causal(partial(causal_dots, behind=0.01)), "qkv", SHAPE, 2, MANY, "sd",
                        None),
    "two_sums": (Causal(partial(causal_dots, before=0.5)), "qkv", SHAPE, 2, MANY, "sd", None),
    "softmax_read": (Softmaxes(read=True), "qkv", SHAPE, 2, MANY, "sd", None),
    "softmax_over_slots": (Plain(over_slots), "qkv", SHAPE, 2, MANY, "sd", None),
    "softmax_over_heads": (Softmaxes(of_k=1), "qkv", SHAPE, 2, MANY, "sd", None),
    "by_key": (Causal(by_key), "qkv", (2, 3, 8, 8), 2, (), "sd", None),
    "over_heads": (Causal(over_heads), "qkv", TOKENS, 1, MANY, "sd", None),
    "all_weights": (Causal(all_weights), "qkv", SHAPE, 2, MANY, "sd", None),
    "other_row": (Causal(other_row), "qkv", SHAPE, 2, MANY, "sd", None),
    "chunks_first_token": (Causal(partial(in_chunks, carried=0)), "qkv", SHAPE, 2, (), "sd", None),
    "chunks_own_weights": (Causal(partial(in_chunks, carries_keys=False)), "qkv", SHAPE, 2, (),
                           "sd", None),
    "norm_of_one": (Features(norms=1.0), "qkv", SHAPE, 2, MANY, "sd", LINEAR),
    "infinite_quotient": (Features(quotient=float("inf")), "qkv", SHAPE, 2, MANY, "sd", None),
    "one_key_head": (Features(one_key_head=True), "qkv", SHAPE, 2, MANY, "sd", LINEAR),
    "other_epsilon": (Features(key_epsilon=0.0), "qkv", SHAPE, 2, MANY, "sd", LINEAR),
    "key_by_key": (Features(key_axes=-1), "qkv", SHAPE, 2, MANY, "sd", LINEAR),
    "all_heads": (Features(key_axes=(-1, -2, -3)), "qkv", SHAPE, 2, MANY, "sd", LINEAR),
    "other_directions": (Features(other_directions=True), "qkv", SHAPE, 2, MANY, "sd", LINEAR),
    "minus": (Features(minus=True, stable=False), "qkv", SHAPE, 2, MANY, "sd", LINEAR),
    "softplus": (Features(function=nn.functional.softplus), "qkv", SHAPE, 2, MANY, "sd", LINEAR),
}
