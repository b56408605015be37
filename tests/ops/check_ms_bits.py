"""com.microsoft operators on weights of few bits, and of the QOperator form, against ONNX
Runtime 1.32.0: random shapes, blocks, bits, zero points; and what must be refused.
Usage: check_ms_bits.py ATTNRUN [SEED]"""
import itertools

import ml_dtypes
import numpy as np

from exact_bytes import exact_weights
from ms import any_bytes, between, compare, normal, pick, random


def nbits_case(number, rows=None):
    bits, block = pick(2, 4, 8), 16 << between(0, 4)
    k, n = pick(between(1, 70), between(1, 20) * 16, between(300, 900)), between(1, 140)
    if number % 2:
        k = -(-k // block) * block
    blocks = -(-k // block)
    rows = rows or pick(1, 1, 2, 3, 5, 8, 9, 20, 300)
    flat = number % 3 == 0
    # ONNX Runtime has zero points in floats for 4 bits (and 2) only.
    zeros = (None, any_bytes(n, -(-blocks * bits // 8)),
             normal(n, blocks) + 2 ** (bits - 1))[number % 3 if bits < 8 else number % 2]
    scales = 0.05 * normal(n, blocks)
    if flat:
        scales = scales.reshape(-1)
    if flat and zeros is not None:
        zeros = zeros.reshape(-1)
    group = None
    if number % 5 == 4 and k % block == 0:
        group = random.integers(0, blocks, k).astype("i4") if bits == 4 else None
        # With g_idx ONNX Runtime leaves packed zero points out of account.
        zeros = zeros if group is None or zeros is None or zeros.dtype == "f4" else None
    inputs = [("a", normal(*pick((rows,), (1, rows), (2, 1, rows))[:], k)),
              ("b", any_bytes(n, blocks, block * bits // 8)), ("s", scales), ("z", zeros),
              ("g", group), ("bias", normal(n) if number % 4 == 1 else None)]
    attributes = {"K": k, "N": n, "bits": bits, "block_size": block}
    constants = ("b", "s", "z", "g") if number % 6 else ()
    return "MatMulNBits", inputs, ["y"], attributes, constants


def nbits_cases():
    for number in range(90):
        op, inputs, outputs, attributes, constants = nbits_case(number)
        # Levels 0 to 3 are computed in f32, as level 0 in ONNX Runtime; check_rounded.py has 4.
        yield (op, inputs, outputs, {**attributes, "accuracy_level": number // 2 % 4}, constants,
               attributes)
    # The weights of several columns that fill no panel, by f16 operands.
    for number in range(6):
        op, inputs, outputs, attributes, _ = nbits_case(number)
        halves = [(name, value.astype("f2") if value is not None and value.dtype == "f4" else value)
                  for name, value in inputs]
        yield op, halves, outputs, attributes, ("b", "s", "z", "g"), attributes


def gather_cases():
    for number in range(40):
        kind = ("u1", ml_dtypes.uint4, ml_dtypes.int4)[number % 3]
        bits, block = (pick(4, 8) if kind == "u1" else 4), 16 << between(0, 2)
        rank = between(2, 3)
        shape = [between(2, 6) for _ in range(rank)]
        gather, quantize = random.permutation(rank)[:2]
        if kind == "u1":
            gather, quantize = 0, rank - 1
        shape[quantize] = between(1, 4) * block if number % 2 else between(1, 50) * 2
        blocks = list(shape)
        blocks[quantize] = -(-shape[quantize] // block)
        zeros = list(blocks)
        data = list(shape)
        if kind == "u1":
            data[-1] = shape[-1] * bits // 8
            zeros[-1] = -(-blocks[-1] * bits // 8)

        def some(dims):
            if kind == "u1":
                return any_bytes(*dims)
            low = -8 if kind is ml_dtypes.int4 else 0
            return random.integers(low, low + 16, dims).astype("i4").astype(kind)

        indices = random.integers(-shape[gather], shape[gather],
                                  [between(1, 3) for _ in range(between(0, 2))])
        attributes = {"gather_axis": int(gather), "quantize_axis": int(quantize),
                      "block_size": block}
        if kind == "u1":
            attributes["bits"] = bits
        yield ("GatherBlockQuantized", [
            ("data", some(data)), ("i", np.asarray(indices, pick("i4", "i8"))),
            ("scales", normal(*blocks)), ("z", some(zeros) if number % 4 else None)], ["y"],
            attributes, ("data", "z"))


def quantizer(kind):
    """A scale and a zero point."""
    return (np.asarray(random.uniform(0.01, 0.1), "f4"),
            np.asarray(random.integers(0, 256), "u1").astype(kind))


def bytes_of(kind, *shape):
    return any_bytes(*shape, kind=kind)


def elementwise_cases():
    for number in range(60):
        kind = pick("u1", "i1")
        scales = [quantizer(kind) for _ in range(3)]
        shape = [between(1, 5) for _ in range(between(1, 4))]
        other = [pick(n, 1) for n in shape][between(0, len(shape) - 1):]
        shape = [pick(n, 1) if number % 7 == 0 else n for n in shape]
        pairs = [("a", bytes_of(kind, *shape)), ("as", scales[0][0]), ("az", scales[0][1]),
                 ("b", bytes_of(kind, *other)), ("bs", scales[1][0]), ("bz", scales[1][1]),
                 ("cs", scales[2][0]), ("cz", scales[2][1])]
        known = ("as", "az", "bs", "bz", "cs", "cz")
        yield pick("QLinearAdd", "QLinearMul"), pairs, ["y"], {}, known
        condition = ("c", random.integers(0, 2, other).astype(bool))
        yield "QLinearWhere", [condition] + pairs, ["y"], {}, known
        unary = pairs[:3] + pairs[6:]
        if number % 4 == 0:
            unary[2], unary[4] = ("az", None), ("cz", None)
        yield "QLinearSigmoid", unary, ["y"], {}, known
        yield "QLinearLeakyRelu", unary, ["y"], {"alpha": pick(0.01, 0.3)}, known
        fine = [("cs", np.asarray(1 / 256, "f4")), ("cz", np.asarray(pick(0, 3), kind))]
        yield ("QLinearSoftmax", pairs[:3] + fine, ["y"],
               {"axis": between(-len(shape), len(shape) - 1), "opset": pick(11, 13)}, known)
        axis = between(0, len(shape) - 1)
        parts = []
        for part in range(between(1, 3)):
            shape[axis] = between(1, 4)
            parts += [(f"x{part}", bytes_of(kind, *shape)), (f"s{part}", quantizer(kind)[0]),
                      (f"z{part}", quantizer(kind)[1])]
        yield ("QLinearConcat", pairs[6:] + parts, ["y"],
               {"axis": axis - len(shape) * (number % 2)},
               known + tuple(name for name, _ in parts if name[0] in "sz"))


def gemm_cases():
    for number in range(40):
        kind = pick("u1", "i1")
        other = pick("u1", "i1") if kind == "u1" else "i1"
        m, n, k = between(1, 60), between(1, 60), between(1, 80)
        turned = between(0, 1), between(0, 1)
        some = (n,) if number % 2 else ()
        c = random.integers(-999, 999, pick((n,), (m, n), (1, n), (m, 1))).astype("i4")
        inputs = [("a", bytes_of(kind, *((k, m) if turned[0] else (m, k)))),
                  ("as", quantizer(kind)[0]), ("az", quantizer(kind)[1]),
                  ("b", exact_weights(bytes_of(other, *((n, k) if turned[1] else (k, n))))),
                  ("bs", np.asarray(random.uniform(0.01, 0.1, some), "f4")),
                  ("bz", bytes_of(other, *some)), ("c", c if number % 3 else None),
                  ("ys", np.asarray(random.uniform(0.5, 2), "f4") if number % 4 else None),
                  # Without it the result is y / y_scale in f32.
                  ("yz", quantizer(kind)[1] if number % 4 and number % 5 else None)]
        yield ("QGemm", inputs, ["y"],
               {"transA": turned[0], "transB": turned[1], "alpha": pick(1.0, 0.5)},
               ("as", "az", "b", "bs", "bz", "c", "ys", "yz"))


def bnb4_cases():
    for number in range(30):
        k, n, block = pick(between(1, 40), between(1, 20) * 32), between(1, 80), 16 << between(0, 3)
        rows = pick(1, 2, 5, 8, 30)
        yield ("MatMulBnb4", [("a", normal(rows, k)), ("b", any_bytes(-(-n * k // 2))),
                              ("s", normal(-(-n * k // block)))], ["y"],
               {"K": k, "N": n, "block_size": block, "quant_type": number % 2},
               ("b", "s") if number % 3 else ())


def image_cases():
    for number in range(24):
        kind = pick("u1", "i1")
        pair, other = quantizer(kind), quantizer(kind)
        channels, size = between(1, 5), [between(3, 9) for _ in range(2)]
        last = number % 2
        shape = [2, *size, channels] if last else [2, channels, *size]
        ends = [("xs", pair[0]), ("xz", pair[1]), ("ys", other[0]), ("yz", other[1])]
        known = ("xs", "xz", "ys", "yz", "w", "ws", "wz")
        yield ("QLinearGlobalAveragePool", [("x", bytes_of(kind, *shape)), *ends], ["y"],
               {"channels_last": last}, known)
        kernel, outer = [between(1, 3) for _ in range(2)], between(1, 4)
        yield ("QLinearAveragePool", [("x", bytes_of(kind, *shape)), *ends], ["y"],
               {"kernel_shape": kernel, "strides": [between(1, 3), between(1, 3)],
                "pads": [between(0, n - 1) for n in kernel * 2], "ceil_mode": number // 2 % 2,
                "count_include_pad": number // 4 % 2, "channels_last": last}, known)
        yield ("NhwcMaxPool", [("x", bytes_of(kind, 2, *size, channels))], ["y"],
               {"kernel_shape": kernel, "strides": [between(1, 3), between(1, 3)],
                "dilations": [between(1, 2), 1], "pads": [between(0, n - 1) for n in kernel * 2],
                "ceil_mode": number // 2 % 2})
        group = pick(1, 1, channels)
        outer *= group
        yield ("QLinearConv", [
            ("x", bytes_of(kind, *shape)), *ends[:2],
            ("w", exact_weights(bytes_of("i1", outer, channels // group, *kernel))),
            ("ws", np.asarray(random.uniform(0.005, 0.01, (outer,) * (number % 3 == 0)), "f4")),
            ("wz", np.zeros((outer,) * (number % 3 == 0), "i1")),
            ("ys", np.asarray(0.5, "f4")), ends[3],
            ("b", random.integers(-99, 99, outer).astype("i4") if number % 3 else None)], ["y"],
            {"kernel_shape": kernel, "strides": [between(1, 2), 1], "pads": [0, 1, 1, 0],
             "group": group, "channels_last": last}, known)


GOOD = {"K": 32, "N": 2, "bits": 4, "block_size": 16}
WEIGHTS = [("a", normal(1, 32)), ("b", any_bytes(2, 2, 8)), ("s", normal(2, 2))]
HOSTILE = [  # operator, inputs, attributes, constants, exit code, a word of the message
    ("MatMulNBits", WEIGHTS, {**GOOD, "bits": 3}, (), 5, "bits"),
    ("MatMulNBits", WEIGHTS, {**GOOD, "block_size": 24}, (), 5, "block_size"),
    ("MatMulNBits", WEIGHTS, {**GOOD, "K": 2**62}, (), 5, "K"),
    ("MatMulNBits", WEIGHTS, {**GOOD, "N": 2**40}, (), 5, "element"),
    ("MatMulNBits", WEIGHTS, {**GOOD, "N": 3}, ("b",), 5, "element"),
    ("MatMulNBits", WEIGHTS, {**GOOD, "accuracy_level": 5}, (), 5, "accuracy_level"),
    ("MatMulNBits", WEIGHTS + [("z", any_bytes(1))], GOOD, (), 5, "element"),
    ("MatMulNBits", WEIGHTS + [("z", None), ("g", np.full(32, 2, "i4"))], GOOD, (), 7, "g_idx"),
    ("MatMulNBits", WEIGHTS + [("z", None), ("g", np.full(32, -1, "i4"))], GOOD,
     ("b", "s", "g"), 7, "g_idx"),
    ("GatherBlockQuantized", [("d", any_bytes(3, 16)), ("i", np.array([3])), ("s", normal(3, 2))],
     {"block_size": 16}, (), 7, "index"),
    ("GatherBlockQuantized", [("d", any_bytes(3, 16)), ("i", np.array([2])), ("s", normal(3, 2))],
     {"block_size": 16, "bits": 3}, (), 5, "bits"),
    ("GatherBlockQuantized", [("d", any_bytes(3, 16)), ("i", np.array([2])), ("s", normal(3, 3))],
     {"block_size": 16}, (), 5, "blocks"),
    ("GatherBlockQuantized", [("d", any_bytes(3, 16)), ("i", np.array([2])), ("s", normal(3, 2))],
     {"block_size": 16, "gather_axis": 1}, (), 5, "both"),
    ("QLinearAdd", [("a", any_bytes(2)), ("as", normal(2)), ("az", any_bytes()),
                    ("b", any_bytes(2)), ("bs", normal()), ("bz", any_bytes()), ("cs", normal()),
                    ("cz", any_bytes())], {}, (), 5, "one number"),
    ("QLinearConcat", [("s", normal()), ("z", any_bytes()), ("x", any_bytes(2)), ("xs", normal())],
     {"axis": 0}, (), 5, "each part"),
    ("QLinearConcat", [("s", normal()), ("z", any_bytes()), ("x", normal(2)), ("xs", normal()),
                       ("xz", any_bytes())], {"axis": 0}, (), 5, "Y_zero_point"),
    ("MatMulBnb4", [("a", normal(1, 32)), ("b", any_bytes(32)), ("s", normal(4))],
     {"K": 32, "N": 2, "block_size": 16, "quant_type": 2}, (), 5, "quant_type"),
    ("MatMulBnb4", [("a", normal(1, 32)), ("b", any_bytes(31)), ("s", normal(4))],
     {"K": 32, "N": 2, "block_size": 16, "quant_type": 1}, (), 5, "element"),
    ("MatMulBnb4", [("a", normal(1, 32)), ("b", any_bytes(32)), ("s", normal(4))],
     {"K": 2**62, "N": 2**62, "block_size": 16, "quant_type": 1}, (), 5, "K"),
    ("QGemm", [("a", any_bytes(2, 3)), ("as", normal()), ("az", any_bytes()),
               ("b", any_bytes(3, 4)), ("bs", normal(3)), ("bz", any_bytes())], {}, (), 5,
     "column"),
    ("NhwcMaxPool", [("x", any_bytes(1, 3, 3, 2))], {"kernel_shape": [2, 2, 2]}, (), 5,
     "kernel_shape"),
    ("NhwcMaxPool", [("x", any_bytes(1, 3, 3, 2))], {"kernel_shape": [5, 2]}, (), 5, "kernel"),
    ("NhwcMaxPool", [("x", any_bytes(3, 3))], {"kernel_shape": [2, 2]}, (), 5, "rank"),
    ("QLinearConv", [("x", any_bytes(1, 3, 3, 2)), ("xs", normal()), ("xz", any_bytes()),
                     ("w", any_bytes(2, 3, 1, 1)), ("ws", normal()), ("wz", any_bytes()),
                     ("ys", normal()), ("yz", any_bytes())], {"channels_last": 1}, (), 5,
     "channels of the weights"),
]


compare(itertools.chain(nbits_cases(), gather_cases(), elementwise_cases(), gemm_cases(),
                        bnb4_cases(), image_cases()), HOSTILE)
