"""InferenceSession and what belongs to it, with the names of onnxruntime's Python package.

In: what a program gives to onnxruntime. Out: the same kinds of results, computed by attnrun.
The names and their meaning follow onnxruntime 1.32. Settings without a counterpart here (memory
patterns, profiling, providers other than the CPU) are accepted and have no effect; those that
would change results are refused."""
import importlib.machinery
import importlib.util
import os
import sys
import threading
import types
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from . import _attnrun, _values
from ._attnrun import Runtime
from ._declared import Shape, shapes_as_declared
from ._errors import Error
from ._model import Model, Value, default_runtime
from ._ort_values import IOBinding, OrtDevice, OrtValue
from ._shared import prints_of_model

INTERFACE_VERSION = "1.32.0"
CPU = "CPUExecutionProvider"
ORT_LIBRARY = "libattnrun_ort.so"
RAGGED: dict[str, bool | str] = {"0": False, "1": True, "auto": "auto"}
LOG_LEVEL = {0: 3, 1: 2, 2: 1}  # onnxruntime's severity -> the highest level that is shown


class GraphOptimizationLevel:
    """ORT_DISABLE_ALL turns fusion off; all other levels turn it on."""
    ORT_DISABLE_ALL, ORT_ENABLE_BASIC, ORT_ENABLE_EXTENDED = 0, 1, 2
    ORT_ENABLE_LAYOUT, ORT_ENABLE_ALL = 3, 99


class ExecutionOrder:
    """Accepted, without effect."""
    DEFAULT, PRIORITY_BASED, MEMORY_EFFICIENT = 0, 1, 2


class ExecutionMode:
    """Accepted, without effect: a run computes its nodes one after another."""
    ORT_SEQUENTIAL, ORT_PARALLEL = 0, 1


class SessionOptions:
    """The options of a session. These take effect: intra_op_num_threads, log_severity_level,
    graph_optimization_level (ORT_DISABLE_ALL), free dimension overrides, libraries of operators,
    and the config entries of attnrun. All other options are kept without effect."""

    def __init__(self) -> None:
        self.intra_op_num_threads = 0
        self.inter_op_num_threads = 0
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.execution_mode = ExecutionMode.ORT_SEQUENTIAL
        self.execution_order = 0
        self.enable_profiling = False
        self.profile_file_prefix = "onnxruntime_profile_"
        self.enable_mem_pattern = True
        self.enable_mem_reuse = True
        self.enable_cpu_mem_arena = True
        self.optimized_model_filepath = ""
        self.use_deterministic_compute = False
        self._entries: dict[str, str] = {}
        self._dims: dict[str, int] = {}
        self._plugins: list[str] = []

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keeps an entry. "attnrun.ragged" ("0", "1", "auto") and "attnrun.precision" ("f32",
        "bf16", "auto") are the options of attnrun.Model. No other entry has an effect."""
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """The entry kept under `key`."""
        return self._entries[key]

    def add_free_dimension_override_by_name(self, name: str, value: int) -> None:
        """Fixes the symbolic dim `name` at `value` for every run, so that more is computed when
        the session is made. A name that no input has is without effect."""
        self._dims[name] = int(value)

    def register_custom_ops_library(self, path: str) -> None:
        """Loads operators from a plugin of attnrun (attnrun_plugin in attnrun.h). The operators
        of ort_library() are part of attnrun, so that path is without effect."""
        if os.path.basename(path) != ORT_LIBRARY:
            self._plugins.append(path)


class RunOptions:
    """The options of a run. `terminate` ends runs; all other options are kept without effect."""

    def __init__(self) -> None:
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self.only_execute_path_to_fetches = False
        self._entries: dict[str, str] = {}
        self._terminate = False
        self._lock = threading.Lock()  # a context that has left the list may run for another one
        self._running: list[_attnrun.Context] = []

    @property
    def terminate(self) -> bool:
        """True ends all runs with these options: each raises attnrun.Error (CANCELLED). Another
        thread may set it during a run."""
        return self._terminate

    @terminate.setter
    def terminate(self, value: bool) -> None:
        with self._lock:
            self._terminate = bool(value)
            for context in self._running if value else ():
                context.cancel()

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keeps an entry. No entry has an effect."""
        self._entries[key] = value

    def get_run_config_entry(self, key: str) -> str:
        """The entry kept under `key`."""
        return self._entries[key]


def _type_text(value: Value) -> str:
    text = f"tensor({_values.ONNX_NAMES.get(value.number, 'undefined')})"
    if value.kind in (_values.MAP, _values.MAP_SEQUENCE):
        text = f"map({_values.ONNX_NAMES.get(value.key_number, 'undefined')},{text})"
    if value.kind in (_values.SEQUENCE, _values.OPTIONAL_SEQUENCE, _values.MAP_SEQUENCE):
        text = f"seq({text})"
    if value.kind in (_values.OPTIONAL, _values.OPTIONAL_SEQUENCE):
        text = f"optional({text})"
    return text


class NodeArg:
    """An input or output: .name, .shape (numbers, str where the file names a dim, None where the
    size is unknown) and .type ('tensor(float)')."""

    def __init__(self, value: Value, shape: Shape) -> None:
        self.name = value.name
        self.type = _type_text(value)
        self.shape: Shape = list(shape)

    def __repr__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape})"


class ModelMetadata:
    """What the file says about itself. version is 2**63 - 1 if the file has none."""

    def __init__(self, info: Mapping[str, Any]) -> None:
        self.custom_metadata_map: dict[str, str] = dict(info["metadata"])
        self.description: str = info["doc"]
        self.domain: str = info["domain"]
        self.graph_description: str = info["graph_doc"]
        self.graph_name: str = info["graph_name"]
        self.producer_name: str = info["producer"]
        self.version: int = info["model_version"]


def _runtime_of(options: SessionOptions) -> Runtime:
    severity = options.log_severity_level
    threads = options.intra_op_num_threads
    if threads <= 0 and severity not in LOG_LEVEL and not options._plugins:
        return default_runtime()
    shown = LOG_LEVEL.get(severity, 0)

    def log(level: int, message: str) -> None:
        if level <= shown:
            print(f"attnrun: {message}", file=sys.stderr)

    runtime = Runtime(threads=max(threads, 0), log=log if shown else None)
    for path in options._plugins:
        runtime.load_plugin(path)
    return runtime


def _model_options(entries: Mapping[str, str]) -> dict[str, Any]:
    """The entries that attnrun.Model takes, as its arguments."""
    ragged = entries.get("attnrun.ragged", "0")
    if ragged not in RAGGED:
        raise ValueError(f"attnrun.ragged is {ragged!r}, expected one of {', '.join(RAGGED)}")
    return {"ragged": RAGGED[ragged], "precision": entries.get("attnrun.precision", "f32")}


class InferenceSession:
    """Takes the calls of onnxruntime.InferenceSession and computes with attnrun. Several threads
    may run one session.

    Raises attnrun.Error, a RuntimeError, where onnxruntime raises exceptions of its own."""

    def __init__(self, path_or_bytes: str | os.PathLike[str] | bytes,
                 sess_options: SessionOptions | None = None,
                 providers: Sequence[Any] | None = None,
                 provider_options: Sequence[Any] | None = None, **more: Any) -> None:
        del provider_options, more
        self._check_providers(providers)
        self._sess_options = sess_options or SessionOptions()
        in_memory = isinstance(path_or_bytes, (bytes, bytearray, memoryview))
        self._model_path = "" if in_memory else os.fspath(path_or_bytes)
        self._model_bytes = path_or_bytes if in_memory else b""
        if self._sess_options.optimized_model_filepath:
            warnings.warn("optimized_model_filepath has no effect: attnrun writes no such "
                          "file (attnrun.Model.pack() writes one of its own form)",
                          RuntimeWarning, stacklevel=2)
        self._source = self._model_bytes if in_memory else os.path.realpath(
            os.fsdecode(self._model_path))
        before = self._files_of(0)
        self._model = self._open(path_or_bytes)
        self._files = before, self._files_of(self._model.info["file_bytes"])
        self._output_names = tuple(value.name for value in self._model.outputs)
        self._shapes = shapes_as_declared(
            b"" if self._model.info["packed_for"] else path_or_bytes,
            self._model.inputs + self._model.outputs)

    def _open(self, source: Any, separate: bool = False) -> Model:
        """Opens the model, and opens it again if the options fix some of its dims, or if equal
        names of dims are to be `separate` sizes."""
        options = self._sess_options
        level = int(options.graph_optimization_level)
        keywords: dict[str, Any] = {
            "runtime": _runtime_of(options), **_model_options(options._entries),
            "fusion": level != GraphOptimizationLevel.ORT_DISABLE_ALL}
        model = Model(source, **keywords)
        symbols = {dim for value in model.inputs for dim in value.shape or ()}
        dims = {name: size for name, size in options._dims.items() if name in symbols}
        if not dims and not separate:
            return model
        return Model(source, dims=dims, separate_dims=separate, **keywords)

    def _check_files(self) -> None:
        if (self._files_of(0), self._files_of(self._model.info["file_bytes"])) != self._files:
            raise Error(f"IO: {self._source!r} was deleted, replaced or changed; the session has "
                        "to open it again, since these inputs give a name of a dim two sizes",
                        "IO", 300, hint="attnrun.Model(..., separate_dims=True) opens it once")

    def _files_of(self, file_bytes: int) -> list[Any]:
        """What tells the model's file, and those of its weights, from others in their place."""
        try:
            return [] if self._source is self._model_bytes else [
                os.stat(self._source).st_ino, *prints_of_model(str(self._source), file_bytes)]
        except OSError:
            return [None]

    def _open_separate(self) -> Model:
        self._check_files()
        model = self._open(self._source, separate=True)
        self._check_files()
        return model

    def _names_disagree(self, feeds: Mapping[str, Any]) -> bool:
        """Whether these inputs give two sizes to a name that the model takes for one."""
        sizes: dict[str, int] = {}
        for value in self._model.inputs:
            shape = getattr(feeds.get(value.name), "shape", ())
            for name, size in zip(value.shape or (), shape):
                if isinstance(name, str) and sizes.setdefault(name, size) != size:
                    return True
        return False

    @staticmethod
    def _check_providers(providers: Sequence[Any] | None) -> None:
        names = [p if isinstance(p, str) else p[0] for p in providers or [CPU]]
        if CPU not in names:
            warnings.warn(f"only {CPU} is here, and is used in the place of {', '.join(names)}",
                          RuntimeWarning, stacklevel=3)

    def get_inputs(self) -> list[NodeArg]:
        """The inputs of the model; initializers are not among them."""
        return [NodeArg(value, self._shapes[value.name]) for value in self._model.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, in the order in which run(None, ...) returns them."""
        return [NodeArg(value, self._shapes[value.name]) for value in self._model.outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """An empty list, because initializers are constants here."""
        return []

    def get_modelmeta(self) -> ModelMetadata:
        """The file's names, texts, version and custom metadata."""
        return ModelMetadata(self._model.info)

    def get_providers(self) -> list[str]:
        """["CPUExecutionProvider"]"""
        return [CPU]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The CPU without any option."""
        return {CPU: {}}

    def set_providers(self, providers: Sequence[Any] | None = None,
                      provider_options: Sequence[Any] | None = None) -> None:
        """Warns if the list is without the CPU, and has no other effect."""
        del provider_options
        self._check_providers(providers)

    def get_session_options(self) -> SessionOptions:
        """The options with which the session was made."""
        return self._sess_options

    def disable_fallback(self) -> None:
        """There is one provider: no effect."""

    def enable_fallback(self) -> None:
        """There is one provider: no effect."""

    def end_profiling(self) -> str:
        """No profile is written: ''."""
        return ""

    def io_binding(self) -> IOBinding:
        """A new IOBinding of this session."""
        return IOBinding(self)

    def _run(self, names: tuple[str, ...], feeds: dict[str, Any],
             out: dict[str, Any] | None, options: RunOptions | None) -> dict[str, Any]:
        """Runs the model. onnxruntime accepts two sizes of one name, as CLIP has them that
        transformers.onnx wrote: one image, some texts. The session then takes no name for the
        same size in two inputs any more, in this run and in all later ones."""
        model = self._model
        try:
            return self._run_model(model, names, feeds, out, options)
        except Error as error:
            if error.status != "SHAPE" or not self._names_disagree(feeds):
                raise
        if self._model is model:
            self._model = self._open_separate()
        return self._run_model(self._model, names, feeds, out, options)

    @staticmethod
    def _run_model(model: Model, names: tuple[str, ...], feeds: dict[str, Any],
                   out: dict[str, Any] | None, options: RunOptions | None) -> dict[str, Any]:
        context = model._take()
        try:
            if options is None:
                return context._run(feeds, names, out, False, 0)
            options._running.append(context)  # before the look: terminate may be set now
            try:
                if options.terminate:
                    raise Error("CANCELLED: terminate is set in the run options", "CANCELLED",
                                13000)
                return context._run(feeds, names, out, False, 0)
            finally:
                with options._lock:
                    options._running.remove(context)
        finally:
            model._give(context)

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any],
            run_options: RunOptions | None = None) -> list[Any]:
        """Computes the outputs named, or all for None or [], and returns a list of arrays in that
        order. Raises attnrun.Error: INPUT, SHAPE, DTYPE, RANGE, MEMORY."""
        names = tuple(output_names) if output_names else self._output_names
        feeds = {name: value._value if isinstance(value, OrtValue) else value
                 for name, value in input_feed.items()}
        results = self._run(names, feeds, None, run_options)
        return [results[name] for name in names]

    def run_async(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any],
                  callback: Any, user_data: Any, run_options: RunOptions | None = None) -> None:
        """run() in a new thread, which then calls callback(results, user_data, error message)."""
        def work() -> None:
            try:
                results, error = self.run(output_names, input_feed, run_options), ""
            except Exception as failure:  # whatever it is, the caller's callback gets it
                results, error = [], str(failure)
            callback(results, user_data, error)

        threading.Thread(target=work, daemon=True).start()

    def run_with_ort_values(self, output_names: Sequence[str] | None,
                            input_dict_ort_values: Mapping[str, OrtValue],
                            run_options: RunOptions | None = None) -> list[OrtValue]:
        """run() that takes and returns OrtValue."""
        return [OrtValue(value)
                for value in self.run(output_names, input_dict_ort_values, run_options)]

    def run_with_iobinding(self, iobinding: IOBinding,
                           run_options: RunOptions | None = None) -> None:
        """Runs with what is bound. get_outputs() of the binding then returns the results."""
        out = {name: value for name, value in iobinding._outputs.items() if value is not None}
        names = tuple(iobinding._outputs) or self._output_names
        results = self._run(names, dict(iobinding._inputs), out, run_options)
        iobinding._results = [OrtValue(results[name]) for name in names]


def get_available_providers() -> list[str]:
    """["CPUExecutionProvider"]"""
    return [CPU]


def get_device() -> str:
    """'CPU'"""
    return "CPU"


def ort_library() -> str:
    """The path of libattnrun_ort.so, which gives onnxruntime every operator of domain attnrun.

        options = onnxruntime.SessionOptions()
        options.register_custom_ops_library(attnrun.ort_library())

    The operators compute in the threads of onnxruntime. They have N threads of their own if
    options.add_session_config_entry("attnrun.num_threads", "N") comes first. onnxruntime prefers
    the function body that a file has for a node: see attnrun.without_bodies(). Raises
    FileNotFoundError if attnrun was built without that library."""
    path = os.path.join(os.path.dirname(__file__), ORT_LIBRARY)
    if not os.path.exists(path):
        raise FileNotFoundError(f"this build of attnrun is without {path}")
    return path


def get_version_string() -> str:
    """The version of onnxruntime whose interface attnrun follows."""
    return INTERFACE_VERSION


def get_build_info() -> str:
    """Says that attnrun computes, and its version."""
    return f"attnrun {_attnrun.version} under the interface of onnxruntime"


def _nothing(*arguments: Any, **keywords: Any) -> None:
    """Accepts a call that has no effect here."""


def _module(name: str, content: Mapping[str, Any],
            folders: Sequence[str] = ()) -> types.ModuleType:
    module = types.ModuleType(name, "attnrun under the name of onnxruntime's module")
    module.__dict__.update(content)
    module.__path__ = list(folders)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    module.__spec__.submodule_search_locations = module.__path__
    sys.modules[name] = module
    return module


def install_as_onnxruntime() -> types.ModuleType:
    """Puts attnrun in the place of onnxruntime in this process, and returns the module that
    `import onnxruntime` now gives.

    Call it before any library imports onnxruntime; it raises RuntimeError afterwards. attnrun never
    calls it by itself. If onnxruntime is installed, its parts in pure Python
    (onnxruntime.transformers, onnxruntime.quantization) stay available, and they run on attnrun."""
    there = sys.modules.get("onnxruntime")
    if there is not None:
        if getattr(there, "_attnrun", False):
            return there
        raise RuntimeError("onnxruntime is imported already: call install_as_onnxruntime() "
                           "before whatever imports it")
    installed = importlib.util.find_spec("onnxruntime")
    folders = list(installed.submodule_search_locations or ()) if installed else []
    failures = ("EngineError", "EPFail", "Fail", "InvalidArgument", "InvalidGraph",
                "InvalidProtobuf", "ModelLoaded", "NoModel", "NoSuchFile", "NotImplemented",
                "RuntimeException")
    content: dict[str, Any] = {
        "InferenceSession": InferenceSession, "SessionOptions": SessionOptions,
        "RunOptions": RunOptions, "IOBinding": IOBinding, "OrtValue": OrtValue,
        "OrtDevice": OrtDevice, "NodeArg": NodeArg, "ModelMetadata": ModelMetadata,
        "GraphOptimizationLevel": GraphOptimizationLevel, "ExecutionMode": ExecutionMode,
        "ExecutionOrder": ExecutionOrder,
        "get_available_providers": get_available_providers, "get_device": get_device,
        "get_all_providers": get_available_providers,
        "get_version_string": get_version_string, "get_build_info": get_build_info,
        "set_default_logger_severity": _nothing, "set_default_logger_verbosity": _nothing,
        "set_seed": _nothing, "set_global_thread_pool_sizes": _nothing,
        "disable_telemetry_events": _nothing, "enable_telemetry_events": _nothing,
        "preload_dlls": _nothing}
    top = _module("onnxruntime", {**content, "__version__": INTERFACE_VERSION,
                                  "_attnrun": True}, folders)
    capi = _module("onnxruntime.capi", {})
    top.capi = capi  # type: ignore[attr-defined]
    names = {**content, **{name: Error for name in failures}}
    for name in ("onnxruntime_pybind11_state", "_pybind_state",
                 "onnxruntime_inference_collection"):
        setattr(capi, name, _module(f"onnxruntime.capi.{name}", names))
    return top
