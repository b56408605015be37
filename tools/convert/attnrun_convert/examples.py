"""--example: inputs of a factory's module, from a line such as ids=int64[1,S]."""
import re

import numpy
import torch

from . import steady
from .errors import FileError, UnsupportedError, UsageError

FORM = re.compile(r"([A-Za-z_]\w*)=(\w+)\[([^\]]*)\](?:=(.+))?$")
FROM_FILE = re.compile(r"([A-Za-z_]\w*)=@(.+)$")
SIZE = 64  # of a symbol that --size does not give; 2 on axis 0
HELP = ("name=dtype[dims], a dim is a number or a name, which stays free: ids=int64[1,S]; "
        "then =zeros, =ones, =LOW..HIGH (whole numbers, HIGH left out); or name=@file.npy")


def _dtype(word):
    short = {"float": "float32", "f32": "float32", "f16": "float16", "bf16": "bfloat16",
             "i64": "int64", "i32": "int32", "int": "int64"}
    dtype = getattr(torch, short.get(word, word), None)
    if not isinstance(dtype, torch.dtype):
        raise UsageError(f"--example: there is no type '{word}'")
    return dtype


def _shape(text, sizes, name):
    """(sizes, {axis: symbol})"""
    shape, words = [], {}
    for axis, dim in enumerate(d.strip() for d in text.split(",") if d.strip()):
        if dim.isdigit():
            shape.append(int(dim))
        elif dim.isidentifier():
            words[axis] = dim
            shape.append(sizes.setdefault(dim, 2 if axis == 0 else SIZE))
        else:
            raise UsageError(f"--example: '{dim}' of {name} is neither a number nor a name")
    return shape, words


def _values(dtype, shape, how, generator):
    if how is None:
        if dtype.is_floating_point:
            return torch.randn(shape, generator=generator).to(dtype)
        return torch.randint(0, 2, shape, generator=generator).to(dtype)
    if how in ("zeros", "ones"):
        return getattr(torch, how)(shape, dtype=dtype)
    low, dots, high = how.partition("..")
    try:
        assert dots
        return torch.randint(int(low), int(high), shape, generator=generator).to(dtype)
    except (AssertionError, ValueError, RuntimeError) as error:
        raise UsageError(f"--example: '={how}' is not one of zeros, ones, LOW..HIGH"
                         ) from error


def _from_file(path):
    try:
        return torch.from_numpy(numpy.load(path, allow_pickle=False))
    except OSError as error:
        raise FileError(f"--example: cannot read {path}: {error.strerror or error}") from error
    except (ValueError, EOFError, TypeError) as error:
        raise FileError(f"--example: {path} is not a .npy file of numbers") from error


def parse(lines, sizes, seed=0):
    """({name: tensor}, {name: {axis: symbol}}, names of the whole-number inputs whose
    values were not said)"""
    generator = torch.Generator().manual_seed(seed)
    arguments, dynamic, open_ids = {}, {}, []
    for line in lines:
        file = FROM_FILE.match(line)
        if file:
            arguments[file[1]] = _from_file(file[2])
            continue
        found = FORM.match(line)
        if not found:
            raise UsageError(f"--example '{line}' is not of the form {HELP}")
        name, word, dims, how = found.groups()
        dtype = _dtype(word)
        shape, words = _shape(dims, sizes, name)
        arguments[name] = _values(dtype, shape, how, generator)
        if words:
            dynamic[name] = words
        if how is None and not dtype.is_floating_point and dtype != torch.bool:
            open_ids.append(name)
    return arguments, dynamic, open_ids


def fill_ids(module, arguments, names, seed=0):
    """Ids within the table that they index: one pass with zeros and ones shows which. An
    input that indexes none keeps zeros and ones, as masks have."""
    tables, hooks = {}, []

    def look(table, args):
        for name in names:
            if args and args[0] is arguments[name] or (
                    args and isinstance(args[0], torch.Tensor)
                    and args[0].data_ptr() == arguments[name].data_ptr()):
                tables[name] = min(tables.get(name, table.num_embeddings),
                                   table.num_embeddings)
    for table in module.modules():
        if isinstance(table, torch.nn.Embedding):
            hooks.append(table.register_forward_pre_hook(look))
    try:
        with torch.no_grad(), steady.keeping_parts(module):
            module(**arguments)
    except UnsupportedError:
        raise
    except Exception:  # noqa: BLE001 - the conversion says it in its own words
        return
    finally:
        for hook in hooks:
            hook.remove()
    generator = torch.Generator().manual_seed(seed + 1)
    for name, size in tables.items():
        old = arguments[name]
        arguments[name] = torch.randint(0, size, old.shape, generator=generator).to(old.dtype)
