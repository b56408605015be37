#!/usr/bin/env python3
"""Many threads on one model, its contexts and views, all at the same time: results stay right,
and in a free-threaded Python the GIL stays off.

usage: PYTHONPATH=BUILD/python test_threads.py

Needs numpy and onnx alone, so that it runs in every Python that has these."""
import sys
import sysconfig
import threading
import unittest

import attnrun
import numpy as np

import models

WEIGHTS = np.random.default_rng(7).standard_normal((4, 3)).astype("f")
THREADS, TURNS = 8, 150


def rows(n, seed):
    return np.random.default_rng(seed).standard_normal((n, 4)).astype("f")


def in_threads(work, count=THREADS):
    """Runs work(number) in so many threads that start together; the exceptions."""
    start, failures = threading.Barrier(count), []

    def run(number):
        start.wait()
        try:
            work(number)
        except BaseException as error:  # the test says it
            failures.append(error)
    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


class Together(unittest.TestCase):
    def setUp(self):
        # More threads switch at more places.
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        self.addCleanup(sys.setswitchinterval, interval)
        self.model = attnrun.Model(models.linear(WEIGHTS), threads=1)

    def check(self, x, y):
        np.testing.assert_allclose(y, x @ WEIGHTS, rtol=1e-5, atol=1e-6)

    def test_free_threading_stays_on(self):
        if not sysconfig.get_config_var("Py_GIL_DISABLED"):
            self.assertTrue(attnrun._attnrun.__file__.endswith(".abi3.so"))
            return
        self.assertFalse(sys._is_gil_enabled())

    def test_calls_plans_and_errors_of_one_model(self):
        def work(number):
            for turn in range(TURNS):
                x = rows(1 + (turn + number) % 9, number)
                self.check(x, self.model(x=x)["y"])
                if turn % 10 == number:
                    with self.assertRaises(attnrun.Error) as caught:
                        self.model(x=x[:, :2])
                    self.assertEqual(caught.exception.status, "SHAPE")
                    self.assertGreater(self.model.plan(x=(len(x), 4)).arena_bytes, 0)
        self.assertEqual(in_threads(work), [])

    def test_one_context_is_of_one_thread(self):
        context, done = self.model.context(), []
        x = rows(5, 1)

        def work(number):
            for _ in range(TURNS):
                try:
                    self.check(x, context(x=x)["y"])
                    done.append(number)
                except attnrun.Error as error:
                    self.assertEqual(error.status, "USAGE")
        self.assertEqual(in_threads(work), [])
        self.assertGreater(len(done), 0)
        self.check(x, context(x=x)["y"])

    def test_views_come_and_go(self):
        context, x = self.model.context(), rows(6, 2)
        context(x=x)

        def work(number):
            for _ in range(TURNS):
                try:
                    self.check(x, np.asarray(context.view("y")))
                except attnrun.Error as error:  # another thread asks for a view
                    self.assertEqual(error.status, "USAGE")
        self.assertEqual(in_threads(work), [])
        self.check(x, context(x=x)["y"])  # no view is left

    def test_models_are_opened_and_freed(self):
        source = models.linear(WEIGHTS)

        def work(number):
            for turn in range(20):
                x = rows(2, number + turn)
                self.check(x, attnrun.Model(source, threads=1)(x=x)["y"])
        self.assertEqual(in_threads(work), [])

    def test_sessions(self):
        session = attnrun.InferenceSession(models.linear(WEIGHTS))

        def work(number):
            for turn in range(TURNS):
                x = rows(1 + turn % 4, number)
                self.check(x, session.run(["y"], {"x": x})[0])
        self.assertEqual(in_threads(work), [])


if __name__ == "__main__":
    unittest.main()
