"""LinformerSelfAttention of linformer, and a head of linformer-pytorch."""
import torch

from ..call import call
from ..registry import Adapter, need, need_linear


class LinformerSelfAttention(Adapter):
    names = ("linformer.linformer.LinformerSelfAttention",)
    shapes = (("to_q", "to_k", "to_out", "proj_k", "share_kv"),)
    operator = "LinformerAttention"

    def check(self):
        need_linear(self.module, "to_q", "to_k", "to_out")
        for name in ("proj_k",) if self.module.share_kv else ("proj_k", "proj_v"):
            need(getattr(self.module, name).dim() == 2, f"its {name} is not a matrix")

    def forward(self, x, context=None, **kwargs):
        m = self.module
        source = x if context is None else context
        k = m.to_k(source)
        v = k if m.share_kv else m.to_v(source)
        y = call("LinformerAttention", m.to_q(x), k, v, m.proj_k,
                 None if m.share_kv else m.proj_v, q_num_heads=m.heads,
                 kv_num_heads=k.shape[-1] // m.dim_head)
        return m.to_out(y)


class LinearAttentionHead(Adapter):
    """E and F are linear layers over tokens, which fix the length."""
    names = ("linformer_pytorch.linformer_pytorch.LinearAttentionHead",)
    shapes = (("E", "F", "full_attention", "dim"),)
    operator = "LinformerAttention"

    def check(self):
        m = self.module
        need_linear(m, "E", "F")
        need(not m.full_attention, "full_attention=True is not Linformer's")
        need(m.causal_mask is None, "it has a causal mask")

    def tensors(self):
        return {"e": self.module.E.weight.t(), "f": self.module.F.weight.t()}

    def forward(self, Q, K, V, input_mask=None, embeddings_mask=None, visualize=False, **kwargs):
        m = self.module
        need(not visualize, "visualize=True asks for the weights")
        if embeddings_mask is not None:
            Q = torch.where(embeddings_mask[..., None], Q, torch.zeros_like(Q))
        return call("LinformerAttention", Q, K, V, self.tensor("e"), self.tensor("f"),
                    m.E.bias, m.F.bias, input_mask, q_num_heads=1, scale=m.dim ** -0.5)
