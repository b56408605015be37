"""LocalAttention of local-attention, and the layer of linear-attention-transformer, some of
whose heads are local."""
import functools
import math

import torch

from ..call import call
from ..registry import Adapter, need, need_linear


def rotated(x, frequencies, shift):
    """x (B, H, N, D) turned by its position plus `shift`; halves of D are pairs. Upstream counts
    positions from the first one of a window. Here they grow with the text, so whole turns are taken
    away in double."""
    at = torch.arange(x.shape[-2], device=x.device) + shift
    turns = at[:, None].double() * (frequencies.double() / (2 * math.pi))
    angle = (2 * math.pi * (turns - turns.floor())).to(x.dtype)
    angle = torch.cat([angle, angle], dim=-1)
    low, high = x.chunk(2, dim=-1)
    return x * angle.cos() + torch.cat([-high, low], dim=-1) * angle.sin()


def check_local(m):
    need(isinstance(m.window_size, int) and hasattr(m, "look_backward"),
         "it has no window_size")
    need(not m.use_xpos, "use_xpos=True scales by position")
    need(m.rel_pos is None or not (m.shared_qk and m.look_forward),
         "shared_qk with rotary positions and look_forward")


def run_local(m, q, k, v, mask=None):
    """q, k, v (B, H, N, D). With autopad alone, upstream sees the zeros behind the end."""
    n = q.shape[2]
    if m.autopad and not m.causal and mask is None:
        missing = (-n) % m.window_size
        q, k, v = (torch.nn.functional.pad(x, (0, 0, 0, missing)) for x in (q, k, v))
        return _windows(m, q, k, v, None)[:, :, :n]
    return _windows(m, q, k, v, mask)


def _windows(m, q, k, v, mask):
    if m.rel_pos is not None:
        # Upstream turns the queries of a window as if they were its last ones.
        shift = m.look_forward * m.window_size
        q = rotated(q, m.rel_pos.inv_freq, shift)
        k = q if m.shared_qk else rotated(k, m.rel_pos.inv_freq, 0)
    return call("ChunkedLocalAttention", q, q if m.shared_qk else k, v, mask,
                chunk_size=m.window_size, chunks_before=m.look_backward,
                chunks_after=m.look_forward, is_causal=int(m.causal),
                exact_window=int(m.exact_windowsize), shared_qk=int(m.shared_qk),
                **({} if m.scale is None else {"scale": float(m.scale)}))


class LocalAttention(Adapter):
    """Takes any length, also where upstream asks for a multiple of the window."""
    names = ("local_attention.local_attention.LocalAttention",)
    shapes = (("window_size", "look_backward", "look_forward", "exact_windowsize"),)
    operator = "ChunkedLocalAttention"

    def check(self):
        check_local(self.module)

    def forward(self, q, k, v, mask=None, input_mask=None, attn_bias=None, window_size=None):
        need(attn_bias is None, "attn_bias is a table of its own")
        need(window_size is None, "window_size differs from call to call")
        need(q.dim() in (3, 4), f"q has rank {q.dim()}")
        mask = input_mask if mask is None else mask
        if q.dim() == 4:
            return run_local(self.module, q, k, v, mask)
        need(mask is None, "a mask with q of rank 3")
        return run_local(self.module, *(x[:, None] for x in (q, k, v)))[:, 0]


class LinearSelfAttention(Adapter):
    names = ("linear_attention_transformer.linear_attention_transformer.SelfAttention",)
    shapes = (("global_attn_fn", "local_attn_heads", "local_attn"),)
    operator = "LinearAttention"

    def check(self):
        m = self.module
        need_linear(m, "to_q", "to_k", "to_v", "to_out")
        need(hasattr(m, "global_attn_fn") and hasattr(m, "local_attn_heads"),
             "it has no global_attn_fn")
        function = m.global_attn_fn
        self.causal = isinstance(function, functools.partial)
        name = (function.func if self.causal else function).__name__
        need(name == ("causal_linear_attn" if self.causal else "linear_attn"),
             f"its attention is {name}")
        if self.causal:
            need(function.keywords.get("bucket_size") == 1, "blindspot_size is not 1")
        check_local(m.local_attn)

    def _linear(self, q, k, v, mask):
        root = self.module.d_heads ** 0.5
        if self.causal:
            return call("LinearAttention", q, k, v, mask, is_causal=1, denominator="clamp",
                        feature_map_q="softmax_d", feature_map_k="exp", epsilon=1e-3 * root)
        return call("LinearAttention", q, k, v, mask, feature_map_q="softmax_d",
                    feature_map_k="softmax_n", denominator="none", scale=1 / root)

    def forward(self, x, input_mask=None, context=None, context_mask=None, pos_emb=None,
                **kwargs):
        m = self.module
        need(pos_emb is None, "pos_emb turns the queries (rotary positions)")
        source = context if m.receives_context else x
        q, k, v = (layer(t).unflatten(2, (-1, m.d_heads)).transpose(1, 2)
                   for layer, t in ((m.to_q, x), (m.to_k, source), (m.to_v, source)))
        parts, cut = [], m.local_attn_heads
        if cut > 0:
            parts.append(run_local(m.local_attn, *(t[:, :cut] for t in (q, k, v)), input_mask))
        if cut < m.heads:
            mask = context_mask if m.receives_context else input_mask
            parts.append(self._linear(*(t[:, cut:] for t in (q, k, v)), mask))
        y = torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]
        return m.to_out(y.transpose(1, 2).flatten(2))
