"""Masks of attention that are a band, for every length.

A band is what LocalAttention does without a mask: key j for query i where
-left <= j - i <= right. A mask that is made of sizes and constants (Range, Shape, Slice,
comparisons, …) is followed symbolically (follow.py), a constant in it over its full extent:
no length is tried. What cannot be followed is no band, with the reason. A conjunction with a
mask of keys (batch, 1, 1, keys) is a band with a key mask. No torch here.
"""
from dataclasses import dataclass

from onnx import TensorProto, helper

from .fields import array_of, lifted, reads_data, size_of
from .follow import Follower
from .linear import INFINITE, Linear, Unproved
from .naming import DOMAIN, name_of

NEVER = -1e4  # scores of this and less mean "not allowed"
ALONG = ((1, 1), (2, -1))  # the form key - query


def _allowed(value, is_condition):
    """Whether a query sees a key where its mask has this value."""
    if isinstance(value, bool) and is_condition:
        return value
    if isinstance(value, (int, float)) and not is_condition:
        if value == 0:
            return True
        if value <= NEVER:
            return False
        raise Unproved(f"it adds {value:g} to some of the scores")
    raise Unproved("what it adds to the scores grows with the distance"
                   if isinstance(value, Linear) else "it is of a type that no mask has")


def _joined(pieces):
    """[(first, last)] of the allowed intervals."""
    found = []
    for low, high, allowed in pieces:
        if allowed and found and found[-1][1] + 1 == low:
            found[-1] = (found[-1][0], high)
        elif allowed:
            found.append((low, high))
    return found


def band_of_field(field, is_condition):
    """(left, right), -1 without bound; Unproved for what is no band."""
    if len(field.shape) < 2 or field.shape[-1] != field.shape[-2] or field.shape[-1] == 1:
        raise Unproved("it is not known to have as many rows as columns")
    cell, size = field.cell, field.shape[-1]
    if cell.form not in (None, ALONG):
        raise Unproved("it depends on more than the distance of query and key")
    pieces = [(low, high, _allowed(value, is_condition)) for low, high, value in cell.pieces]
    far = INFINITE if isinstance(size, Linear) else size - 1
    first, last = max(pieces[0][0], -far), min(pieces[-1][1], far)
    inside = _joined([(max(low, first), min(high, last), allowed)
                      for low, high, allowed in pieces if low <= last and high >= first])
    if not inside:
        raise Unproved("it allows nothing")
    if len(inside) > 1 or not inside[0][0] <= 0 <= inside[0][1]:
        raise Unproved("what it allows is not a band around the query")
    low, high = inside[0]
    return -1 if low == first else -int(low), -1 if high == last else int(high)


def band_of_array(array, is_condition):
    """(left, right) of a constant, or None. `array`: a condition, or what is added."""
    try:
        return band_of_field(lifted(array), is_condition)
    except Unproved:
        return None


def followed(value, is_condition):
    """((left, right), size of its rows) of a mask; Unproved with the reason where it is no
    band, or cannot be followed."""
    data = reads_data(value)
    if data is not None:
        raise Unproved(f"it depends on the input '{data}'")
    try:
        field = Follower().field(value)
        return band_of_field(field, is_condition), field.shape[-1]
    except Unproved:
        raise
    except Exception as error:  # noqa: BLE001 - an operand of a kind that was not expected
        raise Unproved(f"it is not followed ({type(error).__name__})") from error


def _narrower(a, b):
    """The smaller of two bounds, of which -1 is none."""
    return max(a, b) if min(a, b) < 0 else min(a, b)


def length_of(value, axis):
    """A size of a value: an int, or Linear in names; None where it is not known. Through the
    operators that shape heads, whose sizes shape inference does not know by name."""
    node = value.producer()
    kind = node.op_type if node is not None and node.domain in ("", "ai.onnx") else ""
    if kind == "Transpose" and "perm" in node.attributes:
        return length_of(node.inputs[0], node.attributes["perm"].value[axis])
    if kind == "Reshape":
        try:
            size = Follower().numbers(node.inputs[1])[axis]
        except Unproved:
            size = -1
        if isinstance(size, Linear) or size > 0:
            return size
    if kind in ("Identity", "Cast"):
        return length_of(node.inputs[0], axis)
    if kind in ("Mul", "Div"):
        for side in (0, 1) if kind == "Mul" else (0,):
            factor = node.inputs[1 - side].shape
            if factor is not None and list(factor) in ([], [1]):
                return length_of(node.inputs[side], axis)
    try:
        return size_of(value.shape[axis])
    except (TypeError, IndexError, Unproved):
        return None


@dataclass
class Band:
    """What a mask is: `left`, `right` (-1 without bound), `size` of its rows and columns
    (None where it has no band), `keys`: the value of a mask of keys, or None."""
    left: int = -1
    right: int = -1
    size: object = None
    keys: object = None


def split(value, depth=4):
    """The Band of a condition: a band, (batch, 1, 1, keys), or And of such; Unproved where it
    is something else."""
    array = array_of(value)
    if array is not None and array.all():
        return Band(size=array.shape[-1] if array.ndim > 1 and array.shape[-2] > 1 else None)
    shape = list(value.shape) if value.shape is not None else []
    if len(shape) == 4 and shape[1] == shape[2] == 1:
        return Band(keys=value)
    try:
        (left, right), size = followed(value, True)
        return Band(left, right, size)
    except Unproved as reason:
        node = value.producer()
        if node is None or node.op_type != "And" or depth == 0 or node.domain not in (
                "", "ai.onnx"):
            raise reason
    a, b = (split(operand, depth - 1) for operand in node.inputs)
    if a.keys is not None and b.keys is not None:
        raise Unproved("two masks of keys are in it")
    if a.size is not None and b.size is not None and a.size != b.size:
        raise Unproved("sizes in it are not known to be equal")
    return Band(_narrower(a.left, b.left), _narrower(a.right, b.right),
                b.size if a.size is None else a.size, b.keys if a.keys is None else a.keys)


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
