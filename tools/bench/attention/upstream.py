"""upstream.py - a case's upstream module in PyTorch, in a process of its own; speaks as
tools/bench/peer.py does.

usage: upstream.py CASE N THREADS
"""
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import cases  # noqa: E402
import peer  # noqa: E402


def main():
    name, n, threads = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what modules print is no answer
    import torch

    torch.set_num_threads(int(threads))
    module, tensors = cases.upstream_of(cases.take(name), int(n))
    peer.reset_peak()
    base = peer.status_bytes("VmRSS")
    print(json.dumps({"load_ms": 0.0, "rss": 0}), file=answers, flush=True)
    for line in sys.stdin:
        times = []
        with torch.inference_mode():
            for _ in range(int(line)):
                start = time.perf_counter()
                module(*tensors)
                times.append((time.perf_counter() - start) * 1e3)
        peak = peer.status_bytes("VmHWM")
        print(json.dumps({"times_ms": times, "rss": peak - base, "runs_rss": peak - base}),
              file=answers, flush=True)


if __name__ == "__main__":
    main()
