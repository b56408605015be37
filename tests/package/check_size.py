"""tools/packaging/size.py has every folder of the library and each instruction set, and its sums
are those of the objects.

usage: check_size.py SOURCE BUILD
"""
import json
import subprocess
import sys
from pathlib import Path

source, build = map(Path, sys.argv[1:])
done = subprocess.run([sys.executable, source / "tools" / "packaging" / "size.py", build, "--json"],
                      check=True, capture_output=True, text=True)
sizes = json.loads(done.stdout)
folders = {f"ops/{p.parent.name}" for p in source.glob("ops/*/sources.cmake")
           if p.parent.name != "kernels"}
missing = (folders | {"runtime", "loaders", "kernels base", "schema of ONNX"}) - set(sizes["bytes"])
assert not missing, missing
assert all(v > 0 for v in sizes["bytes"].values()), sizes
assert sizes["all_bytes"] == sum(sizes["bytes"].values())
print(f"ok: {len(sizes['bytes'])} places, {sizes['all_bytes']} bytes")
