"""Golden cases of RoutingAttention: KmeansAttention of routing-transformer, in float64. No
case has a choice that is close."""
import sys
import types

import torch

from golden import heads_of, joined, random, write

# routing-transformer imports them for layers that are not used here.
sys.modules.setdefault("product_key_memory", types.SimpleNamespace(PKM=None))
sys.modules.setdefault("mixture_of_experts", types.SimpleNamespace(MoE=None))
sys.modules.setdefault("local_attention", types.SimpleNamespace(LocalAttention=None))
from routing_transformer.routing_transformer import KmeansAttention  # noqa: E402


def kmeans(q, k, v, means, window, memory=None, query_mask=None, key_mask=None, **options):
    heads, clusters, dim = means.shape
    module = KmeansAttention(clusters, window, heads, dim, num_mem_kv=memory[0].shape[2]
                             if memory else 0, **options).double().eval()
    module.kmeans.means.copy_(means)
    module.kmeans.initted.fill_(True)
    if memory:
        module.mem_key.data.copy_(memory[0])
        module.mem_value.data.copy_(memory[1])
    q, k, v = (heads_of(x.double(), heads) for x in (q, k, v))
    return joined(module(q, k, v, query_mask=query_mask, key_mask=key_mask)[0])


def main():
    q, k, v = (random(i, 1, 24, 16) for i in (1, 2, 3))
    means = random(4, 2, 4, 8)
    write("routing_kmeans_plain", "RoutingAttention", dict(q_num_heads=2, window=6),
          [q, k, v, means], [kmeans(q, k, v, means, 6)], "routing-transformer",
          "KmeansAttention")

    q, k, v = (random(i, 2, 20, 16) for i in (5, 6, 7))
    means, memory = random(8, 2, 3, 8), (random(9, 2, 3, 2, 8), random(10, 2, 3, 2, 8))
    mask = torch.arange(20) < torch.tensor([[20], [14]])
    write("routing_kmeans_causal_memory", "RoutingAttention",
          dict(q_num_heads=2, window=7, is_causal=1),
          [q, k, v, means, *memory, mask, mask],
          [kmeans(q, k, v, means, 7, memory, query_mask=mask, causal=True)],
          "routing-transformer", "KmeansAttention")

    q, v, means = random(11, 1, 24, 16), random(12, 1, 24, 16), random(13, 2, 4, 8)
    write("routing_kmeans_shared", "RoutingAttention",
          dict(q_num_heads=2, window=7, is_causal=1, shared_qk=1),
          [q, q, v, means],
          [kmeans(q, q, v, means, 7, causal=True, shared_qk=True)],
          "routing-transformer", "KmeansAttention")

    q, k, v = random(14, 1, 15, 16), random(15, 1, 26, 16), random(16, 1, 26, 16)
    means = random(17, 2, 3, 8)
    mask = torch.arange(26)[None] % 5 != 3
    write("routing_kmeans_context", "RoutingAttention",
          dict(q_num_heads=2, window=5, context_window=9),
          [q, k, v, means, None, None, mask],
          [kmeans(q, k, v, means, 5, key_mask=mask, context_window_size=9,
                  receives_context=True)],
          "routing-transformer", "KmeansAttention")


main()
