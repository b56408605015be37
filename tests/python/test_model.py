#!/usr/bin/env python3
"""attnrun.Model and attnrun.Context: inputs of every kind, memory, states, errors, threads.

usage: PYTHONPATH=BUILD/python test_model.py"""
import ctypes
import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import attnrun
import ml_dtypes
import numpy as np
import onnx
import torch
from onnx import TensorProto, helper

import models

OPENING = """
import os, signal, sys, threading
import attnrun
data = sys.stdin.buffer.read()
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores SIGINT
try:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    attnrun.Model(data, threads=1)
except KeyboardInterrupt:
    print("interrupted")
"""
WEIGHTS = np.random.default_rng(7).standard_normal((4, 3)).astype("f")


def rows(n, seed=1):
    return np.random.default_rng(seed).standard_normal((n, 4)).astype("f")


class Inputs(unittest.TestCase):
    def setUp(self):
        self.model = attnrun.Model(models.linear(WEIGHTS))

    def check(self, x, like):
        np.testing.assert_allclose(self.model(x=x)["y"], like @ WEIGHTS, rtol=1e-5, atol=1e-6)

    def test_numpy_of_any_strides(self):
        x = rows(6)
        self.check(x, x)
        self.check(x[::2], x[::2])
        self.check(x[::-1, ::-1], x[::-1, ::-1])
        self.check(np.asfortranarray(x), x)
        self.check(np.broadcast_to(x[:1], (5, 4)), np.repeat(x[:1], 5, 0))
        self.check(x.astype(">f4"), x)

    def test_precision(self):
        draw = np.random.default_rng(3)
        weights, x = draw.standard_normal((64, 48)).astype("f"), rows(5 * 64).reshape(20, 64)
        source = models.linear(weights)
        got = attnrun.Model(source, precision="bf16")(x=x)["y"]
        off = np.abs(got - x.astype("d") @ weights) / (np.abs(x) @ np.abs(weights))
        self.assertLess(off.max(), 2 ** -8)
        self.assertTrue((got != attnrun.Model(source)(x=x)["y"]).any())
        attnrun.Model(source, precision="auto")(x=x)
        with self.assertRaisesRegex(ValueError, "'f16', expected one of f32, bf16, auto"):
            attnrun.Model(source, precision="f16")

    def test_ragged(self):
        source = models.encoder(8)
        x = np.random.default_rng(4).standard_normal((3, 6, 8)).astype("f")
        mask = (np.arange(6) < np.array([[6], [2], [0]])).astype(np.int64)
        want = attnrun.Model(source)(x=x, mask=mask)["y"]
        got = attnrun.Model(source, ragged=True)(x=x, mask=mask)["y"]
        np.testing.assert_allclose(got[mask != 0], want[mask != 0], rtol=1e-5, atol=1e-5)
        self.assertFalse(got[mask == 0].any())
        self.assertTrue(want[mask == 0].any())
        context = attnrun.Model(source, ragged=True).context()
        whole = context.run({"x": x, "mask": mask}, all_tokens=True)["y"]
        np.testing.assert_allclose(whole, want, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(context.run({"x": x, "mask": mask})["y"], got)
        padded = attnrun.Model(source, ragged="auto")(x=x, mask=mask)["y"]
        np.testing.assert_array_equal(padded, want)  # the output has rows of padding
        with self.assertRaisesRegex(attnrun.Error, "expected 0 or 1"):
            attnrun.Model(source, ragged=True)(x=x, mask=2 * mask)
        with self.assertRaisesRegex(attnrun.Error, "cannot run on the tokens"):
            attnrun.Model(models.linear(x[0]), ragged=True)
        with self.assertRaisesRegex(attnrun.Error, "cannot be written to a packed file"):
            attnrun.Model(source, ragged=True).pack(os.devnull)
        with self.assertRaisesRegex(ValueError, "'on', expected True, False or 'auto'"):
            attnrun.Model(source, ragged="on")

    def test_packed_file(self):
        x = rows(5)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "net.attnpack")
            self.model.pack(path)
            packed = attnrun.Model(path)
            np.testing.assert_array_equal(packed(x=x)["y"], self.model(x=x)["y"])
            with open(path, "rb") as file:  # bytes lie at any address
                held = attnrun.Model(file.read())
            np.testing.assert_array_equal(held(x=x)["y"], self.model(x=x)["y"])
            with self.assertRaisesRegex(attnrun.Error, "give these options to attnrun pack"):
                attnrun.Model(path, fusion=False)
            with self.assertRaises(OSError):
                self.model.pack(os.path.join(folder, "none", "net.attnpack"))
            self.assertEqual(os.listdir(folder), ["net.attnpack"])

    def test_dims_that_are_fixed(self):
        x = rows(5)
        model = attnrun.Model(models.linear(WEIGHTS), dims={"B": 5})
        self.assertEqual((model.inputs[0].shape, model.outputs[0].shape), ((5, 4), (5, 3)))
        np.testing.assert_allclose(model(x=x)["y"], x @ WEIGHTS, rtol=1e-5, atol=1e-6)
        for dims, status in (({"Q": 5}, "USAGE"), ({"B": -1}, "USAGE")):
            with self.assertRaises(attnrun.Error) as caught:
                attnrun.Model(models.linear(WEIGHTS), dims=dims)
            self.assertEqual(caught.exception.status, status)
        with self.assertRaises(attnrun.Error) as caught:
            model(x=rows(4))
        self.assertEqual((caught.exception.status, caught.exception.tensor), ("SHAPE", "x"))

    def test_names_and_texts_that_are_no_utf8(self):
        model = onnx.ModelProto.FromString(models.identity(TensorProto.FLOAT))
        model.graph.node[0].input[0] = model.graph.input[0].name = "NAME"
        model.producer_name = model.doc_string = "TEXT"
        data = model.SerializeToString().replace(b"NAME", b"a\xffbc").replace(b"TEXT", b"\xfeabc")
        model = attnrun.Model(data)
        name = b"a\xffbc".decode(errors="surrogateescape")
        self.assertEqual(model.inputs[0].name, name)
        self.assertEqual(model.info["producer"], "\ufffdabc")
        x = np.arange(3, dtype="f")
        np.testing.assert_array_equal(model(**{name: x})["y"], x)
        for feeds in ({name: x, "\udcff": x}, {}):
            with self.assertRaises(attnrun.Error) as caught:
                model(**feeds)
            self.assertEqual(caught.exception.status, "INPUT")
            str(caught.exception).encode()
        with self.assertRaises(attnrun.Error):
            model.plan()

    def test_lists_torch_and_memoryviews(self):
        x = rows(2)
        self.check(x.tolist(), x)
        self.check(torch.from_numpy(x), x)
        self.check(torch.from_numpy(x.T.copy()).T, x)
        self.check(memoryview(x), x)
        self.assertEqual(attnrun.Model(models.joined())(x=[1.5, 2])["y"].tolist(), [1.5, 2])
        self.check(((ctypes.c_float * 4) * 2)(*map(tuple, x.tolist())), x)

    def test_path_bytes_and_bytearray_are_one_model(self):
        x, data = rows(3), models.linear(WEIGHTS)
        with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
            file.write(data)
            file.flush()
            from_path = attnrun.Model(file.name)(x=x)["z"]
        mutable = bytearray(data)
        model = attnrun.Model(mutable)
        np.testing.assert_array_equal(model(x=x)["z"], from_path)
        np.testing.assert_array_equal(self.model(x=x)["z"], from_path)

    def test_description(self):
        self.assertEqual([tuple(v)[:3] for v in self.model.inputs], [("x", "f32", ("B", 4))])
        self.assertEqual([v.name for v in self.model.outputs], ["y", "z"])
        self.assertEqual(self.model.info["metadata"], {"language": "en", "labels": "a,b"})


class Types(unittest.TestCase):
    def test_every_type_comes_back_bit_by_bit(self):
        rng = np.random.default_rng(3)
        plain = {TensorProto.DOUBLE: "f8", TensorProto.FLOAT16: "f2", TensorProto.INT8: "i1",
                 TensorProto.INT16: "i2", TensorProto.INT32: "i4", TensorProto.INT64: "i8",
                 TensorProto.UINT8: "u1", TensorProto.UINT16: "u2", TensorProto.UINT32: "u4",
                 TensorProto.UINT64: "u8", TensorProto.BOOL: "?", TensorProto.COMPLEX64: "c8",
                 TensorProto.COMPLEX128: "c16", TensorProto.BFLOAT16: ml_dtypes.bfloat16,
                 TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
                 TensorProto.FLOAT8E5M2: ml_dtypes.float8_e5m2,
                 TensorProto.INT4: ml_dtypes.int4, TensorProto.UINT4: ml_dtypes.uint4}
        for number, dtype in plain.items():
            dtype = np.dtype(dtype)
            x = rng.integers(-8 if dtype.kind == "i" else 0, 7, 13).astype(dtype)
            y = attnrun.Model(models.identity(number))(x=x)["y"]
            self.assertEqual(y.dtype, dtype)
            np.testing.assert_array_equal(x.astype("f8" if dtype.kind != "c" else "c16"),
                                          y.astype("f8" if dtype.kind != "c" else "c16"))

    def test_bits_stand_for_types_that_numpy_lacks(self):
        """So outputs go in again where ml_dtypes is not installed."""
        for number, dtype, bits in ((TensorProto.BFLOAT16, ml_dtypes.bfloat16, "u2"),
                                    (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn, "u1"),
                                    (TensorProto.INT4, ml_dtypes.int4, "u1")):
            x = np.arange(-6, 7).astype(dtype)
            model = attnrun.Model(models.identity(number))
            for given in (x.view(bits), np.repeat(x.view(bits), 2)[::2]):
                y = model(x=given)["y"]
                self.assertEqual(y.dtype, np.dtype(dtype))
                np.testing.assert_array_equal(x.astype("f"), y.astype("f"))
            with self.assertRaises(attnrun.Error):
                model(x=np.zeros(3, "u1" if bits == "u2" else "u2"))
        with self.assertRaisesRegex(attnrun.Error, "a code of int4 has 4 bits, and 247 is given"):
            model(x=np.array([7, 0xf8, 0xf7], "u1"))

    def test_lists_hold_numbers_of_the_type(self):
        """None of them is cut, and a text is none."""
        for number, good, bad in ((TensorProto.INT64, [3.0, True], ([1.5], ["7"], b"12", [1e30])),
                                  (TensorProto.BOOL, [1.0, 0], ([2.5], [2])),
                                  (TensorProto.FLOAT, [1 << 70, 1], ([None], ["7"], [1j], [1e39]))):
            model = attnrun.Model(models.identity(number))
            self.assertEqual(model(x=good)["y"].tolist(), good)
            for x in bad:
                with self.assertRaises(attnrun.Error):
                    print(x, model(x=x)["y"])

    def test_strings(self):
        model = attnrun.Model(models.identity(TensorProto.STRING, (2, 2)))
        given = np.array([["", "a\0b"], ["größer", "x" * 999]], object)
        np.testing.assert_array_equal(model(x=given)["y"], given)
        self.assertEqual(model(x=[["a", "b"], ["c", b"\xff"]])["y"].tolist(),
                         [["a", "b"], ["c", b"\xff"]])

    def test_bfloat16_of_torch(self):
        x = torch.arange(7, dtype=torch.bfloat16) / 3
        context = attnrun.Model(models.identity(TensorProto.BFLOAT16)).context()
        y = context.run({"x": x})["y"]
        self.assertEqual(y.dtype, ml_dtypes.bfloat16)
        np.testing.assert_array_equal(y.astype("f"), x.float().numpy())
        self.assertTrue(torch.equal(torch.from_dlpack(context.view("y")), x))
        self.assertTrue((attnrun.Model(models.identity(16))(x=context.view("y"))["y"] == y).all())
        with self.assertRaisesRegex(attnrun.Error, "resolve_neg"):  # its memory has other signs
            context.run({"x": torch.ones(7, dtype=torch.bfloat16)._neg_view()})

    def test_sequences_and_optionals(self):
        tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
        sequence = helper.make_sequence_type_proto(tensor)
        at = models.value("at", TensorProto.INT64, [])
        model = attnrun.Model(models.serialized(
            [helper.make_node("SequenceInsert", ["s", "t", "at"], ["r"])],
            [helper.make_value_info("s", sequence), models.value("t", 1, [2]), at],
            [helper.make_value_info("r", sequence)]))
        parts = [np.array([i, 1], "f") for i in range(3)]
        made = model(s=parts[:2], t=parts[2], at=np.int64(1))["r"]
        np.testing.assert_array_equal(made, [parts[0], parts[2], parts[1]])
        optional = helper.make_optional_type_proto(tensor)
        model = attnrun.Model(models.serialized(
            [helper.make_node("OptionalHasElement", ["o"], ["has"])],
            [helper.make_value_info("o", optional)], [models.value("has", 9, [])]))
        self.assertTrue(model(o=parts[0])["has"])
        self.assertFalse(model(o=None)["has"])


class Contexts(unittest.TestCase):
    def test_out_is_written_and_returned(self):
        context = attnrun.Model(models.linear(WEIGHTS)).context()
        x, mine = rows(3), np.full((3, 3), np.nan, "f")
        got = context.run({"x": x}, ["y"], out={"y": mine})
        self.assertIs(got["y"], mine)
        np.testing.assert_allclose(mine, x @ WEIGHTS, rtol=1e-5, atol=1e-6)
        tensor = torch.full((3, 3), float("nan"))
        context.run({"x": x}, out={"y": tensor})
        np.testing.assert_array_equal(tensor.numpy(), mine)
        fresh = context.run({"x": x})["y"]
        self.assertFalse(np.shares_memory(fresh, mine))

    def test_out_that_does_not_fit_is_refused(self):
        context = attnrun.Model(models.linear(WEIGHTS)).context()
        wrong = np.zeros((2, 3), "f")
        with self.assertRaises(attnrun.Error) as caught:
            context.run({"x": rows(3)}, out={"y": wrong})
        self.assertEqual((caught.exception.status, caught.exception.tensor), ("SHAPE", "y"))
        frozen = np.zeros((3, 3), "f")
        frozen.flags.writeable = False
        for bad in (frozen, np.zeros((3, 6), "f")[:, ::2], [[0.0] * 3] * 3):
            with self.assertRaises((attnrun.Error, ValueError, TypeError)):
                context.run({"x": rows(3)}, out={"y": bad})

    def test_a_view_shares_memory_and_blocks_the_next_run(self):
        context = attnrun.Model(models.linear(WEIGHTS)).context()
        x = rows(3)
        expected = context.run({"x": x})["y"]
        array = np.asarray(context.view("y"))
        self.assertTrue(np.shares_memory(array, np.asarray(context.view("y"))))
        np.testing.assert_array_equal(array, expected)
        self.assertFalse(array.flags.writeable)
        self.assertRaises(BufferError, context.run, {"x": x})
        self.assertRaises(BufferError, context.trim)
        del array
        context.run({"x": x})
        tensor = torch.from_dlpack(context.view("y"))
        self.assertRaises(BufferError, context.run, {"x": x})
        del tensor
        view = context.view("y")
        del context
        gc.collect()
        np.testing.assert_array_equal(np.asarray(view), expected)

    def test_a_view_of_what_the_caller_gave_outlives_it(self):
        context = attnrun.Model(models.identity(TensorProto.FLOAT)).context()
        x = np.arange(100000, dtype="f")
        context.run({"x": x}, ())
        view = np.asarray(context.view("y"))
        x[:] = -1
        del x
        np.testing.assert_array_equal(view, np.arange(100000, dtype="f"))

    def test_what_a_run_wrote_elsewhere_has_no_view(self):
        context = attnrun.Model(models.linear(WEIGHTS)).context()
        x, given = rows(3), np.zeros((3, 3), "f")
        context.run({"x": x}, out={"y": given})
        del given
        for _ in range(2):
            with self.assertRaises(attnrun.Error) as caught:
                context.view("y")
            self.assertEqual(caught.exception.status, "USAGE")
            self.assertIn("out=", str(caught.exception))
            with self.assertRaises(attnrun.Error):
                context.run({})  # refused: the last successful run is the one before
        expected = context.run({"x": x})["y"]
        np.testing.assert_array_equal(np.asarray(context.view("y")), expected)
        context = attnrun.Model(models.two_shapes()).context()  # one is the other, flat
        for name, other in (("y", "flat"), ("flat", "y")):
            given = np.zeros((2, 3) if name == "y" else 6, "f")
            context.run({"x": np.ones((2, 3), "f")}, out={name: given})
            expected = given.flatten()
            given[:] = 7
            np.testing.assert_array_equal(np.asarray(context.view(other)).flatten(), expected)

    def test_an_input_of_the_run_before_is_not_used_again(self):
        self.assertEqual(attnrun.Model(models.identity(1, name="self")).context()(self=[2])["y"], 2)
        context = attnrun.Model(models.linear(WEIGHTS)).context()
        context(x=rows(3))
        with self.assertRaises(attnrun.Error) as caught:
            context()
        self.assertIn("input 0 'x' (f32[B,4]) is not given", str(caught.exception))

    def test_states_grow_are_cut_and_forgotten(self):
        context = attnrun.Model(models.cache()).context()
        context.add_state("past", "present")
        one = np.ones((1, 2), "f")
        self.assertEqual(context(past=np.zeros((0, 2), "f"), x=one)["total"], 2)
        for k in range(2, 40):
            made = context(x=one)
            self.assertEqual((made["total"], len(made["present"])), (2 * k, k))
        context.truncate_state("past", 3)
        self.assertEqual(context(x=one)["total"], 8)
        context.reset_states()
        with self.assertRaises(attnrun.Error):
            context(x=one)
        self.assertEqual(context(past=2 * one, x=one)["total"], 6)

    def test_states_belong_to_sequences_and_are_copied(self):
        model = attnrun.Model(models.cache())
        context, other = model.context(), model.context()
        none, one = np.zeros((0, 2), "f"), np.ones((1, 2), "f")
        for each in context, other:
            each.add_state("past", "present")
        context(past=none, x=one)
        context.select_sequence(3)
        self.assertEqual(context(past=none, x=5 * one)["total"], 10)
        context.select_sequence(0)
        self.assertEqual(context(x=one)["total"], 4)
        other.copy_states(context, 3)
        self.assertEqual(other(x=one)["total"], 12)
        context.copy_states(sequence=3)
        self.assertEqual(context(x=3 * one)["total"], 16)
        context.drop_sequence(3)
        for wrong in (lambda: context.copy_states(sequence=3), lambda: context.drop_sequence(0),
                      lambda: context.select_sequence(-1),
                      lambda: context.copy_states(attnrun.Model(models.cache()).context())):
            with self.assertRaises(attnrun.Error):
                wrong()

    def test_rows_of_states_are_reordered(self):
        context = attnrun.Model(models.cache(batch=True)).context()
        context.add_state("past", "present")
        context(past=np.zeros((3, 0, 2), "f"), x=np.arange(6, dtype="f").reshape(3, 1, 2))
        context.reorder_states([2, 0, 2, 1])
        made = context(x=np.ones((4, 1, 2), "f"))["present"]
        np.testing.assert_array_equal(made[:, 0, 0], [4, 0, 4, 2])
        context.reorder_states(np.array([3]), "past")
        made = context(x=np.ones((1, 1, 2), "f"))["present"]
        np.testing.assert_array_equal(made[0], [[2, 3], [1, 1], [1, 1]])
        with self.assertRaises(attnrun.Error) as caught:
            context.reorder_states([1], "past")
        self.assertIn("row 1", str(caught.exception))
        with self.assertRaises(attnrun.Error):
            context.reorder_states([0], "nothing")

    def test_plan_is_what_the_run_takes(self):
        model = attnrun.Model(models.linear(WEIGHTS))
        plan = model.plan(x=(1000, 4))
        self.assertEqual(plan.late_steps, 0)
        self.assertGreaterEqual(plan.arena_bytes, 1000 * 3 * 4)
        context = model.context()
        context(x=rows(1000))
        self.assertEqual(context.memory.arena_used_bytes, plan.arena_bytes)
        self.assertEqual(model.plan({"x": rows(1000)}), plan)
        with self.assertRaises(attnrun.Error) as caught:
            model.plan(x=(1000, 5))
        self.assertEqual(caught.exception.status, "SHAPE")
        with self.assertRaises(attnrun.Error):
            model.plan()


class Failures(unittest.TestCase):
    def status(self, call, *arguments, **feeds):
        with self.assertRaises(attnrun.Error) as caught:
            call(*arguments, **feeds)
        return caught.exception

    def test_sentences_status_and_places(self):
        model = attnrun.Model(models.linear(WEIGHTS))
        error = self.status(model, x=rows(2).astype("f8"))
        self.assertEqual((error.status, error.code, error.tensor), ("DTYPE", 501, "x"))
        self.assertIn("f64[2,4], but the model takes f32[B,4]", str(error))
        error = self.status(model, x=rows(2), q=1)
        self.assertEqual((error.status, error.tensor), ("INPUT", "q"))
        self.assertEqual(self.status(attnrun.Model, b"\xff" * 40).status, "PARSE")
        self.assertEqual(self.status(attnrun.Model, "there/is/none.onnx").status, "IO")
        data = models.serialized([helper.make_node("NoSuch", ["x"], ["y"], name="n0")],
                                 [models.value("x", 1, [1])], [models.value("y", 1, [1])])
        self.assertEqual(self.status(attnrun.Model, data).status, "UNSUPPORTED")

    def test_a_node_is_named(self):
        data = models.serialized(
            [helper.make_node("MatMul", ["a", "b"], ["y"], name="product")],
            [models.value("a", 1, ["M", "K"]), models.value("b", 1, ["L", "N"])],
            [models.value("y", 1, None)])
        error = self.status(attnrun.Model(data), a=np.zeros((2, 3), "f"),
                            b=np.zeros((4, 5), "f"))
        self.assertEqual((error.status, error.node, error.op_type),
                         ("SHAPE", "product", "MatMul"))

    def test_values_that_are_no_tensors(self):
        model = attnrun.Model(models.linear(WEIGHTS))
        for bad in (object(), [[1, 2], [3]], {"a": 1}, "text", np.zeros((1,) * 9, "f"),
                    np.zeros(2, "M8[s]"), torch.zeros(2, 4, device="meta")):
            with self.assertRaises(attnrun.Error, msg=repr(bad)) as caught:
                model(x=bad)
            error = caught.exception
            self.assertIn(error.status, ("INPUT", "DTYPE", "SHAPE"), error)
            self.assertEqual(error.tensor, "x", error)
            self.assertIn("input", str(error))
        for dtype in (1, 9, 11):  # one element of any shape: nan and False would run
            one = attnrun.Model(models.serialized(
                [helper.make_node("Identity", ["x"], ["y"])], [models.value("x", dtype, None)],
                [models.value("y", dtype, None)]))
            self.assertEqual(self.status(one, x=None).status, "INPUT")
        self.assertRaises(TypeError, model, rows(1))
        np.testing.assert_allclose(model(x=rows(1))["y"], rows(1) @ WEIGHTS, rtol=1e-5)

    def test_timeout_and_validate(self):
        one = np.ones(4, "f")
        context = attnrun.Model(models.endless()).context()
        error = self.status(context.run, {"x": one, "step": one}, timeout=0.05)
        self.assertEqual(error.status, "TIME")
        context = attnrun.Model(models.linear(WEIGHTS)).context()
        bad = rows(1) * np.float32(np.inf)
        self.assertEqual(self.status(context.run, {"x": bad}, validate=True).status,
                         "NONFINITE")

    def test_validate_looks_at_every_kind_of_output(self):
        nan = float("nan")
        for model, good, bad in (
                (models.identity(TensorProto.COMPLEX64), np.array([1 + 2j], "F"),
                 np.array([complex(1, nan)], "F")),
                (models.identity(TensorProto.COMPLEX128), np.array([[1j]] * 3).T[0],
                 np.array([[1j], [complex(nan, 0)], [0]]).T[0]),
                (models.cast(TensorProto.FLOAT8E4M3FN), np.ones(2, "f"), np.array([1, nan], "f")),
                (models.pair(), np.ones(2, "f"), np.array([1, nan], "f"))):
            context = attnrun.Model(model).context()
            context.run({"x": good}, validate=True, timeout=float("inf"))
            context.run({"x": bad})
            self.assertEqual(self.status(context.run, {"x": bad}, validate=True).status,
                             "NONFINITE")

    def test_memory_budget(self):
        model = attnrun.Model(models.linear(WEIGHTS),
                              runtime=attnrun.Runtime(threads=1, max_memory=1 << 20))
        self.assertEqual(self.status(model, x=np.zeros((1 << 20, 4), "f")).status, "MEMORY")

    def test_log_is_passed_on(self):
        seen = []
        runtime = attnrun.Runtime(threads=1, log=lambda level, text: seen.append((level, text)))
        attnrun.Model(models.linear(WEIGHTS), runtime=runtime)(x=rows(1))
        self.assertTrue(seen)


class Threads(unittest.TestCase):
    def test_many_threads_call_one_model(self):
        model, wrong = attnrun.Model(models.linear(WEIGHTS), threads=1), []

        def work(seed):
            for turn in range(50):
                x = rows(1 + turn % 7, seed)
                if not np.allclose(model(x=x)["y"], x @ WEIGHTS, rtol=1e-5, atol=1e-5):
                    wrong.append((seed, turn))

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_the_gil_is_free_in_runs_and_a_context_is_of_one_thread(self):
        one = np.ones(4, "f")
        context = attnrun.Model(models.endless(), threads=1).context()
        ends = []

        def work():
            try:
                context(x=one, step=one)
            except attnrun.Error as error:
                ends.append(error.status)

        thread = threading.Thread(target=work)
        thread.start()
        busy = ""
        while thread.is_alive() and busy != "USAGE":  # runs only where the GIL is free
            try:
                context.memory
            except attnrun.Error as error:
                busy = error.status
        self.assertEqual(busy, "USAGE")
        while thread.is_alive():
            context.cancel()
            thread.join(0.01)
        self.assertEqual(ends, ["CANCELLED"])

    def test_the_gil_is_free_while_a_plan_is_made(self):
        """Only then two threads meet at one context."""
        nodes = [helper.make_node("Neg", [f"x{i or ''}"], [f"x{i + 1}"]) for i in range(1000)]
        context = attnrun.Model(models.serialized(
            nodes, [models.value("x", 1, ["N"])], [models.value("x1000", 1, ["N"])]),
            fusion=False, threads=1).context()
        busy = []

        def meet(call):
            try:
                call()
            except attnrun.Error as error:
                busy.append(error.status)

        def work():
            for n in range(1, 300):
                if not busy:
                    meet(lambda: context.plan(x=(n,)))

        thread = threading.Thread(target=work)
        thread.start()
        while thread.is_alive():
            meet(lambda: context.memory)
        self.assertIn("USAGE", busy)

    def test_sigint_cancels_a_run(self):
        one = np.ones(4, "f")
        model = attnrun.Model(models.endless(), threads=1)
        before = signal.getsignal(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with self.assertRaises(KeyboardInterrupt):
            model(x=one, step=one)
        timer.join()
        signal.signal(signal.SIGINT, before)
        short = attnrun.Model(models.endless(3))
        np.testing.assert_array_equal(short(x=one, step=one)["y"], 4 * one)

    def test_sigint_ends_an_opening(self):
        done = subprocess.run([sys.executable, "-c", OPENING], input=models.slow_to_open(),
                              timeout=60, capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, b"interrupted\n"),
                         done.stderr.decode())

    def test_models_are_freed_without_the_collector(self):
        runtime = attnrun.Runtime(threads=1)
        gc.disable()
        try:
            start = runtime.info()["used_memory"]
            for _ in range(3):
                attnrun.Model(models.linear(WEIGHTS), runtime=runtime)(x=rows(2))
            self.assertEqual(runtime.info()["used_memory"], start)
        finally:
            gc.enable()

    def test_references_stay_level(self):
        model = attnrun.Model(models.linear(WEIGHTS))
        x = rows(2)
        for turns in (5, 200):
            before = sys.getrefcount(x), sys.getrefcount(None)
            for _ in range(turns):
                model(x=x)
                with self.assertRaises(attnrun.Error):
                    model(x=x, q=x)
            self.assertEqual(sys.getrefcount(x), before[0])
            self.assertLess(abs(sys.getrefcount(None) - before[1]), 50)


if __name__ == "__main__":
    unittest.main()
