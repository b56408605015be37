#!/usr/bin/env python3
"""attnrun report: the page holds what the commands say with --json, loads nothing, and works in a
browser: at the width of a desk and of a phone, light and dark, by pointer, by keyboard alone and
by what a screen reader is given.

usage: test_report.py ROOT ATTNRUN

With ATTNRUN_SHOTS=FOLDER the pages are also written there as pictures, to be looked at.
"""
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy
from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).parent))
import cli_models  # noqa: E402
from browser import Browser  # noqa: E402
from test_json import SCHEMA, faults  # noqa: E402

ATTNRUN = str(Path(sys.argv[-1]).resolve())
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDTHS = (1280, 375)
SECTIONS = ("summary", "graph", "roofline", "arena", "growth", "coverage", "precision")
NAME = "a</script><b>&x"  # of a node: text, never markup

PROBE = """<script>
function look(page) {
  const wrong = [], root = page.documentElement, width = root.clientWidth;
  const say = (good, words) => good || wrong.push(words);
  say(root.scrollWidth <= width, "wider than " + width + ": " + root.scrollWidth);
  say(!page.querySelector(".bad"), "a section failed");
  for (const id of %s) say(page.getElementById("h-" + id), "no section " + id);
  const nodes = [...page.querySelectorAll(".node")];
  const attention = nodes.find(n => /Attention/.test(n.querySelector("title").textContent));
  say(nodes.length > 3 && attention, "nodes: " + nodes.length);
  nodes[0].dispatchEvent(new MouseEvent("click", { bubbles: true }));
  const details = page.getElementById("details");
  say(details.querySelectorAll("dd").length > 3, "a click shows " + details.textContent);
  attention.focus();
  say(page.activeElement === attention, "a node takes no focus");
  attention.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
  const canvas = details.querySelector("canvas");
  say(canvas && canvas.getAttribute("aria-label"), "no pattern of the attention");
  if (canvas) {
    const all = canvas.getContext("2d").getImageData(0, 0, 64, 64).data;
    const seen = (x, y) => all[4 * (64 * y + x) + 3] > 0;
    say(seen(3, 40) && seen(40, 40) && !seen(40, 3), "the pattern is not causal");
  }
  const step = page.getElementById("step"), alive = page.getElementById("alive");
  step.value = 0;
  step.dispatchEvent(new Event("input"));
  say(/blocks? (are|is) alive/.test(alive.textContent), "alive: " + alive.textContent);
  for (const chart of page.querySelectorAll("svg.chart"))
    say(chart.getBoundingClientRect().width > 200 && chart.getAttribute("aria-label"),
        "an empty chart");
  say(page.querySelectorAll("svg.chart").length === 3, "charts: " +
      page.querySelectorAll("svg.chart").length);
  for (const table of page.querySelectorAll("table"))
    say(table.caption && table.rows.length > 1, "a table without rows or caption");
  for (const one of page.querySelectorAll("[tabindex='0'], a, input"))
    say(one.getAttribute("aria-label") || one.textContent.trim() || one.labels?.length,
        "nothing is said of " + one.outerHTML.slice(0, 80));
  return { wrong, ground: getComputedStyle(page.body).backgroundColor };
}
onload = () => {
  const all = [...document.querySelectorAll("iframe")].map(f => look(f.contentDocument));
  document.body.innerHTML = "<pre></pre>";
  document.body.firstChild.textContent = "LOOKED" + JSON.stringify(all);
};
</script>""" % json.dumps(SECTIONS)


def decoder(path):
    """A causal attention between products, a norm, and a node with a name like markup."""
    draw = numpy.random.default_rng(5)
    n = helper.make_node
    return cli_models.save(
        path,
        [n("MatMul", ["x", "wq"], ["q"]), n("MatMul", ["x", "wk"], ["k"]),
         n("MatMul", ["x", "wv"], ["v"]),
         n("Attention", ["q", "k", "v"], ["a"], q_num_heads=2, kv_num_heads=2, is_causal=1),
         n("MatMul", ["a", "wo"], ["o"]), n("Add", ["o", "x"], ["r"]),
         n("LayerNormalization", ["r", "s"], ["y"], name=NAME)],
        [("x", TensorProto.FLOAT, ["B", "S", 16])], [("y", TensorProto.FLOAT, ["B", "S", 16])],
        [*((w, draw.normal(size=(16, 16)).astype("f")) for w in ("wq", "wk", "wv", "wo")),
         ("s", numpy.ones(16, "f"))], opset=23)


def masked(path, window):
    """Attention in single nodes, whose mask is made of triangles: the last `window` keys."""
    n = helper.make_node
    return cli_models.save(
        path,
        [n("Shape", ["x"], ["s"], start=1, end=2), n("Concat", ["s", "s"], ["square"], axis=0),
         n("Expand", ["yes", "square"], ["all"]), n("Trilu", ["all"], ["before"], upper=0),
         n("Trilu", ["before", "first"], ["keep"], upper=1),
         n("Transpose", ["x"], ["t"], perm=[0, 2, 1]), n("MatMul", ["x", "t"], ["scores"]),
         n("Where", ["keep", "scores", "low"], ["masked"]), n("Softmax", ["masked"], ["p"]),
         n("MatMul", ["p", "x"], ["y"])],
        [("x", TensorProto.FLOAT, ["B", "S", 16])], [("y", TensorProto.FLOAT, ["B", "S", 16])],
        [("yes", numpy.array(True)), ("first", numpy.array(1 - window)),
         ("low", numpy.array(-numpy.inf, "f"))], opset=20)


def ranged(path, window, start=None, seen=False):
    """The same with positions that a run counts: 0 <= i - j < window; `start` names an input that
    they count on from, or whose size they count on from ("size"); `seen`: an input hides keys."""
    n = helper.make_node
    F, I64 = TensorProto.FLOAT, TensorProto.INT64
    first = {None: "zero", "first": "first", "size": "n_past"}[start]
    nodes = [n("Shape", ["x"], ["s1"], start=1, end=2), n("Squeeze", ["s1"], ["s"]),
             n("Shape", ["past"], ["p1"], start=1, end=2), n("Squeeze", ["p1"], ["n_past"]),
             n("Range", ["zero", "s", "one"], ["keys"]), n("Add", ["keys", first], ["at"]),
             n("Unsqueeze", ["at", "last"], ["i"]), n("Unsqueeze", ["keys", "front"], ["j"]),
             n("Sub", ["i", "j"], ["apart"]),
             n("GreaterOrEqual", ["apart", "zero"], ["before"]),
             n("Less", ["apart", "window"], ["near"]), n("And", ["before", "near"], ["band"]),
             n("Cast", ["mask"], ["shown"], to=TensorProto.BOOL),
             n("Unsqueeze", ["shown", "middle"], ["wide"]), n("And", ["band", "wide"], ["both"]),
             n("Transpose", ["x"], ["t"], perm=[0, 2, 1]), n("MatMul", ["x", "t"], ["scores"]),
             n("Where", ["both" if seen else "band", "scores", "low"], ["masked"]),
             n("Softmax", ["masked"], ["p"]), n("MatMul", ["p", "x"], ["y"])]
    return cli_models.save(
        path, nodes, [("x", F, ["B", "S", 16]), ("mask", I64, ["B", "S"]), ("first", I64, []),
                      ("past", F, ["B", "P", 16])], [("y", F, ["B", "S", 16])],
        [("zero", numpy.array(0)), ("one", numpy.array(1)), ("last", numpy.array([-1])),
         ("front", numpy.array([0])), ("middle", numpy.array([1])), ("window", numpy.array(window)),
         ("low", numpy.array(-numpy.inf, "f"))], opset=20)


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.foreign, self.ids, self.data, self.inside = [], [], "", False

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids += [attrs["id"]] if "id" in attrs else []
        self.inside = attrs.get("id") == "data"
        for name in ("src", "srcset", "href"):
            if not attrs.get(name, "#").startswith("#"):
                self.foreign.append(f"{tag} {attrs[name]}")

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        self.data += data if self.inside else ""


class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.dir = Path(cls.folder.name)
        decoder(cls.dir / "m.onnx")
        subprocess.run([ATTNRUN, "report", "m.onnx", "--set", "S=16,32,64", "-t", "1", "-o",
                        "r.html"], check=True, timeout=240, cwd=cls.dir)
        cls.text = (cls.dir / "r.html").read_text("utf-8")
        cls.page = Page()
        cls.page.feed(cls.text)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_data(self):
        data = json.loads(self.page.data)
        for key in ("inspect", "plan", "bench", "doctor", "sweep", "dense"):
            self.assertEqual(faults(data[key], SCHEMA), [], key)
            self.assertNotIn("error", data[key]["schema"], data[key])
        self.assertEqual([one["with"] for one in data["compare"]], ["no-fusion", "precision=bf16"])
        for one in data["compare"]:
            self.assertEqual(faults(one["result"], SCHEMA), [])
        self.assertEqual([r["size"] for r in data["sweep"]["rows"]], [16, 32, 64])
        self.assertEqual(data["plan"]["inputs"][0]["shape"], [1, 64, 16])
        self.assertEqual(len(data["bench"]["nodes"]), len(data["inspect"]["layers"]))
        self.assertEqual(data["inspect"]["layers"][-1]["name"], NAME)
        self.assertEqual(data["bench"]["threads"], 1)
        # The machine is measured once: beside the times of the nodes.
        self.assertGreater(data["bench"]["read_all_gbs"], 0)
        self.assertNotIn("read_all_gbs", data["doctor"])

    def test_one_file(self):
        self.assertEqual(self.page.foreign, [])
        self.assertEqual(len(self.page.ids), len(set(self.page.ids)))
        self.assertNotRegex(re.sub(r"http://www\.w3\.org/2000/svg", "", self.text), r"https?://")
        self.assertIn("default-src 'none'", self.text)
        self.assertNotIn("@DATA@", self.text)

    def test_parts_that_fail(self):
        """A part that fails is a sentence in its section."""
        cli_models.save(self.dir / "even.onnx",
                        [helper.make_node("Reshape", ["x", "shape"], ["y"])],
                        [("x", TensorProto.FLOAT, [1, "S"])], [("y", TensorProto.FLOAT, None)],
                        [("shape", numpy.array([-1, 16]))])
        subprocess.run([ATTNRUN, "report", "even.onnx", "--set", "S=7,16", "-o", "even.html", "-q"],
                       check=True, timeout=120, cwd=self.dir)
        page = Page()
        page.feed((self.dir / "even.html").read_text("utf-8"))
        data = json.loads(page.data)
        self.assertEqual(data["plan"]["inputs"][0]["shape"][1], 16)
        self.assertEqual(data["sweep"]["schema"], "attnrun/error/1")
        self.assertIn("7", data["sweep"]["message"])
        done = subprocess.run([ATTNRUN, "report", "m.onnx"], capture_output=True, text=True,
                              timeout=60, cwd=self.dir, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("-o FILE is missing", done.stderr)

    def test_options_of_a_file(self):
        """Each part gets those options of the file that its command takes."""
        (self.dir / "r.yaml").write_text("set: { S: '16,32' }\nthreads: 1\nquiet: true\n")
        subprocess.run([ATTNRUN, "report", "m.onnx", "-c", "r.yaml", "-o", "file.html"],
                       check=True, timeout=240, cwd=self.dir)
        page = Page()
        page.feed((self.dir / "file.html").read_text("utf-8"))
        data = json.loads(page.data)
        for part in ("inspect", "plan", "bench", "doctor", "sweep", "dense"):
            self.assertNotIn("error", data[part]["schema"], data[part])
        for one in data["compare"]:
            self.assertNotIn("error", one["result"]["schema"], one)
        self.assertEqual(data["plan"]["inputs"][0]["shape"], [1, 32, 16])
        self.assertEqual((data["bench"]["threads"], data["doctor"]["threads"]), (1, 1))

    def test_refusals(self):
        """Standard input is read once, and a report reads an input in every part."""
        done = subprocess.run([ATTNRUN, "report", "m.onnx", "-i", "x=-", "-o", "none.html"],
                              input=b"", capture_output=True, timeout=60, cwd=self.dir, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(b"read several times", done.stderr)
        self.assertFalse((self.dir / "none.html").exists())

    def test_a_wrong_option_gives_no_page(self):
        for options, words in ((["--set", "T=16,32"], "no input has a dimension 'T'"),
                               (["--set", "S=16,32", "--set", "S=8"], "names the symbol of"),
                               (["--timeout", "1us"], "TIME"),
                               (["--set", "T=16"], "no input has a dimension 'T'"),
                               (["--shape", "z=1x2"], "no input 'z'")):
            done = subprocess.run([ATTNRUN, "report", "m.onnx", *options, "-o", "none.html"],
                                  capture_output=True, text=True, timeout=60, cwd=self.dir,
                                  check=False)
            self.assertIn(done.returncode, (2, 5, 124), done.stderr)
            self.assertIn(words, done.stderr)
            self.assertEqual(done.stderr.count("attnrun:"), 1, done.stderr)
            self.assertEqual(done.stdout, "")
            self.assertFalse((self.dir / "none.html").exists())

    def test_the_graph_of_many_nodes_is_laid_out(self):
        """All nodes on one row, and one that reads them all: 0.4 s where the machine is idle."""
        if not shutil.which("node"):
            self.skipTest("no node")
        script = Path(sys.argv[-2]) / "tools/report/script.js"
        text = script.read_text().split("let pick_node")[0]
        self.assertIn("function lay_out", text)
        (self.dir / "lay.js").write_text(
            "const layers_ = [...Array(300000).keys()].map(\n"
            "  i => ({inputs: ['x'], outputs: [`${i}`]}))\n"
            "layers_.splice(2000, 0, {inputs: Array(400000).fill('7'), outputs: []})\n"
            "const document = {getElementById: () => ({textContent: "
            "JSON.stringify({inspect: {layers: layers_}})})}\n" + text +
            "\nconst places = lay_out()\n"
            "const all = new Set(places.map(p => `${p.row} ${p.column}`))\n"
            "console.log(places[2000].row, all.size)\n")
        done = subprocess.run(["node", "lay.js"], capture_output=True, text=True, timeout=30,
                              cwd=self.dir, check=False)
        self.assertEqual((done.stdout, done.stderr), ("1 3000\n", ""))

    def browser(self):
        found = next(filter(None, map(shutil.which, BROWSERS)), None)
        if not found:
            self.skipTest("none of " + ", ".join(BROWSERS))
        more = ["--no-sandbox"] if os.geteuid() == 0 else []
        return [found, "--headless", "--disable-gpu", "--enable-logging=stderr", *more,
                f"--user-data-dir={self.dir / 'profile'}"]

    def test_browser(self):
        browser, grounds = self.browser(), set()
        quoted = self.text.replace("&", "&amp;").replace('"', "&quot;")
        frames = "".join(f'<iframe width="{w}" height="900" srcdoc="{quoted}"></iframe>'
                         for w in WIDTHS)
        probe = self.dir / "probe.html"
        probe.write_text(f"<!doctype html><meta charset=utf-8>{PROBE}{frames}", "utf-8")
        for scheme in (0, 1):  # dark, light
            done = subprocess.run(
                [*browser, f"--blink-settings=preferredColorScheme={scheme}", "--dump-dom",
                 probe.as_uri()], capture_output=True, text=True, timeout=120, check=False)
            match = re.search(r"LOOKED(\[.*\])</pre>", done.stdout, re.DOTALL)
            self.assertTrue(match, "\n".join(re.findall(".*CONSOLE.*", done.stderr)))
            self.assertEqual([line for line in done.stderr.splitlines() if "CONSOLE" in line], [])
            for width, said in zip(WIDTHS, json.loads(html.unescape(match[1])), strict=True):
                self.assertEqual(said["wrong"], [], f"{width} wide")
                grounds.add(said["ground"])
        self.assertEqual(len(grounds), 2, grounds)

    def open(self, name="r.html"):
        found = next(filter(None, map(shutil.which, BROWSERS)), None)
        if not found:
            self.skipTest("none of " + ", ".join(BROWSERS))
        page = Browser(found)
        self.addCleanup(page.close)
        page.open((self.dir / name).as_uri())
        return page

    def test_screen_reader(self):
        """The accessibility tree: every part that takes the focus has a role and a name."""
        tree = self.open().accessibility()
        for node in tree:
            if node["focusable"] and node["role"] != "RootWebArea":
                self.assertTrue(node["name"], node)
                self.assertNotEqual(node["name"], node["description"])  # said once
        lists = {node["name"]: [child["name"] for child in tree if child["parent"] == node["id"]]
                 for node in tree if node["role"] == "listbox"}
        self.assertEqual(len(lists), 2, lists)
        names = lists.pop("Nodes in the order in which they run")
        self.assertTrue(any(re.match(r"Attention .*, [\d.]+ .?s$", n) for n in names), names)
        self.assertEqual(len(names), len(json.loads(self.page.data)["inspect"]["layers"]))
        blocks, = lists.values()
        self.assertTrue(all(re.search(r" at .* steps? \d+ to \d+$", b) for b in blocks), blocks)
        self.assertIn("Step", [node["name"] for node in tree if node["role"] == "slider"])
        images = [node for node in tree if node["role"] == "image"]
        self.assertEqual(len(images), 3)
        for image in images:  # one name, no loose numbers of an axis, and a table instead
            self.assertIn("table holds", image["name"])
            self.assertEqual([n["name"] for n in tree if n["parent"] == image["id"]], [])
        tables = [node["name"] for node in tree if node["role"] == "table"]
        self.assertEqual(tables, ["Nodes by time", "Time and memory by size",
                                  "Operators of the rewritten graph", "Errors of each output"])
        headings = [node["name"] for node in tree if node["role"] == "heading"]
        self.assertEqual(headings, ["m.onnx", "Summary", "Graph", "Roofline", "Memory of a run",
                                    "Time and memory by size", "Coverage", "Errors"])

    def test_pattern_of_a_mask_in_the_graph(self):
        """The picture shows what a mask of positions hides: causal, and within a window."""
        for window, sees in ((10 ** 9, lambda i, j: j <= i), (16, lambda i, j: 0 <= i - j < 16)):
            masked(self.dir / "masked.onnx", window)
            words = self.drawn("masked", sees)
            self.assertNotIn("code", words)
            self.assertNotIn("except", words)

    def drawn(self, name, sees):
        """The text beside the picture of the only attention, which shows `sees`."""
        subprocess.run([ATTNRUN, "report", f"{name}.onnx", "--set", "S=64", "-t", "1", "-q",
                        "-o", f"{name}.html"], check=True, timeout=120, cwd=self.dir)
        page = self.open(f"{name}.html")
        page.evaluate("[...document.querySelectorAll('.node')].find(n => /FusedAttention/.test("
                      "n.textContent)).dispatchEvent(new MouseEvent('click'))")
        drawn = page.evaluate("[...document.querySelector('#details canvas').getContext('2d')"
                              ".getImageData(0, 0, 64, 64).data].filter((_, k) => k % 4 == 3)")
        wrong = [(i, j) for i in range(64) for j in range(64)
                 if (drawn[64 * i + j] > 0) != sees(i, j)]
        self.assertEqual(wrong[:3], [], name)
        return " ".join(page.evaluate("document.getElementById('details').innerText").split())

    def test_pattern_of_positions_that_a_run_counts(self):
        """Positions of a Range are known before a run; what an input decides is said by name."""
        def band(window):
            return lambda i, j: 0 <= i - j < window

        ranged(self.dir / "causal.onnx", 10 ** 9)
        self.assertIn("Each query sees the keys up to its own position. Rows",
                      self.drawn("causal", band(10 ** 9)))
        ranged(self.dir / "near.onnx", 16)
        self.assertIn("decides which keys each query sees. Rows", self.drawn("near", band(16)))
        ranged(self.dir / "hidden.onnx", 16, seen=True)
        self.assertIn("sees, except those that the input 'mask' hides. Rows",
                      self.drawn("hidden", band(16)))
        ranged(self.dir / "begins.onnx", 16, start="first")
        self.assertIn("except those that the input 'first' hides. Rows",
                      self.drawn("begins", lambda i, j: True))
        ranged(self.dir / "past.onnx", 16, start="size")
        self.assertIn("except those that the size of 'past' hides. Rows",
                      self.drawn("past", lambda i, j: True))

    def test_keyboard_alone(self):
        """Tab stops once at each picture; arrows, Enter and Space do what a pointer does."""
        page = self.open()
        focus = ("(e => [e.tagName, (e.querySelector('title') || e).textContent.trim()]"
                 ".join(' '))(document.activeElement)")
        text = "document.getElementById('%s').textContent"

        def press(*keys):
            for key in keys:
                page.key(key)
            return page.evaluate(focus)

        self.assertEqual(press("Tab"), "A Skip to the report")
        stops = [press("Tab") for _ in range(7 + 1)]
        self.assertRegex(stops[-2], "^A Errors")
        self.assertRegex(stops[-1], "^g ")
        names = [n["op_type"] for n in json.loads(self.page.data)["inspect"]["layers"]]
        self.assertIn(names[1], press("ArrowDown"))
        self.assertIn(names[0], press("ArrowUp", "ArrowUp"))
        self.assertIn(NAME, press("End"))
        self.assertIn(names[0], press("Home"))
        self.assertEqual(page.evaluate("document.querySelectorAll('[aria-selected=true]').length"),
                         0)
        press("End", " ")
        self.assertIn(NAME, page.evaluate(text % "details"))
        self.assertIn(f"{NAME} is selected", page.evaluate(text % "said"))
        self.assertNotEqual(page.evaluate("getComputedStyle(document.activeElement."
                                          "querySelector('.box')).strokeWidth"), "1px")
        # The buttons of a node go to its neighbours, and the graph goes with them.
        before = press("Tab")
        self.assertRegex(before, "^BUTTON ")
        self.assertRegex(press("Enter"), "^H3 ")
        self.assertEqual(page.evaluate(text % "details").count(NAME), 1)  # as the reader
        self.assertRegex(press("Shift+Tab"), "^g " + re.escape(before[7:]))
        for _ in range(12):
            if press("Tab").startswith("rect"):
                break
        first, second = page.evaluate(focus), press("ArrowRight")
        self.assertRegex(second, "^rect ")
        self.assertNotEqual(first, second)
        press("Enter")
        step = re.search(r"steps? (\d+) to", second)[1]
        self.assertEqual(page.evaluate("document.getElementById('step').value"), step)
        self.assertRegex(page.evaluate(text % "step-text"), f"^{step}\\b")
        self.assertRegex(press("Tab"), "^INPUT")
        press("Home")
        said = page.evaluate("document.getElementById('step').ariaValueText")
        self.assertRegex(said, r"^0\b.*, \w+ writes ")

    def test_pictures_to_look_at(self):
        shots = os.environ.get("ATTNRUN_SHOTS")
        if not shots:
            self.skipTest("ATTNRUN_SHOTS is not set")
        quoted = self.text.replace("&", "&amp;").replace('"', "&quot;")
        for width in WIDTHS:  # a window has 500 pixels at least: a frame is narrower
            frame = self.dir / f"{width}.html"
            frame.write_text(f'<body style="margin:0"><iframe width="{width}" height="4600" '
                             f'style="border:0" srcdoc="{quoted}"></iframe>', "utf-8")
            for scheme, name in ((0, "dark"), (1, "light")):
                subprocess.run(
                    [*self.browser(), f"--blink-settings=preferredColorScheme={scheme}",
                     f"--window-size={max(width, 500)},4600", "--hide-scrollbars",
                     f"--screenshot={shots}/report-{width}-{name}.png", frame.as_uri()],
                    check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
