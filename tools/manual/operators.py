#!/usr/bin/env python3
"""The pages operators/NAME.md of the domain attnrun, and operators/README.md, which lists all
operators: made from `attnrun ops --json`, the head comments of the sources, and the first example
of each reference of the converter (tools/convert/attnrun_convert/refs).

usage: operators.py ATTNRUN [--check]

--check writes nothing and ends with 1 where a page is not what it would write.
"""
import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

import operator_example

ROOT = Path(__file__).resolve().parents[2]
PAGES = Path(__file__).resolve().parent / "operators"
BODIES = "tools/convert/attnrun_convert/refs"

# Parts of a head comment, up to the next one or an empty line.
SECTION = re.compile(r"(?:^|(?<=\s))(Refused|Refuses|Cost|Source): ")
PAREN = r"\((?:[^()]|\([^()]*\))*\)"
TYPE = r"(?:f32|b8|bool|i32 or i64|i32)"
# Of operands that a head comment leaves to heads.h.
HEADS = {"Q": "(batch, q_len, q_heads * dim) or (batch, q_heads, q_len, dim)",
         "K": "(batch, kv_len, kv_heads * dim) or (batch, kv_heads, kv_len, dim)",
         "V": "as K, with v_dim", "Y": "as Q, with v_dim"}


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
            if name and 'OP_ROW_OF("attnrun")' in row:
                found[name[1]] = path
        for name in re.findall(r'^[A-Z]+\(op_\w+, "attnrun", "(\w+)"', text, re.M):
            found[name] = path  # of a row that a macro writes
    return found


def head(path):
    """The head comment without its marks."""
    comment = re.match(r"/\*(.*?)\*/", path.read_text(encoding="utf-8"), re.S)[1]
    return "\n".join(line.removeprefix(" *").removeprefix(" ").rstrip()
                     for line in comment.splitlines()).strip()


def parts(text):
    """(what a head comment describes, {section: its sentences})"""
    found = {}
    while match := SECTION.search(text):
        ends = [m.start() for m in (SECTION.search(text, match.end()),
                                    re.compile(r"\n\n").search(text, match.end())) if m]
        end = min(ends, default=len(text))
        name = "Refused" if match[1].startswith("Refuse") else match[1]
        found[name] = " ".join(text[match.end():end].split())
        text = text[:match.start()].rstrip(" ") + "\n" + text[end:].lstrip("\n ")
    return re.sub(r"\n{3,}", "\n\n", text).strip(), found


def shapes(text, names):
    """{operand: its shape} of the lines of a head comment that describe operands; those with a
    small indent are formulas."""
    lines = text.partition("\n\n")[2] or text
    lines = "\n".join(line for line in lines.splitlines() if not re.match(r" {1,4}\S", line))
    one = "(?:" + "|".join(sorted(map(re.escape, names), key=len, reverse=True)) + ")"
    found = {}
    for match in re.finditer(rf"(?<!\w)({one}(?:, {one})*)\s+(?:{TYPE}\s+)?"
                             rf"({PAREN}(?:(?:,|,?\s+or)\s+{PAREN})*|as [A-Z]\w*[^;:.\n]*|"
                             r"the same(?: (?:for|with) [^;:.\n]*)?|see heads\.h)", lines):
        listed, dims = re.findall(r"\w+", match[1]), re.findall(PAREN, match[2])
        dims = [" ".join(p.split()) for p in dims]
        if "heads.h" in match[2]:
            given = [HEADS[name] for name in listed]
        elif not match[2].startswith("("):
            given = [match[2]] * len(listed)
        elif len(listed) == len(dims) and " or" not in re.sub(PAREN, "", match[2]):
            given = dims
        else:
            given = [" or ".join(dims)] * len(listed)
        for name, shape in zip(listed, given):
            found.setdefault(name, shape)
    if found.get("Q") == HEADS["Q"]:
        found.setdefault("Y", HEADS["Y"])
    return found


def of_name(folder, pattern, name):
    """Files below `folder` that mention the operator's name in quotes."""
    return [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / folder).glob(pattern))
            if f'"{name}"' in path.read_text(encoding="utf-8")]


def operand_rows(operands, shape):
    for x in operands:
        marks = [word for word in ("optional", "variadic") if x[word]]
        form = shape[x["name"]]
        form = f"`{form}`" if form.startswith("(") else form
        yield f"| `{x['name']}` | {x['type']} | {form} | {', '.join(marks)} |"


def default_of(attribute):
    if attribute["required"]:
        return "required"
    if "words" in attribute:
        return f"`{attribute['words'][attribute['default_index']]}`"
    return f"`{attribute['default']}`" if attribute.get("default", "") != "" else "none"


def prose(text, names=()):
    """Sentences of a comment, as Markdown shows them; `names` keep their letters."""
    text = re.sub(r"([*<\[])", r"\\\1", text)
    word = re.match(r"[a-z]{2,}(?![\w.^:])", text)
    return text[:1].upper() + text[1:] if word and word[0] not in names else text


def operands(op, text):
    """The lines of inputs, outputs and types."""
    names = [x["name"] for x in op["inputs"] + op["outputs"]]
    shape = shapes(text, names)
    missing = [name for name in names if name not in shape]
    if missing:
        raise SystemExit(f"{op['name']}: the head comment gives no shape of {missing}")
    lines = ["## Inputs and outputs", "", "| input | type | shape | |", "|---|---|---|---|",
             *operand_rows(op["inputs"], shape), "", "| output | type | shape | |",
             "|---|---|---|---|", *operand_rows(op["outputs"], shape), ""]
    if op["types"]:
        lines += ["Types: " + "; ".join(f"{k} is {', '.join(v)}"
                                        for k, v in op["types"].items()) + ".", ""]
    return lines


def attributes(op):
    if not op["attributes"]:
        return []
    kinds = {a["name"]: " or ".join(f"`{w}`" for w in a["words"]) if "words" in a else a["kind"]
             for a in op["attributes"]}
    unknown = [a["name"] for a in op["attributes"] if "meaning" not in a]
    if unknown:
        raise SystemExit(f"{op['name']}: tools/cli/attribute_texts.def has nothing of {unknown}")
    return ["## Attributes", "", "| name | type | default | meaning |", "|---|---|---|---|",
            *(f"| `{a['name']}` | {kinds[a['name']]} | {default_of(a)} | "
              f"{prose(a['meaning']).replace('|', chr(92) + '|')} |" for a in op["attributes"]), ""]


def page(op, path):
    text = head(path)
    described, section = parts(text)
    for name in ("Refused", "Cost", "Source"):
        if name not in section:
            raise SystemExit(f"{op['name']}: the head comment has no '{name}:'")
    link = path.relative_to(ROOT)
    names = {x["name"] for part in ("inputs", "outputs", "attributes") for x in op[part]}
    lines = [f"# {op['name']}", "", f"Domain `{op['domain']}`, version {op['since']}. Source: "
             f"[{link}](../../../{link}).", "", "```", described.partition(" - ")[2], "```", "",
             *operands(op, text), *attributes(op),
             "## What is refused", "", prose("these are refused: " + section["Refused"], names), "",
             "## Cost", "", f"{op['cost']}. {prose(section['Cost'])}", "",
             "## Paper and upstream", "", prose(section["Source"]), ""]
    twins, upstream = of_name(BODIES, "*.py", op["name"]), of_name("tests/attention",
                                                                   "golden_*.py", op["name"])
    lines += [*operator_example.lines(op["name"]),
              "## Elsewhere", "", "| what | where |", "|---|---|",
              *(f"| PyTorch twin, and source of the function body | [{p}](../../../{p}) |"
                for p in twins),
              *(f"| comparison with upstream code | [{p}](../../../{p}) |" for p in upstream),
              f"| facts of this build | `attnrun ops {op['name']}` |", ""]
    return "\n".join(lines)


def index(ops):
    lines = ["# Operators", "",
             "These tables list all operators of this build by domain, with the opset versions "
             "at which an operator changes. Each operator of the domain `attnrun` has a page, and "
             "`attnrun ops NAME` describes any operator. `tools/manual/operators.py` writes this "
             "page.", ""]
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
