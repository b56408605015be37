"""Half precision: every reference in float16 beside itself in double, and modules of float16
and bfloat16 as files.

usage: test_half.py ROOT ATTNRUN [test …]
"""
import json
import warnings

import onnx
import torch
from torch import nn

import common
from attnrun_convert import convert, operators, samples
from attnrun_convert.errors import VerifyError
from attnrun_convert.refs._heads import masked_softmax


def test_half_references(folder):
    """Of all operators, at all of their examples; twenty of its steps are allowed."""
    for name, operator in operators.load().items():
        for number, example in enumerate(operator.examples):
            tensors = [x.half() if x is not None and x.is_floating_point() else x
                       for x in samples.operands(operator, example)]
            wide = [x.double() if x is not None and x.is_floating_point() else x
                    for x in tensors]
            attributes = samples.split(operator, example)[1]
            what = f"{name}, example {number}"
            for got, want in zip(operator(tensors, attributes)[:example.outputs],
                                 operator(wide, attributes)):
                if not want.is_floating_point():
                    continue
                assert got.dtype == torch.float16, (what, got.dtype)
                error = (got.double() - want).abs().max() / max(1, want.abs().max())
                assert error < 20 * 2 ** -10, (what, error)


def test_half_softmax_of_nothing(folder):
    """Rows that see nothing are zeros in every type."""
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        allowed = torch.tensor([[True, False, True], [False] * 3])
        y = masked_softmax(torch.tensor([[3, 60000, 3], [1, 2, 3]]).to(dtype), allowed)
        assert y.tolist() == [[0.5, 0, 0.5], [0, 0, 0]], (dtype, y)


def _converted(folder, model, args, dynamic, nodes):
    """Converts and proves; the file holds `nodes` operators of domain attnrun."""
    warnings.simplefilter("ignore")
    path = convert(model, args, output=folder / "half.onnx", dynamic=dynamic, quiet=True,
                   attnrun=common.ATTNRUN)
    model = onnx.load(path)
    kinds = [n.op_type for n in model.graph.node if n.domain == "attnrun"]
    assert len(kinds) == nodes, kinds
    assert {v.type.tensor_type.elem_type for v in model.graph.output} == {
        onnx.TensorProto.FLOAT16}


def test_half_longformer(folder):
    from transformers import LongformerConfig, LongformerModel
    torch.manual_seed(0)
    config = LongformerConfig(vocab_size=60, hidden_size=16, num_hidden_layers=2,
                              num_attention_heads=2, intermediate_size=24,
                              attention_window=[8, 8], max_position_embeddings=90,
                              pad_token_id=1, return_dict=False)
    model = LongformerModel(config, add_pooling_layer=False).half().eval()
    ids = torch.randint(2, 60, (2, 32))
    _converted(folder, model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)},
               {name: {0: "batch", 1: "seq"} for name in ("input_ids", "attention_mask")}, 2)


def test_bfloat16_without_onnxruntime(folder):
    """It has no Gemm of bfloat16: the sentence says how the check does without it."""
    net, args, path = nn.Linear(8, 8).bfloat16().eval(), torch.randn(3, 8).bfloat16(), \
        folder / "bf16.onnx"
    try:
        convert(net, args, output=path, quiet=True, attnrun=common.ATTNRUN)
    except VerifyError as error:
        assert "for Gemm" in str(error) and "--check attnrun" in str(error), error
    else:
        raise AssertionError("onnxruntime has such a Gemm now")
    convert(net, args, output=path, quiet=True, check=("attnrun",), attnrun=common.ATTNRUN)
    assert path.exists()


def test_half_band(folder):
    """A window in a buffer of zeros and -inf, which is of the module's type, too."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer = nn.Linear(16, 16)
            i = torch.arange(80)
            self.register_buffer("mask", torch.zeros(80, 80).masked_fill(
                (i[:, None] - i[None]).abs() > 11, float("-inf")))

        def forward(self, x):
            q, n = self.layer(x), x.shape[2]
            return nn.functional.scaled_dot_product_attention(
                q, x, x, attn_mask=self.mask[:n, :n])
    _converted(folder, Net().half().eval(), torch.randn(2, 2, 40, 16).half(),
               {"x": {0: "batch", 2: "seq"}}, 1)


def _by_command(folder, spec, *arguments):
    """A conversion with --dtype float16; the operators of domain attnrun in the file."""
    out = folder / "half.onnx"
    code, said, err = common.run_converter(*spec, "--dtype", "float16", *arguments, "-o", out)
    assert code == 0, err
    assert sum(line.endswith(" ok") for line in said.splitlines()) >= 6, said
    graph = onnx.load(out).graph
    floats = {v.type.tensor_type.elem_type for v in (*graph.input, *graph.output)}
    assert onnx.TensorProto.FLOAT not in floats and onnx.TensorProto.FLOAT16 in floats, floats
    return sorted(n.op_type.partition("__")[0] for n in graph.node if n.domain == "attnrun")


def test_half_bert(folder):
    path = folder / "config.json"
    path.write_text(json.dumps({
        "vocab_size": 60, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 128, "max_position_embeddings": 90}))
    _by_command(folder, ("--hf", f"BertModel:{path}"))


MODULES = """import torch
from torch import nn


class Block(nn.Module):
    # A residual block of a network of images, with the gate of channels in it.
    def __init__(self):
        super().__init__()
        from fightingcv_attention.attention.SEAttention import SEAttention
        self.conv, self.norm = nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.gate = SEAttention(16, 4)

    def forward(self, x):
        return x + self.gate(torch.relu(self.norm(self.conv(x))))


def block():
    torch.manual_seed(0)
    return Block().eval()


def linformer():
    from linformer import LinformerSelfAttention
    torch.manual_seed(0)
    return LinformerSelfAttention(32, 64, k=16, heads=4).eval()
"""


def test_half_attention_and_block_of_packages(folder):
    file = folder / "half_modules.py"
    file.write_text(MODULES)
    for name, example, operator in (
            ("linformer", "x=float32[B,64,32]", "LinformerAttention"),
            ("block", "x=float32[B,16,H,W]", "SqueezeExcite")):
        sizes = ("--size", "H=9", "--size", "W=12") if name == "block" else ()
        kinds = _by_command(folder, (f"{file}:{name}",), "--example", example, *sizes)
        assert kinds == [operator], (name, kinds)


if __name__ == "__main__":
    common.main([value for name, value in list(globals().items())
                 if name.startswith("test_")])
