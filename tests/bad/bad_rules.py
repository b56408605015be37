"""bad_rules.py - models that break a rule which many runtimes let pass, and valid twins.

E enumerations and flags given as integers, A lists of axes, L lists that are none, U outputs
without names, H ranks and lengths of attention, G subgraphs, D declared types, Z sparse
constants, O opsets, S sizes whose products do not fit, T trees, P present keys, B branches
whose constants are packed. Twins end in `_ok`.
What is valid was tried with onnxruntime 1.32.0 and the checker of onnx 1.23.2.
"""
from bad_case import (FLOAT, INT64, TensorProto, graph_of, helper, loaded, model_case, model_of,
                      node_case, np, simple, value)

MS = "com.microsoft"
BOOL, HALF = TensorProto.BOOL, TensorProto.FLOAT16


def f32(*shape):
    return np.ones(shape, np.float32)


def i64(*values):
    return np.array(values, np.int64)


def i32(*values):
    return np.array(values, np.int32)


X3 = f32(2, 3, 4)
IMAGE = f32(1, 2, 4, 4)

# ---- an integer attribute that stands for one of a few things ----

# operator, inputs, constants, attribute, a bad value, a good one, other attributes
ENUMS = [
    ("ArgMax", {"x": X3}, {}, "keepdims", 2, 0, {}),
    ("ArgMax", {"x": X3}, {}, "select_last_index", -1, 1, {}),
    ("AveragePool", {"x": IMAGE}, {}, "count_include_pad", 7, 1, {"kernel_shape": [2, 2]}),
    ("AveragePool", {"x": IMAGE}, {}, "ceil_mode", 2, 1, {"kernel_shape": [2, 2]}),
    ("CumSum", {"x": X3}, {"a": np.array(1)}, "reverse", 2, 1, {}),
    ("CumSum", {"x": X3}, {"a": np.array(1)}, "exclusive", -1, 1, {}),
    ("DFT", {"x": f32(1, 4, 1)}, {}, "onesided", 3, 1, {}),
    ("DFT", {"x": f32(1, 4, 2)}, {}, "inverse", 3, 1, {}),
    ("Gemm", {"x": f32(2, 2), "b": f32(2, 2)}, {}, "transA", 2, 1, {}),
    ("GridSample", {"x": IMAGE, "g": f32(1, 2, 2, 2)}, {}, "align_corners", 2, 1, {}),
    ("IsInf", {"x": X3}, {}, "detect_negative", 2, 0, {}),
    ("LayerNormalization", {"x": X3}, {"s": f32(4)}, "stash_type", 99, 1, {}),
    ("LpNormalization", {"x": X3}, {}, "p", 3, 1, {}),
    ("MaxPool", {"x": IMAGE}, {}, "storage_order", 2, 1, {"kernel_shape": [2, 2]}),
    ("Mod", {"x": X3, "b": f32(4)}, {}, "fmod", 2, 1, {}),
    ("ReduceSum", {"x": X3}, {}, "keepdims", 9, 0, {}),
    ("ReduceSum", {"x": X3}, {}, "noop_with_empty_axes", 9, 1, {}),
    ("Reshape", {"x": X3}, {"s": i64(6, 4)}, "allowzero", 2, 1, {}),
    ("TopK", {"x": X3}, {"k": i64(2)}, "largest", 2, 0, {}),
    ("TopK", {"x": X3}, {"k": i64(2)}, "sorted", 2, 0, {}),
    ("Trilu", {"x": X3}, {}, "upper", -1, 0, {}),
    ("Unique", {"x": X3}, {}, "sorted", 3, 1, {}),
]
KINDS = {"ArgMax": INT64, "IsInf": BOOL}


def enum_cases():
    for at, (op, inputs, consts, name, bad, good, others) in enumerate(ENUMS):
        out = [KINDS.get(op, FLOAT)]
        if op == "TopK":
            out.append(INT64)
        for end, number, exits in (("", bad, 5), ("_ok", good, 0)):
            yield node_case(f"E{at:02}_{op}_{name}{end}", f"{op} {name} {number}", exits,
                            f"{name}.*expected", op, inputs, consts, out=out,
                            **{name: number}, **others)


def attention(name, what, exits, says, operands, consts=None, opset=24, **attributes):
    return node_case(name, what, exits, says, "Attention", operands, consts, opset=opset,
                     **attributes)


Q3, Q4 = f32(1, 3, 8), f32(1, 2, 3, 4)
QKV4 = {"q": Q4, "k": Q4, "v": Q4}


def lengths(number):
    return {"order": ["q", "k", "v", "", "", "", "n"]}, {**QKV4, "n": i64(number)}


def nonpad(end, number, exits):
    order, operands = lengths(number)
    return attention(f"H_nonpad_{end}", f"nonpad_kv_seqlen {number} of 3 keys", exits,
                     "length -?[0-9]+, expected 0 to 3", operands, **order)


def nonpad_f64(end, number, exits):
    order, operands = lengths(number)
    operands = {n: a if n == "n" else a.astype(np.float64) for n, a in operands.items()}
    return attention(f"H_nonpad_f64_{end}", f"nonpad_kv_seqlen {number}, doubles", exits,
                     "length -?[0-9]+, expected 0 to 3", operands,
                     out=(TensorProto.DOUBLE,), **order)


def key_map(end, exits, says="key_columns", columns=3, order="qkv    rc", **changed):
    """FusedAttention over a map of 2 x 3 keys."""
    operands = {"q": Q4, "k": f32(1, 2, 6, 4), "v": f32(1, 2, 6, 4), "r": f32(1, 2, 3, 2),
                "c": f32(1, 2, 3, 3), **changed}
    order = [name.strip() for name in order]
    return node_case(f"H_key_map_{end}", f"FusedAttention, key_columns {columns}", exits, says,
                     "FusedAttention", {name: operands[name] for name in order if name},
                     order=order, domain="attnrun.fused", key_columns=columns)


def masked(end, order, exits=5, **changed):
    """FusedAttention under a mask program of one leaf."""
    operands = {**QKV4, "a": f32(1, 2, 5, 4), "n": i64(3), "l": f32(3, 3), **changed}
    return node_case(f"H_program_{end}", f"a mask program and {end}", exits, "excludes.*past_key",
                     "FusedAttention", {name: operands[name] for name in order if name > " "},
                     order=[name.strip() for name in order], domain="attnrun.fused",
                     mask=[-1, 0, 0, -1, -1], axes=[-1, -1, -1, 0, 1])


def rotary(name, exits, x, domain="", **attributes):
    inputs = {"x": x, "c": f32(8, 2), "s": f32(8, 2), "p": i64([0, 1, 2])}
    order = ["x", "p", "c", "s"] if domain else ["x", "c", "s", "p"]
    return node_case(name, f"RotaryEmbedding of rank {x.ndim}, {attributes}", exits,
                     "num_heads", "RotaryEmbedding", inputs, order=order, domain=domain,
                     opset=23, **attributes)


def multi_head(name, exits, q, k, v):
    return node_case(name, "MultiHeadAttention of ranks "
                     f"{q.ndim}, {k.ndim}, {v.ndim}", exits, "rank [35]|rank 4",
                     "MultiHeadAttention", {"q": q, "k": k, "v": v}, domain=MS,
                     num_heads=2)


def group_query(name, what, exits, says, window=-1, **changes):
    operands = {"q": f32(1, 1, 8), "k": f32(1, 1, 8), "v": f32(1, 1, 8),
                "pk": f32(1, 2, 3, 4), "pv": f32(1, 2, 3, 4), "sl": i32(3),
                "tl": np.array(4, np.int32)}
    operands.update(changes)
    return node_case(name, what, exits, says, "GroupQueryAttention", operands, domain=MS,
                     out=(FLOAT, FLOAT, FLOAT), num_heads=2, kv_num_heads=2,
                     local_window_size=window)


ATTENTION = [
    attention("H_precision_99", "softmax_precision 99", 5, "softmax_precision", QKV4,
              softmax_precision=99),
    attention("H_precision_ints", "softmax_precision i32", 5, "softmax_precision", QKV4,
              softmax_precision=6),
    attention("H_precision_ok", "softmax_precision f64", 0, "", QKV4,
              softmax_precision=11),
    attention("H_causal_2", "is_causal 2", 5, "is_causal", QKV4, is_causal=2),
    attention("H_mode_4", "qk_matmul_output_mode 4", 5, "qk_matmul", QKV4,
              qk_matmul_output_mode=4),
    attention("H_q4_k3", "Q of rank 4, K and V of rank 3", 5, "rank 4",
              {"q": Q4, "k": Q3, "v": Q3}, q_num_heads=2, kv_num_heads=2),
    attention("H_q3_k4", "Q of rank 3, K and V of rank 4", 5, "rank 3",
              {"q": Q3, "k": Q4, "v": Q4}, q_num_heads=2, kv_num_heads=2),
    attention("H_q4_v3", "V of rank 3 alone", 5, "rank 4", {"q": Q4, "k": Q4, "v": Q3},
              q_num_heads=2, kv_num_heads=2),
    attention("H_q4_heads", "rank 4 with another q_num_heads", 5, "heads", QKV4,
              q_num_heads=3, kv_num_heads=3),
    attention("H_q4_heads_ok", "rank 4 that repeats q_num_heads", 0, "", QKV4,
              q_num_heads=2, kv_num_heads=2),
    attention("H_past_lengths", "5 keys after a past of 2, 2 values after a past of 5", 5,
              "number of keys", {"q": Q4, "k": f32(1, 2, 5, 4), "v": f32(1, 2, 2, 4),
                                 "pk": f32(1, 2, 2, 4), "pv": f32(1, 2, 5, 4)},
              order=["q", "k", "v", "", "pk", "pv"]),
    attention("H_q3_ok", "rank 3", 0, "", {"q": Q3, "k": Q3, "v": Q3}, q_num_heads=2,
              kv_num_heads=2),
    nonpad("below", -1, (5, 7)), nonpad("above", 4, (5, 7)), nonpad("huge", 2**62, (5, 7)),
    nonpad("none_ok", 0, 0), nonpad("all_ok", 3, 0),
    nonpad_f64("below", -1, (5, 7)), nonpad_f64("above", 4, (5, 7)),
    nonpad_f64("all_ok", 3, 0),
    rotary("H_rotary_rank3", 5, Q3), rotary("H_rotary_rank3_ok", 0, Q3, num_heads=2),
    key_map("ok", 0), key_map("negative", 5, columns=-3), key_map("no_divisor", 5, columns=4),
    key_map("no_columns", 5, order="qkv    r"), key_map("mask", 5, order="qkvm   rc",
                                                        m=f32(3, 6)),
    key_map("rows", 5, "input 7.*expected f32 with 2 for each of 6 queries", r=f32(1, 2, 3, 3)),
    key_map("columns", 5, "input 8.*with 3 for each of 6", c=i64(*range(18))),
    key_map("absent", 3, "input 7 is missing", order="qkv     c"),
    masked("ok", "qkv    l", 0), masked("a_past", "qkv aa l", l=f32(3, 8)),
    masked("lengths", "qkv   nl"),
    node_case("H_leaves", "11 leaves", 5, "18 inputs, .* 17", "FusedAttention", {**QKV4, "l": Q3},
              order=[*"qkv", *[""] * 4, *"l" * 11], domain="attnrun.fused"),
    rotary("H_rotary_rank4_ok", 0, Q4), rotary("H_rotary_ms_ok", 0, Q3, domain=MS),
    multi_head("H_mha_q4", 5, Q4, Q4, Q4), multi_head("H_mha_k3_v4", 5, Q3, Q3, Q4),
    multi_head("H_mha_k4_v3", 5, Q3, Q4, Q3), multi_head("H_mha_ok", 0, Q3, Q3, Q3),
    multi_head("H_mha_cross_ok", 0, Q3, Q4, Q4),
    group_query("H_gqa_ok", "a cache of three", 0, ""),
    group_query("H_gqa_window_0", "a window that has no key", 5, "local_window_size is 0",
                window=0),
    group_query("H_gqa_window_ok", "a window of one key", 0, "", window=1),
    group_query("H_gqa_past_rank", "past_key of rank 3", 5, "rank 4", pk=f32(1, 3, 8)),
    group_query("H_gqa_past_value_rank", "past_value of rank 2", 5, "rank 4",
                pv=f32(3, 8)),
    group_query("H_gqa_no_total", "total_sequence_length without a number", 5,
                "one element", tl=i32()),
    group_query("H_gqa_lengths", "seqlens_k beyond the cache", (5, 7), "seqlens_k",
                sl=i32(9)),
    group_query("H_gqa_lengths_neg", "seqlens_k -5", (5, 7), "seqlens_k", sl=i32(-5)),
]

# ---- sizes whose products do not fit, of operands without elements ----


def empty(*shape):
    return np.zeros(shape, np.float32)


LARGE = empty(0, 4, 2**31 - 1, 8)
SIZES = [
    attention("S_attention", "scores of 2^31 - 1 queries and keys", 6,
              r"over 2\^63 - 1; the inputs are Q f32\[0,4,2147483647,8\], K f32",
              {"q": LARGE, "k": LARGE, "v": LARGE}),
    node_case("S_topk", "TopKAttention of as many", 6, r"over 2\^63 - 1; the inputs are Q f32",
              "TopKAttention", {"q": LARGE, "k": LARGE, "v": LARGE}, domain="attnrun", k=2),
    node_case("S_topk_tokens", "TopKAttention of 2^31 queries", 6,
              r"2147483648 queries and 3 keys, expected at most 2\^31 - 1", "TopKAttention",
              {"q": empty(0, 4, 2**31, 8), "k": empty(0, 4, 3, 8), "v": empty(0, 4, 3, 8)},
              domain="attnrun", k=2),
    node_case("S_longformer_tokens", "LongformerAttention of 2^31 tokens", 6,
              r"there are 2147483648 tokens, expected at most 2\^31 - 1", "LongformerAttention",
              {"x": empty(0, 2**31, 4), "w": f32(4, 12), "b": f32(12), "m": empty(0, 2**31),
               "gw": f32(4, 12), "gb": f32(12), "g": np.zeros((0, 2**31), np.int32)},
              domain=MS, num_heads=1, window=1),
    node_case("S_matmul", "MatMul with a result of 2^80 elements in no batch", 6,
              r"elements of the product would be over 2\^63 - 1; the inputs are A f32\[0,",
              "MatMul", {"a": empty(0, 2**40, 0), "b": empty(0, 0, 2**40)}),
    attention("S_attention_ok", "no batch of fewer", 0, "",
              {"q": empty(0, 4, 9, 8), "k": empty(0, 4, 9, 8), "v": empty(0, 4, 9, 8)}),
]

# ---- lists of axes ----


def sliced(end, axes, exits, fed):
    lists = {"s": i64(0, 1), "e": i64(2, 3), "a": i64(*axes)}
    return node_case(f"A_slice_{end}", f"Slice along {axes}", exits, "appears twice",
                     "Slice", {"x": X3, **(lists if fed else {})},
                     None if fed else lists, order=["x", "s", "e", "a"])


def turned_keys(name, exits, says, perm):
    """Attention, whose keys have no declared rank: passes read perm when their shape is unknown."""
    def build(_folder):
        nodes = [helper.make_node("Transpose", ["k"], ["t"], perm=perm),
                 helper.make_node("MatMul", ["q", "t"], ["s"]),
                 helper.make_node("Softmax", ["s"], ["p"], axis=3),
                 helper.make_node("MatMul", ["p", "v"], ["y"])]
        four = [1, 2, 3, 4]
        return model_of(graph_of(nodes, [value("q", FLOAT, four), value("k", FLOAT),
                                         value("v", FLOAT, four)], [value("y")]))
    return model_case(name, f"Transpose of unknown rank, perm {perm[:4]}", exits, says, build,
                      ("-i", "q=ones", "-i", "v=ones", "--shape", "k=1,2,3,4"))


AXES = [
    sliced("twice", [1, 1], 5, False), sliced("twice_neg", [1, -2], 5, False),
    sliced("twice_fed", [1, 1], (5, 7), True), sliced("ok", [1, -1], 0, False),
    sliced("fed_ok", [1, -1], 0, True),
    node_case("A_slice_1_twice", "Slice-1 along 0, 0", 5, "appears twice", "Slice",
              {"x": X3}, opset=9, axes=[0, 0], starts=[0, 1], ends=[1, 2]),
    node_case("A_pad_twice", "Pad along 1, 1", 5, "appears twice", "Pad", {"x": X3},
              {"p": i64(1, 1, 1, 1), "a": i64(1, 1)}, order=["x", "p", "", "a"]),
    node_case("A_pad_ok", "Pad along 1, -1", 0, "", "Pad", {"x": X3},
              {"p": i64(1, 1, 1, 1), "a": i64(1, -1)}, order=["x", "p", "", "a"]),
    node_case("A_crop_twice", "CenterCropPad along 1, 1", 5, "appears twice",
              "CenterCropPad", {"x": X3}, {"s": i64(2, 2)}, axes=[1, 1]),
    node_case("A_crop_ok", "CenterCropPad along 1, 2", 0, "", "CenterCropPad", {"x": X3},
              {"s": i64(2, 2)}, axes=[1, 2]),
    node_case("A_unsqueeze_twice", "Unsqueeze at 1, -4", 5, "appears twice", "Unsqueeze",
              {"x": X3}, {"a": i64(1, -4)}),
    node_case("A_resize_twice", "Resize along 1, 1", 5, "appears twice", "Resize",
              {"x": X3}, {"s": f32(2)}, order=["x", "", "s"], axes=[1, 1]),
    node_case("A_reduce_repeats_ok", "ReduceSum along 1, -2: one axis, no other meaning",
              0, "", "ReduceSum", {"x": X3}, {"a": i64(1, -2)}),
    node_case("A_reduce_65", "ReduceMean with 65 axes", 5, "axes", "ReduceMean",
              {"x": X3}, opset=13, axes=[0] * 64 + [1]),
    node_case("A_perm_neg", "Transpose perm -1", 5, "perm", "Transpose", {"x": X3},
              perm=[0, 2, -1]),
    node_case("A_perm_twice", "Transpose perm 0, 1, 1", 5, "perm", "Transpose",
              {"x": X3}, perm=[0, 1, 1]),
    node_case("A_perm_ok", "Transpose perm 0, 2, 1", 0, "", "Transpose", {"x": X3},
              perm=[0, 2, 1]),
    *(turned_keys(f"A_perm_unranked{end}", 5, "perm", perm) for end, perm in
      {"": [0, 1, 3, 1 << 62], "_neg": [0, 1, 3, -9], "_few": [0, 1, 2]}.items()),
    turned_keys("A_perm_unranked_long", 5, "perm has 40 axes", [*range(40)]),
    turned_keys("A_perm_unranked_ok", 0, "", [0, 1, 3, 2]),
]

# ---- outputs without names ----


def unnamed(name, op, outputs, consts, **attributes):
    """A constant node that names none of its outputs: nobody needs it."""
    def build(folder):
        nodes = [helper.make_node(op, list(consts), outputs, **attributes),
                 helper.make_node("Relu", ["x"], ["y"])]
        return simple(nodes, consts=consts)
    return model_case(name, f"{op} that names no output", 0, "", build)


UNNAMED = [
    unnamed("U_non_zero_ok", "NonZero", [""], {"c": X3}),
    unnamed("U_slice_ok", "Slice", [""], {"c": X3, "s": i64(0), "e": i64(1)}),
    unnamed("U_split_ok", "Split", ["", ""], {"c": X3}, axis=2, num_outputs=2),
    unnamed("U_top_k_ok", "TopK", ["", ""], {"c": X3, "k": i64(1)}),
    unnamed("U_none_ok", "Unique", [], {"c": X3}),
]

# ---- lists that are no lists ----

LISTS = [
    node_case("L_split_matrix", "Split by a matrix", 5, "split.*rank 1", "Split",
              {"x": X3, "s": i64([1, 2])}, axis=1, out=(FLOAT, FLOAT)),
    node_case("L_split_ok", "Split by a fed list", 0, "", "Split",
              {"x": X3, "s": i64(1, 2)}, axis=1, out=(FLOAT, FLOAT)),
    node_case("L_slice_matrix", "Slice from a matrix on", 5, "starts.*rank 0 to 1",
              "Slice", {"x": X3, "s": i64([0]), "e": i64([1])}),
    node_case("L_window_none", "HammingWindow of no size", 5, "one number",
              "HammingWindow", {"x": i64()}),
    node_case("L_window_ok", "HammingWindow of a fed size", 0, "", "HammingWindow",
              {"x": np.array(4)}),
    node_case("L_mel_none", "MelWeightMatrix without a number of bins", 5, "one number",
              "MelWeightMatrix", {"x": i64()},
              {"d": np.array(8), "r": np.array(8000), "l": np.array(0.0, np.float32),
               "u": np.array(4000.0, np.float32)}),
    node_case("L_mel_rate_none", "MelWeightMatrix whose sample rate is an empty list", 5,
              "one number", "MelWeightMatrix",
              {"b": np.array(2), "d": np.array(8), "r": i64(), "l": np.array(0.0, np.float32),
               "u": np.array(4000.0, np.float32)}),
    node_case("L_mel_edge_none", "MelWeightMatrix whose edge is an empty list", 5,
              "one number", "MelWeightMatrix",
              {"b": np.array(2), "d": np.array(8), "r": np.array(8000),
               "l": np.zeros(0, np.float32), "u": np.array(4000.0, np.float32)}),
    node_case("L_mel_falling", "MelWeightMatrix whose lower edge is above the spectrogram", 7,
              "edge at spectrogram bin 9, expected 0 to 8", "MelWeightMatrix",
              {"b": np.array(16), "d": np.array(16), "r": np.array(16000),
               "l": np.array(8700.0, np.float32), "u": np.array(6000.0, np.float32)}),
    node_case("L_mel_ok", "MelWeightMatrix of fed numbers", 0, "", "MelWeightMatrix",
              {"b": np.array(2), "d": np.array(64), "r": np.array(8000),
               "l": np.array([0.0], np.float32), "u": np.array(4000.0, np.float32)}),
    node_case("L_concat_one_axis", "Concat of one tensor along an axis that it has not", 5,
              "axis", "Concat", {"x": X3}, axis=3),
    node_case("L_concat_one_ok", "Concat of one tensor", 0, "", "Concat", {"x": X3}, axis=-1),
    node_case("L_max_hole", "Max with an operand that is not there", 3, "missing", "Max",
              {"x": X3, "z": X3}, order=["x", "", "z"]),
    node_case("L_concat_hole", "Concat with an operand that is not there", 3, "missing",
              "Concat", {"x": X3, "z": X3}, order=["x", "", "z"], axis=0),
]

# ---- subgraphs ----


def branch(count, dtype=FLOAT):
    return graph_of([helper.make_node("Relu", ["x"], [f"o{k}"]) for k in range(count)],
                    [], [value(f"o{k}", dtype) for k in range(count)])


def if_case(name, exits, says, then, otherwise, fed, outputs=("y",)):
    def build(folder):
        node = helper.make_node("If", ["c"], list(outputs), then_branch=then,
                                else_branch=otherwise)
        model = simple([node], consts={} if fed else {"c": np.array(True)})
        if fed:
            model.graph.input.append(value("c", BOOL, []))
        return model
    return model_case(name, "If with branches that do not fit", exits, says, build)


def loop_case(name, exits, scans, outputs):
    def build(folder):
        nodes = [helper.make_node("Identity", ["ci"], ["co"]),
                 helper.make_node("Relu", ["v"], ["vo"])]
        nodes += [helper.make_node("Relu", ["v"], [f"s{k}"]) for k in range(scans)]
        made = ["co", "vo"] + [f"s{k}" for k in range(scans)]
        body = graph_of(nodes, [value("i", INT64, []), value("ci", BOOL, []), value("v")],
                        [value(m, BOOL if m == "co" else FLOAT) for m in made])
        node = helper.make_node("Loop", ["m", "", "x"], list(outputs), body=body)
        return simple([node], consts={"m": np.array(2)})
    return model_case(name, f"Loop with {scans} scans", exits, "outputs", build)


def scan_case(name, exits, says, num_scan_inputs=1, **attributes):
    def build(folder):
        nodes = [helper.make_node("Add", ["t", "v"], ["u"]),
                 helper.make_node("Relu", ["v"], ["w"])]
        body = graph_of(nodes, [value("t"), value("v")], [value("u"), value("w")])
        node = helper.make_node("Scan", ["z", "x"], ["y", "other"], body=body,
                                num_scan_inputs=num_scan_inputs, **attributes)
        return simple([node], shape=(3, 2), consts={"z": f32(2)})
    return model_case(name, f"Scan of {num_scan_inputs}, {attributes}", exits, says, build)


SUBGRAPHS = [
    if_case(f"G_if_{end}{'_fed' if fed else ''}", exits, "output", branch(then),
            branch(other), fed)
    for end, then, other, exits in (("more_in_one", 2, 1, 3), ("more_in_other", 1, 2, 3),
                                    ("more_in_both", 2, 2, 3), ("ok", 1, 1, 0))
    for fed in (False, True)] + [
    if_case("G_if_unnamed_ok", 0, "", branch(2), branch(2), True, ("y", "")),
    if_case("G_if_declares", 5, "declared i64", branch(1, INT64), branch(1), True),
    loop_case("G_loop_more", 3, 1, ["y"]), loop_case("G_loop_ok", 0, 0, ["y"]),
    loop_case("G_loop_unnamed_ok", 0, 1, ["y", ""]),
    scan_case("G_scan_ok", 0, "", scan_input_directions=[1], scan_output_axes=[-1]),
    scan_case("G_scan_direction_7", 5, "directions", scan_input_directions=[7]),
    scan_case("G_scan_direction_neg", 5, "directions", scan_output_directions=[-1]),
    scan_case("G_scan_directions_2", 5, "directions", scan_input_directions=[0, 1]),
    *(scan_case(f"G_scan_of_{number}", 5, "num_scan_inputs", number)
      for number in (0, 3, -2**31, 2**32 + 1, -2**63)),
    scan_case("G_scan_axes_2", 5, "scan_input_axes", scan_input_axes=[0, 0]),
    scan_case("G_scan_out_axes_2", 5, "scan_output_axes", scan_output_axes=[0, 0]),
]

# ---- declared types ----


def declared(name, exits, y, middle=None, dtype=FLOAT, ops=("Relu", "Abs")):
    def build(folder):
        nodes = [helper.make_node(ops[0], ["x"], ["m"]),
                 helper.make_node(ops[1], ["m"], ["y"])]
        graph = graph_of(nodes, [value("x", dtype, [2])], [value("y", y)])
        if middle:
            graph.value_info.append(value("m", *middle))
        return model_of(graph)
    return model_case(name, f"y declared as type {y}, middle as {middle}", exits,
                      "declared", build)


def handed_on(name, exits, y):
    """A graph output that is a graph input."""
    def build(folder):
        graph = graph_of([], [value("x", FLOAT, [2])], [value("x", y)])
        return model_of(graph)
    return model_case(name, "an output that is an input", exits, "declared", build)


DECLARED = [
    declared("D_output", 5, INT64), declared("D_output_ok", 0, FLOAT),
    declared("D_middle", 5, FLOAT, (INT64, [2])),
    declared("D_middle_shape_ok", 0, FLOAT, (FLOAT, [7])),
    declared("D_half", 5, FLOAT, None, HALF), declared("D_half_ok", 0, HALF, None, HALF),
    declared("D_half_middle", 5, HALF, (FLOAT, [2]), HALF, ("Sin", "Cos")),
    declared("D_folded", 5, FLOAT, None, FLOAT, ("Shape", "Shape")),
    handed_on("D_input", 5, INT64), handed_on("D_input_ok", 0, FLOAT),
]

# ---- sparse constants ----


def sparse(name, exits, indices, dims=(2, 3), says="sparse"):
    def build(folder):
        numbers = helper.make_tensor("c", FLOAT, [len(indices)],
                                     [float(k + 1) for k in range(len(indices))])
        places = np.array(indices, np.int64)
        at = helper.make_tensor("", INT64, places.shape, places.flatten())
        model = simple([helper.make_node("Add", ["x", "c"], ["y"])], shape=(2, 3))
        model.graph.sparse_initializer.append(
            helper.make_sparse_tensor(numbers, at, dims))
        return model
    return model_case(name, f"sparse indices {indices}", exits, says, build)


SPARSE = [
    sparse("Z_unsorted", 3, [4, 1]), sparse("Z_repeated", 3, [1, 1]),
    sparse("Z_unsorted_axes", 3, [[1, 0], [0, 2]]),
    sparse("Z_repeated_axes", 3, [[0, 1], [0, 1]]),
    sparse("Z_ok", 0, [1, 4]), sparse("Z_axes_ok", 0, [[0, 2], [1, 0]]),
    sparse("Z_ends_ok", 0, [0, 5]), sparse("Z_ends_axes_ok", 0, [[0, 0], [1, 2]]),
    sparse("Z_below", 3, [-1, 5]), sparse("Z_above", 3, [0, 6]),
    sparse("Z_row_below", 3, [[-1, 2], [1, 0]]), sparse("Z_row_above", 3, [[0, 0], [2, 0]]),
    sparse("Z_column_below", 3, [[0, 0], [1, -1]]), sparse("Z_column_above", 3, [[0, 3], [1, 2]]),
    sparse("Z_none", 3, [[2**23 - 1, 2**22 - 1, 0]], (2**23, 2**22, 0)),
    sparse("Z_none_of_much", 6, [[2**47 - 1, 2**47 - 1, 0]], (2**47, 2**47, 0), "elements"),
]

# ---- opsets ----


def unimported(name, exits, op, domain):
    def build(folder):
        return model_of(graph_of([helper.make_node(op, ["x"], ["y"], domain=domain)],
                                 [value("x", FLOAT, [2])], [value("y")]))
    return model_case(name, f"{op} of '{domain}' without an import", exits, domain, build)


OPSETS = [
    # As ONNX Runtime's optimizer writes it: version 1 is meant.
    unimported("O_microsoft_ok", 0, "Gelu", MS),
    unimported("O_ml", 3, "Normalizer", "ai.onnx.ml"),
    unimported("O_other", 3, "Thing", "a.b"),
]


# ---- trees of a branch that is not taken, of which infer() looks at nothing ----

def tree_case(name, op, **attributes):
    def build(folder):
        node = helper.make_node(op, ["x"], ["o"] if op == "TreeEnsemble" else ["label", "o"],
                                domain="ai.onnx.ml", **attributes)
        then = graph_of([node], [], [value("o")])
        node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=branch(1))
        model = simple([node], (2, 3), {"c": np.array(False)})
        model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 5 if op == "TreeEnsemble"
                                                      else 3))
        return model
    return model_case(name, f"{op} without the lists that it needs", 0, "", build,
                      extra=["--no-fusion"])


def member_tree(**others):
    lists = {f"nodes_{k}": [0, 0] for k in ("featureids", "truenodeids", "falsenodeids",
                                            "trueleafs", "falseleafs")}
    tensors = {"nodes_splits": np.zeros(2, np.float32), "nodes_modes": np.full(2, 6, np.uint8),
               "leaf_weights": np.ones(1, np.float32)}
    made = {name: loaded(array, name) for name, array in tensors.items()}
    return dict(lists, **made, tree_roots=[0], leaf_targetids=[0], n_targets=1, **others)


TREES = [
    node_case("T00_feature", "a tree that tests feature 9 of 2", 7, "node 0 tests feature 9",
              "TreeEnsembleRegressor", {"x": f32(1, 2)}, domain="ai.onnx.ml", nodes_treeids=[0] * 3,
              nodes_nodeids=[0, 1, 2], nodes_featureids=[9, 0, 0], nodes_values=[0.0] * 3,
              nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_truenodeids=[1, 0, 0],
              nodes_falsenodeids=[2, 0, 0], target_treeids=[0], target_nodeids=[1],
              target_ids=[0], target_weights=[1.0]),
    tree_case("T01_votes_without_trees", "TreeEnsembleClassifier", class_ids=[0, 1, 2],
              classlabels_int64s=[0, 1]),
    tree_case("T02_nodes_without_lists", "TreeEnsembleClassifier", nodes_nodeids=[0, 1],
              classlabels_int64s=[0, 1]),
    tree_case("T03_members_without_values", "TreeEnsemble", **member_tree()),
    tree_case("T04_members_without_an_end", "TreeEnsemble", **member_tree(
        membership_values=loaded(np.ones(4, np.float32), "m"))),
]

# ---- constants that pack() would read behind, in a branch that is not taken or cannot be ----

def packed_case(name, op, domain, consts, taken=None, names=None, **attributes):
    def build(folder):
        made = helper.make_node(op, names or ["x", *consts], ["o"], domain=domain, **attributes)
        then = graph_of([made], [], [value("o")], consts)
        outer = [helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=branch(1))]
        if taken is None:  # whether it is taken is known at run only, where it is not
            outer.insert(0, helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0))
            outer.insert(1, helper.make_node("Greater", ["m", "limit"], ["c"]))
        known = {"limit": np.float32(1e30)} if taken is None else {"c": np.array(False)}
        model = simple(outer, (2, 3), known)
        if domain:
            model.opset_import.append(helper.make_opsetid(domain, 4 if "ml" in domain else 1))
        return model
    return model_case(name, f"{op} in a branch, with constants of other sizes",
                      [0, 5] if taken is None else 0, "expected", build, extra=["--no-fusion"])


def u8(*shape):
    return np.ones(shape, np.uint8)


BRANCHES = [
    packed_case(f"B{at:02}_{row[0]}_{'open' if taken is None else 'untaken'}", *row[:3], taken,
                row[3], **row[4])
    for at, row in enumerate([
        ("MatMulNBits", MS, {"b": u8(1), "s": f32(1)}, None,
         {"K": 1 << 15, "N": 1 << 10, "block_size": 32}),
        ("MatMulBnb4", MS, {"b": u8(1), "s": f32(1)}, None,
         {"K": 1 << 15, "N": 1 << 10, "block_size": 64, "quant_type": 0}),
        ("Involution", "attnrun", {"w1": f32(1, 1), "w2": f32(1 << 20, 1), "b2": f32(1)},
         ["x", "", "w1", "", "w2", "b2"], {"kernel_size": 1, "groups": 1}),
        ("ReformerAttention", "attnrun", {"r": u8(1, 1 << 9, 1 << 7, 1 << 7)},
         ["x", "x", "r"], {"num_buckets": [2], "chunk_length": 4, "num_hashes": 1}),
        ("LSTM", "", {"w": u8(1, 4096, 512), "r": u8(1, 4096, 1024)}, None,
         {"hidden_size": 1024}),
        ("QLinearMatMul", "", {"s": f32(1), "z": u8(1), "b": np.zeros((1 << 11, 1 << 11),
                                                                      np.bool_)},
         ["x", "s", "z", "b", "s", "z", "s", "z"], {}),
        ("LabelEncoder", "ai.onnx.ml", {}, None, {
            "keys_tensor": loaded(u8(100), "k"), "values_tensor": loaded(f32(100), "v")}),
    ]) for taken in (None, False)]

# The node has three inputs; that of past keys is none of them.
PRESENT = [
    node_case("P01_present_without_past_ok", "present keys, but no past ones", 0, "",
              "MultiHeadAttention", {"x": f32(5, 5, 4)}, out=(FLOAT, FLOAT, FLOAT), domain=MS,
              order=["x", "x", "x"], num_heads=2),
]

CASES = [*TREES, *BRANCHES, *PRESENT, *enum_cases(), *AXES, *LISTS, *UNNAMED, *ATTENTION,
         *SUBGRAPHS, *OPSETS, *DECLARED, *SPARSE, *SIZES]
