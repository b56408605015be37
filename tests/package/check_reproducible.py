#!/usr/bin/env python3
"""Two builds of one source give the same bytes, wherever they are made.

usage: check_reproducible.py SOURCE COMPILER

The tracked files of SOURCE are copied into two folders whose paths differ in length; each is built
in a folder of another name, under another user's name, time zone, language, umask and order of
environment, without ccache: libattnrun.so, libattnrun.a and attnrun with the plain instruction set.
The files are compared byte by byte, and none may hold the path of its build.
"""
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE, COMPILER = Path(sys.argv[1]).resolve(), sys.argv[2]
MADE = ["libattnrun.so", "libattnrun.a", "attnrun"]
OTHERS = {"LC_ALL": "C.UTF-8", "TZ": "Asia/Tokyo", "USER": "somebody", "LOGNAME": "somebody",
          "HOME": "/nonexistent"}


def call(*command, env, umask):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          env={**env, "CCACHE_DISABLE": "1"}, umask=umask, check=False)
    if done.returncode != 0:
        sys.exit(f"{command}: {done.stdout[-2000:]} {done.stderr[-2000:]}")


def copy_source(to):
    listed = subprocess.run(["git", "-C", SOURCE, "ls-files", "-z", "-co", "--exclude-standard"],
                            capture_output=True, check=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if name.startswith("tests/attention/golden/") or not (SOURCE / name).is_file():
            continue
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(SOURCE / name, to / name)
        shutil.copymode(SOURCE / name, to / name)


def build(source, folder, env, umask):
    call("cmake", "-S", source, "-B", folder, "-G", "Ninja", "-DATTNRUN_TESTS=OFF",
         "-DATTNRUN_ISAS=base", f"-DCMAKE_C_COMPILER={COMPILER}", env=env, umask=umask)
    call("cmake", "--build", folder, "--target", "attnrun", "attnrun_shared", "attnrun_static",
         env=env, umask=umask)
    return {name: (folder / name).read_bytes() for name in MADE}


def difference(a, b):
    first = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return f"{len(a)} and {len(b)} bytes, first difference at {first}"


def main():
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        here = dict(os.environ)
        there = {**dict(reversed(list(os.environ.items()))), **OTHERS}
        sources = root / "a", root / "another" / "longer" / "name"
        for source in sources:  # both first, since somebody may edit meanwhile
            copy_source(source)
        one = build(sources[0], root / "a" / "out", here, 0o022)
        two = build(sources[1], root / "made", there, 0o077)
    faults = [f"{name}: {difference(one[name], two[name])}" for name in MADE
              if one[name] != two[name]]
    faults += [f"{name} holds the path of its build" for made in (one, two) for name in MADE
               if place.encode() in made[name]]
    print("\n".join(f"FAIL {fault}" for fault in faults))
    print(f"{len(MADE)} files of two builds, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
