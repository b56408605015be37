"""What the tests of attnrun optimize and extract share: nodes and values of small models, and a
test case that writes a model, checks the new file, and runs both in ONNX Runtime."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper

from test_json import SCHEMA, faults

ATTNRUN = str(Path(sys.argv[-1]).resolve())
SEED = 7
F, I64 = TensorProto.FLOAT, TensorProto.INT64


def node(*arguments, **more):
    return helper.make_node(*arguments, **more)


def value(name, kind=F, dims=None):
    return helper.make_tensor_value_info(name, kind, dims)


def run(path, feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    names = {i.name for i in session.get_inputs()}
    return session.run(None, {k: v for k, v in feeds.items() if k in names})


class EditCase(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.dir = Path(self.folder.name)
        self.draw = numpy.random.default_rng(SEED)

    def attnrun(self, *arguments, code=0):
        done = subprocess.run([ATTNRUN, *map(str, arguments)], capture_output=True, text=True,
                              timeout=120, cwd=self.dir)
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        return done

    def edited(self, *arguments):
        """The new model, checked by the onnx package, and what --json says of it."""
        said = json.loads(self.attnrun(*arguments, "-o", "out.onnx", "--json").stdout)
        self.assertEqual(faults(said, SCHEMA), [])
        onnx.checker.check_model(str(self.dir / "out.onnx"), full_check=True)
        model = onnx.load(self.dir / "out.onnx")
        self.assertEqual(said["nodes"], len(model.graph.node))
        self.assertEqual(said["bytes"], (self.dir / "out.onnx").stat().st_size)
        return model

    def same(self, path, feeds, tolerance=1e-6):
        for old, new in zip(run(path, feeds), run(self.dir / "out.onnx", feeds), strict=True):
            lists = [x if isinstance(x, list) else [x] for x in (old, new)]
            for a, b in zip(*lists, strict=True):
                self.assertEqual(a.dtype, b.dtype)
                numpy.testing.assert_allclose(a, b, tolerance, tolerance, err_msg=f"seed {SEED}")
