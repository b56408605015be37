#!/usr/bin/env python3
"""Write how far the results of each kernel are off, for each instruction set of this machine.

usage: worst.py KERNEL_CHECKS FILE [--seeds N]

N seeds (3) of `kernel_checks --worst`; FILE is a table in Markdown. Exit code 1 where a check
fails.
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path

HEAD = """# The largest errors of kernels

Written by `python3 tests/kernels/worst.py`. The table shows the largest error of each kernel
compared with plain C in double precision. The inputs are random numbers, infinities, NaN,
denormals, and huge and tiny numbers, in all sizes of tests/kernels, with the seeds 1 to {seeds}.

- "1.3 ulp" is a distance in units of the last place of a float.
- "20 %" is the used part of the bound of a sum. The bound grows with the sum of the magnitudes of
  the terms.
- "=" means that all elements are the rounded double result. Kernels of integers, halves and bytes
  that are compared bit by bit also have "=".

A result that is within the absolute tolerance of a function (1e-36 or less, check_elementwise.c)
counts as exact.

"""
LINE = re.compile(r"worst (\w+) (\S+) (\S+) ulp, (\S+) of the bound")


def text(ulp, share):
    parts = [f"{ulp:.2g} ulp"] * (ulp > 0) + [f"{100 * share:.2g} %"] * (share > 0)
    return ", ".join(parts) or "="


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("kernel_checks")
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    worst, isas = {}, []
    for seed in range(1, options.seeds + 1):
        done = subprocess.run([options.kernel_checks, "--worst", "--seed", str(seed)],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"worst.py: seed {seed} fails:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
            return 1
        for kernel, isa, ulp, share in LINE.findall(done.stdout):
            isas += [isa] if isa not in isas else []
            old = worst.setdefault(kernel, {}).get(isa, (0, 0))
            worst[kernel][isa] = (max(old[0], float(ulp)), max(old[1], float(share)))
    rows = [f"| kernel | {' | '.join(isas)} |", "|---" * (len(isas) + 1) + "|"]
    rows += [f"| {kernel} | {' | '.join(text(*of[isa]) if isa in of else '' for isa in isas)} |"
             for kernel, of in sorted(worst.items())]
    options.file.write_text(HEAD.format(seeds=options.seeds) + "\n".join(rows) + "\n",
                            encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
