#!/usr/bin/env python3
"""Write broken models and inputs, and valid twins of them.

usage: make_bad.py OUT

    OUT/<id>/...         the files of one case
    OUT/cases.json       [{id, what, args, exits, says}], args relative to the folder

A case says which exit codes are right and which words the error line must hold.
`exits` with 0 among others: the file may be accepted or refused, but not crash.
"""
import json
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import bad_inputs  # noqa: E402
import bad_limits  # noqa: E402
import bad_models  # noqa: E402
import bad_reports  # noqa: E402
import bad_rules  # noqa: E402
import bad_types  # noqa: E402
import bad_values  # noqa: E402
import bad_work  # noqa: E402


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    out = os.path.abspath(sys.argv[1])
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    cases = []
    for module in (bad_models, bad_values, bad_inputs, bad_rules, bad_types, bad_limits,
                   bad_work, bad_reports):
        for case in module.CASES:
            folder = os.path.join(out, case.name)
            os.makedirs(folder)
            args = case.write(folder)
            cases.append({"id": case.name, "what": case.what, "args": args,
                          "exits": case.exits, "says": case.says})
    names = [case["id"] for case in cases]
    assert len(set(names)) == len(names), "two cases of one name"
    with open(os.path.join(out, "cases.json"), "w", encoding="utf-8") as file:
        json.dump(cases, file, indent=1)
    controls = sum(case["exits"] == [0] for case in cases)
    print(f"{len(cases)} cases, {controls} of them valid twins")
    return 0


if __name__ == "__main__":
    sys.exit(main())
