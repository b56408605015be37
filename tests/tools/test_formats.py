#!/usr/bin/env python3
"""npy and npz files, good ones of every type and damaged ones: read right, or refused with one
line and the exit code of their fault; never a crash, never a wrong value.

usage: test_formats.py ATTNRUN
"""
import io
import json
import random
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile
import zlib
from pathlib import Path

import numpy
from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).parent))
import cli_models  # noqa: E402

ATTNRUN = sys.argv[1]
MAGIC = b"\x93NUMPY"
DATA = numpy.arange(6, dtype="f").reshape(2, 3)


def npy(array):
    out = io.BytesIO()
    numpy.save(out, array)
    return out.getvalue()


def header(text, data, version=1, length=None):
    """A npy file of this dictionary text."""
    text = text if isinstance(text, bytes) else text.encode()
    length = len(text) if length is None else length
    size = struct.pack("<H" if version == 1 else "<I", length)
    return MAGIC + bytes([version, 0]) + size + text + data


def described(descr="'<f4'", order="False", shape="(2, 3)", data=None, **more):
    return header(f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n",
                  DATA.tobytes() if data is None else data, **more)


class Formats(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.dir = Path(cls.folder.name)
        cls.model = cli_models.save(
            cls.dir / "identity.onnx", [helper.make_node("Abs", ["x"], ["y"])],
            [("x", TensorProto.FLOAT, None)], [("y", TensorProto.FLOAT, None)])

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def read(self, data, suffix=".npy", model=None, *more):
        path, out = self.dir / f"in{suffix}", self.dir / "out.npy"
        path.write_bytes(data)
        out.unlink(missing_ok=True)
        done = subprocess.run([ATTNRUN, "run", model or self.model, "-i", f"x={path}", "-q",
                               "-o", out, *more], capture_output=True, text=True, timeout=20)
        return done, numpy.load(out) if done.returncode == 0 else None

    def reads(self, data, expected, *more, **names):
        done, got = self.read(data, *more, **names)
        self.assertEqual(done.returncode, 0, done.stderr)
        numpy.testing.assert_array_equal(got, expected)
        self.assertEqual(got.dtype, expected.dtype)

    def refuses(self, codes, data, suffix=".npy", *more):
        done, _ = self.read(data, suffix, None, *more)
        self.assertIn(done.returncode, codes, done.stderr)
        self.assertRegex(done.stderr, "^attnrun: .*\n(hint: .*\n)?$")
        return done.stderr

    # ---- npy ----
    def test_every_type(self):
        kinds = {"f2": "FLOAT16", "f4": "FLOAT", "f8": "DOUBLE", "i1": "INT8", "i2": "INT16",
                 "i4": "INT32", "i8": "INT64", "u1": "UINT8", "u2": "UINT16", "u4": "UINT32",
                 "u8": "UINT64", "?": "BOOL"}
        for kind, onnx_name in kinds.items():
            dtype = getattr(TensorProto, onnx_name)
            model = cli_models.save(
                self.dir / "one.onnx", [helper.make_node("Identity", ["x"], ["y"])],
                [("x", dtype, ["A", "B", 4])], [("y", dtype, ["A", "B", 4])])
            array = numpy.arange(24).reshape(2, 3, 4).astype(kind)
            for order in "CF":
                for endian in "<>":
                    stored = numpy.asarray(array, order=order).astype(
                        numpy.dtype(kind).newbyteorder(endian), order="K")
                    with self.subTest(kind=kind, order=order, endian=endian):
                        self.reads(npy(stored), array, model=model)

    def test_numbers_that_a_narrow_type_lacks(self):
        for kind, good, bad in ((TensorProto.FLOAT8E8M0, ("nan", "3e38", "6e-39"),
                                 ("1e39", "1e300", "0", "-1", "inf")),
                                (TensorProto.FLOAT4E2M1, ("6", "-0.5"), ("nan",))):
            path = cli_models.save(
                self.dir / "narrow.onnx", [helper.make_node("Cast", ["x"], ["y"], to=1)],
                [("x", kind, [1])], [("y", TensorProto.FLOAT, [1])], opset=24, ir=12)
            for text in good:
                out = self.dir / "y.npy"
                self.run_ok(path, f"x=[{text}]", out)
                numpy.testing.assert_allclose(numpy.load(out), [float(text)], rtol=0.5)
            for text in bad:
                done = subprocess.run([ATTNRUN, "run", path, "-q", "-i", f"x=[{text}]"],
                                      capture_output=True, text=True, timeout=60)
                self.assertEqual(done.returncode, 5, text)
                self.assertIn("does not fit", done.stderr)

    def test_summaries(self):
        most = 2.0**1023
        for kind, values, wanted in (
                ("F", [complex(1, numpy.nan), 3, complex(numpy.inf, 1)], (3, 3, 3, 1, 1)),
                ("d", [1.5 * most, most, numpy.inf], (1.25 * most, most, 1.5 * most, 0, 1))):
            dtype = helper.np_dtype_to_tensor_dtype(numpy.dtype(kind))
            path = cli_models.save(
                self.dir / "same.onnx", [helper.make_node("Identity", ["x"], ["y"])],
                [("x", dtype, [3])], [("y", dtype, [3])])
            numpy.save(self.dir / "x.npy", numpy.array(values, kind))
            done = subprocess.run([ATTNRUN, "run", path, "-i", f"x={self.dir}/x.npy", "--json"],
                                  capture_output=True, text=True, timeout=60, check=True)
            row = json.loads(done.stdout)["outputs"][0]
            self.assertEqual(tuple(row[name] for name in ("mean", "min", "max", "nan_count",
                                                          "infinite_count")), wanted)

    def run_ok(self, path, given, out):
        done = subprocess.run([ATTNRUN, "run", path, "-q", "-i", given, "-o", out],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_shapes_and_versions(self):
        for shape in ((), (0,), (0, 3), (1,), (2, 1, 3), (1,) * 8):
            self.reads(npy(numpy.ones(shape, "f")), numpy.ones(shape, "f"))
        for version in (1, 2, 3):
            self.reads(described(version=version), DATA)
        self.reads(header("{'shape':(2,3,),\"descr\":'<f4','fortran_order':False}",
                          DATA.tobytes()), DATA)

    def test_lying_headers(self):
        size = DATA.nbytes
        cases = {
            "empty file": ((3,), b""),
            "only the magic": ((3,), MAGIC),
            "other magic": ((3,), b"\x93NUMPX" + described()[6:]),
            "version 9": ((3,), described().replace(b"Y\x01", b"Y\x09", 1)),
            "header past the end": ((3,), described(length=65535)),
            "4 GB header": ((3,), described(version=2, length=2**32 - 16)),
            "header over 64 KiB": ((6,), header(b" " * 70000, b"", version=2)),
            "data too short": ((3,), described(data=DATA.tobytes()[:-4])),
            "data too long": ((3,), described(data=DATA.tobytes() + b"1234")),
            "shape too large": ((3,), described(shape="(2, 300)")),
            "shape wraps": ((3, 6), described(shape="(4294967296, 4294967296)")),
            "shape wraps to the size": ((3, 6), described(shape="(4611686018427387905, 4)")),
            "huge dimension": ((6,), described(shape="(99999999999999999999999,)")),
            "zero hides a wrap": ((3, 6), described(shape="(0, 4611686018427387904, 8)")),
            "negative": ((3,), described(shape="(-2, -3)")),
            "rank 9": ((6,), described(shape="(1, 1, 1, 1, 1, 1, 1, 2, 3)")),
            "rank 10000": ((6,), described(shape="(" + "1," * 10000 + ")", version=2)),
            "floats as sizes": ((3,), described(shape="(2.0, 3)")),
            "a list as shape": ((3,), described(shape="[2, 3]")),
            "pickle": ((5,), described(descr="'|O'")),
            "text of no characters": ((3,), described(descr="'<U4'", data=b"0" * 96)),
            "text for floats": ((5,), described(descr="'<U1'", data=b"a\0\0\0" * 6)),
            "text of 10^8 characters": ((3,), described(descr="'<U99999999'")),
            "records": ((5,), described(descr="[('a', '<f4')]")),
            "f999999999999": ((5,), described(descr="'<f999999999999'")),
            "f3": ((5,), described(descr="'<f3'")),
            "empty descr": ((5,), described(descr="''")),
            "fortran_order 7": ((3,), described(order="7")),
            "key twice": ((3,), header("{'descr': '<f4', 'descr': '<f4'}", b"0" * size)),
            "key missing": ((3,), header("{'descr': '<f4', 'shape': (2, 3)}", b"0" * size)),
            "unknown key": ((3,), header("{'descr': '<f4', 'import': 'os'}", b"")),
            "no dictionary": ((3,), header("__import__('os')", b"")),
            "text behind it": ((3,), described().replace(b"}\n", b"}x", 1)),
            "NUL": ((3,), described().replace(b"}\n", b"}\0", 1)),
            "parentheses": ((3,), header("(" * 60000, b"")),
            "no quotes": ((3,), described(descr="<f4")),
        }
        for name, (codes, data) in cases.items():
            with self.subTest(name):
                self.refuses(codes, data)

    # ---- npz ----
    def archive(self, *entries, **options):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", **options) as z:
            for name, data in entries:
                z.writestr(name, data)
        return out.getvalue()

    def test_good_archives(self):
        for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            data = self.archive(("z.npy", b"ignored"), ("x.npy", npy(DATA)),
                                compression=compression)
            self.reads(data, DATA, ".npz")
        out = io.BytesIO()
        numpy.savez(out, x=DATA)  # zip64 local headers
        self.reads(out.getvalue(), DATA, ".npz")
        with zipfile.ZipFile(out, "w") as z:
            z.comment = b"a comment"
            with z.open(zipfile.ZipInfo("x.npy"), "w", force_zip64=True) as entry:
                entry.write(npy(DATA))
        self.reads(out.getvalue(), DATA, ".npz")

    def test_damaged_archives(self):
        good = self.archive(("x.npy", npy(DATA)))
        packed = self.archive(("x.npy", npy(numpy.zeros(100000, "f"))),
                              compression=zipfile.ZIP_DEFLATED)
        directory = good.index(b"PK\1\2")

        def patched(offset, data, base=good):
            return base[:offset] + data + base[offset + len(data):]

        twice = self.archive(("x.npy", npy(DATA)), ("y.npy", npy(DATA)))
        overlap = bytearray(twice)
        second = twice.rindex(b"PK\1\2")
        overlap[second + 42:second + 46] = struct.pack("<I", 0)
        cases = {
            "empty": ((3,), b""),
            "no zip": ((3,), b"PK" * 50),
            "directory cut": ((3,), good[:-10]),
            "first half": ((3,), good[:len(good) // 2]),
            "flipped byte": ((3,), patched(directory - 3, b"\x7f")),
            "packed bytes cut": ((3,), patched(60, b"\xff" * 20, packed)),
            "size of 4 GB": ((3,), patched(directory + 24, struct.pack("<I", 2**32 - 2))),
            "two sizes": ((3,), patched(directory + 24, struct.pack("<I", 7))),
            "offset past the file": ((3,), patched(directory + 42,
                                                   struct.pack("<I", 2**31))),
            "zip64 without its field": ((3,), patched(directory + 24, b"\xff" * 4)),
            "method 99": ((4,), patched(directory + 10, struct.pack("<H", 99))),
            "encrypted": ((4,), patched(directory + 8, b"\1")),
            "no local header": ((3,), patched(0, b"QQ")),
            "overlap": ((3,), bytes(overlap)),
            "20000 entries": ((6,), self.archive(*((f"{i}.npy", b"") for i in range(20000)))),
            "NUL in a name": ((3,), good.replace(b"x.npy", b"x\0npy")),
            "bomb": ((3, 6), patched(packed.index(b"PK\1\2") + 24,
                                     struct.pack("<I", 2**31 - 1), packed)),
        }
        for name, (codes, data) in cases.items():
            with self.subTest(name):
                self.refuses(codes, data, ".npz")
        bomb = self.archive(("x.npy", npy(numpy.zeros(1 << 24, "f"))),
                            compression=zipfile.ZIP_DEFLATED)
        self.refuses((6,), bomb, ".npz", "--max-memory", "16M")
        with_same = io.BytesIO()
        with zipfile.ZipFile(with_same, "w") as z:
            z.writestr("x.npy", npy(DATA))
            sys.stderr, keep = io.StringIO(), sys.stderr
            z.writestr("x.npy", npy(DATA + 1))
            sys.stderr = keep
        self.refuses((3,), with_same.getvalue(), ".npz")

    def test_names_that_climb(self):
        data = self.archive(("../../x.npy", npy(DATA)))
        self.refuses((5,), data, ".npz")

    def test_mutants(self):
        """Random damage: an answer or a refusal, in good order."""
        chance = random.Random(5)
        seeds = [(npy(DATA), ".npy"), (self.archive(("x.npy", npy(DATA))), ".npz"),
                 (self.archive(("x.npy", npy(DATA)), compression=zipfile.ZIP_DEFLATED), ".npz")]
        for turn in range(150):
            data, suffix = seeds[turn % 3]
            data = bytearray(data)
            for _ in range(chance.randint(1, 4)):
                data[chance.randrange(len(data))] = chance.choice([0, 1, 127, 255, 39, 40])
            if chance.random() < 0.2:
                del data[chance.randrange(len(data)):]
            done, _ = self.read(bytes(data), suffix)
            with self.subTest(turn=turn):
                self.assertIn(done.returncode, (0, 3, 4, 5, 6), done.stderr)

    # ---- what is written ----
    def test_written_archive_is_a_proper_one(self):
        model = cli_models.save(
            self.dir / "two.onnx",
            [helper.make_node("Abs", ["x"], ["a/b"]), helper.make_node("Neg", ["x"], ["c"])],
            [("x", TensorProto.FLOAT, ["N"])],
            [("a/b", TensorProto.FLOAT, ["N"]), ("c", TensorProto.FLOAT, ["N"])])
        out = self.dir / "two.npz"
        done = subprocess.run([ATTNRUN, "run", model, "-i", "x=[-1,2]", "-q", "-o", out],
                              timeout=20)
        self.assertEqual(done.returncode, 0)
        with zipfile.ZipFile(out) as z:
            self.assertIsNone(z.testzip())
            self.assertEqual(z.namelist(), ["a/b.npy", "c.npy"])
            self.assertEqual(z.infolist()[0].CRC, zlib.crc32(z.read("a/b.npy")))
        self.assertEqual(numpy.load(out)["c"].tolist(), [1, -2])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
