#!/usr/bin/env python3
"""attnrun bench: what it shows of nodes, contexts with states, and options that do not go together;
attnrun doctor --bench.

usage: test_bench_cli.py ATTNRUN
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).parent))
import cli_models  # noqa: E402

ATTNRUN = str(Path(sys.argv[-1]).resolve())


class Bench(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.dir = Path(cls.folder.name)
        cls.matmul = cli_models.matmul(cls.dir / "matmul.onnx")
        cls.relu = cli_models.relu(cls.dir / "relu.onnx")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def ok(self, *arguments, **options):
        done = subprocess.run([ATTNRUN, *map(str, arguments)], capture_output=True, text=True,
                              timeout=60, check=False, **options)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def fails(self, code, words, *arguments):
        done = subprocess.run([ATTNRUN, *map(str, arguments)], capture_output=True, text=True,
                              timeout=60, check=False)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        self.assertIn(words, done.stderr)

    def test_doctor_measures_the_machine(self):
        facts = json.loads(self.ok("doctor", "--bench", "--json", "--isa", "base"))
        for name in ("fp32_peak_gflops", "fp32_peak_all_gflops", "read_gbs", "read_all_gbs",
                     "l2_read_gbs"):
            self.assertGreater(facts[name], 0, name)
        self.assertNotIn("bf16_peak_gflops", facts)
        facts = json.loads(self.ok("doctor", "--json"))
        self.assertNotIn("read_gbs", facts)
        narrow = {"int8_peak_gops": ("vnni", "amx", "bf16", "dot"), "bf16_peak_gflops": ("bf16",)}
        measured = json.loads(self.ok("doctor", "--bench", "--json"))
        for name, words in narrow.items():
            has = any(word in facts["isa"] for word in words)
            self.assertEqual(name in measured, has, name)
            self.assertTrue(not has or measured[name] > 1, name)
        facts = json.loads(self.ok("doctor", "--bench", "--json", "-t", 2))
        self.assertGreater(facts["fork_join_us"], 0)
        self.assertRegex(self.ok("doctor", "--bench", "-t", 1), r"(?m)^fp32 peak .* GFLOP/s")

    def test_names_nodes_whole(self):
        names = [99 * "n" + last for last in "ab"]
        path = cli_models.save(
            self.dir / "names.onnx",
            [helper.make_node("Relu", ["x"], ["h"], name=names[0]),
             helper.make_node("Softmax", ["h"], ["y"], name=names[1])],
            [("x", TensorProto.FLOAT, [2, 3])], [("y", TensorProto.FLOAT, [2, 3])])
        bench = json.loads(self.ok("bench", path, "-n", 1, "--per-node", "--json", "-t", 1))
        self.assertEqual([node["name"] for node in bench["nodes"]], names)
        shown = self.ok("bench", path, "-n", 1, "--per-node", "-t", 1)
        trace = json.loads(self.ok("run", path, "-t", 1, "--trace", "-"))["traceEvents"]
        traced = {event["args"].get("node") for event in trace}
        for name, operator in zip(names, ("Relu", "Softmax"), strict=True):
            whole = re.sub(r"\n {55}", "", shown)  # a long name takes several lines
            self.assertRegex(whole, f"(?m) {operator} {name}$")
            self.assertIn(name, traced)

    def test_options_that_exclude_each_other(self):
        sizes = ("--set", "M=1,2")
        for words, options in (("--against compares one", ("--against", "b.json", *sizes)),
                               ("--against compares one", ("--against", "/bin/false", *sizes)),
                               ("--per-node shows one", ("--per-node", *sizes)),
                               ("--per-node shows the", ("--against", "/bin/false", "--per-node")),
                               ("only one --set may list", (*sizes, "--set", "N=1,2")),
                               ("a later --set names the symbol of", (*sizes, "--set", "M=5")),
                               ("--svg needs a list of sizes", ("--svg", self.dir / "s.svg"))):
            self.fails(2, words, "bench", self.matmul, *options)

    def test_turns_of_two_programs_measure_no_peak(self):
        other = self.dir / "other"  # it passes on what its turn is told
        other.write_text('#!/bin/sh\nenv > turn.txt\necho \'{"min_ms": 1e6}\'\n')
        other.chmod(0o755)
        self.ok("bench", self.relu, "-n", 1, "--against", other, cwd=self.dir)
        told = dict(line.split("=", 1) for line in (self.dir / "turn.txt").read_text().split("\n")
                    if line.startswith("ATTNRUN_BENCH_"))
        turn = json.loads(self.ok("bench", self.relu, "-n", 1, "--json",
                                  env={**os.environ, **told}))
        self.assertNotIn("fp32_peak_gflops", turn)
        self.assertIn("fp32_peak_gflops", json.loads(self.ok("bench", self.relu, "--json")))

    def test_a_base_of_other_work_says_so(self):
        base = self.dir / "base.json"
        base.write_text(self.ok("bench", self.matmul, "-n", 1, "-t", 1, "--json"), "utf-8")
        for words, options in (("", ("-t", 1)), (" different threads", ("-t", 2)),
                               (" different contexts", ("-t", 1, "--concurrency", 2)),
                               (" different inputs, threads", ("-t", 2, "--set", "M=7"))):
            shown = self.ok("bench", self.matmul, "-n", 1, "--against", base, *options)
            self.assertEqual(re.findall(r"(?m)^note +\S+base\.json was measured with(.*)$", re.sub(
                r"\n {13}(?=\S)", " ", shown)), [words] if words else [], shown)

    def test_another_program_that_is_not_attnrun(self):
        self.fails(4, "/bin/true is not an attnrun program", "bench", self.relu, "--against",
                   "/bin/true")

    def test_states_of_contexts_that_run_at_once(self):
        """Each context keeps the states: it takes as much memory as one that runs alone."""
        path = cli_models.with_cache(self.dir / "cache.onnx")
        peaks = [json.loads(self.ok("bench", path, "--set=P=20000", "--set=N=1", "-t", 1, "-n", 3,
                                    "--state=past_*=present_*", "--json",
                                    *more))["allocated_peak_bytes"]
                 for more in ((), ("--concurrency", 4))]
        self.assertGreater(peaks[1], 4 * peaks[0])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
