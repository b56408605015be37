"""Operands of the examples that references declare, and runs of them."""
import onnx
import torch

from .operators import Data


def _shape(value):
    return value.shape if isinstance(value, Data) else value


def _tensor(value, shape, generator):
    if isinstance(value, Data):
        return value.make(generator, tuple(shape))
    return torch.randn(tuple(shape), generator=generator)


def split(operator, example):
    """(operands by name, attributes) of an example."""
    names = {operand.name for operand in operator.inputs}
    values = {k: v for k, v in example.values.items() if k in names}
    attributes = {k: v for k, v in example.values.items() if k not in names}
    operator.attributes_of(attributes)
    return values, attributes


def operands(operator, example, sizes=None, seed=0):
    """Tensors in the operator's order, None where absent; `sizes` {word: size} replaces
    the example's own."""
    values, _ = split(operator, example)
    generator = torch.Generator().manual_seed(seed)
    tensors = []
    for operand in operator.inputs:
        value = values.get(operand.name)
        if value is None:
            if not operand.optional:
                raise ValueError(f"{operator.name}: an example has no {operand.name}")
            tensors.append(None)
        elif isinstance(value, torch.Tensor):
            tensors.append(value)
        else:
            shape = list(_shape(value))
            for axis, word in operand.dims_for(len(shape)).items():
                shape[axis] = (sizes or {}).get(word, shape[axis])
            tensors.append(_tensor(value, shape, generator))
    return tensors


def other_sizes(operator, example):
    """Sizes of a second run: the example's, or one more of B and three more of others;
    None where the example says that there are none."""
    if example.sizes is None:
        return None
    found = {}
    for name, value in split(operator, example)[0].items():
        operand = next(o for o in operator.inputs if o.name == name)
        for axis, word in operand.dims_for(len(_shape(value))).items():
            found[word] = _shape(value)[axis] + (1 if word == "B" else 3)
    return {**found, **example.sizes}


def expected(operator, attributes, tensors):
    """The reference in double."""
    wide = [t.double() if t is not None and t.is_floating_point() else t for t in tensors]
    return [y.float() if y.is_floating_point() else y for y in operator(wide, attributes)]


def write_folder(folder, model, tensors, outputs, tolerance):
    """A test folder as `attnrun check` reads it."""
    data = folder / "test_data_set_0"
    data.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "model.onnx")
    (folder / "tol.txt").write_text("%g %g\n" % tolerance)
    present = [t for t in tensors if t is not None]
    for word, values in (("input", present), ("output", outputs)):
        for i, value in enumerate(values):
            tensor = onnx.numpy_helper.from_array(value.contiguous().numpy())
            (data / f"{word}_{i}.pb").write_bytes(tensor.SerializeToString())
