/* script.js - the report in the browser: the objects that attnrun's commands write with --json
 * in, sections of the page out. Text goes in as text, never as markup. */
const DATA = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const at = id => document.getElementById(id);

function make(parent, tag, attributes = {}, text) {
  const own = ["svg", "g", "rect", "path", "text", "circle", "title", "polyline", "line"];
  const element = own.includes(tag) && (tag !== "title" || parent.namespaceURI === SVG)
    ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

/* Of lists of any length: a call takes only so many arguments. */
const highest = (list, least = -Infinity) => list.reduce((x, y) => Math.max(x, y), least);
const lowest = list => list.reduce((x, y) => Math.min(x, y), Infinity);

/* ---- numbers in words ---- */

function three(x) {
  if (!(Math.abs(x) > 0)) return "0";
  const digits = 2 - Math.floor(Math.log10(Math.abs(x)));
  return digits <= 0 ? Math.round(x).toLocaleString("en") : x.toFixed(Math.min(digits, 6));
}
function scaled(x, units) {
  let k = 0;
  while (Math.abs(x) >= 999.5 && k + 1 < units.length) { x /= 1000; k++; }
  return `${three(x)} ${units[k]}`;
}
const bytes = x => scaled(x, ["B", "kB", "MB", "GB", "TB"]);
const count = x => scaled(x, ["", "k", "M", "G", "T"]).trim();
const plural = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;
/* A mark of an axis: a round number without the zeros that a measurement would have. */
const mark = text => text.replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");
const ms = x => x >= 1 ? scaled(x, ["ms", "s"]) : `${three(x * 1000)} µs`;
const percent = x => `${three(100 * x)} %`;
const error = x => x === null || x === undefined ? "–" : x === 0 ? "0" : x.toExponential(2);
const name_of = node => node.name || "(unnamed)";
const failed = part => !part || part.schema === "attnrun/error/1";
const why = part => !part || !part.message ? "it was not measured"
  : part.message + (part.hint ? ` (${part.hint})` : "");
const shape_of = v => `${v.dtype}[${(v.shape || ["…"]).join(", ")}]`;

/* A table: columns are [title, is a number]; rows are lists of cells. */
function table(parent, caption, columns, rows) {
  const body = make(parent, "table");
  make(body, "caption", {}, caption);
  const head = make(make(body, "thead"), "tr");
  for (const [title, number] of columns)
    make(head, "th", { scope: "col", class: number ? "" : "words" }, title);
  const inner = make(body, "tbody");
  for (const row of rows) {
    const line = make(inner, "tr");
    row.forEach((cell, k) => {
      const one = make(line, k ? "td" : "th", k ? {} : { scope: "row" }, cell);
      if (k && !columns[k][1]) one.className = "words";
      if (k === 0) one.title = cell;
    });
  }
  return body;
}

/* The parts of a picture as one list: Tab stops once, at the part that was current last; arrows,
 * Home and End go on; Enter, Space and a click choose. Returns what makes a part current. */
function list_of(svg, parts, choose) {
  let now = 0;
  const go = k => {
    parts[now].setAttribute("tabindex", -1);
    now = Math.max(0, Math.min(parts.length - 1, k));
    parts[now].setAttribute("tabindex", 0);
    return parts[now];
  };
  const pick = k => {
    for (const part of parts) part.setAttribute("aria-selected", part === parts[k]);
    go(k < 0 ? now : k);
  };
  parts.forEach((part, k) => {
    part.setAttribute("role", "option");
    part.setAttribute("tabindex", -1);
    part.addEventListener("click", () => { pick(k); choose(k); });
  });
  svg.setAttribute("role", "listbox");
  svg.addEventListener("keydown", event => {
    const k = parts.indexOf(event.target);
    const to = { ArrowDown: k + 1, ArrowRight: k + 1, ArrowUp: k - 1, ArrowLeft: k - 1,
      Home: 0, End: parts.length - 1 }[event.key];
    if (to !== undefined) go(to).focus();
    else if (event.key === "Enter" || event.key === " ") { pick(k); choose(k); }
    else return;
    event.preventDefault();
  });
  if (parts.length) pick(-1);
  return pick;
}

/* ---- what the commands said ---- */

const inspect = DATA.inspect, layers = inspect.layers || [];
const plan = failed(DATA.plan) ? null : DATA.plan;
const bench = failed(DATA.bench) ? null : DATA.bench;
const doctor = failed(DATA.doctor) ? null : DATA.doctor;
const profiles = new Map((bench && bench.nodes || []).map(n => [n.index, n]));
const total_ms = [...profiles.values()].reduce((sum, n) => sum + n.time_ms, 0);
const is_fused = node => node.domain === "attnrun.fused" || /^Fused|^Blocked/.test(node.op_type);
const moved = n => n.read_bytes + n.written_bytes;

function summary() {
  const file = inspect.model.split("/").pop();
  document.title = `${file} – attnrun report`;
  at("title").textContent = file;
  const opsets = Object.entries(inspect.opsets).map(([d, v]) => `${d} ${v}`).join(", ");
  at("lead").textContent = [inspect.producer, `IR ${inspect.ir_version}`, `opset ${opsets}`]
    .filter(Boolean).join(" · ");
  const facts = [["Parameters", count(inspect.parameters)],
    ["Weights", bytes(inspect.weights_bytes)], ["Nodes that run", layers.length]];
  if (bench) facts.push(["Median run", ms(bench.median_ms)], ["99th percentile", ms(bench.p99_ms)],
    ["Load", ms(bench.load_ms)], ["Peak memory", bytes(bench.peak_rss_bytes)]);
  if (plan) facts.push(["Arena", bytes(plan.arena_bytes)]);
  if (bench) facts.push(["Threads", bench.threads], ["Instruction set", bench.isa]);
  facts.push(["Precision of products", inspect.precision]);
  for (const [term, value] of facts) card(term, value);
  const given = plan ? new Map(plan.inputs.map(i => [i.name, i.shape])) : new Map();
  card("Inputs", inspect.inputs.map(v => `${v.name} ${shape_of(v)}` +
    (given.has(v.name) ? `, here [${given.get(v.name).join(", ")}]` : "")).join("; "), "long");
  card("Outputs", inspect.outputs.map(v => `${v.name} ${shape_of(v)}`).join("; "), "long");
  if (!bench) card("Not measured", why(DATA.bench), "long");
}
function card(term, value, kind = "") {
  const box = make(at("summary"), "div", { class: kind });
  make(box, "dt", {}, term);
  make(box, "dd", {}, value);
}

/* ---- the graph ---- */

const BOX = { width: 176, height: 44, across: 22, down: 30 };

const SHOWN = 3000; // nodes that are drawn
const makers = new Map();
layers.forEach((node, i) => node.outputs.forEach(name => name && makers.set(name, i)));

/* The nodes whose outputs node i reads, one for each input. */
const sources_of = i =>
  layers[i].inputs.map(name => makers.get(name)).filter(k => k !== undefined && k < i);

/* Rows: a node stands below all that it reads; its column is near those of its inputs. The search
 * for a free column is what many nodes on one row pay for: no more than are drawn. */
function lay_out() {
  const places = [], widths = [];
  layers.slice(0, SHOWN).forEach((node, i) => {
    const from = sources_of(i), row = 1 + highest(from.map(k => places[k].row), -1);
    const wish = from.length ? from.reduce((s, k) => s + places[k].column, 0) / from.length : 0;
    widths[row] = widths[row] || [];
    let column = Math.round(wish);
    for (let d = 0; widths[row][column]; d++)
      column = Math.max(0, Math.round(wish) + (d % 2 ? -(d + 1) / 2 : d / 2 + 1));
    while (widths[row][column]) column++;
    widths[row][column] = true;
    places.push({ row, column, from });
  });
  return places;
}

let pick_node = () => {};
const readers = layers.map(() => []), sources = layers.map(() => []);

function graph() {
  const places = lay_out();
  layers.forEach((node, i) => new Set(sources_of(i)).forEach(k => {
    sources[i].push(k);
    readers[k].push(i);
  }));
  const x = p => 12 + p.column * (BOX.width + BOX.across);
  const y = p => 12 + p.row * (BOX.height + BOX.down);
  const width = 24 + Math.max(0, ...places.map(p => x(p) + BOX.width));
  const height = 24 + Math.max(0, ...places.map(p => y(p) + BOX.height));
  const svg = make(at("graph"), "svg", { width, height,
    "aria-label": "Nodes in the order in which they run" });
  places.forEach(p => p.from.forEach(k => {
    const x0 = x(places[k]) + BOX.width / 2, y0 = y(places[k]) + BOX.height,
      x1 = x(p) + BOX.width / 2, y1 = y(p), half = (y1 - y0) / 2;
    make(svg, "path", { class: "edge",
      d: `M${x0} ${y0}C${x0} ${y0 + half} ${x1} ${y1 - half} ${x1} ${y1}` });
  }));
  pick_node = list_of(svg, places.map((p, i) => box(svg, layers[i], i, x(p), y(p))), i => {
    choose(i);
    at("said").textContent = `${layers[i].op_type} ${name_of(layers[i])} is selected. ` +
      "Its figures follow the graph.";
  });
  if (SHOWN < layers.length)
    make(at("graph"), "p", {}, `The first ${SHOWN} of ${layers.length} nodes are drawn.`);
}

function box(svg, node, i, x, y) {
  const time = profiles.get(i), share = time && total_ms ? time.time_ms / total_ms : 0;
  const label = `${node.op_type} ${name_of(node)}` + (time ? `, ${ms(time.time_ms)}` : "");
  const g = make(svg, "g", { class: "node" + (is_fused(node) ? " fused" : ""), "data-node": i });
  make(g, "title", {}, label);
  make(g, "rect", { class: "box", x, y, width: BOX.width, height: BOX.height, rx: 6 });
  make(g, "rect", { class: "share", x: x + 8, y: y + BOX.height - 7, height: 3,
    width: Math.max(0, share * (BOX.width - 16)) });
  make(g, "text", { x: x + 8, y: y + 17, "aria-hidden": "true" }, node.op_type.slice(0, 25));
  const name = name_of(node);
  make(g, "text", { x: x + 8, y: y + 31, class: "small", "aria-hidden": "true" },
    name.length > 26 ? "…" + name.slice(-25) : name);
  return g;
}

/* Buttons that go along the edges of the graph: to the nodes of a list. */
function along(panel, title, nodes) {
  if (!nodes.length) return;
  make(panel, "h4", {}, title);
  const list = make(panel, "ul", { class: "along" });
  for (const k of nodes.slice(0, 50)) {
    const one = make(make(list, "li"), "button", { type: "button" },
      `${layers[k].op_type} ${name_of(layers[k])}`);
    one.addEventListener("click", () => {
      pick_node(k);
      choose(k);
      panel.querySelector("h3").focus({ preventScroll: true });
    });
  }
  if (nodes.length > 50) make(list, "li", {}, `and ${nodes.length - 50} more`);
}

/* A mask as a program of numbers: it is drawn, and its numbers say nothing to a reader. */
const seen_program = node => node.op_type === "FusedAttention" && (node.attributes || {}).code;

function rows_of(parent, rows) {
  const list = make(parent, "dl");
  for (const [term, value] of rows) {
    make(list, "dt", {}, term);
    make(list, "dd", {}, value);
  }
}

function choose(i) {
  const node = layers[i], panel = at("details"), time = profiles.get(i);
  for (const g of document.querySelectorAll(".node.chosen")) g.classList.remove("chosen");
  const chosen = document.querySelector(`[data-node="${i}"]`);
  if (chosen) {
    chosen.classList.add("chosen");
    const box = chosen.getBoundingClientRect(), view = at("graph").getBoundingClientRect();
    at("graph").scrollBy(box.left < view.left || box.right > view.right
      ? box.left - view.left - 40 : 0, box.top < view.top || box.bottom > view.bottom
      ? box.top - view.top - 40 : 0);
  }
  panel.textContent = "";
  make(panel, "h3", { tabindex: -1 }, node.op_type);
  const rows = [["Name", name_of(node)], ["Domain", node.domain || "ai.onnx"]];
  if (is_fused(node)) rows.push(["Group", "nodes of the file that run as one"]);
  node.inputs.forEach((name, k) => rows.push([`Input ${k}`, name || "(absent)"]));
  node.outputs.forEach((name, k) => rows.push([`Output ${k}`, name || "(not wanted)"]));
  const program = seen_program(node) ? ["code", "mask", "axes", "layouts", "nan_rows"] : [];
  for (const [key, value] of Object.entries(node.attributes || {}).filter(
    entry => !program.includes(entry[0])))
    rows.push([key, Array.isArray(value) && value.length > 16
      ? `${value.slice(0, 16).join(", ")}, … (${value.length})` : String(value)]);
  if (time) {
    rows.push(["Time", `${ms(time.time_ms)}, ${percent(time.time_ms / total_ms)} of the run`],
      ["Read", bytes(time.read_bytes)], ["Written", bytes(time.written_bytes)]);
    if (time.flops !== undefined) rows.push(["Operations", `${count(time.flops)} FLOP`]);
  }
  for (const graph of inspect.subgraphs || [])
    if (graph.outer < 0 && graph.node_index === i)
      rows.push([graph.attribute, `${plural(graph.nodes, "node")}: ` +
        graph.ops.map(o => `${o.nodes} ${o.op_type}`).join(", ")]);
  rows_of(panel, rows);
  along(panel, "Reads what these nodes write", sources[i]);
  along(panel, "Is read by", readers[i]);
  const seen = pattern_of(node);
  if (seen) draw_pattern(panel, seen);
}

/* ---- what queries see ---- */

const QUERIES = 64;

/* The instructions of a mask program, in the order of ops/attention/core/mask_code.h. What depends
 * on an input of the node is undefined. */
const MASK = [
  x => x, x => new Float32Array(new Uint32Array([x]).buffer)[0], null, null, x => -x, Math.abs,
  x => !x, (x, to) => to === "bool" ? x !== 0 : x, (x, y) => x + y, (x, y) => x - y,
  (x, y) => x * y, Math.min, Math.max, (x, y) => ((x % y) + y) % y, (x, y) => x < y,
  (x, y) => x <= y, (x, y) => x > y, (x, y) => x >= y, (x, y) => x === y, (x, y) => x && y,
  (x, y) => x || y, (x, y) => x !== y, (x, y, z) => x ? y : z];
const LEAF = 7; // the first input of FusedAttention that its mask reads
const OP = { query: 2, key: 3, neg: 4, cast: 7, add: 8, and: 19, or: 20, where: 22 };
const known = x => x !== undefined;

function mask_step(op, words, values, query, key) {
  if (op < OP.query) return MASK[op](words[0]);
  if (op < OP.neg) return op === OP.query ? query : key;
  const [x, y, z] = words.map(w => values[w]);
  if (op === OP.cast) return known(x) ? MASK[op](Number(x), words[1] === 9 ? "bool" : "") : x;
  if (op < OP.add) return known(x) ? MASK[op](Number(x)) : x;
  if (op === OP.where) return known(x) ? MASK[op](x, y, z) : y === z ? y : undefined;
  if (op === OP.and && [x, y].some(v => known(v) && !v)) return false;
  if (op === OP.or && [x, y].some(v => known(v) && v)) return true;
  return known(x) && known(y) ? MASK[op](Number(x), Number(y)) : undefined;
}

/* What a mask program says of a pair: false where the key is hidden, whatever the inputs are. */
function mask_of(a) {
  const [keep, add, fill] = a.mask, hides = x => x <= -1e4;
  return (query, key) => {
    const values = new Array((a.axes || []).length / 5).fill(undefined);
    for (let at = 0; at < a.code.length; at += 4)
      values.push(mask_step(a.code[at], a.code.slice(at + 1, at + 4), values, query, key));
    const kept = keep < 0 ? true : values[keep];
    return !(known(kept) && !kept && hides(MASK[1](fill))) && !(add >= 0 && hides(values[add]));
  };
}

/* The inputs of the model that a value is made of: those whose elements it reads, and those of which
 * it reads only the sizes. */
function origin_of(name) {
  const found = { data: new Set(), sizes: new Set() }, seen = new Set(), left = [[name, "data"]];
  const inputs = new Set(inspect.inputs.map(v => v.name));
  while (left.length) {
    const [value, kind] = left.pop();
    if (!value || seen.has(`${kind} ${value}`)) continue;
    seen.add(`${kind} ${value}`);
    if (inputs.has(value)) found[kind].add(value);
    const node = layers[makers.get(value)];
    if (!node) continue;
    const sizes = kind === "sizes" || node.op_type === "Shape" || node.op_type === "Size";
    for (const input of node.inputs) left.push([input, sizes ? "sizes" : "data"]);
  }
  return found;
}

/* What is left open of the keys that are drawn, by the names of values that the mask reads. */
function open_words(names) {
  const data = new Set(), sizes = new Set();
  for (const name of names) {
    const origin = origin_of(name);
    for (const input of origin.data) data.add(`the input '${input}'`);
    for (const input of origin.data.size ? [] : origin.sizes) sizes.add(`the size of '${input}'`);
  }
  const all = [...data, ...sizes], last = all.pop();
  if (!last) return ".";
  return ", except those that " + (all.length ? `${all.join(", ")} and ${last} hide` : `${last} hides`)
    + ".";
}

/* 64 tokens, so far apart that the largest number of the program is a quarter of their range. */
function masked_pattern(node) {
  const a = node.attributes;
  const numbers = a.code.filter((_, k) => k % 4 === 1 && a.code[k - 1] === 0).map(Math.abs)
    .filter(w => w < 1e6);
  const apart = Math.max(1, Math.ceil(highest(numbers, 0) * 4 / QUERIES)), shown = mask_of(a);
  const sees = (i, j) => shown(i * apart, j * apart);
  const all = test => [...Array(QUERIES * QUERIES).keys()].every(k =>
    test(Math.floor(k / QUERIES), k % QUERIES));
  const rest = open_words(node.inputs.slice(LEAF, LEAF + (a.axes || []).length / 5));
  return { sees, words: (all((i, j) => sees(i, j)) ? "Each query sees all keys"
    : all((i, j) => sees(i, j) === (j <= i)) ? "Each query sees the keys up to its own position"
    : `The mask of the graph decides which keys each query sees${apart > 1
      ? `; every ${apart}th token is drawn` : ""}`) + rest };
}

/* {words, sees(i, j)} over 64 queries and keys, or null where the node is no attention. Lengths
 * of the node are scaled so that the picture has 64 tokens. */
function pattern_of(node) {
  const a = node.attributes || {}, kind = node.op_type;
  if (!/Attention$|^FusedAttention/.test(kind) && kind !== "MultiHeadAttention") return null;
  if (seen_program(node) && a.mask) return masked_pattern(node);
  const causal = a.is_causal === 1 || a.unidirectional === 1 || a.causal === 1;
  const length = Math.max(64, 4 * Math.max(1, ...["window", "local_window_size", "chunk_size",
    "block_size", "left_window"].map(k => [].concat(a[k] || 0)[0])));
  const unit = k => Math.max(1, Math.round([].concat(a[k] || 0)[0] * QUERIES / length));
  const before = (i, j) => !causal || j <= i, and = causal ? ", causal" : "";
  if (/Reformer|Routing|Sinkhorn|TopK/.test(kind))
    return { words: `The content decides which keys each query sees${and}.`, sees: null };
  if (kind === "LongformerAttention" || kind === "LocalAttention") {
    const w = unit("window"), d = Math.max(1, [].concat(a.dilation || 1)[0]);
    return { words: `Keys at most ${[].concat(a.window)[0]} tokens away${and}` +
      (kind === "LocalAttention" ? "." : ", and the global tokens."),
      sees: (i, j) => before(i, j) && Math.abs(i - j) <= w * d && (i - j) % d === 0 };
  }
  if (kind === "ChunkedLocalAttention") {
    const c = unit("chunk_size"), back = a.chunks_before === undefined ? 1 : a.chunks_before;
    const on = a.chunks_after || 0;
    return { words: `Chunks of ${a.chunk_size} tokens and their neighbours${and}.`,
      sees: (i, j) => { const d = Math.floor(i / c) - Math.floor(j / c);
        return before(i, j) && d <= back && -d <= on; } };
  }
  if ((a.local_window_size || 0) > 0) {
    const w = unit("local_window_size");
    return { words: `The last ${a.local_window_size} tokens.`,
      sees: (i, j) => j <= i && i - j < w };
  }
  const masked = Object.keys(a).some(k => /mask/.test(k)) && !node.inputs[3];
  return { words: (causal ? "Each query sees the keys up to its own position"
    : "Each query sees all keys") + (masked ? ", except those that the mask hides."
    : open_words(node.inputs[3] ? [node.inputs[3]] : [])), sees: before };
}

/* A pixel a pair, in the colours of the gallery: no colour where the key is not seen, and the
 * weight that equal scores would have, on a ramp of powers of ten. */
function draw_pattern(panel, seen) {
  make(panel, "h3", {}, "What queries see");
  if (seen.sees) {
    const canvas = make(panel, "canvas", { width: QUERIES, height: QUERIES, role: "img",
      "aria-label": `${seen.words} Rows are queries, columns are keys.` });
    const style = getComputedStyle(document.documentElement), pen = canvas.getContext("2d");
    const ramp = ["--hot0", "--hot1", "--hot2"].map(name => style.getPropertyValue(name));
    for (let i = 0; i < QUERIES; i++) {
      const keys = [...Array(QUERIES).keys()].filter(j => seen.sees(i, j));
      const step = Math.min(2, Math.floor(3 * (1 - Math.log(keys.length || 1) / Math.log(65))));
      pen.fillStyle = ramp[step];
      for (const j of keys) pen.fillRect(j, i, 1, 1);
    }
  }
  make(panel, "p", { class: "faint" }, seen.words +
    (seen.sees ? " Rows are queries and columns keys, 64 of each." : ""));
}

/* ---- charts ---- */

/* Logarithmic axes of a chart of 560 x 320: functions from values to places, and the drawing. */
function axes(svg, xs, ys, x_title, y_title, x_text, y_text, x_marks) {
  const box = { left: 104, right: 548, top: 14, bottom: 276 };
  const place = (values, from, to) => {
    const low = Math.log10(lowest(values)) - 0.1, high = Math.log10(highest(values)) + 0.1;
    return { low, high, at: v => from + (Math.log10(v) - low) / (high - low) * (to - from) };
  };
  const x = place(xs, box.left, box.right), y = place(ys, box.bottom, box.top);
  const marks = axis => { // 1, 2 and 5 times powers of ten, or the powers alone; at most 6
    const found = [];
    for (let k = Math.floor(axis.low); k <= axis.high; k++)
      for (const times of [1, 2, 5])
        if (Math.log10(times) + k >= axis.low && Math.log10(times) + k <= axis.high)
          found.push(times * 10 ** k);
    const powers = found.filter(v => Math.abs(Math.log10(v) % 1) < 1e-9);
    const chosen = found.length > 6 && powers.length > 1 ? powers : found;
    return chosen.filter((_, i) => i % Math.ceil(chosen.length / 6) === 0);
  };
  for (const v of marks(y)) {
    make(svg, "path", { class: "grid", d: `M${box.left} ${y.at(v)}H${box.right}` });
    make(svg, "text", { x: box.left - 6, y: y.at(v) + 4, "text-anchor": "end", class: "small" },
      mark(y_text(v)));
  }
  for (const v of x_marks || marks(x)) {
    make(svg, "path", { class: "grid", d: `M${x.at(v)} ${box.top}V${box.bottom}` });
    const words = mark(x_text(v)), half = 4 * words.length; // no text leaves the chart
    make(svg, "text", { x: Math.min(x.at(v), 558 - half), y: box.bottom + 16,
      "text-anchor": "middle", class: "small" }, words);
  }
  make(svg, "path", { class: "axis", d: `M${box.left} ${box.top}V${box.bottom}H${box.right}` });
  make(svg, "text", { x: (box.left + box.right) / 2, y: 308, "text-anchor": "middle" }, x_title);
  make(svg, "text", { x: 14, y: 145, transform: "rotate(-90 14 145)",
    "text-anchor": "middle" }, y_title);
  return { x: x.at, y: y.at, box };
}
/* A chart is one image with a name; its parts are hidden from a screen reader, since a table with
 * the same figures follows. */
const chart = (parent, words) => make(make(parent, "svg", { viewBox: "0 0 560 320", class: "chart",
  role: "img", "aria-label": words }), "g", { "aria-hidden": "true" });

function roofline() {
  const known = [...profiles.values()].filter(n => n.flops > 0 && n.time_ms > 0 && moved(n) > 0);
  node_table();
  if (!known.length) {
    at("roofline-text").textContent = bench ? "No node reports its number of operations." :
      why(DATA.bench);
    return;
  }
  const peak = bench.fp32_peak_all_gflops, read = bench.read_all_gbs;
  at("roofline-text").textContent = `This machine reaches ${three(peak)} GFLOP/s of fp32 ` +
    `and reads ${three(read)} GB/s from memory with ` +
    `${plural(bench.threads, "thread")}. Each dot is a node, and its area is its time. A node ` +
    "above the slope reads operands that are still in a cache.";
  const points = known.map(n => ({ n, x: n.flops / moved(n), y: n.flops / n.time_ms / 1e6 }));
  const svg = chart(at("roofline"), "Operations per second of each node over its operations per " +
    "byte, and the limits of the machine. The table holds the same figures.");
  const a = axes(svg, [...points.map(p => p.x), peak / read], [...points.map(p => p.y), peak],
    "FLOP per byte", "GFLOP/s", count, count);
  const corner = peak / read, low = Math.max(lowest(points.map(p => p.x)) / 1.2, 1e-9);
  const last = highest(points.map(p => p.x), corner) * 1.2;
  const foot = Math.max(lowest(points.map(p => p.y)) / 1.2, low * read);
  make(svg, "path", { class: "roof", d: `M${a.x(foot / read)} ${a.y(foot)}L${a.x(corner)} ` +
    `${a.y(peak)}H${a.x(last)}` });
  for (const { n, x, y } of points) {
    const dot = make(svg, "circle", { class: "dot", cx: a.x(x), cy: a.y(y),
      r: 2.5 + 12 * Math.sqrt(n.time_ms / total_ms) });
    make(dot, "title", {}, `${n.op_type} ${name_of(n)}: ${three(y)} GFLOP/s, ${ms(n.time_ms)}`);
  }
}

function node_table() {
  if (!bench || !bench.nodes) return;
  const share = (value, best) => value > 0 && best > 0 ? percent(value / best) : "–";
  const peak = bench.fp32_peak_all_gflops, read = bench.read_all_gbs;
  const rows = [...bench.nodes].sort((a, b) => b.time_ms - a.time_ms).map(n => [
    name_of(n), n.op_type, ms(n.time_ms), percent(n.time_ms / total_ms),
    n.flops === undefined ? "–" : count(n.flops), share(n.flops / n.time_ms / 1e6, peak),
    bytes(moved(n)), share(moved(n) / n.time_ms / 1e6, read)]);
  table(at("nodes"), "Nodes by time", [["Node"], ["Operator"], ["Time", 1], ["Share", 1],
    ["FLOP", 1], ["Of the peak", 1], ["Bytes", 1], ["Of the bandwidth", 1]], rows);
}

/* ---- the arena ---- */

function hue_of(text) {
  let hash = 5381;
  for (const c of text) hash = (hash * 33 + c.codePointAt(0)) % 4294967296;
  return hash % 360;
}

function arena() {
  const blocks = plan ? plan.blocks : [];
  if (!blocks.length) {
    at("arena").textContent = plan ? "The plan has no blocks." : why(DATA.plan);
    at("step").parentElement.hidden = true;
    return;
  }
  const steps = highest(blocks.map(b => b.last_step + 1), plan.steps), height = 380;
  const width = Math.max(520, at("arena").parentNode.clientWidth - 2, Math.min(2400, steps * 9));
  const top = plan.arena_bytes || 1;
  const x = s => 70 + s / steps * (width - 84), y = b => height - 34 - b / top * (height - 50);
  const svg = make(at("arena"), "svg", { width, height, "aria-label":
    `${plural(blocks.length, "block")} over ${plural(steps, "step")}, the largest first` });
  const frame = make(svg, "g", { "aria-hidden": "true" });
  for (let k = 0; k <= 4; k++) {
    make(frame, "path", { class: "grid", d: `M70 ${y(top * k / 4)}H${width - 14}` });
    make(frame, "text", { x: 64, y: y(top * k / 4) + 4, "text-anchor": "end", class: "small" },
      bytes(top * k / 4));
  }
  make(frame, "text", { x: width / 2, y: height - 6, "text-anchor": "middle", class: "small" },
    "step");
  const shown = [...blocks].sort((a, b) => b.bytes - a.bytes).slice(0, 2000);
  const parts = shown.map(b => {
    const words = `${b.name} (${b.op_type}), ${bytes(b.bytes)} at ${bytes(b.offset)}, ` +
      `steps ${b.first_step} to ${b.last_step}`;
    const one = make(svg, "rect", { class: "block", x: x(b.first_step), y: y(b.offset + b.bytes),
      width: x(b.last_step + 1) - x(b.first_step), height: y(b.offset) - y(b.offset + b.bytes),
      fill: b.name === "scratch" ? "#8886" : `hsl(${hue_of(b.op_type)} 55% 58%)` });
    make(one, "title", {}, words);
    one.block = b;
    return one;
  });
  make(svg, "path", { class: "now" });
  list_of(svg, parts, k => {
    at("step").value = shown[k].first_step;
    alive(svg, x, height);
  });
  at("step").max = steps - 1;
  at("step").value = Math.min(plan.peak_step, steps - 1);
  at("step").addEventListener("input", () => alive(svg, x, height));
  alive(svg, x, height);
}

function alive(svg, x, height) {
  const step = Number(at("step").value);
  const found = plan.blocks.filter(b => b.first_step <= step && step <= b.last_step);
  const now = new Set(found);
  svg.querySelector(".now").setAttribute("d", `M${x(step + 0.5)} 10V${height - 34}`);
  for (const one of svg.querySelectorAll(".block"))
    one.classList.toggle("dim", !now.has(one.block));
  at("step-text").textContent = `${step}` + (step === plan.peak_step ? " (the peak)" : "");
  at("step").setAttribute("aria-valuetext", at("step-text").textContent +
    plan.blocks.filter(b => b.first_step === step && b.name !== "scratch")
      .slice(0, 1).map(b => `, ${b.op_type} writes ${b.name}`).join(""));
  at("alive").textContent = "";
  found.sort((a, b) => b.bytes - a.bytes);
  make(at("alive"), "p", {}, `${found.length} ${found.length === 1 ? "block is" : "blocks are"} alive, ` +
    `${bytes(found.reduce((sum, b) => sum + b.bytes, 0))} in all. The largest: ` +
    found.slice(0, 4).map(b => `${b.name} (${bytes(b.bytes)})`).join(", ") + ".");
}

/* ---- over sizes ---- */

function growth() {
  const sweep = DATA.sweep, dense = failed(DATA.dense) ? null : DATA.dense;
  if (failed(sweep)) {
    at("growth-text").textContent = sweep ? `The model did not run with all sizes: ${why(sweep)}`
      : "The report was made with one size. With --set S=128,256,512 it shows how time and " +
        "memory grow with the symbolic dimension S.";
    return;
  }
  const attention = layers.some(node => pattern_of(node) !== null);
  at("growth-text").textContent = `The symbolic dimension is ${sweep.symbol}.` + (dense ?
    " The dashed line shows the same model without fusion" +
    (attention ? ", where attention stores its scores." : ".") : "");
  for (const [key, title, text] of [["median_ms", "Median time", ms],
                                    ["arena_bytes", "Arena", bytes]]) {
    const lines = [sweep.rows, dense ? dense.rows : []].map(rows =>
      rows.filter(r => r[key] > 0 && r.size > 0));
    if (!lines[0].length) continue;
    const svg = chart(at("growth"), `${title} over ${sweep.symbol}; the table holds the figures.`);
    const all = lines.flat(), a = axes(svg, all.map(r => r.size), all.map(r => r[key]),
      sweep.symbol, title, String, text, sweep.rows.map(r => r.size));
    lines.forEach((rows, k) => {
      make(svg, "polyline", { class: `line${k}`,
        points: rows.map(r => `${a.x(r.size)},${a.y(r[key])}`).join(" ") });
      for (const r of rows)
        make(make(svg, "circle", { class: `dot${k}`, cx: a.x(r.size), cy: a.y(r[key]), r: 4 }),
          "title", {}, `${sweep.symbol} = ${r.size}: ${text(r[key])}`);
    });
  }
  const other = new Map((dense ? dense.rows : []).map(r => [r.size, r]));
  table(at("sizes"), "Time and memory by size", [[sweep.symbol], ["Median", 1],
    ["Without fusion", 1], ["Arena", 1], ["Without fusion", 1]], sweep.rows.map(r => [
    String(r.size), ms(r.median_ms), other.has(r.size) ? ms(other.get(r.size).median_ms) : "–",
    bytes(r.arena_bytes), other.has(r.size) ? bytes(other.get(r.size).arena_bytes) : "–"]));
}

/* ---- coverage and errors ---- */

function coverage() {
  const c = inspect.coverage;
  at("coverage-text").textContent = `Nodes on native operators: ${c.native}. Nodes of function ` +
    `bodies: ${c.body}. Nodes without an operator in this build: ${c.missing}.`;
  table(at("coverage"), "Operators of the rewritten graph", [["Operator"], ["Domain"], ["Coverage"],
    ["Nodes", 1]], inspect.ops.map(o => [o.op_type + (o.function ? ` (of ${o.function})` : ""),
    o.domain || "ai.onnx", o.coverage, String(o.nodes)]));
  if (inspect.left.length)
    table(at("coverage"), "Nodes that a rewrite pass left unchanged", [["Node"], ["Pass"], ["Why"]],
      inspect.left.map(l => [l.node, l.pass, l.why]));
}

function precision() {
  const rows = [];
  for (const one of DATA.compare || []) {
    if (failed(one.result)) { rows.push([one.with, "–", why(one.result), "–", "–", "–"]); continue; }
    for (const o of one.result.outputs)
      rows.push([one.with, o.name, error(o.max_abs), error(o.max_rel),
        o.cosine === undefined || o.cosine === null ? "–" : o.cosine.toFixed(9),
        o.max_ulp === undefined || o.max_ulp === null ? "–" : count(o.max_ulp)]);
  }
  table(at("precision"), "Errors of each output", [["Compared with"], ["Output"], ["Max absolute", 1],
    ["Max relative", 1], ["Cosine", 1], ["ulp", 1]], rows);
}

/* A section that fails says so and leaves the others alone. */
for (const [part, section] of [[summary, "summary"], [graph, "graph"], [roofline, "roofline"],
  [arena, "arena"], [growth, "growth"], [coverage, "coverage"], [precision, "precision"]]) {
  try { part(); } catch (wrong) {
    make(at(section), "p", { class: "bad" }, `This section failed: ${wrong.message}`);
    console.error(wrong);
  }
}
for (const heading of document.querySelectorAll("main h2"))
  make(make(at("contents"), "li"), "a", { href: `#${heading.id}` }, heading.textContent);
at("foot").textContent = `attnrun ${DATA.version}` + (doctor ? `, ${doctor.isa}, ` +
  `${doctor.cpus_online} CPUs, ${doctor.blas.split(" ").slice(0, 2).join(" ")}` : "") +
  ". This page is one file and loads nothing from elsewhere.";
