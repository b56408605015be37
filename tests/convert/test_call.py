"""Operators written into a model by hand: eager numbers, exported nodes, and the file.

usage: test_call.py ROOT ATTNRUN [test …]
"""
import onnx
import torch

import common
from attnrun_convert import convert
from attnrun_convert.call import call
from attnrun_convert.errors import UnsupportedError, UsageError


class Net(torch.nn.Module):
    """Three operators, one of them twice with equal attributes, one with two outputs."""

    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(16, 48)

    def forward(self, x, mask=None):
        q, k, v = self.qkv(x).chunk(3, -1)
        y = call("LinearAttention", q, k, v, mask, q_num_heads=4, scale=2)
        y = y + call("LongformerAttention", y, k, v, mask, window=[2], q_num_heads=4)
        y = y + call("LongformerAttention", k, y, v, mask, window=[2], q_num_heads=4)
        z, buckets = call("ReformerAttention", q, v, None, None, mask, q_num_heads=4,
                          num_buckets=[4], chunk_length=64), None
        if mask is None:
            z, buckets = call("ReformerAttention", q, v, torch.ones(4, 4, 1, 2),
                              q_num_heads=4, num_buckets=[4], chunk_length=4, n_outputs=2)
        return y + z, z if buckets is None else buckets


def _inputs(batch, tokens, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(batch, tokens, generator=generator) < 0.7
    mask[:, 0] = True
    return {"x": torch.randn(batch, tokens, 16, generator=generator), "mask": mask}


def _net():
    torch.manual_seed(0)
    return Net().eval()


def test_call_runs_everywhere_at_other_sizes(folder):
    net, path = _net(), folder / "net.onnx"
    axes = {0: "batch", 1: "seq"}
    convert(net, _inputs(2, 10), dynamic={"x": axes, "mask": axes}, output=path,
            output_names=["y", "z"], check=())
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert [d.dim_param for d in model.graph.input[0].type.tensor_type.shape.dim[:2]] \
        == ["batch", "seq"]
    kinds = [node.op_type for node in model.graph.node if node.domain == "attnrun"]
    assert len(kinds) == 4 and len(set(kinds)) == 3, kinds
    assert sorted(f.name for f in model.functions) == sorted(set(kinds))
    for sizes in ((2, 10), (3, 17), (1, 33)):
        feeds = _inputs(*sizes, seed=1)
        want = net(**feeds)
        common.close(common.in_onnxruntime(path, feeds), want, what="onnxruntime")
        common.close(common.in_attnrun(path, feeds, ["y", "z"]), want, what="attnrun")
        common.close(common.in_attnrun(path, feeds, ["y", "z"], "--force-bodies"), want,
                     what="attnrun with bodies")


def test_call_static_with_two_outputs(folder):
    net, path = _net(), folder / "net.onnx"
    feeds = {"x": _inputs(2, 9)["x"]}
    convert(net, (feeds["x"],), output=path, output_names=["y", "buckets"], check=())
    want = net(**feeds)
    common.close(common.in_onnxruntime(path, feeds), want, what="onnxruntime")
    common.close(common.in_attnrun(path, feeds, ["y", "buckets"]), want, what="attnrun")


def test_call_keeps_the_type_of_attributes(folder):
    """An int given for a float is a float in the file."""
    path = convert(_net(), _inputs(2, 10), output=folder / "net.onnx", check=())
    node = next(n for n in onnx.load(path).graph.node if n.op_type.startswith("Linear"))
    scale = next(a for a in node.attribute if a.name == "scale")
    assert scale.type == onnx.AttributeProto.FLOAT and scale.f == 2.0


def _refused(kind, words, function):
    try:
        function()
    except kind as error:
        assert words in str(error), error
        return
    raise AssertionError(f"no {kind.__name__}")


def test_call_refuses_what_does_not_fit(folder):
    x = torch.zeros(1, 4, 8)
    _refused(ValueError, "no reference of an operator 'Nothing'", lambda: call("Nothing", x))
    _refused(ValueError, "needs operand K", lambda: call("LinearAttention", x))
    _refused(ValueError, "no attribute heads; it has denominator, ",
             lambda: call("LinearAttention", x, x, x, heads=2))
    out = folder / "net.onnx"
    _refused(UnsupportedError, "training mode",
             lambda: convert(_net().train(), _inputs(1, 4), output=out))
    _refused(UsageError, "'y', but the inputs are x, mask",
             lambda: convert(_net(), _inputs(1, 4), dynamic={"y": {0: "b"}}, output=out))
    assert not list(folder.iterdir())


if __name__ == "__main__":
    common.main([value for name, value in list(globals().items())
                 if name.startswith("test_")])
