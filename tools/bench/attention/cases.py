"""cases.py - the attention operators as models of one node, and what they are set against.

All have 8 heads of 64, one sample, but those that say "1 head", where upstream's export needs
too much memory for 8. A case says its operands for n tokens, its operator's
attributes, and upstream: a torch callable over (some of) the same operands. Where upstream
has projections, they are the identity, so that both sides do the attention alone.

usage: cases.py make CASE N FOLDER      model.onnx, inputs.npz of attnrun
       cases.py export CASE N FOLDER    upstream.onnx, upstream.npz: its ONNX export
"""
import sys
from dataclasses import dataclass
from pathlib import Path

HEADS, DIM = 8, 64
WIDTH = HEADS * DIM  # both as the case says, once it is taken
CONSTANTS = {"E", "Wk", "projection", "W1", "W2", "Ws", "gamma", "beta", "bs", "means",
             "rand_blocks", "row_ptr", "col_idx", "R1", "R2", "c", "W", "P", "Wq", "v",
             "rotations"}  # operands that are weights


@dataclass(frozen=True, eq=False)
class Case:
    name: str
    op: str
    operands: object          # n -> {name: shape or numpy array}, in the operator's order
    attributes: object = None  # n -> attributes besides heads
    upstream: object = None   # n -> (module, names of the operands that it takes)
    against: str = ""         # what upstream is
    least: float = 0          # times as fast as the ONNX export
    least_torch: float = 0    # times as fast as upstream in PyTorch
    lengths: tuple = (4096, 16384)
    linear: bool = True       # time grows with n
    heads: bool = True        # has q_num_heads
    n_heads: int = HEADS
    pairs: object = None      # n -> query-key pairs of a head that the mechanism allows
    domain: str = "attnrun"
    flops: object = None      # n -> of all of it, where there are no pairs
    vision: bool = False      # a map of n x n pixels; no growth is drawn
    peers: tuple = ("onnxruntime", "torch")
    model: object = None      # n -> (nodes, weights), where one node is not all


# Kinds of operators, as README has them: a panel of the pictures each.
FAMILIES = {
    "kernel features, low rank": ("LinearAttention", "PerformerAttention", "LinformerAttention",
                                  "CompressedAttention"),
    "fixed patterns": ("LocalAttention", "ChunkedLocalAttention", "LongformerAttention",
                       "SparseTransformerAttention", "BigBirdAttention", "BlockSparseAttention"),
    "patterns from content": ("ReformerAttention", "RoutingAttention", "SinkhornAttention",
                              "TopKAttention"),
    "synthetic, single head, additive": ("SyntheticAttention", "SingleHeadAttention", "Boom",
                                         "FastformerAttention", "AttentionPooling",
                                         "LAMAAttention"),
    "mixers": ("FourierMix", "SpatialGatingUnit", "TokenMixing"),
}


def family_of(case):
    return next((name for name, ops in FAMILIES.items() if case.op in ops), "other")


def qkv(n, **more):
    return {"Q": (1, n, WIDTH), "K": (1, n, WIDTH), "V": (1, n, WIDTH), **more}


# ---- upstream ----

def by_heads(x):
    return x.unflatten(2, (HEADS, -1)).transpose(1, 2)


def module_of(function):
    """A torch module of a function over (1, n, heads * dim)."""
    import torch

    class Function(torch.nn.Module):
        def forward(self, *tensors):
            return function(*tensors)

    return Function()


def with_heads(inner):
    """inner(q, k, v) over (1, heads, n, dim), as a module over (1, n, heads * dim)."""
    import torch

    class WithHeads(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, *tensors):
            y = self.inner(*(by_heads(t) for t in tensors))
            return y.transpose(1, 2).flatten(2)

    return WithHeads()


def identities(module, *names):
    import torch

    for name in names:
        setattr(module, name, torch.nn.Identity())
    return module


def dense(causal=False):
    import torch

    attention = torch.nn.functional.scaled_dot_product_attention
    return with_heads(lambda q, k, v: attention(q, k, v, is_causal=causal)), ("Q", "K", "V")


def masked(allowed):
    """Scaled dot product attention under a stored mask; upstream runs in no current torch."""
    def make(n):
        import torch

        i, j = torch.arange(n)[:, None], torch.arange(n)
        mask = torch.where(allowed(i, j), 0.0, float("-inf"))
        attention = torch.nn.functional.scaled_dot_product_attention
        return with_heads(lambda q, k, v: attention(q, k, v, attn_mask=mask)), ("Q", "K", "V")
    return make


def longformer(n):
    import torch
    from transformers import LongformerConfig
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    config = LongformerConfig(hidden_size=WIDTH, num_attention_heads=HEADS,
                              attention_window=[512], num_hidden_layers=1)
    layer = identities(LongformerSelfAttention(config, 0).eval(), "query", "key", "value")
    mask, none = torch.zeros(1, n), torch.zeros(1, n, dtype=torch.bool)

    def run(x):
        return layer(x, attention_mask=mask, is_index_masked=none, is_index_global_attn=none,
                     is_global_attn=False)[0]
    return module_of(run), ("Q",)


def big_bird(n):
    import torch
    from transformers import BigBirdConfig
    from transformers.models.big_bird.modeling_big_bird import (BigBirdBlockSparseAttention,
                                                                BigBirdModel)

    config = BigBirdConfig(hidden_size=WIDTH, num_attention_heads=HEADS, block_size=64,
                           num_random_blocks=3, max_position_embeddings=n)
    layer = identities(BigBirdBlockSparseAttention(config).eval(), "query", "key", "value")
    masks = BigBirdModel.create_masks_for_block_sparse_attn(torch.ones(1, n), 64)

    def run(x):
        block, band, start, end = masks
        return layer(x, band_mask=band, from_mask=start, to_mask=end,
                     from_blocked_mask=block, to_blocked_mask=block)[0]
    return module_of(run), ("Q",)


def performer(causal):
    def make(_n):
        from performer_pytorch import FastAttention
        return with_heads(FastAttention(DIM, nb_features=256, causal=causal).eval()), (
            "Q", "K", "V")
    return make


def linear(causal):
    """idiap's formula; the causal form by cumulative sums, as the exporters write it."""
    def make(_n):
        import torch

        def both(q, k, v):
            q, k = (torch.nn.functional.elu(x) + 1 for x in (q, k))
            y = q @ (k.transpose(-1, -2) @ v)
            return y / (q @ k.sum(dim=-2)[..., None] + 1e-6)

        def one_way(q, k, v):
            q, k = (torch.nn.functional.elu(x) + 1 for x in (q, k))
            state = (k[..., None] * v[..., None, :]).cumsum(dim=-3)
            y = (q[..., None, :] @ state)[..., 0, :]
            return y / ((q * k.cumsum(dim=-2)).sum(-1, keepdim=True) + 1e-6)
        return with_heads(one_way if causal else both), ("Q", "K", "V")
    return make


def linformer(n):
    from linformer import LinformerSelfAttention
    layer = LinformerSelfAttention(WIDTH, n, k=256, heads=HEADS, dim_head=DIM).eval()
    return identities(layer, "to_q", "to_k", "to_v", "to_out"), ("Q",)


def compressed(_n):
    from memory_compressed_attention import MemoryCompressedAttention
    import torch
    layer = MemoryCompressedAttention(WIDTH, heads=HEADS, causal=False,
                                      compression_factor=4).eval()
    layer.to_qkv = module_of(lambda x: torch.cat((x, x, x), dim=-1))
    return identities(layer, "to_out"), ("Q",)


def reformer(rounds):
    def make(_n):
        from reformer_pytorch import LSHAttention
        layer = LSHAttention(bucket_size=64, n_hashes=rounds, causal=False).eval()

        def run(qk, v):
            qk, v = (by_heads(x).flatten(0, 1) for x in (qk, v))
            return layer(qk, v)[0].unflatten(0, (1, HEADS)).transpose(1, 2).flatten(2)
        return module_of(run), ("QK", "V")
    return make


def buckets_of_transformers(n):
    """What ReformerModel sets on its first run where its configuration names no number."""
    power = (2 * (n // 64)).bit_length() - 1
    limit = 2 * max(int((n // 64) ** 0.5), 64)
    return ([2 ** power] if 2 ** power <= limit
            else [2 ** (power // 2), 2 ** (power - power // 2)])


def reformer_of_transformers(rounds):
    def make(n):
        from transformers import ReformerConfig
        from transformers.models.reformer.modeling_reformer import LSHSelfAttention

        config = ReformerConfig(hidden_size=WIDTH, num_attention_heads=HEADS,
                                attention_head_size=DIM, num_hashes=rounds, is_decoder=False,
                                lsh_attn_chunk_length=64, max_position_embeddings=n,
                                num_buckets=buckets_of_transformers(n), hash_seed=1)
        layer = identities(LSHSelfAttention(config).eval(), "query_key", "value")
        return module_of(lambda x: layer(x, num_hashes=rounds).hidden_states), ("QK",)
    return make


def chunked(_n):
    from local_attention import LocalAttention
    return with_heads(LocalAttention(256, causal=True, look_backward=1,
                                     use_rotary_pos_emb=False).eval()), ("Q", "K", "V")


def sinkhorn(n):
    from sinkhorn_transformer.sinkhorn_transformer import SinkhornAttention
    return with_heads(SinkhornAttention(64, WIDTH, DIM, HEADS, n).eval()), (
        "Q", "K", "V")


def routing(n):
    from routing_transformer.routing_transformer import KmeansAttention
    import torch
    layer = KmeansAttention(n // 256, 256, HEADS, DIM, num_mem_kv=1).eval()
    layer.kmeans.initted.fill_(True) if torch.is_tensor(layer.kmeans.initted) else None
    return with_heads(lambda q, k, v: layer(q, k, v)[0]), ("Q", "K", "V")


def top_k(_n):
    """lancopku's: scores below the k-th are hidden."""
    import torch

    def run(q, k, v):
        scores = q @ k.transpose(-1, -2) * DIM ** -0.5
        least = scores.topk(32, dim=-1).values[..., -1:]
        return torch.softmax(scores.masked_fill(scores < least, float("-inf")), -1) @ v
    return with_heads(run), ("Q", "K", "V")


def fourier(_n):
    import torch
    return module_of(lambda x: torch.fft.fftn(x, dim=(1, 2)).real), ("X",)


# ---- operands ----

def rand_blocks(n):
    """Three blocks for each block and head, none of those that it sees anyway: as upstream
    draws them for training."""
    import numpy as np
    rng, blocks = np.random.default_rng(0), n // 64
    rows = [[b for b in range(1, blocks - 1) if abs(b - a) > 1] for a in range(1, blocks - 1)]
    draw = [[rng.choice(row, 3, replace=False) for row in rows] for _ in range(HEADS)]
    return {"rand_blocks": np.array(draw, np.int32)}


def band_blocks(n):
    """Blocks of 64: the first one, and one to either side."""
    import numpy as np
    blocks = n // 64
    rows = [sorted({0, *range(max(a - 1, 0), min(a + 2, blocks))}) for a in range(blocks)]
    ends = np.cumsum([0] + [len(r) for r in rows])
    return {"row_ptr": ends[None].astype(np.int32),
            "col_idx": np.concatenate(rows)[None].astype(np.int32)}


def reformer_operands(rounds, buckets):
    return lambda n: {"QK": (1, n, WIDTH), "V": (1, n, WIDTH),
                      "rotations": (HEADS, DIM, rounds, sum(buckets(n)) // 2)}


def buckets_of_lucidrains(n):
    return [n // 64]


def reformer_case(name, rounds, buckets, upstream, against, **more):
    return Case(f"{name}, {rounds} rounds", "ReformerAttention",
                reformer_operands(rounds, buckets),
                lambda n: {"num_hashes": rounds, "num_buckets": buckets(n),
                           "chunk_length": 64},
                upstream(rounds), against, 4, 4, pairs=lambda n: rounds * n * 128, **more)


def reformer_cases():
    """Hashing into n / 64 buckets costs n^2; in two factors it does not."""
    for rounds in (2, 4):
        yield reformer_case("Reformer", rounds, buckets_of_lucidrains, reformer,
                            "reformer-pytorch LSHAttention", linear=False)
        yield reformer_case("Reformer, factored buckets", rounds, buckets_of_transformers,
                            reformer_of_transformers, "transformers LSHSelfAttention")


def strided(i, j):
    return (j <= i) & ((i - j) % 64 == 0)


def fixed(i, j):
    return (j <= i) & ((i // 64 == j // 64) | (j % 64 >= 56))


CASES = [
    Case("dense", "Attention", qkv, upstream=lambda n: dense(),
         against="torch scaled_dot_product_attention", linear=False, lengths=(4096,),
         pairs=lambda n: n * n, domain=""),
    Case("Longformer ±256", "LongformerAttention", qkv, lambda n: {"window": [256]},
         longformer, "transformers LongformerSelfAttention", 1.7, 5,
         pairs=lambda n: n * 513 - 256 * 257),
    Case("local ±256", "LocalAttention", qkv, lambda n: {"left_window": [256]}, longformer,
         "transformers LongformerSelfAttention", 1.7, 5,
         pairs=lambda n: n * 513 - 256 * 257),
    Case("Performer, 256 features", "PerformerAttention",
         lambda n: qkv(n, projection=(256, DIM)), None, performer(False),
         "performer-pytorch FastAttention", 1.6),
    Case("Performer, causal", "PerformerAttention",
         lambda n: qkv(n, projection=(256, DIM)),
         lambda n: {"is_causal": 1, "denominator": "add_keys"}, performer(True),
         "performer-pytorch FastAttention", 0, lengths=(4096,)),
    Case("Performer, causal, 1 head", "PerformerAttention",
         lambda n: qkv(n, projection=(256, DIM)),
         lambda n: {"is_causal": 1, "denominator": "add_keys"}, performer(True),
         "performer-pytorch FastAttention", 0, lengths=(16384,), n_heads=1),
    Case("linear", "LinearAttention", qkv, None, linear(False), "elu + 1 in torch", 2,
         lengths=(4096, 65536)),
    Case("linear, causal", "LinearAttention", qkv, lambda n: {"is_causal": 1}, linear(True),
         "elu + 1 with cumulative sums in torch", 10, lengths=(4096, 16384)),
    Case("linear, causal, 1 head", "LinearAttention", qkv, lambda n: {"is_causal": 1},
         linear(True), "elu + 1 with cumulative sums in torch", 10, lengths=(65536,),
         n_heads=1),
    Case("Linformer, 256", "LinformerAttention", lambda n: qkv(n, E=(n, 256)), None,
         linformer, "linformer LinformerSelfAttention", 1.3, lengths=(4096,)),
    Case("compressed, 4", "CompressedAttention",
         lambda n: qkv(n, Wk=(WIDTH, DIM, 4)), lambda n: {"compression": 4}, compressed,
         "memory-compressed-attention", 1.3, lengths=(4096,), linear=False,
         pairs=lambda n: n * n // 4),
    *reformer_cases(),
    Case("Sparse Transformer, strided", "SparseTransformerAttention", qkv,
         lambda n: {"pattern": ["strided"], "stride": 64}, masked(strided),
         "torch, dense with a mask", 0, 3, (4096,), False,
         pairs=lambda n: n * (n // 64 + 1) // 2),
    Case("Sparse Transformer, fixed", "SparseTransformerAttention", qkv,
         lambda n: {"pattern": ["fixed"], "stride": 64, "summary": 8}, masked(fixed),
         "torch, dense with a mask", 0, 3, (4096,), False,
         pairs=lambda n: n * 32 + n * n // 16),
    Case("BigBird", "BigBirdAttention", lambda n: qkv(n, **rand_blocks(n)),
         lambda n: {"block_size": 64}, big_bird, "transformers BigBirdBlockSparseAttention",
         0, 3, (4096,), pairs=lambda n: n * 64 * 8 + 2 * 64 * n),
    Case("block-sparse", "BlockSparseAttention", lambda n: qkv(n, **band_blocks(n)),
         lambda n: {"block_size": 64}, pairs=lambda n: n * 256, lengths=(4096,)),
    Case("chunked local, 256", "ChunkedLocalAttention", qkv,
         lambda n: {"chunk_size": 256, "is_causal": 1}, chunked,
         "local-attention LocalAttention", pairs=lambda n: n * 384),
    Case("Routing, window 256", "RoutingAttention",
         lambda n: qkv(n, means=(HEADS, n // 256, DIM)), lambda n: {"window": 256}, routing,
         "routing-transformer KmeansAttention", 0, 3, (4096,), False,
         pairs=lambda n: n * 256),
    Case("Sinkhorn, buckets of 64", "SinkhornAttention", qkv,
         lambda n: {"bucket_size": 64, "sorted_values": "keys"}, sinkhorn,
         "sinkhorn-transformer SinkhornAttention", 0, 3, (4096,), pairs=lambda n: n * 128),
    Case("top 32", "TopKAttention", qkv, lambda n: {"k": 32}, top_k,
         "Explicit Sparse Transformer's formula in torch", 0, 3, (4096,), False,
         pairs=lambda n: n * n // 2),  # all scores, few values
    Case("Synthesizer, factorized random", "SyntheticAttention",
         lambda n: {"V": (1, n, WIDTH), "q": None, "k": None, "hid": None, "W2": None,
                    "b2": None, "a": None, "b": None, "R": None, "R1": (1, n, 8),
                    "R2": (1, n, 8)},
         lambda n: {"components": ["factorized_random"]}, linear=False, lengths=(4096,)),
    Case("SHA-RNN", "SingleHeadAttention",
         lambda n: {"Q": (1, n, WIDTH), "memory": (1, n, WIDTH)},
         lambda n: {"q_num_heads": 1}, heads=False, linear=False, lengths=(4096,)),
    Case("Fastformer", "FastformerAttention",
         lambda n: qkv(n, Wq=(WIDTH, HEADS), Wk=(WIDTH, HEADS))),
    Case("attention pooling", "AttentionPooling",
         lambda n: {"X": (1, n, WIDTH), "W": (WIDTH, WIDTH), "c": (WIDTH,)}, heads=False),
    Case("LAMA, 16", "LAMAAttention",
         lambda n: {"X": (1, n, WIDTH), "P": (WIDTH, 16), "Q": (WIDTH, 16)}, heads=False),
    Case("FNet", "FourierMix", lambda n: {"X": (1, n, WIDTH)}, None, fourier, "torch.fft",
         heads=False, linear=False),  # n log n
    Case("gMLP", "SpatialGatingUnit",
         lambda n: {"X": (1, n, 2 * WIDTH), "gamma": (WIDTH,), "beta": (WIDTH,),
                    "Ws": (1, n, n), "bs": (1, n)}, heads=False, linear=False,
         lengths=(4096,)),
    Case("MLP-Mixer, 256 hidden", "TokenMixing",
         lambda n: {"X": (1, n, WIDTH), "W1": (256, n), "W2": (n, 256)}, heads=False),
]


def find(name):
    import vision
    return next(case for case in CASES + vision.CASES if case.name == name)


def take(name):
    """The case, with its heads as those of this process."""
    global HEADS, WIDTH
    case = find(name)
    HEADS, WIDTH = case.n_heads, case.n_heads * DIM
    return case


# ---- files ----

def arrays(case, n):
    import numpy as np
    draw, made = np.random.default_rng(1), {}
    for name, value in case.operands(n).items():
        if isinstance(value, tuple):
            weight = is_constant(case, name) and len(value) > 1
            sums = value[-1] if case.vision else max(value[-2:])  # of so many terms
            scale = sums ** -0.5 if weight else 1
            value = (draw.standard_normal(value) * scale).astype(np.float32)
        made[name] = value
    return made


def is_constant(case, name):
    return name != "x" if case.vision else name in CONSTANTS and case.domain


def one_node(case, n, values):
    """The node, its weights."""
    from onnx import helper, numpy_helper

    attributes = dict((case.attributes or (lambda _n: {}))(n))
    if case.heads:
        attributes = {"q_num_heads": HEADS, **attributes}
    if not case.domain:
        attributes["kv_num_heads"] = HEADS
    names = [v if isinstance(v, str) else k if v is not None else "" for k, v in values.items()]
    node = helper.make_node(case.op, names, ["Y"], domain=case.domain, **attributes)
    return [node], [numpy_helper.from_array(v, k) for k, v in values.items()
                    if hasattr(v, "dtype") and is_constant(case, k)]


def make(case, n, folder):
    import numpy as np
    from onnx import helper, save

    values = arrays(case, n)
    nodes, weights = case.model(n) if case.model else one_node(case, n, values)
    inputs = {k: v for k, v in values.items()
              if hasattr(v, "dtype") and not is_constant(case, k)}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype),
                                                   v.shape) for k, v in inputs.items()],
        [helper.make_tensor_value_info("Y", 1, None)], weights)
    opsets = [helper.make_opsetid("", 24)]
    opsets += [helper.make_opsetid(case.domain, 1)] if case.domain else []
    save(helper.make_model(graph, opset_imports=opsets, ir_version=10),
         str(folder / "model.onnx"))
    np.savez(folder / "inputs.npz", **inputs)


def upstream_of(case, n):
    """The module and its operands as tensors."""
    import torch
    torch.manual_seed(0)
    module, names = case.upstream(n)
    values = arrays(case, n)
    return module.eval(), tuple(torch.from_numpy(values[name]) for name in names)


def export(case, n, folder):
    import numpy as np
    import torch
    module, tensors = upstream_of(case, n)
    names = [f"x{i}" for i in range(len(tensors))]
    with torch.no_grad():
        torch.onnx.export(module, tensors, str(folder / "upstream.onnx"), dynamo=True,
                          opset_version=18, input_names=names, verbose=False)
    np.savez(folder / "upstream.npz", **{k: t.numpy() for k, t in zip(names, tensors)})


def reason(error):
    """The first line of the cause behind the causes: an exporter wraps what it met in pages."""
    while error.__cause__ is not None:
        error = error.__cause__
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first}"


if __name__ == "__main__":
    what, name, length, target = sys.argv[1:]
    try:
        {"make": make, "export": export}[what](take(name), int(length), Path(target))
    except Exception as error:  # whatever a package of others raises
        sys.exit(reason(error))
