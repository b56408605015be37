"""peer.py - one engine with one model, in a process of its own; driven over stdin.

usage: peer.py ENGINE MODEL INPUTS.npz THREADS

Prints {"load_ms", "base_rss"}; then for each line "N" read runs N times and prints
{"times_ms": [...], "peak_rss"}.
"""
import json
import os
import sys
import time


def peak_rss():
    """getrusage would count the process that started this one, from before exec."""
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def onnxruntime_engine(model, feed, threads):
    import onnxruntime

    def load():
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
        return lambda: session.run(None, feed)

    return load


def openvino_engine(model, feed, threads):
    import openvino

    def load():
        core = openvino.Core()
        compiled = core.compile_model(model, "CPU", {
            "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1})
        request = compiled.create_infer_request()
        return lambda: request.infer(feed, share_inputs=True)

    return load


def torch_engine(model, feed, threads):
    """Only the attention core: whole models would need their Python classes."""
    import torch

    torch.set_num_threads(threads)
    causal = "causal" in os.path.basename(model)
    q, k, v = (torch.from_numpy(feed[n]) for n in "qkv")

    def load():
        def run():
            with torch.no_grad():
                torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return run

    return load


def main():
    engine, model, inputs, threads = sys.argv[1:]
    import numpy as np

    feed = dict(np.load(inputs))
    prepare = {"onnxruntime": onnxruntime_engine, "openvino": openvino_engine,
               "torch": torch_engine}[engine]
    load = prepare(model, feed, int(threads))
    base = peak_rss()
    start = time.perf_counter()
    run = load()
    print(json.dumps({"load_ms": (time.perf_counter() - start) * 1e3, "base_rss": base}),
          flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            start = time.perf_counter()
            run()
            times.append((time.perf_counter() - start) * 1e3)
        print(json.dumps({"times_ms": times, "peak_rss": peak_rss()}), flush=True)


main()
