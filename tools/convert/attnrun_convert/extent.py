"""How long the inputs of a proof must be: beyond every number in the model at which attention
could change.

In: a graph before its masks are replaced, and the module it comes from. Out: lengths. They
are the numbers in comparisons, cuts and shapes; the extents of constants that are cut, or
read at computed places, or have as many rows as columns; windows, chunks and blocks of
operators and of the module's own attributes; the bounds that the exporter assumed of a size.
Sizes of weights are none of them. No torch here.
"""
import numpy

from .fields import array_of, reads_data
from .naming import DOMAIN

LONGEST = 4096  # of what is tried without being told to
COMPARE = {"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "Min", "Max"}
COUNT = {"Mod", "Sub", "Add", "Div", "Range", "Clip", "Trilu", "Slice", "Pad", "Split",
         "Reshape", "Expand", "Tile", "ConstantOfShape"}  # whole numbers alone
WORDS = ("window", "chunk", "block", "bucket", "segment", "landmark", "radius", "band",
         "local", "span", "dilat", "memor", "distance")
INSIDE = ("window", "chunk", "block", "bucket", "global", "landmark", "length", "dilation")


def _whole(array, kinds):
    """Whole numbers above one of a small array."""
    if array is None or array.size > 64 or array.dtype.kind not in kinds:
        return []
    numbers = numpy.abs(array.reshape(-1).astype(numpy.float64))
    return [int(x) for x in numbers if numpy.isfinite(x) and x.is_integer() and 1 < x < 1e9]


def _of_constant(node, place, array):
    """Extents of a constant that a node reads as a mask or a table."""
    square = array.ndim >= 2 and array.shape[-1] == array.shape[-2]
    if node.op_type == "Slice" and place == 0:
        return array.shape
    if node.op_type in ("Gather", "GatherND") and place == 0:
        by_position = reads_data(node.inputs[1]) is None
        return array.shape[:1] if by_position else ()
    if node.op_type in ("MatMul", "Gemm", "Conv") or node.domain == DOMAIN:
        return ()
    return array.shape[-1:] if square else ()


def _of_node(node):
    if node.domain == DOMAIN:
        for name, attribute in node.attributes.items():
            if any(word in name for word in INSIDE):
                value = attribute.value
                total = sum(x for x in (value if isinstance(value, (list, tuple)) else
                                        [value]) if isinstance(x, int) and x > 0)
                yield 2 * total + 1
    if node.op_type in COMPARE | COUNT:
        for operand in node.inputs:
            yield from _whole(array_of(operand), "if" if node.op_type in COMPARE else "i")
    for place, operand in enumerate(node.inputs):
        array = array_of(operand)
        if array is not None and array.size > 1 and array.ndim:
            yield from _of_constant(node, place, array)


def of_model(model):
    """Numbers in an onnx_ir model."""
    return {int(n) for node in model.graph.all_nodes() for n in _of_node(node) if n > 1}


def of_module(module):
    """Whole numbers called like a window, a block or a length among the attributes of a
    module, of those in it, and of their configurations."""
    found = set()
    for part in module.modules():
        if type(part).__module__.startswith("torch."):
            continue
        config = getattr(getattr(part, "config", None), "__dict__", {})
        for name, value in (*vars(part).items(), *config.items()):
            if not any(word in name.lower() for word in WORDS):
                continue
            for number in value if isinstance(value, (list, tuple)) else [value]:
                if type(number) is int and number > 1:
                    found.add(number)
    return found


def lengths_of(model):
    """Names of the sizes that are lengths of attention: of keys, in scores and operators."""
    found = set()
    for node in model.graph.all_nodes():
        value = node.inputs[0] if node.inputs else None
        if node.op_type == "Softmax" and value.shape is not None and len(value.shape):
            found.add(str(getattr(value.shape[-1], "value", "")))
        elif (node.op_type == "Attention" or node.domain == DOMAIN) and value is not None \
                and value.shape is not None and len(value.shape) in (3, 4):
            axes = (1,) if len(value.shape) == 3 else (2, 3)
            found.update(str(getattr(value.shape[a], "value", "")) for a in axes)
    return found - {"", "None"}


def is_prime(n):
    return n > 1 and all(n % d for d in range(2, int(n ** 0.5) + 1))


def goal_of(numbers, say):
    """The largest number that is not beyond LONGEST, or 0; others are said."""
    far = sorted(n for n in numbers if n > LONGEST)
    if far:
        say(f"the model holds the numbers {', '.join(map(str, far[:4]))}"
            f"{', …' if len(far) > 4 else ''}, and the proof ends at a length of {LONGEST}; "
            "longer ones with --at")
    return max((n for n in numbers if n <= LONGEST), default=0)


def far_sizes(base, words, dynamic, n):
    """{name: size} of a case of length n. Of sizes that only occur side by side, such as height and
    width of a map, the first one is n: the others stay as in `base`, or become 1 where the product,
    which is the length then, would be beyond LONGEST."""
    sizes, seen = dict(base), []
    for word in sorted(words):
        where = {name for name, axes in dynamic.items() if word in axes.values()}
        if where not in seen:
            sizes[word] = n
        elif n * sizes.get(word, LONGEST) > LONGEST:
            sizes[word] = 1
        seen.append(where)
    return sizes


def farthest(attempt, reached, goal, say):
    """The case of a length above `goal`, or of the largest that the model runs; None where
    `reached` is that already. attempt(n): a case, or None where the model refuses."""
    above = next(n for n in range(goal + 1, 2 * goal + 3) if is_prime(n))
    for length in (above, 2 * goal, goal):
        case = attempt(length)
        if case is not None:
            return case
    best = None
    while goal - reached > 1:
        middle = (goal + reached) // 2
        case = attempt(middle)
        best, reached, goal = (case, middle, goal) if case else (best, reached, middle)
    say(f"the model itself takes no length above {reached}")
    return best
