#!/usr/bin/env python3
"""Run the ONNX backend cases through `attnrun check` and compare with what is expected.

usage: run_conformance.py ATTNRUN CASES [--kind KIND] [--every N] [--minimum N] [--update]
                          [-- OPTION OF ATTNRUN...]

CASES is what make_cases.py wrote. expected_failures.txt beside this file lists the cases
that fail today. The list can only shrink: a case that fails without being listed is an
error, and so is a listed case that passes (not so with options of attnrun: another
instruction set may round otherwise). --every N takes one case in N, --update writes the
list anew (reasons of cases that stay are kept). tolerances.txt lists the cases that have
the package's tolerance for their type.
"""
import argparse
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
EXPECTED = os.path.join(HERE, "expected_failures.txt")
TOLERANCES = os.path.join(HERE, "tolerances.txt")
KINDS = ["node", "simple", "pytorch-converted", "pytorch-operator"]
BATCH = 100


def read_expected():
    """name -> reason"""
    expected = {}
    if os.path.exists(EXPECTED):
        with open(EXPECTED, encoding="utf-8") as file:
            for line in file:
                name, _, reason = line.partition("#")
                if name.strip():
                    expected[name.strip()] = reason.strip()
    return expected


def read_tolerances():
    """name -> relative tolerance"""
    with open(TOLERANCES, encoding="utf-8") as file:
        lines = [line.split() for line in file if not line.startswith("#")]
    return {name: float(rtol) for name, rtol in lines}


def names_of(options):
    with open(os.path.join(options.cases, "names.txt"), encoding="utf-8") as file:
        names = file.read().split()
    if options.kind:
        names = [name for name in names if name.split("/")[0] == options.kind]
    return names[:: options.every]


def run_batch(options, names, *more):
    """{name: "" or the reason of the failure}; `more` options of attnrun"""
    folders = {os.path.join(options.cases, name): name for name in names}
    command = [options.attnrun, "check", "--isolate", "--list-passed", "--quiet",
               "--timeout", "20s", *options.rest, *more, *folders]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    results = {}
    for line in done.stdout.splitlines():
        match = re.match(r"(PASS|FAIL) '?(.*?)'?(?:: (.*))?$", line)
        if match and match.group(2) in folders:
            results[folders[match.group(2)]] = match.group(3) or ""
    for name in names:
        results.setdefault(name, f"no answer: exit code {done.returncode} "
                                 f"{done.stderr.strip()[-200:]}")
    return results


def batches_that_fail(attnrun, folders, root):
    """Batches of folders, made below `root`, of which some do not give what is expected; what
    attnrun says of them is shown."""
    bad = 0
    for first in range(0, len(folders), BATCH):
        done = subprocess.run([attnrun, "check", "--isolate", "--quiet", "--timeout", "20s",
                               *folders[first:first + BATCH]], capture_output=True, text=True,
                              check=False)
        if done.returncode:
            bad += 1
            print((done.stdout + done.stderr).replace(root, ""))
    return bad


def write_expected(results, old):
    with open(EXPECTED, "w", encoding="utf-8") as file:
        file.write("# Cases of the onnx package that fail today, with the reason. This list "
                   "can only\n# shrink: when a case passes, its line goes "
                   "(run_conformance.py --update).\n")
        for name in sorted(name for name, reason in results.items() if reason):
            reason = (old.get(name) or results[name]).replace(
                "UNSUPPORTED: 1 operator is", "")
            file.write(f"{name}  # {reason.strip()[:110]}\n")


def report(results, expected, minimum, forgiving):
    """Prints what is not as expected; returns the exit code."""
    failed = {name for name, reason in results.items() if reason}
    broken = sorted(failed - set(expected))
    mended = sorted(name for name in expected if name in results and name not in failed)
    mended = [] if forgiving else mended
    for name in broken:
        print(f"FAIL {name}: {results[name]}")
    for name in mended:
        print(f"PASS {name}: listed as failing; remove its line from "
              "tests/conformance/expected_failures.txt")
    passed = len(results) - len(failed)
    print(f"{passed} of {len(results)} cases pass; {len(broken)} fail unexpectedly, "
          f"{len(mended)} pass unexpectedly")
    if passed < minimum:
        print(f"at least {minimum} must pass")
    return 1 if broken or mended or passed < minimum else 0


def parse():
    arguments = sys.argv[1:]
    rest = []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, rest = arguments[:at], arguments[at + 1:]
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("attnrun")
    parser.add_argument("cases")
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--minimum", type=int, default=0)
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args(arguments)
    options.rest = rest
    return options


def main():
    options = parse()
    names = names_of(options)
    results = {}
    tolerances = read_tolerances()
    plain = [name for name in names if name not in tolerances]
    for begin in range(0, len(plain), BATCH):
        results.update(run_batch(options, plain[begin:begin + BATCH]))
    for rtol in sorted(set(tolerances.values())):
        some = [name for name in names if tolerances.get(name) == rtol]
        if some:
            results.update(run_batch(options, some, "--rtol", str(rtol)))
    expected = read_expected()
    if options.update:
        write_expected(results, expected)
        expected = read_expected()
    return report(results, expected, options.minimum, bool(options.rest))


if __name__ == "__main__":
    sys.exit(main())
