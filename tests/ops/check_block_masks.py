"""Attention in blocks under masks from data, by blocks of unlike size of keys and by fills that are
no numbers, against ONNX Runtime.
Usage: check_block_masks.py ATTNRUN [SEED]"""
import json
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

BLOCKS, CHUNK, DIM = 4, 64, 16
KEYS = 3 * CHUNK
FAR = -1e4


def save(path, masks, nodes, constants=()):
    """q, k, v (B, 1, blocks, chunk, dim); each block sees itself and those beside it, by scores
    's' that `nodes` make 'masked' of."""
    arrays = [("pads", [0, 0, 1, 0, 0, 0, 0, 1, 0, 0]),
              ("index", np.arange(BLOCKS)[:, None] + np.arange(3)),
              ("window", [0, 0, 0, KEYS, DIM])]
    made = []
    for x in "kv":
        made += [helper.make_node("Pad", [x, "pads"], [x + "1"]),
                 helper.make_node("Gather", [x + "1", "index"], [x + "2"], axis=2),
                 helper.make_node("Reshape", [x + "2", "window"], [x + "3"])]
    made += [helper.make_node("Transpose", ["k3"], ["k4"], perm=[0, 1, 2, 4, 3]),
             helper.make_node("MatMul", ["q", "k4"], ["s"]), *nodes,
             helper.make_node("Softmax", ["masked"], ["p"], axis=-1),
             helper.make_node("MatMul", ["p", "v3"], ["y"])]
    inputs = [helper.make_tensor_value_info(x, TensorProto.FLOAT, ["B", 1, BLOCKS, CHUNK, DIM])
              for x in "qkv"]
    inputs += [helper.make_tensor_value_info(name, dtype, ["B", 1, BLOCKS, 1, KEYS])
               for name, dtype in masks]
    graph = helper.make_graph(
        made, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(a), name) for name, a in (*arrays, *constants)])
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]),
              path)


def passes(attnrun, path):
    done = subprocess.run([attnrun, "inspect", path, "--json"], capture_output=True, check=True)
    return json.loads(done.stdout)["passes"].get("block_attention", 0)


def compare(attnrun, folder, feed, what):
    path = f"{folder}/m.onnx"
    np.savez(f"{folder}/in.npz", **feed)
    subprocess.run([attnrun, "run", path, "-q", "-i", f"{folder}/in.npz", "-o",
                    f"{folder}/out.npz"], check=True)
    with np.load(f"{folder}/out.npz") as out:
        got = out["y"]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    want = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"]).run(None, feed)[0]
    good = np.allclose(got, want, rtol=1e-4, atol=1e-4, equal_nan=True)
    if not good:
        print(f"FAIL {what}: {(~np.isclose(got, want, 1e-4, 1e-4, True)).sum()} numbers differ, "
              f"{np.isnan(got).sum()} and {np.isnan(want).sum()} NaN")
    return not good


def operands(rng):
    """Eighths up to 4, of which all scores are exact in any order of summing, so that large ones
    differ by no rounding."""
    return {x: (rng.integers(-32, 33, (1, 1, BLOCKS, CHUNK, DIM)) / 8).astype("f") for x in "qkv"}


def check_soft(attnrun, folder, rng, seed):
    """What is hidden gets a finite number, which large keys outweigh: of their own block."""
    save(f"{folder}/m.onnx", [("mask", TensorProto.FLOAT)],
         [helper.make_node("Add", ["s", "mask"], ["masked"])])
    assert passes(attnrun, f"{folder}/m.onnx") == 1
    failed = 0
    for large in ((2, 3), (0, 2, 3), (1,)):
        feed = operands(rng)
        for block in range(BLOCKS):
            feed["k"][:, :, block] *= 4096 if block in large else 1 / 64
        mask = np.zeros((1, 1, BLOCKS, 1, KEYS), "f")
        mask[:, :, 2, :, CHUNK:] = FAR
        mask[:, :, 1, :, 2 * CHUNK:] = FAR
        mask[..., 3, :, :2 * CHUNK] = FAR
        failed += compare(attnrun, folder, {**feed, "mask": mask}, f"keys {large} seed {seed}")
    return failed


def check_fills(attnrun, folder, rng, seed):
    """The last fill decides, and one that is no number is no mask."""
    failed = 0
    for inner, outer in ((-1e9, -1e9), (-1e9, np.nan), (np.nan, -1e9), (-5, -5)):
        save(f"{folder}/m.onnx", [("m0", TensorProto.BOOL), ("m1", TensorProto.BOOL)],
             [helper.make_node("Where", ["m1", "s", "inner"], ["s1"]),
              helper.make_node("Where", ["m0", "s1", "outer"], ["masked"])],
             [("inner", np.float32(inner)), ("outer", np.float32(outer))])
        feed = operands(rng)
        for name in ("m0", "m1"):
            feed[name] = rng.random((1, 1, BLOCKS, 1, KEYS)) < 0.9
        feed["m0"][:, :, 1] = True
        failed += compare(attnrun, folder, feed, f"fills {inner}, {outer} seed {seed}")
    return failed


def main():
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        failed = check_soft(sys.argv[1], folder, rng, seed)
        failed += check_fills(sys.argv[1], folder, rng, seed)
    print(f"7 masks, {failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
