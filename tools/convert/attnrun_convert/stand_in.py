"""Imports a package without other packages that it names and does not need here.

timm imports torchvision and PIL for the images of its data sets, and one layer that none of its
models has. A build of torchvision loads beside one build of torch alone, so that often there is
none. In: a package, and the packages that may be left out. Out: its module. Those that do not load
are empty modules while it is imported: each of their names is an empty class, and none of
these can be made an object of. Afterwards they are gone, so that no other package takes them for
the real ones."""
import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from contextlib import contextmanager


class _Names(type):
    """A class that has every attribute."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _empty(f"{cls.__qualname__}.{name}")

    def __call__(cls, *arguments, **settings):
        raise ImportError(f"{cls.__qualname__} is needed, and its package does not load")


def _empty(name):
    return _Names(name, (), {"__qualname__": name})


class _Module(types.ModuleType):
    __version__ = "0.0"
    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _empty(f"{self.__name__}.{name}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        pass


def _forget(names):
    for key in [key for key in sys.modules if key.partition(".")[0] in names]:
        del sys.modules[key]


def loads(name):
    """Whether a package can be imported."""
    try:
        importlib.import_module(name)
        return True
    except (ImportError, RuntimeError, OSError):  # a build for another torch, too
        _forget({name})
        return False


@contextmanager
def _standing_in(names):
    finder = _Finder(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        _forget(names)


def import_without(name, others):
    missing = {other for other in others if not loads(other)}
    with _standing_in(missing):
        return importlib.import_module(name)
