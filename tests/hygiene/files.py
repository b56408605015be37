"""files.py - the project's own files, for the checks in this folder."""
import os

SKIP = {".git", "__pycache__", ".cache"}


def walk(root, suffixes=None):
    """Paths below root, relative, sorted; build folders are left out."""
    found = []
    for base, folders, names in os.walk(root):
        folders[:] = [f for f in folders
                      if f not in SKIP and not (base == root and f.startswith("build"))]
        for name in names:
            if name in SKIP:  # .git of a worktree
                continue
            path = os.path.relpath(os.path.join(base, name), root)
            if suffixes is None or path.endswith(suffixes):
                found.append(path)
    return sorted(found)


def text_of(root, path):
    """The text, or None where it is not text."""
    with open(os.path.join(root, path), "rb") as file:
        data = file.read()
    if b"\0" in data or path.endswith(".pb"):
        return None
    return data.decode("utf-8")
