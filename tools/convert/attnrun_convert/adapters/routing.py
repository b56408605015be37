"""KmeansAttention of routing-transformer. Its second result, a loss of training, is zero."""
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
        memory = (m.mem_key, m.mem_value) if m.num_mem_kv > 0 else (None, None)
        y = call("RoutingAttention", q, q if m.shared_qk else k, v, m.kmeans.means, *memory,
                 key_mask, query_mask, window=m.window_size, shared_qk=int(m.shared_qk),
                 is_causal=int(m.causal),
                 context_window=m.context_window_size if m.receives_context else None)
        return y, q.new_zeros(())

    def results(self, output):
        return output[0]
