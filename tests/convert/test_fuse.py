"""Decomposed attention in ONNX files: what is replaced, by what, and what stays.

One model computes attention in every spelling; both exporters write it. The file before is
what ONNX Runtime and attnrun must agree with afterwards.

usage: test_fuse.py ROOT ATTNRUN [test …]
"""
import contextlib
import io
import warnings
from unittest import mock

import numpy
import onnx
import onnx_ir
import torch
from torch.nn import functional as F

import common
from attnrun_convert import bands, cli, convert, fuse

# What each spelling becomes: the operator, and for a band its (left, right).
KINDS = {"plain": "Attention", "by_hand": "Attention", "one_factor": "Attention",
         "padding": "Attention", "padding_float": "Attention", "samples": "Attention",
         "triangle": "causal", "band": (2, 2), "band_float": (3, 3), "behind": (4, 0),
         "band_and_keys": (1, 1), "two_bands_and_keys": (3, 0)}
KEPT = {"read_twice": "other nodes read its weights",
        "scaled_mask": "the mask is scaled, too"}


class Spellings(torch.nn.Module):
    def __init__(self, kinds):
        super().__init__()
        torch.manual_seed(0)
        self.kinds = kinds
        self.qkv = torch.nn.ModuleList(torch.nn.Linear(16, 48) for _ in kinds)

    def forward(self, x, mask):
        keys = (mask > 0)[:, None, None, :]
        batch, tokens, _ = x.shape
        distance = torch.arange(tokens)[None] - torch.arange(tokens)[:, None]
        results = []
        for kind, qkv in zip(self.kinds, self.qkv):
            parts = qkv(x).chunk(3, -1)
            q, k, v = [t.reshape(batch, tokens, 4, 4).transpose(1, 2) for t in parts]
            results.append(getattr(self, kind)(q, k, v, keys, distance))
        return tuple(results)

    def plain(self, q, k, v, keys, distance):
        return F.scaled_dot_product_attention(q, k, v)

    def by_hand(self, q, k, v, keys, distance):
        return torch.softmax(q @ k.transpose(-1, -2) / 2.5, -1) @ v

    def one_factor(self, q, k, v, keys, distance):
        return torch.softmax((q * 0.3) @ k.transpose(-1, -2), -1) @ v

    def padding(self, q, k, v, keys, distance):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=keys)

    def padding_float(self, q, k, v, keys, distance):
        return torch.softmax(q @ k.transpose(-1, -2) + torch.where(keys, 0.0, -1e9), -1) @ v

    def samples(self, q, k, v, keys, distance):
        q, k, v = q[:, 0], k[:, 1], v[:, 2]
        return torch.softmax(q @ k.transpose(-1, -2) / 2, -1) @ v

    def triangle(self, q, k, v, keys, distance):
        return torch.softmax((q @ k.transpose(-1, -2) / 2).masked_fill(
            distance > 0, float("-inf")), -1) @ v

    def band(self, q, k, v, keys, distance):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=distance.abs() <= 2)

    def band_float(self, q, k, v, keys, distance):
        far = torch.where(distance.abs() <= 3, 0.0, float("-inf"))
        return torch.softmax(q @ k.transpose(-1, -2) / 2 + far, -1) @ v

    def behind(self, q, k, v, keys, distance):
        return torch.softmax((q @ k.transpose(-1, -2) / 2).masked_fill(
            (distance > 0) | (distance < -4), -1e9), -1) @ v

    def band_and_keys(self, q, k, v, keys, distance):
        return F.scaled_dot_product_attention(q, k, v,
                                              attn_mask=(distance.abs() <= 1) & keys)

    def two_bands_and_keys(self, q, k, v, keys, distance):
        allowed = (distance <= 0) & ((distance >= -3) & keys)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)

    def read_twice(self, q, k, v, keys, distance):
        weights = torch.softmax(q @ k.transpose(-1, -2), -1)
        return weights @ v + weights.sum()

    def scaled_mask(self, q, k, v, keys, distance):
        return torch.softmax((q @ k.transpose(-1, -2) + keys) / 2, -1) @ v


def _feeds(batch, tokens):
    generator = torch.Generator().manual_seed(tokens)
    mask = torch.ones(batch, tokens, dtype=torch.long)
    mask[-1, tokens // 2] = 0
    return {"x": torch.randn(batch, tokens, 16, generator=generator), "mask": mask}


def _export(net, path, exporter):
    feeds = _feeds(2, 12)
    axes = {0: "batch", 1: "seq"}
    names = list(net.kinds)
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(io.StringIO()):
        if exporter == "torchscript":
            torch.onnx.export(net, tuple(feeds.values()), path, dynamo=False,
                              opset_version=17, input_names=list(feeds), output_names=names,
                              dynamic_axes=dict.fromkeys(feeds, axes))
        else:
            torch.onnx.export(net, tuple(feeds.values()), path, dynamo=True,
                              opset_version=exporter, output_names=names, verbose=False,
                              dynamic_shapes=(axes, axes), external_data=False)


def _run(*arguments):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main([*map(str, arguments), "--attnrun", common.ATTNRUN])
    return code, out.getvalue(), err.getvalue()


def _operator_of(model, output):
    """What makes an output: an operator, or the window of a LocalAttention."""
    node = next(n for n in model.graph.node if output in n.output)
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type.startswith("LocalAttention__"):
        return attributes["left_window"][0], attributes["right_window"][0]
    return "causal" if attributes.get("is_causal") else node.op_type


def _check(folder, exporter):
    net = Spellings([*KINDS, *KEPT]).eval()
    before, after = folder / "before.onnx", folder / "after.onnx"
    _export(net, before, exporter)
    code, said, err = _run(before, "--fuse", "-o", after, "--plain", folder / "plain.onnx")
    assert code == 0, err
    model = onnx.load(after)
    onnx.checker.check_model(model, full_check=True)
    for kind, wanted in KINDS.items():
        assert _operator_of(model, kind) == wanted, (kind, _operator_of(model, kind))
    for reason in KEPT.values():
        assert reason in said, said
    assert sum(n.op_type == "Softmax" for n in model.graph.node) == len(KEPT)
    for size in ((2, 12), (3, 23), (1, 7)):
        feeds = _feeds(*size)
        with torch.no_grad():
            want = net(**feeds)
        for name, got in (
                ("onnxruntime", common.in_onnxruntime(after, feeds)),
                ("plain", common.in_onnxruntime(folder / "plain.onnx", feeds)),
                ("attnrun", common.in_attnrun(after, feeds, net.kinds)),
                ("bodies", common.in_attnrun(after, feeds, net.kinds, "--force-bodies"))):
            common.close(got, want, what=f"{name} at {size}")


def test_fuse_dynamo_18(folder):
    _check(folder, 18)


def test_fuse_dynamo_23(folder):
    _check(folder, 23)


def test_fuse_torchscript(folder):
    _check(folder, "torchscript")


def test_multihead_attention_with_a_band(folder):
    """nn.MultiheadAttention and a mask that is a buffer: no option is needed."""
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.inner = torch.nn.MultiheadAttention(16, 4, batch_first=True)
            distance = torch.arange(20)[None] - torch.arange(20)[:, None]
            self.register_buffer("far", (distance > 0) | (distance < -5))

        def forward(self, x):
            return self.inner(x, x, x, attn_mask=self.far, need_weights=False)[0]
    net, path = Net().eval(), folder / "mha.onnx"
    convert(net, torch.randn(2, 20, 16), dynamic={"x": {0: "batch"}}, output=path,
            attnrun=common.ATTNRUN, quiet=True)
    kinds = [n.op_type for n in onnx.load(path).graph.node if n.domain == "attnrun"]
    assert len(kinds) == 1 and kinds[0].startswith("LocalAttention__"), kinds
    feeds = {"x": torch.randn(3, 20, 16)}
    common.close(common.in_attnrun(path, feeds, ["output"]), [net(**feeds)])


def test_bands_of_arrays(folder):
    distance = numpy.arange(9)[None, :] - numpy.arange(9)[:, None]
    for left, right in ((2, 3), (0, 0), (8, 0), (8, 8), (1, 8)):
        allowed = (distance >= -left) & (distance <= right)
        want = (-1 if left == 8 else left, -1 if right == 8 else right)
        assert bands.band_of_array(allowed, True) == want
        added = numpy.where(allowed, 0.0, -numpy.inf)[None, None]
        assert bands.band_of_array(added, False) == want
    holes = distance % 2 == 0
    other = distance == 1
    two = numpy.stack([distance <= 0, distance <= 1])
    soft = numpy.where(distance <= 0, 0.0, -1.0)
    for array, is_condition in ((holes, True), (other, True), (two, True), (soft, False),
                                (distance[:5] <= 0, True), (distance > 99, True)):
        assert bands.band_of_array(array, is_condition) is None


def test_bands_wider_than_an_example(folder):
    """A window of 300 is a band although no short example shows its end."""
    source = """<ir_version: 10, opset_import: ["": 23]>
    net (float[b, 4, n, 8] q) => (float[b, 4, n, 8] y) <int64 far = {300}, int64 zero = {0},
        int64 one = {1}, int64[1] last = {1}> {
        s = Shape<start = 2, end = 3>(q)
        n = Squeeze(s)
        keys = Range(zero, n, one)
        queries = Unsqueeze(keys, last)
        d = Sub(queries, keys)
        size = Abs(d)
        near = LessOrEqual(size, far)
        y = Attention(q, q, q, near)
    }"""
    model = onnx_ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(
        source)))
    assert list(fuse.localise_all(model, lambda line: None).values()) \
        == ["attnrun::LocalAttention"]
    node = next(n for n in model.graph if n.domain == "attnrun")
    assert list(node.attributes["left_window"].value) == [300]


def test_a_mask_that_is_lost_is_seen(folder):
    """The proof hides keys: without them, a file that has lost its mask gives the same."""
    path, made = folder / "keys.onnx", folder / "out.onnx"
    for kind in ("padding", "padding_float"):
        _export(Spellings([kind]).eval(), path, 18)
        assert _run(path, "--fuse", "-o", made)[0] == 0
        made.unlink()
        with mock.patch.object(fuse, "_mask_of_rank_4", lambda found, nodes: None):
            for at in ((), ("--at", "batch=2,seq=9")):
                code, said, err = _run(path, "--fuse", *at, "-o", made)
                assert code == 1 and "differ" in err and not made.exists(), (code, said, err)


def test_sizes_of_a_file(folder):
    """--size gives the free sizes of an .onnx file, by the names that they have there."""
    path, fixed = folder / "band.onnx", folder / "fixed.onnx"
    _export(Spellings(["band"]).eval(), path, "torchscript")
    model = onnx.load(path)
    for value in model.graph.input:
        for dim, size in zip(value.type.tensor_type.shape.dim, (2, 12)):
            dim.dim_value = size
    onnx.save(model, fixed)
    code, said, err = _run(path, "--fuse", "--size", "seq=30,batch=4", "-o",
                           folder / "out.onnx")
    assert code == 0 and "batch=4 seq=30: " in said, (said, err)
    for words, *arguments in (
            ("names 'tokens', but the free sizes of", path, "tokens=3"),
            ("are batch, seq", path, "tokens=3"), ("not of the form", path, "seq=many"),
            ("has no free sizes", fixed, "seq=3")):
        code, _, err = _run(arguments[0], "--fuse", "--size", arguments[1], "-o", folder / "no")
        assert code == 2 and words in err and err.count("\n") == 1, (words, err)


def test_fuse_refusals(folder):
    (folder / "bad.onnx").write_bytes(b"no model")
    net = torch.nn.Linear(3, 3).eval()
    convert(net, torch.zeros(2, 3), output=folder / "plain.onnx", check=(), quiet=True)
    for code, words, *arguments in (
            (2, "--fuse replaces", folder / "plain.onnx"),
            (3, "cannot read", folder / "none.onnx", "--fuse"),
            (3, "bad.onnx", folder / "bad.onnx", "--fuse"),
            (4, "holds no attention that could be replaced", folder / "plain.onnx", "--fuse")):
        got, _, err = _run(*arguments, "-o", folder / "out.onnx")
        assert got == code and words in err and err.count("\n") == 1, (got, err)
    assert not (folder / "out.onnx").exists()


if __name__ == "__main__":
    common.main([value for name, value in list(globals().items())
                 if name.startswith("test_")])
