#!/usr/bin/env python3
"""attnrun compare: one model in two ways, and the value that differs first; attnrun run --outputs.

usage: test_compare.py ROOT ATTNRUN
"""
import json
import os
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).parent))
import cli_models  # noqa: E402
from test_json import SCHEMA, faults  # noqa: E402

ATTNRUN = str(Path(sys.argv[-1]).resolve())
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def mlp(path, bias=0.0, seed=3):
    """Products, a bias and gelu, which fuse; `bias` is added to the bias."""
    rng = numpy.random.default_rng(seed)
    weights = {"w1": rng.normal(size=(16, 32)), "b1": rng.normal(size=32),
               "w2": rng.normal(size=(32, 8))}
    weights["b1"] = weights["b1"] + bias
    return cli_models.save(
        path, [helper.make_node("MatMul", ["x", "w1"], ["h0"], name="fc1"),
               helper.make_node("Add", ["h0", "b1"], ["h1"], name="bias"),
               helper.make_node("Gelu", ["h1"], ["h2"], name="act"),
               helper.make_node("MatMul", ["h2", "w2"], ["h3"], name="fc2"),
               helper.make_node("Softmax", ["h3"], ["y"], name="soft")],
        [("x", TensorProto.FLOAT, ["B", 16])], [("y", TensorProto.FLOAT, None)],
        [(n, w.astype("f")) for n, w in weights.items()], opset=20), weights


def called(path):
    """A node of an operator that is native, with a function that computes the same."""
    body = helper.make_function(
        "com.microsoft", "Gelu", ["X"], ["Y"], [helper.make_node("Gelu", ["X"], ["Y"])],
        [helper.make_opsetid("", 20)])
    graph = helper.make_graph(
        [helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"])])
    onnx.save(helper.make_model(graph, functions=[body], ir_version=9, opset_imports=[
        helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]), path)
    return str(path)


class Compare(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.dir = Path(self.folder.name)
        self.model, self.weights = mlp(self.dir / "mlp.onnx")

    def attnrun(self, *arguments, code=0):
        done = subprocess.run([ATTNRUN, *map(str, arguments)], capture_output=True, text=True,
                              timeout=120, cwd=self.dir, env=ENVIRONMENT)
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        return done

    def compare(self, *arguments, code=0):
        value = json.loads(self.attnrun("compare", self.model, *arguments, "--json",
                                        code=code).stdout)
        self.assertEqual(faults(value, SCHEMA), [])
        return value

    def test_inner_values(self):
        x = numpy.random.default_rng(1).normal(size=(2, 16)).astype("f")
        numpy.save(self.dir / "x.npy", x)
        self.attnrun("run", self.model, "-i", "x=x.npy", "--outputs", "h1", "--outputs", "h0",
                     "-o", "out.npz", "-q")
        with numpy.load(self.dir / "out.npz") as out:
            self.assertEqual(list(out), ["y", "h1", "h0"])
            numpy.testing.assert_allclose(out["h0"], x @ self.weights["w1"].astype("f"), 1e-5,
                                          1e-5)
            numpy.testing.assert_allclose(
                out["h1"], x @ self.weights["w1"] + self.weights["b1"], 1e-5, 1e-5)
        said = self.attnrun("run", self.model, "--outputs", "hh1", code=2).stderr
        self.assertIn("no value 'hh1' (did you mean 'h", said)
        self.attnrun("run", self.model, "--outputs", "y", "-o", "y.npy", "-q")

    def test_ways_that_agree(self):
        for way in ("no-fusion", "isa=base", "ort", "mlp.onnx"):
            for more in ((), ("--per-node",)):
                value = self.compare("--with", way, *more)
                self.assertTrue(value["same"])
                self.assertEqual([o["name"] for o in value["outputs"]], ["y"])
                self.assertEqual(bool(value["values"]), bool(more))
        rounded = self.compare("--with", "precision=bf16", "--atol", 0.05, "--rtol", 0.05)
        self.assertGreater(rounded["outputs"][0]["max_abs"], 0)
        # Without tolerances of the user's, what bf16 promises; given ones are taken alone.
        self.assertTrue(self.compare("--with", "precision=bf16")["same"])
        self.compare("--with", "precision=bf16", "--rtol", 1e-6, "--atol", 1e-7, code=1)
        self.assertIn("h0", [v["name"] for v in self.compare(
            "--with", "ort", "--per-node", "--no-fusion")["values"]])

    def test_the_first_difference_is_named(self):
        other, _ = mlp(self.dir / "other.onnx", bias=0.25)
        value = self.compare("--with", other, "--per-node", "--no-fusion", code=1)
        self.assertEqual(value["first"], "h1")
        rows = {v["name"]: v for v in value["values"]}
        self.assertTrue(rows["h0"]["passed"])
        self.assertAlmostEqual(rows["h1"]["max_abs"], 0.25, 5)
        out = self.attnrun("compare", self.model, "--with", other, "--per-node", "--no-fusion",
                           code=1).stdout
        self.assertIn("'h1' is the first to differ: node 'bias' (Add)", " ".join(out.split()))
        self.assertEqual(out.splitlines()[-1], "different")

    def test_an_output_that_one_of_the_models_lacks(self):
        first, second = [cli_models.save(
            self.dir / f"{name}.onnx",
            [helper.make_node("Abs", ["x"], ["a"]), helper.make_node("Neg", ["x"], [name])],
            [("x", TensorProto.FLOAT, ["N"])],
            [("a", TensorProto.FLOAT, ["N"]), (name, TensorProto.FLOAT, ["N"])])
            for name in ("b", "c")]
        out = self.attnrun("compare", first, "--with", second, code=1).stdout
        self.assertRegex(out, "ok +a f32.*\n +FAIL +b f32")
        self.assertRegex(out, "missing +.*c.onnx has no output 'b'\ndifferent\n$")
        value = json.loads(self.attnrun("compare", first, "--with", second, "--json",
                                        "--reduce", "part.onnx", code=1).stdout)
        self.assertEqual(faults(value, SCHEMA), [])
        self.assertEqual([(o["name"], o["passed"]) for o in value["outputs"]],
                         [("a", True), ("b", False), ("c", False)])
        self.assertFalse(value["same"])
        less = cli_models.save(self.dir / "a.onnx", [helper.make_node("Abs", ["x"], ["a"])],
                               [("x", TensorProto.FLOAT, ["N"])], [("a", TensorProto.FLOAT, ["N"])])
        out = self.attnrun("compare", less, "--with", first, code=1).stdout
        self.assertRegex(out, "ok +a f32.*\n +FAIL +b f32")
        self.assertRegex(out, "missing +.*a.onnx has no output 'b'\ndifferent\n$")

    def test_integers_that_doubles_do_not_hold(self):
        for kind, x in ((TensorProto.INT64, 2**53), (TensorProto.INT64, -2**63),
                        (TensorProto.UINT64, 2**64 - 2)):
            one = numpy.array([1], helper.tensor_dtype_to_np_dtype(kind))
            paths = [cli_models.save(self.dir / f"{op}.onnx", [helper.make_node(op, inputs, ["y"])],
                                     [("x", kind, [1])], [("y", kind, [1])], weights, opset=21)
                     for op, inputs, weights in (("Identity", ["x"], []),
                                                 ("Add", ["x", "one"], [("one", one)]))]
            done = self.attnrun("compare", paths[0], "--with", paths[1], "-i", f"x=[{x}]", "--json",
                                code=1)
            row = json.loads(done.stdout)["outputs"][0]
            self.assertEqual((row["passed"], row["unequal_elements"], row["max_abs"]),
                             (False, 1, 1))

    def test_a_complex_number_is_one_element(self):
        model = cli_models.save(
            self.dir / "c.onnx", [helper.make_node("Identity", ["x"], ["y"])],
            [("x", TensorProto.COMPLEX64, [4])], [("y", TensorProto.COMPLEX64, [4])])
        numpy.save(self.dir / "x.npy", numpy.array([1 + 2j, 1 + 2j, 3j, 4], "F"))
        numpy.save(self.dir / "y.npy", numpy.array(
            [3 + 4j, 1 + 5j, complex("nan+nanj"), 4], "F"))
        (output,) = json.loads(self.attnrun("check", model, "-i", "x=x.npy", "--ref", "y.npy",
                                            "--json", code=1).stdout)["folders"][0]["outputs"]
        self.assertEqual((output["unequal_elements"], output["unmatched_not_finite"]), (3, 1))

    def test_reduce(self):
        other, _ = mlp(self.dir / "other.onnx", bias=0.25)
        value = self.compare("--with", other, "--no-fusion", "--reduce", "part.onnx", code=1)
        self.assertEqual(value["part"], {"file": "part.onnx", "inputs_file": "part.npz",
                                         "other_file": "part.other.onnx", "nodes": 1})
        part = onnx.load(self.dir / "part.onnx").graph
        self.assertEqual([n.name for n in part.node], ["bias"])
        with numpy.load(self.dir / "part.npz") as inputs:
            self.assertEqual(list(inputs), ["h0"])
        self.attnrun("compare", "part.onnx", "-i", "part.npz", "--with", "part.other.onnx", code=1)
        # What a wider type of products hides is in the fused node: the part is all of it.
        exact = ("--with", "precision=bf16", "--rtol", 1e-6, "--atol", 1e-6)
        self.assertEqual(self.compare(*exact, "--reduce", "b.onnx", code=1)["part"]["nodes"], 3)
        self.attnrun("compare", "b.onnx", "-i", "b.npz", *exact, code=1)
        # The command that is shown finds the difference again, whoever gave the tolerances.
        (self.dir / "exact.yaml").write_text("rtol: 1e-6\natol: 1e-6\nset: { B: 3 }\n")
        for options in ((*exact, "-t", 1), ("-c", "exact.yaml", "--with=precision=bf16")):
            said = self.attnrun("compare", self.model, *options, "--reduce", "it's c.onnx", code=1)
            (shown,) = [line for line in said.stdout.splitlines() if line.startswith("next ")]
            words = shlex.split(shown)[1:]
            self.assertEqual(words[:3], ["attnrun", "compare", "it's c.onnx"])
            self.assertIn("different", self.attnrun(*words[1:], code=1).stdout)
        self.assertNotIn("part", self.compare("--with", "isa=base", "--reduce", "none.onnx"))
        self.assertFalse((self.dir / "none.onnx").exists())

    def test_reduce_to_a_branch(self):
        """Its nodes read values of the main graph: the part begins there."""
        kind, paths = TensorProto.FLOAT, []
        for factor in (2, 3):
            branches = [
                helper.make_graph([helper.make_node(op, inputs, [name])], name, [],
                                  [helper.make_tensor_value_info(name, kind, None)])
                for op, inputs, name in (("Mul", ["e", "k"], "then"), ("Neg", ["e"], "else"))]
            paths.append(cli_models.save(
                self.dir / f"by{factor}.onnx",
                [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Not", ["b"], ["c"]),
                 helper.make_node("If", ["c"], ["y"], name="choice", then_branch=branches[0],
                                  else_branch=branches[1]),
                 helper.make_node("Abs", ["y"], ["z"])],
                [("x", kind, [3]), ("b", TensorProto.BOOL, [])], [("z", kind, [3])],
                [("k", numpy.float32(factor))]))
        self.attnrun("compare", paths[0], "--with", paths[1], "-i", "b=0", "--reduce", "if.onnx",
                     code=1)
        part = onnx.load(self.dir / "if.onnx").graph
        self.assertEqual([n.name for n in part.node], ["choice"])
        self.assertEqual(sorted(i.name for i in part.input), ["c", "e"])

    def sequences(self, kind):
        """A Loop that reads a sequence of the main graph; its product differs with bf16."""
        info, real = helper.make_tensor_value_info, TensorProto.FLOAT
        body = helper.make_graph(
            [helper.make_node("SequenceAt", ["q", "i"], ["e"]),
             helper.make_node("Shape", ["e"], ["s"]),
             helper.make_node("Cast", ["s"], ["f"], to=real),
             helper.make_node("Add", ["f", "a"], ["b"]),
             helper.make_node("MatMul", ["b", "w"], ["m"]),
             helper.make_node("Identity", ["c"], ["d"])], "body",
            [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, []),
             info("a", real, [2, 16])], [info("d", TensorProto.BOOL, []), info("m", real, [2, 16])])
        return cli_models.save(
            self.dir / "q.onnx", [
                helper.make_node("Identity", ["t"], ["t1"]),
                helper.make_node("Relu", ["x"], ["x1"]),
                helper.make_node("SequenceConstruct", ["t1", "t1"], ["q"]),
                helper.make_node("Loop", ["two", "", "x1"], ["l"], name="loop", body=body),
                helper.make_node("Tanh", ["l"], ["y"])],
            [("t", kind, [3]), ("x", real, [2, 16])], [("y", real, [2, 16])],
            [("two", numpy.int64(2)),
             ("w", numpy.random.default_rng(0).normal(size=(16, 16)).astype("f"))])

    def test_reduce_beside_sequences(self):
        """An npz file holds none: the part begins before what makes it."""
        for kind, given in ((TensorProto.STRING, '["a","b","c"]'), (TensorProto.FLOAT, "[1,2,3]")):
            self.attnrun("compare", self.sequences(kind), "-i", f"t={given}", "-i", "x=random",
                         "--with", "precision=bf16", "--rtol", 1e-6, "--reduce", "p.onnx", code=1)
            self.assertEqual([n.op_type for n in onnx.load(self.dir / "p.onnx").graph.node][-2:],
                             ["SequenceConstruct", "Loop"])
            with numpy.load(self.dir / "p.npz") as inputs:
                self.assertEqual(sorted(inputs), ["t", "x1"])

    def test_kinds_beside_onnx_runtime(self):
        said = self.attnrun("compare", self.sequences(TensorProto.FLOAT), "--with", "ort",
                            "--per-node").stdout
        self.assertNotIn("FAIL", said)
        model = onnx.load(self.dir / "q.onnx")
        model.graph.output.append(helper.make_tensor_sequence_value_info(
            "q", TensorProto.FLOAT, None))
        onnx.save(model, self.dir / "s.onnx")
        self.assertIn("output 'q' is a sequence of 2", self.attnrun(
            "compare", "s.onnx", "--with", "ort", code=4).stderr)
        names = [f"k{i}" for i in range(300)]
        x = onnx.ValueInfoProto(name="x")
        x.type.map_type.key_type = TensorProto.STRING
        x.type.map_type.value_type.tensor_type.elem_type = TensorProto.FLOAT
        graph = helper.make_graph(
            [helper.make_node("DictVectorizer", ["x"], ["y"], domain="ai.onnx.ml",
                              string_vocabulary=names)], "g", [x],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
        onnx.save(helper.make_model(graph, ir_version=9, opset_imports=[
            helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]),
            self.dir / "m.onnx")
        self.assertIn("input 'x' is a map of 300", self.attnrun(
            "compare", "m.onnx", "--with", "ort", "-i",
            f"x={json.dumps(dict.fromkeys(names, 1.5))}", code=4).stderr)
        text = cli_models.save(
            self.dir / "t.onnx", [helper.make_node("StringConcat", ["x", "x"], ["y"])],
            [("x", TensorProto.STRING, [2])], [("y", TensorProto.STRING, [2])], opset=20)
        self.assertIn("equal", self.attnrun("compare", text, "--with", "ort", "-i",
                                            'x=["a","b c"]').stdout)

    def test_modules_beside_the_model_do_not_run(self):
        """The folder of a model may be a stranger's, and hold files that Python would import."""
        for name in ("numpy", "onnx", "onnxruntime"):
            (self.dir / f"{name}.py").write_text("open('ran', 'w').close()\n")
        self.attnrun("compare", self.model, "--with", "ort")
        self.assertFalse((self.dir / "ran").exists())

    def test_a_signal_leaves_no_folder(self):
        fake = self.dir / "python3"
        fake.write_text('#!/bin/sh\necho "$4" >given.tmp\nmv given.tmp given\nexec sleep 60\n')
        fake.chmod(0o755)
        with subprocess.Popen(
                [ATTNRUN, "compare", self.model, "--with", "ort"], cwd=self.dir,
                env={**os.environ, "PATH": f"{self.dir}:{os.environ['PATH']}"}) as compare:
            while not (self.dir / "given").exists():
                time.sleep(0.02)
            folder = Path((self.dir / "given").read_text().strip()).parent
            self.assertTrue(folder.exists())
            compare.terminate()
            self.assertEqual(compare.wait(20), 143)
        self.assertFalse(folder.exists())

    def test_reduce_that_cannot_write(self):
        exact = ("--with", "precision=bf16", "--rtol", 1e-6, "--atol", 1e-6)
        said = self.attnrun("compare", "none.onnx", *exact, "--reduce", "no/p.onnx", code=3).stderr
        self.assertIn("no/p.onnx", said)  # before the model is read
        (self.dir / "p.npz").mkdir()
        self.assertIn("p.npz", self.attnrun("compare", self.model, *exact, "--reduce", "p.onnx",
                                            code=3).stderr)
        self.assertFalse((self.dir / "p.onnx").exists())
        for path in ("-", "/dev/stdout", "/dev/null"):  # not the part between lines of text or JSON
            self.assertIn("is not a file", self.attnrun("compare", self.model, *exact, "--json",
                                                        "--reduce", path, code=2).stderr)
        # A part that fails later does not take the comparison along.
        done = subprocess.run(
            [ATTNRUN, "compare", self.model, *map(str, exact), "--reduce", "q.onnx"],
            capture_output=True, text=True, timeout=120, cwd=self.dir, check=False,
            restore_signals=False,  # a write past the limit is an error, no signal
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64)))
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertEqual(done.stdout.splitlines()[-1], "different")
        self.assertNotIn("next", done.stdout)

    def test_references_that_do_not_match_the_outputs(self):
        """What is compared with nothing is said: an array of no output, an output of no array."""
        x = numpy.array([1, -2, 3], "f")
        numpy.save(self.dir / "x.npy", x)
        model = cli_models.save(
            self.dir / "two.onnx", [helper.make_node("Abs", ["x"], ["y"]),
                                    helper.make_node("Neg", ["x"], ["arr_0"])],
            [("x", TensorProto.FLOAT, [3])], [(n, TensorProto.FLOAT, [3]) for n in ("y", "arr_0")])
        given = ("check", model, "-i", "x=x.npy", "--ref", "ref.npz")
        for more in ("yy", "arr_2", "arr_01", "y.0"):
            numpy.savez(self.dir / "ref.npz", y=abs(x), **{more: x})
            self.assertIn(f"'{more}.npy', which is no output", self.attnrun(*given, code=5).stderr)
        numpy.savez(self.dir / "ref.npz", y=abs(x), arr_1=-x, x=x)
        self.assertEqual(self.attnrun(*given).stderr, "")
        numpy.savez(self.dir / "ref.npz", arr_0=-x)  # by its name, not by the place of y
        self.assertIn("has no output 'y', which is not compared", self.attnrun(*given).stderr)
        long = cli_models.save(self.dir / "l.onnx", [helper.make_node("Abs", ["x"], ["y" * 4000])],
                               [("x", TensorProto.FLOAT, [3])],
                               [("y" * 4000, TensorProto.FLOAT, [3])])
        self.attnrun("run", long, "-i", "x=x.npy", "-q", "-o", "l.npz")
        self.attnrun("check", long, "-i", "x=x.npy", "--ref", "l.npz")
        (self.dir / "ref").mkdir()
        numpy.save(self.dir / "ref" / "y.npy", abs(x))
        self.assertIn("no output 'arr_0'", self.attnrun(*given[:-1], "ref").stderr)
        (self.dir / "ref" / "output_2.pb").write_bytes(b"")
        self.assertIn("output_2.pb, but the model has 2 outputs",
                      self.attnrun(*given[:-1], "ref", code=5).stderr)

    def test_the_tolerance_is_that_of_the_products(self):
        """By what the model multiplies: auto without products of bf16 is f32."""
        numpy.save(self.dir / "x.npy", numpy.ones((1, 16), "f"))
        self.attnrun("run", self.model, "-i", "x=x.npy", "-q", "-o", "y.npy")
        y = numpy.load(self.dir / "y.npy")
        y[0, y.argmax()] *= 1.01
        numpy.save(self.dir / "y.npy", y)
        self.attnrun("pack", self.model, "--precision", "bf16", "-q", "-o", "m.attnpack")
        for model, options, code in (
                (self.model, ("--precision", "bf16"), 0), ("m.attnpack", (), 0),
                (self.model, (), 1),
                (self.model, ("--isa", "base", "--precision", "auto"), 1)):
            self.attnrun("check", model, "-i", "x=x.npy", "--ref", "y.npy", *options, code=code)
        self.assertIn("2 % of the largest", self.attnrun(
            "compare", self.model, "--with", "m.attnpack").stdout)
        for word in ("fp16", "", "bf16 "):
            self.assertIn("is not one of f32|bf16|auto", self.attnrun(
                "compare", self.model, "--with", f"precision={word}", code=2).stderr)

    def test_all_tries_of_sizes_have_one_time_limit(self):
        info, real = helper.make_tensor_value_info, TensorProto.FLOAT
        body = helper.make_graph(
            [helper.make_node("Sin", ["v"], ["w"]), helper.make_node("Identity", ["go"], ["on"])],
            "body", [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []),
                     info("v", real, [2000])], [info("on", TensorProto.BOOL, []),
                                                info("w", real, [2000])])
        path = cli_models.save(self.dir / "late.onnx", [
            helper.make_node("Loop", ["n", "", "v"], ["l"], body=body),
            helper.make_node("ReduceMax", ["l"], ["max"], keepdims=0),
            helper.make_node("Cast", ["max"], ["int"], to=TensorProto.INT64),
            helper.make_node("Add", ["int", "far"], ["at"]),
            helper.make_node("Gather", ["x", "at"], ["y"])],
            [("x", real, ["S", "K"])], [("y", real, None)],
            [("n", numpy.int64(5000)), ("v", numpy.ones(2000, "f")), ("far", numpy.int64(10 ** 9))])
        seconds = []
        for _ in range(3):
            start = time.monotonic()
            self.attnrun("run", path, "--shape", "x=2x3", code=7)
            seconds.append(time.monotonic() - start)
        done = subprocess.run([ATTNRUN, "run", path, "--timeout", f"{3 * min(seconds)}s"],
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertIn(done.returncode, (7, 124), done.stderr)
        tries = re.search(r"; (\d+) combinations", done.stderr)
        self.assertLess(int(tries[1]) if tries else 0, 12, done.stderr)  # of 27

    def test_two_runs_of_the_same_code(self):
        """They are no comparison: a sentence says so, and the exit code is that of check where
        it finds nothing."""
        here = json.loads(self.attnrun("doctor", "--json").stdout)["isa"]
        relu = cli_models.relu(self.dir / "relu.onnx")
        body = "no node of the model runs a native operator instead of a function body"
        rows = ((self.model, ("bodies",), body), (relu, ("no-fusion",), "no rewrite pass"),
                (self.model, ("no-fusion", "--no-fusion"), "the same options"),
                (self.model, ("bodies", "--force-bodies"), "the same options"),
                (self.model, (f"isa={here}",), "the same instruction set"),
                (self.model, ("isa=base", "--isa", "base"), "the same instruction set"),
                (self.model, ("precision=f32",), "the same precision"),
                (self.model, ("precision=bf16", "--precision", "bf16"), "the same precision"))
        for model, (way, *more), why in rows:
            for kind in ((), ("--per-node",), ("--reduce", "part.onnx")):
                said = self.attnrun("compare", model, "--with", way, *more, *kind, code=2)
                self.assertIn(f"--with {way}: nothing was compared, since ", said.stderr)
                self.assertIn(why, said.stderr)
                self.assertEqual(said.stdout, "")
        self.assertFalse((self.dir / "part.onnx").exists())
        error = json.loads(self.attnrun("compare", self.model, "--with", "bodies", "--json",
                                        code=2).stdout)
        self.assertEqual(faults(error, SCHEMA), [])
        self.assertIn("nothing was compared", error["message"])
        # What differs is compared, be it one node in a branch.
        self.attnrun("compare", called(self.dir / "called.onnx"), "--with", "bodies")
        nested = cli_models.nested(self.dir / "nested.onnx")
        self.attnrun("compare", nested, "--with", "no-fusion")
        self.attnrun("compare", self.model, "--with", "no-fusion", "--precision", "bf16")

    def test_refusals(self):
        self.assertIn("not a way to run", self.attnrun("compare", self.model, "--with", "no-fusio",
                                                    code=2).stderr)
        self.assertIn("did you mean 'no-fusion'", self.attnrun(
            "compare", self.model, "--with", "no-fusio", code=2).stderr)
        relu = cli_models.relu(self.dir / "relu.onnx")
        self.assertIn("--with", self.attnrun("compare", self.model, "--with", relu,
                                             code=5).stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
