"""Whether a module gives the same twice, and which part of it does not.

In: a module and its example arguments. Out: nothing, or UnsupportedError with the innermost
module that had equal operands and gave another result, and what to set; or with a part that the
module changed for good.
"""
import contextlib

import torch
from torch.utils import _pytree

from .errors import UnsupportedError


@contextlib.contextmanager
def keeping_parts(module):
    """Raises where a run inside put a part of another class in the place of one, as BigBird does at
    a short text: the module has that from then on, at all sizes, and so would the file."""
    before = dict(module.named_modules())
    yield
    after = dict(module.named_modules())
    for path, part in before.items():
        kind, now = type(part).__name__, type(after.get(path)).__name__
        if kind != now:
            raise UnsupportedError(
                f"when the model ran on the example, it put {now} in the place of {path} ({kind}), "
                f"and from then on it has that at all sizes: give an example at which it keeps "
                f"{kind}, such as a longer one, or make the model with {now}")


def _sums(x):
    """Three sums of a tensor; the last one tells where a number stands."""
    flat = x.double().flatten()
    return (float(flat.sum()), float(flat.abs().sum()),
            float(flat @ torch.arange(flat.numel(), dtype=flat.dtype).cos()))


def _prints(tree):
    """Shape and sums of each tensor: what a call read or gave."""
    return [(tuple(x.shape), *_sums(x)) for x in _pytree.tree_leaves(tree)
            if isinstance(x, torch.Tensor) and not x.is_complex()]


def _near(a, b):
    if len(a) != len(b):
        return False
    return all(p[0] == q[0] and all(
        x == y or x != x and y != y or abs(x - y) <= 1e-6 * max(abs(p[2]), abs(q[2]), 1e-30)
        for x, y in zip(p[1:], q[1:])) for p, q in zip(a, b))


def _recorded(module, args, kwargs):
    """[(path, part, operands, results, whether random numbers were drawn)] of the calls, the
    inner ones first; the result is the last."""
    calls, open_calls, hooks = [], [], []

    def before(part, given, named):
        open_calls.append((_prints((given, named)), torch.get_rng_state()))

    def after(path):
        def hook(part, given, named, output):
            operands, state = open_calls.pop()
            drew = not torch.equal(state, torch.get_rng_state())
            calls.append((path, part, operands, _prints(output), drew))
        return hook
    try:
        for path, part in module.named_modules():
            hooks.append(part.register_forward_pre_hook(before, with_kwargs=True))
            hooks.append(part.register_forward_hook(after(path), with_kwargs=True))
        given, named = _pytree.tree_map(
            lambda x: x.clone() if isinstance(x, torch.Tensor) else x, (args, kwargs))
        with torch.no_grad():
            module(*given, **named)
    finally:
        for hook in hooks:
            hook.remove()
    return calls


def _advice(part, drew):
    for owner, where in ((part, ""), (getattr(part, "config", None), "config.")):
        for name, value in getattr(owner, "__dict__", {}).items():
            if "seed" in name and value is None:
                return f"set {where}{name} to a number"
    if drew:
        return ("make them a buffer or an input, let dropout depend on self.training, or say "
                "--allow-random")
    return "make it start from scratch in each call"


def demand(module, args, kwargs):
    """Raises where two runs on the same arguments differ."""
    first, second = (_recorded(module, args, kwargs) for _ in range(2))
    if not first or not second or _near(first[-1][3], second[-1][3]):
        return
    path, part, _, _, drew = next(
        (a for a, b in zip(first, second)
         if a[0] == b[0] and _near(a[2], b[2]) and not _near(a[3], b[3])), first[-1])
    what = "makes random numbers" if drew else "keeps state of its last run"
    raise UnsupportedError(
        f"{path or 'the model'} ({type(part).__name__}) {what}, so that the model gives "
        f"another result each time it runs: {_advice(part, drew)}")
