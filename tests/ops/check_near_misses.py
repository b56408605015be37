"""Rewrite passes and what is nearly what they look for: a graph that a pass changes, and graphs
that differ from it in one attribute, axis, number or reader, which it leaves alone. Each gives what
it gives without fusion. Passes whose near misses come from exported modules, or from a test with
other nodes in between, are in ELSEWHERE, and a pass without any of these fails.
Usage: check_near_misses.py ATTNRUN [SEED]"""
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from exported import attnrun, differ, run
from onnx import TensorProto, helper, numpy_helper, parser

ELSEWHERE = {  # pass: the file that has its near misses
    "gather_rows": "forms_rows", "parts_attention": "forms_parts",
    "block_attention": "forms_windows", "sliding_chunks": "forms_sliding",
    "softmax_operands": "forms_softmax", "joined_heads": "forms_sorted", "attention": "forms_full",
    "involution": "forms_mechanisms", "linear_attention": "forms_mechanisms",
    "linear_ones": "forms_layers", "chunked_sums": "forms_features",
    "causal_linear_attention": "forms_features", "sagan": "forms_mechanisms",
    "softmax_features": "forms_features", "performer": "forms_features",
    "linear_heads": "forms_layers", "fourier_mix": "forms_mixing",
    "external_attention": "forms_gates", "map_gates": "forms_gates",
    "relative_scores": "forms_relative", "relative_bias": "forms_relative",
    "selective_kernel": "forms_gates", "quantized": "check_qdq", "blocked_layout": "check_blocked",
    "blocked_epilogue": "check_blocked", "blocked_separable": "check_blocked_separable",
    "ragged": "../models/check_ragged", "integer_to_float": "check_integer_to_float",
}
TOKENS, HEADS, MAP = (2, 8, 16), (2, 3, 8, 16), (1, 4, 9, 9)
NUMBERS = {"half": 0.5, "one": 1.0, "two": 2.0, "root": 2.0 ** 0.5, "small": 1e-5,
           "third": 1 / 3, "nought": 0.0, "sixteen": 16.0, "nan": float("nan"),
           "about_one": 1.00006, "about_two": 2.0001, "seven": 7.0, "nearly_one": 1.00009,
           "low": -1e4, "lowest": -3e38, "low_of_5": [[[[[-1e4]]]]],
           "nought_of_5": [[[[[0.0]]]]], "infinite": -float("inf"), "huge": 1e20,
           "columns": [list(range(12))], "queries_of_4": [[4], [5], [6], [7]]}
INTS = {"last": [-1], "middle": [1], "pixels": [-1, 2], "lines": [1, 2],
        "lines_of_4": [2, 3], "two_of_4": [2], "pads": [0, 0, 1, 1, 0, 0, 1, 1], "zero": [0],
        "far": [2 ** 63 - 1], "at7": [7], **{f"at{i}": [i] for i in range(0, 65, 4)},
        "joined_heads": [0, 0, 48], "one_sample": [1, 6, 16, 8],
        "two_samples": [2, 3, 16, 8], "joined": [6, 8, 16], "apart": [2, 8, 2, 8],
        "split": [2, 3, 8, 8], "swapped": [3, 2, 8, 8], "two_rows": [2],
        "queries": [2, -1, 2, 8], "by_heads": [2, 40, 2, 8], "heads_first": [2, 2, 40, 8],
        "tokens_first": [40, 2, 2, 8], "single": [1, 1],
        "rows": [-1, 16], "maps": [-1, 16, 1], "both_first": [0, 1], "upright": [-1, 1, 1],
        "up_to_8": [*range(8)], "up_to_16": [*range(16)], "down_from_7": [*range(7, -1, -1)],
        "taps_down": [[k + o for o in range(4)] for k in range(3)],
        "taps_along": [[k + o for o in range(6)] for k in range(3)], "taps": [3],
        "parts_first": [2, 40, 2, 2, 8], "parts_last": [2, 40, 2, 16],
        "beside": [0, 0, 1, 0, 0, 0, 0, 1, 0, 0], "but_two": [-2], "by_4_by_12": [1, 1, 4, 12],
        "of_one": [0, 2, 16, 1, 8]}
FLOATS = {"w": (16, 16), "b": (16,), "kernel": (4, 4, 3, 3), "even": (4, 4, 2, 4),
          "pointwise": (4, 4, 1, 1), "scale": (4,), "shift": (4,), "mean": (4,), "vector": (16,),
          "keys": (6, 4), "values": (4, 6), "bias": (9,), "cosine": (8, 16), "sine": (8, 16),
          "ones": (8, 40), "wide": (16, 32), "more": (32,), "wide_of_3": (1, 3, 16, 32)}
for of, size in {"map": (4, 6), "turned": (6, 4), "line": (1, 24)}.items():  # of 24 pixels
    INTS |= {of: [1, 4, *size], f"near_{of}": [1, 2, 2, 9, *size],
             f"kernels_{of}": [1, 2, 1, 9, *size]}
    FLOATS[f"kernel_{of}"] = (1, 18, *size)

NORM = """m = ReduceMean (x, AXIS)
d = Sub (x, m)
s = Mul (d, d)
v = ReduceMean (s, last)
e = Add (v, small)
r = Sqrt (e)
q = Div (d, r)
p = Mul (q, vector)
y = Add (p, b)"""
GELU = """e = Div (x, root)
f = Erf (e)
g = Add (f, one)
h = Mul (x, g)
y = Mul (h, FACTOR)"""
ROTARY = """c = Mul (x, cosine)
h = Slice (x, CUT, far, last)
l = Slice (x, zero, CUT, last)
n = Neg (h)
t = Concat <axis = -1> (n, l)
s = Mul (t, sine)
y = Add (c, s)"""
LOG_SUMS = """l = ReduceLogSumExp <keepdims = 1> (x, AXIS)
d = Sub (x, l)
e = Exp (d)
y = MatMul (e, w)"""
BRANCHES = """y = If <then_branch = a () => (float[2, 8, 16] t) { t = Neg (x) },
else_branch = c () => (float[2, 8, 16] u) { u = Exp (x) }> (CONDITION)"""
NORM_OF_SUM = """n = Neg (x)
e = Exp (n)
s = Add (x, e)
q = LayerNormalization (s, vector, b)
"""
CONV = "c = Conv <pads = [1, 1, 1, 1]> (x, kernel, scale)\n"
NORM_OF_CONV = CONV + "n = BatchNormalization (c, scale, shift, mean, positive)\n"
BATCHED = """q = Reshape (x, joined)
e = Exp (x)
f = Reshape (e, joined)
k = Transpose <perm = [0, 2, 1]> (f)
h = MatMul (q, k)
y = Reshape (h, SHAPE)"""

EXTERNAL = """e = attnrun.ExternalAttention (x, keys, values)
s = Add (e, x)
y = Relu (s)"""
SPLIT = """r = Reshape (x, apart)
q = Transpose <perm = [ORDER]> (r)
k = Transpose <perm = [0, 1, 3, 2]> (q)
s = MatMul (q, k)
p = Softmax <axis = -1> (s)
y = MatMul (p, q)"""
OWN_MASK = """r = Reshape (x, apart)
q = Transpose <perm = [0, 2, 1, 3]> (r)
m = Cast <to = TYPE> (MASK)
y = Attention (q, q, q, m)"""
LINEAR_NORM = """m = MatMul (x, w)
s = Add (m, b)
r = Reshape (s, rows)
n = BatchNormalization (r, vector, b, vector, positive_16)
y = Tanh (n)"""
EVERY = """s = Shape (x)
n = Shape <end = 1> (x)
l = Squeeze (n)
r = Range (first, l, second)
c = Reshape (r, upright)
i0 = Expand (c, s)
u0 = Unsqueeze (i0, last)
d = Unsqueeze (ROWS, last)
i1 = Expand (d, s)
u1 = Unsqueeze (i1, last)
i2 = Expand (up_to_16, s)
u2 = Unsqueeze (i2, last)
i = Concat <axis = 3> (u0, u1, u2)
e = Exp (x)
t = ScatterND (x, i, e)
y = Neg (t)"""
SHAPED = """h = Shape (e)
z = ConstantOfShape (h)
y = Add (z, e)"""

FEW = """q = Slice (x, zero, COUNT, middle)
r = Reshape (q, queries)
a = Transpose <perm = [0, 2, 1, 3]> (r)
m = MatMul (x, w)
k = Add (m, b)
h = Reshape (k, HEADS)
t = Transpose <perm = [KEYS]> (h)
"""
FEW_SCORES = FEW.replace("COUNT", "two_rows").replace("HEADS", "by_heads").replace(
    "KEYS", "0, 2, 3, 1") + "y = MatMul (a, t)"
FEW_VALUES = FEW.replace("COUNT", "two_rows").replace("HEADS", "by_heads").replace(
    "KEYS", "0, 2, 1, 3") + """s = MatMul (a, ones)
p = Softmax <axis = -1> (s)
y = MatMul (p, t)"""
# Keys and values of one projection, parts before heads.
JOINED = """q = Slice (x, zero, two_rows, middle)
r = Reshape (q, queries)
a = Transpose <perm = [0, 2, 1, 3]> (r)
m = MatMul (x, wide)
n = Add (m, more)
CUT
t = Mul (k, half)
s = MatMul (a, t)
p = Softmax <axis = -1> (s)
y = MatMul (p, v)"""
BY_GATHER = """h = Reshape (n, parts_first)
g = Transpose <perm = [2, 0, 3, 1, 4]> (h)
i = Gather <axis = 0> (g, first)
k = Transpose <perm = [0, 1, 3, 2]> (i)
v = Gather <axis = 0> (g, second)"""
BY_SPLIT = """c, d = Split <axis = 2, num_outputs = 2> (n)
e = Reshape (c, by_heads)
k = Transpose <perm = [0, 2, 3, 1]> (e)
f = Reshape (d, by_heads)
v = Transpose <perm = [0, 2, 1, 3]> (f)"""
BY_HEAD = """h = Reshape (n, parts_last)
g = Transpose <perm = [0, 2, 1, 3]> (h)
c, d = Split <axis = 3, num_outputs = 2> (g)
k = Transpose <perm = [0, 1, 3, 2]> (c)
v = Identity (d)"""

EINSUM = "e = Neg (x)\ny = Einsum <equation = \"EQUATION\"> (x, e)"
ADDED = """a = ReduceMean <keepdims = 0> (x)
c = Mul (a, nought)
d = Add (c, KEYS)
i = Cast <to = 7> (d)
j = Reshape (i, last)
m = Expand (third, j)
s = MatMul (x, w)
t = Add (s, m)
p = Softmax <axis = -1> (t)
y = MatMul (p, w)"""

# x gives keys, values, and queries; of 16 keys it also masks some.
MASKED = """t = Transpose <perm = [0, 1, 3, 2]> (x)
s = MatMul (x, t)
m = Where (KEEP, s, FILL)
p = Softmax <axis = -1> (m)
y = MatMul (p, x)"""

# Half of the queries are NaN; IS_NAN of their weights become zeros.
OF_NAN = """c = Slice (x, zero, middle, last)
l = Log (c)
q = Add (x, l)
t = Transpose <perm = [0, 1, 3, 2]> (x)
s = MatMul (q, t)
p = Softmax <axis = -1> (s)
n = IS_NAN (p)
a = Where (n, NOUGHT, p)
y = MatMul (a, x)"""

# Scores that are huge in no place, of queries and keys that are tiny.
OF_TINY = """r = Mul (x, tiny)
q = Mul (r, huge)
t = Transpose <perm = [0, 1, 3, 2]> (q)
s = MatMul (q, t)
p = Softmax <axis = -1> (s)
y = MatMul (p, x)"""

# Scores times a mask of zeros and ones.
CHOSEN = """t = Transpose <perm = [0, 2, 1]> (x)
s = MatMul (t, x)
f = Where (some, s, infinite)
c = Cast <to = 1> (row_of_some)
m = Mul (SCORES, c)
p = Softmax <axis = -1> (m)
y = MatMul (p, t)"""
# A mask that is too long for a program.
LONG = "\n".join(["k0 = Greater (x, two)", *(f"k{i + 1} = Xor (k{i}, k0)" for i in range(50)),
                  MASKED.replace("KEEP", "k50")])

PERFORMER = """u = MatMul (x, w)
z = Mul (x, x)
n = ReduceSum (z, last)
h = Mul (n, half)
d = Sub (u, h)
a = ReduceMax (u, last)
c = ReduceMax (OF_QUERY)
i = Sub (d, c)
j = Exp (i)
q = Add (j, small)
g = ReduceMax (u, lines_of_4)
l = Sub (d, g)
o = Exp (l)
k = Add (o, small)
t = Transpose <perm = [0, 1, 3, 2]> (k)
s = MatMul (t, x)
m = MatMul (q, s)
e = ReduceSum (k, two_of_4)
f = Mul (q, e)
r = ReduceSum (f, last)
y = Div (m, r)"""

# Blocks beside their neighbours. As floats say it, keys are hidden from a query; blocks of one
# query have as many in a mask as there are samples.
WINDOW = """p = Pad (x, beside)
a = Slice (p, zero, but_two, two_of_4)
c = Slice (p, middle, last, two_of_4)
d = Slice (p, two_of_4, far, two_of_4)
u = Concat <axis = 3> (a, c, d)
t = Transpose <perm = [0, 1, 2, 4, 3]> (u)
s = MatMul (x, t)
h = Shape <end = 1> (x)
HIDES
m = Where (o, lowest, s)
f = Softmax <axis = -1> (m)
y = MatMul (f, u)"""
OF_FLOATS = WINDOW.replace("HIDES", """g = Concat <axis = 0> (h, by_4_by_12)
e = Expand (columns, g)
l = Less (e, queries_of_4)
o = Or (both_ends, l)""")
# Sums of scores beside values of no dim.
OF_SUMS = WINDOW.replace("HIDES\n", "").replace("(o, ", "(both_ends, ").replace(
    "y = MatMul (f, u)", """v = Slice (x, zero, zero, last)
v0 = Pad (v, beside)
v1 = Slice (v0, zero, but_two, two_of_4)
v2 = Slice (v0, middle, last, two_of_4)
v3 = Slice (v0, two_of_4, far, two_of_4)
v4 = Concat <axis = 3> (v1, v2, v3)
z = MatMul (f, v4)
l = ReduceLogSumExp (m, last)
y = Concat <axis = -1> (l, z)""")
OF_SAMPLES = """z = Reshape (x, of_one)
""" + WINDOW.replace("(x, b", "(z, b").replace("(x, t", "(z, t").replace(
    "HIDES", """g = Concat <axis = 0> (h, taps)
e = Expand (no, g)
o = Or (ends_of_16, e)""")

PARTS = """n = Neg (x)
s = Einsum <equation = \"bhwqd,EQUATION->bhwqk\"> (x, n)
t = Einsum <equation = \"bhwqd,EQUATION->bhwqk\"> (x, x)
c = Concat <axis = -1> (s, t)
p = Softmax <axis = -1> (c)
f = Slice (p, zero, at4, at4)
l = Slice (p, at4, at8, at4)
v = MatMul (f, n)
m = MatMul (l, x)
y = Add (v, m)"""

# As many parts as there may be, in two halves.
MANY_PARTS = "\n".join([
    "k0 = Sigmoid (x)", *(f"k{i} = Sigmoid (k{i - 1})" for i in range(1, 16)),
    *(f"s{i} = Einsum <equation = \"bhwqd,bhwkd->bhwqk\"> (x, k{i})" for i in range(16)),
    f"c = Concat <axis = -1> ({', '.join(f's{i}' for i in range(16))})",
    "p = Softmax <axis = -1> (c)",
    *(f"f{i} = Slice (p, at{4 * i}, at{4 * i + 4}, at4)\nv{i} = MatMul (f{i}, k{i})"
      for i in range(16)),
    *(f"a{i} = Add (v{i}, {'v' if i % 8 == 6 else 'a'}{i + 1})"
      for i in (*range(6, -1, -1), *range(14, 7, -1))),
    "h = Add (FIRST)", "y = Add (h, a8)"])

HEADS_OF_ONE = """t = Transpose <perm = [0, 2, 1, 3]> (x)
q = Reshape (t, one_sample)
l = attnrun.LocalAttention <left_window = [2], right_window = [2]> (q, q, qMORE)
r = Reshape (l, two_samples)
y = Transpose <perm = [0, 2, 1, 3]> (r)"""

INVOLUTION = """p = Pad (x, pads)
r = Gather <axis = 2> (p, taps_down)
c = Gather <axis = 4> (r, taps_along)
t = Transpose <perm = [0, 1, 2, 4, 3, 5]> (c)
n = Reshape (t, near_OF)
e = ReduceMax <keepdims = 0> (x)
v = Mul (kernel_OF, e)
k = Reshape (v, kernels_OF)
m = Mul (k, n)
s = ReduceSum <keepdims = 0> (m, taps)
y = Reshape (s, OF)"""

BY_TOKEN = """u = MatMul (x, WIDE)
a = Relu (u)
f = Add (a, small)
g = Einsum <equation = \"nshd,nshm->nhdm\"> (f, x)
m = Einsum <equation = \"nlhd,nhdm->nlhm\"> (f, g)
s = ReduceSum <keepdims = 0> (f, middle)
e = Einsum <equation = \"nlhd,nhd->nlh\"> (f, s)
z = Unsqueeze (e, last)
y = Div (m, z)"""

OF_HEADS = """u = MatMul (x, w)
a = Relu (u)
f = Add (a, small)
j = Reshape (f, joined_heads)
v = Reshape (x, joined_heads)
y = attnrun.LinearAttention <q_num_heads = HEADS, kv_num_heads = HEADS,
feature_map_q = \"identity\", feature_map_k = \"identity\"> (j, j, v)"""

LINEAR = """d = Sub (x, seven)
e = Elu (d)
f = Add (e, ONE)
t = Transpose <perm = [0, 1, 3, 2]> (f)
g = MatMul (t, x)
m = MatMul (f, g)
s = ReduceSum (f, two_of_4)
p = Mul (f, s)
z = ReduceSum (p, last)
y = Div (m, z)"""

# pass: (shape of x, a graph that it changes or several, graphs that it leaves alone)
ROWS = {
    "constant_if": (TOKENS, BRANCHES.replace("CONDITION", "yes"), [
        "k = ReduceMax <keepdims = 0> (x)\ng = Greater (k, half)\n"
        + BRANCHES.replace("CONDITION", "g")]),
    "shape_source": (("n", 16), "e = Exp (x)\n" + SHAPED, [
        "n = NonZero (x)\ne = Cast <to = 1> (n)\n" + SHAPED]),
    "attention_heads": (TOKENS, (
        SPLIT.replace("ORDER", "0, 2, 1, 3"),
        *(OWN_MASK.replace("TYPE", dtype).replace("MASK", "up_to_8") for dtype in "19")), [
            SPLIT.replace("ORDER", "0, 1, 2, 3"), SPLIT.replace("ORDER", "1, 2, 0, 3"),
            *(OWN_MASK.replace("TYPE", dtype).replace("MASK", "up_to_8") for dtype in "37"),
            *(OWN_MASK.replace("TYPE", dtype).replace("MASK", "middle") for dtype in "19")]),
    "attention": ((2, 3, 16, 16), (
        MASKED.replace("KEEP", "some").replace("FILL", "low"), LONG.replace("FILL", "lowest"),
        OF_NAN.replace("IS_NAN", "IsNaN").replace("NOUGHT", "nought"), OF_TINY), [
        OF_NAN.replace("IS_NAN", "IsInf").replace("NOUGHT", "nought"),
        OF_NAN.replace("IS_NAN", "IsNaN").replace("NOUGHT", "nought_of_5"),
        MASKED.replace("m = Where (KEEP, s, FILL)", "d = Div (s, nought)\nm = Tanh (d)"),
        MASKED.replace("KEEP", "some").replace("FILL", "low_of_5"), LONG.replace("FILL", "low")]),
    "performer": ((2, 3, 3, 16), (
        PERFORMER.replace("OF_QUERY", "a, last"), BY_TOKEN.replace("WIDE", "wide"),
        OF_HEADS.replace("HEADS", "3")), [
        PERFORMER.replace("OF_QUERY", "a"), BY_TOKEN.replace("WIDE", "wide_of_3"),
        OF_HEADS.replace("HEADS", "6")]),
    "block_attention": (("n", 2, 4, 4, 8), (OF_FLOATS, OF_SUMS), [OF_SAMPLES]),
    "parts_attention": ((1, 2, 3, 4, 5), (
        PARTS.replace("EQUATION", "bhwkd"),
        MANY_PARTS.replace("h = Add (FIRST)\n", "").replace("(h,", "(a0,")), [
        PARTS.replace("EQUATION", "bhwke"), MANY_PARTS.replace("FIRST", "x, a0")]),
    "linear_heads": ((2, 16, 3, 8), HEADS_OF_ONE.replace("MORE", ""), [
        HEADS_OF_ONE.replace("MORE", ", row_of_some"),
        HEADS_OF_ONE.replace("MORE", "").replace("= [2], r", "= [0, 1, 2, 3, 4, 5], r"),
        "c = Slice (x, zero, zero, last)\nv = Transpose <perm = [0, 2, 1, 3]> (c)\n"
        + HEADS_OF_ONE.replace("qMORE", "v").replace("Reshape (t, one_sample)", "Identity (t)")
        .replace("Reshape (l, two_samples)", "Identity (l)")]),
    "involution": ((1, 4, 4, 6), INVOLUTION.replace("OF", "map"), [
        INVOLUTION.replace("OF", "turned"), INVOLUTION.replace("OF", "line")]),
    "linear_attention": (HEADS, (
        LINEAR.replace("ONE", "one"), LINEAR.replace("ONE", "nearly_one")), [
        LINEAR.replace("ONE", "one").replace("(p, last)", "(f, last)")]),
    "pixel_mean": (MAP, "m = ReduceMean <keepdims = 0> (x, pixels)\ny = Exp (m)", [
        "m = ReduceMean <keepdims = 1> (x, pixels)\ny = Exp (m)",
        "m = ReduceMean <keepdims = 0> (x, lines)\ny = Exp (m)",
        "m = ReduceMax <keepdims = 0> (x, pixels)\ny = Exp (m)"]),
    "residual_relu": (MAP, EXTERNAL, [
        EXTERNAL.replace("y =", "r =") + "\nt = Exp (e)\ny = Add (t, r)",
        EXTERNAL.replace("Relu", "Elu").replace("Add (e, x)", "Add (e, bias)")]),
    "identity": (("n", 8, 16), (
        "t = Transpose <perm = [0, 1, 2]> (x)\ny = Exp (t)",
        "t = Where (yes, x, half)\ny = Exp (t)",
        "t = ScatterND (x, no_places, no_rows)\ny = Exp (t)", EVERY.replace("ROWS", "up_to_8")), [
            "t = Transpose <perm = [1, 0, 2]> (x)\ny = Exp (t)", "t = Mul (x, two)\ny = Exp (t)",
            "t = Where (yes, half, x)\ny = Exp (t)", "t = Where (some, x, half)\ny = Exp (t)",
            "t = ScatterND (x, place, row)\ny = Exp (t)", EVERY.replace("ROWS", "down_from_7"),
            EVERY.replace("ROWS", "up_to_8").replace("(x, i, e)",
                                                     "<reduction = \"add\"> (x, i, e)"),
            EVERY.replace("ROWS", "up_to_8").replace("(first, l,", "(minus, fewer,").replace(
                "\nr =", "\nminus = Sub (first, second)\nfewer = Sub (l, second)\nr =")]),
    "common_subexpression": (TOKENS, "e = Elu (x)\nf = Elu (x)\ny = Concat <axis = 0> (e, f)", [
        "e = Elu (x)\nf = Elu <alpha = 0.5> (x)\ny = Concat <axis = 0> (e, f)"]),
    "auto_pads": ((1, 4, "h", 9), (
        "y = Conv <auto_pad = \"SAME_UPPER\"> (x, kernel, scale)",
        "y = Conv <auto_pad = \"SAME_LOWER\", dilations = [2, 1]> (x, even, scale)",
        "y = Conv <auto_pad = \"SAME_UPPER\", strides = [1, 4]> (x, even, scale)",
        "y = Conv <auto_pad = \"SAME_LOWER\", strides = [1, 2]> (x, even, scale)",
        "y = Conv <auto_pad = \"SAME_UPPER\", strides = [3, 3]> (x, pointwise, scale)",
        "y = Conv <auto_pad = \"VALID\", strides = [2, 2]> (x, kernel, scale)"), [
        "y = Conv <auto_pad = \"SAME_UPPER\", strides = [2, 1]> (x, kernel, scale)",
        "y = Conv <auto_pad = \"NOTSET\", pads = [1, 1, 1, 1]> (x, kernel, scale)"]),
    "pad_conv": (MAP, "p = Pad (x, pads)\ny = Conv (p, kernel, scale)", [
        "p = Pad (x, pads, half)\ny = Conv (p, kernel, scale)",
        "p = Pad (x, pads, nan)\ny = Conv (p, kernel, scale)",
        "p = Pad <mode = \"edge\"> (x, pads)\ny = Conv (p, kernel, scale)"]),
    "conv_batch_norm": (MAP, NORM_OF_CONV + "y = Tanh (n)", [
        NORM_OF_CONV + "e = Tanh (n)\ny = Add (e, c)"]),
    "linear_batch_norm": (TOKENS, (
        LINEAR_NORM, LINEAR_NORM.replace("s = Add (m, b)", "s = Identity (m)"),
        LINEAR_NORM.replace("Reshape (s, rows)", "Flatten <axis = 2> (s)"),
        LINEAR_NORM.replace("MatMul (x, w)\ns = Add (m, b)\nr = Reshape (s, rows)",
                            "Reshape (x, rows)\nr = Gemm <transB = 1> (m, w, b)"),
        LINEAR_NORM.replace("MatMul (x, w)\ns = Add (m, b)\nr = Reshape (s, rows)",
                            "Reshape (x, rows)\nr = Gemm (m, w)"),
        LINEAR_NORM.replace("MatMul (x, w)\ns = Add (m, b)\nr = Reshape (s, rows)",
                            "Reshape (x, rows)\nr = Gemm <alpha = 0.5> (m, w)"),
        LINEAR_NORM.replace("Add (m, b)", "Add (m, x)"),
        LINEAR_NORM.replace("y =", "z =") + "\nu = ReduceMean (s)\ny = Add (z, u)"), [
        LINEAR_NORM.replace("vector, b, vector", "vector, b, u").replace(
            "m =", "h = ReduceMax <keepdims = 0> (x, both_first)\nu = Identity (h)\nm ="),
        LINEAR_NORM.replace("r = Reshape (s, rows)", "r = Reshape (s, maps)")]),
    "merge_convs": (MAP, CONV + "d = Conv (x, pointwise)\ny = Add (c, d)", [
        CONV + "e = Exp (x)\nd = Conv (e, pointwise)\ny = Add (c, d)",
        CONV + "d = Conv (x, pointwise)\ny = Mul (c, d)",
        CONV + "d = Conv (x, pointwise)\ns = Add (c, d)\nt = Tanh (d)\ny = Add (s, t)"]),
    "layer_norm": (TOKENS, NORM.replace("AXIS", "last"), [
        NORM.replace("AXIS", "middle"),
        NORM.replace("AXIS", "last").replace("Mul (d, d)", "Pow (d, about_two)"),
        NORM.replace("AXIS", "last").replace("Mul (d, d)", "Mul (d, x)")]),
    "head_groups": (HEADS, BATCHED.replace("SHAPE", "split"), [
        BATCHED.replace("SHAPE", "swapped")]),
    "rotary": (HEADS, ROTARY.replace("CUT", "at8"), [
        ROTARY.replace("CUT", "at7"), ROTARY.replace("CUT", "at8").replace("(n, l)", "(l, n)")]),
    "exp_softmax": (TOKENS, LOG_SUMS.replace("AXIS", "last"), [
        LOG_SUMS.replace("AXIS", "middle"), LOG_SUMS.replace("AXIS", "last").replace(
            "y = MatMul (e, w)", "t = Transpose <perm = [0, 2, 1]> (x)\ny = MatMul (t, e)"),
        LOG_SUMS.replace("AXIS", "last").replace("Sub (x, l)", "Sub (l, x)")]),
    "einsum_sums": (TOKENS, EINSUM.replace("EQUATION", "bnd,bmd->bn"), [
        EINSUM.replace("EQUATION", "bnd,bmd->bnm"), EINSUM.replace("EQUATION", "bnd,bnd->bn")]),
    "einsum_pairs": (TOKENS, (
        EINSUM.replace("EQUATION", "bnd,bmd->nmb"),
        "e = Neg (x)\ny = Einsum <equation = \"bnd,bmd,bn->bnm\"> (x, e, g)".replace(
            "y =", "g = ReduceMax <keepdims = 0> (x, last)\ny =")), [
        EINSUM.replace("EQUATION", "bnd,bmd->bnm"), EINSUM.replace("EQUATION", "bnd,bnd->nb"),
        "e = Neg (x)\ny = Einsum <equation = \"bnd,bmd,bne->nm\"> (x, e, x)"]),
    "einsum_outer": ((2, 16), "e = Neg (x)\ny = Einsum <equation = \"bi,bj->bij\"> (x, e)", [
        "e = Neg (x)\ny = Einsum <equation = \"bi,bj->jbi\"> (x, e)",
        "e = Neg (x)\ny = Einsum <equation = \"bi,bj->ij\"> (x, e)"]),
    "gelu": (TOKENS, GELU.replace("FACTOR", "half"), [
        GELU.replace("FACTOR", "half").replace("one", "about_one"),
        GELU.replace("FACTOR", "third"), GELU.replace("FACTOR", "half").replace("root", "two")]),
    "matmul_epilogue": (TOKENS, "p = MatMul (x, w)\ns = Add (p, b)\ny = Relu (s)", [
        "m = Reshape (x, rows)\np = Gemm <alpha = 1.00006> (m, w, b)\ny = Relu (p)",
        "p = MatMul (x, w)\ne = Exp (p)\ny = Add (p, e)"]),
    "softmax_operands": (TOKENS, (
        ADDED.replace("KEYS", "sixteen"), ADDED.replace("KEYS", "one"),
        CHOSEN.replace("SCORES", "s")), [
        CHOSEN.replace("SCORES", "f"),
        ADDED.replace("KEYS", "one").replace("(s, m)", "(s, b)"),
        ADDED.replace("KEYS", "sixteen").replace("(t)", "(s)").replace("MatMul (p, w)",
                                                                       "Add (p, t)")]),
    "few_rows": ((2, 40, 16), (
        FEW_SCORES, FEW_SCORES.replace("MatMul (a, t)", "MatMul (a, u)").replace(
            "y =", "u = Mul (t, half)\ny ="),
        FEW_SCORES.replace("k = Add (m, b)\n", "").replace("(k, ", "(m, "), FEW_VALUES,
        FEW_SCORES.replace("(k, by_heads)", "(k, tokens_first)").replace("0, 2, 3, 1",
                                                                         "1, 2, 3, 0"),
        FEW_VALUES.replace("(x, w)", "(z, w)").replace("by_heads", "tokens_first").replace(
            "\nm =", "\nz = Transpose <perm = [1, 0, 2]> (x)\nm =").replace("[0, 2, 1, 3]> (h)",
                                                                      "[1, 2, 0, 3]> (h)"),
        JOINED.replace("CUT", BY_GATHER), JOINED.replace("CUT", BY_SPLIT),
        JOINED.replace("CUT", BY_HEAD)), [
        JOINED.replace("CUT", BY_GATHER).replace("two_rows", "at8"),
        JOINED.replace("CUT", BY_SPLIT).replace("y =", "z =")
        + "\nu = ReduceMean (d)\ny = Add (z, u)",
        JOINED.replace("CUT", BY_GATHER).replace("p, v", "p, o").replace(
            "\ns =", "\no = Sigmoid (v)\ns ="),
        FEW_SCORES.replace("two_rows", "at8"),
        FEW_SCORES.replace("y =", "z =") + "\nu = ReduceMean (k)\ny = Add (z, u)",
        FEW_SCORES.replace("(k, by_heads)", "(k, heads_first)").replace("0, 2, 3, 1", "0, 1, 3, 2"),
        FEW_VALUES.replace("(m, b)", "(m, x)"),
        FEW_VALUES.replace("(x, w)", "(x, v)").replace(
            "\nm =", "\no = ReduceMean (x)\ng = Reshape (o, single)\nv = Add (w, g)\nm =")]),
    "conv_epilogue": (MAP, CONV + "s = Add (c, x)\ny = Relu (s)", [
        CONV + "s = Add (c, x)\nr = Relu (s)\ne = Exp (c)\ny = Add (r, e)"]),
    "skip_layer_norm": (TOKENS, NORM_OF_SUM + "y = Exp (q)", [NORM_OF_SUM + "y = Add (q, s)"]),
    "elementwise_chain": (TOKENS, "e = Exp (x)\nn = Neg (e)\ny = Tanh (n)", [
        "e = Exp (x)\nt = Transpose <perm = [0, 2, 1]> (e)\ny = Tanh (t)"]),
}
WITHOUT = {"parts_attention": ("--disable-pass", "einsum_sums")}  # would change its near miss


def beyond_ends(blocks, chunk):
    """Keys of (blocks, 1, a window of three blocks) that there are not."""
    at = (np.arange(blocks)[:, None] - 1) * chunk + np.arange(3 * chunk)
    return ((at < 0) | (at >= blocks * chunk))[:, None]


def write(path, shape, text, numbers):
    """The nodes of a text as a model of x that gives y; values that no node gives are constants."""
    lines = text.replace(",\n", ", ").split("\n")
    nodes = [parser.parse_node(line) for line in lines]
    constants = [numpy_helper.from_array(np.float32(x), name) for name, x in NUMBERS.items()]
    constants += [numpy_helper.from_array(np.int64(x), name) for name, x in INTS.items()]
    constants += [numpy_helper.from_array(numbers.standard_normal(size).astype("f4"), name)
                  for name, size in FLOATS.items()]
    constants += [numpy_helper.from_array(np.abs(numbers.standard_normal(4)).astype("f4") + 0.5,
                                          "positive"),
                  numpy_helper.from_array(
                      np.abs(numbers.standard_normal(16)).astype("f4") + 0.5, "positive_16"),
                  numpy_helper.from_array(np.array(True), "yes"),
                  numpy_helper.from_array(np.int64(0), "first"),
                  numpy_helper.from_array(np.int64(1), "second"),
                  numpy_helper.from_array(np.arange(16) < 9, "some"),
                  numpy_helper.from_array(np.arange(16)[None] < 9, "row_of_some"),
                  numpy_helper.from_array(np.full((1, 16), 1e-20, "f4"), "tiny"),
                  numpy_helper.from_array(np.zeros((1, 3), bool), "no"),
                  numpy_helper.from_array(beyond_ends(4, 4), "both_ends"),
                  numpy_helper.from_array(beyond_ends(16, 1), "ends_of_16"),
                  numpy_helper.from_array(np.zeros((0, 1), "i8"), "no_places"),
                  numpy_helper.from_array(np.zeros((0, 8, 16), "f4"), "no_rows"),
                  numpy_helper.from_array(np.ones((1, 1), "i8"), "place"),
                  numpy_helper.from_array(np.ones((1, 8, 16), "f4"), "row")]
    read = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [constant for constant in constants if constant.name in read])
    opset = 23 if "= Attention" in text else 18
    onnx.save(helper.make_model(graph, opset_imports=[
        helper.make_opsetid("", opset), helper.make_opsetid("attnrun", 1)], ir_version=8), path)


def check(program, folder, name, shape, text, changes, numbers):
    model = folder / "model.onnx"
    write(model, shape, text, numbers)
    without = WITHOUT.get(name, ())
    told = attnrun(program, "inspect", "--json", *without, model)
    if told.returncode != 0:
        return [f"{name}: {told.stderr}"]
    applied = json.loads(told.stdout)["passes"][name]
    sizes = [size if isinstance(size, int) else 5 for size in shape]
    x = {"x": numbers.standard_normal(sizes).astype("f4")}
    why = differ(run(program, model, folder, x, *without)["y"],
                 run(program, model, folder, x, "--no-fusion")["y"])
    failures = [] if why is None else [f"{name}: {why} from what it is without fusion\n{text}"]
    if (applied > 0) != changes:
        failures.append(f"{name}: applied {applied} times to\n{text}")
    return failures


def main():
    program = sys.argv[1]
    numbers = np.random.default_rng(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    failures, n = [], 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for pass_name, (shape, right, misses) in ROWS.items():
            right = right if isinstance(right, tuple) else (right,)
            for text in (*right, *misses):
                n += 1
                failures += check(program, folder, pass_name, shape, text, text in right, numbers)
        told = json.loads(attnrun(program, "inspect", "--json", folder / "model.onnx").stdout)
    failures += [f"{name}: has no near miss" for name in told["passes"]
                 if name not in ROWS and name not in ELSEWHERE]
    failures += [f"{name}: {file}.py is not there" for name, file in ELSEWHERE.items()
                 if not (Path(__file__).parent / f"{file}.py").exists()]
    print("\n".join([*failures, f"{n} graphs, {len(failures)} failures"]))
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
