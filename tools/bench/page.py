"""page.py - BENCHMARKS.md: what was found, and all figures; and what was to be reached, which is
a page of its own in the work folder."""
import datetime
import math
import os

import written

MIB = 2**20
NOISY = 0.05  # of the CPUs, taken by other processes: such rows are marked
RSS_CASES = ("MiniLM 1x512", "BERT-base 1x384", "GPT-2 decode, 512 cached")
GATING = ("onnxruntime", "openvino")  # the ratio is over the faster of these


class Results:
    """What one run found. rows: (case name, threads) -> {engine: figures}."""

    def __init__(self, quick, notes, versions, library_bytes):
        self.quick, self.notes, self.versions = quick, notes, versions
        self.library_bytes = library_bytes
        self.cases, self.rows, self.row_others = {}, {}, {}
        self.best, self.others, self.seconds = {}, 0.0, 0.0
        self.start = {}  # threads -> {"file", "packed", "onnxruntime": ms}, see start.py

    def add(self, case, threads, rows, others):
        self.cases[case.name] = case
        self.rows[case.name, threads] = rows
        self.row_others[case.name, threads] = others

    def of(self, case, threads, engine="attnrun"):
        return self.rows.get((case.name, threads), {}).get(engine)

    def threads(self):
        return sorted({threads for _, threads in self.rows})

    def ratio(self, case, threads):
        own = self.of(case, threads)
        peers = [p["min_ms"] for p in (self.of(case, threads, n) for n in GATING) if p]
        return min(peers) / own["min_ms"] if own and peers else math.nan

    def speed_up(self, case, threads, engine="attnrun"):
        one, more = self.of(case, 1, engine), self.of(case, threads, engine)
        return one["min_ms"] / more["min_ms"] if one and more and threads > 1 else math.nan

    def peak_type(self, case):
        """The type of the case's products, or fp32 where this CPU multiplies no other."""
        return case.multiplies if PEAKS[case.multiplies][0] in self.best else "fp32"

    def peak_share(self, case, threads, row):
        one, every = PEAKS[self.peak_type(case)]
        peak = min(threads * self.best[one], self.best[every])
        return case.flops / row["min_ms"] / 1e6 / peak

    def read_share(self, case, threads, row):
        if not case.read_bytes:
            return math.nan
        gbs = self.best["read_gbs" if threads == 1 else "read_all_gbs"]
        return case.read_bytes / row["min_ms"] / 1e6 / gbs

    def extra_mib(self, case, threads, row):
        """Memory of runs, a thread: of attention alone beside the outputs, of a network beyond
        what the arena needs at least and the mapped file's weights that a run reads, which only
        attnrun tells."""
        needed = case.output_bytes or row.get("bound")
        if not needed:
            return math.nan
        if not case.output_bytes:
            needed += row["runs_mapped"]
        return max(0, row["runs_rss"] - needed) / MIB / threads


# The keys of `attnrun doctor --bench --json`: one thread, all threads.
PEAKS = {"fp32": ("fp32_peak_gflops", "fp32_peak_all_gflops"),
         "bf16": ("bf16_peak_gflops", "bf16_peak_all_gflops"),
         "int8": ("int8_peak_gops", "int8_peak_all_gops")}


# ---- words ----

def number(x, form):
    return "" if x is None or math.isnan(x) else form.format(x)


def table(head, lines):
    rule = ["--"] + ["--:" if h not in ("case", "engine", "what", "met") else "--"
                     for h in head[1:]]
    return ["| " + " | ".join(line) + " |" for line in [head, rule, *lines]]


def met(values, bound, larger=True):
    known = [v for v in values if not math.isnan(v)]
    if not known:
        return ""
    return "yes" if all(v >= bound if larger else v <= bound for v in known) else "**no**"


# ---- what was to be reached ----

def target(results, what, value, least, form, larger=True, aim=None):
    """A row of targets; value(threads) is a figure or NaN."""
    counts = results.threads()
    values = [value(t) for t in counts]
    sign = "≥" if larger else "≤"
    row = [what, f"{sign} {least:g}" if least is not None else "",
           *[number(v, form) for v in values],
           met(values, least, larger) if least is not None else ""]
    if aim is None:
        return row + ["", *["" for _ in counts]]
    text, aim_value, aim_form = aim
    return row + [text, *[number(aim_value(t), aim_form) for t in counts]]


def speed_target(results, case):
    kind, goal = case.aim

    def share(threads):
        own = results.of(case, threads)
        if own is None:
            return math.nan
        return (results.peak_share if kind == "peak" else results.read_share)(
            case, threads, own)

    aims = {"peak": (f"{goal:.0%} of {results.peak_type(case)} peak", share, "{:.0%}"),
            "read": (f"{goal:.0%} of read bandwidth", share, "{:.0%}"),
            "ratio": (f"≥ {goal}", lambda t: results.ratio(case, t), "{:.2f}")}
    return target(results, f"{case.name}: ratio", lambda t: results.ratio(case, t),
                  case.least, "{:.3f}", aim=aims[kind])


def lower_precision_targets(results):
    """Shares of the read bandwidth, and times of the same model in f32 over those here."""
    rows = []
    for case in results.cases.values():
        def share(threads, c=case):
            own = results.of(c, threads)
            return results.read_share(c, threads, own) if own else math.nan

        def over_twin(threads, c=case):
            own, twin = results.of(c, threads), results.rows.get((c.twin, threads), {})
            return (twin["attnrun"]["min_ms"] / own["min_ms"] if own and "attnrun" in twin
                    else math.nan)

        if case.least_read:
            rows.append(target(results, f"{case.name}: share of the read bandwidth", share,
                               case.least_read, "{:.2f}", aim=("≥ 0.85", share, "{:.2f}")))
        if case.twin:
            rows.append(target(results, f"{case.name}: over itself in f32", over_twin,
                               case.least_twin, "{:.2f}",
                               aim=(f"≥ {case.aim_twin:.2f}", over_twin, "{:.2f}")))
    return rows


def start_targets(results):
    """From the start of a process to its first result, beside ONNX Runtime in Python."""
    rows = []
    for kind, least, aim in (("file", 8, math.nan), ("packed", 15, 20)):
        def over(threads, k=kind):
            found = results.start.get(threads)
            return found["onnxruntime"] / found[k] if found else math.nan

        if results.start:
            what = "packed file" if kind == "packed" else "plain file"
            rows.append(target(results, f"MiniLM 1x16, start to first result, {what}: ratio",
                               over, least, "{:.1f}",
                               aim=None if math.isnan(aim) else (f"≥ {aim}", over, "{:.1f}")))
    return rows


def memory_targets(results):
    rows = []
    for case in results.cases.values():
        if case.output_bytes or case.network:
            def extra(threads, c=case):
                own = results.of(c, threads)
                return results.extra_mib(c, threads, own) if own else math.nan

            rows.append(target(
                results, f"{case.name}: extra MiB a thread", extra, 2, "{:.1f}", larger=False,
                aim=("≤ 1 MiB", extra, "{:.1f}") if case.network else None))
            continue

        def peer_over_own(threads, c=case):
            own, peer = results.of(c, threads), results.of(c, threads, "onnxruntime")
            return peer["rss"] / own["rss"] if own and peer else math.nan

        def beyond(threads, c=case):
            own = results.of(c, threads)
            return (own["rss"] - own["weights"] - own["arena"]) / MIB if own else math.nan

        least = 1.4 if case.name == "MiniLM 1x512" else None
        if case.name in RSS_CASES:
            rows.append(target(results, f"{case.name}: RSS of ONNX Runtime over ours",
                               peer_over_own, least, "{:.2f}",
                               aim=("≤ 8 MiB over weights + arena", beyond, "{:+.0f}")))
    return rows


def targets(results):
    counts = results.threads()
    head = ["what", "at least", *[f"{t} thread{'s' if t > 1 else ''}" for t in counts],
            "met", "aim", *[f"at {t}" for t in counts]]
    rows = [speed_target(results, c) for c in results.cases.values()]
    for case in results.cases.values():
        if case.name == "MiniLM 1x128" and counts[-1] == 2:
            def twice(threads, c=case):
                return results.speed_up(c, threads)

            rows.append(target(results, f"{case.name}: two threads over one", twice, 1.85,
                               "{:.3f}", aim=("≥ 1.95", twice, "{:.2f}")))
    rows += lower_precision_targets(results) + start_targets(results)
    rows += memory_targets(results)
    if results.library_bytes:
        mb = results.library_bytes / 1e6
        rows.append(target(results, "shared library, stripped, MB",
                           lambda t: mb if t == counts[0] else math.nan, 1.5, "{:.2f}",
                           larger=False, aim=("≤ 1 MB", lambda t: math.nan, "{}")))
    if results.best.get("fork_join_us"):
        rows.append(target(results, "fork and join while workers spin, µs",
                           lambda t: results.best["fork_join_us"] if t == counts[-1]
                           else math.nan, 5, "{:.1f}", larger=False))
    return table(head, rows)


def targets_page(results):
    """What was to be reached, and whether it was: for who works on the library."""
    return "\n".join(["# Targets", "", *targets(results)]) + "\n"


# ---- what was found, in short ----

def heads(counts):
    return [f"{t} thread{'s' if t > 1 else ''}" for t in counts]


def speed_table(results):
    """How many times as fast as the faster peer, and what share of the machine that is."""
    counts, lines = results.threads(), []
    for case in results.cases.values():
        rows = [(t, results.of(case, t)) for t in counts]
        read = any(row and not math.isnan(results.read_share(case, t, row)) for t, row in rows)
        share = results.read_share if read else results.peak_share
        lines.append([case.name, *[number(results.ratio(case, t), "{:.2f}") for t in counts],
                      "read" if read else f"{results.peak_type(case)} peak",
                      *[f"{share(case, t, row):.0%}" if row else "" for t, row in rows]])
    return table(["case", *heads(counts), "bound", *[f"share at {t}" for t in counts]], lines)


def other_table(results):
    """Times of lower precisions, of a start, memory and sizes; without what was to be reached."""
    counts = results.threads()
    rows = lower_precision_targets(results) + start_targets(results) + memory_targets(results)
    return table(["what", *heads(counts)], [[row[0], *row[2:2 + len(counts)]] for row in rows])


# ---- threads ----

def speed_ups(results):
    """Each engine on the most threads over itself on one."""
    counts = results.threads()
    if counts[0] != 1 or counts[-1] == 1:
        return []
    engines = sorted({e for rows in results.rows.values() for e in rows},
                     key=["attnrun", "onnxruntime", "openvino", "torch"].index)
    lines = [[c.name, *[number(results.speed_up(c, counts[-1], e), "{:.2f}")
                        for e in engines]] for c in results.cases.values()]
    return [f"## {counts[-1]} threads over one", "", *table(["case", *engines], lines), ""]


# ---- all figures ----

def figures(results):
    lines = []
    for (name, threads), rows in results.rows.items():
        case = results.cases[name]
        noisy = " ~" if results.row_others[name, threads] > NOISY else ""
        own = rows["attnrun"]
        for engine, r in rows.items():
            over = r["min_ms"] / own["min_ms"]
            gates = engine in GATING and abs(over - results.ratio(case, threads)) < 1e-9
            load = f"{r['load_ms']:.0f}"
            if "pack_ms" in r:
                load += f" ({r['pack_ms']:.0f})"
            lines.append([
                name + noisy, str(threads), engine, load, f"{r['first_ms']:.1f}",
                f"{r['min_ms']:.2f}", f"{r['median_ms']:.2f}", f"{r['rss'] / MIB:.0f}",
                number(results.extra_mib(case, threads, r), "{:.1f}"),
                f"{results.peak_share(case, threads, r):.0%}",
                number(results.read_share(case, threads, r), "{:.0%}"),
                "" if engine == "attnrun" else f"**{over:.2f}**" if gates else f"{over:.2f}"])
    return table(["case", "threads", "engine", "load", "first", "min", "median", "RSS",
                  "extra", "of peak", "of read", "ratio"], lines)


EXPLAINED = """\
Times are in ms. The engines run alternately.

- `load`: opening the model and packing its weights. The time of packing is in brackets; the other
  engines do not report it. For attnrun it is the median of one process per round, for the others
  it was measured once.
- `first`: the first run. `min` and `median`: the runs after it, over all rounds.
- `RSS`, in MiB: the peak above what the process held before loading, with the engine in memory and
  without the inputs.
- `extra`, in MiB per thread: for attention alone, what the runs took besides their output. For a
  network, what the runs added to the loaded model beyond the smallest arena that it needs and
  beyond the mapped pages of the file and the library that they read; memory that loading gave
  back may hide a part of it.
- `of peak`: the FLOPs of the matrix products, by shape (causal: half), divided by the minimum, as
  a share of the peak of these threads in the type that attnrun multiplies.
- `of read`: the bytes of weights and caches divided by the minimum, as a share of the read
  bandwidth.
- `ratio`: the minimum of this engine divided by that of attnrun. The bold one is that of the
  faster of ONNX Runtime and OpenVINO.

PyTorch runs eagerly, in inference mode, and its weights stay in the mapped file. For HaloNet,
RedNet and SKNet, attnrun runs a file with its own operators, which the converter makes from the
same modules; the others run PyTorch's plain export.
"""


SPEED_UP = """\
The speed-up is the time of the faster of ONNX Runtime and OpenVINO divided by the time of
attnrun: 1 is equal, and higher is better. `share` is the part of the machine's bound that attnrun
reaches. The bound is the peak of the type that attnrun multiplies, or the read bandwidth if a run
mostly reads weights or caches. Convolutions with Winograd's tiles execute fewer multiplications
than are counted, so their share can exceed 100 %.
"""


def machine_text(results):
    b = results.best
    peaks = "; ".join(f"{name} {b[one]:.0f} {'GOP/s' if name == 'int8' else 'GFLOP/s'} by one "
                      f"thread, {b[every]:.0f} by {b['threads']}"
                      for name, (one, every) in PEAKS.items() if one in b)
    return (f"The peaks of this machine, by `attnrun doctor --bench`: {peaks}; reads "
            f"{b['read_gbs']:.0f} GB/s by one thread, {b['read_all_gbs']:.0f} by "
            f"{b['threads']}, and {b['l2_read_gbs']:.0f} from L2.")


def noise_text(results):
    took = (f"{results.seconds / 60:.0f} minutes" if results.seconds > 90
            else f"{results.seconds:.0f} seconds")
    text = f"Other processes took {results.others:.1%} of the CPUs during this run of {took}."
    if any(share > NOISY for share in results.row_others.values()):
        text += f" Rows marked ~ had more than {NOISY:.0%}: read them with care."
    return text


def write(results):
    isa = next(iter(results.rows.values()))["attnrun"]["isa"]
    command = "bash tools/bench/run.sh" + (" --quick" if results.quick else "")
    lines = ["# Benchmarks", "", f"Written by `{command}`; do not edit.", "",
             f"{datetime.date.today()}, {written.cpu()}, {os.cpu_count()} CPUs, ISA {isa}; "
             f"{', '.join(results.versions)}. All engines multiply fp32, except that attnrun and "
             "OpenVINO multiply bf16 in rows with bf16. With auto both may round more.", "",
             machine_text(results), "",
             noise_text(results), ""]
    for note in results.notes:
        lines += [f"- {note}"]
    if results.notes:
        lines += [""]
    lines += ["![speed-up over the faster of ONNX Runtime and OpenVINO]"
              "(benchmarks.svg)", "", "## Speed-up", "", SPEED_UP, *speed_table(results), "",
              "## Precision, start and memory", "", *other_table(results), "",
              *speed_ups(results), "## Figures", "", EXPLAINED, *figures(results), "",
              "## Attention operators", "", "[ATTENTION.md](ATTENTION.md) compares them with the "
              "modules that they come from.", "",
              "![time of attention operators over tokens](attention-time.svg)", "",
              "![their memory over tokens](attention-memory.svg)"]
    return "\n".join(lines) + "\n"
