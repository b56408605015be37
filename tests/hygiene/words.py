#!/usr/bin/env python3
"""Words that must not be in the tree: machine paths, registry hosts, notes to self; in names of C,
words for which there is a standard one; in sentences, forms that were mended.

usage: words.py ROOT
"""
import re
import sys

from files import text_of, walk

# Split so that this file does not find itself.
FORBIDDEN = [
    ("a path of some machine", r"/wor" r"k/|/roo" r"t/|/hom" r"e/\w|/opt/whee" r"ls"),
    ("a package registry's host", r"pypi\.o" r"rg|pythonhos" r"ted|download\.pyto" r"rch"),
    ("a note to self", r"\bTO" r"DO\b|\bFIX" r"ME\b|\bXX" r"X\b|\bHA" r"CK\b"),
    ("a ticket", r"\bissue" r"s? #?\d|\btick" r"et #?\d"),
    ("who typed it", r"\bcla" r"ude\b|\bcop" r"ilot\b|\bchat" r"gpt\b"),
]
CODE = (".c", ".h", ".def", ".proto", ".py", ".sh", ".cmake", ".txt", ".md", ".yml", ".in")
# In identifiers: (the word to use, pattern).
STANDARD = [
    ("MAX or MIN", r"\b(?:[A-Z0-9]+_)*(?:MOST|LEAST)(?:_[A-Z0-9]+)*\b"),
    ("max or min", r"\b(?:int64_t|int32_t|size_t|int|double|float|v_f32)\s+\*?(?:most|least)\b"),
    ("rotate", r"\bV_TURN\b"),
    ("max64() or min64()", r"\b(?:at_)?(?:most|least)(?=\()"),
    ("round_up() or ceil_div()", r"\b(?:round16|round64)(?=\()"),
    ("transposed or rotated", r"\b(?!\w*returned)\w*turned\w*"),
    ("pooling or softmax", r"\b(?:attn_)?weigh(?:_\w+)?\b(?=[(;,)]|\s*=)"),
    ("promote", r"\b(?!long)\w*(?:widen|WIDEN)\w*"),
    ("dynamic", r"\b(?:\w+_late(?:_\w+)?|ATTNRUN_OP_LATE)(?=\()"),
    ("single-head", r"\b\w*unheaded\w*"),
    ("packed QKV", r"\battn_merged\w*"),
    ("query tile", r"\bcell_(?:f32|bf16|pack\w*|rows?)\b|\battn_cell\w*|\bCELL\b"),
    ("residual-ReLU", r"\b\w*map_tail\w*"),
    ("segments or blocks", r"\battn_stream_pieces\w*|\bn_pieces\b"),
    ("callbacks", r"\bstruct \w*feature_rules\b"),
    ("mask", r"\bhide_(?:masked|unseen)\b|\bcut_scores\b"),
    ("labelled", r"\battn_lettered\w*"),
    ("prefetch", r"\battn_ahead\w*"),
    ("prefetch", r"\bask_(?:for_row|soon|ahead)\b"),
]
# In sentences that users meet: (what to write, pattern), split as above.
SENTENCES = [
    ("unexpected argument", r"one argument too m" r"any"),
    ("unexpected end of file", r"an end too ea" r"rly"),
    ("duplicate key", r"stands there tw" r"ice"),
    ("is not a way to", r"is no w" r"ay to"),
    ("that is not a", r"something that is n" r"o\b"),
    ("the time that is lost", r"the us that a" r"re"),
]
SESSION = re.compile(r"sess" r"ion", re.IGNORECASE)  # the noun is context


def complaints(path, text):
    for what, pattern in FORBIDDEN:
        for match in re.finditer(pattern, text, re.IGNORECASE):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: {what}: {match.group()}"
    if path.endswith((".c", ".h", ".def")):
        for what, pattern in STANDARD:
            for match in re.finditer(pattern, text):
                line = text.count("\n", 0, match.start()) + 1
                yield f"{path}:{line}: the word is {what}, not {match.group()}"
    if path.endswith((".c", ".h", ".def", ".py", ".md")):
        for what, pattern in SENTENCES:
            for match in re.finditer(pattern, text):
                line = text.count("\n", 0, match.start()) + 1
                yield f"{path}:{line}: write '{what}', not '{match.group()}'"
    if path.startswith(("runtime/", "ops/", "loaders/")) and path.endswith((".c", ".h")):
        for match in SESSION.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: the noun is context, not {match.group()}"


def form(path, text):
    if text and not text.endswith("\n"):
        yield f"{path}: no newline at the end"
    for number, line in enumerate(text.splitlines(), 1):
        if line != line.rstrip():
            yield f"{path}:{number}: space at the end of the line"
            break


def main():
    root = sys.argv[1]
    bad = 0
    for path in walk(root):
        text = text_of(root, path)
        if text is None:
            continue
        found = list(complaints(path, text))
        if path.endswith(CODE):
            found += form(path, text)
        for line in found:
            print(line)
            bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
