#!/usr/bin/env python3
"""What a call costs: C, the extension, and the same calls through ctypes.

usage: PYTHONPATH=BUILD/python call_cost.py [--page README.md]    (needs onnx and a C compiler)

The model has MiniLM's inputs (two int64 of 1 x 128) and two outputs, but next to no work, so
that the difference of two lines is the cost of the binding. One thread; time of the
processor, the median of 30 rounds that take turns. Prints a table; --page writes it into that
page."""
import argparse
import ctypes
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import attnrun
import numpy as np
from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "bench"))
import written  # noqa: E402

CALLS, ROUNDS = 2000, 30
C_LOOP = r"""
#include <attnrun.h>
#include <string.h>
double loop(attnrun_context *c, const attnrun_tensor *in, char *to, int n, double (*now)(void));
double loop(attnrun_context *c, const attnrun_tensor *in, char *to, int n, double (*now)(void))
{
    attnrun_tensor out;
    double start = now();
    for (int i = 0; i < n; i++) {
        attnrun_set_input(c, 0, &in[0]);
        attnrun_set_input(c, 1, &in[1]);
        attnrun_run(c, NULL);
        for (int k = 0; k < 2; k++) {
            attnrun_output(c, k, &out);
            memcpy(to, out.data, (size_t)attnrun_tensor_bytes(&out));
        }
    }
    return (now() - start) / n * 1e6;
}
"""


class Tensor(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("reserved", ctypes.c_int32), ("dims", ctypes.c_int64 * 8),
                ("strides", ctypes.c_int64 * 8), ("data", ctypes.c_void_p)]


class Source(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("flags", ctypes.c_uint32),
                ("path", ctypes.c_char_p), ("data", ctypes.c_char_p),
                ("bytes", ctypes.c_uint64), ("external_dir", ctypes.c_char_p),
                ("disable_passes", ctypes.c_char_p)]


def model_bytes():
    def value(name, dtype, dims):
        return helper.make_tensor_value_info(name, dtype, dims)
    graph = helper.make_graph(
        [helper.make_node("Add", ["input_ids", "attention_mask"], ["sum"]),
         helper.make_node("Neg", ["attention_mask"], ["negative"])], "g",
        [value(name, TensorProto.INT64, ["B", "S"]) for name in ("input_ids",
                                                                 "attention_mask")],
        [value(name, TensorProto.INT64, ["B", "S"]) for name in ("sum", "negative")])
    return helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 20)]).SerializeToString()


def view(array):
    tensor = Tensor(1, 7, array.ndim)
    tensor.dims[:2], tensor.strides[:2] = array.shape, array.strides
    tensor.data = array.ctypes.data
    return tensor


def through_ctypes(library, context, arrays):
    """One call as a ctypes binding would make it."""
    for i, array in enumerate(arrays):
        library.attnrun_set_input(context, i, ctypes.byref(view(array)))
    assert library.attnrun_run(context, None) == 0
    results = []
    for k in range(2):
        out = Tensor()
        library.attnrun_output(context, k, ctypes.byref(out))
        made = np.empty(tuple(out.dims[:out.rank]), np.int64)
        ctypes.memmove(made.ctypes.data, out.data, made.nbytes)
        results.append(made)
    return results


def rounds_of(call):
    start = time.process_time()
    for _ in range(CALLS):
        call()
    return (time.process_time() - start) / CALLS * 1e6


def measure():
    """{way: microseconds of each round}"""
    package, data = Path(attnrun.__file__).parent, model_bytes()
    ids, mask = np.arange(128).reshape(1, 128), np.ones((1, 128), np.int64)
    os.environ["ATTNRUN_NUM_THREADS"] = "1"
    library = ctypes.CDLL(str(next(package.glob("libattnrun.so*"))), ctypes.RTLD_GLOBAL)
    model, context = ctypes.c_void_p(), ctypes.c_void_p()
    source = Source(ctypes.sizeof(Source), 0, None, data, len(data))
    assert library.attnrun_model_open(None, ctypes.byref(source), ctypes.byref(model)) == 0
    assert library.attnrun_context_create(model, ctypes.byref(context)) == 0
    ours = attnrun.Model(data, threads=1)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "loop.c").write_text(C_LOOP, encoding="utf-8")
        header = Path(__file__).resolve().parents[2] / "runtime"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"-I{header}", "loop.c", "-o",
                        "loop.so"], cwd=folder, check=True)
        loop = ctypes.CDLL(f"{folder}/loop.so").loop
    loop.restype = ctypes.c_double
    now = ctypes.CFUNCTYPE(ctypes.c_double)(time.process_time)
    tensors, room = (Tensor * 2)(view(ids), view(mask)), ctypes.create_string_buffer(4096)
    ways = {"C": lambda: loop(context, tensors, room, CALLS, now),
            "this extension": lambda: rounds_of(
                lambda: ours(input_ids=ids, attention_mask=mask)),
            "the same calls through ctypes": lambda: rounds_of(
                lambda: through_ctypes(library, context, (ids, mask)))}
    expected = ours(input_ids=ids, attention_mask=mask)
    for made, name in zip(through_ctypes(library, context, (ids, mask)),
                          ("sum", "negative"), strict=True):
        np.testing.assert_array_equal(made, expected[name])
    np.testing.assert_array_equal(expected["sum"], ids + mask)
    times = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            times[name].append(way())
    return times


def table(times):
    base = statistics.median(times["C"])
    lines = [written.measured("tests/python/call_cost.py", f"Python {platform.python_version()}",
                              f"numpy {np.__version__}", "one thread") + ":", "",
             "| way | µs a call | over C |", "|---|---|---|"]
    for name, taken in times.items():
        middle = statistics.median(taken)
        lines.append(f"| {name} | {middle:.2f} | {middle - base:.2f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--page")
    options = parser.parse_args()
    text = table(measure())
    print(text)
    if options.page:
        written.write(options.page, "calls", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
