"""ONNX's backend interface: prepare, run_model, run_node, supports_device, is_compatible.

In: ModelProto or NodeProto with inputs in the order of the graph. Out: arrays in the order of
its outputs. This module needs the package onnx, which attnrun itself does not need.

    onnx.backend.test.runner.Runner(attnrun.backend, "name").test_cases"""
from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx import helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from ._errors import Error
from ._model import Model


def _version(node: onnx.NodeProto, opset: int) -> int:
    """The opset of the node's domain: `opset`, or the newest that defines the operator."""
    if node.domain in ("", "ai.onnx"):
        return opset
    known = onnx.defs.has(node.op_type, domain=node.domain)
    return onnx.defs.get_schema(node.op_type, domain=node.domain).since_version if known else 1


class AttnrunRep(BackendRep):
    """A prepared model."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Inputs: one array, a sequence in the order of the graph's inputs, or a dict by
        name. Raises attnrun.Error."""
        del kwargs
        names = [value.name for value in self.model.inputs]
        if isinstance(inputs, Mapping):
            feeds = dict(inputs)
        elif isinstance(inputs, (list, tuple)):
            if len(inputs) > len(names):
                raise Error(f"INPUT: the model takes at most {len(names)} inputs, "
                            f"and {len(inputs)} are given", "INPUT", 503)
            feeds = dict(zip(names, inputs, strict=False))
        else:
            feeds = {names[0]: inputs}
        outputs = [value.name for value in self.model.outputs]
        results = self.model(**feeds)
        made: tuple[Any, ...] = namedtupledict("Outputs", outputs)(
            *[results[name] for name in outputs])
        return made


class AttnrunBackend(Backend):
    """The backend; its methods are the functions of this module."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU",
                      **kwargs: Any) -> bool:
        """True if attnrun opens the model, so that it has all operators."""
        if not cls.supports_device(device):
            return False
        try:
            Model(model.SerializeToString(), **kwargs)
        except Error:
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU",
                **kwargs: Any) -> AttnrunRep:
        """Opens a model. The keywords are those of attnrun.Model. Raises attnrun.Error, and
        ValueError for a device other than the CPU."""
        if not cls.supports_device(device):
            raise ValueError(f"the device {device} is not supported, CPU is")
        return AttnrunRep(Model(model.SerializeToString(), **kwargs))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU",
                  **kwargs: Any) -> tuple[Any, ...]:
        """prepare(model).run(inputs)"""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU",
                 outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
                 **kwargs: Any) -> tuple[Any, ...]:
        """Runs one node on inputs in its order, or by name. outputs_info is not used, because the
        run gives the types and shapes. Raises attnrun.Error."""
        del outputs_info
        opset = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        given = inputs if isinstance(inputs, Mapping) else dict(
            zip([name for name in node.input if name], inputs, strict=True))
        infos = [helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in given.items()]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = helper.make_graph([node], "node", infos, outputs)
        imports = [helper.make_opsetid(node.domain, _version(node, opset))]
        model = helper.make_model(graph, opset_imports=imports)
        model.ir_version = min(model.ir_version, 13)
        return cls.run_model(model, dict(given), device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """True for the CPU."""
        return device.split(":")[0] == "CPU"


is_compatible = AttnrunBackend.is_compatible
prepare = AttnrunBackend.prepare
run_model = AttnrunBackend.run_model
run_node = AttnrunBackend.run_node
supports_device = AttnrunBackend.supports_device
