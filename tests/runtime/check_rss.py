"""check_rss.py - memory that a model with large weights really takes.

usage: check_rss.py LIBATTNRUN.SO

The weights are mapped from the file and packed by the first context; then the pages of the
file must be gone: at most 1.1 times the weights are resident, with one context and with two.
While packing, each worker may hold one more weight.
"""
import ctypes
import os
import subprocess
import sys
import tempfile

MIB = 2**20
LAYERS, WIDE, NARROW = 12, 2048, 1024  # 8 MiB a weight


def write_model(path, external_offset=None, op="MatMul"):
    """A chain of products; the weights inside the file, or outside from an offset on."""
    import numpy as np
    from onnx import TensorProto, helper, save

    weights = np.random.default_rng(0).standard_normal((NARROW, WIDE), dtype=np.float32)
    nodes, constants, name = [], [], "x"
    folder = os.path.dirname(path)
    with open(f"{folder}/weights.bin", "wb") as outside:
        outside.write(b"\0" * (external_offset or 0))
        for i in range(LAYERS):
            shape = (NARROW, WIDE) if (i % 2 == 0) == (op == "MatMul") else (WIDE, NARROW)
            if op == "Conv":
                shape += (1, 1)
            tensor = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT, dims=shape)
            raw = (weights + np.float32(i)).reshape(shape).tobytes()
            if external_offset is None:
                tensor.raw_data = raw
            else:
                tensor.data_location = TensorProto.EXTERNAL
                for key, value in (("location", "weights.bin"), ("offset", outside.tell()),
                                   ("length", len(raw))):
                    tensor.external_data.add(key=key, value=str(value))
                outside.write(raw)
            constants.append(tensor)
            nodes.append(helper.make_node(op, [name, f"w{i}"], [f"y{i}"],
                                          **({"transB": 1} if op == "Gemm" else {})))
            name = f"y{i}"
    dims = ["N", NARROW] + ([1, 1] if op == "Conv" else [])
    graph = helper.make_graph(
        nodes, "rss", [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 10
    save(model, path)


# ---- the process that is measured: little else is in it ----

class Options(ctypes.Structure):
    """attnrun_runtime_options up to `threads`."""

    _fields_ = [("struct_size", ctypes.c_uint32), ("threads", ctypes.c_int32)]


class Source(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("flags", ctypes.c_uint32),
                ("path", ctypes.c_char_p), ("data", ctypes.c_void_p),
                ("bytes", ctypes.c_uint64), ("external_dir", ctypes.c_char_p),
                ("disable_passes", ctypes.c_char_p)]


def status_bytes(key):
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {key}")


def measure(library, path, threads):
    """Prints bytes above the base: with one context, with two, and at most."""
    lib = ctypes.CDLL(library)
    runtime, model = ctypes.c_void_p(), ctypes.c_void_p()
    options = Options(ctypes.sizeof(Options), int(threads))
    source = Source(ctypes.sizeof(Source), 0, path.encode())
    if lib.attnrun_runtime_create(ctypes.byref(options), ctypes.byref(runtime)):
        sys.exit("cannot make a runtime")
    base, found = status_bytes("VmRSS"), []
    if lib.attnrun_model_open(runtime, ctypes.byref(source), ctypes.byref(model)):
        sys.exit("cannot open the model")
    for _ in range(2):
        context = ctypes.c_void_p()
        if lib.attnrun_context_create(model, ctypes.byref(context)):
            sys.exit("cannot make a context")
        found.append(status_bytes("VmRSS") - base)
    print(*found, status_bytes("VmHWM") - base)


def check(library, path, what, threads):
    done = subprocess.run([sys.executable, __file__, "--measure", library, path,
                           str(threads)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{what}: {done.stderr.strip()}")
    one, two, peak = (int(word) for word in done.stdout.split())
    largest = WIDE * NARROW * 4
    weights = LAYERS * largest
    text = (f"{what}, {threads} threads: weights {weights / MIB:.0f} MiB, resident "
            f"{one / MIB:.1f} with one context, {two / MIB:.1f} with two, peak "
            f"{peak / MIB:.1f}")
    print(text)
    if max(one, two) > 1.1 * weights or one < weights / 2:
        sys.exit(f"{text}: expected at most {1.1 * weights / MIB:.1f} MiB resident")
    if peak > weights + threads * largest + 16 * MIB:
        sys.exit(f"{text}: expected a peak of at most the weights, {threads} more and 16 MiB")


def main():
    if sys.argv[1] == "--measure":
        measure(*sys.argv[2:])
        return
    cases = (("raw_data", {}), ("external data", {"external_offset": 4096}),
             ("external data at odd addresses", {"external_offset": 4097}),
             ("Gemm with transB", {"op": "Gemm"}),
             ("Conv at odd addresses", {"op": "Conv", "external_offset": 4097}))
    for what, options in cases:
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/model.onnx"
            write_model(path, **options)
            for threads in (1, 2):
                check(sys.argv[1], path, what, threads)


main()
