"""compile(): a PyTorch module in, a callable that computes it with attnrun out.

The module is converted by attnrun_convert (tools/convert), checked against itself on the
example, and kept in a folder by a hash of what the conversion depends on."""
import hashlib
import importlib.metadata
import importlib.util
import inspect
import io
import os
import pickle
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from . import _attnrun
from ._errors import Error
from ._model import Model

RTOL, ATOL = 1e-3, 1e-4  # against the module, as in the converter; ATOL of small results
FORM = 2  # of the files that are kept: raised where those of before must not be used
STATUS = {1: ("UNSUPPORTED", 400), 2: ("USAGE", 200), 3: ("IO", 300),
          4: ("UNSUPPORTED", 400)}  # by exit code
# Types that numpy lacks, by their short names; they come back as bits or as those of ml_dtypes.
RARE = {"bf16": "bfloat16", "f8e4m3fn": "float8_e4m3fn", "f8e4m3fnuz": "float8_e4m3fnuz",
        "f8e5m2": "float8_e5m2", "f8e5m2fnuz": "float8_e5m2fnuz"}


def default_cache() -> Path:
    """$XDG_CACHE_HOME/attnrun/compiled, by default below ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "attnrun" / "compiled"


class _Hashing(pickle.Pickler):
    """Pickles a module with the SHA-256 of each tensor in its place."""

    def persistent_id(self, obj: Any) -> Any:
        torch = sys.modules["torch"]
        if not isinstance(obj, torch.Tensor):
            return None
        flat = obj.detach().cpu().contiguous().reshape(-1)
        return (str(obj.dtype), tuple(obj.shape),
                hashlib.sha256(flat.view(torch.uint8).numpy().data).hexdigest())


def _content(module: Any) -> bytes | None:
    """What the module holds, as bytes that do not depend on which equal objects are one object: the
    export of a module may change that. A module that holds itself needs the references, which are
    then part of the bytes. None for a module that cannot be pickled."""
    for fast in (True, False):
        content = io.BytesIO()
        pickler = _Hashing(content)
        pickler.fast = fast  # no references to objects that were written before
        try:
            pickler.dump(module)
            return content.getvalue()
        except (RecursionError, ValueError):
            continue
        except Exception:  # lambdas, open files: whatever cannot be pickled is not cached
            return None
    return None


def _files_of(module: Any) -> set[str] | None:
    """The files that define the classes of the module and of those inside it; None where one is
    in no file, as in a notebook: its code may be another one under the same name."""
    homes = {cls.__module__ for part in module.modules() for cls in type(part).__mro__}
    files = {getattr(sys.modules.get(home), "__file__", None) or ""
             for home in homes - set(sys.builtin_module_names)}
    return files if all(map(os.path.isfile, files)) else None


def _converter() -> str:
    """A hash of the converter's sources, and the versions of what it exports with: another
    converter may write another file. Nothing of it is imported."""
    digest, spec = hashlib.sha256(), importlib.util.find_spec("attnrun_convert")
    for folder in (spec.submodule_search_locations or () if spec is not None else ()):
        for path in sorted(Path(folder).rglob("*.py")):
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    for package in ("onnx", "onnx-ir", "onnxscript"):
        try:
            digest.update(importlib.metadata.version(package).encode() + b"\0")
        except importlib.metadata.PackageNotFoundError:
            digest.update(b"\0")
    return digest.hexdigest()


def _key(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], dynamic: Any,
         options: Mapping[str, Any]) -> str | None:
    """A hash of the weights, attributes and source files of the module, of the example's
    structure and shapes, the options, the converter and the versions; None where the module cannot
    be pickled, or a class of it is in no file."""
    torch = sys.modules["torch"]
    digest = hashlib.sha256()
    content, files = _content(module), _files_of(module)
    if content is None or files is None:
        return None
    try:
        given = _given(inspect.signature(module.forward), args, kwargs)
    except TypeError:  # the converter says what is wrong with the example
        return None
    shapes = [(path, (tuple(leaf.shape), str(leaf.dtype)) if isinstance(leaf, torch.Tensor)
               else leaf) for path, leaf in given.items()]
    digest.update(content)
    for path in sorted(files):
        with open(path, "rb") as file:
            digest.update(hashlib.sha256(file.read()).digest())
    digest.update(repr((shapes, dynamic, sorted(options.items()), torch.__version__,
                        _attnrun.version, _converter(), sys.version_info[:2],
                        FORM)).encode())
    return digest.hexdigest()


def _leaves(tree: Any) -> list[Any]:
    """What is not None in a result."""
    from torch.utils import _pytree
    return [leaf for leaf in _pytree.tree_leaves(tree) if leaf is not None]


def _parts(value: Any) -> list[tuple[str, Any]]:
    """The leaves of an argument, each with its path in it: "['a'][0]"."""
    from torch.utils import _pytree
    try:
        pairs = _pytree.tree_flatten_with_path(value)[0]
        return [(_pytree.keystr(path), leaf) for path, leaf in pairs]
    except ValueError:  # a type whose parts have no names
        leaves, spec = _pytree.tree_flatten(value)
        return [(f"[{i}] of {spec}", leaf) for i, leaf in enumerate(leaves)]


def _given(signature: inspect.Signature, args: tuple[Any, ...],
           kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """What is given and not None, by its path ("x", "pair[0]"), in the order of the parameters of
    forward: an argument that is left out is none of another parameter."""
    tensor = sys.modules["torch"].Tensor
    return {name + path: leaf
            for name, value in signature.bind(*args, **kwargs).arguments.items()
            for path, leaf in ([("", value)] if isinstance(value, tensor) else _parts(value))
            if leaf is not None}


def _as_torch(array: Any, dtype: str) -> Any:
    torch = sys.modules["torch"]
    if dtype in RARE:
        bits = array.view(np.uint16 if array.itemsize == 2 else np.uint8)
        return torch.from_numpy(bits).view(getattr(torch, RARE[dtype]))
    return torch.from_numpy(array)


class Compiled:
    """A module that attnrun computes: called like it, with tensors in and out.

    .model is the attnrun.Model, .path its file, .cached whether it was there already."""

    def __init__(self, path: Path, module: Any, example: tuple[Any, Any], result: Any,
                 cached: bool, **options: Any) -> None:
        from torch.utils import _pytree
        self.path, self.cached = path, cached
        self.model = Model(path, **options)
        self._signature = inspect.signature(module.forward)
        given = _given(self._signature, *example)
        self._tensors = [path for path, leaf in given.items() if self._is_tensor(leaf)]
        self._fixed = {path: leaf for path, leaf in given.items() if path not in self._tensors}
        leaves, self._result = _pytree.tree_flatten(result)
        self._is_none = [leaf is None for leaf in leaves]
        self._outputs = {value.name: value.dtype for value in self.model.outputs}
        if len(self._outputs) != self._is_none.count(False):
            raise Error(f"UNSUPPORTED: the module returns {self._is_none.count(False)} results, "
                        f"the file {len(self._outputs)} tensors", "UNSUPPORTED", 400)

    @staticmethod
    def _is_tensor(leaf: Any) -> bool:
        return isinstance(leaf, sys.modules["torch"].Tensor)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's result. Raises attnrun.Error; TypeError where the arguments are of
        another structure than the example's."""
        from torch.utils import _pytree
        leaves = _given(self._signature, args, kwargs)
        given = {path: leaf.detach() for path, leaf in leaves.items() if self._is_tensor(leaf)}
        if {path: leaf for path, leaf in leaves.items() if path not in given} != self._fixed:
            raise TypeError("arguments that are not tensors must be those of the example: "
                            f"{self._fixed}")
        if given.keys() != set(self._tensors):
            raise TypeError(f"the tensors {', '.join(given)} are given, those of the example are "
                            f"{', '.join(self._tensors)}")
        inputs, tensors = self.model.inputs, [given[path] for path in self._tensors]
        if len(tensors) != len(inputs):
            raise TypeError(f"{len(tensors)} tensors are given, the model takes "
                            f"{', '.join(value.name for value in inputs)}")
        made = self.model(**{value.name: tensor for value, tensor in
                             zip(inputs, tensors, strict=True)})
        tensors = [_as_torch(made[name], dtype) for name, dtype in self._outputs.items()]
        return _pytree.tree_unflatten([None if is_none else tensors.pop(0)
                                       for is_none in self._is_none], self._result)


def _convert(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], dynamic: Any,
             output: Path, options: Mapping[str, Any]) -> None:
    try:
        import attnrun_convert
        from attnrun_convert.errors import CaptureError, ConvertError
    except ImportError as error:
        raise ImportError("attnrun.compile() needs attnrun_convert: pip install "
                          "./tools/convert") from error
    convert: Callable[..., Any] = attnrun_convert.convert
    try:
        convert(module, args, dict(kwargs), dynamic=dynamic, output=str(output),
                **{"quiet": True, "check": ("attnrun.Model",) if dynamic else (), **options})
    except ConvertError as error:  # what PyTorch cannot export is not supported, either
        code = 4 if isinstance(error, CaptureError) else error.code
        raise Error(str(error), *STATUS.get(code, ("INTERNAL", 7000))) from error


def _steps(expected: Any) -> float:
    """Two steps of a 16-bit type at the largest value: both sides round."""
    if not expected.is_floating_point() or expected.element_size() != 2:
        return 0.0
    eps: float = sys.modules["torch"].finfo(expected.dtype).eps
    finite = expected.detach()[expected.isfinite()]
    return 2 * eps * float(finite.abs().max()) if finite.numel() else 0.0


def _check(compiled: Compiled, example: tuple[Any, Any], result: Any) -> None:
    made = _leaves(compiled(*example[0], **example[1]))
    for name, x, y in zip(compiled._outputs, _leaves(result), made, strict=True):
        a, b = x.detach().double().numpy(), y.double().numpy()
        size = min(1.0, float(np.max(np.abs(a), initial=0.0, where=np.isfinite(a)))) or 1e-3
        if a.shape != b.shape or not np.allclose(b, a, RTOL, ATOL * size + _steps(x),
                                                 equal_nan=True):
            with np.errstate(invalid="ignore"):
                worst = (f"{np.max(np.abs(a - b), where=a != b, initial=0):.2g}"
                         if a.shape == b.shape else "the shape")
            raise Error(f"INTERNAL: output '{name}' differs from the module's by {worst}",
                        "INTERNAL", 7000, tensor=name)


def compile_module(module: Any, example: Any = (), kwargs: Mapping[str, Any] | None = None, *,
                   dynamic: Any = None, cache: str | os.PathLike[str] | bool = True,
                   threads: int | None = None, **options: Any) -> Compiled:
    """See attnrun.compile."""
    import torch
    from torch.utils import _pytree
    args = example if isinstance(example, tuple) else (example,)
    if isinstance(example, Mapping):
        args, kwargs = (), {**example, **(kwargs or {})}
    kwargs = dict(kwargs or {})
    key = _key(module, args, kwargs, dynamic, options) if cache is not False else None
    kept = default_cache() if isinstance(cache, bool) else Path(cache)

    def result_of() -> Any:  # not before the converter has refused what a run would change
        own = _pytree.tree_map_only(torch.Tensor, torch.clone, (args, kwargs))  # written into
        with torch.no_grad():
            return module(*own[0], **own[1])

    if key is not None and (kept / key / "model.onnx").is_file():
        result = result_of()
        compiled = Compiled(kept / key / "model.onnx", module, (args, kwargs), result, True,
                            threads=threads)
        try:
            _check(compiled, (args, kwargs), result)
            return compiled
        except Error:  # code in other files is another one now
            shutil.rmtree(kept / key, ignore_errors=True)
    if key is not None:
        kept.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".compile-", dir=kept if key is not None else None))
    try:
        _convert(module, args, kwargs, dynamic, made / "model.onnx", options)
        result = result_of()
        compiled = Compiled(made / "model.onnx", module, (args, kwargs), result, False,
                            threads=threads)
        _check(compiled, (args, kwargs), result)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    if key is None:  # the mapped file lives as long as the process has it open
        shutil.rmtree(made, ignore_errors=True)
        return compiled
    try:
        os.rename(made, kept / key)
    except OSError:  # another process was first
        shutil.rmtree(made, ignore_errors=True)
    compiled.path = kept / key / "model.onnx"
    return compiled
