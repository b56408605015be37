"""Softmax attention that is written with Einsum, with one head of keys, with the maximum subtracted
first, or over compressed keys. Some modules are those of packages and take x (PyPI linformer,
linformer-pytorch, memory-compressed-attention); the others write the same in other ways and take
q, k and v (batch, heads, tokens, dim). Modules that differ in one point stay as they are."""
import math
import sys
from pathlib import Path

import torch
from linformer import LinformerSelfAttention
from memory_compressed_attention import MemoryCompressedAttention
from torch import einsum, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "attention"))
from golden import class_of  # noqa: E402

LinearAttentionHead = class_of("linformer_pytorch/linformer_pytorch.py",
                               "LinearAttentionHead")["LinearAttentionHead"]

FUSED = "FusedAttention"
KNOWN = (FUSED,)


class Attend(nn.Module):
    def __init__(self, attend):
        super().__init__()
        self.attend = attend

    def forward(self, q, k, v):
        return self.attend(q * 8 ** -0.5, k, v)


class Head(nn.Module):
    """One head of linformer-pytorch, with the projections of a layer."""

    def __init__(self, n, slots, **more):
        super().__init__()
        self.head = LinearAttentionHead(24, 0.0, nn.Linear(n, slots), nn.Linear(n, slots), None,
                                        **more)
        self.q, self.k, self.v = (nn.Linear(24, 24) for _ in range(3))

    def forward(self, x):
        return self.head(self.q(x), self.k(x), self.v(x))


def heads(q, k, v):
    return einsum("bhij,bhjd->bhid", einsum("bhid,bhjd->bhij", q, k).softmax(-1), v)


def dots(q, k, v):
    return einsum("...ij,...jd->...id", einsum("...id,...jd->...ij", q, k).softmax(-1), v)


def tokens(q, k, v):
    return einsum("bhnm,bmhd->bnhd", einsum("bnhd,bmhd->bhnm", q, k).softmax(-1), v)


def joined(q, k, v):
    """Tokens before heads go straight into the output's projection."""
    return einsum("bhnm,bmhd->bnhd", einsum("bnhd,bmhd->bhnm", q, k).softmax(-1), v).flatten(2)


def three_axes(q, k, v):
    q, k, v = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)
    return einsum("bij,bjd->bid", einsum("bid,bjd->bij", q, k).softmax(-1), v)


def minus_max(q, k, v):
    scores = einsum("bhid,bhjd->bhij", q, k) * 0.7
    scores = scores - scores.amax(dim=-1, keepdim=True).detach()
    return einsum("bhij,bhjd->bhid", scores.softmax(-1), v)


def minus_max_of_products(q, k, v):
    scores = q @ k.transpose(-1, -2)
    return (scores - scores.amax(-1, keepdim=True)).softmax(-1) @ v


def minus_log_sum(q, k, v):
    """As transformers' Reformer writes it; the sums may be read again."""
    scores = q @ k.transpose(-1, -2)
    return torch.exp(scores - torch.logsumexp(scores, -1, keepdim=True)) @ v


def minus_log_sum_of_queries(q, k, v):
    scores = q @ k.transpose(-1, -2)
    return torch.exp(scores - torch.logsumexp(scores, -2, keepdim=True)) @ v


def relaxed(q, k, v):
    """CogView's softmax, as transformers' LayoutLMv3 has it."""
    scores = (q @ k.transpose(-1, -2) + v[..., :1].transpose(-1, -2)) / 32
    return ((scores - scores.amax(-1).unsqueeze(-1)) * 32).softmax(-1) @ v


def relaxed_scaled(q, k, v):
    scores = q @ k.transpose(-1, -2) / 32
    return ((scores - scores.amax(-1, keepdim=True)) * 8).softmax(-1) @ v


def relaxed_by_key(q, k, v):
    scores = q @ k.transpose(-1, -2) / 32
    return ((scores - scores.amax(-2).unsqueeze(-2)) * 32).softmax(-1) @ v


def relaxed_by_other(q, k, v):
    scores = q @ k.transpose(-1, -2) / 32
    return ((scores - v.sum(-1)[..., None, :].amax(-2).unsqueeze(-2)) * 32).softmax(-1) @ v


ONES = torch.ones(1, 1, 512, 512).tril()


def multiplied(q, k, v):
    """OpenAI's GPT."""
    b = ONES[:, :, :q.shape[2], :q.shape[2]]
    scores = q @ k.transpose(-1, -2) * b + -1e4 * (1 - b)
    return (scores + v[..., :1].transpose(-1, -2)).softmax(-1) @ v


def multiplied_by_condition(q, k, v):
    b = (v[:, :, None, :, 0] < 1).float()
    return ((q @ k.transpose(-1, -2) * 2) * b - 1e9 * (1 - b)).softmax(-1) @ v


def multiplied_only(q, k, v):
    """Hides nothing: the scores are 0."""
    b = ONES[:, :, :q.shape[2], :q.shape[2]]
    return (q @ k.transpose(-1, -2) * b).softmax(-1) @ v


def multiplied_by_parts(q, k, v):
    b = (ONES + 1)[:, :, :q.shape[2], :q.shape[2]] / 2
    return (q @ k.transpose(-1, -2) * b + -1e4 * (1 - b)).softmax(-1) @ v


def capped(q, k, v):
    """transformers' Gemma 2."""
    return (torch.tanh(q @ k.transpose(-1, -2) / 3) * 3).softmax(-1) @ v


def capped_by_one(q, k, v):
    return einsum("bhij,bhjd->bhid", einsum("bhid,bhjd->bhij", q, k).tanh().softmax(-1), v)


def capped_minus(q, k, v):
    return (torch.tanh(q @ k.transpose(-1, -2) * 0.4) * -3).softmax(-1) @ v


def capped_masked(q, k, v):
    """The cap is behind the mask, which then hides nothing."""
    scores = q @ k.transpose(-1, -2)
    at = torch.arange(q.shape[2])
    scores = scores.masked_fill(at[None, :] > at[:, None], -torch.finfo(scores.dtype).max)
    return (torch.tanh(scores / 3) * 3).softmax(-1) @ v


def capped_twice(q, k, v):
    return (torch.tanh(torch.tanh(q @ k.transpose(-1, -2)) * 2)).softmax(-1) @ v


def capped_read(q, k, v):
    scores = torch.tanh(q @ k.transpose(-1, -2) / 3)
    return (scores * 3).softmax(-1) @ v + scores.mean()


def capped_by_sigmoid(q, k, v):
    return (torch.sigmoid(q @ k.transpose(-1, -2) / 3) * 3).softmax(-1) @ v


def capped_by_head(q, k, v):
    return (torch.tanh(q @ k.transpose(-1, -2)) * torch.tensor([1., 2, 3])[:, None, None]
            ).softmax(-1) @ v


def cosine(q, k, v):
    """Swin V2: unit vectors, and a factor of each head in front of what is added."""
    q, k = nn.functional.normalize(q, dim=-1), nn.functional.normalize(k, dim=-1)
    scores = q @ k.transpose(-1, -2) * torch.tensor([2.0, 5.0, 9.0])[:, None, None]
    at = torch.arange(q.shape[2])
    return (scores + (at[None, :] - at[:, None]).abs() * -0.1).softmax(-1) @ v


def divided_by_query(q, k, v):
    scores = q @ k.transpose(-1, -2) / (1 + v[..., :1] ** 2)
    at = torch.arange(q.shape[2])
    return scores.masked_fill(at[None, :] > at[:, None], -math.inf).softmax(-1) @ v


def scaled_sum(q, k, v):
    """CodeGen: the factor is that of a sum."""
    at = torch.arange(q.shape[2])
    mask = torch.where(at[None, :] > at[:, None], torch.finfo(q.dtype).min, 0.0)
    return ((q @ k.transpose(-1, -2) + mask) / 2.5).softmax(-1) @ v


def scaled_choice(q, k, v):
    at = torch.arange(q.shape[2])
    scores = (q @ k.transpose(-1, -2)).masked_fill(at[None, :] > at[:, None], -1e9)
    return (0.5 * (scores + v[:, :, :, 0][:, :, None])).softmax(-1) @ v


def subtracted(q, k, v):
    at = torch.arange(q.shape[2])
    return (q @ k.transpose(-1, -2) - 0.1 * (at[None, :] - at[:, None]).abs()).softmax(-1) @ v


def subtracted_scores(q, k, v):
    at = torch.arange(q.shape[2])
    return (0.1 * (at[None, :] - at[:, None]).abs() - q @ k.transpose(-1, -2)).softmax(-1) @ v


def scaled_two_products(q, k, v):
    """XLNet: both of what is added are scores."""
    return ((q @ k.transpose(-1, -2) + k @ q.transpose(-1, -2)) * 0.5).softmax(-1) @ v


def scaled_by_key(q, k, v):
    return (q @ k.transpose(-1, -2) * v[..., :1].transpose(-1, -2)).softmax(-1) @ v


def scaled_by_pair(q, k, v):
    return (q @ k.transpose(-1, -2) * v.sum(-1)[:, :, None]).softmax(-1) @ v


def scaled_behind_mask(q, k, v):
    """What hides a score in one head does not in another one."""
    at = torch.arange(q.shape[2])
    scores = (q @ k.transpose(-1, -2)).masked_fill(at[None, :] > at[:, None], -3)
    return (scores * torch.tensor([2.0, 5.0, 9.0])[:, None, None]).softmax(-1) @ v


def scaled_read(q, k, v):
    scores = q @ k.transpose(-1, -2) * torch.tensor([2.0, 5.0, 9.0])[:, None, None]
    return scores.softmax(-1) @ v + scores.mean()


def causal(q, k, v):
    scores = einsum("bhid,bhjd->bhij", q, k)
    at = torch.arange(q.shape[2])
    scores = scores.masked_fill(at[None, :] > at[:, None], -torch.finfo(scores.dtype).max)
    return einsum("bhij,bhjd->bhid", scores.softmax(-1), v)


def one_kv_head(q, k, v):
    """lucidrains' multi-query attention."""
    k, v = k[:, 0], v[:, 0]
    return einsum("bhij,bjd->bhid", einsum("bhid,bjd->bhij", q, k).softmax(-1), v)


def one_kv_head_causal(q, k, v):
    k, v = k[:, :1], v[:, 1:2]
    mask = torch.full((q.shape[2], q.shape[2]), float("-inf")).triu(1)
    return (q @ k.transpose(-1, -2) + mask).softmax(-1) @ v


def queries_last(q, k, v):
    """The result as (batch, heads, dim, queries)."""
    return einsum("bhij,bhjd->bhdi", einsum("bhid,bhjd->bhij", q, k).softmax(-1), v)


def over_queries(q, k, v):
    return einsum("bhij,bhjd->bhid", einsum("bhid,bhjd->bhij", q, k).softmax(-2), v)


def scores_read(q, k, v):
    scores = einsum("bhid,bhjd->bhij", q, k)
    return einsum("bhij,bhjd->bhid", scores.softmax(-1), v) + scores.mean()


def minus_mean(q, k, v):
    """No shift that a softmax hides: it is of the columns."""
    scores = einsum("bhid,bhjd->bhij", q, k)
    scores = scores - scores.amax(-2, keepdim=True)
    return einsum("bhij,bhjd->bhid", scores.softmax(-1), v)


def one_dim_of_keys(q, k, v):
    """Einsum repeats it for every one of the queries."""
    return heads(q, k[..., :1], v)


def diagonal(q, k, v):
    """Sums over heads, too."""
    return einsum("bij,bhjd->bhid", einsum("bhid,bhjd->bij", q, k).softmax(-1), v)


SHAPE, MANY = (2, 3, 40, 8), (1, 33, 300)


def on_heads(attend, operator=FUSED, axis=2):
    return Attend(attend), "qkv", SHAPE, axis, MANY, "sd", operator


def on_tokens(module, operator=FUSED, exporters="sd"):
    return module, "x", (2, 40, 24), 1, (), exporters, operator


FORMS = {
    "linformer": on_tokens(LinformerSelfAttention(24, 40, k=8, heads=3)),
    "linformer_one_head": on_tokens(LinformerSelfAttention(24, 40, k=8, heads=3,
                                                           one_kv_head=True)),
    "linformer_shared": on_tokens(LinformerSelfAttention(24, 40, k=8, heads=3, share_kv=True)),
    "linformer_longer": on_tokens(LinformerSelfAttention(24, 64, k=8, heads=3)),
    "linformer_pytorch": on_tokens(Head(40, 8)),
    "compressed": on_tokens(MemoryCompressedAttention(24, heads=3)),
    "compressed_causal": on_tokens(MemoryCompressedAttention(24, heads=3, causal=True)),
    "heads": on_heads(heads),
    "dots": on_heads(dots),
    "tokens": on_heads(tokens, axis=1),
    "joined": on_heads(joined, axis=1),
    "three_axes": on_heads(three_axes),
    "minus_max": on_heads(minus_max),
    "minus_max_of_products": on_heads(minus_max_of_products),
    "minus_log_sum": on_heads(minus_log_sum),
    "relaxed": on_heads(relaxed),
    "relaxed_scaled": on_heads(relaxed_scaled),
    "multiplied": on_heads(multiplied),
    "multiplied_by_condition": on_heads(multiplied_by_condition),
    "multiplied_only": on_heads(multiplied_only),
    "causal": on_heads(causal),
    "cosine": on_heads(cosine),
    "divided_by_query": on_heads(divided_by_query),
    "scaled_sum": on_heads(scaled_sum),
    "scaled_choice": on_heads(scaled_choice),
    "subtracted": on_heads(subtracted),
    "capped": on_heads(capped),
    "capped_by_one": on_heads(capped_by_one),
    "capped_minus": on_heads(capped_minus),
    "one_kv_head": on_heads(one_kv_head),
    "one_kv_head_causal": on_heads(one_kv_head_causal),
    "queries_last": on_heads(queries_last),
    # near misses
    "over_queries": on_heads(over_queries, None),
    "scores_read": on_heads(scores_read, None),
    "minus_mean": on_heads(minus_mean, None),
    "relaxed_by_key": on_heads(relaxed_by_key, None),
    "relaxed_by_other": on_heads(relaxed_by_other, None),
    "multiplied_by_parts": on_heads(multiplied_by_parts, None),
    "minus_log_sum_of_queries": on_heads(minus_log_sum_of_queries, None),
    "one_dim_of_keys": on_heads(one_dim_of_keys, None),
    "diagonal": on_heads(diagonal, None),
    "subtracted_scores": on_heads(subtracted_scores, None),
    "scaled_two_products": on_heads(scaled_two_products, None),
    "scaled_by_key": on_heads(scaled_by_key, None),
    "scaled_by_pair": on_heads(scaled_by_pair, None),
    "scaled_behind_mask": on_heads(scaled_behind_mask, None),
    "scaled_read": on_heads(scaled_read, None),
    "capped_masked": on_heads(capped_masked, None),
    "capped_twice": on_heads(capped_twice, None),
    "capped_read": on_heads(capped_read, None),
    "capped_by_sigmoid": on_heads(capped_by_sigmoid, None),
    "capped_by_head": on_heads(capped_by_head, None),
}
SHORT = {name: "sd"[i % 2] for i, name in enumerate(FORMS) if i % 2 == 0}
