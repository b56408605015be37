"""Half precision: every reference in float16 beside itself in double, and modules of float16
and bfloat16 as files.

usage: test_half.py ROOT ATTNRUN [test …]
"""
import warnings

import onnx
import torch
from torch import nn

import common
from attnrun_convert import convert, operators, samples
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


if __name__ == "__main__":
    common.main([value for name, value in list(globals().items())
                 if name.startswith("test_")])
