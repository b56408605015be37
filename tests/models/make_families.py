#!/usr/bin/env python3
"""Export the model families of families.py and write them as test folders.

usage: make_families.py OUT [--full] [--only NAME[,NAME]] [--jobs N]

    OUT/<family>_<exporter><opset>/model.onnx
    OUT/<family>_<exporter><opset>/test_data_set_<k>/{input_<i>.pb, output_<i>.pb}
    OUT/<family>_<exporter><opset>/tol.txt      1e-3 1e-4
    OUT/table.md                                what was exported, and what was not and why

Exporter d is torch.onnx.export(dynamo=True), o the older one (dynamo=False). Outputs are
those of eager PyTorch; ONNX Runtime is asked too, so that a wrong export is seen here.
D is d where ONNX Runtime refuses the file that everybody gets (at opset 23 the exporter
writes RotaryEmbedding with cos and sin of batch 1); d then exports without optimisation.
The short mode takes one or two forms of each family, --full every exporter and opset.
Finished folders are kept as long as this code and the versions stay the same.
"""
import argparse
import concurrent.futures
import contextlib
import hashlib
import inspect
import io
import logging
import multiprocessing
import os
import shutil
import sys
import time
import traceback
import warnings

FULL = ["d18", "d20", "d23", "o11", "o13", "o17"]
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)


def versions():
    import onnx
    import torch
    import transformers
    return f"{torch.__version__} {onnx.__version__} {transformers.__version__}"


def key_of(name, form):
    """Changes when the family's code, the shared code or a version changes."""
    import families
    with open(os.path.join(HERE, "families.py"), encoding="utf-8") as file:
        shared = file.read()
    own = inspect.getsource(families.FAMILIES[name][0])
    shared = shared.split("# name -> (function")[0]
    for other, _ in families.FAMILIES.values():
        shared = shared.replace(inspect.getsource(other), "")
    with open(os.path.abspath(__file__), "rb") as file:
        script = file.read().decode()
    exporter = script.split("\n# ---- one export")[1].split("\n# ---- all")[0]
    text = "\n".join([own, shared, exporter, versions(), form])
    return hashlib.sha256(text.encode()).hexdigest()


# ---- one export -------------------------------------------------------------------

def export_dynamo(family, path, opset, optimize=True):
    import torch
    shapes = tuple(family.axes.get(name) for name in family.inputs)
    program = torch.onnx.export(
        family.module, family.sets[0], dynamo=True, opset_version=opset,
        dynamic_shapes=shapes if any(shapes) else None, input_names=family.inputs,
        output_names=family.outputs, optimize=optimize, verbose=False)
    if not optimize:
        from onnxscript import optimizer
        optimizer.optimize_ir(program.model, inline=False)
    program.save(path)


def export_older(family, path, opset):
    import torch
    torch.onnx.export(
        family.module, family.sets[0], path, dynamo=False, opset_version=opset,
        dynamic_axes=family.axes or None, input_names=family.inputs,
        output_names=family.outputs)


def write_proto(path, tensor, name):
    from onnx import numpy_helper
    with open(path, "wb") as file:
        file.write(numpy_helper.from_array(tensor.numpy(), name).SerializeToString())


def write_data(family, folder):
    """Returns the expected outputs of each set."""
    import torch
    expected = []
    for k, inputs in enumerate(family.sets):
        data = os.path.join(folder, f"test_data_set_{k}")
        os.makedirs(data)
        with torch.no_grad():
            outputs = family.module(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        for i, value in enumerate(inputs):
            write_proto(f"{data}/input_{i}.pb", value, family.inputs[i])
        for i, value in enumerate(outputs):
            write_proto(f"{data}/output_{i}.pb", value, family.outputs[i])
        expected.append(outputs)
    with open(os.path.join(folder, "tol.txt"), "w", encoding="utf-8") as file:
        file.write("1e-3 1e-4\n")
    return expected


def run_onnxruntime(path, family, expected):
    """The largest error as a part of the tolerance 1e-4 + 1e-3 * |expected|."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options,
                                           providers=["CPUExecutionProvider"])
    kept = {value.name for value in session.get_inputs()}
    worst = 0.0
    for inputs, wanted in zip(family.sets, expected):
        feed = {n: v.numpy() for n, v in zip(family.inputs, inputs) if n in kept}
        for got, want in zip(session.run(None, feed), wanted):
            want = want.numpy()
            if got.shape != want.shape:
                raise ValueError(f"onnxruntime gives {got.shape}, PyTorch {want.shape}")
            part = abs(got - want) / (1e-4 + 1e-3 * abs(want))
            worst = max(worst, float(part.max()) if part.size else 0.0)
    return worst


def drop_unused_inputs(path, family):
    """An exporter may drop an input that the result does not need."""
    import onnx
    kept = [v.name for v in onnx.load(path, load_external_data=False).graph.input]
    keep = [i for i, name in enumerate(family.inputs) if name in kept]
    family.unused = [n for n in family.inputs if n not in kept]
    return keep


def reason_of(error):
    """The innermost cause, one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:160]}".replace("|", "/")


def use_eager_attention(module):
    """scaled_dot_product_attention written out by transformers' own code."""
    found = False
    for part in module.modules():
        if hasattr(part, "set_attn_implementation"):
            part.set_attn_implementation("eager")
            found = True
    return found


def attempts(family, path, form):
    """The ways to export, in the order of preference: (remark, function)."""
    opset = int(form[1:])
    if form[0] == "o":
        if opset < 14 and use_eager_attention(family.module):
            yield "attn eager", lambda: export_older(family, path, opset)
        else:
            yield "", lambda: export_older(family, path, opset)
        return
    yield "", lambda: export_dynamo(family, path, opset)
    if form[0] == "D":
        return
    yield "optimize=False", lambda: export_dynamo(family, path, opset, optimize=False)
    if use_eager_attention(family.module):
        yield "attn eager", lambda: export_dynamo(family, path, opset)


def export(family, path, form, expected):
    """Exports in the first way whose file ONNX Runtime runs; returns (error, remark)."""
    failed = []
    for remark, attempt in attempts(family, path, form):
        try:
            attempt()
            if form[0] == "D":
                return 0.0, "not checked with ONNX Runtime, which refuses it."
            worst = run_onnxruntime(path, family, expected)
        except Exception as error:
            failed.append((remark, error))
            continue
        if failed:
            remark += f" (else: {reason_of(failed[0][1])[:120]})"
        return worst, remark
    raise failed[0][1]


def renumber_inputs(folder, keep, count):
    """Input files are numbered by the inputs that the graph still has."""
    if len(keep) == count:
        return
    for data in os.listdir(folder):
        if not data.startswith("test_data_set_"):
            continue
        for i in range(count):
            old = os.path.join(folder, data, f"input_{i}.pb")
            if i not in keep:
                os.remove(old)
            else:
                os.rename(old, os.path.join(folder, data, f"input_{keep.index(i)}.pb"))


def make(name, form, folder):
    """Returns one row of the table: (nodes, remark)."""
    import onnx
    import torch
    import families
    torch.manual_seed(0)
    torch.set_num_threads(1)
    family = families.FAMILIES[name][0]()
    path = os.path.join(folder, "model.onnx")
    expected = write_data(family, folder)
    worst, remark = export(family, path, form, expected)
    keep = drop_unused_inputs(path, family)
    renumber_inputs(folder, keep, len(family.inputs))
    if family.unused:
        remark += " unused inputs dropped: " + ", ".join(family.unused)
    nodes = len(onnx.load(path, load_external_data=False).graph.node)
    if worst > 1:
        raise ValueError(f"onnxruntime differs from PyTorch: {worst:.1f} x tolerance")
    return nodes, f"ORT at {worst:.3f} of the tolerance. {remark}"


# ---- all --------------------------------------------------------------------------

def work(job):
    """One job in a process of its own pool; returns (case, ok, text, seconds)."""
    name, form, out = job
    case = f"{name}_{form}"
    folder = os.path.join(out, case)
    done = os.path.join(out, ".done", case)
    key = key_of(name, form)
    if os.path.exists(done):
        with open(done, encoding="utf-8") as file:
            old_key, ok, text = file.read().split("\n", 2)
        if old_key == key:
            return case, ok == "ok", text, 0.0
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    started = time.monotonic()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    noise = io.StringIO()
    try:
        with contextlib.redirect_stdout(noise), contextlib.redirect_stderr(noise):
            nodes, remark = make(name, form, folder)
        ok, text = "ok", f"{nodes} nodes | {remark}"
    except Exception as error:  # an exporter may fail in any way; the table tells
        ok, text = "no", f"- | {reason_of(error)}"
        if os.environ.get("TRACE"):
            traceback.print_exc()
        shutil.rmtree(folder)
    with open(done, "w", encoding="utf-8") as file:
        file.write(f"{key}\n{ok}\n{text}")
    return case, ok == "ok", text, time.monotonic() - started


def jobs_of(options):
    import families
    names = options.only.split(",") if options.only else list(families.FAMILIES)
    for name in names:
        forms = FULL if options.full else families.FAMILIES[name][1].split()
        if options.full and name.endswith("_shape"):
            forms = families.FAMILIES[name][1].split()
        for form in forms:
            yield name, form, options.out


def remove_others(out, jobs):
    """Folders of forms that are no longer made."""
    wanted = {f"{name}_{form}" for name, form, _ in jobs}
    for case in os.listdir(os.path.join(out, ".done")):
        if case not in wanted:
            shutil.rmtree(os.path.join(out, case), ignore_errors=True)
            os.remove(os.path.join(out, ".done", case))


def write_table(out):
    rows = []
    for case in sorted(os.listdir(os.path.join(out, ".done"))):
        with open(os.path.join(out, ".done", case), encoding="utf-8") as file:
            _, ok, text = file.read().split("\n", 2)
        rows.append(f"| {case} | {'yes' if ok == 'ok' else 'NO'} | {text} |\n")
    with open(os.path.join(out, "table.md"), "w", encoding="utf-8") as file:
        file.write("| case | exported | nodes | remark |\n|--|--|--|--|\n")
        file.writelines(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("out")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    os.makedirs(os.path.join(options.out, ".done"), exist_ok=True)
    failed = 0
    # An export that fails may leave traces in its process: none is used again then.
    context = multiprocessing.get_context("spawn")
    tasks = 1 if options.full else None
    with concurrent.futures.ProcessPoolExecutor(
            options.jobs, mp_context=context, max_tasks_per_child=tasks) as pool:
        for case, ok, text, seconds in pool.map(work, jobs_of(options)):
            failed += not ok
            if seconds or not ok:
                print(f"{case}: {'ok' if ok else 'NOT EXPORTED'} {seconds:.0f} s {text}",
                      flush=True)
    if not options.only:
        remove_others(options.out, list(jobs_of(options)))
    write_table(options.out)
    if failed:
        print(f"{failed} not exported: {options.out}/table.md")
    return 1 if failed and not options.full else 0


if __name__ == "__main__":
    sys.exit(main())
