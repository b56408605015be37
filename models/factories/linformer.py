"""Linformer: a masked language model whose keys and values are projected from n to 16
places. LinformerLM of linformer, its attention swapped."""
from attnrun_convert.call import call
from linformer import LinformerLM
from linformer.linformer import LinformerSelfAttention

from . import _parts as parts

LENGTH = 96  # of the projections


def attention(self, x, context=None, **_):
    source = x if context is None else context
    q, k, v = self.to_q(x), self.to_k(source), self.to_v(source)
    return self.to_out(call("LinformerAttention", q, k, v, self.proj_k, self.proj_v,
                            q_num_heads=self.heads))


def build():
    upstream = parts.randomise(parts.Tokens(LinformerLM(
        num_tokens=parts.VOCABULARY, dim=parts.WIDTH, seq_len=LENGTH, depth=2, k=16,
        heads=parts.HEADS)))
    module = parts.swapped(upstream, {LinformerSelfAttention: attention})
    return module, upstream, [(parts.ids(2, 41),), (parts.ids(1, LENGTH),)]
