#!/usr/bin/env python3
"""Run valid models with some bytes changed: an exit code of the list, one line, no signal.

usage: mutants.py ATTNRUN FOLDER... [--n N] [--seed SEED] [--only SEED --save FILE]

FOLDER: folders of the ONNX backend form, or of such folders. Mutant k is made of the seed
SEED + k alone, as long as the folders are the same. Exit code 1 where a mutant crashes, hangs,
ends with a code that is not in the list (a fault of attnrun's own is not), or says more than one
line.
"""
import argparse
import collections
import concurrent.futures
import os
import random
import subprocess
import sys
import tempfile

DEADLINE_S, LARGEST = 60, 1 << 16
CODES = {0: "ran", 3: "file or model", 4: "not supported", 5: "shape or input",
         6: "limit or memory", 7: "value at run", 124: "time"}


def find_models(folders):
    found = []
    for folder in folders:
        for base, _, names in sorted(os.walk(folder)):
            path = os.path.join(base, "model.onnx")
            if "model.onnx" in names and 0 < os.path.getsize(path) <= LARGEST:
                found.append(path)
    return sorted(found)


def change(data, other, rng):
    """`data` with one to four changes, one of them sometimes a piece of `other`."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at, n = rng.randrange(len(data) + 1), rng.choice((1, 1, 2, 8, 64))
        kind = rng.randrange(7)
        if kind == 0:
            data[at:at + 1] = bytes([rng.randrange(256)])
        elif kind == 1 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            data[at:at + n] = b""
        elif kind == 3:
            data[at:at] = data[at:at + n]
        elif kind == 4:
            begin = rng.randrange(len(other))
            data[at:at + n] = other[begin:begin + n]
        elif kind == 5:
            data[at:at] = rng.choice((b"\xff" * 9 + b"\x01", b"\x00", b"\xff\xff\xff\xff\x0f"))
        elif rng.random() < 0.3:
            del data[at:]
    return bytes(data)


def mutant(seed, models):
    rng = random.Random(seed)
    texts = []
    for path in rng.choices(models, k=2):
        with open(path, "rb") as file:
            texts.append(file.read())
    return change(texts[0], texts[1], rng)


def run(attnrun, seed, models, folder):
    """(exit code, what is wrong)"""
    path = os.path.join(folder, f"{seed}.onnx")
    with open(path, "wb") as file:
        file.write(mutant(seed, models))
    try:
        done = subprocess.run([attnrun, "run", path, "-q", "-n", "1", "--timeout", "5", "-m",
                               "256M"], capture_output=True, stdin=subprocess.DEVNULL,
                              timeout=DEADLINE_S, check=False)
    except subprocess.TimeoutExpired:
        return None, f"still running after {DEADLINE_S} s"
    finally:
        os.unlink(path)
    said = done.stderr.decode("utf-8", "replace")
    lines = [line for line in said.splitlines() if line.startswith("attnrun: ")]
    if done.returncode not in CODES:
        return done.returncode, f"exit code {done.returncode}: {said.strip()[:200]}"
    if done.returncode != 0 and len(lines) != 1:
        return done.returncode, f"{len(lines)} lines: {said.strip()[:200]}"
    return done.returncode, ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("attnrun")
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    parser.add_argument("--save")
    options = parser.parse_args()
    attnrun, models = os.path.abspath(options.attnrun), find_models(options.folders)
    seeds = range(options.seed, options.seed + options.n)
    if options.only is not None:
        seeds = [options.only]
        if options.save:
            with open(options.save, "wb") as file:
                file.write(mutant(options.only, models))
    counts, bad = collections.Counter(), 0
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(2) as pool:
        for seed, (code, wrong) in zip(seeds, pool.map(
                lambda s: run(attnrun, s, models, folder), seeds)):
            counts[CODES.get(code, "wrong")] += 1
            bad += bool(wrong)
            if wrong:
                print(f"FAIL seed {seed}: {wrong}")
    print(", ".join(f"{n} {name}" for name, n in sorted(counts.items())))
    print(f"{len(seeds)} mutants of {len(models)} models, {bad} findings")
    return 1 if bad or not models else 0


if __name__ == "__main__":
    sys.exit(main())
