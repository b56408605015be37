"""Models whose packed weights all processes of a machine share, through a mapped packed file.

In: the path of a model. Out: an open Model. The first process that asks writes the packed file
into a folder of the user, the others wait for it; each then maps that file, and its pages are
in memory once. The file is made anew when the model, the library, the instruction set or the
precision changes."""
import fcntl
import glob
import hashlib
import mmap
import os
import re
import stat
import warnings
from collections.abc import Iterable
from typing import Any

from . import _attnrun
from ._attnrun import Runtime
from ._errors import Error
from ._model import Model

STALE = ("IO", "PARSE", "VERSION", "UNSUPPORTED", "MODEL")  # what a packed file is made anew for
SUFFIX = ".attnpack"


def cache_folder() -> str:
    """Where packed files lie if no folder is given: $XDG_CACHE_HOME/attnrun/packed."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "attnrun", "packed")


_Print = tuple[str, int, int]  # name, size and time of a file


def _prints_of(paths: Iterable[str]) -> list[_Print]:
    """Of those that are regular files and still there: no others can hold weights."""
    prints = []
    for path in paths:
        try:
            found = os.lstat(path)
        except OSError:
            continue
        if stat.S_ISREG(found.st_mode):
            prints.append((path, found.st_size, found.st_mtime_ns))
    return prints


def _locations(path: str) -> set[bytes]:
    """Names of files in the entries of the model's tensors: key "location", and its value."""
    found = set()
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for entry in re.finditer(rb"\x0a\x08location\x12([\x80-\xff]?)([\x00-\x7f])", data):
            low, high = entry[1], entry[2][0]  # the length, in one byte or two
            size = (low[0] & 0x7f) + (high << 7) if low else high
            found.add(data[entry.end():entry.end() + size])
    return found


def prints_of_model(path: str, file_bytes: int) -> list[_Print]:
    """Of the model, and of the files that hold its weights: those that it names, where they have
    as many bytes as were read of it; else all files below its folder."""
    prints = _prints_of([path])
    size = sum(size for _, size, _ in prints)
    if file_bytes <= size:
        return prints
    folder = os.path.dirname(path)
    named = _prints_of(os.path.join(folder, os.fsdecode(name)) for name in _locations(path)
                       if b"\0" not in name)
    if size + sum(size for _, size, _ in named) != file_bytes:
        named = _prints_of(os.path.join(at, name) for at, _, names in os.walk(folder)
                           for name in names)
    return sorted({*prints, *named})


def _digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:20]


def place_of(model: Model, path: str, folder: str, precision: str, isa: str) -> tuple[str, str]:
    """(path of the packed file, the pattern of all that were made of this model)."""
    name = _digest((path, precision, isa))
    state = _digest((prints_of_model(path, model.info["file_bytes"]), _attnrun.version))
    return (os.path.join(folder, f"{name}-{state}{SUFFIX}"),
            os.path.join(glob.escape(folder), f"{name}-*{SUFFIX}"))


def _opened(place: str, runtime: Runtime) -> Model | None:
    if not os.path.exists(place):
        return None
    try:
        return Model(place, runtime=runtime)
    except Error as error:
        if error.status not in STALE:
            raise
        return None


def open_shared(path: str | os.PathLike[str], *, threads: int = 1, folder: str | None = None,
                precision: str = "f32") -> Model:
    """Opens the model in `path`, which may be a packed file, with shared packed weights.

    If the folder cannot be written, it warns and the weights are private. Raises Error."""
    runtime = Runtime(threads=threads)
    path = os.path.realpath(os.fspath(path))
    model = Model(path, runtime=runtime, precision=precision)
    if model.info["packed_for"]:
        return model
    folder = os.path.abspath(folder or cache_folder())
    try:
        places = place_of(model, path, folder, precision, runtime.info()["isa"])
        os.makedirs(folder, 0o700, exist_ok=True)
        packed = _opened(places[0], runtime)
        if packed is None:  # what is opened now is what the place is named after
            model = Model(path, runtime=runtime, precision=precision)
            if place_of(model, path, folder, precision, runtime.info()["isa"]) == places:
                packed = _packed(model, *places, runtime)
        return packed or model
    except OSError as error:
        warnings.warn(f"{folder} cannot hold the packed weights of {path} ({error}): each "
                      "process packs its own", RuntimeWarning, stacklevel=2)
        return model


def _packed(model: Model, place: str, others: str, runtime: Runtime) -> Model:
    """Writes the packed file unless another process did so meanwhile."""
    with open(place.rpartition("-")[0] + ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # gone with the process, however that ends
        made = _opened(place, runtime)
        if made is not None:
            return made
        model.pack(place)
        for old in glob.glob(others):
            if old != place:
                os.unlink(old)  # who has it open keeps it
        return Model(place, runtime=runtime)
