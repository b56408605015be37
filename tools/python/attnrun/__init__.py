"""attnrun runs ONNX models on CPUs and knows the exact memory of a run before the run.

    model = attnrun.Model("net.onnx")
    y = model(x=x)["y"]

Model, Context, Plan, Runtime and Error are the library's own interface. InferenceSession and
install_as_onnxruntime() take the place of onnxruntime. attnrun.backend is ONNX's backend API,
attnrun.ray and attnrun.beam are for many processes, and compile() takes PyTorch modules."""
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
    """Converts a PyTorch module into a callable that takes and returns tensors.

        fast = attnrun.compile(module.eval(), x, dynamic={"x": {0: "batch"}})
        y = fast(x)                                # x: f32[batch, 64] -> f32[batch, 10]

    example   a tensor, a tuple of arguments, or a dict by name; `kwargs` are added to it
    dynamic   the sizes that may differ, as in attnrun_convert.convert(); all others are fixed
    cache     the folder that keeps the converted file (True: below ~/.cache/attnrun; False: no
              file is kept). A later call finds the file by a hash of the module's weights,
              attributes and class files, the shapes of the example, the options and the versions.
              Code in other files is not in the hash: a file that differs on the example is made
              anew. No file is kept of a class that is in none, as in a notebook
    threads   the callable gets a runtime of its own with this number of threads
    options   the options of attnrun_convert.convert()

    Before it returns, it compares the result with that of the module on the example, and where
    `dynamic` names sizes, at other sizes, as the converter does (check=() leaves these out). Raises
    attnrun.Error with the converter's sentence if the module cannot be converted (UNSUPPORTED,
    ...), and ImportError without attnrun_convert. Needs PyTorch."""
    from ._compile import compile_module
    return compile_module(module, example, kwargs, dynamic=dynamic, cache=cache,
                          threads=threads, **options)


def without_bodies(source: _Any) -> _Any:
    """Returns the model of a file with operators of domain attnrun in place of function bodies, so
    that onnxruntime runs them with attnrun's kernels: see ort_library(). Needs the package onnx.

        onnx.save(attnrun.without_bodies("net.onnx"), "native.onnx")"""
    from . import _bodies
    return _bodies.without_bodies(source)


__version__: str = _attnrun.version
__all__ = ["Context", "Error", "IOBinding", "InferenceSession", "Memory", "Model", "OrtValue",
           "Plan", "RunOptions", "Runtime", "SessionOptions", "Tensor", "Value",
           "compile", "default_runtime", "install_as_onnxruntime", "ort_library",
           "without_bodies"]
