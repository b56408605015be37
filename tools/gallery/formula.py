"""formula.py - short formulas as text -> MathML.

Letters and words are identifiers (one letter is italic), digits are numbers, "…" is text.
x_i, x^2, x_{i j}, √x and {a}/{b} are what they are in TeX; {{ and }} are braces that are
shown; two spaces are a wide one.
"""
import re
from xml.sax.saxutils import escape

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
        while self.next() and self.next() != "}":
            found.append(self.item())
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

    def group(self):
        found = self.row()
        if self.next() != "}":
            raise ValueError("a brace is not closed")
        self.take()
        return found

    def atom(self):
        token = self.take()
        if token == "{":
            found = self.group()
            if self.next() == "/" and self.tokens[self.at + 1:self.at + 2] == ["{"]:
                self.at += 2
                return f"<mfrac>{found}{self.group()}</mfrac>"
            return found
        if token == "√":
            return f"<msqrt>{self.atom()}</msqrt>"
        return leaf(token)


def leaf(token):
    if token[0] == '"':
        return f"<mtext>{escape(token[1:-1])}</mtext>"
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
    """One line; the text itself is what is read out where MathML is not known."""
    reader = Reader(text)
    found = reader.row()
    if reader.next():
        raise ValueError(f"{text}: a brace too many")
    return f'<math xmlns="http://www.w3.org/1998/Math/MathML">{found}</math>'
