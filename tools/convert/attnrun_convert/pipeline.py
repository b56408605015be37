"""convert: a module, its example arguments and names of sizes in; an ONNX file out."""
import os
import tempfile
from pathlib import Path

import onnx
import onnx_ir

from . import attach, capture, registry
from .errors import ConvertError, FileError

OPSET = 25  # the newest that the exporter writes and both runtimes run
INLINE_LIMIT = 1 << 30  # weights over this many bytes go to a file of their own


def convert(module, args=(), kwargs=None, *, dynamic=None, output="model.onnx", opset=OPSET,
            output_names=None, external_data=None):
    """Writes `output` and returns its path.

    module        in eval mode; attnrun_convert.call in it gives operators of attnrun
    args, kwargs  example arguments of forward (args: a tuple, a tensor, or a dict by name)
    dynamic       {"ids": {0: "batch", 1: "seq"}}: sizes that may differ
    external_data True, False, or None: weights over 1 GiB go to `output`.data
    """
    capture.refuse_training(module)
    given = capture.bound(module, args, kwargs)
    names = capture.flat_names(given.arguments)
    dynamic = capture.axis_names(dynamic, names)
    plan = registry.plan(module, given.args, given.kwargs)
    try:
        with plan.applied():
            model, calls = capture.captured(module, given, dynamic, opset, output_names)
    finally:
        plan.close()
    print(*plan.lines(), sep="\n")
    attach.attach(model, calls, opset)
    _strip(model)
    return save(model, output, external_data)


def _strip(model):
    """Stack traces and module paths are for the exporter's own debugging."""
    model.producer_name = "attnrun_convert"
    model.graph.metadata_props.clear()
    for node in model.graph.all_nodes():
        node.metadata_props.clear()
        for value in node.outputs:
            value.metadata_props.clear()
    for value in (*model.graph.inputs, *model.graph.initializers.values()):
        value.metadata_props.clear()


def save(model, output, external_data=None):
    """Writes beside the target first: there is never half a file."""
    output = Path(output)
    size = sum(v.const_value.nbytes for v in model.graph.initializers.values())
    if external_data is None:
        external_data = size > INLINE_LIMIT
    try:
        with tempfile.TemporaryDirectory(dir=output.parent, prefix=".attnrun-") as folder:
            made = Path(folder) / output.name
            data = output.name + ".data" if external_data else None
            onnx_ir.save(model, made, external_data=data, size_threshold_bytes=1024,
                         alignment=4096, align_threshold=65536)
            onnx.checker.check_model(str(made), full_check=True)
            if external_data and (Path(folder) / data).exists():
                os.replace(Path(folder) / data, output.parent / data)
            os.replace(made, output)
    except OSError as error:
        raise FileError(f"cannot write {output}: {error.strerror or error}") from error
    except onnx.checker.ValidationError as error:
        raise ConvertError(f"the file made of this model is not valid: {error}") from error
    return output
