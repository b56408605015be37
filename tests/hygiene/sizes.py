#!/usr/bin/env python3
"""Sizes: files of at most 600 lines, lines of at most 100 columns; long functions warn.

usage: sizes.py ROOT

Tables (*.def), data and generated text are exempt; the public header may have more lines.
clang-format breaks C at 90 columns; what it does not break (macros, tables in comments) may
take 100. A function of more than 60 lines is printed, not failed: a kernel that must be longer
says why in its head comment.
"""
import os
import sys

from files import text_of, walk

FILE_LINES, COLUMNS, FUNCTION_LINES = 600, 100, 60
CODE = (".c", ".h", ".py", ".sh", ".cmake")


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
        if len(line.expandtabs(4)) > COLUMNS:
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
    for line in remarks:
        print("remark:", line)
    for line in bad:
        print(line)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
