"""Golden cases of SinkhornAttention: both classes of sinkhorn-transformer, with the noise of
gumbel_sinkhorn remembered."""
import sys
import types

import torch

from golden import heads_of, joined, random, write

for name in ("product_key_memory", "axial_positional_embedding", "local_attention"):
    if name not in sys.modules:  # what the attention classes do not need
        stub = types.ModuleType(name)
        stub.PKM = stub.AxialPositionalEmbedding = stub.LocalAttention = object
        sys.modules[name] = stub
from sinkhorn_transformer import sinkhorn_transformer as upstream  # noqa: E402


def operands(seed, batch, tokens, heads, dim):
    return [random(seed + i, batch, tokens, heads * dim) for i in range(3)]


def run(module, tensors, heads, mask=None):
    torch.manual_seed(0)
    with torch.no_grad():
        return joined(module.double().eval()(
            *(heads_of(x.double(), heads) for x in tensors), kv_mask=mask, q_mask=None
            if mask is None else torch.ones_like(mask)))


def case(name, tensors, y, what, tolerance=(1e-5, 1e-6), more=(), **attributes):
    write(name, "SinkhornAttention", dict(q_num_heads=2, **attributes), [*tensors, *more],
          [y], "sinkhorn-transformer", what, tolerance)


def main():
    qkv = operands(1, 2, 24, 2, 8)
    mask = torch.ones(2, 24, dtype=torch.bool)
    mask[1, 17:] = False
    module = upstream.SinkhornAttention(4, 16, 8, 2, 24, n_top_buckets=2)
    case("sinkhorn_topk", qkv, run(module, qkv, 2, mask), "SinkhornAttention",
         more=[None, None, None, None, mask], bucket_size=4, top_buckets=2,
         sorted_values="keys")
    qkv = operands(4, 1, 24, 2, 8)
    module = upstream.SinkhornAttention(4, 16, 8, 2, 24, n_sortcut=2)
    case("sinkhorn_sortcut", qkv, run(module, qkv, 2), "SinkhornAttention(n_sortcut=2)",
         bucket_size=4, sortcut=2)
    noise, draw = [], upstream.sample_gumbel

    def remember(*args, **kwargs):
        noise.append(draw(*args, **kwargs))
        return noise[-1]

    upstream.sample_gumbel = remember
    module = upstream.SinkhornAttention(4, 16, 8, 2, 24, non_permutative=False)
    y = run(module, qkv, 2)
    case("sinkhorn_balanced", qkv, y, "SinkhornAttention(non_permutative=False)",
         (1e-4, 1e-5), [None, noise[-1][None].float()], bucket_size=4, mode="sinkhorn",
         temperature=0.75, sorted_values="keys")
    qkv = operands(9, 1, 20, 2, 8)
    module = upstream.SinkhornCausalAttention(4, 16, 8, 2, 20)
    y = run(module, qkv, 2)
    case("sinkhorn_causal", qkv, y, "SinkhornCausalAttention",
         more=[None, None, module.null_keys[:, 0].detach().float(),
               module.null_values[:, 0].detach().float()],
         bucket_size=4, top_buckets=2, is_causal=1)


main()
