#!/usr/bin/env python3
"""Change the code in one place at a time, and see whether the tests notice.

usage: mutate_code.py [--n N] [--seed SEED] [--minutes M] [--jobs J] [--only K] [--known]
                      [--build FOLDER] [--quick SECONDS] [--write TABLE] [FILE...]

A mutant is one operator or constant of one line, changed: `<` to `<=`, `&&` to `||`, `+ 1` to
nothing, a constant to the next one, ... All mutants stand in an order that SEED and their own text
decide, so an edit of a file moves no others; the first N that count are judged. FILE: loaders,
plan, offsets, heads and masks by default.

Of a mutant one object is compiled. It is not counted where the compiler has a warning, or makes
the same code of it. Otherwise the near tests of its file are linked with it in the place of what
the library in FOLDER (build/release) has, one after the other until one fails: then it is killed.
The test comes first that killed most per second so far; it has ten times the seconds that it takes
without a mutant. The sources and FOLDER stay as they are.

tests/mutants.txt names those that were read: `equivalent` ones, which no test can notice and which
are not counted, and what each survivor would change. --known judges only these, and fails where an
equivalent one is killed or one is no longer in the sources. --quick runs only the tests that take
at most so many seconds: what survives them is printed, to be read early, and meets the others in a
run without it.

What is known of a mutant is kept in build/mutation/results.jsonl, and a run goes on from there: a
survivor meets the tests that are new or changed, and a mutant of another text of its file is made
again. Only one run at a time uses the folder. --only K: the one in place K of the order. --write:
the table of a whole sample as Markdown. Exit code 1 where fewer than 85 % are killed.
"""
import argparse
import concurrent.futures
import fcntl
import glob
import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

BAR = 85
HOME = Path("build/mutation").absolute()
FILES = ["loaders/*.c", "runtime/plan*.c", "runtime/offsets*.c", "runtime/model_plan.c",
         "ops/attention/core/heads.c", "ops/attention/core/mask_*.c",
         "ops/attention/core/masked.c"]
# What a file's tests are: the pattern of the path, programs of the build folder with arguments.
LOADERS = [[f"test_loaders_{name}"] for name in
           ("model", "function", "from_pb", "wire_scan", "limits", "attrs", "file_kind",
            "name_map", "types")]
PLAN = [[f"test_runtime_{name}"] for name in
        ("plan", "offsets", "api", "chain", "state", "side_heap", "save_onnx", "packing", "context",
         "edits", "subgraph", "recheck", "constants")]
# The same cases each time, with memory that ends at pages nobody may touch.
GUARD = ["fuzz_graphs", "--guard", "--seconds", "600", "--cases", "1500"]
GOLDEN = "tests/attention/golden"
GUARDED = [[*GUARD, GOLDEN], [*GUARD, "--operators", GOLDEN]]
ORACLE = ["oracle", "--every", "3", "tests/attention/golden"]
PYTHON = os.path.realpath("build/venv") + "/bin/python"
NEAR = [
    ("loaders/packed", [["test_loaders_packed_words"], ["test_loaders_packed"],
                        ["test_runtime_packing"], ["test_loaders_limits"],
                        ["pack_cases"], ORACLE, [*GUARD, "--packed", GOLDEN]]),
    ("loaders/save", [["test_runtime_save_onnx"], ["test_loaders_written"], ["edit_cases"],
                      ["edit_branch_cases"],
                      ["test_runtime_faults"]]),
    ("loaders/", [*LOADERS, ["test_runtime_save_onnx"], ["constants"], ["bad_cases"],
                  ["test_runtime_faults"], ["test_loaders_packed"], *GUARDED]),
    ("runtime/model_plan", [["test_embed_memory"], ["test_embed_arena"],
                            ["run_need", "tests/attention/golden"], ["test_runtime_state"]]),
    ("runtime/", [*PLAN, ["test_embed_arena"], ["run_need", "tests/attention/golden"],
                  ["test_runtime_faults"], ORACLE, *GUARDED]),
    ("ops/attention/core/heads", [["test_heads"], ["attention_checks", "top_k_attention"],
                                  ["attention_checks", "attnrun_linear_attention"],
                                  ["attention_checks", "local_attention"], ORACLE, *GUARDED]),
    ("ops/rewrite/provenance", [["test_provenance"]]),
    ("ops/", [["test_mask_known"], ["test_embed_ragged"], ["test_mask_program"],
              ["attention_checks", "attention"], ["masks"],
              ["attention_checks", "group_query_attention"], ["attention_checks", "q_attention"],
              ["attention_checks", "decoder_masked_multi_head_attention"],
              ["attention_checks", "local_attention"], ["block_masks"], ORACLE, *GUARDED]),
]
SCRIPTS = {  # a program of the build folder, and the test that runs it
    "bad_cases": ("attnrun", ["tests/bad/run_bad.py", "{program}", "{home}/bad", "--stop"]),
    "pack_cases": ("attnrun", ["tests/tools/test_pack.py", "{program}"]),
    "edit_cases": ("attnrun", ["tests/tools/test_edit.py", ".", "{program}"]),
    "edit_branch_cases": ("attnrun", ["tests/tools/test_edit_branches.py", ".", "{program}"]),
    "masks": ("attnrun", ["tests/ops/check_masks.py", "{program}", "17", str(HOME)]),
    "block_masks": ("attnrun", ["tests/ops/check_block_masks.py", "{program}"]),
    "constants": ("show_constant", ["tests/loaders/test_tensors.py", "{program}"]),
}
DEADLINE_S = 240
KNOWN = Path("tests/mutants.txt")
MEMORY_KB = 8 << 20  # a mutant may ask for all there is
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


def quiet(command, folder=None, timeout=None):
    """Whether a command ends well; its children end with it."""
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, start_new_session=True,
                          stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                          env={**os.environ, "CMOCKA_TEST_ABORT": "1"}) as process:
        try:
            return process.wait(timeout) == 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return False


class Mutant:
    """One place of one file, changed; `nth` of those with the same text in that file."""

    def __init__(self, path, source, place, seen):
        number, begin, end, text = place
        lines = source.split("\n")
        old = lines[number]
        lines[number] = old[:begin] + text + old[end:]
        self.path, self.text = path, "\n".join(lines)
        self.line, self.old, self.new = number + 1, old.strip(), lines[number].strip()
        name = (str(path), self.old, self.new)
        seen[name] = seen.get(name, 0) + 1
        self.name = (*name, seen[name])
        digest = hashlib.sha256(source.encode()).hexdigest()[:16]
        self.key = f"{digest} {self}"

    def __str__(self):
        return f"{self.path}:{self.line}: {self.old}  ->  {self.new}"


def mutants_of(names, seed):
    """All mutants of the files, in the order that the seed and their text decide."""
    found = []
    for path in map(Path, names):
        seen, source = {}, path.read_text(encoding="utf-8")
        found += [Mutant(path, source, place, seen) for place in places(path)]
    return sorted(found, key=lambda m: hashlib.sha256(repr((seed, m.name)).encode()).digest())


def read_known():
    """{name: (kind, reason)} of tests/mutants.txt."""
    known = {}
    blocks = KNOWN.read_text(encoding="utf-8").split("\n\n")[1:] if KNOWN.exists() else []
    for block in blocks:
        kind, old, new, *reason = block.strip().split("\n")
        kind, path, *nth = kind.split()
        if kind not in ("equivalent", "survivor") or not reason:
            raise SystemExit(f"mutate_code.py: {KNOWN}: cannot read '{block}'")
        known[(path, old.strip(), new.strip(), int(nth[0]) if nth else 1)] = (
            kind, " ".join(line.strip() for line in reason))
    return known


class Build:
    """A build folder: how it compiles a file, links a program and how long the tests take. Each
    worker has a folder for its mutants."""

    def __init__(self, folder, worker):
        self.folder, self.home = folder.absolute(), HOME / f"worker{worker}"
        self.object, self.links = self.home / "mutant.o", {}
        self.originals, self.seconds, self.digests = {}, {}, {}
        self.home.mkdir(parents=True, exist_ok=True)
        commands = json.loads((folder / "compile_commands.json").read_text(encoding="utf-8"))
        self.compiles = {os.path.relpath(c["file"]): shlex.split(c["command"]) for c in commands}
        programs = sorted({program_of(test) for _, tests in NEAR for test in tests})
        subprocess.run(["ninja", "-C", folder, *programs], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([PYTHON, "tests/bad/make_bad.py", self.home / "bad"], check=True,
                       stdout=subprocess.DEVNULL)
        for program in programs:
            said = subprocess.run(["ninja", "-C", folder, "-t", "commands", "-s", program],
                                  capture_output=True, text=True, check=True).stdout
            self.links[program] = said.strip().split("\n")[-1]

    def compile(self, path, text):
        """The bytes of the object of `text` as the file `path`; None where there is a warning."""
        source = self.home / path.name
        source.write_text(text, encoding="utf-8")
        command = [word for word in self.compiles[str(path)] if not word.endswith("ccache")]
        command[command.index("-o") + 1] = str(self.object)
        command[command.index("-c") + 1] = str(source)
        for at, word in enumerate(command):
            if word in ("-MF", "-MT"):
                command[at + 1] = str(self.home / "mutant.d")
        names = self.folder / "generated/static_symbols.txt"  # what the library calls op_*
        good = quiet([*command, "-Werror", "-iquote", str(path.parent.absolute())],
                     self.folder) and \
            quiet(["objcopy", "-g", f"--redefine-syms={names}", self.object])
        return self.object.read_bytes() if good else None

    def changes(self, mutant):
        """Compiles a mutant; False where the code is the same, None where it does not compile."""
        if mutant.path not in self.originals:
            source = mutant.path.read_text(encoding="utf-8")
            self.originals[mutant.path] = self.compile(mutant.path, source)
        made = self.compile(mutant.path, mutant.text)
        return None if made is None else made != self.originals[mutant.path]

    def passes(self, test):
        """The mutant comes before the library, which has the same symbols: the first ones count."""
        program = program_of(test)
        name = self.home / program
        link = self.links[program].replace(
            f"-o {program} ", f"-o {name} -Wl,--allow-multiple-definition {self.object} ")
        if not quiet(["sh", "-c", link], self.folder):
            return None
        command = [str(name), *test[1:]]
        if test[0] in SCRIPTS:
            command = [PYTHON, *(word.format(program=name, home=self.home)
                                 for word in SCRIPTS[test[0]][1])]
        seconds = self.seconds.get(test)
        limit = DEADLINE_S if seconds is None else 10 * seconds + 2
        return quiet(["sh", "-c", f"ulimit -v {MEMORY_KB}; exec \"$@\"", "sh", *command],
                     timeout=limit)

    def check_tests(self):
        """Measures the tests that are new or changed; one that fails by itself would kill all."""
        path = HOME / "seconds.json"
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        subprocess.run(["gcc", "-x", "c", "-c", "-o", self.object, "/dev/null"], check=True)
        for test in sorted({tuple(t) for _, tests in NEAR for t in tests}):
            digest = self.digests[test] = self.digest_of(test)
            if digest not in known:
                if test == ("masks",):  # the first call leaves its models there
                    for old in HOME.glob("*.onnx"):
                        old.unlink()
                    self.passes(test)
                begin = time.monotonic()
                if not self.passes(test):
                    raise SystemExit(f"mutate_code.py: '{' '.join(test)}' fails by itself")
                known[digest] = time.monotonic() - begin
                path.write_text(json.dumps(known), encoding="utf-8")
            self.seconds[test] = known[digest]

    def digest_of(self, test):
        """Of a test: its program and its script."""
        text = (self.folder / program_of(test)).read_bytes() + " ".join(test).encode()
        if test[0] in SCRIPTS:
            text += Path(SCRIPTS[test[0]][1][0]).read_bytes()
        return hashlib.sha256(text).hexdigest()[:16]


def program_of(test):
    return SCRIPTS[test[0]][0] if test[0] in SCRIPTS else test[0]


class Results:
    """What mutants were judged before, by what they are; others at the same time are kept out."""

    def __init__(self, quick):
        HOME.mkdir(parents=True, exist_ok=True)
        self.quick = quick
        self.lock = open(HOME / "lock", "w", encoding="utf-8")  # held until the end
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise SystemExit("mutate_code.py: another run uses build/mutation") from error
        self.path, self.known, self.survived = HOME / "results.jsonl", {}, {}
        self.wins, self.writes = {}, threading.Lock()
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        for row in map(json.loads, lines):
            if row["killer"] != "":
                self.known[row["key"]] = row["killer"]
                self.count(row["key"], row["killer"])
            self.survived.setdefault(row["key"], set()).update(row["survived"])

    def count(self, key, killer):
        win = (key.split()[1].split(":")[0], killer)
        self.wins[win] = self.wins.get(win, 0) + 1

    def judge(self, build, mutant):
        """Who killed it: "" nobody, None where it is not counted."""
        if mutant.key in self.known:
            return self.known[mutant.key]
        survived = self.survived.setdefault(mutant.key, set())
        killer = self.killer_of(build, mutant, survived)
        with self.writes, open(self.path, "a", encoding="utf-8") as out:
            if killer != "":
                self.known[mutant.key] = killer
                self.count(mutant.key, killer)
            print(json.dumps({"key": mutant.key, "killer": killer, "survived": sorted(survived)}),
                  file=out)
        return killer

    def killer_of(self, build, mutant, survived):
        """Adds the tests that it survives to `survived`, and does not run those that are there."""
        tests = next(tests for begin, tests in NEAR if str(mutant.path).startswith(begin))
        tests = [tuple(test) for test in tests if build.seconds[tuple(test)] <= self.quick and
                 build.digests[tuple(test)] not in survived]

        def kills_per_second(test):
            wins = self.wins.get((str(mutant.path), " ".join(test)), 0)
            return (wins + 0.5) / (build.seconds[test] + 0.3)
        if tests and not build.changes(mutant):
            return None
        for test in sorted(tests, key=kills_per_second, reverse=True):
            passed = build.passes(test)
            if not passed:
                return None if passed is None else " ".join(test)
            survived.add(build.digests[test])
        return ""


def table(killed, survivors, known, n_places, seed):
    """The table of --write."""
    text = f"""# Mutants of the code

Written by `python3 tests/mutate_code.py --write tests/MUTANTS.md`. A mutant changes one operator
or constant of the code. It is killed if a test near its file fails. The sample is taken from
{n_places} places of `loaders/`, the planner, the offsets, the heads and the masks, in the order
of seed {seed}. Mutants that compile to the same code are not counted.

| | mutants |
|---|---|
| judged | {killed + len(survivors)} |
| killed | {killed} ({100 * killed / max(killed + len(survivors), 1):.0f} %) |
| survived | {len(survivors)} |
| read and found equivalent, not counted | {sum(k == "equivalent" for k, _ in known.values())} |

"""
    for title, names in (("Survivors", [m.name for m in survivors]),
                         ("Equivalent", sorted(n for n in known if known[n][0] == "equivalent"))):
        text += f"## {title}\n\n| file | code | mutant | why |\n|---|---|---|---|\n"
        for name in names:
            old, new = (f"`{part}`".replace("|", "\\|") for part in name[1:3])
            reason = known[name][1] if name in known else "not read"
            text += f"| {name[0]} | {old} | {new} | {reason} |\n"
        text += "\n"
    return text.rstrip("\n") + "\n"


def judged(builds, results, mutants, end):
    """(mutant, killer), as they come out of one thread for each build; none begins after `end`."""
    free = list(builds)

    def judge(mutant):
        if time.monotonic() > end:
            return None
        build = free.pop()
        try:
            return results.judge(build, mutant)
        finally:
            free.append(build)
    pool = concurrent.futures.ThreadPoolExecutor(len(builds))
    ahead, waiting = iter(mutants), []
    try:
        while True:
            while len(waiting) < 16 * len(builds) and (mutant := next(ahead, None)):
                waiting.append((mutant, pool.submit(judge, mutant)))
            if not waiting:
                return
            mutant, job = waiting.pop(0)
            yield mutant, job.result()
    finally:
        pool.shutdown(cancel_futures=True)


def check_known(builds, results, mutants, known):
    """Judges the mutants of tests/mutants.txt; how many are not what it says."""
    gone = set(known) - {m.name for m in mutants}
    wrong = len(gone)
    for name in sorted(gone):
        print(f"not in the sources: {name}", flush=True)
    for mutant, killer in judged(builds, results, [m for m in mutants if m.name in known], 1e12):
        wrong += killer != ""
        print(f"{known[mutant.name][0]}, "
              f"{'the same code' if killer is None else killer or 'survived'}: {mutant}",
              flush=True)
    print(f"{len(known)} known mutants, {wrong} are not what {KNOWN} says")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--n", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", type=int)
    parser.add_argument("--known", action="store_true")
    parser.add_argument("--build", type=Path, default=Path("build/release"))
    parser.add_argument("--quick", type=float, default=DEADLINE_S)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    results = Results(options.quick)
    builds = [Build(options.build, worker) for worker in range(options.jobs)]
    end = time.monotonic() + options.minutes * 60
    builds[0].check_tests()
    for build in builds[1:]:
        build.seconds, build.digests = builds[0].seconds, builds[0].digests
    known = read_known()
    mutants = mutants_of(options.files or sorted(sum((glob.glob(p) for p in FILES), [])),
                         options.seed)
    if options.known:
        return check_known(builds, results, mutants, known)
    if options.only is not None:
        mutants = mutants[options.only:options.only + 1]
    wanted = [m for m in mutants if known.get(m.name, ("",))[0] != "equivalent"]
    killed, survivors = 0, []
    for mutant, killer in judged(builds, results, wanted, end):
        if killed + len(survivors) == options.n:
            break
        if killer is None:
            continue
        killed += killer != ""
        if not killer:
            survivors.append(mutant)
        said = "killed by " + killer if killer else "SURVIVED"
        print(f"{said}: {mutants.index(mutant)}: {mutant}", flush=True)
    counted = killed + len(survivors)
    if options.write and counted == options.n:
        options.write.write_text(table(killed, survivors, known, len(mutants), options.seed),
                                 encoding="utf-8")
    share = 100 * killed / counted if counted else 0
    print(f"{counted} mutants of {len(mutants)} places, {killed} killed, {share:.0f} %")
    return 1 if share < BAR else 0


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parent.parent)
    sys.exit(main())
