"""The examples of long inputs, with short ones.

usage: test_examples.py ROOT ATTNRUN GENERATE
"""
import re
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom
from pathlib import Path

import numpy as np
import onnx

ROOT, ATTNRUN, GENERATE = Path(sys.argv[1]), *sys.argv[2:4]
sys.path[:0] = [str(ROOT / "tools" / "examples"), str(ROOT / "tools" / "minilm")]
import fill  # noqa: E402
import generate  # noqa: E402
import lengthen  # noqa: E402
import panels  # noqa: E402

TOKENS = 700  # more than the package's table of 512


def script(name, *arguments):
    return subprocess.run([sys.executable, str(ROOT / "tools" / "examples" / name),
                           *map(str, arguments)], capture_output=True, text=True, check=False)


class LongDocument(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = Path(cls.folder.name)
        model = onnx.load(fill.GRAPH, load_external_data=False)
        fill.fill(model, fill.read_safetensors(fill.package_folder()))
        cls.filled = model.SerializeToString()
        ids = np.random.default_rng(0).integers(1000, 30000, (2, TOKENS))
        mask = np.ones_like(ids)
        mask[1, 600:] = 0
        np.savez(cls.path / "in.npz", input_ids=ids, attention_mask=mask)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def embeddings(self, **how):
        model = onnx.ModelProto.FromString(self.filled)
        lengthen.lengthen(model, TOKENS, **how)
        path, out = self.path / "model.onnx", self.path / "out.npz"
        onnx.save(model, path)
        subprocess.run([ATTNRUN, "run", path, "-i", self.path / "in.npz", "-n", "1", "-q",
                        "-o", out], check=True)
        with np.load(out) as outputs:
            return outputs["sentence_embedding"], [n.op_type for n in model.graph.node]

    def test_dense_equals_what_was_exported(self):
        dense, operators = self.embeddings()
        self.assertEqual(operators.count("Attention"), lengthen.LAYERS)
        self.assertNotIn("Softmax", operators)
        exported, operators = self.embeddings(exported=True)
        self.assertEqual(operators.count("Softmax"), lengthen.LAYERS)
        np.testing.assert_allclose(dense, exported, atol=1e-5)

    def test_window_over_all_tokens_is_dense(self):
        dense = self.embeddings()[0]
        wide, operators = self.embeddings(window=TOKENS)
        self.assertEqual(operators.count("LongformerAttention"), lengthen.LAYERS)
        np.testing.assert_allclose(wide, dense, atol=1e-5)

    def test_small_window_differs_and_global_tokens_matter(self):
        dense, one, many = (self.embeddings(**how)[0] for how in (
            {}, {"window": 16}, {"window": 16, "global_tokens": TOKENS}))
        self.assertGreater(np.abs(one - dense).max(), 1e-3)
        np.testing.assert_allclose(many, dense, atol=1e-5)

    def test_script_draws(self):
        chart = self.path / "chart.svg"
        text = self.path / "text.txt"
        text.write_text("a window of tokens and one for all " * 100, encoding="utf-8")
        done = script("long_document.py", ATTNRUN, self.path / "work", "--tokens", "256",
                      "--window", "32", "--lengths", "64,128", "--rounds", "1", "--text",
                      text, "--chart", chart)
        self.assertEqual(done.returncode, 0, done.stderr)
        cosine = float(re.search(r"cosine of both embeddings (\S+)", done.stdout)[1])
        self.assertTrue(0.5 < cosine < 0.99999, cosine)
        self.assertIn("Longformer", chart.read_text(encoding="utf-8"))
        xml.dom.minidom.parse(str(chart))

    def test_script_says_that_the_text_is_short(self):
        text = self.path / "short.txt"
        text.write_text("few words", encoding="utf-8")
        done = script("long_document.py", ATTNRUN, self.path / "work", "--tokens", "256",
                      "--lengths", "64", "--text", text)
        self.assertEqual(done.returncode, 1)
        self.assertIn("the text has 4 tokens, 256 are asked for", done.stderr)


class Generate(unittest.TestCase):
    def test_steps_equal_one_run(self):
        with tempfile.TemporaryDirectory() as folder:
            done = script("generate.py", ATTNRUN, GENERATE, folder, "--steps", 120,
                          "--rounds", 1)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout.count("all 120 steps in one run"), 2)
            xml.dom.minidom.parse(str(Path(folder) / "long-generation.svg"))
            held = {name: np.loadtxt(Path(folder) / f"{name}.txt")[:, 2]
                    for name in ("linear", "cached")}
            self.assertEqual(held["linear"][1], held["linear"][-1])
            self.assertGreater(held["cached"][-1], held["cached"][1])

    def test_other_models_are_refused(self):
        for change, words in ((no_present, "present_NAME"), (no_logits, "f32 of 256")):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "model.onnx"
                generate.make(path, True)
                model = onnx.load(path)
                change(model.graph)
                onnx.save(model, path)
                done = subprocess.run([GENERATE, path, "3"], capture_output=True, text=True,
                                      check=False)
                self.assertEqual(done.returncode, 5, done.stderr)
                self.assertIn(words, done.stderr)


def no_present(graph):
    del graph.output[1:]


def no_logits(graph):
    graph.node[-1].CopyFrom(onnx.helper.make_node(
        "Cast", graph.node[-1].input[:1], ["logits"], to=onnx.TensorProto.DOUBLE))
    graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.DOUBLE


class Panels(unittest.TestCase):
    def test_ticks_reach_the_values(self):
        for most in (0.31, 1.6, 9, 34.2, 2000):
            self.assertGreaterEqual(panels.steps_of(most)[-1], most)
            self.assertLessEqual(len(panels.steps_of(most)), 8)
        self.assertEqual(panels.powers_of(0.46, 27), [0.1, 1, 10, 100])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
