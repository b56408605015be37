#!/usr/bin/env python3
"""Write MiniLM with its real weights as a test folder: outputs are PyTorch's.

usage: make_minilm.py OUT

    OUT/minilm/model.onnx         models/minilm-graph.onnx filled by tools/minilm/fill.py
    OUT/minilm/test_data_set_<k>  1x16, 1x128 and 1x512 tokens; 4x48 with a ragged mask
    OUT/minilm/tol.txt            0 1e-4: absolute only
"""
import os
import shutil
import subprocess
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")

HERE = os.path.dirname(os.path.abspath(__file__))
TOOLS = os.path.normpath(os.path.join(HERE, "..", "..", "tools", "minilm"))
sys.path.insert(0, TOOLS)

SETS = [(1, 16), (1, 128), (1, 512), (4, 48)]
RAGGED = [48, 31, 7, 1]  # tokens of each row of the last set


def inputs_of(batch, length):
    import torch
    generator = torch.Generator().manual_seed(length)
    ids = torch.randint(1000, 30000, (batch, length), generator=generator)
    ids[:, 0] = 101  # [CLS]
    mask = torch.ones_like(ids)
    if batch > 1:
        for row, count in enumerate(RAGGED):
            ids[row, count:] = 0
            mask[row, count:] = 0
    return ids, mask


def write_set(module, folder, inputs):
    import torch
    from onnx import numpy_helper
    os.makedirs(folder)
    with torch.no_grad():
        outputs = module(*inputs)
    names = ["input_ids", "attention_mask"], ["last_hidden_state", "sentence_embedding"]
    for prefix, values, labels in zip(("input", "output"), (inputs, outputs), names):
        for i, (value, label) in enumerate(zip(values, labels)):
            with open(f"{folder}/{prefix}_{i}.pb", "wb") as file:
                proto = numpy_helper.from_array(value.numpy(), label)
                file.write(proto.SerializeToString())


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder = os.path.join(sys.argv[1], "minilm")
    graph = os.path.join(TOOLS, "..", "..", "models", "minilm-graph.onnx")
    stamp = os.path.join(folder, "tol.txt")  # written last
    if os.path.exists(stamp) and os.path.getmtime(stamp) > os.path.getmtime(graph):
        return 0
    import torch
    from export_graph import SentenceEncoder
    from fill import package_folder
    torch.set_num_threads(1)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    subprocess.run([sys.executable, os.path.join(TOOLS, "fill.py"),
                    os.path.join(folder, "model.onnx")], check=True)
    module = SentenceEncoder(package_folder()).eval()
    for k, (batch, length) in enumerate(SETS):
        write_set(module, f"{folder}/test_data_set_{k}", inputs_of(batch, length))
    with open(stamp, "w", encoding="utf-8") as file:
        file.write("0 1e-4\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
