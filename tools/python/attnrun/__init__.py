"""attnrun: ONNX models on CPUs, with the exact memory of a run known before it.

    model = attnrun.Model("net.onnx")
    y = model(x=x)["y"]

Model, Context, Plan, Runtime, Error are the library's own interface; InferenceSession and
install_as_onnxruntime() stand in for onnxruntime; attnrun.backend is ONNX's backend API."""
from typing import Any as _Any

import numpy as _np

from . import _attnrun, _values
from ._attnrun import Runtime, Tensor
from ._errors import Error
from ._model import Context, Memory, Model, Plan, Value, default_runtime

_attnrun.setup(Error, _np.empty, _values.DTYPES, _values.to_native, _values.to_python,
               _values.to_strings)

from ._ort import (InferenceSession, RunOptions, SessionOptions,  # noqa: E402
                   install_as_onnxruntime, ort_library)
from ._ort_values import IOBinding, OrtValue  # noqa: E402



def without_bodies(source: _Any) -> _Any:
    """A file's model with operators of domain attnrun in the place of function bodies, so that
    onnxruntime runs them natively: see ort_library(). Needs the package onnx.

        onnx.save(attnrun.without_bodies("net.onnx"), "native.onnx")"""
    from . import _bodies
    return _bodies.without_bodies(source)


__version__: str = _attnrun.version
__all__ = ["Context", "Error", "IOBinding", "InferenceSession", "Memory", "Model", "OrtValue",
           "Plan", "RunOptions", "Runtime", "SessionOptions", "Tensor", "Value",
           "default_runtime", "install_as_onnxruntime", "ort_library",
           "without_bodies"]
