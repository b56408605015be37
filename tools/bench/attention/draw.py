"""draw.py - small panels, one a family of operators, over the number of tokens.

In: what was measured of each operator, and its family. Out: an SVG file. Both axes are in powers
and the same in all panels; dense attention is the thick line in each, so that a panel can be
read on its own. Colours follow the reader's theme; a line has a mark of its own besides.
"""
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import chart  # noqa: E402

COLUMNS, PANEL_WIDTH, PLOT_HEIGHT = 3, 320, 190
LEFT, RIGHT, TOP, GAP, HEAD, AXIS = 84, 12, 30, 10, 44, 40  # LEFT holds "1,000,000"
ROW = 16  # pixels of a name below a panel
MARKS = ("circle", "square", "triangle", "diamond", "plus", "cross", "wedge")  # 7 by 6 colours

STYLE = chart.STYLE.replace("</style>", """\
  .curve { fill: none; stroke-width: 1.8 }
  .dense { fill: none; stroke-width: 3.5; stroke: #8c959f }
  .densemark { fill: #8c959f }
  .name { font-size: 11px }
  .c0 { stroke: #0969da } .c1 { stroke: #bc4c00 } .c2 { stroke: #1a7f37 }
  .c3 { stroke: #8250df } .c4 { stroke: #bf3989 } .c5 { stroke: #57606a }
  .mark { fill: none; stroke-width: 1.8 }
  @media (prefers-color-scheme: dark) {
    .c0 { stroke: #58a6ff } .c1 { stroke: #f0883e } .c2 { stroke: #3fb950 }
    .c3 { stroke: #bc8cff } .c4 { stroke: #f778ba } .c5 { stroke: #b1bac4 }
    .dense { stroke: #6e7681 } .densemark { fill: #6e7681 }
  }
</style>""")


def powers(low, high, base):
    first, last = math.floor(math.log(low, base)), math.ceil(math.log(high, base) - 1e-9)
    return [base ** k for k in range(first, max(last, first + 1) + 1)]


def number(value):
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def mark(k, x, y, r=3.2):
    """The k-th mark at a place."""
    css = f'class="mark c{k % 6}"'
    shape = MARKS[k % len(MARKS)]
    if shape == "circle":
        return f'<circle {css} cx="{x:.1f}" cy="{y:.1f}" r="{r}"/>'
    paths = {"square": f"M{x - r:.1f} {y - r:.1f}h{2 * r}v{2 * r}h{-2 * r}z",
             "triangle": f"M{x:.1f} {y - r:.1f}l{r} {2 * r}h{-2 * r}z",
             "wedge": f"M{x - r:.1f} {y - r:.1f}h{2 * r}l{-r} {2 * r}z",
             "diamond": f"M{x:.1f} {y - r:.1f}l{r} {r}l{-r} {r}l{-r} {-r}z",
             "plus": f"M{x - r:.1f} {y:.1f}h{2 * r}M{x:.1f} {y - r:.1f}v{2 * r}",
             "cross": f"M{x - r:.1f} {y - r:.1f}l{2 * r} {2 * r}m0 {-2 * r}l{-2 * r} {2 * r}"}
    return f'<path {css} d="{paths[shape]}"/>'


class Axes:
    """From tokens and values to places in a panel; the same for all panels."""

    def __init__(self, curves):
        values = [v for points in curves.values() for _, v in points] or [1, 10]
        lengths = [n for points in curves.values() for n, _ in points] or [1, 2]
        self.values = powers(min(values), max(values), 10)
        self.lengths = sorted(set(lengths))

    def x(self, n):
        span = math.log(self.lengths[-1] / self.lengths[0]) or 1
        return LEFT + (PANEL_WIDTH - LEFT - RIGHT) * math.log(n / self.lengths[0]) / span

    def y(self, value):
        share = math.log(value / self.values[0]) / math.log(self.values[-1] / self.values[0])
        return TOP + PLOT_HEIGHT * (1 - share)

    def drawn(self, unit):
        parts = []
        for value in self.values:
            parts += [chart.line("grid", LEFT, self.y(value), PANEL_WIDTH - RIGHT, self.y(value)),
                      chart.words(LEFT - 6, self.y(value) + 4, number(value), "end", "faint")]
        bottom = TOP + PLOT_HEIGHT
        for n in self.lengths[::max(1, math.ceil(len(self.lengths) / 5))]:
            parts += [chart.line("grid", self.x(n), TOP, self.x(n), bottom),
                      chart.words(self.x(n), bottom + 15, f"{n:,}", "middle", "faint")]
        middle = TOP + PLOT_HEIGHT / 2
        parts += [chart.words((LEFT + PANEL_WIDTH - RIGHT) / 2, bottom + 31, "tokens", "middle"),
                  f'<g transform="rotate(-90 12 {middle:.0f})">'
                  + chart.words(12, middle + 4, unit, "middle") + "</g>"]
        return parts


def path_of(axes, points):
    return " ".join(f"{axes.x(n):.1f},{axes.y(v):.1f}" for n, v in points)


def panel(axes, family, curves, dense, unit):
    """A family's curves over the dense one, and their names below."""
    parts = [chart.words(LEFT, 18, family, css="title"), *axes.drawn(unit)]
    y = TOP + PLOT_HEIGHT + AXIS
    if dense:
        parts.append(f'<polyline class="dense" points="{path_of(axes, dense)}"/>')
    for k, (name, points) in enumerate(curves.items()):
        parts.append(f'<polyline class="curve c{k % 6}" points="{path_of(axes, points)}"/>')
        parts += [mark(k, axes.x(n), axes.y(v)) for n, v in points]
        parts += [mark(k, LEFT + 6, y + 8), chart.words(LEFT + 18, y + 12, name, css="name")]
        y += ROW
    return parts


def draw(title, unit, curves, factor, families=None):
    """curves: {name: [(n, value)]}; values are shown times `factor`, zeros are left out;
    families: {name: family}. The curve "dense" is in all panels."""
    curves = {name: [(n, v * factor) for n, v in points if v > 0]
              for name, points in curves.items()}
    curves = {name: points for name, points in curves.items() if points}
    dense = curves.get("dense", [])
    grouped = {}
    for name, points in curves.items():
        if name != "dense":
            grouped.setdefault((families or {}).get(name, "other"), {})[name] = points
    grouped = grouped or {"dense attention": {}}
    axes = Axes(curves)
    rows = [list(grouped.items())[k:k + COLUMNS] for k in range(0, len(grouped), COLUMNS)]
    parts, top = [], HEAD
    for row in rows:
        for k, (family, members) in enumerate(row):
            parts += [f'<g transform="translate({k * (PANEL_WIDTH + GAP)} {top})">',
                      *panel(axes, family, members, dense, unit), "</g>"]
        top += TOP + PLOT_HEIGHT + AXIS + ROW * max(len(m) for _, m in row) + GAP
    width = COLUMNS * (PANEL_WIDTH + GAP)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top}" '
        f'width="{width}" height="{top}" role="img" aria-label="{title} over tokens">', STYLE,
        chart.words(12, 22, f"{title} over tokens: 8 heads of 64, one thread", css="title"),
        f'<rect class="densemark" x="{width - 190}" y="14" width="22" height="4"/>',
        chart.words(width - 162, 21, "dense attention"),
        *parts, "</svg>"]) + "\n"
