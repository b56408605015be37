"""attnrun.ray: a model as the function of Ray Data's map_batches.

    predictor = attnrun.ray.Predictor
    ds.map_batches(predictor, fn_constructor_args=("net.onnx",),
                   concurrency=4, batch_size=64, batch_format="numpy",
                   **attnrun.ray.resources("net.onnx", {"x": (64, 128)}))

Each actor opens the model once. The first actor of a machine writes the packed weights into a
file, and all actors map that file, so the weights are in memory once. This module needs ray, which
attnrun itself does not need."""
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ._model import Model
from ._shared import open_shared
from ._workers import PROCESS_BYTES, blank, needs, run_rows

ERROR_COLUMN = "error"


class Predictor:
    """The class that map_batches calls. It takes a batch (a dict of arrays) and returns the batch
    with the outputs of the model as further columns.

    path      the path of the model
    columns   {input: column}; by default each input is the column of its own name. Not used if
              `prepare` makes the feeds
    prepare   a function that takes a batch and returns the feeds by input name
    outputs   the outputs to keep: a sequence of names, or {output: column}; None: all
    drop      the columns of the batch that the result leaves out
    threads   the threads of the actor: give the same number as num_cpus
    share     True: the actors of a machine map one packed file; False: each packs its own weights
    folder    the folder of the packed file; None: ~/.cache/attnrun/packed on the actor's machine
    precision the precision of products, as in Model

    A row that the model refuses has zeros as outputs and the sentence in the column "error". The
    other rows have "" there. Raises attnrun.Error if no single row is at fault (MEMORY, TIME)."""

    def __init__(self, path: str | os.PathLike[str],
                 columns: Mapping[str, str] | None = None, *,
                 prepare: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None,
                 outputs: Sequence[str] | Mapping[str, str] | None = None,
                 drop: Sequence[str] = (), threads: int = 1, share: bool = True,
                 folder: str | None = None, precision: str = "f32") -> None:
        self.model = (open_shared(path, threads=threads, folder=folder, precision=precision)
                      if share else Model(path, threads=threads, precision=precision))
        self._context = self.model.context()
        self._prepare = prepare
        self._columns = {value.name: (columns or {}).get(value.name, value.name)
                         for value in self.model.inputs}
        names = [value.name for value in self.model.outputs] if outputs is None else outputs
        self._outputs = dict(names) if isinstance(names, Mapping) else {n: n for n in names}
        self._drop = frozenset(drop)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        feeds = (self._prepare(batch) if self._prepare else
                 {name: batch[column] for name, column in self._columns.items()})
        results, errors = run_rows(lambda part: self._context.run(part, list(self._outputs)),
                                   feeds)
        made = {name: column for name, column in batch.items() if name not in self._drop}
        for name, column in self._outputs.items():
            made[column] = (results[name] if name in results else
                            blank(self.model, name, len(errors)))
        made[ERROR_COLUMN] = np.array(errors, object)
        return made


def resources(path: str | os.PathLike[str], shapes: Mapping[str, Any], *, threads: int = 1,
              share: bool = True, precision: str = "f32",
              process_bytes: int = PROCESS_BYTES) -> dict[str, float]:
    """num_cpus and memory (bytes) of an actor, as keywords for map_batches. The memory is exact for
    batches of at most these shapes ({input: shape}), plus process_bytes for Python itself. Mapped
    files do not count, because the actors of a machine share them; with share=False the packed
    weights count. Raises attnrun.Error: IO, SHAPE, ..."""
    model = Model(path, threads=threads, precision=precision)
    return {"num_cpus": threads, "memory": needs(model, shapes, process_bytes, share).memory}
