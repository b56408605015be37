"""bench.py - the benchmark: engines take turns on each case, minima are compared.

Machines are shared and drift, so the engines run in short blocks one after the other, several
rounds, and only figures of one run are set against each other. Writes BENCHMARKS.md and
benchmarks.svg.
"""
import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys

import models

ENGINES = ["onnxruntime", "openvino", "torch"]


class Peer:
    """A process that holds one engine with one model loaded."""

    def __init__(self, engine, model, inputs, threads):
        command = [sys.executable, os.path.join(os.path.dirname(__file__), "peer.py"),
                   engine, model, inputs, str(threads)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        text=True)
        self.figures = json.loads(self.process.stdout.readline())
        first = self.block(1)
        self.figures["first_ms"] = first["times_ms"][0]
        self.times = []

    def block(self, n):
        self.process.stdin.write(f"{n}\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        self.figures["rss"] = answer["peak_rss"] - self.figures["base_rss"]
        return answer

    def round(self, n):
        self.times += self.block(n)["times_ms"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Attnrun:
    """The command line; each round is a process, so loading is timed each time."""

    def __init__(self, binary, model, inputs, threads):
        self.command = [binary, "bench", model, "-i", inputs, "--threads", str(threads),
                        "--json", "--repeat"]
        base = subprocess.run([binary, "bench", "--help"], stdout=subprocess.DEVNULL)
        assert base.returncode == 0
        self.figures, self.times, self.medians = {}, [], []

    def round(self, n):
        done = subprocess.run([*self.command, str(n)], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        found = json.loads(done.stdout)
        for key, name in (("load_ms", "load_ms"), ("first_ms", "first_ms"),
                          ("peak_rss_bytes", "rss")):
            old = self.figures.get(name)
            self.figures[name] = found[key] if old is None else min(old, found[key])
        self.figures["isa"] = found["isa"]
        self.times.append(found["min_ms"])
        self.medians.append(found["median_ms"])

    def close(self):
        pass


def block_size(engine):
    """Runs in about 0.3 s, at least 2."""
    engine.round(1)
    return max(2, min(50, int(300 / max(engine.times[-1], 0.01))))


def measure(case, args, threads):
    model, inputs = models.make(case, args.work)
    engines = {"attnrun": Attnrun(args.attnrun, model, inputs, threads)}
    for name in ENGINES:
        if name == "torch" and "attention" not in case[0]:
            continue
        try:
            engines[name] = Peer(name, model, inputs, threads)
        except (json.JSONDecodeError, BrokenPipeError):
            print(f"  {name} does not run {case[0]}", flush=True)
    blocks = {name: block_size(engine) for name, engine in engines.items()}
    for _ in range(3 if args.quick else 8):
        for name, engine in engines.items():
            engine.round(blocks[name])
    rows = {}
    for name, engine in engines.items():
        medians = engine.medians if name == "attnrun" else engine.times
        rows[name] = {**engine.figures, "min_ms": min(engine.times),
                      "median_ms": statistics.median(medians)}
        engine.close()
    return rows


def ratio(rows):
    peers = [rows[n]["min_ms"] for n in ("onnxruntime", "openvino") if n in rows]
    return min(peers) / rows["attnrun"]["min_ms"] if peers else float("nan")


def machine(args, threads):
    """What the machine can do at best, measured; see `attnrun help doctor`."""
    done = subprocess.run([args.attnrun, "doctor", "--bench", "--json", "--threads",
                           str(threads)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def limits(best):
    return (f"fp32 {best['fp32_peak_gflops']:.0f} GFLOP/s by one thread, "
            f"{best['fp32_peak_all_gflops']:.0f} by {best['threads']}; reads "
            f"{best['read_gbs']:.0f} GB/s by one thread, {best['read_all_gbs']:.0f} by "
            f"{best['threads']}, and {best['l2_read_gbs']:.0f} from L2")


def of_peak(flops, row, threads, best):
    """The share of the fp32 peak of these threads that a case reached, as text."""
    if flops is None:
        return ""
    peak = min(threads * best["fp32_peak_gflops"], best["fp32_peak_all_gflops"])
    return f"{flops / row['min_ms'] / 1e6 / peak:.0%}"


def cpu_name():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            for line in info:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()


def versions(args):
    own = subprocess.run([args.attnrun, "version"], capture_output=True,
                         text=True).stdout.split("\n")[0]
    return ", ".join([own] + [f"{n} {importlib.metadata.version(n)}" for n in ENGINES])


def page(results, best, args):
    isa = next(iter(results.values()))["attnrun"]["isa"]
    lines = ["# Benchmarks", "", "Written by `bash tools/bench/run.sh"
             + (" --quick" if args.quick else "") + "`; do not edit.", "",
             f"{datetime.date.today()}, {cpu_name()}, {os.cpu_count()} CPUs, ISA {isa}; "
             f"{versions(args)}. All in fp32.", "",
             f"This machine at its best, by `attnrun doctor --bench`: {limits(best)}.", "",
             "Minima and medians in ms; `load` of attnrun has the packing of weights in it; "
             "`RSS` is the peak above the process's base for the peers, and the whole "
             "process for attnrun. `ratio`: the faster of ONNX Runtime and OpenVINO over "
             "attnrun, by minima of one interleaved run. `of peak`: the FLOPs of the matrix "
             "products over the minimum, as a share of that fp32 peak.", "",
             "![ratios](benchmarks.svg)", "",
             "| case | threads | engine | load | first | min | median | RSS MiB | of peak "
             "| ratio |", "|--|--|--|--|--|--|--|--|--|--|"]
    flops = {case[0]: case[6] for case in models.CASES}
    for (name, threads), rows in results.items():
        for engine, r in rows.items():
            mark = f"**{ratio(rows):.2f}**" if engine == "attnrun" else ""
            lines.append(f"| {name} | {threads} | {engine} | {r['load_ms']:.0f} | "
                         f"{r['first_ms']:.1f} | {r['min_ms']:.2f} | {r['median_ms']:.2f} | "
                         f"{r['rss'] / 2**20:.0f} | "
                         f"{of_peak(flops[name], r, threads, best)} | {mark} |")
    return "\n".join(lines) + "\n"


def chart(results):
    """Bars of the ratios; the line is 1: as fast as the faster peer."""
    width, left, row, scale = 760, 250, 22, 200
    height = 60 + row * len(results)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
             f'font-family="sans-serif" font-size="12">',
             f'<rect width="{width}" height="{height}" fill="white"/>',
             '<text x="12" y="22" font-size="15">faster of ONNX Runtime and OpenVINO, '
             'over attnrun (longer is better)</text>']
    for k, ((name, threads), rows) in enumerate(results.items()):
        y, r = 44 + k * row, ratio(rows)
        shown = min(r, (width - left - 60) / scale)
        colour = "#3b7dd8" if r >= 1 else "#c96a3d"
        parts.append(f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{name}, '
                     f'{threads} thread{"s" if threads > 1 else ""}</text>')
        parts.append(f'<rect x="{left}" y="{y}" width="{shown * scale:.1f}" height="16" '
                     f'fill="{colour}"/>')
        parts.append(f'<text x="{left + shown * scale + 6:.1f}" y="{y + 12}">{r:.2f}</text>')
    x = left + scale
    parts.append(f'<line x1="{x}" x2="{x}" y1="36" y2="{height - 12}" stroke="#333" '
                 'stroke-dasharray="4 3"/></svg>')
    return "\n".join(parts) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--attnrun", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--models", default="")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("-o", dest="out", default="models")
    args = parser.parse_args()
    wanted = [w for w in args.models.split(",") if w]
    all_threads = [int(t) for t in args.threads.split(",")]
    best = machine(args, max(all_threads))
    print(limits(best), flush=True)
    results = {}
    for case in models.CASES:
        if (args.quick and not case[4]) or (wanted and not any(w in case[0] for w in wanted)):
            continue
        for threads in all_threads:
            rows = measure(case, args, threads)
            results[case[0], threads] = rows
            print(f"{case[0]}, {threads} threads: " + "  ".join(
                f"{n} {r['min_ms']:.2f} ms {of_peak(case[6], r, threads, best)}".strip()
                for n, r in rows.items())
                + f"  ratio {ratio(rows):.2f} (at least {case[5]})", flush=True)
    if not results:
        sys.exit("no case has a name like that")
    os.makedirs(args.out, exist_ok=True)
    with open(f"{args.out}/BENCHMARKS.md", "w", encoding="utf-8") as out:
        out.write(page(results, best, args))
    with open(f"{args.out}/benchmarks.svg", "w", encoding="utf-8") as out:
        out.write(chart(results))


main()
