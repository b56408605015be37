"""Model, Context, Plan: the library's own interface from Python.

In: a file or its bytes, inputs by name. Out: numpy arrays by name, exact bytes of a plan."""
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from . import _attnrun, _values
from ._attnrun import Runtime, Tensor

COPY, NO_FUSION, FORCE_BODIES, ALLOW_NEWER, ALLOW_MISSING, VERIFY = 1, 2, 4, 8, 16, 32


class Value(NamedTuple):
    """An input or output of a model."""
    name: str
    dtype: str  #: 'f32', 'i64', 'string', ...; 'undefined' where the file does not say
    shape: tuple[int | str, ...] | None  #: a str where symbolic, None where the rank is open
    kind: int  #: 1 tensor, 2 sequence, 3 optional, 4 optional sequence, 5 map, 6 list of maps
    number: int  #: ONNX's number of the element type
    key_number: int = 0  #: of a map's keys


class Plan(NamedTuple):
    """What a run of given input shapes takes: exact, before any run."""
    arena_bytes: int  #: of all activations and scratch; exact where late_steps is 0
    lower_bound_bytes: int  #: largest sum of bytes alive at one step
    weights_bytes: int
    packed_bytes: int  #: of weights, packed once for all contexts
    folded_bytes: int  #: of constants computed at load
    steps: int
    late_steps: int  #: those whose shapes depend on data, known only at run
    blocks: int
    peak_node: str  #: where the most bytes are alive
    peak_op: str
    side_heap_bytes: int  #: the most that a run takes besides the arena, as far as bounded
    unbounded_steps: int  #: those of which no bound is known


class Memory(NamedTuple):
    """What a context holds now."""
    arena_bytes: int
    arena_used_bytes: int
    side_heap_bytes: int
    plans: int


def _describe(values: Sequence[tuple[str, int, int, Any, int]]) -> tuple[Value, ...]:
    return tuple(Value(name, _values.dtype_name(number), dims, kind, number, keys)
                 for name, kind, number, dims, keys in values)


def _shapes(shapes: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Shapes by input; an array stands for its shape."""
    return {name: tuple(int(dim) for dim in getattr(shape, "shape", shape))
            for name, shape in shapes.items()}


def _microseconds(timeout: float | None) -> int:
    return 0 if timeout is None else max(1, int(timeout * 1e6))


RAGGED = (False, True, "auto")  # the numbers of attnrun_source.ragged
PRECISIONS = ("f32", "bf16", "auto")  # the numbers of attnrun_source.precision


class Model(_attnrun.Pool):
    """A loaded ONNX model; immutable, and safe to call from any number of threads.

    Model(path) maps the file's weights; Model(data) takes its bytes; a packed file (pack(),
    `attnrun pack`) is opened in the same way. Raises Error: IO, PARSE,
    MODEL, UNSUPPORTED, VERSION, ...

    model(x=array, ...) computes all outputs -> {name: array}. Inputs are anything with the
    buffer protocol or __dlpack__ (numpy, torch: no copy, whatever the strides), lists and
    numbers; strings as str, bytes or arrays of them; a list for a sequence; a dict for a map; None
    for an empty optional. Outputs own their memory. Raises Error: INPUT, SHAPE, DTYPE, MEMORY,
    RANGE, and KeyboardInterrupt (the run is cancelled). The GIL is released while the library
    computes.

        >>> model = attnrun.Model("net.onnx")          # x: f32[B, 64]
        >>> model(x=numpy.zeros((3, 64), "f"))["y"]    # f32[3, 10]
    """

    def __init__(self, source: str | os.PathLike[str] | bytes | bytearray | memoryview, *,
                 runtime: Runtime | None = None, threads: int | None = None,
                 fusion: bool = True, external_dir: str | None = None,
                 disable_passes: Sequence[str] = (), flags: int = 0,
                 precision: str = "f32", ragged: bool | str = False,
                 dims: Mapping[str, int] | None = None) -> None:
        """threads        of a runtime of its own; else `runtime`, else the default one
        fusion         False: no rewrite pass that changes what is computed
        external_dir   where external data lie, if not beside the file
        disable_passes  names of rewrite passes to leave out (`attnrun inspect` lists them)
        flags          those of attnrun_source in attnrun.h, as one number
        precision      of products, "f32", "bf16" (operands rounded to 8 bits, sums in f32, half
                       the packed weights) or "auto" (bf16 where the CPU has its products)
        ragged         True: an encoder that is given a mask of its batch runs on the tokens that
                       are there, and rows of padding in its outputs are 0; "auto": only where
                       nothing reads these
        dims           {symbol: size}: symbolic dims that are fixed, so that more is computed when
                       the model is opened; inputs of another size are refused (SHAPE)

        Raises ValueError for an option that is none, Error (USAGE) for a symbol that is none."""
        if ragged not in RAGGED:
            raise ValueError(f"ragged is {ragged!r}, expected True, False or 'auto'")
        if precision not in PRECISIONS:
            raise ValueError(f"precision is {precision!r}, expected one of "
                             f"{', '.join(PRECISIONS)}")
        in_memory = isinstance(source, (bytes, bytearray, memoryview))
        if runtime is None:
            runtime = Runtime(threads=threads) if threads else default_runtime()
        elif threads:
            raise ValueError("threads belong to the runtime: give one of them")
        self._loaded = _attnrun.Model(
            None if in_memory else source, source if in_memory else None, runtime,
            flags | (0 if fusion else NO_FUSION), external_dir,
            ",".join(disable_passes) or None, PRECISIONS.index(precision),
            RAGGED.index(ragged), tuple((name, int(size)) for name, size in (dims or {}).items()))
        super().__init__(self._loaded)
        self.inputs = _describe(self._loaded.inputs)
        self.outputs = _describe(self._loaded.outputs)

    @property
    def info(self) -> dict[str, Any]:
        """What the file says of itself. str: producer, producer_version, domain, doc,
        graph_name, graph_doc; packed_for (the instruction set of a packed file, else "").
        int: ir_version, model_version (2**63 - 1 where there is none), nodes, parameters,
        weights_bytes, file_bytes. metadata: {str: str}."""
        return self._loaded.info

    def pack(self, path: str | os.PathLike[str]) -> None:
        """Writes the model as it is run, with its packed weights: Model(path) opens that file
        without packing, and processes that do share its memory. It fits this instruction set
        and this version of attnrun alone. `path` is replaced as a whole or not at all."""
        folder, name = os.path.split(os.fspath(path))
        handle, temporary = tempfile.mkstemp(prefix=name + ".tmp.", dir=folder or ".")
        try:
            with open(handle, "wb") as file:
                self._loaded._save(file.write)
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, 0o666 & ~umask)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise

    def context(self) -> "Context":
        """One run at a time, with states, `out=` and views: see Context."""
        return Context(_attnrun.Context(self._loaded))

    def plan(self, shapes: Mapping[str, Any] | None = None, /, **more: Any) -> Plan:
        """The exact memory of a run with these input shapes (or arrays), without that run.

        model.plan(ids=(4, 128), mask=(4, 128)).arena_bytes; raises Error: INPUT, SHAPE."""
        context = self._take()
        try:
            return Plan(*context._plan(_shapes({**(shapes or {}), **more}), False))
        finally:
            self._give(context)

    def __reduce__(self) -> Any:
        raise TypeError("a Model cannot be pickled; pickle its path and open it again")


class Context:
    """Runs of a model, one at a time: plans, memory and states stay from run to run.

    Made by Model.context(). Another thread that calls it meanwhile gets Error (USAGE)."""

    def __init__(self, context: _attnrun.Context) -> None:
        self._context = context

    def __call__(self, **feeds: Any) -> dict[str, Any]:
        """run(feeds) for inputs by keyword."""
        return self._context._run(feeds, None, None, False, 0)

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None, *,
            out: Mapping[str, Any] | None = None, timeout: float | None = None,
            validate: bool = False, all_tokens: bool = False) -> dict[str, Any]:
        """Computes -> {name: array}, of all outputs or those named in `outputs` (() : none,
        see view()).

        out       arrays (or torch tensors) that are written and returned instead of new ones;
                  dense, of exactly the output's shape and type
        timeout   seconds, then Error (TIME)
        validate  Error (NONFINITE) where an output is not finite
        all_tokens  a model of Model(ragged=…) runs on all tokens of this batch, as if it had been
                  opened without"""
        return self._context._run(dict(feeds), None if outputs is None else tuple(outputs),
                                  None if out is None else dict(out), validate,
                                  _microseconds(timeout), all_tokens)

    def view(self, name: str) -> Tensor:
        """The output `name` of the last run without a copy: numpy.asarray(context.view("y")),
        torch.from_dlpack(context.view("y")). The context refuses to run (BufferError) as long
        as it, or an array made of it, lives."""
        return self._context.view(name)

    def plan(self, shapes: Mapping[str, Any] | None = None, /, **more: Any) -> Plan:
        """Model.plan() in this context."""
        return Plan(*self._context._plan(_shapes({**(shapes or {}), **more}), False))

    def reserve(self, shapes: Mapping[str, Any] | None = None, /, **more: Any) -> Plan:
        """plan(), and its memory: later runs of these or smaller shapes allocate nothing."""
        return Plan(*self._context._plan(_shapes({**(shapes or {}), **more}), True))

    def add_state(self, input: str, output: str, capacity_bytes: int = 0) -> None:
        """Makes `output` of each run `input` of the next one (a KV cache); the first run takes
        what is given for it. Growing within capacity_bytes allocates nothing."""
        self._context._add_state(input, output, capacity_bytes)

    def truncate_state(self, input: str, length: int) -> None:
        """Cuts a state to its first `length` places along the axis on which runs extend it."""
        self._context._truncate_state(input, length)

    def reorder_states(self, rows: Sequence[int], input: str | None = None,
                       axis: int = 0) -> None:
        """Row rows[i] along `axis` becomes row i of the state `input`, or of all states: beams
        that go on, or a batch without the samples that are finished."""
        self._context._reorder_states(input, [int(row) for row in rows], axis)

    def select_sequence(self, sequence: int) -> None:
        """The states are from now on those of this sequence (a number, 0 at first; any length).
        A new one takes its first inputs from the feeds."""
        self._context._sequence(sequence, False)

    def drop_sequence(self, sequence: int) -> None:
        """Frees the states of a sequence that is not the selected one."""
        self._context._sequence(sequence, True)

    def copy_states(self, other: "Context | None" = None, sequence: int = 0) -> None:
        """The selected sequence becomes a copy of `sequence` of this context, or of another one
        of the same model with the same states."""
        self._context._copy_states((other or self)._context, sequence)

    def reset_states(self) -> None:
        """Forgets what all states hold: the next run takes them from its inputs again."""
        self._context._reset(False)

    def trim(self) -> None:
        """Gives back the arena, all plans and the side heap."""
        self._context._reset(True)

    def cancel(self) -> None:
        """Stops the run under way in another thread: it raises Error (CANCELLED)."""
        self._context.cancel()

    @property
    def memory(self) -> Memory:
        """What this context holds now."""
        return Memory(*self._context._memory())


_default: list[Runtime] = []


def default_runtime() -> Runtime:
    """The runtime of all models that name none: one set of threads for the process."""
    if not _default:
        _default.append(Runtime())
    return _default[0]
