"""panels.py - small charts of lines side by side, as one SVG that follows the reader's theme.

A panel is a dict: title, curves {name: [(x, y)]} (all panels draw a name in one colour),
x_name, log (both axes in powers; else both linear, y from 0), and unit (a function that
writes a value of y). Names stand at the ends of the lines.
"""
import datetime
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))
import chart  # noqa: E402
import written  # noqa: E402

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 460, 330, 58, 24, 62, 46
LABEL = 15  # pixels between names
LIGHT = ("#0969da", "#bc4c00", "#8250df", "#1a7f37")
DARK = ("#58a6ff", "#f0883e", "#bc8cff", "#3fb950")


def style():
    def rules(colours):
        return "".join(f".l{k} {{ stroke: {c} }} .t{k} {{ fill: {c} }} .d{k} {{ fill: {c} }}\n"
                       for k, c in enumerate(colours))
    head, tail = chart.STYLE.rsplit("}\n</style>", 1)
    more = ("polyline { fill: none; stroke-width: 2 }\n"
            ".l0 { stroke-width: 4.5 }\n" + rules(LIGHT))  # seen where another lies on it
    return head.replace("<style>\n", "<style>\n" + more, 1) + rules(DARK) + "}\n</style>" + tail


def steps_of(most):
    """Round values from 0 that reach `most`, five of them or so."""
    step = 10 ** math.floor(math.log10(most))
    step = next(step * f for f in (0.1, 0.2, 0.5, 1, 2) if most / (step * f) <= 6)
    return [k * step for k in range(math.ceil(most / step - 1e-9) + 1)]


def powers_of(least, most):
    """Powers of ten around all values."""
    return [10.0 ** k for k in range(math.floor(math.log10(least) + 1e-9),
                                     math.ceil(math.log10(most) - 1e-9) + 1)]


class Axes:
    def __init__(self, panel):
        points = [p for curve in panel["curves"].values() for p in curve]
        xs, ys = [p[0] for p in points], [p[1] for p in points]
        self.log = panel["log"]
        self.x_ticks = sorted(set(xs)) if self.log else steps_of(max(xs))
        self.y_ticks = powers_of(min(ys), max(ys)) if self.log else steps_of(max(ys))
        if len(self.y_ticks) == 1:
            self.y_ticks.append(self.y_ticks[0] * 10)

    def share(self, value, ticks):
        if not self.log:
            return value / ticks[-1]
        return math.log(value / ticks[0]) / math.log(ticks[-1] / ticks[0])

    def x(self, value):
        return LEFT + (WIDTH - LEFT - RIGHT) * self.share(value, self.x_ticks)

    def y(self, value):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * self.share(value, self.y_ticks)


def grid(axes, panel):
    parts = []
    for value in axes.y_ticks:
        y = axes.y(value)
        parts += [chart.line("grid", LEFT, y, WIDTH - RIGHT, y),
                  chart.words(LEFT - 6, y + 4, panel["unit"](value), "end", "faint")]
    for value in axes.x_ticks:
        parts.append(chart.words(axes.x(value), HEIGHT - BOTTOM + 18, f"{value:g}", "middle",
                                 "faint"))
    return parts + [chart.words((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, panel["x_name"],
                                "middle", "faint")]


def names_of(panels):
    """{name: number of its colour}, in the order of the panels."""
    names = [name for panel in panels for name in panel["curves"]]
    return {name: k for k, name in enumerate(dict.fromkeys(names))}


def curves(axes, panel, numbers):
    parts = []
    for name, points in panel["curves"].items():
        k = numbers[name]
        path = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in points)
        parts.append(f'<polyline class="l{k}" points="{path}"/>')
        if len(points) <= 12:
            parts += [f'<circle class="d{k}" cx="{axes.x(x):.1f}" cy="{axes.y(y):.1f}" '
                      f'r="3"/>' for x, y in points]
    return parts


def legend(numbers, width):
    parts, x = [], 12
    for name, k in numbers.items():
        parts += [f'<rect class="d{k}" x="{x}" y="34" width="14" height="4" rx="2"/>',
                  chart.words(x + 20, 40, name)]
        x += 34 + 7 * len(name)
    if x > width:
        raise ValueError("the names do not fit in one line")
    return parts


def draw(title, panels):
    """The SVG; its last line names this machine and the day."""
    numbers, width = names_of(panels), WIDTH * len(panels)
    parts = [chart.words(12, 20, title, css="title"), *legend(numbers, width),
             chart.words(12, HEIGHT + 22, f"{written.cpu()}, {datetime.date.today()}",
                         css="faint")]
    for k, panel in enumerate(panels):
        axes = Axes(panel)
        inner = [chart.words(LEFT, TOP - 6, panel["title"], css="faint"), *grid(axes, panel),
                 *curves(axes, panel, numbers)]
        parts += [f'<g transform="translate({k * WIDTH} 8)">', *inner, "</g>"]
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} '
                      f'{HEIGHT + 30}" width="{width}" height="{HEIGHT + 30}" role="img">',
                      style(), *parts, "</svg>"]) + "\n"
