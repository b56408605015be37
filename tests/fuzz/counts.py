#!/usr/bin/env python3
"""Keep the counts of long fuzzing in COUNTS.md: what to run next, and what a run found.

usage: counts.py FILE next TARGET            prints the first seed that was not run
       counts.py FILE add TARGET LOG SECONDS adds a run; LOG is what fuzz_graphs printed,
                                      SECONDS the time of processors

A row of the table is a target; seeds are run once, so the counts of runs add up. A second table
has the sums of what the targets attack.
"""
import re
import sys
from pathlib import Path

HEAD = """# Fuzzing so far

`bash tests/fuzz/run.sh --hours N` adds to this table. A case is one model, and its number is its
seed: `fuzz_graphs --only SEED` with the options of the target makes the same model again.
[run.sh](run.sh) describes the targets.

A finding stays in the sum after it is fixed. A CPU-hour is an hour that a processor spent on the
target and its children, as the kernel counts it. The first 0.35 hours of graphs, packed,
operators, faults, guard, api, files and ort were measured by the clock, on a machine that also ran
other programs. A seed of loader makes all files of one run of libFuzzer.

| target | next seed | cases | ran to the end | findings | CPU-hours |
|---|---|---|---|---|---|
"""
SUMS = """
In all:

| what is attacked | targets | cases | CPU-hours |
|---|---|---|---|
"""
ATTACKED = {
    "the bytes of a model": ("loader",),
    "graphs and their rewriting": ("graphs", "forms"),
    "arrays, configurations, packed files": ("files", "packed"),
    "operators and kernels": ("operators", "sizes", "guard", "faults", "ort"),
    "paths of external data": ("paths",),
    "calls of the C interface": ("api",),
    "the plan of the arena": ("plan",),
}
ROW = re.compile(r"\| (\S+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| ([\d.]+) \|")
SUMMARY = re.compile(r"seeds (\d+) to (\d+), .*?: (\d+) cases, (\d+) ran to the end, "
                     r"(\d+) findings")


def read(path):
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return {m[1]: [int(m[2]), int(m[3]), int(m[4]), int(m[5]), float(m[6])]
            for m in map(ROW.match, text.splitlines()) if m}


def write(path, rows):
    text = HEAD
    for target, (seed, cases, good, findings, hours) in sorted(rows.items()):
        text += f"| {target} | {seed} | {cases} | {good} | {findings} | {hours:.4f} |\n"
    text += SUMS
    for attacked, targets in ATTACKED.items():
        of_it = [row for name, row in rows.items() if name.rpartition("-")[0] in targets]
        text += (f"| {attacked} | {', '.join(targets)} | {sum(row[1] for row in of_it)} | "
                 f"{sum(row[4] for row in of_it):.2f} |\n")
    path.write_text(text, encoding="utf-8")


def main():
    path, command, target = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    rows = read(path)
    row = rows.setdefault(target, [1, 0, 0, 0, 0.0])
    if command == "next":
        print(row[0])
        return 0
    found = SUMMARY.search(Path(sys.argv[4]).read_text(encoding="utf-8", errors="replace"))
    if found is None:
        print(f"{sys.argv[4]}: no summary of fuzz_graphs", file=sys.stderr)
        return 1
    row[0] = max(row[0], int(found[2]))
    for at, number in ((1, found[3]), (2, found[4]), (3, found[5])):
        row[at] += int(number)
    row[4] += float(sys.argv[5]) / 3600
    write(path, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
