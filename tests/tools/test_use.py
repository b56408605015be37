#!/usr/bin/env python3
"""Everyday use of the command line, where a new user met something wrong: inputs given twice,
names in UTF-8, words that are misspelt, files of another kind, errors and JSON.

usage: test_use.py ATTNRUN
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy
from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).parent))
import cli_models  # noqa: E402

ATTNRUN = str(Path(sys.argv[1]).resolve())


class Use(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.dir = Path(self.folder.name)
        self.matmul = cli_models.matmul(self.dir / "matmul.onnx")
        self.relu = cli_models.relu(self.dir / "relu.onnx")

    def attnrun(self, *arguments, code=0, **options):
        done = subprocess.run([ATTNRUN, *map(str, arguments)], capture_output=True, timeout=60,
                              cwd=self.dir, **options)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def ok(self, *arguments, **options):
        return self.attnrun(*arguments, **options).stdout.decode()

    def json(self, *arguments, **options):
        return json.loads(self.ok(*arguments, "--json", **options))

    def refused(self, code, *arguments):
        """What stands on stderr."""
        done = self.attnrun(*arguments, code=code)
        self.assertEqual(done.stdout, b"")
        return done.stderr.decode()

    # ---- inputs ----
    def test_later_inputs_win(self):
        a, b = numpy.full((2, 3), 5, "f"), numpy.ones((3, 4), "f")
        numpy.savez(self.dir / "ab.npz", a=a, b=b)
        numpy.save(self.dir / "b2.npy", numpy.ones((3, 2), "f"))
        for given, shape, value in (
                (["ab.npz", "a=ones"], [1, 4], 3), (["a=ones", "ab.npz"], [2, 4], 15),
                (["ab.npz", "b=b2.npy"], [2, 2], 15), (["a=ones", "b=b2.npy", "a=[[1,2,3]]"],
                                                       [1, 2], 6)):
            given = [word for text in given for word in ("-i", text)]
            self.ok("run", self.matmul, *given, "-o", "y.npy")
            y = numpy.load(self.dir / "y.npy")
            self.assertEqual((list(y.shape), y.max()), (shape, value), given)
        (self.dir / "run.yaml").write_text("input: {a: zeros, b: b2.npy}\n")
        self.ok("run", self.matmul, "-c", "run.yaml", "-i", "a=[[1,1,1]]", "-o", "y.npy")
        self.assertEqual(numpy.load(self.dir / "y.npy").tolist(), [[3, 3]])

    def test_names_with_an_equals_sign(self):
        path = cli_models.save(
            self.dir / "m.onnx",
            [helper.make_node("Add", ["a=b", "a"], ["y=z"])],
            [("a=b", TensorProto.FLOAT, ["n=1"]), ("a", TensorProto.FLOAT, ["n=1"])],
            [("y=z", TensorProto.FLOAT, ["n=1"])])
        run = self.json("run", path, "-i", "a=b=[1,2]", "-i", "a=ones")
        self.assertEqual(run["outputs"][0]["max"], 3)
        run = self.json("run", path, "--set", "n=1=4", "--shape", "a=b=4")
        self.assertEqual([i["shape"] for i in run["inputs"]], [[4], [4]])

    def test_strings_of_numpy(self):
        path = cli_models.save(
            self.dir / "m.onnx", [helper.make_node("Identity", ["x"], ["y"])],
            [("x", TensorProto.STRING, ["N"])], [("y", TensorProto.STRING, ["N"])])
        words = ["", "b", "\u30e2\u30c7\u30eb", "longer"]
        for array in (numpy.array(words), numpy.array([w.encode() for w in words]),
                      numpy.array(words).astype(">U6")):
            numpy.save(self.dir / "x.npy", array)
            self.ok("run", path, "-i", "x=x.npy", "-o", "y.json")
            self.assertEqual(json.loads((self.dir / "y.json").read_text())["y"], words)
        numpy.savez(self.dir / "x.npz", x=numpy.array(words))
        self.ok("run", path, "-i", "x.npz", "-o", "y.json")
        self.assertEqual(json.loads((self.dir / "y.json").read_text())["y"], words)
        broken = bytearray((self.dir / "x.npy").read_bytes())
        broken[-4:] = b"\xff\xff\xff\xff"
        (self.dir / "x.npy").write_bytes(broken)
        self.assertIn("U+10FFFF", self.refused(3, "run", path, "-i", "x=x.npy"))

    def test_wider_types_in_files_are_said(self):
        path = cli_models.save(
            self.dir / "m.onnx",
            [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.BFLOAT16)],
            [("x", TensorProto.FLOAT, [2])], [("y", TensorProto.BFLOAT16, [2])])
        for form in ("y.npy", "y.npz", "folder/"):
            done = self.attnrun("run", path, "-i", "x=[1,2]", "-o", form, "-q")
            self.assertEqual(done.stderr.decode(), "attnrun: note: output 'y' is bf16, which "
                             f"NumPy lacks: {form} holds it as f32\n")
        done = self.attnrun("run", self.relu, "-o", "y.npy", "-q")
        self.assertEqual(done.stderr, b"")

    # ---- names ----
    def test_utf8_names_print_as_written(self):
        name = "\u30e2\u30c7\u30eb.onnx"
        path = cli_models.save(
            self.dir / name,
            [helper.make_node("MatMul", ["entr\u00e9e", "\U0001f642"], ["\u51fa\u529b"],
                              name="\u7bc0")],
            [("entr\u00e9e", TensorProto.FLOAT, ["\u0411", "K"]),
             ("\U0001f642", TensorProto.FLOAT, ["K", 3])],
            [("\u51fa\u529b", TensorProto.FLOAT, None)])
        self.assertEqual(Path(path).name, name)
        screen = self.ok("run", name)
        for word in (name, "entr\u00e9e", "\U0001f642", "\u51fa\u529b", "\u0411=1", "\u7bc0"):
            self.assertIn(word, screen)
        numpy.save(self.dir / "a.npy", numpy.ones((2, 4), "f"))
        said = self.refused(5, "run", name, "-i", "entr\u00e9e=a.npy", "-i",
                            "\U0001f642=[[1,2,3]]")
        self.assertIn("\u7bc0", said)
        self.assertIn("\U0001f642", said)
        self.assertIn("\u7121\u3044.onnx", self.refused(3, "run", "\u7121\u3044.onnx"))

    def test_dangerous_names_are_escaped(self):
        evil = "a\u202eb\u009bc\x1b[31m"
        path = cli_models.save(
            self.dir / "m.onnx", [helper.make_node("Relu", [evil], ["y"])],
            [(evil, TensorProto.FLOAT, [2])], [("y", TensorProto.FLOAT, [2])])
        for out in (self.ok("run", path), self.ok("inspect", path)):
            self.assertIn("a\\xe2\\x80\\xaeb\\xc2\\x9bc\\x1b[31m", out)
            for character in "\u202e\u009b\x1b":
                self.assertNotIn(character, out)
        broken = os.path.join(os.fsencode(self.dir), b"\xe3\x83.onnx")
        os.rename(path, broken)
        done = subprocess.run([ATTNRUN, "run", broken], capture_output=True)
        self.assertIn(b"\\xe3\\x83.onnx", done.stdout)
        done.stdout.decode()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
