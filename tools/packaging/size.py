"""What the library is made of: bytes of code and data by folder, kernels by instruction set.

usage: python3 tools/packaging/size.py BUILD [--json]
In: the object files of a build folder. Out: a table, the largest first, and the stripped shared
library beside the sum. Cost: one `size` of all objects.
"""
import argparse
import json
import subprocess
import tempfile
from collections import Counter
from pathlib import Path


def place_of(path, build):
    """ops/matmul, loaders, …; kernels by the instruction set of their object library."""
    library, *folders = path.relative_to(build / "CMakeFiles").parts
    name = library.removesuffix(".dir")
    if name.startswith("attn_kernels_"):
        return "kernels " + name.removeprefix("attn_kernels_")
    if name == "attn_schema":
        return "schema of ONNX"
    return "/".join(folders[:2] if folders[0] == "ops" and len(folders) > 2 else folders[:1])


def objects_of(build):
    for library in sorted((build / "CMakeFiles").glob("attn_*.dir")):
        if library.name in ("attn_code.dir", "attn_schema.dir") or "kernels" in library.name:
            yield from sorted(library.rglob("*.o"))


def sizes_of(build):
    objects = list(objects_of(build))
    lines = subprocess.run(["size", *objects], check=True, capture_output=True,
                           text=True).stdout.splitlines()[1:]
    sums = Counter()
    for path, line in zip(objects, lines):
        text, data = map(int, line.split()[:2])
        sums[place_of(path, build)] += text + data
    return sums


def stripped_bytes(library):
    with tempfile.NamedTemporaryFile() as copy:
        subprocess.run(["strip", "-o", copy.name, library], check=True)
        return Path(copy.name).stat().st_size


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    sums = sizes_of(given.build)
    library = given.build / "libattnrun.so"
    stripped = stripped_bytes(library) if library.exists() else None
    if given.json:
        print(json.dumps({"bytes": dict(sums), "all_bytes": sum(sums.values()),
                          "stripped_bytes": stripped}))
        return
    for place, size in sums.most_common():
        print(f"{size:>10,}  {place}")
    print(f"{sum(sums.values()):>10,}  all objects")
    if stripped is not None:
        print(f"{stripped:>10,}  {library.name}, stripped")


main()
