"""Golden cases of self-attention without projections: fightingcv-attention's
SimplifiedScaledDotProductAttention of one tensor as queries, keys and values is ai.onnx
Attention of it, thrice, and the output layer. On a map its pixels are the tokens.

usage: golden_simplified_attention.py
"""
import importlib.metadata

import onnx
import torch
from fightingcv_attention.attention.SimplifiedSelfAttention import (
    SimplifiedScaledDotProductAttention)
from golden import ROOT, random, samples
from onnx import helper

HEADS = 4
TOLERANCE = (1e-4, 1e-5)


def upstream(channels):
    layer = SimplifiedScaledDotProductAttention(channels, HEADS)
    layer.fc_o.weight.data.copy_(random(1, channels, channels) / channels ** 0.5)
    layer.fc_o.bias.data.copy_(random(2, channels))
    return layer.double().eval()


def node(op, inputs, output, **attributes):
    return helper.make_node(op, inputs, [output], **attributes)


def attend(layer, x, mask):
    """Nodes from x (batch, tokens, channels) to y."""
    operands = [x, x, x] + (["keep"] if mask else [])
    return ([node("Not", ["mask"], "keep")] if mask else []) + [
        node("Attention", operands, "o", q_num_heads=HEADS, kv_num_heads=HEADS),
        node("MatMul", ["o", "w"], "product"), node("Add", ["product", "b"], "y")]


def write(case, layer, nodes, inputs, expected):
    y = nodes[-1].output[0]
    weights = {"w": layer.fc_o.weight.T, "b": layer.fc_o.bias}
    graph = helper.make_graph(
        nodes, case,
        [helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(t.numpy().dtype), t.shape)
         for name, t in inputs.items()],
        [helper.make_tensor_value_info(y, onnx.TensorProto.FLOAT, expected.shape)],
        [onnx.numpy_helper.from_array(w.float().contiguous().numpy(), name)
         for name, w in weights.items()])
    model = helper.make_model(graph, ir_version=11, producer_name="attnrun_convert",
                              opset_imports=[helper.make_opsetid("", 23)])
    onnx.checker.check_model(model, full_check=True)
    folder = ROOT / "tests" / "attention" / "golden" / case
    samples.write_folder(folder, model, list(inputs.values()), [expected.float()], TOLERANCE)
    version = importlib.metadata.version("fightingcv-attention")
    (folder / "meta.txt").write_text(
        "op: ai.onnx Attention of one tensor as Q, K and V\n"
        f"expected from: fightingcv-attention {version} "
        "SimplifiedScaledDotProductAttention, in double\n")


def tokens():
    layer, x = upstream(20), random(3, 2, 23, 20)
    mask = random(4, 2, HEADS, 23, 23) > 0.8  # true: hidden
    mask[..., 0] = False
    y = layer(x.double(), x.double(), x.double(), attention_mask=mask)
    write("simplified_tokens", layer, attend(layer, "x", True), {"x": x, "mask": mask}, y)


def pixels():
    layer, x = upstream(24), random(5, 2, 24, 5, 7)
    flat = x.flatten(2).transpose(1, 2).double()
    y = layer(flat, flat, flat).transpose(1, 2).reshape(x.shape)
    nodes = [node("Shape", ["x"], "shape"),
             node("Constant", [], "line", value_ints=[0, 0, -1]),
             node("Reshape", ["x", "line"], "planes"),
             node("Transpose", ["planes"], "tokens", perm=[0, 2, 1]),
             *attend(layer, "tokens", False),
             node("Transpose", ["y"], "columns", perm=[0, 2, 1]),
             node("Reshape", ["columns", "shape"], "Y")]
    write("simplified_map", layer, nodes, {"x": x}, y)


with torch.no_grad():
    tokens()
    pixels()
