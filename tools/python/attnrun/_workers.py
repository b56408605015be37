"""What the engines for many workers share: batches in which a bad document fails alone.

In: a model and batches of feeds. Out: results row by row, a sentence for each row that failed,
and the memory that a worker needs, from the exact plan."""
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from . import _values
from ._errors import Error
from ._model import Model

Feeds = Mapping[str, Any]
WHOLE_RUN = ("MEMORY", "TIME", "CANCELLED", "INTERNAL")  # not the fault of a row
PROCESS_BYTES = 400 << 20  # Python with numpy, pyarrow and an engine's own modules


class Needs(NamedTuple):
    """The memory of one worker, in bytes."""
    memory: int  #: process, arena, side heap and private packed weights, without mapped files
    arena_bytes: int  #: activations and scratch memory
    packed_bytes: int  #: packed weights
    weights_bytes: int  #: the weights in the file, mapped once for all workers of a machine


def needs(model: Model, shapes: Mapping[str, Any], process_bytes: int = PROCESS_BYTES,
          share: bool = False) -> Needs:
    """The memory of a worker for batches of at most these shapes, without a run. With `share` the
    packed weights and folded constants lie in a mapped packed file."""
    plan = model.plan(shapes)
    private = plan.arena_bytes + plan.side_heap_bytes
    private += 0 if share else plan.packed_bytes + plan.folded_bytes
    return Needs(process_bytes + private, plan.arena_bytes, plan.packed_bytes,
                 plan.weights_bytes)


def rows_of(feeds: Feeds) -> int:
    """The number of rows: the first axis that all feeds share. Raises ValueError."""
    counts = {name: np.shape(value)[0] if np.ndim(value) else -1
              for name, value in feeds.items()}
    if len(set(counts.values())) != 1 or -1 in counts.values():
        raise ValueError(f"the inputs of a batch have one number of rows, not {counts}")
    return next(iter(counts.values()))


def run_rows(run: Callable[[Feeds], dict[str, Any]], feeds: Feeds
             ) -> tuple[dict[str, Any], list[str]]:
    """Runs a batch. If its values make the run fail, runs it in halves, so that a bad row fails
    alone. Returns the results, and a sentence for each row, which is "" for a row with a result.
    The results of failed rows are zeros (None in a list, which the rows become where those of some
    parts are larger than others). If all rows fail there are no results.
    Raises Error if no row is at fault (memory, time)."""
    count = rows_of(feeds)
    errors = [""] * count
    parts: list[tuple[int, int, dict[str, Any]]] = []
    waiting = [(0, count)]
    while waiting:
        begin, end = waiting.pop()
        try:
            parts.append((begin, end, run({name: value[begin:end]
                                           for name, value in feeds.items()})))
        except Error as error:
            if error.status in WHOLE_RUN or end == begin:
                raise
            if end - begin > 1:
                middle = (begin + end) // 2
                waiting += [(begin, middle), (middle, end)]
            else:
                errors[begin] = str(error)
    if len(parts) == 1 and parts[0][:2] == (0, count):
        return parts[0][2], errors
    results = {name: _joined(name, [(begin, end, made[name]) for begin, end, made in parts], count)
               for name in (parts[0][2] if parts else ())}
    return results, errors


def demand_rows(name: str, made: Any, count: int) -> None:
    """Raises Error where an output has not as many rows as the batch."""
    if not (isinstance(made, list) or np.ndim(made) > 0) or len(made) != count:
        raise Error(f"SHAPE: output '{name}' has not a row for each row of the batch, so that no "
                    "row can fail alone, or have a result of its own", "SHAPE", 500, tensor=name)


def _joined(name: str, parts: list[tuple[int, int, Any]], count: int) -> Any:
    """The rows of all parts, as an array where these have one shape, else as a list."""
    for begin, end, made in parts:
        demand_rows(name, made, end - begin)
    first = parts[0][2]
    alike = not isinstance(first, list) and len({made.shape[1:] for _, _, made in parts}) == 1
    joined: Any = np.zeros((count, *first.shape[1:]), first.dtype) if alike else [None] * count
    for begin, end, made in parts:
        joined[begin:end] = made
    return joined


def blank(model: Model, name: str, count: int) -> Any:
    """Zeros in place of an output with `count` rows, or None for each row of a list. Sizes that
    only a run knows are 0."""
    value = next(value for value in model.outputs if value.name == name)
    if value.kind > _values.TENSOR:
        return [None] * count
    dims = [dim if isinstance(dim, int) else 0 for dim in (value.shape or (0,))[1:]]
    return np.zeros((count, *dims), _values.numpy_dtype(value.number))
