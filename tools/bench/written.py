"""written.py - parts of pages that a tool writes, between marks, and the machine that is named
beside figures.

A part called NAME stands between <!-- NAME --> and <!-- end of NAME -->, each on a line of its
own; there is exactly one of that name in a page."""
import os
import platform
import time


def cut(path, name):
    """(what is before the part, the part, what is after it)"""
    marks = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    with open(path, encoding="utf-8") as file:
        page = file.read()
    if [page.count(mark) for mark in marks] != [1, 1]:
        raise ValueError(f"{path} has no part, or more than one, called '{name}'")
    before, rest = page.split(marks[0])
    part, after = rest.split(marks[1])
    return before + marks[0], part, marks[1] + after


def write(path, name, text):
    before, _, after = cut(path, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(before + text.rstrip("\n") + "\n" + after)


def write_rows(path, name, sentence, head, rows):
    """Writes a table below `sentence`. head: its cells; rows: lists of cells, which take the
    places of those with the same first cell; the table keeps its other rows."""
    held = [line.strip("| ").split(" | ") for line in cut(path, name)[1].splitlines()
            if line.startswith("| ") and not line.startswith(f"| {head[0]} |")]
    table = {cells[0]: cells for cells in [*held, *rows]}
    lines = [f"| {' | '.join(cells)} |" for cells in [head, *table.values()]]
    write(path, name, "\n".join([sentence, "", lines[0], "|" + "---|" * len(head), *lines[1:]]))


def cpu():
    """The name of the processor."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    return names[0] if names else platform.machine()


def measured(tool, *more):
    """"Written by `TOOL` on CPU, N cores, MORE, DATE": the beginning of a sentence."""
    return ", ".join([f"Written by `{tool}` on {cpu()}", *more, time.strftime("%Y-%m-%d")])
