"""An ONNX file as the source of a conversion: decomposed attention in it is replaced, and
the result compared with the file itself. No torch here."""
import logging
from pathlib import Path

import numpy
import onnx
import onnx_ir
from onnx_ir.passes.common import ShapeInferencePass

from . import extent, fuse, pipeline, provenance
from .errors import FileError, UnsupportedError, VerifyError, demand_known
from .extent import far_sizes, farthest
from .verify import ENGINES, Case, available

SIZES = ({"first": 1, "other": 64}, {"first": 2, "other": 71}, {"first": 3, "other": 37})


def convert(path, given):
    options = pipeline.options_of(given)
    return pipeline.write(OnnxSource(path, options), options)


def _load(path):
    if not Path(path).is_file():
        raise FileError(f"cannot read {path}: there is no such file")
    try:
        onnx.checker.check_model(str(path))
        return onnx_ir.load(path)
    except (OSError, onnx.checker.ValidationError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        if "Unable to parse proto" in reason:
            reason = "it is not an ONNX file"
        raise FileError(f"cannot read {path}: {reason}") from error
    except Exception as error:  # noqa: BLE001 - protobuf's own kind of error
        raise FileError(f"cannot read {path}: it is not an ONNX file") from error


class OnnxSource:
    def __init__(self, path, options):
        self.path, self.options = path, options
        self.loaded = _load(path)
        self.replaced, self.dynamic, self.plan_lines = {}, self._axes(), []
        self._demand_sizes()
        self.versions = provenance.versions()

    def close(self):
        """A file stays as it was."""

    def _axes(self):
        """{input: {axis: name}} of the symbolic sizes."""
        found = {}
        for value in self.loaded.graph.inputs:
            for axis, size in enumerate(value.shape or ()):
                if isinstance(size, onnx_ir.SymbolicDim):
                    word = size.value or f"{value.name}_{axis}"
                    found.setdefault(value.name, {})[axis] = word
        return found

    def model(self):
        model = self._at_opset(self.loaded)
        ShapeInferencePass()(model)
        self.goal = extent.goal_of(extent.of_model(model), self.options.say)
        self.lengths = extent.lengths_of(model)
        self.replaced = fuse.fuse(model, self.options.say)
        if not self.replaced:
            raise UnsupportedError(f"{self.path} holds no attention that could be replaced")
        return model

    def _at_opset(self, model):
        """The same model at an opset that has Attention, where it is older."""
        opset = model.graph.opset_imports.get("", 0)
        if opset >= fuse.ATTENTION_OPSET or model.functions:
            return model
        from onnxscript import version_converter
        logging.getLogger("onnxscript").setLevel(logging.ERROR)
        try:
            version_converter.convert_version(model, fuse.ATTENTION_OPSET, fallback=True)
        except Exception as error:  # noqa: BLE001 - bands are replaced all the same
            self.options.say(f"stays at opset {opset}: {str(error).splitlines()[0]}")
            return onnx_ir.load(self.path)
        if model.graph.opset_imports.get("", 0) < fuse.ATTENTION_OPSET:
            self.options.say(f"stays at opset {opset}, which has no Attention")
        return model

    def cases(self):
        """Made-up inputs at three sizes, and what the file as it was gives for them. All but the
        first hide some keys, where the file takes that: else nothing would show that a mask is
        lost."""
        engines = [ENGINES[name](self.path, self.options.attnrun) for name in
                   available(("onnxruntime", "attnrun"), self.options.attnrun)]
        outputs = [value.name for value in self.loaded.graph.outputs]
        found = []

        def attempt(sizes, number, say):
            sizes = {**self._given(number), **sizes}
            hides = number > 0 or len(self.options.trials or SIZES) == 1
            for hidden in (True, False) if hides else (False,):
                words, feeds = {}, {}
                for value in self.loaded.graph.inputs:
                    feeds[value.name] = self._made_up(value, sizes, words, number, hidden)
                label = " ".join(f"{w}={n}" for w, n in words.items()) or f"inputs {number}"
                results = self._results(engines, feeds, outputs, label, say)
                if results is not None:
                    return Case(label, feeds, results, words)
            return None
        for number, sizes in enumerate(self.options.trials or SIZES):
            case = attempt(sizes, number, self.options.say)
            found += [case] if case is not None else []
        if found and not self.options.trials:
            case = self._long_case(found, lambda sizes: attempt(sizes, 3, lambda line: None))
            found += [case] if case is not None else []
        if not found:
            raise VerifyError(f"{self.path} runs at none of the sizes tried; use --at")
        return found

    def _given(self, number):
        """Sizes that the user gave, in the first case; near them in the others."""
        change = (lambda n: n, lambda n: n + n // 9 + 1, lambda n: max(1, 4 * n // 7),
                  lambda n: n)[number % 4]
        return {word: change(n) for word, n in (self.options.sizes or {}).items()}

    def _demand_sizes(self):
        known = {word for axes in self.dynamic.values() for word in axes.values()}
        demand_known("--size", self.options.sizes or (), known, str(self.path))
        demand_known("--at", {word for sizes in self.options.trials or () for word in sizes},
                     known, str(self.path))

    def _long_case(self, cases, attempt):
        """A case beyond all numbers of the model; None where there is one already."""
        first = {axes[0] for axes in self.dynamic.values() if 0 in axes}
        others = {word for axes in self.dynamic.values() for word in axes.values()} - first
        words = self.lengths & (first | others) or others
        reached = min((max(case.sizes[word] for case in cases) for word in words), default=0)
        if not words or reached > self.goal:
            return None
        base = {"first": 1, "other": 64}
        return farthest(lambda n: attempt(far_sizes(base, words, self.dynamic, n)), reached,
                        self.goal, self.options.say)

    def _results(self, engines, feeds, outputs, label, say):
        """Of the first runtime that takes the file as it was."""
        for engine in engines:
            try:
                return engine.run(feeds, outputs)
            except VerifyError as error:
                say(f"{label}: the file as it was: {str(error)[:160]}")
        return None

    def _made_up(self, value, sizes, words, number, hidden):
        shape = []
        for axis, size in enumerate(value.shape):
            if isinstance(size, onnx_ir.SymbolicDim):
                word = self.dynamic[value.name][axis]
                size = words.setdefault(word, sizes.get(
                    word, sizes.get("first" if axis == 0 else "other", 1)))
            shape.append(size)
        random = numpy.random.default_rng(self.options.seed + number)
        kind = value.dtype.numpy()
        if numpy.issubdtype(kind, numpy.floating):
            return random.standard_normal(shape).astype(kind)
        rows = self._rows(value)
        if rows is not None:
            return random.integers(0, rows, shape).astype(kind)
        made = numpy.ones(shape, kind)
        if hidden and len(shape) > 1 and made.size > 0:
            # Keys, if it is a mask: neither the first one nor two neighbours, so that rows stay.
            for row, line in enumerate(made.reshape(shape[0], -1, shape[-1])):
                line[:, 2 + row % 3::5] = 0
        return made

    def _rows(self, value):
        """How many rows the table has that an input indexes; None where it indexes none."""
        for use in value.uses():
            table = use.node.inputs[0] if use.node.op_type == "Gather" else None
            if table is not None and use.idx == 1 and table.const_value is not None:
                return table.const_value.shape[0]
            if use.node.op_type in ("Cast", "Identity"):
                rows = self._rows(use.node.outputs[0])
                if rows is not None:
                    return rows
        return None
