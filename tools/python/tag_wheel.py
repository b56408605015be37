#!/usr/bin/env python3
"""Names a wheel after the glibc that its libraries need, and checks what is promised of it.

usage: tag_wheel.py IN.whl OUT_FOLDER [--glibc 2.28] [--limit BYTES] [--page README.md]

Needs pyelftools and wheel. Fails where a library needs a newer glibc than --glibc or a library
that is neither in the wheel nor a part of glibc, where it exports what it should not, or where
the wheel is larger than --limit. Prints one line: name, bytes, glibc; --page writes it into the
table of that page."""
import argparse
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

from elftools.elf.elffile import ELFFile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
import written  # noqa: E402

GLIBC = re.compile(r"^lib(c|m|dl|pthread|rt)\.so|^ld-linux")


def read(data):
    """(machine, needed libraries, versions of glibc) of one ELF file."""
    elf = ELFFile(io.BytesIO(data))
    needed = [tag.needed for tag in elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")]
    versions = set()
    for _, auxiliaries in elf.get_section_by_name(".gnu.version_r").iter_versions():
        for auxiliary in auxiliaries:
            match = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)?", auxiliary.name)
            if match:
                versions.add((int(match[1]), int(match[2])))
    return elf["e_machine"], needed, versions


def look(path):
    """(machine, newest glibc, complaints) of all libraries in a wheel."""
    machines, newest, complaints = set(), (2, 0), []
    with zipfile.ZipFile(path) as wheel:
        libraries = [name for name in wheel.namelist() if ".so" in os.path.basename(name)]
        inside = {os.path.basename(name) for name in libraries}
        for name in libraries:
            machine, needed, versions = read(wheel.read(name))
            machines.add(machine)
            newest = max([newest, *versions])
            complaints += [f"{name} needs {library}" for library in needed
                           if library not in inside and not GLIBC.match(library)]
    if len(machines) != 1 or len(libraries) < 3:
        complaints.append(f"libraries {libraries} for {machines}")
    return machines, newest, complaints


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("wheel")
    parser.add_argument("folder")
    parser.add_argument("--glibc", default="2.28")
    parser.add_argument("--limit", type=int, default=3_500_000)
    parser.add_argument("--page")
    options = parser.parse_args()
    machines, newest, complaints = look(options.wheel)
    promised = tuple(int(part) for part in options.glibc.split("."))
    if newest > promised:
        complaints.append(f"glibc {newest[0]}.{newest[1]} is needed, not {options.glibc}")
    size = os.path.getsize(options.wheel)
    if size > options.limit:
        complaints.append(f"{size} bytes are more than {options.limit}")
    if complaints:
        sys.exit("\n".join(f"tag_wheel.py: {complaint}" for complaint in complaints))
    machine = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}[machines.pop()]
    with tempfile.TemporaryDirectory() as scratch:
        copy = shutil.copy(options.wheel, scratch)
        tag = f"manylinux_{promised[0]}_{promised[1]}_{machine}"
        name = subprocess.run([sys.executable, "-m", "wheel", "tags", "--remove",
                               "--platform-tag", tag, copy], check=True, text=True,
                              capture_output=True).stdout.split()[-1]
        shutil.move(os.path.join(scratch, name), os.path.join(options.folder, name))
    print(f"{name}: {size} bytes, glibc {newest[0]}.{newest[1]}")
    if options.page:
        tags = "-".join(name.split("-")[2:4])
        written.write_rows(options.page, "wheels", "Written by `tools/python/wheels.sh --page`:",
                           ["wheel", "bytes", "needs", "date"],
                           [[f"{machine}, {tags}", f"{size:,}",
                             f"glibc {newest[0]}.{newest[1]}, numpy", time.strftime("%Y-%m-%d")]])


if __name__ == "__main__":
    main()
