#!/usr/bin/env python3
"""Models in f16 and bf16 beside the same model in f32: nodes, arena, packed weights and time.

usage: twins.py ATTNRUN FAMILIES TWINS [--only GLOB] [--rounds N]

FAMILIES holds f32 models (tests/models/make_families.py), TWINS those that
tests/models/run_twins.py made of them. A line of the table is a model in a type: its nodes but
casts and those of f32; arena, packed weights and the smallest time as shares of those of f32.
One thread; the three files take turns, with inputs that `attnrun bench` makes up. Lines are in
the order of times, the worst first.
"""
import argparse
import fnmatch
import json
import os
import subprocess

KINDS = ("f16", "bf16")


def ask(attnrun, *arguments):
    done = subprocess.run([attnrun, *arguments, "--json"], capture_output=True, text=True,
                          errors="replace")
    return json.loads(done.stdout) if done.returncode == 0 else None


def figures(attnrun, path):
    """Nodes but casts, arena and packed bytes; None where the sizes of inputs cannot be made up."""
    plan = ask(attnrun, "plan", path)
    layers = ask(attnrun, "inspect", "--layers", path)
    if plan is None or layers is None:
        return None
    nodes = sum(1 for node in layers["layers"] if node["op_type"] != "Cast")
    return nodes, plan["arena_bytes"], plan["packed_bytes"]


def times(attnrun, paths, rounds):
    """The smallest milliseconds of each file, in turns."""
    best = [float("inf")] * len(paths)
    for _ in range(rounds):
        for i, path in enumerate(paths):
            found = ask(attnrun, "bench", path, "--threads", "1", "--time", "0.3")
            if found is not None:
                best[i] = min(best[i], found["min_ms"])
    return best


def share(part, whole):
    return f"{part / whole:.2f}" if whole else "-"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("attnrun")
    parser.add_argument("families")
    parser.add_argument("twins")
    parser.add_argument("--only", default="*")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    lines = []
    for name in sorted(os.listdir(options.families)):
        paths = [os.path.join(folder, name, "model.onnx") for folder in (
            options.families, *(os.path.join(options.twins, kind) for kind in KINDS))]
        if not fnmatch.fnmatch(name, options.only) or not all(map(os.path.exists, paths)):
            continue
        facts = [figures(options.attnrun, path) for path in paths]
        if None in facts:
            print(f"{name}: no sizes")
            continue
        took = times(options.attnrun, paths, options.rounds)
        for kind, (nodes, arena, packed), ms in zip(KINDS, facts[1:], took[1:]):
            lines.append((ms / took[0], f"| {name} | {kind} | {nodes} | {facts[0][0]} | "
                          f"{share(arena, facts[0][1])} | {share(packed, facts[0][2])} | "
                          f"{took[0]:.3f} | {ms:.3f} | {ms / took[0]:.2f} |"))
    print("| model | type | nodes | in f32 | arena | packed | f32 ms | ms | time |")
    print("|---|---|---|---|---|---|---|---|---|")
    for _, line in sorted(lines, reverse=True):
        print(line)


if __name__ == "__main__":
    main()
