#!/usr/bin/env python3
"""Change the code in one place at a time, and see whether the tests notice.

usage: mutate_code.py [--n N] [--seed SEED] [--minutes M] [--only SEED] [FILE...]

A mutant is one operator or constant of one line, changed: `<` to `<=`, `&&` to `||`, `+ 1` to
nothing, a constant to the next one, ... Mutant k is made of SEED + k alone, as long as the files
are the same. The sources are copied to build/mutation; there the library is built again with the
mutant, and the near tests of its file run until one fails: then it is killed. A mutant that does
not compile without a warning is not counted. Those that survive are printed with their line, and
written to build/mutation/survivors.txt. FILE: loaders, plan, offsets, heads and masks by default.
Exit code 1 where fewer than 85 % are killed.
"""
import argparse
import glob
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

BAR = 85
HOME = Path("build/mutation")
FILES = ["loaders/*.c", "runtime/plan*.c", "runtime/offsets*.c", "runtime/model_plan.c",
         "ops/attention/core/heads.c", "ops/attention/core/mask_*.c",
         "ops/attention/core/masked.c"]
# What a file's tests are: the pattern of the path, programs of the build folder with arguments.
LOADERS = [[f"test_loaders_{name}"] for name in ("wire_scan", "model", "function", "limits")]
PLAN = [[f"test_runtime_{name}"] for name in
        ("plan", "offsets", "api", "chain", "state", "side_heap", "save_onnx", "packing", "context",
         "edits", "subgraph", "recheck")]
ORACLE = ["oracle", "--every", "3", "tests/attention/golden"]
PYTHON = "build/venv/bin/python"
NEAR = [
    ("loaders/packed", [["test_runtime_packing"], ["test_loaders_limits"], ["pack_cases"], ORACLE]),
    ("loaders/", [*LOADERS, ["test_runtime_save_onnx"], ["test_runtime_packing"],
                  ["test_runtime_faults"], ["bad_cases"]]),
    ("runtime/", [*PLAN, ["test_runtime_faults"], ORACLE]),
    ("ops/", [["test_mask_program"], ["attention_checks", "attention"], ORACLE,
              ["attention_checks", "group_query_attention"], ["attention_checks", "q_attention"],
              ["attention_checks", "decoder_masked_multi_head_attention"],
              ["attention_checks", "local_attention"], ["masks"]]),
]
SCRIPTS = {
    "bad_cases": [PYTHON, "tests/bad/run_bad.py", "{build}/attnrun", "{home}/bad"],
    "pack_cases": [PYTHON, "tests/tools/test_pack.py", "{build}/attnrun"],
    "masks": [PYTHON, "tests/ops/check_masks.py", "{build}/attnrun"],
}
DEADLINE_S = 240
SWAPS = [(r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "), (r" == ", " != "),
         (r" != ", " == "), (r" && ", " || "), (r" \|\| ", " && "), (r" \+ 1\b", ""),
         (r" - 1\b", ""), (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " + "),
         (r"\btrue\b", "false"),
         (r"\bfalse\b", "true"), (r"(?<=[ (\[])!(?=[a-z(])", ""), (r"\+\+", "--"),
         (r"(?<![\w.\"])\d+(?![\w.\"])", None)]
NEVER = re.compile(r"^\s*(#|/?\*|//|static const char|extern|ATTR_|\.)|"
                   r"^(static |const |enum |struct "
                   r")[^;]*\(|\bassert|fail\(|\"|case \d|^\s*(static )?(const )?\w+ \*")


def places(path):
    """(line number, begin, end, text) of all that can be changed."""
    found = []
    comment = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        begins = "/*" in line
        if not comment and not begins and not NEVER.search(line):
            for pattern, swap in SWAPS:
                for m in re.finditer(pattern, line):
                    text = str(int(m[0]) + 1) if swap is None else swap
                    found.append((number, m.start(), m.end(), text))
        comment = (comment or begins) and "*/" not in line
    return found


class Tree:
    """The copy of the sources, and its build."""

    def __init__(self):
        self.build = HOME / "source/build/release"
        HOME.mkdir(parents=True, exist_ok=True)
        names = subprocess.run(["git", "ls-files"], capture_output=True, text=True,
                               check=True).stdout.split("\n")
        for name in filter(None, names):
            to = HOME / "source" / name
            if not to.exists() or to.read_bytes() != Path(name).read_bytes():
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(name, to)
        (HOME / "source/build").mkdir(exist_ok=True)
        for name in ("venv", "data"):
            link = HOME / "source/build" / name
            if not link.is_symlink():
                link.symlink_to(os.path.realpath(f"build/{name}"))
        subprocess.run(["cmake", "-S", HOME / "source", "-B", self.build, "-G", "Ninja",
                        "-DCMAKE_C_COMPILER_LAUNCHER=ccache", "-DCMAKE_C_COMPILER=gcc",
                        "-DATTNRUN_WERROR=ON"], check=True, stdout=subprocess.DEVNULL)
        if not self.make(["attnrun", *self.programs(NEAR)]):
            raise SystemExit("mutate_code.py: the sources themselves do not build")
        subprocess.run([PYTHON, "tests/bad/make_bad.py", HOME / "bad"], check=True,
                       stdout=subprocess.DEVNULL)
        for test in {tuple(t) for _, tests in NEAR for t in tests}:  # else it would kill all
            if not self.passes(test):
                raise SystemExit(f"mutate_code.py: '{' '.join(test)}' fails without a mutant")

    @staticmethod
    def programs(rows):
        return sorted({test[0] for _, tests in rows for test in tests if test[0] not in SCRIPTS})

    def make(self, targets):
        done = subprocess.run(["ninja", "-C", self.build, "-j2", *targets], capture_output=True,
                              check=False)
        return done.returncode == 0

    def passes(self, test):
        command = [part.format(build=self.build, home=HOME) for part in SCRIPTS[test[0]]] \
            if test[0] in SCRIPTS else [str(self.build / test[0]), *test[1:]]
        try:
            return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  stdin=subprocess.DEVNULL, timeout=DEADLINE_S,
                                  check=False).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def killer(self, path):
        """The test that fails, or ""; None where the mutant does not build."""
        tests = next(tests for begin, tests in NEAR if str(path).startswith(begin))
        for test in tests:  # the first ones are fast: what they kill is never linked elsewhere
            target = "attnrun" if test[0] in SCRIPTS else test[0]
            if not self.make([target]):
                return None
            if not self.passes(test):
                return " ".join(test)
        return ""


def mutate(tree, seed, files):
    """(what it is, who killed it)"""
    rng = random.Random(seed)
    path, (number, begin, end, text) = rng.choice(files)
    source = HOME / "source" / path
    whole = source.read_text(encoding="utf-8")
    lines = whole.split("\n")
    old = lines[number]
    lines[number] = old[:begin] + text + old[end:]
    source.write_text("\n".join(lines), encoding="utf-8")
    try:
        return f"{path}:{number + 1}: {old.strip()}  ->  {lines[number].strip()}", tree.killer(path)
    finally:
        source.write_text(whole, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--n", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--only", type=int)
    options = parser.parse_args()
    os.chdir(Path(__file__).resolve().parent.parent)
    names = options.files or sorted(sum((glob.glob(p) for p in FILES), []))
    tree, end = Tree(), time.monotonic() + options.minutes * 60
    files = [(Path(name), place) for name in names for place in places(HOME / "source" / name)]
    seeds = [options.only] if options.only is not None else \
        range(options.seed, options.seed + options.n)
    counted = killed = 0
    survivors = []
    for seed in seeds:
        if time.monotonic() > end:
            break
        what, killer = mutate(tree, seed, files)
        if killer is None:
            continue
        counted += 1
        killed += killer != ""
        if not killer:
            survivors.append(f"{seed}: {what}")
        print(f"{'killed by ' + killer if killer else 'SURVIVED'}: {seed}: {what}", flush=True)
    (HOME / "survivors.txt").write_text("".join(s + "\n" for s in survivors), encoding="utf-8")
    share = 100 * killed / counted if counted else 0
    print(f"{counted} mutants of {len(files)} places, {killed} killed, {share:.0f} %")
    return 1 if share < BAR else 0


if __name__ == "__main__":
    sys.exit(main())
