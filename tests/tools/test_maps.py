#!/usr/bin/env python3
"""Values that are maps, on the command line: printed, saved, given, compared, refused.

usage: test_maps.py ATTNRUN
"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

ATTNRUN = sys.argv[1]
F32, I64, TEXT = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING


def attnrun(*arguments):
    return subprocess.run(
        [ATTNRUN, *map(str, arguments)], capture_output=True, text=True, timeout=60
    )


def map_type(key, value):
    return helper.make_map_type_proto(key, helper.make_tensor_type_proto(value, []))


def maps_type(key, value):
    return helper.make_sequence_type_proto(map_type(key, value))


def tensor_type(kind, shape=None):
    return helper.make_tensor_type_proto(kind, shape)


def save(path, nodes, x, y):
    graph = helper.make_graph(
        nodes, "g", [helper.make_value_info("x", x)], [helper.make_value_info("y", y)]
    )
    model = helper.make_model(
        graph,
        ir_version=9,
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)],
    )
    onnx.save(model, path)
    return path


def ml(op, x="x", y="y", **attributes):
    return helper.make_node(op, [x], [y], domain="ai.onnx.ml", **attributes)


def map_bytes(entries, key_type=None, values=None):
    """A MapProto; `values`: others than those of the entries."""
    made = onnx.MapProto(key_type=key_type or TEXT)
    for key in entries:
        if isinstance(key, str):
            made.string_keys.append(key.encode())
        else:
            made.keys.append(key)
    for value in entries.values() if values is None else values:
        made.values.tensor_values.append(numpy_helper.from_array(numpy.asarray(value)))
    return made


class Maps(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.dir = Path(cls.folder.name)
        cls.zip = save(
            cls.dir / "zip.onnx",
            [ml("ZipMap", classlabels_strings=['a"', "b"])],
            tensor_type(F32, ["N", 2]),
            maps_type(TEXT, F32),
        )
        cls.words = save(
            cls.dir / "words.onnx",
            [ml("DictVectorizer", string_vocabulary=["b", "no", "a"])],
            map_type(TEXT, F32),
            tensor_type(F32),
        )
        cls.counts = save(
            cls.dir / "counts.onnx",
            [ml("DictVectorizer", int64_vocabulary=[7, -1, 2])],
            map_type(I64, TEXT),
            tensor_type(TEXT),
        )
        cls.cast = save(
            cls.dir / "cast.onnx",
            [ml("CastMap", cast_to="TO_INT64")],
            map_type(I64, TEXT),
            tensor_type(I64),
        )

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def json_of(self, model, *inputs):
        out = self.dir / "out.json"
        done = attnrun("run", model, "-q", "-o", out, *inputs)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(out.read_text())

    def fails(self, code, words, *arguments):
        done = attnrun(*arguments)
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        self.assertRegex(done.stderr + done.stdout, words)

    # ---- outputs ----
    def test_saved_as_json(self):
        self.assertEqual(
            self.json_of(self.zip, "-i", "x=[[1, 2], [0.5, -3]]"),
            {"y": [{'a"': 1, "b": 2}, {'a"': 0.5, "b": -3}]},
        )

    def test_tensors_as_json(self):
        model = save(
            self.dir / "cast_tensor.onnx",
            [helper.make_node("Identity", ["x"], ["y"])],
            tensor_type(F32),
            tensor_type(F32),
        )
        for text in ("[[1, 2.5], [-3, 0.125]]", "[]", "4", "[[[1]]]"):
            self.assertEqual(self.json_of(model, "-i", f"x={text}"), {"y": json.loads(text)})
        self.assertEqual(self.json_of(model, "-i", "x=[inf, 1]"), {"y": [None, 1]})

    def test_printed(self):
        done = attnrun("run", self.zip, "--print", "full", "-i", "x=[[1, 2]]")
        self.assertIn("sequence of 1 map", done.stdout)
        self.assertIn('[{"a\\"": 1, "b": 2}]', done.stdout)
        self.assertIn("sequence of maps from string to f32", attnrun("inspect", self.zip).stdout)
        self.assertIn("map from string to f32", attnrun("inspect", self.words).stdout)

    def test_numpy_files_hold_no_maps(self):
        for name, kind in (("o.npz", "npz"), ("o.npy", "npy"), ("o/", "npy")):
            self.fails(
                2,
                f"output 'y' is made of maps, which a {kind} file cannot hold",
                "run",
                self.zip,
                "-o",
                f"{self.dir}/{name}",
                "--set",
                "N=1",
            )
            self.assertFalse((self.dir / name).exists())

    # ---- inputs ----
    def test_given_inline(self):
        given = 'x={"a": 1.5, "zz": 3, "b":-2}'
        self.assertEqual(self.json_of(self.words, "-i", given), {"y": [[-2, 0, 1.5]]})
        self.assertEqual(self.json_of(self.words, "-i", "x={}"), {"y": [[0, 0, 0]]})
        self.assertEqual(
            self.json_of(self.counts, "-i", 'x={"2": "two", "7": "a,\\"}"}'),
            {"y": [['a,"}', "", "two"]]},
        )
        self.assertEqual(
            self.json_of(self.cast, "-i", 'x={"9": "12", "-4": "-3"}'), {"y": [[-3, 12]]}
        )
        for text in (
            '{"a": 1',
            '{"a" 1}',
            "{a: 1}",
            '{"a": 1,}',
            '{"a": 1} 2',
            '{"a"}',
            '{"a": [1]}',
            "{",
            '{"a',
            '{"a": }',
            '{"a": 1 "b": 2}',
        ):
            self.fails(5, "character|no number", "run", self.words, "-i", f"x={text}")
        self.fails(7, "entry 0 is not a number", "run", self.cast, "-i", 'x={"9": "x"}')
        for text in ('{"1,2": "x"}', '{"": "x"}', '{"[1": "x", "2]": "y"}'):
            self.fails(5, "a key of .* is not an integer", "run", self.counts, "-i", f"x={text}")
        for model, text in ((self.words, '{"a": 1, "b": 2, "a": 3}'),
                            (self.counts, '{"2": "x", "02": "y"}')):
            self.fails(5, "the key ('a'|2) appears twice", "run", model, "-i", f"x={text}")

    def test_made_up(self):
        self.assertEqual(self.json_of(self.words), {"y": [[0, 0, 0]]})

    def test_through_other_operators(self):
        branch = helper.make_graph(
            [helper.make_node("Identity", ["x"], ["z"])],
            "branch",
            [],
            [helper.make_value_info("z", map_type(TEXT, F32))],
        )
        model = save(
            self.dir / "through.onnx",
            [
                helper.make_node("Constant", [], ["yes"], value_ints=[1]),
                helper.make_node("Cast", ["yes"], ["go"], to=TensorProto.BOOL),
                helper.make_node("If", ["go"], ["w"], then_branch=branch, else_branch=branch),
                helper.make_node("Identity", ["w"], ["v"]),
                ml("DictVectorizer", "v", string_vocabulary=["b", "a"]),
            ],
            map_type(TEXT, F32),
            tensor_type(F32),
        )
        self.assertEqual(self.json_of(model, "-i", 'x={"a": 1.5, "b": 2}'), {"y": [[2, 1.5]]})
        model = save(
            self.dir / "same.onnx",
            [helper.make_node("Identity", ["x"], ["y"])],
            map_type(I64, TEXT),
            map_type(I64, TEXT),
        )
        given = {"7": "seven", "-2": ""}
        self.assertEqual(self.json_of(model, "-i", f"x={json.dumps(given)}"), {"y": given})
        model = save(
            self.dir / "wrong.onnx",
            [helper.make_node("SequenceLength", ["x"], ["y"])],
            maps_type(TEXT, F32),
            tensor_type(I64),
        )
        self.fails(5, "expected a sequence", "run", model)

    # ---- the checker ----
    def case(self, model, x, y, words=None):
        """The bytes of the input and of the expected output; `words`: why it fails."""
        data = self.dir / "case" / "test_data_set_0"
        data.mkdir(parents=True, exist_ok=True)
        (data.parent / "model.onnx").write_bytes(model.read_bytes())
        (data / "input_0.pb").write_bytes(x)
        (data / "output_0.pb").write_bytes(y)
        self.fails(1 if words else 0, words or "1 passed, 0 failed", "check", data.parent)

    def test_checked(self):
        x = numpy_helper.from_array(numpy.array([[1, 2], [3, 4]], "f")).SerializeToString()

        def expected(*maps):
            return onnx.SequenceProto(
                elem_type=5, map_values=map(map_bytes, maps)
            ).SerializeToString()

        good = [{'a"': 1.0, "b": 2.0}, {"b": numpy.float32(4), 'a"': numpy.float32(3)}]
        self.case(self.zip, x, expected(*good))
        self.case(
            self.zip, x, expected(good[0], {'a"': 3.0, "b": 4.5}), "at key 'b': 4, expected 4.5"
        )
        self.case(self.zip, x, expected(good[0], {'a"': 3.0, "c": 4.0}), "key 'b', expected 'c'")
        self.case(
            self.zip, x, expected(good[0], {'a"': 3.0}), "is a map of 2, expected a map of 1"
        )
        self.case(self.zip, x, expected(good[0]), "sequence of 2 maps, expected a sequence of 1")
        self.case(self.zip, x, expected(good[0], {1: 3.0, 2: 4.0}), "key 'a")
        self.case(self.zip, x, x, "FAIL")

    def test_map_files_that_are_wrong(self):
        y = numpy_helper.from_array(numpy.array([[-2, 0, 1.5]], "f")).SerializeToString()
        good = {"b": -2.0, "a": 1.5}
        self.case(self.words, map_bytes(good).SerializeToString(), y)
        for x, words in (
            (map_bytes(good, values=[1.0]), "the map has 2 keys and 1 value"),
            (map_bytes(good, values=[1.0, [2.0, 3.0]]), "expected one"),
            (map_bytes(good, values=[1.0, numpy.float32(2)]), "expected one"),
            (map_bytes(good, values=["p", "q"]), "DTYPE"),
            (map_bytes({**good, 3: 1.0}), "keys of two types"),
            (map_bytes({1: -2.0, 2: 1.5}), "are i64, expected string"),
        ):
            self.case(self.words, x.SerializeToString(), y, words)
        whole = map_bytes(good).SerializeToString()
        for n in range(len(whole)):  # cut anywhere
            (self.dir / "cut.pb").write_bytes(whole[:n])
            done = attnrun("run", self.words, "-q", "-i", f"x={self.dir}/cut.pb")
            self.assertIn(done.returncode, (0, 3, 4, 5), (n, done.stderr))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
