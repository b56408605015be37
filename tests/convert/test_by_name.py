"""Models by name with inputs of their own; classes known by their parts; sizes, types and
versions on the command line.

usage: test_by_name.py ROOT ATTNRUN [test …]
"""
import json
import os
import subprocess
import sys

import numpy
import onnx
import torch
from torch import nn

import common
from common import run_converter as run
from attnrun_convert import (by_name, cases, convert, experts, extent, moduleop, registry,
                             verify)
from attnrun_convert.errors import UnsupportedError, UsageError, VerifyError
from attnrun_convert.stand_in import import_without, loads

sys.path.insert(0, str(common.ROOT / "tests" / "attention"))
from golden import timm_layer  # noqa: E402

NET = str(common.ROOT / "tests" / "convert" / "net.py")
SMALL = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
         "intermediate_size": 24, "max_position_embeddings": 90}
LED = {"vocab_size": 60, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1,
       "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 24,
       "decoder_ffn_dim": 24, "max_encoder_position_embeddings": 90,
       "max_decoder_position_embeddings": 90, "attention_window": [8]}
REFORMER = {"vocab_size": 60, "hidden_size": 16, "num_attention_heads": 2, "attention_head_size": 8,
            "feed_forward_size": 24, "attn_layers": ["local", "lsh"], "axial_pos_embds": False,
            "max_position_embeddings": 128, "lsh_attn_chunk_length": 64,
            "local_attn_chunk_length": 64, "is_decoder": True, "hash_seed": 1}
PEGASUS = {"vocab_size": 60, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1,
           "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 24,
           "decoder_ffn_dim": 24, "max_position_embeddings": 150, "block_size": 8,
           "num_random_blocks": 1, "attention_type": "block_sparse"}


def configured(folder, **config):
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


def operators_of(path):
    return sorted(n.op_type.partition("__")[0] for n in onnx.load(path).graph.node
                  if n.domain == "attnrun")


def test_decoder_steps_with_a_cache(folder):
    """Prompt and steps of a file with its cache as states give what the model gives at once."""
    path = configured(folder, **SMALL, num_key_value_heads=1)
    out = folder / "llama.onnx"
    code, said, err = run("--hf", f"LlamaForCausalLM:{path}", "--part", "decoder", "-o", out)
    assert code == 0, err
    assert "past_0_key" in [v.name for v in onnx.load(out).graph.input]
    model, arguments, _ = by_name.of_transformers(f"LlamaForCausalLM:{path}", "decoder", {}, 0,
                                                  lambda line: None)
    ids = torch.arange(2, 20).reshape(2, 9)
    with torch.no_grad():
        want = model.model(ids, use_cache=False).logits
    past = {f"past_{name}": x[:, :, :0] for name, x in arguments["past"].items()}
    names = ["logits", *(name.replace("past", "present") for name in past)]
    got = []
    for begin, end in ((0, 5), (5, 6), (6, 9)):
        feeds = {"input_ids": ids[:, begin:end], "attention_mask": torch.ones(2, end).long(),
                 **past}
        results = common.in_attnrun(out, feeds, names)
        got.append(results[0])
        past = {name: torch.from_numpy(x) for name, x in zip(past, results[1:])}
    common.close([numpy.concatenate(got, 1)], [want], what="steps")


def test_two_parts_of_led(folder):
    path = configured(folder, **LED)
    spec = f"LEDForConditionalGeneration:{path}"
    for part, name, count in (("encoder", "encoder_hidden_states", 1),
                              ("decoder", "logits", 0)):
        out = folder / f"{part}.onnx"
        code, _, err = run("--hf", spec, "--part", part, "-o", out)
        assert code == 0, err
        assert onnx.load(out).graph.output[0].name == name
        assert operators_of(out).count("LongformerAttention") == count


def test_examples_of_the_user_take_the_place_of_inputs(folder):
    """By their names and sizes, also where the converter can make up none."""
    path, out = configured(folder, **SMALL), folder / "m.onnx"
    code, said, err = run("--hf", f"BertModel:{path}", "--example", "inputs_embeds=f32[B,L,16]",
                          "--size", "L=19", "-o", out)
    assert code == 0 and "B=2 L=19:" in said, err
    assert [v.name for v in onnx.load(out).graph.input] == ["inputs_embeds"]


def test_texts_keep_the_mark_of_their_end(folder):
    """Ids of other sizes: one mark in each row, at its end; none where the last id is another in
    each row."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.tensor([[5, 6, 7, 2], [6, 6, 8, 2]])
    made = cases.resampled(ids, (3, 50), generator)
    assert (made[:, -1] == 2).all() and (made == 2).sum() == 3, made
    assert set(made[:, :-1].flatten().tolist()) == {5, 6, 7, 8}
    free = cases.resampled(torch.tensor([[2, 6, 7, 2], [6, 6, 8, 2]]), (3, 50), generator)
    assert len(free[:, -1].unique()) > 1, free


def test_mixtures_run_the_chosen_experts(folder):
    """As one operator, with the weights of the router; the module stays as it was."""
    from transformers import MixtralConfig, MixtralModel
    torch.manual_seed(1)
    model = MixtralModel(MixtralConfig(**SMALL, num_key_value_heads=1, num_local_experts=5,
                                       num_experts_per_tok=3, use_cache=False)).eval()
    path, ids = folder / "m.onnx", torch.randint(0, 60, (2, 7))
    convert(model, {"input_ids": ids}, output=path, attnrun=common.ATTNRUN, quiet=True,
            dynamic={"input_ids": {0: "batch", 1: "seq"}})
    nodes = [n for n in onnx.load(path).graph.node if n.domain == "com.microsoft"]
    assert [n.op_type for n in nodes] == ["MoE"], nodes
    layer = model.layers[0].mlp.experts
    assert "forward" not in vars(layer) and not layer._buffers
    ids = torch.randint(0, 60, (3, 13))
    common.close(common.in_attnrun(path, {"input_ids": ids}, ["last_hidden_state"]),
                 [model(ids).last_hidden_state])
    original = layer.forward
    layer.forward = wrapper = lambda *a, **k: 2 * original(*a, **k)
    with experts.as_nodes(model):
        assert layer.forward is wrapper
    assert layer.forward is wrapper and experts.lines(model) == []


def test_pegasus_becomes_block_sparse(folder):
    path, out = configured(folder, **PEGASUS), folder / "m.onnx"
    code, _, err = run("--hf", f"BigBirdPegasusModel:{path}", "--part", "encoder", "-o", out)
    assert code == 0, err
    assert operators_of(out) == ["BigBirdAttention"], operators_of(out)


def test_big_bird_is_sparse_in_its_example(folder):
    """A shorter text would make the model attend to all tokens for good."""
    path, out = folder / "config.json", folder / "m.onnx"
    path.write_text(json.dumps({**SMALL, "attention_type": "block_sparse", "block_size": 16,
                                "num_random_blocks": 1, "max_position_embeddings": 200}))
    code, said, err = run("--hf", f"BigBirdModel:{path}", "-o", out, "--at", "seq=131")
    assert code == 0 and operators_of(out) == ["BigBirdAttention"], said + err
    assert "of a text of at most 112: the example has 117" in said, said
    assert "at most 112 if its first one is that short" in said, said


def test_reformer_chooses_its_buckets_once(folder):
    """A configuration without num_buckets, whose model sets them at its first long text: by name
    they are those of its longest one; a model of a factory is refused, for any text."""
    path, out = configured(folder, **REFORMER), folder / "m.onnx"
    code, said, err = run("--hf", f"ReformerModelWithLMHead:{path}", "-o", out)
    assert code == 0 and "has no num_buckets: 4, " in said + err, said + err
    assert operators_of(out) == ["ChunkedLocalAttention", "ReformerAttention"]
    from transformers import ReformerConfig, ReformerModelWithLMHead
    model = ReformerModelWithLMHead(ReformerConfig(**REFORMER)).eval()
    try:
        registry.plan(model, (), {"input_ids": torch.ones(1, 64).long()})
    except UnsupportedError as error:
        assert "set it to a power of two" in str(error)
    else:
        raise AssertionError("a model that chooses its buckets later is taken")


def test_names_are_refused_in_one_sentence(folder):
    path = configured(folder, **SMALL)
    yoso = folder / "yoso.json"
    yoso.write_text(json.dumps({**SMALL, "use_expectation": False}))
    funnel = folder / "funnel.json"
    funnel.write_text(json.dumps({"vocab_size": 60, "block_sizes": [1, 1], "d_model": 16,
                                  "num_decoder_layers": 1, "n_head": 2, "d_head": 8,
                                  "d_inner": 24}))
    listed = folder / "list.json"
    listed.write_text("[1]")
    for code, words, *arguments in (
            (2, "there is more than one source", "x.onnx", "--hf", f"BertModel:{path}"),
            (2, "the source is missing", "--size", "S=3"),
            (2, "--part needs a model of --hf", f"{NET}:net", "--part", "encoder"),
            (2, "has no model class 'BertModle'; the nearest names are BertModel, ", "--hf",
             f"BertModle:{path}"),
            (2, "say the class that 'architectures' of its config.json names", "--hf",
             f"AutoModel:{path}"),
            (2, "is the base of several models", "--hf", f"BertPreTrainedModel:{path}"),
            (3, "is no configuration: expected an object", "--hf", f"BertModel:{listed}"),
            (2, "the free sizes are batch, seq", "--hf", f"BertModel:{path}", "--size", "T=3"),
            (3, "cannot read", "--hf", f"BertModel:{folder}/none.json"),
            (2, "is not of the form CLASS:config.json", "--hf", "no_such_folder"),
            (2, "has no encoder beside", "--hf", f"BertModel:{path}", "--part", "encoder"),
            (2, "gives no logits", "--hf", f"BertModel:{path}", "--part", "decoder"),
            (4, "set use_expectation to true", "--hf", f"YosoModel:{yoso}"),
            (2, "the free sizes are batch, seq", "--hf", f"BertModel:{path}", "--fix", "T"),
            (70, "its code makes the free size 'seq' the number 61 (at ", "--hf",
             f"FunnelModel:{funnel}"),
            (2, "has no model 'ResNet-18'; the nearest names are resnet18, ", "--timm",
             "ResNet-18"),
            (2, "torchvision", "--torchvision", "no_such_net")):
        got, _, err = run(*arguments, "-o", folder / "out.onnx")
        assert got == code and words in err and err.count("\n") == 1, (arguments, got, err)
    assert not (folder / "out.onnx").exists()


def run_beside(folder, *arguments):
    """The converter in a process of its own, which finds the packages of a folder first."""
    return subprocess.run(
        [sys.executable, "-m", "attnrun_convert", *arguments, "--attnrun", common.ATTNRUN, "-o",
         str(folder / "out.onnx")], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(
            (str(folder), str(common.ROOT / "tools" / "convert")))})


def test_a_package_that_lacks_another_is_named(folder):
    """A package whose import fails for another one: the sentence names both, and a way out."""
    (folder / "torchvision.py").write_text("import no_such_package.deep\n")
    alone = run_beside(folder, "--torchvision", "squeezenet1_1")
    assert alone.returncode == 2 and alone.stderr.count("\n") == 1, alone.stderr
    assert "'no_such_package', which 'torchvision' imports, is missing" in alone.stderr
    assert "convert that file with --fuse" in alone.stderr, alone.stderr


def test_timm_needs_no_torchvision(folder):
    """A torchvision that is made for another torch."""
    (folder / "torchvision.py").write_text("raise RuntimeError('operator nms does not exist')\n")
    alone = run_beside(folder, "--timm", "test_vit", "--check", "onnxruntime")
    assert alone.returncode == 0, alone.stderr
    assert any(line.endswith(" ok") for line in alone.stdout.splitlines()), alone.stdout


def test_what_stands_in_is_gone_afterwards(folder):
    """Names of a package that does not load serve an import, and nothing else."""
    (folder / "reader.py").write_text(
        "import gone.parts as parts\nfrom gone.deep import Kind\n"
        "class Own(parts.Base):\n    pass\nNEAREST = Kind.NEAREST\nVERSION = parts.__version__\n")
    sys.path.insert(0, str(folder))
    try:
        reader = import_without("reader", ("gone",))
        assert not [name for name in sys.modules if name.partition(".")[0] == "gone"]
        for kind in (reader.Own, reader.NEAREST):
            try:
                kind()
            except ImportError as error:
                assert "does not load" in str(error), error
            else:
                raise AssertionError(kind)
        try:
            import_without("gone", ())
        except ImportError:
            pass
        else:
            raise AssertionError("a package that is not there is imported")
    finally:
        sys.path.remove(str(folder))


def test_what_onnxruntime_says_names_the_node_alone(folder):
    """No codes of onnxruntime and no places in its own source."""
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["c"], name="sum")], "g",
        [helper.make_tensor_value_info("a", floats, ["N"]),
         helper.make_tensor_value_info("b", floats, ["M"])],
        [helper.make_tensor_value_info("c", floats, ["K"])])
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 20)]), folder / "m.onnx")
    engine = verify.OnnxRuntime(folder / "m.onnx")
    try:
        engine.run({"a": numpy.ones(3, "f"), "b": numpy.ones(5, "f")}, ["c"])
    except VerifyError as error:
        said = str(error)
    assert "its Add node 'sum': " in said and "3 by 5" in said, said
    assert "onnxruntime::" not in said and "/" not in said and "[ONNX" not in said, said


def test_package_that_does_not_load_is_named(folder):
    """Not the one that imports it: here a package that raises, and one that is not there."""
    for name, text in (("outer_a", "import inner_a"), ("inner_a", "raise RuntimeError('no nms')"),
                       ("outer_b", "import inner_b")):
        (folder / f"{name}.py").write_text(text + "\n")
    sys.path.insert(0, str(folder))
    try:
        for name, expected in (("outer_a", "'inner_a', which 'outer_a' imports, does not load "
                                           "(no nms)"),
                               ("outer_b", "'inner_b', which 'outer_b' imports, is missing")):
            try:
                by_name._package(name)
            except UsageError as error:
                assert expected in str(error), error
            else:
                raise AssertionError(name)
    finally:
        sys.path.remove(str(folder))


def test_models_of_images(folder):
    """torchvision of PyPI does not load beside a CPU torch."""
    if loads("torchvision"):
        code, _, err = run("--torchvision", "squeezenet1_1", "-o", folder / "m.onnx")
        assert code == 0, err
    else:
        print("        torchvision does not load here")
    code, said, err = run("--timm", "test_vit", "-o", folder / "m.onnx")
    assert code == 0 and said.count(" ok\n") >= 2, said + err


def test_half_precision_and_versions(folder):
    out, report, path = folder / "m.onnx", folder / "report.json", folder / "config.json"
    path.write_text(json.dumps({"hidden_size": 16, "num_hidden_layers": 1, "image_size": 32,
                                "num_attention_heads": 2, "intermediate_size": 24,
                                "patch_size": 8}))
    code, _, err = run("--hf", f"ViTModel:{path}", "--dtype", "float16", "-o", out, "--report",
                       report)
    assert code == 0, err
    kinds = {v.type.tensor_type.elem_type for v in (*onnx.load(out).graph.input,
                                                    *onnx.load(out).graph.output)}
    assert kinds == {onnx.TensorProto.FLOAT16}
    versions = json.loads(report.read_text())["versions"]
    assert {"torch", "transformers", "onnx", "onnxscript", "onnx-ir", "onnxruntime", "numpy",
            "python"} <= set(versions), versions


def test_known_classes(folder):
    code, said, _ = run("--known")
    assert code == 0 and "LongformerSelfAttention" in said and "SqueezeExcite" in said
    rows = [line.split() for line in said.split("\n\n")[0].splitlines()]
    assert all(len(row) == 2 for row in rows) and len({row[0] for row in rows}) == len(rows)


def test_sizes_of_an_onnx_file(folder):
    class Net(nn.Module):
        def forward(self, x):
            return torch.softmax(x @ x.transpose(-1, -2) / 2, -1) @ x
    source = convert(Net().eval(), torch.randn(2, 4, 16, 8), check=(), quiet=True,
                     dynamic={"x": {0: "batch", 2: "seq"}}, output=folder / "source.onnx")
    code, said, err = run(source, "--fuse", "--size", "seq=40", "-o", folder / "out.onnx")
    assert code == 0 and "seq=40:" in said and "seq=45:" in said, said + err
    code, _, err = run(source, "--fuse", "--size", "S=40", "-o", folder / "none.onnx")
    assert code == 2 and "the free sizes of" in err and "batch, seq" in err, err


def test_parts_tell_under_any_class_name(folder):
    """Squeeze-and-excitation and CBAM of classes that are called otherwise."""
    class Mine(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 8), nn.Sigmoid())

        def forward(self, x):
            return x * self.fc(x.mean((2, 3)))[:, :, None, None]

    class Other(Mine):
        def forward(self, x):
            return x * (1 + self.fc(x.mean((2, 3)))[:, :, None, None])
    torch.manual_seed(0)
    CbamModule = timm_layer("cbam", "CbamModule")
    renamed = type("Gates", (nn.Module,), {k: v for k, v in vars(CbamModule).items()
                                           if k == "forward"})()
    renamed.__dict__.update(CbamModule(8).eval().__dict__)
    model = nn.Sequential(Mine(), Other(), renamed).eval()
    plan = registry.plan(model, (torch.randn(2, 8, 6, 6),), {})
    plan.close()
    assert [(e.path, e.adapter.operator) for e in plan.taken] == [
        ("0", "SqueezeExcite"), ("2", "CBAM")], plan.lines(True)
    assert not any(e.path == "1" and e.named for e in plan.entries)


class Packed(nn.Module):
    """Queries, keys and values of one layer, as many write it."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out, self.heads = nn.Linear(16, 48), nn.Linear(16, 16), 4

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, 4).permute(2, 0, 3, 1, 4)
        q, k = nn.functional.elu(q) + 1, nn.functional.elu(k) + 1
        y = q @ (k.transpose(-1, -2) @ v) / ((q * k.sum(2, keepdim=True)).sum(-1, True) + 1e-6)
        return self.out(y.transpose(1, 2).reshape(b, n, -1))


def test_moduleop_takes_indices_and_reshapes(folder):
    torch.manual_seed(0)
    model, path = nn.Sequential(Packed()).eval(), folder / "m.onnx"
    part = "self.qkv(x).unflatten(2, (3, -1))"
    for spec in (f"attnrun::LinearAttention({part}[:, :, 0], {part}[:, :, 1], {part}[:, :, 2], "
                 "q_num_heads=self.heads)",
                 "attnrun::LinearAttention(*self.qkv(x).chunk(3, -1), "
                 "q_num_heads=self.out.in_features / 4 // 1)"):
        spec = spec.replace("self.out.in_features / 4 // 1", "2 * 2")
        convert(model, torch.randn(2, 13, 16), output=path, quiet=True, attnrun=common.ATTNRUN,
                dynamic={"input": {0: "batch", 1: "seq"}},
                moduleop=[f"{__name__}.Packed=self.out({spec})"])
        assert operators_of(path) == ["LinearAttention"]
    convert(model[0], torch.randn(2, 13, 16), output=path, quiet=True, attnrun=common.ATTNRUN,
            dynamic={"x": {0: "batch", 1: "seq"}},  # the module is the model itself
            moduleop=[f"{__name__}.Packed=self.out(attnrun::LinearAttention("
                      "*self.qkv(x).chunk(3, -1), q_num_heads=4))"])
    assert operators_of(path) == ["LinearAttention"]
    for spec, words in (("self.out.__class__(attnrun::Boom(x))", "is not a part of a module"),
                        ("attnrun::Boom(open('x'))", "is neither a constant"),
                        ("attnrun::Boom(x) + attnrun::Boom(x)", "with one operator")):
        try:
            kind = moduleop.adapter(f"Packed={spec}")
            kind(model[0]).forward(torch.randn(1, 2, 16))
        except Exception as error:  # noqa: BLE001 - whatever is raised is looked at
            assert words in str(error), (spec, error)
        else:
            raise AssertionError(f"{spec} is taken")


class Maps(nn.Module):
    """Attention of the pixels of a map, whose heads are channels."""

    def __init__(self, channels=16, heads=4):
        super().__init__()
        self.qkv, self.heads = nn.Conv2d(channels, 3 * channels, 1), heads

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(x).view(b, 3, self.heads, c // self.heads, h * w).mT.unbind(1)
        p = (q @ k.mT * (c // self.heads) ** -0.5).softmax(-1)
        return (p @ v).mT.reshape(b, c, h, w)


def test_far_cases_of_maps_are_no_larger(folder):
    """Height and width of a map together are a length; lengths of two inputs are two."""
    image = {"x": {0: "b", 2: "h", 3: "w"}}
    two = {"x": {0: "b", 1: "s"}, "mask": {1: "s", 2: "t"}, "other": {1: "t"}}
    for base, words, dynamic, n, far in (
            ({"b": 1, "h": 5, "w": 7}, "hw", image, 4001, {"b": 1, "h": 4001, "w": 1}),
            ({"b": 1, "h": 5, "w": 7}, "hw", image, 11, {"b": 1, "h": 11, "w": 7}),
            ({"b": 1, "s": 5, "t": 7}, "st", two, 4001, {"b": 1, "s": 4001, "t": 4001}),
            ({"first": 1}, "hw", image, 9, {"first": 1, "h": 9, "w": 1})):
        assert extent.far_sizes(base, set(words), dynamic, n) == far


def test_moduleop_reads_maps_and_lists(folder):
    """One number stands for a list of them; what is wrong is named beside what is right."""
    torch.manual_seed(0)
    model, path = Maps().eval(), folder / "m.onnx"
    tokens = "*self.qkv(x).flatten(2).mT.chunk(3, -1)"
    for spec in (f"attnrun::LongformerAttention({tokens}, q_num_heads=self.heads, "
                 "kv_num_heads=self.heads, window=9999).mT.view_as(x)",
                 f"attnrun::LongformerAttention({tokens}, q_num_heads=4, kv_num_heads=4, "
                 "window=[self.qkv.in_channels * 999 % 99999]).transpose(1, 2)"
                 ".reshape(x.size(0), 16, *x.shape[2:])"):
        convert(model, torch.randn(2, 16, 4, 5), output=path, quiet=True,
                attnrun=common.ATTNRUN, dynamic={"x": {0: "batch", 2: "h", 3: "w"}},
                moduleop=[f"{__name__}.Maps={spec}"])
        assert operators_of(path) == ["LongformerAttention"]
    try:
        convert(model, torch.randn(2, 16, 4, 5), output=path, quiet=True,
                moduleop=[f"{__name__}.Maps=attnrun::Boom(open('x'))"])
    except UnsupportedError as error:  # what the user wrote, and nothing of Python's parser
        assert "kept, --moduleop: 'open('x')' is neither a constant" in str(error), error
    else:
        raise AssertionError("open is taken")
    for given, words in ((f"{tokens}, q_num_heads=4",
                          "LongformerAttention needs attribute window"),
                         (f"{tokens}, windows=3", "has no attribute windows; it has dilation, ")):
        try:
            moduleop.adapter(f"Maps=attnrun::LongformerAttention({given})")(model).forward(
                torch.randn(1, 16, 2, 2))
        except ValueError as error:
            assert words in str(error), (given, error)
        else:
            raise AssertionError(f"{given} is taken")


if __name__ == "__main__":
    common.main([value for name, value in list(globals().items())
                 if name.startswith("test_")])
