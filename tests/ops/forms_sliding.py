"""Attention over a window around each query that is cut out of products of overlapping chunks, as
transformers' Longformer and LED write it with onnx_export. The modules take x (batch, tokens,
width), and compute a mask of keys from it. longformer_indices has more indices than loading
computes.

Three kinds of files stay as they are. Without onnx_export, the exporters read strides of another
layout than the file has, so the file does not compute what the module computes. Other files do
not hide the scores beyond the ends, or have weights that other nodes read.

Only TorchScript's exporter writes global tokens: dynamo's does not know how many there are. In
the forms with global, the mask of tokens is a constant. A whole model is exported with one layer
then, since Unfold does not know its sizes after the first one. If windows do not leave out the
keys of global tokens, those count twice in the file, which stays as it is."""
from unittest import mock

import torch
from torch import nn
from transformers import LEDConfig, LongformerConfig
from transformers.models.led.modeling_led import LEDEncoderLayer, LEDEncoderSelfAttention
from transformers.models.longformer.modeling_longformer import (LongformerLayer, LongformerModel,
                                                                LongformerSelfAttention)

WIDTH = 32


def longformer(layer, window=32, onnx_export=True, heads=4, width=WIDTH):
    return layer(LongformerConfig(
        hidden_size=width, num_attention_heads=heads, attention_window=[window],
        num_hidden_layers=1, intermediate_size=48, onnx_export=onnx_export), 0)


def led(layer, window=32):
    config = LEDConfig(d_model=WIDTH, encoder_attention_heads=4, encoder_ffn_dim=48,
                       attention_window=[window], encoder_layers=1, decoder_layers=1)
    config.onnx_export = True
    return layer(config, 0)


class Sliding(nn.Module):
    """hidden: where x[..., 0] is more than this, a key is padding, and the row of its query is 0.
    globals_from: where x[..., 1] is more than this, a key is hidden from the windows, as a global
    one is, and its query is not."""

    def __init__(self, layer, hidden=None, globals_from=None):
        super().__init__()
        self.layer, self.hidden, self.globals_from = layer, hidden, globals_from

    def mask(self, x):
        mask = torch.zeros_like(x[:, :, 0])
        if self.hidden is not None:
            mask = torch.where(x[:, :, 0] > self.hidden, -10000.0, mask)
        if self.globals_from is not None:
            mask = torch.where(x[:, :, 1] > self.globals_from, 10000.0, mask)
        return mask

    def forward(self, x):
        mask = self.mask(x)
        return self.layer(x, attention_mask=mask, is_index_masked=mask < 0,
                          is_index_global_attn=mask > 0, is_global_attn=False)[0]


class Layer(Sliding):
    def forward(self, x):
        mask = self.mask(x)
        return self.layer(x, mask, is_index_masked=mask < 0, is_index_global_attn=mask > 0,
                          is_global_attn=False)[0]


class Global(nn.Module):
    """The mask is a constant. global_at, hidden: the global tokens and the padding of each sample.
    twice: windows see the global tokens, too."""

    def __init__(self, layer, global_at, hidden=(), tokens=96, twice=False):
        super().__init__()
        mask = torch.zeros(len(global_at), tokens)
        for sample, at in enumerate(global_at):
            mask[sample, list(at)] = 10000.0
        for sample, at in enumerate(hidden):
            mask[sample, list(at)] = -10000.0
        self.layer, self.twice = layer, twice
        self.register_buffer("mask", mask)

    def forward(self, x):
        mask = self.mask
        return self.layer(x, attention_mask=torch.clamp(mask, max=0) if self.twice else mask,
                          is_index_masked=mask < 0, is_index_global_attn=mask > 0,
                          is_global_attn=True)[0]


class ConstantMask(Global):
    """The same without global tokens."""

    def forward(self, x):
        mask = self.mask
        return self.layer(x, attention_mask=mask, is_index_masked=mask < 0,
                          is_index_global_attn=mask > 0, is_global_attn=False)[0]


class Stock(nn.Module):
    """The whole model of whole windows; x[..., 0] says which tokens are padding.
    globals_at_export: a mask of global tokens is given, which has none. global_at: these tokens are
    global, and there is no padding."""

    def __init__(self, globals_at_export=False, global_at=(), layers=2):
        super().__init__()
        self.globals_at_export, self.global_at = globals_at_export, list(global_at)
        self.model = LongformerModel(LongformerConfig(
            hidden_size=WIDTH, num_attention_heads=4, attention_window=[16] * layers,
            vocab_size=9, num_hidden_layers=layers, intermediate_size=48,
            max_position_embeddings=128, onnx_export=True), add_pooling_layer=False)

    def forward(self, x):
        if self.global_at:
            mask = torch.zeros(x.shape[:2], dtype=torch.long)
            mask[:, self.global_at] = 1
            return self.model(inputs_embeds=x, global_attention_mask=mask).last_hidden_state
        attended = (x[:, :, 0] < 1).long()
        some = torch.zeros_like(attended) if self.globals_at_export else None
        return self.model(inputs_embeds=x, attention_mask=attended,
                          global_attention_mask=some).last_hidden_state


class Unmasked(Sliding):
    """Scores beyond the ends are those of other keys."""

    def forward(self, x):
        with mock.patch.object(LongformerSelfAttention, "_mask_invalid_locations",
                               lambda *_: None):
            return super().forward(x)


class ReadTwice(Sliding):
    def forward(self, x):
        mask = self.mask(x)
        y, p = self.layer(x, attention_mask=mask, is_index_masked=mask < 0,
                          is_index_global_attn=mask > 0, is_global_attn=False,
                          output_attentions=True)[:2]
        return y + p.sum(-1).mean(-1, keepdim=True)


KNOWN = ("LocalAttention", "FusedAttention", "FusedBlockAttention")
SHORT = {"longformer": "d", "longformer_hidden": "s", "longformer_layer": "d",
         "longformer_model": "s", "led_layer": "s", "unmasked_ends": "d", "other_strides": "s",
         "longformer_global": "s", "longformer_global_batch": "s", "global_twice": "s"}


def form(module, operator="FusedAttention", exporters="sd", shape=(2, 96, WIDTH)):
    return module, "x", shape, 1, (), exporters, operator


FORMS = {
    "longformer": form(Sliding(longformer(LongformerSelfAttention))),
    "longformer_one_chunk_more": form(Sliding(longformer(LongformerSelfAttention)),
                                      shape=(1, 64, WIDTH)),
    "longformer_long": form(Sliding(longformer(LongformerSelfAttention, 64)),
                            shape=(1, 512, WIDTH)),
    "longformer_narrow": form(Sliding(longformer(LongformerSelfAttention, 4)),
                              shape=(1, 40, WIDTH)),
    "longformer_hidden": form(Sliding(longformer(LongformerSelfAttention), 0.5)),
    "longformer_all_hidden": form(Sliding(longformer(LongformerSelfAttention), -9.0)),
    "longformer_globals": form(Sliding(longformer(LongformerSelfAttention), 0.9, -0.5)),
    "longformer_layer": form(Layer(longformer(LongformerLayer), 0.8)),
    "longformer_indices": form(Sliding(longformer(LongformerSelfAttention, 512, heads=12,
                                                  width=96), 0.5), shape=(1, 1024, 96)),
    "longformer_model": form(Stock(), exporters="s", shape=(2, 64, WIDTH)),
    "longformer_model_globals": form(Stock(True), exporters="s", shape=(1, 64, WIDTH)),
    "longformer_global": form(Global(longformer(LongformerSelfAttention), [[0]]), exporters="s",
                              shape=(1, 96, WIDTH)),
    "longformer_global_inside": form(Global(longformer(LongformerSelfAttention), [[0, 1, 50]]),
                                     exporters="s", shape=(1, 96, WIDTH)),
    "longformer_global_batch": form(
        Global(longformer(LongformerSelfAttention, 16), [[0, 5], [7]], [range(80, 96), [1, 2]]),
        exporters="s"),
    "longformer_global_one_sample": form(
        Global(longformer(LongformerSelfAttention, 16), [[3], []], [[], range(50, 96)]),
        exporters="s"),
    "longformer_global_narrow": form(Global(longformer(LongformerSelfAttention, 4, heads=2),
                                            [[0]], tokens=64), exporters="s", shape=(1, 64, WIDTH)),
    "longformer_global_model": form(Stock(global_at=[0], layers=1), exporters="s",
                                    shape=(1, 64, WIDTH)),
    "longformer_constant": form(ConstantMask(longformer(LongformerSelfAttention), [[]],
                                             [range(80, 96)]), shape=(1, 96, WIDTH)),
    "led": form(Sliding(led(LEDEncoderSelfAttention), 0.5)),
    "led_layer": form(Layer(led(LEDEncoderLayer), 0.5), shape=(1, 128, WIDTH)),
    # near misses
    "other_strides": form(Sliding(longformer(LongformerSelfAttention, onnx_export=False)), None),
    "unmasked_ends": form(Unmasked(longformer(LongformerSelfAttention)), None),
    "read_twice": form(ReadTwice(longformer(LongformerSelfAttention)), None),
    "global_twice": form(Global(longformer(LongformerSelfAttention), [[0]], twice=True), None,
                         exporters="s", shape=(1, 96, WIDTH)),
}
