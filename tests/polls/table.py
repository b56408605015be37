"""Writes a table: for each model of operators.txt the most milliseconds between two polls.

usage: table.py PROBE    (a Release build, on an idle machine; nothing is asserted)
"""
import sys
import tempfile

import make_operators
import test_polls


def main(probe):
    print("| ms between two polls | in | reads of the clock | model |\n|---|---|---|---|")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for path, line in make_operators.write(folder):
            phases = test_polls.PHASE.findall(test_polls.run(probe, path))
            worst = max(phases, key=lambda phase: float(phase[4]))
            rows.append((float(worst[4]), worst[0], worst[1], line))
    for ms, phase, reads, line in sorted(rows, reverse=True):
        print(f"| {ms:.1f} | {phase} | {reads} | {line.replace('|', ';')} |")


if __name__ == "__main__":
    main(sys.argv[1])
