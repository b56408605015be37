"""bench.py - the attention operators beside the modules that they come from.

Three parts, one thread each. The table: each operator at its lengths, upstream in PyTorch, and
upstream's ONNX export in ONNX Runtime, in turns within one run; minima. The growth: time and
scratch of attnrun's operators over n = 512 … 65536, with dense attention. And each operator
with products of bf16 over itself in fp32. Operators that this
build lacks, modules that are not installed and exports that fail are left out with a sentence.
Writes ATTENTION.md, attention-time.svg and attention-memory.svg; BENCHMARKS.md links them.
What each part measured is kept in FOLDER, so that --part measures one of them again.

usage: bench.py --attnrun BINARY --work FOLDER [-o models] [--part table|growth|bf16|page]
                [--cases NAME,…] [--lengths N,…] [--grow N,…] [--rounds 5]
                [--limit SECONDS] [--patience SECONDS]
"""
import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import cases  # noqa: E402
import draw  # noqa: E402
import engines  # noqa: E402
import report  # noqa: E402
import vision  # noqa: E402
import written  # noqa: E402


RUNS_OF_A_MAP = 20  # a round; most take less than a millisecond


def operators(binary):
    listing = subprocess.run([binary, "ops", "--json"], capture_output=True, text=True,
                             check=True).stdout
    return {(op["domain"], op["name"]) for op in json.loads(listing)["ops"]}


def run_cases(what, case, n, folder, limit):
    """cases.py in a process of its own; the reason why it fails, or None."""
    folder.mkdir(parents=True, exist_ok=True)
    return engines.run_script(HERE / "cases.py", [what, case.name, str(n), str(folder)], limit)


def start(case, n, args, notes):
    """{engine: process} of a row."""
    folder = Path(args.work) / f"{case.name.replace(' ', '_').replace(',', '')}-{n}"
    why = run_cases("make", case, n, folder, args.limit)
    if why:
        raise engines.Failed(why)
    found = {"attnrun": engines.Attnrun(
        args.attnrun, (str(folder / "model.onnx"), "", str(folder / "inputs.npz")), 1,
        args.limit)}
    if case.upstream is None:
        return found
    why = run_cases("export", case, n, folder, args.limit)
    paths = (str(folder / "upstream.onnx"), "", str(folder / "upstream.npz"))
    in_torch = [str(HERE / "upstream.py"), case.name, str(n), "1"]
    if why:
        notes.append(f"{case.name}, n = {n}: no ONNX export of upstream: {why}.")
    for name in case.peers:
        if why and name != "torch":
            continue
        try:
            found[name] = (engines.Peer("torch", (), 1, args.limit, in_torch)
                           if name == "torch" else engines.Peer(name, paths, 1, args.limit))
        except engines.Failed as failed:
            notes.append(f"{case.name}, n = {n}: {name} does not run upstream: {failed}.")
    return found


def measure(case, n, args, notes):
    """{engine: figures} by turns."""
    running = start(case, n, args, notes)
    try:
        spent = dict.fromkeys(running, 0.0)
        for _ in range(args.rounds):
            for name, engine in list(running.items()):
                if spent[name] > args.patience:  # a slow peer gets fewer rounds
                    continue
                started = time.monotonic()
                try:
                    engine.round(RUNS_OF_A_MAP if case.vision else 2)
                    spent[name] += time.monotonic() - started
                except engines.Failed as why:
                    notes.append(f"{case.name}, n = {n}: {name} fails: {why}.")
                    engine.close()
                    del running[name]
        return {name: engine.result() for name, engine in running.items()}
    finally:
        for engine in running.values():
            engine.close()


def scratch_bytes(binary, model, limit):
    """What a plan needs beyond inputs and outputs."""
    done = subprocess.run([binary, "plan", model, "--threads", "1", "--json"],
                          capture_output=True, text=True, timeout=limit, check=True)
    return sum(block["bytes"] for block in json.loads(done.stdout)["blocks"]
               if block["name"] in ("scratch", "shared"))


def predicted_ms(n, found):
    """Of a run of n tokens, were the cost n²."""
    last = max(found, default=0)
    return found[last].result()["min_ms"] * (n / last) ** 2 if found else 0


def runs_of(engine):
    return 1 if engine.found and engine.result()["min_ms"] > 1000 else 3


def grow(case, args, notes):
    """[(n, ms, scratch bytes)], in turns over the lengths, so that a clock that moves does so
    for all; up to the length whose run would take too long."""
    found, folders = {}, {n: Path(args.work) / "grow" / str(n) for n in args.grow}
    longest = args.longest_ms if case.domain else 60 * args.longest_ms  # dense: to the end
    try:
        for n, folder in folders.items():
            ms = predicted_ms(n, found)
            if ms > longest:
                break
            why = run_cases("make", case, n, folder, args.limit)
            if why:
                raise engines.Failed(f"n = {n}: {why}")
            found[n] = engines.Attnrun(args.attnrun, (str(folder / "model.onnx"), "",
                                                      str(folder / "inputs.npz")), 1,
                                       max(args.limit, ms / 100))
            found[n].round(1)
        for _ in range(args.rounds):
            for engine in found.values():
                if sum(engine.times) < 4 * args.longest_ms:
                    engine.round(runs_of(engine))
        return [(n, engine.result()["min_ms"],
                 scratch_bytes(args.attnrun, str(folders[n] / "model.onnx"), args.limit))
                for n, engine in found.items()]
    except (engines.Failed, subprocess.SubprocessError) as failed:
        notes.append(f"growth of {case.name}: {failed}.")
        return []
    finally:
        shutil.rmtree(Path(args.work) / "grow", ignore_errors=True)


def numbers(text):
    return [int(word) for word in text.split(",") if word]


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--attnrun", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--cases", default="", help="those with one of these in the name")
    parser.add_argument("--lengths", type=numbers, help="in place of each case's own")
    parser.add_argument("--grow", type=numbers,
                        default=[512, 1024, 2048, 4096, 8192, 16384, 32768, 65536])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=180)
    parser.add_argument("--patience", type=float, default=10)
    parser.add_argument("--part", choices=("table", "growth", "bf16", "page"),
                        help="page: of what was measured before")
    parser.add_argument("--longest-ms", type=float, default=5000)
    parser.add_argument("-o", dest="out", default="models")
    return parser.parse_args()


def chosen_cases(args, notes):
    wanted, here = [w for w in args.cases.split(",") if w], operators(args.attnrun)
    for case in cases.CASES + vision.CASES:
        if wanted and not any(w in case.name for w in wanted):
            continue
        if (case.domain, case.op) in here:
            yield case
        else:
            notes.append(f"{case.name}: this build has no {case.op}.")


def measure_table(args):
    doctor = subprocess.run([args.attnrun, "doctor", "--bench", "--json", "--threads", "1"],
                            capture_output=True, text=True, check=True)
    found = {"peak": json.loads(doctor.stdout)["fp32_peak_gflops"], "rows": [], "notes": []}
    for case in chosen_cases(args, found["notes"]):
        for n in (not case.vision and args.lengths) or case.lengths:
            try:
                figures = measure(case, n, args, found["notes"])
            except engines.Failed as why:
                found["notes"].append(f"{case.name}, n = {n}: {why}.")
                continue
            if "attnrun" in figures:
                found["rows"].append((case.name, n, figures))
                print(f"{case.name}, n = {n}: " + "  ".join(
                    f"{k} {f['min_ms']:.2f} ms" for k, f in figures.items()), flush=True)
        keep(args, "table", found)


def measure_growth(args):
    found = {"growth": {}, "notes": []}
    for case in chosen_cases(args, found["notes"]):
        if not case.vision and case.n_heads == cases.HEADS:
            found["growth"][case.name] = grow(case, args, found["notes"])
            keep(args, "growth", found)


def measure_bf16(args):
    """Each operator at its first length in both precisions, by turns."""
    found = {"rows": [], "notes": []}
    for case in chosen_cases(args, found["notes"]):
        n = ((not case.vision and args.lengths) or case.lengths)[0]
        folder = Path(args.work) / f"{case.name.replace(' ', '_').replace(',', '')}-{n}"
        why = run_cases("make", case, n, folder, args.limit)
        paths = (str(folder / "model.onnx"), "", str(folder / "inputs.npz"))
        pair = [engines.Attnrun(args.attnrun, paths, 1, args.limit, precision=precision)
                for precision in ("f32", "bf16")]
        try:
            if why:
                raise engines.Failed(why)
            for _ in range(args.rounds):
                for engine in pair:
                    engine.round(RUNS_OF_A_MAP if case.vision else 3)
        except engines.Failed as failed:
            found["notes"].append(f"{case.name} in bf16, n = {n}: {failed}.")
            continue
        ms = [engine.result()["min_ms"] for engine in pair]
        found["rows"].append((case.name, n, *ms))
        print(f"{case.name}, n = {n}: f32 {ms[0]:.2f} ms, bf16 {ms[1]:.2f} ms", flush=True)
        keep(args, "bf16", found)


def keep(args, part, found):
    Path(args.work).mkdir(parents=True, exist_ok=True)
    Path(args.work, f"{part}.json").write_text(json.dumps(found), encoding="utf-8")


def kept(args, part):
    path = Path(args.work, f"{part}.json")
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write_page(args):
    table, growth, bf16 = (kept(args, part) for part in ("table", "growth", "bf16"))
    rows = [(cases.find(name), n, figures) for name, n, figures in table.get("rows", ())]
    grown = {cases.find(name): points for name, points in growth.get("growth", {}).items()}
    os.makedirs(args.out, exist_ok=True)
    notes = [note for part in (table, growth, bf16) for note in part.get("notes", [])]
    page = report.write(datetime.date.today(), written.cpu(), table.get("peak", 1), rows,
                        grown, notes, bf16.get("rows", []))
    Path(args.out, "ATTENTION.md").write_text(page, encoding="utf-8")
    Path(args.work, "targets.md").write_text(report.targets(rows, grown), encoding="utf-8")
    families = {case.name: cases.family_of(case) for case in grown}
    for name, index, title, unit in (("time", 1, "Time", "ms"),
                                     ("memory", 2, "Memory beyond inputs and outputs", "MiB")):
        picture = draw.draw(title, unit, {case.name: [(p[0], p[index]) for p in points]
                                          for case, points in grown.items() if points},
                            1 if index == 1 else 2 ** -20, families)
        Path(args.out, f"attention-{name}.svg").write_text(picture, encoding="utf-8")


def main():
    args = arguments()
    if args.part in (None, "table"):
        measure_table(args)
    if args.part in (None, "growth"):
        measure_growth(args)
    if args.part in (None, "bf16"):
        measure_bf16(args)
    write_page(args)


if __name__ == "__main__":
    main()
