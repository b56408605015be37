"""Masks of attention that are a band: constants, and what is computed of sizes alone.

A band is what LocalAttention does without a mask: key j for query i where
-left <= j - i <= right. A mask that is computed (of Range, Shape, comparisons, …) is
evaluated at two lengths, both longer than any number in its computation, so that a window
cannot hide beyond the end; it is a band where both give the same one. A conjunction with a
mask of keys (batch, 1, 1, keys) is a band with a key mask. No torch here.
"""
import numpy
import onnx
import onnx_ir
from onnx import TensorProto, helper

from .naming import DOMAIN, name_of

NEVER = -1e4  # scores of this and less mean "not allowed"
LONGEST = 4096  # a computed mask is not evaluated beyond
OPS = {"Shape", "Range", "Sub", "Add", "Abs", "Neg", "Mul", "Div", "And", "Or", "Not", "Xor",
       "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "Where", "Trilu",
       "Unsqueeze", "Squeeze", "Reshape", "Expand", "Cast", "Concat", "Gather", "Slice",
       "Transpose", "Constant", "ConstantOfShape", "Identity", "Min", "Max", "Flatten",
       "CumSum", "Tile", "EyeLike", "Mod", "Pow", "Size", "GatherND"}


def array_of(value):
    """The constant behind a value, or None."""
    if value is None:
        return None
    tensor = onnx_ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()


def band_of_array(array, is_condition):
    """(left, right), -1 without bound; None for what is no band. `array`: a condition, or
    what is added to scores."""
    if array.ndim < 2 or array.shape[-1] != array.shape[-2] or array.shape[-1] < 2:
        return None
    squares = array.reshape(-1, *array.shape[-2:])
    if not (squares == squares[:1]).all():
        return None
    square = squares[0]
    allowed = square.astype(bool) if is_condition else square == 0
    if not is_condition and not numpy.all(allowed | (square <= NEVER)):
        return None
    if not allowed.any():
        return None
    n = len(square)
    distance = numpy.arange(n)[None, :] - numpy.arange(n)[:, None]
    left, right = int(-distance[allowed].min()), int(distance[allowed].max())
    if left < 0 or right < 0 or not numpy.array_equal(
            allowed, (distance >= -left) & (distance <= right)):
        return None
    return -1 if left == n - 1 else left, -1 if right == n - 1 else right


def _behind(value):
    """Nodes that compute a value of sizes and constants, in order; None where something
    else is read. Shape is a leaf."""
    found, seen, stack = [], set(), [value]
    while stack:
        node = stack.pop().producer()
        if node is None or id(node) in seen:
            continue
        if node.domain not in ("", "ai.onnx") or node.op_type not in OPS or len(seen) > 200:
            return None
        seen.add(id(node))
        found.append(node)
        for operand in node.inputs if node.op_type not in ("Shape", "Size") else ():
            if operand is None:
                continue
            if operand.producer() is None and array_of(operand) is None:
                return None
            stack.append(operand)
    order = {id(node): i for i, node in enumerate(value.producer().graph)}
    return sorted(found, key=lambda node: order[id(node)])


def _sizes(nodes):
    """Names of the sizes that nodes read; None where one is not known by name."""
    names = set()
    for node in nodes:
        if node.op_type in ("Shape", "Size"):
            if node.inputs[0].shape is None:
                return None
            for size in node.inputs[0].shape:
                if isinstance(size, onnx_ir.SymbolicDim):
                    if not (size.value or "").isidentifier():
                        return None
                    names.add(size.value)
    return sorted(names)


def _largest(nodes):
    """The largest number in the computation, of those that can be a distance."""
    best = 0
    for node in nodes:
        arrays = [array_of(x) for x in (*node.inputs, *node.outputs)]
        for array in arrays:
            if array is not None and array.size and array.dtype.kind in "if":
                near = numpy.abs(array[numpy.isfinite(array)])
                near = near[near <= 1e6]
                best = max(best, int(near.max()) if near.size else 0)
    return best


def _shape_array(node, sizes):
    shape = [sizes[s.value] if isinstance(s, onnx_ir.SymbolicDim) else s
             for s in node.inputs[0].shape]
    if node.op_type == "Size":
        return numpy.array(numpy.prod(shape), numpy.int64)
    start, end = (node.attributes.get(k) for k in ("start", "end"))
    return numpy.array(shape[start.value if start else 0:end.value if end else None],
                       numpy.int64)


def _evaluated(value, nodes, sizes, opset):
    """The numbers of a value where sizes have these values."""
    protos, constants, done = [], [], set()
    for node in nodes:
        if node.op_type in ("Shape", "Size"):
            constants.append(onnx.numpy_helper.from_array(_shape_array(node, sizes),
                                                          node.outputs[0].name))
            done.add(node.outputs[0].name)
            continue
        for operand in node.inputs:
            if operand is not None and operand.producer() is None and operand.name not in done:
                done.add(operand.name)
                constants.append(onnx.numpy_helper.from_array(array_of(operand),
                                                              operand.name))
        protos.append(onnx_ir.to_proto(node))
    output = helper.make_value_info(value.name, onnx.TypeProto())
    graph = helper.make_graph(protos, "mask", [], [output], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return onnx.reference.ReferenceEvaluator(model).run([value.name], {})[0]


def band_of(value, is_condition, opset):
    """(left, right) of a mask, or None."""
    array = array_of(value)
    if array is not None:
        return band_of_array(array, is_condition)
    nodes = _behind(value) if value.producer() is not None else None
    names = _sizes(nodes) if nodes else None
    if names is None:
        return None
    length = max(_largest(nodes), 2) + 7
    if length + 30 > LONGEST:
        return None
    bands = []
    for more in (0, 23) if names else (0, 0):
        sizes = {name: length + more + 3 * i for i, name in enumerate(names)}
        if len(names) > 1:  # the first axis of a mask is small, whatever its name
            for name in _outer(value):
                sizes[name] = 2 + bool(more)
        try:
            bands.append(band_of_array(_evaluated(value, nodes, sizes, opset), is_condition))
        except Exception:  # noqa: BLE001 - an operator that the evaluator does not know
            return None
    return bands[0] if bands[0] == bands[1] else None


def _outer(value):
    """Names of sizes that are not of the last two axes."""
    shape = list(value.shape) if value.shape is not None else []
    last = {s.value for s in shape[-2:] if isinstance(s, onnx_ir.SymbolicDim)}
    return {s.value for s in shape[:-2] if isinstance(s, onnx_ir.SymbolicDim)} - last


def _narrower(a, b):
    """The smaller of two bounds, of which -1 is none."""
    return max(a, b) if min(a, b) < 0 else min(a, b)


def split(value, opset, depth=4):
    """(band, value of a key mask or None) of a condition: a band, (batch, 1, 1, keys), or
    And of such; None where it is something else."""
    band = band_of(value, True, opset)
    if band is not None:
        return band, None
    array = array_of(value)
    if array is not None and array.all():
        return (-1, -1), None
    shape = list(value.shape) if value.shape is not None else []
    if len(shape) == 4 and shape[1] == shape[2] == 1:
        return (-1, -1), value
    node = value.producer()
    if node is None or node.op_type != "And" or depth == 0:
        return None
    halves = [split(operand, opset, depth - 1) for operand in node.inputs]
    if None in halves or all(half[1] is not None for half in halves):
        return None
    bounds = tuple(_narrower(a, b) for a, b in zip(halves[0][0], halves[1][0]))
    return bounds, halves[0][1] if halves[0][1] is not None else halves[1][1]


def local_body(attributes, left, right, has_key_mask, opset):
    """LocalAttention over a band as Attention (opset 23 and later) with a mask made of
    sizes. `attributes`: those of the heads and the scale."""
    rank_axis = 1 if attributes.get("q_num_heads") else 2

    def number(name, value):
        return helper.make_node("Constant", [], [name],
                                value=helper.make_tensor("value", TensorProto.INT64, [],
                                                         [value]))

    def make(kind, inputs, output, **given):
        return helper.make_node(kind, inputs.split(), [output], **given)
    nodes = [number("zero", 0), number("one", 1),
             make("Shape", "Q", "tokens", start=rank_axis, end=rank_axis + 1),
             make("Squeeze", "tokens", "n"), make("Range", "zero n one", "keys"),
             helper.make_node("Constant", [], ["behind"], value_ints=[1]),
             make("Unsqueeze", "keys behind", "queries"),
             make("Sub", "keys queries", "distance")]
    sides = []
    for side, kind, bound in (("left", "GreaterOrEqual", -left),
                              ("right", "LessOrEqual", right)):
        if (left if side == "left" else right) >= 0:
            nodes += [number(side, bound), make(kind, f"distance {side}", f"in_{side}")]
            sides.append(f"in_{side}")
    if has_key_mask:
        nodes += [helper.make_node("Constant", [], ["middle"], value_ints=[1, 2]),
                  make("Unsqueeze", "key_mask middle", "in_keys")]
        sides.append("in_keys")
    near = sides[0]
    for i, side in enumerate(sides[1:]):
        nodes.append(make("And", f"{near} {side}", f"near{i}"))
        near = f"near{i}"
    nodes.append(make("Attention", f"Q K V {near}", "Y", **attributes))
    inputs = ["Q", "K", "V"] + (["key_mask"] if has_key_mask else [])
    body = helper.make_function(DOMAIN, "LocalAttention", inputs, ["Y"], nodes,
                                [helper.make_opsetid("", opset)])
    body.name = name_of("LocalAttention", body)
    return body
