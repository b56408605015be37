"""Values that the C half leaves to Python: strings, sequences, optionals, and element types
that numpy lacks (through ml_dtypes where that is installed).

In: what a caller gives. Out: the forms that src/values.c lists."""
import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _attnrun

ml_dtypes: Any = None
try:  # without it the rare types are their bits: bf16 as uint16, float8 as uint8
    ml_dtypes = importlib.import_module("ml_dtypes")
except ImportError:
    pass

Array = npt.NDArray[Any]

TENSOR, SEQUENCE, OPTIONAL, OPTIONAL_SEQUENCE, MAP, MAP_SEQUENCE = 1, 2, 3, 4, 5, 6
VALUE_OUTPUT = -1
STRING = 8

# ONNX's numbers of element types -> numpy's; what the buffer protocol knows.
PLAIN: dict[int, Any] = {
    1: np.float32, 2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16, 6: np.int32,
    7: np.int64, 9: np.bool_, 10: np.float16, 11: np.float64, 12: np.uint32, 13: np.uint64,
    14: np.complex64, 15: np.complex128}
# Names of ml_dtypes, and the bits of an element.
RARE: dict[int, tuple[str, int]] = {
    16: ("bfloat16", 16), 17: ("float8_e4m3fn", 8), 18: ("float8_e4m3fnuz", 8),
    19: ("float8_e5m2", 8), 20: ("float8_e5m2fnuz", 8), 21: ("uint4", 4), 22: ("int4", 4),
    23: ("float4_e2m1fn", 4), 24: ("float8_e8m0fnu", 8), 25: ("uint2", 2), 26: ("int2", 2),
    27: ("float6_e2m3fn", 6), 28: ("float6_e3m2fn", 6)}
ONNX_NAMES: dict[int, str] = {
    1: "float", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
    8: "string", 9: "bool", 10: "float16", 11: "double", 12: "uint32", 13: "uint64",
    14: "complex64", 15: "complex128", 16: "bfloat16", 17: "float8e4m3fn",
    18: "float8e4m3fnuz", 19: "float8e5m2", 20: "float8e5m2fnuz", 21: "uint4", 22: "int4",
    23: "float4e2m1", 24: "float8e8m0", 25: "uint2", 26: "int2", 27: "float6e2m3",
    28: "float6e3m2"}
NUMBER_OF_NAME = {np.dtype(kind).name: number for number, kind in PLAIN.items()}
NUMBER_OF_NAME.update({name: number for number, (name, _) in RARE.items()})

DTYPES = tuple(np.dtype(PLAIN[n]) if n in PLAIN else None for n in range(29))


def numpy_dtype(number: int) -> Any:
    """The numpy dtype in which values of an ONNX element type arrive."""
    if number == STRING:
        return np.dtype(object)
    if number in PLAIN:
        return np.dtype(PLAIN[number])
    name, bits = RARE[number]
    kind = getattr(ml_dtypes, name, None)
    return np.dtype(kind) if kind else np.dtype(np.uint16 if bits == 16 else np.uint8)


def pack(codes: Array, bits: int) -> Array:
    """Elements of `bits` bits, one a byte, as bytes filled from the low bits upwards."""
    flat = np.ascontiguousarray(codes).reshape(-1).view(np.uint8)
    each = (flat[:, None] >> np.arange(bits, dtype=np.uint8)) & 1
    return np.packbits(each.reshape(-1), bitorder="little")


def unpack(raw: Array, bits: int, count: int) -> Array:
    """The reverse of pack(): one element a byte, the upper bits zero."""
    each = np.unpackbits(raw, bitorder="little")[:count * bits].reshape(count, bits)
    return np.packbits(each, axis=1, bitorder="little").reshape(count)


def _strings(value: Any) -> tuple[list[bytes], tuple[int, ...]]:
    array = value if isinstance(value, np.ndarray) else np.asarray(value, object)
    if array.dtype.kind not in "OUST":
        raise TypeError(f"strings are expected, not {array.dtype}")
    items = array.reshape(-1).tolist()
    if not all(isinstance(item, (str, bytes)) for item in items):
        raise TypeError("an array of objects holds others than strings")
    return ([item if isinstance(item, bytes) else item.encode() for item in items],
            array.shape)


def _rare(array: Array, number: int) -> Any:
    """An array of one of RARE, given in its ml_dtypes form or as its bits."""
    bits = RARE[number][1]
    if array.itemsize != (2 if bits == 16 else 1):
        raise TypeError(f"an array of {array.dtype} is given, {RARE[number][0]} is expected")
    raw: Array = np.ascontiguousarray(array).view(np.uint16 if bits == 16 else np.uint8)
    if bits < 8:  # codes with a sign may fill their byte with it
        signed = RARE[number][0] in ("int4", "int2")
        long = (raw >> bits != 0) & ~(signed & (raw >= 256 - (1 << (bits - 1))))
        if long.any():
            raise TypeError(f"a code of {RARE[number][0]} has {bits} bits, and "
                            f"{raw[long].flat[0]} is given")
    return (raw if bits % 8 == 0 else pack(raw, bits)), number, array.shape


def _listed(value: Any, number: int) -> Array:
    """Numbers, or lists of them, in the type that the model takes, if it holds them: as integers,
    1.5 is none, and texts are no numbers."""
    wanted, array = DTYPES[number], np.asarray(value)
    if wanted is None or array.dtype.kind in "USTV":
        return array
    if array.dtype.kind == "O" and not all(isinstance(x, int) for x in array.flat):
        raise TypeError(f"a list that holds other objects than numbers is given, {wanted} is "
                        "expected")
    with np.errstate(over="ignore"):
        made = np.asarray(value, wanted)
    lost = (made != array if wanted.kind in "biu" else
            np.isinf(made) & (abs(array) < np.inf))
    if lost.any():
        raise TypeError(f"{array[lost].flat[0]} is given, {wanted} is expected")
    return made


def _columns(value: Any, number: int) -> tuple[Array, Array]:
    """The keys and values of a dict from int or str."""
    if not isinstance(value, Mapping):
        raise TypeError(f"a dict is expected, not {type(value).__name__}")
    keys = list(value)
    texts = all(isinstance(key, (str, bytes)) for key in keys) and keys
    if not texts and not all(isinstance(key, (int, np.integer)) for key in keys):
        raise TypeError("the keys of a map are int or str, and all of one type")
    return (np.array(keys, object if texts else np.int64),
            np.array(list(value.values()), object) if number == STRING else
            _listed(list(value.values()), number))


def to_native(value: Any, kind: int, number: int) -> Any:
    """See src/values.c; `number` is the element type that the model takes, 0: unknown."""
    if kind in (OPTIONAL, OPTIONAL_SEQUENCE):
        return () if value is None else (value,)
    if kind == MAP:
        return _columns(value, number)
    if kind in (SEQUENCE, MAP_SEQUENCE):
        if not isinstance(value, (list, tuple)):
            what = "arrays" if kind == SEQUENCE else "dicts"
            raise TypeError(f"a list of {what} is expected, not {type(value).__name__}")
        return list(value)
    if kind == VALUE_OUTPUT:
        return _native_output(value)
    if value is None:  # numpy makes it nan, or False
        raise TypeError("None is given, a tensor is expected")
    if number == STRING:
        return _strings(value)
    is_array = hasattr(value, "dtype") or hasattr(value, "__array__")
    array = np.asarray(value) if is_array else _listed(value, number)
    if array.dtype.name in NUMBER_OF_NAME and NUMBER_OF_NAME[array.dtype.name] in RARE:
        return _rare(array, NUMBER_OF_NAME[array.dtype.name])
    if array.dtype.kind in "OUST":
        return _strings(array)
    if array.dtype.name not in NUMBER_OF_NAME:
        raise TypeError(f"an array of {array.dtype} has no counterpart in ONNX")
    if number in RARE and array.dtype in (np.uint8, np.uint16):
        return _rare(array, number)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    return np.ascontiguousarray(array), NUMBER_OF_NAME[array.dtype.name], array.shape


def _native_output(value: Any) -> Any:
    number = NUMBER_OF_NAME.get(value.dtype.name, 0) if isinstance(value, np.ndarray) else 0
    if number not in RARE or RARE[number][1] % 8 or not value.flags.c_contiguous \
            or not value.flags.writeable:
        raise TypeError("an output is written into a writable C-contiguous array, or a tensor "
                        "with __dlpack__, of the output's element type")
    return value.view(np.uint16 if value.itemsize == 2 else np.uint8), number, value.shape


def to_python(raw: Array, number: int, shape: tuple[int, ...]) -> Array:
    """The array of a rare type, from its bytes."""
    bits = RARE[number][1]
    if bits % 8:
        raw = unpack(raw, bits, int(np.prod(shape, dtype=np.int64)))
        if RARE[number][0] in ("int4", "int2"):  # ml_dtypes keeps them sign-extended
            raw = ((raw ^ (1 << (bits - 1))) - (1 << (bits - 1))).astype(np.uint8)
    array: Array = raw.view(numpy_dtype(number)).reshape(shape)
    return array


def to_strings(items: list[bytes], shape: tuple[int, ...]) -> Array:
    """An array of str objects; of bytes where they are no UTF-8."""
    array = np.empty(len(items), object)
    for i, item in enumerate(items):
        try:
            array[i] = item.decode()
        except UnicodeDecodeError:
            array[i] = item
    return array.reshape(shape)


def dtype_name(number: int) -> str:
    """The short name of an element type: 'f32'."""
    return _attnrun.dtype_name(number)
