"""Attention of tokens that were sorted, clustered or hashed first, as stock modules of x write it:
PyPI sinkhorn-transformer, routing-transformer and reformer-pytorch, with what their attention
becomes once the tokens are in order; near misses become None."""
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


def hashed(**settings):
    return LSHSelfAttention(24, heads=3, bucket_size=8, n_hashes=2, attn_chunks=1, **settings)


FORMS = {
    "sinkhorn": on_tokens(sinkhorn()),
    "sinkhorn_two": on_tokens(sinkhorn(n_top_buckets=2)),
    "sinkhorn_cut": on_tokens(sinkhorn(n_sortcut=2)),
    "routing": on_tokens(Routed(), exporters="s"),
    "routing_memory": on_tokens(Routed(num_mem_kv=2), exporters="s"),
    "routing_shared": on_tokens(Routed(shared_qk=True), exporters="s"),
    "groups": on_groups(),
    "groups_fewer_keys": on_groups(keys=6),
    "groups_causal": on_groups(masked="causal"),
    "groups_data": on_groups(masked="data"),
    # near misses
    "groups_heads": on_groups(None, masked="heads"),
    "groups_shared": on_groups(None, shared=True),
    "groups_read": on_groups(None, read=True),
    "groups_of_queries": on_groups(None, axis=-2),
}
SHORT = {name: form[5][i % len(form[5])]
         for i, (name, form) in enumerate(FORMS.items()) if i % 2 == 0}
