"""Golden folders of LinformerAttention, from linformer's and linformer-pytorch's attention
in double. Their q, k, v projections stay outside: identities here."""
import sys
import types

import torch

import golden

# Draws pictures, and needs what does.
sys.modules["linformer_pytorch.visualizer"] = types.SimpleNamespace(Visualizer=None)
from linformer.linformer import LinformerSelfAttention  # noqa: E402
from linformer_pytorch.linformer_pytorch import LinearAttentionHead  # noqa: E402


class Identity(torch.nn.Module):
    """Of a projection: takes Q, K or V although all get the same x."""

    def __init__(self, x):
        super().__init__()
        self.x = x

    def forward(self, _):
        return self.x.double()


def lucidrains(name, n, heads, dim, slots, one_kv_head):
    width, kv = heads * dim, dim * (1 if one_kv_head else heads)
    attention = LinformerSelfAttention(width, 16, k=slots, heads=heads,
                                       one_kv_head=one_kv_head)
    e, f = golden.random(8, 16, slots), golden.random(9, 16, slots)
    attention.proj_k.data, attention.proj_v.data = e.double(), f.double()
    q, k, v = golden.random(1, 2, n, width), golden.random(2, 2, n, kv), golden.random(3, 2, n, kv)
    attention.to_q, attention.to_k, attention.to_v = Identity(q), Identity(k), Identity(v)
    attention.to_out = torch.nn.Identity()
    y = attention.eval()(torch.zeros(2, n, width))
    golden.write(name, "LinformerAttention",
                 {"q_num_heads": heads, "kv_num_heads": 1 if one_kv_head else heads},
                 [q, k, v, e, f], [y], "linformer", "LinformerSelfAttention", (1e-4, 1e-5))


def tatp22():
    n, dim, slots = 9, 6, 4
    e, f = (torch.nn.Linear(n, slots).double() for _ in range(2))
    for seed, linear in enumerate((e, f)):
        linear.weight.data = golden.random(10 + seed, slots, n).double()
        linear.bias.data = golden.random(12 + seed, slots).double()
    q, k, v = (golden.random(seed, 2, n, dim) for seed in (4, 5, 6))
    mask = golden.random(7, 2, n) < 0.5
    y = LinearAttentionHead(dim, 0.0, e, f, None)(q.double(), k.double(), v.double(),
                                                  input_mask=mask)
    golden.write("linformer_bias_mask", "LinformerAttention", {"q_num_heads": 1},
                 [q, k, v, e.weight.data.float().t(), f.weight.data.float().t(),
                  e.bias.data.float(), f.bias.data.float(), mask], [y],
                 "linformer-pytorch", "LinearAttentionHead", (1e-4, 1e-5))


if __name__ == "__main__":
    lucidrains("linformer_short", 11, 3, 4, 5, False)
    lucidrains("linformer_one_kv_head", 16, 3, 4, 5, True)
    tatp22()
