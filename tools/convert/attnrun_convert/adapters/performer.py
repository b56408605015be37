"""FastAttention of performer-pytorch: random features, generalized kernels, or none."""
from torch import nn

from ..call import call
from ..registry import Adapter, need

KERNELS = {nn.ReLU: "relu", nn.GELU: "gelu", nn.Sigmoid: "sigmoid", nn.Tanh: "tanh",
           nn.Identity: "identity"}


def kernel_name(function):
    need(type(function) in KERNELS, f"its kernel is {type(function).__name__}, known are "
         + ", ".join(sorted(kind.__name__ for kind in KERNELS)))
    need(getattr(function, "approximate", "none") == "none", "its Gelu is approximate")
    return KERNELS[type(function)]


class FastAttention(Adapter):
    names = ("performer_pytorch.performer_pytorch.FastAttention",)
    shapes = (("projection_matrix", "kernel_fn", "no_projection"),)
    operator = "PerformerAttention"

    def check(self):
        m = self.module
        need(getattr(m, "projection_matrix", None) is not None
             and m.projection_matrix.dim() == 2, "it has no projection_matrix of rank 2")
        if m.generalized_attention:
            kernel_name(m.kernel_fn)
        if m.no_projection:
            self.operator = "LinearAttention"

    def forward(self, q, k, v):
        m = self.module
        if m.no_projection:
            return self._without_projection(q, k, v)
        attributes = {"is_causal": 1, "denominator": "add_keys"} if m.causal else {}
        if m.generalized_attention:
            attributes |= {"features": "generalized", "kernel_fn": kernel_name(m.kernel_fn)}
        return call("PerformerAttention", q, k, v, m.projection_matrix, **attributes)

    def _without_projection(self, q, k, v):
        causal = self.module.causal
        return call("LinearAttention", q, k, v, is_causal=int(causal),
                    feature_map_q="softmax_d", feature_map_k="exp" if causal else "softmax_n",
                    denominator="add" if causal else "none")
