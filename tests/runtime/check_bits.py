#!/usr/bin/env python3
"""The same bits from 1 to 16 threads and in many processes, whose memory lies at random addresses
and holds other bytes at first.

usage: check_bits.py ORACLE FOLDER... [--processes N] [--every K]

ORACLE: the program of tests/oracle, of which each process runs all cases and prints a hash of the
outputs of each (--digest). FOLDER: folders of the ONNX backend form, or of such folders, of which
every K-th case is taken. Cases that draw random numbers are left out. Exit code 1 where a hash
differs, where a case is refused by some of the processes, or where none runs.
"""
import argparse
import collections
import concurrent.futures
import os
import random
import subprocess
import sys

DEADLINE_S = 3600


def other_memory(k):
    """The environment of process k: where blocks are mapped and how the heap grows is random, and
    glibc fills with another byte what it gives and takes."""
    rng = random.Random(k)
    return {**os.environ, "GLIBC_TUNABLES": ":".join([
        f"glibc.malloc.perturb={1 + k % 255}",
        f"glibc.malloc.mmap_threshold={rng.randrange(1 << 12, 1 << 24)}",
        f"glibc.malloc.top_pad={rng.randrange(1 << 20)}"])}


def digests(oracle, k, every, folders):
    """{folder of a case: hash of its outputs, or how it was refused} of process k"""
    done = subprocess.run([oracle, "--digest", str(k), "--every", str(every), *folders],
                          capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=DEADLINE_S, env=other_memory(k), check=False)
    if done.returncode != 0:
        sys.exit(f"FAIL process {k}: exit code {done.returncode}: {done.stderr}")
    return {line[line.index(" ") + 1:]: line[:line.index(" ")]
            for line in done.stdout.splitlines()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("oracle")
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args()
    oracle = os.path.abspath(options.oracle)
    seen = collections.defaultdict(collections.Counter)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for found in pool.map(lambda k: digests(oracle, k, options.every, options.folders),
                              range(options.processes)):
            for case, text in found.items():
                seen[case][text] += 1
    wrong = {case for case, texts in seen.items()
             if len(texts) > 1 or texts.total() != options.processes}
    for case in sorted(wrong):
        print(f"FAIL {case}: {dict(seen[case])}")
    ran = sum(not next(iter(texts)).startswith("refused") for texts in seen.values())
    print(f"{ran - len(wrong)} of {len(seen)} models gave the same bits in {options.processes} "
          f"processes of 1 to {min(16, options.processes)} threads, {len(wrong)} did not")
    return 1 if wrong or ran == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
