#!/usr/bin/env python3
"""Ray Data and Apache Beam with two processes: poisoned documents, a killed process.

usage: PYTHONPATH=BUILD/python test_scale.py MODEL.onnx [--documents N]

Runs tools/examples/embed_ray.py and embed_beam.py on a Python with
tools/python/requirements-scale.txt, with MiniLM's real weights, and compares each embedding
with that of the text alone."""
import contextlib
import glob
import io
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
import unittest

import attnrun
import numpy as np
import pyarrow.parquet

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EXAMPLES = os.path.join(ROOT, "tools", "examples")
sys.path.insert(0, EXAMPLES)
import corpus

MODEL, DOCUMENTS = "", 60
# Ray gives its processes 30 s to start, however busy the machine is.
STARTS, NOT_STARTED = 5, "The current node timed out during startup"
POISONED = [f"first {corpus.Tokenize.POISON}", f"second {corpus.Tokenize.POISON}"]


class Scale(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.out = os.path.join(self.folder.name, "out")
        os.mkdir(self.out)

    def run_example(self, name, out, extra, once=None):
        command = [sys.executable, os.path.join(EXAMPLES, name), MODEL, out, "--workers", "2",
                   "--documents", str(DOCUMENTS), "--batch", "8", "--extra", json.dumps(extra)]
        command += ["--once", once] if once else []
        # The packed weights that the processes share lie where the test looks.
        cache = os.path.join(self.folder.name, "cache")
        places = [os.path.abspath(place) for place in os.environ["PYTHONPATH"].split(os.pathsep)]
        # A group of its own: what a dead runner leaves behind ends with the test.
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, start_new_session=True, cwd=self.folder.name,
                                   env={**os.environ, "PYTHONPATH": os.pathsep.join(places),
                                        "HOME": self.folder.name, "XDG_CACHE_HOME": cache})
        try:
            said, _ = process.communicate(timeout=900)
        finally:
            try:
                os.killpg(process.pid, 9)
            except ProcessLookupError:
                pass
        return process.returncode, said

    def check_rows(self, extra):
        """Each document once; the poisoned ones, and they alone, have an error. All processes
        opened one packed file."""
        packed = glob.glob(os.path.join(self.folder.name, "cache", "attnrun", "packed",
                                        "*.attnpack"))
        self.assertEqual(len(packed), 1, packed)
        rows = [row for path in sorted(glob.glob(os.path.join(self.out, "*.parquet")))
                for row in pyarrow.parquet.read_table(path).to_pylist()]
        expected = dict(corpus.documents(DOCUMENTS))
        expected.update({f"extra:{i}": text for i, text in enumerate(extra)})
        self.assertEqual(sorted(row["id"] for row in rows), sorted(expected))
        self.assertEqual(sorted(row["text"] for row in rows if row["error"]), sorted(POISONED))
        for row in rows:
            if row["error"]:
                self.assertIn("RANGE", row["error"])
        model, tokenize = attnrun.Model(MODEL), corpus.Tokenize()
        for row in rows[::5]:
            if not row["error"]:
                alone = model(**tokenize({"text": [row["text"]]}))["sentence_embedding"][0]
                np.testing.assert_allclose(row["embedding"], alone, atol=2e-6)

    def check_summary(self, said):
        """The last lines name each document that failed, with its sentence."""
        lines = said.splitlines()
        at = next(i for i, line in enumerate(lines) if line.endswith("2 documents failed"))
        self.assertTrue(lines[at].startswith(f"{DOCUMENTS + 1} embeddings in "), lines[at])
        self.assertEqual(sorted(line.split(":")[1] for line in lines[at + 1:at + 3]), ["0", "1"])
        self.assertTrue(all("RANGE" in line for line in lines[at + 1:at + 3]), lines[at + 1:])

    def test_progress_counts_what_all_processes_do(self):
        said, corpus.Progress.SECONDS = io.StringIO(), 0.02
        with contextlib.redirect_stderr(said), corpus.Progress(30) as progress:
            program = (f"import sys; sys.path.insert(0, {EXAMPLES!r}); import pickle; "
                       f"pickle.loads({pickle.dumps(progress)!r}).add(10)")
            for _ in range(2):
                subprocess.run([sys.executable, "-c", program], check=True)
            while "20 of 30 documents" not in said.getvalue():
                time.sleep(0.01)
            progress.add(25)  # a part that ran twice
            while "30 of 30 documents" not in said.getvalue():
                time.sleep(0.01)

    def test_ray_restarts_a_killed_worker_and_loses_nothing(self):
        once = os.path.join(self.folder.name, "once")
        extra = [*POISONED, f"a text with {corpus.Tokenize.FATAL}"]
        for _ in range(STARTS):
            code, said = self.run_example("embed_ray.py", self.out, extra, once)
            if NOT_STARTED not in said:
                break
        self.assertEqual(code, 0, said[-3000:])
        self.assertTrue(os.path.exists(once))
        self.check_rows(extra)
        self.check_summary(said)
        code, said = self.run_example("embed_ray.py", self.out, extra)
        self.assertEqual(code, 1)
        self.assertIn("holds Parquet files already", said)

    def test_beam_reports_a_killed_worker_and_a_second_run_completes(self):
        once = os.path.join(self.folder.name, "once")
        extra = [*POISONED, f"a text with {corpus.Tokenize.FATAL}"]
        part = os.path.join(self.out, "part")
        code, said = self.run_example("embed_beam.py", part, extra, once)
        self.assertTrue(os.path.exists(once), said[-3000:])
        self.assertNotEqual(code, 0)
        self.assertEqual(glob.glob(f"{part}*.parquet"), [])
        code, said = self.run_example("embed_beam.py", part, extra, once)
        self.assertEqual(code, 0, said[-3000:])
        self.check_rows(extra)
        self.check_summary(said)


if __name__ == "__main__":
    MODEL = os.path.abspath(sys.argv[1])
    if sys.argv[2:3] == ["--documents"]:
        DOCUMENTS = int(sys.argv[3])
    unittest.main(argv=sys.argv[:1])
