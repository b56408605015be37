"""Known modules are replaced: classes of the packages themselves with random weights, each
in a file that ONNX Runtime and attnrun run at other sizes like PyTorch.

usage: test_adapters.py ROOT ATTNRUN [test …]
"""
import contextlib
import io

import onnx
import torch

import common
from attnrun_convert import capture, convert, registry


def randomised(model, seed=0):
    """Random weights of a size that tells wrong operators from right ones."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=generator) * 0.2)
    return model.eval()


def check(folder, model, feeds, sizes, dynamic, operators, outputs, rtol=1e-3, atol=1e-4):
    """`feeds(*sizes)`: arguments by name; `operators`: how many nodes of each the file
    must hold; `outputs`: names. The first of `sizes` is exported."""
    path = folder / "model.onnx"
    convert(model, feeds(*sizes[0]), dynamic=dynamic, output=path,
            output_names=outputs, check=(), quiet=True)
    file = onnx.load(path)
    onnx.checker.check_model(file, full_check=True)
    found = {}
    for node in file.graph.node:
        if node.domain == "attnrun":
            name = node.op_type.rpartition("__")[0]
            found[name] = found.get(name, 0) + 1
    assert found == operators, f"{found}, expected {operators}"
    for size in sizes:
        given = feeds(*size)
        with torch.no_grad():
            want = torch.utils._pytree.tree_leaves(model(**given))
        for name, got in (("onnxruntime", common.in_onnxruntime(path, given)),
                          ("attnrun", common.in_attnrun(path, given, outputs))):
            common.close(got, want, rtol, atol, f"{name} at {size}")


def _plan(model, *args, **kwargs):
    plan = registry.plan(model, args, kwargs)
    plan.close()
    return plan


# Longformer and LED of transformers

def test_longformer_that_is_kept(folder):
    """Its chunks by strides are written for another layout; the converter has them unfolded, and
    what the exporter writes by itself does not pass the check."""
    from attnrun_convert.adapters import longformer
    from attnrun_convert.errors import VerifyError
    from transformers import LEDConfig, LongformerConfig
    from transformers.models.led.modeling_led import LEDEncoderSelfAttention
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    class Layer(torch.nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            mask = torch.zeros(x.shape[:2])
            return self.layer(x, attention_mask=mask, is_index_masked=mask < 0,
                              is_index_global_attn=mask > 0, is_global_attn=False)[0]
    x, options = torch.randn(2, 32, 16), {"swap": False, "quiet": True,
                                          "attnrun": common.ATTNRUN}
    for kind, config in (
            (LongformerSelfAttention, LongformerConfig(
                hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                attention_window=[8])),
            (LEDEncoderSelfAttention, LEDConfig(
                d_model=16, encoder_layers=1, encoder_attention_heads=2, attention_window=[8]))):
        model = randomised(Layer(kind(config, 0)))
        had = getattr(config, "onnx_export", None)
        path = convert(model, x, output=folder / "kept.onnx", **options)
        assert not any(n.domain == "attnrun" for n in onnx.load(path).graph.node)
        assert getattr(config, "onnx_export", None) == had
        path.unlink() if hasattr(path, "unlink") else (folder / "kept.onnx").unlink()
    unfolded, longformer.unfolded = longformer.unfolded, contextlib.nullcontext
    try:
        convert(model, x, output=folder / "wrong.onnx", **options)
    except VerifyError as error:
        assert "differ from the source" in str(error)
    else:
        raise AssertionError("a file of another layout passes the check")
    finally:
        longformer.unfolded = unfolded
    assert not (folder / "wrong.onnx").exists()


def _tokens(batch, length, vocabulary=100):
    generator = torch.Generator().manual_seed(length)
    ids = torch.randint(3, vocabulary, (batch, length), generator=generator)
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[-1, -length // 4:] = 0
    ids[mask == 0] = 1
    everywhere = torch.zeros_like(mask)
    everywhere[:, 0] = 1
    everywhere[0, length // 2] = 1
    return {"input_ids": ids, "attention_mask": mask, "global_attention_mask": everywhere}


def _longformer():
    from transformers import LongformerConfig, LongformerModel
    return randomised(LongformerModel(LongformerConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=48, attention_window=[4, 12], max_position_embeddings=150)))


def test_longformer_with_global_tokens(folder):
    axes = {0: "batch", 1: "seq"}
    check(folder, _longformer(), _tokens, [(2, 24), (3, 71), (1, 33)],
          dict.fromkeys(("input_ids", "attention_mask", "global_attention_mask"), axes),
          {"LongformerAttention": 2}, ["last_hidden_state", "pooler_output"])


def _led():
    from transformers import LEDConfig, LEDForConditionalGeneration
    model = LEDForConditionalGeneration(LEDConfig(
        vocab_size=100, d_model=32, encoder_layers=2, decoder_layers=1,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
        decoder_ffn_dim=48, max_encoder_position_embeddings=150,
        max_decoder_position_embeddings=64, attention_window=[4, 12]))

    class Logits(torch.nn.Module):
        """A dynamic cache is no tensor."""
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask, global_attention_mask,
                    decoder_input_ids):
            return self.model(input_ids=input_ids, attention_mask=attention_mask,
                              global_attention_mask=global_attention_mask,
                              decoder_input_ids=decoder_input_ids, use_cache=False).logits
    return randomised(Logits())


def test_led(folder):
    def feeds(batch, source, target):
        return {**_tokens(batch, source),
                "decoder_input_ids": _tokens(batch, target)["input_ids"]}
    source, target = {0: "batch", 1: "source"}, {0: "batch", 1: "target"}
    check(folder, _led(), feeds, [(2, 24, 9), (3, 71, 22), (1, 33, 5)],
          {"input_ids": source, "attention_mask": source, "global_attention_mask": source,
           "decoder_input_ids": target},
          {"LongformerAttention": 2}, ["logits"])


# The three gates

def test_gate_structure(folder):
    class LongformerSelfAttention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.query = torch.nn.Linear(8, 8)

        def forward(self, x):
            return self.query(x)
    plan = _plan(LongformerSelfAttention().eval(), torch.randn(2, 3, 8))
    assert plan.entries == [], plan.lines(True)
    from transformers.models.longformer import modeling_longformer
    config = _longformer().config
    theirs = modeling_longformer.LongformerSelfAttention(config, 0).eval()
    theirs.key = torch.nn.Identity()
    plan = registry.find(theirs, registry.load())
    assert [e.reason for e in plan] == ["it has no linear layer 'key'"], plan


def test_gate_probe(folder):
    """The class and its structure, but other numbers."""
    model = _longformer()
    attention = model.encoder.layer[1].attention.self
    original = type(attention).forward
    attention.forward = lambda *a, **k: (1.01 * original(attention, *a, **k)[0],)
    plan = _plan(model, **_tokens(2, 24))
    first, second = plan.entries
    assert first.taken and not second.taken and "the probe differs by" in second.reason, \
        plan.lines()


def test_plan_leaves_the_model_as_it_was(folder):
    model = _longformer()
    own = model.encoder.layer[1].attention.self
    own.forward = wrapper = lambda *a, **k: type(own).forward(own, *a, **k)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    buffers = [name for name, _ in model.named_buffers()]
    plan = registry.plan(model, (), _tokens(2, 24))
    with plan.applied():
        assert "forward" in vars(model.encoder.layer[0].attention.self)
        assert own.forward is not wrapper
    assert own.forward is wrapper
    plan.close()
    assert "forward" not in vars(model.encoder.layer[0].attention.self)
    assert "_pad_to_window_size" not in vars(model)
    assert [name for name, _ in model.named_buffers()] == buffers
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


class Blocks(torch.nn.Module):
    """Means over blocks of 8 tokens."""

    def forward(self, x):
        if x.shape[1] % 8:
            x = torch.nn.functional.pad(x, (0, 0, 0, 8 - x.shape[1] % 8))
        return x.unflatten(1, (-1, 8)).mean((1, 2))


class Centred(torch.nn.Module):
    """Long inputs are centred."""

    def forward(self, x):
        assert x.shape[1] > 1
        return x - x.mean(1, keepdim=True) if x.shape[1] > 40 else x


class Wide(torch.nn.Module):
    def forward(self, x):
        return 2 * x if x.shape[1] * x.shape[2] > 20000 else x


class Strict(torch.nn.Module):
    """The lengths that are nearest to its limit are no multiples of its blocks."""

    def forward(self, x):
        assert x.shape[1] % 16 == 0
        return 2 * x if x.shape[1] > 305 else x


class Many(torch.nn.Module):
    """More decisions than one, of which the last one matters."""

    def forward(self, x):
        for n in (7, 11, 13, 16, 17):
            x = 1 * x if x.shape[1] % n else x
        return x if x.shape[1] % 50 else 2 * x


class Step(torch.nn.Module):
    """One token alone is another case."""

    def forward(self, x):
        return 2 * x if x.shape[1] == 1 else x


class Rows(torch.nn.Module):
    def __init__(self, most):
        super().__init__()
        self.most = most

    def forward(self, x):
        return 2 * x if x.shape[0] > self.most else x


def test_proof_visits_the_other_sides_of_decisions(folder):
    """The export has one side of an 'if' on sizes. Prime numbers are multiples of nothing."""
    from attnrun_convert.errors import VerifyError
    for model, length, said in ((Blocks(), 61, "N=64"), (Centred(), 64, "N=40"),
                                (Wide(), 64, "N=313"), (Strict(), 64, "N=320"),
                                (Many(), 61, "N=50"), (Rows(20), 64, "B=21"),
                                (Step(), 64, "N=1:")):
        try:
            convert(model.eval(), torch.randn(2, length, 64), output=folder / "side.onnx",
                    dynamic={"x": {0: "B", 1: "N", **({2: "M"} if type(model) is Wide else {})}},
                    attnrun=common.ATTNRUN, quiet=True)
        except VerifyError as error:
            assert said in str(error), error
        else:
            raise AssertionError(f"{type(model).__name__} is converted")
    assert not (folder / "side.onnx").exists()
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        convert(Rows(70).eval(), torch.randn(2, 5, 4), output=folder / "side.onnx",
                dynamic={"x": {0: "B"}}, attnrun=common.ATTNRUN)
    assert "may decide otherwise at B=71, where the file is not checked" in said.getvalue()


def test_capture_names_every_axis(folder):
    """A size that the model fixes is an error when a name was given for it."""
    class Fixed(torch.nn.Module):
        def forward(self, x):
            return x.reshape(4, 6)
    try:
        given = capture.bound(Fixed().eval(), (torch.zeros(4, 6),))
        capture.captured(Fixed().eval(), given, {"x": {0: "batch"}}, 18)
    except capture.CaptureError as error:
        assert "Fixed cannot be exported" in str(error), error
        return
    raise AssertionError("no error")


if __name__ == "__main__":
    common.main([value for name, value in list(globals().items())
                 if name.startswith("test_")])
