#!/usr/bin/env python3
"""External symbols: attnrun_*, attn_* and op_* in the archive; attnrun_* alone exported.

usage: symbols.py LIBATTNRUN.a LIBATTNRUN.so

In the archive the code that protoc-c makes (attnrun__onnx__*, attnrun.onnx) may be there
too. Kernel names carry their instruction set as a suffix behind the attn_ prefix.
"""
import re
import subprocess
import sys

INTERNAL = re.compile(r"^(attnrun_|attn_|op_)")
EXPORTED = re.compile(r"^attnrun_[a-z]")


def names(path, *options):
    done = subprocess.run(["nm", "--defined-only", *options, path], check=True,
                          capture_output=True, text=True)
    for line in done.stdout.splitlines():
        parts = line.split()
        if len(parts) == 3 and parts[1] in "TDBRVWC":
            yield parts[2]


def main():
    bad = 0
    for name in sorted(set(names(sys.argv[1], "-g"))):
        if not INTERNAL.match(name) and not name.startswith("__"):
            print(f"{sys.argv[1]}: external symbol {name}")
            bad += 1
    for name in sorted(set(names(sys.argv[2], "-D"))):
        if not EXPORTED.match(name) or name.startswith("attnrun__"):
            print(f"{sys.argv[2]}: exported symbol {name}")
            bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
