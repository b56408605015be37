#!/usr/bin/env python3
"""What tests/bad/run.sh says: sums of a log, and tests/RELIABILITY.md of all rows.

usage: reliability.py sum LOG                         one line of what ctest or fuzz/run.sh did
       reliability.py page TABLE COUNTS OUT OPTIONS   the page, of the rows and COUNTS.md
"""
import platform
import re
import subprocess
import sys
from pathlib import Path

HEAD = """# What was run against attnrun

Written by `bash tests/bad/run.sh {options}`.
A row is a group of checks; what each one does stands in the head of its script or test. A row that
failed says why. Machine: {machine}; revision {revision}.

| checks | result | what was counted | minutes |
|---|---|---|---|
"""
# What the programs behind a log say or count, and the name of the sum.
COUNTED = [
    (r"^ *\d+/\d+ Test .* Passed ", "tests passed"),
    (r"^ *\d+/\d+ Test .*(?:\*\*\*|Not Run)", "tests failed"),
    (r"\b(\d+) failures$", "failures injected"),
    (r"stopped (\d+) times", "runs stopped at a poll"),
    (r"(\d+) commands failed as they should", "commands failed as they should"),
    (r"(\d+) cases in \d+ ways each", "models in all ways"),
    (r"refused in all of them\), (\d+) differ", "differ"),
    (r"(\d+) of \d+ models gave the same bits", "models gave the same bits"),
    (r" (\d+) cases, \d+ ran to the end", "cases"),
    (r" cases, (\d+) ran to the end", "ran to the end"),
    (r"ran to the end, (\d+) findings", "findings"),
]
# These are said even where they are 0, beside what they belong to.
BESIDE = {"tests failed": "tests passed", "differ": "models in all ways", "findings": "cases"}


def sums(text):
    """'4 tests passed, 0 tests failed, 1204 failures injected'"""
    found = {}
    for pattern, name in COUNTED:
        numbers = [int(m[1]) if m.lastindex else 1 for m in re.finditer(pattern, text, re.M)]
        if numbers:
            found[name] = sum(numbers)
    said = [f"{found.get(name, 0)} {name}" for _, name in COUNTED
            if found.get(name) or BESIDE.get(name) in found]
    return ", ".join(said) or "nothing is counted"


def revision():
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                          check=False)
    return done.stdout.strip() or "unknown"


def machine():
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return f"{line.partition(': ')[2]}, Linux {platform.release().partition('-')[0]}"
    return platform.machine()


def page(table, counts, options):
    text = HEAD.format(machine=machine(), revision=revision(), options=options)
    for line in table.read_text(encoding="utf-8").splitlines():
        name, result, said, seconds, _ = line.split("\t")
        text += (f"| {name} | {result} | {said.strip().replace('|', '/')} | "
                 f"{int(seconds) / 60:.1f} |\n")
    if counts.exists():
        rows = [row for row in counts.read_text(encoding="utf-8").splitlines()
                if row.startswith("|")]
        text += "\nFuzzing so far ([COUNTS.md](fuzz/COUNTS.md)):\n\n" + "\n".join(rows) + "\n"
    return text


def main():
    if sys.argv[1] == "sum":
        text = Path(sys.argv[2]).read_text(encoding="utf-8", errors="replace")
        print(f"sum: {sums(text)}")
    else:
        table, counts, out = map(Path, sys.argv[2:5])
        out.write_text(page(table, counts, sys.argv[5]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
