"""A sample's bits do not depend on the samples beside it: each operator of HOLDS gives the same
bits for a sample alone and among others, at sizes that are split in several ways. What holds of
other operators check_batch_walk.py says, at the sizes of their cases.
Usage: PYTHONPATH=BUILD/python check_batch_rows.py [SEED]"""
import sys

import attnrun
import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper

B = 5
SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 20261123


def x(*shape):
    """Of the batch: its first axis is B."""
    return "batch", shape


def w(*shape):
    return "weight", shape


def mask(*shape):
    """Of the batch, bool."""
    return "mask", shape


def case(op, inputs, attributes=None, outputs=1, domain=""):
    return op, domain, inputs, attributes or {}, outputs


def heads(q, k, heads_q, heads_k, dim=64):
    return [x(heads_q, q, dim), x(heads_k, k, dim), x(heads_k, k, dim)]


def tokens(n, dim, *more):
    return [x(n, dim), x(n, dim), x(n, dim), *more]


OF_BATCH = ("batch", "mask", "lengths")  # "lengths", "total": a number, for each sample or all
KINDS = {"mask": T.BOOL, "lengths": T.INT32, "total": T.INT32}
ATTENTION, OWN, MS = "Attention", "attnrun", "com.microsoft"
TWO = {"q_num_heads": 2, "kv_num_heads": 2}
HOLDS = [
    *(case("MatMul", [x(s, k), w(k, n)])
      for s, k, n in ((1, 512, 512), (1, 3000, 40), (5, 64, 2000), (70, 300, 300), (200, 2000, 9))),
    case("MatMul", [x(3, 40, 64), x(3, 64, 50)]),
    case("Gemm", [x(700), w(700, 130), w(130)]),
    case("LayerNormalization", [x(30, 384), w(384), w(384)]),
    case("RMSNormalization", [x(30, 384), w(384)]),
    case("Softmax", [x(40, 1000)]),
    case("Gelu", [x(40, 100)]),
    case("ReduceMean", [x(40, 100, 6)], {"keepdims": 1, "axes": [1]}),
    case("Conv", [x(16, 30, 30), w(32, 16, 3, 3), w(32)], {"pads": [1] * 4}),
    case("Conv", [x(32, 20, 20), w(32, 1, 3, 3)], {"group": 32}),
    case("Conv", [x(3, 40, 40), w(16, 3, 7, 7)], {"strides": [2, 2]}),
    case("Conv", [x(64, 14, 14), w(96, 64, 1, 1)]),
    case("MaxPool", [x(16, 30, 30)], {"kernel_shape": [3, 3]}),
    case("GlobalAveragePool", [x(16, 30, 30)]),
    *(case(ATTENTION, heads(*sizes)) for sizes in (
        (1, 700, 4, 1), (1, 5000, 2, 2), (7, 3000, 4, 2), (100, 100, 4, 4), (128, 1024, 2, 1),
        (256, 1024, 4, 1), (300, 300, 3, 3), (1030, 700, 1, 1))),
    case(ATTENTION, heads(200, 700, 4, 4), {"is_causal": 1}),
    *(case(ATTENTION, heads(*sizes, 16), {"is_causal": 1}) for sizes in (
        (64, 64, 4, 1), (64, 50, 8, 2), (33, 40, 2, 1), (33, 40, 8, 1), (60, 300, 4, 2))),
    *(case("GroupQueryAttention", [x(n, 32), x(n, 16), x(n, 16), None, None, ("lengths", n - 1),
                                   ("total", n)],
           {"num_heads": 2, "kv_num_heads": 1, "local_window_size": 23}, domain=MS)
      for n in (68, 132, 200)),
    case(ATTENTION, [*heads(200, 700, 4, 4), mask(1, 200, 700)]),
    case(ATTENTION, [*heads(1, 700, 4, 1), mask(1, 1, 700)]),
    case(ATTENTION, [*heads(200, 700, 4, 2), x(4, 200, 700)]),
    case("MultiHeadAttention", tokens(90, 64), {"num_heads": 4}, domain=MS),
    case("MultiHeadAttention", tokens(600, 64), {"num_heads": 4, "unidirectional": 1}, domain=MS),
    case("SkipLayerNormalization", [x(9, 64), x(9, 64), w(64), w(64)], domain=MS),
    case("LocalAttention", tokens(700, 64), {**TWO, "left_window": [100]}, domain=OWN),
    case("LongformerAttention", tokens(300, 64), {**TWO, "window": [80]}, domain=OWN),
    case("ChunkedLocalAttention", tokens(300, 64), {**TWO, "chunk_size": 60}, domain=OWN),
    case("LinearAttention", tokens(700, 64), TWO, domain=OWN),
    case("LinearAttention", tokens(700, 64), {**TWO, "is_causal": 1}, domain=OWN),
    case("LinearAttention", tokens(8200, 32), TWO, domain=OWN),
    case("LinearAttention", tokens(2100, 32), {**TWO, "is_causal": 1}, domain=OWN),
    case("PerformerAttention", tokens(300, 64, w(64, 32)), TWO, domain=OWN),
    case("LinformerAttention", tokens(300, 64, w(300, 20), w(300, 20)), TWO, domain=OWN),
    case("TopKAttention", tokens(200, 64), {**TWO, "k": 9}, domain=OWN),
    case("BigBirdAttention", tokens(2048, 64), {**TWO, "block_size": 16}, domain=OWN),
    case("ReformerAttention", [x(512, 64), x(512, 64), w(2, 32, 2, 8)],
         {**TWO, "num_buckets": [16], "num_hashes": 2}, domain=OWN),
    case("RoutingAttention", tokens(300, 64, w(2, 6, 32)), {**TWO, "window": 50}, domain=OWN),
    case("CompressedAttention", tokens(300, 64, w(64, 32, 3)), TWO, domain=OWN),
    *(case("SparseTransformerAttention", tokens(700, 64),
           {**TWO, "pattern": pattern, "stride": 30}, domain=OWN)
      for pattern in (["fixed"], ["strided_merged"], ["local", "strided"])),
    case("SyntheticAttention", [x(300, 64), None, None, x(300, 20), w(1, 20, 300), w(1, 300)],
         {"components": ["dense"], "q_num_heads": 1}, domain=OWN),
    case("SingleHeadAttention", [x(200, 64), x(500, 64), w(64), w(64), w(64)], domain=OWN),
    case("HaloAttention", [x(16, 32, 32), w(16, 16), w(16, 16), w(16, 16), w(23, 8), w(23, 8)],
         {"num_heads": 2, "block_size": 8, "halo_size": 2}, domain=OWN),
    case("SAGANAttention", [x(24, 15, 17), w(3, 24), None, w(3, 24), None, w(24, 24), None, w(1)],
         domain=OWN),
    case("CBAM", [x(20, 16, 19), w(4, 20), None, w(20, 4), None, w(1, 2, 5, 5), w(1)], domain=OWN),
    case("LAMAAttention", [x(90, 40), w(40, 5), w(40, 5)], domain=OWN),
    case("SpatialGatingUnit", [x(70, 40), w(20), w(20), w(1, 70, 70), w(1, 70)], domain=OWN),
    case("AttentionPooling", [x(210, 12), w(12, 12), w(12), w(12), w(1)], domain=OWN),
    case("AdditiveAttention", [x(3, 10), x(170, 10), w(10), None, x(170, 8)], domain=OWN),
    case("SinkhornAttention", tokens(120, 64), {**TWO, "bucket_size": 20}, domain=OWN),
    case("FourierMix", [x(40, 64)], domain=OWN),
    case("TokenMixing", [x(40, 64), w(30, 40), w(40, 30), w(30), w(40)], domain=OWN),
    case("Boom", [x(40, 64), w(64, 256)], domain=OWN),
    case("ExternalAttention", [x(70, 64), w(33, 64), w(64, 33)], domain=OWN),
    case("SqueezeExcite", [x(32, 12, 9), w(8, 32), w(8), w(32, 8), w(32)], domain=OWN),
    case("Involution", [x(32, 9, 15), w(8, 32), w(8), w(98, 8), w(98)],
         {"kernel_size": 7, "groups": 2}, domain=OWN),
]


def model_of(op, domain, inputs, attributes, outputs):
    names = [f"i{k}" if one else "" for k, one in enumerate(inputs)]
    out = [f"o{k}" for k in range(outputs)]
    typed = [helper.make_tensor_value_info(
        f"i{k}", KINDS.get(one[0], T.FLOAT),
        [*(["B"] if one[0] in OF_BATCH else []), *(one[1] if isinstance(one[1], tuple) else [])])
             for k, one in enumerate(inputs) if one]
    opset = 17 if op == "ReduceMean" else 24
    graph = helper.make_graph(
        [helper.make_node(op, names, out, domain=domain, **attributes)], "g", typed,
        [helper.make_tensor_value_info(n, T.FLOAT, None) for n in out])
    return helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", opset), helper.make_opsetid(OWN, 1), helper.make_opsetid(MS, 1)])


def drawn(draw, kind, shape):
    if kind in ("lengths", "total"):
        return np.full([B] if kind == "lengths" else [], shape, "i4")
    a = draw.normal(size=shape if kind == "weight" else (B, *shape))
    return a < 1 if kind == "mask" else a.astype("f")


def check(draw, one):
    op, _, inputs, *_ = one
    given = {f"i{k}": drawn(draw, *an) for k, an in enumerate(inputs) if an}
    of_batch = {f"i{k}" for k, an in enumerate(inputs) if an and an[0] in OF_BATCH}
    model = attnrun.Model(model_of(*one).SerializeToString())
    whole = model(**given)
    wrong = []
    for first, n in ((0, 1), (B - 1, 1), (1, 2), (2, 3)):
        part = model(**{name: a[first:first + n] if name in of_batch else a
                        for name, a in given.items()})
        for name, y in part.items():
            same = whole[name][first:first + n].tobytes() == y.tobytes()
            if not same:
                wrong.append(f"samples {first} to {first + n - 1}")
    if wrong:
        shapes = [an and an[1] for an in inputs]
        print(f"FAIL {op} {shapes}: {', '.join(wrong)} have other bits beside others "
              f"(seed {SEED})")
    return not wrong


def main():
    draw = np.random.default_rng(SEED)
    failures = sum(not check(draw, one) for one in HOLDS)
    print(f"{len(HOLDS)} operators, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
