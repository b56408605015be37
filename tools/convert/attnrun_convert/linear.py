"""Whole numbers that are linear in sizes and indices, and tensors whose elements are such
numbers, piece by piece along one direction. What follow.py computes with; nothing here
evaluates anything at some length.

A symbol is the name of a size (a string, at least 1) or an index (a whole number: the axis,
counted from 1 at the right). A Cell is an element of a tensor as a function of its indices:

    form None       one value for all indices
    form j - i, …   values in intervals of the form, sorted; outside of all of them the
                    constant that it comes from has ended

Values are bools, floats, ints and Linear.
"""
import math
from fractions import Fraction

INFINITE = math.inf
EXACT, STEEP = 1 << 24, 1 << 12  # of a constant and a coefficient, in float32


class Unproved(Exception):
    """Why a value cannot be followed."""


class Linear:
    """constant + sum of coefficient * symbol; made by `linear`, which gives an int where
    there is no symbol."""

    __slots__ = ("terms", "constant")

    def __init__(self, terms, constant):
        self.terms, self.constant = terms, constant

    def __add__(self, other):
        terms, constant = parts(other)
        return linear({s: self.terms.get(s, 0) + terms.get(s, 0)
                       for s in {**self.terms, **terms}}, self.constant + constant)

    def __mul__(self, factor):
        if isinstance(factor, Linear):
            raise Unproved("two sizes or positions are multiplied")
        factor = whole(factor)
        return linear({s: c * factor for s, c in self.terms.items()}, self.constant * factor)

    def __neg__(self):
        return self * -1

    def __sub__(self, other):
        return self + -1 * other

    def __rsub__(self, other):
        return -self + other

    __radd__, __rmul__ = __add__, __mul__

    def __eq__(self, other):
        return isinstance(other, Linear) and (self.terms, self.constant) == (
            other.terms, other.constant)

    def __hash__(self):
        return hash((frozenset(self.terms.items()), self.constant))

    def __repr__(self):
        return " + ".join([f"{c}*{s}" for s, c in self.terms.items()] + [str(self.constant)])


def linear(terms, constant):
    terms = {s: c for s, c in terms.items() if c}
    if terms and (abs(constant) > EXACT or max(map(abs, terms.values())) > STEEP):
        raise Unproved("a position is combined with a number so large that it is rounded")
    return Linear(terms, constant) if terms else constant


def symbol(name):
    return Linear({name: 1}, 0)


def whole(x):
    """A number that is whole, as an int."""
    if isinstance(x, float) and not x.is_integer():
        raise Unproved(f"a position is combined with {x:g}")
    return int(x)


def parts(x):
    """(terms, constant)"""
    return (x.terms, x.constant) if isinstance(x, Linear) else ({}, whole(x))


def indices_of(x):
    return {s: c for s, c in parts(x)[0].items() if isinstance(s, int)}


def substituted(x, mapping):
    """`x` with values in place of some indices."""
    if not isinstance(x, Linear):
        return x
    total = x.constant
    for s, c in x.terms.items():
        total = mapping.get(s, symbol(s)) * c + total
    return total


def never_negative(x, dims):
    """Whether x >= 0 whatever the sizes are; `dims`: {index: size of its axis}."""
    if not isinstance(x, Linear):
        return x >= 0
    least = x.constant
    for s, c in x.terms.items():
        if not isinstance(s, int):
            least = symbol(s) * c + least
        elif c < 0:
            if s not in dims:
                return False
            least = (dims[s] - 1) * c + least
    terms, constant = (least.terms, least.constant) if isinstance(least, Linear) else ({},
                                                                                      least)
    return min(terms.values(), default=0) >= 0 and constant + sum(terms.values()) >= 0


class Cell:
    """`form`: a tuple of (index, coefficient), the first coefficient above zero, without a
    common divisor; `pieces`: [(first, last, value)]."""

    __slots__ = ("form", "pieces")

    def __init__(self, form, pieces):
        joined = []
        for low, high, value in pieces:
            if joined and joined[-1][1] + 1 == low and _same(joined[-1][2], value):
                joined[-1] = (joined[-1][0], high, value)
            else:
                joined.append((low, high, value))
        if not joined:
            raise Unproved("its constants have no common part")
        self.form, self.pieces = form, joined

    @property
    def value(self):
        """The only value, or None."""
        return self.pieces[0][2] if len(self.pieces) == 1 and self.form is None else None


def _same(a, b):
    return type(a) is type(b) and (a == b or a != a and b != b)


def everywhere(value):
    return Cell(None, [(-INFINITE, INFINITE, value)])


def _overlaps(cells):
    """(form, [(first, last, values)])"""
    forms = {cell.form for cell in cells} - {None}
    if len(forms) > 1:
        raise Unproved("it depends on more than the distance of query and key")
    rows = [(-INFINITE, INFINITE, ())]
    for cell in cells:
        rows = [(max(a, low), min(b, high), (*values, value)) for a, b, values in rows
                for low, high, value in cell.pieces if max(a, low) <= min(b, high)]
    return next(iter(forms), None), rows


def combined(function, *cells):
    """The cell of function(values)."""
    form, rows = _overlaps(cells)
    return Cell(form, [(low, high, function(*values)) for low, high, values in rows])


def normal(terms):
    """(form, factor) of the indices {index: coefficient}: they are factor * form."""
    divisor = math.gcd(*terms.values())
    first = terms[min(terms)]
    factor = divisor if first > 0 else -divisor
    return tuple(sorted((s, c // factor) for s, c in terms.items())), factor


def _difference(a, b):
    """(terms, constant) of a - b, exact: one of both may be a fraction."""
    if isinstance(a, Linear) and isinstance(b, Linear):
        return parts(a - b)
    sign, x, number = (1, a, b) if isinstance(a, Linear) else (-1, b, a)
    if isinstance(number, float) and not math.isfinite(number):
        raise Unproved("a position is compared with infinity")
    return ({s: sign * c for s, c in x.terms.items()},
            sign * (x.constant - Fraction(number)))


def _decided(kind, terms, constant, dims):
    """Whether terms + constant is `kind` ("<=" or "==") zero for all sizes, for none (False),
    or None."""
    low, high = math.floor(constant), math.ceil(constant)
    if kind == "<=":
        if never_negative(-1 * Linear(terms, high), dims):
            return True
        return False if never_negative(Linear(terms, low) - 1, dims) else None
    apart = never_negative(Linear(terms, low) - 1, dims) or never_negative(
        -1 * Linear(terms, high) - 1, dims)
    return False if apart else None


def _true_between(kind, factor, constant):
    """(first, last) t with factor * t + constant `kind` 0; first > last for none."""
    at = Fraction(-constant) / factor
    if kind == "==":
        return (int(at), int(at)) if at.denominator == 1 else (1, 0)
    return (-INFINITE, math.floor(at)) if factor > 0 else (math.ceil(at), INFINITE)


def _cut(low, high, first, last):
    """Pieces of low … high: True between first and last, False elsewhere."""
    if first > last:
        return [(low, high, False)]
    found = [(low, min(high, first - 1), False), (max(low, first), min(high, last), True),
             (max(low, last + 1), high, False)]
    return [piece for piece in found if piece[0] <= piece[1] and not (
        piece[0] == piece[1] and math.isinf(piece[0]))]


def compared(kind, a, b, dims):
    """The cell of a <= b or a == b."""
    form, rows = _overlaps((a, b))
    found = []
    for low, high, (x, y) in rows:
        if not isinstance(x, Linear) and not isinstance(y, Linear):
            found.append((low, high, bool(x <= y if kind == "<=" else x == y)))
            continue
        terms, constant = _difference(x, y)
        truth = _decided(kind, terms, constant, dims) if terms else None
        if not terms:
            truth = constant <= 0 if kind == "<=" else constant == 0
        if truth is not None:
            found.append((low, high, truth))
            continue
        if any(not isinstance(s, int) for s in terms):
            raise Unproved("it depends on the length itself")
        direction, factor = normal(terms)
        if form not in (None, direction):
            raise Unproved("it depends on more than the distance of query and key")
        form = direction
        found += _cut(low, high, *_true_between(kind, factor, constant))
    return Cell(form, found)


def moved(cell, mapping):
    """The cell with other indices: {index: Linear of the new ones}."""
    values = [(low, high, substituted(value, mapping)) for low, high, value in cell.pieces]
    if cell.form is None:
        return Cell(None, values)
    terms, constant = parts(substituted(Linear(dict(cell.form), 0), mapping))
    if any(not isinstance(s, int) for s in terms):
        raise Unproved("it depends on the length itself")
    if not terms:
        inside = [v for low, high, v in values if low <= constant <= high]
        if not inside:
            raise Unproved("it reads a constant beyond its end")
        return everywhere(inside[0])
    form, factor = normal(terms)
    found = []
    for low, high, value in values:
        ends = [x if math.isinf(x) else Fraction(x - constant, abs(factor))
                for x in (low, high)]
        if factor < 0:  # low <= -|factor| t + constant <= high
            ends = [x if math.isinf(x) else Fraction(constant - x, -factor)
                    for x in (high, low)]
            ends = [-INFINITE if math.isinf(high) else ends[0],
                    INFINITE if math.isinf(low) else ends[1]]
        first = ends[0] if math.isinf(ends[0]) else math.ceil(ends[0])
        last = ends[1] if math.isinf(ends[1]) else math.floor(ends[1])
        if first <= last:
            found.append((first, last, value))
    return Cell(form, sorted(found, key=lambda piece: piece[0]))


def along(index, pieces):
    """The cell of pieces along one index, from 0. A piece of one element that the next one
    would give, too, is part of it."""
    found = []
    for low, high, value in reversed(pieces):
        if found and low == high and substituted(found[-1][2], {index: low}) == value:
            found[-1] = (low, *found[-1][1:])
        else:
            found.append((low, high, value))
    if len(found) == 1:
        return everywhere(found[0][2])
    return Cell(((index, 1),), found[::-1])
