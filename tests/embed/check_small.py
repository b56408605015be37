"""A library with the operators of a list, one instruction set, and of packed files alone: its
sizes, the bits it gives, and what it says of files that it cannot open.

usage: check_small.py SOURCE ATTNRUN DATA COMPILER [--page]

Builds two libraries, in build/small_packed and build/small_listed of SOURCE, which takes minutes
where neither these nor ccache have their objects. MiniLM has random weights. The
bits are those of ATTNRUN with the same instruction set; the operators of the second list are those
of exported transformers in DATA. --page writes the sizes into tools/manual/README.md.
"""
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper

SOURCE, ATTNRUN, DATA, COMPILER = sys.argv[1:5]
sys.path[:0] = [str(Path(SOURCE) / "tests" / "tools"), str(Path(SOURCE) / "tools" / "bench")]
import cli_models  # noqa: E402
import written  # noqa: E402

MAX_PROGRAM, MAX_LIBRARY = 600_000, 1_200_000  # bytes, stripped
TRANSFORMERS = ["bart_d18", "bert_d18", "deberta_v2_d18", "distilbert_d20", "gpt2_past_d18",
                "llama_past_d18", "minilm_shape_d18", "mpnet_o17", "qwen3_past_D23", "t5_d20",
                "t5_encoder_o13", "whisper_decoder_d23", "whisper_encoder_d18"]


def call(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


def note(what, size, rows, limit):
    """A size on standard output and, with --page, in the manual."""
    print(f"{what}: {size} bytes, {rows} rows")
    if "--page" in sys.argv:
        version = call(COMPILER, "--version").splitlines()[0]
        written.write_rows(
            Path(SOURCE) / "tools" / "manual" / "README.md", "small",
            f"Written by `tests/embed/check_small.py --page` with {version} on\n"
            f"{time.strftime('%Y-%m-%d')}, for the instruction set base. Files are stripped.",
            ["what", "bytes", "operators", "goal"],
            [[what, f"{size:,}", str(rows), f"{limit:,}"]])
    assert size <= limit, size


def build(name, listed, target, *options):
    """A library of its own; objects come from ccache where they can."""
    folder = Path(SOURCE) / "build" / name
    launcher = shutil.which("ccache")
    call("cmake", "-S", SOURCE, "-B", folder, "-G", "Ninja", f"-DATTNRUN_OPS={listed}",
         "-DATTNRUN_ISAS=base", "-DATTNRUN_BLAS=OFF", "-DATTNRUN_BF16=OFF", "-DATTNRUN_TOOLS=OFF",
         "-DATTNRUN_WERROR=ON", f"-DCMAKE_C_COMPILER={COMPILER}", *options,
         *([f"-DCMAKE_C_COMPILER_LAUNCHER={launcher}"] if launcher else []))
    call("cmake", "--build", folder, "--target", target)
    return folder


def stripped(path):
    copy = f"{path}.stripped"
    call("strip", "-o", copy, path)
    return Path(copy).stat().st_size


def program(folder, library, name, model):
    """tools/examples/compiled.c over a file in the place of an array."""
    source, made = folder / f"{name}.c", folder / name
    source.write_text("#include <attnrun.h>\nextern const attnrun_source opened;\n"
                      "const attnrun_source opened = { .struct_size = sizeof(attnrun_source),\n"
                      f"    .path = \"{model}\" }};\n")
    call("cc", "-std=c11", "-O2", "-DMODEL=opened", f"-I{SOURCE}/runtime", "-o", made,
         f"{SOURCE}/tools/examples/compiled.c", source, *library, "-Wl,--gc-sections", "-lpthread",
         "-ldl", "-lm")
    return made


def refused(made, *words):
    done = subprocess.run([made], capture_output=True, text=True)
    assert done.returncode == 4 and all(w in done.stderr for w in words), (words, done)


def minilm(folder):
    path = folder / "minilm.onnx"
    call(sys.executable, f"{SOURCE}/tools/minilm/fill.py", path, "--random")
    return path


def save_det(folder):
    """A model whose operator is in no list."""
    return cli_models.save(folder / "det.onnx", [helper.make_node("Det", ["x"], ["y"])],
                           [("x", TensorProto.FLOAT, ["N", 3, 3])],
                           [("y", TensorProto.FLOAT, ["N"])])


def check_packed(folder):
    model, packed, listed = minilm(folder), folder / "minilm.attnpack", folder / "packed.list"
    call(ATTNRUN, "pack", "--isa", "base", model, "-o", packed, "-q")
    listed.write_text(call(ATTNRUN, "ops", "--used", packed))
    made = build("small_packed", listed, "attnrun_static", "-DATTNRUN_ONNX=OFF")
    library = [made / "libattnrun.a"]
    made = program(folder, library, "net", packed)
    size = stripped(made)
    needed = [line.split("[")[1].rstrip("]") for line in call("readelf", "-d", made).splitlines()
              if "(NEEDED)" in line]
    assert all(n.startswith(("libc.", "libm.", "ld-")) for n in needed), needed
    graph = onnx.load(model, load_external_data=False).graph
    names = [i.name for i in graph.input]
    symbols = {d.dim_param for i in graph.input for d in i.type.tensor_type.shape.dim} - {""}
    call(ATTNRUN, "run", "--isa", "base", packed, "-q", "-o", folder / "y.npz",
         *[w for n in names for w in ("-i", f"{n}=ones")],
         *[w for s in symbols for w in ("-s", f"{s}=2")])
    got = numpy.array([numpy.float32(v) for v in call(made).split()])
    expected = numpy.load(folder / "y.npz")[graph.output[0].name]
    assert numpy.array_equal(got, expected.ravel()), (got[:4], expected.ravel()[:4])
    refused(program(folder, library, "onnx", model), "minilm.onnx", "not a packed file",
            "ATTNRUN_ONNX=OFF")
    other = save_det(folder)
    call(ATTNRUN, "pack", "--isa", "base", other, "-o", folder / "det.attnpack", "-q")
    refused(program(folder, library, "other", folder / "det.attnpack"), "Det", "ATTNRUN_OPS")
    note("program of packed MiniLM", size, listed.read_text().count("OP("), MAX_PROGRAM)


def check_refusals(folder, library):
    """Another operator, and another version of one that is in the list."""
    det = save_det(folder)
    refused(program(folder, library, "det", det), "Det-18", "ATTNRUN_OPS")
    # Softmax of the list is of opset 13: that of 9 is another operator.
    old = cli_models.save(folder / "old.onnx", [helper.make_node("Softmax", ["x"], ["y"])],
                          [("x", TensorProto.FLOAT, ["N", 3])],
                          [("y", TensorProto.FLOAT, ["N", 3])], opset=9)
    refused(program(folder, library, "old", old), "Softmax-9", "ATTNRUN_OPS")


def check_bits(folder, library, files):
    """One of the models, rewritten by the passes of the list."""
    model = next(f for f in files if f.exists() and f.parent.name.startswith("bert"))
    graph = onnx.load(model, load_external_data=False).graph
    symbols = {d.dim_param for i in graph.input for d in i.type.tensor_type.shape.dim} - {""}
    call(ATTNRUN, "run", "--isa", "base", model, "-q", "-o", folder / "y.npz",
         *[w for i in graph.input for w in ("-i", f"{i.name}=ones")],
         *[w for s in symbols for w in ("-s", f"{s}=2")])
    made = program(folder, library, "bert", model)
    got = numpy.array([numpy.float32(v) for v in call(made).split()])
    expected = numpy.load(folder / "y.npz")[graph.output[0].name]
    assert numpy.array_equal(got, expected.ravel()), (got[:4], expected.ravel()[:4])


def check_left_out(folder, listed, model):
    """A pass that finds something whose row is not in the list leaves it as it is."""
    rows = listed.read_text().splitlines()
    kept = [r for r in rows if not r.startswith(("OP(op_gelu_", 'END("", "Gelu"'))]
    assert len(kept) < len(rows) and "PASS(gelu)" in kept, rows
    listed.write_text("\n".join(kept) + "\n")
    library = [build("small_listed", listed, "attnrun_static") / "libattnrun.a", "-lprotobuf-c"]
    got = call(program(folder, library, "gelu", model)).split()
    call(ATTNRUN, "run", "--isa", "base", "--disable-pass", "gelu", model, "-i", "x=ones", "-s",
         "N=2", "-q", "-o", folder / "gelu.npy")
    expected = numpy.load(folder / "gelu.npy").ravel()
    assert numpy.array_equal(numpy.array(got, dtype="f"), expected), (got, expected)


def check_listed(folder):
    listed = folder / "all.list"
    files = [Path(DATA) / "families" / name / "model.onnx" for name in TRANSFORMERS]
    listed.write_text(call(ATTNRUN, "ops", "--used", *[f for f in files if f.exists()]))
    assert sum(f.exists() for f in files) > 6, files
    made = build("small_listed", listed, "all")
    size = stripped(shutil.copy(made / "libattnrun.so", folder / "libattnrun.so"))
    rows = listed.read_text().count("OP(")
    library = [made / "libattnrun.a", "-lprotobuf-c"]
    check_refusals(folder, library)
    check_bits(folder, library, files)
    check_left_out(folder, listed, cli_models.gelu(folder / "gelu.onnx"))
    note("library of transformers", size, rows, MAX_LIBRARY)


with tempfile.TemporaryDirectory() as made:
    check_packed(Path(made))
    check_listed(Path(made))
