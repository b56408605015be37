"""The benchmark's own code: the page, the chart, engines that fail, and the verdict between
two builds (on figures that are made up).

usage: test_bench.py ROOT
"""
import os
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom
from pathlib import Path

ROOT = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
sys.path.insert(0, str(ROOT / "tools" / "bench"))
sys.path.append(str(ROOT / "tools" / "bench" / "attention"))
sys.path.append(str(ROOT / "tools" / "convert"))
import against  # noqa: E402
import cases  # noqa: E402
import chart  # noqa: E402
import draw  # noqa: E402
import engines  # noqa: E402
import models  # noqa: E402
import networks  # noqa: E402
import page  # noqa: E402
import report  # noqa: E402

BEST = {"fp32_peak_gflops": 100.0, "fp32_peak_all_gflops": 200.0, "threads": 2,
        "read_gbs": 20.0, "read_all_gbs": 30.0, "l2_read_gbs": 90.0, "fork_join_us": 0.5}
FIGURES = {"load_ms": 20.0, "first_ms": 3.0, "median_ms": 2.5, "rss": 90 << 20,
           "runs_rss": 3 << 20, "runs_mapped": 1 << 18, "isa": "avx512", "weights": 80 << 20,
           "arena": 4 << 20}


def results_of(times):
    """times: {engine: (ms on one thread, ms on two)}, the same for all cases."""
    results = page.Results(False, ["torch is left out: no disk."], ["attnrun 0"], 1300000)
    results.best = BEST
    for case in models.CASES:
        for threads in (1, 2):
            rows = {name: {**FIGURES, "min_ms": ms[threads - 1]} for name, ms in times.items()}
            rows["attnrun"]["pack_ms"] = 9.0
            results.add(case, threads, rows, 0.2 if threads == 2 else 0.0)
    return results


class Page(unittest.TestCase):
    def test_the_faster_gating_peer_counts(self):
        results = results_of({"attnrun": (2, 1), "onnxruntime": (3, 2), "openvino": (4, 1.5),
                              "torch": (1, 1)})
        text = page.targets_page(results)
        self.assertIn("| MiniLM 1x128: ratio | ≥ 1.03 | 1.500 | 1.500 | yes |", text)
        self.assertIn("| MiniLM 1x128: two threads over one | ≥ 1.85 |  | 2.000 | yes |", text)
        text = page.write(results)
        self.assertRegex(text, r"\n\| MiniLM 1x128 \| 1\.50 \| 1\.50 \| fp32 peak \| [1-9]")
        self.assertRegex(text, r"\n\| GPT-2 decode, 512 cached \| 1\.50 \| 1\.50 \| read \| [1-9]")
        self.assertIn("| MiniLM 1x512: RSS of ONNX Runtime over ours | 1.00 | 1.00 |", text)
        for internal in ("≥", "**no**", "| met |", "aim"):
            self.assertNotIn(internal, text)
        self.assertIn("| MiniLM 1x16 | 1 | attnrun | 20 (9) |", text)
        self.assertIn("- torch is left out: no disk.", text)
        self.assertIn("| MiniLM 1x16 ~ | 2 | openvino |", text)

    def test_missed_targets_are_said(self):
        text = page.targets_page(results_of({"attnrun": (2, 1.5), "onnxruntime": (2, 1.5)}))
        self.assertIn("| MiniLM 1x128: ratio | ≥ 1.03 | 1.000 | 1.000 | **no** |", text)
        self.assertIn("| MiniLM 1x128: two threads over one | ≥ 1.85 |  | 1.333 | **no** |",
                      text)

    def test_lower_precisions(self):
        results = results_of({"attnrun": (2, 1), "openvino": (3, 2)})
        for name, ms in (("MiniLM 1x128, bf16", 1.25), ("Llama 0.5B decode, int4, 512 cached",
                                                        25.0)):
            results.rows[name, 1]["attnrun"]["min_ms"] = ms
        results.start = {1: {"file": 20.0, "packed": 10.0, "onnxruntime": 170.0}}
        text = page.targets_page(results)
        self.assertIn("| MiniLM 1x128, bf16: over itself in f32 | ≥ 1.5 | 1.60 | 1.00 | **no** | "
                      "≥ 1.80 | 1.60 | 1.00 |", text)
        self.assertIn("decode, int4, 512 cached: share of the read bandwidth | ≥ 0.75 | 0.62 | ",
                      text)
        self.assertIn("first result, plain file: ratio | ≥ 8 | 8.5 |  | yes |", text)
        self.assertIn("first result, packed file: ratio | ≥ 15 | 17.0 |  | yes | ≥ 20 | 17.0 |",
                      text)
        weights = models.decoder.weights()
        self.assertAlmostEqual(weights / 1e9, 0.494, 3)
        self.assertEqual(models.decoder.weight_bytes(4, 32), weights // 2 + weights // 8)

    def test_a_share_is_of_the_peak_of_the_type_that_is_multiplied(self):
        results = results_of({"attnrun": (2, 1)})
        self.assertIn("| MiniLM 1x512, bf16 |  |  | fp32 peak |", page.write(results))
        results.best = {**BEST, "bf16_peak_gflops": 400.0, "bf16_peak_all_gflops": 600.0,
                        "int8_peak_gops": 800.0, "int8_peak_all_gops": 1600.0}
        text = page.write(results)
        ms, case = 2, next(c for c in models.CASES if c.name == "MiniLM 1x512, bf16")
        one, two = (case.flops / ms / 1e6 / 400, 2 * case.flops / ms / 1e6 / 600)
        self.assertIn(f"| MiniLM 1x512, bf16 |  |  | bf16 peak | {one:.0%} | {two:.0%} |", text)
        self.assertIn("| ResNet-50, int8 |  |  | int8 peak |", text)
        self.assertIn("| MiniLM 1x512 |  |  | fp32 peak |", text)
        self.assertIn("| GPT-2 decode, 512 cached, f16 file |  |  | read |", text)
        self.assertIn("int8 800 GOP/s by one thread, 1600 by 2", text)

    def test_extra_memory_of_a_network_is_beyond_its_arena_and_mapped_weights(self):
        results = results_of({"attnrun": (2, 1), "openvino": (3, 2)})
        results.rows["ResNet-50", 1]["attnrun"]["bound"] = 1 << 18
        results.rows["ResNet-50", 2]["attnrun"]["bound"] = 3 << 18
        self.assertIn("| ResNet-50: extra MiB a thread | ≤ 2 | 2.5 | 1.0 | **no** | ≤ 1 MiB | "
                      "2.5 | 1.0 |", page.targets_page(results))
        self.assertIn("| ResNet-50: extra MiB a thread | 2.5 | 1.0 |", page.write(results))

    def test_no_peer_leaves_ratios_empty(self):
        results = results_of({"attnrun": (2, 1)})
        self.assertIn("| MiniLM 1x128: ratio | ≥ 1.03 |  |  |  |", page.targets_page(results))
        self.assertIn("| MiniLM 1x128 |  |  | fp32 peak |", page.write(results))
        self.assertIn("not measured", chart.draw(results))

    def test_all_lines_of_a_table_have_its_columns(self):
        width = 0
        results = results_of({"attnrun": (2, 1), "openvino": (3, 2)})
        for line in page.targets_page(results).split("\n"):
            columns = line.count("|")
            self.assertIn(columns, (0, width) if width else (0, columns), line)
            width = columns

    def test_the_chart_is_xml_and_cuts_long_bars(self):
        drawn = chart.draw(results_of({"attnrun": (2, 1), "openvino": (40, 0.5)}))
        for bar in xml.dom.minidom.parseString(drawn).getElementsByTagName("rect"):
            right = float(bar.getAttribute("x")) + float(bar.getAttribute("width"))
            self.assertLessEqual(right, chart.WIDTH)

    def test_the_chart_names_each_case_within_its_edges(self):
        results = results_of({"attnrun": (2, 1), "openvino": (3, 0.5)})
        texts = xml.dom.minidom.parseString(chart.draw(results)).getElementsByTagName("text")
        found = {t.firstChild.data: t for t in texts}
        for name in results.cases:
            room = float(found[name].getAttribute("x"))
            self.assertGreaterEqual(room, 6.2 * len(name), name)
        self.assertEqual(len({chart.family(c) for c in results.cases.values()}), 6)


class Work(unittest.TestCase):
    def test_flops_are_those_of_the_products(self):
        self.assertEqual(models.encoder_flops(1, 1, 1, 1), 2 * (12 + 2))
        self.assertEqual(models.attention_flops(2), 2 * (2 * 2) * 64 * 8 * 2)
        linear = 12 * 12 * 768**2 + 50257 * 768
        self.assertEqual(models.gpt2_flops(1, 0), 2 * (linear + 12 * 2 * 768))


class OwnOperators(unittest.TestCase):
    def test_attnrun_has_a_file_of_its_own_and_peers_run_the_plain_one(self):
        with_own = [case for case in models.CASES if case.own_file]
        self.assertEqual({case.network for case in with_own}, set(networks.OWN))
        for case in models.CASES:
            plain, own = (paths(case, "work", "")
                          for paths in (models.case_paths, models.own_paths))
            self.assertEqual(plain[1:], own[1:])
            self.assertEqual(plain[0] != own[0], case in with_own, case.name)

    def test_operators_give_what_modules_give(self):
        import attnrun_convert.moduleop
        import modules
        import torch

        torch.manual_seed(0)
        x, other = torch.randn(2, 2, 32, 14, 14).unbind()
        for network, module, inputs in (
                ("halonet", modules.Halo(32, head=16), (x,)),
                ("rednet", modules.Involution(32), (x,)),
                ("rednet", modules.Involution(32, 2), (x,)),
                ("sknet1", modules.Select(32), (x, other))):
            swapped = attnrun_convert.moduleop.adapter(networks.OWN[network])(module)
            with torch.no_grad():
                torch.testing.assert_close(swapped.forward(*inputs), module(*inputs),
                                           rtol=1e-4, atol=1e-5)


class Engines(unittest.TestCase):
    def fails(self, text, script, limit_s):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "peer.py").write_text(script, encoding="utf-8")
            before, engines.__file__ = engines.__file__, os.path.join(folder, "engines.py")
            try:
                with self.assertRaisesRegex(engines.Failed, text):
                    peer = engines.Peer("any", ("m", "", "i"), 1, limit_s)
                    self.addCleanup(peer.close)
                    peer.round(1)
            finally:
                engines.__file__ = before

    def test_a_crash_is_a_sentence(self):
        self.fails("disk on fire", "raise RuntimeError('disk on fire')", 20)
        self.fails("it said nothing", "print('{}', flush=True)\nimport os\nos._exit(1)", 20)

    def test_a_signal_is_named(self):
        self.fails("ended by signal 9", "import os\nos.kill(os.getpid(), 9)", 20)

    def test_a_crash_while_running_is_a_sentence(self):
        self.fails("enough", "print('{}', flush=True)\ninput()\n"
                   "print('{\"times_ms\": [1]}', flush=True)\ninput()\nraise OSError('enough')",
                   20)

    def test_a_peer_that_hangs_is_ended(self):
        self.fails("no answer within 1 s", "import time\ntime.sleep(60)", 1)

    def test_others_are_what_is_not_ours(self):
        self.assertAlmostEqual(engines.share_of_others((0, 0, 0), (3, 10, 1)), 0.2)
        self.assertEqual(engines.share_of_others((0, 0, 0), (1, 10, 1.2)), 0)
        self.assertGreater(engines.processor_time([])[1], 0)


class Against(unittest.TestCase):
    """The verdict; figures are (old, new) of the first run, then of the second."""

    def verdict_of(self, runs):
        left = {row: list(figures) for row, figures in runs.items()}
        self.order = []

        def measure(row):
            self.order.append(row)
            return left[row].pop(0)

        return against.verdict(list(runs), measure)

    def test_only_what_is_slower_in_two_runs_counts(self):
        found = self.verdict_of({
            "even": [(10.0, 10.0)], "faster": [(10.0, 5.0)], "within": [(10.0, 10.3)],
            "once": [(10.0, 11.0), (10.0, 10.2)], "twice": [(10.0, 10.4), (10.0, 10.5)]})
        self.assertEqual(found, {"twice": [(10.0, 10.4), (10.0, 10.5)]})
        self.assertEqual(self.order, ["even", "faster", "within", "once", "twice",
                                      "once", "twice"])

    def test_what_fails_now_and_ran_before_counts(self):
        found = self.verdict_of({"new row": [(None, 1.0)], "no model": [(None, None)],
                                 "broken": [(1.0, None), (1.0, None)],
                                 "shaken": [(1.0, None), (1.0, 1.0)]})
        self.assertEqual(list(found), ["broken"])
        self.assertEqual(against.written(found["broken"][0]), "old 1.000 ms  new fails")

    def test_rows_are_those_of_both_pages(self):
        def names(**options):
            return [row.name for row in against.all_rows(**options)]

        rows = names(threads=None, quick=False)
        self.assertEqual(len(rows), len(set(rows)))
        for name in ("GPT-2 decode, 512 cached, 2 threads", "CBAM, n = 56, 1 thread",
                     "Longformer ±256, n = 16384, 1 thread"):
            self.assertIn(name, rows)
        self.assertNotIn("CBAM, n = 56, 2 threads", rows)
        self.assertIn("CBAM, n = 56, 2 threads", names(threads=[2], quick=True))
        self.assertNotIn("Longformer ±256, n = 16384, 1 thread", names(threads=None,
                                                                     quick=True))

    def test_both_builds_run_and_the_slow_one_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            def build(name, ms):
                path = Path(folder, name)
                path.write_text(f"#!{sys.executable}\nimport json, os\n"
                                f"assert os.environ['ATTNRUN_ISA'] == 'base'\n"
                                f"print(json.dumps({{**{FIGURES}, 'min_ms': {ms},\n"
                                "    'pack_ms': 0, 'above_base_rss_bytes': 0,\n"
                                "    'runs_rss_bytes': 0, 'weights_bytes': 0,\n"
                                "    'arena_bytes': 0}))\n", encoding="utf-8")
                path.chmod(0o755)
                return str(path)

            for (old, new), status in (((4, 5), 1), ((5, 4), 0)):
                done = subprocess.run(
                    [sys.executable, str(ROOT / "tools" / "bench" / "against.py"), "--old",
                     build("old", old), "--new", build("new", new), "--work", folder,
                     "--rows", "^linear, n", "--quick", "--isa", "base"],
                    capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, status, done.stdout + done.stderr)
                self.assertEqual("SLOWER linear, n = 4096, 1 thread" in done.stdout,
                                 status == 1)


class AttentionPage(unittest.TestCase):
    """tools/bench/attention, with figures made up."""

    def test_goals_growth_and_what_is_left_out(self):
        case, dense = cases.find("Longformer ±256"), cases.find("dense")
        figures = {"attnrun": {"min_ms": 10.0, "arena": 2 << 20},
                   "onnxruntime": {"min_ms": 16.0, "runs_rss": 3 << 20},
                   "torch": {"min_ms": 60.0, "runs_rss": 4 << 20}}
        growth = {case: [(4096, 10.0, 1 << 20), (16384, 45.0, 1 << 20)],
                  dense: [(4096, 10.0, 1 << 20), (16384, 160.0, 1 << 20)]}
        text = report.write("2026-11-20", "a CPU", 200.0, [(case, 4096, figures)], growth,
                            ["No disk."])
        self.assertIn("| 1.60× | 6.00× | 2.0 | 3.0 | 4.0 |", text)
        self.assertIn("| Longformer ±256 | 4.50 | 1.00 |", text)
        self.assertIn("| dense | 16.00 | 1.00 |", text)
        self.assertNotIn("**no**", text)
        wanted = report.targets([(case, 4096, figures)], growth)
        self.assertIn("| export | 1.7 | 1.60× | **no** |", wanted)
        self.assertIn("| torch | 5 | 6.00× | yes |", wanted)
        self.assertIn("| Longformer ±256 | 4.50 | **no** |", wanted)
        self.assertNotIn("| dense", wanted)
        self.assertIn("- No disk.", text)
        self.assertNotIn("bf16", text)
        text = report.write("2026-11-20", "a CPU", 200.0, [], {}, [], [("dense", 4096, 30.0, 16.0)])
        self.assertIn("| dense | 4096 | 30.00 | 16.00 | 1.88× |", text)

    def test_curves(self):
        curves = {"dense": [(512, 1.0), (1024, 4.0)], "a<b": [(512, 1.0), (1024, 2.0)],
                  "nothing": [(512, 0)]}
        text = draw.draw("Time", "ms", curves, 1, {"a<b": "some"})
        panels = [g for g in xml.dom.minidom.parseString(text).getElementsByTagName("g")
                  if g.getAttribute("transform").startswith("translate")]
        self.assertEqual(len(panels), 1)
        self.assertEqual(text.count("<polyline"), 2)
        for words in ("tokens", "ms", "some", "a&lt;b"):
            self.assertIn(f">{words}</text>", text)
        two = draw.draw("Time", "ms", {**curves, "c": [(512, 2.0)]}, 1, {"a<b": "A", "c": "C"})
        self.assertEqual(two.count('class="dense" points'), 2, "dense is in each panel")
        xml.dom.minidom.parseString(draw.draw("Memory", "MiB", {}, 1))

    def test_cases_are_named_once(self):
        names = [case.name for case in cases.CASES]
        self.assertEqual(len(names), len(set(names)))
        for case in cases.CASES:
            self.assertTrue(case.operands(1024))
            named = case.vision or not case.domain or cases.family_of(case) != "other"
            self.assertTrue(named, f"{case.name} is in no family")
            self.assertTrue(case.pairs is None or case.pairs(1024) > 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
