#!/usr/bin/env python3
"""Write the table of tools/manual/limits.md again, from the lists in the headers.

usage: limits.py [--check]

With --check nothing is written; exit code 1 where the page says otherwise than the headers.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "tools/manual/limits.md"
LISTS = (("runtime/attnrun.h", "ATTNRUN_LIMIT_LIST", 1), ("tools/io/input_limits.h",
                                                         "TOOL_LIMIT_LIST", 0))
NUMBERS = {"ATTNRUN_MAX_RANK": "8", "INT64_MAX": "9223372036854775807"}


def number(text):
    """Of the C expressions that the lists have: n and n << k."""
    text = re.sub(r"INT64_C\((\d+)\)", r"\1", NUMBERS.get(text, text))
    base, _, shift = text.partition("<<")
    return int(base) << int(shift or 0)


def rows(path, name, skipped):
    text = (ROOT / path).read_text(encoding="utf-8")
    text = text[text.index(f"#define {name}(X)"):]
    text = text[:text.index("\n\n")].replace("\\\n", " ")
    for entry in text.split("X(")[1:]:
        values, _, says = entry.partition('"')
        member, standard, largest = [v.strip() for v in values.split(",")][skipped:-1]
        yield (f"| `{member}` | {number(standard):,} | {number(largest):,} | "
               f"{says.partition(chr(34))[0]} |\n")


def main():
    page = PAGE.read_text(encoding="utf-8")
    head, rule, rest = page.partition("|---|---|---|---|\n")
    table = "".join(row for entry in LISTS for row in rows(*entry))
    made = head + rule + table + "\n" + rest[rest.index("\n- `made_bytes`") + 1:]
    if "--check" in sys.argv[1:]:
        return 0 if made == page else 1
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
