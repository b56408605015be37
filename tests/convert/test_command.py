"""The command line of the converter: what it writes, and each sentence with its exit code.

usage: test_command.py ROOT ATTNRUN [test …]
"""
import contextlib
import io
import json
import os
import subprocess

import numpy
import onnx
import torch

import common
import net
from attnrun_convert import cli

NET = str(common.ROOT / "tests" / "convert" / "net.py")
OP = "net.Attention=attnrun::LinearAttention(q, k, v, mask, q_num_heads=self.heads)"
EXAMPLES = ("--example", "ids=int64[B,S]", "--example", "mask=int64[B,S]=ones")
SMALL = ("--size", "S=12")


def run(*arguments):
    """(exit code, standard output, standard error) of a command line."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = cli.main([*map(str, arguments), "--attnrun", common.ATTNRUN])
        except SystemExit as end:
            code = end.code
    return code, out.getvalue(), err.getvalue()


def refused(folder, code, words, *arguments):
    got, _, err = run(*arguments, "-o", folder / "out.onnx")
    assert got == code, f"{arguments}: exit code {got}, expected {code}: {err}"
    assert words in err and err.startswith("attnrun convert: "), err
    assert err.count("\n") == 1, f"more than a line: {err}"
    assert not list(folder.iterdir()), f"left behind: {list(folder.iterdir())}"


def _checked(*arguments):
    result = subprocess.run([common.ATTNRUN, "check", *map(str, arguments)],
                            capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_command_writes_everything(folder):
    out, plain, vectors = folder / "net.onnx", folder / "plain.onnx", folder / "vectors"
    report = folder / "report.json"
    code, said, err = run(f"{NET}:net", *EXAMPLES, *SMALL, "--moduleop", OP, "-o", out,
                          "--plain", plain, "--vectors", vectors, "--report", report)
    assert code == 0, err
    lines = [line for line in said.splitlines() if "max abs" in line]
    assert len(lines) == 8 and all(line.endswith(" ok") for line in lines), said
    assert sum("attnrun:" in line for line in lines) == 4
    sizes = {line.split(":")[0] for line in lines}
    assert sizes == {"B=2 S=12", "B=3 S=19", "B=1 S=11", "B=2 S=1"}, sizes
    _is_signed(out)
    assert "1 passed" in _checked(vectors) and "1 passed" in _checked(
        "--force-bodies", vectors)
    assert len(list(vectors.glob("test_data_set_*"))) == 4
    _is_plain(plain)
    told = json.loads(report.read_text())
    assert told["replaced"] == {"attention": "LinearAttention"}, told["replaced"]
    assert len(told["results"]) == 8


def _is_signed(path):
    file = onnx.load(path)
    assert [n.op_type[:17] for n in file.graph.node if n.domain == "attnrun"] \
        == ["LinearAttention__"]
    assert not any(n.metadata_props or n.doc_string for n in file.graph.node)
    props = {p.key: p.value for p in file.metadata_props}
    assert torch.__version__ in props["attnrun.torch"]
    assert props["attnrun.tolerance"] == "0.0001 min(1, largest) + 0.001 |expected|"
    assert float(props["attnrun.max_abs_error.attnrun"]) < 1e-5
    assert "S: axis 1 of ids, axis 1 of mask" in props["attnrun.symbols"]


def _is_plain(path):
    file = onnx.load(path)
    assert not file.functions and not any(n.domain for n in file.graph.node)
    assert [o.domain for o in file.opset_import] == [""]
    feeds = {"ids": torch.arange(10).reshape(2, 5), "mask": torch.ones(2, 5).long()}
    want = net.net()(**feeds)["y"]
    common.close(common.in_onnxruntime(path, feeds), [want], what="plain in onnxruntime")
    try:
        import openvino
    except ImportError:
        return
    compiled = openvino.Core().compile_model(str(path), "CPU",
                                             {"INFERENCE_PRECISION_HINT": "f32"})
    got = compiled({k: v.numpy() for k, v in feeds.items()})[0]
    common.close([got], [want], what="plain in OpenVINO")


def test_command_through_attnrun(folder):
    """attnrun convert starts it, and says what is missing where it cannot."""
    out = folder / "net.onnx"
    result = subprocess.run(
        [common.ATTNRUN, "convert", f"{NET}:net", *EXAMPLES, *SMALL, "-o", str(out),
         "--check", "attnrun", "--at", "S=7"], capture_output=True, text=True,
        env={**os.environ, "PATH": f"{os.path.dirname(os.sys.executable)}:/usr/bin:/bin"})
    assert result.returncode == 0 and out.exists(), result.stderr
    assert "B=2 S=7: 'y' [2, 7, 16] attnrun: max abs" in result.stdout, result.stdout
    result = subprocess.run([common.ATTNRUN, "convert", "x"], capture_output=True, text=True,
                            env={"PATH": str(folder)})
    assert result.returncode == 4 and "no python3 in PATH" in result.stderr, result.stderr


def test_command_external_data_and_vectors(folder):
    """Weights beside the file, on pages of their own; the same model where they are in it."""
    class Wide(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(64, 512)

        def forward(self, x):
            return self.inner(x)
    from attnrun_convert import convert
    model, x = Wide().eval(), torch.randn(3, 64)
    path = convert(model, x, dynamic={"x": {0: "batch"}}, output=folder / "wide.onnx",
                   external_data=True, vectors=folder / "v", attnrun=common.ATTNRUN,
                   quiet=True)
    data = folder / "wide.onnx.data"
    assert data.stat().st_size >= 4 * 64 * 512
    entries = {e.key: e.value for t in onnx.load(path, load_external_data=False)
               .graph.initializer for e in t.external_data}
    assert int(entries["offset"]) % 4096 == 0 and entries["location"] == data.name
    common.close(common.in_attnrun(path, {"x": x}, ["output"]), [model(x)])
    assert "1 passed" in _checked(folder / "v")
    assert sorted(p.name for p in folder.iterdir()) == ["v", "wide.onnx", "wide.onnx.data"]


def test_command_pt2(folder):
    """A saved program, its axes named; one of training is refused."""
    ids = torch.arange(12).reshape(2, 6)
    axes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    program = torch.export.export(net.net(), (ids,), dynamic_shapes={"ids": axes})
    torch.export.save(program, folder / "net.pt2")
    out = folder / "net.onnx"
    code, said, err = run(folder / "net.pt2", "-o", out, "--dynamic", "ids:1=tokens")
    assert code == 0, err
    dims = onnx.load(out).graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_param for d in dims] == ["batch", "tokens"]
    feeds = {"ids": torch.arange(21).reshape(3, 7)}
    common.close(common.in_attnrun(out, feeds, ["y"]), [net.net()(**feeds)["y"]])
    drop = torch.nn.Sequential(torch.nn.Dropout(0.5)).train()
    torch.export.save(torch.export.export(drop, (torch.zeros(2),)), folder / "drop.pt2")
    code, _, err = run(folder / "drop.pt2", "-o", folder / "drop.onnx")
    assert code == 4 and "exported in training mode" in err, err
    (folder / "bad.pt2").write_bytes(b"nothing")
    code, _, err = run(folder / "bad.pt2", "-o", folder / "bad.onnx")
    assert code == 3 and "as a torch.export program" in err, err
    assert not (folder / "bad.onnx").exists() and not (folder / "drop.onnx").exists()


def line_of(function):
    return function.__code__.co_firstlineno


def test_command_refusals(folder):
    ids = ("--example", "ids=int64[B,S]")
    for code, words, *arguments in (
            (2, "is not of the form pkg.module:factory", "nothing"),
            (2, "cannot import no_such_package", "no_such_package:net"),
            (3, "there is no such file", "no_such_file.py:net"),
            (3, "cannot read no.pt2: there is no such file", "no.pt2"),
            (3, "cannot read no.onnx: there is no such file", "no.onnx", "--fuse"),
            (2, "has no function 'other'", f"{NET}:other"),
            (2, "has no function 'nett'; the nearest names are Net, net", f"{NET}:nett"),
            (2, "unrecognized arguments: --nothing (see --help)", f"{NET}:net", "--nothing"),
            (2, "invalid choice: 'all'", f"{NET}:net", "--part", "all"),
            (2, "--size names 'T', but the free sizes are B, S", f"{NET}:net", *ids, "--size",
             "T=4"),
            (2, "--at names 'T', but the free sizes are B, S", f"{NET}:net", *ids, "--at", "T=4"),
            (2, "--opset 5: the file would have opset 18", f"{NET}:net", *ids, "--opset", 5),
            (4, f"the model returns complex numbers (at {NET}:{line_of(net.Complex.forward)})",
             f"{NET}:complex_numbers", "--example", "x=float32[B,2]"),
            (3, "net.py is not a .npy file of numbers", f"{NET}:net", "--example",
             f"ids=@{NET}"),
            (2, f"text() gives a str, expected a torch.nn.Module, or one and its example arguments "
                f"(at {NET}:{line_of(net.text)})", f"{NET}:text", *ids),
            (4, f"the model returns no tensor, but ndarray (at {NET}:{line_of(net.Array.forward)})",
             f"{NET}:array", *ids),
            (2, "there are no example inputs", f"{NET}:net"),
            (2, "is not of the form name=dtype[dims]", f"{NET}:net", "--example", "ids"),
            (2, "there is no type 'int65'", f"{NET}:net", "--example", "ids=int65[1]"),
            (2, "do not fit Net.forward", f"{NET}:net", "--example", "it=int64[1]"),
            (2, "the model itself fails on the example", f"{NET}:net", "--example",
             "ids=int64[1,4]=60..70"),
            (3, "cannot read", f"{NET}:net", "--example", "ids=@none.npy"),
            (2, "do not fit Net.forward(ids, mask): ", f"{NET}:net", "--example", "x=int64[2,4]"),
            (2, "but the inputs are ids", f"{NET}:net", *ids, "--dynamic", "x:0=n"),
            (2, "is not of the form input:axis", f"{NET}:net", *ids, "--dynamic", "x"),
            (2, "a name is given for axis 7", f"{NET}:net", "--example", "ids=int64[2,4]",
             "--dynamic", "ids:7=n"),
            (4, "attention (Attention) is in training mode", f"{NET}:training", *ids),
            (4, "makes random numbers", f"{NET}:noise", "--check", "none"),
            (70, "Fixed cannot be exported", f"{NET}:fixed", "--example", "x=float32[B,S]",
             "--size", "S=8"),
            (2, "no runtime 'openvino'", f"{NET}:net", *ids, "--check", "openvino"),
            (2, "not of the form pkg.Class=", f"{NET}:net", *ids, "--moduleop", "x"),
            (2, "no operator attnrun::LinearAtention; the nearest names are LinearAttention, ",
             f"{NET}:net", *ids, "--moduleop", "net.Attention=attnrun::LinearAtention"),
            (4, "has no module of class a.B", f"{NET}:net", *ids, "--moduleop",
             "a.B=attnrun::LinearAttention"),
            (4, "attention (Attention): kept, the probe differs by", f"{NET}:net", *ids,
             "--moduleop", "net.Attention=attnrun::LinearAttention(q_num_heads=2)"),
            (4, "its forward has no parameter 'x'", f"{NET}:net", *ids, "--moduleop",
             "net.Attention=attnrun::LinearAttention(x)"),
            (1, "differ from the source by more than 0 + 0", f"{NET}:net", *ids, "--rtol", 0,
             "--atol", 0),
    ):
        refused(folder, code, words, *arguments)


def test_command_writes_no_half_file(folder):
    """What was there stays when a conversion fails; a missing folder is a sentence."""
    out = folder / "net.onnx"
    out.write_bytes(b"before")
    code, _, err = run(f"{NET}:net", *EXAMPLES, *SMALL, "-o", out, "--rtol", 0, "--atol", 0)
    assert code == 1 and out.read_bytes() == b"before" and "nothing was written" in err, err
    assert sorted(p.name for p in folder.iterdir()) == ["net.onnx"]
    code, _, err = run(f"{NET}:net", *EXAMPLES, "-o", folder / "no" / "net.onnx")
    assert code == 3 and "there is no folder" in err, err


OF_DATA = """import torch
from torch import nn


class Base(nn.Module):
    def forward(self, x):
        return self.of(x)


class Numpy(Base):
    def of(self, x):
        return x + torch.from_numpy(x.numpy())  # HERE


class Item(Base):
    def of(self, x):
        return x.new_zeros(int(x.abs().max().item())) + x[0, 0]  # HERE


class Branch(Base):
    def of(self, x):
        if x.sum() > 0:  # HERE
            return x * 2
        return x


class Unknown(nn.Module):
    def forward(self, x):
        return torch.linalg.svd(x)[1]  # HERE


class Asserts(Base):
    def of(self, x):
        assert not torch.isnan(x).any()  # HERE
        return x


def make(kind):
    return lambda: nn.Sequential(kind()).eval()


numpy, item, branch, unknown, asserts = map(make, (Numpy, Item, Branch, Unknown, Asserts))
"""


def test_command_names_the_line_that_reads_data(folder):
    """Also in a folder that is called like a package of the exporter."""
    (folder / "onnx").mkdir()
    file = folder / "onnx" / "of_data.py"
    file.write_text(OF_DATA)
    lines = [n for n, line in enumerate(OF_DATA.splitlines(), 1) if line.endswith("# HERE")]
    decides = "its code makes a decision or a size from numbers that a tensor holds"
    for name, line, words in zip(
            ("numpy", "item", "branch", "unknown", "asserts"), lines,
            ("its code takes a tensor out of PyTorch as a NumPy array", decides, decides,
             "its code calls aten._linalg_svd", decides)):
        code, _, err = run(f"{file}:{name}", "--example", "input=float32[2,5]", "-o",
                           folder / "out.onnx")
        assert code == 70 and words in err and f"(at {file}:{line})" in err, (name, err)
        assert err.count("\n") == 1 and "Guard" not in err and "graph()" not in err, err
    assert not (folder / "out.onnx").exists()


def test_command_names_the_line_that_cannot_be_imported(folder):
    for name, line, words in (("lacks", "import no_such_package", "No module named"),
                              ("divides", "X = 1 / 0", "ZeroDivisionError")):
        file = folder / f"{name}.py"
        file.write_text(f"import torch\n{line}\n")
        code, _, err = run(f"{file}:net", "-o", folder / "out.onnx")
        assert code == 2 and words in err and f"(at {file}:2)" in err, err
        assert err.count("\n") == 1, err


def test_command_explains(folder):
    """A dry run writes nothing."""
    code, said, err = run(f"{NET}:net", *EXAMPLES, "--moduleop", OP, "--explain", "-o",
                          folder / "net.onnx")
    assert code == 0 and "attention (Attention): LinearAttention, probe" in said, said + err
    assert not list(folder.iterdir())


def test_command_example_values(folder):
    """Ids stay within the table that they index; what indexes nothing is zeros and ones."""
    from attnrun_convert import examples
    given, axes, ids = examples.parse(
        ["ids=int64[2,S]", "mask=int64[2,S]", "x=f16[3,4]=zeros", "n=int32[9]=3..5"],
        {"S": 200})
    assert axes == {"ids": {1: "S"}, "mask": {1: "S"}} and ids == ["ids", "mask"]
    assert given["x"].dtype == torch.float16 and not given["x"].any()
    assert set(given["n"].tolist()) == {3, 4} and given["n"].dtype == torch.int32
    pair = {"ids": given["ids"], "mask": given["mask"]}
    examples.fill_ids(net.net(), pair, ids)
    assert 40 < pair["ids"].max() < 50 and pair["mask"].max() == 1
    numpy.save(folder / "x.npy", numpy.arange(3.0))
    given, _, _ = examples.parse([f"x=@{folder}/x.npy"], {})
    assert given["x"].tolist() == [0, 1, 2]


if __name__ == "__main__":
    common.main([value for name, value in list(globals().items())
                 if name.startswith("test_")])
