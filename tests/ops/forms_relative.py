"""Relative positions that are decomposed over the rows and columns of a map: each query has a
number for the row of a key and one for its column. With the pass `relative_bias`, FusedAttention
adds the two numbers itself, and no tensor of all pairs exists. Some modules are those of packages
(transformers' SAM, SAM-HQ, ViTDet and SegGPT, timm's SAM and MViTv2) and take x; the others write
the same in other ways and take q, k and v, of whose tokens the first are keys. Modules that differ
in one point keep the tensor of their sum, or stay as they are."""
import sys
from pathlib import Path

import torch
from torch import nn
from transformers import SamHQVisionConfig, SamVisionConfig, SegGptConfig, VitDetConfig
from transformers.models.sam.modeling_sam import SamVisionAttention, SamVisionSdpaAttention
from transformers.models.sam_hq.modeling_sam_hq import SamHQVisionAttention
from transformers.models.seggpt.modeling_seggpt import SegGptAttention
from transformers.models.vitdet.modeling_vitdet import VitDetAttention

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "models"))
from factories import _timm  # noqa: E402, F401
from timm.models.mvitv2 import MultiScaleAttention  # noqa: E402
from timm.models.vision_transformer_sam import Attention as TimmSam  # noqa: E402

PASS = "relative_bias"
KNOWN = (PASS,)


class First(nn.Module):
    """The first result of a layer; `more`: arguments behind x."""

    def __init__(self, layer, *more):
        super().__init__()
        self.layer, self.more = layer, more

    def forward(self, x):
        y = self.layer(x, *self.more)
        return y[0] if isinstance(y, tuple) else y


class Relative(nn.Module):
    """Queries and keys of maps of these sizes. How the numbers are added is `form`."""

    def __init__(self, form, queries=(3, 5), keys=(2, 4), scale=8 ** -0.5, shared=False):
        super().__init__()
        self.form, self.queries, self.keys, self.scale = form, queries, keys, scale
        self.shared = shared  # by all heads
        self.rows = nn.Parameter(torch.zeros(queries[0], keys[0], 8))
        self.columns = nn.Parameter(torch.zeros(queries[1], keys[1], 8))

    def forward(self, q, k, v):
        n = self.keys[0] * self.keys[1]
        k, v = k[:, :, :n], v[:, :, :n]
        of = q[:, :1] if self.shared else q
        of = of.reshape(-1, of.shape[1], *self.queries, 8)
        rows = torch.einsum("byhwc,hkc->byhwk", of, self.rows)
        columns = torch.einsum("byhwc,wkc->byhwk", of, self.columns)
        return self.form(q * self.scale @ k.transpose(-1, -2), rows, columns, v)


def pairs(scores, rows, columns):
    return scores.reshape(-1, *rows.shape[1:], columns.shape[4])


def behind(scores, rows, columns, v):
    added = rows.unsqueeze(-1) + columns.unsqueeze(-2)
    added = added.reshape(-1, rows.shape[1], *scores.shape[2:])
    return (scores + added).softmax(-1) @ v


def between(scores, rows, columns, v):
    s = pairs(scores, rows, columns) + rows.unsqueeze(-1) + columns.unsqueeze(-2)
    return s.reshape(scores.shape).softmax(-1) @ v


def columns_first(scores, rows, columns, v):
    s = columns.unsqueeze(-2) + pairs(scores, rows, columns) + rows.unsqueeze(-1)
    return s.reshape(scores.shape).softmax(-1) @ v


def together(scores, rows, columns, v):
    s = pairs(scores, rows, columns) + (columns.unsqueeze(-2) + rows.unsqueeze(-1))
    return s.reshape(scores.shape).softmax(-1) @ v


def scaled(scores, rows, columns, v):
    added = (rows.unsqueeze(-1) + columns.unsqueeze(-2)).reshape(scores.shape)
    return ((scores + added) * 0.4).softmax(-1) @ v


def expanded(scores, rows, columns, v):
    """BoTNet repeats what it gets along one axis, and moves the axes."""
    across = rows.transpose(2, 3).unsqueeze(4).expand(-1, -1, -1, -1, columns.shape[4], -1)
    along = columns.unsqueeze(3).expand(-1, -1, -1, rows.shape[4], -1, -1)
    added = across.permute(0, 1, 3, 2, 5, 4) + along.permute(0, 1, 2, 4, 3, 5)
    return (scores + added.reshape(scores.shape)).softmax(-1) @ v


def two_steps(scores, rows, columns, v):
    added = (rows.unsqueeze(-1) + columns.unsqueeze(-2)).flatten(4).flatten(2, 3)
    return (scores + added).softmax(-1) @ v


def exchanged(scores, rows, columns, v):
    """What is made of rows goes along the columns, of which there are as many."""
    added = (columns.unsqueeze(-1) + rows.unsqueeze(-2)).reshape(scores.shape)
    return (scores + added).softmax(-1) @ v


def rows_twice(scores, rows, columns, v):
    s = pairs(scores, rows, columns) + rows.unsqueeze(-1) + rows.unsqueeze(-1)
    return s.reshape(scores.shape).softmax(-1) @ v


def rows_alone(scores, rows, columns, v):
    s = pairs(scores, rows, columns) + rows.unsqueeze(-1)
    return s.reshape(scores.shape).softmax(-1) @ v


def three(scores, rows, columns, v):
    s = pairs(scores, rows, columns) + rows.unsqueeze(-1) + columns.unsqueeze(-2)
    return (s + columns.unsqueeze(-2)).reshape(scores.shape).softmax(-1) @ v


def turned(scores, rows, columns, v):
    """Of another query: rows and columns of queries are exchanged."""
    added = (rows.unsqueeze(-1) + columns.unsqueeze(-2)).transpose(2, 3)
    return (scores + added.reshape(scores.shape)).softmax(-1) @ v


def turned_between(scores, rows, columns, v):
    s = pairs(scores, rows, columns) + rows.unsqueeze(-1) + columns.unsqueeze(-2)
    return s.transpose(2, 3).reshape(scores.shape).softmax(-1) @ v


def of_all_queries(scores, rows, columns, v):
    """One number for each column, which all queries of a row share."""
    added = rows.unsqueeze(-1) + columns.mean(3, keepdim=True).unsqueeze(-2)
    return (scores + added.reshape(scores.shape)).softmax(-1) @ v


def times(scores, rows, columns, v):
    added = (rows.unsqueeze(-1) * columns.unsqueeze(-2)).reshape(scores.shape)
    return (scores + added).softmax(-1) @ v


def read(scores, rows, columns, v):
    added = (rows.unsqueeze(-1) + columns.unsqueeze(-2)).reshape(scores.shape)
    return (scores + added).softmax(-1) @ v + added.mean()


def read_between(scores, rows, columns, v):
    s = pairs(scores, rows, columns) + rows.unsqueeze(-1) + columns.unsqueeze(-2)
    return s.reshape(scores.shape).softmax(-1) @ v + s.mean()


def scores_read(scores, rows, columns, v):
    s = pairs(scores, rows, columns) + rows.unsqueeze(-1) + columns.unsqueeze(-2)
    return s.reshape(scores.shape).softmax(-1) @ v + scores.mean()


def mvit(stride=(1, 1), has_cls_token=False):
    layer = MultiScaleAttention(16, 16, (6, 6), num_heads=2, kernel_q=(3, 3), kernel_kv=(3, 3),
                                stride_kv=stride, has_cls_token=has_cls_token)
    return First(layer, (6, 6))


def sam(kind, window=0, config=SamVisionConfig):
    return First(kind(config(hidden_size=16, num_attention_heads=2, image_size=80, patch_size=16),
                      window))


def seggpt():
    return First(SegGptAttention(SegGptConfig(
        hidden_size=16, num_attention_heads=2, image_size=[48, 80], patch_size=16,
        use_relative_position_embeddings=True)))


def vitdet():
    config = VitDetConfig(hidden_size=16, num_attention_heads=2,
                          use_relative_position_embeddings=True)
    return First(VitDetAttention(config, (3, 5)))


def timm_sam(fused):
    layer = TimmSam(16, num_heads=2, use_rel_pos=True, input_size=(3, 5))
    layer.fused_attn = fused
    return layer


MAP, TOKENS, HEADS = (2, 3, 5, 16), (2, 36, 16), (2, 3, 15, 8)


def layer(module, shape=MAP, operator=PASS, exporters="sd", lengths=(1, 3)):
    return module, "x", shape, 0, lengths, exporters, operator


def form(how, operator=PASS, exporters="sd", lengths=(), **settings):
    return Relative(how, **settings), "qkv", HEADS, 0, lengths, exporters, operator


FORMS = {
    "sam": layer(sam(SamVisionAttention)),
    "sam_window": layer(sam(SamVisionAttention, 7), (4, 7, 7, 16), lengths=()),
    "sam_sdpa": layer(sam(SamVisionSdpaAttention)),
    "sam_hq": layer(sam(SamHQVisionAttention, config=SamHQVisionConfig)),
    "vitdet": layer(vitdet()),
    "seggpt": layer(seggpt()),
    "timm_sam": layer(timm_sam(False)),
    "timm_sam_fused": layer(timm_sam(True), exporters="s", lengths=()),
    "mvit": layer(mvit(), TOKENS, lengths=()),
    "mvit_pooled": layer(mvit((2, 2)), TOKENS, lengths=()),
    "behind": form(behind, lengths=(1, 3)),
    "between": form(between, lengths=(1, 3)),
    "columns_first": form(columns_first),
    "together": form(together),
    "scaled": form(scaled),
    "expanded": form(expanded),
    "two_steps": form(two_steps),
    "square": form(behind, keys=(3, 3)),
    "exchanged": form(exchanged, keys=(3, 3)),
    "wide": form(between, keys=(2, 7)),
    "one_row_of_queries": form(between, queries=(1, 15)),
    # near misses
    "rows_twice": form(rows_twice, None),
    "rows_alone": form(rows_alone, None),
    "three": form(three, None),
    "turned": form(turned, None),
    "turned_between": form(turned_between, None),
    "of_all_queries": form(of_all_queries, None),
    "times": form(times, None),
    "one_row": form(between, None, keys=(1, 8)),
    "shared": form(behind, None, shared=True),
    "read": form(read, None),
    "read_between": form(read_between, None),
    "scores_read": form(scores_read, None),
    "class_token": layer(mvit((2, 2), True), (2, 37, 16), None, lengths=()),
}
SHORT = {name: form[5][i % len(form[5])] for i, (name, form) in enumerate(FORMS.items())}
