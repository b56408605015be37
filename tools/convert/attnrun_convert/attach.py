"""Bodies for the operators of domain attnrun in an onnx_ir model: node and function get the
name Op__xxxxxxxx, equal bodies are shared. See bodies.py for what a body must keep to."""
import onnx_ir

from . import cache
from .call import CALL_KEY
from .errors import CaptureError, innermost
from .naming import DOMAIN


def _body(call, opset, used):
    """A body for any size of what the operator says may differ; where its reference does
    not export so, for any size of what was symbolic in this trace."""
    tensors = call.tensors()
    problems = []
    for axes in (True, call.dynamic):
        try:
            return cache.make_body(call.operator, call.attributes, tensors, used, opset,
                                   axes)
        except Exception as error:  # noqa: BLE001 - any failure of the exporter
            problems.append(str(innermost(error)).splitlines()[0])
    raise CaptureError(f"no body can be made for {call.operator.name}: {problems[0]}")


def _used_outputs(node):
    """One more than the last output that somebody reads."""
    outputs = {id(value) for value in node.graph.outputs}
    used = [i for i, value in enumerate(node.outputs)
            if value.uses() or id(value) in outputs]
    return (used[-1] if used else 0) + 1


def _key(call, used):
    def plain(value):
        return tuple(value) if isinstance(value, (list, tuple)) else value
    return (call.operator.name, used, call.shapes, call.dtypes, call.dynamic,
            tuple(sorted((k, plain(v)) for k, v in call.attributes.items())))


def attach(model, calls, opset):
    """Adds the bodies; returns {function name: number of nodes that call it}."""
    made, counts = {}, {}
    for node in list(model.graph.all_nodes()):
        number = node.metadata_props.pop(CALL_KEY, None)
        if number is None or node.domain != DOMAIN:
            continue
        call = calls[int(number)]
        used = _used_outputs(node)
        node.resize_outputs(used)
        key = _key(call, used)
        if key not in made:
            made[key] = onnx_ir.from_proto(_body(call, opset, used))
        body = made[key]
        node.op_type = body.name
        node.version = None
        model.functions.setdefault(body.identifier(), body)
        counts[body.name] = counts.get(body.name, 0) + 1
    if counts:
        model.opset_imports[DOMAIN] = 1
    return counts
