#!/usr/bin/env python3
"""Heads: every C file and table begins with a comment of its own name; the formatter leaves
comments as they are, so that the tables and formulas in them keep their lines.

usage: heads.py ROOT
"""
import os
import re
import sys

from files import text_of, walk


def complaints(root):
    style = text_of(root, ".clang-format")
    if not re.search(r"^ReflowComments: (false|Never)$", style, re.MULTILINE):
        yield ".clang-format: ReflowComments is not false"
    for path in walk(root, (".c", ".h", ".def")):
        start = f"/* {os.path.basename(path)} - "
        if not text_of(root, path).startswith(start):
            yield f"{path}: expected the head '{start}…'"


def main():
    bad = list(complaints(sys.argv[1]))
    for line in bad:
        print(line)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
