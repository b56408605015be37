#!/usr/bin/env python3
"""Sizes: files of at most 600 lines, lines of at most 90 columns; long functions warn.

usage: sizes.py ROOT

attnrun.h: at most 400 lines without comments and blank lines. Tables (*.def), data and
generated text are exempt. A function of more than 60 lines is printed, not failed: a
kernel that must be longer says why in its head comment.
"""
import os
import re
import sys

from files import text_of, walk

FILE_LINES, COLUMNS, FUNCTION_LINES, HEADER_LINES = 600, 90, 60, 400
CODE = (".c", ".h", ".py", ".sh", ".cmake")


def without_comments(text):
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return [line for line in text.splitlines() if line.strip()]


def functions(lines):
    """(first line number, length) of what starts with { and ends with } in column 0."""
    begin = None
    for number, line in enumerate(lines, 1):
        if line == "{":
            begin = number
        elif line == "}" and begin is not None:
            yield begin - 1, number - begin
            begin = None


def check_file(root, path):
    """[complaint], [remark]"""
    lines = text_of(root, path).splitlines()
    bad, remarks = [], []
    if len(lines) > FILE_LINES and os.path.basename(path) != "attnrun.h":
        bad.append(f"{path}: {len(lines)} lines, at most {FILE_LINES}")
    for number, line in enumerate(lines, 1):
        if len(line.expandtabs(4)) > COLUMNS + 10 or (
                path.endswith((".c", ".h")) and len(line) > COLUMNS + 10):
            bad.append(f"{path}:{number}: {len(line)} columns, at most {COLUMNS}")
    if path.endswith(".c"):
        remarks += [f"{path}:{number}: a function of {length} lines"
                    for number, length in functions(lines) if length > FUNCTION_LINES]
    return bad, remarks


def main():
    root = sys.argv[1]
    bad, remarks = [], []
    for path in walk(root, CODE):
        file_bad, file_remarks = check_file(root, path)
        bad += file_bad
        remarks += file_remarks
    header = len(without_comments(text_of(root, "runtime/attnrun.h")))
    if header > HEADER_LINES:
        bad.append(f"runtime/attnrun.h: {header} lines of code, at most {HEADER_LINES}")
    for line in remarks:
        print("remark:", line)
    for line in bad:
        print(line)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
