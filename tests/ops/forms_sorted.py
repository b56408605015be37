"""Attention of tokens that are first sorted, clustered or hashed. The modules are those of packages
and take x: PyPI sinkhorn-transformer, routing-transformer and reformer-pytorch. The table shows
what their attention becomes once the tokens are in order. Modules that differ in one point stay
as they are, or become attention with one head for each block, whose keys are copied."""
from unittest import mock

import torch
from torch import nn
from reformer_pytorch import LSHSelfAttention
from routing_transformer.routing_transformer import KmeansAttention
from sinkhorn_transformer.sinkhorn_transformer import SinkhornSelfAttention

FUSED, BLOCKS = "FusedAttention", "FusedBlockAttention"
KNOWN = (FUSED, BLOCKS, "ChunkedLocalAttention", "LocalAttention")


class Routed(nn.Module):
    """Attention within clusters, between projections; without what training counts."""

    def __init__(self, **settings):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(24, 24) for _ in range(3))
        self.attend = KmeansAttention(4, 8, 3, 8, **settings)
        self.attend.kmeans.initted.fill_(True)

    def forward(self, x):
        b, n, _ = x.shape
        heads = (f(x).view(b, n, 3, 8).transpose(1, 2) for f in (self.q, self.k, self.v))
        return self.attend(*heads)[0]


class Hashed(nn.Module):
    """Attention within buckets; the rotations that it draws are constants. padded: the first
    number of a token says whether it is padding."""

    def __init__(self, rounds=2, padded=False, **settings):
        super().__init__()
        self.attend = LSHSelfAttention(24, heads=3, bucket_size=8, n_hashes=rounds, **settings)
        self.padded = padded
        self.rotations = nn.Buffer(torch.randn(1, 8, rounds, 3))

    def forward(self, x):
        mask = {"input_mask": x[:, :, 0] < 0.8} if self.padded else {}
        with mock.patch.object(torch, "randn", lambda *_, **__: self.rotations):
            return self.attend(x, **mask)


class Turned(nn.Module):
    """Chunks beside others: of `turns` chunks, around the end, in that order. bias: of each key of
    the window. hides(query, key): by positions within the window."""

    def __init__(self, turns=(0, -1), values=None, biased=False, hides=None, sums=False):
        super().__init__()
        self.turns, self.values, self.sums = turns, values or turns, sums
        self.bias = nn.Parameter(torch.zeros(8 * len(turns))) if biased else None
        self.hides = hides

    def window(self, x, turns):
        return torch.cat([torch.cat([x[:, :, i:], x[:, :, :i]], 2) if i else x for i in turns], 3)

    def forward(self, q, k, v):
        b, h, n, d = q.shape
        q, k, v = (x.reshape(b, h, -1, 8, d) for x in (q, k, v))
        s = q @ self.window(k, self.turns).transpose(-1, -2) * d ** -0.5
        hidden = self.window(k[..., :1] > 0.5, self.turns).transpose(-1, -2)
        s = s.masked_fill(hidden, -5e4)
        if self.bias is not None:
            s = s + self.bias
        if self.hides:
            at = torch.arange(8)[:, None], torch.arange(s.shape[-1])
            s = s.masked_fill(self.hides(*at), -1e9)
        sums = s.logsumexp(-1, keepdim=True)
        y = (s - sums).exp() @ self.window(v, self.values)
        return ((y * sums.sigmoid()) if self.sums else y).reshape(b, h, n, d)


class Groups(nn.Module):
    """Attention within groups beside heads, of rank 5; what a near miss changes is a setting."""

    def __init__(self, masked=None, keys=8, shared=False, read=False, axis=-1, scale=0.3):
        super().__init__()
        self.masked, self.keys, self.shared, self.read = masked, keys, shared, read
        self.axis, self.scale = axis, scale

    def forward(self, q, k, v):
        b, h = q.shape[:2]
        q, k, v = (x.reshape(b, h, 5, 8, 8) for x in (q, k, v))
        k, v = k[:, :, :, :self.keys], v[:, :, :, :self.keys]
        if self.shared:  # of the first head
            k = k[:, :1]
        s = torch.einsum("bhnid,bhnjd->bhnij", q, k) * self.scale
        if self.masked == "causal":
            s = s.masked_fill(torch.ones(8, self.keys).triu(1).bool(), -1e9)
        elif self.masked == "data":
            s = s.masked_fill(k[..., None, :, 0] > 0.5, -torch.finfo(s.dtype).max)
        elif self.masked == "heads":
            s = s + torch.linspace(-1, 1, h).view(h, 1, 1, 1)
        p = s.softmax(self.axis)
        y = torch.einsum("bhnij,bhnjd->bhnid", p, v).flatten(2, 3)
        return y + p.mean() if self.read else y


def on_tokens(module, operator=FUSED, exporters="sd"):
    return module, "x", (2, 48, 24), 1, (), exporters, operator


def on_groups(operator=FUSED, **settings):
    return Groups(**settings), "qkv", (2, 3, 40, 8), 2, (), "sd", operator


def sinkhorn(**settings):
    return SinkhornSelfAttention(24, 8, 48, heads=3, **settings)


def hashed(exporters="sd", **settings):
    return on_tokens(Hashed(**settings), BLOCKS, exporters)


def turned(*turns, operator=BLOCKS, **settings):
    return Turned(turns, **settings), "qkv", (2, 3, 40, 8), 2, (), "sd", operator


FORMS = {
    "sinkhorn": on_tokens(sinkhorn()),
    "sinkhorn_two": on_tokens(sinkhorn(n_top_buckets=2)),
    "sinkhorn_cut": on_tokens(sinkhorn(n_sortcut=2)),
    "routing": on_tokens(Routed(), exporters="s"),
    "routing_memory": on_tokens(Routed(num_mem_kv=2), exporters="s"),
    "routing_shared": on_tokens(Routed(shared_qk=True), exporters="s"),
    "hashed": hashed(),
    "hashed_one_round": hashed(rounds=1),
    # Of two rounds, a token may see itself twice and nothing else: the file rounds the log of two
    # numbers of -5e4 to 1/256, and weights by as much. With two rounds, the module itself differs
    # from float64 by 0.0017 then.
    "hashed_causal": hashed(rounds=1, causal=True),
    "hashed_same_bucket": hashed(attend_across_buckets=False),
    "hashed_padded": hashed("d", rounds=1, padded=True),
    "hashed_all_masks": hashed("d", rounds=1, padded=True, causal=True,
                               attend_across_buckets=False),
    "turned": turned(0, -1),
    "turned_behind": turned(1, 0),
    "turned_three": turned(0, 1, -1),
    "turned_sums": turned(0, -1, sums=True),
    "turned_biased": turned(0, -1, biased=True),
    "groups": on_groups(),
    "groups_fewer_keys": on_groups(keys=6),
    "groups_causal": on_groups(masked="causal"),
    "groups_data": on_groups(masked="data"),
    # near misses
    "turned_gap": turned(0, -2, operator=FUSED),
    "turned_values": turned(0, -1, values=(-1, 0), operator=FUSED),
    "turned_twice": turned(0, -1, -1, operator=FUSED),
    "turned_positions": turned(0, -1, hides=lambda i, j: j > i + 8, operator=None),
    "groups_heads": on_groups(None, masked="heads"),
    "groups_shared": on_groups(None, shared=True),
    "groups_read": on_groups(None, read=True),
    "groups_of_queries": on_groups(None, axis=-2),
}
SHORT = {name: form[5][i % len(form[5])]
         for i, (name, form) in enumerate(FORMS.items()) if i % 2 == 0}
