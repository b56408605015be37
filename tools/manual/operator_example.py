"""operator_example.py - the section "Example" of an operator's page: the first example of its
reference (tools/convert/attnrun_convert/refs) as a script that writes a model of one node, the
command that runs it, and the same operands through the PyTorch twin.

`lines(name)` gives the section; `blocks(page)` gives the three blocks of a written page, which
tests/tools/test_operator_pages.py runs.
"""
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "convert"))

MAX_LITERAL = 64  # elements of an operand that is written out
WIDTH = 96
TYPES = {"torch.float32": "FLOAT", "torch.int32": "INT32"}

MODEL = '''\
import numpy as np
import onnx
from onnx import helper

rng = np.random.default_rng(0)
inputs = {{
{inputs},
}}
{node}
graph = helper.make_graph(
    [node], "example",
    [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
     for name, x in inputs.items()],
    [{outputs}])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("attnrun", 1)],
                            ir_version=10), "example.onnx")
np.savez("example.npz", **inputs)'''
RUN = "attnrun run example.onnx -i example.npz -o result.npz"
TWIN = '''\
import numpy as np
import torch
from attnrun_convert.call import call  # python3 -m pip install tools/convert

inputs = {{name: torch.from_numpy(x) for name, x in np.load("example.npz").items()}}
{call}'''


def operators():
    """{name: operator} of the converter, and its samples."""
    from attnrun_convert import operators as known, samples
    return known.load(), samples


def literal(tensor):
    """A tensor as numpy code, numbers rounded."""
    if tensor.numel() > MAX_LITERAL:
        raise SystemExit(f"an operand of {tuple(tensor.shape)} is too large to be written out")
    dtype = {"torch.bool": "bool"}.get(str(tensor.dtype), f"np.{str(tensor.dtype)[6:]}")
    text = re.sub(r"-?\d+\.\d+(?:e-?\d+)?", lambda m: f"{float(m[0]):.2f}",
                  str(tensor.tolist()))
    return f"np.array({text}, {dtype})"


def operand_code(value, tensor):
    if isinstance(value, tuple):
        return f"rng.standard_normal({value!r}, np.float32)"
    return literal(tensor)


def wrapped(start, words, end):
    """`start`, the words with commas, and `end`, in lines of WIDTH, indented to the bracket."""
    lines, indent = [start], " " * (start.rindex("(") + 1)
    for i, word in enumerate(words):
        word += end if i + 1 == len(words) else ","
        if len(lines[-1]) + 1 + len(word) > WIDTH:
            lines.append(indent + word)
        else:
            lines[-1] += " " + word
    return "\n".join(lines)


def quoted(names):
    """The words of a list of names; None: an operand that is absent."""
    words = [f'"{name or ""}"' for name in names]
    return ["[" + words[0], *words[1:-1], words[-1] + "]"] if len(words) > 1 else [f"[{words[0]}]"]


def folded(code):
    """The code with long lines cut at spaces, all of which are inside of brackets."""
    folds = (textwrap.wrap(line, WIDTH, subsequent_indent=" " * 8, break_long_words=False,
                           break_on_hyphens=False) if len(line) > WIDTH else [line]
             for line in code.splitlines())
    return "\n".join(line for fold in folds for line in fold)


def lines(name):
    """The Markdown lines of the section."""
    known, samples = operators()
    operator = known[name]
    example = operator.examples[0]
    values, attributes = samples.split(operator, example)
    tensors = samples.operands(operator, example)
    given = [(o.name, values[o.name], t) for o, t in zip(operator.inputs, tensors)
             if t is not None]
    last = max(i for i, t in enumerate(tensors) if t is not None)
    present = [o.name if t is not None else None
               for o, t in zip(operator.inputs, tensors)][:last + 1]
    outputs = operator.outputs[:example.outputs]
    inputs = ",\n".join(f'    "{n}": {operand_code(value, t)}' for n, value, t in given)
    attrs = [f"{k}={v!r}" for k, v in attributes.items()]
    node = wrapped(f'node = helper.make_node("{name}",', quoted(present) + quoted(outputs) +
                   ['domain="attnrun"', *attrs], ")")
    results = samples.expected(operator, attributes, tensors)
    made = ",\n     ".join(f'helper.make_tensor_value_info("{o}", onnx.TensorProto.'
                          f'{TYPES[str(y.dtype)]}, None)' for o, y in zip(outputs, results))
    called = [f'inputs["{n}"]' if n else "None" for n in present]
    called += [f"n_outputs={example.outputs}"] if example.outputs > 1 else []
    call = wrapped(f'{", ".join(outputs)} = call("{name}",', called + attrs, ")")
    return ["## Example", "", "A model of one node, with small operands:", "", "```python",
            folded(MODEL.format(inputs=inputs, node=node, outputs=made)), "```", "",
            "The command line runs it:", "", "```sh", RUN, "```", "",
            "The PyTorch twin computes the same. Inside a module, `attnrun_convert.convert`",
            "exports the call as this node:", "", "```python",
            folded(TWIN.format(call=call)), "```", ""]


def blocks(page):
    """(script that writes the model, command, script of the twin) of a page."""
    section = page.partition("## Example\n")[2].partition("\n## ")[0]
    found = re.findall(r"```(python|sh)\n(.*?)\n```", section, re.S)
    if [kind for kind, _ in found] != ["python", "sh", "python"]:
        raise ValueError("the page has no example of three blocks")
    return tuple(text for _, text in found)
