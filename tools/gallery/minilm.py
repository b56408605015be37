"""minilm.py - MiniLM's own attention over a text: queries and keys of a layer from the
model with its real weights (tools/minilm), their weights from Attention."""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "minilm"))
import fill  # noqa: E402
import lengthen  # noqa: E402

from patterns import linear  # noqa: E402

TEXT = ("The cat sat on the mat and watched the rain. When the rain stopped, the cat went out "
        "into the garden, looked at the birds in the old tree, and waited. The birds saw the "
        "cat, and they flew away over the wall. So the cat came back, lay down on the mat, "
        "and slept until evening.")
N, DIM = 64, 32
SHOWN = ((0, 5), (2, 4), (3, 0), (5, 9))  # layer, head


def tokens():
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(os.path.join(fill.package_folder(), "tokenizer.json"))
    tokenizer.enable_truncation(N)
    tokenizer.no_padding()
    return np.array([tokenizer.encode(TEXT).ids], np.int64)


def operands(runner, layers):
    """{layer: (queries, keys)} of the text."""
    model = onnx.load(fill.GRAPH, load_external_data=False)
    fill.fill(model, fill.read_safetensors(fill.package_folder()))
    names = {layer: lengthen.operands(model, layer)[0][:2] for layer in layers}
    model.graph.output.extend(onnx.ValueInfoProto(name=name)
                              for pair in names.values() for name in pair)
    ids = tokens()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        onnx.save(model, path / "model.onnx")
        np.savez(path / "in.npz", input_ids=ids, attention_mask=np.ones_like(ids))
        subprocess.run([runner.attnrun, "run", str(path / "model.onnx"), "-q", "-n", "1",
                        "-i", str(path / "in.npz"), "-o", str(path / "out.npz")], check=True)
        with np.load(path / "out.npz") as outputs:
            return {layer: tuple(outputs[name] for name in pair)
                    for layer, pair in names.items()}


def pictures(runner, shown=SHOWN):
    found = operands(runner, sorted({layer for layer, _ in shown}))
    n = next(iter(found.values()))[0].shape[1]
    weights = {layer: runner.run(
        "Attention", {"Q": q, "K": k, "V": np.tile(np.eye(n), (1, 1, lengthen.HEADS))}, "",
        q_num_heads=lengthen.HEADS, kv_num_heads=lengthen.HEADS)[0].reshape(n, -1, n)
        for layer, (q, k) in found.items()}
    return [linear(f"layer {layer + 1}, head {head + 1}", weights[layer][:, head])
            for layer, head in shown]
