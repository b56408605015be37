#!/usr/bin/env python3
"""Everyday use of the command line, where a new user met something wrong: inputs given twice,
names in UTF-8, words that are misspelt, files of another kind, errors and JSON.

usage: test_use.py ATTNRUN
"""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unicodedata
import unittest
from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

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

    def test_a_configuration_in_any_form(self):
        (self.dir / "run.yaml").write_text("threads: 1\nset: { M: 2, N: 5 }\n")
        for words in (("-c", "run.yaml"), ("-crun.yaml",), ("-qcrun.yaml",), ("-qc", "run.yaml"),
                      ("--config=run.yaml",)):
            run = self.json("run", *words, self.matmul)
            self.assertEqual((run["threads"], run["outputs"][0]["shape"]), (1, [2, 5]), words)

    def test_an_archive_gives_an_input_once(self):
        a, b = numpy.ones((2, 3), "f"), numpy.ones((3, 2), "f")
        numpy.savez(self.dir / "ab.npz", a, b=b)
        self.ok("run", self.matmul, "-q", "-i", "ab.npz")
        for more in ({"arr_0": b, "b": b, "a": a}, {"arr_1": a, "arr_01": b, "a": a}):
            numpy.savez(self.dir / "ab.npz", **more)
            self.assertRegex(self.refused(5, "run", self.matmul, "-i", "ab.npz"),
                             "holds input '[ab]' twice")
        numpy.savez(self.dir / "ab.npz", **{"arr_": a, "b": b})
        self.assertIn("no input 'arr_'", self.refused(5, "run", self.matmul, "-i", "ab.npz"))

    def test_only_x_and_commas_part_a_shape(self):
        for text in ("2.3", "[2]3", "2-3"):
            self.assertIn("not a shape", self.refused(
                2, "run", self.matmul, "--shape", f"a={text}"))

    def test_an_output_too_many_is_no_pass(self):
        data = self.dir / "case" / "test_data_set_0"
        data.mkdir(parents=True)
        shutil.copy(self.relu, self.dir / "case" / "model.onnx")
        ones = numpy_helper.from_array(numpy.ones((2, 3), "f")).SerializeToString()
        for name in ("input_0", "output_0"):
            (data / f"{name}.pb").write_bytes(ones)
        self.assertIn("1 passed", self.ok("check", "case"))
        for text in ("0 inf", "1e999 0", "nan 0", "1"):  # tolerances that all values are within
            (self.dir / "case" / "tol.txt").write_text(text)
            self.assertIn(b"two numbers", self.attnrun("check", "case", code=1).stdout)
        (self.dir / "case" / "tol.txt").unlink()
        for option in ("-ix=zeros", "--inputs=.", "--set=N=2", "--shape=x=2x3"):  # not dropped
            self.assertIn("has its own inputs", self.refused(2, "check", "case", option))
        for option in ("--isolate", "--filter=*"):
            self.assertIn("for folders", self.refused(
                2, "check", self.relu, "--ref", "y.npy", option))
        (data / "output_1.pb").write_bytes(ones)
        self.assertIn(b"output_1.pb, but the model has 1 output",
                      self.attnrun("check", "case", code=1).stdout)

    def test_no_pass_is_dropped_for_want_of_room(self):
        # 1,023 bytes, and one more
        many = [f"--disable-pass={n}" for n in [*["attention"] * 101, "conv_epilogue", "gelu"]]
        self.assertIn("more than 1023 bytes", self.refused(2, "inspect", self.relu, *many))
        self.assertIn("nodes", self.ok("inspect", self.relu, *many[1:]))

    def test_references_of_types_that_numpy_lacks(self):
        for kind, bad in ((TensorProto.BFLOAT16, 1.02), (TensorProto.INT4, 9),
                          (TensorProto.FLOAT8E5M2, 3)):
            model = cli_models.save(
                self.dir / "m.onnx", [helper.make_node("Identity", ["x"], ["y"])],
                [("x", kind, [3])], [("y", kind, [3])], opset=21, ir=10)
            given = (model, "-i", "x=[1,2,-3]")
            for out in ("y.npz", "y.npy"):
                self.ok("run", *given, "-q", "-o", out)
                self.assertIn("1 passed", self.ok("check", *given, "--ref", out))
            other = numpy.load(self.dir / "y.npy")
            other[0] = bad
            numpy.save(self.dir / "y.npy", other)
            self.attnrun("check", *given, "--ref", "y.npy", code=1)

    def test_texts_that_are_cut_say_so(self):
        model = cli_models.save(
            self.dir / "m.onnx", [helper.make_node("Identity", ["x"], ["y"])],
            [("x", TensorProto.STRING, [1])], [("y", TensorProto.STRING, [1])])
        most = "a" * 80
        for text, shown in ((most, f"'{most}'"), (most + "a", f"'{most}'..."),
                            ("a\\u0000b", "'a'...")):
            out = self.ok("run", model, "-i", f'x=["{text}"]', "--print", "full")
            self.assertEqual(out, f"y string[1]\n[{shown}]\n")

    def test_many_names(self):
        """Each takes about a second on an idle machine; a minute where each name was looked for
        among all others."""
        n, kind = 80000, TensorProto.INT64
        chain = [helper.make_node("Max", [f"v{i}", "k"], [f"v{i + 1}"]) for i in range(n)]
        ends = [("v0", kind, [2])], [(f"v{n}", kind, [2])], [("k", [3])]
        model = cli_models.save(self.dir / "m.onnx", chain, *ends)
        subprocess.run([ATTNRUN, "run", model, "-q"], timeout=20, check=True)
        for i, node in enumerate(chain):
            node.op_type, node.domain = f"Op{i}", "some.domain"
        model = cli_models.save(self.dir / "m.onnx", chain, *ends, domains=["some.domain"])
        done = subprocess.run([ATTNRUN, "inspect", model, "--json"], capture_output=True,
                              timeout=20, check=True)
        self.assertEqual(len(json.loads(done.stdout)["ops"]), n)

    def test_many_inputs_and_outputs(self):
        """Each takes about a second on an idle machine; minutes where each symbol, table and name
        was looked for among all others."""
        n, f32, i64 = 16000, TensorProto.FLOAT, TensorProto.INT64
        cli_models.save(self.dir / "dims.onnx", [helper.make_node("Neg", ["past"], ["y"])],
                        [("past", f32, ["past"]), *[(f"x{i}", f32, [f"S{i}"]) for i in range(n)]],
                        [("y", f32, None)])
        cli_models.save(self.dir / "ids.onnx",
                        [helper.make_node("Neg", [f"x{i}"], [f"y{i}"]) for i in range(n)],
                        [(f"x{i}", i64, [1]) for i in range(n)],
                        [(f"y{i}", i64, None) for i in range(n)])
        lists = [helper.make_tensor_sequence_value_info(f"y{i}", f32, None) for i in range(n)]
        graph = helper.make_graph(
            [helper.make_node("SequenceEmpty", [], [f"y{i}"]) for i in range(n)], "g", [], lists)
        onnx.save(helper.make_model(graph, ir_version=9,
                                    opset_imports=[helper.make_opsetid("", 18)]),
                  self.dir / "lists.onnx")
        for name in ("dims", "ids", "lists"):
            subprocess.run([ATTNRUN, "run", self.dir / f"{name}.onnx", "-q", "-n", "1", "-o",
                            "/dev/null"], timeout=20, check=True)

    def test_the_largest_numbers(self):
        model = cli_models.save(
            self.dir / "m.onnx", [helper.make_node("Identity", ["x"], ["y"])],
            [("x", TensorProto.UINT64, ["N"])], [("y", TensorProto.UINT64, ["N"])])
        given = [2**64 - 1, 2**63, 2**63 - 1, 0]
        self.ok("run", model, "-i", f"x={given}", "-o", "y.npy")
        self.assertEqual(numpy.load(self.dir / "y.npy").tolist(), given)
        for number in (2**64, -1, -2**63 - 1):
            self.assertIn("does not fit u64", self.refused(5, "run", model, "-i", f"x={number}"))

    def test_texts_in_a_configuration_file(self):
        """Lists of YAML are inputs of strings: what is quoted is one string."""
        model = cli_models.save(
            self.dir / "m.onnx", [helper.make_node("Identity", ["s"], ["y"])],
            [("s", TensorProto.STRING, ["N"])], [("y", TensorProto.STRING, ["N"])])
        config = self.dir / "run.yaml"
        given = ["a,b", 'c"]', "d\\", "e"]
        for lines in (json.dumps(given), "\n" + "".join(f"    - '{text}'\n" for text in given)):
            config.write_text(f"input:\n  s: {lines}\n")
            self.ok("run", model, "-c", config, "-o", "y.npy")
            made = numpy.load(self.dir / "y.npy")
            self.assertEqual([text.decode() for text in made], given)
        config.write_text("input: {a: '[[1, 2]]', b: [[3], [4]]}\nshape: {a: [1, 2]}\n")
        self.ok("run", self.matmul, "-c", config, "-o", "y.npy")
        self.assertEqual(numpy.load(self.dir / "y.npy").tolist(), [[11]])

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
                            "\U0001f642=[[1,2,3]]", "--separate-dims")
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

    # ---- the screen ----
    def width(self, line):
        return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)

    def test_screens_fit_80_columns(self):
        long_names = cli_models.save(
            self.dir / ("m" * 30 + ".onnx"),
            [helper.make_node("MatMul", ["the_first_operand_of_all", "\u30e2\u30c7\u30eb" * 5],
                              ["the_result_that_everybody_waits_for"], name="/model/layer.0/mm")],
            [("the_first_operand_of_all", TensorProto.FLOAT, ["batch_size", "hidden_size"]),
             ("\u30e2\u30c7\u30eb" * 5, TensorProto.FLOAT, ["hidden_size", "vocabulary"])],
            [("the_result_that_everybody_waits_for", TensorProto.FLOAT, None)])
        deep = self.dir / "a folder with a long name, and spaces" / "another folder in it"
        deep.mkdir(parents=True)
        symbols = [f"p2o.DynamicDimension.of.a.long.name.{i}" for i in range(4)]
        wide = cli_models.save(
            deep / "\u30e2\u30c7\u30eb.onnx",
            [helper.make_node("Relu", ["x"], ["h"], name="n" * 90),
             helper.make_node("Transpose", ["h"], ["y"])],
            [("x", TensorProto.FLOAT, symbols)], [("y", TensorProto.FLOAT, None)])
        screens = [(command, path) for path in (Path(self.matmul).name, Path(long_names).name, wide)
                   for command in ("run", "plan", "inspect", "bench")]
        screens += [("run", "--profile", long_names), ("inspect", "--layers", wide),
                    ("compare", wide, "--with", str(shutil.copy(wide, deep / "2.onnx")),
                     "--per-node")]
        nested = cli_models.nested(self.dir / "nested.onnx")
        screens += [("inspect", nested), ("inspect", "--layers", nested)]
        screens += [("doctor", "--bench"), ("help",), ("inspect", "--layers", "matmul.onnx")]
        screens += [("help", c) for c in ("run", "check", "plan", "inspect", "ops", "bench")]
        for screen in screens:
            for line in self.ok(*screen).splitlines():
                self.assertLessEqual(self.width(line), 80, (screen, line))
                self.assertEqual(line, line.rstrip(), screen)

    def test_inspect_shows_subgraphs(self):
        path = cli_models.nested(self.dir / "nested.onnx")
        out = self.ok("inspect", path)
        self.assertRegex(out, r"1 in the file, 1 after rewriting, \d+ in 3 subgraphs: ")
        self.assertRegex(out, r"(?m)^subgraphs  body of Loop 'turns':  3 nodes$")
        self.assertRegex(out, r"(?m)^ {13}then_branch of If 'choose':  1 node$")
        self.assertRegex(out, r"(?m)^ {15}1 FusedMatMul$")
        self.assertRegex(out, r"(?m)^ {13}else_branch of If 'choose':  1 node$")
        layers = self.ok("inspect", path, "--layers")
        self.assertRegex(layers, r"(?m)^  then_branch of If 'choose'$")
        self.assertRegex(layers, r"(?m)^ {8}0 FusedMatMul")
        facts = json.loads(self.ok("inspect", path, "--json", "--layers", "--weights"))
        inner = facts["subgraphs"]
        self.assertEqual([(g["op_type"], g["attribute"], g["graph"], g["outer"]) for g in inner],
                         [("Loop", "body", "body", -1), ("If", "else_branch", "", 0),
                          ("If", "then_branch", "then graph", 0)])
        self.assertEqual([len(g["layers"]) for g in inner], [g["nodes"] for g in inner])
        total = sum(op["nodes"] for op in facts["ops"])
        self.assertEqual(total, len(facts["layers"]) + sum(g["nodes"] for g in inner))
        self.assertEqual(total, facts["coverage"]["native"])
        self.assertEqual(sum(w["name"] == "w" for w in facts["weights"]), 2)

    def test_screens_keep_together_what_belongs_together(self):
        """A number and its unit, a name and its value, and commands that can be copied."""
        folder = self.dir / "it's a folder"
        folder.mkdir()
        cli_models.relu(folder / "relu.onnx")
        screen = self.ok("run", folder.relative_to(self.dir) / "relu.onnx")
        self.assertNotRegex(screen, r"\d\n +(B|kB|MB|ms|us)\b")
        self.assertNotRegex(screen, r"(mean|min|max|xxh64)\n")
        command = re.search(r"next +(.*?)  \|", screen)[1]
        self.assertEqual(command, "attnrun plan 'it'\\''s a folder/relu.onnx'")
        self.assertIn("arena", self.ok(*shlex.split(command)[1:]))
        far = self.dir / ("f" * 60)
        far.mkdir()
        path = cli_models.relu(far / "relu.onnx")
        self.assertIn("next     attnrun plan MODEL  |  attnrun bench MODEL", self.ok("run", path))

    def test_sizes_that_are_too_large(self):
        """Default sizes may be too large, and names of dimensions as long as they can be."""
        path = cli_models.save(
            self.dir / "rank8.onnx", [helper.make_node("Relu", ["x"], ["y"])],
            [("x", TensorProto.FLOAT, [c * 47 for c in "abcdefgh"])],
            [("y", TensorProto.FLOAT, None)])
        self.assertRegex(self.refused(6, "run", path, "--shape", "x=" + "x".join(8 * ["128"])),
                         r"input 0 'x' is f32\[128(,128){7}\], which is more than 2\^46 elements")
        self.refused(6, "run", path, "--shape", "x=0" + 7 * "x99999999999999")
        screen = self.ok("run", path, "--shape", "x=0" + 6 * "x1" + "x9999999999999")
        self.assertIn("h" * 47 + "=9999999999999]", screen.replace("\n         ", ""))

    # ---- words ----
    def test_options_may_stand_before_the_command(self):
        for words in (("--json", "run", "relu.onnx"), ("-v", "--json", "run", "relu.onnx"),
                      ("--seed", 3, "--json", "run", "relu.onnx"),
                      ("-n", 2, "--json", "relu.onnx"), ("--seed=3", "relu.onnx", "--json")):
            self.assertEqual(json.loads(self.ok(*words))["schema"], "attnrun/run/2", words)
        self.assertIn("plan, bench", self.ok("-v", "help").replace("\n", ", ") + "plan, bench")
        self.assertIn("attnrun run", self.ok("run", "--help"))
        self.assertRegex(self.ok("--version"), "^attnrun [0-9]")
        self.assertIn("takes no --svg", self.refused(2, "--svg", "x.svg", "run", self.relu))

    def test_suggestions(self):
        windows = cli_models.save(
            self.dir / "w.onnx",
            [helper.make_node("LocalAttention", ["q", "k", "v"], ["y"], domain="attnrun", windo=4)],
            [(n, TensorProto.FLOAT, [1, 1, 8, 4]) for n in "qkv"],
            [("y", TensorProto.FLOAT, [1, 1, 8, 4])], domains=["attnrun"])
        relux = cli_models.save(self.dir / "r.onnx", [helper.make_node("Relux", ["x"], ["y"])],
                                [("x", TensorProto.FLOAT, [2])], [("y", TensorProto.FLOAT, [2])])
        (self.dir / "config.yaml").write_text("config: x\n")
        (self.dir / "treads.yaml").write_text("treads: 2\n")
        for code, near, words in (
                (2, "'run'", ["help", "rnu"]), (2, "'gelu'", ["run", self.relu,
                                                              "--disable-pass", "gleu"]),
                (4, "'Relu'", ["run", relux]), (5, "'left_window", ["run", windows]),
                (2, "'threads'", ["run", self.relu, "-c", "treads.yaml"]),
                (2, "'--threads'", ["run", self.relu, "--treads=1"]), (2, "'bench'", ["benhc"])):
            self.assertIn(f"(did you mean {near}", self.refused(code, *words))
        for code, words in ((2, ["run", self.relu, "-c", "config.yaml"]),
                            (5, ["run", self.relu, "-i", "y=ones"]),
                            (2, ["run", self.matmul, "--set", "S=3"])):
            self.assertNotIn("did you mean", self.refused(code, *words))
        self.assertIn("'config' is an option of the command line only",
                      self.refused(2, "run", self.relu, "-c", "config.yaml"))
        for command, key in (("run", "plugin"), ("ops", "plugin"), ("bench", "against")):
            (self.dir / "code.yaml").write_text(f"{key}: ./code\n")
            self.assertIn(f"'{key}' is an option of the command line only",
                          self.refused(2, command, *([self.relu] if command != "ops" else []),
                                       "-c", "code.yaml"))
        self.assertIn("unexpected argument 'b.onnx'", self.refused(2, "run", self.relu, "b.onnx"))

    def test_sizes_and_their_units(self):
        for size, budget in (("44M", 44 << 20), ("44MiB", 44 << 20), ("44MB", 44_000_000),
                             ("44mb", 44_000_000), ("2G", 2 << 30), ("2GB", 2_000_000_000),
                             ("1.5MiB", 3 << 19), ("5000kB", 5_000_000), ("9000000B", 9_000_000)):
            self.assertEqual(self.json("doctor", "-m", size)["max_memory_bytes"], budget, size)
        self.assertIn("44.0 MB", self.ok("doctor", "-m", "44MB"))
        self.assertIn("M=140737488355329 is above 140737488355328", self.refused(
            2, "run", self.matmul, "--set", "M=140737488355329"))
        self.assertIn("is above", self.refused(2, "run", self.matmul, "--set", "M=1" + 40 * "0"))
        self.assertIn("M=-1 is below 0", self.refused(2, "run", self.matmul, "--set", "M=-1"))
        self.assertIn("is not SYMBOL=N", self.refused(2, "run", self.matmul, "--set", "M=x"))

    def test_a_list_of_dimensions_is_written_one_by_one(self):
        self.assertIn("not SYMBOL=N\nhint: write one --set for each dimension: --set M=4 --set K=3",
                      self.refused(2, "run", self.matmul, "--set", "M=4,K=3"))
        self.assertIn(": --set M=4 --set K=3,5",
                      self.refused(2, "bench", self.matmul, "--set", "M=4,K=3,5"))
        self.assertNotIn("hint: write", self.refused(2, "run", self.matmul, "--set", "M=4,5"))

    def test_numbers_that_differ_are_printed_so(self):
        for dtype, bits in (("f", "i4"), ("d", "i8"), ("e", "i2")):
            onnx_type = helper.np_dtype_to_tensor_dtype(numpy.dtype(dtype))
            path = cli_models.save(self.dir / "one.onnx",
                                   [helper.make_node("Identity", ["x"], ["y"])],
                                   [("x", onnx_type, [1])], [("y", onnx_type, [1])])
            x = numpy.array([0.1], dtype)
            numpy.save(self.dir / "x.npy", x)
            reference = (x.view(bits) + (3 if dtype == "e" else 1)).view(dtype)
            numpy.save(self.dir / "ref.npy", reference)
            done = self.attnrun("check", path, "-i", "x=x.npy", "--ref", "ref.npy", "--rtol=0",
                                "--atol=0", code=1)
            got, expected = done.stdout.decode().split("first at [0]: ")[1].split(";")[0].split(
                ", expected ")
            self.assertEqual(numpy.dtype(dtype).type(got), x[0])
            self.assertNotEqual(numpy.dtype(dtype).type(got), numpy.dtype(dtype).type(expected))

    # ---- files of another kind ----
    def test_other_files_are_recognised(self):
        import io
        import pickle
        import zipfile
        npy, npz, pt = io.BytesIO(), io.BytesIO(), io.BytesIO()
        numpy.save(npy, numpy.ones(3))
        numpy.savez(npz, x=numpy.ones(3))
        with zipfile.ZipFile(pt, "w") as archive:
            archive.writestr("archive/data.pkl", pickle.dumps({}))
        header = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
        kinds = {
            "a Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
            "a text file": b"hello\nworld\n", "a NumPy array": npy.getvalue(),
            "a NumPy archive": npz.getvalue(), "a PyTorch file": pt.getvalue(),
            "a safetensors file": len(header).to_bytes(8, "little") + header + b"\0" * 4,
            "a GGUF file": b"GGUF\3\0\0\0" + b"\0" * 16,
            "a TensorFlow Lite model": b"\x1c\0\0\0TFL3" + b"\0" * 24,
            "an HTML page": b"\n<!DOCTYPE html><html></html>",
            "a Python pickle": pickle.dumps({"a": 1}, protocol=2), "an HDF5": b"\x89HDF\r\n\x1a\n"}
        for kind, data in kinds.items():
            path = self.dir / "m.onnx"
            path.write_bytes(data)
            said = self.refused(3, "run", path)
            self.assertIn(f"'m.onnx' is {kind}", said)
            self.assertIn("expected an ONNX model", said)
        path.write_bytes(Path(self.relu).read_bytes()[:-3])
        self.assertIn("is a complete ONNX model", self.refused(3, "run", path))

    def test_one_is_not_plural(self):
        self.assertIn("model: 1 node in the file, 1 to run",
                      self.attnrun("-v", "run", self.relu).stderr.decode())
        self.assertIn("hint: its input is 'x'\n", self.refused(5, "run", self.relu, "-i", "y=ones"))

    def test_other_kinds_of_an_input_are_named(self):
        numpy.save(self.dir / "array.npy", numpy.ones((2, 3), "f"))
        numpy.savez(self.dir / "arrays.npz", a=numpy.ones((2, 3), "f"))
        array, arrays = (Path(self.dir / n).read_bytes() for n in ("array.npy", "arrays.npz"))
        pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n" + 30 * b" "
        page = b"<!DOCTYPE html><html><body>not found</body></html>"
        for name, data, words in (("x.npy", pointer, "a Git LFS pointer; git lfs pull"),
                                  ("x.npz", pointer, "a Git LFS pointer; git lfs pull"),
                                  ("x.npy", page, "an HTML page"), ("x.npz", page, "an HTML page"),
                                  ("x.npy", arrays, "a zip archive, such as npz"),
                                  ("x.npz", array, "one NumPy array (npy)"),
                                  ("x.npz", arrays[:-5], "no end record (cut short?)"),
                                  ("x.npy", b"what is this", "does not begin with")):
            (self.dir / name).write_bytes(data)
            for given in (f"a={name}", name) if name == "x.npz" else (f"a={name}",):
                self.assertIn(words, self.refused(3, "run", self.matmul, "-i", given))
        (self.dir / "weights.pt").write_bytes(arrays)
        self.assertIn("hint: the suffix gives the kind of a file",
                      self.refused(2, "run", self.matmul, "-i", "a=weights.pt"))

    # ---- errors ----
    def test_errors_name_the_operator_of_the_file(self):
        """A chain that is fused, with sizes that only the inputs tell."""
        path = cli_models.save(
            self.dir / "m.onnx",
            [helper.make_node("Neg", ["x"], ["n"], name="first"),
             helper.make_node("Add", ["n", "z"], ["s"], name="the_sum"),
             helper.make_node("Sigmoid", ["s"], ["y"], name="last")],
            [("x", TensorProto.FLOAT, ["S", 4]), ("z", TensorProto.FLOAT, ["T", 4])],
            [("y", TensorProto.FLOAT, None)])
        self.assertIn("FusedElementwise", self.ok("inspect", path, "--layers"))
        said = self.refused(5, "run", path, "--set", "S=3", "--set", "T=5")
        self.assertIn("'the_sum' (Add)", said)
        self.assertNotIn("Fused", said)
        self.assertIn("hint: the inputs are 'x' f32[S=3,4], 'z' f32[T=5,4]", said)
        said = self.refused(5, "run", self.matmul, "-i", "a=[[1,2,3]]", "-i", "b=[[1,2]]")
        self.assertIn("'K' is 3 in input 0 'a' (dim 1), but 1 in input 1 'b' (dim 0)", said)
        self.assertIn("hint: if the model means different sizes by one name, load it with "
                      "--separate-dims", said)
        said = self.refused(5, "run", self.matmul, "-i", "a=[[1,2,3]]", "-i", "b=[[1,2]]",
                            "--separate-dims")
        self.assertIn("hint: the inputs are 'a' f32[M:a=1,K:a=3], 'b' f32[K:b=1,N:b=2]", said)
        said = self.refused(5, "run", self.matmul, "-i", "a=[[1,2,3]]", "--set", "K=2")
        self.assertIn("hint: symbol K was bound to 2 by --set and to 3 by input 'a'", said)

    def test_errors_name_the_operator_of_the_file_where_maps_are_in_blocks(self):
        path = cli_models.save(
            self.dir / "pool.onnx",
            [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
             helper.make_node("MaxPool", ["c"], ["m"], kernel_shape=[2, 2], name="pool"),
             helper.make_node("Conv", ["m", "v"], ["y"], pads=[1, 1, 1, 1])],
            [("x", TensorProto.FLOAT, [1, 16, "H", "W"])], [("y", TensorProto.FLOAT, None)],
            [("w", numpy.ones((32, 16, 3, 3), "f")), ("v", numpy.ones((32, 32, 3, 3), "f"))])
        self.assertIn("BlockedPool", self.ok("inspect", path, "--layers"))
        said = self.refused(5, "run", path, "--set", "H=1", "--set", "W=1")
        self.assertIn("'pool' (MaxPool)", said)
        self.assertNotIn("Blocked", said)

    def test_errors_as_json(self):
        for code, status, words in ((5, "SHAPE", ["run", self.matmul, "-i", "a=[[1,2,3]]",
                                                  "-i", "b=[[1,2]]"]),
                                    (3, "IO", ["plan", "nowhere.onnx"]),
                                    (2, "USAGE", ["run", self.relu, "--treads", "1"]),
                                    (2, "USAGE", ["check", self.dir])):
            done = self.attnrun(*words, "--json", code=code)
            error = json.loads(done.stdout)
            self.assertEqual(error["schema"], "attnrun/error/1")
            self.assertEqual((error["exit_code"], error["status"]), (code, status))
            self.assertIn(error["message"], done.stderr.decode())
            self.assertIn("hint", error)
        self.assertEqual(self.attnrun(
            "run", self.matmul, "-i", "a=[[1,2,3]]", "-i", "b=[[1,2]]", "--json",
            "--separate-dims", code=5).stdout.count(b'"op_type": "MatMul"'), 1)

    def test_memory_and_missing_files(self):
        said = self.refused(6, "run", self.matmul, "-m", "1M", "--set=M=1024", "--set=K=1024",
                            "--set=N=1024")
        self.assertRegex(said, r"needs 4194304 bytes, which is over the memory budget of 1048576 "
                         "bytes")
        sizes = "run", self.matmul, "--set=M=64", "--set=K=64", "--set=N=30000", "-q", "-t", "1"
        said = self.refused(6, *sizes, "-m", "1M")
        need = int(re.search(r"hint: (\d+) bytes are needed with these inputs: --max-memory \1$",
                             said)[1])
        self.attnrun(*sizes, "-m", need)  # the smallest budget that works
        self.assertIn(str(need), self.refused(6, *sizes, "-m", need - 1))
        # A budget that is too small to load the model: what is needed is said as well.
        said = self.refused(6, *sizes, "-m", "8192")
        self.assertIn(f"hint: {need} bytes are needed with these inputs: --max-memory {need}", said)
        # A size that only the data tell: no budget is advised that is below the one given.
        path = cli_models.save(
            self.dir / "expand.onnx", [helper.make_node("Expand", ["x", "s"], ["y"])],
            [("x", TensorProto.FLOAT, [1]), ("s", TensorProto.INT64, [2])],
            [("y", TensorProto.FLOAT, None)])
        said = self.refused(6, "run", path, "-i", "x=ones", "-i", "s=[4294967296,4294967296]",
                            "-m", "256M")
        self.assertIn("more elements than fit into memory", said)
        self.assertNotIn("--max-memory", said)
        # A hint that a limit can be changed, where it can.
        rank9 = cli_models.save(
            self.dir / "rank9.onnx", [helper.make_node("Add", ["x", "w"], ["y"])],
            [("x", TensorProto.FLOAT, [1])], [("y", TensorProto.FLOAT, None)],
            [("w", numpy.ones(9 * [1], "f"))])
        said = self.refused(6, "run", rank9)
        self.assertIn("tensor 'w' has 9 dims, expected at most 8 (limit 'rank')", said)
        self.assertNotIn("hint", said)
        path = self.dir / "external.onnx"
        import onnx
        model = onnx.load(cli_models.save(
            path, [helper.make_node("Add", ["x", "w"], ["y"])], [("x", TensorProto.FLOAT, [4])],
            [("y", TensorProto.FLOAT, [4])], [("w", numpy.ones(4, "f"))]))
        onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
        (self.dir / "w.bin").unlink()
        said = self.refused(3, "run", path)
        self.assertRegex(said, f"tensor 'w': cannot open 'w.bin': No such file.*'{self.dir}'")
        (self.dir / "w.bin").write_text("version https://git-lfs.github.com/spec/v1\n"[:15])
        self.assertIn("which has 15", self.refused(3, "run", path))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
