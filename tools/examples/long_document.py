#!/usr/bin/env python3
"""Embed a document of 4,096 tokens with Longformer's attention and with dense attention.

usage: long_document.py ATTNRUN FOLDER [--tokens 4096] [--window 256] [--threads 1]
                        [--lengths 512,1024,…] [--text FILE…] [--chart FILE.svg]

MiniLM (6 layers, 384 wide, 12 heads) with its real weights and a repeated table of
positions (tools/minilm/lengthen.py), three times: windows with one global token; Attention
of ONNX; and the exporter's graph run without fusion, which writes all scores to memory.
The text is licences that every Debian machine has. Prints time, memory and the cosine of
both embeddings, and draws time and memory over the length. Times are minima of turns; the
memory is that of the plan: all that a run needs beyond weights, exact.
"""
import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "minilm")]
import panels  # noqa: E402
from fill import package_folder  # noqa: E402

LICENCES = Path("/usr/share/common-licenses")
TEXTS = [LICENCES / name for name in ("GPL-3", "LGPL-2.1", "GPL-2", "MPL-1.1")]
WINDOW, DENSE, WRITTEN = "Longformer", "dense", "dense, scores written out"
MOST_WRITTEN = 4096  # tokens: beyond, plans only
LONG_MS = 20e3
OUT_OF_MEMORY = 6


class Encoder:
    """A model file, the options it runs with, and what was found."""

    def __init__(self, name, path, lengthen, options=()):
        self.name, self.path, self.options = name, path, list(options)
        if not path.exists():
            subprocess.run([sys.executable, str(HERE.parent / "minilm" / "lengthen.py"),
                            str(path), *lengthen], check=True, stdout=subprocess.DEVNULL)
        self.times, self.memory = {}, {}

    def call(self, args, command, inputs, *more):
        done = subprocess.run([args.attnrun, command, str(self.path), "-i", str(inputs),
                               "--threads", str(args.threads), *self.options, *more],
                              capture_output=True, text=True, check=False)
        if done.returncode == OUT_OF_MEMORY:
            return None
        if done.returncode:
            sys.exit(f"long_document.py: {self.name}: {done.stderr.strip()}")
        return done.stdout

    def measure(self, args, inputs, n):
        """One turn of time, unless the last one took long; the plan."""
        if n not in self.memory:
            plan = self.call(args, "plan", inputs, "--json")
            if plan:
                self.memory[n] = json.loads(plan)["arena_bytes"]
        if (self.name == WRITTEN and n > MOST_WRITTEN) or self.times.get(n, 0) > LONG_MS:
            return
        found = self.call(args, "bench", inputs, "--json", "-n", "1")
        if found:
            found = json.loads(found)
            least = min(found["min_ms"], found["first_ms"])
            self.times[n] = min(self.times.get(n, least), least)

    def embedding(self, args, inputs):
        out = inputs.with_suffix(".out.npz")
        self.call(args, "run", inputs, "-n", "1", "-q", "-o", str(out))
        with np.load(out) as outputs:
            return outputs["sentence_embedding"][0]


def tokens_of(files):
    """All tokens of the text, with [CLS] and [SEP] around them."""
    tokenizer = Tokenizer.from_file(os.path.join(package_folder(), "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer.encode("\n".join(f.read_text("utf-8", "replace") for f in files)).ids


def inputs_of(ids, n, folder):
    """The first n tokens as inputs: [CLS] … [SEP]."""
    if len(ids) < n:
        sys.exit(f"long_document.py: the text has {len(ids)} tokens, {n} are asked for")
    ids = np.array([ids[:n - 1] + ids[-1:]], dtype=np.int64)
    path = folder / f"tokens-{n}.npz"
    np.savez(path, input_ids=ids, attention_mask=np.ones_like(ids))
    return path


def table(encoders, lengths):
    print(f"\n{'tokens':>7}" + "".join(f"{e.name:>28}" for e in encoders))
    for n in lengths:
        cells = [(f"{e.times[n] / 1e3:.2f} s" if n in e.times else "-") +
                 (f"  {e.memory[n] / 1e6:9.1f} MB" if n in e.memory else "")
                 for e in encoders]
        print(f"{n:7}" + "".join(f"{cell:>28}" for cell in cells))


def picture(encoders, args):
    def panel(title, points, unit):
        return {"title": title, "x_name": "tokens", "log": True, "unit": unit,
                "curves": {e.name: sorted(points(e).items()) for e in encoders if points(e)}}
    seconds = panel(f"time, {args.threads} thread{'s' * (args.threads > 1)}",
                    lambda e: {n: t / 1e3 for n, t in e.times.items()}, lambda s: f"{s:g} s")
    memory = panel("memory of a run beyond the weights",
                   lambda e: {n: b / 1e6 for n, b in e.memory.items()},
                   lambda m: f"{m:g} MB" if m < 1e3 else f"{m / 1e3:g} GB")
    return panels.draw(f"Embedding a document: 6 layers, 384 wide, window ±{args.window}, "
                       "one global token", [seconds, memory])


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("attnrun")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--lengths", default="512,1024,2048,4096,8192,16384",
                        type=lambda text: [int(word) for word in text.split(",")])
    parser.add_argument("--text", type=Path, nargs="+", default=TEXTS)
    parser.add_argument("--chart", type=Path)
    return parser.parse_args()


def main():
    args = arguments()
    args.folder.mkdir(parents=True, exist_ok=True)
    most = str(max([args.tokens, *args.lengths]))
    window, dense, written = encoders = [
        Encoder(WINDOW, args.folder / f"window-{args.window}-{most}.onnx",
                ["--tokens", most, "--window", str(args.window)]),
        Encoder(DENSE, args.folder / f"dense-{most}.onnx", ["--tokens", most]),
        Encoder(WRITTEN, args.folder / f"exported-{most}.onnx",
                ["--tokens", most, "--exported"], ["--no-fusion"])]
    ids = tokens_of(args.text)

    document = inputs_of(ids, args.tokens, args.folder)
    print(f"{args.tokens} tokens of {', '.join(f.name for f in args.text)}; "
          f"{args.threads} thread{'s' * (args.threads > 1)}")
    for _ in range(args.rounds):
        for encoder in (window, dense):
            encoder.measure(args, document, args.tokens)
    for encoder in (window, dense):
        print(f"  {encoder.name:11} {encoder.times[args.tokens] / 1e3:6.2f} s  "
              f"{encoder.memory[args.tokens] / 1e6:6.1f} MB")
    a, b = (encoder.embedding(args, document) for encoder in (window, dense))
    print(f"  cosine of both embeddings {a @ b:.4f}")

    for n in args.lengths:
        inputs = inputs_of(ids, n, args.folder)
        for _ in range(args.rounds):
            for encoder in encoders:
                encoder.measure(args, inputs, n)
    table(encoders, args.lengths)
    chart = args.chart or args.folder / "long-document.svg"
    chart.write_text(picture(encoders, args), encoding="utf-8")
    print(f"\n{chart}")


if __name__ == "__main__":
    main()
