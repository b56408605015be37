"""Known modules and what replaces their forward: adapters, three gates, the swap.

A module is replaced when it is of a class that an adapter knows, or has the parts that the
adapter names, whatever its class is called; when its structure passes the adapter's `check`;
and when a probe finds its results equal to the adapter's: on every call of one pass over the
user's example arguments, each also with random numbers of two other magnitudes in place of its
activations. A class that is called like one of another package proves nothing and is not looked
at. What is not replaced is left as it is, with the reason if it is of a known class.

To add a module: a class in adapters/, see ../README.md and adapters/longformer.py.
"""
import contextlib
import inspect
import importlib
import pkgutil
from dataclasses import dataclass, field

import torch
from torch.utils import _pytree

from .cases import is_blank
from .errors import ConvertError, UnsupportedError, innermost, plural

TOLERANCE = 1e-4  # of the largest number of a result, in the probe
SHORT = {torch.float32, torch.float16, torch.bfloat16}
CALLS = 2  # calls of a module that are probed
PREFIX = "attnrun_"  # of buffers that an adapter adds while the model is exported


class Mismatch(Exception):
    """Why a module, or a call of it, is not what an adapter knows."""


def need(condition, reason):
    if not condition:
        raise Mismatch(reason)


def need_linear(module, *names):
    """The children `names` are linear layers."""
    for name in names:
        need(isinstance(getattr(module, name, None), torch.nn.Linear),
             f"it has no linear layer '{name}'")


class Adapter:
    """One kind of module. A subclass says `names` (qualified; one without a package is that of
    a class which many packages have, and is known by its parts), `shapes` (lists of attributes,
    "gate.mlp" one of an attribute: a module that has all of a list is tried under any class
    name; `structural` instead where `fits` tells by the layers themselves), `operator` (for the
    report), `bare` (the class name alone is enough), and has

        check(self)              raises Mismatch unless self.module has the structure, or
                                 UnsupportedError where the model is none that a file can be
        tensors(self)            {name: tensor}: folded weights, read by self.tensor(name)
        choices(self)            attributes to try in turn, as dicts; self.choice is one
        forward(self, …)         the module's own parameters and results, with `call`
        reference(self)          a context in which the original forward is deterministic
        results(self, output)    what of a forward's results the probe compares: all of it
        shortest(self)           the length from which on a file is what the model is: 0
    """
    names = ()
    shapes = ()
    structural = False
    bare = False
    operator = ""
    known = []  # all subclasses with names, or that are structural

    def __init_subclass__(cls):
        if cls.names or cls.structural:
            Adapter.known.append(cls)

    @classmethod
    def fits(cls, module):
        """Whether a module of any class is tried."""
        return _is_shaped(module, cls.shapes)

    def __init__(self, module):
        self.module = module
        self.choice = {}

    def check(self):
        pass

    def tensors(self):
        return {}

    def choices(self):
        return [{}]

    def reference(self):
        return contextlib.nullcontext()

    def results(self, output):
        return output

    def note(self):
        """What a user should know of the replacement; "" for nothing."""
        return ""

    def shortest(self):
        return 0

    def forward(self, *args, **kwargs):
        raise NotImplementedError

    def tensor(self, name):
        return getattr(self.module, PREFIX + name)

    def install(self):
        """The tensors become buffers, so that an export sees weights, not constants."""
        with torch.no_grad():
            for name, tensor in self.tensors().items():
                self.module.register_buffer(PREFIX + name, tensor.detach().contiguous(),
                                            persistent=False)

    def remove(self):
        for name in [n for n in self.module._buffers if n.startswith(PREFIX)]:
            delattr(self.module, name)


@dataclass(frozen=True)
class Companion:
    """A method of a surrounding module that is replaced, too, when all modules of
    `adapter`, one or a tuple of them, inside it are."""
    name: str
    method: str
    adapter: type | tuple
    function: object


COMPANIONS = []


def companion(name, method, adapter):
    """Decorates f(self, …), the replacement of `method` of classes called `name`."""
    def register(function):
        COMPANIONS.append(Companion(name, method, adapter, function))
        return function
    return register


@dataclass
class Entry:
    """One module of the plan."""
    path: str
    module: torch.nn.Module
    adapter: Adapter
    reason: str = ""  # why it stays as it is
    error: float = 0.0  # the largest of the probe
    probes: int = 0
    taken: bool = False
    rounds: bool = False  # it agrees in double alone: its own rounding is large
    named: bool = True  # the adapter knows its class, not its structure alone
    failures: dict = field(default_factory=dict)  # choice number: reason

    @property
    def kind(self):
        return type(self.module).__name__

    def line(self):
        if self.taken:
            return (f"{self.path or '(model)'} ({self.kind}): {self.adapter.operator}"
                    f"{self.adapter.choice or ''}, probe {self.error:.1e}"
                    f"{self.adapter.note()}")
        return f"{self.path or '(model)'} ({self.kind}): kept, {self.reason}"


def load():
    """Imports all of adapters/; the adapter classes."""
    from . import adapters
    for module in pkgutil.iter_modules(adapters.__path__):
        importlib.import_module(f"{adapters.__name__}.{module.name}")
    return Adapter.known


def _is_of(module, names, bare=False):
    """Whether it is of a class of these qualified names, or of one that derives from it;
    `bare`: the last part of a name alone will do."""
    full = {f"{k.__module__}.{k.__qualname__}" for k in type(module).__mro__}
    return any(name in full or bare and name.rpartition(".")[2] == type(module).__name__
               for name in names)


def _has(module, place):
    for name in place.split("."):
        module = getattr(module, name, None)
    return module is not None


def _is_shaped(module, shapes):
    return any(all(_has(module, place) for place in shape) for shape in shapes)


def _checked(path, module, kind):
    entry = Entry(path, module, kind(module), named=_is_of(module, kind.names, kind.bare))
    try:
        entry.adapter.check()
        entry.adapter.install()
    except Mismatch as error:
        entry.reason = str(error)
    except UnsupportedError:  # no file can be what such a model is
        raise
    except Exception as error:  # noqa: BLE001 - a class of that name with other insides
        entry.reason = f"its structure differs: {innermost(error)}"
    return entry


def _entry_of(path, module, kinds):
    """That of the first adapter whose structure it has; else of one that knows its class, or
    its parts and the name without a package, with the reason; else None."""
    refused = None
    mine = [kind for kind in kinds if _is_of(module, kind.names, kind.bare)]
    for kind in (*mine, *kinds):
        if kind in mine or kind.fits(module):
            entry = _checked(path, module, kind)
            if not entry.reason:
                return entry
            if refused is None and (entry.named or type(module).__name__ in kind.names):
                refused = entry
    return refused


def find(model, kinds):
    """One entry for each module that is known; those with a reason stay."""
    entries = [_entry_of(path, module, kinds) for path, module in model.named_modules()]
    return [entry for entry in entries if entry is not None]


def _is_activation(x):
    """A float tensor that is no mask: it has more than two values, none of them huge."""
    if not isinstance(x, torch.Tensor) or not x.is_floating_point() or x.numel() < 3:
        return False
    return bool(x.abs().max() < 1e3) and len(torch.unique(x.flatten()[:1000])) > 2


def _scaled(arguments, factor, seed):
    """Arguments with random numbers of another magnitude for activations; equal ones stay
    equal (queries that are the keys, too)."""
    generator = torch.Generator().manual_seed(seed)
    made = []

    def fresh(x):
        blank = is_blank(x)
        if not blank and not _is_activation(x):
            return x.clone()
        for old, new in made:
            if torch.equal(old, x):
                return new.clone()
        size = factor * (1.0 if blank else x.float().std().item())
        size = max(size, 1.0) if factor > 1 else size  # small numbers tell little
        made.append((x, (torch.randn(x.shape, generator=generator) * size).to(x.dtype)))
        return made[-1][1]
    return _each_tensor(fresh, arguments)


def _each_tensor(function, arguments):
    return _pytree.tree_map(lambda x: function(x) if isinstance(x, torch.Tensor) else x,
                            arguments)


def _difference(got, want):
    """The largest one in units of the largest value; Mismatch where the kind of result is another
    one."""
    got, want = ([x for x in _pytree.tree_leaves(y)] for y in (got, want))
    need(len(got) == len(want), f"it returns {plural(len(want), 'result')}, the operator "
         f"{len(got)}")
    worst = 0.0
    for a, b in zip(got, want):
        if not isinstance(b, torch.Tensor):
            continue
        need(isinstance(a, torch.Tensor) and a.shape == b.shape and a.dtype == b.dtype,
             f"a result is {tuple(b.shape)}, the operator's differs")
        a, b = a.double(), b.double()
        off = torch.where(a.isnan() & b.isnan(), 0.0, (a - b).abs()).nan_to_num(torch.inf)
        if off.numel():
            worst = max(worst, off.max().item() / max(1e-30, b.nan_to_num().abs().max().item()))
    return worst


class _Probe:
    """Hooks one module: compares on its calls, and chooses among the adapter's choices."""

    def __init__(self, entry):
        self.entry, self.calls, self.busy, self.kept = entry, 0, False, None
        self.choices = list(entry.adapter.choices())
        self.errors = [0.0] * len(self.choices)

    def before(self, module, args, kwargs):
        if not self.busy and self.calls < CALLS:
            self.kept = _each_tensor(torch.Tensor.clone, (args, kwargs))

    def after(self, module, args, kwargs, output):
        if self.busy or self.kept is None:
            return
        self.busy, self.calls = True, self.calls + 1
        try:
            self._compare(self.kept)
            for seed, factor in enumerate((0.3, 3.0)):
                self._compare(_scaled(self.kept, factor, seed + 1))
        finally:
            self.busy, self.kept = False, None

    def _compare(self, arguments):
        entry = self.entry
        want = self._run(entry.module.forward, arguments)
        for number, choice in enumerate(self.choices):
            if number in entry.failures:
                continue
            entry.adapter.choice = choice
            try:
                error = _difference(self._run(entry.adapter.forward, arguments), want)
                if error > TOLERANCE:
                    error = min(error, self._in_double(arguments))
                    entry.rounds = entry.rounds or error <= TOLERANCE
                need(error <= TOLERANCE, f"the probe differs by {error:.1e}")
                self.errors[number] = max(self.errors[number], error)
            except Mismatch as reason:
                entry.failures[number] = str(reason)
            except ConvertError as reason:  # what the user wrote
                entry.failures[number] = str(reason)
            except Exception as reason:  # noqa: BLE001 - operands of other shapes
                entry.failures[number] = f"the probe fails: {innermost(reason)}"
        entry.probes += 1

    def _run(self, forward, arguments):
        args, kwargs = _each_tensor(torch.Tensor.clone, arguments)
        with self.entry.adapter.reference():
            return self.entry.adapter.results(forward(*args, **kwargs))

    def _in_double(self, arguments):
        """The same without the rounding of upstream, which may be large: of float16, or of a
        sum of exponentials at -1e5. Infinite where the module does not run in double."""
        module = self.entry.module
        kinds = {x.dtype for x in (*module.parameters(), *module.buffers())
                 if x.is_floating_point()} or {torch.float32}
        if len(kinds) > 1 or not kinds <= SHORT:
            return torch.inf
        arguments = _each_tensor(lambda x: x.double() if x.dtype in SHORT else x, arguments)
        module.double()
        try:
            return _difference(self._run(self.entry.adapter.forward, arguments),
                               self._run(module.forward, arguments))
        except Exception:  # noqa: BLE001
            return torch.inf
        finally:
            module.to(*kinds)

    def settle(self):
        entry = self.entry
        left = [n for n in range(len(self.choices)) if n not in entry.failures]
        if not self.calls:
            entry.reason = "the example arguments do not reach it"
        elif not left:
            entry.reason = "; ".join(sorted(set(entry.failures.values())))
        else:
            best = min(left, key=self.errors.__getitem__)  # others may be near it at small numbers
            entry.adapter.choice, entry.error = self.choices[best], self.errors[best]


class Plan:
    """What is replaced in one model. `results`: the model's own, on the example."""

    def __init__(self, model, entries, results):
        self.model, self.entries, self.results = model, entries, results
        inside = ()
        for entry in entries:
            covered = any(entry.path.startswith(path + ".") or path == "" != entry.path
                          for path in inside)
            entry.taken = not entry.reason and not covered
            if covered:
                entry.reason = entry.reason or "a module around it is replaced"
            if entry.taken:
                inside += (entry.path,)

    @property
    def taken(self):
        return [entry for entry in self.entries if entry.taken]

    def lines(self, all_of_them=False):
        """What is replaced, and what of a known package is not; or of any class that is
        called like one."""
        return [entry.line() for entry in self.entries
                if entry.taken or entry.named or all_of_them]

    @contextlib.contextmanager
    def referenced(self):
        """The model itself, but modules that draw numbers draw those of their
        replacements."""
        undo = []
        try:
            for entry in self.taken:
                if type(entry.adapter).reference is not Adapter.reference:
                    _replace(undo, entry.module, "forward", _with_reference(entry))
            yield
        finally:
            _restore(undo)

    @contextlib.contextmanager
    def applied(self):
        """The model with the forwards replaced, as it was afterwards."""
        undo = []
        try:
            for entry in self.taken:
                _replace(undo, entry.module, "forward",
                         with_signature(entry.module, entry.adapter.forward))
            for module, patch in self._companions():
                _replace(undo, module, patch.method, patch.function.__get__(module))
            yield
        finally:
            _restore(undo)

    def close(self):
        for entry in self.entries:
            entry.adapter.remove()

    def _companions(self):
        load()
        for path, module in self.model.named_modules():
            for patch in COMPANIONS:
                if not _is_of(module, (patch.name,)) or not hasattr(module, patch.method):
                    continue
                if patch.method in vars(module):  # the user has one of their own
                    continue
                inner = [e for e in self.entries if isinstance(e.adapter, patch.adapter)
                         and (path == "" or e.path.startswith(path + "."))]
                if inner and all(e.taken for e in inner):
                    yield module, patch


def _replace(undo, module, name, function):
    undo.append((module, name, vars(module).get(name)))
    setattr(module, name, function)


def _restore(undo):
    """What `_replace` found, such as a wrapper of the user's around a forward."""
    for module, name, own in reversed(undo):
        delattr(module, name)
        if own is not None:
            setattr(module, name, own)


def with_signature(module, function):
    """`function` with the parameters of the module's forward: the exporter binds the sizes of a
    model's inputs by those names, and the module may be the model itself."""
    def forward(*args, **kwargs):
        return function(*args, **kwargs)
    forward.__signature__ = inspect.signature(module.forward)
    return forward


def _with_reference(entry):
    original = entry.module.forward

    def forward(*args, **kwargs):
        with entry.adapter.reference():
            return original(*args, **kwargs)
    return forward


def plan(model, args, kwargs, extra=(), known=True):
    """Runs the model once on its example and decides what to replace; `extra`: adapters of
    the user, which come first; `known`: whether those of adapters/ are tried."""
    entries = find(model, (*extra, *(load() if known else ())))
    probes = [_Probe(entry) for entry in entries if not entry.reason]
    hooks = []
    for probe in probes:
        module = probe.entry.module
        hooks += [module.register_forward_pre_hook(probe.before, with_kwargs=True),
                  module.register_forward_hook(probe.after, with_kwargs=True)]
    try:
        with torch.no_grad():
            results = model(*args, **kwargs)
    finally:
        for hook in hooks:
            hook.remove()
    for probe in probes:
        probe.settle()
    return Plan(model, entries, results)
