"""A module or an ExportedProgram as the source of a conversion."""
import contextlib

import torch
from torch.utils import _pytree

from . import (attach, capture, cases, experts, extent, fuse, gates, provenance, registry,
               steady)
from .adapters import longformer
from .errors import CaptureError, UnsupportedError, UsageError, plural


def of(module, args, kwargs, dynamic, options):
    if isinstance(module, torch.export.ExportedProgram):
        return ProgramSource(module, dynamic, options)
    refuse_no_module(module)
    return ModuleSource(module, args, kwargs, dynamic, options)


def refuse_no_module(module):
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"convert takes a torch.nn.Module or an ExportedProgram, but got "
                         f"{type(module).__name__}")


def in_type(module, example, name):
    """The example arguments in a type of floats, in which the module is from now on, too."""
    dtype = getattr(torch, name)
    module.to(dtype)
    return _pytree.tree_map(
        lambda x: x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x,
        example)


def output_names(results):
    """Names of the tensors in what a forward gives: keys, or output_N; `output` where there
    is one."""
    found = []
    for path, leaf in _pytree.tree_flatten_with_path(results)[0]:
        if not isinstance(leaf, torch.Tensor):
            continue
        keys = [getattr(k, "key", getattr(k, "name", getattr(k, "idx", None))) for k in path]
        name = "_".join(str(key) for key in keys)
        found.append(name if name and not name[0].isdigit() else f"output_{name}".rstrip("_"))
    if found == ["output_0"]:
        return ["output"]
    return found


def _others(results):
    """Types of what a forward returns beside tensors."""
    return ", ".join(sorted({type(leaf).__name__ for leaf in _pytree.tree_leaves(results)
                             if leaf is not None and not isinstance(leaf, torch.Tensor)}))


def _demand_results(results, tensors, at):
    """Raises where a model returns nothing that an output of a file can be."""
    if not tensors:
        raise UnsupportedError(f"the model returns no tensor, but {_others(results) or 'nothing'}"
                               f"{at}")
    if any(x.is_complex() for x in tensors):
        raise UnsupportedError(f"the model returns complex numbers{at}, which attnrun has not: "
                               "return torch.view_as_real of them")


def _demand_outputs(have, wanted):
    """Raises where a module was replaced by less than it gives."""
    if have != wanted:
        raise CaptureError(f"the file would have {plural(have, 'output')}, but the model returns "
                           f"{plural(wanted, 'tensor')}: convert it with --no-swap")


@contextlib.contextmanager
def _tensors_alone(module, others):
    """The module without what it returns beside tensors."""
    if not others:
        yield
        return
    kept, original = vars(module).get("forward"), module.forward
    module.forward = registry.with_signature(
        module, lambda *args, **kwargs: cases.tensors_in(original(*args, **kwargs)))
    try:
        yield
    finally:
        del module.forward
        if kept is not None:
            module.forward = kept


class Source:
    """What both kinds share."""

    def __init__(self, options):
        self.options, self.replaced, self.versions = options, {}, provenance.versions()
        self.plan_lines, self.reach = [], cases.Reach()

    def _names(self, results, inputs):
        names = self.options.output_names or output_names(results)
        tensors = cases.tensors_in(results)
        _demand_results(results, tensors, capture.at_code(getattr(self, "module", None)))
        if len(names) != len(tensors):
            raise UsageError(f"the model returns {plural(len(tensors), 'tensor')}, but "
                             f"--output-names has {plural(len(names), 'name')}")
        return [f"{name}_out" if name in inputs else name for name in names]

    def _finish(self, model, calls, numbers=(), least=0, broken=None):
        """`numbers`: of the module and the exporter, beside those of the graph; `least` and
        `broken` as of Reach."""
        self.reach = cases.Reach(
            extent.goal_of(extent.of_model(model) | set(numbers), self.options.say),
            frozenset(extent.lengths_of(model)), least, broken)
        if self.options.swap:
            self.replaced.update(gates.replace_all(model, calls, self.options.say))
        replace = fuse.fuse if self.options.fuse else fuse.localise_all
        self.replaced.update(replace(model, self.options.say))
        attach.attach(model, calls, self.options.opset)
        return model

    def close(self):
        """Leaves the source as it was."""

    def cases(self):
        return cases.make(self.function, self.given, self.names, self.dynamic,
                          self.options.trials, self.options.seed, self.options.say,
                          self.reach)


class ModuleSource(Source):
    def __init__(self, module, args, kwargs, dynamic, options):
        super().__init__(options)
        capture.refuse_training(module)
        self.function, self.module = module, module
        self.versions.update(provenance.versions_of_classes(module))
        self.given = capture.bound(module, args, kwargs)
        self.names = capture.flat_names(self.given.arguments)
        self.dynamic = capture.axis_names(dynamic, self.names)
        self.used, self.cached = None, []

    def cases(self):
        rounding = [e for e in self.used.taken if e.rounds]
        floats = {x.dtype for x in (*self.module.parameters(), *self.module.buffers())
                  if x.is_floating_point()}
        if rounding and floats <= {torch.float32}:
            self.options.say(f"{rounding[0].path or 'the model'} ({rounding[0].kind}): its own "
                             "rounding in float32 is larger than the tolerance, so the proof "
                             "is against the model in double")
            self.function = self._in_double
        with self.used.referenced():
            return super().cases()

    def _in_double(self, *args, **kwargs):
        """The model's results computed in double, in its own type."""
        args, kwargs = _pytree.tree_map_only(
            torch.Tensor, lambda x: x.double() if x.dtype == torch.float32 else x,
            (args, kwargs))
        self.module.double()
        try:
            return _pytree.tree_map_only(
                torch.Tensor, lambda x: x.float() if x.dtype == torch.float64 else x,
                self.module(*args, **kwargs))
        finally:
            self.module.float()

    def close(self):
        for config in self.cached:
            config.use_cache = True

    def _without_cache(self, plan):
        """A plan of the same model with use_cache=False where it gives states that no file
        can hold; the user's configuration gets its value back in `close`."""
        holds = any("Cache" in type(x).__name__ for x in _pytree.tree_leaves(plan.results))
        configs = {id(c): c for part in self.module.modules()
                   if getattr(c := getattr(part, "config", None), "use_cache", False)}
        if not holds or not configs:
            return plan
        plan.close()
        self.cached = list(configs.values())
        for config in self.cached:
            config.use_cache = False
        self.options.say("the model gives a cache, which no file can hold: converted with "
                         "config.use_cache=False")
        return self.plan()

    def model(self):
        plan = self._without_cache(self.plan())
        try:
            self.used = plan
            self.options.say(*plan.lines(), *experts.lines(self.module))
            if not self.options.allow_random:
                with plan.referenced():
                    steady.demand(self.module, self.given.args, self.given.kwargs)
            names, others = self._names(plan.results, self.names), _others(plan.results)
            if others:
                self.options.say(f"what the model returns beside tensors ({others}) is left out")
            plan.results = None
            self.replaced = {e.path or "(model)": e.adapter.operator for e in plan.taken}
            self.plan_lines = plan.lines()
            with plan.applied(), longformer.unfolded(self.module), \
                    _tensors_alone(self.module, others):
                model, calls, bounds, broken = capture.captured(
                    self.module, self.given, self.dynamic, self.options.opset, names)
            _demand_outputs(len(model.graph.outputs), len(names))
            least = max((e.adapter.shortest() for e in plan.taken), default=0)
            return self._finish(model, calls, bounds | extent.of_module(self.module), least,
                                broken)
        except CaptureError as error:
            raise CaptureError(_with_reasons(error, plan)) from error
        finally:
            plan.close()

    def plan(self):
        from . import moduleop
        extra = [moduleop.adapter(text) for text in self.options.moduleop]
        try:
            with steady.keeping_parts(self.module):
                plan = registry.plan(self.module, self.given.args, self.given.kwargs, extra,
                                     self.options.swap)
        except UnsupportedError:
            raise
        except Exception as error:
            raise UsageError(f"the model itself fails on the example arguments: "
                             f"{capture.sentence(error)}") from error
        for kind in extra:
            kind.demand(plan)
        return plan


def _with_reasons(error, plan):
    """What the exporter says, and which known modules it met as they are."""
    kept = [entry.line() for entry in plan.entries if not entry.taken and entry.named]
    return "; ".join([str(error)] + kept)


class ProgramSource(Source):
    """A graph: modules cannot be replaced in it, decomposed attention can (fuse)."""

    def __init__(self, program, dynamic, options):
        super().__init__(options)
        _refuse_training_graph(program)
        if program.example_inputs is None:
            raise UnsupportedError("the exported program holds no example inputs, without "
                                   "which its conversion cannot be checked")
        self.program, self.function = program, program.module()
        args, kwargs = program.example_inputs
        self.given = capture.Arguments(args, kwargs)
        self.names = capture.program_inputs(program)
        named = capture.program_axes(program, self.names)
        for name, axes in capture.axis_names(dynamic, self.names).items():
            for axis, word in axes.items():
                if axis not in named.get(name, {}):
                    raise UsageError(f"axis {axis} of '{name}' is fixed in the exported "
                                     "program; export it again with that axis dynamic")
                named[name][axis] = word
        self.dynamic = named

    def model(self):
        with torch.no_grad():
            results = self.function(*self.given.args, **self.given.kwargs)
        names, others = self._names(results, self.names), _others(results)
        if others:
            raise UnsupportedError(f"the exported program returns {others} beside its tensors, "
                                   "which no output of a file can be: return tensors alone")
        model = capture.translated(self.program, self.options.opset, self.names, names)
        capture.name_axes(model, self.dynamic)
        return self._finish(model, [], capture.bounds_of(self.program))


def _refuse_training_graph(program):
    for node in program.graph.nodes:
        name = str(node.target)
        drops = "aten.dropout" in name and len(node.args) > 2 and node.args[2]
        if drops or "aten.native_dropout" in name or "aten.bernoulli" in name:
            raise UnsupportedError(
                f"the program was exported in training mode (node '{node.name}', {name}): "
                "call .eval() on the model and export it again")
