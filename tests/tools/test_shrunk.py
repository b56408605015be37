#!/usr/bin/env python3
"""A mapped file that shrinks while a model runs: its name, exit code 3, nothing left behind.

usage: test_shrunk.py ATTNRUN

The model runs for ever: each turn of a Loop gathers a row of a table that lies in the model or
in a file beside it, so a file that is cut is noticed whatever the machine does meanwhile.
"""
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

ATTNRUN = sys.argv[1]
ROWS, WIDE, LIMIT = 1000, 256, 60  # a row is 1 KiB


def table(name, folder=None, rows=ROWS):
    """A table; with a folder, in a file of its own."""
    values = numpy.random.default_rng(3).normal(size=(rows, WIDE)).astype("f")
    tensor = numpy_helper.from_array(values, name)
    if folder is not None:
        (folder / f"{name}.bin").write_bytes(values.tobytes())
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=values.shape,
                             data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value=f"{name}.bin")
    return tensor


def save_endless(path, tables, whole=False):
    """A Loop of 2^62 turns that reads a row of every table in each, or the whole of it."""
    shape = list(tables[0].dims) if whole else [WIDE]
    nodes = [helper.make_node("Identity", ["go"], ["again"]),
             helper.make_node("Mod", ["i", "rows"], ["row"])]
    sums = ["v"]
    for t in tables:
        if whole:  # large enough to be shared by the workers
            nodes += [helper.make_node("Max", [sums[-1], t.name], [f"{t.name}_sum"])]
            sums.append(f"{t.name}_sum")
            continue
        nodes += [helper.make_node("Gather", [t.name, "row"], [f"{t.name}_row"]),
                  helper.make_node("Max", [sums[-1], f"{t.name}_row"], [f"{t.name}_sum"])]
        sums.append(f"{t.name}_sum")
    body = helper.make_graph(
        nodes, "body", [helper.make_tensor_value_info("i", TensorProto.INT64, []),
                        helper.make_tensor_value_info("go", TensorProto.BOOL, []),
                        helper.make_tensor_value_info("v", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("again", TensorProto.BOOL, []),
         helper.make_tensor_value_info(sums[-1], TensorProto.FLOAT, shape)])
    constants = [numpy_helper.from_array(numpy.asarray(v), n) for n, v in
                 (("n", numpy.int64(1 << 62)), ("yes", numpy.bool_(True)),
                  ("rows", numpy.int64(ROWS)))]
    graph = helper.make_graph(
        [helper.make_node("Loop", ["n", "yes", "x"], ["y"], body=body)], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)], constants + tables)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)],
                                ir_version=9), path)


class Shrunk(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.dir = Path(os.path.realpath(self.folder.name))
        self.model = self.dir / "model.onnx"
        self.threads = 1

    def started(self, *more):
        """A run that has all of self.files mapped."""
        run = subprocess.Popen([ATTNRUN, "run", self.model, "-t", "8", "-q", *more],
                               stderr=subprocess.PIPE)
        self.addCleanup(run.stderr.close)
        self.addCleanup(run.wait)
        self.addCleanup(run.kill)
        end = time.monotonic() + LIMIT
        while run.poll() is None and time.monotonic() < end:
            maps = Path(f"/proc/{run.pid}/maps").read_text()
            tasks = len(os.listdir(f"/proc/{run.pid}/task"))
            if all(str(p) in maps for p in self.files) and tasks >= self.threads:
                return run
            time.sleep(0.01)
        self.fail(f"the files are not mapped: {run.returncode}")

    def shrinks(self, path):
        out = self.dir / "out.npz"
        run = self.started("-o", out)
        os.truncate(path, 4096)
        _, words = run.communicate(timeout=LIMIT)
        self.assertEqual(run.returncode, 3, words)
        self.assertEqual(words.count(b"\n"), 1, words)
        self.assertIn(b"attnrun: IO: ", words)
        self.assertIn(str(path).encode(), words)
        self.assertIn(b"shrank", words)
        self.assertEqual([p for p in self.dir.iterdir() if p.name.startswith("out")], [])

    def test_the_model_itself(self):
        save_endless(self.model, [table("t")])
        self.files = [self.model]
        self.shrinks(self.model)

    def test_seen_by_any_worker(self):
        """Eight workers read; whichever meets the end first says so."""
        self.files, self.threads = [self.dir / "t.bin"], 8
        for _ in range(4):  # from a file of its own, so that it is aligned and read there
            save_endless(self.model, [table("t", self.dir, 8 * ROWS)], whole=True)
            self.shrinks(self.files[0])

    def test_external_data_of_several(self):
        tables = [table(name, self.dir) for name in ("first", "second", "third")]
        save_endless(self.model, tables)
        self.files = [self.dir / f"{t.name}.bin" for t in tables]
        self.shrinks(self.files[1])

    def test_a_signal_of_others_still_ends_it(self):
        """SIGBUS that no file is behind keeps its meaning."""
        save_endless(self.model, [table("t")])
        self.files = [self.model]
        run = self.started()
        run.send_signal(signal.SIGBUS)
        run.communicate(timeout=LIMIT)
        self.assertEqual(run.returncode, -signal.SIGBUS)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
