"""Masks that are bands for every length, and masks that nearly are.

Each mask is written in PyTorch and exported once; what the converter says of it is compared
with the mask that ONNX Runtime computes at many lengths, up to the end of its constants.

usage: test_masks.py ROOT ATTNRUN [test …]
"""
import contextlib
import io
import warnings

import numpy
import onnx
import onnx_ir
import onnxruntime
import onnxscript.optimizer
import torch
from onnx_ir.passes.common import ShapeInferencePass
from torch.nn import functional as F

import common
from attnrun_convert import bands, cli, convert, follow
from attnrun_convert.linear import Unproved, symbol

N = 512  # of every constant


def grid(n=N):
    i = torch.arange(n)
    return i[:, None], i[None]


def window(left, right=0, n=N):
    i, j = grid(n)
    return (j - i <= right) & (i - j <= left)


def added(allowed, never=float("-inf")):
    return torch.zeros(allowed.shape).masked_fill(~allowed, never)


def with_one_flipped(row, column):
    mask = window(127)
    mask[row, column] = ~mask[row, column]
    return mask


def begins_at(row):
    i, j = grid()
    return (j <= i) & ((i < row) | (i - j < 20))


def slopes(step):
    i, j = grid()
    return torch.where(j <= i, -step * (i - j), float("-inf"))


def nan_at_the_end():
    mask = added(window(127))
    mask[-1, 0] = float("nan")
    return mask


I, J = grid()
CONSTANTS = {
    "behind": window(127), "behind_float": added(window(127)), "wide": window(40, 9),
    "behind_1e9": added(window(127), -1e9), "triangle": window(N),
    "triangle_4d": window(N)[None, None], "both": window(128, 128), "all": window(N, N),
    "positions": torch.arange(N), "diagonal": window(0), "wide_half": added(
        window(40), -65504.0).half(),
    # not bands
    "late": begins_at(33), "late_far": begins_at(500), "late_float": added(begins_at(33)),
    "dilated": window(128) & ((I - J) % 2 == 0), "strided": (J <= I) & (
        (I - J < 16) | (J % 64 == 63)), "blocks": I // 64 == J // 64,
    "block_list": torch.isin((I // 64 - J // 64).abs(), torch.tensor([0, 3])),
    "global_40": window(16) | (J == 40), "global_300": window(300) | (I == 300),
    "grows": (J <= I) & (I - J <= I // 8 + 4), "far_too": window(100) | (I - J == 300),
    "past_only": (I - J >= 1) & (I - J < 100), "flipped": with_one_flipped(400, 300),
    "flipped_corner": with_one_flipped(N - 1, 0), "alibi": slopes(0.5),
    "alibi_steep": slopes(2e4),
    "soft": torch.where(I - J > 100, -1.0, 0.0), "soft_band": torch.where(
        window(100), 0.0, -50.0), "raised": torch.where(window(100), 1.0, float("-inf")),
    "heads": torch.stack([window(w) for w in (8, 16, 128)])[None],
    "heads_alibi": torch.stack([slopes(s) for s in (0.5, 0.25, 0.125)])[None],
    "samples": torch.stack([window(127), window(126)])[:, None], "nan": nan_at_the_end()}


def sliced(name):
    return lambda c, n, x: c[name][..., :n, :n]


def computed(function):
    return lambda c, n, x: function(*grid(n), n)


def positions_of(x):
    return torch.arange(x.shape[1])[None].expand(x.shape[0], -1)


def texts_of(x):
    """Numbers of the texts that positions which begin anew tell apart, as transformers has
    them: here there is one."""
    at = positions_of(x)
    return (torch.diff(at, prepend=at[:, :1] - 1, dim=-1) != 1).cumsum(-1)


# name: (mask of constants, length and input, what it is: (left, right) or None)
MASKS = {
    "behind": (sliced("behind"), (127, 0)), "wide": (sliced("wide"), (40, 9)),
    "behind_float": (sliced("behind_float"), (127, 0)),
    "behind_1e9": (sliced("behind_1e9"), (127, 0)), "both": (sliced("both"), (128, 128)),
    "triangle": (sliced("triangle"), (-1, 0)), "all": (sliced("all"), (-1, -1)),
    "triangle_4d": (sliced("triangle_4d"), (-1, 0)), "diagonal": (sliced("diagonal"), (0, 0)),
    "wide_half": (sliced("wide_half"), (40, 0)),
    "same_offset": (lambda c, n, x: c["behind"][7:7 + n, 7:7 + n], (127, 0)),
    "offset_keys": (lambda c, n, x: c["both"][:n, 5:5 + n], (133, 123)),
    "inverted": (lambda c, n, x: ~(~c["behind"])[:n, :n], (127, 0)),
    "where": (lambda c, n, x: torch.where(c["behind"][:n, :n], 0.0, -1e9), (127, 0)),
    "positions": (lambda c, n, x: (c["positions"][:n, None] - c["positions"][:n]).abs() <= 99,
                  (99, 99)),
    "looked_up": (lambda c, n, x: c["positions"][torch.arange(n)][:, None]
                  >= c["positions"][torch.arange(n)], (-1, 0)),
    "looked_up_by_sample": (lambda c, n, x: positions_of(x)[
        torch.arange(x.shape[0])[:, None, None], torch.arange(n)[None, :, None]]
        - positions_of(x)[torch.arange(x.shape[0])[:, None, None], torch.arange(n)[
            None, None]] < 90, (89, -1)),
    "one_text": (lambda c, n, x: texts_of(x)[:, :, None] == texts_of(x)[:, None], (-1, -1)),
    "every_second_position": (lambda c, n, x: (
        2 * torch.arange(n)[:, None] - 2 * torch.arange(n)).abs() <= 41, (20, 20)),
    "computed": (computed(lambda i, j, n: (i - j).abs() <= 150), (150, 150)),
    "computed_float": (computed(lambda i, j, n: torch.where((i - j).abs() <= 33, 0.0, -1e9)),
                       (33, 33)),
    "not_beyond": (computed(lambda i, j, n: ~((j > i) | (j < i - 60))), (60, 0)),
    "triu": (computed(lambda i, j, n: torch.ones(n, n, dtype=torch.bool).tril(3).triu(-70)),
             (70, 3)),
    "shifted": (computed(lambda i, j, n: (i + 100 >= j + 100) & (i - j < 77)), (76, 0)),
    "within": (computed(lambda i, j, n: (i - j < 77) & (j >= i - 90) & (j < n)
                        & (j <= i)), (76, 0)),
    "with_a_constant": (lambda c, n, x: c["behind"][:n, :n] & window(50, n=n), (50, 0)),
    "cut_after": (lambda c, n, x: window(50, n=600)[:n, :n], (50, 0)),
}
MASKS |= {name: (sliced(name), None) for name in (
    "late", "late_far", "late_float", "dilated", "strided", "blocks", "block_list",
    "global_40", "global_300", "grows", "far_too", "past_only", "flipped", "flipped_corner",
    "alibi", "soft", "soft_band", "raised", "heads", "heads_alibi", "samples", "nan")}
MASKS |= {name: (function, None) for name, function in {
    "c_late": computed(lambda i, j, n: (j <= i) & ((i < 33) | (i - j < 20))),
    "c_dilated": computed(lambda i, j, n: ((i - j).abs() <= 64) & ((i - j) % 2 == 0)),
    "c_blocks": computed(lambda i, j, n: i // 64 == j // 64),
    "c_global": computed(lambda i, j, n: ((i - j).abs() <= 64) | (j == 40) | (i == 40)),
    "c_first": computed(lambda i, j, n: (j <= i) & ((i - j < 16) | (j < 4))),
    "c_grows": computed(lambda i, j, n: i - j <= i // 8 + 4),
    "c_twice": computed(lambda i, j, n: (2 * j <= i + 64)),
    "c_half_of_all": computed(lambda i, j, n: (i - j).abs() <= n // 2),
    "c_but_for_the_last": computed(lambda i, j, n: (i - j).abs() <= n - 100),
    "c_alibi": computed(lambda i, j, n: torch.where(j <= i, -0.5 * (i - j), -1e9)),
    "c_alibi_in_a_band": computed(lambda i, j, n: -0.01 * (i - j).abs() + torch.where(
        (i - j).abs() <= 64, 0.0, float("-inf"))),
    "c_two_bands": computed(lambda i, j, n: ((i - j).abs() <= 8) | ((i - j - 300).abs() < 3)),
    "c_half_positions": lambda c, n, x: (
        torch.arange(n).half()[:, None] - torch.arange(n).half()).abs() <= 3,
    "c_wrapped": lambda c, n, x: c["positions"][(torch.arange(n)[:, None] - torch.arange(n))
                                                ] <= 20,
    "offset_behind": lambda c, n, x: c["behind"][:n, 5:5 + n],
    "c_data": lambda c, n, x: (x[0, :, :1] - x[0, :, 0]).abs() <= 5,
    "last": lambda c, n, x: c["behind"][-n:, -n:]}.items()}  # is one, but is not followed
MASKS["half_of_a_band"] = (lambda c, n, x: c["both"][::2, ::2][:n, :n], (64, 64))
MASKS["alibi_steep"] = (sliced("alibi_steep"), None)


class Masks(torch.nn.Module):
    def __init__(self, names):
        super().__init__()
        self.names = names
        for name, constant in CONSTANTS.items():
            self.register_buffer(name, constant.clone())

    def forward(self, x):
        constants = dict(self.named_buffers())
        return tuple(MASKS[name][0](constants, x.shape[1], x) for name in self.names)


def exported(names, path):
    """The masks by name, in a graph that shapes were inferred for."""
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(io.StringIO()):
        program = torch.onnx.export(
            Masks(names).eval(), (torch.randn(1, 48, 2),), dynamo=True, verbose=False,
            opset_version=20, optimize=False, input_names=["x"],
            output_names=[f"mask_{name}" for name in names],
            dynamic_shapes=({1: "seq"},))
    onnxscript.optimizer.optimize_ir(program.model, inline=False)
    program.save(path)
    return dict(zip(names, program.model.graph.outputs))


def silent(model):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def is_band(mask, band):
    """Whether a mask of numpy is what LocalAttention does of itself."""
    n = mask.shape[-1]
    distance = numpy.arange(n)[None] - numpy.arange(n)[:, None]
    left, right = (n if bound < 0 else bound for bound in band)
    allowed = mask if mask.dtype == bool else mask == 0
    if mask.dtype != bool and not (allowed | (mask <= -1e4)).all():
        return False
    return (allowed == ((distance >= -left) & (distance <= right))).all()


def test_masks_of_every_kind(folder):
    """Found bands hold at each length; whatever is none has a reason."""
    path = folder / "masks.onnx"
    values = exported(list(MASKS), path)
    session = silent(str(path))
    found = {}
    for name, value in values.items():
        try:
            found[name], size = bands.followed(value, value.dtype == onnx_ir.DataType.BOOL)
            assert size == symbol("seq"), (name, size)
        except Unproved as reason:
            found[name] = None
            assert len(str(reason)) > 10, (name, reason)
    wrong = {name: band for name, band in found.items() if band != MASKS[name][1]}
    assert not wrong, wrong
    names = [name for name in MASKS if name not in (
        "same_offset", "offset_keys", "offset_behind", "half_of_a_band")]  # are shorter
    for n in (1, 2, 31, 33, 64, 129, 256, 257, 500, N):
        chosen = list(MASKS) if n <= 256 else names
        masks = dict(zip(chosen, session.run([f"mask_{name}" for name in chosen], {
            "x": numpy.zeros((1, n, 2), numpy.float32)})))
        for name, mask in masks.items():
            if found[name] is not None:
                assert is_band(mask, found[name]), (name, n, found[name])


def test_masks_that_are_no_band_at_their_end(folder):
    """The cases above are none: no band fits what ONNX Runtime computes at some length."""
    path = folder / "masks.onnx"
    names = [name for name, (_, band) in MASKS.items() if band is None and name not in (
        "c_half_positions", "c_data", "alibi_steep", "c_wrapped", "last")]
    exported(names, path)
    session = silent(str(path))
    fits = {}
    for n in (200, 250):
        x = numpy.zeros((1, n, 2), numpy.float32)
        for name, mask in zip(names, session.run(None, {"x": x})):
            square = mask.reshape(-1, n, n)[0]
            allowed = square if mask.dtype == bool else square == 0
            places = numpy.argwhere(allowed)
            distance = places[:, 1] - places[:, 0]
            band = (-int(distance.min()), int(distance.max())) if len(places) else (0, 0)
            band = tuple(-1 if side == n - 1 else side for side in band)
            same = all((head == mask.reshape(-1, n, n)[0]).all()
                       for head in mask.reshape(-1, n, n))
            if same and min(band) >= -1 and is_band(square, band):
                fits.setdefault(name, []).append(band)
    # These look like a band up to 250, and are none beyond (or of another width).
    short = {"late_far", "global_300", "far_too", "flipped", "flipped_corner", "nan",
             "c_but_for_the_last", "c_half_of_all", "c_two_bands", "raised"}
    wrong = {name: band for name, band in fits.items()
             if name not in short and len(set(band)) == 1}
    assert not wrong, wrong


def test_masks_constants_over_their_full_extent(folder):
    """The same constants as they are, without a graph: of one length, or too irregular."""
    for name, constant in CONSTANTS.items():
        if constant.dim() < 2 or name == "wide_half":
            continue
        band = bands.band_of_array(constant.numpy(), constant.dtype == torch.bool)
        assert band == MASKS[name][1], (name, band)
    for shape in ((3, 4), (1, 1), (4,), ()):
        assert bands.band_of_array(numpy.ones(shape, bool), True) is None
    assert bands.band_of_array(numpy.zeros((5, 5), bool), True) is None


def test_masks_random_graphs(folder):
    """Random conditions of distances: the value of the follower is the one of the evaluator,
    or there is none."""
    for seed in range(60):
        random = numpy.random.default_rng(seed)
        text, lengths = _random_graph(random), (1, 2, 9, 30)
        proto = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text))
        model = onnx_ir.from_proto(proto)
        ShapeInferencePass()(model)
        try:
            field = follow.Follower().field(model.graph.outputs[0])
        except Unproved:
            continue
        session = silent(proto.SerializeToString())
        for n in lengths:
            want = session.run(None, {"x": numpy.zeros((n, 3), numpy.float32)})[0]
            got = _evaluated(field, n, want.shape)
            assert (got == want).all(), f"seed {seed}, length {n}:\n{text}"


def _random_graph(random):
    """A condition of i and j in a few random steps."""
    numbers = ["d", "i", "j"]
    conditions, lines = [], []
    for step in range(int(random.integers(3, 9))):
        kind = random.choice(["Add", "Sub", "Abs", "Neg", "Min", "Max", "Less", "Mul",
                              "GreaterOrEqual", "Equal", "And", "Or", "Not", "Xor", "Where"])
        a, b = (str(random.choice([*numbers, "three", "minus"])) for _ in "ab")
        if kind in ("Less", "GreaterOrEqual", "Equal"):
            conditions.append(f"v{step}")
            lines.append(f"v{step} = {kind}({a}, {b})")
        elif kind in ("And", "Or", "Xor", "Not", "Where") and not conditions:
            continue
        elif kind in ("And", "Or", "Xor", "Not"):
            operands = [str(random.choice(conditions)) for _ in range(1 + (kind != "Not"))]
            conditions.append(f"v{step}")
            lines.append(f"v{step} = {kind}({', '.join(operands)})")
        else:
            operands = {"Abs": [a], "Neg": [a], "Mul": [a, "three"], "Where": [
                str(random.choice(conditions or ["d"])), a, b]}.get(kind, [a, b])
            numbers.append(f"v{step}")
            lines.append(f"v{step} = {kind}({', '.join(operands)})")
    if not conditions:
        conditions.append("last")
        lines.append(f"last = Less({numbers[-1]}, three)")
    body = "\n        ".join(lines + [f"y = And({conditions[-1]}, true_)"])
    return f"""<ir_version: 8, opset_import: ["": 18]>
    net (float[n, 3] x) => (bool[r, c] y) <int64 zero = {{0}}, int64 one = {{1}},
        int64[1] last_axis = {{1}}, int64[1] first_axis = {{0}}, int64[1, 1] three = {{3}},
        int64[1, 1] minus = {{-2}}, bool[1, 1] true_ = {{1}}> {{
        s = Shape<start = 0, end = 1>(x)
        n_ = Squeeze(s)
        p = Range(zero, n_, one)
        i = Unsqueeze(p, last_axis)
        j = Unsqueeze(p, first_axis)
        d = Sub(j, i)
        {body}
    }}"""


def _evaluated(field, n, shape):
    """The numbers of a field where the size n has this value."""
    found = numpy.empty(shape, bool)
    for place in numpy.ndindex(*shape):
        at = {len(shape) - axis: index for axis, index in enumerate(place)}
        along = sum(c * at[s] for s, c in field.cell.form or ())
        values = [v for low, high, v in field.cell.pieces if low <= along <= high]
        found[place] = values[0]
    return found


class Attention(torch.nn.Module):
    """Attention with masks in buffers, as in the usual code for text."""

    def __init__(self, kinds):
        super().__init__()
        self.kinds = kinds
        for kind in kinds:
            self.register_buffer(kind, CONSTANTS[kind].clone())

    def forward(self, x):
        n = x.shape[2]
        return tuple(F.scaled_dot_product_attention(
            x * (1 + 0.1 * i), x, x, attn_mask=getattr(self, kind)[..., :n, :n])
            for i, kind in enumerate(self.kinds))  # scores of their own


KINDS = {"behind": (127, 0), "behind_float": (127, 0), "triangle": "causal",
         "late": "Attention", "alibi": "Attention", "dilated": "Attention",
         "heads": "Attention"}


def _kind_of(model, output):
    node = next(n for n in model.graph.node if output in n.output)
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if "left_window" in given:
        return given["left_window"][0], given["right_window"][0]
    return "causal" if given.get("is_causal") else node.op_type


def _check_file(path, net, kinds):
    """What the outputs come from, and that they are right up to the end of the constants."""
    model = onnx.load(path)
    got = {kind: _kind_of(model, kind) for kind in kinds}
    assert got == kinds, got
    for n in (40, 128, 200, 400, N):
        x = torch.randn(1, 3, n, 16, generator=torch.Generator().manual_seed(n))
        want = net(x)
        common.close(common.in_onnxruntime(path, {"x": x}), want, what=f"ort, {n}")
        common.close(common.in_attnrun(path, {"x": x}, list(kinds)), want, what=f"{n}")


def test_masks_in_buffers_of_a_module(folder):
    net, path, said = Attention(list(KINDS)).eval(), folder / "net.onnx", io.StringIO()
    with contextlib.redirect_stdout(said):
        convert(net, (torch.randn(1, 3, 64, 16),), output=path, dynamic={"x": {2: "seq"}},
                output_names=list(KINDS), attnrun=common.ATTNRUN)
    said = said.getvalue()
    _check_file(path, net, KINDS)
    for words in ("keeps its mask: a constant", "changes more than", "from head to head"):
        assert words in said, said
    assert f"seq={N}: 'behind'" in said, said  # the proof goes to the end of the masks


def test_masks_in_buffers_of_a_file(folder):
    net, before, after = Attention(list(KINDS)).eval(), folder / "a.onnx", folder / "b.onnx"
    convert(net, (torch.randn(1, 3, 64, 16),), output=before, dynamic={"x": {2: "seq"}},
            output_names=list(KINDS), opset=18, check=(), quiet=True)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert cli.main([str(before), "--fuse", "-o", str(after), "--attnrun",
                         common.ATTNRUN]) == 0
    _check_file(after, net, KINDS)
    assert f"seq={N}: 'behind'" in said.getvalue(), said.getvalue()


if __name__ == "__main__":
    common.main([value for name, value in list(globals().items())
                 if name.startswith("test_")])
