"""Inputs of other sizes for a module, made of its example arguments, and what the module
gives for them.

Values of an input come from its example: of floats and ids any of them at random, masks (at
most two values) are continued. Sizes: the example's, a prime number above it, a prime number
below it, so that one at least is no multiple of a window or block, one, and such at which the
model's code decides something else than in the example, as it may at a multiple; what the module
itself refuses is left out and said.
"""
from dataclasses import dataclass

import numpy
import torch
from torch.utils import _pytree

from .errors import UsageError, demand_known, first_line
from .extent import LONGEST, far_sizes, farthest, is_prime
from .verify import Case

COUNT = 3
SIDES = 16  # cases of other decisions of the model's code
NEAR = 4  # sizes that are tried for each
ROWS = 64  # of such a case, at most


def array_of(tensor):
    """A numpy array; bfloat16 through ml_dtypes."""
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def size_of(word, sizes):
    """The size called `word`; "past+seq" is a sum of sizes."""
    parts = [part.strip() for part in word.split("+")]
    return sum(int(part) if part.isdigit() else sizes[part] for part in parts)


def with_fixed(dynamic, sizes):
    """The axes that stay free where some names have one size."""
    found = {}
    for name, axes in dynamic.items():
        for axis, word in axes.items():
            parts = [str(sizes.get(part, part)) for part in word.split("+")]
            if not all(part.isdigit() for part in parts):
                found.setdefault(name, {})[axis] = "+".join(parts)
    return found


def sizes_of(tensors, dynamic):
    """{axis name: size} in the example."""
    found = {}
    for name, axes in dynamic.items():
        for axis, word in axes.items():
            if "+" in word:
                continue
            size = tensors[name].shape[axis]
            if found.setdefault(word, size) != size:
                raise UsageError(f"'{word}' is {found[word]} in one input and {size} on axis "
                                 f"{axis} of '{name}'; give different names to axes that "
                                 "differ")
    return found


def _prime(start, step):
    n = start
    while n > 2 and not is_prime(n):
        n += step
    return max(n, 1)


def trials(sizes, dynamic):
    """Sizes to try in turn."""
    first = {word for axes in dynamic.values() for axis, word in axes.items() if axis == 0}
    others = [word for word in sizes if word not in first]
    base = {word: n + 1 for word, n in sizes.items() if word in first}
    ones = dict.fromkeys(base, 1)

    def each(function, outer):
        return {**outer, **{word: function(sizes[word], i) for i, word in enumerate(others)}}
    above = [each(lambda n, i: _prime(n + n // 2 + 1 + 2 * i, 1), base),
             each(lambda n, i: _prime(n - 1, -1), ones),
             each(lambda n, i: _prime(max(n // 2, 2), 1), base),
             each(lambda n, i: 2 * n, base), each(lambda n, i: 3 * n, ones),
             each(lambda n, i: n, base), each(lambda n, i: n, ones)]
    return [dict(sizes)] + [t for t in above if t != sizes]


def _end_of(tensor):
    """The mark that ends each row of ids and stands nowhere else, as some heads of texts need;
    None where there is none."""
    if tensor.is_floating_point() or tensor.dim() < 2 or tensor.shape[-1] < 2:
        return None
    end = tensor.flatten()[-1]
    only = bool((tensor[..., -1] == end).all()) and not bool((tensor[..., :-1] == end).any())
    return end if only else None


def is_blank(tensor):
    """Whether floats of one value, such as zeros, stand where nobody has numbers: a map or tokens,
    for which a mask has another shape."""
    return (tensor.is_floating_point() and tensor.dim() > 2 and tensor.numel() > 0
            and min(tensor.shape[1:]) > 1 and bool((tensor == tensor.flatten()[0]).all()))


def resampled(tensor, shape, generator):
    """A tensor of another shape with values of this one; random ones where it is blank."""
    if is_blank(tensor):
        return torch.randn(shape, generator=generator).to(tensor.dtype)
    flat = tensor.reshape(-1)
    if flat.numel() == 0:
        return torch.zeros(shape, dtype=tensor.dtype)
    if tensor.dtype == torch.bool or len(torch.unique(flat.float())) <= 2:
        for axis, size in enumerate(shape):
            if axis and size == 1 and tensor.dtype != torch.bool:  # one token alone is not hidden
                tensor = tensor.amax(axis, keepdim=True)
            tensor = tensor.index_select(axis, torch.arange(size) % tensor.shape[axis])
        return tensor
    end = _end_of(tensor)
    if end is not None:
        flat = tensor[..., :-1].reshape(-1)
    made = flat[torch.randint(flat.numel(), tuple(shape), generator=generator)]
    if end is not None:
        made[..., -1:] = end
    return made


def _arguments(given, names, dynamic, sizes, seed):
    """The bound arguments with tensors of these sizes; as they are where `seed` is None."""
    generator = torch.Generator().manual_seed(seed or 0)
    order = iter(names)

    def fresh(x):
        if not isinstance(x, torch.Tensor):
            return x
        name, shape = next(order), list(x.shape)
        for axis, word in dynamic.get(name, {}).items():
            shape[axis] = size_of(word, sizes)
        return x.clone() if seed is None else resampled(x, shape, generator)
    return _pytree.tree_map(fresh, (given.args, given.kwargs))


def tensors_in(tree):
    return [x for x in _pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def _case(function, label, arguments, names, sizes):
    feeds = {name: array_of(x).copy()  # a module may write into its arguments
             for name, x in zip(names, tensors_in(arguments))}
    with torch.no_grad():
        results = function(*arguments[0], **arguments[1])
    return Case(label, feeds, [array_of(y) for y in tensors_in(results)], sizes)


def _tables(function):
    """[(attributes of a module, name, tensor)] of what is no weight of it."""
    if not isinstance(function, torch.nn.Module):
        return []
    return [(held, name, x) for part in function.modules()
            for held in (part._buffers, vars(part)) for name, x in held.items()
            if isinstance(x, torch.Tensor)]


def _grew(tables):
    """Whether a run made a table of the module longer, as some do with positions; it gets the
    old one back."""
    changed = [(held, name, x) for held, name, x in tables
               if getattr(held.get(name), "shape", None) != x.shape]
    for held, name, x in changed:
        held[name] = x
    return bool(changed)


@dataclass
class Reach:
    """How long a proof must go: above `goal`, in the sizes called `lengths` (all but those
    of axis 0 where there are none). Below `least`, the file is known to be other than the model.
    `broken`: which decisions of the model's code are others at some sizes (capture.guards_of)."""
    goal: int = 0
    lengths: frozenset = frozenset()
    least: int = 0
    broken: object = None

    def words(self, sizes, dynamic):
        """The names of lengths."""
        first = {word for axes in dynamic.values() for axis, word in axes.items() if axis == 0}
        return self.lengths & set(sizes) or set(sizes) - first

    def takes(self, trial, sizes, dynamic):
        """Whether no length of a case is below `least`; of the example, `sizes`, some may be."""
        return all(trial[word] >= self.least for word in self.words(sizes, dynamic)
                   if sizes[word] >= self.least)


def _long_case(reach, sizes, dynamic, reached, attempt, say):
    """A case beyond reach.goal, or the longest; None where others have gone there."""
    first = {word for axes in dynamic.values() for axis, word in axes.items() if axis == 0}
    words = reach.words(sizes, dynamic)
    reached = min((max(trial[word] for trial in reached) for word in words), default=0)
    if not words or reached > reach.goal:
        return None
    base = {word: 1 if word in first else n for word, n in sizes.items()}
    return farthest(lambda n: attempt(far_sizes(base, words, dynamic, n)), reached, reach.goal,
                    say)


def _other_sides(reach, sizes, dynamic):
    """{number of a guard: sizes at which it does not hold}, of which one is not as in the example:
    the nearest ones, then those at which the fewest guards do not hold, as the others may be what
    the model demands."""
    lengths, found = reach.words(sizes, dynamic), {}
    for step in range(1, LONGEST):
        for word in sorted(sizes, key=lambda word: word not in lengths):
            for n in (sizes[word] + step, sizes[word] - step):
                trial = {**sizes, word: n}
                if 2 <= n <= LONGEST and reach.takes(trial, sizes, dynamic):
                    numbers = reach.broken(trial)
                    for number in numbers:
                        found.setdefault(number, []).append((len(numbers), trial))
    return {number: [trial for _, trial in (*trials[:NEAR], *sorted(
        trials[NEAR:], key=lambda pair: pair[0])[:NEAR])]
        for number, trials in sorted(found.items())}


def _side_cases(reach, sizes, dynamic, cases, attempt, say):
    """Cases at which the model's code decides otherwise than at the sizes of `cases`; such as are
    too many or too large are said."""
    made, lengths = [], reach.words(sizes, dynamic)
    for number, trials in _other_sides(reach, sizes, dynamic).items():
        if any(number in reach.broken(case.sizes) for case in (*cases, *made)):
            continue
        small = [trial for trial in trials if all(
            n <= max(ROWS, sizes[word]) or word in lengths for word, n in trial.items())]
        if len(made) < SIDES and small:
            made += [case for case in map(attempt, small) if case is not None][:1]
            continue
        label = ",".join(f"{word}={n}" for word, n in trials[0].items())
        say(f"the model's code may decide otherwise at {label}, where the file is not checked: do "
            f"that with --at {label}")
    return made


def _cases_of_one(reach, sizes, dynamic, cases, attempt):
    """A case for each size that is nowhere one: PyTorch exports as if a free size were two or more,
    and keeps no guard of that."""
    trials = [{**sizes, word: 1} for word in sizes if all(case.sizes[word] != 1 for case in cases)]
    made = [attempt(trial) for trial in trials if reach.takes(trial, sizes, dynamic)]
    return [case for case in made if case is not None]


def make(function, given, names, dynamic, wanted_sizes=None, seed=0, say=print,
         reach=Reach()):
    """COUNT cases of `function`, the example first, one of a length beyond all numbers in the
    model, and some at which its code decides otherwise; `wanted_sizes`: a list of {name: size} in
    place of the chosen ones."""
    example = dict(zip(names, tensors_in((given.args, given.kwargs))))
    sizes = sizes_of(example, dynamic)
    tries = trials(sizes, dynamic) if sizes else [{}] * COUNT
    tries = tries[:1] + [trial for trial in tries[1:] if reach.takes(trial, sizes, dynamic)]
    if wanted_sizes:
        demand_known("--at", {word for wanted in wanted_sizes for word in wanted}, sizes)
        tries = [dict(sizes)] + [{**sizes, **wanted} for wanted in wanted_sizes]
    cases, count = [], len(tries) if wanted_sizes else COUNT
    for number, trial in enumerate(tries):
        if len(cases) == count:
            break
        label = " ".join(f"{word}={n}" for word, n in trial.items()) or f"inputs {number}"
        arguments = _arguments(given, names, dynamic, trial,
                               None if number == 0 else seed + number)
        try:
            cases.append(_case(function, label, arguments, names, trial))
        except Exception as error:
            if wanted_sizes or number == 0:
                raise UsageError(f"the model itself fails at {label}: "
                                 f"{first_line(error)}") from error
            say(f"{label}: the model itself refuses it "
                f"({first_line(error)[:100]})")
    if not wanted_sizes and sizes:
        tables = _tables(function)

        def attempt(trial):
            label = " ".join(f"{word}={n}" for word, n in trial.items())
            try:
                case = _case(function, label, _arguments(given, names, dynamic, trial,
                                                         seed + COUNT), names, trial)
            except Exception:  # noqa: BLE001 - a length that the model does not take
                return None
            return None if _grew(tables) else case  # a file has the table that it has
        case = _long_case(reach, sizes, dynamic, [c.sizes for c in cases], attempt, say)
        cases += [case] if case is not None else []
        if reach.broken is not None:
            cases += _side_cases(reach, sizes, dynamic, cases, attempt, say)
            cases += _cases_of_one(reach, sizes, dynamic, cases, attempt)
    return cases
