"""attnrun.beam: a model for Apache Beam's RunInference.

    handler = attnrun.beam.ModelHandlerNumpy("net.onnx")
    predictions | RunInference(handler)        # dicts of arrays -> PredictionResult

Needs apache_beam, which attnrun itself does not."""
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from apache_beam.ml.inference.base import ModelHandler, PredictionResult

from ._model import Model
from ._shared import open_shared
from ._workers import run_rows

Example = Mapping[str, Any]


class Failed(NamedTuple):
    """The inference of an example that the model refuses."""
    message: str


def _key(example: Example) -> tuple[Any, ...]:
    return tuple((name, np.shape(value), np.asarray(value).dtype.str)
                 for name, value in sorted(example.items()))


class ModelHandlerNumpy(ModelHandler[Example, PredictionResult, Model]):  # type: ignore[misc]
    """Examples are dicts of arrays by input name, without the axis of the batch; one that is
    an array is the only input. Inferences are dicts of arrays by output name, or Failed.

    path            of the model, or what Model takes; opened in each process, its pages shared
    outputs         names of those to be kept; None: all
    threads         of the process
    share           whether the processes of a machine map one packed file (see folder), so that
                    packed weights are in memory once; each still computes for itself
    folder          of the packed file; None: ~/.cache/attnrun/packed of the worker's machine
    min_batch_size, max_batch_size, max_batch_duration_secs   how Beam collects batches
    large_model     Beam's own way: one process of a machine holds the model and computes for
                    all. Not needed for the sake of weights, which `share` shares

    Examples of one shape are computed together. One that the model refuses fails alone."""

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
        """Opens the file, or the packed file that was made of it; raises attnrun.Error."""
        if self._share:
            return open_shared(self._path, threads=self._threads, folder=self._folder,
                               precision=self._precision)
        return Model(self._path, threads=self._threads, precision=self._precision)

    def update_model_path(self, model_path: str | None = None) -> None:
        """Another file, from now on."""
        self._path = model_path or self._path

    def run_inference(self, batch: Sequence[Any], model: Model,
                      inference_args: dict[str, Any] | None = None
                      ) -> Iterable[PredictionResult]:
        """One PredictionResult for each example, in their order."""
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
        timeout = int(1e6 * inference_args.get("timeout", 0))
        try:
            results, errors = run_rows(
                lambda part: context._run(dict(part), wanted, None, False, timeout), feeds)
        finally:
            model._give(context)
        for row, i in enumerate(members):
            inferences[i] = Failed(errors[row]) if errors[row] else {
                name: array[row] for name, array in results.items()}

    def get_num_bytes(self, batch: Sequence[Any]) -> int:
        """Bytes of a batch."""
        return sum(np.asarray(value).nbytes for example in batch
                   for value in (example.values() if isinstance(example, Mapping)
                                 else (example,)))

    def get_metrics_namespace(self) -> str:
        """Where Beam counts."""
        return "BeamML_attnrun"
