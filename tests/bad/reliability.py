#!/usr/bin/env python3
"""What tests/bad/run.sh says: sums of a log, and tests/RELIABILITY.md of all rows.

usage: reliability.py sum LOG                         one line of what ctest or fuzz/run.sh did
       reliability.py page TABLE COUNTS OUT OPTIONS   the page, of the rows and COUNTS.md

A row of TABLE that was left out stays as OUT has it.
"""
import platform
import re
import subprocess
import sys
from pathlib import Path

HEAD = """# Reliability checks

Written by `bash tests/bad/run.sh {options}` on {machine}, revision {revision}.

Each row is a group of checks. The head of its script or test describes what it does. A row with
FAIL gives the reason. `--rows` runs some of the rows: the others stay as they were, with the day
and the revision at which they ran.

| checks | result | what was counted | minutes | day, revision |
|---|---|---|---|---|
"""
OLD_ROW = re.compile(r"\| (.+?) \| (ok|FAIL) \| (.*) \| [\d.]+ \| (\S+, \w+) \|$", re.M)
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
# These are shown together with what they belong to, even if they are 0.
BESIDE = {"tests failed": "tests passed", "differ": "models in all ways", "findings": "cases"}


def counted(n, name):
    """'1 test passed', '4 tests passed'"""
    noun, space, rest = name.partition(" ")
    return f"{n} {noun.removesuffix('s') if n == 1 else noun}{space}{rest}"


def sums(text):
    """'4 tests passed, 0 tests failed, 1204 failures injected'"""
    found = {}
    for pattern, name in COUNTED:
        numbers = [int(m[1]) if m.lastindex else 1 for m in re.finditer(pattern, text, re.M)]
        if numbers:
            found[name] = sum(numbers)
    said = [counted(found.get(name, 0), name) for _, name in COUNTED
            if found.get(name) or BESIDE.get(name) in found]
    return ", ".join(said) or "nothing was counted"


def revision():
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                          check=False)
    return done.stdout.strip() or "unknown"


def machine():
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return f"{line.partition(': ')[2]}, Linux {platform.release().partition('-')[0]}"
    return platform.machine()


def page(table, counts, old, options):
    text = HEAD.format(machine=machine(), revision=revision(), options=options)
    before = {m[1]: m[0] for m in OLD_ROW.finditer(old)}
    for line in table.read_text(encoding="utf-8").splitlines():
        name, result, said, seconds, _, when = line.split("\t")
        if result != "left out":
            said = said.strip().replace("|", "/")
            text += f"| {name} | {result} | {said} | {int(seconds) / 60:.1f} | {when} |\n"
        else:
            text += before.get(name, f"| {name} | - | was never run | - | - |") + "\n"
    if counts.exists():
        said = counts.read_text(encoding="utf-8")
        text += "\nAll fuzzing so far ([COUNTS.md](fuzz/COUNTS.md)):\n\n" + said[said.index("|"):]
    return text


def main():
    if sys.argv[1] == "sum":
        text = Path(sys.argv[2]).read_text(encoding="utf-8", errors="replace")
        print(f"sum: {sums(text)}")
    else:
        table, counts, out = map(Path, sys.argv[2:5])
        old = out.read_text(encoding="utf-8") if out.exists() else ""
        out.write_text(page(table, counts, old, sys.argv[5]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
