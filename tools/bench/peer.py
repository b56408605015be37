"""peer.py - one engine with one model, in a process of its own; driven over stdin.

usage: peer.py ENGINE MODEL FOLDER INPUTS.npz THREADS PRECISION

Prints {"load_ms", "rss"}; then for each line "N" read runs N times and prints
{"times_ms", "rss", "runs_rss"}. Bytes: `rss` is the peak above what the process held before
loading, with the engine imported and the inputs there; `runs_rss` what runs added to the
loaded model.
"""
import json
import os
import sys
import time


def status_bytes(key):
    """getrusage would count the process that started this one, from before exec."""
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    return 0


def reset_peak():
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as refs:
            refs.write("5")
    except OSError:
        pass  # the peak then has the import in it


def onnxruntime_engine(model, _folder, feed, threads, _precision):
    import onnxruntime

    def load():
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
        return lambda: session.run(None, feed)

    return load


def openvino_engine(model, _folder, feed, threads, precision):
    import openvino

    def load():
        core = openvino.Core()
        options = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
        if precision != "auto":  # else its own default
            options["INFERENCE_PRECISION_HINT"] = precision
        compiled = core.compile_model(model, "CPU", options)
        request = compiled.create_infer_request()
        return lambda: request.infer(feed, share_inputs=True)

    return load


def torch_attention(feed, causal):
    import torch

    q, k, v = (torch.from_numpy(feed[n]) for n in "qkv")
    attention = torch.nn.functional.scaled_dot_product_attention
    return lambda: lambda: attention(q, k, v, is_causal=causal)


def torch_encoder(folder, feed):
    """BERT or ViT, as the folder's config.json says, without the pooling that no file has."""
    import torch
    from transformers import AutoModel

    feed = {name: torch.from_numpy(value) for name, value in feed.items()}

    def load():
        model = AutoModel.from_pretrained(folder, add_pooling_layer=False).eval()
        return lambda: model(**feed)

    return load


def torch_gpt2(folder, feed):
    import torch
    from transformers import GPT2LMHeadModel
    from transformers.cache_utils import DynamicCache, DynamicLayer

    feed = {name: torch.from_numpy(value) for name, value in feed.items()}

    def cache_of(layers):
        """Layers that show the inputs; a step makes new tensors, so they stay as they are."""
        cache = DynamicCache()
        for i in range(layers if feed["past_k0"].shape[2] else 0):
            layer = DynamicLayer()
            layer.dtype, layer.device = torch.float32, torch.device("cpu")
            layer.keys, layer.values = feed[f"past_k{i}"], feed[f"past_v{i}"]
            layer.is_initialized = True
            cache.layers.append(layer)
        return cache

    def load():
        model = GPT2LMHeadModel.from_pretrained(folder).eval()
        return lambda: model(feed["input_ids"], attention_mask=feed["attention_mask"],
                             past_key_values=cache_of(model.config.n_layer),
                             use_cache=True, logits_to_keep=1)

    return load


def torch_engine(model, folder, feed, threads, _precision):
    """Eager modules as their authors ship them; inference mode."""
    import torch

    torch.set_num_threads(threads)
    name = os.path.basename(model)
    if not folder:
        load = torch_attention(feed, "causal" in name)
    else:
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        load = (torch_gpt2 if "gpt2" in name else torch_encoder)(folder, feed)

    def load_for_inference():
        run = load()

        def run_for_inference():
            with torch.inference_mode():
                return run()

        return run_for_inference

    return load_for_inference


def main():
    engine, model, folder, inputs, threads, precision = sys.argv[1:]
    import numpy as np

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what engines print is no answer
    feed = dict(np.load(inputs))
    load = {"onnxruntime": onnxruntime_engine, "openvino": openvino_engine,
            "torch": torch_engine}[engine](model, folder, feed, int(threads), precision)
    reset_peak()
    base = status_bytes("VmRSS")
    start = time.perf_counter()
    run = load()
    load_ms = (time.perf_counter() - start) * 1e3
    loaded = status_bytes("VmRSS")
    print(json.dumps({"load_ms": load_ms, "rss": status_bytes("VmHWM") - base}),
          file=answers, flush=True)
    load_peak = status_bytes("VmHWM")
    reset_peak()
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            start = time.perf_counter()
            run()
            times.append((time.perf_counter() - start) * 1e3)
        peak = status_bytes("VmHWM")
        print(json.dumps({"times_ms": times, "rss": max(load_peak, peak) - base,
                          "runs_rss": peak - loaded}), file=answers, flush=True)


if __name__ == "__main__":
    main()
