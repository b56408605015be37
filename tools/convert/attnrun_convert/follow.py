"""Values of an ONNX graph that depend on sizes and constants alone, followed symbolically.

In: a value (onnx_ir). Out: a Field, its shape in sizes and its element as a function of the
indices, for every length; or Unproved with the reason. A constant goes in with all of its
elements: it must be regular over its full extent (constant, or linear, or in at most PIECES
intervals, along one axis or along the diagonals). Where the model cuts a constant to a
length, that length is at most the constant's: beyond it the model itself fails, as its
mask and its scores then differ in shape. No torch here.
"""
import numpy
from onnx_ir import DataType

from .fields import Field, array_of, broadcast, field_of, lifted, plain, size_of
from .linear import (INFINITE, Linear, Unproved, along, combined, compared, everywhere, moved,
                     never_negative, substituted, symbol)

SMALL = 64  # elements of an array of rank 0 or 1 that may be a shape
EXACT = {DataType.BOOL, DataType.INT32, DataType.INT64, DataType.FLOAT, DataType.DOUBLE}
SHORT = {DataType.FLOAT16, DataType.BFLOAT16}
TO_THE_END = 1 << 31


def _rounded(value, dtype):
    """What a tensor of this type holds."""
    if dtype is None or isinstance(value, Linear) or isinstance(value, bool):
        if isinstance(value, Linear) and dtype not in EXACT:
            raise Unproved(f"positions in it are of type {dtype}")
        return value
    with numpy.errstate(over="ignore"):
        return plain(numpy.asarray(value).astype(dtype.numpy()).astype(
            numpy.float32 if dtype in SHORT else dtype.numpy()))


def _number(function):
    """Of constants alone."""
    def checked(*values):
        if any(isinstance(v, Linear) for v in values):
            raise Unproved("a position or size goes through an operator that is not followed")
        with numpy.errstate(all="ignore"):
            return plain(function(*[numpy.asarray(v) for v in values]))
    return checked


def _product(a, b):
    return 0 if isinstance(a, Linear) and b == 0 or isinstance(b, Linear) and a == 0 else a * b


def _divided(a, b):
    if isinstance(a, Linear) and not isinstance(b, Linear) and b and all(
            c % b == 0 for c in (*a.terms.values(), a.constant)):
        return sum((symbol(s) * int(c // b) for s, c in a.terms.items()),
                   int(a.constant // b))
    if isinstance(a, Linear) or isinstance(b, Linear) or not b:
        raise Unproved("a position or size is divided")
    if isinstance(a, float) or isinstance(b, float):
        return a / b
    return int(numpy.trunc(a / b))


def _truth(values):
    for v in values:
        if not isinstance(v, bool):
            raise Unproved("a condition in it is not a Boolean value")


def _logic(function):
    def checked(*values):
        _truth(values)
        return function(*values)
    return checked


POINTWISE = {
    "Add": lambda a, b: a + b, "Sub": lambda a, b: a - b, "Mul": _product, "Div": _divided,
    "Neg": lambda a: -a, "Identity": lambda a: a, "Pow": _number(numpy.power),
    "Mod": _number(numpy.mod), "And": _logic(lambda a, b: a and b),
    "Or": _logic(lambda a, b: a or b), "Xor": _logic(lambda a, b: a != b),
    "Not": _logic(lambda a: not a)}
# operator: (kind, whether the operands change places, whether the result is negated)
COMPARES = {"LessOrEqual": ("<=", False, False), "GreaterOrEqual": ("<=", True, False),
            "Greater": ("<=", False, True), "Less": ("<=", True, True),
            "Equal": ("==", False, False)}


def _attribute(node, name, default=None):
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.value


def _chosen(condition, yes, no):
    def pick(c, a, b):
        _truth([c])
        return a if c else b
    return combined(pick, condition, yes, no)


def _compared_fields(kind, a, b):
    shape = broadcast(a.shape, b.shape)
    dims = Field(shape, everywhere(0)).dims()
    return Field(shape, compared(kind, a.cell, b.cell, dims))


def _flipped(field):
    return Field(field.shape, combined(_logic(lambda a: not a), field.cell))


def _picked(condition, yes, no):
    return Field(broadcast(condition.shape, yes.shape, no.shape),
                 _chosen(condition.cell, yes.cell, no.cell))


def _is_list(*values):
    """Whether operands are small arrays, of which results stay arrays."""
    return all(isinstance(v, numpy.ndarray) for v in values)


def _listed(field):
    """A Field of one value per element of a small known shape, as an array."""
    if len(field.shape) > 1 or any(isinstance(size, Linear) for size in field.shape):
        return None
    count = field.shape[0] if field.shape else 1
    if count > SMALL:
        return None
    found = numpy.empty(count, object)
    for i in range(count):
        found[i] = moved(field.cell, {1: i}).value
    return found.reshape(field.shape)


class Follower:
    """Follows values of one graph; results are kept."""

    def __init__(self):
        self.known = {}

    def field(self, value):
        return field_of(self.value(value))

    def numbers(self, value):
        """A list of ints and Linear, of a shape or of axes."""
        found = self.value(value)
        if isinstance(found, Field):
            found = _listed(found)
            if found is None:
                raise Unproved("a shape in it is not a list of sizes")
        return [x if isinstance(x, Linear) else int(x) for x in found.reshape(-1)]

    def value(self, value):
        """A Field, or an array of objects: numbers and Linear."""
        stack = [value]
        while stack:
            top = stack[-1]
            if id(top) in self.known:
                stack.pop()
                continue
            waiting = [x for x in self._operands(top) if id(x) not in self.known]
            if waiting:
                stack += waiting
                continue
            self.known[id(top)] = (self._computed(top), top)
            stack.pop()
        return self.known[id(value)][0]

    def _operands(self, value):
        node = value.producer()
        if array_of(value) is not None or node is None or node.op_type in ("Shape", "Size"):
            return []
        if len(self.known) > 2000:
            raise Unproved("it is computed in too many steps")
        return [x for x in node.inputs if x is not None]

    def _computed(self, value):
        array = array_of(value)
        if array is not None:
            if array.ndim <= 1 and array.size <= SMALL and array.dtype.kind in "bifu":
                found = numpy.empty(array.shape, object)
                found.reshape(-1)[:] = [plain(x) for x in array.reshape(-1)]
                return found
            return lifted(array)
        node = value.producer()
        if node is None:
            raise Unproved(f"it depends on the input '{value.name}'")
        if node.domain not in ("", "ai.onnx") or value is not node.outputs[0]:
            raise Unproved(f"{node.op_type} in it is not followed")
        made = self._of_node(node)
        return self._typed(made, value.dtype)

    def _typed(self, made, dtype):
        if isinstance(made, Field):
            return Field(made.shape, combined(lambda v: _rounded(v, dtype), made.cell))
        found = numpy.empty(made.shape, object)
        found.reshape(-1)[:] = [_rounded(x, dtype) for x in made.reshape(-1)]
        return found

    def _of_node(self, node):
        kind = node.op_type
        operands = [None if x is None else self.known[id(x)][0] for x in node.inputs] \
            if kind not in ("Shape", "Size") else []
        if kind in POINTWISE:
            return self._pointwise(POINTWISE[kind], operands)
        if kind in COMPARES:
            return self._compare(kind, operands)
        function = getattr(self, "_" + kind.lower(), None)
        if function is None:
            raise Unproved(f"{kind} in it is not followed")
        return function(node, *operands)

    def _pointwise(self, function, operands):
        if _is_list(*operands):
            try:
                return numpy.asarray(numpy.frompyfunc(function, len(operands), 1)(*operands),
                                     object)
            except ValueError as error:
                raise Unproved("sizes in it do not fit") from error
        fields = [field_of(x) for x in operands]
        return Field(broadcast(*[f.shape for f in fields]),
                     combined(function, *[f.cell for f in fields]))

    def _compare(self, kind, operands):
        kind, swapped, negated = COMPARES[kind]
        a, b = operands[::-1] if swapped else operands
        if _is_list(a, b):
            def single(x, y):
                truth = compared(kind, everywhere(x), everywhere(y), {}).value
                return not truth if negated else truth
            return numpy.asarray(numpy.frompyfunc(single, 2, 1)(a, b), object)
        found = _compared_fields(kind, field_of(a), field_of(b))
        return _flipped(found) if negated else found

    # Sizes

    def _shape(self, node):
        shape = node.inputs[0].shape
        if shape is None:
            raise Unproved("a size that it reads is not known")
        dims = list(shape)[_attribute(node, "start", 0):_attribute(node, "end", None)]
        found = numpy.empty(len(dims), object)
        found[:] = [size_of(dim) for dim in dims]
        return found

    def _size(self, node):
        total = numpy.empty((), object)
        total[()] = 1
        for size in self._shape(node):
            total[()] = _product(total[()], size)
        return total

    def _range(self, node, start, limit, delta):
        start, limit, delta = (x.reshape(-1)[0] for x in (start, limit, delta))
        if delta != 1:
            raise Unproved("a Range in it has a step other than one")
        return Field((limit - start,), everywhere(symbol(1) + start))

    def _constantofshape(self, node, shape):
        tensor = _attribute(node, "value")
        value = plain(tensor.numpy().reshape(-1)[0]) if tensor is not None else 0.0
        sizes = [x if isinstance(x, Linear) else int(x) for x in shape.reshape(-1)]
        if len(sizes) <= 1 and all(isinstance(s, int) and s <= SMALL for s in sizes):
            found = numpy.empty(sizes, object)
            found.reshape(-1)[:] = value
            return found
        return Field(tuple(sizes), everywhere(value))

    # The same elements at other places

    def _cast(self, node, x):
        to = DataType(_attribute(node, "to"))
        x = self._pointwise(lambda v: int(v) if isinstance(v, bool) else v, [x])
        if to != DataType.BOOL:
            return self._typed(x, to)
        zero = numpy.empty((), object)
        zero[()] = 0
        return self._pointwise(POINTWISE["Not"], [self._compare("Equal", [x, zero])])

    def _expand(self, node, x, shape):
        field = field_of(x)
        return Field(broadcast(field.shape, self.numbers(node.inputs[1])), field.cell)

    def _unsqueeze(self, node, x, axes):
        axes = [int(a) for a in axes.reshape(-1)]
        if _is_list(x):
            return numpy.expand_dims(x, tuple(axes))
        rank = len(x.shape) + len(axes)
        new = {a % rank for a in axes}
        old = iter(x.shape)
        return self._reaxed(x, [1 if i in new else next(old) for i in range(rank)])

    def _squeeze(self, node, x, axes=None):
        if _is_list(x):
            return numpy.squeeze(x, None if axes is None else tuple(
                int(a) for a in axes.reshape(-1)))
        rank = len(x.shape)
        gone = {i for i, size in enumerate(x.shape) if size == 1} if axes is None else {
            int(a) % rank for a in axes.reshape(-1)}
        if any(x.shape[i] != 1 for i in gone):
            raise Unproved("it drops an axis that is not known to have length one")
        return self._reaxed(x, [size for i, size in enumerate(x.shape) if i not in gone])

    def _reaxed(self, field, shape):
        """Axes of size one come and go."""
        old = [axis for axis, size in field.dims().items() if size != 1]
        new = [len(shape) - i for i, size in enumerate(shape) if size != 1]
        if [field.shape[len(field.shape) - a] for a in old] != [shape[len(shape) - a]
                                                                for a in new]:
            raise Unproved("it changes its shape in a way that is not followed")
        return Field(tuple(shape), moved(field.cell, {a: symbol(b) for a, b in zip(old, new)}))

    def _reshape(self, node, x, shape):
        sizes = self.numbers(node.inputs[1])
        if _is_list(x) and all(isinstance(s, int) for s in sizes) and len(sizes) <= 1:
            return x.reshape(sizes)
        field = field_of(x)
        if 0 in sizes and not _attribute(node, "allowzero", 0):
            sizes = [field.shape[i] if s == 0 else s for i, s in enumerate(sizes)]
        if -1 in sizes:
            rest = [s for s in field.shape if s != 1]
            for s in sizes:
                if s in rest:
                    rest.remove(s)
            if len(rest) > 1:
                raise Unproved("it changes its shape in a way that is not followed")
            sizes[sizes.index(-1)] = rest[0] if rest else 1
        return self._reaxed(field, sizes)

    def _transpose(self, node, x):
        field = field_of(x)
        rank = len(field.shape)
        perm = list(_attribute(node, "perm", range(rank)[::-1]))
        return Field(tuple(field.shape[p] for p in perm),
                     moved(field.cell, {rank - p: symbol(rank - i)
                                        for i, p in enumerate(perm)}))

    def _concat(self, node, *operands):
        axis = _attribute(node, "axis")
        if _is_list(*operands):
            return numpy.concatenate(operands, axis)
        fields = [field_of(x) for x in operands]
        rank = len(fields[0].shape)
        axis, place = axis % rank, rank - axis % rank
        pieces, offset = [], 0
        for field in fields:
            size = field.shape[axis]
            if isinstance(offset, Linear) or field.cell.form not in (None, ((place, 1),)):
                raise Unproved("Concat in it is not followed")
            last = INFINITE if isinstance(size, Linear) else offset + size - 1
            cell = moved(field.cell, {place: symbol(place) - offset})
            pieces += [(max(low, offset), min(high, last), value)
                       for low, high, value in cell.pieces if low <= last and high >= offset]
            offset = offset + size
        shape = list(fields[0].shape)
        shape[axis] = 1  # of the others only this one differs
        shape = list(broadcast(shape, *[[*f.shape[:axis], 1, *f.shape[axis + 1:]]
                                        for f in fields]))
        shape[axis] = offset
        return Field(tuple(shape), along(place, pieces))

    def _tile(self, node, x, repeats):
        field = field_of(x)
        times = self.numbers(node.inputs[1])
        if any(n != 1 and size != 1 for n, size in zip(times, field.shape)):
            raise Unproved("it repeats a constant")
        return Field(tuple(n if size == 1 else size for n, size in zip(times, field.shape)),
                     field.cell)

    def _gather(self, node, data, index):
        axis = _attribute(node, "axis", 0)
        if _is_list(data, index) and not any(isinstance(i, Linear) for i in index.flat):
            return numpy.asarray(numpy.take(data, index.astype(int), axis), object)
        return self._taken(field_of(data), field_of(index), axis)

    def _taken(self, data, index, axis):
        form, place = index.cell.form, index.cell.pieces[0][2]
        if len(index.cell.pieces) > 1 or not never_negative(place, index.dims()):
            raise Unproved("it gathers at places that are not followed")
        rank, wide = len(data.shape), len(index.shape)
        axis %= rank
        new_rank = rank - 1 + wide
        mapping = {rank - i: symbol(rank - i) if i > axis else symbol(new_rank - i)
                   for i in range(rank)}
        behind = rank - axis - 1
        mapping[rank - axis] = substituted(place, {s: symbol(s + behind)
                                                   for s in range(1, wide + 1)})
        shape = (*data.shape[:axis], *index.shape, *data.shape[axis + 1:])
        cell = moved(data.cell, mapping)
        if form is not None:  # only where the table of places has not ended
            limits = moved(index.cell, {s: symbol(s + behind) for s in range(1, wide + 1)})
            cell = combined(lambda value, _: value, cell, limits)
        return Field(shape, cell)

    def _gathernd(self, node, data, index):
        data, index = field_of(data), field_of(index)
        rank = len(data.shape)
        if index.shape[-1] != rank or _attribute(node, "batch_dims", 0):
            raise Unproved("GatherND in it is not followed")
        shape, mapping = index.shape[:-1], {}
        others = {s: symbol(s - 1) for s in range(2, len(index.shape) + 1)}
        for i in range(rank):
            place = moved(index.cell, {1: i, **others}).value
            if place is None or not never_negative(place, Field(shape, everywhere(0)).dims()):
                raise Unproved("it gathers at places that are not followed")
            mapping[rank - i] = place
        return Field(shape, moved(data.cell, mapping))

    def _slice(self, node, x, *given):
        names = [None if v is None else self.numbers(v) for v in node.inputs[1:]]
        starts, ends = names[:2]
        rank = x.ndim if _is_list(x) else len(x.shape)
        axes = names[2] if len(names) > 2 and names[2] is not None else range(len(starts))
        steps = names[3] if len(names) > 3 and names[3] is not None else [1] * len(starts)
        if _is_list(x) and rank == 1 and not any(isinstance(n, Linear)
                                                 for n in (starts[0], ends[0])):
            return x[starts[0]:ends[0]:steps[0]]
        x = field_of(x)
        for axis, start, end, step in zip(axes, starts, ends, steps):
            x = self._cut(x, axis % rank, start, end, step)
        return x

    def _cut(self, field, axis, start, end, step):
        size = field.shape[axis]

        def place(x):
            if never_negative(x, {}):
                return x
            if never_negative(-1 * x - 1, {}):
                return x + size
            raise Unproved("it is cut at a place that may be before its start")
        start = place(start)
        end = size if not isinstance(end, Linear) and end >= TO_THE_END else place(end)
        if isinstance(end, Linear) and isinstance(size, int):
            if size < 2:
                raise Unproved("it cuts an axis of one element")
        elif not never_negative(size - end, {}):
            if not isinstance(size, int):
                raise Unproved("it is cut at a place that may be after its end")
            end = min(end, size)
        size = end - start
        if step != 1:
            if step < 1 or isinstance(size, Linear):
                raise Unproved("it takes every n-th element, or goes backward")
            size = -(-size // step)
        mapping = {len(field.shape) - axis: symbol(len(field.shape) - axis) * step + start}
        shape = list(field.shape)
        shape[axis] = size
        return Field(tuple(shape), moved(field.cell, mapping))

    # Elements chosen by position

    def _where(self, node, condition, yes, no):
        if _is_list(condition, yes, no):
            return numpy.asarray(numpy.frompyfunc(
                lambda c, a, b: a if c else b, 3, 1)(condition, yes, no), object)
        return _picked(*map(field_of, (condition, yes, no)))

    def _smaller(self, a, b):
        return _picked(_compared_fields("<=", a, b), a, b)

    def _min(self, node, *operands):
        found = field_of(operands[0])
        for x in operands[1:]:
            found = self._smaller(found, field_of(x))
        return found

    def _max(self, node, *operands):
        found = field_of(operands[0])
        for x in map(field_of, operands[1:]):
            found = _picked(_compared_fields("<=", found, x), x, found)
        return found

    def _abs(self, node, x):
        field = field_of(x)
        negated = Field(field.shape, combined(lambda v: -v, field.cell))
        zero = Field((), everywhere(0))
        return _picked(_compared_fields("<=", zero, field), field, negated)

    def _diagonal(self, shape, offset):
        """Whether key - query >= offset, over the last two axes."""
        distance = Field(tuple(shape), everywhere(symbol(1) - symbol(2)))
        return _compared_fields("<=", Field((), everywhere(offset)), distance)

    def _trilu(self, node, x, k=None):
        field = field_of(x)
        offset = 0 if k is None else k.reshape(-1)[0]
        upper = _attribute(node, "upper", 1)
        keep = (self._diagonal(field.shape[-2:], offset) if upper else
                _flipped(self._diagonal(field.shape[-2:], offset + 1)))
        first = field.cell.pieces[0][2]
        zero = False if isinstance(first, bool) else type(first)(0) if isinstance(
            first, (int, float)) else 0
        return _picked(keep, field, Field((), everywhere(zero)))

    def _eyelike(self, node, x):
        field = field_of(x)
        k = _attribute(node, "k", 0)
        at = _picked(_flipped(self._diagonal(field.shape, k + 1)),
                     self._diagonal(field.shape, k), Field((), everywhere(False)))
        return Field(at.shape, combined(int, at.cell))

    def _cumsum(self, node, x, axis):
        field = field_of(x)
        if field.cell.value is None or _attribute(node, "exclusive", 0) or _attribute(
                node, "reverse", 0):
            raise Unproved("CumSum in it is not followed")
        place = len(field.shape) - int(axis.reshape(-1)[0]) % len(field.shape)
        return Field(field.shape, combined(lambda v: (symbol(place) + 1) * v, field.cell))
