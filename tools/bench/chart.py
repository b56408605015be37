"""chart.py - benchmarks.svg: one bar a case and thread count, as long as its ratio, in one panel
a family of models.

Colours follow the reader's theme, the background is the page's.
"""
import math
from xml.sax.saxutils import escape

WIDTH, RIGHT, TOP, FOOT = 760, 50, 60, 38
BAR, GAP, GROUP_GAP = 11, 2, 9
HEAD = 30       # pixels of a family's name
NUMBER = 34     # width of "1.23" and the space before it
LETTER = 6.6    # width of a letter of 12 pixels; those of a name are narrower on average
FAMILIES = (    # the first that fits counts
    ("Language models: one token", ("decode",)),
    ("Products of bf16", ("bf16",)),
    ("Weights of 8, 4 or 16 bits", ("int8", "int4", "f16 file")),
    ("Encoders and language models", ("MiniLM", "BERT", "GPT", "Llama")),
    ("Attention alone", ("attention",)),
    ("Images", ("",)))
TITLE = ("Speed-up over the faster of ONNX Runtime and OpenVINO "
         "(1 = equal, higher is better)")

STYLE = """\
<style>
  text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
  .title { font-size: 14px; font-weight: 600 }
  .family { font-weight: 600 }
  .value { font-size: 11px }
  .faint { fill: #59636e }
  .grid { stroke: #d1d9e0 }
  .one { stroke: #1f2328; stroke-width: 1.5 }
  .bar0 { fill: #54aeff } .bar1 { fill: #0969da }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc }
    .faint { fill: #9198a1 }
    .grid { stroke: #3d444d }
    .one { stroke: #f0f6fc }
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


def family(case):
    """The panel that a case stands in."""
    return next(name for name, words_ in FAMILIES if any(w in case.name for w in words_))


def legend(counts, left):
    parts, x = [], left
    for k, threads in enumerate(counts):
        parts.append(f'<rect class="bar{k % 2}" x="{x}" y="36" width="14" height="10" rx="2"/>')
        parts.append(words(x + 20, 45, plural(threads)))
        x += 90
    return parts


class Bars:
    """Where the bars lie: all panels have the same margin and the same scale."""

    def __init__(self, results):
        self.results, self.counts = results, results.threads()
        cases = results.cases.values()
        ratios = [results.ratio(c, t) for c in cases for t in self.counts]
        self.longest = min(3, max([1.5] + [r for r in ratios if not math.isnan(r)]))
        self.left = 24 + math.ceil(LETTER * max([len(c.name) for c in cases] + [10]))
        self.scale = (WIDTH - self.left - RIGHT) / self.longest
        self.step = len(self.counts) * (BAR + GAP) - GAP + GROUP_GAP

    def group(self, case, y):
        """The bars of a case from y on; one that is cut ends in an arrow."""
        height = self.step - GROUP_GAP
        parts = [words(self.left - 10, y + height / 2 + 4, case.name, "end")]
        for k, threads in enumerate(self.counts):
            ratio, top = self.results.ratio(case, threads), y + k * (BAR + GAP)
            if math.isnan(ratio):
                parts.append(words(self.left + 6, top + 10, "not measured", css="faint"))
                continue
            long = min(ratio, self.longest) * self.scale
            parts.append(f'<rect class="bar{k % 2}" x="{self.left}" y="{top:.1f}" '
                         f'width="{long:.1f}" height="{BAR}" rx="2"/>')
            crossed = long < self.scale < long + NUMBER  # the line of 1 would cross the number
            cut = " →" if ratio > self.longest else ""
            parts.append(words(self.left + (self.scale if crossed else long) + 5, top + 10,
                               f"{ratio:.2f}{cut}", css="value"))
        return parts

    def panel(self, name, cases, top):
        """A family: its name, its bars, and the axis below; (parts, where it ends)."""
        first = top + HEAD
        bottom = first + self.step * len(cases)
        parts = [words(12, top + 16, name, css="family")]
        for k in range(int(self.longest / 0.5) + 1):
            x = self.left + 0.5 * k * self.scale
            parts += [line("grid", x, first - 4, x, bottom),
                      words(x, bottom + 15, f"{0.5 * k:g}", "middle", "faint")]
        for k, case in enumerate(cases):
            parts += self.group(case, first + k * self.step)
        one = self.left + self.scale
        return parts + [line("one", one, first - 4, one, bottom)], bottom + 26


def draw(results):
    bars, panels = Bars(results), {}
    for case in results.cases.values():
        panels.setdefault(family(case), []).append(case)
    parts, top = [], TOP
    for name in dict.fromkeys([n for n, _ in FAMILIES[3:4] + FAMILIES[:1] + FAMILIES[4:]
                               + FAMILIES[1:3]]):
        if name in panels:
            drawn, top = bars.panel(name, panels[name], top)
            parts += drawn
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + FOOT - 20}" '
        f'width="{WIDTH}" height="{top + FOOT - 20}" role="img" aria-label="{TITLE}">', STYLE,
        words(12, 22, TITLE, css="title"), *legend(bars.counts, bars.left), *parts,
        words(bars.left + (WIDTH - bars.left - RIGHT) / 2, top + 8, "speed-up", "middle"),
        "</svg>"]) + "\n"
