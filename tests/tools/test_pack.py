#!/usr/bin/env python3
"""attnrun pack: the packed file gives the same bits as the model, which is not needed any more;
files that do not fit, or are damaged, are refused with a sentence.

usage: test_pack.py ATTNRUN
"""
import json
import re
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
DRAW = numpy.random.default_rng(5)


def encoder(path):
    """Two products with constant weights, one of them of f16 storage, a norm and a table."""
    return cli_models.save(
        path,
        [helper.make_node("Gather", ["table", "ids"], ["x"]),
         helper.make_node("MatMul", ["x", "w"], ["a"]),
         helper.make_node("Cast", ["v16"], ["v"], to=TensorProto.FLOAT),
         helper.make_node("MatMul", ["a", "v"], ["b"]),
         helper.make_node("LayerNormalization", ["b", "scale"], ["y"])],
        [("ids", TensorProto.INT64, ["B", "S"])], [("y", TensorProto.FLOAT, ["B", "S", 24])],
        [("table", DRAW.normal(size=(40, 32)).astype("f")),
         ("w", DRAW.normal(size=(32, 48)).astype("f")),
         ("v16", DRAW.normal(size=(48, 24)).astype("f2")),
         ("scale", numpy.ones(24, "f"))])


def branches(path):
    """An If in a Loop; the branch multiplies by a constant of the graph around it."""
    def value(name, kind=TensorProto.FLOAT, dims=(4, 4)):
        return helper.make_tensor_value_info(name, kind, dims)
    then = helper.make_graph([helper.make_node("MatMul", ["v", "w"], ["t"])], "then", [],
                             [value("t")])
    other = helper.make_graph([helper.make_node("Relu", ["v"], ["e"])], "else", [],
                              [value("e")])
    body = helper.make_graph(
        [helper.make_node("Less", ["i", "two"], ["early"]),
         helper.make_node("If", ["early"], ["n"], then_branch=then, else_branch=other),
         helper.make_node("Identity", ["go"], ["again"])], "body",
        [value("i", TensorProto.INT64, ()), value("go", TensorProto.BOOL, ()), value("v")],
        [value("again", TensorProto.BOOL, ()), value("n")])
    return cli_models.save(
        path, [helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body)],
        [("x", TensorProto.FLOAT, [4, 4])], [("y", TensorProto.FLOAT, [4, 4])],
        [("w", DRAW.normal(size=(4, 4)).astype("f")), ("trips", numpy.int64(5)),
         ("two", numpy.int64(2))])


class Pack(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.dir = Path(self.folder.name)
        self.model = encoder(self.dir / "encoder.onnx")
        self.packed = self.dir / "encoder.attnpack"

    def attnrun(self, *arguments, code=0):
        done = subprocess.run([ATTNRUN, *map(str, arguments)], capture_output=True, timeout=60,
                              cwd=self.dir, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def refused(self, code, *arguments):
        return " ".join(self.attnrun(*arguments, code=code).stderr.split())

    def hashes(self, *arguments):
        words = self.attnrun("run", *arguments).stdout
        return re.findall(r"xxh64\s+(\w+)", words)

    def pack(self, model, *options):
        self.attnrun("pack", model, "-o", self.packed, *options)
        return self.packed

    # ---- the same bits ----
    def test_same_bits_without_the_model(self):
        for model, options in ((self.model, ()), (self.model, ("--precision", "bf16")),
                               (self.model, ("--no-fusion",)), (self.model, ("--isa", "base")),
                               (branches(self.dir / "branches.onnx"), ())):
            with self.subTest(model=model, options=options):
                expected = self.hashes(model, *options)
                packed = self.pack(model, *options)
                hidden = Path(model).rename(self.dir / "hidden")
                isa = options if "--isa" in options else ()
                self.assertEqual(self.hashes(packed, *isa), expected)
                self.assertEqual(self.hashes(packed, "--verify", "--copy-weights", *isa),
                                 expected)
                hidden.rename(model)
                self.assertTrue(expected)

    def test_weights_are_there_once(self):
        """As their operators read them: not also as the model file has them."""
        bytes_of = {"table": 40 * 32 * 4, "w": 32 * 48 * 4, "v": 48 * 24 * 4}
        self.pack(self.model)
        size = self.packed.stat().st_size
        self.assertGreater(size, sum(bytes_of.values()))
        self.assertLess(size, sum(bytes_of.values()) + 16384)

    def test_commands_take_it(self):
        self.pack(self.model, "--json")
        for command in (["inspect"], ["inspect", "--layers"], ["plan", "--set", "S=7"],
                        ["bench", "--repeat", "1"]):
            self.attnrun(*command, self.packed)
        numpy.savez(self.dir / "ids.npz", ids=numpy.arange(6).reshape(1, 6))
        self.attnrun("run", self.model, "-i", "ids.npz", "-o", "y.npz")
        self.attnrun("check", self.packed, "-i", "ids.npz", "--ref", "y.npz")
        self.assertIn("name them when it is packed",
                      self.refused(2, "run", self.packed, "--outputs", "a"))

    def test_json(self):
        told = json.loads(self.attnrun("pack", self.model, "-o", self.packed, "--json").stdout)
        self.assertEqual(told["bytes"], self.packed.stat().st_size)
        self.assertEqual(told["schema"], "attnrun/pack/1")

    def test_plan_of_workers_that_map_it(self):
        options = ("--json", "--process", "1000", "--workers", "3")
        own = json.loads(self.attnrun("plan", self.model, *options).stdout)
        mapped = json.loads(self.attnrun("plan", self.pack(self.model), *options).stdout)
        self.assertGreater(own["packed_bytes"], 0)
        self.assertEqual(own["worker_bytes"] - mapped["worker_bytes"],
                         own["packed_bytes"] + own["folded_bytes"])
        self.assertEqual(mapped["shared_bytes"], self.packed.stat().st_size)

    def test_fixed_symbols(self):
        self.attnrun("pack", self.model, "-o", self.packed, "--fix", "S=7")
        shape = json.loads(self.attnrun("inspect", self.packed, "--json").stdout)
        self.assertEqual(shape["inputs"][0]["shape"], ["B", 7])
        self.assertEqual(self.hashes(self.packed), self.hashes(self.model, "--set", "S=7"))
        self.assertEqual(self.hashes(self.model, "--fix", "S=7"),
                         self.hashes(self.model, "--set", "S=7"))
        self.assertIn("no value of the model has a dimension 's'",
                      self.refused(2, "run", self.model, "--fix", "s=7"))
        self.assertIn("fix them when it is packed",
                      self.refused(2, "run", self.packed, "--fix", "B=1"))
        self.assertEqual(self.hashes(self.model, "--fix", "S=3", "--fix", "S=7"),
                         self.hashes(self.model, "--fix", "S=7"))
        for wrong in ("S", "=3", "S=", "S=x"):
            self.assertIn(f"--fix: '{wrong}' is not SYMBOL=N",
                          self.refused(2, "run", self.model, "--fix", wrong))
        self.assertIn("--fix: S=-1 is below 0", self.refused(2, "run", self.model, "--fix", "S=-1"))
        self.assertIn("--fix: S=1" + 20 * "0" + " is above",
                      self.refused(2, "run", self.model, "--fix", "S=1" + 20 * "0"))

    # ---- what does not fit ----
    def test_no_output(self):
        self.assertIn("-o FILE is missing", self.refused(2, "pack", self.model))

    def test_other_isa(self):
        self.pack(self.model, "--isa", "base")
        isas = json.loads(self.attnrun("doctor", "--json").stdout)["isas"]
        if len(isas) > 1:
            self.assertEqual(self.hashes(self.packed, "--isa", isas[-1]),
                             self.hashes(self.model, "--isa", "base"))
            self.pack(self.model, "--isa", isas[-1])
            said = self.refused(4, "run", self.packed, "--isa", "base")
            self.assertIn(f"packed for {isas[-1]}, and base is in use; choose {isas[-1]}", said)

    def test_options_of_packing(self):
        self.pack(self.model)
        self.assertIn("give these options to attnrun pack",
                      self.refused(2, "run", self.packed, "--no-fusion"))
        self.assertIn("give these options to attnrun pack",
                      self.refused(2, "run", self.packed, "--disable-pass", "gelu"))
        self.assertIn("pack the model again with precision bf16",
                      self.refused(2, "run", self.packed, "--precision", "bf16"))
        self.assertEqual(self.hashes(self.packed, "--precision", "auto"),
                         self.hashes(self.model))
        self.pack(self.model, "--precision", "bf16")
        for precision in ("f32", "auto", "bf16"):  # f32 is the default: it chooses nothing
            self.assertEqual(self.hashes(self.packed, "--precision", precision),
                             self.hashes(self.model, "--precision", "bf16"))

    def test_other_version(self):
        data = bytearray(self.pack(self.model).read_bytes())
        data[8] += 1
        self.packed.write_bytes(data)
        self.assertIn("pack the model again with this attnrun",
                      self.refused(4, "run", self.packed))

    def test_damaged(self):
        good = self.pack(self.model).read_bytes()
        for at in (16, 100, 300, 2000):
            data = bytearray(good)
            data[at] ^= 4
            self.packed.write_bytes(data)
            self.assertIn("is damaged", self.refused(3, "run", self.packed), at)
        for length in (9, 200, 4096, len(good) - 1):
            self.packed.write_bytes(good[:length])
            self.assertIn("is damaged", self.refused(3, "run", self.packed), length)
        data = bytearray(good)
        data[-200] ^= 1
        self.packed.write_bytes(data)
        self.attnrun("run", self.packed)
        for command in (["run", "--verify"], ["check", "--ref", "none.npz"]):
            self.assertIn("the hash of its weights does not match",
                          self.refused(3, *command, self.packed))


    def test_indices_in_packed_weights(self):
        """Weights of few bits hold the block of each row where blocks begin within a word."""
        rows, columns, block = 34, 5, 16
        cases = (("MatMulBnb4", ["b", "s"], {"quant_type": 1}, numpy.arange(rows) // 2,
                  [("b", numpy.ones(rows * columns // 2, "u1")),
                   ("s", numpy.ones(-(-rows * columns // block), "f"))]),
                 ("MatMulNBits", ["b", "s", "", "g"], {"bits": 4}, numpy.arange(rows) % 3,
                  [("b", numpy.ones((columns, 3, block // 2), "u1")),
                   ("s", numpy.ones(columns * 3, "f")),
                   ("g", numpy.arange(rows, dtype="i4") % 3)]))
        for op, names, attrs, groups, constants in cases:
            nodes = [helper.make_node(op, ["a", *names], ["y"], domain="com.microsoft", K=rows,
                                      N=columns, block_size=block, **attrs)]
            model = cli_models.save(self.dir / f"{op}.onnx", nodes,
                                    [("a", TensorProto.FLOAT, [8, rows])],
                                    [("y", TensorProto.FLOAT, [8, columns])], constants)
            good = self.pack(model).read_bytes()
            self.attnrun("run", self.packed)
            at = good.index(groups.astype("i4").tobytes())
            for wrong in (-1, max(groups) + 1, 1 << 30):
                data = bytearray(good)
                data[at + 20:at + 24] = numpy.int32(wrong).tobytes()
                self.packed.write_bytes(data)
                self.assertIn("refer to a block that does not exist",
                              self.refused(3, "run", self.packed), (op, wrong))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
