#!/usr/bin/env python3
"""models/*.yaml against what models/build.py made of them.

usage: test_systems.py ROOT ATTNRUN FOLDER

Every system of SYSTEMS is there and none is unlisted; each description is complete; each
file has the inputs, outputs, operators and parameters that are described, all operators are
native, and the memory plan needs what is said.
"""
import json
import subprocess
import sys
from pathlib import Path

SYSTEMS = [
    "Transformer encoder-decoder with sinusoidal positions", "BERT",
    "MiniLM with its real weights", "linear-attention Transformer, bidirectional",
    "linear-attention Transformer, causal generation with state", "Linformer", "Reformer",
    "Longformer", "LED", "BigBird",
    "Synthesizer, dense, random, factorized dense, factorized random",
    "Sparse Transformer, strided", "Sparse Transformer, fixed",
    "explicit-sparse Transformer", "SHA-RNN", "LAMA classifier", "Performer, bidirectional",
    "Performer, causal", "Routing Transformer", "Sinkhorn Transformer",
    "memory-compressed Transformer", "Fastformer", "Bahdanau seq2seq, encoder",
    "Bahdanau seq2seq, RNN decoder step", "Luong seq2seq, global dot",
    "Luong seq2seq, global general", "Luong seq2seq, global concat", "Luong seq2seq, local-p",
    "hierarchical attention network", "AFM recommender", "FNet", "gMLP", "MLP-Mixer",
    "ResNet with CBAM", "SE-ResNet", "SKNet", "SAGAN generator block",
    "External-attention classifier", "RedNet", "HaloNet",
    "Llama-style decoder with GQA and KV cache", "gated-delta decoder layer",
]
KEYS = ("system", "paper", "upstream", "expected", "factory", "inputs", "outputs",
        "operators", "tolerance", "cost")
DTYPES = {"f32": "float32", "i64": "int64", "b8": "bool", "i32": "int32"}


def told(attnrun, command, model, *options):
    done = subprocess.run([attnrun, command, "--json", *options, str(model)],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"attnrun {command}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def check_values(where, described, found):
    """Names, types and sizes; a size that inference can't name is -1 or an expression."""
    names = [value["name"] for value in found]
    if names != list(described):
        yield f"{where} are {names}, described are {list(described)}"
        return
    for value, (name, (dtype, dims)) in zip(found, described.items()):
        shape = value["shape"]
        fits = DTYPES.get(value["dtype"]) == dtype and len(shape) == len(dims) and all(
            isinstance(have, str) or have in (want, -1) for have, want in zip(shape, dims))
        if where == "inputs":
            fits = fits and list(shape) == list(dims)
        if not fits:
            yield (f"{where}: {name} is {value['dtype']} {shape}, described is "
                   f"{dtype} {list(dims)}")


def check_operators(description, inspected, of_file):
    ops = [op for op in of_file["ops"] if op["domain"] == "attnrun"]
    found, wanted = {op["op_type"] for op in ops}, set(description["operators"])
    if found != wanted:
        yield f"operators are {sorted(found)}, described are {sorted(wanted)}"
    for op in [*of_file["ops"], *inspected["ops"]]:
        if op["coverage"] != "native":
            yield f"{op['domain']}::{op['op_type']} is {op['coverage']}"


def check_cost(attnrun, model, description, inspected):
    cost = description["cost"]
    if inspected["parameters"] != cost["parameters"]:
        yield f"{inspected['parameters']} parameters, described are {cost['parameters']}"
    sizes = [f"--set={name}={size}" for name, size in cost.get("at", {}).items()]
    plan = told(attnrun, "plan", model, "--threads", "1", "--isa", "base", *sizes)
    arena, said = plan["arena_bytes"], cost["arena_bytes"]
    if not 0.8 * said <= arena <= 1.1 * said:
        yield f"the arena takes {arena} bytes, described are {said}"


def check_sets(folder, description):
    sets = sorted(folder.glob("test_data_set_*"))
    sizes = {tuple(path.stat().st_size for path in sorted(data.glob("input_*.pb")))
             for data in sets}
    if len(sizes) < 2:
        yield "two sets of inputs of different sizes are needed"
    if not any(isinstance(dim, str) for _, dims in description["inputs"].values()
               for dim in dims):
        yield "no size of the inputs may differ"


def check_model(attnrun, path, folder, read):
    text = path.read_text(encoding="utf-8")
    missing = [key for key in KEYS if f"\n{key}:" not in text]
    if missing:
        return [f"{', '.join(missing)} missing"]
    description, model = read(path), folder / "model.onnx"
    inspected = told(attnrun, "inspect", model, "--coverage")
    of_file = told(attnrun, "inspect", model, "--coverage", "--no-fusion")  # not rewritten
    return [*check_values("inputs", description["inputs"], inspected["inputs"]),
            *check_values("outputs", description["outputs"], inspected["outputs"]),
            *check_operators(description, inspected, of_file),
            *check_cost(attnrun, model, description, inspected),
            *check_sets(folder, description)]


def main():
    root, attnrun, out = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    sys.path.insert(0, str(root / "models"))
    from build import described, read
    models = described()
    found = sorted(read(path)["system"] for path in models.values())
    wrong = [f"models/ has no {name}" for name in SYSTEMS if name not in found]
    wrong += [f"{name} is not in SYSTEMS, or twice" for name in found
              if name not in SYSTEMS or found.count(name) > 1]
    factories = {read(path)["factory"] for path in models.values()}
    wrong += [f"models/factories/{path.name} is described nowhere"
              for path in sorted((root / "models" / "factories").glob("[!_]*.py"))
              if path.stem not in factories]
    for name, path in models.items():
        try:
            wrong += [f"{name}: {reason}"
                      for reason in check_model(attnrun, path, out / name, read)]
        except (OSError, ValueError, KeyError) as error:
            wrong.append(f"{name}: {error}")
    for reason in wrong:
        print("FAIL", reason)
    print(f"{len(models)} models, {len(wrong)} complaints")
    return 1 if wrong or not models else 0


if __name__ == "__main__":
    sys.exit(main())
