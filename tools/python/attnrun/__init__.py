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



def compile(module: _Any, example: _Any = (), kwargs: _Any = None, *, dynamic: _Any = None,
            cache: _Any = True, threads: int | None = None, **options: _Any) -> _Any:
    """A PyTorch module as a callable that attnrun computes: tensors in, tensors out.

        fast = attnrun.compile(module.eval(), x, dynamic={"x": {0: "batch"}})
        y = fast(x)                                # x: f32[batch, 64] -> f32[batch, 10]

    example   a tensor, a tuple of arguments, or a dict by name; `kwargs` are added
    dynamic   the sizes that may differ, as in attnrun_convert.convert(); all others are fixed
    cache     a folder (True: below ~/.cache/attnrun; False: none). A file is found again by a
              hash of the weights, attributes and class files of the module, the example's
              shapes, the options and the versions; code in other files is not looked at
    threads   a runtime of its own with so many
    options   those of attnrun_convert.convert()

    The result is compared with the module's on the example before it is returned. Raises
    attnrun.Error with the converter's sentence where the module is refused (UNSUPPORTED, ...),
    ImportError without attnrun_convert. Needs PyTorch."""
    from ._compile import compile_module
    return compile_module(module, example, kwargs, dynamic=dynamic, cache=cache,
                          threads=threads, **options)


def without_bodies(source: _Any) -> _Any:
    """A file's model with operators of domain attnrun in the place of function bodies, so that
    onnxruntime runs them natively: see ort_library(). Needs the package onnx.

        onnx.save(attnrun.without_bodies("net.onnx"), "native.onnx")"""
    from . import _bodies
    return _bodies.without_bodies(source)


__version__: str = _attnrun.version
__all__ = ["Context", "Error", "IOBinding", "InferenceSession", "Memory", "Model", "OrtValue",
           "Plan", "RunOptions", "Runtime", "SessionOptions", "Tensor", "Value",
           "compile", "default_runtime", "install_as_onnxruntime", "ort_library",
           "without_bodies"]
