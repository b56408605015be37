"""check_packing.py - memory that a model with large weights takes, as the library counts it.

usage: check_packing.py PACK_COUNTS

The weights are mapped from the file and packed by the first context; then the pages of the
file must be given back, but for those that a weight shares with its neighbours: no more than
1.1 times the weights are held, with one context and with two. While packing, each worker may
hold one more weight.
"""
import os
import subprocess
import sys
import tempfile

MIB, PAGE = 2**20, os.sysconf("SC_PAGESIZE")
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


def check(pack_counts, path, what, threads):
    done = subprocess.run([pack_counts, path, str(threads)], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"{what}: {done.stderr.strip()}")
    one, two, peak, dropped = (int(word) for word in done.stdout.split())
    largest = WIDE * NARROW * 4
    weights = LAYERS * largest
    text = (f"{what}, {threads} threads: weights {weights / MIB:.0f} MiB, held "
            f"{one / MIB:.1f} with one context, {two / MIB:.1f} with two, at most "
            f"{peak / MIB:.1f}, given back {dropped / MIB:.1f}")
    print(text)
    kept = weights - dropped
    if not 0 <= kept <= LAYERS * 2 * PAGE:
        sys.exit(f"{text}: expected all pages back but two a weight")
    if not weights / 2 <= one <= two or two + kept > 1.1 * weights:
        sys.exit(f"{text}: expected at most {1.1 * weights / MIB:.1f} MiB held")
    if peak > weights + threads * largest + 16 * MIB:
        sys.exit(f"{text}: expected at most the weights, {threads} more and 16 MiB")


def main():
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
