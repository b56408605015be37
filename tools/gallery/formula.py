"""formula.py - short formulas as text -> MathML.

Letters and words are identifiers (one letter is italic), digits are numbers, "…" is text
with its spaces. x_i, x^2, x_{i j}, √x and {a}/{b} are what they are in TeX; (…) and […] are
one thing to an index behind them; {{ and }} are braces that are shown; two spaces are a wide
one.
"""
import re
from xml.sax.saxutils import escape

NO_BREAK = "\u00a0"
CLOSING = {"(": ")", "[": "]", "{": "}"}
WORD = re.compile(r"(?:<msub>|<msup>)?<mi>\w\w")
TOKEN = re.compile(r'"[^"]*"|\{\{|\}\}|  |[^\W\d_]+|\d+(?:\.\d+)?|\S')


class Reader:
    def __init__(self, text):
        self.tokens = TOKEN.findall(text)
        self.at = 0

    def next(self):
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self):
        self.at += 1
        return self.tokens[self.at - 1]

    def row(self):
        found = []
        while self.next() and self.next() not in CLOSING.values():
            item = self.item()
            if found and apart(found[-1], item):
                found.append('<mspace width=".17em"/>')
            found.append(item)
        return f"<mrow>{''.join(found)}</mrow>" if len(found) != 1 else found[0]

    def item(self):
        """An atom with its indices."""
        found, low, high = self.atom(), "", ""
        while self.next() in ("_", "^"):
            mark = self.take()
            if mark == "_":
                low = self.atom()
            else:
                high = self.atom()
        if low and high:
            return f"<msubsup>{found}{low}{high}</msubsup>"
        if low or high:
            tag = "msub" if low else "msup"
            return f"<{tag}>{found}{low or high}</{tag}>"
        return found

    def group(self, opening="{"):
        """What is between brackets; the opening one has been taken."""
        found = self.row()
        if self.next() != CLOSING[opening]:
            raise ValueError(f"{opening} is not closed")
        self.take()
        return found

    def fenced(self, opening):
        found = self.group(opening)
        form = "" if "<mfrac" in found else ' stretchy="false"'
        return (f"<mrow><mo{form}>{opening}</mo>{found}<mo{form}>{CLOSING[opening]}</mo>"
                "</mrow>")

    def atom(self):
        token = self.take()
        if token == "{":
            found = self.group()
            if self.next() == "/" and self.tokens[self.at + 1:self.at + 2] == ["{"]:
                self.at += 2
                return f"<mfrac>{found}{self.group()}</mfrac>"
            return found
        if token in ("(", "["):
            return self.fenced(token)
        if token == "√":
            return f"<msqrt>{self.atom()}</msqrt>"
        return leaf(token)


def apart(left, right):
    """Words such as max stand apart from factors, but not from brackets behind them."""
    if left.startswith(("<mo", "<mspace", "<mtext")) or right.startswith(
            ("<mo", "<mspace", "<mtext")):
        return False
    bracket = right.startswith("<mrow><mo")
    return bool(WORD.match(right)) or bool(WORD.match(left)) and not bracket


def leaf(token):
    if token[0] == '"':
        return f"<mtext>{escape(token[1:-1]).replace(' ', NO_BREAK)}</mtext>"
    if token == "  ":
        return '<mspace width="1.2em"/>'
    if token in ("{{", "}}"):
        return f'<mo stretchy="false">{token[0]}</mo>'
    if token == "mod":
        return '<mo lspace=".3em" rspace=".3em">mod</mo>'
    if token[0].isalpha():
        return f"<mi>{escape(token)}</mi>"
    if token[0].isdigit():
        return f"<mn>{token}</mn>"
    if token == "|":
        return '<mo stretchy="false" lspace=".1em" rspace=".1em">|</mo>'
    if token == "∑":
        return '<mo movablelimits="false">∑</mo>'
    return f"<mo>{escape(token)}</mo>"


def mathml(text):
    """One line."""
    reader = Reader(text)
    found = reader.row()
    if reader.next():
        raise ValueError(f"{text}: a bracket too many")
    return ('<math xmlns="http://www.w3.org/1998/Math/MathML" displaystyle="true">'
            f"{found}</math>")
