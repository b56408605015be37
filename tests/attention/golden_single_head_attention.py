"""Golden cases of SingleHeadAttention: sha-rnn's Attention (model.py, 218d748) stated again
in plain PyTorch, as it is no package: gates from qs, ks, vs and the Overparam layer, tensors
(length, batch, width), a memory that ends with the new tokens, an additive mask."""
import torch
from torch import nn

from golden import random, write


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qs, self.ks, self.vs = (nn.Parameter(torch.randn(1, 1, width))
                                     for _ in range(3))
        self.q = nn.Linear(width, width)
        self.qln = nn.LayerNorm(width, eps=1e-12)
        self.vq = nn.Linear(width, 2 * width)

    def gates(self):
        cell, gate = self.vq(torch.sigmoid(self.vs)).chunk(2, -1)
        return torch.sigmoid(self.qs), torch.sigmoid(self.ks), (torch.sigmoid(gate)
                                                                * torch.tanh(cell))

    def query(self, h):
        return self.qln(self.q(h))

    def forward(self, h, memory, mask):
        g_q, g_k, g_v = self.gates()
        q, k, v = g_q * self.query(h), g_k * memory, g_v * memory
        q, k, v = (x.unflatten(2, (self.heads, -1)).permute(1, 2, 0, 3) for x in (q, k, v))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        mix = torch.softmax(scores + mask, -1) @ v
        return mix.permute(2, 0, 1, 3).flatten(2)


def case(name, heads, seed):
    torch.manual_seed(seed)
    module = Attention(16, heads).eval()
    h, memory = random(seed, 7, 2, 16), random(seed + 1, 12, 2, 16)
    mask = torch.full((7, 12), -torch.inf).triu(1 + 12 - 7)
    with torch.no_grad():
        y = module.double()(h.double(), memory.double(), mask)
        q = module.query(h.double()).float()
        gates = [g.flatten().float() for g in module.gates()]
    write(name, "SingleHeadAttention", dict(q_num_heads=heads),
          [q.transpose(0, 1).contiguous(), memory.transpose(0, 1).contiguous(), *gates],
          [y.transpose(0, 1)], "torch", "sha-rnn's Attention stated again", (1e-4, 1e-5))


case("single_head", 1, 1)
case("single_head_two", 2, 3)
