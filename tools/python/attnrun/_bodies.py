"""without_bodies(): models whose operators of domain attnrun run natively in onnxruntime.

In: a model as attnrun_convert writes it: each node of domain attnrun calls a function of the
name Op__xxxxxxxx, whose body is made of standard operators, and has all attributes of Op
itself. Out: the same model with the nodes named Op and without these functions. Needs the
package onnx, which attnrun itself does not."""
import os
import re
from collections.abc import Iterable
from typing import Any

import onnx

DOMAIN = "attnrun"
CALL = re.compile(r"^([A-Z][A-Za-z]*)__[0-9a-f]{8}$")


def _graphs(node: onnx.NodeProto) -> Iterable[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def _rename(nodes: Iterable[onnx.NodeProto], names: dict[str, str]) -> None:
    waiting = [nodes]
    while waiting:
        for node in waiting.pop():
            if node.domain == DOMAIN and node.op_type in names:
                node.op_type = names[node.op_type]
            waiting.extend(graph.node for graph in _graphs(node))


def without_bodies(source: str | os.PathLike[str] | onnx.ModelProto) -> onnx.ModelProto:
    """The model with operators in the place of function bodies, for ort_library().

    External data stay where they are: save the result beside its source."""
    if isinstance(source, onnx.ModelProto):
        model = onnx.ModelProto()
        model.CopyFrom(source)
    else:
        model = onnx.load(os.fspath(source), load_external_data=False)
    kept: list[Any] = []
    names: dict[str, str] = {}
    for function in model.functions:
        call = CALL.match(function.name) if function.domain == DOMAIN else None
        if call:
            names[function.name] = call.group(1)
        else:
            kept.append(function)
    del model.functions[:]
    model.functions.extend(kept)
    _rename(model.graph.node, names)
    for function in model.functions:
        _rename(function.node, names)
    return model
