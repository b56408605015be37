"""measure.py - time and memory of what the gallery shows, at 4,096 tokens or pixels: models
as tools/bench/attention/cases.py and vision.py make them (8 heads of 64; maps of 64 x 64
with 256 channels), and the cases below, which only the gallery needs. One thread; each case
in turns with the dense attention that it stands beside, minima. Memory: what the plan needs
beside inputs, weights and the result; exact.
"""
import datetime
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

BENCH = Path(__file__).resolve().parents[1] / "bench"
sys.path[:0] = [str(BENCH / "attention"), str(BENCH)]
import cases  # noqa: E402
import vision  # noqa: E402
import written  # noqa: E402
from cases import DIM, HEADS, WIDTH, Case, qkv  # noqa: E402

TOKENS, SIDE, QUERIES, HIDDEN = 4096, 64, 64, 256
DENSE = "dense"
PROJECTED = (1, TOKENS, WIDTH)


def first_global(n):
    mask = np.zeros((1, n), bool)
    mask[0, 0] = True
    return mask


def gated_delta(n):
    draw = np.random.default_rng(1)
    unit = draw.standard_normal((2, 1, n, HEADS, DIM)).astype(np.float32)
    unit /= np.linalg.norm(unit, axis=-1, keepdims=True)
    gates = draw.random((2, 1, n, HEADS)).astype(np.float32)
    return {"Q": unit[0].reshape(1, n, WIDTH), "K": unit[1].reshape(1, n, WIDTH),
            "V": (1, n, WIDTH), "past": None, "g": -0.1 * gates[0], "beta": gates[1]}


def synthetic(**operands):
    order = ("q", "k", "hid", "W2", "b2", "a", "b", "R")
    return lambda n: {"V": (1, n, WIDTH), **{k: operands.get(k) for k in order}}


def component(name):
    return lambda n: {"components": [name]}


def queries(n, **more):
    """A decoder's 64 states, and n of the encoder."""
    return {"query": (1, QUERIES, WIDTH), "keys": (1, n, WIDTH), **more}


def of_nodes(*nodes, **weights):
    """The model of a case that is not one node of domain attnrun; weights are shapes."""
    draw = np.random.default_rng(1)
    return lambda n: (list(nodes), [numpy_helper.from_array(
        (draw.standard_normal(shape) * shape[-1] ** -0.5).astype(np.float32), name)
        for name, shape in weights.items()])


def alone(name, model, **operands):
    return Case(name, "", lambda n: operands, domain="", model=model)


ATTENTION = {"op_type": "Attention", "inputs": ["Q", "K", "V"], "outputs": ["Y"]}
MORE = [
    Case("dense, causal", "Attention", qkv, lambda n: {"is_causal": 1}, domain=""),
    alone("dense, 64 queries", of_nodes(helper.make_node(
        **ATTENTION, q_num_heads=HEADS, kv_num_heads=HEADS)),
        Q=(1, QUERIES, WIDTH), K=(1, TOKENS, WIDTH), V=(1, TOKENS, WIDTH)),
    alone("grouped queries, 8 on 2, causal", of_nodes(helper.make_node(
        **ATTENTION, q_num_heads=HEADS, kv_num_heads=2, is_causal=1)),
        Q=PROJECTED, K=(1, TOKENS, 2 * DIM), V=(1, TOKENS, 2 * DIM)),
    alone("GRU, both directions", of_nodes(
        helper.make_node("GRU", ["X", "W", "R"], ["Y"], hidden_size=HIDDEN,
                         direction="bidirectional"),
        W=(2, 3 * HIDDEN, WIDTH), R=(2, 3 * HIDDEN, HIDDEN)), X=(TOKENS, 1, WIDTH)),
    Case("blocks of 256, causal", "ChunkedLocalAttention", qkv,
         lambda n: {"chunk_size": 256, "is_causal": 1}),
    Case("LED ±256, one global token", "LongformerAttention",
         lambda n: qkv(n, key_mask=None, global_mask=first_global(n)),
         lambda n: {"window": [256]}),
    Case("Synthesizer, dense", "SyntheticAttention",
         synthetic(hid=PROJECTED, W2=(1, DIM, TOKENS), b2=(1, TOKENS)), component("dense")),
    Case("Synthesizer, random", "SyntheticAttention", synthetic(R=(1, TOKENS, TOKENS)),
         component("random")),
    Case("Synthesizer, factorized dense", "SyntheticAttention",
         synthetic(a=PROJECTED, b=PROJECTED), component("factorized_dense")),
    Case("Bahdanau, 64 queries", "AdditiveAttention", lambda n: queries(n, v=(WIDTH,)),
         heads=False),
    Case("Luong, dot, 64 queries", "LuongAttention", queries, heads=False),
    Case("Luong, concat, 64 queries", "LuongAttention",
         lambda n: queries(n, values=None, pos=None, v=(WIDTH,)),
         lambda n: {"score": "concat"}, heads=False),
    Case("Luong, local-p, 64 queries", "LuongAttention",
         lambda n: queries(n, values=None, pos=np.linspace(0, 1, QUERIES,
                                                           dtype=np.float32)[None]),
         lambda n: {"mode": "local_p"}, heads=False),
    Case("pooling, 64 sentences of 64", "AttentionPooling",
         lambda n: {"X": (64, n // 64, WIDTH), "W": (WIDTH, WIDTH), "c": (WIDTH,)},
         heads=False),
    Case("AFM, 256 samples of 39 fields", "AFMPooling",
         lambda n: {"E": (256, 39, DIM), "W": (DIM, 32), "h": (32,)}, heads=False),
    Case("gated delta", "LinearAttention", gated_delta,
         lambda n: {"q_num_heads": HEADS, "kv_num_heads": HEADS}, domain=""),
]
ALL = {case.name: case for case in cases.CASES + vision.CASES + MORE}
PIXELS = "SAGAN self-attention"
GATES = {"Squeeze-and-Excitation", "CBAM", "Selective Kernel block, 32 groups",
         "AFM, 256 samples of 39 fields", DENSE, "dense, 64 queries", PIXELS}

CAUSAL = {"grouped queries, 8 on 2, causal", "blocks of 256, causal", "linear, causal",
          "Performer, causal", "gated delta", "Sparse Transformer, strided",
          "Sparse Transformer, fixed"}


def partner(name):
    """The dense attention that a case stands beside, "" for none."""
    if name in GATES:
        return ""
    if name in CAUSAL:
        return "dense, causal"
    if "64 queries" in name:
        return "dense, 64 queries"
    return PIXELS if ALL[name].vision else DENSE


def make(case, folder):
    n = SIDE if case.vision else TOKENS
    cases.make(case, n, folder)
    if case.op == "LinearAttention" and not case.domain:  # newer than cases.py says
        model = onnx.load(folder / "model.onnx")
        model.opset_import[0].version = 27
        onnx.save(model, folder / "model.onnx")


def call(attnrun, command, folder, *more):
    done = subprocess.run([attnrun, command, str(folder / "model.onnx"), "-i",
                           str(folder / "inputs.npz"), "--threads", "1", "--json", *more],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout)


def run_ms(attnrun, folder):
    found = call(attnrun, "bench", folder, "-n", "3")
    return min(found["min_ms"], found["first_ms"])


def memory_bytes(attnrun, folder):
    plan = call(attnrun, "plan", folder)
    results = sum(block["bytes"] for block in plan["blocks"] if block["name"] == "Y")
    return plan["arena_bytes"] - results


def machine(attnrun):
    isa = json.loads(subprocess.run([attnrun, "doctor", "--json"], capture_output=True,
                                    text=True, check=True).stdout)["isa"]
    return f"{written.cpu()}, {isa}, one thread, {datetime.date.today()}"


def together(attnrun, names, rounds):
    """[(ms, bytes)] of cases in turns; minima."""
    with tempfile.TemporaryDirectory() as base:
        folders = [Path(base, str(k)) for k in range(len(names))]
        for name, folder in zip(names, folders):
            folder.mkdir()
            make(ALL[name], folder)
        times = [[run_ms(attnrun, folder) for folder in folders] for _ in range(rounds)]
        return [(round(min(runs), 4), memory_bytes(attnrun, folder))
                for runs, folder in zip(zip(*times), folders)]


def measure(attnrun, names, rounds, stored):
    """Renews the figures of these cases, each with those of its partner in its turns."""
    figures = stored.setdefault("measured", {})
    for name in names:
        beside = partner(name)
        found = together(attnrun, [name, *filter(None, [beside])], rounds)
        figures[name] = {"ms": found[0][0], "bytes": found[0][1]}
        if beside:
            figures[name] |= {"beside": beside, "beside_ms": found[1][0],
                              "beside_bytes": found[1][1]}
        print(f"{name}: {found}", flush=True)
    stored["machine"] = machine(attnrun)
    stored["measured"] = dict(sorted(figures.items()))
