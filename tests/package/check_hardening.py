#!/usr/bin/env python3
"""What the linker and the compiler did against faults that become attacks, as readelf sees it.

usage: check_hardening.py [--fortified] FILE...

Of each program and shared library: no memory is both written and executed, the stack is not
executed; tables of the linker are read-only once it has started (full RELRO); code lies at a random
address (position independent, no text relocations); no folder of this build is searched for
libraries; functions with arrays on the stack check it. --fortified: some calls of libc are those
that know the sizes of buffers, as in a Release build. Of a static library its objects.
"""
import re
import subprocess
import sys

CHECKED = re.compile(r"__(mem|str|v?f?s?n?printf|openat|p?read|realpath|fgets)\w*_(chk|2)\b")


def readelf(*words):
    return subprocess.run(["readelf", "-W", *words], capture_output=True, text=True,
                          check=True).stdout


def faults_of(path, fortified):
    """What is not as it should be."""
    symbols = readelf("--syms" if path.endswith(".a") else "--dyn-syms", path)
    if "__stack_chk_fail" not in symbols:
        yield "no function checks its stack"
    if fortified and not CHECKED.search(symbols):
        yield "no call of libc is checked"
    if path.endswith(".a"):
        return
    header, segments, dynamic = readelf("-h", path), readelf("-l", path), readelf("-d", path)
    if not re.search(r"Type:\s+DYN", header):
        yield "its code lies at a fixed address"
    if "INTERP" in segments and not re.search(r"FLAGS_1.*\bPIE\b", dynamic):
        yield "a program that is no PIE"
    if "GNU_RELRO" not in segments or not re.search(r"FLAGS_1.*\bNOW\b", dynamic):
        yield "the tables of the linker stay writable"
    stack = re.search(r"GNU_STACK(?:\s+0x\w+){5}\s+([RWE ]+?)\s+0x", segments)
    if stack is None or "E" in stack[1]:
        yield "the stack may be executed"
    if re.search(r"LOAD(?:\s+0x\w+){5}\s+(?=[RWE ]*W)(?=[RWE ]*E)", segments):
        yield "a segment may be written and executed"
    if "TEXTREL" in dynamic:
        yield "code is changed when it is loaded"
    if re.search(r"\((RPATH|RUNPATH)\)", dynamic):
        yield "it looks for libraries in a folder of its own"


def main():
    paths = sys.argv[1:]
    fortified = paths[:1] == ["--fortified"]
    wrong = 0
    for path in paths[fortified:]:
        for fault in faults_of(path, fortified):
            wrong += 1
            print(f"FAIL {path}: {fault}")
    print(f"{len(paths) - fortified} files, {wrong} faults")
    return 1 if wrong or len(paths) == fortified else 0


if __name__ == "__main__":
    sys.exit(main())
