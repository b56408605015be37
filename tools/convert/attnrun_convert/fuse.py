"""Decomposed softmax attention in an ONNX graph becomes one node. No torch here.

    Y = MatMul(Softmax(scale MatMul(Q, K') + mask), V)

Recognised: operands of rank 4 or 3; scalars on either operand, on both, or on the product; K
by one Transpose, by Reshape, Transpose, Reshape, or given transposed; a mask that is added,
or a condition with large negative numbers elsewhere; IsNaN and Where behind the Softmax. It
becomes ai.onnx Attention (opset 23 and later), a triangular mask its is_causal. An Attention
whose mask is a band (bands.py) becomes attnrun::LocalAttention, whose work grows with the
band. Rows in which nothing is allowed may differ. What somebody else reads, scores or
weights, stays as it is.
"""
from dataclasses import dataclass, field

import numpy
import onnx_ir

from . import bands
from .bands import NEVER
from .fields import array_of
from .linear import Unproved
from .naming import DOMAIN

ATTENTION_OPSET = 23


class _No(Exception):
    """Why a Softmax is not attention of this form."""


@dataclass
class Found:
    softmax: onnx_ir.Node
    q: onnx_ir.Value = None
    k: onnx_ir.Value = None
    swap_k: tuple = None  # the Transpose that makes K of k
    v: onnx_ir.Value = None
    scale: float = 1.0
    mask: onnx_ir.Value = None  # added
    keep: onnx_ir.Value = None  # a condition: true is allowed
    negate: bool = False  # of `keep`
    rank: int = 4
    last: onnx_ir.Node = None  # whose output is the result
    inside: list = field(default_factory=list)  # values that nobody else may read


def _need(condition, reason):
    if not condition:
        raise _No(reason)


def _is(node, *kinds):
    return node is not None and node.domain in ("", "ai.onnx") and node.op_type in kinds


def _scalar(value):
    array = array_of(value)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def _attr(node, name, default):
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.value


def _other_scalar(node):
    """(operand, factor) of a Mul or Div by a constant number."""
    if _is(node, "Mul", "Div"):
        for side in (1, 0) if node.op_type == "Mul" else (1,):
            factor = _scalar(node.inputs[side])
            if factor:
                return node.inputs[1 - side], factor if node.op_type == "Mul" else 1 / factor
    return None


def _strip_scalars(found, value):
    """The value without constant factors, which go into the scale."""
    while True:
        pair = _other_scalar(value.producer())
        if pair is None:
            return value
        value, factor = pair
        found.scale *= factor


def _to_product(found, value):
    """Walks up from the Softmax to the MatMul of Q and K."""
    for _ in range(6):
        node = value.producer()
        found.inside.append(value)
        if _is(node, "MatMul"):
            return node
        if _is(node, "Add", "Where"):
            _need(found.mask is None and found.keep is None, "it has two masks")
            _need(found.scale == 1.0, "the mask is scaled, too")
            value = (_allowed_where(found, node) if node.op_type == "Where"
                     else _added_mask(found, node))
            continue
        pair = _other_scalar(node)
        _need(pair is not None, f"its scores come from {node.op_type if node else 'outside'}")
        value, factor = pair
        found.scale *= factor
    raise _No("its scores are computed too far away")


def _allowed_where(found, node):
    """Where(condition, scores, -large) or the other way round; the scores."""
    found.keep, yes, no = node.inputs
    for scores, other, negate in ((yes, no, False), (no, yes, True)):
        if _scalar(other) is not None and _scalar(other) <= NEVER:
            found.negate = negate
            return scores
    raise _No("a Where before it has no large negative number")


def _leads_to_product(value):
    """Whether scaling and MatMul are behind a value."""
    for _ in range(3):
        node = value.producer()
        if _is(node, "MatMul"):
            return True
        pair = _other_scalar(node)
        if pair is None:
            return False
        value = pair[0]
    return False


def _added_mask(found, node):
    for scores, mask in (node.inputs, reversed(node.inputs)):
        if _leads_to_product(scores):
            found.mask = mask
            return scores
    raise _No("neither side of an Add before it is a product")


def _swap(rank):
    return (*range(rank - 2), rank - 1, rank - 2)


def _same_sizes(a, b):
    return len(a) == len(b) and all(
        x == y and not (isinstance(x, onnx_ir.SymbolicDim) and x.value is None)
        for x, y in zip(a, b))


def _key(found, value):
    """(k, perm) of what the product reads: K is k, or k transposed by perm."""
    node, swap = value.producer(), _swap(found.rank)
    if _is(node, "Transpose"):
        perm = list(_attr(node, "perm", range(found.rank)[::-1]))
        perm = [perm[axis] for axis in swap]
        return node.inputs[0], None if perm == sorted(perm) else tuple(perm)
    if _is(node, "Reshape") and value.shape is not None:
        inner = node.inputs[0].producer()
        if _is(inner, "Transpose") and list(_attr(inner, "perm", ())) == [0, 2, 1]:
            outer = inner.inputs[0].producer()
            shape = list(value.shape)
            if _is(outer, "Reshape") and outer.inputs[0].shape is not None and _same_sizes(
                    list(outer.inputs[0].shape), shape[:-2] + [shape[-1], shape[-2]]):
                return outer.inputs[0], None
    return value, swap


def _below(found):
    """Walks down from the Softmax to the MatMul with V."""
    value = found.softmax.outputs[0]
    users = [use.node for use in value.uses()]
    if len(users) == 2 and {n.op_type for n in users} == {"IsNaN", "Where"}:
        where = next(n for n in users if n.op_type == "Where")
        isnan = next(n for n in users if n.op_type == "IsNaN")
        _need(where.inputs[0] is isnan.outputs[0] and where.inputs[2] is value
              and _scalar(where.inputs[1]) == 0.0, "the Where after it is a different one")
        value = where.outputs[0]
    else:
        found.inside.append(value)
    if value is not found.softmax.outputs[0]:
        found.inside.append(value)
    users = list(value.uses())
    _need(len(users) == 1, "other nodes read its weights")
    node, side = users[0].node, users[0].idx
    _need(_is(node, "MatMul") and side == 0, "its weights are not multiplied with values")
    found.last, found.v = node, node.inputs[1]


def _rank(value):
    return len(value.shape) if value is not None and value.shape is not None else None


def match(softmax):
    """Found, or _No with the reason."""
    found = Found(softmax)
    scores = softmax.inputs[0]
    found.rank = _rank(scores)
    _need(found.rank in (3, 4), "the rank of its operands is neither 3 nor 4")
    _need(_attr(softmax, "axis", -1) in (-1, found.rank - 1), "it is not over the last axis")
    product = _to_product(found, scores)
    _below(found)
    _need(scores.dtype == found.v.dtype, "it is computed in a different type")
    found.q = _strip_scalars(found, product.inputs[0])
    found.k, found.swap_k = _key(found, _strip_scalars(found, product.inputs[1]))
    if found.swap_k is None:
        found.k = _strip_scalars(found, found.k)
    _need(all(_rank(x) == found.rank for x in (found.q, found.k, found.v)),
          "its operands do not have the rank of the scores")
    for value in found.inside:
        _need(len(value.uses()) == 1, "other nodes read its scores")
        _need(not value.is_graph_output(), "its scores are an output of the model")
    return found


# Softmax to Attention

def _constant(array):
    return onnx_ir.node("Constant", [], {"value": onnx_ir.tensor(array)})


def _typed(node, like, shape=None):
    node.outputs[0].dtype = like.dtype
    node.outputs[0].shape = shape if shape is not None else like.shape
    return node


def _mask_of_rank_4(found, nodes):
    """The mask as the operator broadcasts it: from the right, with heads of their own."""
    mask = found.keep if found.keep is not None else found.mask
    if mask is None:
        return None
    if found.negate:
        nodes.append(_typed(onnx_ir.node("Not", [mask]), mask))
        mask = nodes[-1].outputs[0]
    rank = _rank(mask)
    _need(rank is not None and rank <= 4, "the rank of its mask is not known")
    if rank != 4 and rank != 2:  # scores of rank 3 are samples without heads
        axes = [1] if rank == 3 and found.rank == 3 else list(range(4 - rank))
        axis = _constant(numpy.array(axes, numpy.int64))
        shape = list(mask.shape)
        shape = shape[:1] + [1] + shape[1:] if axes == [1] else [1] * len(axes) + shape
        nodes += [axis, _typed(onnx_ir.node("Unsqueeze", [mask, axis.outputs[0]]), mask,
                               onnx_ir.Shape(shape))]
        mask = nodes[-1].outputs[0]
    return mask


def replace(found, opset):
    """Puts an Attention in place; the node."""
    _need(opset >= ATTENTION_OPSET, f"opset {opset} has no Attention")
    nodes, k = [], found.k
    if found.swap_k is not None:
        nodes.append(_typed(onnx_ir.node("Transpose", [k], {"perm": found.swap_k}), k,
                            onnx_ir.Shape([k.shape[axis] for axis in found.swap_k])))
        k = nodes[-1].outputs[0]
    attributes, operands = {"scale": found.scale}, [found.q, k, found.v]
    if found.rank == 3:
        attributes.update(q_num_heads=1, kv_num_heads=1)
    mask = _mask_of_rank_4(found, nodes)
    operands += [mask] if mask is not None else []
    node = onnx_ir.node("Attention", operands, attributes,
                        name=found.softmax.name or "attention")
    _put(found.last, nodes + [node])
    return node


def _put(old, nodes):
    """The last of `nodes` in place of `old`, under the name of its output."""
    new, before = nodes[-1].outputs[0], old.outputs[0]
    new.shape, new.dtype = before.shape, before.dtype
    onnx_ir.convenience.replace_nodes_and_values(old.graph, old, [old], nodes, [before],
                                                 [new])


def _over_queries(node):
    """A mask with a row for each query, which some runtimes want, in place of one row."""
    inputs = list(node.inputs) + [None] * (4 - len(node.inputs))
    q, mask = inputs[0], inputs[3]
    if mask is None or _rank(mask) is None or _rank(mask) < 2 or mask.shape[-2] != 1:
        return
    axis = 1 if _rank(q) == 3 else 2
    one = _constant(numpy.array([1], numpy.int64))
    count = onnx_ir.node("Shape", [q], {"start": axis, "end": axis + 1})
    shape = onnx_ir.node("Concat", [one.outputs[0], one.outputs[0], count.outputs[0],
                                    one.outputs[0]], {"axis": 0})
    sizes = [1] * (4 - _rank(mask)) + list(mask.shape)
    sizes[-2] = q.shape[axis]
    wide = _typed(onnx_ir.node("Expand", [mask, shape.outputs[0]]), mask,
                  onnx_ir.Shape(sizes))
    node.graph.insert_before(node, [one, count, shape, wide])
    node.replace_input_with(3, wide.outputs[0])


# Attention to LocalAttention

def _plain_mask(node):
    """(mask, is_condition) of an Attention that has a mask and nothing else."""
    inputs = list(node.inputs) + [None] * (4 - len(node.inputs))
    if inputs[3] is None or any(x is not None for x in inputs[4:]):
        return None
    if any(value.uses() or value.is_graph_output() for value in node.outputs[1:]):
        return None
    if _attr(node, "softcap", 0.0) or _attr(node, "is_causal", 0) or inputs[3].dtype is None:
        return None
    return inputs[3], inputs[3].dtype == onnx_ir.DataType.BOOL


def _condition_of(mask):
    """The condition of Where(condition, 0, -large), which exporters make of bools."""
    node = mask.producer()
    if _is(node, "Where") and _scalar(node.inputs[1]) == 0.0 and (
            _scalar(node.inputs[2]) or 0) <= NEVER:
        return node.inputs[0]
    return None


def _band_of(mask, is_condition):
    """The Band of a mask of scores; Unproved with the reason where it is none."""
    condition = mask if is_condition else _condition_of(mask)
    if condition is not None:
        try:
            return bands.split(condition)
        except Unproved as reason:
            made = mask.producer()
            if not _is(made, "Expand"):
                raise reason
            return _band_of(made.inputs[0], is_condition)
    (left, right), size = bands.followed(mask, False)
    return bands.Band(left, right, size)


def _same(what, a, b):
    if a is None or b is None or a != b:
        raise Unproved(f"{what} are not known to be equal")


def _need_fit(node, band):
    """The operator replaces a mask that has a row for each query and a column for each key,
    of which there are equally many. A constant of another size than the lengths, where these
    are free, fits where the model runs at all."""
    q, k = (bands.length_of(x, 1 if _rank(x) == 3 else 2) for x in node.inputs[:2])
    if band.size is not None and not isinstance(band.size, int):
        _same("the sizes of the mask and the number of queries", band.size, q)
        _same("the sizes of the mask and the number of keys", band.size, k)
    elif band.size is not None:
        _same("the numbers of queries and keys", q, k)
        if isinstance(q, int) and q != band.size:
            raise Unproved("the mask does not have the size of the scores")
    elif band.keys is not None:
        return
    if band.keys is not None:
        batch, keys = (bands.length_of(band.keys, axis) for axis in (0, 3))
        _same("the samples of its mask of keys and of the queries", batch,
              bands.length_of(node.inputs[0], 0))
        _same("the sizes of its mask of keys and of the mask", keys, band.size)


def localise(node, model, opset):
    """Replaces an Attention whose mask is a band; the operator's name or None. Unproved where
    it has a mask that stays."""
    pair = _plain_mask(node)
    if pair is None:
        return None
    band = _band_of(*pair)
    if (band.left, band.right) == (-1, -1) and band.keys is not None:
        raise Unproved("it is a mask of keys alone")
    _need_fit(node, band)
    if band.keys is None and (band.left, band.right) in ((-1, 0), (-1, -1)):
        operands = list(node.inputs[:3])
        attributes = {**node.attributes, "is_causal": int(band.right == 0)}
        _put(node, [onnx_ir.node("Attention", operands, attributes, name=node.name)])
        return "Attention, causal" if band.right == 0 else "Attention without its mask"
    _put_local(node, model, (band.left, band.right), band.keys, opset)
    return "attnrun::LocalAttention"


def _put_local(node, model, band, keys, opset):
    given = {name: node.attributes[name].value for name in
             ("q_num_heads", "kv_num_heads", "scale") if name in node.attributes}
    body = bands.local_body(given, *band, keys is not None, opset)
    function = onnx_ir.from_proto(body)
    model.functions.setdefault(function.identifier(), function)
    model.opset_imports[DOMAIN] = 1
    operands, before = list(node.inputs[:3]), []
    if keys is not None:
        axes = _constant(numpy.array([1, 2], numpy.int64))
        before = [axes, _typed(onnx_ir.node("Squeeze", [keys, axes.outputs[0]]), keys,
                               onnx_ir.Shape([keys.shape[0], keys.shape[3]]))]
        operands.append(before[-1].outputs[0])
    attributes = {**given, "is_causal": 0, "left_window": [band[0]],
                  "right_window": [band[1]], "num_global": 0}
    _put(node, before + [onnx_ir.node(body.name, operands, attributes, domain=DOMAIN,
                                      name=node.name)])


def _opset(model):
    imports = model.graph.opset_imports
    return imports.get("", imports.get("ai.onnx", 0))


def localise_all(model, say=print):
    """Every Attention of an onnx_ir model whose mask is a band; {name: operator}. Why others
    keep their mask is said once for each reason."""
    done, kept, opset = {}, {}, _opset(model)
    for node in [n for n in model.graph if _is(n, "Attention")]:
        try:
            kind = localise(node, model, opset)
        except Unproved as reason:
            kept.setdefault(str(reason), []).append(node.name)
            continue
        if kind is not None:
            done[node.name] = kind
            say(f"{node.name} (Attention): {kind}")
    for reason, names in kept.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        say(f"{names[0]}{more} (Attention): keeps its mask: {reason}")
    for node in [n for n in model.graph if _is(n, "Attention")]:
        _over_queries(node)
    _clean(model)
    return done


def fuse(model, say=print):
    """Replaces what it can in an onnx_ir model; {name of the Softmax: operator}."""
    done, opset = {}, _opset(model)
    _clean(model)
    for node in [n for n in model.graph if _is(n, "Softmax")]:
        try:
            made = replace(match(node), opset)
        except _No as reason:
            say(f"{node.name} (Softmax): kept, {reason}")
            continue
        done[made.name] = "Attention"
        say(f"{made.name} (Softmax): Attention")
    done.update(localise_all(model, say))
    return done


def _clean(model):
    from onnx_ir.passes.common import RemoveUnusedNodesPass
    RemoveUnusedNodesPass()(model)
