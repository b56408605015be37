"""start.py - from the start of a process to its first result: attnrun with a plain and with a
packed file, and a Python process with ONNX Runtime, which is timed from after its import.

measure(attnrun, paths, threads, folder, rounds) gives the minima in ms, by turns; "onnxruntime"
is missing where it does not run."""
import os
import subprocess
import sys
import time

import engines

IN_PYTHON = """
import sys
import numpy
import onnxruntime
import time
start = time.perf_counter()
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(sys.argv[3])
session = onnxruntime.InferenceSession(sys.argv[1], options, ["CPUExecutionProvider"])
session.run(None, dict(numpy.load(sys.argv[2])))
print((time.perf_counter() - start) * 1e3)
"""


def of_process(command):
    """ms until it ended, with the result written."""
    start = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          timeout=120, check=False)
    if done.returncode != 0:
        raise engines.Failed(engines.last_line(done.stderr))
    return (time.perf_counter() - start) * 1e3


def of_python(model, inputs, threads):
    done = subprocess.run([sys.executable, "-c", IN_PYTHON, model, inputs, str(threads)],
                          capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise engines.Failed(engines.last_line(done.stderr))
    return float(done.stdout)


def measure(attnrun, paths, threads, folder, rounds=10):
    model, _, inputs = paths
    packed = os.path.join(folder, "start.attnpack")
    of_process([attnrun, "pack", model, "-o", packed])

    def run(file):
        return of_process([attnrun, "run", "-q", file, "-i", inputs, "--threads", str(threads)])

    ways = {"file": lambda: run(model), "packed": lambda: run(packed),
            "onnxruntime": lambda: of_python(model, inputs, threads)}
    best = {}
    try:
        for _ in range(rounds):
            for way, once in ways.items():
                best[way] = min(best.get(way, float("inf")), once())
    finally:
        os.remove(packed)
    return best
