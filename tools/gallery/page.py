"""page.py - the gallery as one HTML file: descriptions, systems.py and gallery.json in, text
out. No script, nothing from elsewhere, and nothing that differs from machine to machine.
"""
import re
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

import formula
import picture
import style
import systems

MODELS = Path(__file__).resolve().parents[2] / "models"
sys.path.insert(0, str(MODELS))
import build  # noqa: E402

SIZE_PX, THINNEST_PX, TOKENS = 256, 12, 64
THUMBNAIL_PX = 64
SET = {"64 queries": "64 queries, 4,096 keys", "maps": "64 × 64 pixels, 256 channels",
       "samples": "fields of 64", "": "4,096 tokens, 512 wide"}


@dataclass(frozen=True)
class Model:
    """A description and what systems.py says of it."""
    name: str
    description: dict
    system: systems.System


def described():
    """{model: Model}, by section and in the order of systems.py."""
    found = {name: build.read(path) for name, path in build.described().items()}
    known = {name: one["operators"] for name, one in found.items()}
    models = [Model(name, one, systems.system_of(name, one["operators"], known))
              for name, one in found.items()]
    order = list(systems.SYSTEMS)
    models.sort(key=lambda m: (systems.SECTIONS.index(m.system.section),
                               order.index(m.name) if m.name in order else len(order)))
    return {model.name: model for model in models}


def operators(model):
    """domain::name of what the figures and pictures are of."""
    return [f"attnrun::{name}" for name in model.description["operators"]] + [
        f"ai.onnx::{name}" for name in model.system.standard]


# ---- words ----

def minus(text):
    return text.replace("-", "−")


def number(value):
    if value == 0:
        return "0"
    text = f"{value:.1e}" if abs(value) < 1e-3 else f"{value:.2g}"
    digits, _, power = text.partition("e")
    if not power:
        return minus(text)
    return f"{digits.removesuffix('.0')}·10<sup>{minus(str(int(power)))}</sup>"


def three_digits(value):
    digits = 3 if value < 0.1 else 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{digits}f}"


def of_bytes(value):
    return f"{three_digits(value / 1e6)} MB" if value >= 1e5 else f"{value / 1e3:.1f} kB"


def powers(text):
    """n^2 and n_q of a cost as HTML; other names with _ are words."""
    text = re.sub(r"\^(\d+(?:\.\d+)?|\w)", r"<sup>\1</sup>", escape(text))
    text = re.sub(r"\b([a-z])_(\w+)", r"\1<sub>\2</sub>", text)
    return re.sub(r"(?<=\w)_(?=\w)", "\u2011", text)


def share_of(kept):
    """How much of a picture of weights of tokens by tokens is seen, in words."""
    if (kept["rows"], kept["columns"]) != (TOKENS, TOKENS) or kept["scale"] != "linear" or (
            kept.get("moved")):
        return ""
    percent = 100 * (picture.unpacked(kept) != 0).mean()
    return f"{percent:.0f}% of pairs" if percent < 99.5 else ""


def papers(text):
    """Links: arXiv:…, doi:… of each paper; papers are parted by semicolons."""
    found = []
    for paper in text.split("; "):
        link = re.search(r"(arXiv|doi):(\S+)", paper)
        if not link:
            raise ValueError(f"{paper}: neither arXiv: nor doi:")
        host = "https://arxiv.org/abs/" if link[1] == "arXiv" else "https://doi.org/"
        found.append(f'<a href="{host}{escape(link[2])}">{escape(paper)}</a>')
    return "<br>".join(found)


# ---- pictures ----

def sources(kept, sizes, alt):
    light, dark = (picture.data_uri(kept, theme) for theme in (picture.LIGHT, picture.DARK))
    return (f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
            f'<img src="{light}" {sizes} alt="{escape(alt)}"></picture>')


def ends(kept):
    low, high = number(kept["low"]), number(kept["high"])
    return low, f"≥ {high}" if kept["cut"] else high


def figure(system, kept):
    rows, columns = kept["rows"], kept["columns"]
    unit = SIZE_PX // max(rows, columns)
    width, height = (max(THINNEST_PX, k * unit) for k in (columns, rows))
    share, mark = share_of(kept), ""
    if "mark" in kept:
        row, column = kept["mark"]
        mark = (f'<span class="mark" style="left:{100 * column / columns:g}%;'
                f'top:{100 * row / rows:g}%;width:{100 / columns:g}%;'
                f'height:{100 / rows:g}%"></span>')
    low, high = ends(kept)
    alt = f"{system}: {kept['caption']}; {rows} by {columns}" + (share and f", {share} seen")
    sizes = f'width="{width}" height="{height}" style="aspect-ratio:{width}/{height}"'
    return (f'<figure><div class="frame">{sources(kept, sizes, alt)}{mark}</div>'
            f'<div class="scale"><span>{low}</span><i class="{kept["scale"]}"></i>'
            f"<span>{high}</span></div><figcaption>{escape(kept['caption'])}" +
            (f'<span class="share">{share}</span>' if share else "") +
            "</figcaption></figure>")


def thumbnail(kept):
    rows, columns = kept["rows"], kept["columns"]
    return sources(kept, f'width="{THUMBNAIL_PX}" '
                   f'height="{max(THINNEST_PX, THUMBNAIL_PX * rows // max(rows, columns))}"',
                   "")


# ---- figures ----

MAPS = {"SAGAN self-attention", "Squeeze-and-Excitation", "CBAM",
        "Selective Kernel block, 32 groups"}
DENSE = {"dense": "dense attention", "dense, causal": "dense attention, causal",
         "dense, 64 queries": "dense attention",
         "SAGAN self-attention": "all pixels (SAGAN)"}


def sizes_of(name, found):
    if "samples" in name:
        return SET["samples"]
    if "64 queries" in name:
        return SET["64 queries"]
    return SET["maps"] if MAPS & {name, found.get("beside")} else SET[""]


def ratio(value, dense):
    if abs(value - dense) < 0.005 * dense:
        return "" if value == dense else "the same"
    if value < dense:
        return f"{three_digits(dense / value)} × less"
    return f"{three_digits(value / dense)} × more"


def row(name, found, dense, longest, css=""):
    """dense: figures to compare with, or None; longest: the ms of a bar of full width, 0
    for no bar."""
    less = memory = bar = ""
    if dense:
        less = ratio(found["ms"], dense["ms"])
        memory = ratio(found["bytes"], dense["bytes"])
    if longest:
        width = max(1, 100 * found["ms"] / longest)
        bar = f'<span class="bar" style="width:{width:.0f}%"></span>'
    return (f'<tr{css}><th scope="row">{escape(name)}</th>'
            f'<td>{three_digits(found["ms"])} ms{bar}</td><td class="by">{less}</td>'
            f'<td>{of_bytes(found["bytes"])}</td>'
            f'<td class="by wide">{memory}</td></tr>')


def partners(cases, measured):
    """{dense attention that these cases stand beside: its figures}: one baseline for all cards,
    the minimum of the turns of all that was measured."""
    wanted = {one["beside"] for one in cases.values() if "beside" in one}
    found = {}
    for one in measured.values():
        if one.get("beside") in wanted:
            new = {"ms": one["beside_ms"], "bytes": one["beside_bytes"]}
            found[one["beside"]] = min(new, found.get(one["beside"], new),
                                       key=lambda figures: figures["ms"])
    return found


def table(system, measured):
    cases = {name: measured[name] for name in system.cases}
    beside = partners(cases, measured)
    longest = max(one["ms"] for one in [*cases.values(), *beside.values()])
    rows = [row(DENSE.get(name, name) if name.startswith("dense") else name, found,
                beside.get(found.get("beside")), longest if beside else 0)
            for name, found in cases.items() if name not in beside]
    rows += [row(DENSE[name], found, None, longest, ' class="dense"')
             for name, found in beside.items()]
    heading = sizes_of(*next(iter(cases.items())))
    return (f'<div class="table"><table><thead><tr><th scope="col">{heading}</th>'
            '<th scope="col">time</th><td></td><th scope="col">memory</th>'
            '<td class="wide"></td></tr>'
            f"</thead><tbody>{''.join(rows)}</tbody></table></div>")


# ---- the page ----

def facts(model, stored):
    costs = [(name, powers(stored["costs"][name])) for name in operators(model)]
    lines = [f"<dt>Cost of <code>{escape(name)}</code></dt><dd>{cost}</dd>"
             for name, cost in costs]
    lines.append(f'<dt>Cost in the model of <a href="{model.name}.yaml">{model.name}.yaml</a>'
                 f"</dt><dd>{powers(model.description['cost']['order'])}</dd>")
    lines.append(f"<dt>Paper</dt><dd>{papers(model.description['paper'])}</dd>")
    return f"<dl>{''.join(lines)}</dl>"


def title(model):
    name = model.description["system"]
    return name if name[1:2].isupper() else name[0].upper() + name[1:]


def card(model, stored):
    system, name = model.system, title(model)
    lines = "".join(f"<div>{formula.mathml(line)}</div>" for line in system.formula)
    pictures = "".join(figure(name, kept) for kept in stored["patterns"][model.name])
    note = f'<p class="note">{escape(system.note)}</p>' if system.note else ""
    return (f'<article id="{model.name}" aria-labelledby="{model.name}-name">'
            f'<h3 id="{model.name}-name">{escape(name)}</h3>'
            f'<p>{escape(system.text)}</p><div class="halves">'
            f'<div class="pictures">{pictures}</div><div class="details"><div>'
            f'<div class="formula">{lines}</div>{facts(model, stored)}</div><div>'
            f"{table(system, stored['measured'])}{note}</div></div></div></article>")


def entry(model, stored):
    cases = {name: stored["measured"][name] for name in model.system.cases}
    first = cases[model.system.cases[0]]
    dense = partners(cases, stored["measured"]).get(first.get("beside"))
    words = ratio(first["ms"], dense["ms"]) if dense else ""
    words = words.replace(" × less", " × faster").replace(" × more", " × slower")
    return (f'<li><a href="#{model.name}">{thumbnail(stored["patterns"][model.name][0])}'
            f"<span>{escape(title(model))}"
            f"<small>{words}</small></span></a></li>")


INTRODUCTION = """
<p class="lead">The attention of {count} systems. The operator itself makes each picture:
attnrun runs it on a small input and draws the result.</p>
<div class="columns"><div><h2>How to read it</h2>
<p>Each row is a query, from top to bottom. Each column is a key, from left to right. The colour is
the weight; keys that a query does not see are left empty. All systems see the same 64 tokens: eight
runs of eight, of the topics A&nbsp;B&nbsp;C&nbsp;B&nbsp;A&nbsp;D&nbsp;C&nbsp;D. Attention by
content shows as squares, attention by position as bands.</p>
<p>Systems for images see 16 × 16 pixels with a disc and a bar. There, a picture shows what the
outlined pixel sees. The values are one-hot rows, so the result of the operator is its weights. For
operators without values to weigh, the picture shows how much each row of the result changes when a
token changes.</p>
<ul class="legend"><li><i class="linear"></i> from small to large, or over powers of ten</li>
<li><i class="signed"></i> negative and positive</li>
<li><b class="unseen"></b> not seen</li></ul></div>
<div><h2>How it was measured</h2>
<p>Each operator is timed against dense attention on an input of the same size: 8 heads of 64
over 4,096 tokens, or a map of 64 × 64 pixels with 256 channels, unless the card says otherwise.
Causal operators are compared with causal dense attention. The projections before and after
attention are not part of the times. The operator and dense attention run alternately, and each
time is the minimum. All cards show the same time of dense attention.</p>
<p>Memory is what a run needs besides the inputs, the weights and the result. The plan gives the
exact figure before the run. The scores of dense attention would take 537&nbsp;MB if they were
stored.</p>
<p class="note">Measured on {machine}. <code>bash tools/gallery/build.sh --measure</code> repeats
the measurement.</p></div></div>
"""


def page(models, stored):
    by_section = {}
    for model in models.values():
        by_section.setdefault(model.system.section, []).append(model)
    index, cards = [], []
    for section, members in by_section.items():
        anchor = re.sub(r"\W+", "-", section.lower())
        entries = "".join(entry(model, stored) for model in members)
        index.append(f'<h3><a href="#{anchor}">{escape(section)}</a></h3><ul>{entries}</ul>')
        cards += [f'<section aria-labelledby="{anchor}"><h2 id="{anchor}">{escape(section)}'
                  "</h2>", *(card(model, stored) for model in members), "</section>"]
    return "\n".join([
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        '<link rel="icon" href="data:,">',
        "<title>attnrun: what a query sees</title>", f"<style>{style.STYLE}</style></head>",
        '<body><header><p class="name">attnrun</p><h1>What a query sees</h1>',
        INTRODUCTION.format(count=len(models), machine=escape(stored["machine"])),
        '</header><nav aria-label="Systems">', *index, "</nav><main>", *cards,
        "</main><footer>Made of <code>models/*.yaml</code> and <code>models/gallery.json"
        "</code> by <code>bash tools/gallery/build.sh</code>.</footer></body></html>"]) + "\n"
