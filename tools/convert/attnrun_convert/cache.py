"""Bodies on disk: making one takes seconds. In $XDG_CACHE_HOME/attnrun/bodies, by default
~/.cache; the name of a file is a digest of all that the body depends on: operator,
attributes, operands, opset, the sources of this package, versions of the packages it uses.
A folder that cannot be written is no error."""
import functools
import hashlib
import os
import tempfile
from pathlib import Path

import onnx
import onnx_ir
import onnxscript
import torch

from . import bodies
from .naming import name_of


def folder():
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "attnrun" / "bodies"


@functools.cache
def _sources():
    here, digest = Path(__file__).parent, hashlib.sha1()
    for path in sorted(here.rglob("*.py")):
        digest.update(path.read_bytes())
    for package in (torch, onnx, onnx_ir, onnxscript):
        digest.update(package.__version__.encode())
    return digest.hexdigest()


def _key(operator, attributes, tensors, n_outputs, opset, dynamic):
    operands = []
    for operand, tensor, axes in zip(operator.inputs, tensors,
                                     bodies.axes_of(dynamic, tensors)):
        if tensor is not None:
            words = operand.dims_for(tensor.dim())
            sizes = [words[axis] if axis in words and (axes is None or axis in axes) else size
                     for axis, size in enumerate(tensor.shape)]
            operands.append((operand.name, str(tensor.dtype), sizes))
    attributes = sorted((k, list(v) if isinstance(v, tuple) else v)
                        for k, v in attributes.items())
    return repr((operator.name, attributes, operands, n_outputs, opset, _sources()))


def _read(path, name):
    """The body in a file; None where there is none, or where it is damaged."""
    try:
        body = onnx.FunctionProto.FromString(path.read_bytes())
    except Exception:  # noqa: BLE001 - protobuf's own kind of error
        return None
    return body if name_of(name, body) == body.name else None


def _write(path, body):
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(body.SerializeToString(deterministic=True))
        os.replace(file.name, path)
    except OSError:
        pass


def make_body(operator, attributes, tensors, n_outputs, opset, dynamic):
    """bodies.make_body, or what it made before."""
    key = _key(operator, attributes, tensors, n_outputs, opset, dynamic)
    path = folder() / hashlib.sha1(key.encode()).hexdigest()
    body = _read(path, operator.name)
    if body is None:
        body = bodies.make_body(operator, attributes, tensors, n_outputs, opset, dynamic)
        _write(path, body)
    return body
