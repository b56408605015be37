"""attnrun.beam: a model for Apache Beam's RunInference.

    handler = attnrun.beam.ModelHandlerNumpy("net.onnx")
    predictions | RunInference(handler)        # dicts of arrays -> PredictionResult

This module needs apache_beam, which attnrun itself does not need."""
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from apache_beam.ml.inference.base import ModelHandler, PredictionResult

from ._model import Model, _microseconds
from ._shared import open_shared
from ._workers import demand_rows, run_rows

Example = Mapping[str, Any]


class Failed(NamedTuple):
    """The inference of an example that the model refuses."""
    message: str  #: the library's sentence


def _key(example: Example) -> tuple[Any, ...]:
    return tuple((name, np.shape(value), np.asarray(value).dtype.str)
                 for name, value in sorted(example.items()))


class ModelHandlerNumpy(ModelHandler[Example, PredictionResult, Model]):  # type: ignore[misc]
    """The handler of a model. An example is a dict of arrays by input name, without the axis of
    the batch; for a model with one input it may be the array itself. An inference is a dict of
    arrays by output name, or Failed.

    path            the path of the model; each process opens it and shares its pages
    outputs         the names of the outputs to keep; None: all
    threads         the threads of each process
    share           True: the processes of a machine map one packed file, so the packed weights
                    are in memory once; each process still computes for itself
    folder          the folder of the packed file; None: ~/.cache/attnrun/packed on the worker
    precision       the precision of products, as in Model
    min_batch_size, max_batch_size, max_batch_duration_secs   how Beam collects batches
    large_model     Beam's own way to share: one process of a machine holds the model and computes
                    for all. The weights do not need it, because `share` shares them

    The handler computes examples of one shape together. One that the model refuses fails alone. An
    output without a row for each example is refused (SHAPE)."""

    def __init__(self, path: str | os.PathLike[str], *, outputs: Sequence[str] | None = None,
                 threads: int = 1, share: bool = True, folder: str | None = None,
                 precision: str = "f32", min_batch_size: int | None = None,
                 max_batch_size: int | None = None,
                 max_batch_duration_secs: int | None = None, large_model: bool = False,
                 model_copies: int | None = None, **more: Any) -> None:
        super().__init__(large_model=large_model, model_copies=model_copies,
                         min_batch_size=min_batch_size, max_batch_size=max_batch_size,
                         max_batch_duration_secs=max_batch_duration_secs, **more)
        self._path = os.fspath(path)
        self._outputs = None if outputs is None else list(outputs)
        self._threads = threads
        self._share, self._folder, self._precision = share, folder, precision

    def load_model(self) -> Model:
        """Opens the model, or the packed file that was made from it. Raises attnrun.Error."""
        if self._share:
            return open_shared(self._path, threads=self._threads, folder=self._folder,
                               precision=self._precision)
        return Model(self._path, threads=self._threads, precision=self._precision)

    def update_model_path(self, model_path: str | None = None) -> None:
        """From now on load_model() opens this file."""
        self._path = model_path or self._path

    def run_inference(self, batch: Sequence[Any], model: Model,
                      inference_args: dict[str, Any] | None = None
                      ) -> Iterable[PredictionResult]:
        """Returns one PredictionResult for each example, in the same order. "timeout" in
        inference_args is a limit in seconds for each run. Raises attnrun.Error if no single example
        is at fault (MEMORY, TIME)."""
        names = [value.name for value in model.inputs]
        examples = [example if isinstance(example, Mapping) else {names[0]: example}
                    for example in batch]
        groups: dict[tuple[Any, ...], list[int]] = {}
        for i, example in enumerate(examples):
            groups.setdefault(_key(example), []).append(i)
        inferences: list[Any] = [None] * len(examples)
        for members in groups.values():
            self._run_group(model, examples, members, inferences, inference_args or {})
        return [PredictionResult(example, inference, self._path)
                for example, inference in zip(batch, inferences, strict=True)]

    def _run_group(self, model: Model, examples: Sequence[Example], members: list[int],
                   inferences: list[Any], inference_args: dict[str, Any]) -> None:
        feeds = {name: np.stack([np.asarray(examples[i][name]) for i in members])
                 for name in examples[members[0]]}
        context = model._take()
        wanted = tuple(self._outputs or [value.name for value in model.outputs])
        timeout = _microseconds(inference_args.get("timeout") or None)
        try:
            results, errors = run_rows(
                lambda part: context._run(dict(part), wanted, None, False, timeout), feeds)
        finally:
            model._give(context)
        for name, array in results.items():
            demand_rows(name, array, len(members))
        for row, i in enumerate(members):
            inferences[i] = Failed(errors[row]) if errors[row] else {
                name: array[row] for name, array in results.items()}

    def get_num_bytes(self, batch: Sequence[Any]) -> int:
        """The bytes of all arrays of a batch."""
        return sum(np.asarray(value).nbytes for example in batch
                   for value in (example.values() if isinstance(example, Mapping)
                                 else (example,)))

    def get_metrics_namespace(self) -> str:
        """The namespace of Beam's metrics."""
        return "BeamML_attnrun"
