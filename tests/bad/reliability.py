#!/usr/bin/env python3
"""Write tests/RELIABILITY.md: the rows of tests/bad/run.sh --full, and the counts of fuzzing.

usage: reliability.py TABLE COUNTS OUT
"""
import platform
import subprocess
import sys
from pathlib import Path

HEAD = """# What was run against attnrun

Written by `bash tests/bad/run.sh --full`. A row is a group of checks; what each one does stands in
the head of its script or test. Machine: {machine}; revision {revision}.

| checks | result | what was counted | seconds |
|---|---|---|---|
"""


def revision():
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                          check=False)
    return done.stdout.strip() or "unknown"


def machine():
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return f"{line.partition(': ')[2]}, Linux {platform.release().partition('-')[0]}"
    return platform.machine()


def main():
    table, counts, out = map(Path, sys.argv[1:4])
    text = HEAD.format(machine=machine(), revision=revision())
    for line in table.read_text(encoding="utf-8").splitlines():
        name, result, said, seconds = line.split("\t")
        text += f"| {name} | {result} | {said.strip().replace('|', '/')} | {seconds} |\n"
    if counts.exists():
        rows = [row for row in counts.read_text(encoding="utf-8").splitlines()
                if row.startswith("|")]
        text += "\nFuzzing so far ([COUNTS.md](fuzz/COUNTS.md)):\n\n" + "\n".join(rows) + "\n"
    out.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
