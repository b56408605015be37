#!/usr/bin/env python3
"""Batches in which a bad row fails alone (attnrun._workers), and packed files that processes
share (attnrun._shared), without an engine.

usage: PYTHONPATH=BUILD/python test_workers.py"""
import os
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

import attnrun
import numpy as np
import onnx
from attnrun import _shared, _workers
from onnx import TensorProto, helper, numpy_helper

import models

TABLE = np.random.default_rng(3).standard_normal((10, 4)).astype("f")


def lookup():
    """y = table[ids]: an index over 9 is refused."""
    return models.serialized(
        [helper.make_node("Gather", ["t", "ids"], ["y"])],
        [models.value("ids", TensorProto.INT64, ["B", 2])],
        [models.value("y", TensorProto.FLOAT, ["B", 2, 4])],
        [numpy_helper.from_array(TABLE, "t")])


class Rows(unittest.TestCase):
    def setUp(self):
        self.model = attnrun.Model(lookup())
        self.calls = 0

    def run_once(self, feeds):
        self.calls += 1
        return self.model(**feeds)

    def check(self, bad, count=13):
        ids = np.arange(2 * count).reshape(count, 2) % 10
        ids[list(bad)] = 99
        results, errors = _workers.run_rows(self.run_once, {"ids": ids})
        self.assertEqual([i for i, error in enumerate(errors) if error], sorted(bad))
        for i, error in enumerate(errors):
            if error:
                self.assertIn("99", error)
            if "y" in results:
                np.testing.assert_array_equal(results["y"][i],
                                              0 * TABLE[:2] if error else TABLE[ids[i]])
        return results

    def test_bad_rows_fail_alone(self):
        for bad in ((), (0,), (12,), (3, 4), (0, 6, 12), range(1, 13)):
            self.assertIn("y", self.check(bad))

    def test_rows_whose_sizes_depend_on_the_batch(self):
        def run(feeds):
            """Each number as often as the largest says, and their sum."""
            if 99 in feeds["n"]:
                raise attnrun.Error("RANGE: 99", "RANGE", 700)
            made = {"y": np.repeat(feeds["n"][:, None], max(feeds["n"]), 1)}
            return made | {name: np.sum(feeds["n"]).reshape(shape) for name, shape in more.items()}

        more = {}
        for n in ([1, 99, 3, 3], [3, 99, 1, 1]):
            results, errors = _workers.run_rows(run, {"n": np.array(n)})
            self.assertEqual([bool(error) for error in errors], [False, True, False, False])
            self.assertIsNone(results["y"][1])
            self.assertEqual([results["y"][i].tolist() for i in (0, 2, 3)],
                             [n[i] * [n[i]] for i in (0, 2, 3)])
        for shape in ((), (1,), (1, 1)):
            more = {"sum": shape}
            _workers.run_rows(run, {"n": np.array([3, 1])})
            with self.assertRaisesRegex(attnrun.Error, "'sum' has not a row for each row"):
                _workers.run_rows(run, {"n": np.array([1, 99, 3, 3])})

    def test_a_good_batch_is_one_run_and_one_bad_row_few(self):
        self.check(())
        self.assertEqual(self.calls, 1)
        self.check((5,), 64)
        self.assertLessEqual(self.calls, 2 + 2 * 6)

    def test_all_bad(self):
        for count in (1, 4):
            self.assertEqual(self.check(range(count), count), {})
        np.testing.assert_array_equal(_workers.blank(self.model, "y", 3), np.zeros((3, 2, 4)))

    def test_what_is_no_fault_of_a_row(self):
        def full(feeds):
            raise attnrun.Error("MEMORY: none", "MEMORY", 600)
        with self.assertRaises(attnrun.Error):
            _workers.run_rows(full, {"ids": np.zeros((4, 2), int)})
        with self.assertRaises(ValueError):
            _workers.run_rows(self.run_once, {"ids": np.zeros((4, 2)), "x": np.zeros(3)})

    def test_needs_are_those_of_the_plan(self):
        plan = self.model.plan(ids=(50, 2))
        needs = _workers.needs(self.model, {"ids": (50, 2)}, process_bytes=1000)
        self.assertEqual(needs.arena_bytes, plan.arena_bytes)
        self.assertEqual(needs.memory, 1000 + plan.arena_bytes + plan.side_heap_bytes +
                         plan.packed_bytes + plan.folded_bytes)
        needs = _workers.needs(self.model, {"ids": (50, 2)}, 1000, share=True)
        self.assertEqual(needs.memory, 1000 + plan.arena_bytes + plan.side_heap_bytes)


class Base:
    """In the place of Beam's ModelHandler, which takes its own keywords."""

    def __init__(self, **keywords):
        pass

    def __class_getitem__(cls, kinds):
        return cls


class Beam(unittest.TestCase):
    def test_an_output_without_rows_is_no_result(self):
        """Its first numbers are not those of the examples."""
        names = ("apache_beam", "apache_beam.ml", "apache_beam.ml.inference",
                 "apache_beam.ml.inference.base")
        base = types.ModuleType(names[-1])
        base.ModelHandler, base.PredictionResult = Base, lambda *parts: parts[1]
        with mock.patch.dict(sys.modules, {name: base for name in names}):
            from attnrun.beam import ModelHandlerNumpy
        batch = [{"x": np.full(4, i, "f")} for i in range(3)]
        columns = models.serialized(
            [helper.make_node("Transpose", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["z"])],
            [models.value("x", TensorProto.FLOAT, ["B", 4])],
            [models.value(name, TensorProto.FLOAT, None) for name in "yz"])
        model = attnrun.Model(columns)
        made = list(ModelHandlerNumpy("", outputs=["z"]).run_inference(batch, model))
        self.assertEqual([result["z"].tolist() for result in made],
                         [[-float(i)] * 4 for i in range(3)])
        with self.assertRaisesRegex(attnrun.Error, "'y' has not a row for each row"):
            ModelHandlerNumpy("").run_inference(batch, model)


WORKER = """
import sys
from attnrun import _shared
model = _shared.open_shared(sys.argv[1], folder=sys.argv[2])
sys.stdin.readline()
with open("/proc/self/maps") as maps:
    print(sorted({line.split()[-1] for line in maps if ".attnpack" in line}))
"""


class Shared(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.path = os.path.join(scratch.name, "net.onnx")
        self.folder = os.path.join(scratch.name, "packed")
        self.write(np.random.default_rng(1).standard_normal((64, 48)).astype("f"))

    def write(self, weights):
        self.weights = weights
        with open(self.path, "wb") as file:
            file.write(models.linear(weights))

    def packed(self):
        return sorted(name for name in os.listdir(self.folder) if name.endswith(".attnpack"))

    def check(self, model, atol=1e-4):
        x = np.random.default_rng(2).standard_normal((5, 64)).astype("f")
        np.testing.assert_allclose(model(x=x)["y"], x @ self.weights, rtol=1e-4, atol=atol)

    def test_the_first_packs_and_the_others_map(self):
        workers = [subprocess.Popen([sys.executable, "-c", WORKER, self.path, self.folder],
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                   for _ in range(3)]
        seen = [worker.communicate("\n", timeout=120)[0].strip() for worker in workers]
        self.assertEqual(len(self.packed()), 1)
        place = os.path.join(os.path.realpath(self.folder), self.packed()[0])
        self.assertEqual(seen, [repr([place])] * 3)
        before = os.stat(place).st_mtime_ns
        model = _shared.open_shared(self.path, folder=self.folder)
        self.assertTrue(model.info["packed_for"])
        self.check(model)
        self.check(_shared.open_shared(place, folder=self.folder))
        self.assertEqual((self.packed(), os.stat(place).st_mtime_ns),
                         ([os.path.basename(place)], before))

    def test_another_model_and_a_damaged_file_are_packed_anew(self):
        self.check(_shared.open_shared(self.path, folder=self.folder))
        first = self.packed()
        self.write(2 * self.weights)
        self.check(_shared.open_shared(self.path, folder=self.folder))
        self.assertEqual(len(self.packed()), 1)
        self.assertNotEqual(self.packed(), first)
        place = os.path.join(self.folder, self.packed()[0])
        os.truncate(place, os.path.getsize(place) // 2)
        self.check(_shared.open_shared(self.path, folder=self.folder))
        self.check(_shared.open_shared(self.path, folder=self.folder, precision="bf16"), 0.5)
        self.assertEqual(len(self.packed()), 2)

    def test_a_model_that_is_replaced_while_it_is_opened(self):
        """Its weights are not packed under the name of those that took their place."""
        named, place_of = [], _shared.place_of

        def replaced(*arguments):
            if not named:
                os.unlink(self.path)
                self.write(2 * self.weights)
            named.append(place_of(*arguments))
            return named[-1]

        with mock.patch.object(_shared, "place_of", replaced):
            self.check(_shared.open_shared(self.path, folder=self.folder))
        self.check(_shared.open_shared(self.path, folder=self.folder))
        self.assertEqual(named[0], named[1])

    def write_beside(self, weights, location):
        """The model with its weights in a file of its own."""
        self.write(weights)
        model = onnx.load(self.path)
        tensor = model.graph.initializer[0]
        beside = os.path.join(os.path.dirname(self.path), location)
        os.makedirs(os.path.dirname(beside), exist_ok=True)
        with open(beside, "wb") as file:
            file.write(tensor.raw_data)
        onnx.external_data_helper.set_external_data(tensor, location)
        tensor.ClearField("raw_data")
        with open(self.path, "wb") as file:
            file.write(model.SerializeToString())
        return beside

    def test_weights_beside_the_model_count(self):
        for location in ("w.bin", "below/w.bin", "w" * 200 + ".bin"):
            weights = np.random.default_rng(3).standard_normal((64, 48)).astype("f")
            beside = self.write_beside(weights, location)
            self.check(_shared.open_shared(self.path, folder=self.folder))
            first = self.packed()
            # What is none of its files does not count, and need not be there.
            with open(self.path + ".new", "wb") as file:
                file.write(b"x")
            os.symlink("nowhere", self.path + ".link")
            os.mkfifo(self.path + ".fifo")
            self.check(_shared.open_shared(self.path, folder=self.folder))
            self.assertEqual(self.packed(), first)
            self.weights = 2 * weights
            with open(beside, "wb") as file:
                file.write(self.weights.tobytes())
            os.utime(beside, ns=(1, 1))
            self.check(_shared.open_shared(self.path, folder=self.folder))
            self.assertNotEqual(self.packed(), first)
            for suffix in (".new", ".link", ".fifo"):
                os.unlink(self.path + suffix)

    def test_files_that_the_model_does_not_name_plainly(self):
        """Where the names of its files are not all found, every file below its folder counts."""
        size = os.path.getsize(self.path)
        os.symlink("nowhere", self.path + ".link")
        with open(self.path + ".data", "wb") as file:
            file.write(b"xyz")
        for more, names in ((0, [self.path]), (1, [self.path, self.path + ".data"])):
            prints = _shared.prints_of_model(self.path, size + more)
            self.assertEqual([name for name, *_ in prints], names)

    def test_a_folder_that_cannot_be_written(self):
        with open(self.folder, "wb"):
            pass
        with self.assertWarnsRegex(RuntimeWarning, "each process packs its own"):
            self.check(_shared.open_shared(self.path, folder=self.folder))
        with self.assertRaises(attnrun.Error):
            _shared.open_shared(self.path + ".none", folder=self.folder)


if __name__ == "__main__":
    unittest.main()
