"""bad_case.py - what the lists of broken models share: the case and model builders."""
import dataclasses
import os
import typing

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


@dataclasses.dataclass
class Case:
    name: str
    what: str
    exits: list
    says: str  # regular expression of the error line, case does not matter
    write: typing.Callable  # folder -> arguments of the command line


def as_list(exits):
    return list(exits) if isinstance(exits, (list, tuple)) else [exits]


def save(model, folder):
    data = model if isinstance(model, bytes) else model.SerializeToString()
    with open(os.path.join(folder, "model.onnx"), "wb") as file:
        file.write(data)


def value(name, dtype=FLOAT, shape=None):
    return helper.make_tensor_value_info(name, dtype, shape)


def graph_of(nodes, inputs, outputs, consts=None):
    initializers = [c if isinstance(c, TensorProto) else numpy_helper.from_array(c, n)
                    for n, c in (consts or {}).items()]
    return helper.make_graph(nodes, "g", inputs, outputs, initializers)


def model_of(graph, opset=18, domains=(), functions=(), ir_version=10):
    imports = [helper.make_opsetid("", opset)]
    imports += [helper.make_opsetid(domain, 1) for domain in domains]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions),
                             ir_version=ir_version)


def simple(nodes, shape=(2,), consts=None, **options):
    """x float[shape] -> y float of unknown shape."""
    return model_of(graph_of(nodes, [value("x", FLOAT, shape)],
                             [value("y")], consts), **options)


def relu():
    return simple([helper.make_node("Relu", ["x"], ["y"], name="r")])


def node_model(op, inputs, consts, out_types, opset, domain, attributes):
    """One node over all names, inputs first come as given, in the order of `order`."""
    order = attributes.pop("order", list(inputs) + list(consts))
    names = [name for name in order]
    outs = [f"y{k}" for k in range(len(out_types))]
    node = helper.make_node(op, names, outs, name="n", domain=domain, **attributes)
    declared = []
    for name, array in inputs.items():
        dtype = helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype)
        declared.append(value(name, dtype, [None] * np.asarray(array).ndim))
    graph = graph_of([node], declared, [value(o, t) for o, t in zip(outs, out_types)],
                     {n: np.asarray(c) for n, c in consts.items()})
    return model_of(graph, opset, [domain] if domain else [])


def node_case(name, what, exits, says, op, inputs, consts=None, out=(FLOAT,), opset=18,
              domain="", extra=(), **attributes):
    """One operator; `inputs` are fed from npy files, `consts` are initializers."""
    def write(folder):
        arrays = {n: np.asarray(v) for n, v in inputs.items()}
        save(node_model(op, arrays, consts or {}, out, opset, domain, dict(attributes)),
             folder)
        args = ["run", "model.onnx"]
        for n, array in arrays.items():
            np.save(os.path.join(folder, f"{n}.npy"), array)
            args += ["-i", f"{n}={n}.npy"]
        return args + list(extra)
    return Case(name, what, as_list(exits), says, write)


def model_case(name, what, exits, says, build, extra=()):
    """`build(folder)` returns a model or its bytes."""
    def write(folder):
        made = build(folder)
        if made is not None:
            save(made, folder)
        return ["run", "model.onnx", *extra]
    return Case(name, what, as_list(exits), says, write)


def varint(number):
    out = bytearray()
    while True:
        out.append((number & 127) | (128 if number > 127 else 0))
        number >>= 7
        if not number:
            return bytes(out)


def field(number, payload):
    """A length-delimited field of the wire format."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def loaded(array, name="c"):
    return numpy_helper.from_array(np.asarray(array), name)


__all__ = ["Case", "FLOAT", "INT64", "TensorProto", "as_list", "field", "graph_of",
           "helper", "loaded", "model_case", "model_of", "node_case", "np", "onnx",
           "os", "relu", "save", "simple", "value", "varint"]
