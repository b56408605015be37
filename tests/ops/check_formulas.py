"""Operators that are formulas against torch and ONNX's evaluator, both in double: random shapes
and options, in f32, f64 and f16. Usage: check_formulas.py ATTNRUN [SEED]"""
import os
import sys
import tempfile

import numpy as np
import torch
from onnx.reference import ReferenceEvaluator

from cases import check, one_node_model, write_case

SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 17
random = np.random.default_rng(SEED)
# In f16 a result is rounded once: half a step beside what f32 adds.
TOLERANCES = {"f4": "2e-6 3e-6", "f8": "1e-12 1e-13", "f2": "5e-4 3e-6"}
TRAINING = "ai.onnx.preview.training"
ATTRIBUTES = "1e-6 1e-6"  # the evaluator's optimizers compute with their attributes in f32
CANCELLED = "2e-5 2e-5"   # X - mean, where the deviation is a tenth of it
torch.set_default_dtype(torch.float64)


def normal(dtype, *shape):
    return random.standard_normal(shape).astype(dtype)


def some(*values):
    return values[random.integers(len(values))]


def sizes(least, most):
    return [int(random.integers(1, 12)) for _ in range(random.integers(least, most + 1))]


def double(x):
    return torch.from_numpy(x.astype("f8"))


def loss_case(dtype, cross_entropy):
    """Every fourth class or so is ignored; now and then there are many classes. Scores that all are
    large have the loss of their differences, and an infinite one has none."""
    n, rest = int(random.integers(1, 40)), sizes(0, 2)
    classes = some(2, 10, 700)
    scores, weight = normal(dtype, n, classes, *rest), abs(normal(dtype, classes)) + dtype(0.1)
    if cross_entropy and dtype != np.float16:
        scores = np.round(scores, 2) + dtype(some(0, 2**13))
        scores[0, 0] = some(scores[0, 0], dtype(np.inf))
    labels = random.integers(0, classes, (n, *rest)).astype(some("i4", "i8"))
    options = {"reduction": some("none", "sum", "mean")}
    if random.integers(2):
        options["ignore_index"] = some(-1, 0, 1)
        labels[random.random(labels.shape) < 0.25] = options["ignore_index"]
        labels.reshape(-1)[0] = classes - 1 if options["ignore_index"] != classes - 1 else 0
    given = [("x", scores), ("l", labels)] + ([("w", weight)] if random.integers(2) else [])
    name = "cross_entropy" if cross_entropy else "nll_loss"
    wanted = getattr(torch.nn.functional, name)(
        double(scores), torch.from_numpy(labels.astype("i8")),
        weight=double(weight) if len(given) == 3 else None,
        **{"ignore_index": -1 << 40, **options}).numpy()
    outputs = [("loss", wanted)]
    if cross_entropy and random.integers(2):
        outputs.append(("p", torch.log_softmax(double(scores), 1).numpy()))
    op = "SoftmaxCrossEntropyLoss" if cross_entropy else "NegativeLogLikelihoodLoss"
    return op, given, outputs, "", 13, options


def training_case(dtype, op, kinds, attributes):
    shapes = [sizes(0, 3) for _ in range(random.integers(1, 4))]
    given = [("r", np.array(random.random(), "f4")), ("t", np.array(some(0, 1, 50)))]
    for kind in kinds:
        given += [(f"{kind}{i}", abs(normal(dtype, *shape)) if kind == "h" else
                   normal(dtype, *shape)) for i, shape in enumerate(shapes)]
    names = [f"new_{kind}{i}" for kind in kinds.replace("g", "") for i in range(len(shapes))]
    return op, given, names, TRAINING, 17, attributes


def number():
    return float(np.float32(random.random()))


def training_cases(dtype):
    norm = {"norm_coefficient": some(0.0, number())}
    small = {"epsilon": 2.0**-10, **norm}  # the default is no f32
    yield training_case(dtype, "Adagrad", "xgh", {"decay_factor": number(), **small})
    yield training_case(dtype, "Adam", "xgvh", {
        "alpha": number(), "beta": number(), "norm_coefficient_post": some(0.0, number()), **small})
    yield training_case(dtype, "Momentum", "xgv", {
        "alpha": number(), "beta": number(), "mode": some("standard", "nesterov"), **norm})


def norm_cases(dtype):
    x = normal(dtype, *sizes(4, 4)) + dtype(2)
    axes = tuple(int(axis) for axis in random.permutation(4)[:random.integers(1, 4)])
    for options, used in ({}, (0, 2, 3)), ({"axes": axes}, axes):
        if np.prod([x.shape[axis] for axis in used]) < 3:  # y is 1, -1 or noise
            continue
        d = x.astype("f8") - x.mean(used, "f8", keepdims=True)
        y = d / (np.sqrt((d * d).mean(used, keepdims=True)) + 1e-9)
        yield "MeanVarianceNormalization", [("x", x)], [("y", y)], "", 13, options
    x = normal(dtype, *sizes(1, 4))
    x[random.random(x.shape) < 0.3] = 0
    axis, p = int(random.integers(-x.ndim, x.ndim)), int(random.integers(1, 3))
    norm = np.linalg.norm(x.astype("f8"), p, axis, keepdims=True)
    y = np.where(norm == 0, 0, x.astype("f8") / np.where(norm == 0, 1, norm))
    yield "LpNormalization", [("x", x)], [("y", y)], "", 1, {"axis": axis, "p": p}
    x, size = normal(dtype, *sizes(3, 5)), some(1, 3, 5, 1001)  # torch has other even ones
    empty = np.take(x, [], axis=int(random.integers(x.ndim)))
    yield "LRN", [("x", empty)], [("y", empty)], "", 13, {"size": size}
    options = {"size": size, "alpha": some(number(), 8.0), "beta": some(0.75, number()),
               "bias": 1 + some(0.0, 0.25, -0.5)}
    y = torch.nn.functional.local_response_norm(double(x), size, options["alpha"],
                                                options["beta"], options["bias"])
    yield "LRN", [("x", x)], [("y", y.numpy())], "", 13, options
    a, alpha = normal(dtype, *sizes(1, 3)), number()
    b = normal(dtype, *a.shape)
    y = torch.sigmoid(alpha * double(a)) * double(a) * double(b)
    yield "SwiGLU", [("a", a), ("b", b)], [("y", y.numpy())], "", 28, {"alpha": alpha}


def cases(dtype):
    yield loss_case(dtype, False)
    yield loss_case(dtype, True)
    yield from norm_cases(dtype)
    if dtype != np.float16:  # ONNX's optimizers have no f16
        yield from training_cases(dtype)


def expected(model, given, names):
    """ONNX's evaluator on the same numbers in double."""
    inputs = [(name, value.astype("f8") if value.dtype.kind == "f" else value)
              for name, value in given]
    double_model, _ = one_node_model(model[0], inputs, names, domain=model[3], opset=model[4],
                                     **model[5])
    return list(zip(names, ReferenceEvaluator(double_model).run(None, dict(inputs))))


def tolerance_of(op, domain, dtype):
    if domain == TRAINING:
        return ATTRIBUTES
    cancels = op == "MeanVarianceNormalization" and dtype == np.float32
    return CANCELLED if cancels else TOLERANCES[np.dtype(dtype).str[1:]]


def main():
    print("seed", SEED)
    with tempfile.TemporaryDirectory() as folder:
        for dtype in 8 * (np.float32, np.float64, np.float16):
            for case in cases(dtype):
                op, given, outputs, domain, opset, attributes = case
                if isinstance(outputs[0], str):
                    outputs = expected(case, given, outputs)
                outputs = [(name, np.asarray(value).astype(dtype)) for name, value in outputs]
                model, inputs = one_node_model(op, given, [name for name, _ in outputs],
                                               domain=domain, opset=opset, **attributes)
                at = f"{folder}/{op}_{dtype.__name__}_{len(os.listdir(folder))}"
                write_case(at, model, inputs, outputs, tolerance_of(op, domain, dtype))
        check(sys.argv[1], folder)


main()
