"""Routing Transformer: RoutingTransformerLM of routing-transformer, causal, half of its
heads local; both kinds of attention swapped. Masked tokens take part in the routing, as
upstream, so tokens are padded to whole windows in the graph."""
import torch
from attnrun_convert.call import call
from torch import nn

from . import _parts as parts
from ._local import LocalAttention

parts.stub(product_key_memory="PKM", mixture_of_experts="MoE")
from routing_transformer import RoutingTransformerLM  # noqa: E402
from routing_transformer.routing_transformer import KmeansAttention  # noqa: E402

WINDOW = 16


def turned(x, inverse):
    """Rotary positions on halves of the last dim."""
    places = torch.arange(x.shape[-2], device=x.device).to(x.dtype)
    angles = places[:, None] * torch.cat([inverse, inverse])
    one, two = x.chunk(2, dim=-1)
    return x * angles.cos() + torch.cat([-two, one], dim=-1) * angles.sin()


def local(self, q, k, v, mask=None, input_mask=None, **_):
    """The window's own rotary positions are those of the sequence: only differences count,
    and no key comes after its query's window."""
    inverse = self.rel_pos.inv_freq
    return call("ChunkedLocalAttention", turned(q, inverse), turned(k, inverse), v, input_mask,
                is_causal=1, chunk_size=self.window_size, chunks_before=self.look_backward)


def routed(self, q, k, v, query_mask=None, key_mask=None, **_):
    y = call("RoutingAttention", q, k, v, self.kmeans.means, self.mem_key, self.mem_value,
             query_mask, query_mask, is_causal=1, window=self.window_size)
    return y, 0


class Padded(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens, mask):
        whole, seen = parts.to_multiple(tokens, mask, WINDOW)
        return self.model(whole, input_mask=seen)[0][:, :tokens.shape[1]]


def build():
    upstream = parts.randomise(Padded(RoutingTransformerLM(
        num_tokens=parts.VOCABULARY, dim=parts.WIDTH, depth=2, max_seq_len=128,
        heads=parts.HEADS, dim_head=16, window_size=WINDOW, causal=True,
        n_local_attn_heads=2, num_mem_kv=1, shared_qk=False,
        _register_kmeans_update=False)))
    for layer in upstream.modules():
        if isinstance(layer, KmeansAttention):
            layer.kmeans.means.copy_(parts.floats(*layer.kmeans.means.shape))
            layer.kmeans.initted.fill_(True)
    module = parts.swapped(upstream, {LocalAttention: local, KmeansAttention: routed})
    sets = [(parts.ids(b, n), parts.ragged(b, n, torch.bool, 9))
            for b, n in ((2, 64), (3, 103))]
    return module, upstream, sets
