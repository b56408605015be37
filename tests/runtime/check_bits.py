#!/usr/bin/env python3
"""The same bits from 1 to 16 threads and in many processes, whose memory lies at random addresses
and holds other bytes at first.

usage: check_bits.py ATTNRUN FOLDER... [--processes N] [--every K]

FOLDER: folders of the ONNX backend form, or of such folders; every K-th model is taken, with
inputs that its seed makes up, or, where it does not run with those, with the inputs of its folder
(lengths and axes that fit). Each process writes its outputs; the files are compared byte by byte.
Exit code 1 where one differs, or where one does not run at all.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile

DEADLINE_S = 120


def find_models(folders):
    found = []
    for folder in folders:
        for base, _, names in sorted(os.walk(folder)):
            if "model.onnx" in names:
                found.append(os.path.join(base, "model.onnx"))
    return sorted(found)


def inputs_of(attnrun, model):
    """Options that give the inputs of the folder; none where it has others than the model."""
    said = subprocess.run([attnrun, "inspect", "--json", model], capture_output=True, text=True,
                          check=False).stdout
    names = [given["name"] for given in json.loads(said or "{}").get("inputs", [])]
    paths = [os.path.join(os.path.dirname(model), "test_data_set_0", f"input_{k}.pb")
             for k in range(len(names))]
    there = all(os.path.exists(path) for path in paths)
    return [word for pair in zip(names, paths) for word in ("-i", "=".join(pair))] if there else []


def other_memory(k):
    """The environment of process k: where blocks are mapped and how the heap grows is random, and
    glibc fills with another byte what it gives and takes."""
    rng = random.Random(k)
    return {**os.environ, "GLIBC_TUNABLES": ":".join([
        f"glibc.malloc.perturb={1 + k % 255}",
        f"glibc.malloc.mmap_threshold={rng.randrange(1 << 12, 1 << 24)}",
        f"glibc.malloc.top_pad={rng.randrange(1 << 20)}"])}


def digest(attnrun, model, k, path, given=()):
    """The hash of what process k writes, of 1 to 16 threads; "" where it does not run."""
    threads = 1 + k % 16
    done = subprocess.run([attnrun, "run", model, "-q", "-n", "1", "-t", str(threads), "-o", path,
                           *given], capture_output=True, stdin=subprocess.DEVNULL,
                          timeout=DEADLINE_S, env=other_memory(k), check=False)
    if done.returncode != 0 or not os.path.exists(path):
        return ""
    with open(path, "rb") as file:
        text = hashlib.sha256(file.read()).hexdigest()
    os.unlink(path)
    return text


def check(attnrun, model, processes, folder):
    """(whether it ran, what differs)"""
    path, given = os.path.join(folder, f"{abs(hash(model))}.npz"), []
    first = digest(attnrun, model, 0, path)
    if not first:
        given = inputs_of(attnrun, model)
        first = digest(attnrun, model, 0, path, given)
    if not first:
        return False, f"{model} does not run"
    for k in range(1, processes):
        if digest(attnrun, model, k, path, given) != first:
            return False, f"{model}: process {k} gives other bits than the first"
    return True, ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("attnrun")
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args()
    attnrun = os.path.abspath(options.attnrun)
    models = find_models(options.folders)[::options.every]
    ran, wrong = 0, []
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(2) as pool:
        for done, what in pool.map(lambda m: check(attnrun, m, options.processes, folder), models):
            ran += done
            if what:
                wrong.append(what)
                print(f"FAIL {what}")
    print(f"{ran} of {len(models)} models gave the same bits in {options.processes} processes of 1 "
          f"to {min(16, options.processes)} threads, {len(wrong)} did not")
    return 1 if wrong or ran == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
