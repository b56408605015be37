"""attnrun.ray: a model as the function of Ray Data's map_batches.

    predictor = attnrun.ray.Predictor
    ds.map_batches(predictor, fn_constructor_args=("net.onnx",),
                   concurrency=4, batch_size=64, batch_format="numpy",
                   **attnrun.ray.resources("net.onnx", {"x": (64, 128)}))

Each actor opens the file once. The first one of a machine writes its packed weights into a
file that all of them map, so that they are in memory once. Needs ray, which attnrun itself
does not."""
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ._model import Model
from ._shared import open_shared
from ._workers import PROCESS_BYTES, blank, needs, run_rows

ERROR_COLUMN = "error"


class Predictor:
    """A class for map_batches: a dict of arrays in, the same and the outputs out.

    path      of the model
    columns   {input: column}; by default inputs are columns of their own names. Not used
              where prepare makes the feeds
    prepare   called with a batch (dict of arrays) -> feeds by input name
    outputs   those to be kept: a sequence of names, or {output: column}; None: all
    drop      columns that do not go on
    threads   of the actor, its num_cpus
    share     whether the actors of a machine map one packed file; False: each packs its own
    folder    of the packed file; None: ~/.cache/attnrun/packed of the actor's machine
    precision of products, as Model has it

    A row that the model refuses has zeros as outputs and the sentence in the column "error";
    the other rows have "" there. Raises attnrun.Error where no row is at fault."""

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
    """num_cpus and memory of an actor, for map_batches: exact for batches of at most these
    shapes, plus process_bytes for Python itself. Mapped files are not counted, as actors of a
    machine share them; with share=False the packed weights are counted."""
    model = Model(path, threads=threads, precision=precision)
    return {"num_cpus": threads, "memory": needs(model, shapes, process_bytes, share).memory}
