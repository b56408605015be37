"""RegexFullMatch against Python's re, casts of texts to numbers against Python's float() and int(),
n-grams that are counted one by one, texts that Python splits, letters whose case Python changes.
Usage: check_texts.py ATTNRUN"""
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx

from cases import check, one_node_model, write_case

random = np.random.default_rng(31)
TEXTS = ["", "a", "b", "ab", "aab", "abab", "0", "07", "x1F", "é", "aé", "-", "_", "]", "^", "{",
         "a{2", "\t", " ", "a b", "line\n", "\\", "!~", "Z", "zZ9", "\x01", "€uro", "a.b", "(a)",
         "\v", "12:30", "aa", "a{02}", "b{1,02}", "a{1000000000}"]
PATTERNS = [
    "", "a", ".", ".*", "a*b", "(ab)+", "a|b|ab", "(?:a|b)*", "(?P<name>a)b", r"\d+", r"\D+",
    r"\w+", r"\W+", r"a\b.*", r".\B.*", "^a$", "[a-c]+", "[^a-c]+", "[]a]", "[^]]", r"[\d_]+",
    r"[\w-]+", r"[\]\\]", "[a-]", "[-a]", "a{2}b", "a{1,2}b", "a{0,}b", "a{2", "a??b?",
    "a*?b", "(a+?)(b{1}?)", r"\x61", r"\x41|\t|\n|\v|\f|\r|\a", r"\.|\(a\)|\{", "é|a.|€.*", "[à-ÿ]",
    r"a\.b", r"\d{1,2}:\d\d", "((a)|(b)|(ab))*", "[a-z]+|[A-Z]|[0-9]", "x[0-9A-F]{2,3}",
]
# In RE2's form alone, with a pattern of Python's that means the same.
FORMS = {
    r"\s": "[\t\n\f\r ]", r"\S+": "[^\t\n\f\r ]+", r"\Aab\z": "ab",
    "a{02}|b{1,02}": r"a\{02\}|b\{1,02\}", "a{1000000000}": r"a\{1000000000\}",
    r"\x{61}b?": "ab?", r"\x{20AC}.*": "€.*", "[[:alpha:]]+": "[A-Za-z]+",
    "[[:alnum:]]+": "[0-9A-Za-z]+", "[[:digit:]]+": "[0-9]+", "[[:lower:]]+": "[a-z]+",
    "[[:upper:]]": "[A-Z]", "[[:space:]]": "[\t-\r ]", "[[:blank:]]": "[\t ]",
    "[[:punct:]]+": "[!-/:-@\\[-`{-~]+", "[[:xdigit:]x]+": "[0-9A-Fa-fx]+",
    "[[:word:]]+": "[0-9A-Za-z_]+",
    "[^[:punct:]]": "[^!-/:-@\\[-`{-~]", r"\z": "", r"a\z": "a",
}
# What RE2 refuses, and what this library does not have of it.
REFUSED = ["a**", "a+*", "a?{2}", "a{2}{3}", "a{2}{3}?", "a{2}?*", "(a)++", "a???",
           "(a{100}){11}", "((a{10}){10}){11}", "(ab{3}c){334}", "(a{334}|b){3}",
           "(b|a{334}){3}", "(a{501,}){2}", "(?P<>a)", "(?<>a)", "(?P<a-b>a)", r"\é", r"[\é]",
           "a{1001}", "a{2,1}", "*a", "(a", "a)", "(?i)a", "(?=a)", r"\pL", r"\Qa\E", r"\101",
           r"\C", "[[:^alpha:]]", "[[:print:]]", r"\1"]
NUMBERS = [
    "0", "1", "-7", "+3.5", "  42\n", "1e3", "1E-3", "-.5", "5.", "1e400", "-1e400", "1e-400",
    "0.1", "3.4028235e38", "123456789012345678901234567890", "0.00000000000000000000000012345",
    "9007199254740993", "1.7976931348623157e308", "4.9e-324", "inf", "-INF", "Infinity", "NaN",
    "000000000000000000000000000001.5", "1e0000000000000000000000001", "2.2250738585072014e-308",
    "8.7461652979679309e-3", "7.089081975536367e-25", "3.56255351856171e28",
    "3.211974347929942e237", "1.80980253839920763041e115", "8.03637235552123257997e54",
]
INTEGERS = ["0", "-1", " +12 ", "127", "-128", "00042"]
WIDE = ["9223372036854775807", "-9223372036854775808", "2147483648"]


def regex_cases():
    for pattern, python in [*((p, p) for p in PATTERNS), *FORMS.items()]:
        given = np.array(TEXTS, object).reshape(-1, 1)
        # A dot of RE2 is no newline either, and a class such as \d is of ASCII.
        found = [re.fullmatch(python, text, re.ASCII) is not None for text in TEXTS]
        model, inputs = one_node_model("RegexFullMatch", [("x", given)], ["y"], opset=20,
                                       pattern=pattern)
        yield model, inputs, [("y", np.array(found).reshape(-1, 1))], "0 0"
    for pattern in ("(a{500}){2}|b", "(a{20}|b{1,50}){20}|ab", "a{2}?b?", "(a{0}){1000}",
                    "(?P<n>a)(?P<n>b)"):
        found = [re.fullmatch(pattern.replace("<n>b", "<m>b"), text) is not None for text in TEXTS]
        model, inputs = one_node_model("RegexFullMatch", [("x", np.array(TEXTS, object))], ["y"],
                                       opset=20, pattern=pattern)
        yield model, inputs, [("y", np.array(found))], "0 0"
    # Too long for "a", a byte of Latin-1, half of a pair, above U+10FFFF, cut off.
    broken = [b"\xe0\x81\xa1", b"\xe1", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc3", b"\xff"]
    for pattern in ("a", ".", "[^b]", "\\W", "á", "[à-ÿ]", "..", "...", "(.|[^b])*"):
        model, inputs = one_node_model("RegexFullMatch", [("x", np.array(broken, object))], ["y"],
                                       opset=20, pattern=pattern)
        yield model, inputs, [("y", np.zeros(len(broken), bool))], "0 0"


def cast(texts, kind, dtype):
    model, inputs = one_node_model("Cast", [("x", np.array(texts, object))], ["y"], opset=19,
                                   to=kind)
    with np.errstate(over="ignore"):
        whole = np.dtype(dtype).kind in "iu"
        values = np.array([int(t) if whole else float(t) for t in texts]).astype(dtype)
    return model, inputs, [("y", values)], "0 0"


def number_cases():
    yield cast(NUMBERS, 11, "f8")
    yield cast(NUMBERS, 1, "f4")
    yield cast(INTEGERS + WIDE, 7, "i8")
    yield cast(INTEGERS, 3, "i1")
    yield cast(INTEGERS, 6, "i4")
    spread = random.standard_normal(200) * 10.0 ** random.integers(-30, 30, 200)
    yield cast([str(x) for x in spread], 11, "f8")
    yield cast([str(x) for x in random.integers(-2**63, 2**63, 200)], 7, "i8")


def occurrences(row, gram, skips):
    paces = range(1, skips + 2 if len(gram) > 1 else 2)
    return sum(list(row[start:start + len(gram) * pace:pace]) == gram
               for pace in paces for start in range(len(row) - (len(gram) - 1) * pace))


def gram_cases():
    """TfIdfVectorizer: pairs of a pool, some of which have the same place in the output."""
    pool, weights = [[1, 2], [2, 1], [1, 1], [0, 3]], [2.0, 0.5, -3.0, np.inf]
    x = random.integers(1, 3, (3, 12))
    for mode in ("TF", "IDF", "TFIDF"):
        for columns in ([0, 1, 2, 3], [2, 0, 0, 2], [1, 1, 1, 1]):
            for skips in (0, 3, 100):
                y = np.zeros((3, max(columns) + 1), "f4")
                for row, made in zip(x, y):
                    for gram, weight, column in zip(pool, weights, columns):
                        count = occurrences(row, gram, skips)
                        if count > 0:
                            made[column] = (weight if mode == "IDF" else made[column] + count *
                                            (weight if mode == "TFIDF" else 1))
                model, inputs = one_node_model(
                    "TfIdfVectorizer", [("x", x)], ["y"], mode=mode, min_gram_length=2,
                    max_gram_length=2, max_skip_count=skips, ngram_counts=[0, 0],
                    ngram_indexes=columns, pool_int64s=sum(pool, []), weights=weights)
                yield model, inputs, [("y", y)], "1e-6 0"


def split_cases():
    """The parts of StringSplit; by white space no part has any at its ends, the rest neither."""
    texts = ["a b", "  a  b\tc \n", "a ", " ", "", "abc", "x\v y  z  "]
    for most in (None, -1, 0, 1, 2, 9):
        limit = -1 if most is None else most
        parts = [[part.strip() for part in text.split(None, limit)] for text in texts]
        yield parts, texts, {} if most is None else {"maxsplit": most}
        parts = [text.split(" ", limit) for text in texts]
        yield parts, texts, {"delimiter": " ", **({} if most is None else {"maxsplit": most})}


def split_models():
    for parts, texts, attributes in split_cases():
        most = max(map(len, parts))
        y = np.array([part + [""] * (most - len(part)) for part in parts], object)
        z = np.array(list(map(len, parts)))
        model, inputs = one_node_model("StringSplit", [("x", np.array(texts, object))], ["y", "z"],
                                       opset=20, **attributes)
        yield model, inputs, [("y", y), ("z", z)], "0 0"


LETTERS = [(0, 0x180), (0x1a0, 0x1a2), (0x1af, 0x1b1), (0x1cd, 0x1dd), (0x1de, 0x1f0),
           (0x1f8, 0x220), (0x222, 0x234), (0x386, 0x3cf), (0x400, 0x530), (0x531, 0x587),
           (0x1e00, 0x1e96), (0x1ea0, 0x1f00), (0x4e00, 0x4e10), (0x1f600, 0x1f610)]


def other_case(letter, changed):
    """The other case is a letter of as many bytes, or it is left alone."""
    same = len(changed) == 1 and len(changed.encode()) == len(letter.encode())
    return changed if same and letter != "µ" else letter


def case_models():
    letters = [chr(c) for first, end in LETTERS for c in range(first or 1, end)]
    words = ["ŁÓDŹ", "Việt", "ΆΣΚΗΣΗ", "Ґрунт", "stays"]
    for action, change in (("LOWER", str.lower), ("UPPER", str.upper)):
        made = [other_case(letter, change(letter)) for letter in letters]
        given = [*letters, "".join(letters), *words]
        y = [*made, "".join(made)] + [change(word) for word in words[:-1]] * (action == "LOWER")
        stopwords = ["stays"] if action == "LOWER" else [*map(str.lower, words)]
        model, inputs = one_node_model(
            "StringNormalizer", [("x", np.array(given, object))], ["y"],
            case_change_action=action, stopwords=stopwords)
        yield model, inputs, [("y", np.array(y, object))], "0 0"


def check_refused(attnrun, folder):
    for pattern in REFUSED:
        model, _ = one_node_model("RegexFullMatch", [("x", np.array(["a"], object))], ["y"],
                                  opset=20, pattern=pattern)
        onnx.save(model, f"{folder}/refused.onnx")
        done = subprocess.run([attnrun, "inspect", f"{folder}/refused.onnx"], capture_output=True,
                              text=True, timeout=60)
        assert (done.returncode, "the pattern is not supported" in done.stderr) == (4, True), (
            pattern, done)


def main():
    with tempfile.TemporaryDirectory() as folder:
        cases = [*regex_cases(), *number_cases(), *gram_cases(), *split_models(), *case_models()]
        for number, case in enumerate(cases):
            write_case(f"{folder}/{number:03}_{case[0].graph.node[0].op_type}", *case)
        check(sys.argv[1], folder)
    with tempfile.TemporaryDirectory() as folder:
        check_refused(sys.argv[1], folder)


main()
