#!/usr/bin/env python3
"""Names: a name that is local to a file says whose it is, so few files may define the same one.

usage: names.py ROOT [--list]

In: the C files of runtime/, loaders/, ops/ and tools/. A static function may have a name that
at most 2 other files use, a struct, union or enum one that 1 other uses. Kernels, the
verbs of instruction sets (ops/kernels/) and templates are left out: they call functions of the
file that includes them by their names. --list prints all names that more than one file has, most
files first. No function of ops/ and runtime/ has the name of a kernel, which is a macro in a
library with the operators of a list (ops/kernels/kernels.h).
"""
import re
import subprocess
import sys
from collections import defaultdict

from files import text_of, walk

FOLDERS = ("runtime/", "loaders/", "ops/", "tools/")
FUNCTION_FILES, TAG_FILES = 3, 2
FUNCTION = re.compile(r"^static (?!const struct \w+ \w+ =)[\w\s*]*?\b(\w+)\([^;{}=]*\)\n\{",
                      re.MULTILINE)
TAG = re.compile(r"^(?:struct|union|enum) (\w+) \{", re.MULTILINE)


def owners(root):
    """{name: files that define a static function}, {tag: files that define it}"""
    functions, tags = defaultdict(list), defaultdict(list)
    for path in walk(root, (".c", ".h")):
        if not path.startswith(FOLDERS) or path.startswith("ops/kernels/") or (
                path.endswith("_template.h")):
            continue
        text = text_of(root, path)
        for name in sorted(set(FUNCTION.findall(text))):
            functions[name].append(path)
        for name in sorted(set(TAG.findall(text))):
            tags[name].append(path)
    return functions, tags


def kernel_names(root):
    text = '#define KERNEL(type, name, arguments) @name@\n#include "kernels.def"\n'
    rows = subprocess.run(["cc", "-E", "-P", f"-I{root}/ops/kernels", "-"], input=text, text=True,
                          check=True, capture_output=True).stdout
    return set(re.findall(r"@ ?(\w+) ?@", rows))


def taken(root, kernels):
    """(path, name): functions with a kernel's name, or with one that a macro may paste to it, and
    names that a template gets for its function."""
    function = re.compile(r"^ *static (?:[\w*]+[ *]+)+?(\w+)( ?## ?\w+)?\(|"
                          r"^#define \w*NAME\w* +(\w+)$", re.MULTILINE)
    for path in walk(root, (".c", ".h")):
        if not path.startswith(("ops/", "runtime/")) or path.startswith("ops/kernels/"):
            continue
        for name, pasted, given in function.findall(text_of(root, path)):
            name = name or given
            if name in kernels or pasted and any(k.startswith(name) for k in kernels):
                yield path, name + pasted


def by_files(names):
    return sorted(names.items(), key=lambda item: (-len(item[1]), item[0]))


def main():
    functions, tags = owners(sys.argv[1])
    assert len(functions) > 1000 and len(tags) > 300, (len(functions), len(tags))
    bad = 0
    for what, names, bound in (("static function", functions, FUNCTION_FILES),
                               ("tag", tags, TAG_FILES)):
        for name, paths in by_files(names):
            if "--list" in sys.argv and len(paths) > 1:
                print(f"{len(paths)} {what} {name}")
            if len(paths) > bound:
                print(f"{what} {name}: in {len(paths)} files, at most {bound}: {' '.join(paths)}")
                bad += 1
    kernels = kernel_names(sys.argv[1])
    assert len(kernels) > 100, len(kernels)
    for path, word in sorted(set(taken(sys.argv[1], kernels))):
        print(f"{path}: {word} is the name of a kernel")
        bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
