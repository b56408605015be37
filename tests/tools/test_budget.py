#!/usr/bin/env python3
"""A memory budget that is too small names the smallest one that works, whatever fails: opening,
packing, planning or the run. For models of many kinds that budget works and one byte less does
not; where sizes depend on data the hint says so, and fewer bytes may do. The same of each command
that takes --max-memory. Where opening takes far more, the hint names what the failed allocation
needs. Where the process has few addresses, the hint names that limit.

usage: test_budget.py ATTNRUN
"""
import json
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parent))
import cli_models  # noqa: E402

ATTNRUN = str(Path(sys.argv[1]).resolve())
F, I64, U8, B8 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8, TensorProto.BOOL
node, value = helper.make_node, helper.make_tensor_value_info
draw = numpy.random.default_rng(5)


def normal(*shape):
    return draw.normal(size=shape).astype("f")


def layers(path):
    """Packed weights, and an arena."""
    return cli_models.save(
        path, [node("MatMul", ["x", "w"], ["h"]), node("Relu", ["h"], ["r"]),
               node("MatMul", ["r", "v"], ["y"])],
        [("x", F, ["N", 256])], [("y", F, ["N", 256])],
        [("w", normal(256, 512)), ("v", normal(512, 256))])


def image(path):
    return cli_models.save(
        path, [node("Conv", ["x", "w", "b"], ["h"], pads=[1, 1, 1, 1]), node("Relu", ["h"], ["r"]),
               node("Conv", ["r", "v"], ["c"], pads=[1, 1, 1, 1]), node("Add", ["c", "r"], ["s"]),
               node("GlobalAveragePool", ["s"], ["y"])],
        [("x", F, ["N", 3, 48, 48])], [("y", F, None)],
        [("w", normal(32, 3, 3, 3)), ("b", normal(32)), ("v", normal(32, 32, 3, 3))])


def cache(path):
    """Keys and values that a context keeps: past and present."""
    nodes, inputs, outputs = [], [("x", F, [1, 4, "S", 64])], [("y", F, [1, 4, "S", 64])]
    for name in ("k", "v"):
        nodes += [node("Mul", ["x", f"scale_{name}"], [f"new_{name}"]),
                  node("Concat", [f"past_{name}", f"new_{name}"], [f"present_{name}"], axis=2)]
        inputs.append((f"past_{name}", F, [1, 4, "P", 64]))
        outputs.append((f"present_{name}", F, [1, 4, "T", 64]))
    nodes += [node("Transpose", ["present_k"], ["t"], perm=[0, 1, 3, 2]),
              node("MatMul", ["x", "t"], ["s"]), node("Softmax", ["s"], ["p"]),
              node("MatMul", ["p", "present_v"], ["y"])]
    return cli_models.save(path, nodes, inputs, outputs,
                           [("scale_k", normal(64)), ("scale_v", normal(64))])


def recurrent(path):
    return cli_models.save(
        path, [node("LSTM", ["x", "w", "r", "", "", "h", "c"], ["y", "hn", "cn"], hidden_size=64)],
        [("x", F, ["T", 1, 32]), ("h", F, [1, 1, 64]), ("c", F, [1, 1, 64])],
        [("y", F, None), ("hn", F, [1, 1, 64]), ("cn", F, [1, 1, 64])],
        [("w", normal(1, 256, 32)), ("r", normal(1, 256, 64))])


def bytes_(path):
    """QDQ: products of bytes."""
    weight = draw.integers(-100, 100, (256, 256)).astype(numpy.int8)
    return cli_models.save(
        path, [node("QuantizeLinear", ["x", "s", "z"], ["q"]),
               node("DequantizeLinear", ["q", "s", "z"], ["d"]),
               node("DequantizeLinear", ["w", "t", "wz"], ["e"]),
               node("MatMul", ["d", "e"], ["y"])],
        [("x", F, ["N", 256])], [("y", F, ["N", 256])],
        [("s", numpy.float32(0.05)), ("z", numpy.uint8(128)), ("w", weight),
         ("t", numpy.float32(0.01)), ("wz", numpy.int8(0))])


def folded(path):
    """What is computed at load holds more than the run: two tables, of which few rows are left."""
    return cli_models.save(
        path, [node("Range", ["zero", "many", "one"], ["r"]), node("Cos", ["r"], ["c"]),
               node("Mul", ["c", "c"], ["d"]), node("Slice", ["d", "from", "to"], ["e"]),
               node("Add", ["x", "e"], ["y"])],
        [("x", F, [8])], [("y", F, [8])],
        [("zero", numpy.float32(0)), ("many", numpy.float32(100_000)), ("one", numpy.float32(1)),
         ("from", numpy.array([5])), ("to", numpy.array([13]))])


def found(path):
    """Where x is not zero: the size depends on data, and has a bound."""
    return cli_models.save(path, [node("NonZero", ["x"], ["y"])],
                           [("x", F, ["N", 64])], [("y", I64, None)])


def counted(path):
    """No bound is known of what is made of such a size."""
    return cli_models.save(
        path, [node("NonZero", ["x"], ["n"]), node("Cast", ["n"], ["f"], to=F),
               node("ReduceSum", ["f"], ["y"], keepdims=0)],
        [("x", F, ["N", 64])], [("y", F, [])])


def loop(path):
    """A subgraph: its arena is beside that of the graph."""
    body = helper.make_graph(
        [node("Identity", ["go"], ["again"]), node("MatMul", ["v", "w"], ["a"]),
         node("Tanh", ["a"], ["n"])], "body",
        [value("i", I64, ()), value("go", B8, ()), value("v", F, [16, 128])],
        [value("again", B8, ()), value("n", F, [16, 128])],
        [numpy_helper.from_array(normal(128, 128), "w")])
    return cli_models.save(path, [node("Loop", ["trips", "", "x"], ["y"], body=body)],
                           [("x", F, [16, 128])], [("y", F, [16, 128])],
                           [("trips", numpy.int64(3))])


def expanded(path):
    """The size is the value of an input: no bound is known."""
    return cli_models.save(
        path, [node("Expand", ["x", "s"], ["e"]), node("ReduceSum", ["e"], ["y"], keepdims=0)],
        [("x", F, [1]), ("s", I64, [2])], [("y", F, [])])


# name, what makes it, arguments, of the run, and what the hint says
EXACT, ENOUGH, AT_LEAST = "are needed", "are enough", "at least"
MODELS = [
    ("layers", layers, ["-s", "N=40"], EXACT),
    ("image", image, ["-s", "N=2"], EXACT),
    ("cache", cache, ["-s", "S=3", "-s", "P=50", "--state", "past_*=present_*"],
     EXACT),
    ("recurrent", recurrent, ["-s", "T=30", "--state", "h=hn", "--state", "c=cn"], EXACT),
    ("bytes", bytes_, ["-s", "N=70"], EXACT),
    ("folded", folded, [], ENOUGH),
    ("embedding", cli_models.embedding, ["-s", "B=5", "-s", "S=60"], EXACT),
    ("found", found, ["-s", "N=300", "-i", "x=ones"], ENOUGH),
    ("counted", counted, ["-s", "N=300", "-i", "x=ones"], AT_LEAST),
    ("loop", loop, [], AT_LEAST),
    ("expanded", expanded, ["-i", "x=ones", "-i", "s=[1000,300]"], AT_LEAST),
]
HINT = re.compile(r"hint: ((?:at least )?)(\d+) bytes (are needed|are enough).*"
                  r"--max-memory (\d+)$", re.M)


class Budget(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.dir = Path(self.folder.name)

    def run_with(self, path, budget, *words):
        """The exit code, and what stands on stderr."""
        command = ["run"] if "--state" not in words else ["bench", "-n", "1"]
        done = subprocess.run([ATTNRUN, *command, path, "-q", "-t", "1", "-m", str(budget),
                               *map(str, words)], capture_output=True, text=True, timeout=120,
                              cwd=self.dir)
        return done.returncode, done.stderr

    def refused(self, path, budget, *words):
        """The number that is named, and its words."""
        code, said = self.run_with(path, budget, *words)
        self.assertEqual(code, 6, said)
        found = HINT.search(said)
        self.assertIsNotNone(found, (budget, said))
        self.assertEqual(found[2], found[4])
        self.assertGreater(int(found[2]), budget, said)
        return int(found[2]), found[1].strip() or found[3]

    def follow(self, path, need, words):
        """Fewer bytes than the first number do not do, and what hints name does in the end."""
        self.assertEqual(self.run_with(path, need - 1, *words)[0], 6)
        for _ in range(8):
            code, said = self.run_with(path, need, *words)
            if code == 0:
                return
            found = re.search(r"hint: .*--max-memory (\d+)(M?)", said)
            self.assertIsNotNone(found, said)
            more = int(found[1]) << (20 if found[2] else 0)
            self.assertGreater(more, need, said)
            need = more
        self.fail(said)

    def check(self, name, path, words, kind):
        need, said = self.refused(path, 20_000, *words)
        self.assertEqual(said, kind, name)
        if kind == AT_LEAST:
            self.follow(path, need, words)
            return
        code, text = self.run_with(path, need, *words)
        self.assertEqual(code, 0, (name, need, text))
        # Whatever fails on the way, the same number is named.
        for budget in (1_000, need // 8, need // 3, need * 2 // 3, need * 9 // 10, need - 1):
            code, text = self.run_with(path, budget, *words)
            if kind == EXACT or code != 0:
                self.assertEqual(code, 6, (name, budget, need, text))
                self.assertEqual(self.refused(path, budget, *words), (need, kind), name)

    def test_models(self):
        for name, make, words, kind in MODELS:
            with self.subTest(name):
                self.check(name, make(self.dir / f"{name}.onnx"), words, kind)

    def test_packed_files(self):
        for name, make, words, kind in MODELS[:5]:
            with self.subTest(name):
                made, packed = make(self.dir / f"{name}.onnx"), self.dir / f"{name}.attnpack"
                subprocess.run([ATTNRUN, "pack", made, "-o", packed, "-q"], check=True)
                self.check(name, packed, words, kind)

    LOOSE = ("--rtol", "1", "--atol", "1")
    # What each command does, in a folder with model.onnx and test_data_set_0.
    COMMANDS = (("pack", "model.onnx", "-o", "m.attnpack"), ("compile", "model.onnx", "-o", "m.c"),
                ("inspect", "model.onnx"), ("inspect", "model.onnx", "--layers", "--json"),
                ("optimize", "model.onnx", "-o", "o.onnx"),
                ("extract", "model.onnx", "--outputs", "y", "-o", "e.onnx"),
                ("extract", "model.onnx", "--outputs", "y", "--external", "-o", "e.onnx"),
                ("check", "."), ("check", ".", "--isolate"),
                ("check", "model.onnx", "-i", "x=x.npy", "--ref", "y.npy"),
                ("compare", "model.onnx", "-i", "x=x.npy", "--with", "isa=base", *LOOSE),
                ("compare", "model.onnx", "-i", "x=x.npy", "--with", "isa=base", "--per-node",
                 *LOOSE),
                ("compare", "model.onnx", "-i", "x=x.npy", "--with", "other.onnx", *LOOSE))

    def files(self, make):
        """A model with its inputs and outputs, as each of the commands wants them."""
        make(self.dir / "model.onnx")
        shutil.copy(self.dir / "model.onnx", self.dir / "other.onnx")
        wide = {"layers": (40, 256), "image": (2, 3, 48, 48), "bytes_": (70, 256)}[make.__name__]
        numpy.save(self.dir / "x.npy", normal(*wide))
        subprocess.run([ATTNRUN, "run", "model.onnx", "-q", "-i", "x=x.npy", "-o", "y.npy"],
                       check=True, cwd=self.dir, timeout=60)
        stored = self.dir / "test_data_set_0"
        stored.mkdir(exist_ok=True)
        for name, file in (("x", "input_0.pb"), ("y", "output_0.pb")):
            array = numpy_helper.from_array(numpy.load(self.dir / f"{name}.npy"), name)
            (stored / file).write_bytes(array.SerializeToString())

    def command(self, budget, command, *words, **more):
        done = subprocess.run([ATTNRUN, command, *words, "-q",
                               *(["-m", str(budget)] if budget else []),
                               *([] if command in ("optimize", "extract") else ["-t", "1"])],
                              capture_output=True, text=True, timeout=120, cwd=self.dir, **more)
        return done.returncode, done.stderr + done.stdout

    def test_commands(self):
        """The number that is named works; one byte less does not where it is "needed"."""
        exact = 0
        for make in (layers, image, bytes_):
            self.files(make)
            for words in self.COMMANDS:
                with self.subTest(make=make.__name__, words=words):
                    # Of a folder, what does not fit is a failed folder.
                    wrong = 1 if words[0] == "check" and "--ref" not in words else 6
                    code, said = self.command(5_000, *words)
                    self.assertEqual(code, wrong, said)
                    found = re.search(r"(\d+) bytes (are needed|are enough).*--max-memory (\d+)",
                                      said)
                    self.assertIsNotNone(found, said)
                    self.assertEqual(found[1], found[3])
                    need = int(found[1])
                    self.assertGreater(need, 5_000)
                    code, text = self.command(need, *words)
                    self.assertEqual(code, 0, (need, text))
                    if found[2] == "are needed":
                        exact += 1
                        code, text = self.command(need - 1, *words)
                        self.assertEqual(code, wrong, (need, text))
                        self.assertIn(f"--max-memory {need}", text)
        self.assertGreater(exact, len(self.COMMANDS) * 2)
        for name in ("m.attnpack", "m.c", "o.onnx", "e.onnx"):
            self.assertTrue((self.dir / name).exists(), name)

    def test_contexts(self):
        """Each context of bench --concurrency has an arena of its own."""
        layers(self.dir / "model.onnx")
        for words in ((), ("--set", "N=3,5")):
            with self.subTest(words=words):
                words = ("model.onnx", "-n", "1", "--concurrency", "3", *words)
                # Of sizes, the first one that does not fit is named.
                budget = 5_000
                for _ in range(3):
                    code, said = self.command(budget, "bench", *words)
                    if code == 0:
                        break
                    self.assertEqual(code, 6, said)
                    need = int(re.search(r"(\d+) bytes are needed", said)[1])
                    self.assertGreater(need, budget)
                    self.assertEqual(self.command(need - 1, "bench", *words)[0], 6)
                    budget = need
                self.assertEqual(code, 0, said)

    def test_sizes_that_are_found(self):
        """The plans of made-up sizes that did not fit take nothing from the budget."""
        cli_models.save(self.dir / "model.onnx", [node("Add", ["x", "w"], ["y"])],
                        [("x", F, ["N", 64, "S"])], [("y", F, None)], [("w", normal(64, 100))])
        code, said = self.command(5_000, "run", "model.onnx")
        self.assertEqual(code, 6, said)
        need = int(re.search(r"(\d+) bytes are needed", said)[1])
        code, said = self.command(need, "run", "model.onnx")
        self.assertEqual(code, 0, said)
        self.assertEqual(self.command(need - 1, "run", "model.onnx")[0], 6)

    def test_report(self):
        """The page is not written where the model does not fit; else its sections say what they
        need."""
        layers(self.dir / "model.onnx")
        code, said = self.command(5_000, "report", "model.onnx", "-o", "r.html")
        self.assertEqual(code, 6, said)
        need = int(re.search(r"--max-memory (\d+)", said)[1])
        self.assertFalse((self.dir / "r.html").exists())
        code, said = self.command(need, "report", "model.onnx", "-o", "r.html")
        self.assertEqual(code, 0, said)
        page = (self.dir / "r.html").read_text("utf-8")
        self.assertRegex(page, r'"hint": "\d+ bytes are needed with these inputs: --max-memory')

    def test_the_second_try_is_small(self):
        """A stranger's file of some hundred bytes asks for 8 GiB: what explains the failure takes
        no more than 64 MiB above the budget, so it names only what failed."""
        graph = helper.make_graph(
            [node("Identity", ["w0"], ["y"])], "g", [], [value("y", F, None)],
            sparse_initializer=[helper.make_sparse_tensor(
                numpy_helper.from_array(numpy.ones(1, "f"), f"w{k}"),
                numpy_helper.from_array(numpy.array([5])), [1 << 28]) for k in range(8)])
        (self.dir / "sparse.onnx").write_bytes(helper.make_model(
            graph, ir_version=9,
            opset_imports=[helper.make_opsetid("", 18)]).SerializeToString())
        for words in (("run",), ("inspect",), ("pack", "-o", "s.attnpack")):
            code, said = self.command(4 << 20, words[0], "sparse.onnx", *words[1:])
            self.assertEqual(code, 6, said)
            self.assertRegex(said, r"hint: at least 107\d{7} bytes are needed: --max-memory")

    def test_addresses(self):
        """A limit of addresses is named where it is the cause, with what the model needs."""
        make = cli_models.save(
            self.dir / "wide.onnx", [node("Exp", ["x"], ["h"]), node("Add", ["h", "x"], ["y"])],
            [("x", F, ["N", 1024])], [("y", F, ["N", 1024])])
        limit = 400 << 20

        def few():
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

        code, said = self.command(0, "run", make, "-s", "N=60000", preexec_fn=few)
        if "Sanitizer failed to allocate" in said:
            self.skipTest("a sanitizer's shadow memory takes more addresses than the limit")
        self.assertEqual(code, 6, said)
        found = re.search(r"needs (\d+) bytes for this.*ulimit -v leaves the process (\d+) bytes",
                          said)
        self.assertIsNotNone(found, said)
        self.assertEqual(int(found[2]), limit)
        self.assertGreater(int(found[1]), 60_000 * 1024 * 4)

    def test_addresses_are_not_the_cause(self):
        """What depends on data is over the budget: a limit of addresses has no part in it."""
        make = cli_models.save(
            self.dir / "grow.onnx", [node("Expand", ["x", "n"], ["y"])],
            [("x", F, [1]), ("n", I64, [1])], [("y", F, ["M"])])

        def many():
            resource.setrlimit(resource.RLIMIT_AS, (1 << 46, 1 << 46))

        code, said = self.command(4 << 20, "run", make, "-i", "x=[1]", "-i", "n=[4000000]",
                                  preexec_fn=many)
        self.assertEqual(code, 6, said)
        self.assertRegex(said, r"at least \d+ bytes are needed: --max-memory")
        self.assertNotIn("ulimit", said)

    def test_data(self):
        """Products of doubles end where the process may have less data than OpenBLAS takes."""
        D = TensorProto.DOUBLE
        cli_models.save(self.dir / "doubles.onnx", [node("MatMul", ["x", "w"], ["y"])],
                        [("x", D, [200, 200])], [("y", D, [200, 200])],
                        [("w", draw.normal(size=(200, 200)))])
        limit = 64 << 20

        def few():
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

        code, said = self.command(0, "run", "doubles.onnx", preexec_fn=few)
        if "Sanitizer failed to allocate" in said:
            self.skipTest("a sanitizer takes more data than the limit")
        self.assertEqual(code, 0, said)

    def test_json_has_the_hint(self):
        layers(self.dir / "model.onnx")
        error = json.loads(self.command(5_000, "inspect", "model.onnx", "--json")[1].split(
            "\n{", 1)[1].join(("{", "")))
        self.assertIn("--max-memory", error["hint"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
