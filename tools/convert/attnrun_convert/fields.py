"""Tensors whose elements are followed symbolically, and constants as such tensors.

In: values and arrays of an ONNX graph. Out: a Field, its shape in sizes and its element as a
function of the indices. A constant goes in with all of its elements: it must be constant, or
linear, or in at most PIECES intervals, along one axis or along the diagonals. No torch here.
"""
import ast
from dataclasses import dataclass

import numpy
import onnx_ir

from .linear import Cell, Linear, Unproved, everywhere, moved, symbol

PIECES = 64


def array_of(value):
    """The constant behind a value, or None."""
    if value is None:
        return None
    tensor = onnx_ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()


def size_of(dim):
    """A size of a shape: an int, or Linear in names."""
    if not isinstance(dim, onnx_ir.SymbolicDim):
        return int(dim)
    if dim.value is None:
        raise Unproved("a size that it reads has no name")

    def walk(node):
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)):
            a, b = walk(node.left), walk(node.right)
            return a + b if isinstance(node.op, ast.Add) else (
                a - b if isinstance(node.op, ast.Sub) else a * b)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -walk(node.operand)
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name):
            return symbol(node.id)
        raise ValueError(node)
    try:
        return walk(ast.parse(dim.value, mode="eval").body)
    except (ValueError, SyntaxError, Unproved):
        return symbol(dim.value)  # equal texts are equal sizes


@dataclass
class Field:
    """`shape`: ints and Linear; `cell`: the element at indices rank … 1, from the left."""
    shape: tuple
    cell: Cell

    def __post_init__(self):
        flat = {axis: 0 for axis, size in self.dims().items() if size == 1}
        if flat:
            self.cell = moved(self.cell, flat)

    def dims(self):
        rank = len(self.shape)
        return {rank - i: size for i, size in enumerate(self.shape)}


def plain(x):
    """A number of an array as bool, int or float of Python."""
    return x.item() if hasattr(x, "item") else x


def _runs(numbers, form, first):
    """The cell of numbers along a form, the first at `first`."""
    numbers = [plain(x) for x in numbers]
    last = first + len(numbers) - 1
    steps = {b - a for a, b in zip(numbers, numbers[1:])} if not isinstance(
        numbers[0], bool) and numpy.isfinite(numbers).all() else set()
    if len(steps) == 1 and (step := steps.pop()) and float(step).is_integer():
        value = sum((symbol(s) * (c * int(step)) for s, c in form),
                    numbers[0] - first * int(step))
        return everywhere(value)  # beyond its end the model does not run
    starts = [0] + [i for i in range(1, len(numbers)) if numbers[i] != numbers[i - 1]]
    if len(starts) > PIECES:
        raise Unproved(f"a constant in it changes more than {PIECES} times")
    ends = starts[1:] + [len(numbers)]
    return Cell(form, [(first + a, first + b - 1, numbers[a])
                       for a, b in zip(starts, ends)])


def lifted(array):
    """A constant as a Field; all of its elements are looked at."""
    array = numpy.asarray(array)
    if array.size == 0 or array.dtype.kind not in "bifu" and array.dtype.name != "bfloat16":
        raise Unproved("it holds a constant without numbers")
    if array.dtype.name in ("bfloat16", "float16"):
        array = array.astype(numpy.float32)
    if array.dtype.kind == "f" and numpy.isnan(array).any():
        raise Unproved("a constant in it holds NaN")
    core, axes = array, []
    for axis in range(array.ndim):
        first = core.take([0], axis)
        if (core == first).all():
            core = first
        else:
            axes.append(axis)
    core = core.reshape([array.shape[axis] for axis in axes])
    places = [array.ndim - axis for axis in axes]
    if not axes:
        return Field(array.shape, everywhere(plain(core)))
    if len(axes) == 1:
        return Field(array.shape, _runs(core, ((places[0], 1),), 0))
    if len(axes) > 2:
        raise Unproved("a constant in it differs from head to head or sample to sample")
    if not (core[1:, 1:] == core[:-1, :-1]).all():
        raise Unproved(f"a constant {list(array.shape)} in it depends on more than the "
                       "distance of query and key")
    rows, _ = core.shape
    along = numpy.concatenate([core[::-1, 0], core[0, 1:]])
    row, column = places
    return Field(array.shape, _runs(along, ((column, 1), (row, -1)), 1 - rows))


def field_of(x):
    """A Field of what `Follower.value` gives."""
    if isinstance(x, Field):
        return x
    if x.size == 1:
        return Field((1,) * x.ndim, everywhere(x.reshape(-1)[0]))
    if any(isinstance(element, Linear) for element in x.flat):
        raise Unproved("a list of sizes is used as a table")
    return lifted(numpy.array(x.tolist()))


def broadcast(*shapes):
    rank = max(map(len, shapes))
    found = []
    for sizes in zip(*[(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]):
        longer = {size for size in sizes if size != 1}
        if len(longer) > 1:
            raise Unproved("sizes in it are not known to be equal")
        found.append(longer.pop() if longer else 1)
    return tuple(found)


def reads_data(value):
    """The name of an input of the model whose elements a value depends on, or None."""
    seen, stack = set(), [value]
    while stack:
        value = stack.pop()
        node = value.producer()
        if id(value) in seen or array_of(value) is not None:
            continue
        seen.add(id(value))
        if node is None:
            return value.name
        if node.op_type not in ("Shape", "Size"):
            stack += [x for x in node.inputs if x is not None]
    return None
