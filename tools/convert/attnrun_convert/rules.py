"""What every node and body of domain attnrun in a file must keep to, as code: each rule is
there because a runtime breaks, or worse gives another result, without it.

R1 closed: no attribute references, no calls of functions, attribute values baked in
R2 node and function are called Op__xxxxxxxx after the bytes of the body; no overload
R3 the node writes every attribute
R4 the body lists the inputs that the node has; an absent one in the middle is "" on the node
   and unused in the body
R5 as many outputs as the node has
R6 the opset of the body is the model's
R7 the model imports attnrun 1, the body the default domain alone
"""
import re

import onnx

from .errors import plural
from .naming import DOMAIN, name_of

MANGLED = re.compile(r"(.+)__[0-9a-f]{8}$")


def broken(model, attributes=None):
    """Sentences, each beginning with its rule; `attributes`: {operator: names that a node
    must write}, where known."""
    functions = {f.name: f for f in model.functions if f.domain == DOMAIN}
    imports = {o.domain or "ai.onnx": o.version for o in model.opset_import}
    found = [] if not functions or imports.get(DOMAIN) == 1 else [
        "R7 the model does not import attnrun 1"]
    for function in functions.values():
        found += _of_function(function, imports)
    for node in _nodes(model.graph):
        if node.domain == DOMAIN:
            found += _of_node(node, functions.get(node.op_type), attributes or {})
    return found


def _nodes(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _nodes(attribute.g)


def _of_function(function, imports):
    name = function.name
    if function.attribute or function.attribute_proto:
        yield f"R1 {name} has attributes"
    for node in function.node:
        if node.domain not in ("", "ai.onnx"):
            yield f"R1 {name} calls {node.domain}::{node.op_type}"
        if any(attribute.ref_attr_name for attribute in node.attribute):
            yield f"R1 {name} refers to an attribute of the node"
    match = MANGLED.match(name)
    if not match or name_of(match[1], function) != name:
        yield f"R2 {name} is not the name of this body"
    if function.overload:
        yield f"R2 {name} has an overload"
    if [o.domain for o in function.opset_import] not in ([""], ["ai.onnx"]):
        yield f"R7 {name} imports more than the default domain"
    elif function.opset_import[0].version != imports.get("ai.onnx"):
        yield f"R6 {name} is of opset {function.opset_import[0].version}"


def _of_node(node, function, attributes):
    if node.overload:
        yield f"R2 node '{node.name}' has an overload"
    if function is None:
        yield f"R2 node '{node.name}' ({node.op_type}) has no body of its name"
        return
    written = {attribute.name for attribute in node.attribute}
    for name in attributes.get(node.op_type.rpartition("__")[0], ()):
        if name not in written:
            yield f"R3 node '{node.name}' ({node.op_type}) does not write {name}"
    if len(node.input) != len(function.input) or not node.input[-1]:
        yield (f"R4 node '{node.name}' has {plural(len(node.input), 'input')}, its body "
               f"{len(function.input)}")
    used = {name for inner in function.node for name in inner.input} | set(function.output)
    for given, formal in zip(node.input, function.input):
        if not given and formal in used:
            yield f"R4 {function.name} uses {formal}, which node '{node.name}' does not give"
    if len(node.output) != len(function.output):
        yield (f"R5 node '{node.name}' has {plural(len(node.output), 'output')}, its body "
               f"{len(function.output)}")
