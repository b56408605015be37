"""Cases of operators from a folder outside the repository.

A case whose name is in samples_open.txt may fail; once it passes, its line must go.

usage: run_samples.py ATTNRUN FOLDER
"""
import subprocess
import sys
from pathlib import Path

OPEN = Path(__file__).with_name("samples_open.txt")
SKIPPED = 77


def passes(attnrun, case):
    result = subprocess.run([attnrun, "check", str(case)], capture_output=True, text=True,
                            timeout=60)
    return result.returncode == 0, (result.stdout + result.stderr).strip()


def main(attnrun, folder):
    if not Path(folder).is_dir():
        print("skipped: there is no folder", folder)
        return SKIPPED
    listed = {line for line in OPEN.read_text().split("\n") if line and line[0] != "#"}
    cases = [case for case in sorted(Path(folder).iterdir())
             if (case / "model.onnx").is_file()]
    n_passed, wrong = 0, 0
    for case in cases:
        good, text = passes(attnrun, case)
        n_passed += good
        if good and case.name in listed:
            print(f"{case.name}: passes now; take its line out of {OPEN.name}")
        elif not good and case.name not in listed:
            print(f"{case.name}: {text}")
        wrong += good == (case.name in listed)
    print(f"{n_passed} of {len(cases)} pass, {len(listed)} listed as open")
    return 1 if wrong or not cases else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
