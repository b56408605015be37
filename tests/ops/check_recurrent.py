"""RNN, GRU and LSTM against the formulas of ONNX in double: all activations, directions, layouts,
lengths, states, peepholes and clips, in f32 and in f64.
Usage: check_recurrent.py ATTNRUN"""
import sys
import tempfile

import numpy as np

from cases import check, one_node_model, write_case

random = np.random.default_rng(23)
TOLERANCES = {"f4": "2e-5 1e-5", "f8": "1e-12 1e-13"}
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
# Name: alpha and beta where none are given, and the function.
ACTIVATIONS = {
    "Relu": ((), lambda x: np.maximum(x, 0)),
    "Tanh": ((), np.tanh),
    "Sigmoid": ((), lambda x: 1 / (1 + np.exp(-x))),
    "Affine": ((1.0, 0.0), lambda x, a, b: a * x + b),
    "LeakyRelu": ((0.01,), lambda x, a: np.where(x < 0, a * x, x)),
    "ThresholdedRelu": ((1.0,), lambda x, a: np.where(x > a, x, 0)),
    "ScaledTanh": ((1.0, 1.0), lambda x, a, b: a * np.tanh(b * x)),
    "HardSigmoid": ((0.2, 0.5), lambda x, a, b: np.clip(a * x + b, 0, 1)),
    "Elu": ((1.0,), lambda x, a: np.where(x < 0, a * np.expm1(np.minimum(x, 0)), x)),
    "Softsign": ((), lambda x: x / (1 + np.abs(x))),
    "Softplus": ((), lambda x: np.logaddexp(0, x)),
}
NUMBERS = [0.25, 0.5, 0.75]  # exact in f32, as attributes are


def chance(one_in):
    return random.integers(one_in) == 0


def functions_of(op, directions, attributes):
    """For each direction what f, g and h are, with their parameters. alpha and beta are taken from
    the lists in the order of the functions that have one."""
    names = attributes.get("activations", DEFAULTS[op] * directions)
    lists = [list(attributes.get("activation_alpha", [])),
             list(attributes.get("activation_beta", []))]
    made = []
    for name in names:
        defaults, f = ACTIVATIONS[{n.lower(): n for n in ACTIVATIONS}[name.lower()]]
        given = [lists[i].pop(0) if lists[i] else float(np.float32(default))
                 for i, default in enumerate(defaults)]
        made.append(lambda x, f=f, given=given: f(x, *given))
    each = len(DEFAULTS[op])
    return [made[d * each:(d + 1) * each] for d in range(directions)]


def one_step(op, f, x, h, c, w, r, bias, p, attributes):
    """The new h and c of one sequence."""
    limit, n = attributes.get("clip", np.inf), len(h)

    def act(k, v):
        return f[k](np.clip(v, -limit, limit))
    wx, wb, rb = w @ x, bias[:len(w)], bias[len(w):]
    if op == "RNN":
        return act(0, wx + r @ h + wb + rb), c
    if op == "GRU":
        z, reset = (act(0, (wx + r @ h + wb + rb)[k * n:(k + 1) * n]) for k in (0, 1))
        last = slice(2 * n, 3 * n)
        if attributes.get("linear_before_reset"):
            fresh = act(1, wx[last] + wb[last] + reset * (r[last] @ h + rb[last]))
        else:
            fresh = act(1, wx[last] + wb[last] + r[last] @ (reset * h) + rb[last])
        return (1 - z) * fresh + z * h, c
    i, o, forget, fresh = np.split(wx + r @ h + wb + rb, 4)
    i = act(0, i + p[:n] * c)
    forget = 1 - i if attributes.get("input_forget") else act(0, forget + p[2 * n:] * c)
    c = forget * c + i * act(1, fresh)
    return act(0, o + p[n:2 * n] * c) * f[2](c), c


def evaluate(op, given, attributes):
    """Y, Y_h and Y_c with time first."""
    x, w, r = (given[name].astype("f8") for name in "XWR")
    steps, batch, _ = x.shape
    directions, _, hidden = r.shape
    f = functions_of(op, directions, attributes)
    y = np.zeros((steps, directions, batch, hidden))
    y_h, y_c = (np.zeros((directions, batch, hidden)) if given[name] is None else
                given[name].astype("f8") for name in ("h0", "c0"))
    for d in range(directions):
        backward = d == 1 or attributes.get("direction") == "reverse"
        bias = np.zeros(2 * w.shape[1]) if given["B"] is None else given["B"][d].astype("f8")
        p = np.zeros(3 * hidden) if given["P"] is None else given["P"][d].astype("f8")
        for b in range(batch):
            length = steps if given["n"] is None else int(given["n"][b])
            for t in range(length):
                at = length - 1 - t if backward else t
                y_h[d, b], y_c[d, b] = one_step(op, f[d], x[at, b], y_h[d, b], y_c[d, b], w[d],
                                                r[d], bias, p, attributes)
                y[at, d, b] = y_h[d, b]
    return y, y_h, y_c


def draw(op, dtype):
    steps, batch, inputs, hidden = (int(random.integers(1, high)) for high in (7, 12, 9, 20))
    direction = str(random.choice(["forward", "reverse", "bidirectional"]))
    directions, gates = 1 + (direction == "bidirectional"), GATES[op]

    def normal(*shape):
        return (random.standard_normal(shape) / 2).astype(dtype)
    given = {"X": normal(steps, batch, inputs), "W": normal(directions, gates * hidden, inputs),
             "R": normal(directions, gates * hidden, hidden),
             "B": None if chance(3) else normal(directions, 2 * gates * hidden),
             "n": random.integers(1, steps + 1, batch).astype("i4") if chance(3) else None,
             "h0": normal(directions, batch, hidden) if chance(2) else None,
             "c0": normal(directions, batch, hidden) if op == "LSTM" and chance(2) else None,
             "P": normal(directions, 3 * hidden) if op == "LSTM" and chance(2) else None}
    attributes = {"hidden_size": hidden, "direction": direction}
    if op == "GRU" and chance(2):
        attributes["linear_before_reset"] = 1
    if op == "LSTM" and chance(4):
        attributes["input_forget"] = 1
    if not chance(4):
        names = [str(n) for n in random.choice(list(ACTIVATIONS), directions * len(DEFAULTS[op]))]
        attributes["activations"] = [n.upper() if chance(4) else n for n in names]
        for k, name in enumerate(("activation_alpha", "activation_beta")):
            wanted = sum(len(ACTIVATIONS[n][0]) > k for n in names)
            if chance(2) and wanted:
                attributes[name] = [float(random.choice(NUMBERS)) for _ in range(wanted)]
    # Rounding errors of f32 grow in functions without a bound.
    if chance(4) or (dtype == "f4" and "activations" in attributes):
        attributes["clip"] = 0.75
    return given, attributes


def make(op, dtype):
    given, attributes = draw(op, dtype)
    y, y_h, y_c = evaluate(op, given, attributes)
    if chance(3):
        attributes["layout"] = 1
        for name in ("X", "h0", "c0"):
            if given[name] is not None:
                given[name] = np.ascontiguousarray(given[name].swapaxes(0, 1))
        y, y_h, y_c = y.transpose(2, 0, 1, 3), y_h.swapaxes(0, 1), y_c.swapaxes(0, 1)
    values = [("Y", y), ("Y_h", y_h)] + ([("Y_c", y_c)] if op == "LSTM" else [])
    if op != "LSTM":
        given = {name: given[name] for name in ("X", "W", "R", "B", "n", "h0")}
    constants = ("W", "R", "B", "P") if chance(2) else ()
    model, inputs = one_node_model(op, list(given.items()), [name for name, _ in values],
                                   constants=constants, opset=14, **attributes)
    return model, inputs, [(name, np.ascontiguousarray(v.astype(dtype))) for name, v in values]


def main():
    with tempfile.TemporaryDirectory() as folder:
        for number in range(180):
            op, dtype = list(GATES)[number % 3], "f4" if number % 2 else "f8"
            write_case(f"{folder}/{number:03}_{op}_{dtype}", *make(op, dtype), TOLERANCES[dtype])
        check(sys.argv[1], folder)


main()
