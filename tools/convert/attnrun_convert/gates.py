"""CBAM as it stands in most code: two gates that a model's forward multiplies by itself.

    v = x * sigmoid(W2 relu(W1 mean(x)) + W2 relu(W1 max(x)))     over the pixels
    y = v * sigmoid(conv_KxK(mean(v), max(v)))                    over the channels

In: the exported graph, whatever the classes are called, and the calls recorded so far. Out:
one attnrun::CBAM in place of the last product, and its call, of which the body is made. The
weights are the same initializers in both branches; anything else stays as it is.
"""
import numpy
import onnx_ir
import torch

from . import operators
from .call import CALL_KEY, Call
from .fields import array_of
from .naming import DOMAIN

TYPES = {onnx_ir.DataType.FLOAT: torch.float32, onnx_ir.DataType.FLOAT16: torch.float16}
PIXELS, CHANNELS = (2, 3), (1,)
POOLS = {"ReduceMean": "mean", "ReduceMax": "max", "GlobalAveragePool": "mean",
         "GlobalMaxPool": "max"}


def _made_by(value, *kinds):
    node = value.producer() if value is not None else None
    return node if node is not None and node.domain == "" and node.op_type in kinds else None


def _pool(value, axes):
    """("mean" or "max", what is pooled), or None."""
    node = _made_by(value, *POOLS)
    if node is None:
        return None
    over = PIXELS
    if node.op_type.startswith("Reduce"):
        given = array_of(node.inputs[1]) if len(node.inputs) > 1 else None
        keep = node.attributes.get("keepdims")
        if given is None or keep is not None and keep.value != 1:
            return None
        over = tuple(sorted(int(axis) % 4 for axis in given))
    return (POOLS[node.op_type], node.inputs[0]) if over == axes else None


def _attribute(node, name, default):
    found = node.attributes.get(name)
    return list(found.value) if found is not None else default


def _conv(value):
    """(what goes in, weight, bias) of a square convolution that keeps the size, or None."""
    node = _made_by(value, "Conv")
    if node is None or array_of(node.inputs[1]) is None:
        return None
    weight = node.inputs[1]
    size = list(weight.shape)[2:]
    group = node.attributes.get("group")
    auto = node.attributes.get("auto_pad")
    plain = (len(size) == 2 and size[0] == size[1] and size[0] % 2 == 1
             and (group is None or group.value == 1)
             and (auto is None or auto.value == "NOTSET")
             and _attribute(node, "strides", [1, 1]) == [1, 1]
             and _attribute(node, "dilations", [1, 1]) == [1, 1]
             and _attribute(node, "pads", [0] * 4) == [size[0] // 2] * 4)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if not plain or bias is not None and array_of(bias) is None:
        return None
    return node.inputs[0], weight, bias


def _branch(value):
    """(pool, x, layers) of one branch of the gate of channels, or None."""
    second = _conv(value)
    relu = _made_by(second[0], "Relu") if second else None
    first = _conv(relu.inputs[0]) if relu is not None else None
    pool = _pool(first[0], PIXELS) if first else None
    if pool is None or list(first[1].shape)[2:] != [1, 1] or list(
            second[1].shape)[2:] != [1, 1]:
        return None
    return pool[0], pool[1], (*first[1:], *second[1:])


def _gated(node):
    """[(x, gate before its Sigmoid)] of a product, for both orders."""
    for gate, x in (node.inputs, reversed(node.inputs)):
        sigmoid = _made_by(gate, "Sigmoid")
        if sigmoid is not None:
            yield x, sigmoid.inputs[0]


def _by_channel(node):
    """(x, (w1, b1, w2, b2)) of a product with the gate of channels, or None."""
    for x, gate in _gated(node):
        total = _made_by(gate, "Add")
        branches = [_branch(value) for value in total.inputs] if total is not None else [None]
        if None not in branches and {b[0] for b in branches} == {"mean", "max"} and all(
                b[1] is x and all(p is q for p, q in zip(b[2], branches[0][2]))
                for b in branches):
            return x, branches[0][2]
    return None


def _by_pixel(node):
    """(v, weight, bias, whether the mean comes first), or None."""
    for v, gate in _gated(node):
        conv = _conv(gate)
        planes = _made_by(conv[0], "Concat") if conv else None
        if planes is None or planes.attributes["axis"].value not in (1, -3):
            continue
        pools = [_pool(value, CHANNELS) for value in planes.inputs]
        if len(pools) == 2 and None not in pools and all(p[1] is v for p in pools) and {
                p[0] for p in pools} == {"mean", "max"}:
            return v, *conv[1:], pools[0][0] == "mean"
    return None


def _weight(graph, name, array):
    value = onnx_ir.Value(name=name, const_value=onnx_ir.tensor(array, name=name))
    value.dtype, value.shape = value.const_value.dtype, value.const_value.shape
    return graph.initializers.setdefault(name, value)


def _operands(graph, x, layers, pixel):
    """x, w1, b1, w2, b2, ws, bs as the operator has them."""
    w1, b1, w2, b2 = layers
    weight, bias, mean_first = pixel
    planes = array_of(weight)
    planes = numpy.ascontiguousarray(planes[:, ::-1]) if mean_first else planes
    matrices = [_weight(graph, f"{w.name}.matrix", array_of(w).reshape(w.shape[:2]))
                for w in (w1, w2)]
    planes = _weight(graph, f"{weight.name}.planes", planes)
    return [x, matrices[0], b1, matrices[1], b2, planes, bias]


def _call(operands):
    """The record of a call, with made-up sizes where they are free."""
    sizes, dynamic = [], []
    for value in operands:
        shape = [] if value is None else list(value.shape)
        free = tuple(i for i, n in enumerate(shape) if isinstance(n, onnx_ir.SymbolicDim))
        sizes.append(None if value is None else tuple(
            (2, 0, 16, 18)[i] if i in free else int(n) for i, n in enumerate(shape)))
        dynamic.append(free)
    operator = operators.load()["CBAM"]
    return Call(operator, operator.attributes_of({"pools": ["avg", "max"]}), tuple(sizes),
                tuple(None if v is None else TYPES[v.dtype] for v in operands),
                tuple(dynamic), 1)


def replace_all(model, calls, say):
    """Puts the operators in place; {name of the product: operator}."""
    done = {}
    for node in [n for n in model.graph if n.op_type == "Mul"]:
        pixel = _by_pixel(node)
        inner = _made_by(pixel[0], "Mul") if pixel else None
        channel = _by_channel(inner) if inner is not None else None
        if channel is None:
            continue
        x, layers = channel
        if x.dtype not in TYPES or x.shape is None or len(x.shape) != 4 or not isinstance(
                x.shape[1], int):
            continue
        operands = _operands(model.graph, x, layers, pixel[1:])
        calls.append(_call(operands))
        given = {k: v for k, v in calls[-1].attributes.items() if v is not None}
        while operands[-1] is None:
            operands.pop()
        made = onnx_ir.node("CBAM", operands, given, domain=DOMAIN, version=1,
                            name=node.name)
        made.metadata_props[CALL_KEY] = str(len(calls) - 1)
        old, new = node.outputs[0], made.outputs[0]
        new.dtype, new.shape = old.dtype, old.shape
        onnx_ir.convenience.replace_nodes_and_values(model.graph, node, [node], [made],
                                                     [old], [new])
        done[made.name] = "CBAM"
        say(f"{made.name} (gates of channels and pixels): CBAM")
    return done
