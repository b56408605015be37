"""The proof at the end: the file in attnrun and in ONNX Runtime against the source's own
results, on the same inputs. No torch here: inputs and results are numpy arrays."""
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field

import numpy
import onnx

from .errors import UsageError, VerifyError, first_line, first_line_of, plural

# Of whole models: |difference| <= ATOL + RTOL |expected|, where ATOL is of the largest number of an
# output whose numbers are all below one.
RTOL, ATOL = 1e-3, 1e-4


@dataclass
class Case:
    """One set of inputs. `sizes`: {name of an axis: size}."""
    label: str
    feeds: dict
    wanted: list
    sizes: dict = field(default_factory=dict)


@dataclass
class Row:
    """One output of one case in one runtime."""
    case: str
    output: str
    engine: str
    shape: tuple
    max_abs: float
    max_rel: float
    ok: bool
    atol: float

    def line(self):
        return (f"{self.case}: '{self.output}' {list(self.shape)} {self.engine}: max abs "
                f"{self.max_abs:.1e}, relative {self.max_rel:.1e} "
                f"{'ok' if self.ok else 'FAILED'}")


class Attnrun:
    name = "attnrun"

    def __init__(self, path, executable=None):
        self.path, self.executable = path, executable or shutil.which("attnrun")

    def run(self, feeds, outputs):
        with tempfile.TemporaryDirectory() as folder:
            command = [self.executable, "run", str(self.path), "--quiet", "--print", "none",
                       "-o", f"{folder}/out.npz"]
            for i, (name, array) in enumerate(feeds.items()):
                write_tensor(f"{folder}/{i}.pb", array)
                command += ["-i", f"{name}={folder}/{i}.pb"]
            result = subprocess.run(command, capture_output=True, text=True)
            if result.returncode != 0:
                raise VerifyError("attnrun does not run the file: "
                                  f"{first_line_of(result.stderr)}")
            with numpy.load(f"{folder}/out.npz") as file:
                return [file[name] for name in outputs]


CODE = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")
AT_NODE = re.compile(r"Non-zero status code returned while running (\w+) node\. Name:'([^']*)' "
                     r"Status Message: ")
SOURCE = re.compile(r"/\S+:\d+ (?:[^()]*onnxruntime::[^()]*\([^()]*\)(?: const)? )?")


def without_source(said):
    """What onnxruntime says without its codes and without the places in its own source."""
    said = AT_NODE.sub(r"its \1 node '\2': ", CODE.sub("", said))
    return SOURCE.sub("", said).strip()


class OnnxRuntime:
    name = "onnxruntime"

    def __init__(self, path, executable=None):
        self.path, self.session = path, None

    def run(self, feeds, outputs):
        import onnxruntime
        try:
            if self.session is None:
                options = onnxruntime.SessionOptions()
                options.log_severity_level = 4
                self.session = onnxruntime.InferenceSession(
                    str(self.path), options, providers=["CPUExecutionProvider"])
            return self.session.run(outputs, feeds)
        except Exception as error:
            said = without_source(first_line(error))
            lacks = "Could not find an implementation" in said
            raise VerifyError(f"onnxruntime does not run the file: {said}"
                              + ("; leave it out of the check with --check attnrun" if lacks
                                 else "")) from error


class AttnrunModel:
    """attnrun's Python package, in this process."""
    name = "attnrun.Model"

    def __init__(self, path, executable=None):
        self.path, self.model = path, None

    def run(self, feeds, outputs):
        import attnrun
        try:
            if self.model is None:
                self.model = attnrun.Model(str(self.path))
            made = self.model(**feeds)
        except attnrun.Error as error:
            raise VerifyError(f"attnrun does not run the file: {first_line(error)}") from error
        return [made[name] for name in outputs]


ENGINES = {engine.name: engine for engine in (Attnrun, OnnxRuntime, AttnrunModel)}


def write_tensor(path, array):
    with open(path, "wb") as file:
        file.write(onnx.numpy_helper.from_array(numpy.ascontiguousarray(array))
                   .SerializeToString())


def available(names, executable=None):
    """The engines of `names` that are here; a sentence where none is."""
    import importlib.util
    found = []
    for name in names:
        if name not in ENGINES:
            raise UsageError(f"there is no runtime '{name}' to check with; known are "
                             f"{', '.join(ENGINES)}")
        here = (executable or shutil.which("attnrun") if name == "attnrun"
                else importlib.util.find_spec(name.partition(".")[0]))
        if here:
            found.append(name)
    if names and not found:
        raise UsageError(f"there is nothing to check the file with: neither {' nor '.join(names)} "
                         "is here; use --attnrun PATH, install onnxruntime, or turn the check "
                         "off with --check none")
    return found


def differences(got, want):
    """(largest absolute, largest relative) difference. Relative to values that are not
    small beside the largest one; NaN equals NaN."""
    if got.shape != want.shape or got.dtype != want.dtype:
        raise VerifyError(f"a result is {got.dtype}{list(got.shape)}, expected "
                          f"{want.dtype}{list(want.shape)}")
    if want.size == 0:
        return 0.0, 0.0
    a, b = got.astype(numpy.float64), want.astype(numpy.float64)
    same = (a == b) | (numpy.isnan(a) & numpy.isnan(b))
    off = numpy.where(same, 0.0, numpy.abs(numpy.where(same, 0, a) - numpy.where(same, 0, b)))
    off = numpy.nan_to_num(off, nan=numpy.inf)
    size = numpy.abs(numpy.where(numpy.isfinite(b), b, 0.0))
    large = size >= max(1e-3 * size.max(), 1e-30)
    return float(off.max()), float((off[large] / size[large]).max() if large.any() else 0)


def _largest(array):
    numbers = numpy.abs(array.astype(numpy.float64))
    return float(numpy.max(numbers, initial=0.0, where=numpy.isfinite(numbers)))


def atols_of(cases):
    """ATOL for each output of each case. Where it is small in this case alone, it may be rounding
    of what is larger in others; zeros everywhere leave a thousandth."""
    found = [[_largest(wanted) for wanted in case.wanted] for case in cases]
    everywhere = [max(sizes) for sizes in zip(*found)]
    return [[ATOL * (min(1.0, max(size, 1e-2 * most)) or 1e-3)
             for size, most in zip(sizes, everywhere)] for sizes in found]


def said(rtol, atol):
    """A tolerance in words."""
    return (f"{atol:g} + {rtol:g} |expected|" if atol is not None else
            f"{ATOL:g} min(1, largest) + {rtol:g} |expected|")


STEPS = {"float16": 2.0 ** -10, "bfloat16": 2.0 ** -7}  # of types shorter than float32


def within(got, want, rtol, atol):
    """Numbers of short types may differ by a few of their steps, which two ways of rounding
    in between make; whole numbers not at all."""
    a, b = got.astype(numpy.float64), want.astype(numpy.float64)
    if numpy.issubdtype(want.dtype, numpy.integer) or want.dtype == bool:
        return bool(numpy.all(a == b))
    step = STEPS.get(want.dtype.name)
    if step is not None and want.size:
        largest = numpy.abs(numpy.where(numpy.isfinite(b), b, 0.0)).max()
        rtol, atol = max(rtol, 4 * step), max(atol, 4 * step * largest)
    return bool(numpy.all(numpy.isclose(a, b, rtol, atol, equal_nan=True)))


def _with_one(case, example, word):
    """The feeds of the example with the size `word` alone as in `case`; None where the sizes of a
    tensor do not tell which it is."""
    feeds = {}
    for name, array in example.feeds.items():
        other = case.feeds[name]
        for axis, (old, new) in enumerate(zip(array.shape, other.shape)):
            changed = [w for w in case.sizes if old != new and case.sizes[w] == new
                       and example.sizes.get(w) == old]
            if old != new and len(changed) != 1:
                return None
            if changed == [word]:
                array = numpy.take(array, numpy.arange(new) % old, axis)
        feeds[name] = array
    return feeds


def _kept(engine, case, example, outputs):
    """Names of the sizes at which the file stands still: those that it does not take alone; all
    that differ where none is found."""
    differ = [word for word, n in case.sizes.items() if example.sizes.get(word) != n]
    found = []
    for word in differ:
        feeds = _with_one(case, example, word)
        if feeds is None:
            continue
        try:
            engine.run(feeds, outputs)
        except VerifyError:
            found.append(word)
    return found or differ


def _results(engine, case, example, outputs):
    """The engine's results; where it refuses another size than the example's, what to do."""
    try:
        return engine.run(case.feeds, outputs)
    except VerifyError as error:
        if case is example or case.sizes == example.sizes:
            raise
        words = _kept(engine, case, example, outputs)
        names = " and ".join(f"'{word}'" for word in words)
        raise VerifyError(
            f"the file made at {example.label} does not run at {case.label}, because the export "
            f"kept what the model's code computes for one value of {names}: keep the example's "
            f"value with --fix {','.join(words)}, or, if the model works in blocks, give the "
            f"example a size that is not a multiple of them (--size) ({error})") from error


def _demand_shape(got, case, example, output, want):
    """A shape that the model's code chose by a size, as a cut at a length is."""
    if got.shape == want.shape or case is example:
        return
    words = ",".join(word for word, n in case.sizes.items() if example.sizes.get(word) != n)
    raise VerifyError(
        f"the file made at {example.label} gives '{output}' {list(got.shape)} at {case.label}, "
        f"where the model gives {list(want.shape)}, because the export kept what the model's code "
        "chooses at the sizes of the example: keep them"
        + (f" with --fix {words}" if words else ""))


def compare(path, cases, outputs, engines, rtol=RTOL, atol=None, executable=None, say=print):
    """All rows; each is said as it is known. `atol` None: those of atols_of()."""
    bounds = atols_of(cases) if atol is None else [[atol] * len(outputs)] * len(cases)
    rows = []
    for name in engines:
        engine = ENGINES[name](path, executable)
        for case, atols in zip(cases, bounds):
            got = _results(engine, case, cases[0], outputs)
            for output, a, b, bound in zip(outputs, got, case.wanted, atols):
                if b.dtype.name == "bfloat16" and a.dtype == numpy.float32:
                    a = a.astype(b.dtype)  # npz has no such type
                _demand_shape(a, case, cases[0], output, b)
                error, relative = differences(a, b)
                rows.append(Row(case.label, output, name, b.shape, error, relative,
                                within(a, b, rtol, bound), bound))
                say(rows[-1].line())
    return rows


def demand(rows, rtol, atol):
    """Raises where a row is above the tolerance."""
    bad = [row for row in rows if not row.ok]
    if bad:
        worst = max(bad, key=lambda row: row.max_abs / max(row.atol, 1e-300))
        raise VerifyError(
            f"{len(bad)} of {plural(len(rows), 'result')} "
            f"{'differs' if len(bad) == 1 else 'differ'} from the source by more than "
            f"{said(rtol, atol)}, the worst is {worst.line()}; nothing was "
            "written")
