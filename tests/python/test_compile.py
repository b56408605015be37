#!/usr/bin/env python3
"""attnrun.compile: PyTorch modules in, callables out, kept by a hash.

usage: PYTHONPATH=BUILD/python:ROOT/tools/convert test_compile.py"""
import importlib.util
import os
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple
from unittest import mock

import attnrun
import attnrun_convert
import torch
from attnrun import _compile
from torch import nn


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


class Net(nn.Module):
    def __init__(self, scale=2.0):
        super().__init__()
        self.scale = scale
        self.line = nn.Linear(8, 5)

    def forward(self, x, bias=None, twice=False):
        y = self.line(x) * self.scale
        if bias is not None:
            y = y + bias
        return {"y": 2 * y if twice else y, "both": Pair(y, x.sum(-1))}


class Unknown(nn.Module):
    def forward(self, x):
        return torch.rand_like(x) + x


class Branch(nn.Module):
    """Reads a number of its input, which no file can."""

    def forward(self, x):
        return x + 1 if x.sum() > 0 else x


class Sides(nn.Module):
    """Computes something else for a long text: a file has one side."""

    def forward(self, x):
        return x.softmax(1) if x.shape[1] > 16 else 2 * x


class Both(nn.Module):
    def forward(self, x, mask=None, bias=None):
        x = x if mask is None else x * mask
        return x if bias is None else x + bias


SCALE = 2.0


class Scaled(nn.Module):
    def forward(self, x):
        return SCALE * x


class Difference(nn.Module):
    def forward(self, parts):
        return parts["a"] - parts["b"]


def made(seed=1, **more):
    torch.manual_seed(seed)
    return Net(**more).eval()


class Compile(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.x = torch.randn(3, 8)

    def compile(self, module, *args, **more):
        return attnrun.compile(module, *args, cache=self.folder.name, **more)

    def test_what_the_module_decides_by_a_size(self):
        x = torch.randn(2, 8, 4)
        self.assertTrue(torch.equal(self.compile(Sides().eval(), x)(x), 2 * x))
        with self.assertRaises(attnrun.Error) as caught:
            self.compile(Sides().eval(), x, dynamic={"x": {0: "b", 1: "n"}})
        self.assertEqual(caught.exception.status, "UNSUPPORTED")
        self.assertEqual(len(os.listdir(self.folder.name)), 1)  # of the fixed size

    def test_structure_sizes_and_arguments(self):
        module = made()
        bias = torch.randn(5)
        fast = self.compile(module, (self.x, bias), {"twice": True},
                            dynamic={"x": {0: "batch"}})
        for rows in (1, 3, 17):
            x = torch.randn(rows, 8, requires_grad=True)
            expected, result = module(x, bias, twice=True), fast(x, bias=bias, twice=True)
            self.assertIsInstance(result["both"], Pair)
            for a, b in ((expected["y"], result["y"]), (expected["both"].first,
                         result["both"].first), (expected["both"][1], result["both"][1])):
                torch.testing.assert_close(b, a.detach(), rtol=1e-4, atol=1e-5)
        with self.assertRaises(TypeError):
            fast(self.x, bias, twice=False)
        with self.assertRaises(TypeError):
            fast(self.x, twice=True)
        with self.assertRaises(attnrun.Error):
            fast(self.x[:, :4], bias, twice=True)

    def test_kept_by_weights_attributes_and_shapes(self):
        first = self.compile(made(), self.x)
        again = self.compile(made(), {"x": self.x})
        self.assertEqual((first.cached, again.cached), (False, True))
        self.assertEqual(first.path, again.path)
        torch.testing.assert_close(again(self.x)["y"], made()(self.x)["y"])
        other = self.compile(made(seed=2), self.x)
        self.assertFalse(other.cached)
        torch.testing.assert_close(other(self.x)["y"], made(seed=2)(self.x)["y"])
        self.assertEqual(len(os.listdir(self.folder.name)), 2)

    def test_keys_differ_where_results_may(self):
        def key(module, x, dynamic=None, **options):
            return _compile._key(module, (x,), {}, dynamic, options)

        first = key(made(), self.x)
        self.assertEqual(key(made(), torch.zeros(3, 8)), first)
        self.assertEqual(first, key(made(), self.x))
        others = {key(made(seed=2), self.x), key(made(scale=3.0), self.x),
                  key(made(), self.x[:2]), key(made(), self.x.double()),
                  key(made(), self.x, {"x": {0: "batch"}}), key(made(), self.x, opset=20),
                  key(made().train(), self.x)}
        self.assertEqual(len(others - {first}), 7)
        with tempfile.TemporaryDirectory() as folder:  # another converter
            package = Path(folder) / "attnrun_convert"
            shutil.copytree(Path(attnrun_convert.__file__).parent, package)
            spec = SimpleNamespace(submodule_search_locations=[str(package)])
            with mock.patch.object(importlib.util, "find_spec", lambda name: spec):
                self.assertEqual(key(made(), self.x), first)
                (package / "adapters" / "more.py").touch()
                self.assertNotEqual(key(made(), self.x), first)
        module = made()
        module.hook = lambda: None  # cannot be pickled
        self.assertIsNone(key(module, self.x))
        with mock.patch.object(sys.modules[Net.__module__], "__file__", "<stdin>"):
            self.assertIsNone(key(made(), self.x))

    def test_code_in_other_files_that_changed(self):
        module, scale = Scaled().eval(), sys.modules[__name__]
        results = []
        for number in (2.0, 2.0, 3.0, 3.0):
            with mock.patch.object(scale, "SCALE", number):
                fast = self.compile(module, self.x)
                torch.testing.assert_close(fast(self.x), number * self.x)
                results.append(fast.cached)
        self.assertEqual(results, [False, True, False, True])

    def test_results_that_are_none(self):
        module = nn.MultiheadAttention(8, 2).eval()
        fast = self.compile(module, (self.x, self.x, self.x), {"need_weights": False})
        result = fast(self.x, self.x, self.x, need_weights=False)
        self.assertIsNone(result[1])
        torch.testing.assert_close(result[0], module(self.x, self.x, self.x)[0].detach())

    def test_infinities_widen_no_tolerance(self):
        class Wrong:
            _outputs = {"y": "f16"}

            def __call__(self, x):
                return x + 1

        x = torch.tensor([1, -torch.inf], dtype=torch.float16)
        with self.assertRaisesRegex(attnrun.Error, "'y' differs from the module's by 1"):
            _compile._check(Wrong(), ((x,), {}), x)

    def test_each_argument_is_that_of_its_name(self):
        module, more = Both().eval(), torch.full((8,), 3.0)
        for name in ("bias", "mask"):  # of one shape, but not of one file
            fast = self.compile(module, (self.x,), {name: more})
            self.assertFalse(fast.cached)
            torch.testing.assert_close(fast(self.x, **{name: more}),
                                       module(self.x, **{name: more}))
            with self.assertRaises(TypeError):
                fast(self.x, **{"mask" if name == "bias" else "bias": more})
        again = self.compile(module, (self.x, None), {"bias": more})
        self.assertTrue(again.cached)
        torch.testing.assert_close(again(self.x, None, more), self.x + more)
        parts = self.compile(Difference().eval(), ({"a": self.x, "b": more},))
        torch.testing.assert_close(parts({"b": more, "a": self.x}), self.x - more)
        with self.assertRaises(TypeError):
            parts({"a": self.x, "c": more})

    def test_one_tensor_for_several_arguments(self):
        module = nn.MultiheadAttention(8, 2, batch_first=True).eval()
        q, k, v = torch.randn(3, 2, 5, 8)
        fast = self.compile(module, (q, q, q))
        for result, expected in zip(fast(q, k, v), module(q, k, v), strict=True):
            torch.testing.assert_close(result, expected.detach())

    def test_arguments_that_the_module_writes_into(self):
        module, x = nn.Hardswish(inplace=True).eval(), self.x.clone()
        fast = self.compile(module, x)
        torch.testing.assert_close(x, self.x)
        torch.testing.assert_close(fast(x), module(x.clone()))

    def test_keys_do_not_depend_on_shared_objects(self):
        """A word that two attributes share, or that each has for itself, is the same content."""
        def key(first, second, **more):
            module = made()
            module.first, module.second = first, second
            for name, value in more.items():
                module.__dict__[name] = value(module)
            return _compile._key(module, (self.x,), {}, None, {})

        word = "a word"
        same = "".join(["a ", "word"])
        self.assertIsNot(word, same)
        self.assertEqual(key(word, word), key(word, same))
        self.assertNotEqual(key(word, word), key(word, "another word"))
        cycles = [key(word, word, itself=lambda module: [module]) for _ in range(2)]
        self.assertIsNotNone(cycles[0])
        self.assertEqual(*cycles)
        self.assertNotEqual(cycles[0], key(word, "b", itself=lambda module: [module]))

    def test_a_module_is_found_again_after_its_export(self):
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        module, x = nn.TransformerEncoder(layer, 2).eval(), self.x[:, None]
        cached = [self.compile(module, x).cached for _ in range(2)]
        self.assertEqual(cached, [False, True])

    def test_not_kept(self):
        module = made()
        module.hook = lambda: None
        fast = self.compile(module, self.x)
        self.assertFalse(fast.cached)
        self.assertEqual(os.listdir(self.folder.name), [])
        torch.testing.assert_close(fast(self.x)["y"], module(self.x)["y"])

    def test_refused_with_the_sentence_of_the_converter(self):
        training = nn.Sequential(nn.Linear(8, 5), nn.BatchNorm1d(5)).train()
        for module, status, words in (
                (Unknown().eval(), "UNSUPPORTED", "random numbers"),
                (Branch().eval(), "UNSUPPORTED", "Branch cannot be exported"),
                (training, "UNSUPPORTED", "eval")):
            with self.assertRaises(attnrun.Error) as caught:
                self.compile(module, self.x)
            self.assertIn(words, str(caught.exception))
            self.assertEqual((caught.exception.status, caught.exception.code), (status, 400))
        with self.assertRaisesRegex(attnrun.Error, "the free size 'batch' is 1"):
            self.compile(nn.Conv2d(3, 4, 3).eval(), torch.zeros(1, 3, 8, 8),
                         dynamic={"input": {0: "batch"}})
        self.assertEqual(int(training[1].num_batches_tracked), 0)  # it was not run
        self.assertEqual(os.listdir(self.folder.name), [])

    def test_half_types(self):
        module = made().to(torch.bfloat16)
        x = self.x.to(torch.bfloat16)
        result = self.compile(module, x)(x)
        self.assertEqual(result["y"].dtype, torch.bfloat16)
        torch.testing.assert_close(result["y"], module(x)["y"], rtol=2e-2, atol=2e-2)


if __name__ == "__main__":
    unittest.main()
