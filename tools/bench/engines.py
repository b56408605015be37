"""engines.py - the engines as processes: asked, timed, and given up on without harm."""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

PEERS = {"onnxruntime": ["onnxruntime"], "openvino": ["openvino"],
         "torch": ["torch", "transformers"]}  # and the packages that each needs


class Failed(Exception):
    """One sentence about an engine that does not go on."""


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it said nothing"


def run_script(script, words, limit_s=None):
    """A script of this folder in a process of its own; the reason why it fails, or None."""
    try:
        done = subprocess.run([sys.executable, str(script), *words], capture_output=True,
                              text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return f"not ready within {limit_s:.0f} s"
    return None if done.returncode == 0 else last_line(done.stderr)


def in_turns(engines, args, drop):
    """Blocks of args.block_ms by turns; the first one says how many runs that is. An engine
    that fails goes to drop(name, why), which takes it out of `engines`."""
    blocks, deadline = {}, time.monotonic() + args.row_seconds
    for turn in range(args.rounds + 1):
        if turn > 1 and time.monotonic() > deadline:
            break
        for name, engine in list(engines.items()):
            try:
                engine.round(blocks.get(name, 1))
            except Failed as why:
                drop(name, why)
                continue
            if turn == 0:
                runs = args.block_ms / max(engine.times[-1], 0.01)
                blocks[name] = max(2, min(50, int(runs)))


class Peer:
    """A process that holds one engine with one model loaded; see peer.py. `command`: the
    program and its arguments where it is another one that speaks like that."""

    def __init__(self, name, paths, threads, limit_s, command=None, precision="f32"):
        self.limit_s, self.times, self.figures = limit_s, [], {}
        self.errors = tempfile.TemporaryFile("w+", errors="replace")
        if command is None:
            script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peer.py")
            command = [script, name, *paths, str(threads), precision]
        self.process = subprocess.Popen(
            [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.errors, text=True)
        try:
            self.figures.update(self.answer())
            first = self.ask(1)
        except Failed:
            self.close()
            raise
        self.figures["first_ms"] = first[0]

    def answer(self):
        """The next line, or Failed; a process that is too slow is killed."""
        timer = threading.Timer(self.limit_s, self.process.kill)
        timer.start()
        line = self.process.stdout.readline()
        late = not timer.is_alive()
        timer.cancel()
        try:
            return json.loads(line)
        except json.JSONDecodeError as error:
            self.errors.seek(0)
            if late:
                raise Failed(f"no answer within {self.limit_s:.0f} s") from error
            try:
                ended = self.process.wait(5)
            except subprocess.TimeoutExpired:
                ended = 0
            raise Failed(f"ended by signal {-ended}" if ended < 0
                         else last_line(self.errors.read())) from error

    def ask(self, n):
        try:
            self.process.stdin.write(f"{n}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # answer() says why
        answer = self.answer()
        self.figures.update(answer)
        return answer["times_ms"]

    def round(self, n):
        self.times += self.ask(n)

    def result(self):
        return {**self.figures, "min_ms": min(self.times),
                "median_ms": statistics.median(self.times)}

    def cpu_seconds(self):
        """Of the process while it lives; afterwards it counts to this one's children."""
        try:
            with open(f"/proc/{self.process.pid}/stat", encoding="utf-8") as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
        except OSError:
            return 0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()


class Attnrun:
    """The command line; each round is a process of its own, so loading is timed each time."""

    def __init__(self, binary, paths, threads, limit_s, state="", isa="", precision="f32",
                 ragged="off", with_bound=False):
        model, _, inputs = paths
        self.environment = {**os.environ, "ATTNRUN_ISA": isa} if isa else None
        states = ["--state", state] if state else []
        precisions = ["--precision", precision] if precision != "f32" else []
        tokens = ["--ragged", ragged] if ragged != "off" else []
        self.command = [binary, "bench", model, "-i", inputs, "--threads", str(threads),
                        *states, *precisions, *tokens, "--json", "--repeat"]
        self.plan = [binary, "plan", model, "-i", inputs, "--threads", str(threads),
                     *precisions, "--json"] if with_bound else []
        self.limit_s, self.found = limit_s, []

    def round(self, n):
        try:
            done = subprocess.run([*self.command, str(n)], capture_output=True, text=True,
                                  timeout=self.limit_s, check=False,
                                  env=self.environment)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"no answer within {self.limit_s:.0f} s") from error
        if done.returncode != 0:
            raise Failed(last_line(done.stderr))
        self.found.append(json.loads(done.stdout))

    @property
    def times(self):
        return [f["min_ms"] for f in self.found]

    def bound(self):
        """Bytes that the arena of a network needs at least; None where it is not asked for."""
        if not self.plan:
            return None
        done = subprocess.run(self.plan, capture_output=True, text=True, check=True,
                              timeout=self.limit_s, env=self.environment)
        return json.loads(done.stdout)["lower_bound_bytes"]

    def result(self):
        def over(pick, name):
            return pick(f[name] for f in self.found)

        median = statistics.median
        return {"load_ms": over(median, "load_ms"), "pack_ms": over(median, "pack_ms"),
                "first_ms": over(median, "first_ms"), "min_ms": over(min, "min_ms"),
                "median_ms": over(median, "median_ms"),
                "rss": over(max, "above_base_rss_bytes"),
                "runs_rss": over(max, "runs_rss_bytes"),
                "runs_mapped": max(f.get("runs_mapped_rss_bytes", 0) for f in self.found),
                "isa": self.found[0]["isa"],
                "weights": self.found[0]["weights_bytes"],
                "arena": self.found[0]["arena_bytes"], "bound": self.bound()}

    def cpu_seconds(self):
        return 0  # ended processes count to this one's children

    def close(self):
        pass


# ---- what else runs on the machine ----

def processor_time(engines):
    """Seconds since the start of the system: of all CPUs busy, of all CPUs, and ours."""
    with open("/proc/stat", encoding="ascii") as stat:
        ticks = [int(word) for word in stat.readline().split()[1:9]]
    tick = os.sysconf("SC_CLK_TCK")
    idle = ticks[3] + ticks[4]  # and waiting for disks
    own = sum(os.times()[:4]) + sum(e.cpu_seconds() for e in engines)
    return (sum(ticks) - idle) / tick, sum(ticks) / tick, own


def share_of_others(before, after):
    """The share of all CPUs that processes other than ours took in between."""
    busy, total, own = (b - a for a, b in zip(before, after))
    return max(0.0, (busy - own) / total) if total > 0 else 0.0
