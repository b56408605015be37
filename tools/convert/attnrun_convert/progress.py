"""progress: a line on the terminal, rewritten, for a step that takes longer than a second.

In: what is under way. Out: "exporting  3 s" on standard error while it lasts, and nothing where
that is no terminal. Those who print in between call clear() first.
"""
import sys
import threading
import time
from contextlib import contextmanager

FIRST_S, EACH_S = 1.0, 0.25
_shown = threading.Event()


def clear():
    """Takes the line away."""
    if _shown.is_set():
        _shown.clear()
        sys.stderr.write("\r\033[K")
        sys.stderr.flush()


def _show(what, ended):
    start, wait = time.monotonic(), FIRST_S
    while not ended.wait(wait):
        wait = EACH_S
        _shown.set()
        sys.stderr.write(f"\r\033[K{what}  {time.monotonic() - start:.0f} s")
        sys.stderr.flush()


@contextmanager
def step(what, quiet=False):
    """Shows `what` while the body runs."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_show, args=(what, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        clear()
