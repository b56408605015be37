#!/usr/bin/env python3
"""Run every case of make_bad.py: the exit code, the one line, and nothing written.

usage: run_bad.py ATTNRUN CASES [--only GLOB] [--list] [--messages FILE]

A case passes when the exit code is among the expected ones, a failure says exactly one
line on stderr ("attnrun: ...") that matches the case's expression, a limit that can be raised
comes with a hint how, no sanitizer spoke, the process was not killed, and the folder holds the
same files as before.
"""
import argparse
import collections
import concurrent.futures
import fnmatch
import json
import os
import re
import subprocess
import sys

DEADLINE_S = 60
FIXED_LIMITS = ["dim", "elements", "message_depth", "name_bytes", "rank", "subgraph_depth"]
SANITIZER = re.compile(r"AddressSanitizer|LeakSanitizer|runtime error:|ThreadSanitizer")


def files_below(folder):
    return sorted(os.path.join(base, name) for base, _, names in os.walk(folder)
                  for name in names)


def judge(case, code, stderr, before, after):
    """"" or what is wrong."""
    if SANITIZER.search(stderr):
        line = next(line for line in stderr.splitlines() if SANITIZER.search(line))
        return f"sanitizer: {line[:200]}"
    if code < 0:
        return f"killed by signal {-code}"
    lines = [line for line in stderr.splitlines() if line.strip()]
    if code not in case["exits"]:
        return f"exit code {code}, expected {case['exits']}: {' '.join(lines)[:200]}"
    if before != after:
        return f"wrote {sorted(set(after) - set(before))}"
    if code == 0 or not case["says"]:
        return ""
    lines = [line for line in lines if line.startswith("attnrun: ")]
    if len(lines) != 1:
        return f"{len(lines)} error lines instead of one: {stderr.strip()[:200]!r}"
    if not re.search(case["says"], lines[0], re.IGNORECASE):
        return f"does not say /{case['says']}/: {lines[0][:200]}"
    limit = re.search(r"\(limit '(\w+)'\)", lines[0])
    if limit and limit[1] not in FIXED_LIMITS and f"--limit {limit[1]}=N" not in stderr:
        return f"does not say how to raise the limit: {lines[0][:200]}"
    return ""


def run_case(attnrun, cases, case):
    """(what is wrong, the error line, or the lines of `check` that name a failure)"""
    folder = os.path.join(cases, case["id"])
    before = files_below(folder)
    try:
        done = subprocess.run([attnrun, *case["args"]], cwd=folder, capture_output=True,
                              stdin=subprocess.DEVNULL, timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        return f"still running after {DEADLINE_S} s", ""
    stderr = done.stderr.decode("utf-8", "replace")
    wrong = judge(case, done.returncode, stderr, before, files_below(folder))
    said = [line.strip() for line in done.stdout.decode("utf-8", "replace").splitlines()
            if line.strip().startswith("FAIL")]
    return wrong, f"{done.returncode} {stderr.strip() or chr(10).join(said)}"


def class_of(line):
    """The class of a case, of its exit code and lines: MODEL, LIMIT, ..., or the exit code."""
    said = re.search(r"attnrun: ([A-Z]+): ", line)
    code = line.partition(" ")[0] or "none"
    return "ran" if code == "0" else said[1] if said else f"exit {code}"


def sums(cases, results):
    """One line: how many ended in which class, and what must not be."""
    classes = collections.Counter(class_of(line) for _, line in results)
    faults = [("crashes", "killed by signal|sanitizer"), ("hangs", "still running"),
              ("wrong accepts", "exit code 0, expected")]
    said = [f"{sum(bool(re.match(text, wrong)) for wrong, _ in results)} {name}"
            for name, text in faults]
    bad = sum(bool(wrong) for wrong, _ in results)
    by_class = ", ".join(f"{n} {name}" for name, n in sorted(classes.items()))
    return f"{len(cases) - bad} passed, {bad} failed: {', '.join(said)}; {by_class}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("attnrun")
    parser.add_argument("cases")
    parser.add_argument("--only", default="*")
    parser.add_argument("--list", action="store_true", help="print every error line")
    parser.add_argument("--stop", action="store_true", help="end at the first failure")
    parser.add_argument("--messages", help="write all messages, each with what gives it")
    options = parser.parse_args()
    with open(os.path.join(options.cases, "cases.json"), encoding="utf-8") as file:
        cases = [c for c in json.load(file) if fnmatch.fnmatch(c["id"], options.only)]
    attnrun = os.path.abspath(options.attnrun)
    results, messages = [], []
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = [(c, pool.submit(run_case, attnrun, options.cases, c)) for c in cases]
        for case, job in jobs:
            wrong, line = job.result()
            results.append((wrong, line))
            messages.append(f"{case['what']}: attnrun {' '.join(case['args'])}\n  {line}\n")
            if wrong:
                print(f"FAIL {case['id']} ({case['what']}): {wrong}")
                if options.stop:
                    pool.shutdown(cancel_futures=True)
                    return 1
            elif options.list:
                print(f"PASS {case['id']}: {line[:300]}")
    if options.messages:
        with open(options.messages, "w", encoding="utf-8") as file:
            file.writelines(messages)
    print(sums(cases, results))
    return 1 if any(wrong for wrong, _ in results) or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
