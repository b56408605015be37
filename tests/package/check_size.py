"""tools/packaging/size.py has every folder of the library and each instruction set, and its sums
are those of the objects; the stripped library has at most the bytes that are stored here.

usage: check_size.py SOURCE BUILD [--whole]    (gcc, x86-64, release, nothing left out)
"""
import json
import subprocess
import sys
from pathlib import Path

MAX_STRIPPED = 3_000_000  # a little above what it is; where it grows, say in the commit what for

source, build = map(Path, sys.argv[1:3])
done = subprocess.run([sys.executable, source / "tools" / "packaging" / "size.py", build, "--json"],
                      check=True, capture_output=True, text=True)
sizes = json.loads(done.stdout)
folders = {f"ops/{p.parent.name}" for p in source.glob("ops/*/sources.cmake")
           if p.parent.name != "kernels"}
missing = (folders | {"runtime", "loaders", "kernels base", "schema of ONNX"}) - set(sizes["bytes"])
assert not missing, missing
assert all(v > 0 for v in sizes["bytes"].values()), sizes
assert sizes["all_bytes"] == sum(sizes["bytes"].values())
whole = "--whole" in sys.argv
assert not whole or 0 < sizes["stripped_bytes"] <= MAX_STRIPPED, sizes
print(f"ok: {len(sizes['bytes'])} places, {sizes['all_bytes']} bytes")
