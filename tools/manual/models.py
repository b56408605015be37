#!/usr/bin/env python3
"""Write tools/manual/models.md, what models run: from the lists of the tests and their pinned
versions.

usage: models.py [--check]

With --check nothing is written; exit code 1 where the page is not what the tests say.
"""
import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "tools/manual/models.md"
EXPORTERS = {"d": "dynamo", "D": "dynamo without optimization", "o": "older"}
MODULES = r"\bnn\.(LSTM|GRU|RNN|Transformer)\b"


def pins(path):
    """{package: version}"""
    text = (ROOT / path).read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w.-]+)==(\S+)$", text, re.M))


def read(path):
    text = (ROOT / path).read_text(encoding="utf-8")
    return text, ast.parse(text)


def constant(tree, name):
    """The value of a dict: expressions as AST."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return {k.value: v for k, v in zip(node.value.keys, node.value.values)}
    raise SystemExit(f"no {name}")


def called(functions, name, seen):
    """The sources of a function and of those that it calls."""
    if name not in functions or name in seen:
        return ""
    seen.add(name)
    text = functions[name]
    return text + "".join(called(functions, other, seen)
                          for other in re.findall(r"\b(\w+)\(", text))


def exported():
    """Rows of the families that torch.onnx.export writes."""
    text, tree = read("tests/models/families.py")
    functions = {n.name: ast.get_source_segment(text, n) for n in tree.body
                 if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    for family, value in constant(tree, "FAMILIES").items():
        function, forms = value.elts
        own = called(functions, function.id, set())
        classes = re.findall(r"\btf\.(\w+)Config\b", own) or re.findall(MODULES, own)[:1]
        forms = [f"{EXPORTERS[form[0]]}, opset {form[1:]}" for form in forms.value.split()]
        shown = ", ".join(dict.fromkeys(classes)) or "written in the test"
        yield f"| `{family}` | {shown} | {'; '.join(forms)} |"


def built():
    """Rows of the language models that the builder of onnxruntime-genai writes."""
    for family, value in constant(read("tests/models/decoders.py")[1], "FAMILIES").items():
        yield f"| `{family}` | {value.elts[0].value.removesuffix('Config')} |"


def versions(packages):
    return [f"| {name} | {version} |" for name, version in packages.items()]


def page():
    tested, tables = pins("tests/requirements.txt"), pins("tests/ml/requirements.txt")
    known = pins("tests/convert/requirements.txt")
    for name in ("setuptools", "einops"):
        known.pop(name)
    kinds = ", ".join(f"`{k}`" for k in constant(read("tests/models/decoders.py")[1], "KINDS"))
    return "\n".join([
        "# What models run", "",
        "The tests export these families with the versions named here, and compare every output "
        "with that of the library that made the model. `attnrun inspect model.onnx --coverage` "
        "shows whether your own model has an operator that is missing. `tools/manual/models.py` "
        "writes this page.", "",
        "## Exported from PyTorch", "",
        f"torch {tested['torch']}, transformers {tested['transformers']}, onnxscript "
        f"{tested['onnxscript']}; `torch.onnx.export` with `dynamo=True` (dynamo) and "
        "`dynamo=False` (older). The table lists what the standard tests export. "
        "`-DATTNRUN_TESTS_FULL=ON` exports each family with both exporters and all opsets that "
        "they accept. The tests also run each family with weights of f16 and bf16.", "",
        "| family | class | exporter and opset |", "|---|---|---|", *exported(), "",
        "## Language models of onnxruntime-genai's builder", "",
        f"The models are built by onnxruntime-genai {tested['onnxruntime-genai']}, each in the "
        f"forms {kinds}. Their tokens are compared with those of transformers "
        f"{tested['transformers']} and ONNX Runtime {tested['onnxruntime']}.", "",
        "| family | class |", "|---|---|", *built(), "",
        "## Pipelines of tables", "", "| package | version |", "|---|---|", *versions(tables), "",
        "## Attention modules of other packages", "",
        "`attnrun convert` knows modules of transformers and of these packages; some packages are "
        "listed because others import them. To export Longformer or LED of transformers without "
        "the converter, set `config.onnx_export = True` first. Without it, the exporters write "
        "strides of another layout, and the file does not compute what the model computes.", "",
        "| package | version |", "|---|---|", *versions(known), "",
        "[models/README.md](../../models/README.md) describes a small model for each attention "
        "system. [recognised.md](recognised.md) shows which exports of plain PyTorch modules "
        "become which operators.", ""])


def main():
    made = page()
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == made else 1
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
