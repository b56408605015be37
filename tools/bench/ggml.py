"""ggml.py - one token's products of a Llama with half a billion weights, beside llama.cpp's ggml.

usage: ggml.py --attnrun BINARY --work FOLDER [--threads 1] [--rounds 8]

The same bits a weight with scales counted: 4.5 and 8.5 (attnrun: blocks of 64 with an f32 scale,
Q4_0 and Q8_0: of 32 with an f16 one). ggml rounds the other operand to 8 bits, as `--precision
auto` does; attnrun is timed at f32 accuracy, too. ggml comes from the source package of
llama-cpp-python on PyPI and is built in FOLDER. Turns, minima; ratios are ggml over attnrun.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import tarfile

import decoder

PACKAGE, BLOCK, RUNS = "llama-cpp-python==0.3.36", 64, 10
HERE = os.path.dirname(os.path.abspath(__file__))


def call(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def built_ggml(work):
    """The program, built where it is missing."""
    folder, program = f"{work}/ggml", f"{work}/ggml/products"
    if os.path.exists(program):
        return program
    os.makedirs(folder, exist_ok=True)
    if not glob.glob(f"{folder}/*.tar.gz"):
        call(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary",
             PACKAGE.split("=")[0], "-d", folder, PACKAGE)
    with tarfile.open(glob.glob(f"{folder}/*.tar.gz")[0]) as package:
        package.extractall(folder, filter="data")
    source = glob.glob(f"{folder}/*/vendor/llama.cpp/ggml")[0]
    with open(f"{source}/ggml.pc.in", "a", encoding="ascii"):
        pass  # the package leaves it out, its CMakeLists.txt reads it
    call("cmake", "-S", source, "-B", f"{folder}/build", "-G", "Ninja",
         "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DGGML_OPENMP=OFF",
         "-DBUILD_SHARED_LIBS=OFF", "-DGGML_BUILD_TESTS=OFF", "-DGGML_BUILD_EXAMPLES=OFF")
    call("ninja", "-C", f"{folder}/build", "ggml")
    libraries = [f"{folder}/build/src/lib{name}.a" for name in ("ggml", "ggml-cpu", "ggml-base")]
    call("gcc", "-O2", f"{HERE}/ggml_products.c", "-I", f"{source}/include", *libraries,
         "-lstdc++", "-lpthread", "-lm", "-ldl", "-o", program)
    return program


def products_model(path, bits):
    """The same matrices, each an output of its own."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper

    w, outputs = decoder.Writer(bits, BLOCK), []
    shapes = [(f"{name}{i}", shape) for i in range(decoder.LAYERS)
              for name, shape in decoder.MATRICES.items()]
    for name, (k, n) in [*shapes, ("head", (decoder.HIDDEN, decoder.WORDS))]:
        outputs.append((w.product("x" if k == decoder.HIDDEN else "z", name, k, n), n))

    def value(name, n):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, n])

    graph = helper.make_graph(w.nodes, "products", [
        value("x", decoder.HIDDEN), value("z", decoder.INNER)],
        [value(name, n) for name, n in outputs], w.constants)
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]), path)
    rng = np.random.default_rng(0)
    np.savez(path[:-5] + ".npz", x=rng.standard_normal((1, decoder.HIDDEN), np.float32),
             z=rng.standard_normal((1, decoder.INNER), np.float32))


class Ggml:
    def __init__(self, program, bits, threads):
        self.process = subprocess.Popen([program, str(bits), str(threads)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.bytes = int(self.process.stdout.readline())

    def round(self):
        self.process.stdin.write(f"{RUNS}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def attnrun_ms(args, model, precision):
    return json.loads(call(args.attnrun, "bench", model, "-i", model[:-5] + ".npz", "--threads",
                           str(args.threads), "--repeat", str(RUNS), "--precision", precision,
                           "--json"))["min_ms"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--attnrun", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=8)
    args = parser.parse_args()
    program = built_ggml(args.work)
    for bits in (4, 8):
        model = f"{args.work}/models/products_{bits}.onnx"
        os.makedirs(os.path.dirname(model), exist_ok=True)
        if not os.path.exists(model):
            products_model(model, bits)
        ggml, best = Ggml(program, bits, args.threads), {}
        for _ in range(args.rounds):
            turn = {"ggml": ggml.round(), "f32": attnrun_ms(args, model, "f32"),
                    "auto": attnrun_ms(args, model, "auto")}
            best = {name: min(ms, best.get(name, ms)) for name, ms in turn.items()}
        ggml.process.stdin.close()
        own = decoder.weight_bytes(bits, BLOCK)
        print(f"{bits} bits, {args.threads} threads: ggml {best['ggml']:.2f} ms "
              f"({ggml.bytes / best['ggml'] / 1e6:.1f} GB/s)")
        for name in ("f32", "auto"):
            print(f"  attnrun {name} {best[name]:.2f} ms ({own / best[name] / 1e6:.1f} GB/s), "
                  f"ratio {best['ggml'] / best[name]:.2f} (at least 1.0, aim 1.15)", flush=True)


if __name__ == "__main__":
    main()
