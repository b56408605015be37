"""Rules R1 to R7 of bodies: a file that keeps them passes, and a file that breaks one is
found out, by the rule that it breaks. What a rule guards against is shown where the runtime
at hand still has the fault.

usage: test_rules.py ROOT ATTNRUN [test …]
"""
import functools

import onnx
import torch
from onnx import helper

import common
from attnrun_convert import convert, operators, rules
from attnrun_convert.call import call


class Net(torch.nn.Module):
    """Two nodes of one body, an absent input in the middle, two outputs of three used."""

    def forward(self, q, k, v, mask):
        y = call("LinearAttention", q, k, v, q_num_heads=2)
        y = call("LinearAttention", y, k, v, q_num_heads=2)
        y = call("LongformerAttention", y, k, v, None, mask, window=[1], q_num_heads=2)
        z, state = call("LinearAttention", y, k, v, q_num_heads=2, scale=0.5, n_outputs=2)
        return z + state.sum()


def _feeds(tokens=7):
    generator = torch.Generator().manual_seed(tokens)
    q, k, v = torch.randn(3, 2, tokens, 8, generator=generator)
    return {"q": q, "k": k, "v": v,
            "mask": torch.rand(2, tokens, generator=generator) < 0.3}


@functools.cache
def _bytes():
    axes = {0: "batch", 1: "seq"}
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        path = convert(Net().eval(), _feeds(), dynamic=dict.fromkeys("qkv", axes) | {
            "mask": axes}, output=f"{folder}/net.onnx", quiet=True, check=())
        return open(path, "rb").read()


def _model():
    return onnx.load_from_string(_bytes())


def _attributes():
    return {name: [k for k, v in op.attributes.items() if v is not None
                   and v is not operators.REQUIRED] for name, op in operators.load().items()}


def _breaks(model, rule):
    found = rules.broken(model, _attributes())
    assert found and all(line.startswith(rule) for line in found), (rule, found)


def _renamed(model, function):
    """Gives a changed function its name, as its nodes, so that R2 holds again."""
    old, new = function.name, rules.name_of(function.name.rpartition("__")[0], function)
    function.name = new
    for node in model.graph.node:
        if node.op_type == old:
            node.op_type = new


def _node(model, name, number=0):
    return [n for n in model.graph.node if n.op_type.startswith(name)][number]


def _body(model, node):
    return next(f for f in model.functions if f.name == node.op_type)


def test_rules_hold_and_the_file_runs(folder):
    model, path = _model(), folder / "net.onnx"
    assert rules.broken(model, _attributes()) == []
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
    for tokens in (7, 10):
        feeds = _feeds(tokens)
        want = [Net()(**feeds)]
        common.close(common.in_onnxruntime(path, feeds), want)
        common.close(common.in_attnrun(path, feeds, ["output"]), want)
        common.close(common.in_attnrun(path, feeds, ["output"], "--force-bodies"), want)


def test_rule_1_closed(folder):
    for change in ("attribute", "reference", "call"):
        model = _model()
        function = model.functions[0]
        if change == "attribute":
            function.attribute.append("scale")
        elif change == "reference":
            node = next(n for n in function.node if n.attribute)
            node.attribute[0].ref_attr_name = "scale"
        else:
            function.node[0].domain = "attnrun"
        _renamed(model, function)
        _breaks(model, "R1")


def test_rule_2_names(folder):
    model = _model()
    kinds = [n.op_type for n in model.graph.node if n.domain == "attnrun"]
    assert len(kinds) == 4 and kinds[0] == kinds[1] and len(set(kinds)) == 3, kinds
    assert sorted(f.name for f in model.functions) == sorted(set(kinds))
    model.functions[0].node[0].op_type += "X"  # another body under the same name
    _breaks(model, "R2")
    model = _model()
    model.functions[0].overload = "1"
    _renamed(model, model.functions[0])
    _breaks(model, "R2")
    model = _model()
    _node(model, "Longformer").op_type = "LongformerAttention"
    _breaks(model, "R2")


def test_rule_3_every_attribute(folder):
    model = _model()
    node = _node(model, "LinearAttention")
    assert {"scale", "epsilon", "feature_map_q", "is_causal"} <= {a.name
                                                                  for a in node.attribute}
    kept = [a for a in node.attribute if a.name != "scale"]
    del node.attribute[:]
    node.attribute.extend(kept)
    _breaks(model, "R3")


def test_rule_4_inputs(folder):
    model = _model()
    node = _node(model, "Longformer")
    assert list(node.input[3:]) == ["", "mask"], node.input
    body = _body(model, node)
    assert list(body.input) == ["Q", "K", "V", "key_mask", "global_mask"]
    assert not any("key_mask" in inner.input for inner in body.node)
    assert list(_body(model, _node(model, "Linear")).input) == ["Q", "K", "V"]
    node.input.append("")
    _breaks(model, "R4")
    model = _model()
    node = _node(model, "Longformer")
    body = _body(model, node)
    body.node.append(helper.make_node("Not", ["key_mask"], ["unused"]))
    _renamed(model, body)
    _breaks(model, "R4")


def test_rule_5_outputs(folder):
    model = _model()
    assert [len(_body(model, _node(model, "Linear", i)).output) for i in (0, 2)] == [1, 2]
    _node(model, "Linear", 2).output.append("more")
    _breaks(model, "R5")


def test_rule_6_opset(folder):
    model = _model()
    function = model.functions[0]
    function.opset_import[0].version -= 1
    _renamed(model, function)
    _breaks(model, "R6")
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError:
        return
    raise AssertionError("the checker takes two opsets, the rule is for nothing")


def test_rule_7_imports(folder):
    model = _model()
    function = model.functions[0]
    function.opset_import.append(helper.make_opsetid("attnrun", 1))
    _renamed(model, function)
    _breaks(model, "R7")
    model = _model()
    kept = [o for o in model.opset_import if o.domain != "attnrun"]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    _breaks(model, "R7")


def test_inlined_is_the_same(folder):
    """The plain copy, by the pass that keeps defaults right."""
    from attnrun_convert import pipeline
    onnx.save(_model(), folder / "net.onnx")
    pipeline.write_plain(folder / "net.onnx", folder / "plain.onnx")
    feeds = _feeds(9)
    common.close(common.in_onnxruntime(folder / "plain.onnx", feeds), [Net()(**feeds)])
    assert not onnx.load(folder / "plain.onnx").functions


if __name__ == "__main__":
    common.main([value for name, value in list(globals().items())
                 if name.startswith("test_")])
