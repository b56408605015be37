"""Model, Context, Plan: the library's own interface from Python.

In: a file or its bytes, inputs by name. Out: numpy arrays by name, exact bytes of a plan."""
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from . import _attnrun, _values
from ._attnrun import Runtime, Tensor

COPY, NO_FUSION, FORCE_BODIES, ALLOW_NEWER, ALLOW_MISSING, VERIFY = 1, 2, 4, 8, 16, 32
SEPARATE_DIMS = 128


class Value(NamedTuple):
    """An input or output of a model."""
    name: str
    dtype: str  #: 'f32', 'i64', 'string', ...; 'undefined' if the file does not say it
    shape: tuple[int | str, ...] | None  #: a symbolic dim is a str; None if the rank is unknown
    kind: int  #: 1 tensor, 2 sequence, 3 optional, 4 optional sequence, 5 map, 6 list of maps
    number: int  #: ONNX's number of the element type
    key_number: int = 0  #: ONNX's number of the type of a map's keys


class Plan(NamedTuple):
    """The exact memory of a run with given input shapes, before any run."""
    arena_bytes: int  #: all activations and scratch memory; exact if late_steps is 0
    lower_bound_bytes: int  #: the largest sum of bytes that are alive at one step
    weights_bytes: int  #: the weights in the file
    packed_bytes: int  #: the packed weights, which all contexts share
    folded_bytes: int  #: the constants that were computed when the model was opened
    steps: int  #: how many nodes a run computes
    late_steps: int  #: how many steps have shapes that depend on data, known only at run
    blocks: int  #: how many blocks of memory lie in the arena
    peak_node: str  #: the node at which the most bytes are alive
    peak_op: str  #: its operator
    side_heap_bytes: int  #: the most that a run allocates outside the arena, as far as bounded
    unbounded_steps: int  #: how many steps have no known bound


class Memory(NamedTuple):
    """The memory that a context holds now."""
    arena_bytes: int  #: the allocated arena
    arena_used_bytes: int  #: what the plan of the last run used of it
    side_heap_bytes: int  #: the most that the last run held for shapes that depend on data
    plans: int  #: how many plans are kept


def _describe(values: Sequence[tuple[str, int, int, Any, int]]) -> tuple[Value, ...]:
    return tuple(Value(name, _values.dtype_name(number), dims, kind, number, keys)
                 for name, kind, number, dims, keys in values)


def _shapes(shapes: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Shapes by input; an array stands for its shape."""
    return {name: tuple(int(dim) for dim in getattr(shape, "shape", shape))
            for name, shape in shapes.items()}


def _microseconds(timeout: float | None) -> int:
    return 0 if timeout is None else int(max(min(timeout * 1e6, 1e15), 1))


RAGGED = (False, True, "auto")  # the numbers of attnrun_source.ragged
PRECISIONS = ("f32", "bf16", "auto")  # the numbers of attnrun_source.precision


class Model(_attnrun.Pool):
    """A loaded ONNX model. It never changes, and any number of threads may call it.

    Model(path) maps the weights of the file, and Model(data) takes the bytes of a file. Both also
    open a packed file (pack(), `attnrun pack`). Raises Error with the status IO, PARSE, MODEL,
    UNSUPPORTED, VERSION, ...

    model(x=array, ...) computes all outputs and returns {name: array}. An input is anything with
    the buffer protocol or __dlpack__ (arrays of numpy and tensors of torch are read in place,
    whatever their strides are), or a list or number. Strings are str, bytes or arrays of them, a
    sequence is a list, a map is a dict, and an empty optional is None. Each output owns its memory.
    Raises Error with the status INPUT, SHAPE, DTYPE, MEMORY or RANGE; Ctrl-C cancels the run and
    raises KeyboardInterrupt. The GIL is released while the library computes.

        >>> model = attnrun.Model("net.onnx")          # x: f32[B, 64]
        >>> model(x=numpy.zeros((3, 64), "f"))["y"]    # f32[3, 10]
    """

    def __init__(self, source: str | os.PathLike[str] | bytes | bytearray | memoryview, *,
                 runtime: Runtime | None = None, threads: int | None = None,
                 fusion: bool = True, external_dir: str | None = None,
                 disable_passes: Sequence[str] = (), flags: int = 0,
                 precision: str = "f32", ragged: bool | str = False,
                 dims: Mapping[str, int] | None = None, separate_dims: bool = False) -> None:
        """runtime        the runtime to use; None: the default runtime of the process
        threads        the model gets a runtime of its own with this number of threads
        fusion         False: no rewrite pass changes what is computed
        external_dir   the folder of external data, if it is not the folder of the file
        disable_passes  names of rewrite passes to leave out (`attnrun inspect` lists them)
        flags          the flags of attnrun_source in attnrun.h, as one number
        precision      of products: "f32", "bf16" (operands are rounded to 8 bits, sums stay in
                       f32, packed weights need half the memory) or "auto" (bf16 if the CPU has
                       instructions for it; operands of quantized weights may have 8 bits)
        ragged         True: an encoder whose input is a mask of its batch runs on the tokens that
                       the mask shows, and the rows of padding in its outputs are 0; "auto": only
                       if nothing reads these rows
        dims           {symbol: size} fixes symbolic dims, so that more is computed when the model
                       is opened; inputs of another size are refused (SHAPE)
        separate_dims  True: a name of a dim means a size of one input alone. Otherwise inputs that
                       give a name two sizes are refused (SHAPE). Fewer nodes are fused

        Raises ValueError for an unknown value of an option, and Error (USAGE) for a symbol or a
        pass that does not exist."""
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
            flags | (0 if fusion else NO_FUSION) | (SEPARATE_DIMS if separate_dims else 0),
            external_dir,
            ",".join(disable_passes) or None, PRECISIONS.index(precision),
            RAGGED.index(ragged), tuple((name, int(size)) for name, size in (dims or {}).items()))
        super().__init__(self._loaded)
        self.inputs = _describe(self._loaded.inputs)
        self.outputs = _describe(self._loaded.outputs)

    @property
    def info(self) -> dict[str, Any]:
        """What the file says about itself. These are str: producer, producer_version, domain, doc,
        graph_name, graph_doc, packed_for (the instruction set of a packed file, else "").
        These are int: ir_version, model_version (2**63 - 1 if the file has none), nodes,
        parameters, weights_bytes, file_bytes. metadata is {str: str}."""
        return self._loaded.info

    def pack(self, path: str | os.PathLike[str]) -> None:
        """Writes the model as it is run, with its packed weights. Model(path) opens that file
        without packing again, and all processes that open it share its memory. The file fits only
        this instruction set and this version of attnrun. `path` is replaced as a whole or not at
        all. Raises OSError if the file cannot be written."""
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
        """A new Context: it runs the model once at a time, with states, `out=` and views."""
        return Context(_attnrun.Context(self._loaded))

    def plan(self, shapes: Mapping[str, Any] | None = None, /, **more: Any) -> Plan:
        """The exact memory of a run with these input shapes (or arrays), without that run.

            model.plan(ids=(4, 128), mask=(4, 128)).arena_bytes

        Raises Error (INPUT) for an unknown input, and Error (SHAPE) if shapes do not fit."""
        context = self._take()
        try:
            return Plan(*context._plan(_shapes({**(shapes or {}), **more}), False))
        finally:
            self._give(context)

    def __reduce__(self) -> Any:
        raise TypeError("a Model cannot be pickled; pickle its path and open it again")


class Context:
    """Runs a model, one run at a time. Its plans, memory and states stay from run to run.

    Model.context() makes it. A second thread that calls it during a run gets Error (USAGE)."""

    def __init__(self, context: _attnrun.Context) -> None:
        self._context = context

    def __call__(self, /, **feeds: Any) -> dict[str, Any]:
        """run(feeds) with the inputs as keywords."""
        return self._context._run(feeds, None, None, False, 0)

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None, *,
            out: Mapping[str, Any] | None = None, timeout: float | None = None,
            validate: bool = False, all_tokens: bool = False) -> dict[str, Any]:
        """Computes all outputs, or those named in `outputs`, and returns {name: array}. With
        outputs=() it returns nothing, and view() shows the outputs.

        out       {name: array or torch tensor}: the library writes into these and returns them
                  in place of new arrays; each is dense and has exactly the output's shape and type
        timeout   seconds; a longer run ends with Error (TIME)
        validate  an output that is not finite gives Error (NONFINITE)
        all_tokens  a model that was opened with `ragged` runs on all tokens of this batch

        Raises what Model's call raises."""
        return self._context._run(dict(feeds), None if outputs is None else tuple(outputs),
                                  None if out is None else dict(out), validate,
                                  _microseconds(timeout), all_tokens)

    def view(self, name: str) -> Tensor:
        """The output `name` of the last run, without a copy: numpy.asarray(context.view("y")) or
        torch.from_dlpack(context.view("y")). The context refuses to run (BufferError) as long as
        the view, or an array made of it, is alive. Raises Error (USAGE) without a run before, and
        for an output that this run wrote into `out`."""
        return self._context.view(name)

    def plan(self, shapes: Mapping[str, Any] | None = None, /, **more: Any) -> Plan:
        """Model.plan(), and this context keeps the plan for its runs."""
        return Plan(*self._context._plan(_shapes({**(shapes or {}), **more}), False))

    def reserve(self, shapes: Mapping[str, Any] | None = None, /, **more: Any) -> Plan:
        """plan(), and allocates its memory, so that later runs with these or smaller shapes
        allocate nothing. Raises what plan() raises, and Error (MEMORY)."""
        return Plan(*self._context._plan(_shapes({**(shapes or {}), **more}), True))

    def add_state(self, input: str, output: str, capacity_bytes: int = 0) -> None:
        """Makes `output` of each run the `input` of the next run (a KV cache). The first run takes
        the input from the feeds. A state that grows within capacity_bytes allocates nothing."""
        self._context._add_state(input, output, capacity_bytes)

    def truncate_state(self, input: str, length: int) -> None:
        """Cuts a state to its first `length` places along the axis on which runs extend it.
        Raises Error (USAGE) if there is no such state, axis or length."""
        self._context._truncate_state(input, length)

    def reorder_states(self, rows: Sequence[int], input: str | None = None,
                       axis: int = 0) -> None:
        """Row rows[i] along `axis` becomes row i of the state `input`, or of all states. So the
        beams of a search go on, or finished samples leave a batch."""
        self._context._reorder_states(input, [int(row) for row in rows], axis)

    def select_sequence(self, sequence: int) -> None:
        """From now on the states are those of this sequence. A sequence is a number, 0 at first,
        and has its own length. A new sequence takes its first inputs from the feeds."""
        self._context._sequence(sequence, False)

    def drop_sequence(self, sequence: int) -> None:
        """Frees the states of a sequence that is not selected."""
        self._context._sequence(sequence, True)

    def copy_states(self, other: "Context | None" = None, sequence: int = 0) -> None:
        """The selected sequence becomes a copy of `sequence` of this context, or of another one
        of the same model with the same states."""
        self._context._copy_states((other or self)._context, sequence)

    def reset_states(self) -> None:
        """Forgets the states of the selected sequence: its next run takes them from its feeds."""
        self._context._reset(False)

    def trim(self) -> None:
        """Frees the arena, all plans and the side heap."""
        self._context._reset(True)

    def cancel(self) -> None:
        """Stops the run of another thread, which then raises Error (CANCELLED)."""
        self._context.cancel()

    @property
    def memory(self) -> Memory:
        """The memory that this context holds now."""
        return Memory(*self._context._memory())


_default: list[Runtime] = []


def default_runtime() -> Runtime:
    """The runtime of all models that are opened without one: one set of threads for the process."""
    if not _default:
        _default.append(Runtime())
    return _default[0]
