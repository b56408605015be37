#!/usr/bin/env python3
"""Print what llvm-cov counted, for tests/coverage.sh.

usage: coverage.py table COUNTS.json FILES.txt   a row a folder, and in FILES.txt one a file
       coverage.py missed PATH <TEXT             of `llvm-cov show`: what no run reached of a
                                                 file or folder

Exit code 1 where a folder is below BARS.
"""
import json
import os
import re
import sys
from pathlib import Path

BARS = {"loaders": (95, 90), "runtime": (95, 90), "ops": (95, 0)}  # lines, branches in percent


def percent(counts):
    return 100 * counts["covered"] / counts["count"] if counts["count"] else 100.0


def table(counts, files):
    root = Path.cwd()
    folders = {name: {"lines": [0, 0], "branches": [0, 0]} for name in BARS}
    rows = []
    for file in json.loads(Path(counts).read_text(encoding="utf-8"))["data"][0]["files"]:
        name = Path(os.path.relpath(file["filename"], root))
        if name.parts[0] not in BARS or name.parts[:2] == ("ops", "kernels"):
            continue
        for kind, sums in folders[name.parts[0]].items():
            sums[0] += file["summary"][kind]["covered"]
            sums[1] += file["summary"][kind]["count"]
        rows.append((percent(file["summary"]["lines"]), percent(file["summary"]["branches"]),
                     file["summary"]["lines"]["count"], str(name)))
    with open(files, "w", encoding="utf-8") as out:
        for lines, branches, count, name in sorted(rows):
            out.write(f"{lines:6.2f} % of {count:4} lines {branches:6.2f} % of branches {name}\n")
    said, low = [], False
    for name, sums in folders.items():
        lines, branches = (100 * a / b if b else 0 for a, b in sums.values())
        print(f"{name:8} {lines:6.2f} % of {sums['lines'][1]} lines, "
              f"{branches:6.2f} % of {sums['branches'][1]} branches")
        said.append(f"{name} {lines:.1f} % and {branches:.1f} %")
        low = low or lines < BARS[name][0] or branches < BARS[name][1]
    print("covered, lines and branches: " + ", ".join(said))
    return 1 if low else 0


def missed(wanted):
    line, here = "", False
    for text in sys.stdin:
        text = text.rstrip("\n")
        if re.match(r"/.*:$", text):
            here = os.path.relpath(text[:-1]).startswith(wanted)
        if not here:
            continue
        code = re.match(r"\s*(\d+)\|\s*([\d.]+[kMG]?)\|(.*)", text)
        branch = re.match(r"\s*\|\s+Branch \((\d+):(\d+)\): \[True: (\S+), False: (\S+)\]", text)
        if re.match(r"/.*:$", text):
            print(text)
        elif code:
            line = f"{code[1]:>5} {code[3]}"
            if code[2] == "0":
                print(line)
        elif branch and "0" in (branch[3], branch[4]) and branch[3] != branch[4]:
            never = "true" if branch[3] == "0" else "false"
            print(f"      column {branch[2]} never {never}: {line.strip()[:80]}")


def main():
    if sys.argv[1] == "table":
        return table(sys.argv[2], sys.argv[3])
    missed(sys.argv[2])
    return 0


if __name__ == "__main__":
    sys.exit(main())
