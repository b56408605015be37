#!/usr/bin/env python3
"""The examples of the operators' pages run: the model that a page writes, by its command, gives
what its PyTorch twin computes.

usage: test_operator_pages.py ROOT ATTNRUN [--full]

Every fifth page; --full: all. Operands come from the seeds in the pages.
"""
import os
import shlex
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy

ROOT, ATTNRUN = (Path(p).resolve() for p in sys.argv[1:3])
STEP = 1 if "--full" in sys.argv else 5
sys.path.insert(0, str(ROOT / "tools" / "manual"))
import operator_example  # noqa: E402

PAGES = sorted(p for p in (ROOT / "tools/manual/operators").glob("*.md") if p.stem != "README")
OPERATORS = operator_example.operators()[0]
F32 = (1e-4, 2e-5)  # the twin computes in f32, too


class Pages(unittest.TestCase):
    def test_each_operator_of_the_converter_has_a_page(self):
        self.assertEqual([p.stem for p in PAGES], sorted(OPERATORS))

    def run_page(self, page):
        """({output: array} of the command, names of the twin's script)"""
        model, command, twin = operator_example.blocks(page.read_text(encoding="utf-8"))
        exec(compile(model, page.name, "exec"), {})
        words = shlex.split(command)
        self.assertEqual(words[0], "attnrun")
        done = subprocess.run([ATTNRUN, *words[1:]], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        names = {}
        exec(compile(twin, page.name, "exec"), names)
        with numpy.load("result.npz") as results:
            return dict(results), names

    def test_the_examples_give_what_their_twins_compute(self):
        before = Path.cwd()
        for page in PAGES[::STEP]:
            with self.subTest(page=page.stem), tempfile.TemporaryDirectory() as folder:
                os.chdir(folder)
                try:
                    results, names = self.run_page(page)
                finally:
                    os.chdir(before)
                example = OPERATORS[page.stem].examples[0]
                self.assertEqual(len(results), example.outputs)
                rtol, atol = map(max, zip(example.tolerance, F32))
                for name, result in results.items():
                    self.assertGreater(numpy.ptp(result), 0, name)
                    numpy.testing.assert_allclose(result, names[name].numpy(), rtol, atol, name)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
