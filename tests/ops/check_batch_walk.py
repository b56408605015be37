"""A sample's bits do not depend on the samples beside it: every operator of the registry, with the
inputs of its cases.
Usage: PYTHONPATH=BUILD/python check_batch_walk.py ATTNRUN FOLDER...

FOLDER: folders of the ONNX backend form with models of one node, or of such folders. Inputs become
three batches, the second and the third with their elements in another order; they run one by one,
and together. Where the results together are close to those one by one, the samples are independent,
and each bit must be the same. batch_open.txt lists the operators of which no case has independent
samples along the first axis, and those whose bits differ, with the reason: runtime/attnrun.h says
what follows for callers.
"""
import collections
import json
import subprocess
import sys
from pathlib import Path

import attnrun
import numpy as np
import onnx
from onnx import numpy_helper

HERE = Path(__file__).parent
INSIDE = "attnrun.fused."  # operators that rewrite passes make, never files


def operators(program):
    said = subprocess.run([program, "ops", "--json"], capture_output=True, text=True, check=True)
    names = {f"{op['domain']}.{op['name']}".lstrip(".") for op in json.loads(said.stdout)["ops"]}
    return {name for name in names if not name.startswith(INSIDE)}


def listed():
    """{operator: reason}"""
    lines = (HERE / "batch_open.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.partition("#") for line in lines if not line.startswith("#")]
    return {name.strip(): reason.strip() for name, _, reason in pairs if name.strip()}


def name_of(node):
    domain = "" if node.domain == "ai.onnx" else node.domain
    return f"{domain}.{node.op_type}".lstrip(".")


def cases(folders):
    """(operator, model, inputs) of one node and inputs that are tensors of numbers"""
    for folder in folders:
        for path in sorted(Path(folder).rglob("model.onnx")):
            data = path.parent / "test_data_set_0"
            model = onnx.load(path)
            if len(model.graph.node) != 1 or model.functions or not data.is_dir():
                continue
            fixed = {i.name for i in model.graph.initializer}
            given = [i for i in model.graph.input if i.name not in fixed]
            if not given or any(i.type.WhichOneof("value") != "tensor_type" for i in given):
                continue
            arrays = {}
            for k, one in enumerate(given):
                tensor = onnx.load_tensor(data / f"input_{k}.pb")
                arrays[one.name] = numpy_helper.to_array(tensor).copy()
            yield name_of(model.graph.node[0]), model, arrays


def with_free_shapes(model):
    for value in [*model.graph.input, *model.graph.output]:
        if value.type.WhichOneof("value") == "tensor_type":
            value.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]
    return attnrun.Model(model.SerializeToString())


def batches_of(arrays, names):
    """Three of them; the order of elements changes, so that indices stay those of the case."""
    order = np.random.default_rng(11)
    for k in range(3):
        yield {name: a if k == 0 or name not in names else
               order.permutation(a.ravel()).reshape(a.shape) for name, a in arrays.items()}


def are_close(a, b):
    if a.dtype.kind in "fc" or a.dtype.kind == "V":
        a, b = (x.astype("f4") if x.dtype.kind == "V" else x for x in (a, b))
        return np.allclose(a, b, rtol=1e-2, atol=1e-4, equal_nan=True)
    return np.array_equal(a, b)


def compare(run, arrays, names):
    """None: no independent samples; else whether all bits are the same."""
    parts = list(batches_of(arrays, names))
    whole = {name: np.concatenate([p[name] for p in parts]) if name in names else a
             for name, a in arrays.items()}
    try:
        alone, together = [run(**p) for p in parts], run(**whole)
    except (attnrun.Error, ValueError, TypeError):
        return None
    same = True
    for name, y in together.items():
        several = [one[name] for one in alone]
        if not isinstance(y, np.ndarray) or y.dtype == object or y.ndim == 0 or \
                any(not isinstance(s, np.ndarray) or s.ndim == 0 for s in several):
            return None
        if len({s.shape[1:] for s in several} | {y.shape[1:]}) > 1 or y.size == 0:
            return None
        expected = np.concatenate(several)
        if expected.shape != y.shape or not are_close(expected, y):
            return None
        same = same and expected.tobytes() == y.tobytes()
    return same


def ways(arrays):
    """Which inputs have a batch: all of the first size of the first one, or this one alone."""
    first = next(iter(arrays.values()))
    if first.ndim == 0 or first.size == 0:
        return
    yield {name for name, a in arrays.items() if a.ndim > 0 and a.shape[0] == first.shape[0]}
    yield {next(iter(arrays))}
    yield {name for name, a in arrays.items() if a.ndim == first.ndim}


def main():
    missing = [folder for folder in sys.argv[2:] if not any(Path(folder).rglob("model.onnx"))]
    if missing:
        print(f"FAIL no models in {', '.join(missing)}: ctest without -FS makes them first")
        return 1
    known, open_ones = operators(sys.argv[1]), listed()
    held, differed, compared = collections.Counter(), collections.Counter(), 0
    for op, model, arrays in cases(sys.argv[2:]):
        try:
            run = with_free_shapes(model)
        except attnrun.Error:
            continue
        for names in ways(arrays):
            same = compare(run, arrays, names)
            if same is not None:
                compared += 1
                (held if same else differed)[op] += 1
                break
    wrong = [f"{op}: bits depend on the samples beside, in {n} of {n + held[op]} cases"
             for op, n in sorted(differed.items()) if op not in open_ones]
    wrong += [f"{op}: no case with independent samples, and not in batch_open.txt"
              for op in sorted(known - set(held) - set(differed) - set(open_ones))]
    header = (HERE.parent.parent / "runtime" / "attnrun.h").read_text(encoding="utf-8")
    said = header.partition("Which bits are the same")[2].partition("Another instruction set")[0]
    wrong += [f"{op}: runtime/attnrun.h does not name it" for op in sorted(differed)
              if op.rpartition(".")[2] not in said]
    wrong += [f"{op}: in batch_open.txt, but no operator" for op in sorted(set(open_ones) - known)]
    wrong += [f"{op}: in batch_open.txt, but holds" for op in sorted(open_ones)
              if held[op] > 0 and differed[op] == 0 and op.rpartition(".")[2] not in said]
    print("\n".join(f"FAIL {line}" for line in wrong))
    print(f"{len(held)} of {len(known)} operators gave the same bits in {compared} cases, "
          f"{len(open_ones)} are listed, {len(wrong)} faults")
    return 1 if wrong or compared < 500 else 0


if __name__ == "__main__":
    sys.exit(main())
