#!/usr/bin/env python3
"""Progress: on a terminal, what takes over a second says so on a line that goes away; in a pipe
nothing is said.

usage: test_progress.py ROOT ATTNRUN
"""
import os
import pty
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

ROOT, ATTNRUN = Path(sys.argv[1]).resolve(), str(Path(sys.argv[-1]).resolve())


def on_terminal(command, folder, limit_s=120):
    """What a command writes to a terminal that is its standard error."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs, cwd=folder) as child:
        os.close(theirs)
        text = b""
        try:
            while piece := os.read(ours, 4096):
                text += piece
        except OSError:  # the other end is closed
            pass
        child.wait(limit_s)
    os.close(ours)
    return child.returncode, text.decode()


class Progress(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.dir = Path(cls.folder.name)
        cli_models.save(cls.dir / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])],
                        [("x", TensorProto.FLOAT, ["N", 32])], [("y", TensorProto.FLOAT, None)],
                        [("w", numpy.ones((32, 32), "f"))])

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def shown(self, words, *arguments):
        """`words` are on the line, and the last thing that is written takes it away."""
        code, text = on_terminal([ATTNRUN, *arguments], self.dir)
        self.assertEqual(code, 0, text)
        for word in words:
            self.assertRegex(text, rf"\r\x1b\[K{word}[^\r]*\d s")
        self.assertTrue(text.endswith("\r\x1b[K"), repr(text[-80:]))
        quiet = subprocess.run([ATTNRUN, *arguments], capture_output=True, text=True, check=True,
                               timeout=120, cwd=self.dir)
        self.assertEqual(quiet.stderr, "")
        return text

    def test_bench(self):
        # A run of one row takes under a microsecond: a million of them would end too soon.
        long = ("--set", "N=512", "--time", "1500ms", "-t", "1")
        text = self.shown(["runs"], "bench", "m.onnx", *long)
        done, total = map(int, re.findall(r"runs  (\d+)/(\d+)", text)[-1])
        self.assertLess(total, 3 * done + 10)  # what the time allows, not what may run at most
        self.shown(["runs of all contexts"], "bench", "m.onnx", *long, "--concurrency", "2")

    def test_sizes(self):
        self.shown(["sizes"], "bench", "m.onnx", "--set", "N=1,2,3,4", "--time", "400ms", "-t", "1")

    def test_rounds(self):
        """The other processes are quiet: the line is that of the rounds alone."""
        code, text = on_terminal([ATTNRUN, "bench", "m.onnx", "--time", "200ms", "-t", "1",
                                  "--against", ATTNRUN], self.dir)
        self.assertIn(code, (0, 1), text)
        self.assertEqual(set(re.findall(r"\x1b\[K([^\r]+?)  \d", text)), {"rounds"})

    def test_the_other_side_of_a_comparison(self):
        python = self.dir / "bin" / "python3"  # in the place of ONNX Runtime
        python.parent.mkdir()
        python.write_text("#!/bin/sh\nsleep 1.6\necho gone >&2\nexit 1\n")
        python.chmod(0o755)
        path = f"PATH={python.parent}:{os.environ['PATH']}"
        code, text = on_terminal(["env", path, ATTNRUN, "compare", "m.onnx", "--with", "ort"],
                                 self.dir)
        self.assertEqual(code, 4, text)
        self.assertIn("\r\x1b[KONNX Runtime  1 s", text)
        self.assertIn("\r\x1b[Kattnrun: UNSUPPORTED: --with ort: gone", text)

    def test_report(self):
        self.shown(["bench"], "report", "m.onnx", "-o", "r.html", "-t", "1", "--set", "N=1,2")

    def test_doctor(self):
        self.shown(["measuring this machine"], "doctor", "--bench", "-t", "1")

    def test_quiet(self):
        code, text = on_terminal([ATTNRUN, "bench", "m.onnx", "--time", "1500ms", "-q"], self.dir)
        self.assertEqual((code, text), (0, ""))

    def test_converter(self):
        """Its steps, with a step that takes long enough."""
        program = ("import sys, time; sys.path.insert(0, sys.argv[1])\n"
                   "from attnrun_convert import progress\n"
                   "with progress.step('exporting'):\n    time.sleep(1.6)\n"
                   "with progress.step('checking'):\n    pass\n")
        path = self.dir / "steps.py"
        path.write_text(program, "utf-8")
        command = [sys.executable, str(path), str(ROOT / "tools" / "convert")]
        code, text = on_terminal(command, self.dir)
        self.assertEqual(code, 0, text)
        self.assertIn("\r\x1b[Kexporting  1 s", text)
        self.assertNotIn("checking", text)
        self.assertTrue(text.endswith("\r\x1b[K"))
        self.assertEqual(subprocess.run(command, capture_output=True, check=True).stderr, b"")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
