#!/usr/bin/env python3
"""Run the exported model families through attnrun: results, fusion, plan.

usage: run_models.py ATTNRUN FOLDER [--only GLOB] [--bodies]

FOLDER holds test folders (make_families.py, models/build.py). Each is checked with the
passes, with --no-fusion, and where asked for with function bodies in place of operators;
`attnrun plan` must be within 1.05 of the lower bound, or within 1.10 for the models that
RATIO names.
"""
import argparse
import concurrent.futures
import fnmatch
import json
import os
import subprocess
import sys

RATIO = {}  # folder name -> "why it may reach 1.10"


def check(attnrun, folder, *options):
    """"" or the reason."""
    done = subprocess.run(
        [attnrun, "check", "--isolate", "--quiet", "--timeout", "30s", *options, folder],
        capture_output=True, text=True, errors="replace")
    if done.returncode == 0:
        return ""
    lines = (done.stdout + done.stderr).strip().splitlines()
    reason = lines[0] if lines else f"exit code {done.returncode}"
    return reason.replace("FAIL ", "").replace(folder + ": ", "")


def plan_ratio(attnrun, folder):
    """(ratio or None, reason)"""
    done = subprocess.run(
        [attnrun, "plan", os.path.join(folder, "model.onnx"), "--json"],
        capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        return None, (done.stderr.strip().splitlines() or ["no plan"])[-1]
    plan = json.loads(done.stdout)
    arena, bound = plan["arena_bytes"], plan["lower_bound_bytes"]
    return (arena / bound if bound else 1.0), ""


def run_one(attnrun, folder, *options):
    """[(what, reason)] of what failed, and the ratio."""
    name = os.path.basename(folder)
    runs = {"check": check(attnrun, folder)}
    for option in ("--no-fusion", *options):
        runs[option] = check(attnrun, folder, option)
    failed = [(what, reason) for what, reason in runs.items() if reason]
    ratio, reason = plan_ratio(attnrun, folder)
    if ratio is None:
        failed.append(("plan", reason))
    elif ratio > (1.10 if name in RATIO else 1.05):
        failed.append(("plan", f"arena is {ratio:.3f} of the lower bound"))
    return failed, ratio


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("attnrun")
    parser.add_argument("folder")
    parser.add_argument("--only", default="*")
    parser.add_argument("--bodies", action="store_true")
    options = parser.parse_args()
    more = ["--force-bodies"] if options.bodies else []
    folders = [os.path.join(options.folder, name)
               for name in sorted(os.listdir(options.folder))
               if fnmatch.fnmatch(name, options.only)]
    folders = [f for f in folders if os.path.exists(os.path.join(f, "model.onnx"))]
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = [(f, pool.submit(run_one, options.attnrun, f, *more)) for f in folders]
        for folder, job in jobs:
            failed, ratio = job.result()
            bad += bool(failed)
            for what, reason in failed:
                print(f"FAIL {os.path.basename(folder)} {what}: {reason}")
            if not failed:
                print(f"PASS {os.path.basename(folder)} plan {ratio:.3f}")
    print(f"{len(folders) - bad} passed, {bad} failed")
    return 1 if bad or not folders else 0


if __name__ == "__main__":
    sys.exit(main())
