"""What models from outside do that the file cannot: draw numbers, keep a cache, give back an
input, or fail. Each conversion ends in a right file or in one sentence.

usage: test_outside.py ROOT ATTNRUN [test …]
"""
import contextlib
import io

import onnx
import torch
from torch import nn
from torch.nn import functional as F

import common
from attnrun_convert import cases, convert, examples, registry, verify
from attnrun_convert.errors import ConvertError, UnsupportedError


def converted(model, args, path, **more):
    """(file, what was said) of a conversion with its proof."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        convert(model, args, output=path, attnrun=common.ATTNRUN, **more)
    return onnx.load(path), said.getvalue()


def failure(model, args, path, **more):
    """(the sentence of a conversion that fails, what was written to stderr)"""
    err = io.StringIO()
    try:
        with contextlib.redirect_stderr(err):
            convert(model, args, output=path, quiet=True, attnrun=common.ATTNRUN, **more)
    except ConvertError as error:
        return error, err.getvalue()
    raise AssertionError("it was converted")


def test_outputs_that_are_inputs(folder):
    """Inputs keep their names; an output that is one, a weight or another output is a copy."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.arange(8.0))

        def forward(self, x, y):
            z = x + y
            return {"sum": z, "again": x, "y": y, "twice": z, "w": self.w, "same": x}
    path = folder / "net.onnx"
    file, _ = converted(Net().eval(), (torch.randn(2, 8), torch.randn(2, 8)), path,
                        dynamic={"x": {0: "b"}, "y": {0: "b"}})
    onnx.checker.check_model(file, full_check=True)
    names = ["sum", "again", "y_out", "twice", "w", "same"]
    assert [v.name for v in file.graph.input] == ["x", "y"]
    assert [v.name for v in file.graph.output] == names
    feeds = {"x": torch.randn(3, 8), "y": torch.randn(3, 8)}
    want = list(Net()(**feeds).values())
    common.close(common.in_attnrun(path, feeds, names), want)
    common.close(common.in_onnxruntime(path, feeds), want)


def test_arguments_that_are_one_tensor(folder):
    """Queries, keys and values of the example may be one tensor, or a weight; the file has an
    input for each."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.line = nn.Linear(8, 8, bias=False)

        def forward(self, q, k, *, w, **more):
            return self.line(q) - 2 * k + w + more["last"]
    net, x = Net().eval(), torch.randn(8, 8)
    path, names = folder / "net.onnx", ["q", "k", "w", "more_last"]
    given = {"w": net.line.weight, "last": x}
    file, _ = converted(net, (x, x), path, kwargs=given)
    assert [v.name for v in file.graph.input] == names
    feeds = {name: torch.randn(8, 8) for name in names}
    want = net(feeds["q"], feeds["k"], w=feeds["w"], last=feeds["more_last"])
    common.close(common.in_attnrun(path, feeds, ["output"]), [want])


def test_arguments_that_the_model_writes_into(folder):
    net, path = nn.Sequential(nn.Hardswish(inplace=True), nn.Linear(8, 3)).eval(), folder / "n.onnx"
    x = torch.randn(2, 8)
    kept = x.clone()
    converted(net, x, path, dynamic={"input": {0: "b"}})
    assert torch.equal(x, kept)
    x = torch.randn(5, 8)
    common.close(common.in_attnrun(path, {"input": x}, ["output"]), [net(x.clone())])


def test_what_is_no_tensor_is_left_out(folder):
    """Numbers and texts beside tensors; the user's module stays as it was."""
    class Net(nn.Module):
        def forward(self, x):
            return {"twice": x * 2, "rows": x.shape[0], "kind": "text", "more": x + 1}
    model, path = Net().eval(), folder / "net.onnx"
    file, said = converted(model, torch.randn(2, 8), path, dynamic={"x": {0: "b"}})
    assert [v.name for v in file.graph.output] == ["twice", "more"]
    assert "what the model returns beside tensors (int, str) is left out" in said, said
    x = torch.randn(5, 8)
    assert "forward" not in vars(model) and model(x)["rows"] == 5
    common.close(common.in_attnrun(path, {"x": x}, ["twice", "more"]), [x * 2, x + 1])


def test_floats_less_whole_numbers(folder):
    class Net(nn.Module):
        def forward(self, x, mask):
            return (1.0 - mask)[:, None] * x, 2 - mask, 0.5 - (mask > 0).long()
    path, x = folder / "net.onnx", torch.randn(3, 3)
    mask = torch.tensor([0, 1, 1])
    converted(Net().eval(), (torch.randn(2, 3), torch.tensor([1, 0])), path,
              dynamic={"x": {0: "b"}, "mask": {0: "b"}})
    want = Net()(x, mask)
    got = common.in_attnrun(path, {"x": x, "mask": mask}, ["output_0", "output_1", "output_2"])
    common.close(got, want)
    assert [str(y.dtype) for y in got] == ["float32", "int64", "float32"], got


class Growing(nn.Module):
    """A table of positions, which becomes longer where it is too short."""

    def __init__(self):
        super().__init__()
        self.register_buffer("max_positions", torch.randn(100, 8), persistent=False)

    def forward(self, x):
        if x.shape[1] > self.max_positions.shape[0]:
            self.max_positions = torch.randn(x.shape[1], 8)
        return (x + self.max_positions[:x.shape[1]]).softmax(1)


def test_a_table_that_grows_ends_the_proof(folder):
    model = Growing().eval()
    _, said = converted(model, torch.randn(2, 20, 8), folder / "net.onnx",
                        dynamic={"x": {0: "b", 1: "n"}})
    assert "b=1 n=100:" in said and "b=1 n=101" not in said, said
    assert len(model.max_positions) == 100


class Inner(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.layer, self.runs, self.noise_seed = kind, nn.Linear(8, 8), 0, None

    def forward(self, x):
        x = self.layer(x)
        if self.kind == "state":
            self.runs += 1
            return x * self.runs
        if self.kind == "turn":  # the same numbers at other places
            self.runs += 1
            return x.roll(self.runs, 1)
        return F.dropout(x, 0.5) if self.kind == "dropout" else x + torch.randn_like(x)


def test_modules_that_differ_from_themselves(folder):
    """The innermost one is named, and what to set."""
    for kind, words in (("dropout", "makes random numbers"), ("noise", "set noise_seed"),
                        ("state", "keeps state of its last run"),
                        ("turn", "keeps state of its last run")):
        model = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.ReLU(), Inner(kind))).eval()
        for check in ((), ("onnxruntime",)):
            error, _ = failure(model, torch.randn(2, 8), folder / "m.onnx", check=check)
            assert isinstance(error, UnsupportedError), error
            assert "1.1 (Inner)" in str(error) and words in str(error), error
    assert not list(folder.iterdir())


class Changing(nn.Module):
    """Puts another part in the place of its own at a short text, for good, as BigBird does."""

    def __init__(self):
        super().__init__()
        self.part = nn.Softmax(1)

    def forward(self, x):
        if x.shape[1] <= 8:
            self.part = nn.Sigmoid()
        return self.part(x)


def test_a_model_that_changes_its_parts(folder):
    """A file of the short text would have its part at all lengths."""
    axes = {"x": {0: "b", 1: "n"}}
    error, _ = failure(Changing().eval(), torch.randn(2, 6, 4), folder / "m.onnx", dynamic=axes)
    assert isinstance(error, UnsupportedError), error
    assert "it put Sigmoid in the place of part (Softmax)" in str(error), error
    try:
        examples.fill_ids(Changing().eval(), {"x": torch.randn(2, 6, 4)}, [])
        raise AssertionError("the change in a run for the example was not seen")
    except UnsupportedError as error:
        assert "Sigmoid" in str(error), error
    failure(Changing().eval(), torch.randn(2, 12, 4), folder / "m.onnx", dynamic=axes)
    assert not list(folder.iterdir())


class Off:
    """An engine whose results are three per cent off."""

    def __init__(self, path, executable):
        pass

    def run(self, feeds, outputs):
        return [1.03 * feeds["x"]]


def test_small_numbers_are_compared_by_their_size(folder):
    """An absolute tolerance would let them pass, whatever they are."""
    x, kept = torch.randn(2, 9).numpy(), dict(verify.ENGINES)
    verify.ENGINES["off"] = Off
    try:
        for size, atol, ok in ((1, None, False), (1e-6, None, False), (1e-6, 1e-4, True),
                               (0, None, True)):
            case = verify.Case("", {"x": size * x}, [size * x])
            rows = verify.compare(None, [case], ["y"], ["off"], atol=atol, say=lambda line: None)
            assert rows[0].ok == ok, (size, atol, rows)
    finally:
        verify.ENGINES.clear()
        verify.ENGINES.update(kept)
    of_one = verify.Case("", {}, [0 * x])  # may hold rounding of what is large elsewhere
    assert verify.atols_of([verify.Case("", {}, [x]), of_one])[1][0] > 1e-7 * abs(x).max()


def test_maps_of_one_number_become_random(folder):
    """Zeros or ones for an input would prove nothing; masks stay what they are."""
    generator = torch.Generator().manual_seed(0)
    for shape, blank in (((2, 3, 5), True), ((1, 3, 8, 8), True), ((2, 5), False),
                         ((2, 1, 5, 5), False), ((2, 1, 1, 5), False)):
        for make in (torch.zeros, torch.ones):
            made = cases.resampled(make(shape), shape, generator)
            assert (len(made.unique()) > 9) == blank, (shape, made)


def test_reformer_without_a_seed(folder):
    """The default of transformers: the rotations are drawn once, in the file and the proof;
    its own rounding is larger than the tolerance where a token sees itself alone."""
    from transformers import ReformerConfig, ReformerModel
    torch.manual_seed(0)
    model = ReformerModel(ReformerConfig(
        vocab_size=60, hidden_size=16, attention_head_size=8, num_attention_heads=2,
        feed_forward_size=24, attn_layers=["lsh", "local"], lsh_attn_chunk_length=8,
        local_attn_chunk_length=8, num_hashes=2, num_buckets=4, axial_pos_shape=[8, 8],
        axial_pos_embds_dim=[8, 8], is_decoder=False, use_cache=False)).eval()
    ids, mask = torch.randint(1, 60, (2, 32)), torch.randint(0, 2, (2, 32))
    axes = {name: {0: "batch", 1: "seq"} for name in ("input_ids", "attention_mask")}
    file, said = converted(model, {"input_ids": ids, "attention_mask": mask},
                           folder / "m.onnx", dynamic=axes)
    kinds = {n.op_type.partition("__")[0] for n in file.graph.node if n.domain == "attnrun"}
    assert kinds == {"ReformerAttention", "ChunkedLocalAttention"}, kinds
    assert "set config.hash_seed" in said, said


def test_t5_as_shipped(folder):
    """With free sizes, and with use_cache on: set for the file alone."""
    from transformers import T5Config, T5ForConditionalGeneration
    torch.manual_seed(0)
    model = T5ForConditionalGeneration(T5Config(
        vocab_size=60, d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2)).eval()
    ids = torch.randint(1, 60, (2, 12))
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids),
             "decoder_input_ids": ids[:, :9]}
    axes = {name: {0: "batch", 1: "seq"} for name in ("input_ids", "attention_mask")}
    file, said = converted(model, given, folder / "m.onnx", dynamic={
        **axes, "decoder_input_ids": {0: "batch", 1: "target"}})
    assert "config.use_cache=False" in said, said
    assert model.config.use_cache and model.decoder.config.use_cache
    assert [v.name for v in file.graph.output][0] == "logits"


class Branches(nn.Module):
    def forward(self, x):
        return self.chosen(x)

    def chosen(self, x):
        if x.sum() > 0:  # the line that is named
            return x * 2
        return x - 1


def test_failures_name_a_line_of_the_user(folder):
    """One sentence with file and line, and nothing of torch's own."""
    lines = open(__file__, encoding="utf-8").read().splitlines()
    line = next(i for i, text in enumerate(lines, 1) if "the line that" + " is named" in text)
    error, written = failure(Branches().eval(), torch.randn(2, 8), folder / "m.onnx")
    assert f"(at {__file__}:{line})" in str(error), error
    assert "\n" not in str(error) and len(str(error)) < 400, error
    assert written == "", written


class Cuts(nn.Module):
    def forward(self, x):
        return {"y": x * 2, "last": x[:, -30:] if x.shape[1] > 30 else x}


def test_a_cut_at_a_length_is_said(folder):
    """The export keeps one side of it: the output and what to fix are named."""
    error, _ = failure(Cuts().eval(), torch.randn(2, 20), folder / "m.onnx",
                       dynamic={"x": {0: "b", 1: "n"}})
    assert "gives 'last' [1, 31] at b=1 n=31, where the model gives [1, 30]" in str(error) or \
        "gives 'last' [3, 31] at b=3 n=31, where the model gives [3, 30]" in str(error), error
    assert "--fix b,n" in str(error), error


class Fixes(nn.Module):
    def forward(self, x):
        return x + self.row(x)

    def row(self, x):
        return torch.ones(8) if x.shape[1] == 8 else x  # the line that fixes


def test_the_line_that_fixes_a_size_is_of_the_model(folder):
    """Not that of the caller of the converter."""
    lines = open(__file__, encoding="utf-8").read().splitlines()
    line = next(i for i, text in enumerate(lines, 1) if "the line that" + " fixes" in text)
    error, _ = failure(Fixes().eval(), torch.randn(2, 8), folder / "m.onnx",
                       dynamic={"x": {1: "n"}})
    assert f"the free size 'n' the number 8 (at {__file__}:{line})" in str(error), error


def test_upsampling_from_corner_to_corner(folder):
    """By a fraction: PyTorch divides by the length of the result, ONNX by length times scale.
    45 times 1.4 is less than 63 in double, as PyTorch has it."""
    for name, free, scale, h in (("fixed", None, 1.7, 4), ("free", {"input": {2: "h"}}, 1.7, 7),
                                 ("odd", {"input": {2: "h"}}, 1.4, 45)):
        net = nn.Upsample(scale_factor=scale, mode="bilinear", align_corners=True).eval()
        path = folder / f"{name}.onnx"
        file, _ = converted(net, (torch.randn(1, 3, 4, 5),), path, dynamic=free)
        assert [n.op_type for n in file.graph.node][-1] == "Resize"
        feeds = {"input": torch.randn(1, 3, h, 5)}
        common.close(common.in_attnrun(path, feeds, ["output"]), [net(feeds["input"])])


def test_kept_lines_are_of_known_packages(folder):
    """A class that is only called like one of another package is not looked at, one of the
    package is, once, with the reason."""
    def called(name, base=nn.Linear):
        return type(name, (base,), {"__module__": "mine"})
    model = nn.Sequential(*[called(name)(8, 8) for name in (
        "SelfAttention", "LocalAttention", "HaloAttention", "CBAM", "LSHAttention",
        "LongformerSelfAttention")]).eval()
    plan = registry.plan(model, (torch.randn(2, 8),), {})
    plan.close()
    assert plan.lines() == [], plan.lines()
    assert plan.lines(True) == [], plan.lines(True)
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention
    from transformers import LongformerConfig
    config = LongformerConfig(hidden_size=16, num_attention_heads=2, attention_window=[8])
    inner = LongformerSelfAttention(config, 0).eval()
    inner.query = nn.Identity()
    plan = registry.find(inner, registry.load())
    assert len(plan) == 1 and plan[0].named and "kept, it has no linear layer" in plan[0].line()


if __name__ == "__main__":
    common.main([value for name, value in list(globals().items())
                 if name.startswith("test_")])
