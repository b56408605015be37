"""The unmodified modules of packages among the forms of check_forms.py: the section of
tools/manual/recognised.md that lists them is up to date, and they are at least 60.
Usage: stock.py [--write]"""
import importlib
import sys
from pathlib import Path

from check_forms import PAGE

AT_LEAST = 60
TORCH = ("MultiheadAttention", "TransformerEncoderLayer")


def is_stock(module):
    root = type(module).__module__.split(".")[0]
    return (type(module).__name__ in TORCH if root == "torch" else
            root != "builtins" and not root.startswith("forms_"))


def stock_of(module):
    """The outermost modules of packages."""
    if is_stock(module):
        return {f"{type(module).__module__.split('.')[0]} {type(module).__name__}"}
    return set().union(*map(stock_of, module.children()), set())


def rows():
    where = {}
    for path in sorted(Path(__file__).parent.glob("forms_*.py")):
        forms = importlib.import_module(path.stem)
        for name, (module, *_) in forms.FORMS.items():
            for stock in stock_of(module):
                where.setdefault(stock, {}).setdefault(path.stem, []).append(name)
    return where


def section(where):
    head = ["stock", "", f"{len(where)} modules of packages are among the forms, unmodified.", "",
            "| package | module | forms |", "|---|---|---|"]
    return "\n".join(head + [
        f"| {' | '.join(stock.split())} | "
        f"{'; '.join(f'{file}: ' + ', '.join(names) for file, names in files.items())} |"
        for stock, files in sorted(where.items(), key=lambda row: row[0].lower())])


def main():
    where = rows()
    head, *parts = PAGE.read_text().strip("\n").split("\n\n## ")
    there = [part for part in parts if part.startswith("stock\n")]
    right = there == [section(where)]
    if "--write" in sys.argv:
        kept = [part for part in parts if part not in there] + [section(where)]
        PAGE.write_text("\n\n## ".join([head, *sorted(kept)]) + "\n")
        right = True
    if not right:
        print(f"{PAGE.name} has other stock modules: --write")
    print(f"{len(where)} stock modules, at least {AT_LEAST} expected")
    return not right or len(where) < AT_LEAST


if __name__ == "__main__":
    sys.exit(main())
