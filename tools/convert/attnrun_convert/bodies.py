"""Model-local functions out of torch references, so that a file with operators of domain
attnrun runs everywhere that expands functions.

A body is closed (attribute values are baked in, no calls, no defaults), lists the inputs
that the node has and the outputs that are used, imports the default domain alone, and has
the name Op__xxxxxxxx of the first digits of the SHA-1 of its bytes, as does its node. The
node writes every attribute. `overload` is never used: some runtimes ignore it.
"""
import contextlib
import io
import logging
import warnings

import onnx
import onnxscript.optimizer
import onnx_ir
import torch
from onnx import helper

from .naming import DOMAIN, name_of


class _Module(torch.nn.Module):
    """The reference of a node as a module of its present operands."""

    def __init__(self, operator, attributes, present, n_outputs):
        super().__init__()
        self.operator, self.attributes = operator, attributes
        self.present, self.n_outputs = present, n_outputs

    def forward(self, *tensors):
        given = iter(tensors)
        return self.operator([next(given) if here else None for here in self.present],
                             self.attributes)[:self.n_outputs]


def _dims(operator, tensors, dynamic):
    """What may differ, in the form of torch.export: strings, which must stay symbolic."""
    dims = []
    for operand, tensor, axes in zip(operator.inputs, tensors, axes_of(dynamic, tensors)):
        if tensor is not None:
            words = operand.dims_for(tensor.dim())
            dims.append({axis: word for axis, word in words.items()
                         if axes is None or axis in axes} or None)
    return tuple(dims)


def axes_of(dynamic, tensors):
    """Which axes may be symbolic, per operand; None: all that the operator names."""
    return [None] * len(tensors) if dynamic is True else dynamic


def _export(operator, attributes, tensors, n_outputs, opset, dynamic):
    """The reference as a plain onnx_ir model whose inputs have the operands' names."""
    present = [tensor is not None for tensor in tensors]
    module = _Module(operator, attributes, present, n_outputs).eval()
    names = [o.name for o, here in zip(operator.inputs, present) if here]
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module, tuple(t for t in tensors if t is not None), dynamo=True, verbose=False,
            opset_version=opset, optimize=False, input_names=names,
            output_names=list(operator.outputs[:n_outputs]),
            dynamic_shapes=(_dims(operator, tensors, dynamic),) if dynamic else None)
    onnxscript.optimizer.optimize_ir(program.model, inline=False)
    return onnx_ir.to_proto(program.model)


def _constants(graph):
    """Constant nodes in place of initializers: a function has none."""
    return [helper.make_node("Constant", [], [tensor.name],
                             value=onnx.helper.make_tensor(
                                 "value", tensor.data_type, tensor.dims,
                                 onnx.numpy_helper.to_array(tensor).tobytes(), raw=True))
            for tensor in graph.initializer]


def _rename(nodes, fixed):
    """Values get the names v1, v2, … in order, so that equal bodies have equal bytes."""
    names = {name: name for name in fixed}
    names[""] = ""
    for node in nodes:
        node.input[:] = [names[name] for name in node.input]
        for i, name in enumerate(node.output):
            names.setdefault(name, f"v{len(names)}")
            node.output[i] = names[name]


def _strip(nodes):
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                raise ValueError(f"a body must not have subgraphs ({node.op_type})")
            attribute.ClearField("doc_string")
        node.ClearField("name")
        node.ClearField("doc_string")
        del node.metadata_props[:]


def make_body(operator, attributes, tensors, n_outputs=1, opset=18, dynamic=True):
    """The FunctionProto of a node with these operands (None: absent) and attributes.
    `dynamic`: whether sizes may differ; or, per operand, the axes that may."""
    tensors = list(tensors)
    while tensors and tensors[-1] is None:
        tensors.pop()
    graph = _export(operator, attributes, tensors, n_outputs, opset, dynamic).graph
    nodes = _constants(graph) + list(graph.node)
    inputs = [operand.name for operand, _ in zip(operator.inputs, tensors)]
    outputs = [value.name for value in graph.output]
    loops = set(outputs) & set(inputs)  # an output that is an input
    if loops:
        raise ValueError(f"output {sorted(loops)} has the name of an input")
    _strip(nodes)
    _rename(nodes, inputs + outputs)
    body = helper.make_function(DOMAIN, operator.name, inputs, outputs, nodes,
                                [helper.make_opsetid("", opset)])
    body.name = name_of(operator.name, body)
    return body


def make_node(operator, attributes, inputs, outputs, op_type=None):
    """A node that writes every attribute; `inputs`: names, "" where absent."""
    inputs = list(inputs)
    while inputs and not inputs[-1]:
        inputs.pop()
    full = {k: v for k, v in operator.attributes_of(attributes).items() if v is not None}
    return helper.make_node(op_type or operator.name, inputs, outputs, domain=DOMAIN,
                            name=operator.name, **full)


def make_model(operator, attributes, tensors, n_outputs=1, opset=18, dynamic=True,
               body=True, ir_version=8):
    """A model of one node whose operands are all inputs, with its body or without."""
    names = [o.name if t is not None else "" for o, t in zip(operator.inputs, tensors)]
    outputs = list(operator.outputs[:n_outputs])
    functions = []
    if body:
        functions = [make_body(operator, attributes, tensors, n_outputs, opset, dynamic)]
    node = make_node(operator, attributes, names, outputs,
                     functions[0].name if body else None)
    results = operator(tensors, attributes)[:n_outputs]
    graph = helper.make_graph(
        [node], operator.name,
        [_value(o.name, t, o.dims_for(t.dim()) if dynamic else {})
         for o, t in zip(operator.inputs, tensors) if t is not None],
        [_value(name, t, dict.fromkeys(range(t.dim()))) for name, t in zip(outputs, results)])
    model = helper.make_model(
        graph, functions=functions, ir_version=ir_version, producer_name="attnrun_convert",
        opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)])
    return model


def _value(name, tensor, dynamic):
    dtype = helper.np_dtype_to_tensor_dtype(tensor.numpy().dtype)
    dims = [dynamic.get(axis) if axis in dynamic else size
            for axis, size in enumerate(tensor.shape)]
    return helper.make_tensor_value_info(name, dtype, dims)
