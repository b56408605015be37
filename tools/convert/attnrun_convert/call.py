"""One operator of domain attnrun inside a PyTorch model.

    y = call("LinearAttention", q, k, v, q_num_heads=8)

Eager, it computes the operator's reference (refs/). Under torch.export or torch.onnx.export
it becomes one node attnrun::LinearAttention without a body; `convert` adds the body. The
shapes and types of its results are those of the reference on fake tensors, run outside of
the trace, so that nothing of it is recorded and no size is fixed by it.
"""
import contextlib
from dataclasses import dataclass

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from . import operators
from .errors import plural
from .naming import DOMAIN

CALL_KEY = "attnrun.call"  # metadata of a node: which of the recorded calls it is

_recorded = []  # the innermost list of `recording`


@dataclass(frozen=True)
class Call:
    """What a body needs to be made of: `shapes` and `dtypes` in the operator's order, None
    where an operand is absent; `dynamic`: which axes were symbolic in the trace."""
    operator: object
    attributes: dict
    shapes: tuple
    dtypes: tuple
    dynamic: tuple
    n_outputs: int

    def tensors(self):
        """Zeros of the recorded shapes."""
        return [None if shape is None else torch.zeros(shape, dtype=dtype)
                for shape, dtype in zip(self.shapes, self.dtypes)]


@contextlib.contextmanager
def recording():
    """Calls exported inside are appended to the list that this gives."""
    calls = []
    _recorded.append(calls)
    try:
        yield calls
    finally:
        _recorded.pop()


def exporting():
    """Whether `call` makes nodes now instead of numbers."""
    return torch.compiler.is_exporting() or torch.onnx.is_in_onnx_export()


def call(name, *operands, n_outputs=1, **attributes):
    """`operands` in the operator's order, None where absent. A tensor, or a tuple of
    `n_outputs` of them."""
    known = operators.load()
    if name not in known:
        raise ValueError(f"attnrun has no reference of an operator '{name}'; "
                         f"known are {', '.join(sorted(known))}")
    operator = known[name]
    operands = _checked(operator, operands, n_outputs)
    attributes = operator.attributes_of(attributes)
    emit = _node if exporting() else _numbers
    results = emit(operator, operands, attributes, n_outputs)
    return results[0] if n_outputs == 1 else tuple(results)


def _checked(operator, operands, n_outputs):
    if len(operands) > len(operator.inputs):
        raise ValueError(f"{operator.name} takes {plural(len(operator.inputs), 'operand')}, "
                         f"but {len(operands)} are given")
    if not 1 <= n_outputs <= len(operator.outputs):
        raise ValueError(f"{operator.name} has {plural(len(operator.outputs), 'output')}, "
                         f"but n_outputs is {n_outputs}")
    operands = list(operands) + [None] * (len(operator.inputs) - len(operands))
    for operand, tensor in zip(operator.inputs, operands):
        if tensor is None and not operand.optional:
            raise ValueError(f"{operator.name} needs operand {operand.name}")
    return operands


def _numbers(operator, operands, attributes, n_outputs):
    return operator(operands, attributes)[:n_outputs]


def _node(operator, operands, attributes, n_outputs):
    results = _results_on_fakes(operator, operands, attributes)
    if len(results) < n_outputs:
        raise ValueError(f"{operator.name} with these operands has "
                         f"{plural(len(results), 'output')}, but n_outputs is {n_outputs}")
    results = results[:n_outputs]
    given = {k: v for k, v in attributes.items() if v is not None}
    inputs = list(operands)
    while inputs[-1] is None:
        inputs.pop()
    traced = {s.node.expr: s for x in inputs if x is not None for s in x.shape
              if isinstance(s, torch.SymInt)}  # what the trace knows a size by
    return torch.onnx.ops.symbolic_multi_out(
        f"{DOMAIN}::{operator.name}", inputs, given, dtypes=[y.dtype for y in results],
        shapes=[tuple(traced.get(s.node.expr, s) if isinstance(s, torch.SymInt) else s
                      for s in y.shape) for y in results], version=1,
        metadata_props=_record(operator, operands, attributes, n_outputs))


def _record(operator, operands, attributes, n_outputs):
    if not _recorded:
        return None
    shapes, dtypes, dynamic = [], [], []
    for tensor in operands:
        sizes = () if tensor is None else tuple(tensor.shape)
        shapes.append(None if tensor is None else tuple(map(_hint, sizes)))
        dtypes.append(None if tensor is None else tensor.dtype)
        dynamic.append(tuple(axis for axis, size in enumerate(sizes)
                             if isinstance(size, torch.SymInt)))
    _recorded[-1].append(Call(operator, attributes, tuple(shapes), tuple(dtypes),
                              tuple(dynamic), n_outputs))
    return {CALL_KEY: str(len(_recorded[-1]) - 1)}


def _hint(size):
    return int(size.node.hint) if isinstance(size, torch.SymInt) else int(size)


def _results_on_fakes(operator, operands, attributes):
    sizes = [tuple(x.shape) if x is not None else () for x in operands]
    symbols = [s for shape in sizes for s in shape if isinstance(s, torch.SymInt)]
    shape_env = symbols[0].node.shape_env if symbols else None
    quiet = shape_env.suppress_guards() if symbols else contextlib.nullcontext()
    with _disable_current_modes(), quiet, torch.no_grad(), \
            FakeTensorMode(shape_env=shape_env):
        fakes = [None if x is None else torch.empty(shape, dtype=x.dtype)
                 for x, shape in zip(operands, sizes)]
        return operator(fakes, attributes)
