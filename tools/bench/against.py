"""against.py - two builds of attnrun take turns on the rows of both benchmark pages.

A row is a model with its inputs, on some number of threads; the models and the operators are
those of models.py and of attention/cases.py, without their peers. Both builds run each row in
short blocks by turns, and their minima are compared. A row counts as slower where the new
build takes more than 3 % longer in two separate runs: rows that look slower in the first run
are measured again after all others.

usage: against.py --old BINARY --new BINARY --work FOLDER [--rows PATTERN] [--threads 1,2]
                  [--isa NAME] [--quick]

Exit status: 0 where no row is slower, 1 where some are (they are listed), 2 where nothing
could be compared.
"""
import argparse
import dataclasses
import re
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "attention")]
import cases  # noqa: E402
import models  # noqa: E402
import vision  # noqa: E402
from engines import (Attnrun, Failed, in_turns, processor_time, run_script,  # noqa: E402
                     share_of_others)

SLOWER = 1.03   # new over old, from which a row looks slower
MORE_TURNS = 3  # times the turns of a row that looks slower, since minima settle slowly
NOISY = 0.05    # share of the CPUs that others took, from which the output says so


@dataclasses.dataclass(frozen=True)
class Row:
    case: object   # of models.py, or of attention/cases.py where n says the length
    threads: int
    n: int = 0

    @property
    def name(self):
        length = f", n = {self.n}" if self.n else ""
        return f"{self.case.name}{length}, {self.threads} thread{'s' * (self.threads > 1)}"


def all_rows(threads, quick):
    """The rows of models/BENCHMARKS.md, then those of models/ATTENTION.md, which are measured
    on one thread there. `quick` takes the quick models and the shortest length of operators."""
    counts = threads or [1, 2]
    found = [Row(case, count) for case in models.CASES if case.quick or not quick
             for count in counts]
    return found + [Row(case, count, n) for case in cases.CASES + vision.CASES
                    for n in (case.lengths[:1] if quick else case.lengths)
                    for count in threads or [1]]


# ---- the verdict ----

def worse(figures):
    """True where the new build looks slower, or fails at what the old one can do. `figures`:
    the minima (old, new) in ms, None for a build that fails."""
    old, new = figures
    return old is not None and (new is None or new > SLOWER * old)


def verdict(rows, measure):
    """{row: [(old, new) of its runs]} of the rows that look worse in two separate runs."""
    first = {row: measure(row) for row in rows}
    suspects = [row for row in rows if worse(first[row])]
    second = {row: measure(row) for row in suspects}
    return {row: [first[row], second[row]] for row in suspects if worse(second[row])}


def written(figures):
    old, new = figures
    if old is None or new is None:
        return "  ".join(f"{name} " + ("fails" if ms is None else f"{ms:.3f} ms")
                         for name, ms in (("old", old), ("new", new)))
    return f"old {old:.3f} ms  new {new:.3f} ms  {new / old:.3f}"


# ---- measuring ----

def files_of(row, work):
    """(model, "", inputs) of a row, made where that is needed; Failed says why not."""
    if not row.n:
        script, words = HERE / "models.py", [row.case.name, str(work), ""]
        paths = models.own_paths(row.case, str(work), "")
    else:
        plain = "".join(c if c.isalnum() else "_" for c in row.case.name)
        folder = work / "operators" / f"{plain}-{row.n}"
        folder.mkdir(parents=True, exist_ok=True)
        script = HERE / "attention" / "cases.py"
        words = ["make", row.case.name, str(row.n), str(folder)]
        paths = str(folder / "model.onnx"), "", str(folder / "inputs.npz")
    why = run_script(script, words, 1800)
    if why:
        raise Failed(f"its model cannot be made: {why}")
    return paths


class Comparison:
    """Measures rows with two programs; prints each, remembers what was left out."""

    def __init__(self, args):
        self.args, self.notes, self.paths = args, [], {}

    def measure(self, row):
        """The minima (old, new) in ms, None for a program that fails."""
        try:
            if (row.case, row.n) not in self.paths:
                self.paths[row.case, row.n] = files_of(row, self.args.work)
        except Failed as why:
            self.notes.append(f"{row.name} is left out: {why}.")
            return None, None
        paths, before = self.paths[row.case, row.n], processor_time([])
        given = {name: getattr(row.case, name) for name in ("state", "precision", "ragged")
                 if hasattr(row.case, name)}
        running = {name: Attnrun(binary, paths, row.threads, self.args.limit,
                                 isa=self.args.isa, **given)
                   for name, binary in (("old", self.args.old), ("new", self.args.new))}

        def drop(name, why):
            self.notes.append(f"{row.name}: the {name} build fails: {why}.")
            del running[name]

        def minima():
            return tuple(running[name].result()["min_ms"] if name in running else None
                         for name in ("old", "new"))

        for _ in range(MORE_TURNS):
            in_turns(running, self.args, drop)
            found = minima()
            if not worse(found) or None in found:
                break
        others = share_of_others(before, processor_time([]))
        print(f"{row.name}: {written(found)}{'  (slower)' if worse(found) else ''}"
              + (f"  others took {others:.0%} of the CPUs" if others > NOISY else ""),
              flush=True)
        return found


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--old", required=True)
    parser.add_argument("--new", required=True)
    parser.add_argument("--work", required=True, type=Path)
    parser.add_argument("--rows", default="", type=re.compile,
                        help="a regular expression; the rows with it in their name")
    parser.add_argument("--threads", type=lambda text: [int(t) for t in text.split(",")],
                        help="default: 1,2 for models and 1 for operators, as on the pages")
    parser.add_argument("--isa", default="", help="base, avx2, ...: lowers both builds")
    parser.add_argument("--quick", action="store_true", help="fewer rows, fewer turns")
    parser.add_argument("--limit", type=float, default=120, help="seconds for a block of runs")
    args = parser.parse_args()
    args.rounds, args.block_ms = (5, 100) if args.quick else (8, 300)
    args.row_seconds = 15 if args.quick else 90
    return args


def main():
    args, started = arguments(), time.monotonic()
    rows = [row for row in all_rows(args.threads, args.quick) if args.rows.search(row.name)]
    if not rows:
        print("no row has a name like that")
        return 2
    (args.work / "models").mkdir(parents=True, exist_ok=True)
    comparison = Comparison(args)
    measured = []

    def measure(row):
        figures = comparison.measure(row)
        if None not in figures:
            measured.append(row)
        return figures

    slower = verdict(rows, measure)
    for note in dict.fromkeys(comparison.notes):
        print(note)
    for row, runs in slower.items():
        print(f"SLOWER {row.name}: " + "; ".join(written(figures) for figures in runs))
    print(f"{len(set(measured))} of {len(rows)} rows compared, {len(slower)} slower, "
          f"{time.monotonic() - started:.0f} s")
    return 1 if slower else 0 if measured else 2


if __name__ == "__main__":
    sys.exit(main())
