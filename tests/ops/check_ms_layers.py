"""com.microsoft operators on bytes that are whole layers (DynamicQuantizeLSTM,
QEmbedLayerNormalization) against ONNX Runtime
1.32.0: random shapes, options and quantised weights; and what must be refused.
Usage: check_ms_layers.py ATTNRUN [SEED]"""
import itertools

import numpy as np

from exact_bytes import exact_weights
from ms import Case, answer, any_bytes, between, compare, normal, pick, random

# Bounded ones, whose errors do not grow from step to step; the last one of three may be any.
BOUNDED = ("Sigmoid", "Tanh", "HardSigmoid", "Softsign")


def quantized_weights(kind, number, directions, rows, columns):
    """Bytes, scales and zero points as ONNX Runtime's quantiser writes them: by column with
    one zero point for all, or by direction."""
    by_column = number % 3 == 0
    some = (directions, columns) if by_column else (directions,)
    scale = np.asarray(random.uniform(0.002, 0.006, some), "f4")
    if not by_column:
        zero = any_bytes(*some)
        zero = np.where(zero < 100, zero, 128).astype("u1").view(kind)
    elif kind == "u1":
        zero = np.full(some, between(100, 150), kind)
    else:
        zero = np.zeros(some, kind)
    return exact_weights(any_bytes(directions, rows, columns, kind=kind)), scale, zero


def lstm_case(number, batch):
    direction = ("forward", "reverse", "bidirectional")[number % 3]
    d = 2 if number % 3 == 2 else 1
    t, i, h = between(1, 7), between(2, 40), pick(between(1, 40), 150)
    kind = pick("u1", "i1")
    w, w_scale, w_zero = quantized_weights(kind, between(0, 2), d, i, 4 * h)
    r, r_scale, r_zero = quantized_weights(kind, between(0, 2), d, h, 4 * h)
    lengths = random.integers(1, t + 1, batch).astype("i4") if number % 4 == 0 else None
    attributes = {"hidden_size": h, "direction": direction}
    if number % 5 == 1:
        attributes["clip"] = 0.7
    if number % 5 == 2:
        attributes["input_forget"] = 1
    if number % 5 == 3:
        attributes["activations"] = d * [pick(*BOUNDED), pick(*BOUNDED),
                                         pick(*BOUNDED, "Relu", "LeakyRelu")]
    size = 0.3 if number % 5 == 3 else 1
    x = np.clip(normal(t, batch, i) * pick(0.1, 1), -2, 2)
    x[0, :, :2] = -2, 2
    state = number % 4 > 1
    inputs = [("x", x), ("w", w), ("r", r),
              ("b", 0.3 * normal(d, 8 * h) if number % 2 else None), ("lengths", lengths),
              ("h0", size * normal(d, batch, h) if state else None),
              ("c0", size * normal(d, batch, h) if state else None),
              ("p", 0.3 * normal(d, 3 * h) if number % 7 == 3 else None),
              ("ws", w_scale), ("wz", w_zero), ("rs", r_scale), ("rz", r_zero)]
    constants = ("w", "r", "ws", "wz", "rs", "rz") if number % 6 else ()
    # A byte that is rounded otherwise moves a gate by about a scale of its weights.
    return Case("DynamicQuantizeLSTM", inputs, ["y", "yh", "yc"], attributes, constants,
                tolerance="1e-2 5e-3")


def of_sequence(inputs, b):
    """The inputs of one sequence of the batch."""
    axes = {"x": 1, "lengths": 0, "h0": 1, "c0": 1}
    return [(name, value if name not in axes or value is None else
             np.take(value, [b], axes[name])) for name, value in inputs]


def lstm_cases():
    for number in range(45):
        yield lstm_case(number, 1)
    # Of several sequences: ONNX Runtime quantises the states of all by one range, which depends
    # on its threads, and here each has its own. So it gets them one by one; all have the range
    # of x that the batch has.
    for number in range(16):
        batch = between(2, 20)
        case = lstm_case(number, batch)
        apart = [answer(case._replace(inputs=of_sequence(case.inputs, b)))[2]
                 for b in range(batch)]
        yield case._replace(expected=[
            np.concatenate([values[i][1] for values in apart], axis)
            for i, axis in enumerate((2, 1, 1))])


def embed_case(number):
    kind, hidden = pick("u1", "i1"), between(1, 70)
    batch, tokens = between(1, 4), between(1, 9)
    segments = number % 3 > 0

    def ids(rows):
        return random.integers(0, rows, (batch, tokens)).astype("i4")

    mask = random.integers(0, 2, (batch, tokens)).astype("i4") if number % 4 else None
    tables = [any_bytes(9, hidden, kind=kind), any_bytes(tokens + 2, hidden, kind=kind),
              any_bytes(2, hidden, kind=kind) if segments else None,
              any_bytes(hidden, kind=kind), any_bytes(hidden, kind=kind)]
    names = ("word", "position", "segment", "gamma", "beta")
    inputs = [("ids", ids(9)), ("segments", ids(2) if segments else None), *zip(names, tables),
              ("mask", mask)]
    inputs += [(f"{name}_scale", None if table is None else
                np.asarray(random.uniform(0.01, 0.1), "f4")) for name, table in zip(names, tables)]
    inputs += [(f"{name}_zero", None if table is None else any_bytes(kind=kind))
               for name, table in zip(names, tables)]
    known = [name for name, _ in inputs[2:7] + inputs[8:]] if number % 2 else ()
    return Case("QEmbedLayerNormalization", inputs, ["y", "index"],
                {"epsilon": pick(1e-12, 0.1)}, known)


def embed_inputs(**others):
    return list({**dict(embed_case(1).inputs), **others}.items())


def lstm_inputs(**others):
    given = {"x": normal(2, 1, 3), "w": any_bytes(1, 3, 8), "r": any_bytes(1, 2, 8), "b": None,
             "lengths": None, "h0": None, "c0": None, "p": None,
             "ws": normal(1), "wz": any_bytes(1), "rs": normal(1), "rz": any_bytes(1)}
    return list({**given, **others}.items())


HOSTILE = [  # operator, inputs, attributes, constants, exit code, a word of the message
    ("DynamicQuantizeLSTM", lstm_inputs(w=any_bytes(1, 4, 8)), {"hidden_size": 2}, (), 5,
     "inputs"),
    ("DynamicQuantizeLSTM", lstm_inputs(), {"hidden_size": 3}, (), 5, "hidden_size"),
    ("DynamicQuantizeLSTM", lstm_inputs(ws=normal(1, 2)), {"hidden_size": 2}, (), 5,
     "gates times hidden size"),
    ("DynamicQuantizeLSTM", lstm_inputs(rz=any_bytes(2)), {"hidden_size": 2}, ("r",), 5,
     "directions"),
    ("DynamicQuantizeLSTM", lstm_inputs(wz=any_bytes()), {"hidden_size": 2}, (), 5, "rank"),
    ("DynamicQuantizeLSTM", lstm_inputs(lengths=np.array([3], "i4")), {"hidden_size": 2}, (), 7,
     "sequence_lens"),
    ("DynamicQuantizeLSTM", lstm_inputs(r=any_bytes(1, 2, 7)), {"hidden_size": 2}, ("w", "r"), 5,
     "gates times hidden size"),
    ("QEmbedLayerNormalization", embed_inputs(ids=np.full((2, 3), 9, "i4"), mask=None,
                                              segments=np.zeros((2, 3), "i4")), {}, (), 7, "row"),
    ("QEmbedLayerNormalization", embed_inputs(segment_scale=None), {}, (), 5, "go together"),
    ("QEmbedLayerNormalization", embed_inputs(gamma_zero=None), {}, (), 3, "gamma_zero"),
    ("QEmbedLayerNormalization", embed_inputs(beta_scale=normal(2)), {}, (), 5, "one number"),
]

compare(itertools.chain(lstm_cases(), map(embed_case, range(24))), HOSTILE)
