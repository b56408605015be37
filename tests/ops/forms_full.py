"""Softmax attention of all queries and keys, as modules of packages write it: torch.nn,
transformers (encoders, decoders, images and embeddings), timm, PyPI fightingcv-attention and
g-mlp-pytorch. The modules take x. Modules that differ in one point stay as they are."""
import math
import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch  # noqa: E402
import transformers as tf  # noqa: E402
from fightingcv_attention.attention.Axial_attention import SelfAttention as Axial  # noqa: E402
from fightingcv_attention.attention.EMSA import EMSA  # noqa: E402
from fightingcv_attention.attention.SelfAttention import (  # noqa: E402
    ScaledDotProductAttention)
from fightingcv_attention.attention.SimplifiedSelfAttention import (  # noqa: E402
    SimplifiedScaledDotProductAttention)
from fightingcv_attention.attention.UFOAttention import UFOAttention  # noqa: E402
from g_mlp_pytorch.g_mlp_pytorch import Attention as Tiny  # noqa: E402
from g_mlp_pytorch.g_mlp_pytorch import gMLPBlock  # noqa: E402
from torch import nn  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "attention"))
from golden import timm_layer  # noqa: E402

FUSED = "FusedAttention"
KNOWN = (FUSED, "LinearAttention")
BY_TORCH = True


class Embeds(nn.Module):
    """A model of transformers on embeddings."""

    def __init__(self, model, **settings):
        super().__init__()
        self.model, self.settings = model, settings

    def forward(self, x):
        return self.model(inputs_embeds=x, **self.settings)[0]


class Three(nn.Module):
    """Queries, keys and values of one x."""

    def __init__(self, layer, **settings):
        super().__init__()
        self.layer, self.settings = layer, settings

    def forward(self, x):
        y = self.layer(x, x, x, **self.settings)
        return y[0] if isinstance(y, tuple) else y


class Whitened(nn.Module):
    """A softmax over queries, or weights to a power: no attention."""

    def __init__(self, axis=-1, power=1):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(32, 32) for _ in range(3))
        self.axis, self.power = axis, power

    def forward(self, x):
        weights = (self.q(x) @ self.k(x).transpose(-1, -2) / math.sqrt(32)).softmax(self.axis)
        return weights ** self.power @ self.v(x)


class Talking(nn.Module):
    """Heads that talk, of CaiT and EfficientFormerV2: scores of one are made of those of all."""

    def __init__(self, talk):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(32, 32) for _ in range(3))
        self.talk, self.by_map = talk, isinstance(talk, nn.Conv2d)

    def forward(self, x):
        q, k, v = (f(x).unflatten(2, (4, 8)).transpose(1, 2) for f in (self.q, self.k, self.v))
        scores = q @ k.transpose(2, 3)
        if self.by_map:
            scores = self.talk(scores)
        else:
            scores = self.talk(scores.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


class Last(nn.Module):
    """The last n of n tokens, and a mask that is expanded to the scores, as XLM has them."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(32, 32) for _ in range(3))

    def forward(self, x):
        n = x.shape[1]
        x = x[:, -n:]
        q, k, v = (f(x).view(-1, n, 4, 8).transpose(1, 2) for f in (self.q, self.k, self.v))
        scores = q @ k.transpose(2, 3) / math.sqrt(8)
        hidden = (x[:, :, 0] > 1)[:, None, None].expand_as(scores)
        weights = scores.masked_fill(hidden, torch.finfo(x.dtype).min).softmax(-1)
        return (weights @ v).transpose(1, 2).reshape(-1, n, 32)


class Joined(nn.Module):
    """Batch and heads are one axis of the products, and two axes between them. `added` is added to
    the scores of heads and samples, `parts` says what the two axes are."""

    def __init__(self, added, parts=lambda batch: (batch, 4), factor=1.0):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(32, 32) for _ in range(3))
        self.added, self.parts, self.factor = added, parts, factor

    def forward(self, x):
        batch, n, _ = x.shape
        q, k, v = (f(x).reshape(batch, n, 4, 8).transpose(1, 2).reshape(batch * 4, n, 8)
                   for f in (self.q, self.k, self.v))
        scores = self.added(torch.bmm(q, k.transpose(1, 2)) * 0.35, q, k) * self.factor
        at = torch.arange(n)
        mask = torch.where(at[None, :] > at[:, None], torch.finfo(x.dtype).min, 0.0)
        weights = (scores.view(*self.parts(batch), n, n) + mask).softmax(-1)
        y = torch.bmm(weights.view(batch * 4, n, n), v)
        return y.view(batch, 4, n, 8).transpose(1, 2).reshape(batch, n, 32)


def slopes(scores, q, k):
    """ALiBi of two samples and their heads."""
    at = torch.arange(k.shape[1]).float()
    return scores + (torch.tensor([0.25, 0.06, 0.016, 0.004])[:, None, None]
                     * at).repeat(2, 1, 1)


def pairs(scores, q, k):
    return torch.bmm(k, q.transpose(1, 2)).sigmoid() + scores


SMALL = dict(vocab_size=16, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
             intermediate_size=48, max_position_embeddings=512)
SHAPE, MANY = (2, 40, 32), (1, 33, 130)


def on_tokens(module, operator=FUSED, exporters="sd", lengths=MANY):
    return module, "x", SHAPE, 1, lengths, exporters, operator


def model(kind, exporters="sd", attention="sdpa", operator=FUSED, **settings):
    config = getattr(tf, f"{kind}Config")(**{**SMALL, **settings})
    config._attn_implementation = "eager" if exporters == "s" else attention
    extra = {"use_cache": False} if getattr(config, "use_cache", None) else {}
    return on_tokens(Embeds(getattr(tf, f"{kind}Model")(config), **extra), operator, exporters)


def decoder(kind, **settings):
    """TorchScript's exporter has no difference of positions, which their masks are made of."""
    return model(kind, "d", **settings)


def timm(module, name, *arguments, **settings):
    return timm_layer(module, name)(*arguments, **settings)


FORMS = {
    "multihead": on_tokens(Three(nn.MultiheadAttention(32, 4, batch_first=True),
                                 need_weights=False), exporters="d"),
    "multihead_rows_first": on_tokens(Three(nn.MultiheadAttention(32, 4), need_weights=False)),
    "encoder_layer": on_tokens(nn.TransformerEncoderLayer(32, 4, 48, batch_first=True),
                               exporters="d"),
    "encoder_layer_norm_first": on_tokens(nn.TransformerEncoderLayer(
        32, 4, 48, batch_first=True, norm_first=True), exporters="d"),
    "bert": model("Bert"),
    "roberta": model("Roberta", position_embedding_type="absolute"),
    "electra": model("Electra", embedding_size=32),
    "albert": model("Albert", embedding_size=32),
    "gpt2": decoder("GPT2", n_embd=32, n_layer=2, n_head=4, n_positions=512),
    "openai_gpt": model("OpenAIGPT", attention="eager", n_embd=32, n_layer=2, n_head=4,
                        n_positions=512),
    "gpt_neox": decoder("GPTNeoX"),
    "opt": decoder("OPT", ffn_dim=48, word_embed_proj_dim=32, do_layer_norm_before=True),
    "llama": decoder("Llama", num_key_value_heads=2),
    "mistral": decoder("Mistral", num_key_value_heads=2, sliding_window=20),
    "modernbert": model("ModernBert", local_attention=16, global_attn_every_n_layers=2,
                        pad_token_id=0),
    "esm": model("Esm", position_embedding_type="rotary", pad_token_id=1, mask_token_id=2),
    "xlm_roberta": model("XLMRoberta"),
    "layout_lm": model("LayoutLM"),
    "ernie": model("Ernie"),
    "qwen2": decoder("Qwen2", num_key_value_heads=2),
    "qwen3": decoder("Qwen3", num_key_value_heads=2, head_dim=8),
    "gemma": decoder("Gemma", num_key_value_heads=1, head_dim=8),
    "gemma2": decoder("Gemma2", num_key_value_heads=2, head_dim=8, sliding_window=16,
                      attn_logit_softcapping=2.0, attention="eager",
                      layer_types=["sliding_attention", "full_attention"]),
    "gemma3": decoder("Gemma3Text", num_key_value_heads=2, head_dim=8, sliding_window=16,
                      layer_types=["sliding_attention", "full_attention"]),
    "phi": decoder("Phi"),
    "olmo2": decoder("Olmo2", num_key_value_heads=2),
    "cohere": decoder("Cohere", num_key_value_heads=2),
    "stable_lm": decoder("StableLm", num_key_value_heads=2),
    "granite": decoder("Granite", num_key_value_heads=2),
    "starcoder2": decoder("Starcoder2", num_key_value_heads=2, sliding_window=16),
    "bloom": model("Bloom", attention="eager", n_layer=2, n_head=4),
    "mpt": model("Mpt", attention="eager", d_model=32, n_heads=4, n_layers=2, max_seq_len=512,
                 expansion_ratio=2),
    "deberta": model("Deberta", "d", attention="eager", relative_attention=True,
                     pos_att_type=["c2p", "p2c"], max_relative_positions=64),
    "last_tokens": on_tokens(Last()),
    "joined_slopes": on_tokens(Joined(slopes)),
    "timm": on_tokens(timm("attention", "Attention", 32, 4), exporters="d"),
    "timm_normed": on_tokens(timm("attention", "Attention", 32, 4, qkv_bias=True, qk_norm=True,
                                  norm_layer=nn.LayerNorm), exporters="d"),
    "timm_latent": on_tokens(timm("attention_pool", "AttentionPoolLatent", 32, num_heads=4)),
    "scaled": on_tokens(Three(ScaledDotProductAttention(32, 8, 8, 4))),
    "simplified": on_tokens(Three(SimplifiedScaledDotProductAttention(32, 4))),
    "axial": on_tokens(Axial(32, 4)),
    "tiny": on_tokens(Tiny(32, 24, 16)),
    "tiny_causal": on_tokens(Tiny(32, 24, 16, causal=True)),
    "gmlp_block": on_tokens(gMLPBlock(dim=32, dim_ff=48, seq_len=40, attn_dim=16), lengths=()),
    # near misses
    "emsa": on_tokens(Three(EMSA(32, 8, 8, 4, H=8, W=5, ratio=2)), None, lengths=()),
    "ufo": on_tokens(Three(UFOAttention(32, 8, 8, 4)), None),
    "gmlp": on_tokens(gMLPBlock(dim=32, dim_ff=48, seq_len=40), None, lengths=()),
    "over_queries": on_tokens(Whitened(axis=-2), None),
    "deberta_v2": model("DebertaV2", attention="eager", relative_attention=True,
                        pos_att_type=["p2c", "c2p"], share_att_key=True, position_buckets=32,
                        norm_rel_ebd="layer_norm", max_relative_positions=64, operator=None),
    "joined_pairs": on_tokens(Joined(pairs), None),
    "joined_scaled_sum": on_tokens(Joined(slopes, factor=0.5), None),
    "joined_rows": on_tokens(Joined(lambda scores, q, k: scores + q.sum(-1, keepdim=True)), None),
    "joined_matrix": on_tokens(Joined(lambda scores, q, k: scores + k[0] @ k[0].T), None),
    "joined_other_way": on_tokens(Joined(slopes, lambda batch: (4, batch)), None),
    "talking": on_tokens(Talking(nn.Linear(4, 4)), None),
    "talking_maps": on_tokens(Talking(nn.Conv2d(4, 4, 1)), None),
    "squared_weights": on_tokens(Whitened(power=2), None),
}
SHORT = {name: form[5][i % len(form[5])]
         for i, (name, form) in enumerate(FORMS.items()) if i % 4 == 0}
