"""What ends a conversion: one sentence and the exit code of the command line."""
import difflib


class ConvertError(Exception):
    code = 70


class UsageError(ConvertError):
    """An argument that does not fit."""
    code = 2


class FileError(ConvertError):
    """A file that cannot be read or written."""
    code = 3


class UnsupportedError(ConvertError):
    """A model, or a variant of a module, that the converter does not know."""
    code = 4


class CaptureError(ConvertError):
    """The exporter failed."""
    code = 70


class VerifyError(ConvertError):
    """Results differ by more than the tolerance."""
    code = 1


def innermost(error):
    """The first cause of a chain of exceptions."""
    while error.__cause__ is not None or (error.__context__ is not None
                                          and not error.__suppress_context__):
        error = error.__cause__ or error.__context__
    return error


def first_line_of(text, otherwise="no reason given"):
    """Without the hints and the traces that may follow."""
    return next((line.strip() for line in text.splitlines() if line.strip()), otherwise)


def first_line(error):
    """The first line of what the first cause says."""
    cause = innermost(error)
    return first_line_of(str(cause), type(cause).__name__)


def nearest(name, names):
    """"; the nearest names are a, b" of `names`, whatever their case; "" where none is near."""
    by_lower = {}
    for other in sorted(names):
        by_lower.setdefault(other.lower(), []).append(other)
    found = [other for lower in difflib.get_close_matches(name.lower(), by_lower, n=4)
             for other in by_lower[lower]]
    said = f"{'names are' if len(found) > 1 else 'name is'} {', '.join(found)}"
    return f"; the nearest {said}" if found else ""


def demand_known(option, words, known, source=""):
    """Raises where an option names a size that the source has not."""
    unknown = sorted(set(words) - set(known))
    if unknown and not known:
        raise UsageError(f"{option} names '{unknown[0]}', but {source or 'the model'} has no "
                         "free sizes")
    if unknown:
        raise UsageError(f"{option} names '{unknown[0]}', but the free sizes"
                         f"{source and ' of ' + source} are {', '.join(sorted(known))}")


def plural(n, noun):
    """A number and its noun, for a sentence: "1 output", "2 outputs"."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
