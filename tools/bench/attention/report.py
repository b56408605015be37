"""report.py - writes ATTENTION.md: the operators compared with the upstream code, and how their
times grow. The targets and whether they were reached are a page of its own in the work folder."""
HEAD = """\
# Attention operators

Written by `tools/bench/attention/bench.py`; do not edit.

Measured on {date} on {machine} with 8 heads of 64, one sample, one thread and
fp32. The peak of the machine is {peak:.0f} GFLOP/s. `export` is the ONNX export of the upstream
code in ONNX Runtime, and `torch` is the upstream code itself. The projections of the upstream
code are the identity. Times are minima in ms. The engines run alternately; slow engines get fewer
repetitions. The memory of attnrun is its arena. The memory of the others is what their runs add
to the process. `of peak` counts 4 · 64 FLOPs for each head and each visible pair of a query and a
key.

![time over tokens](attention-time.svg)

![memory over tokens](attention-memory.svg)
"""
VISION = """\
## Operators of maps

Measured with one sample of 256 channels and one thread; n is the side of the map. `over export`
is the speed-up over the faster of the two exports. `of peak` is the share of the peak that all
FLOPs of products reach.
"""
FLOPS_PER_PAIR = 4 * 64 * 8


def ratio(figures, *engines):
    """Over the fastest of these; None where there is none."""
    found = [figures[engine]["min_ms"] for engine in engines if engine in figures]
    return min(found) / figures["attnrun"]["min_ms"] if found else None


def share_of_peak(case, n, figures, peak):
    flops = case.flops(n) if case.flops else FLOPS_PER_PAIR * case.pairs(n) if case.pairs else 0
    return f"{flops / figures['attnrun']['min_ms'] * 1e-6 / peak:.0%}" if flops else ""


def times(value):
    """"2.10×"."""
    return "" if value is None else f"{value:.2f}×"


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
        cells = [case.name, str(n), case.against]
        cells += [milliseconds(figures, e) for e in ("attnrun", "onnxruntime", "torch")]
        cells += [times(ratio(figures, "onnxruntime")),
                  times(ratio(figures, "torch"))]
        cells += [mebibytes(figures, e) for e in ("attnrun", "onnxruntime", "torch")]
        cells.append(share_of_peak(case, n, figures, peak))
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def vision_table(rows, peak):
    lines = [VISION, "| operator | n | against | attnrun | ONNX Runtime | OpenVINO | torch |"
             " over export | over torch | MiB: attnrun | ONNX Runtime | of peak |",
             "|--" * 12 + "|"]
    for case, n, figures in rows:
        cells = [case.name, str(n), case.against]
        cells += [milliseconds(figures, e)
                  for e in ("attnrun", "onnxruntime", "openvino", "torch")]
        cells += [times(ratio(figures, "onnxruntime", "openvino")),
                  times(ratio(figures, "torch"))]
        cells += [mebibytes(figures, e) for e in ("attnrun", "onnxruntime")]
        lines.append("| " + " | ".join([*cells, share_of_peak(case, n, figures, peak)]) + " |")
    return lines


def growth_lines(growth):
    lines = ["## Growth", "", "The second column is the time at n = 16384 divided by the time at "
             "n = 4096: 4 means that the time grows with n, 16 with n². Scratch memory is the "
             "memory besides inputs and outputs.", "",
             "| operator | 16384 over 4096 | scratch MiB at 16384 |", "|--|--|--|"]
    for case, points in growth.items():
        ms, scratch = ({p[0]: p[k] for p in points} for k in (1, 2))
        if 4096 in ms and 16384 in ms:
            lines.append(f"| {case.name} | {ms[16384] / ms[4096]:.2f} | "
                         f"{scratch[16384] / 2 ** 20:.2f} |")
    return lines


def bf16_lines(rows):
    lines = ["## Products of bf16", "", "The table compares `--precision bf16` with fp32 on one "
             "thread. Times are minima in ms; both run alternately. Operators that choose or sort "
             "compute the products by which they choose in fp32.", "",
             "| operator | n | fp32 | bf16 | fp32 over bf16 |", "|--|--|--|--|--|"]
    return lines + [f"| {name} | {n} | {exact:.2f} | {rounded:.2f} | "
                    f"{times(exact / rounded)} |" for name, n, exact, rounded in rows]


def met(reached, wanted):
    return "" if reached is None else "yes" if reached >= wanted else "**no**"


def targets(rows, growth):
    """What was to be reached, and whether it was: for who works on the operators."""
    lines = ["# Targets", "", "| operator | n | over | at least | reached | |", "|--" * 6 + "|"]
    for case, n, figures in rows:
        peers = ("onnxruntime", "openvino") if case.vision else ("onnxruntime",)
        for name, wanted, value in (("export", case.least, ratio(figures, *peers)),
                                    ("torch", case.least_torch, ratio(figures, "torch"))):
            if wanted:
                lines.append(f"| {case.name} | {n} | {name} | {wanted:g} | {times(value)} | "
                             f"{met(value, wanted)} |")
    lines += ["", "Operators of linear cost: time at n = 16384 at most 4.4 times that at n = 4096.",
              "", "| operator | 16384 over 4096 | |", "|--|--|--|"]
    for case, points in growth.items():
        ms = {p[0]: p[1] for p in points}
        if case.linear and 4096 in ms and 16384 in ms:
            share = ms[16384] / ms[4096]
            lines.append(f"| {case.name} | {share:.2f} | {met(4.4, share)} |")
    return "\n".join(lines) + "\n"


def write(date, machine, peak, rows, growth, notes, bf16=()):
    tokens, maps = ([row for row in rows if row[0].vision == is_map] for is_map in (False, True))
    lines = [HEAD.format(date=date, machine=machine, peak=peak), *table(tokens, peak), "",
             *growth_lines(growth)]
    if maps:
        lines += ["", *vision_table(maps, peak)]
    if bf16:
        lines += ["", *bf16_lines(bf16)]
    if notes:
        lines += ["", "## Left out", "", *(f"- {note}" for note in notes)]
    return "\n".join(lines) + "\n"
