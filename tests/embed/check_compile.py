"""attnrun compile: a program with its model in itself gives the bits of `attnrun run`, has no
operators but those that the model uses, needs no file and no code that reads ONNX.

usage: check_compile.py SOURCE ATTNRUN LIBATTNRUN.a
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper

SOURCE, ATTNRUN, LIBRARY = sys.argv[1:]
SYSTEM = ["-lpthread", "-ldl", "-lm"]
sys.path.insert(0, str(Path(SOURCE) / "tests" / "tools"))
import cli_models  # noqa: E402


def network(path):
    """Products with packed weights, a fused norm, a branch: rows of several kinds."""
    numbers = numpy.random.default_rng(0)

    def graph(name, op):
        return helper.make_graph([helper.make_node(op, ["n"], [name])], name, [],
                                 [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]),
             helper.make_node("Add", ["m", "b"], ["a"]),
             helper.make_node("Relu", ["a"], ["r"]),
             helper.make_node("LayerNormalization", ["r", "scale"], ["n"]),
             helper.make_node("If", ["more"], ["y"], then_branch=graph("sin", "Sin"),
                              else_branch=graph("cos", "Cos"))]
    nodes.insert(4, helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0))
    nodes.insert(5, helper.make_node("Greater", ["sum", "zero"], ["more"]))
    return cli_models.save(
        path, nodes, [("x", TensorProto.FLOAT, ["N", 24])], [("y", TensorProto.FLOAT, ["N", 40])],
        [("w", numbers.normal(size=(24, 40)).astype("f")),
         ("b", numbers.normal(size=40).astype("f")),
         ("scale", numbers.normal(size=40).astype("f")), ("zero", numpy.float32(0))])


def check(folder, name, model, sizes, *isa):
    """With `isa` (--isa NAME) the program is for a set below the best one that the CPU has."""
    compiled, program, expected = folder / f"{name}.c", folder / name, folder / f"{name}.npy"
    subprocess.run([ATTNRUN, "compile", model, "-o", compiled, "-q", *isa], check=True)
    subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-DMODEL=model_{name}",
                    f"-I{SOURCE}/runtime", "-o", program, f"{SOURCE}/tools/examples/compiled.c",
                    compiled, LIBRARY, *SYSTEM], check=True)
    ones = [word for i in sizes for word in ("-i", f"{i}=ones")]
    twos = [word for d in sorted(sizes_of(model)) for word in ("-s", f"{d}=2")]
    subprocess.run([ATTNRUN, "run", model, *ones, *twos, *isa, "-q", "-o", expected], check=True)
    done = subprocess.run([program], capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr
    got = numpy.array([numpy.float32(v) for v in done.stdout.split()])
    assert numpy.array_equal(got, numpy.load(expected).ravel()), (name, got[:4])
    symbols = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    assert "protobuf_c" not in symbols and "attn_wire_scan" not in symbols, name
    # Rows end with their version; what else begins so are functions for operators.
    rows = set(re.findall(r" (attn_op_\w+_\d+)$", symbols, re.M))
    named = {line.split()[-1].rstrip(";") for line in compiled.read_text().splitlines()
             if line.startswith("extern const attnrun_op_def attn_op_")}
    assert named and named <= rows, (named, rows)
    # A file may hold several versions of an operator, or a family of formulas of one element.
    assert len(rows) < 110 and not rows & {"attn_op_conv_1", "attn_op_lstm_1", "attn_op_top_k_1"}, \
        (name, len(rows))
    print(f"{name}: {len(named)} operators of {len(rows)} rows, {program.stat().st_size} bytes")


def check_another_file(folder, model):
    """What is not packed is refused with a sentence."""
    main, compiled = folder / "open.c", folder / "net.c"
    main.write_text("""#include <attnrun.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    const attnrun_source source = { .struct_size = sizeof source, .path = argv[argc - 1] };
    attnrun_model *model;
    const attnrun_status status = attnrun_model_open(NULL, &source, &model);
    printf("%d %s", (int)status, attnrun_last_error()->message);
}
""")
    subprocess.run(["cc", "-std=c11", f"-I{SOURCE}/runtime", "-o", folder / "open", main, compiled,
                    LIBRARY, *SYSTEM], check=True)
    said = subprocess.run([folder / "open", model], capture_output=True, text=True).stdout
    assert re.match("400 UNSUPPORTED: file 'net.onnx': this is not a packed file, and", said), said


def check_several(folder):
    """Two models in one program; a second C file, or two models of one name, do not fit."""
    (folder / "other").mkdir()
    models = [cli_models.two_layers(folder / "two.onnx"), cli_models.gelu(folder / "gelu.onnx")]
    compiled, main = folder / "both.c", folder / "main.c"
    said = subprocess.run([ATTNRUN, "compile", *models, "-o", compiled], capture_output=True,
                          text=True, check=True).stdout
    assert "of 2 models" in said and said.endswith("as model_two, model_gelu\n"), said
    # compiled.c twice, its main() called by another one.
    main.write_text("int run_two(void);\nint run_gelu(void);\n"
                    "int main(void) { return run_two() | run_gelu(); }\n")
    example = [f"{SOURCE}/tools/examples/compiled.c", f"-I{SOURCE}/runtime", "-std=c11"]
    for name in ("two", "gelu"):
        subprocess.run(["cc", *example, f"-DMODEL=model_{name}", f"-Dmain=run_{name}", "-c", "-o",
                        folder / f"{name}.o"], check=True)
    subprocess.run(["cc", f"-I{SOURCE}/runtime", "-std=c11", "-Wall", "-Wextra", "-Wpedantic",
                    "-Werror", "-o", folder / "both", main, folder / "two.o", folder / "gelu.o",
                    compiled, LIBRARY, *SYSTEM], check=True)
    got = subprocess.run([folder / "both"], capture_output=True, text=True, check=True).stdout
    expected = []
    for name, model in zip(("two", "gelu"), models):
        sizes = [word for d in sorted(sizes_of(model)) for word in ("-s", f"{d}=2")]
        subprocess.run([ATTNRUN, "run", model, "-i", "x=ones", *sizes, "-q", "-o",
                        folder / f"{name}.npy"], check=True)
        expected += numpy.load(folder / f"{name}.npy").ravel().tolist()
    assert [numpy.float32(v) for v in got.split()] == expected, got
    failed = subprocess.run([ATTNRUN, "compile", models[0],
                             cli_models.relu(folder / "other" / "two.onnx"), "-o", compiled],
                            capture_output=True, text=True)
    assert failed.returncode == 2 and "would be model_two" in failed.stderr, failed


def check_name(folder, name, model):
    """A file may be called as a keyword, a type or a name that the C file has for itself. A long
    name is cut."""
    compiled = folder / f"{name}.c"
    said = subprocess.run([ATTNRUN, "compile", model, "-o", compiled], capture_output=True,
                          text=True, check=True).stdout
    assert said.endswith(f", as model_{name}"[:68] + "\n"), said
    subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{SOURCE}/runtime", "-c",
                    "-o", folder / "name.o", compiled], check=True)


def sizes_of(model):
    return {d.dim_param for v in onnx.load(model).graph.input
            for d in v.type.tensor_type.shape.dim} - {""}


with tempfile.TemporaryDirectory() as made:
    folder = Path(made)
    check(folder, "net", network(folder / "net.onnx"), ["x"])
    check(folder, "net", network(folder / "net.onnx"), ["x"], "--isa", "base")
    check(folder, "embedding", cli_models.embedding(folder / "embedding.onnx"),
          ["ids", "attention_mask"])
    for name in ("int", "words", "attn_ops", "uint64_t", 90 * "a"):
        check_name(folder, name, cli_models.relu(folder / "relu.onnx"))
    check_another_file(folder, folder / "net.onnx")
    check_several(folder)
    failed = subprocess.run([ATTNRUN, "compile", folder / "net.onnx"], capture_output=True,
                            text=True)
    assert failed.returncode == 2 and "-o FILE is missing" in failed.stderr, failed
