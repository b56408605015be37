"""draw.py - lines over the number of tokens, both axes in powers; names at the ends.

Colours follow the reader's theme; dense attention is drawn thick.
"""
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import chart  # noqa: E402

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 620, 60, 230, 40, 40
LABEL = 13  # pixels between names

STYLE = chart.STYLE.replace("</style>", """\
  .curve { fill: none; stroke-width: 1.6 }
  .dense { fill: none; stroke-width: 3.5; stroke: #cf222e }
  .name { font-size: 11px }
</style>""")


def colour(k, n):
    return f"hsl({360 * k // max(n, 1)}, 65%, 45%)"


def spread(places):
    """Moves names apart that would cover each other: {name: y} -> {name: y}."""
    moved, last = {}, -math.inf
    for name, y in sorted(places.items(), key=lambda item: item[1]):
        last = max(y, last + LABEL)
        moved[name] = last
    over = last - (HEIGHT - BOTTOM)
    return {name: y - max(over, 0) for name, y in moved.items()} if moved else {}


def ticks(least, most, base):
    first, last = math.floor(math.log(least, base)), math.ceil(math.log(most, base))
    return [base ** k for k in range(first, last + 1)]


def draw(title, unit, curves, factor):
    """curves: {name: [(n, value)]}; values are shown times `factor`. Zeros are left out."""
    curves = {name: [(n, v * factor) for n, v in points if v > 0]
              for name, points in curves.items()}
    curves = {name: points for name, points in curves.items() if points}
    values = [v for points in curves.values() for _, v in points] or [1]
    lengths = [n for points in curves.values() for n, _ in points] or [1, 2]
    low, high = ticks(min(values), max(values), 10)[0], ticks(min(values), max(values), 10)[-1]
    high = high if high > low else low * 10

    def x_of(n):
        span = math.log(max(lengths) / min(lengths)) or 1
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(n / min(lengths)) / span

    def y_of(value):
        share = math.log(value / low) / math.log(high / low)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share

    parts = []
    for value in ticks(low, high, 10):
        y = y_of(value)
        parts += [chart.line("grid", LEFT, y, WIDTH - RIGHT, y),
                  chart.words(LEFT - 6, y + 4, f"{value:g}", "end", "faint")]
    for n in sorted(set(lengths)):
        parts.append(chart.words(x_of(n), HEIGHT - BOTTOM + 18, str(n), "middle", "faint"))
    names = spread({name: y_of(points[-1][1]) for name, points in curves.items()})
    for k, (name, points) in enumerate(curves.items()):
        path = " ".join(f"{x_of(n):.1f},{y_of(v):.1f}" for n, v in points)
        dense = name == "dense"
        paint = "#cf222e" if dense else colour(k, len(curves))
        css = 'class="dense"' if dense else f'class="curve" stroke="{paint}"'
        parts.append(f'<polyline {css} points="{path}"/>')
        end_x, end_y = x_of(points[-1][0]), y_of(points[-1][1])
        parts.append(f'<line stroke="{paint}" x1="{end_x:.1f}" y1="{end_y:.1f}" '
                     f'x2="{WIDTH - RIGHT + 14}" y2="{names[name]:.1f}"/>')
        parts.append(chart.words(WIDTH - RIGHT + 18, names[name] + 4, name, css="name"))
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img">', STYLE,
        chart.words(12, 22, f"{title} ({unit}), 8 heads of 64, one thread", css="title"),
        *parts, "</svg>"]) + "\n"
