#!/usr/bin/env python3
"""All that --json writes has the form of tools/manual/schema.json, names its units, and keeps its
numbers.

usage: test_json.py ROOT ATTNRUN
"""
import json
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom
from pathlib import Path

import numpy
import onnx.numpy_helper
from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).parent))
import cli_models  # noqa: E402

ROOT, ATTNRUN = (Path(p).resolve() for p in sys.argv[1:3])
SCHEMA = json.loads((ROOT / "tools/manual/schema.json").read_text(encoding="utf-8"))
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
WORDS = {"type", "properties", "required", "additionalProperties", "items", "enum", "const",
         "oneOf", "$ref", "$defs", "$schema", "title", "description"}
UNITS = ("_ratio", "_bytes", "_ms", "_us", "_fraction", "_gflops", "_gops", "_gbs", "_per_s",
         "_flops")
PLAIN = {"mean", "min", "max", "max_abs", "max_rel", "cosine", "arena_over_bound", "default",
         "default_index", "ratio", "max_ratio", "rtol", "atol"}


def is_type(value, name):
    if name in ("integer", "number"):
        return not isinstance(value, bool) and isinstance(
            value, int if name == "integer" else (int, float))
    return isinstance(value, TYPES[name])


def faults(value, schema, path="$"):
    """What does not fit; a subset of JSON Schema, and an error for words beyond it."""
    unknown = set(schema) - WORDS
    if unknown:
        raise ValueError(f"{path}: the test does not know {unknown}")
    if "$ref" in schema:
        return faults(value, SCHEMA["$defs"][schema["$ref"].rsplit("/", 1)[1]], path)
    if "oneOf" in schema:
        fitting = [s for s in schema["oneOf"] if not faults(value, s, path)]
        return [] if len(fitting) == 1 else [f"{path}: fits {len(fitting)} forms, expected 1"]
    found = []
    if "const" in schema and value != schema["const"]:
        found.append(f"{path}: {value!r}, expected {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{path}: {value!r}, expected one of {schema['enum']}")
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(is_type(value, kind) for kind in kinds):
        return [*found, f"{path}: {value!r}, expected {kinds}"]
    if isinstance(value, dict) and "object" in kinds:
        properties, more = schema.get("properties", {}), schema.get("additionalProperties")
        found += [f"{path}: no {k!r}" for k in schema.get("required", []) if k not in value]
        for key, member in value.items():
            if key in properties:
                found += faults(member, properties[key], f"{path}.{key}")
            elif isinstance(more, dict):
                found += faults(member, more, f"{path}.{key}")
            else:
                found.append(f"{path}: {key!r} is not in the schema")
    if isinstance(value, list) and "items" in schema:
        for i, item in enumerate(value):
            found += faults(item, schema["items"], f"{path}[{i}]")
    return found


class Json(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.dir = Path(self.folder.name)
        self.relu = cli_models.relu(self.dir / "relu.onnx")
        self.embedding = cli_models.embedding(self.dir / "embedding.onnx")

    def json(self, *arguments, code=0):
        done = subprocess.run([ATTNRUN, *map(str, arguments), "--json"], capture_output=True,
                              text=True, timeout=120, cwd=self.dir)
        self.assertEqual(done.returncode, code, done.stderr)
        value = json.loads(done.stdout)
        form = value["schema"].split("/")[1]
        self.assertEqual(faults(value, SCHEMA["$defs"][form]), [], arguments)
        self.assertEqual(faults(value, SCHEMA), [], arguments)
        return value

    def test_what_a_file_repeats_is_one_member(self):
        model = onnx.load(cli_models.relu(self.dir / "m.onnx"))
        model.opset_import.add(domain="ai.onnx", version=model.opset_import[0].version)
        for key, value in (("a", "1"), ("b", "2"), ("a", "3")):
            model.metadata_props.add(key=key, value=value)
        onnx.save(model, self.dir / "m.onnx")
        text = subprocess.run([ATTNRUN, "inspect", "--json", self.dir / "m.onnx"],
                              capture_output=True, check=True, timeout=60).stdout

        def one(pairs):
            self.assertEqual(len(pairs), len(dict(pairs)), pairs)
            return dict(pairs)
        about = json.loads(text, object_pairs_hook=one)
        self.assertEqual(about["metadata"], {"a": "3", "b": "2"})
        self.assertEqual(len(about["opsets"]), 1)

    def test_numbers_of_floats_are_short(self):
        op = self.json("ops", "LayerNormalization")["ops"][0]
        self.assertEqual({a["name"]: a.get("default") for a in op["attributes"]}["epsilon"], 1e-05)
        path = cli_models.save(
            self.dir / "leaky.onnx",
            [helper.make_node("LeakyRelu", ["x"], ["y"], alpha=0.1)],
            [("x", TensorProto.FLOAT, [2])], [("y", TensorProto.FLOAT, [2])])
        layer = self.json("inspect", path, "--layers")["layers"][0]
        self.assertEqual(layer["attributes"]["alpha"], 0.1)
        output = self.json("run", path, "-i", "x=[0.1,0.7]")["outputs"][0]
        self.assertEqual((output["min"], output["max"]), (0.1, 0.7))

    def test_what_a_terminal_obeys_is_escaped(self):
        name = "".join(map(chr, [
            *range(1, 32), *range(0x7f, 0xa1), 0x61b, 0x61c, 0x200d, 0x200e, 0x2028, 0x202e, 0x202f,
            0x2066, 0xfeff, 0xffff, 0x1f600, 0x10ffff]))
        path = cli_models.save(self.dir / "c.onnx", [helper.make_node("Relu", ["x"], [name])],
                               [("x", TensorProto.FLOAT, [2])],
                               [(name, TensorProto.FLOAT, [2])])
        done = subprocess.run([ATTNRUN, "run", path, "--json"], capture_output=True, timeout=60,
                              check=True).stdout.decode()
        self.assertEqual(json.loads(done)["outputs"][0]["name"], name)
        self.assertEqual({c for c in name if c in done and c != "\n"},
                         set("\xa0\u061b\u200d\u202f\uffff\U0001f600\U0010ffff"))

    def test_each_command(self):
        numpy.save(self.dir / "x.npy", numpy.ones((2, 3), "f"))
        self.json("run", self.embedding, "--profile", "-n", 3)
        self.json("run", self.embedding, "--print", "full")
        self.json("plan", self.embedding)
        self.assertEqual(self.json("plan", self.embedding, "--workers", 3)["workers"], 3)
        self.assertGreater(self.json("plan", self.embedding, "--memory", "1G")["max_workers"], 1)
        plan = self.json("plan", self.embedding, "--threads", 2, "--set", "S=4096")
        self.assertEqual([s["threads"] for s in plan["speedup"]], [2, 8, 16, 64])
        usual = self.json("plan", self.embedding, "--threads", 16)["speedup"]
        self.assertEqual([s["threads"] for s in usual], [16, 8, 64])
        for bound in plan["speedup"]:
            self.assertTrue(1 <= bound["max_ratio"] <= bound["threads"], bound)
        self.json("inspect", self.embedding, "--layers", "--weights")
        self.json("inspect", cli_models.nested(self.dir / "nested.onnx"), "--layers")
        self.json("inspect", cli_models.missing(self.dir / "missing.onnx"))
        self.json("ops")
        self.json("bench", self.relu, "-n", 3)
        self.json("bench", self.embedding, "--time", "20ms", "--warmup", 2)
        self.json("doctor", "--bench")
        self.json("version")
        self.json("check", self.relu, "-i", "x=x.npy", "--ref", "x.npy")
        self.json("check", self.relu, "-i", "x=x.npy", "--ref", "x.npy", "--atol=0")
        self.json("run", "nowhere.onnx", code=3)

    def test_names_say_their_units(self):
        def visit(schema, name=""):
            for key, member in schema.get("properties", {}).items():
                visit(member, key)
            for part in ("items", "additionalProperties"):
                if isinstance(schema.get(part), dict):
                    visit(schema[part], name)
            kinds = schema.get("type", [])
            if "number" in ([kinds] if isinstance(kinds, str) else kinds):
                self.assertTrue(name.endswith(UNITS) or name in PLAIN, name)
        for schema in SCHEMA["$defs"].values():
            visit(schema)

    def test_names_and_lists(self):
        inspected = self.json("inspect", cli_models.missing(self.dir / "missing.onnx"))
        self.assertEqual(inspected["coverage"]["missing_operators"],
                         ["a.b.Nowhere-1", "a.b.Unheard-1"])
        self.assertEqual(inspected["inputs"][0]["kind"], "tensor")
        self.assertIn("base", self.json("doctor")["isas"])
        relu = [op for op in self.json("ops")["ops"] if op["name"] == "Concat"][0]
        self.assertTrue(relu["inputs"][0]["variadic"])
        self.assertIsInstance(next(iter(relu["types"].values())), list)

    def test_numbers_read_back(self):
        for dtype in ("f", "d", "e"):
            kind = helper.np_dtype_to_tensor_dtype(numpy.dtype(dtype))
            path = cli_models.save(self.dir / "one.onnx",
                                   [helper.make_node("Identity", ["x"], ["y"])],
                                   [("x", kind, ["N"])], [("y", kind, ["N"])])
            x = numpy.array([0.1, 1 / 3, -2.5e-7, 65504, 0], dtype)
            numpy.save(self.dir / "x.npy", x)
            output = self.json("run", path, "-i", "x=x.npy", "--print", "full")["outputs"][0]
            self.assertEqual(numpy.array(output["values"], dtype).tobytes(), x.tobytes())
            self.assertEqual(output["max"], float(x.max()))
        self.assertIn("0.1", json.dumps(output["values"][0])[:3])

    def test_what_is_not_finite_is_counted(self):
        x = numpy.array([[1, numpy.nan, numpy.inf], [-numpy.inf, numpy.nan, 2]], "f")
        numpy.save(self.dir / "x.npy", x)
        path = cli_models.save(self.dir / "i.onnx", [helper.make_node("Identity", ["x"], ["y"])],
                               [("x", TensorProto.FLOAT, [2, 3])],
                               [("y", TensorProto.FLOAT, [2, 3])])
        output = self.json("run", path, "-i", "x=x.npy", "--print", "full")["outputs"][0]
        self.assertEqual((output["nan_count"], output["infinite_count"]), (2, 2))
        self.assertEqual((output["min"], output["max"], output["mean"]), (1, 2, 1.5))
        self.assertEqual(output["values"], [[1, None, None], [None, None, 2]])

    def test_bench_over_sizes_and_against(self):
        path = cli_models.matmul(self.dir / "matmul.onnx")
        value = self.json("bench", path, "--set", "M=8,16,32", "--set=K=4", "-n", 3, "--svg",
                          "sweep.svg")
        self.assertEqual([row["size"] for row in value["rows"]], [8, 16, 32])
        self.assertEqual(sorted(row["arena_bytes"] for row in value["rows"]),
                         [row["arena_bytes"] for row in value["rows"]])
        drawing = xml.dom.minidom.parse(str(self.dir / "sweep.svg"))
        self.assertEqual(len(drawing.getElementsByTagName("circle")), 6)
        bench = self.json("bench", self.relu, "-n", 40)
        self.assertLessEqual(bench["min_ms"], bench["median_ms"])
        self.assertLessEqual(bench["median_ms"], bench["p90_ms"])
        self.assertLessEqual(bench["p90_ms"], bench["p99_ms"])
        self.assertAlmostEqual(bench["items_per_s"], 2 * bench["runs_per_s"])
        other = self.dir / "other"  # a thousand times slower than anything
        other.write_text('#!/bin/sh\necho \'{"min_ms": 1e6}\'\n')
        other.chmod(0o755)
        value = self.json("bench", self.relu, "-n", 3, "--against", other)
        self.assertEqual(value["verdict"], "faster")
        other.write_text('#!/bin/sh\necho \'{"min_ms": 1e-9}\'\n')
        self.assertEqual(self.json("bench", self.relu, "-n", 3, "--against", other,
                                   code=1)["verdict"], "slower")
        other.write_text("#!/bin/sh\nexit 4\n")
        self.json("bench", self.relu, "--against", other, code=4)

    def make_test(self, name, y):
        folder = self.dir / name
        for k in range(2):
            (folder / f"test_data_set_{k}").mkdir(parents=True)
            for word, array in (("input_0", numpy.array([[1, -2, 3], [4, 5, 6]], "f")),
                                ("output_0", y)):
                (folder / f"test_data_set_{k}" / f"{word}.pb").write_bytes(
                    onnx.numpy_helper.from_array(array).SerializeToString())
        (folder / "model.onnx").write_bytes(Path(self.relu).read_bytes())
        return folder

    def test_check_has_the_errors_of_each_output(self):
        y = numpy.array([[1, 0, 3], [4, 5, 6]], "f")
        exact = y.astype(float)
        near = y.copy()
        near[1, 2] = numpy.nextafter(numpy.float32(6), numpy.float32(7))
        good, bad = self.make_test("good", near), self.make_test("bad", y + 1)
        for isolate in ((), ("--isolate",)):
            value = self.json("check", good, bad, *isolate, code=1)
            rows = {f["path"]: f["outputs"] for f in value["folders"]}
            self.assertEqual([r["max_ulp"] for r in rows[str(good)]], [1, 1])
            self.assertEqual(rows[str(good)][0]["max_abs"], float(near[1, 2]) - 6)
            self.assertEqual([r["data_set"] for r in rows[str(good)]],
                             ["test_data_set_0", "test_data_set_1"])
            self.assertEqual(rows[str(bad)][0]["max_abs"], 1)
            self.assertFalse(rows[str(bad)][0]["passed"])
            self.assertAlmostEqual(rows[str(bad)][0]["cosine"], float(
                (exact * (exact + 1)).sum() /
                numpy.sqrt((exact ** 2).sum() * ((exact + 1) ** 2).sum())), 12)
        done = subprocess.run([ATTNRUN, "check", good], capture_output=True, text=True)
        self.assertRegex(done.stdout, r"ok    test_data_set_0 y f32\[2,3\]  max abs 4.77e-07")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
