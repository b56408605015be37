"""What ends a conversion: one sentence and the exit code of the command line."""


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


def plural(n, noun):
    """A number and its noun, for a sentence: "1 output", "2 outputs"."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
