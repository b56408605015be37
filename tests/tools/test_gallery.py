#!/usr/bin/env python3
"""models/gallery.html: it is what its sources make, complete, and what the operators do.

usage: test_gallery.py ROOT ATTNRUN

The page is made again of the descriptions and gallery.json and must be the same text. Every
description has a card with picture, formula, cost, figures and a link to its paper; nothing
comes from elsewhere. The pictures are drawn again by ATTNRUN and must be those stored;
patterns that a definition states are compared with it. Where a browser is installed, it
must show the page without complaint, at the width of a desk and of a hand, light and dark.
"""
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDTHS = (1280, 390)
STEPS_OFF, SHARE_OFF = 2, 0.005  # what other instruction sets may change of a picture
wrong = []


def check(fits, words):
    if not fits:
        wrong.append(words)


# ---- the text ----

class Cards(html.parser.HTMLParser):
    """{id: {tag: number, "links": […], "alts": […], "text": …}} of the articles."""

    def __init__(self):
        super().__init__()
        self.cards, self.card, self.foreign, self.anchors, self.targets = {}, None, [], [], []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if "id" in attrs:
            self.targets.append(attrs["id"])
        if tag == "article":
            self.card = self.cards.setdefault(attrs["id"], {"links": [], "alts": [],
                                                            "text": ""})
        if tag in ("script", "iframe", "object", "embed"):
            self.foreign.append(tag)
        for name in ("src", "srcset", "href"):
            value = attrs.get(name, "data:")
            if tag == "a" and name == "href":
                self.anchors.append(value)
            elif not value.startswith("data:"):
                self.foreign.append(f"{tag} {value}")
        if self.card is not None:
            self.card[tag] = self.card.get(tag, 0) + 1
            if tag == "a":
                self.card["links"].append(attrs["href"])
            if tag == "img":
                self.card["alts"].append(attrs.get("alt", ""))

    def handle_endtag(self, tag):
        if tag == "article":
            self.card = None

    def handle_data(self, data):
        if self.card is not None:
            self.card["text"] += data


def check_text(root, models, text):
    cards = Cards()
    cards.feed(text)
    check(set(cards.cards) == set(models), "cards and descriptions differ: "
          f"{sorted(set(cards.cards) ^ set(models))}")
    for name, card in cards.cards.items():
        for tag, least in (("h3", 1), ("img", 1), ("math", 1), ("dd", 3), ("tbody", 1)):
            check(card.get(tag, 0) >= least, f"{name}: no {tag}")
        check(all(card["alts"]), f"{name}: a picture without words")
        check(any(link.startswith(("https://arxiv.org/abs/", "https://doi.org/"))
                  for link in card["links"]), f"{name}: no link to a paper")
        check("Cost of" in card["text"] and "O(" in card["text"], f"{name}: no cost")
        check(re.search(r"\d ms", card["text"]) and re.search(r"\d [kM]B", card["text"]),
              f"{name}: no figures")
    check(not cards.foreign, f"from elsewhere: {cards.foreign[:5]}")
    check(len(cards.targets) == len(set(cards.targets)), "an id is there twice")
    for link in cards.anchors:
        if link.startswith("#"):
            check(link[1:] in cards.targets, f"{link} leads nowhere")
        elif not link.startswith("https://"):
            check((root / "models" / link).is_file(), f"{link} leads nowhere")


def check_unlisted(systems, models):
    """A description that systems.py does not know is shown as one with its operator."""
    known = {name: model.description["operators"] for name, model in models.items()}
    found = systems.system_of("unlisted", ["TopKAttention"], known)
    check(found is systems.SYSTEMS["explicit-sparse"], "an unlisted top-k system is shown "
          f"by {found.cases}")
    try:
        systems.system_of("unlisted", [], known)
        check(False, "a system without operators is shown as another one")
    except LookupError as why:
        check("models/unlisted.yaml" in str(why), f"says {why}")


# ---- the pictures ----

def check_same(name, drawn, kept, unpacked, least):
    """A picture, drawn again, is the one that is kept."""
    check([one["caption"] for one in drawn] == [one["caption"] for one in kept],
          f"{name}: other pictures are stored: gallery.py --draw {name}")
    for new, old in zip(drawn, kept):
        where = f"{name}, {new['caption']}"
        a, b = (unpacked(one).astype(int) for one in (new, old))
        if a.shape != b.shape or new["scale"] != old["scale"]:
            wrong.append(f"{where}: stored is {b.shape}, {old['scale']}")
            continue
        ends = [abs(new[k] - old[k]) <= 0.02 * abs(old["high"]) for k in ("low", "high")]
        check(all(ends), f"{where}: from {new['low']} to {new['high']}, stored is "
              f"{old['low']} to {old['high']}")
        counted = (a >= least) | (b >= least) if new["scale"] == "log" else a == a
        off = ((abs(a - b) > STEPS_OFF) & counted).mean()
        check(off <= SHARE_OFF, f"{where}: {100 * off:.2f}% of it is not what is stored")


def softmax(scores, seen=True):
    scores = np.where(seen, scores, -np.inf)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def big_bird_seen(block, n, random):
    b = np.arange(n) // block
    last = n // block - 1
    seen = (abs(b[:, None] - b) <= 1) | (b == 0) | (b == last)
    seen |= np.isin(b, (0, last))[:, None]
    for row, columns in enumerate(random, 1):
        seen |= (b[:, None] == row) & np.isin(b, columns)
    return seen


def definitions(patterns):
    """{model: [(what is seen, or None; the weights, or None)] of its first pictures}"""
    n = patterns.N
    i, j = np.arange(n)[:, None], np.arange(n)
    scores = patterns.X @ patterns.QKV["K"][0].T / np.sqrt(patterns.DIM)
    back, near, global_ = i - j, abs(i - j), (0, 24)
    k_best = scores >= np.sort(scores, -1)[:, -8:-7]
    draw = np.random.default_rng(3)
    random = [draw.choice([b for b in range(1, n // 4 - 1) if abs(b - r) > 1], 2, False)
              for r in range(1, n // 4 - 1)]
    features = [np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))
                for x in (2 * patterns.X, 2 * patterns.QKV["K"][0])]
    kernel = features[0] @ features[1].T
    masks = {
        "transformer": [np.ones((n, n), bool), back >= 0],
        "bert": [(j < 52) & (i >= 0)],
        "longformer": [(near <= 5) | np.isin(i, global_) | np.isin(j, global_),
                       (near <= 10) & (near % 2 == 0)],
        "big-bird": [big_bird_seen(4, n, random)],
        "sparse-transformer-strided": [(back >= 0) & (back < 8),
                                       (back >= 0) & (back % 8 == 0),
                                       (back >= 0) & ((back < 8) | (back % 8 == 0))],
        "sparse-transformer-fixed": [(back >= 0) & ((i // 8 == j // 8) | (j % 8 >= 6))],
        "explicit-sparse": [k_best],
    }
    found = {name: [(mask, softmax(scores, mask)) for mask in several]
             for name, several in masks.items()}
    # the global rows of Longformer have no projections of their own here: same scores
    found["routing-transformer"] = [(None, None), (back >= 0, None),
                                    ((back >= 0) & (i // 16 - j // 16 <= 1), None)]
    found["linear-transformer"] = [(None, kernel / kernel.sum(1, keepdims=True))]
    lower = kernel * (back >= 0)
    found["linear-transformer-causal"] = [(back >= 0, lower / lower.sum(1, keepdims=True))]
    return found


def check_definition(name, picture, seen, weights):
    where = f"{name}, {picture.caption}"
    if seen is not None:
        exact = weights is not None
        check(((picture.matrix != 0) == seen).all() if exact else
              not (picture.matrix[~seen] != 0).any(), f"{where}: sees what it must not, or less")
    if weights is not None:
        worst = abs(picture.matrix - weights).max()
        check(worst < 1e-4, f"{where}: weights are off by {worst:.2g}")


def check_halo(maps, pictures):
    """A block of 4 x 4 and two pixels around it, within the map."""
    row, column = np.mgrid[:maps.SIDE, :maps.SIDE]
    for picture, (y, x) in zip(pictures, maps.SEEN.values()):
        y, x = y // 4 * 4, x // 4 * 4
        seen = (row >= y - 2) & (row < y + 6) & (column >= x - 2) & (column < x + 6)
        check(((picture.matrix != 0) == seen).all(), f"halonet, {picture.caption}: not the "
              "block and its rim")


def check_pictures(attnrun, models, stored):
    import maps
    import patterns
    import picture
    from operators import Runner
    runner, stated = Runner(attnrun), definitions(patterns)
    for name, model in models.items():
        try:
            pictures = model.system.pictures(runner)
        except (ModuleNotFoundError, SystemExit) as missing:
            print(f"skipped: pictures of {name}: {missing}")
            continue
        check_same(name, [picture.stored(one) for one in pictures], stored["patterns"][name],
                   picture.unpacked, picture.STEPS // 4)
        for one, (seen, weights) in zip(pictures, stated.get(name, ())):
            check_definition(name, one, seen, weights)
        if name == "halonet":
            check_halo(maps, pictures)
    for name in stated:
        check(name in models, f"{name} is described no more")


# ---- a browser ----

PROBE = """<script>
function look(page) {
  const found = [], root = page.documentElement, width = root.clientWidth;
  if (root.scrollWidth > width) found.push("wider than " + width);
  for (const image of page.images)
    if (!image.naturalWidth) found.push("no image: " + image.alt);
  for (const e of page.querySelectorAll("math, .formula, table"))
    if (!(e.getBoundingClientRect().width > 8)) found.push("empty: " + e.outerHTML);
  found.push("background " + getComputedStyle(page.body).backgroundColor);
  return found;
}
onload = () => {
  const all = [...document.querySelectorAll("iframe")].map(f => look(f.contentDocument));
  document.body.innerHTML = "<pre>LOOKED" + JSON.stringify(all) + "</pre>";
};
</script>"""


def looked(browser, folder, text, scheme):
    """What the page says at each width, in a frame; complaints of the console."""
    quoted = text.replace("&", "&amp;").replace('"', "&quot;")
    frames = "".join(f'<iframe width="{w}" height="900" srcdoc="{quoted}"></iframe>'
                     for w in WIDTHS)
    page = folder / f"{scheme}.html"
    page.write_text(f"<!doctype html><meta charset=utf-8><title>x</title>{PROBE}{frames}",
                    "utf-8")
    options = ["--headless", "--disable-gpu", "--enable-logging=stderr",
               f"--user-data-dir={folder / 'profile'}",
               f"--blink-settings=preferredColorScheme={scheme}"]
    if os.geteuid() == 0:
        options.append("--no-sandbox")
    done = subprocess.run([browser, *options, "--dump-dom", page.as_uri()],
                          capture_output=True, text=True, timeout=120, check=False)
    match = re.search(r"LOOKED(\[.*\])</pre>", done.stdout, re.DOTALL)
    if not match:
        raise RuntimeError(f"{browser} shows nothing: {done.stderr[-400:]}")
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(match[1]), console


def check_browser(text):
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not browser:
        print("skipped: the page in a browser: none of " + ", ".join(BROWSERS))
        return
    grounds = set()
    with tempfile.TemporaryDirectory() as folder:
        for scheme in (0, 1):  # dark, light
            found, console = looked(browser, Path(folder), text, scheme)
            check(not console, f"the console says {console[:3]}")
            for width, said in zip(WIDTHS, found):
                grounds.add(said.pop())
                check(not said, f"{width} wide: {said[:3]}")
    check(len(grounds) == 2, f"light and dark have the grounds {grounds}")


def main():
    root, attnrun = Path(sys.argv[1]), sys.argv[2]
    sys.path.insert(0, str(root / "tools" / "gallery"))
    import page
    models = page.described()
    stored = json.loads((root / "models" / "gallery.json").read_text("utf-8"))
    text = (root / "models" / "gallery.html").read_text("utf-8")
    try:
        check(page.page(models, stored) == text, "models/gallery.html is out of date: "
              "bash tools/gallery/build.sh")
    except KeyError as missing:
        check(False, f"gallery.json has no {missing}: bash tools/gallery/build.sh --draw")
    check(len(text) < 1.5e6, f"{len(text)} bytes, at most 1.5 MB")
    check_text(root, models, text)
    check_unlisted(page.systems, models)
    check_pictures(attnrun, models, stored)
    check_browser(text)
    for reason in wrong:
        print("FAIL", reason)
    print(f"{len(models)} systems, {len(wrong)} complaints")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
