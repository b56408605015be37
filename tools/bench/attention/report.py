"""report.py - ATTENTION.md: the table of operators against upstream, and how they grow."""
HEAD = """\
# Attention operators

Written by `tools/bench/attention/bench.py`; do not edit.

{date}; 8 heads of 64, one sample, one thread, fp32; the machine's best is {peak:.0f} GFLOP/s.
`export`: upstream's ONNX export in ONNX Runtime; `torch`: upstream itself; minima in ms of
one run with turns. Memory: of the peers what runs add to the process, of attnrun the arena.
`of peak`: 4 · 64 FLOPs for each allowed pair of query and key and head. Upstream's projections
are the identity.

![time over tokens](attention-time.svg)

![memory over tokens](attention-memory.svg)
"""
FLOPS_PER_PAIR = 4 * 64 * 8


def ratio(figures, engine):
    if engine not in figures:
        return None
    return figures[engine]["min_ms"] / figures["attnrun"]["min_ms"]


def times(value, least):
    """"2.1×", with what was to be reached."""
    if value is None:
        return ""
    goal = f" (≥ {least:g}: {'yes' if value >= least else '**no**'})" if least else ""
    return f"{value:.2f}×{goal}"


def milliseconds(figures, engine):
    return f"{figures[engine]['min_ms']:.2f}" if engine in figures else ""


def mebibytes(figures, engine):
    if engine not in figures:
        return ""
    key = "arena" if engine == "attnrun" else "runs_rss"
    return f"{figures[engine][key] / 2 ** 20:.1f}"


def table(rows, peak):
    lines = ["| operator | n | against | attnrun | export | torch | over export | over torch |"
             " MiB: attnrun | export | torch | of peak |", "|--" * 12 + "|"]
    for case, n, figures in rows:
        share = ""
        if case.pairs is not None:
            gflops = FLOPS_PER_PAIR * case.pairs(n) / figures["attnrun"]["min_ms"] * 1e-6
            share = f"{gflops / peak:.0%}"
        cells = [case.name, str(n), case.against]
        cells += [milliseconds(figures, e) for e in ("attnrun", "onnxruntime", "torch")]
        cells += [times(ratio(figures, "onnxruntime"), case.least),
                  times(ratio(figures, "torch"), case.least_torch)]
        cells += [mebibytes(figures, e) for e in ("attnrun", "onnxruntime", "torch")]
        lines.append("| " + " | ".join(cells + [share]) + " |")
    return lines


def growth_lines(growth):
    lines = ["## Growth", "", "Time at n = 16384 over time at n = 4096: 4 where it grows with n, "
             "16 with n²; at most 4.4 for operators of linear cost. Scratch: beyond inputs and "
             "outputs.", "", "| operator | 16384 over 4096 | linear | scratch MiB at 16384 |",
             "|--|--|--|--|"]
    for case, points in growth.items():
        ms, scratch = ({p[0]: p[k] for p in points} for k in (1, 2))
        if 4096 not in ms or 16384 not in ms:
            continue
        times_as_long = ms[16384] / ms[4096]
        verdict = ("yes" if times_as_long <= 4.4 else "**no**") if case.linear else "not claimed"
        lines.append(f"| {case.name} | {times_as_long:.2f} | {verdict} | "
                     f"{scratch[16384] / 2 ** 20:.2f} |")
    return lines


def write(date, peak, rows, growth, notes):
    lines = [HEAD.format(date=date, peak=peak), *table(rows, peak), "", *growth_lines(growth)]
    if notes:
        lines += ["", "## Left out", "", *(f"- {note}" for note in notes)]
    return "\n".join(lines) + "\n"
