#!/usr/bin/env python3
"""Functions and macros of runtime/, ops/ and loaders/ that nothing uses. What only tests use
is unused: a helper of tests lies with them.

usage: unused.py ROOT

A name counts as used where the sources have it more often than its declaration, definition,
#define and #undef do, and where the C files of attnrun compile have it. Names that a macro pastes
together (attn_binary_##name) are not looked at, and neither is the public header.
"""
import collections
import os
import re
import sys

from files import text_of, walk

LAYERS = ("runtime/", "ops/", "loaders/")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
# A declaration or definition at the start of a line: its last word before the bracket. Words
# that begin with a capital letter are macros that make definitions.
FUNCTION = re.compile(r"^[a-z][\w \t\n*]*?\b([a-z]\w*)\(", re.MULTILINE)
MACRO = re.compile(r"^[ \t]*#[ \t]*(?:define|undef)[ \t]+(\w+)", re.MULTILINE)
PASTING = re.compile(r"^[ \t]*#[ \t]*define[ \t]+\w+\(([^)]*)\)((?:[^\n]*\\\n)*[^\n]*)",
                     re.MULTILINE)
PASTED = re.compile(r"\w+(?:[ \t]*##[ \t]*\w+)+")
BEGINNING = re.compile(r"[(,]\s*([A-Z]\w*_)\s*[,)]")
KEYWORDS = {"if", "for", "while", "switch", "return", "sizeof"}


def sources(root):
    """{path: text without comments}"""
    return {path: COMMENT.sub(" ", text_of(root, path))
            for path in walk(root, (".c", ".h", ".def")) if path.startswith(LAYERS)}


def made(texts):
    """{name: times that it is declared, defined or undefined}"""
    found = collections.Counter()
    for path, text in texts.items():
        if os.path.basename(path) == "attnrun.h":
            continue
        for name in FUNCTION.findall(text):
            found[name] += name not in KEYWORDS
        found.update(name for name in MACRO.findall(text)
                     if not name.startswith("_") and not name.endswith("_H"))
    return found


def pasted(texts):
    """For the names that macros paste together: an expression of those that begin with a literal,
    and the literals that stand behind an argument."""
    begins, ends = {r"(?!)"}, set()
    for text in texts.values():
        # CAT(TABLE_, x): a macro gets the beginning as an argument
        begins.update(re.escape(word) + r"\w+" for word in BEGINNING.findall(text))
        for parameters, body in PASTING.findall(text):
            names = {word.strip() for word in parameters.split(",")}
            for paste in PASTED.findall(body):
                parts = [part.strip() for part in paste.split("##")]
                if parts[0] not in names:
                    begins.add("".join(r"\w+" if part in names else re.escape(part)
                                       for part in parts))
                elif len(parts) == 2 and parts[1] not in names:
                    ends.add(parts[1])
    return re.compile("|".join(sorted(begins))), sorted(ends)


def unused(texts, written):
    """written: the source of a program that writes C"""
    words = collections.Counter(re.findall(r"\w+", written))
    for text in texts.values():
        words.update(re.findall(r"\w+", text))
    begins, ends = pasted(texts)
    arguments = {word for text in texts.values()
                 for word in re.findall(r"[(,]\s*(\w+)\s*(?=[,)])", text)}

    def is_pasted(name):
        return begins.fullmatch(name) or any(
            name.endswith(end) and name.removesuffix(end) in arguments for end in ends)

    return sorted(name for name, times in made(texts).items()
                  if 0 < words[name] <= times and not is_pasted(name))


def main():
    found = unused(sources(sys.argv[1]), text_of(sys.argv[1], "tools/cli/compile_command.c"))
    for name in found:
        print(f"{name}: nothing uses it")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
