#!/usr/bin/env python3
"""attnrun.InferenceSession beside onnxruntime.InferenceSession: the same calls, the same
answers.

usage: PYTHONPATH=BUILD/python test_ort.py"""
import os
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings

import attnrun
import numpy as np
import onnx
import onnxruntime
from attnrun._declared import declared_shapes
from onnx import TensorProto, helper, numpy_helper

import models

BOTH = (attnrun, onnxruntime)
WEIGHTS = np.random.default_rng(11).standard_normal((4, 3)).astype("f")
X = np.random.default_rng(12).standard_normal((5, 4)).astype("f")
CPU = ["CPUExecutionProvider"]


def sessions(data, providers=CPU, **more):
    return [engine.InferenceSession(data, providers=providers, **more) for engine in BOTH]


class Session(unittest.TestCase):
    def test_results_and_their_order(self):
        ours, theirs = sessions(models.linear(WEIGHTS))
        for names in (None, [], ["z"], ["z", "y"], ["y", "y"]):
            mine, other = ours.run(names, {"x": X}), theirs.run(names, {"x": X})
            self.assertIsInstance(mine, list)
            self.assertEqual(len(mine), len(other))
            for a, b in zip(mine, other, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)

    def test_descriptions(self):
        tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, ["B", 2])
        sequence = helper.make_sequence_type_proto(tensor)
        at = models.value("at", TensorProto.INT64, [])
        files = [models.linear(WEIGHTS), models.cache(),
                 models.identity(TensorProto.STRING, (2, "N")),
                 models.identity(TensorProto.FLOAT16, ()),
                 models.serialized(
                     [helper.make_node("SequenceInsert", ["s", "t", "at"], ["r"])],
                     [helper.make_value_info("s", sequence),
                      models.value("t", 1, ["B", 2]), at],
                     [helper.make_value_info("r", sequence)])]
        for data in files:
            ours, theirs = sessions(data)
            for call in ("get_inputs", "get_outputs"):
                mine = [(arg.name, arg.type) for arg in getattr(ours, call)()]
                other = [(arg.name, arg.type) for arg in getattr(theirs, call)()]
                self.assertEqual(mine, other)
            self.assertEqual([a.shape for a in ours.get_inputs() if "seq" not in a.type],
                             [a.shape for a in theirs.get_inputs() if "seq" not in a.type])
        self.assertEqual([a.shape for a in sessions(files[0])[0].get_outputs()],
                         [["B", 3], ["B", 3]])

    def test_shapes_are_those_that_the_file_declares(self):
        float_type = TensorProto.FLOAT
        cut = helper.make_node("Slice", ["x", "one", "most"], ["y"])
        bounds = [numpy_helper.from_array(np.array([v]), name)
                  for name, v in (("one", 1), ("most", 1 << 40))]
        for given, made in (([None, 3, "?", "W"], ["rows", 3, "2*W + 1", "other"]),
                            ([None, None], [None, None]), (["N", 2], None), ([], []),
                            (["u1", None], ["u1", None]), ([None, -1], ["u7", None]),
                            (["N", 2], ["a name that is longer than forty-seven bytes " * 3, 2])):
            node = cut if given else helper.make_node("Neg", ["x"], ["y"])
            data = models.serialized([node], [models.value("x", float_type, given)],
                                     [models.value("y", float_type, made)],
                                     bounds if given else ())
            for source in (data, bytearray(data), memoryview(data)):
                mine = attnrun.InferenceSession(source)
                other = onnxruntime.InferenceSession(data, providers=CPU)
                self.assertEqual(mine.get_inputs()[0].shape, other.get_inputs()[0].shape)
                if made is not None:  # how far a shape is inferred is each engine's own
                    self.assertEqual(mine.get_outputs()[0].shape, other.get_outputs()[0].shape)

    def test_shapes_of_a_packed_file_and_of_bytes_that_are_no_model(self):
        data = models.linear(WEIGHTS)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "net.attnpack")
            attnrun.Model(data).pack(path)
            packed = attnrun.InferenceSession(path)
        self.assertEqual([packed.get_inputs()[0].shape, packed.get_outputs()[1].shape],
                         [["B", 4], ["B", 3]])
        whole = declared_shapes(data)
        self.assertEqual(whole, {"x": ["B", 4], "y": ["B", 3], "z": ["B", 3]})
        for size in range(len(data)):
            self.assertLessEqual(declared_shapes(data[:size]).items(), whole.items(), size)
        for wrong in (b"\xff" * 40, b"\x3a\x7f", b"\x3b", b"", bytes(9), "no such file"):
            self.assertEqual(declared_shapes(wrong), {})

    def test_maps(self):
        """What classifiers of scikit-learn give, and what vectorizers take."""
        def map_of(key):
            return helper.make_map_type_proto(
                key, helper.make_tensor_type_proto(TensorProto.FLOAT, []))

        def model(node, inputs, outputs):
            made = onnx.ModelProto.FromString(models.serialized([node], inputs, outputs))
            made.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
            return made.SerializeToString()

        cases = []
        for key, labels in ((TensorProto.STRING, {"classlabels_strings": ["a", "ü", "c"]}),
                            (TensorProto.INT64, {"classlabels_int64s": [7, -1, 3]})):
            cases.append((model(
                helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", **labels),
                [models.value("x", TensorProto.FLOAT, ["N", 3])],
                [helper.make_value_info("y", helper.make_sequence_type_proto(map_of(key)))]),
                {"x": X[:, :3].copy()}))
        cases.append((model(
            helper.make_node("DictVectorizer", ["x"], ["y"], domain="ai.onnx.ml",
                             string_vocabulary=["one", "two", "three"]),
            [helper.make_value_info("x", map_of(TensorProto.STRING))],
            [models.value("y", TensorProto.FLOAT, None)]), {"x": {"two": 2.5, "one": 1.0}}))
        for data, feeds in cases:
            ours, theirs = sessions(data)
            for call in ("get_inputs", "get_outputs"):
                self.assertEqual([arg.type for arg in getattr(ours, call)()],
                                 [arg.type for arg in getattr(theirs, call)()])
            mine, other = ours.run(None, feeds)[0], theirs.run(None, feeds)[0]
            self.assertIs(type(mine), type(other))
            if isinstance(mine, list):
                self.assertEqual(mine, other)
                self.assertEqual(len(mine), len(X))
            else:
                np.testing.assert_array_equal(mine, other)
        for bad, status in (({1: 2.0}, "DTYPE"), ([1], "INPUT"), ({1.5: 1.0}, "INPUT")):
            with self.assertRaises(attnrun.Error) as caught:
                attnrun.Model(cases[2][0])(x=bad)
            self.assertEqual((caught.exception.status, caught.exception.tensor), (status, "x"))

    def test_metadata(self):
        told = onnx.ModelProto.FromString(models.linear(WEIGHTS))
        told.domain, told.model_version, told.doc_string = "org.example", 7, "what it does"
        told.graph.doc_string, told.producer_version = "größer\nand more", "1.2"
        zero = onnx.ModelProto.FromString(models.linear(WEIGHTS))
        zero.model_version = 0
        fields = [name for name in dir(onnxruntime.ModelMetadata) if name[0] != "_"]
        self.assertIn("graph_description", fields)
        for model in (models.linear(WEIGHTS), told.SerializeToString(),
                      zero.SerializeToString()):
            ours, theirs = (s.get_modelmeta() for s in sessions(model))
            for name in fields:
                self.assertEqual(getattr(ours, name), getattr(theirs, name), name)
        with tempfile.TemporaryDirectory() as folder:  # a packed file says the same
            path = os.path.join(folder, "net.attnpack")
            attnrun.Model(told.SerializeToString()).pack(path)
            packed = attnrun.InferenceSession(path).get_modelmeta()
        theirs = sessions(told.SerializeToString())[1].get_modelmeta()
        for name in fields:
            self.assertEqual(getattr(packed, name), getattr(theirs, name), name)

    def test_providers(self):
        session = attnrun.InferenceSession(models.linear(WEIGHTS))
        self.assertEqual(session.get_providers(), CPU)
        session.set_providers(CPU)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for session in sessions(models.linear(WEIGHTS), providers=["CUDAExecutionProvider"]):
                self.assertEqual(session.get_providers(), CPU)
        with self.assertWarnsRegex(RuntimeWarning, "in the place of CUDAExecutionProvider"):
            attnrun.InferenceSession(models.linear(WEIGHTS)).set_providers(
                [("CUDAExecutionProvider", {"device_id": 0})])

    def test_options_take_effect(self):
        results = []
        for engine in BOTH:
            options = engine.SessionOptions()
            options.intra_op_num_threads = 1
            options.inter_op_num_threads = 1
            options.log_severity_level = 3
            options.graph_optimization_level = engine_level(engine)
            options.add_session_config_entry("a.b", "1")
            options.add_free_dimension_override_by_name("B", 5)
            options.add_free_dimension_override_by_name("no input has it", 6)
            session = engine.InferenceSession(models.linear(WEIGHTS), options, providers=CPU)
            self.assertEqual(session.get_inputs()[0].shape, [5, 4])
            self.assertEqual(session.get_outputs()[0].shape, [5, 3])
            self.assertEqual(options.get_session_config_entry("a.b"), "1")
            results.append(session.run(None, {"x": X}))
            with self.assertRaises(Exception):
                session.run(None, {"x": X[:2]})
        for a, b in zip(*results, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)

    def test_one_name_for_two_sizes(self):
        """CLIP as transformers.onnx wrote it: "batch" is 1 for the image and 3 for the texts. And
        a name that says more than the graph does: rows of x up to as many as `like` has."""
        image, texts, like = (np.random.default_rng(seed).standard_normal((n, 4)).astype("f")
                              for seed, n in ((1, 1), (2, 3), (3, 2)))
        towers = models.serialized(
            [helper.make_node("Transpose", ["image"], ["columns"], perm=[1, 0]),
             helper.make_node("MatMul", ["texts", "columns"], ["y"])],
            [models.value(name, 1, ["batch", 4]) for name in ("image", "texts")],
            [models.value("y", 1, ["batch", "batch"])])
        rows = models.serialized(
            [helper.make_node("Shape", ["like"], ["n"], start=0, end=1),
             helper.make_node("Slice", ["texts", "zero", "n", "zero"], ["part"]),
             helper.make_node("Neg", ["part"], ["y"])],
            [models.value(name, 1, ["batch", 4]) for name in ("texts", "like")],
            [models.value("y", 1, ["batch", 4])],
            [numpy_helper.from_array(np.zeros(1, "i8"), "zero")])
        cases = [(towers, {"image": image, "texts": texts}, {"image": image, "texts": texts[:1]}),
                 (rows, {"texts": texts, "like": like}, {"texts": texts, "like": texts})]
        for data, *feeds in cases:
            ours, theirs = sessions(data)
            for feed in (feeds[1], feeds[0], feeds[1]):
                np.testing.assert_allclose(ours.run(None, feed)[0], theirs.run(None, feed)[0],
                                           rtol=1e-5, atol=1e-6)
            self.assertEqual([arg.shape for arg in ours.get_inputs()],
                             [arg.shape for arg in theirs.get_inputs()])
            with self.assertRaisesRegex(attnrun.Error, "'batch' is [13] in input 0") as caught:
                attnrun.Model(data)(**feeds[0])
            self.assertEqual(caught.exception.status, "SHAPE")
            attnrun.Model(data, separate_dims=True)(**feeds[0])

    def test_a_file_that_is_gone_when_it_is_opened_again(self):
        """Inputs that give a name two sizes open the file again. It may be another one by then,
        and so may a file of weights; the folder may be another one for a relative path."""
        def towers(factor):
            model = onnx.load_from_string(models.serialized(
                [helper.make_node("MatMul", ["image", "w"], ["p"]),
                 helper.make_node("MatMul", ["texts", "p"], ["y"])],
                [models.value("image", 1, ["batch", 4]), models.value("texts", 1, ["batch", 1])],
                [models.value("y", 1, ["batch", 3])],
                [numpy_helper.from_array(factor * WEIGHTS, "w")]))
            onnx.external_data_helper.convert_model_to_external_data(
                model, location="w.bin", size_threshold=0)
            for name in ("net.onnx", "w.bin"):
                if os.path.exists(os.path.join(folder, name)):
                    os.unlink(os.path.join(folder, name))
            onnx.save(model, os.path.join(folder, "net.onnx"))

        def session():
            towers(1)
            return attnrun.InferenceSession(os.path.relpath(os.path.join(folder, "net.onnx")))

        feeds = {"image": X[:1], "texts": np.ones((3, 1), "f")}
        with tempfile.TemporaryDirectory() as folder:
            ours, here = session(), os.getcwd()
            os.chdir(folder)
            self.addCleanup(os.chdir, here)
            np.testing.assert_allclose(ours.run(None, feeds)[0], feeds["texts"] @ (X[:1] @ WEIGHTS),
                                       rtol=1e-5)
            os.chdir(here)
            for change in (lambda: towers(2), lambda: os.unlink(os.path.join(folder, "net.onnx")),
                           lambda: os.unlink(os.path.join(folder, "w.bin")),
                           lambda: os.utime(os.path.join(folder, "w.bin"), ns=(1, 1))):
                ours = session()
                change()
                with self.assertRaisesRegex(attnrun.Error, "deleted, replaced or chang") as caught:
                    ours.run(None, feeds)
                self.assertEqual(caught.exception.status, "IO")
                one = {"image": X[:1], "texts": feeds["texts"][:1]}
                np.testing.assert_allclose(ours.run(None, one)[0], X[:1] @ WEIGHTS, rtol=1e-5)

    def test_entries_of_attnrun(self):
        def run(ragged, precision="f32"):
            options = attnrun.SessionOptions()
            options.add_session_config_entry("attnrun.ragged", ragged)
            options.add_session_config_entry("attnrun.precision", precision)
            options.register_custom_ops_library(attnrun.ort_library())
            return attnrun.InferenceSession(models.encoder(8), options).run(
                None, {"x": x, "mask": mask})[0]

        x = np.random.default_rng(13).standard_normal((2, 5, 8)).astype("f")
        mask = np.array([[1] * 5, [1] * 2 + [0] * 3])
        padded, ragged = run("0"), run("1")
        np.testing.assert_allclose(ragged[mask == 1], padded[mask == 1], rtol=1e-5, atol=1e-6)
        self.assertTrue(padded[mask == 0].any())
        self.assertFalse(ragged[mask == 0].any())
        np.testing.assert_array_equal(run("auto"), padded)
        np.testing.assert_allclose(run("0", "bf16"), padded, rtol=0.05, atol=0.05)
        for wrong in (("yes", "f32"), ("0", "f8")):
            self.assertRaises(ValueError, run, *wrong)

    def test_terminate_ends_a_run_under_way(self):
        for engine in BOTH:
            session = engine.InferenceSession(models.endless(), providers=CPU)
            options = engine.RunOptions()
            one = np.ones(4, "f")
            failures = []

            def work():
                try:
                    session.run(None, {"x": one, "step": one}, options)
                except Exception as error:
                    failures.append(error)

            thread = threading.Thread(target=work)
            thread.start()
            while thread.is_alive():
                options.terminate = True
                thread.join(0.01)
            self.assertEqual(len(failures), 1)
            options.terminate = False
            self.assertFalse(options.terminate)
        self.assertEqual(failures[0].__class__.__module__.split(".")[0], "onnxruntime")
        options = attnrun.RunOptions()
        options.terminate = True
        session = attnrun.InferenceSession(models.linear(WEIGHTS))
        with self.assertRaises(attnrun.Error) as caught:
            session.run(None, {"x": X}, options)
        self.assertEqual(caught.exception.status, "CANCELLED")
        options.terminate = False
        self.assertEqual(len(session.run(None, {"x": X}, options)), 2)

    def test_a_file_that_is_not_written_is_named(self):
        options = attnrun.SessionOptions()
        options.optimized_model_filepath = "there/is/none.onnx"
        with self.assertWarnsRegex(RuntimeWarning, "attnrun writes no such file"):
            attnrun.InferenceSession(models.linear(WEIGHTS), options)

    def test_failures_of_both(self):
        for session in sessions(models.linear(WEIGHTS)):
            for feeds, names in (({}, None), ({"x": X, "q": X}, None),
                                 ({"x": X.astype("f8")}, None), ({"x": X[:, :2]}, None),
                                 ({"x": X}, ["none"])):
                with self.assertRaises(Exception):
                    session.run(names, feeds)
            self.assertEqual(len(session.run(None, {"x": X})), 2)

    def test_path_and_what_optimum_reads(self):
        with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
            file.write(models.linear(WEIGHTS))
            file.flush()
            for session in sessions(file.name):
                self.assertEqual(str(session._model_path), file.name)
                self.assertEqual(session.get_provider_options(), {CPU[0]: {}})


def engine_level(engine):
    levels = onnxruntime.GraphOptimizationLevel if engine is onnxruntime else None
    return levels.ORT_DISABLE_ALL if levels else 0


class Binding(unittest.TestCase):
    def test_binding_by_array_value_and_address(self):
        for engine in BOTH:
            session = engine.InferenceSession(models.linear(WEIGHTS), providers=CPU)
            memory = np.zeros((5, 3), "f")
            value = engine.OrtValue.ortvalue_from_shape_and_type([5, 3], np.float32)
            binding = session.io_binding()
            binding.bind_cpu_input("x", X)
            binding.bind_output("y", "cpu", 0, np.float32, memory.shape, memory.ctypes.data)
            binding.bind_ortvalue_output("z", value)
            session.run_with_iobinding(binding)
            np.testing.assert_allclose(memory, X @ WEIGHTS, rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(value.numpy(), np.maximum(memory, 0))
            binding.clear_binding_inputs()
            binding.clear_binding_outputs()
            binding.bind_input("x", "cpu", 0, np.float32, X.shape, X.ctypes.data)
            binding.bind_output("z", "cpu")
            session.run_with_iobinding(binding)
            np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], value.numpy())
            self.assertEqual([v.shape() for v in binding.get_outputs()], [[5, 3]])

    def test_a_binding_that_changes_during_a_run(self):
        binding = attnrun.InferenceSession(models.linear(WEIGHTS)).io_binding()

        class Name(str):
            __hash__ = str.__hash__

            def __eq__(self, other):
                binding.clear_binding_inputs()
                return str(self) == other

        binding.bind_cpu_input("x", X)
        binding.bind_cpu_input(Name("u" * 64), X)
        with self.assertRaises(attnrun.Error) as caught:
            binding._session.run_with_iobinding(binding)
        self.assertEqual(caught.exception.tensor, "u" * 64)

    def test_addresses_of_arrays_of_any_strides(self):
        """A caller that binds data_ptr() and shape() gives no strides."""
        for engine in BOTH:
            session = engine.InferenceSession(models.linear(WEIGHTS), providers=CPU)
            for x in (np.asfortranarray(X), X[::-1], np.broadcast_to(X[:1], X.shape)):
                value = engine.OrtValue.ortvalue_from_numpy(x)
                binding = session.io_binding()
                binding.bind_input("x", value.device_name(), 0, np.float32, value.shape(),
                                   value.data_ptr())
                binding.bind_output("y")
                session.run_with_iobinding(binding)
                np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], x @ WEIGHTS,
                                           rtol=1e-5, atol=1e-6)
        value = attnrun.OrtValue.ortvalue_from_numpy(X.astype(">f4"))
        self.assertTrue(value.numpy().dtype.isnative)
        np.testing.assert_array_equal(value.numpy(), X)
        value = attnrun.OrtValue.from_dlpack(X.T)
        self.assertTrue(value.numpy().flags.c_contiguous)

    def test_values(self):
        for engine in BOTH:
            value = engine.OrtValue.ortvalue_from_numpy(X.copy())
            self.assertEqual((value.data_type(), value.element_type(), value.shape(),
                              value.device_name(), value.is_tensor(), value.has_value()),
                             ("tensor(float)", 1, [5, 4], "cpu", True, True))
            value.update_inplace(3 * X)
            value.update_inplace(engine.OrtValue.ortvalue_from_numpy(2 * X))
            np.testing.assert_array_equal(value.numpy(), 2 * X)
            np.testing.assert_array_equal(np.asarray(value), 2 * X)
            self.assertEqual(np.array(value, "f8").dtype, np.float64)
            self.assertEqual(value.tensor_size_in_bytes(), X.nbytes)
            half = engine.OrtValue.ortvalue_from_numpy_with_onnx_type(
                np.array([0x3f80, 0x4000], np.uint16), TensorProto.BFLOAT16)
            self.assertEqual((half.data_type(), half.shape()), ("tensor(bfloat16)", [2]))
            session = engine.InferenceSession(models.linear(WEIGHTS), providers=CPU)
            made = session.run_with_ort_values(["y"], {"x": value})
            np.testing.assert_allclose(made[0].numpy(), 2 * X @ WEIGHTS, rtol=1e-5, atol=1e-5)


class Installed(unittest.TestCase):
    PROGRAM = """
import attnrun
attnrun.install_as_onnxruntime()
import onnxruntime, onnxruntime as again
from onnxruntime import InferenceSession, SessionOptions, GraphOptimizationLevel
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument
from onnxruntime.capi._pybind_state import OrtValue
assert InferenceSession is attnrun.InferenceSession and again is onnxruntime
assert attnrun.install_as_onnxruntime() is onnxruntime
assert onnxruntime.get_available_providers() == ["CPUExecutionProvider"]
import importlib.util
for name in ("onnxruntime", "onnxruntime.capi", "onnxruntime.capi._pybind_state"):
    assert importlib.util.find_spec(name).name == name
assert onnxruntime.get_version_string() == onnxruntime.__version__
assert "attnrun" in onnxruntime.get_build_info()
options = SessionOptions()
options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
try:
    InferenceSession(b"nothing", options)
except InvalidArgument as error:
    print("refused", error.status)
"""

    def test_only_when_asked_and_before_the_import(self):
        self.assertRaises(RuntimeError, attnrun.install_as_onnxruntime)
        self.assertIs(sys.modules["onnxruntime"], onnxruntime)
        done = subprocess.run([sys.executable, "-c", self.PROGRAM], capture_output=True,
                              text=True, check=False, env=os.environ)
        self.assertEqual((done.returncode, done.stdout), (0, "refused PARSE\n"), done.stderr)


if __name__ == "__main__":
    unittest.main()
