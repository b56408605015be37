#!/usr/bin/env python3
"""Batches in which a bad row fails alone (attnrun._workers), without an engine.

usage: PYTHONPATH=BUILD/python test_workers.py"""
import unittest

import attnrun
import numpy as np
from attnrun import _workers
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
        self.assertEqual(needs.memory, 1000 + plan.arena_bytes + plan.packed_bytes +
                         plan.folded_bytes)


if __name__ == "__main__":
    unittest.main()
