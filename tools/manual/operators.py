#!/usr/bin/env python3
"""The pages operators/NAME.md of the domain attnrun, and operators/README.md, which lists all
operators: made from `attnrun ops --json` and the head comments of the sources.

usage: operators.py ATTNRUN [--check]

--check writes nothing and ends with 1 where a page is not what it would write.
"""
import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = Path(__file__).resolve().parent / "operators"
BODIES = "tools/convert/attnrun_convert/refs"


def operators(attnrun):
    done = subprocess.run([attnrun, "ops", "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["ops"]


def sources():
    """{operator of domain attnrun: path of the file with its row}"""
    found = {}
    for path in sorted((ROOT / "ops").rglob("*.c")):
        text = path.read_text(encoding="utf-8")
        for row in re.findall(r"attnrun_op_def [a-z_0-9]+ = \{(.*?)\n\};", text, re.S):
            name = re.search(r'\.name = "(\w+)"', row)
            if name and '.domain = "attnrun"' in row:
                found[name[1]] = path
    return found


def head(path):
    """The head comment without its marks."""
    comment = re.match(r"/\*(.*?)\*/", path.read_text(encoding="utf-8"), re.S)[1]
    return "\n".join(line.removeprefix(" *").removeprefix(" ").rstrip()
                     for line in comment.splitlines()).strip()


def of_name(folder, pattern, name):
    """Files below `folder` that mention the operator's name in quotes."""
    return [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / folder).glob(pattern))
            if f'"{name}"' in path.read_text(encoding="utf-8")]


def operand_rows(operands):
    for x in operands:
        marks = [word for word in ("optional", "variadic") if x[word]]
        yield f"| `{x['name']}` | {x['type']} | {', '.join(marks)} |"


def default_of(attribute):
    if attribute["required"]:
        return "required"
    if "words" in attribute:
        return f"`{attribute['words'][attribute['default_index']]}`"
    return f"`{attribute['default']}`" if attribute.get("default", "") != "" else "none"


def page(op, path):
    kinds = {a["name"]: " or ".join(f"`{w}`" for w in a["words"]) if "words" in a else a["kind"]
             for a in op["attributes"]}
    lines = [f"# {op['name']}", "",
             f"Domain `{op['domain']}`, version {op['since']}. Source: "
             f"[{path.relative_to(ROOT)}](../../../{path.relative_to(ROOT)}).", ""]
    if op.get("cost"):
        lines += [f"Cost: {op['cost']}.", ""]
    if op.get("source"):
        lines += [f"Paper: {op['source']}.", ""]
    lines += ["```", head(path), "```", "", "## Operands", "",
              "| input | type | |", "|---|---|---|", *operand_rows(op["inputs"]), "",
              "| output | type | |", "|---|---|---|", *operand_rows(op["outputs"]), ""]
    if op["types"]:
        lines += ["Types: " + "; ".join(f"{k} is {', '.join(v)}"
                                        for k, v in op["types"].items()) + ".", ""]
    if op["attributes"]:
        lines += ["## Attributes", "", "| name | type | default |", "|---|---|---|",
                  *(f"| `{a['name']}` | {kinds[a['name']]} | {default_of(a)} |"
                    for a in op["attributes"]), ""]
    twins, upstream = of_name(BODIES, "*.py", op["name"]), of_name("tests/attention",
                                                                   "golden_*.py", op["name"])
    lines += ["## Elsewhere", "",
              "| what | where |", "|---|---|",
              *(f"| PyTorch twin, and source of the function body | [{p}](../../../{p}) |"
                for p in twins),
              *(f"| comparison with upstream code | [{p}](../../../{p}) |" for p in upstream),
              f"| facts of this build | `attnrun ops {op['name']}` |", ""]
    return "\n".join(lines)


def index(ops):
    lines = ["# Operators", "",
             "All operators of this build by domain, with the opset versions at which they "
             "change; `attnrun ops NAME` describes one. Those of the domain `attnrun` have "
             "pages. Made by `tools/manual/operators.py`.", ""]
    for domain in sorted({op["domain"] for op in ops}):
        if domain == "example" or domain.startswith("attnrun."):
            continue
        lines += [f"## {domain or 'ai.onnx'}", "", "| operator | versions | cost |",
                  "|---|---|---|"]
        names = sorted({op["name"] for op in ops if op["domain"] == domain})
        for name in names:
            rows = [op for op in ops if (op["domain"], op["name"]) == (domain, name)]
            shown = f"[{name}]({name}.md)" if domain == "attnrun" else name
            versions = ", ".join(str(op["since"]) for op in rows)
            lines.append(f"| {shown} | {versions} | {rows[-1].get('cost') or ''} |")
        lines.append("")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("attnrun")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    ops, paths = operators(options.attnrun), sources()
    ours = {op["name"]: op for op in ops if op["domain"] == "attnrun"}
    pages = {f"{name}.md": page(op, paths[name]) for name, op in ours.items()}
    pages["README.md"] = index(ops)
    if options.check:
        there = {p.name: p.read_text(encoding="utf-8") for p in PAGES.glob("*.md")}
        wrong = sorted(n for n in pages.keys() | there.keys() if pages.get(n) != there.get(n))
        print(f"{len(pages) - len(wrong)} passed, {len(wrong)} failed", *wrong)
        return 1 if wrong else 0
    PAGES.mkdir(exist_ok=True)
    for path in PAGES.glob("*.md"):
        path.unlink()
    for name, text in pages.items():
        (PAGES / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
