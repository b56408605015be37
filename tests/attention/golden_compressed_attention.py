"""Golden folders of CompressedAttention, from memory-compressed-attention in double: its
q, k, v and output projections stay outside."""
import torch

import golden
from memory_compressed_attention import MemoryCompressedAttention


class Given(torch.nn.Module):
    def __init__(self, x):
        super().__init__()
        self.x = x

    def forward(self, _):
        return self.x


def case(name, n, heads, width, ratio, causal):
    torch.manual_seed(5)
    attention = MemoryCompressedAttention(width, heads, causal, ratio).double().eval()
    conv = attention.compress_fn.conv
    w = golden.random(1, width, width // heads, ratio)
    bias, null_k, null_v = (golden.random(seed, width) for seed in (2, 3, 4))
    conv.weight.data, conv.bias.data = w.double(), bias.double()
    attention.null_k.data = null_k.double()[None, None]
    attention.null_v.data = null_v.double()[None, None]
    q, k, v = (golden.random(seed, 2, n, width) for seed in (5, 6, 7))
    attention.to_qkv = Given(torch.cat([q, k, v], dim=-1).double())
    attention.to_out = torch.nn.Identity()
    y = attention(torch.zeros(2, n, width, dtype=torch.double))
    golden.write(name, "CompressedAttention",
                 {"q_num_heads": heads, "compression": ratio, "is_causal": int(causal),
                  "scale": width ** -0.5},
                 [q, k, v, w, bias, None, None, null_k, null_v], [y],
                 "memory-compressed-attention", "MemoryCompressedAttention", (1e-4, 1e-5))


if __name__ == "__main__":
    case("compressed_ragged", 11, 2, 8, 3, False)
    case("compressed_causal", 14, 3, 12, 4, True)
