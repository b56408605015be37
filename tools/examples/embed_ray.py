#!/usr/bin/env python3
"""Embeds the texts of a Debian machine with MiniLM, in many processes of Ray Data.

usage: embed_ray.py MODEL.onnx OUT_FOLDER [--workers N] [--documents N] [--batch N]

MODEL.onnx: tools/minilm/fill.py makes it. OUT_FOLDER gets Parquet files with id, text,
embedding and error. bash tools/examples/embed.sh makes all that this needs."""
import os
import sys
import time

import ray

import attnrun.ray

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import corpus


def main():
    options, documents = corpus.arguments(__doc__)
    ray.init(num_cpus=options.workers, include_dashboard=False, log_to_driver=True,
             runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(
                 [os.path.dirname(os.path.abspath(__file__)),
                  os.environ.get("PYTHONPATH", "")])}})
    corpus.refuse_older(os.path.join(options.out, ""), options.out)
    shape = (options.batch, corpus.TOKENS)
    takes = attnrun.ray.resources(options.model, {"input_ids": shape, "attention_mask": shape})
    print(f"{len(documents)} documents, {options.workers} workers, each "
          f"{takes['num_cpus']} CPU and {takes['memory'] / 2**20:.0f} MiB", flush=True)
    started = time.perf_counter()
    rows = ray.data.from_items([{"id": place, "text": text} for place, text in documents],
                               override_num_blocks=4 * options.workers)
    rows.map_batches(
        attnrun.ray.Predictor, fn_constructor_args=(os.path.abspath(options.model),),
        fn_constructor_kwargs={"prepare": corpus.Tokenize(options.once),
                               "outputs": {"sentence_embedding": "embedding"}},
        batch_size=options.batch, batch_format="numpy", concurrency=options.workers,
        **takes).write_parquet(os.path.abspath(options.out))
    took = time.perf_counter() - started
    print(f"{len(documents) / took:.1f} documents/s, {took:.1f} s", flush=True)
    corpus.summary(os.path.join(options.out, ""))
    ray.shutdown()


if __name__ == "__main__":
    main()
