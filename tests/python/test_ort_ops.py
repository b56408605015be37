#!/usr/bin/env python3
"""libattnrun_ort.so in onnxruntime: all golden cases of domain attnrun, run by onnxruntime.

usage: PYTHONPATH=BUILD/python test_ort_ops.py FOLDER...

A folder holds cases in the form of ONNX's backend tests with a tol.txt; one that does not exist
is left out, but the first. Each case runs in the threads of onnxruntime, in two threads of
attnrun's own, and with all inputs but the first as constants, which are then packed."""
import glob
import os
import sys
import threading
import unittest

import attnrun
import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

FOLDERS = []
CPU = ["CPUExecutionProvider"]


def session(model, own_threads=None, threads=2, library=True):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    if own_threads is not None:
        options.add_session_config_entry("attnrun.num_threads", str(own_threads))
    if library:
        options.register_custom_ops_library(attnrun.ort_library())
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=CPU)


def tensor_of(path):
    with open(path, "rb") as file:
        return numpy_helper.to_array(TensorProto.FromString(file.read()))


class Case:
    def __init__(self, folder):
        self.folder = folder
        self.model = onnx.load(os.path.join(folder, "model.onnx"))
        del self.model.functions[:]  # nothing but the operator itself can compute it
        data = os.path.join(folder, "test_data_set_0")
        count = len(glob.glob(os.path.join(data, "input_*.pb")))
        held = {value.name for value in self.model.graph.initializer}
        names = [value.name for value in self.model.graph.input if value.name not in held]
        self.feeds = {name: tensor_of(os.path.join(data, f"input_{i}.pb"))
                      for i, name in zip(range(count), names, strict=True)}
        self.expected = [tensor_of(os.path.join(data, f"output_{i}.pb"))
                         for i in range(len(self.model.graph.output))]
        with open(os.path.join(folder, "tol.txt"), encoding="utf-8") as file:
            self.rtol, self.atol = (float(word) for word in file.read().split())

    def operators(self):
        return {node.op_type for node in self.model.graph.node if node.domain == "attnrun"}

    def constants(self):
        """The model with all inputs but the first as constants."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        first = next(iter(self.feeds))
        kept = [value for value in model.graph.input if value.name == first]
        del model.graph.input[:]
        model.graph.input.extend(kept)
        model.graph.initializer.extend(
            numpy_helper.from_array(array, name) for name, array in self.feeds.items()
            if name != first)
        return model, {first: self.feeds[first]}

    def compare(self, test, outputs, how):
        for i, (made, expected) in enumerate(zip(outputs, self.expected, strict=True)):
            test.assertEqual(made.dtype, expected.dtype, f"{self.folder}, {how}, output {i}")
            np.testing.assert_allclose(made, expected, rtol=self.rtol, atol=self.atol,
                                       err_msg=f"{self.folder}, {how}, output {i}")


def all_cases():
    folders = [path for folder in FOLDERS
               for path in sorted(glob.glob(os.path.join(folder, "*", "")))]
    return [case for case in map(Case, folders) if case.operators()]


class Golden(unittest.TestCase):
    def test_all_cases_in_three_ways(self):
        cases = all_cases()
        self.assertGreater(len(cases), 80)
        for case in cases:
            with self.subTest(case.folder):
                case.compare(self, session(case.model).run(None, case.feeds), "its threads")
                case.compare(self, session(case.model, own_threads=2).run(None, case.feeds),
                             "own threads")
                model, feeds = case.constants()
                case.compare(self, session(model).run(None, feeds), "constants")

    def test_every_operator_has_a_case(self):
        there = set().union(*(case.operators() for case in all_cases()))
        known = {row["name"] for row in operators()}
        self.assertEqual(known - there, set())

    def test_without_the_library_there_is_no_such_operator(self):
        with self.assertRaises(Exception):
            session(all_cases()[0].model, library=False)


def operators():
    """The rows of domain attnrun, as the command line lists them."""
    import json
    import subprocess
    done = subprocess.run([os.environ["ATTNRUN"], "ops", "--json", "--domain", "attnrun"],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["ops"]


def model_of(op, inputs, initializers=(), outputs=("Y",), dtype=TensorProto.FLOAT, **attributes):
    """One node; `inputs`: name -> dims ("" for one left out)."""
    held = {array.name for array in initializers}
    names = list(inputs)
    node = helper.make_node(op, [name.strip() for name in names], list(outputs),
                            name="the node", domain="attnrun", **attributes)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info(name, dtype, inputs[name])
                      for name in names if name.strip() and name not in held],
        [helper.make_tensor_value_info(name, dtype, None) for name in outputs if name],
        list(initializers))
    return helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 21), helper.make_opsetid("attnrun", 1)])


class Calls(unittest.TestCase):
    def setUp(self):
        rng = np.random.default_rng(5)
        self.feeds = {name: rng.standard_normal((2, 40, 16)).astype("f") for name in "QKV"}
        self.dims = {name: ["B", f"S{name}", 16] for name in "QKV"}
        self.model = model_of("LocalAttention", self.dims, q_num_heads=2, kv_num_heads=2,
                              left_window=[3], right_window=[2])

    def ours(self, model, feeds):
        return attnrun.Model(model.SerializeToString())(**feeds)

    def test_the_same_bits_as_our_own_run(self):
        expected = self.ours(self.model, self.feeds)["Y"]
        for threads, own in ((1, None), (2, None), (4, None), (1, 1), (1, 3)):
            made = session(self.model, own, threads).run(None, self.feeds)[0]
            np.testing.assert_array_equal(made, expected)

    def test_shapes_change_and_many_threads_share_a_session(self):
        shared = session(self.model)
        failures = []

        def work(seed):
            rng = np.random.default_rng(seed)
            for length in rng.integers(1, 70, 20):
                feeds = {name: rng.standard_normal((1, length, 16)).astype("f")
                         for name in "QKV"}
                if not np.array_equal(shared.run(None, feeds)[0],
                                      self.ours(self.model, feeds)["Y"]):
                    failures.append((seed, length))

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def test_half_types(self):
        expected = self.ours(self.model, self.feeds)["Y"]
        for dtype, kind, step in ((TensorProto.FLOAT16, np.float16, 2**-8),
                                  (TensorProto.BFLOAT16, ml_dtypes.bfloat16, 2**-5)):
            nodes = [helper.make_node("Cast", [name], [f"h{name}"], to=dtype)
                     for name in "QKV"]
            nodes += [helper.make_node("LocalAttention", ["hQ", "hK", "hV"], ["h"],
                                       domain="attnrun", q_num_heads=2, kv_num_heads=2,
                                       left_window=[3], right_window=[2]),
                      helper.make_node("Cast", ["h"], ["Y"], to=TensorProto.FLOAT)]
            model = onnx.ModelProto()
            model.CopyFrom(self.model)
            del model.graph.node[:]
            model.graph.node.extend(nodes)
            made = session(model).run(None, self.feeds)[0]
            np.testing.assert_array_equal(made, made.astype(kind).astype("f"))
            np.testing.assert_allclose(made, expected, atol=step)

    def test_bodies_give_way_to_operators(self):
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        model.graph.node[0].op_type = "LocalAttention__01234567"
        wrong = helper.make_function("attnrun", "LocalAttention__01234567", ["Q", "K", "V"],
                                     ["Y"], [helper.make_node("Neg", ["Q"], ["Y"])],
                                     [helper.make_opsetid("", 21)])
        other = helper.make_function("mine", "Other", ["x"], ["y"], [
            helper.make_node("Neg", ["x"], ["y"])], [helper.make_opsetid("", 21)])
        model.functions.extend([wrong, other])
        native = attnrun.without_bodies(model)
        self.assertEqual([function.name for function in native.functions], ["Other"])
        self.assertEqual(len(model.functions), 2)
        np.testing.assert_array_equal(session(native).run(None, self.feeds)[0],
                                      self.ours(self.model, self.feeds)["Y"])

    def test_large_outputs_are_whole(self):
        x = np.random.default_rng(6).standard_normal((1, 3000, 256)).astype("f")
        model = model_of("FourierMix", {"X": ["B", "S", 256]})
        np.testing.assert_array_equal(session(model).run(None, {"X": x})[0],
                                      self.ours(model, {"X": x})["Y"])

    def test_outputs_in_memory_of_the_caller(self):
        x = np.random.default_rng(7).standard_normal((1, 300, 64)).astype("f")
        model = model_of("FourierMix", {"X": ["B", "S", 64]})
        shared, expected = session(model), self.ours(model, {"X": x})["Y"]
        mine = np.full_like(x, np.nan)
        for memory in (mine, x):  # the second one is the input's own
            binding = shared.io_binding()
            binding.bind_cpu_input("X", x)
            binding.bind_output("Y", "cpu", 0, np.float32, x.shape, memory.ctypes.data)
            shared.run_with_iobinding(binding)
            np.testing.assert_array_equal(memory, expected)
        np.testing.assert_array_equal(shared.run(None, {"X": mine[:, :7]})[0],
                                      self.ours(model, {"X": mine[:, :7]})["Y"])

    def refused(self, model, *words, feeds=None, **more):
        with self.assertRaises(Exception) as caught:
            session(model, **more).run(None, feeds or self.feeds)
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_refusals_have_our_sentence(self):
        self.refused(self.model, "attnrun: SHAPE", "the node", "LocalAttention",
                     feeds={**self.feeds, "V": self.feeds["V"][:, :-1]})
        self.refused(model_of("LocalAttention", self.dims, q_num_heads=2), "left_window")
        self.refused(model_of("LocalAttention", self.dims, left_window=[3], scale=2),
                     "attnrun:", "scale")
        self.refused(model_of("LocalAttention", self.dims, left_window=3), "left_window")
        self.refused(model_of("SparseTransformerAttention", self.dims, pattern=["odd"],
                              stride=4), "pattern")
        for entry in ("two", "-1", "1 ", "9" * 40):
            self.refused(self.model, "attnrun.num_threads", own_threads=entry)
        again = session(self.model)
        self.assertEqual(again.run(None, self.feeds)[0].shape, (2, 40, 16))

    def test_a_run_that_failed_leaves_the_session_usable(self):
        shared = session(self.model)
        for _ in range(3):
            with self.assertRaises(Exception):
                shared.run(None, {**self.feeds, "K": self.feeds["K"][:, :0]} | {
                    "V": self.feeds["V"][:1]})
            self.assertEqual(shared.run(None, self.feeds)[0].shape, (2, 40, 16))


if __name__ == "__main__":
    FOLDERS = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
