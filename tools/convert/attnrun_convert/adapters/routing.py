"""KmeansAttention of routing-transformer. Its second result, a loss of training, is computed where
somebody reads it."""
import torch

from ..call import call
from ..registry import Adapter, need


class KmeansAttention(Adapter):
    names = ("routing_transformer.routing_transformer.KmeansAttention",)
    shapes = (("kmeans.means", "window_size", "shared_qk"),)
    operator = "RoutingAttention"

    def check(self):
        m = self.module
        need(m.kmeans.means.dim() == 3, "its means are not of rank 3")
        need(bool(m.kmeans.initted), "its means were never set: run it once, or load a trained"
             " model")
        need(not (m.shared_qk and m.receives_context), "shared_qk with a context")

    def forward(self, q, k, v, query_mask=None, key_mask=None, **kwargs):
        m = self.module
        if not m.receives_context and key_mask is None:
            key_mask = query_mask
        need(key_mask is None or m.shared_qk or m.num_mem_kv > 0,
             "a mask without memories or shared_qk: where it hides all keys of a cluster, its code "
             "attends to them all the same")
        memory = (m.mem_key, m.mem_value) if m.num_mem_kv > 0 else (None, None)
        y = call("RoutingAttention", q, q if m.shared_qk else k, v, m.kmeans.means, *memory,
                 key_mask, query_mask, window=m.window_size, shared_qk=int(m.shared_qk),
                 is_causal=int(m.causal),
                 context_window=m.context_window_size if m.receives_context else None)
        return y, self._loss(q if m.shared_qk else torch.cat([q, k], dim=2))

    def _loss(self, x):
        """How far unit vectors are from the nearest means."""
        kmeans = self.module.kmeans
        x = torch.nn.functional.normalize(x, dim=-1)
        nearest = torch.einsum("bhnd,hcd->bhnc", x, kmeans.means).argmax(-1)
        heads = torch.arange(x.shape[1])[:, None]
        return (x - kmeans.means[heads, nearest]).square().mean() * kmeans.commitment
