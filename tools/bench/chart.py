"""chart.py - benchmarks.svg: one bar a case and thread count, as long as its ratio.

Colours follow the reader's theme, the background is the page's.
"""
import math
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, TOP, FOOT = 760, 190, 50, 62, 34
BAR, GAP, GROUP_GAP = 14, 2, 12
NUMBER = 40  # width of "1.23" and the space before it

STYLE = """\
<style>
  text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
  .title { font-size: 14px; font-weight: 600 }
  .faint { fill: #59636e }
  .grid { stroke: #d1d9e0 }
  .one { stroke: #1f2328; stroke-width: 1.5 }
  .goal { stroke: #cf222e; stroke-width: 2 }
  .bar0 { fill: #54aeff } .bar1 { fill: #0969da }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc }
    .faint { fill: #9198a1 }
    .grid { stroke: #3d444d }
    .one { stroke: #f0f6fc }
    .goal { stroke: #ff7b72 }
    .bar0 { fill: #79c0ff } .bar1 { fill: #1f6feb }
  }
</style>"""


def line(css, x1, y1, x2, y2):
    return f'<line class="{css}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def words(x, y, text, anchor="start", css=""):
    css = f' class="{css}"' if css else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{css}>{escape(text)}</text>'


def plural(threads):
    return f"{threads} thread{'s' if threads > 1 else ''}"


def legend(counts):
    parts, x = [], LEFT
    for k, threads in enumerate(counts):
        parts.append(f'<rect class="bar{k % 2}" x="{x}" y="36" width="14" height="10" rx="2"/>')
        parts.append(words(x + 20, 45, plural(threads)))
        x += 90
    parts.append(line("goal", x + 4, 34, x + 4, 48))
    parts.append(words(x + 12, 45, "at least"))
    return parts


def group(results, case, counts, y, longest):
    """The bars of a case from y on, cut at `longest`; the goal is a mark across them."""
    height, scale = len(counts) * (BAR + GAP) - GAP, (WIDTH - LEFT - RIGHT) / longest
    parts = [words(LEFT - 10, y + height / 2 + 4, case.name, "end")]
    for k, threads in enumerate(counts):
        ratio, top = results.ratio(case, threads), y + k * (BAR + GAP)
        if math.isnan(ratio):
            parts.append(words(LEFT + 6, top + 11, "not measured", css="faint"))
            continue
        shown = min(ratio, longest)
        parts.append(f'<rect class="bar{k % 2}" x="{LEFT}" y="{top}" '
                     f'width="{shown * scale:.1f}" height="{BAR}" rx="2"/>')
        in_the_way = ratio < case.least < ratio + NUMBER / scale
        at = LEFT + (case.least if in_the_way else shown) * scale
        parts.append(words(at + 6, top + 11, f"{ratio:.2f}"))
    x = LEFT + case.least * scale
    return parts + [line("goal", x, y - 2, x, y + height + 2)]


def draw(results):
    counts = results.threads()
    ratios = [results.ratio(c, t) for c in results.cases.values() for t in counts]
    longest = min(3, max([1.5] + [r for r in ratios if not math.isnan(r)]))
    scale = (WIDTH - LEFT - RIGHT) / longest
    step = len(counts) * (BAR + GAP) - GAP + GROUP_GAP
    bottom = TOP + step * len(results.cases)
    bars = []
    for k, case in enumerate(results.cases.values()):
        bars += group(results, case, counts, TOP + GROUP_GAP / 2 + k * step, longest)
    ticks = [0.5 * k for k in range(int(longest / 0.5) + 1)]
    grid = [line("grid", LEFT + t * scale, bottom - 2, LEFT + t * scale, bottom + 3)
            for t in ticks] + [line("grid", LEFT, bottom, WIDTH - RIGHT, bottom)]
    labels = [words(LEFT + t * scale, bottom + 16, f"{t:g}", "middle", "faint")
              for t in ticks]
    one = LEFT + scale
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + FOOT}" '
        f'width="{WIDTH}" height="{bottom + FOOT}" role="img">', STYLE,
        words(12, 22, "Time of the faster of ONNX Runtime and OpenVINO over attnrun's "
              "(longer is better)", css="title"),
        *legend(counts), *grid, *bars, line("one", one, TOP - 2, one, bottom), *labels,
        words(one, bottom + 30, "as fast", "middle", "faint"), "</svg>"]) + "\n"
