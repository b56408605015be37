"""Attention of doubles against ONNX's evaluator and torch, both in double.
Usage: check_doubles.py ATTNRUN"""
import sys
import tempfile

import numpy as np
import torch
from onnx.reference import ReferenceEvaluator

from cases import check, one_node_model, write_case

random = np.random.default_rng(11)
TOLERANCE = "1e-12 1e-13"
NAMES = ("Q", "K", "V", "m", "pk", "pv", "n")


def normal(*shape):
    return random.standard_normal(shape)


def mask_of(kind, batch, heads, tokens, keys):
    """Some lead to rows without a key."""
    dims = [int(random.choice([1, dim])) for dim in (batch, heads, tokens)]
    shape = (*dims[random.integers(3):], keys)
    if kind == "bool":
        return random.integers(0, 4, shape) > 0
    if kind == "int":
        return random.integers(-3, 4, shape)
    mask = normal(*shape).astype("f4" if kind == "float" else "f8")
    mask[random.integers(0, 5, shape) == 0] = -np.inf
    return mask


def draw():
    batch, groups, kv_heads = (int(random.integers(1, 4)) for _ in range(3))
    heads, large = groups * kv_heads, random.integers(3) == 0
    dim, v_dim = (int(random.integers(1, 20)) for _ in range(2))
    tokens, new = (int(random.integers(1, 200 if large else 9)) for _ in range(2))
    past = int(random.integers(0, 3)) * int(random.integers(1, 90 if large else 5))
    form = int(random.integers(4))  # 0, 1: plain; 2: past; 3: lengths
    keys = new + past if form == 2 else new
    given = {"Q": normal(batch, heads, tokens, dim), "K": normal(batch, kv_heads, new, dim),
             "V": normal(batch, kv_heads, new, v_dim), "m": None, "pk": None, "pv": None,
             "n": random.integers(0, new + 1, batch) if form == 3 else None}
    if form == 2:
        given.update(pk=normal(batch, kv_heads, past, dim), pv=normal(batch, kv_heads, past, v_dim))
    kind = random.choice(["none", "bool", "int", "float", "double"])
    if kind != "none":
        given["m"] = mask_of(kind, batch, heads, tokens, keys)
        if form < 2 and random.integers(4) == 0:  # a shorter one hides the rest, from 24 on
            given["m"] = np.ascontiguousarray(given["m"][..., :max(keys - 2, 1)])
    attributes = {"is_causal": int(random.integers(2)),
                  "qk_matmul_output_mode": int(random.integers(4))}
    if random.integers(2):
        attributes["scale"] = 0.5625  # ONNX takes its root in f32
    if random.integers(2):
        attributes["softcap"] = 1.5
    for side in ("left", "right"):
        if random.integers(3) == 0:
            attributes[side + "_window_size"] = int(random.integers(0, 40 if large else 5))
            if random.integers(8) == 0:
                attributes[side + "_window_size"] = 2**63 - 1
    if random.integers(2):
        attributes.update(q_num_heads=heads, kv_num_heads=kv_heads)
        for name in "QKV":
            x = given[name].transpose(0, 2, 1, 3)
            given[name] = np.ascontiguousarray(x).reshape(*x.shape[:2], -1)
    return given, attributes


def reference_model():
    given, attributes = draw()
    tokens = given["Q"].shape[-2]
    outputs = ["Y"] if given["n"] is not None else ["Y", "key", "value"]
    shows = random.integers(2) == 1
    if shows:
        outputs = ["Y", "key", "value", "qk"]
    windows = any("window" in name for name in attributes)
    opset = 25 if windows else 23 if given["n"] is None and given["m"] is None else 24
    if shows and opset < 25:  # 23 and 24 number the stages otherwise
        opset = 25
    if not shows:
        del attributes["qk_matmul_output_mode"]
    elif attributes["qk_matmul_output_mode"] == 0:
        attributes.pop("softcap", None)  # the evaluator caps those scores, too
    model, inputs = one_node_model("Attention", list(given.items()), outputs, opset=opset,
                                   **attributes)
    model.ir_version = 11
    # The evaluator hides no keys in masks of integers or of one row for all queries.
    given = dict(inputs)
    if "m" in given:
        mask = given["m"].astype("f8") if given["m"].dtype == "i8" else given["m"]
        shape = (*mask.shape[:-2], tokens, mask.shape[-1])
        given["m"] = np.broadcast_to(mask, shape).copy()
    evaluated = one_node_model("Attention", [(name, given.get(name)) for name in NAMES], outputs,
                               opset=opset, **attributes)[0]
    for output in evaluated.graph.output:
        output.type.tensor_type.elem_type = 11
    values = ReferenceEvaluator(evaluated).run(None, given)
    assert all(value.dtype == np.float64 for value in values)
    return model, inputs, list(zip(outputs, values))


def torch_model():
    given, attributes = draw()
    while given["n"] is not None or given["Q"].ndim == 3 or "softcap" in attributes or any(
            "window" in name for name in attributes):
        given, attributes = draw()
    q, k, v = (torch.from_numpy(given[name]) for name in "QKV")
    if given["pk"] is not None:
        k, v = (torch.cat([torch.from_numpy(given["p" + name]), new], 2)
                for name, new in (("k", k), ("v", v)))
    bias = torch.zeros(q.shape[2], k.shape[2], dtype=torch.float64)
    if attributes["is_causal"]:
        behind = k.shape[2] - given["K"].shape[2]
        bias += torch.full_like(bias, -np.inf).triu(1 + behind)
    if given["m"] is not None:
        mask = given["m"]
        short = [(0, 0)] * (mask.ndim - 1) + [(0, k.shape[2] - mask.shape[-1])]
        mask = (np.where(mask, 0.0, -np.inf) if mask.dtype == bool else mask).astype("f8")
        bias = bias + torch.from_numpy(np.pad(mask, short, constant_values=-np.inf))
    bias = bias.expand(*q.shape[:3], k.shape[2])
    y = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=bias, scale=attributes.get("scale"), enable_gqa=True)
    y[torch.isneginf(bias).all(-1)] = 0
    del attributes["qk_matmul_output_mode"]
    model, inputs = one_node_model("Attention", list(given.items()), ["Y"], opset=24, **attributes)
    return model, inputs, [("Y", y.numpy())]


def flat_heads():
    """Heads without dims: all scores are 0."""
    given = {"Q": normal(2, 3, 5, 0), "K": normal(2, 3, 7, 0), "V": normal(2, 3, 7, 4)}
    model, inputs = one_node_model("Attention", list(given.items()), ["Y"], opset=24)
    y = np.repeat(given["V"].mean(2, keepdims=True), 5, axis=2)
    return model, inputs, [("Y", y)]


def main():
    with tempfile.TemporaryDirectory() as folder:
        for number in range(160):
            make = torch_model if number % 4 == 0 else reference_model
            write_case(f"{folder}/{number:03}_Attention", *make(), TOLERANCE)
        write_case(f"{folder}/flat_Attention", *flat_heads(), TOLERANCE)
        check(sys.argv[1], folder)


main()
