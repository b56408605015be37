"""Operands that are inner values give the bits of operands that are inputs of the model, also where
one value is two operands: an output that takes the memory of an operand, or a view of one, must not
show.
Usage: PYTHONPATH=BUILD/python check_inner_values.py FOLDER...

FOLDER: folders of the ONNX backend form with models of one node, or of such folders. Their inputs
are the caller's memory, which is never overwritten. Each model runs again with copies of them,
Where(c, x, x), which nothing else reads; and for each two operands of one type with one copy for
both, beside a run that gets equal inputs. The same with an operand added to the result: some
operators add it themselves then, and may put the sum in its place.
"""
import itertools
import sys
from pathlib import Path

import attnrun
import numpy as np
from check_batch_walk import cases
from onnx import ModelProto, TensorProto, helper

RANDOM = ("Random", "Bernoulli", "Multinomial", "Dropout")
CONDITION = "attnrun_copies"
# Where has these alone from opset 16 on.
COPIED = {TensorProto.BFLOAT16} | set(range(1, 16)) - {TensorProto.UNDEFINED}


def bits_of(value):
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return {key: bits_of(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [bits_of(one) for one in value]
    return repr(value)


def outcome(model, arrays):
    """(bits of the outputs, what is refused)"""
    try:
        return bits_of(attnrun.Model(model.SerializeToString())(**arrays)), ""
    except (attnrun.Error, ValueError, TypeError) as reason:
        return None, str(reason)


def with_copies(model, same):
    """The model with an inner value for each input; `same`: the input whose copy another one is."""
    made = ModelProto()
    made.CopyFrom(model)
    fixed = {one.name for one in made.graph.initializer}
    given = [one for one in made.graph.input if one.name not in fixed]
    for value in given:
        if value.type.tensor_type.elem_type not in COPIED:
            return None
    copies = {one.name: f"{same.get(one.name, one.name)}_copy" for one in given}
    for node in made.graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = copies.get(name, name)
    nodes = [helper.make_node("Where", [CONDITION, one.name, one.name], [copies[one.name]])
             for one in given if one.name not in same]
    nodes += list(made.graph.node)
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    made.graph.input.append(helper.make_tensor_value_info(CONDITION, TensorProto.BOOL, []))
    for entry in made.opset_import:
        if entry.domain in ("", "ai.onnx"):
            return made if entry.version >= 16 else None
    made.opset_import.append(helper.make_opsetid("", 18))
    return made


def without_shapes(model):
    for value in [*model.graph.input, *model.graph.output]:
        value.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]


def trials(model, arrays):
    """(what is one value, inputs): nothing, or each pair of operands of one type, of the shape of
    either."""
    used = {name for node in model.graph.node for name in node.input}
    yield {}, arrays
    for a, b in itertools.permutations(arrays, 2):
        if a in used and b in used and arrays[a].dtype == arrays[b].dtype:
            yield {b: a}, {**arrays, b: arrays[a]}


def with_sum(model, arrays):
    """The model whose first output has its first operand added, where that may be; else None."""
    made = ModelProto()
    made.CopyFrom(model)
    output, first = made.graph.output[0], next(iter(arrays))
    if arrays[first].dtype != np.float32 or output.type.tensor_type.elem_type != TensorProto.FLOAT:
        return None
    for node in made.graph.node:
        for i, name in enumerate(node.output):
            node.output[i] = "result" if name == output.name else name
    made.graph.node.append(helper.make_node("Add", ["result", first], [output.name]))
    return made


def models(folders):
    for op, model, arrays in cases(folders):
        without_shapes(model)
        yield op, model, arrays
        added = with_sum(model, arrays)
        if added is not None:
            yield f"{op}+Add", added, arrays


def main():
    ran, wrong = 0, 0
    for folder in sys.argv[1:]:
        if not any(Path(folder).rglob("model.onnx")):
            print(f"FAIL no models in {folder}: ctest without -FS makes them first")
            return 1
    for op, model, arrays in models(sys.argv[1:]):
        if op.rpartition(".")[2].startswith(RANDOM):
            continue
        for same, feeds in trials(model, arrays):
            inner = with_copies(model, same)
            expected, refused = outcome(model, feeds)
            if inner is None or expected is None:
                continue
            found, reason = outcome(inner, {**feeds, CONDITION: np.array(True)})
            ran += 1
            if found != expected:
                wrong += 1
                shapes = [(a.dtype.name, a.shape) for a in feeds.values()]
                print(f"FAIL {op} {same or ''} {shapes}: {reason or 'other bits'}")
    print(f"{ran} runs with inner values, {wrong} with other bits")
    return 1 if wrong or ran < 500 else 0


if __name__ == "__main__":
    sys.exit(main())
