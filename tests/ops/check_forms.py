"""Mechanisms of attention as modules, exported by both exporters of PyTorch: what they become, and
that they give what ONNX Runtime does. MODULE (forms_windows, forms_features, …) has
  KNOWN     operators that a file of it may become
  BY_TORCH  what they give is what the module gives, not ONNX Runtime
  SHORT     {name: exporter}: what runs without --full
  FORMS     {name: (module, inputs, shape, axis of the lengths, lengths, exporters, operator)};
            without lengths the file has fixed sizes, without an operator it becomes none of KNOWN;
            SEED draws one length more
The rows of tools/manual/recognised.md are those of FORMS; --write writes those of MODULE, with
what `inspect` says of near misses, after all of them passed; --only runs these alone, and --write
then keeps what the page says of the others.
MODULE may be `all`: every one of them, in one run. --journal FILE notes each model that passed; a
later run of the same program and forms, say after an interrupt, takes it from there.
Usage: check_forms.py ATTNRUN MODULE [--full | --write] [--only NAME,NAME,…] [--journal FILE] [SEED]
"""
import hashlib
import importlib
import json
import math
import random
import sys
import tempfile
from pathlib import Path

from recognise import EXPORTERS, check_form

PAGE = Path(__file__).resolve().parents[2] / "tools/manual/recognised.md"
NAMES = {"s": "TorchScript", "d": "dynamo", "sd": "both"}


def row(name, form, why):
    *_, shape, axis, lengths, exporters, operator = form
    sizes = ["n" if lengths and i == axis else str(size) for i, size in enumerate(shape)]
    return (f"| {name} | {', '.join(sizes)} | {', '.join(map(str, lengths)) or 'fixed'} | "
            f"{NAMES[exporters]} | {operator or '-'} | {why} |")


def section(forms, reasons):
    head = [f"## {forms.__name__}", "", *forms.__doc__.splitlines(), "",
            "| form | shape | lengths | exporters | becomes | left, since |",
            "|---|---|---|---|---|---|"]
    return head + [row(name, form, reasons.get(name, "")) for name, form in forms.FORMS.items()]


def write_page(forms, reasons):
    head, *parts = PAGE.read_text().split("\n## ")
    kept = [part for part in parts if part.split("\n")[0] != forms.__name__]
    parts = sorted(kept + ["\n".join(section(forms, reasons))[3:]])
    PAGE.write_text("\n\n## ".join(part.strip("\n") for part in [head, *parts]) + "\n")


def rows_of_page():
    """{a row without its last column: that column}"""
    there = {}
    for line in PAGE.read_text().splitlines():
        if line.startswith("| "):
            start, why, _ = line.rsplit("|", 2)
            there[start] = why.strip()
    return there


def stale_rows(forms, reasons):
    """Rows that the page does not have, or that say of a form that ran that a pass left it where
    none did, or the other way; the words may be those of the other exporter."""
    there, stale = rows_of_page(), []
    for name, form in forms.FORMS.items():
        start = row(name, form, "").rsplit("|", 2)[0]
        if start not in there or bool(reasons.get(name, there[start])) != bool(there[start]):
            stale.append(f"{PAGE.name} has no such row of {forms.__name__} '{name}': --write")
    return stale


class Journal:
    """What `inspect` said of models that passed, by module, form, exporter and seed; without a file
    it forgets."""

    def __init__(self, program, path):
        self.path, self.rows = path, {}
        self.program = hashlib.sha256(Path(program).read_bytes()).hexdigest()
        if path is not None and path.exists():
            rows = (json.loads(line) for line in path.read_text().splitlines())
            self.rows = {tuple(key): why for key, why in rows}

    def key(self, forms, name, exporter, seed):
        text = hashlib.sha256(Path(forms.__file__).read_bytes()).hexdigest()
        return self.program, text, forms.__name__, name, exporter, seed

    def add(self, key, why):
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps([key, why]) + "\n")


def option(arguments, name):
    return arguments[arguments.index(name) + 1] if name in arguments else None


def with_drawn(lengths, name, seed):
    """The lengths, and one more that the seed draws, of the unit that they have."""
    unit = math.gcd(*lengths)
    draw = random.Random(f"{seed} {name}")
    return (*lengths, unit * draw.randint(1, max(lengths) // unit)) if lengths else ()


def check_module(program, forms, arguments, journal):
    """How many files there were, and what went wrong."""
    write, only = "--write" in arguments, set(forms.FORMS)
    full, seeds = write or "--full" in arguments, [int(x) for x in arguments if x.isdigit()]
    failures, n, reasons, seed = [], 0, {}, (seeds + [29])[0]
    if "--only" in arguments:
        only = set(option(arguments, "--only").split(","))
        there = rows_of_page()
        reasons = {name: there.get(row(name, form, "").rsplit("|", 2)[0], "")
                   for name, form in forms.FORMS.items() if name not in only}
    with tempfile.TemporaryDirectory() as folder:
        for name, form in forms.FORMS.items():
            if name not in only:
                continue
            module, inputs, shape, axis, lengths, exporters, operator = form
            for exporter in exporters if full else forms.SHORT.get(name, ""):
                n += 1
                key = journal.key(forms, name, exporter, seed)
                if key in journal.rows:
                    reasons[name] = journal.rows[key]
                    continue
                more, reasons[name] = check_form(
                    program, Path(folder), name, module, inputs, shape,
                    {axis: "n"} if lengths else {}, with_drawn(lengths, name, seed),
                    EXPORTERS[exporter], forms.KNOWN, operator, seed,
                    getattr(forms, "BY_TORCH", False))
                failures += more
                if not more:
                    journal.add(key, reasons[name])
    if write and not failures:
        write_page(forms, reasons)
    return n, failures + stale_rows(forms, reasons)


def main():
    program, name, *arguments = sys.argv[1:]
    path = option(arguments, "--journal")
    journal = Journal(program, Path(path) if path else None)
    names = ([path.stem for path in sorted(Path(__file__).parent.glob("forms_*.py"))]
             if name == "all" else [name])
    failed = False
    for name in names:
        n, failures = check_module(program, importlib.import_module(name), arguments,
                                   journal)
        print("\n".join(failures + [f"{name}: {n} models, {len(failures)} failures"]), flush=True)
        failed = failed or bool(failures)
    return failed


if __name__ == "__main__":
    sys.exit(main())
