#!/usr/bin/env python3
"""Embeds the texts of a Debian machine with MiniLM, in many processes of Apache Beam.

usage: embed_beam.py MODEL.onnx OUT [--workers N] [--documents N] [--batch N]

MODEL.onnx: tools/minilm/fill.py makes it. OUT is the beginning of the names of Parquet files
with id, text, embedding and error; they appear when all is done.
bash tools/examples/embed.sh makes all that this needs."""
import logging
import os
import sys
import time

import apache_beam as beam
import pyarrow
from apache_beam.ml.inference.base import KeyedModelHandler, RunInference
from apache_beam.options.pipeline_options import PipelineOptions

from attnrun.beam import Failed, ModelHandlerNumpy

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, FOLDER)
import corpus

SCHEMA = pyarrow.schema([("id", pyarrow.string()), ("text", pyarrow.string()),
                         ("embedding", pyarrow.list_(pyarrow.float32())),
                         ("error", pyarrow.string())])


class TokenizeOne(beam.DoFn):
    """(id, text) -> ((id, text), tokens of that text alone)."""

    def __init__(self, once):
        super().__init__()
        self._tokenize = corpus.Tokenize(once)

    def process(self, element):
        fields = self._tokenize({"text": [element[1]]})
        yield element, {name: array[0] for name, array in fields.items()}


def row_of(pair, progress):
    (place, text), result = pair
    progress.add(1)
    failed = isinstance(result.inference, Failed)
    return {"id": place, "text": text, "error": result.inference.message if failed else "",
            "embedding": [] if failed else result.inference["sentence_embedding"].tolist()}


def main():
    options, documents = corpus.arguments(__doc__)
    logging.basicConfig(level=logging.WARNING)
    os.environ["PYTHONPATH"] = os.pathsep.join(  # of the processes, which import corpus
        [FOLDER, *filter(None, [os.environ.get("PYTHONPATH")])])
    handler = ModelHandlerNumpy(os.path.abspath(options.model), outputs=["sentence_embedding"],
                                max_batch_size=options.batch)
    corpus.refuse_older(options.out, options.out)
    settings = PipelineOptions(runner="FnApiRunner", direct_num_workers=options.workers,
                               direct_running_mode="multi_processing", save_main_session=True)
    print(f"{len(documents)} documents, {options.workers} workers", flush=True)
    started = time.perf_counter()
    with corpus.Progress(len(documents)) as progress, beam.Pipeline(options=settings) as pipeline:
        _ = (pipeline | beam.Create(documents, reshuffle=True)
             | "tokenize" >> beam.ParDo(TokenizeOne(options.once))
             | "embed" >> RunInference(KeyedModelHandler(handler))
             | "rows" >> beam.Map(row_of, progress)
             | "write" >> beam.io.WriteToParquet(os.path.abspath(options.out), SCHEMA,
                                                 file_name_suffix=".parquet"))
    took = time.perf_counter() - started
    print(f"{len(documents) / took:.1f} documents/s, {took:.1f} s", flush=True)
    corpus.summary(options.out)


if __name__ == "__main__":
    main()
