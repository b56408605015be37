#!/usr/bin/env python3
"""Each command while calls of the system fail: memory, files, threads, the clock; a process that is
killed at each call with which it writes, and writers of one file at the same time.

usage: test_faults.py ATTNRUN FAIL_CALLS [--trials N]

FAIL_CALLS is the library of fail_calls.c. Of each command N calls fail (12, or 4 of a command that
measures the machine for seconds; 0: each one), evenly spread over those that it makes, once and
from there on. It must say so in one sentence and with the exit code of memory or files, or do what
it does otherwise; an output is the whole file, or what was there before, and no temporary file
stays behind. It is killed at five times as many calls, and at the last ones.
"""
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import numpy
from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).parent))
import cli_models  # noqa: E402

ATTNRUN, FAIL_CALLS = (str(Path(a).resolve()) for a in sys.argv[1:3])
TRIALS = int(sys.argv[4]) if sys.argv[3:4] == ["--trials"] else 12
OLD = b"what was there before"
OK, IO, MEMORY = 0, 3, 6
# What differs from run to run: times, and what is in use at the moment.
TIMED = {"run", "bench", "report", "doctor", "check", "compare"}
SLOW = {"report"}


def spread(n, trials):
    """About so many of n calls, from the first one on; all where trials is 0."""
    return range(0, n, max(1, n // trials) if trials else 1)


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def commands(folder):
    """(arguments, the file that is written or None)"""
    model = cli_models.embedding(folder / "embedding.onnx")
    cut = cli_models.save(
        folder / "two.onnx",
        [helper.make_node("Abs", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["b"])],
        [("x", TensorProto.FLOAT, ["N"])], [("b", TensorProto.FLOAT, ["N"])])
    out = folder / "out"
    subprocess.run([ATTNRUN, "run", model, "-q", "-o", folder / "expected.npz"], check=True)
    for words, written in [
            (["run", model, "-q", "-t", "3"], "npz"), (["run", model, "-t", "3"], None),
            (["check", model, "--ref", folder / "expected.npz"], None),
            (["compare", model, "--per-node"], None),
            (["plan", model, "--json"], None), (["plan", model, "-q", "--svg"], "svg"),
            (["pack", model, "-q"], "attnpack"), (["compile", model, "-q"], "c"),
            (["optimize", model, "-q"], "onnx"),
            (["extract", cut, "-q", "--inputs", "a", "--outputs", "b"], "onnx"),
            (["inspect", model], None), (["ops", "--json"], None), (["ops", "Attention"], None),
            (["ops", "--used", model], None), (["bench", model, "-n", "2", "-t", "2"], None),
            (["report", model, "-q", "--set", "S=8"], "html"), (["doctor"], None),
            (["help", "run"], None), (["version"], None)]:
        path = None if written is None else out.with_suffix(f".{written}")
        if path is not None and words[-1] != "--svg":
            words = [*words, "-o"]
        yield [str(w) for w in words] + ([] if path is None else [str(path)]), path


class Faults(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)
        self.calls = self.dir / "calls"

    def attnrun(self, words, kind, n, mode):
        env = {**os.environ, "LD_PRELOAD": FAIL_CALLS, "ATTN_FAIL": f"{kind} {n} {mode}",
               "ATTN_CALLS": str(self.calls)}
        return subprocess.run([ATTNRUN, *words], capture_output=True, timeout=120, env=env,
                              stdin=subprocess.DEVNULL, check=False)

    def count(self, words, kind):
        done = self.attnrun(words, kind, 0, "count")
        self.assertEqual(done.returncode, OK, done.stderr)
        return int(self.calls.read_text()), done.stdout

    def no_temporary(self):
        self.assertEqual([p.name for p in self.dir.iterdir() if ".tmp." in p.name], [])

    def is_told(self, done, codes):
        """One sentence of attnrun, and hints."""
        self.assertIn(done.returncode, codes, done)
        said = [line for line in done.stderr.decode().splitlines()
                if line.startswith("attnrun: ")]
        self.assertTrue(said and said[-1].startswith(("attnrun: MEMORY: ", "attnrun: IO: ")),
                        done.stderr)

    def sweep(self, kind, codes, least):
        failed = 0
        for words, path in commands(self.dir):
            n, said = self.count(words, kind)
            written = path.read_bytes() if path is not None else b""
            trials = min(TRIALS, 4) if words[0] in SLOW else TRIALS
            for mode in ("once", "on"):
                for call in spread(n, trials):
                    with self.subTest(command=words[0], kind=kind, call=call, of=n, mode=mode):
                        if path is not None:
                            path.write_bytes(OLD)
                        done = self.attnrun(words, kind, call, mode)
                        failed += done.returncode != OK
                        if done.returncode != OK:
                            self.is_told(done, codes)
                        elif words[0] not in TIMED:
                            self.assertEqual(done.stdout, said)
                        if path is not None and words[0] not in TIMED | {"plan"}:
                            now = path.read_bytes()
                            self.assertTrue(now == written or (done.returncode != OK and
                                                               now == OLD), len(now))
                        self.no_temporary()
        print(f"{kind}: {failed} commands failed as they should")
        self.assertGreater(failed, least)

    def test_allocations_that_fail(self):
        self.sweep("memory", (MEMORY, IO), 150)

    def test_files_that_fail(self):
        self.sweep("files", (IO, MEMORY), 100)

    def test_threads_that_cannot_be_created(self):
        """What they would have done others do."""
        for words, _ in commands(self.dir):
            if words[0] not in ("run", "bench", "pack", "report"):
                continue
            for mode in ("once", "on"):
                for call in range(1 if TRIALS and words[0] in SLOW else 4):
                    with self.subTest(command=words, call=call, mode=mode):
                        done = self.attnrun(words, "threads", call, mode)
                        self.assertEqual(done.returncode, OK, done.stderr)

    def test_a_clock_that_jumps(self):
        """By an hour at each look at it; with a time limit the run may be late, and says so."""
        for words, path in commands(self.dir):
            with self.subTest(command=words):
                self.assertEqual(self.attnrun(words, "clock", 1, "count").returncode, OK)
        limited = ["run", str(self.dir / "embedding.onnx"), "-q", "--timeout", "1s"]
        late = self.attnrun(limited, "clock", 1, "count")
        self.assertEqual(late.returncode, 124, late)
        self.assertEqual(self.attnrun(limited, "clock", 0, "count").returncode, OK)

    def test_killed_at_calls_with_files(self):
        for words, path in commands(self.dir):
            if path is None or path.suffix not in (".npz", ".attnpack", ".onnx", ".c"):
                continue
            n, _ = self.count(words, "files")
            new = path.read_bytes()
            seen = set()
            for call in sorted({*spread(n, 5 * TRIALS), *range(max(0, n - 16), n)}):
                path.write_bytes(OLD)
                done = self.attnrun(words, "files", call, "kill")
                self.assertEqual(done.returncode, -signal.SIGKILL)
                now = path.read_bytes()
                self.assertIn(now, (OLD, new), (words[0], call, len(now)))
                seen.add(now)
            self.assertIn(OLD, seen)
            path.write_bytes(OLD)
            self.count(words, "files")  # what the killed ones left is in nobody's way
            self.assertEqual(path.read_bytes(), new)
            for left in self.dir.glob("*.tmp.*"):
                left.unlink()

    def large(self):
        """Some megabytes, so that writing takes time."""
        draw = numpy.random.default_rng(3)
        return cli_models.save(
            self.dir / "large.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])],
            [("x", TensorProto.FLOAT, ["N", 800])], [("y", TensorProto.FLOAT, ["N", 800])],
            [("w", draw.normal(size=(800, 800)).astype("f"))])

    def test_killed_at_random_times(self):
        path, model = self.dir / "out.attnpack", self.large()
        words = [ATTNRUN, "pack", model, "-q", "-o", str(path)]
        started = time.monotonic()
        subprocess.run(words, check=True)
        took, new = time.monotonic() - started, path.read_bytes()
        draw = random.Random(7)
        for _ in range(40 if TRIALS else 500):
            path.write_bytes(OLD)
            with subprocess.Popen(words, stderr=subprocess.DEVNULL) as process:
                time.sleep(draw.random() * took * 1.2)
                process.kill()
            self.assertIn(path.read_bytes(), (OLD, new))
        subprocess.run(words, check=True)
        self.assertEqual(path.read_bytes(), new)

    def test_writers_of_one_file(self):
        """Whoever is last wins; who reads meanwhile sees the whole file of one of them."""
        path, model = self.dir / "out.npy", cli_models.relu(self.dir / "relu.onnx", (400, 300))
        words = [ATTNRUN, "run", model, "-q", "-o", str(path), "--seed"]
        whole = set()
        for seed in ("1", "2"):
            subprocess.run([*words, seed], check=True)
            whole.add(path.read_bytes())
        self.assertEqual(len(whole), 2)
        wrong, end = [], threading.Event()

        def watch():
            while not end.is_set():
                wrong.extend([] if path.read_bytes() in whole else ["neither of the two"])

        watcher = threading.Thread(target=watch)
        watcher.start()
        for _ in range(15):
            writers = [subprocess.Popen([*words, seed]) for seed in ("1", "2", "1", "2")]
            self.assertEqual([w.wait() for w in writers], [0] * 4)
        end.set()
        watcher.join()
        self.assertEqual(wrong, [])
        self.no_temporary()

    def pair(self, seed, op):
        """The words that write a model and its data beside it, and both files."""
        draw = numpy.random.default_rng(seed)
        model = cli_models.save(
            self.dir / f"{op}.onnx", [helper.make_node("MatMul", ["x", "w"], ["p"]),
                                      helper.make_node(op, ["p"], ["y"])],
            [("x", TensorProto.FLOAT, ["N", 200])], [("y", TensorProto.FLOAT, ["N", 200])],
            [("w", draw.normal(size=(200, 200)).astype("f"))])
        words = ["optimize", model, "-q", "--external", "-o", str(self.dir / "out.onnx")]
        subprocess.run([ATTNRUN, *words], check=True)
        return words, self.read_pair()

    def read_pair(self):
        paths = [self.dir / "out.onnx", self.dir / "out.onnx.data"]
        return tuple(digest(p) if p.exists() else None for p in paths)

    def test_a_model_and_its_data(self):
        """A model never stands beside the data of another one. Where all calls fail from one on,
        and where the process is killed between two renames, no model may be left."""
        (old_words, old), (words, new) = self.pair(1, "Tanh"), self.pair(2, "Softmax")
        n, _ = self.count(words, "files")
        for mode in ("once", "on", "kill"):
            seen = set()
            for call in range(max(0, n - 24), n):
                subprocess.run([ATTNRUN, *old_words], check=True)
                done = self.attnrun(words, "files", call, mode)
                now = self.read_pair()
                allowed = {new} if done.returncode == OK else {old, new}
                if mode != "once" and now[0] is None:
                    now = None
                    self.assertNotEqual(done.returncode, OK)
                    self.assertIn(old[0], [digest(p) for p in self.dir.glob("*.tmp.*")])
                else:
                    self.assertIn(now, allowed, (mode, call, done))
                seen.add(now)
                for left in self.dir.glob("*.tmp.*"):
                    self.assertNotEqual(mode, "once", left)
                    left.unlink()
            self.assertIn(old, seen)

    def test_writers_of_a_model_and_its_data(self):
        pairs = [self.pair(1, "Tanh"), self.pair(2, "Softmax")]
        for _ in range(10):
            writers = [subprocess.Popen([ATTNRUN, *words]) for words, _ in pairs * 2]
            self.assertEqual([w.wait() for w in writers], [0] * 4)
            self.assertIn(self.read_pair(), [files for _, files in pairs])
        self.no_temporary()

    def test_standard_streams_that_are_closed(self):
        """No file that is opened takes the place of one, and its text."""
        path = self.dir / "out.npz"
        model = cli_models.embedding(self.dir / "embedding.onnx")
        words = [ATTNRUN, "run", model, "-vv", "-o", str(path)]
        subprocess.run(words, check=True, capture_output=True)
        new = path.read_bytes()
        for closed in ((0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)):
            path.write_bytes(OLD)
            done = subprocess.run(words, check=False, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL,
                                  preexec_fn=lambda fds=closed: [os.close(fd) for fd in fds])
            self.assertEqual(done.returncode, IO if 1 in closed else OK, closed)
            self.assertEqual(path.read_bytes(), new, closed)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
