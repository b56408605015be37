"""The shapes that an ONNX file declares for its inputs and outputs, in the file's own words.

In: a path or the bytes of a file that the library has opened. Out: {name: dims}. A dim is a
number, a name, or None where the file says nothing. attnrun itself gives a name to each unknown
dim and computes the shapes of outputs; onnxruntime shows what the file says. Source: the field
numbers of onnx.proto."""
import mmap
import os
from collections.abc import Iterator, Sequence
from typing import Any

from ._model import Value

Shape = list[int | str | None]
GRAPH, INPUT, OUTPUT = 7, 11, 12  # fields of ModelProto and GraphProto
NAME, TYPE, TENSOR_TYPE, SHAPE, DIM = 1, 2, 1, 2, 1  # from ValueInfoProto down to a dim
DIM_VALUE, DIM_PARAM = 1, 2
FIXED_BYTES = {1: 8, 5: 4}  # wire types of a fixed size


def _varint(data: Any, at: int) -> tuple[int, int]:
    """(number, the place behind it)"""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7f) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
        if shift > 63:
            raise ValueError("a number has more than 64 bits")


def _fields(data: Any, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(field, value, 0) of a number, (field, begin, end) of a message or text; content is not
    looked at, so that weights are passed over."""
    at = begin
    while at < end:
        key, at = _varint(data, at)
        wire = key & 7
        if key < 8:
            raise ValueError("a field has the number 0")
        if wire == 0:
            value, at = _varint(data, at)
            yield key >> 3, value, 0
        elif wire == 2:
            size, at = _varint(data, at)
            if size > end - at:
                raise ValueError("a field ends after its message")
            yield key >> 3, at, at + size
            at += size
        elif wire in FIXED_BYTES:
            at += FIXED_BYTES[wire]
        else:
            raise ValueError(f"wire type {wire} is not known")


def _inside(data: Any, span: tuple[int, int] | None, field: int) -> tuple[int, int] | None:
    """The last field of that number in a message: (begin, end)."""
    found = None
    for number, begin, end in _fields(data, *span) if span else ():
        if number == field:
            found = begin, end
    return found


def _text(data: Any, span: tuple[int, int] | None) -> str:
    return bytes(data[span[0]:span[1]]).decode("utf-8", "replace") if span else ""


def _dim(data: Any, begin: int, end: int) -> int | str | None:
    for number, first, last in _fields(data, begin, end):
        if number == DIM_VALUE:
            return first if first < 1 << 63 else None  # negative: the size is not known
        if number == DIM_PARAM:
            return _text(data, (first, last)) or None
    return None


def _graph_shapes(data: Any) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {}
    graph = _inside(data, (0, len(data)), GRAPH)
    for number, begin, end in _fields(data, *graph) if graph else ():
        if number not in (INPUT, OUTPUT):
            continue
        tensor = _inside(data, _inside(data, (begin, end), TYPE), TENSOR_TYPE)
        shape = _inside(data, tensor, SHAPE)
        if shape:
            shapes[_text(data, _inside(data, (begin, end), NAME))] = [
                _dim(data, first, last) for field, first, last in _fields(data, *shape)
                if field == DIM]
    return shapes


def declared_shapes(source: Any) -> dict[str, Shape]:
    """The declared shapes by name; {} if the source is no ONNX file."""
    try:
        if isinstance(source, (bytes, bytearray, memoryview)):
            return _graph_shapes(memoryview(source).cast("B"))
        with open(os.fspath(source), "rb") as file, mmap.mmap(
                file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _graph_shapes(data)
    except (OSError, ValueError, IndexError):
        return {}


def shapes_as_declared(source: Any, values: Sequence[Value]) -> dict[str, Shape]:
    """The shapes of inputs and outputs as onnxruntime shows them: a size where one is known, then
    the name that the file declares, then a symbol of the file's inputs; None elsewhere."""
    declared = declared_shapes(source)
    symbols = {dim for value in values for dim in declared.get(value.name, value.shape or ())
               if isinstance(dim, str)}
    return {value.name: _merged(declared.get(value.name), value.shape, symbols)
            for value in values}


def _merged(declared: Shape | None, inferred: Sequence[int | str] | None,
            symbols: set[str]) -> Shape:
    if inferred is None or declared is not None and len(declared) != len(inferred):
        return list(declared or [])
    names: Shape = [None] * len(inferred) if declared is None else declared
    return [size if isinstance(size, int) else name if name is not None else
            size if size in symbols else None
            for name, size in zip(names, inferred, strict=True)]
