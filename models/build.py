#!/usr/bin/env python3
"""Make the models that models/*.yaml describe, as ONNX files in test folders.

usage: build.py OUT [--only GLOB] [--jobs N] [--force]

    OUT/<model>/model.onnx             with a function body for each operator of attnrun
    OUT/<model>/test_data_set_<k>      {input_<i>.pb, output_<i>.pb}; see `expected:`
    OUT/<model>/tol.txt                relative and absolute tolerance

models/build.sh installs what this needs. A folder is kept as long as its description, its
factory, the converter, this file and the versions of the packages stay the same.
"""
import argparse
import contextlib
import fnmatch
import hashlib
import importlib
import importlib.metadata
import io
import logging
import multiprocessing
import os
import re
import shutil
import sys
import time
import traceback
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
CONVERTER = HERE.parent / "tools" / "convert"
sys.path[:0] = [str(HERE), str(CONVERTER)]
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
STAMP = "stamp.txt"  # written last
MADE_OF = ("factory", "arguments", "opset", "inputs", "outputs", "operators", "tolerance")
OPSET = 18  # where a description names no other: the oldest that the exporter writes


# ---- descriptions -------------------------------------------------------------------

def read(path):
    """A description; `inputs` and `outputs` become {name: (dtype, dims)}."""
    import yaml
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    for key in ("inputs", "outputs"):
        found[key] = {name: value_of(text) for name, text in found[key].items()}
    return found


def value_of(text):
    """'int64 (batch, 3), more words' as ('int64', ('batch', 3)): a word is a dynamic dim."""
    dtype, dims = re.match(r"(\w+) \(([^)]*)\)", text).groups()
    words = [word.strip() for word in dims.split(",") if word.strip()]
    return dtype, tuple(int(word) if word.isdigit() else word for word in words)


def described():
    """{model: path of its description}"""
    return {path.stem: path for path in sorted(HERE.glob("*.yaml"))
            if "factory:" in path.read_text(encoding="utf-8")}


def file_of(operator):
    """TopKAttention's reference is top_k_attention.py, AFMPooling's afm_pooling.py."""
    words = re.sub(r"([a-z])([A-Z])", r"\1_\2", operator)
    return re.sub(r"([A-Z])([A-Z][a-z])", r"\1_\2", words).lower() + ".py"


def key_of(path):
    """Changes with whatever the folder is made of."""
    description, converter = read(path), CONVERTER / "attnrun_convert"
    factory = HERE / "factories" / f"{description['factory']}.py"
    words = {"_parts", *re.findall(r"\w+", factory.read_text(encoding="utf-8"))}
    imported = [file for file in sorted(HERE.glob("factories/*.py")) if file.stem in words]
    files = [Path(__file__), HERE / "requirements.txt", factory, *imported,
             *sorted(converter.glob("*.py")), *sorted(converter.glob("refs/_*.py")),
             *(converter / "refs" / file_of(name) for name in description["operators"])]
    made_of = {key: description.get(key) for key in MADE_OF}
    digest = hashlib.sha256(repr(made_of).encode())
    for file in files:
        digest.update(file.read_bytes())
    for package in ("torch", "onnx", "onnxscript", "transformers"):
        digest.update(importlib.metadata.version(package).encode())
    return digest.hexdigest()


# ---- one model ----------------------------------------------------------------------

def as_tuple(values):
    return values if isinstance(values, tuple) else (values,)


def check_sizes(described_values, tensors, where, sizes):
    """Fails where a tensor is not what the description says; `sizes` {word: size} is
    filled and must agree within one set."""
    if len(tensors) != len(described_values):
        raise ValueError(f"{where}: {len(tensors)} tensors, described are "
                         f"{len(described_values)}")
    for (name, (dtype, dims)), tensor in zip(described_values.items(), tensors):
        found = str(tensor.dtype).removeprefix("torch.")
        fits = found == dtype and len(dims) == tensor.dim() and all(
            size == (dim if isinstance(dim, int) else sizes.setdefault(dim, size))
            for dim, size in zip(dims, tensor.shape))
        if not fits:
            raise ValueError(f"{where}: {name} is {found} {tuple(tensor.shape)}, described "
                             f"is {dtype} {dims} with {sizes}")


def check_close(description, got, wanted, where):
    """The factory's module against the reference, before anything is exported."""
    import torch
    tolerance = description["tolerance"]
    for name, y, g in zip(description["outputs"], got, wanted):
        if not torch.isfinite(g).all():
            raise ValueError(f"{where}: {name} is not finite")
        if g.is_floating_point() and g.numel() and g.std() == 0 and g.numel() > 1:
            raise ValueError(f"{where}: {name} is the same everywhere")
        bound = tolerance["absolute"] + tolerance["relative"] * g.abs()
        if y.shape != g.shape or not ((y - g).abs() <= bound).all():
            raise ValueError(f"{where}: {name} of the factory's module differs from the "
                             f"reference by {(y - g).abs().max()}")


def write_tensor(path, tensor, name):
    from onnx import numpy_helper
    proto = numpy_helper.from_array(tensor.contiguous().numpy(), name)
    path.write_bytes(proto.SerializeToString())


def write_sets(description, module, reference, sets, folder):
    import torch
    for k, inputs in enumerate(sets):
        where, sizes = f"test_data_set_{k}", {}
        check_sizes(description["inputs"], inputs, where, sizes)
        with torch.no_grad():
            wanted = as_tuple(reference(*[x.clone() for x in inputs]))
            got = as_tuple(module(*[x.clone() for x in inputs]))
        check_sizes(description["outputs"], wanted, where, sizes)
        check_close(description, got, wanted, where)
        data = folder / where
        data.mkdir()
        for key, word, values in (("inputs", "input", inputs), ("outputs", "output", wanted)):
            for i, (name, value) in enumerate(zip(description[key], values)):
                write_tensor(data / f"{word}_{i}.pb", value, name)


def dynamic_axes(description):
    return {name: {axis: dim for axis, dim in enumerate(dims) if isinstance(dim, str)}
            for name, (_, dims) in description["inputs"].items()}


def make(description, folder):
    """Builds one model; returns a remark. A factory may have, beside build():
    write(path), which writes the file itself; finish(path), which changes it."""
    import torch
    from attnrun_convert import convert
    torch.manual_seed(0)
    factory = importlib.import_module(f"factories.{description['factory']}")
    module, reference, sets = factory.build(**description.get("arguments", {}))
    if len(sets) < 2:
        raise ValueError("two sets of inputs are needed")
    write_sets(description, module, reference, sets, folder)
    path = folder / "model.onnx"
    if hasattr(factory, "write"):
        factory.write(path)
    else:
        convert(module.eval(), sets[0], dynamic=dynamic_axes(description), output=path,
                opset=description.get("opset", OPSET),
                output_names=list(description["outputs"]), check=(), quiet=True)
    if hasattr(factory, "finish"):
        factory.finish(path)
    tolerance = description["tolerance"]
    (folder / "tol.txt").write_text(f"{tolerance['relative']:g} {tolerance['absolute']:g}\n")
    return f"{path.stat().st_size / 1e3:.0f} kB"


def kept(path, folder):
    """Whether the folder is of this description, factory and so on."""
    stamp = folder / STAMP
    return stamp.exists() and stamp.read_text() == key_of(path)


def work(job):
    """(model, ok, remark, seconds of CPU time) of one job."""
    path, folder = job
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    started = time.process_time()
    try:
        key = key_of(path)
        logging.disable(logging.ERROR)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            remark = make(read(path), folder)
        (folder / STAMP).write_text(key)
        return path.stem, True, remark, time.process_time() - started
    except Exception as error:  # an export may fail in any way
        if os.environ.get("TRACE"):
            traceback.print_exc()
        text = " ".join(str(error).split())
        return path.stem, False, f"{type(error).__name__}: {text[:300]}", 0.0


# ---- all ----------------------------------------------------------------------------

def run(jobs, workers):
    """Results as they come. Workers are forks of a process that has imported torch."""
    import torch
    import transformers  # noqa: F401
    torch.set_num_threads(1)
    if workers == 1:
        yield from map(work, jobs)
        return
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        yield from pool.imap_unordered(work, jobs)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="*")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--force", action="store_true")
    options = parser.parse_args()
    os.environ["XDG_CACHE_HOME"] = str(options.out.resolve().parent / "cache")  # of bodies
    models = {name: path for name, path in described().items()
              if fnmatch.fnmatch(name, options.only)}
    jobs = [(path, options.out / name) for name, path in models.items()
            if options.force or not kept(path, options.out / name)]
    failed = 0
    for name, ok, remark, seconds in run(jobs, options.jobs) if jobs else ():
        failed += not ok
        print(f"{name}: {'ok' if ok else 'FAILED'} {seconds:.0f} s of CPU time, {remark}",
              flush=True)
    for folder in options.out.glob("*/"):  # of models that are no more
        if folder.name not in described():
            shutil.rmtree(folder)
    if failed:
        print(f"{failed} of {len(jobs)} failed")
    return 1 if failed or not models else 0


if __name__ == "__main__":
    sys.exit(main())
