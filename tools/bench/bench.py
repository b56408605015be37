"""bench.py - the benchmark: engines take turns on each case, minima are compared.

Machines are shared and drift, so the engines run in short blocks one after the other (A B
C D A B C D …), and only figures of one run are set against each other. An engine that is
not installed, crashes or hangs is left out with a sentence. Writes BENCHMARKS.md and
benchmarks.svg.
"""
import argparse
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import time

import chart
import models
import page
import start
from engines import (PEERS, Attnrun, Failed, Peer, in_turns, processor_time, run_script,
                     share_of_others)


START = "MiniLM 1x16"  # the case whose process is timed from its start


def installed(notes):
    """The peers whose packages are there."""
    found = []
    for name, packages in PEERS.items():
        missing = [p for p in packages if importlib.util.find_spec(p) is None]
        if missing:
            notes.append(f"{name} is left out: {', '.join(missing)} cannot be installed here.")
        else:
            found.append(name)
    return found


def start_engines(case, threads, args, peers, notes):
    paths = models.case_paths(case, args.work, args.minilm_package)
    own = models.own_paths(case, args.work, args.minilm_package)
    engines = {"attnrun": Attnrun(args.attnrun, own, threads, args.limit, case.state,
                                  precision=case.precision, ragged=case.ragged,
                                  with_bound=bool(case.network))}
    for name in peers:
        if case.peers and name not in case.peers:
            continue
        try:
            engines[name] = Peer(name, paths, threads, args.limit,
                                 precision=case.precision)
        except Failed as why:
            notes.append(f"{name} does not run {case.name} on {page.heads([threads])[0]}: {why}.")
    return engines


def measure(case, threads, args, peers, notes):
    """{engine: figures} and the share of the CPUs that others took."""
    before = processor_time([])
    engines = start_engines(case, threads, args, peers, notes)
    dropped = []

    def drop(name, why):
        notes.append(f"{name} fails at {case.name} on {page.heads([threads])[0]}: {why}.")
        dropped.append(engines.pop(name))

    try:
        in_turns(engines, args, drop)
        others = share_of_others(before,
                                 processor_time([*engines.values(), *dropped]))
        return {name: engine.result() for name, engine in engines.items()}, others
    finally:
        for engine in [*engines.values(), *dropped]:
            engine.close()


def machine(args, threads):
    """What the machine can do at best, measured; see `attnrun help doctor`."""
    done = subprocess.run([args.attnrun, "doctor", "--bench", "--json", "--threads",
                           str(threads)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def best_of(old, new):
    """The machine at its best before and after: others may have run during one of them."""
    return {key: min(old[key], value) if key == "fork_join_us" else max(old[key], value)
            if isinstance(value, float) else value for key, value in new.items()}


def library_bytes(args):
    """The shared library beside the command, without symbols."""
    library = os.path.join(os.path.dirname(args.attnrun), "libattnrun.so")
    stripped = f"{args.work}/libattnrun.stripped"
    try:
        subprocess.run(["strip", "-o", stripped, library], check=True, capture_output=True)
        return os.path.getsize(stripped)
    except (OSError, subprocess.CalledProcessError):
        return None


def versions(args, peers):
    own = subprocess.run([args.attnrun, "version"], capture_output=True, text=True,
                         check=True).stdout.split("\n")[0]
    return [own] + [f"{n} {importlib.metadata.version(n)}"
                    for name in peers for n in PEERS[name]]


def make_models(cases, args, notes):
    """The cases whose files are there; those that cannot be made become notes."""
    ready = []
    for case in cases:
        print(f"model of {case.name}", flush=True)
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models.py")
        why = run_script(script, [case.name, args.work, args.minilm_package, args.attnrun])
        if why is None:
            ready.append(case)
        else:
            notes.append(f"{case.name} is left out, its model cannot be made: {why}.")
    return ready


def measure_start(case, threads, args, results, notes):
    """Where the first case is there: a process from its start on."""
    try:
        found = start.measure(args.attnrun, models.case_paths(case, args.work,
                                                              args.minilm_package),
                              threads, args.work, 2 * args.rounds)
    except (Failed, subprocess.SubprocessError) as why:
        notes.append(f"The start of a process is left out: {why}.")
        return
    results.start[threads] = found
    print(f"start to first result, {threads} threads: " + "  ".join(
        f"{way} {ms:.1f} ms" for way, ms in found.items()), flush=True)


def run_case(case, threads, args, peers, results, notes):
    rows, others = measure(case, threads, args, peers, notes)
    if "attnrun" in rows:
        results.add(case, threads, rows, others)
        text = "  ".join(f"{n} {r['min_ms']:.2f} ms" for n, r in rows.items())
        print(f"{case.name}, {threads} threads: {text}  ratio "
              f"{results.ratio(case, threads):.2f} (at least {case.least}), others "
              f"{others:.0%}", flush=True)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--attnrun", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--minilm-package", default="")
    parser.add_argument("--quick", action="store_true", help="some cases, few rounds")
    parser.add_argument("--models", default="", help="cases with one of these in the name")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, help="8, or 5 with --quick")
    parser.add_argument("--block-ms", type=float, default=300)
    parser.add_argument("--row-seconds", type=float, help="a bound on the rounds of a row")
    parser.add_argument("--limit", type=float, default=120,
                        help="seconds until an engine that does not answer is given up on")
    parser.add_argument("-o", dest="out", default="models")
    args = parser.parse_args()
    args.rounds = args.rounds or (5 if args.quick else 8)
    args.row_seconds = args.row_seconds or (15 if args.quick else 90)
    return args


def main():
    args, notes = arguments(), []
    wanted = [w for w in args.models.split(",") if w]
    cases = [c for c in models.CASES if (c.quick or not args.quick)
             and (not wanted or any(w in c.name for w in wanted))]
    if not cases:
        sys.exit("no case has a name like that")
    all_threads = sorted(int(t) for t in args.threads.split(","))
    os.makedirs(args.out, exist_ok=True)
    os.makedirs(f"{args.work}/models", exist_ok=True)
    peers = installed(notes)
    cases = make_models(cases, args, notes)
    before, begun = processor_time([]), time.monotonic()
    best = machine(args, max(all_threads))
    results = page.Results(quick=args.quick, notes=notes, versions=versions(args, peers),
                           library_bytes=library_bytes(args))
    for case in cases:
        for threads in all_threads:
            run_case(case, threads, args, peers, results, notes)
            if case.name == START and "onnxruntime" in peers:
                measure_start(case, threads, args, results, notes)
    results.best = best_of(best, machine(args, max(all_threads)))
    results.others = share_of_others(before, processor_time([]))
    results.seconds = time.monotonic() - begun
    for note in notes:
        print(note)
    if not results.rows:
        sys.exit("nothing was measured")
    with open(f"{args.out}/BENCHMARKS.md", "w", encoding="utf-8") as out:
        out.write(page.write(results))
    with open(f"{args.work}/targets.md", "w", encoding="utf-8") as out:
        out.write(page.targets_page(results))
    with open(f"{args.out}/benchmarks.svg", "w", encoding="utf-8") as out:
        out.write(chart.draw(results))
    print(f"{args.out}/BENCHMARKS.md, {results.seconds:.0f} s")


if __name__ == "__main__":
    main()
