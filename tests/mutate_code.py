#!/usr/bin/env python3
"""Change the code in one place at a time, and see whether the tests notice.

usage: mutate_code.py [--n N] [--seed SEED] [--minutes M] [--only SEED] [--build FOLDER]
                      [--built] [FILE...]

A mutant is one operator or constant of one line, changed: `<` to `<=`, `&&` to `||`, `+ 1` to
nothing, a constant to the next one, ... Mutant k is made of SEED + k alone, as long as the files
are the same. Of a mutant one object is compiled, and the near tests of its file are linked with it
in the place of what the library in FOLDER (build/release) has, one after the other until one fails:
then it is killed. The sources and FOLDER stay as they are. A mutant that does not compile without a
warning is not counted. Those that survive are printed with their line, and written to
build/mutation/survivors.txt. What is known of a mutant is kept in build/mutation/results.jsonl, and
a run goes on from there; a mutant of another text of its file, or of other tests, is made again.
Only one run at a time uses the folder. FILE: loaders, plan, offsets, heads and masks by default.
Exit code 1 where fewer than 85 % are killed.
"""
import argparse
import fcntl
import glob
import hashlib
import json
import os
import random
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

BAR = 85
HOME = Path("build/mutation").absolute()
FILES = ["loaders/*.c", "runtime/plan*.c", "runtime/offsets*.c", "runtime/model_plan.c",
         "ops/attention/core/heads.c", "ops/attention/core/mask_*.c",
         "ops/attention/core/masked.c"]
# What a file's tests are: the pattern of the path, programs of the build folder with arguments.
LOADERS = [[f"test_loaders_{name}"] for name in ("model", "function", "from_pb", "wire_scan",
                                                 "limits")]
PLAN = [[f"test_runtime_{name}"] for name in
        ("plan", "offsets", "api", "chain", "state", "side_heap", "save_onnx", "packing", "context",
         "edits", "subgraph", "recheck")]
ORACLE = ["oracle", "--every", "3", "tests/attention/golden"]
PYTHON = os.path.realpath("build/venv") + "/bin/python"
NEAR = [
    ("loaders/packed", [["test_loaders_packed"], ["test_runtime_packing"], ["test_loaders_limits"],
                        ["pack_cases"], ORACLE]),
    ("loaders/save", [["test_runtime_save_onnx"], ["test_loaders_all_parts"],
                      ["test_runtime_faults"]]),
    ("loaders/", [*LOADERS, ["test_runtime_save_onnx"], ["constants"], ["bad_cases"],
                  ["test_loaders_all_parts"], ["test_runtime_faults"], ["test_loaders_packed"]]),
    ("runtime/model_plan", [["test_embed_memory"], ["test_embed_arena"],
                            ["run_need", "tests/attention/golden"], ["test_runtime_state"]]),
    ("runtime/", [*PLAN, ["test_embed_arena"], ["run_need", "tests/attention/golden"],
                  ["test_runtime_faults"], ORACLE]),
    ("ops/", [["test_mask_program"], ["attention_checks", "attention"], ["masks"],
              ["attention_checks", "group_query_attention"], ["attention_checks", "q_attention"],
              ["attention_checks", "decoder_masked_multi_head_attention"],
              ["attention_checks", "local_attention"], ["block_masks"], ORACLE]),
]
SCRIPTS = {  # a program of the build folder, and the test that runs it
    "bad_cases": ("attnrun", ["tests/bad/run_bad.py", "{program}", str(HOME / "bad")]),
    "pack_cases": ("attnrun", ["tests/tools/test_pack.py", "{program}"]),
    "masks": ("attnrun", ["tests/ops/check_masks.py", "{program}"]),
    "block_masks": ("attnrun", ["tests/ops/check_block_masks.py", "{program}"]),
    "constants": ("show_constant", ["tests/loaders/test_tensors.py", "{program}"]),
}
DEADLINE_S = 240
SWAPS = [(r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "), (r" == ", " != "),
         (r" != ", " == "), (r" && ", " || "), (r" \|\| ", " && "), (r" \+ 1\b", ""),
         (r" - 1\b", ""), (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " + "),
         (r"\btrue\b", "false"),
         (r"\bfalse\b", "true"), (r"(?<=[ (\[])!(?=[a-z(])", ""), (r"\+\+", "--"),
         (r"(?<![\w.\"])\d+(?![\w.\"])", None)]
# How often a loop polls is counted by tests/polls, which is none of the near tests; an array with
# room for one more does the same.
NEVER = re.compile(r"^\s*(#|/?\*|//|static const char|extern|ATTR_|\.)|attn_poll|attn_stops|"
                   r"^\s*(static |const |_Alignas\(\d+\) )*(struct )?\w+ \**\w+\[\d+\](;| =)|"
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


def quiet(command, folder=None, **options):
    """Whether a command ends well."""
    try:
        return subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=False,
                              **options).returncode == 0
    except subprocess.TimeoutExpired:
        return False


class Build:
    """A build folder: how it compiles a file and links a program."""

    def __init__(self, folder, built):
        self.folder = folder.absolute()
        self.object, self.links = HOME / "mutant.o", {}
        HOME.mkdir(parents=True, exist_ok=True)
        commands = json.loads((folder / "compile_commands.json").read_text(encoding="utf-8"))
        self.compiles = {os.path.relpath(c["file"]): shlex.split(c["command"]) for c in commands}
        programs = sorted({program_of(test) for _, tests in NEAR for test in tests})
        if not built:
            subprocess.run(["ninja", "-C", folder, *programs], check=True,
                           stdout=subprocess.DEVNULL)
        subprocess.run([PYTHON, "tests/bad/make_bad.py", HOME / "bad"], check=True,
                       stdout=subprocess.DEVNULL)
        for program in programs:
            said = subprocess.run(["ninja", "-C", folder, "-t", "commands", "-s", program],
                                  capture_output=True, text=True, check=True).stdout
            self.links[program] = said.strip().split("\n")[-1]

    def compile(self, path, text):
        """Compiles `text` as the file `path`, with little optimization."""
        source = HOME / path.name
        source.write_text(text, encoding="utf-8")
        command = [word for word in self.compiles[str(path)] if not word.endswith("ccache")]
        command[command.index("-o") + 1] = str(self.object)
        command[command.index("-c") + 1] = str(source)
        for at, word in enumerate(command):
            if word in ("-MF", "-MT"):
                command[at + 1] = str(HOME / "mutant.d")
        names = self.folder / "generated/static_symbols.txt"  # what the library calls op_*
        return quiet([*command, "-O1", "-iquote", str(path.parent.absolute())], self.folder) and \
            quiet(["objcopy", f"--redefine-syms={names}", self.object])

    def passes(self, test):
        """The mutant comes before the library, which has the same symbols: the first ones count."""
        program = program_of(test)
        name = HOME / program
        link = self.links[program].replace(
            f"-o {program} ", f"-o {name} -Wl,--allow-multiple-definition {self.object} ")
        if not quiet(["sh", "-c", link], self.folder):
            return None
        command = [str(name), *test[1:]]
        if test[0] in SCRIPTS:
            command = [PYTHON, *(word.format(program=name) for word in SCRIPTS[test[0]][1])]
        return quiet(command, timeout=DEADLINE_S)


def program_of(test):
    return SCRIPTS[test[0]][0] if test[0] in SCRIPTS else test[0]


def mutate(build, results, seed, files, wins):
    """(what it is, who killed it: "" nobody, None where it does not build)"""
    rng = random.Random(seed)
    path, (number, begin, end, text) = rng.choice(files)
    source = path.read_text(encoding="utf-8")
    lines = source.split("\n")
    old = lines[number]
    lines[number] = old[:begin] + text + old[end:]
    what = f"{path}:{number + 1}: {old.strip()}  ->  {lines[number].strip()}"
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    return what, results.judge(f"{digest} {begin} {what}", lambda: killer_of(
        build, path, "\n".join(lines), wins))


def killer_of(build, path, text, wins):
    if not build.compile(path, text):
        return None
    tests = next(tests for begin, tests in NEAR if str(path).startswith(begin))
    for test in sorted(tests, key=lambda test: -wins.get((path, *test), 0)):
        passed = build.passes(test)
        if passed is None:
            return None
        if not passed:
            wins[(path, *test)] = wins.get((path, *test), 0) + 1
            return " ".join(test)
    return ""


def tests_of_now():
    """The hash of the tests, which may kill what survived older ones."""
    paths = sorted(p for p in Path("tests").rglob("*") if p.suffix in (".c", ".h", ".py", ".def"))
    return hashlib.sha256(b"".join(p.read_bytes() for p in paths)).hexdigest()


class Results:
    """What mutants were judged before, by what they are; others at the same time are kept out."""

    def __init__(self):
        HOME.mkdir(parents=True, exist_ok=True)
        self.lock = open(HOME / "lock", "w", encoding="utf-8")  # held until the end
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise SystemExit("mutate_code.py: another run uses build/mutation") from error
        self.path, self.known, self.tests = HOME / "results.jsonl", {}, tests_of_now()
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        for row in map(json.loads, lines):
            if row["killer"] or row["killer"] is None or row["tests"] == self.tests:
                self.known[row["key"]] = row["killer"]

    def judge(self, key, decide):
        if key not in self.known:
            self.known[key] = decide()
            with open(self.path, "a", encoding="utf-8") as out:
                print(json.dumps({"key": key, "killer": self.known[key], "tests": self.tests}),
                      file=out)
        return self.known[key]


def check_tests(build):
    """A test that fails by itself would kill all."""
    subprocess.run(["gcc", "-x", "c", "-c", "-o", build.object, "/dev/null"], check=True)
    for test in sorted({tuple(t) for _, tests in NEAR for t in tests}):
        if not build.passes(list(test)):
            raise SystemExit(f"mutate_code.py: '{' '.join(test)}' fails without a mutant")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--n", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--only", type=int)
    parser.add_argument("--build", type=Path, default=Path("build/release"))
    parser.add_argument("--built", action="store_true", help="FOLDER is as it must be")
    options = parser.parse_args()
    names = options.files or sorted(sum((glob.glob(p) for p in FILES), []))
    results = Results()
    build, end = Build(options.build, options.built), time.monotonic() + options.minutes * 60
    if options.only is None and not options.built:
        check_tests(build)
    files = [(Path(name), place) for name in names for place in places(Path(name))]
    seeds = [options.only] if options.only is not None else \
        range(options.seed, options.seed + options.n)
    counted = killed = 0
    survivors, wins = [], {}
    for seed in seeds:
        if time.monotonic() > end:
            break
        what, killer = mutate(build, results, seed, files, wins)
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
    os.chdir(Path(__file__).resolve().parent.parent)
    sys.exit(main())
