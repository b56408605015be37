"""com.microsoft operators of gated linear attention and of multimodal models (MRotaryEmbedding,
GatedRMSNorm, GatedAdd, LinearAttentionGate, CausalConvWithState, LinearAttention, GatedDeltaNet)
against ONNX Runtime 1.32.0: random shapes, options and types; and what must be refused.
Usage: check_ms_gates.py ATTNRUN [SEED]"""
import itertools
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np
import onnx

from ms import Case, answer, between, compare, normal, pick, random


def halves(inputs, number):
    """Every fifth case in f16."""
    if number % 5:
        return inputs
    return [(name, value.astype("f2") if value is not None and value.dtype == "f4" else value)
            for name, value in inputs]


def rotary_case(number):
    batch, tokens, heads = between(1, 3), between(1, 9), between(1, 4)
    half = between(1, 20)
    dim = 2 * half + (4 * (number % 3 == 2))
    section = sorted(random.integers(0, half + 1, 2))
    section = [section[0], section[1] - section[0], half - section[1]]
    if number % 2:  # the builder's: widths that leave the first one the rest
        h, w = between(0, half // 3), between(0, half // 3)
        section = [half - h - w, h, w]
    attributes = {"mrope_section": section, "mrope_layout": number % 2,
                  "interleaved": number // 2 % 2, "num_heads": heads}
    if dim != 2 * half:
        attributes["rotary_embedding_dim"] = 2 * half
    shape = (batch, heads, tokens, dim) if number % 4 == 3 else (batch, tokens, heads * dim)
    positions = tokens + between(0, 30)
    ids = random.integers(0, positions, (3, batch, tokens))
    inputs = [("x", normal(*shape)), ("p", ids), ("c", normal(positions, half)),
              ("s", normal(positions, half))]
    return Case("MRotaryEmbedding", halves(inputs, number), ["y"], attributes,
                ("c", "s") if number % 3 else ())


def norm_case(number):
    part, rows = between(1, 70), [between(1, 5) for _ in range(between(0, 3))]
    shape = (*rows, part * between(1, 4))
    scale = [(part,), (1, part), (part, 1), () if part == 1 else (part,)][between(0, 3)]
    if number == 0:  # a scalar is a group of one element
        part, scale = 1, ()
    inputs = [("x", normal(*shape)), ("s", np.asarray(normal(*scale))), ("g", 3 * normal(*shape))]
    attributes = {"activation": pick("silu", "swish", "sigmoid"), "epsilon": pick(1e-5, 0.1)}
    return Case("GatedRMSNorm", halves(inputs, number), ["y"], attributes if number % 4 else {},
                ("s",) if number % 2 else ())


def add_case(number):
    shape = [between(1, 40) for _ in range(between(1, 4))]
    inputs = [("x", normal(*shape)), ("y", normal(*shape)), ("g", normal(*shape[:-1], 1))]
    return Case("GatedAdd", halves(inputs, number), ["z"], {})


def rounded(x):
    return np.asarray(x, "f4").astype(ml_dtypes.bfloat16).astype("f4")


def projected_case(number):
    """ONNX Runtime has this on GPUs alone: the formula of its schema. Its type is bf16; in f32
    nothing is rounded on the way in and out."""
    rows, c, k = between(1, 5), between(1, 30), between(1, 30)
    x, y, gate, weight = (rounded(normal(*shape)) for shape in
                          ((rows, c), (rows, c), (rows, k), (k, 1)))
    sums = rounded((gate.astype("f8") @ weight).astype("f4"))
    factor = rounded(1 / (1 + np.exp(-sums)))
    inputs = [("x", x), ("y", y), ("g", gate), ("w", weight)]
    return Case("GatedAdd", inputs, ["z"], {}, expected=[x + rounded(y * factor)],
                tolerance="1e-2 1e-2")


def gate_case(number):
    batch, tokens, heads = between(1, 3), between(1, 40), between(1, 40)
    shape = (batch, tokens, heads)
    given = [("a", 5 * normal(*shape)), ("b", normal(*shape) if number % 3 else None)]
    given = dict(halves(given, number))
    inputs = [("a", given["a"]), ("dt", normal(heads)), ("s", -abs(normal(heads))),
              ("b", given["b"])]
    return Case("LinearAttentionGate", inputs, ["decay", "beta"] if number % 3 else ["decay"], {},
                ("dt", "s") if number % 2 else ())


def conv_case(number):
    batch, channels, taps = between(1, 3), [between(1, 9)], between(1, 5)
    length, last = pick(1, 2, between(1, 40), 2100), number % 2
    if last and number % 4 == 1:
        channels.append(between(1, 4))
    all_channels, dilation = int(np.prod(channels)), pick(1, 1, 3)
    carried = (taps - 1) * dilation

    def lines(n):
        return normal(batch, n, *channels) if last else normal(batch, *channels, n)

    x = lines(length)
    past = lines(carried) if number % 3 else None
    inputs = [("x", x), ("w", normal(all_channels, 1, taps)),
              ("b", normal(all_channels) if number % 5 < 3 else None), ("past", past)]
    attributes = {"activation": pick("none", "silu", "swish"), "dilation": dilation,
                  "channels_last": last}
    if number % 7 < 3:
        del attributes["dilation"]
        inputs = [(name, None if name == "past" else value) for name, value in inputs]
    return Case("CausalConvWithState", halves(inputs, number), ["y", "present"], attributes,
                ("w", "b") if number % 4 else ())


def varlen_case(number):
    lengths = [pick(1, 1, 2, between(1, 40), 2100 if number == 3 else 5)
               for _ in range(between(1, 4))]
    channels, taps, dilation = between(1, 9), between(1, 5), pick(1, 1, 3)
    capacity = between(1, 8) if number % 3 == 1 else 0
    starts = np.cumsum([0, *lengths]).astype("i4")
    counts = random.integers(-1, 10, len(lengths)).astype("i4") if capacity else None
    inputs = [("x", normal(starts[-1], channels)), ("w", normal(channels, 1, taps)),
              ("c", starts), ("b", normal(channels) if number % 2 else None),
              ("s", normal(len(lengths), channels, (taps - 1) * dilation)), ("n", counts)]
    attributes = {"activation": pick("none", "silu", "swish"), "dilation": dilation}
    if capacity:
        attributes["state_update_capacity"] = capacity
    return Case("VarlenCausalConvWithState", inputs,
                ["y", "final", "update"] if capacity else ["y", "final"], attributes,
                ("w", "b") if number % 4 else ())


def varlen_inputs(starts, state=(1, 2, 1)):
    return [("x", normal(3, 2)), ("w", normal(2, 1, 2)), ("c", np.array(starts, "i4")),
            ("b", None), ("s", normal(*state))]


def window_case(number):
    """ONNX Runtime has state_window on GPUs alone: its states are those that it gives for
    prefixes of the positions, and what it reads is the last slot."""
    case = conv_case(2 * number)._replace(constants=())
    window = between(1, 8)
    inputs = dict(case.inputs)
    x, length = inputs["x"], inputs["x"].shape[-1]
    y, state = (value for _, value in answer(case)[2])
    slots = np.zeros((window, *state.shape), state.dtype)
    for j in range(max(0, window - length), window):
        part = [(name, x[..., :length - window + j + 1] if name == "x" else value)
                for name, value in case.inputs]
        slots[j] = answer(case._replace(inputs=part))[2][1][1]
    if inputs["past"] is not None:
        inputs["past"] = np.stack([normal(*state.shape).astype(x.dtype)] * (window - 1) +
                                  [inputs["past"]])
    return case._replace(inputs=list(inputs.items()), expected=[y, slots],
                         attributes={**case.attributes, "state_window": window})


def unit(x, dim):
    heads = x.reshape(*x.shape[:-1], -1, dim)
    return (heads / np.linalg.norm(heads, axis=-1, keepdims=True)).reshape(x.shape)


def linear_case(number):
    """Query heads that are fewer than those of the values, and keys that are, too."""
    batch, tokens, d_k, d_v = between(1, 3), between(1, 9), between(1, 20), between(1, 70)
    q_heads = between(1, 3)
    heads = q_heads * between(1, 3)
    key_heads = q_heads if number % 2 else heads
    if number % 5 == 4:
        heads, key_heads, q_heads = q_heads, q_heads, q_heads * between(1, 3)
    rule = ("linear", "gated", "delta", "gated_delta")[number % 4]
    decay = -abs(normal(batch, tokens, heads * pick(1, d_k))) if "gated" in rule else None
    beta = np.asarray(random.uniform(0, 1, (batch, tokens, heads)), "f4")
    inputs = [("q", normal(batch, tokens, q_heads * d_k)),
              ("k", unit(normal(batch, tokens, key_heads * d_k), d_k)),
              ("v", normal(batch, tokens, heads * d_v)),
              ("past", normal(batch, heads, d_k, d_v) if number % 3 else None),
              ("g", decay), ("b", beta if "delta" in rule else None)]
    return Case("LinearAttention", inputs, ["y", "present"],
                {"q_num_heads": q_heads, "kv_num_heads": heads, "update_rule": rule})


def delta_case(number):
    heads_q, d_k, d_v = between(1, 3), between(1, 20), between(1, 70)
    heads, batch = heads_q * between(1, 3), between(1, 4)
    ragged = number % 3 == 0
    lengths = random.integers(0, 7, batch) if ragged else np.full(batch, between(1, 80))
    if ragged:
        lengths[0] += 1
    tokens = int(lengths.sum())
    lead = (batch, int(lengths[0])) if number % 3 == 1 else (tokens,)
    rule = ("gated_delta", "linear", "gated", "delta")[number % 4]
    by_key = between(0, 1)
    decay = normal(*lead, heads, *([d_k] if by_key else [])) if "gated" in rule else None
    attributes = {"update_rule": rule, "qk_l2_norm": between(0, 1), "scale": pick(0.0, 1.0),
                  "beta_activation": pick("none", "sigmoid")}
    gates = "gated" in rule and number % 5 > 0
    if gates:
        attributes["gate_activation"] = pick("softplus", "qwen", "sigmoid", "kda")
        attributes["gate_lower_bound"] = pick(-5.0, -1.0)
    elif decay is not None:
        decay = -abs(decay)
    bias = pick((heads,), (heads * d_k,), (heads, d_k)) if by_key else (heads,)
    q, k = (unit(normal(*lead, heads_q * d_k), d_k) for _ in range(2))
    v = normal(*lead, heads * d_v)
    state = normal(batch, heads, d_v, d_k) if number % 3 == 2 or number % 2 else None
    if number % 7 == 3 and state is not None:
        q, k, v = np.concatenate([q, k, v], -1), None, None
    else:
        q, k = q.reshape(*lead, heads_q, d_k), k.reshape(*lead, heads_q, d_k)
        v = v.reshape(*lead, heads, d_v)
    starts = np.concatenate([[0], lengths.cumsum()]).astype("i4") if ragged else None
    inputs = [("q", q), ("k", k), ("v", v), ("starts", starts), ("g", decay),
              ("b", np.asarray(random.uniform(0, 1, (*lead, heads)), "f4")
               if "delta" in rule else None), ("state", state),
              ("a", normal(heads) if gates else None), ("dt", normal(*bias) if gates else None)]
    outputs = ["y", "final"]
    if number % 4 == 0:
        attributes["state_update_capacity"] = between(1, 8)
        inputs += [("count", random.integers(-1, 10, batch).astype("i4")),
                   ("active", pick(None, np.array([0], "i4"), np.array([1], "i4")))]
        outputs.append("update")
    case = Case("GatedDeltaNet", inputs, outputs, attributes)
    if len(outputs) < 3:
        return case
    # What lies behind the captured tokens is unspecified; here it is zeros.
    values = [value for _, value in answer(case)[2]]
    given, capacity = dict(inputs), attributes["state_update_capacity"]
    count = np.minimum(np.clip(given["count"], 0, capacity), lengths)
    if given["active"] is not None and not given["active"][0]:
        count[:] = 0
    widths = [heads * (d_k if by_key and decay is not None else 1), heads_q * d_k, heads * d_v]
    at = 0
    for width in widths:
        for b in range(batch):
            values[2][b, at + count[b] * width:at + capacity * width] = 0
        at += capacity * width
    return case._replace(expected=values)


def delta_inputs(**others):
    return list({"q": normal(4, 2, 3), "k": normal(4, 2, 3), "v": normal(4, 2, 5), "cu": None,
                 "g": -abs(normal(4, 2)), "b": normal(4, 2), "s": normal(2, 2, 5, 3), "a": None,
                 "dt": None, "count": None, **others}.items())


def rotary_inputs(**others):
    return list({"x": normal(1, 2, 8), "p": np.zeros((3, 1, 2), "i8"), "c": normal(5, 2),
                 "s": normal(5, 2), **others}.items())


HOSTILE = [  # operator, inputs, attributes, constants, exit code, a word of the message
    ("MRotaryEmbedding", rotary_inputs(), {"mrope_section": [1, 1, 1], "num_heads": 2}, (), 5,
     "mrope_section"),
    ("MRotaryEmbedding", rotary_inputs(), {"mrope_section": [3, -1, 0], "num_heads": 2}, (), 5,
     "mrope_section"),
    ("MRotaryEmbedding", rotary_inputs(), {"mrope_section": [2**63 - 1, 2**63 - 1, 4],
                                           "num_heads": 2}, (), 5, "mrope_section"),
    ("MRotaryEmbedding", rotary_inputs(), {"mrope_section": [2], "num_heads": 2}, (), 5,
     "mrope_section"),
    ("MRotaryEmbedding", rotary_inputs(p=np.full((3, 1, 2), 5)),
     {"mrope_section": [1, 1, 0], "num_heads": 2}, (), 7, "position"),
    ("MRotaryEmbedding", rotary_inputs(p=np.zeros((2, 1, 2), "i8")),
     {"mrope_section": [1, 1, 0], "num_heads": 2}, (), 5, "width"),
    ("GatedRMSNorm", [("x", normal(2, 5)), ("s", normal(2)), ("g", normal(2, 5))], {}, (), 5,
     "multiple"),
    ("GatedRMSNorm", [("x", normal(2, 0)), ("s", normal(0)), ("g", normal(2, 0))], {}, (), 5,
     "multiple"),
    ("GatedRMSNorm", [("x", normal(2, 4)), ("s", normal(2)), ("g", normal(4))], {}, (), 5, "rank"),
    ("GatedAdd", [("x", normal(2, 4)), ("x2", normal(2, 4)), ("g", normal(2, 4))], {}, (), 5,
     "one number"),
    ("GatedAdd", [("x", normal(2, 4)), ("x2", normal(2, 4)), ("g", normal(2, 4)),
                  ("w", normal(3, 1))], {}, (), 5, "gate"),
    ("LinearAttentionGate", [("a", normal(1, 2, 4)), ("d", normal(3)), ("s", normal(4))], {}, (),
     5, "length"),
    ("CausalConvWithState", [("x", normal(1, 2, 3)), ("w", normal(2, 1, 2))], {"ndim": 2}, (), 4,
     "ndim"),
    ("CausalConvWithState", [("x", normal(1, 2, 3)), ("w", normal(2, 1, 2))],
     {"dilation": -2**62}, (), 5, "dilation"),
    ("CausalConvWithState", [("x", normal(1, 2, 3)), ("w", normal(2, 1, 2))],
     {"dilation": 0}, (), 5, "dilation"),
    ("CausalConvWithState", [("x", normal(1, 2, 3)), ("w", normal(2, 1, 2))],
     {"channels_last": 1}, (), 5, "channels"),
    ("CausalConvWithState", [("x", normal(1, 2, 3)), ("w", normal(2, 1, 2)), ("b", None),
                             ("p", normal(1, 2, 1))], {"dilation": 2}, (), 5, "dilation"),
    ("CausalConvWithState", [("x", normal(1, 2, 3)), ("w", normal(2, 1, 2))],
     {"state_window": 9}, (), 5, "state_window"),
    ("VarlenCausalConvWithState", varlen_inputs([0, 2]), {}, (), 7, "cumulative"),
    ("VarlenCausalConvWithState", varlen_inputs([1, 3]), {}, (), 7, "cumulative"),
    ("VarlenCausalConvWithState", varlen_inputs([0, 2**31 - 1, 3], (2, 2, 1)), {}, (), 7,
     "cumulative"),
    ("VarlenCausalConvWithState", varlen_inputs([0, 2, 2, 3], (3, 2, 1)), {}, (), 7,
     "cumulative"),
    ("VarlenCausalConvWithState", varlen_inputs([0, 3], (2, 2, 1)), {}, (), 5, "sequences"),
    ("VarlenCausalConvWithState", varlen_inputs([]), {}, (), 5, "one more than sequences"),
    ("VarlenCausalConvWithState", varlen_inputs([0, 3]), {"dilation": 2}, (), 5, "kernel size"),
    ("VarlenCausalConvWithState", varlen_inputs([0, 3]), {"state_update_capacity": 2}, (), 5,
     "capture_count"),
    ("VarlenCausalConvWithState", varlen_inputs([0, 3]) + [
        ("n", None), ("d", normal(3, 2, 2)), ("m", normal(3, 1))], {}, (), 4, "delta and mask"),
    ("LinearAttention", [("q", normal(1, 2, 8)), ("k", normal(1, 2, 12)), ("v", normal(1, 2, 8))],
     {"q_num_heads": 2, "kv_num_heads": 4, "update_rule": "linear"}, (), 5, "heads"),
    ("LinearAttention", [("q", normal(1, 2, 8)), ("k", normal(1, 2, 16)), ("v", normal(1, 2, 9))],
     {"q_num_heads": 2, "kv_num_heads": 3, "update_rule": "linear"}, (), 5, "multiple"),
    ("GatedDeltaNet", delta_inputs(cu=np.array([0, 5, 4], "i4")), {}, (), 7, "grow"),
    ("GatedDeltaNet", delta_inputs(cu=np.array([0, 1, 3], "i4")), {}, (), 7, "ends with"),
    ("GatedDeltaNet", delta_inputs(cu=np.array([-9, 1, 4], "i4")), {}, (), 7, "grow"),
    ("GatedDeltaNet", delta_inputs(s=None), {}, (), 5, "sequences"),
    ("GatedDeltaNet", delta_inputs(s=normal(3, 2, 5, 3)), {}, (), 5, "equal sequences"),
    ("GatedDeltaNet", delta_inputs(b=None), {}, (), 5, "update rule"),
    ("GatedDeltaNet", delta_inputs(v=normal(4, 3, 5), b=normal(4, 3), g=normal(4, 3),
                                   s=normal(2, 3, 5, 3)), {}, (), 5, "multiple"),
    ("GatedDeltaNet", delta_inputs(), {"gate_activation": "softplus"}, (), 5, "a_log"),
    ("GatedDeltaNet", delta_inputs(k=None, v=None), {}, (), 5, "initial_state"),
    ("GatedDeltaNet", delta_inputs(q=normal(4, 23), k=None, v=None), {}, (), 5, "q_heads"),
    ("GatedDeltaNet", delta_inputs(count=np.zeros(2, "i4")), {}, (), 5, "capture_count"),
]


OF_ANY_SIZE = [  # operator, dims of its inputs, their sizes, a word of the message or None
    ("GatedRMSNorm", [["N", 4], [6], ["N", 4]], "N=3", "multiple of 6"),
    ("GatedRMSNorm", [["N", "C"], [4], ["N", "C"]], "N=4 C=6", "SHAPE"),
    ("GatedRMSNorm", [["N", "C"], [4], ["N", "C"]], "N=4 C=8", None),
    ("GatedRMSNorm", [["N", "M", 8], [4], ["N", "M", 8]], "N=3 M=0", None),
    ("GatedAdd", [["N", "C"], ["N", "C"], ["N", "D"]], "N=4 C=6 D=6", "SHAPE"),
    ("GatedAdd", [["N", "C"], ["N", "C"], ["N", "D"]], "N=4 C=6 D=1", None),
    ("LinearAttentionGate", [["N", "C"], ["C"], ["C"], ["M", "C"]], "N=4 C=6 M=3", "SHAPE"),
]


def check_any_size(op, dims, sizes, word):
    """Where sizes are symbols, what is wrong shows at run: a row of 4 has no parts of 6, although
    3 rows have."""
    outputs = ["y", "z"] if op == "LinearAttentionGate" else ["y"]
    infos = [onnx.helper.make_tensor_value_info(f"x{k}", onnx.TensorProto.FLOAT, shape)
             for k, shape in enumerate(dims)]
    node = onnx.helper.make_node(op, [info.name for info in infos], outputs,
                                 domain="com.microsoft")
    graph = onnx.helper.make_graph([node], "g", infos,
                                   [onnx.ValueInfoProto(name=name) for name in outputs])
    model = onnx.helper.make_model(graph, ir_version=10, opset_imports=[
        onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("com.microsoft", 1)])
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        onnx.save(model, file.name)
        options = [word for size in sizes.split() for word in ("--set", size)]
        run = subprocess.run([sys.argv[1], "run", file.name, *options],
                             capture_output=True, text=True, timeout=60)
    if run.returncode != (5 if word else 0) or (word or "") not in run.stderr:
        sys.exit(f"{op} {dims} {sizes}: exit code {run.returncode}: {run.stderr.strip()[:300]}")


for case in OF_ANY_SIZE:
    check_any_size(*case)
compare(itertools.chain(*(map(case, range(30)) for case in (
    rotary_case, norm_case, add_case, projected_case, gate_case, conv_case,
    varlen_case, window_case, linear_case, delta_case))), HOSTILE)
