#!/usr/bin/env python3
"""Compare what random and changed models of one node give with what ONNX Runtime gives.

usage: with_ort.py FUZZ_GRAPHS [--seed N] [--seconds S] [--cases FOLDER] CORPUS...

Rounds of `fuzz_graphs --operators --keep` write the cases that attnrun runs; a process of ONNX
Runtime that is replaced where it crashes or hangs, as hostile files make it, runs the same models
with the same inputs. --cases compares cases that were kept before. Exit code 1 where outputs of
both differ by more than rounding and KNOWN does not say why; at the end stand the sums, in the
form that counts.py reads.
"""
import argparse
import collections
import json
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "ops"))

DEADLINE_S, ROUND_S = 20, 15

# Differences that are none of attnrun's: operator, pattern of what is said, reason.
KNOWN = [
    (r"Attention|.*MultiHeadAttention", r"numbers \(?0j? and (\(nan|.*\(wild\))|-3.40282346",
     "queries without a key give zeros, and their scores are minus infinity"),
    (r"MaxPool|.*NhwcMaxPool|Arg(Max|Min)|Hardmax|TopK", r"integers|numbers",
     "a NaN is the largest and the smallest"),
    (r"DynamicQuantizeLinear", r"and \((inf|nan)", "a NaN makes the scale NaN"),
    (r"DynamicQuantizeLinear|Constant", r"integers .*\(wild\)", "a NaN has no code"),
    (r"Celu", r"numbers .* and \(?-?0j", "exp(x / alpha) - 1 cancels in ONNX Runtime"),
    (r".*GridSample", r"numbers 0j and .*\(wild\)", "an infinite coordinate lies outside"),
    (r"RMSNormalization|SimplifiedLayerNormalization", r"numbers .*\(wild\)",
     "squares overflow, as in onnx.reference"),
    (r".*(Hamming|Hann|Blackman)Window", r"and \(nan", "a symmetric window of one"),
    (r"MaxUnpool", r"numbers", "output_shape moves the windows, as in the backend test"),
    (r"StringSplit", r"integers 1 and 0|shapes .* 1\] and .* 0\]",
     "an empty text is one part where a delimiter is given"),
    (r"Cast|CastLike", r"integers", "numbers outside the range of the type have no result"),
    (r"Cast|CastLike", r"two forms of a number",
     "texts as Python's str() of a float, since the standard names no form: 1000000.0, nan"),
    (r"Cast|CastLike", r"strings '-?\d+\.\d{1,4}' and '-?\d+\.\d{6,}'",
     "the shortest text that reads back as the number of 16 bits"),
    (r"Pow", r"integers -?\d+ and -(2147483648|9223372036854775808)",
     "powers outside the range of the type have no result"),
    (r"Shrink", r"integers \d{9,} and \d+",
     "unsigned numbers are not below 0, as onnx.reference, and keep more than 24 bits"),
    (r"GlobalAveragePool|AveragePool|DFT|ReduceLogSum", r"numbers .*\(wild\)",
     "sums with 1e30 in them"),
    (r".*Attention", r"numbers .*\(wild\)", "scores with 1e30 in them"),
    (r".*MultiHeadAttention", r"numbers .*\(last query\)",
     "ONNX Runtime masks all queries but the last, which sees later keys where keys are more"),
    (r"Gather", r"strings '.*' and ''", "ONNX Runtime leaves texts out; onnx.reference does not"),
    (r"(\w+ )*Squeeze", r"shapes", "axes that are empty name none, as in onnx.reference"),
    (r".*CDist", r"numbers 0j and \((0\.00|\d\.?\d*e-|.*\(wild\))", "a row is at 0 from itself"),
    (r"CastLike", r"output 2: numbers",
     "of an input that is an output, too, ONNX Runtime gives other numbers in each run"),
    (r"LRN", r"numbers .*\(wild\)", "sums that go along the channels keep what is left of 1e30"),
    (r"LpNormalization", r"numbers .* and \(?-?0(\+0)?j.*\(wild\)",
     "the squares are added as doubles, which do not overflow"),
    (r"ReduceLogSumExp", r"numbers .* and \(inf", "the largest is taken out, as NumPy does"),
    (r"ReduceLogSumExp", r"integers", "exponentials are no integers, as in NumPy"),
    (r"ReduceLogSum", r"integers .* and -(2147483648|9223372036854775808)",
     "the logarithm of 0 is no integer"),
    (r"GlobalLpPool", r"numbers .* and \(inf", "powers are doubles, and do not overflow"),
    (r"Loop", r"shapes \[0, 0\] and \[0, ", "without an iteration nothing says the other sizes"),
    (r"MeanVarianceNormalization", r"numbers 0j and \(nan",
     "the standard adds 1e-9 to the deviation of equal numbers"),
    (r"GlobalMaxPool|Clip", r"3.40282346", "limits that are not given do not exist"),
    (r"ai.onnx.ml.Normalizer", r"numbers", "MAX divides by the largest magnitude, as onnx does"),
    (r"ai.onnx.ml.LinearRegressor", r"numbers", "post_transform holds for one target, too"),
    (r"NonZero", r"shapes \[0", "of a scalar there are no rows of indexes"),
    (r"Unique", r"shapes", "several NaN are one value, as in NumPy"),
    (r"ReduceMean", r"nan", "the mean of nothing"),
    (r"GridSample|Resize", r"numbers", "coordinates that are infinite"),
    (r".*MurmurHash3", r"numbers", "any `positive` but 0"),
    (r".*\.QLinear.*", r"integers (127 and -128|255 and 0)",
     "a quotient beyond 2^31 is the largest code"),
    (r".*\.GridSample", r"numbers .*\(wild\)", "coordinates of 1e30, and numbers beside 1e30"),
    (r".*", r".*\(saturates\)",
     "without VNNI ONNX Runtime adds two products of bytes in 16 bits (tests/ops/exact_bytes.py)"),
    (r".*Pool", r".*\(skips\)",
     "windows of SAME begin at 0 where they do not reach each other, as in TensorFlow"),
    (r".*\.QMoE", r"numbers .*\(exchanged\)",
     "ONNX Runtime reads the same weights in another order where they are constants"),
    (r".*\.QMoE", r"numbers .*\(wild\)", "ONNX Runtime rounds what stands beside 1e30 to bytes"),
    (r".*\.GroupQueryAttention", r"numbers .*\(padding\)",
     "rows of padding have no meaning, and none has one where the total is too small"),
    (r".*\.DynamicQuantizeLSTM", r"numbers .*\(batch\)",
     "ONNX Runtime rounds the states of all sequences by one range, which depends on its threads"),
]
# Operators that ONNX Runtime computes with rounded operands: by how much of the largest number.
ROUGH = {
    "QMoE": 2e-2,  # activations are bytes with weights of 8 bits in blocks
    "Inverse": 1e-1,  # each step is of 16 bits, with matrices of 16 bits
}
# Nodes whose outputs two runtimes do not share.
RANDOM = {"Dropout", "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike",
          "RandomUniform", "RandomUniformLike"}


PACKED = (21, 22, 23, 25, 26, 27, 28)  # int4 and the like of TensorProto


# ---- the process that runs ONNX Runtime ----

def tensor(path):
    import onnx
    with open(path, "rb") as file:
        proto = onnx.TensorProto.FromString(file.read())
    return proto, onnx.numpy_helper.to_array(proto)


def run_ort(folder):
    """The outputs of ONNX Runtime."""
    import numpy as np
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(folder / "model.onnx"), options,
                                   providers=["CPUExecutionProvider"])
    feed = {}
    for at, wanted in enumerate(session.get_inputs()):
        path = folder / "test_data_set_0" / f"input_{at}.pb"
        if not path.exists():
            break
        proto, value = tensor(path)
        if proto.data_type in PACKED:
            raise TypeError("elements of less than a byte cannot be fed from numpy")
        if value.dtype == object or value.dtype.kind in "SU":
            feed[wanted.name] = value
        elif value.dtype.isbuiltin != 1:
            raw = value.view(np.uint8 if value.dtype.itemsize == 1 else np.uint16)
            feed[wanted.name] = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(
                raw, proto.data_type)
        else:
            feed[wanted.name] = ort.OrtValue.ortvalue_from_numpy(np.array(value, order="C"))
    if any(isinstance(v, np.ndarray) for v in feed.values()):
        feed = {k: v if isinstance(v, np.ndarray) else v.numpy() for k, v in feed.items()}
        return session.run(None, feed)
    return [v.numpy().copy() for v in session.run_with_ort_values(None, feed)]


def is_wild(value):
    """Whether a tensor holds what has no number, or sums that may overflow."""
    import numpy as np
    if value.dtype == object or value.dtype.kind in "SUbiu":
        return False
    value = value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)
    return not bool((np.abs(value) < 1e18).all())


def has_wild(folder, model):
    import onnx
    tensors = list(model.graph.initializer)
    tensors += [a.t for n in model.graph.node for a in n.attribute if a.HasField("t")]
    values = [onnx.numpy_helper.to_array(t) for t in tensors]
    values += [tensor(p)[1] for p in (folder / "test_data_set_0").glob("input_*.pb")]
    return any(map(is_wild, values))


def is_same_number(one, other):
    try:
        one, other = float(one), float(other)
    except ValueError:
        return False
    return one == other or (one != one and other != other) or \
        abs(one - other) <= 1e-6 * abs(one) + 1e-45  # the last number above 0 of f32


def differing_texts(ours, theirs):
    """"" or the first that differ, of all that differ those that are not two forms of a number."""
    wrong = [at for at in range(len(ours)) if ours[at] != theirs[at]]
    other = [at for at in wrong if not is_same_number(ours[at], theirs[at])]
    if not wrong:
        return ""
    at = (other or wrong)[0]
    what = "strings" if other else "two forms of a number"
    return f"{what} {str(ours[at])!r} and {str(theirs[at])!r} at [{at}]"


def differs(ours, theirs, step, wild, rough=0):
    """What differs, or ""; of wild inputs only finite results are compared."""
    import numpy as np
    theirs = np.asarray(theirs)
    if ours.shape != theirs.shape:
        return f"shapes {list(ours.shape)} and {list(theirs.shape)}"
    if ours.dtype == object or ours.dtype.kind in "SUO":
        ours = np.array([s.decode("utf-8", "replace") if isinstance(s, bytes) else str(s)
                         for s in ours.ravel()])
        theirs = np.array([str(s) for s in theirs.ravel()])
        return differing_texts(ours, theirs.ravel())
    if ours.dtype.isbuiltin != 1 or ours.dtype != theirs.dtype:
        if theirs.dtype.itemsize == ours.dtype.itemsize and ours.dtype.isbuiltin != 1:
            theirs = theirs.view(ours.dtype)
        step = max(step, 0.02)
        ours, theirs = ours.astype(np.float32), theirs.astype(np.float32)
    if ours.dtype.kind in "biu":
        room = 1 if ours.dtype.itemsize == 1 and ours.dtype.kind != "b" and step > 0.5 else 0
        off = np.abs(ours.astype(object) - theirs.astype(object)) if ours.dtype.kind != "b" \
            else ours != theirs
        return "" if ours.size == 0 or (off <= room).all() else \
            f"integers {first(ours, theirs, off > room)}"
    if ours.dtype.kind not in "fc":
        return ""
    step = max(step if step < 0.5 else 0, rough, 5e-3 if ours.dtype.itemsize == 2 else 1e-4)
    with np.errstate(all="ignore"):
        ours, theirs = ours.astype(np.complex128), theirs.astype(np.complex128)
        finite = np.isfinite(ours) & np.isfinite(theirs)
        largest = max([1e-3, *np.abs(ours[finite])])
        if largest > 1e15:
            return ""
        good = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs)) | \
            (finite & (np.abs(ours - theirs) <= step * largest)) | (~finite & wild)
    return "" if good.all() else f"numbers {first(ours, theirs, ~good)}"


def first(ours, theirs, wrong):
    at = [int(k[0]) for k in wrong.nonzero()] if wrong.ndim else []
    one, other = ours[tuple(at)], theirs[tuple(at)]
    return f"{one} and {other} at {at}"


def has_tall(folder, model):
    """Whether a tensor makes scores of 1e4: one unit of their last place is 6e-4 of a weight."""
    import numpy as np
    import onnx
    values = [onnx.numpy_helper.to_array(t) for t in model.graph.initializer]
    values += [tensor(p)[1] for p in (folder / "test_data_set_0").glob("input_*.pb")]
    return any(value.dtype.kind == "f" and value.size and
               np.abs(value[np.isfinite(value)]).max(initial=0) > 1e4 for value in values)


def values_of(folder, model):
    """The arrays of a case by name: its constants and its inputs."""
    import onnx
    values = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    for k, value in enumerate(model.graph.input):
        if (path := folder / "test_data_set_0" / f"input_{k}.pb").exists():
            values[value.name] = tensor(path)[1]
    return values


def without_rows_behind(folder, model, at, ours, theirs):
    """Theirs, with zeros in the rows of a cache behind those that the sequence has: ONNX Runtime
    leaves there what its memory held. In a cache that slides they begin behind the last row of
    ours that is not 0, and behind the window in any case."""
    node = model.graph.node[0]
    if node.op_type != "GroupQueryAttention" or at not in (1, 2) or ours.ndim != 4:
        return theirs
    values = values_of(folder, model)
    attributes = {a.name: a.i for a in node.attribute}
    window = attributes.get("local_window_size", -1) if attributes.get("sliding_window_cache") \
        else -1
    theirs = theirs.copy()
    for b, last in enumerate(values[node.input[5]].ravel()[:len(ours)]):
        used = int(last) + 1
        if window > 0:
            filled = ours[b].astype(bool).any((0, 2)).nonzero()[0]
            used = max(min(used, window), filled[-1] + 1 if len(filled) else 0)
        theirs[b, :, used:][ours[b, :, used:] == 0] = 0
    return theirs


def skips(attributes):
    """Whether the strides of a pool are longer than its windows, and auto_pad pads to them."""
    window = attributes.get("kernel_shape", [])
    wide = [(k - 1) * d + 1 for k, d in zip(window, attributes.get("dilations", [1] * len(window)))]
    strides = attributes.get("strides", [1] * len(window))
    return attributes.get("auto_pad", b"").startswith(b"SAME") and any(
        stride > size for stride, size in zip(strides, wide))


def tag(folder, model, ours):
    """What of a model KNOWN asks for, besides its operator."""
    import onnx
    from exact_bytes import sums_are_exact
    node = model.graph.node[0]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    shapes = {name: value.shape for name, value in values_of(folder, model).items()}
    of = [shapes.get(name, ()) for name in node.input]
    if re.search("Quant|QLinear|QGemm|QAttention|Integer", node.op_type) and \
            not sums_are_exact():
        return " (saturates)"
    if node.op_type == "DynamicQuantizeLSTM" and ours.shape[-2] > 1:
        return " (batch)"
    if node.op_type == "QMoE" and len(of) > 5 and len(of[5]) == 3 and of[5][1] != of[0][-1]:
        return " (exchanged)"
    if node.op_type.endswith("Pool") and skips(attributes):
        return " (skips)"
    if node.op_type == "GroupQueryAttention" and len(of[0]) == 3:
        values = values_of(folder, model)
        last, total = values[node.input[5]], values[node.input[6]]
        odd = last.min() + 1 < of[0][1] or total.max() < last.max() + 1
        return " (padding)" if odd else ""
    if node.op_type == "MultiHeadAttention" and attributes.get("unidirectional") == 1 and \
            len(of) > 1 and len(of[0]) == len(of[1]) == 3 and of[1][1] > of[0][1]:
        return " (last query)"
    return ""


def compare(folder):
    import onnx
    folder = Path(folder)
    model = onnx.load(folder / "model.onnx")
    op = next((f"{n.domain}{'.' * bool(n.domain)}{n.op_type}" for n in model.graph.node), "")
    text = " ".join(n.op_type for n in model.graph.node)
    step = 1.0 if re.search("Quant|QLinear|QMoE|NBits|Integer", text) else 0
    coarse = any(a.i in (10, 16) for n in model.graph.node for a in n.attribute if a.name == "to")
    step = max(step, 1e-2 if coarse else 0)
    rough = max([ROUGH.get(n.op_type, 0) for n in model.graph.node], default=0)
    if any(n.op_type == "MatMulNBits" and a.name == "accuracy_level" and a.i == 4
           for n in model.graph.node for a in n.attribute):
        rough = max(rough, 2e-2)  # activations are bytes there
    rough = max(rough, 4e-2 if "Attention" in text and has_tall(folder, model) else 0)
    result = {"folder": str(folder), "op": op, "ops": text}
    if RANDOM & {n.op_type for n in model.graph.node}:
        return dict(result, refused="draws random numbers")
    wild = has_wild(folder, model)
    try:
        theirs = run_ort(folder)
    except Exception as error:  # whatever it says of a hostile file
        return dict(result, refused=str(error)[:300])
    for at, value in enumerate(theirs):
        path = folder / "test_data_set_0" / f"output_{at}.pb"
        if value is None or not path.exists():
            continue
        ours = tensor(path)[1]
        if ours.shape == getattr(value, "shape", None):
            value = without_rows_behind(folder, model, at, ours, value)
        what = differs(ours, value, step, wild, rough)
        if what:
            what += tag(folder, model, ours) + " (wild)" * wild
            return dict(result, differs=f"output {at}: {what}")
    return result


def serve():
    for line in sys.stdin:
        try:
            result = compare(line.strip())
        except Exception as error:  # a fault of this script: said, not hidden
            result = {"folder": line.strip(), "op": "", "broken": repr(error)[:300]}
        print(json.dumps(result), flush=True)


# ---- the process that counts ----

class Worker:
    def __init__(self):
        self.process = None

    def ask(self, folder):
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, __file__, "--serve"], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.process.stdin.write(f"{folder}\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], DEADLINE_S)
        line = self.process.stdout.readline() if ready else ""
        if line:
            return json.loads(line)
        self.end()
        return {"folder": str(folder), "op": "", "refused": "", "crashed": True}

    def end(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def known(result):
    return any(re.fullmatch(op, result["op"]) and re.search(what, result["differs"])
               for op, what, _ in KNOWN)


def compare_all(folder, worker, counts, findings):
    for case in sorted(Path(folder).iterdir(), key=lambda p: p.name):
        result = worker.ask(case)
        counts["cases"] += 1
        for kind in ("refused", "crashed", "broken"):
            counts[kind] += kind in result
        counts["compared"] += "refused" not in result and "broken" not in result
        if "broken" in result:
            print(f"broken: {case.name}: {result['broken']}")
        if "differs" in result and known(result):
            counts["known"] += 1
        elif "differs" in result:
            findings.append(result)
            print(f"FINDING: seed {case.name} ({result['ops'][:80]}): {result['differs']}",
                  flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("fuzz_graphs", nargs="?")
    parser.add_argument("corpus", nargs="*")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--cases")
    parser.add_argument("--serve", action="store_true")
    options = parser.parse_intermixed_args()
    if options.serve:
        serve()
        return 0
    worker, counts, findings, seed = Worker(), collections.Counter(), [], options.seed
    end, failed = time.monotonic() + options.seconds, 0
    if options.cases:
        compare_all(options.cases, worker, counts, findings)
    while not options.cases and time.monotonic() < end:
        folder = tempfile.mkdtemp(prefix="attnrun-ort-")
        done = subprocess.run([options.fuzz_graphs, "--operators", "--seed", str(seed), "--seconds",
                               str(ROUND_S), "--keep", folder, *options.corpus],
                              capture_output=True, text=True, check=False)
        for line in done.stderr.splitlines():
            if "seed" in line or "FINDING" in line:
                print(line, flush=True)
        reached = re.search(r"seeds \d+ to (\d+)", done.stdout)
        if done.returncode != 0 or reached is None:
            failed += 1
            print(f"FAIL fuzz_graphs from seed {seed}: exit code {done.returncode}, "
                  f"{done.stderr[-300:]}", flush=True)
            if reached is None:
                break
        seed = int(reached[1])
        compare_all(folder, worker, counts, findings)
        shutil.rmtree(folder)
    worker.end()
    print(f"{counts['crashed']} ended ONNX Runtime, {counts['refused']} it refused, "
          f"{counts['known']} differ for reasons that are known, {counts['broken']} not read")
    print(f"seeds {options.seed} to {seed}, ONNX Runtime: {counts['cases']} cases, "
          f"{counts['compared']} ran to the end, {len(findings)} findings")
    return 1 if findings or failed or counts["broken"] or counts["compared"] == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
