#!/usr/bin/env python3
"""Make MiniLM take documents longer than 512 tokens, by dense attention or Longformer's.

usage: lengthen.py OUT.onnx [--tokens 4096] [--window W [--global-tokens 1]] [--exported]
                   [--package FOLDER]

The table of positions is repeated, as Longformer's authors repeat RoBERTa's
(arXiv:2004.05150, section 5); nothing is trained. Each layer's attention becomes

    --window W    LongformerAttention of domain attnrun: W tokens to either side, and the
                  first --global-tokens tokens, which see all and which all see, through
                  the layer's own projections (how the authors begin their training)
    --exported    what the exporter wrote
    neither       Attention of ONNX, dense

Inputs and outputs are those of models/minilm-graph.onnx. Needs what fill.py needs.
"""
import argparse
import os

import numpy as np
import onnx
from onnx import helper, numpy_helper

import fill

HEADS, LAYERS, OPSET = 12, 6, 23


def tensor(name, value):
    return numpy_helper.from_array(np.array(value, dtype=np.int64), name)


def repeat_positions(model, tokens):
    """The table of positions over and over, up to `tokens` rows, and ids that count on."""
    named = {init.name: init for init in model.graph.initializer}
    table = named["bert.embeddings.position_embeddings.weight"]
    ids = named["bert.embeddings.position_ids"]
    rows = numpy_helper.to_array(table)
    rows = np.tile(rows, (-(-tokens // len(rows)), 1))[:tokens]
    table.CopyFrom(numpy_helper.from_array(rows, table.name))
    ids.CopyFrom(tensor(ids.name, np.arange(tokens)[None]))


def reader_of(model, value):
    """The node that reads `value`."""
    return next(node for node in model.graph.node if value in node.input)


def operands(model, layer):
    """Names of a layer's queries, keys and values, and of what its attention gives."""
    name = f"bert.encoder.layer.{layer}.attention"
    sums = [reader_of(model, f"{name}.self.{part}.bias").output[0]
            for part in ("query", "key", "value")]
    product = reader_of(model, f"{name}.output.dense.bias").input[0]
    return sums, next(node for node in model.graph.node if product in node.output).input[0]


def windows(model, window, global_tokens):
    """The nodes before the first layer, and the attention of one."""
    table = "bert.embeddings.position_embeddings.weight"
    positions = reader_of(model, table).input[1]  # (1, seq)
    model.graph.initializer.append(tensor("globals", global_tokens))
    before = [helper.make_node("Cast", ["attention_mask"], ["key_mask"],
                               to=onnx.TensorProto.BOOL),
              helper.make_node("Less", [positions, "globals"], ["first"]),
              helper.make_node("And", ["key_mask", "first"], ["global_mask"])]
    return before, lambda qkv, out: helper.make_node(
        "LongformerAttention", [*qkv, "key_mask", "global_mask"], [out], domain="attnrun",
        q_num_heads=HEADS, window=[window])


def dense(model):
    model.graph.initializer.append(tensor("mask_axes", [1, 2]))
    before = [helper.make_node("Cast", ["attention_mask"], ["key_mask"],
                               to=onnx.TensorProto.BOOL),
              helper.make_node("Unsqueeze", ["key_mask", "mask_axes"], ["mask"])]
    return before, lambda qkv, out: helper.make_node(
        "Attention", [*qkv, "mask"], [out], q_num_heads=HEADS, kv_num_heads=HEADS)


def replace_attention(model, before, attention):
    """Each layer's attention by `attention(queries keys values, output)`; `before` comes as
    soon as its inputs are there. What nobody reads any more is dropped."""
    added, taken = [], []
    for layer in range(LAYERS):
        qkv, out = operands(model, layer)
        added.append((set(qkv), attention(qkv, out)))
        taken.append(out)
    nodes = [n for n in model.graph.node if not set(n.output) & set(taken)]
    known = {i.name for i in [*model.graph.input, *model.graph.initializer]}
    waiting = [(set(n.input), n) for n in before] + added
    ordered = []
    while nodes or waiting:
        ready = next((item for item in waiting if item[0] <= known), None)
        if ready:
            waiting.remove(ready)
        node = ready[1] if ready else nodes.pop(0)
        ordered.append(node)
        known.update(node.output)
    drop_unread(model, ordered)


def drop_unread(model, ordered):
    read, kept = {value.name for value in model.graph.output}, []
    for node in reversed(ordered):
        if read & set(node.output):
            kept.append(node)
            read.update(node.input)
    weights = [init for init in model.graph.initializer if init.name in read]
    for field, items in (("node", kept[::-1]), ("initializer", weights)):
        model.graph.ClearField(field)
        getattr(model.graph, field).extend(items)
    model.graph.ClearField("value_info")


def lengthen(model, tokens, window=0, global_tokens=1, exported=False):
    """The filled model, changed in place."""
    repeat_positions(model, tokens)
    if exported:
        return
    replace_attention(model, *(windows(model, window, global_tokens) if window
                               else dense(model)))
    model.ClearField("opset_import")
    model.opset_import.extend([helper.make_opsetid("", OPSET),
                               helper.make_opsetid("attnrun", 1)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("out")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--window", type=int, default=0)
    parser.add_argument("--global-tokens", type=int, default=1)
    parser.add_argument("--exported", action="store_true")
    parser.add_argument("--package", default=None)
    options = parser.parse_args()
    model = onnx.load(fill.GRAPH, load_external_data=False)
    fill.fill(model, fill.read_safetensors(options.package or fill.package_folder()))
    lengthen(model, options.tokens, options.window, options.global_tokens,
             options.exported)
    os.makedirs(os.path.dirname(os.path.abspath(options.out)), exist_ok=True)
    onnx.save(model, options.out)
    print(f"{options.out}: {options.tokens} tokens, {os.path.getsize(options.out)} bytes")


if __name__ == "__main__":
    main()
