"""Attention of blocks of queries to their own and neighbouring blocks of keys. Some modules are
those of packages: PyPI local-attention takes q, k and v (batch, heads, tokens, dim),
transformers' encoders of LongT5 and layers of Reformer take x. The others write the same in
other ways. Masks that have no pattern for all lengths (padding, biases and strides), blocks that
wrap around the end, and keys in the order of their hashes become FusedBlockAttention with a mask
program. Modules that differ in one point stay as they are."""
from unittest import mock

import torch
from local_attention import LocalAttention
from torch import nn
from transformers import LongT5Config, LongT5EncoderModel, ReformerConfig
from transformers.models.reformer.modeling_reformer import LocalSelfAttention, LSHSelfAttention

LOCAL, CHUNKED, ANY = "LocalAttention", "ChunkedLocalAttention", "FusedBlockAttention"
LEAST = torch.finfo(torch.float32).min


class Stock(nn.Module):
    def __init__(self, **settings):
        super().__init__()
        self.attend = LocalAttention(use_rotary_pos_emb=False, **settings)

    def forward(self, q, k, v):
        return self.attend(q, k, v)


def slices(x, before, after, pad, axis):
    """Blocks beside their neighbours, as LongT5 and former local-attention write them."""
    blocks = x.shape[axis]
    pads = [0, 0] * (x.dim() - axis - 1) + [before, after]
    x = nn.functional.pad(x, pads, value=pad)
    return torch.cat([x.narrow(axis, i, blocks) for i in range(before + 1 + after)], axis + 1)


class Blocks(nn.Module):
    """A window of `before` and `after` chunks; mask(query positions, key positions) hides."""

    def __init__(self, chunk=8, before=1, after=1, hides=None, pad=-1, fill=LEAST, form="heads",
                 scaled="product"):
        super().__init__()
        self.chunk, self.before, self.after, self.pad = chunk, before, after, pad
        self.hides, self.fill, self.form, self.scaled = hides, fill, form, scaled

    def window(self, x, axis):
        return slices(x, self.before, self.after, self.pad, axis)

    def hidden(self, n):
        at = torch.arange(n).view(1, -1, self.chunk)
        key = slices(at, self.before, self.after, -1, 1)[:, :, None, :]
        at = at[..., None]
        hidden = key == -1
        return hidden if self.hides is None else hidden | self.hides(at, key)

    def forward(self, q, k, v):
        b, h, n, d = q.shape
        hidden = self.hidden(n)
        if self.form == "tokens":
            q, k, v = (x.transpose(1, 2).reshape(b, -1, self.chunk, h, d) for x in (q, k, v))
            k, v = self.window(k, 1), self.window(v, 1)
            s = torch.einsum("...qhd,...khd->...hqk", q, k) * d ** -0.5
            s = torch.where(hidden.unsqueeze(2), self.fill, s)
            y = torch.einsum("...hqk,...khd->...qhd", s.softmax(-1), v)
            return y.reshape(b, -1, h, d).transpose(1, 2)
        if self.form == "joined":
            q, k, v = (x.reshape(b * h, -1, self.chunk, d) for x in (q, k, v))
        else:
            q, k, v = (x.reshape(b, h, -1, self.chunk, d) for x in (q, k, v))
        axis = q.dim() - 3
        k, v = self.window(k, axis), self.window(v, axis)
        if self.scaled == "queries":
            q = q / d ** 0.5
        s = q @ k.transpose(-1, -2)
        if self.scaled == "product":
            s = s * d ** -0.5
        s = s.masked_fill(hidden, self.fill)
        return (s.softmax(-1) @ v).reshape(b, h, -1, d)


class Added(Blocks):
    """The mask is added, as zeros and `fill`."""

    def forward(self, q, k, v):
        b, h, n, d = q.shape
        q, k, v = (x.reshape(b, h, -1, self.chunk, d) for x in (q, k, v))
        k, v = self.window(k, 2), self.window(v, 2)
        mask = torch.zeros(()).masked_fill(self.hidden(n), self.fill)
        s = q @ k.transpose(-1, -2) / d ** 0.5 + mask
        return (s.softmax(-1) @ v).reshape(b, h, n, d)


class ByTokens(nn.Module):
    """Heads behind the tokens, as layers have them; of_heads: one is a sample of its own."""

    def __init__(self, attend, of_heads=False):
        super().__init__()
        self.attend, self.of_heads = attend, of_heads

    def forward(self, q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        b, h = q.shape[:2]
        if self.of_heads:
            q, k, v = (x.flatten(0, 1)[:, None] for x in (q, k, v))
        y = self.attend(q, k, v)
        return (y[:, 0].unflatten(0, (b, h)) if self.of_heads else y).transpose(1, 2)


class Padded(Blocks):
    """Keys that data says are padding are hidden: before, behind or together with the others."""

    def __init__(self, order="behind", queries=False, padding_fill=None, **settings):
        super().__init__(**settings)
        self.order, self.queries = order, queries
        self.padding_fill = self.fill if padding_fill is None else padding_fill

    def forward(self, q, k, v):
        b, h, n, d = q.shape
        padding = (k[:, 0, :, 0] > 0.8).float().reshape(b, -1, self.chunk)
        keys = slices(padding, self.before, self.after, 1, 1)[:, None, :, None, :] > 0.5
        hidden = self.hidden(n)
        q, k, v = (x.reshape(b, h, -1, self.chunk, d) for x in (q, k, v))
        k, v = self.window(k, 2), self.window(v, 2)
        s = q @ k.transpose(-1, -2) * d ** -0.5
        if self.queries:
            keys = keys | (padding[:, None, :, :, None] > 0.5)
        if self.order == "together":
            s = s.masked_fill(hidden | keys, self.fill)
        elif self.order == "three":
            s = s.masked_fill(keys, self.padding_fill).masked_fill(hidden, self.fill)
            s = s + torch.where(keys, -1.0, 0.0)
        elif self.order == "added":
            # -1e4 would round scores to 1/1024 where a query sees nothing else
            s = s + torch.where(keys, -1000.0, 0.0)
            s = s.masked_fill(hidden, self.fill)
        else:
            both = (keys, self.padding_fill), (hidden, self.fill)
            for one, fill in both if self.order == "before" else both[::-1]:
                s = s.masked_fill(one, fill)
        return (s.softmax(-1) @ v).reshape(b, h, n, d)


class Biased(Blocks):
    """A learned bias of each head and distance."""

    def __init__(self, heads=3, **settings):
        super().__init__(**settings)
        width = self.before + 1 + self.after
        self.bias = nn.Parameter(torch.zeros(heads, 1, self.chunk, width * self.chunk))

    def forward(self, q, k, v):
        b, h, n, d = q.shape
        q, k, v = (x.reshape(b, h, -1, self.chunk, d) for x in (q, k, v))
        k, v = self.window(k, 2), self.window(v, 2)
        s = (q @ k.transpose(-1, -2) + self.bias).masked_fill(self.hidden(n), self.fill)
        return (s.softmax(-1) @ v).reshape(b, h, n, d)


class LongT5(nn.Module):
    """transformers' encoder with local attention, on embeddings whose first number says which
    tokens are padding."""

    def __init__(self, **settings):
        super().__init__()
        config = LongT5Config(vocab_size=8, d_model=32, d_kv=8, d_ff=16, num_layers=2, num_heads=4,
                              local_radius=7, encoder_attention_type="local",
                              relative_attention_num_buckets=8,
                              relative_attention_max_distance=16, **settings)
        self.encoder = LongT5EncoderModel(config).encoder

    def forward(self, x):
        mask = (x[:, :, 0] < 0.8).long()
        return self.encoder(inputs_embeds=x, attention_mask=mask)[0]


class Long(LongT5):
    """Without padding."""

    def forward(self, x):
        return self.encoder(inputs_embeds=x, attention_mask=torch.ones(x.shape[:2]).long())[0]


class Wrapped(Blocks):
    """Blocks beside the first one and the last one are those of the other end."""

    def __init__(self, turns=None, sums=False, **settings):
        super().__init__(**settings)
        self.turns, self.sums = turns or range(-self.before, self.after + 1), sums

    def window(self, x, axis):
        first = (slice(None),) * axis
        parts = [torch.cat([x[(*first, slice(i, None))], x[(*first, slice(i))]], axis) if i else x
                 for i in self.turns]
        return torch.cat(parts, axis + 1)

    def hidden(self, n):
        at = torch.arange(n).view(1, -1, self.chunk)
        return self.hides(at[..., None], self.window(at, 1)[:, :, None, :])

    def forward(self, q, k, v):
        b, h, n, d = q.shape
        q, k, v = (x.reshape(b, h, -1, self.chunk, d) for x in (q, k, v))
        s = q @ self.window(k, 2).transpose(-1, -2) * d ** -0.5
        if self.hides:
            s = s.masked_fill(self.hidden(n), self.fill)
        sums = s.logsumexp(-1, keepdim=True)
        y = (s - sums).exp() @ self.window(v, 2)
        return ((y * sums.sigmoid()) if self.sums else y).reshape(b, h, n, d)


class Reformer(nn.Module):
    """A layer of transformers' Reformer; the rotations that it draws are constants."""

    def __init__(self, layer, padded=False, **settings):
        super().__init__()
        settings = {"num_hashes": 1, "num_buckets": 4, **settings}
        self.layer = layer(ReformerConfig(
            hidden_size=32, num_attention_heads=4, attention_head_size=8, hash_seed=3,
            lsh_attn_chunk_length=8, local_attn_chunk_length=8, **settings))
        self.padded = padded
        self.rotations = nn.Buffer(torch.randn(4, 8, settings["num_hashes"], 2))

    def forward(self, x):
        mask = x[:, :, 0] < 0.8 if self.padded else None
        with mock.patch.object(torch, "randn", lambda *_, **__: self.rotations):
            return self.layer(x, attention_mask=mask).hidden_states


class OtherValues(Blocks):
    """Values of other windows than keys."""

    def forward(self, q, k, v):
        return super().forward(q, k, v.flip(2))

    def window(self, x, axis):
        self.count = getattr(self, "count", 0) + 1
        before = self.before - (self.count % 2 == 0)
        return slices(x, before, self.before + self.after - before, self.pad, axis)


class ReadTwice(Blocks):
    """The weights are an output of the module's own, too."""

    def forward(self, q, k, v):
        b, h, n, d = q.shape
        q, k, v = (x.reshape(b, h, -1, self.chunk, d) for x in (q, k, v))
        k, v = self.window(k, 2), self.window(v, 2)
        p = (q @ k.transpose(-1, -2)).masked_fill(self.hidden(n), self.fill).softmax(-1)
        return (p @ v + p.amax(-1, keepdim=True)).reshape(b, h, n, d)


def farther(distance):
    return lambda query, key: (key - query > distance) | (query - key > distance)


SHAPE = (2, 3, 48, 8)
MANY = (8, 16, 104)
KNOWN = (LOCAL, CHUNKED, ANY, "FusedAttention")
SHORT = {"stock_exact": "d", "stock_by_tokens": "d", "blocks_of_heads": "s",
         "blocks_joined": "d", "band": "s", "causal_band": "s",
         "too_wide": "s", "read_twice": "s", "small_fill": "d", "longt5": "sd", "padded": "s",
         "padded_added": "d", "biased": "s", "two_fills": "s", "wrapped_far": "d",
         "wrapped_sums": "s", "wrapped_farther": "d", "reformer_local_causal": "s",
         "reformer_rounds": "d", "reformer_hashed_causal": "s", "reformer_padded": "s"}


def form(module, operator, exporters="sd", lengths=MANY, shape=SHAPE):
    return module, "qkv", shape, 2, lengths, exporters, operator


def reformer(layer, exporters="sd", **settings):
    return Reformer(layer, **settings), "x", (2, 48, 32), 1, (), exporters, ANY


def by_tokens(attend, operator, exporters="sd", **settings):
    return ByTokens(attend, **settings), "qkv", (2, 48, 3, 8), 1, MANY, exporters, operator


def stock(operator, **settings):
    return form(Stock(**settings), operator, "d")


FORMS = {
    "stock": stock(CHUNKED, window_size=8),
    "stock_exact": stock(LOCAL, window_size=8, exact_windowsize=True),
    "stock_causal": stock(CHUNKED, window_size=8, causal=True),
    "stock_causal_exact": stock(LOCAL, window_size=8, causal=True, exact_windowsize=True,
                                autopad=True),
    "stock_far": stock(CHUNKED, window_size=4, look_backward=3, look_forward=2),
    "stock_padded": form(Stock(window_size=8, exact_windowsize=True, autopad=True), LOCAL, "d", (),
                         (1, 2, 44, 8)),
    "stock_by_tokens": by_tokens(Stock(window_size=8, causal=True), CHUNKED, "d"),
    "blocks_by_tokens": by_tokens(Blocks(), CHUNKED),
    "blocks_of_heads": by_tokens(Blocks(), CHUNKED, of_heads=True),
    "band_by_tokens": by_tokens(Blocks(hides=farther(8)), LOCAL),
    "blocks": form(Blocks(), CHUNKED),
    "blocks_joined": form(Blocks(form="joined", scaled="queries"), CHUNKED),
    "blocks_tokens": form(Blocks(form="tokens", pad=0), CHUNKED),
    "blocks_fixed": form(Blocks(hides=farther(8)), LOCAL, lengths=()),
    "band": form(Blocks(hides=farther(8)), LOCAL),
    "band_tokens": form(Blocks(hides=farther(5), form="tokens", pad=0), LOCAL),
    "band_infinite": form(Blocks(hides=farther(7), fill=float("-inf")), LOCAL),
    "causal_band": form(Blocks(before=2, after=0, hides=lambda q, k: (k > q) | (k < q - 11)),
                        LOCAL),
    "causal_blocks": form(Blocks(hides=lambda q, k: k > q), CHUNKED),
    "added": form(Added(hides=farther(6)), LOCAL, lengths=()),
    "one_sided": form(Blocks(before=0, after=1, hides=lambda q, k: (k < q) | (k > q + 8)), LOCAL),
    "longt5": (LongT5(), "x", (2, 48, 32), 1, MANY, "sd", ANY),
    "longt5_fixed": (LongT5(), "x", (2, 48, 32), 1, (), "sd", ANY),
    "longt5_whole": (Long(), "x", (2, 48, 32), 1, MANY, "sd", ANY),
    "padded": form(Padded(), ANY),
    "padded_before": form(Padded(order="before", hides=farther(5)), ANY),
    "padded_together": form(Padded(order="together", queries=True, hides=farther(8)), ANY),
    "padded_added": form(Padded(order="added", queries=True, before=2, after=0), ANY),
    "padded_causal": form(Padded(fill=-1e9, hides=lambda q, k: k > q), ANY),
    "biased": form(Biased(), ANY),
    "biased_band": form(Biased(hides=farther(6), before=1, after=0), ANY),
    "small_fill": form(Blocks(fill=-30.0), ANY),
    "unmasked_ends": form(Added(fill=0.0), ANY, lengths=()),
    "not_itself": form(Blocks(hides=lambda q, k: (k == q)), ANY),
    "too_wide": form(Blocks(hides=farther(12)), ANY),
    "strided": form(Blocks(hides=lambda q, k: (k - q) % 2 == 1), ANY),
    "two_fills": form(Padded(padding_fill=-30.0), ANY),
    "two_fills_before": form(Padded(order="before", padding_fill=-1e5, hides=farther(5)), ANY),
    "wrapped": form(Wrapped(), ANY, lengths=()),
    "wrapped_far": form(Wrapped(before=2, after=3), ANY, lengths=()),
    "wrapped_behind": form(Wrapped(after=0), ANY, lengths=()),
    "wrapped_sums": form(Wrapped(after=0, sums=True), ANY, lengths=()),
    "wrapped_causal": form(Wrapped(after=0, hides=lambda q, k: k > q, sums=True), ANY,
                           lengths=()),
    "wrapped_self": form(Wrapped(hides=lambda q, k: k == q, fill=-1e5), ANY, lengths=()),
    "reformer_local": reformer(LocalSelfAttention),
    "reformer_local_causal": reformer(LocalSelfAttention, is_decoder=True),
    "reformer_local_padded": reformer(LocalSelfAttention, padded=True),
    "reformer_hashed": reformer(LSHSelfAttention),
    "reformer_hashed_causal": reformer(LSHSelfAttention, is_decoder=True),
    "reformer_rounds": reformer(LSHSelfAttention, num_hashes=3),
    "reformer_rounds_both": reformer(LSHSelfAttention, num_hashes=2, lsh_num_chunks_after=1),
    "reformer_padded": reformer(LSHSelfAttention, "s", padded=True, num_hashes=2),
    # near misses, which become attention of joined heads and blocks where their number is known
    "wrapped_farther": form(Wrapped(after=0, turns=(-2, 0)), "FusedAttention", lengths=()),
    "wrapped_too_few": form(Wrapped(chunk=16, before=4, after=0), "FusedAttention", lengths=()),
    "other_fills": form(Padded(order="three", padding_fill=-30.0), None),
    "other_values": form(OtherValues(), None, "s"),
    "read_twice": form(ReadTwice(), None),
}
