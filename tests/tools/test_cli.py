#!/usr/bin/env python3
"""The command line end to end: what it prints, writes, refuses, and how it ends.

usage: test_cli.py ATTNRUN PLUGIN
"""
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.dom.minidom
import zipfile
from pathlib import Path

import numpy
import onnx.numpy_helper

sys.path.insert(0, str(Path(__file__).parent))
import cli_models  # noqa: E402

ATTNRUN, PLUGIN = sys.argv[1:3]


def attnrun(*arguments, **options):
    return subprocess.run([ATTNRUN, *map(str, arguments)], capture_output=True, text=True,
                          timeout=60, **options)


class Cli(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.dir = Path(cls.folder.name)
        for name in ("matmul", "relu", "embedding", "endless", "swiglu", "missing", "divide"):
            setattr(cls, name, getattr(cli_models, name)(cls.dir / f"{name}.onnx"))
        cls.x = numpy.array([[1, -2, 3], [-4, 5, -6]], "f")
        cls.x_file = cls.dir / "x.npy"
        numpy.save(cls.x_file, cls.x)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def ok(self, *arguments, **options):
        done = attnrun(*arguments, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        return done.stdout

    def fails(self, code, pattern, *arguments, **options):
        """Exit code `code`, a line on stderr that the pattern matches, no more than a hint behind
        it, and no stdout."""
        done = attnrun(*arguments, **options)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertRegex(done.stderr, pattern)
        self.assertRegex(done.stderr, "^attnrun: .*\n(hint: .*\n)?$")
        self.assertEqual(done.stdout, "")

    # ---- what works ----
    def test_bare_model_prints_one_screen(self):
        out = self.ok(self.embedding)
        for word in ("model ", "inputs ", "nodes ", "memory ", "time ", "output ", "next "):
            self.assertRegex(out, f"(?m)^{word}")
        self.assertIn("random 0..36 (rows of 'table')", out)
        self.assertRegex(out, r"attention_mask i64\[B=1,S=64\] ones")  # 128 does not fit

    def test_same_seed_same_bytes(self):
        runs = [json.loads(self.ok("run", self.matmul, "--json", "--seed", s, "-t", t))
                for s, t in ((1, 1), (1, 2), (2, 1))]
        digests = [r["outputs"][0]["xxh64"] for r in runs]
        self.assertEqual(digests[0], digests[1])
        self.assertNotEqual(digests[0], digests[2])

    def test_set_and_shape(self):
        run = json.loads(self.ok("run", self.matmul, "--json", "--set", "M=2", "--set=K=3",
                                 "--shape", "b=3x5"))
        self.assertEqual(run["outputs"][0]["shape"], [2, 5])
        run = json.loads(self.ok("run", self.matmul, "--json", "--shape", "a=[2,3]"))
        self.assertEqual(run["inputs"][1]["shape"][0], 3)

    def test_made_up_lengths_of_a_past(self):
        path = cli_models.with_past(self.dir / "past.onnx")
        for sets, shapes in (((), [[1, 128], [1, 128], [1, 2, 0, 4]]),
                             (("P=5",), [[1, 128], [1, 133], [1, 2, 5, 4]]),
                             (("P=5", "S=3"), [[1, 3], [1, 8], [1, 2, 5, 4]])):
            run = json.loads(self.ok("run", path, "--json", *(f"--set={s}" for s in sets)))
            self.assertEqual([i["shape"] for i in run["inputs"]], shapes)

    def test_made_up_sizes_are_found_by_trying(self):
        for named in (True, False):
            path = cli_models.detector(self.dir / "detector.onnx", named)
            run = json.loads(self.ok(path, "--json"))
            (batch, samples), state = (i["shape"] for i in run["inputs"])
            self.assertGreaterEqual(samples, 256)
            self.assertEqual((state[1], batch), (1, 1))
            self.assertIn("these were found after", " ".join(self.ok(path).split()))
        path = cli_models.two_widths(self.dir / "widths.onnx")
        run = json.loads(self.ok(path, "--json"))
        self.assertEqual([i["shape"][1] for i in run["inputs"]], [80, 48])
        path = cli_models.never(self.dir / "never.onnx")
        self.fails(5, r"Concat.*sizes were tried, and none fits.*--set S=\.\.\. --set W=\.\.\., "
                      r"or with -i", path)
        self.fails(5, r"Concat[^;]*$", "run", path, "--set=S=1", "--set=W=1")

    def test_outputs_of_made_up_inputs_that_are_not_finite(self):
        path = cli_models.bounds(self.dir / "bounds.onnx")
        words = "note made-up inputs gave outputs that are not finite: try -i low=... " \
                "-i high=..."
        for how in ((), ("--print", "summary")):
            self.assertIn(words, " ".join(self.ok("run", path, *how).split()))
        self.assertIn("-i low=", json.loads(self.ok("run", path, "--json"))["note"])
        self.assertNotIn("note", self.ok("run", self.relu))
        self.assertNotIn("note", json.loads(self.ok("run", self.relu, "--json")))

    def test_plan_makes_no_data(self):
        """Inputs of 2^42 bytes: nobody has memory for them, nor time to fill them."""
        sizes = ("--set=M=1048576", "--set=K=1048576", "--set=N=1")
        plan = json.loads(self.ok("plan", self.matmul, "--json", "--max-memory", "64M", *sizes))
        self.assertEqual(plan["inputs"][0]["shape"], [1048576, 1048576])
        self.assertGreaterEqual(plan["arena_bytes"], 4 * 1048576)
        self.assertIn("a f32[M=1048576,K=1048576]", self.ok("plan", self.matmul, *sizes))

    def test_states_of_timed_runs(self):
        path = cli_models.with_cache(self.dir / "cache.onnx")
        sizes = ("--set=P=7", "--set=N=2")
        plain = json.loads(self.ok("plan", path, *sizes, "--json"))["arena_bytes"]
        for states in (("past_*=present_*",), ("past_k=present_k", "past_v=present_v")):
            states = [f"--state={s}" for s in states]
            kept = json.loads(self.ok("plan", path, *sizes, *states, "--json"))["arena_bytes"]
            self.assertLess(kept, plain)
            self.ok("bench", path, *sizes, *states, "-n", 20)
        for state, words in (("past_k", "expected PAST=PRESENT"), ("q*=k*", "there is no input of"),
                             ("past_*=p_*", "no output p_k"), ("k=present_k=", "no output")):
            self.fails(2, words, "bench", path, "--state", state)

    def test_inputs_and_outputs_in_every_form(self):
        expected = numpy.maximum(self.x, 0)
        archive, single, folder = self.dir / "in.npz", self.dir / "y.npy", self.dir / "out"
        numpy.savez_compressed(archive, x=self.x)
        pb = self.dir / "x.pb"
        pb.write_bytes(onnx.numpy_helper.from_array(self.x, "x").SerializeToString())
        inputs = self.dir / "inputs"
        inputs.mkdir()
        numpy.save(inputs / "x.npy", self.x)
        forms = [("-i", f"x={self.x_file}"), ("-i", f"x={archive}"), ("-i", f"x={archive}:x"),
                 ("-i", archive), ("-i", f"x={pb}"), ("--inputs", inputs),
                 ("-i", "x=[[1,-2,3],[-4,5,-6]]")]
        for form in forms:
            self.ok("run", self.relu, *form, "-o", single, "-q")
            numpy.testing.assert_array_equal(numpy.load(single), expected)
        out = self.dir / "out.npz"
        self.ok("run", self.relu, "-i", f"x={self.x_file}", "-o", out, "-q")
        self.assertIsNone(zipfile.ZipFile(out).testzip())
        numpy.testing.assert_array_equal(numpy.load(out)["y"], expected)
        self.ok("run", self.relu, "-i", f"x={self.x_file}", "-o", f"{folder}/", "-q")
        numpy.testing.assert_array_equal(numpy.load(folder / "y.npy"), expected)

    def test_words_as_inputs(self):
        out = self.ok("run", self.relu, "-i", "x=ones", "--print", "full")
        self.assertEqual(out, "y f32[2,3]\n[[1, 1, 1],\n[1, 1, 1]]\n")

    def test_big_archive_entries_and_fortran_order(self):
        a = numpy.asfortranarray(numpy.arange(12, dtype="f").reshape(3, 4))
        numpy.save(self.dir / "a.npy", a)
        numpy.save(self.dir / "b.npy", numpy.eye(4, dtype=">f4"))
        out = self.dir / "ab.npy"
        self.ok("run", self.matmul, "-i", f"a={self.dir}/a.npy", "-i", f"b={self.dir}/b.npy",
                "-o", out, "-q")
        numpy.testing.assert_array_equal(numpy.load(out), a)

    def test_check_against_reference(self):
        ref = self.dir / "ref.npz"
        numpy.savez(ref, y=numpy.maximum(self.x, 0))
        given = ("-i", f"x={self.x_file}")
        self.assertIn("1 passed, 0 failed", self.ok("check", self.relu, "--ref", ref, *given))
        numpy.savez(ref, y=self.x)
        done = attnrun("check", self.relu, "--ref", ref, *given)
        self.assertEqual(done.returncode, 1)
        self.assertIn("3 of 6 elements", done.stdout)
        self.assertIn("0 passed, 1 failed", done.stdout)

    def make_test_folder(self, name, y, n_sets=1, tolerance=None):
        folder = self.dir / "folders" / name
        for k in range(n_sets):
            (folder / f"test_data_set_{k}").mkdir(parents=True, exist_ok=True)
            for word, array in (("input_0", self.x), ("output_0", y)):
                (folder / f"test_data_set_{k}" / f"{word}.pb").write_bytes(
                    onnx.numpy_helper.from_array(array).SerializeToString())
        (folder / "model.onnx").write_bytes(Path(self.relu).read_bytes())
        if tolerance:
            (folder / "tol.txt").write_text(tolerance)
        return folder

    def test_check_folders(self):
        y = numpy.maximum(self.x, 0)
        self.make_test_folder("good", y, n_sets=2)
        self.make_test_folder("loose", y + numpy.float32(0.01), tolerance="0 0.1\n")
        self.make_test_folder("bad", y + 1)
        self.make_test_folder("shape", y.reshape(3, 2))
        self.make_test_folder("dtype", y.astype("d"))
        done = attnrun("check", self.dir / "folders", "--list-passed")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"(?m)^PASS .*/good$")
        self.assertRegex(done.stdout, r"(?m)^FAIL .*/bad: .*6 of 6 elements")
        self.assertRegex(done.stdout, r"(?m)^FAIL .*/shape: .*f32\[2,3\], expected f32\[3,2\]")
        self.assertRegex(done.stdout, r"(?m)^FAIL .*/dtype: .*expected f64\[2,3\]")
        self.assertEqual(done.stdout.splitlines()[-1], "2 passed, 3 failed")
        out = self.ok("check", self.dir / "folders" / "good", "--isolate")
        self.assertTrue(out.endswith("equal\n1 passed, 0 failed\n"), out)
        self.assertIn("1 passed, 0 failed",
                      self.ok("check", self.dir / "folders", "--filter", "go*"))
        report = json.loads(attnrun("check", self.dir / "folders", "--json").stdout)
        self.assertEqual((report["passed"], report["failed"]), (2, 3))
        self.assertEqual(len(report["folders"]), 5)
        out = self.ok("check", self.dir / "folders" / "bad", "--atol", "2")
        self.assertRegex(out, "max abs 1.00e.00 .*\n1 passed, 0 failed\n$")
        self.fails(2, "nothing to check", "check", self.dir / "folders", "--filter", "zzz")

    def test_check_of_broken_folders(self):
        y = numpy.maximum(self.x, 0)
        for name, file, words in (("empty", "input_0.pb", "the file is empty"),
                                  ("more", "input_1.pb", "input_1.pb, but the model has 1 input")):
            data = self.make_test_folder(f"../broken/{name}", y) / "test_data_set_0"
            (data / file).write_bytes(b"")
            self.assertIn(words, attnrun("check", self.dir / "broken" / name).stdout)

    def test_plan_of_many_workers(self):
        def plan(*more):
            return json.loads(self.ok("plan", self.embedding, "--json", *more))
        one = plan()
        self.assertNotIn("workers", one)
        each = 1000 + sum(one[f"{name}_bytes"] for name in
                          ("arena", "packed", "folded", "side_heap"))
        shared = one["weights_bytes"]
        three = plan("--workers", "3", "--process", "1000")
        self.assertEqual((three["worker_bytes"], three["shared_bytes"],
                          three["workers_bytes"]), (each, shared, 3 * each + shared))
        for spare, fit in ((0, 5), (each - 1, 5), (each, 6)):
            size = str(shared + 5 * each + spare)
            made = plan("--memory", size, "--process", "1000")
            self.assertEqual((made["max_workers"], made["workers"]), (fit, fit))
        self.assertIn("room for 5 in", self.ok("plan", self.embedding, "--process", "1000",
                                            "--memory", str(shared + 5 * each)))
        self.fails(6, "5 fit", "plan", self.embedding, "--process", "1000", "--workers", "6",
                   "--memory", str(shared + 5 * each))
        self.fails(6, "0 fit", "plan", self.embedding, "--memory", "1K")
        self.fails(6, "overflow", "plan", self.embedding, "--workers", "1000000",
                   "--process", str(2**62))

    def test_plan_and_its_drawing(self):
        svg = self.dir / "plan.svg"
        plan = json.loads(self.ok("plan", self.embedding, "--json", "--svg", svg))
        self.assertGreaterEqual(plan["arena_bytes"], plan["lower_bound_bytes"])
        for block in plan["blocks"]:
            self.assertLessEqual(block["offset"] + block["bytes"], plan["arena_bytes"])
        drawing = xml.dom.minidom.parse(str(svg))
        titles = [t for t in drawing.getElementsByTagName("title")
                  if t.parentNode.tagName == "rect"]
        self.assertEqual(len(titles), len(plan["blocks"]))
        words = [t.firstChild.data for t in drawing.getElementsByTagName("text") if t.firstChild]
        for word in ("made by", "alive at the peak", "offset in the arena", "step"):
            self.assertIn(word, words)
        for maker in {b["op_type"] for b in plan["blocks"] if b["name"] != "scratch"}:
            self.assertIn(maker, words)
        self.assertIn("prefers-color-scheme:dark", svg.read_text("utf-8"))
        self.assertIn("ratio", self.ok("plan", self.embedding))

    def test_plan_of_more_threads(self):
        shown = self.ok("plan", self.embedding, "-t", 2)
        phases, _, bounds = shown.partition("\nphases, with estimated times")[2].partition(
            "\nestimated speed-up by threads, and the time that is lost, in us\n")
        self.assertIn("each us", phases)
        head, *rows = bounds.splitlines()
        self.assertEqual(head.split(), "threads at most one thread longest tasks barriers limited "
                         "by".split())
        self.assertEqual([row.split()[0] for row in rows[:4]], ["2", "8", "16", "64"])
        self.assertLessEqual(max(map(len, bounds.splitlines())), 80)

    def test_bench_of_contexts_nodes_and_a_base(self):
        base = json.loads(self.ok("bench", self.matmul, "--json", "-n", 5, "-t", 1, "--per-node"))
        self.assertEqual(base["contexts"], 1)
        nodes = base["nodes"]
        self.assertEqual([n["op_type"] for n in nodes if "flops" in n][:1], ["MatMul"])
        self.assertTrue(all(n["read_bytes"] > 0 and n["written_bytes"] > 0 for n in nodes))
        (self.dir / "base.json").write_text(json.dumps(base), "utf-8")
        both = json.loads(self.ok("bench", self.matmul, "--json", "-n", 5, "-t", 1,
                                  "--concurrency", 3, "--against", self.dir / "base.json"))
        self.assertEqual((both["contexts"], both["runs"]), (3, 15))
        against = both["against"]
        self.assertFalse(against["interleaved"])
        ratio = both["median_ms"] / base["median_ms"]  # of times that are rounded
        self.assertAlmostEqual(against["median_ratio"], ratio, 4)
        scale = both["fp32_peak_gflops"] / base["fp32_peak_gflops"]
        self.assertAlmostEqual(against["median_scaled_ratio"], against["median_ratio"] * scale, 6)
        self.assertEqual(against["arena_ratio"], 1)
        shown = self.ok("bench", self.matmul, "-n", 2, "--against", self.dir / "base.json")
        self.assertIn("not interleaved", shown)
        (self.dir / "no.json").write_text("{}", "utf-8")
        # The earlier result is read first: before the model, and so before all runs.
        for model in (self.matmul, self.dir / "none.onnx"):
            self.fails(5, "is not a result of attnrun bench", "bench", model, "--against",
                       self.dir / "no.json")
        (self.dir / "base.txt").write_text("{}", "utf-8")
        self.fails(3, "ends in .json", "bench", self.matmul, "--against", self.dir / "base.txt")

    def test_bench_fields(self):
        bench = json.loads(self.ok("bench", self.relu, "-t", 1, "--repeat", 3, "--json"))
        for key in ("load_ms", "first_ms", "min_ms", "median_ms", "arena_bytes",
                    "weights_bytes", "peak_rss_bytes", "isa", "threads"):
            self.assertIn(key, bench)
        self.assertEqual((bench["threads"], bench["runs"]), (1, 3))
        self.assertIn("median", self.ok("bench", self.relu, "-n", 2))

    def test_inspect(self):
        out = self.ok("inspect", self.embedding)
        self.assertIn("ids i64[B,S]", out)
        self.assertIn("ai.onnx 18", out)
        facts = json.loads(self.ok("inspect", self.embedding, "--json", "--layers",
                                   "--weights"))
        self.assertEqual(facts["opsets"], {"ai.onnx": 18})
        self.assertEqual(facts["inputs"][0]["shape"], ["B", "S"])
        self.assertEqual(facts["subgraphs"], [])
        done = attnrun("inspect", self.missing, "--coverage")
        self.assertEqual(done.returncode, 4)
        self.assertRegex(done.stderr, "Nowhere.*Unheard")

    def test_ops_doctor_help_version(self):
        ops = json.loads(self.ok("ops", "--json"))["ops"]
        self.assertIn("MatMul", [op["name"] for op in ops if op["domain"] == ""])
        self.assertIn("example", self.ok("ops", "--plugin", PLUGIN, "--domain", "example"))
        self.assertIn("isa", self.ok("doctor"))
        self.assertIn("threads", json.loads(self.ok("doctor", "--json")))
        for command in ("run", "check", "plan", "inspect", "ops", "bench", "doctor"):
            self.assertIn("--", self.ok("help", command))
            self.assertEqual(self.ok(command, "--help"), self.ok("help", command))
        self.assertRegex(self.ok("version"), r"^attnrun \d+\.\d+\.\d+")
        self.assertEqual(self.ok("--version"), self.ok("version"))
        self.assertIn(json.loads(self.ok("version", "--json"))["version"], self.ok("version"))
        self.assertIn("Exit codes", self.ok())

    def test_doctor_sees_the_affinity(self):
        cpu = min(os.sched_getaffinity(0))
        environment = {k: v for k, v in os.environ.items() if "NUM_THREADS" not in k}
        done = subprocess.run(["taskset", "-c", str(cpu), ATTNRUN, "doctor", "--json"],
                              capture_output=True, text=True, timeout=60, env=environment)
        self.assertEqual(json.loads(done.stdout)["threads"], 1)

    def test_bench_tells_time_and_memory(self):
        facts = json.loads(self.ok("bench", self.matmul, "--json", "--repeat", 3))
        self.assertGreaterEqual(facts["load_ms"], facts["pack_ms"])
        self.assertGreater(facts["arena_bytes"], 0)
        self.assertGreaterEqual(facts["allocated_peak_bytes"],
                                facts["arena_bytes"] + facts["packed_bytes"])
        for name in ("base", "loaded", "above_base", "runs", "peak"):  # the machine's: told
            self.assertGreaterEqual(facts[f"{name}_rss_bytes"], 0, name)

    def test_plugin(self):
        self.fails(4, "example.*Swiglu", self.swiglu)
        a, b, y = (self.dir / f"{n}.npy" for n in "aby")
        numpy.save(a, numpy.linspace(-3, 3, 40001).astype("f"))
        numpy.save(b, numpy.linspace(1, 2, 40001).astype("f"))
        self.ok("run", self.swiglu, "--plugin", PLUGIN, "-i", f"a={a}", "-i", f"b={b}", "-o", y,
                "-q")
        a, b, y = map(numpy.load, (a, b, y))
        numpy.testing.assert_allclose(y, 2 * a / (1 + numpy.exp(-a)) * b, rtol=1e-5, atol=1e-6)
        self.fails(5, "SHAPE.*Swiglu.*differ", "run", self.swiglu, "--plugin", PLUGIN, "-i",
                   "a=[1,2]", "-i", "b=[1,2,3]", "--separate-dims")

    def test_config(self):
        config = self.dir / "run.yaml"
        config.write_text("threads: 1\njson: true\nset: { M: 2, N: 5 }\nshape: { a: [2, 3] }\n"
                          "input: { b: ones }\nmax-memory: 64M\n")
        run = json.loads(self.ok("run", self.matmul, "--config", config))
        self.assertEqual((run["threads"], run["outputs"][0]["shape"]), (1, [2, 5]))
        run = json.loads(self.ok("run", self.matmul, "-c", config, "-t", "2"))
        self.assertEqual(run["threads"], 2)

    def test_profile(self):
        self.assertIn("Relu", self.ok("run", self.relu, "--profile"))
        rows = json.loads(self.ok("run", self.matmul, "--set", "M=2", "--set", "N=5", "--shape",
                                  "a=2x3", "--profile", "--json"))["profile"]
        self.assertEqual([(r["op_type"], r["calls"], r["flops"], r["bytes"]) for r in rows],
                         [("MatMul", 1, 2 * 2 * 3 * 5, 4 * (2 * 3 + 3 * 5 + 2 * 5))])

    def test_trace(self):
        path = self.dir / "trace.json"
        self.ok("run", self.embedding, "-q", "-t", "2", "--trace", path)
        text = self.ok("run", self.embedding, "-t", "1", "--trace", "-")
        for trace in (json.loads(path.read_text()), json.loads(text)):
            events = trace["traceEvents"]
            steps = [e for e in events if e["ph"] == "X" and e["tid"] == 0]
            ranges = [e for e in events if e["ph"] == "X" and e["tid"] > 0]
            names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
            self.assertEqual(names[0], "steps")
            self.assertTrue(steps and ranges)
            self.assertLessEqual({e["tid"] for e in ranges}, set(names))
            for step in steps:
                own = [e for e in ranges if e["args"]["index"] == step["args"]["index"]]
                self.assertEqual(sum(e["args"]["to"] - e["args"]["from"] for e in own),
                                 step["args"]["tasks"], step)
                self.assertEqual({e["name"] for e in own} | {step["name"]}, {step["name"]})
                for e in own:
                    self.assertGreaterEqual(e["ts"], step["ts"])
        for words in (("--print", "full"), ("--profile",), ("-o", "-")):
            self.fails(2, "standard output", "run", self.embedding, "--trace", "-", *words)

    def test_no_fusion_and_isa_agree(self):
        outputs = []
        for more in ((), ("--no-fusion",), ("--isa", "base"), ("--copy-weights",)):
            path = self.dir / "fusion.npy"
            self.ok("run", self.embedding, "-q", "-o", path, "--set", "S=9", *more)
            outputs.append(numpy.load(path))
        for other in outputs[1:]:
            numpy.testing.assert_allclose(other, outputs[0], rtol=1e-4, atol=1e-4)

    # ---- what is refused ----
    def test_usage(self):
        refused = [
            (["rnu", self.relu], "neither a command nor a file .did you mean 'run'"),
            (["run"], "an argument is missing: attnrun run"),
            (["run", self.relu, self.relu], "unexpected argument"),
            (["run", self.relu, "--treads", "2"], "unknown option '--treads' .did you mean "
             "'--threads'"),
            (["run", self.relu, "--threads", "0"], "whole number from 1 to 1024"),
            (["run", self.relu, "--threads", "two"], "'two' is not a whole number"),
            (["run", self.relu, "--threads"], "--threads needs a value"),
            (["run", self.relu, "--isa", "mmx"],
             "'mmx' is not an instruction set; known are base, avx2, "),
            (["run", self.relu, "--max-memory", "2X"], "a size such as"),
            (["run", self.relu, "--timeout", "-1s"], "a time such as"),
            (["run", self.relu, "--print", "loud"], "one of full.summary.none"),
            (["run", self.relu, "--svg", "x"], "takes no --svg"),
            (["run", self.relu, "-Z"], "takes no option"),
            (["run", self.relu, "-i", "x"], "neither NAME=WHAT nor an npz file"),
            (["run", self.relu, "-i", "x=words"], "neither an npy, npz or pb file"),
            (["run", self.relu, "-i", "x="], "a value is missing after the ="),
            (["run", self.matmul, "--set", "M"], "not SYMBOL=N"),
            (["run", self.matmul, "--set", "Q=2"], "no input has a dimension 'Q'"),
            (["run", self.matmul, "--shape", "a=2y"], "not a shape"),
            (["run", self.relu, "-o", "there"], "neither an npz, npy or json file"),
            (["check", self.relu], "its expected outputs are missing"),
            (["check", self.relu, "--ref", self.x_file, "--rtol", "-1"], "a number of 0 or more"),
            (["help", "dance"], "no command 'dance'"),
        ]
        for arguments, pattern in refused:
            with self.subTest(arguments=arguments):
                self.fails(2, "USAGE: .*" + pattern, *arguments)

    def test_inputs_that_do_not_fit(self):
        numpy.save(self.dir / "d.npy", self.x.astype("d"))
        numpy.save(self.dir / "wide.npy", numpy.zeros((2, 4), "f"))
        numpy.savez(self.dir / "other.npz", z=self.x)
        refused = [
            (["-i", f"x={self.dir}/d.npy"], r"input 'x' is f64\[2,3\], expected f32\[2,3\]"),
            (["-i", f"x={self.dir}/wide.npy"], r"is f32\[2,4\], expected f32\[2,3\]"),
            (["-i", "x=[[1,2],[3,4]]"], r"is f32\[2,2\], expected f32\[2,3\]"),
            (["-i", "xx=ones"], "no input 'xx' .did you mean 'x'"),
            (["-i", "y=ones"], "no input 'y'"),
            (["-i", "x=[[1,2,3],[4,5]]"], "lists of different length"),
            (["-i", "x=[[1,2,3],[4,5,six]]"], "no number"),
            (["-i", "x=[[1,2,3],4]"], "different depth"),
            (["-i", 'x=["a"]'], "a string, expected a number"),
            (["-i", self.dir / "other.npz"], "no input 'z'"),
            (["-i", f"x={self.dir}/other.npz"], "has no array 'x'"),
        ]
        for arguments, pattern in refused:
            with self.subTest(arguments=arguments):
                self.fails(5, pattern, "run", self.relu, *arguments)
        self.fails(5, r"SHAPE: node 'product' \(MatMul\)", "run", self.matmul, "-i",
                   f"a={self.x_file}", "-i", f"b={self.x_file}", "--separate-dims")
        self.fails(5, "input 'b' is not given\n", "run", self.matmul, "-i", f"a={self.x_file}")
        self.ok("run", self.matmul, "-q", "-i", f"a={self.x_file}", "-i", "b=random")
        self.ok("run", self.embedding, "-q", "-i", "ids=[[1,2]]")  # the mask is of ones
        self.fails(5, "does not fit i64", "run", self.embedding, "-i", "ids=[[1.5]]")
        self.fails(7, r"RANGE: .*Gather.*37", "run", self.embedding, "-i", "ids=[[5,37]]", "-i",
                   "attention_mask=[[1,1]]")

    def test_files_that_cannot_be_read_or_written(self):
        self.fails(3, "IO: .*none.onnx", "run", self.dir / "none.onnx")
        self.fails(3, "IO: ", "run", self.relu, "-i", "x=none.npy")
        self.fails(3, "IO: ", "run", self.relu, "-i", f"x={self.dir}/none.npz")
        self.fails(3, "IO: .*folder", "run", self.relu, "--inputs", self.dir / "none")
        self.fails(3, "IO: ", "run", self.relu, "--config", self.dir / "none.yaml")
        self.fails(3, "IO: cannot write", "run", self.relu, "-q", "-o", "/none/there/y.npy")
        self.fails(3, "IO: cannot make", "run", self.relu, "-q", "-o", "/none/there/")
        self.fails(3, "none does not exist", "check", self.dir / "none")
        broken = self.dir / "broken.onnx"
        broken.write_bytes(Path(self.relu).read_bytes()[:40])
        self.fails(3, "PARSE|MODEL", "run", broken)

    def test_config_faults(self):
        faults = [("threads: 1\nthreads: 2\n", "twice"), ("treads: 1\n", "did you mean"),
                  ("threads: 1000000\n", "1 to 1024"), ("threads: 99999999999999999999\n", "1 to"),
                  ("threads: &a 1\n", "anchors"), ("a: &a [*a]\n", "unknown key|anchors"),
                  ("!!python/object {}\n", "tags"), ("[1, 2]\n", "option: value"),
                  ("threads: [\n", ":"), ("threads: {a: 1}\n", "plain value"),
                  ("svg: x\n", "takes no 'svg'"), ("--- {}\n--- {}\n", "second document"),
                  ("json: maybe\n", "true or false"), (b"threads: \xff\xfe\n", ":")]
        path = self.dir / "fault.yaml"
        for text, pattern in faults:
            with self.subTest(text=text):
                path.write_bytes(text if isinstance(text, bytes) else text.encode())
                self.fails(2, "CONFIG: .*(" + pattern + ")", "run", self.relu, "-c", path)
        for text in ("[" * 60000, "{a: " * 16000, "input: [" + "1," * 1200 + "]",
                     "".join(f"k{i}: 1\n" for i in range(20000))):
            path.write_text(text)
            done = attnrun("run", self.relu, "-c", path)
            self.assertIn(done.returncode, (2, 6), done.stderr)

    def test_missing_operators_all_at_once(self):
        self.fails(4, "UNSUPPORTED: .*Nowhere.*Unheard", "run", self.missing)

    def test_limits(self):
        self.fails(6, "MEMORY", "run", self.matmul, "--max-memory", "1M", "--set", "M=4096",
                   "--set", "N=4096", "--set", "K=1")
        self.fails(8, "NONFINITE", "run", self.divide, "--validate", "-q")
        self.fails(124, "TIME", "run", self.endless, "--timeout", "500ms")

    def test_deadline_within_an_operator(self):
        slow = [cli_models.many_samples(self.dir / "samples.onnx"),
                cli_models.large_matrix(self.dir / "det.onnx", "Det")]
        for model in slow:
            with self.subTest(model=model):
                self.fails(124, "TIME", "run", model, "--timeout", "200ms")
                for number in (signal.SIGINT, signal.SIGTERM):
                    run = subprocess.Popen([ATTNRUN, "run", model], stderr=subprocess.PIPE)
                    self.wait_for_handler(run, number)
                    time.sleep(0.3)
                    run.send_signal(number)
                    run.communicate(timeout=60)
                    self.assertEqual(run.returncode, 128 + number)

    @staticmethod
    def wait_for_handler(process, number):
        """Until the program has a handler of its own for this signal."""
        end = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < end:
            status = Path(f"/proc/{process.pid}/status").read_text()
            caught = int(re.search(r"(?m)^SigCgt:\s*([0-9a-f]+)", status)[1], 16)
            if caught >> number - 1 & 1:
                return
            time.sleep(0.01)

    def test_signals(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            out = self.dir / "late.npy"
            run = subprocess.Popen([ATTNRUN, "run", self.endless, "-o", out],
                                   stderr=subprocess.PIPE)
            self.wait_for_handler(run, number)
            time.sleep(0.5)  # most often it runs by then; the answer is the same before
            run.send_signal(number)
            run.communicate(timeout=60)
            self.assertEqual(run.returncode, 128 + number)
            self.assertFalse(out.exists())

    def test_standard_output(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([ATTNRUN, "help"], stdout=full, stderr=subprocess.PIPE,
                                  text=True)
        self.assertEqual((done.returncode, "to standard output" in done.stderr), (3, True))
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run([ATTNRUN, "ops", "--json"], stdout=writer, stderr=subprocess.PIPE)
        os.close(writer)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stderr, b"")

    def test_full_disk_leaves_the_old_file(self):
        out = self.dir / "old.npz"
        out.write_bytes(b"old")

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

        nowhere = dict(os.environ, LLVM_PROFILE_FILE="/dev/null")  # of tests/coverage.sh
        self.fails(3, "cannot write", "run", self.matmul, "-q", "-o", out, "--set", "M=128",
                   "--set", "N=128", preexec_fn=limit, env=nowhere)
        self.assertEqual(out.read_bytes(), b"old")
        self.assertEqual(list(self.dir.glob("*.tmp.*")), [])

    def test_names_are_safe(self):
        from onnx import TensorProto, helper
        evil = "../../\x1b[31m/y"
        path = cli_models.save(self.dir / "evil.onnx",
                               [helper.make_node("Relu", ["x"], [evil])],
                               [("x", TensorProto.FLOAT, [2])],
                               [(evil, TensorProto.FLOAT, [2])])
        self.assertNotIn("\x1b", self.ok(path))
        folder = self.dir / "evil"
        self.ok("run", path, "-q", "-o", f"{folder}/")
        self.assertEqual(len(list(folder.iterdir())), 1)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
