#!/usr/bin/env python3
"""Where outputs go: what is no regular file is written and stays what it is, links are
followed, modes and owners kept; standard input and output stand for files.

usage: test_output.py ATTNRUN

Device nodes are nodes of the null device made in a temporary folder, never the system's.
"""
import io
import json
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import xml.dom.minidom
from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).parent))
import cli_models  # noqa: E402

ATTNRUN = sys.argv[1]
NULL = os.makedev(1, 3)
OLD = b"what was there before"


def runs(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Output(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.dir = Path(self.folder.name)
        self.relu = cli_models.relu(self.dir / "relu.onnx")
        self.two = cli_models.save(
            self.dir / "two.onnx",
            [helper.make_node("Abs", ["x"], ["a"]), helper.make_node("Neg", ["x"], ["b"])],
            [("x", TensorProto.FLOAT, ["N"])],
            [("a", TensorProto.FLOAT, ["N"]), ("b", TensorProto.FLOAT, ["N"])])

    def attnrun(self, *arguments, code=0, **options):
        done = subprocess.run([ATTNRUN, *map(str, arguments)], capture_output=True, timeout=60,
                              **options)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def write(self, path, *more, **options):
        """Both outputs [1, 2] and [1, -2] of one model, into `path`."""
        return self.attnrun("run", self.two, "-q", "-i", "x=[-1,2]", "-o", path, *more,
                            **options)

    def test_a_result_never_replaces_its_model(self):
        path, link = self.dir / "kept.onnx", self.dir / "link.npz"
        path.write_bytes(Path(self.relu).read_bytes())
        link.symlink_to(path)
        for words in (("pack", path, "-o", path), ("compile", path, "-o", path),
                      ("run", path, "-o", link), ("run", path, "--trace", path),
                      ("report", path, "-o", path), ("plan", path, "--svg", path),
                      ("bench", path, "--set", "N=1,2", "--svg", path),
                      ("compare", path, "--reduce", path)):
            self.assertIn(b"is the model: the result would replace it",
                          self.attnrun(*words, code=2).stderr)
        self.assertEqual(path.read_bytes(), Path(self.relu).read_bytes())
        for name in ("t.npz", "../" + self.dir.name + "/t.npz"):
            for _ in range(2):  # a file to be made, and one that is there
                self.assertIn(b"both -o and --trace name", self.attnrun(
                    "run", path, "-q", "-o", self.dir / "t.npz", "--trace", self.dir / name,
                    code=2).stderr)
                (self.dir / "t.npz").write_bytes(OLD)
            (self.dir / "t.npz").unlink()
        self.attnrun("run", path, "-q", "-o", self.dir / "t.npz", "--trace", self.dir / "t.json")
        numpy.savez(self.dir / "part.npz", x=numpy.ones((2, 3), "f"))
        other = self.dir / "new.other.onnx"
        other.write_bytes(OLD)
        for words, said in ((("--with", path, "--reduce", path), "is the model"),
                            (("-i", self.dir / "part.npz", "--reduce", self.dir / "part.onnx"),
                             "which is read"),
                            (("--with", other, "--reduce", self.dir / "new.onnx"),
                             "which is read")):
            done = self.attnrun("compare", self.relu, *words, code=2)
            self.assertIn(said.encode(), done.stderr)
        self.assertEqual(other.read_bytes(), OLD)

    def test_a_result_never_replaces_what_is_read(self):
        folder = self.dir / "read"
        folder.mkdir()
        path, data = folder / "m.onnx", folder / "w.npz"
        model = onnx.load(cli_models.save(
            path, [helper.make_node("MatMul", ["x", "w"], ["y"])],
            [("x", TensorProto.FLOAT, ["N", 128])], [("y", TensorProto.FLOAT, None)],
            [("w", numpy.ones((128, 160), "f"))]))
        inline = path.read_bytes()
        onnx.save(model, path, save_as_external_data=True, location="w.npz", size_threshold=0)
        x, link, config = folder / "x.npy", self.dir / "link.npz", folder / "c.yaml"
        numpy.save(x, numpy.ones((1, 128), "f"))
        link.symlink_to(data)
        os.link(x, folder / "hard.npy")
        os.link(path, folder / "hard.onnx")
        config.write_text("threads: 1\n")
        before = {p.name: p.read_bytes() for p in folder.iterdir()}
        for copy in ((), ("--copy-weights",)):
            for words in (("pack", path, "-o", data), ("pack", path, "-o", link),
                          ("compile", path, "-o", data), ("optimize", path, "-o", data),
                          ("optimize", "--external", path, "-o", data),
                          ("extract", path, "--outputs", "y", "-o", link),
                          ("run", path, "-o", data), ("run", path, "--trace", link),
                          ("run", path, "-i", f"x={x}", "-o", x),
                          ("run", path, "-i", f"x={x}", "-o", folder / "hard.npy"),
                          ("run", path, "--inputs", folder, "-o", x),
                          ("run", path, "-c", config, "--trace", config),
                          ("plan", path, "--svg", data), ("report", path, "-o", data),
                          ("report", path, "-i", f"x={x}", "-o", x),
                          ("pack", path, "-o", folder / "hard.onnx")):
                said = self.attnrun(*words, *(copy if words[0] != "report" else ()),
                                    code=2).stderr.decode()
                self.assertRegex(said, "is read by this command|is the model", words)
        with open(path, "r+b") as file:  # a descriptor, which is written in place
            self.attnrun("pack", path, "-o", f"/dev/fd/{file.fileno()}", code=2,
                         pass_fds=[file.fileno()])
        with open(data, "ab") as file:
            self.assertEqual(subprocess.run([ATTNRUN, "pack", path, "-o", "-"], stdout=file,
                                            stderr=subprocess.DEVNULL, timeout=60).returncode, 2)
        odd = folder / "n.onnx.data"  # its data would be the model itself
        odd.write_bytes(inline)
        self.attnrun("optimize", "--external", odd, "-o", folder / "n.onnx", code=2)
        self.assertEqual(odd.read_bytes(), inline)
        odd.unlink()
        self.assertEqual({p.name: p.read_bytes() for p in folder.iterdir()}, before)
        self.nothing_left()
        self.attnrun("optimize", path, "-o", path)  # a model may be changed in place
        self.assertNotEqual(path.read_bytes(), before["m.onnx"])

    def test_external_data_and_links(self):
        weights = [("w", numpy.ones((128, 160), "f"))]
        path = cli_models.save(
            self.dir / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])],
            [("x", TensorProto.FLOAT, ["N", 128])], [("y", TensorProto.FLOAT, None)], weights)
        there = self.dir / "there"
        there.mkdir()
        near, far = self.dir / "near.onnx", self.dir / "far.onnx"
        near.symlink_to("real.onnx")
        far.symlink_to("there/real.onnx")
        self.attnrun("optimize", "--external", path, "-o", near)
        self.assertTrue(near.is_symlink())
        for name in ("near.onnx", "real.onnx"):  # both find the data
            self.attnrun("run", self.dir / name, "-q")
        self.assertIn(b"is a link into another folder", self.attnrun(
            "optimize", "--external", path, "-o", far, code=2).stderr)
        self.attnrun("optimize", path, "-o", far)
        self.assertTrue(far.is_symlink() and (there / "real.onnx").is_file())
        (self.dir / "out.onnx.data").symlink_to(there / "data")
        self.assertIn(b"is no regular file", self.attnrun(
            "optimize", "--external", path, "-o", self.dir / "out.onnx", code=2).stderr)
        self.assertEqual([p.name for p in there.iterdir()], ["real.onnx"])
        self.nothing_left()

    def test_texts_as_json_writes_them(self):
        model = cli_models.save(
            self.dir / "m.onnx", [helper.make_node("Identity", ["s"], ["y"])],
            [("s", TensorProto.STRING, ["N"])], [("y", TensorProto.STRING, ["N"])])
        given = ["\U0001f600", "a\U0010ffff\U00010000b", "\u00e9\u20ac", '"\\/\b\f\n\r\t']
        for ascii_only in (True, False):
            text = json.dumps(given, ensure_ascii=ascii_only)
            self.attnrun("run", model, "-i", f"s={text}", "-o", self.dir / "y.json")
            self.assertEqual(json.loads((self.dir / "y.json").read_text())["y"], given)
        for text in (r"\ud83d", r"\ud83da", r"\ud83d\u0041", r"\ude00\ud83d",
                     r"\ud83d\ud83d\ude00"):
            self.assertIn(b"surrogate", self.attnrun(
                "run", model, "-i", f's=["{text}"]', code=5).stderr)
        for text in (r"\ud83d\u12", r"\u12g4", r"\u"):
            self.assertIn(b"hex digits", self.attnrun(
                "run", model, "-i", f's=["{text}"]', code=5).stderr)

    def test_phases_of_long_names_fit_the_screen(self):
        path = self.dir / "long.onnx"
        cli_models.save(path, [helper.make_node("Relu", ["x"], ["y"], name=9 * "/layer.0/dense")],
                        [("x", TensorProto.FLOAT, ["N"])], [("y", TensorProto.FLOAT, ["N"])])
        lines = self.attnrun("plan", path, "-t", "2").stdout.decode().splitlines()
        self.assertIn("Relu, of one", " ".join(lines))
        self.assertLessEqual(max(map(len, lines)), 80)

    def holds_outputs(self, data):
        arrays = numpy.load(io.BytesIO(data))
        self.assertEqual(arrays["a"].tolist(), [1, 2])
        self.assertEqual(arrays["b"].tolist(), [1, -2])

    def nothing_left(self):
        self.assertEqual([p.name for p in self.dir.rglob("*") if ".tmp." in p.name], [])

    # ---- what is no regular file ----
    def node(self, name):
        path = self.dir / name
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, NULL)
            path.write_bytes(b"")
        except OSError as error:
            self.skipTest(f"no device node can be made here: {error}")
        return path

    def test_devices_stay_devices(self):
        for name in ("null", "null.npz", "null.npy"):
            path = self.node(name)
            model = self.relu if name.endswith("npy") else self.two
            self.attnrun("run", model, "-q", "-o", path)
            self.assertTrue(stat.S_ISCHR(path.lstat().st_mode), name)
            self.assertEqual(path.lstat().st_rdev, NULL)
        drawing = self.dir / "null"
        self.attnrun("plan", self.two, "--svg", drawing)
        self.assertTrue(stat.S_ISCHR(drawing.lstat().st_mode))
        link = self.dir / "link.npz"
        link.symlink_to("null")
        self.write(link)
        self.assertTrue(link.is_symlink() and stat.S_ISCHR(drawing.lstat().st_mode))
        self.nothing_left()

    def read_fifo(self, path, *arguments):
        got = []
        reader = threading.Thread(target=lambda: got.append(path.read_bytes()), daemon=True)
        reader.start()
        self.attnrun(*arguments)
        reader.join(20)
        self.assertTrue(got, "nothing was written into the FIFO")
        self.assertTrue(stat.S_ISFIFO(path.lstat().st_mode))
        return got[0]

    def test_fifos_are_written(self):
        for name in ("pipe", "pipe.npz"):
            path = self.dir / name
            os.mkfifo(path)
            self.holds_outputs(self.read_fifo(path, "run", self.two, "-q", "-i", "x=[-1,2]",
                                              "-o", path))
        path = self.dir / "pipe"
        self.assertTrue(self.read_fifo(path, "plan", self.two, "--svg", path)
                        .rstrip().endswith(b"</svg>"))
        array = self.read_fifo(path, "run", self.relu, "-q", "-i", "x=ones", "-o", path)
        self.assertEqual(numpy.load(io.BytesIO(array)).tolist(), [[1] * 3] * 2)

    def test_links_stay_and_their_targets_change(self):
        inner = self.dir / "inner"
        inner.mkdir()
        target, new = inner / "real.npz", inner / "new.npz"
        target.write_bytes(OLD)
        links = {"absolute.npz": (target, target), "relative.npz": ("inner/real.npz", target),
                 "chain.npz": ("relative.npz", target), "dangling.npz": ("inner/new.npz", new)}
        for name, (to, real) in links.items():
            with self.subTest(name):
                link = self.dir / name
                link.symlink_to(to)
                self.write(link)
                self.assertTrue(link.is_symlink())
                self.assertEqual(os.readlink(link), str(to))
                self.holds_outputs(real.read_bytes())
        turning = self.dir / "turning.npz"
        turning.symlink_to("turning.npz")
        self.assertIn(b"IO: cannot write", self.write(turning, code=3).stderr)
        self.nothing_left()

    def test_folders_and_sockets_are_refused(self):
        path = self.dir / "folder.npz"
        path.mkdir()
        self.assertIn(b"IO: cannot write", self.write(path, code=3).stderr)
        self.assertEqual(list(path.iterdir()), [])

    # ---- what a file has ----
    def test_mode_and_owner_stay(self):
        path = self.dir / "out.npz"
        for mode in (0o600, 0o604, 0o666, 0o755):
            path.write_bytes(OLD)
            path.chmod(mode)
            if os.geteuid() == 0:
                os.chown(path, 65534, 65533)
            before = path.stat()
            self.write(path)
            after = path.stat()
            self.assertEqual((after.st_mode, after.st_uid, after.st_gid),
                             (before.st_mode, before.st_uid, before.st_gid))
            self.holds_outputs(path.read_bytes())
        new = self.dir / "new.npz"
        self.write(new, preexec_fn=lambda: os.umask(0o027))
        self.assertEqual(stat.S_IMODE(new.stat().st_mode), 0o640)

    @unittest.skipIf(os.geteuid() == 0, "root may write to every file")
    def test_a_file_without_permission_stays(self):
        path = self.dir / "out.npz"
        path.write_bytes(OLD)
        path.chmod(0o400)
        self.write(path, code=3)
        self.assertEqual(path.read_bytes(), OLD)

    def test_a_left_file_blocks_nobody(self):
        """A killed process left its temporary file, and the next one has its number."""
        path = self.dir / "out.npz"
        self.write(path, preexec_fn=lambda: Path(f"{path}.tmp.{os.getpid()}").touch())
        self.holds_outputs(path.read_bytes())

    def test_the_longest_name(self):
        path = self.dir / ("n" * 251 + ".npz")
        self.write(path)
        self.holds_outputs(path.read_bytes())
        self.nothing_left()

    def test_strings_are_padded_within_reason(self):
        """One long string among many would make a file of 8 GiB; their JSON is short."""
        path = cli_models.save(
            self.dir / "m.onnx", [helper.make_node("Expand", ["none", "n"], ["many"]),
                                  helper.make_node("Concat", ["many", "long"], ["y"], axis=0)],
            [("n", TensorProto.INT64, [1])], [("y", TensorProto.STRING, ["N"])],
            [("none", numpy.array([""], object)), ("long", numpy.array(["x" * 2**20], object))])
        given = ("run", path, "-q", "-i", "n=[8192]", "-o")
        for out in ("y.npy", "y.npz"):
            done = self.attnrun(*given, self.dir / out, code=6)
            self.assertIn(b"JSON", done.stderr)
            self.assertFalse((self.dir / out).exists())
        self.attnrun(*given, self.dir / "y.json")
        self.attnrun("run", path, "-q", "-i", "n=[8]", "-o", self.dir / "y.npy")
        self.assertEqual(len(numpy.load(self.dir / "y.npy")[8]), 2**20)

    def test_names_of_tensors_of_a_sequence(self):
        def model(*names):
            outputs = [helper.make_tensor_sequence_value_info(names[0], TensorProto.FLOAT, ["N"])]
            outputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N"])
                        for name in names[1:]]
            nodes = [helper.make_node("SequenceConstruct", ["x", "x"], [names[0]])]
            nodes += [helper.make_node("Neg", ["x"], [name]) for name in names[1:]]
            graph = helper.make_graph(
                nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])], outputs)
            onnx.save(helper.make_model(graph, ir_version=9,
                                        opset_imports=[helper.make_opsetid("", 18)]),
                      self.dir / "s.onnx")
            return self.dir / "s.onnx"

        long = "y" * 300
        for names in (("y", "y.2", "y.01", "y.x", "y.0.0"), (long, long + ".2")):
            path = model(*names)
            for place in ("s.npz", "s/"):
                self.attnrun("run", path, "-q", "-i", "x=[1]", "-o", f"{self.dir}/{place}")
            with numpy.load(self.dir / "s.npz") as arrays:
                self.assertEqual(set(arrays), {f"{names[0]}.0", f"{names[0]}.1", *names[1:]})
        path = model("y", "y.1")
        for place in ("t.npz", "t/"):
            failed = self.attnrun("run", path, "-q", "-i", "x=[1]", "-o", f"{self.dir}/{place}",
                                  code=2)
            self.assertIn(b"'y.1' has the name of a tensor of the sequence 'y'", failed.stderr)
            self.assertFalse((self.dir / place).exists())
        self.attnrun("run", path, "-q", "-i", "x=[1]", "-o", self.dir / "t.json")
        self.assertEqual(json.loads((self.dir / "t.json").read_text()),
                         {"y": [[1], [1]], "y.1": [-1]})

    def test_an_output_that_is_listed_twice(self):
        path = cli_models.save(
            self.dir / "d.onnx", [helper.make_node("Neg", ["x"], ["y"])],
            [("x", TensorProto.FLOAT, ["N"])], [("y", TensorProto.FLOAT, ["N"])] * 2)
        self.attnrun("run", path, "-q", "-i", "x=[1]", "-o", self.dir / "d.npz")
        self.attnrun("check", path, "-i", "x=[1]", "--ref", self.dir / "d.npz")
        self.attnrun("run", path, "-q", "-i", "x=[1]", "-o", self.dir / "d.json")
        self.assertEqual(json.loads((self.dir / "d.json").read_text(), object_pairs_hook=list),
                         [("y", [-1])])

    def test_empty_tensors_in_json(self):
        path = cli_models.save(
            self.dir / "e.onnx", [helper.make_node("Identity", ["x"], ["y"])],
            [("x", TensorProto.FLOAT, None)], [("y", TensorProto.FLOAT, None)])
        out = self.dir / "e.json"
        for shape in ((0,), (2, 0), (0, 2), (2, 3, 0), (2, 0, 3), (1 << 20, 0)):
            numpy.save(self.dir / "x.npy", numpy.zeros(shape, "f"))
            self.attnrun("run", path, "-q", "-i", f"x={self.dir}/x.npy", "-o", out)
            self.assertEqual(json.loads(out.read_text()), {"y": numpy.zeros(shape).tolist()})
        numpy.save(self.dir / "x.npy", numpy.zeros(((1 << 20) + 1, 0), "f"))
        given = ("run", path, "-i", f"x={self.dir}/x.npy")
        self.assertIn(b"empty lists", self.attnrun(*given, "-o", out, code=6).stderr)
        (full,) = json.loads(self.attnrun(*given, "--print=full", "--json").stdout)["outputs"]
        self.assertEqual([full["shape"], full["values"]], [[(1 << 20) + 1, 0], []])

    # ---- drawings ----
    def test_drawings_of_any_names_are_xml(self):
        for name in ("\u65e5\u672c\u8a9e" * 20, "a<&\">" * 9, "\uffff\ufffe" * 9,
                     "\U0001f600" * 40):
            for k in range(3):  # a cut may be at any byte of a character
                path = cli_models.save(
                    self.dir / "n.onnx", [helper.make_node("Relu", ["x"], ["a" * k + name]),
                                          helper.make_node("ReduceSum", ["a" * k + name], ["y"])],
                    [("x", TensorProto.FLOAT, [1000])], [("y", TensorProto.FLOAT, None)])
                xml.dom.minidom.parseString(self.attnrun("plan", path, "--svg", "-").stdout)

    def test_sizes_are_drawn_in_any_order(self):
        for sizes in ("100,300", "300,100", "200,300,100"):
            root = xml.dom.minidom.parseString(self.attnrun(
                "bench", self.two, "--set", f"N={sizes}", "-n", 1, "--svg", "-").stdout)
            places = [float(c.getAttribute("cx")) for c in root.getElementsByTagName("circle")]
            self.assertEqual([min(places), max(places)], [40, 620])

    # ---- processes ----
    def test_an_isolated_folder(self):
        """Its time is that of --timeout, however long, and it ends with the process that waits."""
        case = self.dir / "case" / "test_data_set_0"
        case.mkdir(parents=True)
        cli_models.endless(case.parent / "model.onnx")
        (case / "input_0.pb").write_bytes(
            onnx.numpy_helper.from_array(numpy.ones(4, "f")).SerializeToString())
        with subprocess.Popen([ATTNRUN, "check", str(case.parent), "--isolate", "--timeout",
                               f"{2 ** 31 - 2}s"], stdout=subprocess.PIPE) as check:
            with self.assertRaises(subprocess.TimeoutExpired):
                check.wait(3)
            (child,) = Path(f"/proc/{check.pid}/task/{check.pid}/children").read_text().split()
            check.terminate()
            self.assertEqual(check.wait(10), 143)
            end = time.monotonic() + 10
            while runs(child) and time.monotonic() < end:
                time.sleep(0.1)
            self.assertFalse(runs(child))

    # ---- "-" ----
    def test_standard_output(self):
        given = ("-i", "x=[-1,2]")
        for path in ("-", "/dev/stdout"):
            self.holds_outputs(self.attnrun("run", self.two, *given, "-o", path, "-q").stdout)
            self.holds_outputs(self.attnrun("run", self.two, *given, "-o", path).stdout)
            with open(self.dir / "redirected", "wb") as file:
                subprocess.run([ATTNRUN, "run", self.two, *given, "-o", path], stdout=file,
                               timeout=60, check=True)
            self.holds_outputs((self.dir / "redirected").read_bytes())
            packed = self.attnrun("pack", self.two, "-o", path).stdout
            (self.dir / "p.attnpack").write_bytes(packed)
            self.attnrun("run", self.dir / "p.attnpack", *given, "--verify")
            svg = self.attnrun("bench", self.two, "--set", "N=1,2", "--svg", path).stdout
            xml.dom.minidom.parseString(svg)
        one = self.attnrun("run", self.relu, "-i", "x=ones", "-o", "-").stdout
        self.assertEqual(numpy.load(io.BytesIO(one)).tolist(), [[1] * 3] * 2)
        xml.dom.minidom.parseString(self.attnrun("plan", self.two, "--svg", "-").stdout)
        self.assertFalse(Path("-").exists())
        for more in (["run", self.two, "-o", "-", "--json"],
                     ["run", self.two, "-o", "-", "--print", "full"],
                     ["run", self.two, "-o", "/dev/stdout", "--json"],
                     ["pack", self.two, "-o", "-", "--json"],
                     ["optimize", self.two, "-o", "-", "--json"],
                     ["bench", self.two, "--set", "N=1,2", "--svg", "-", "--json"],
                     ["plan", self.two, "--svg", "-", "--json"]):
            self.assertIn(b"standard output", self.attnrun(*more, code=2).stderr)

    def test_standard_input(self):
        x = io.BytesIO()
        numpy.save(x, numpy.array([-3, 4], "f"))
        done = self.attnrun("run", self.two, "-i", "x=-", "-o", "-", input=x.getvalue())
        self.assertEqual(numpy.load(io.BytesIO(done.stdout))["a"].tolist(), [3, 4])
        self.assertIn(b"not a valid npy file", self.attnrun("run", self.two, "-i", "x=-", code=3,
                                                 input=b"nothing of the kind").stderr)
        done = self.attnrun("run", self.two, "--config", "-", input=b"set: { N: 5 }\njson: true")
        self.assertIn(b'"shape": [5]', done.stdout)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
