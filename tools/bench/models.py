"""models.py - the models of the benchmark, made once: real MiniLM, random weights else."""
import os

import numpy as np


def bert(path):
    import torch
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig(), add_pooling_layer=False).eval()
    ids = torch.zeros(1, 16, dtype=torch.int64)

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask):
            return self.model(input_ids, attention_mask=attention_mask).last_hidden_state

    _export(Wrapped().eval(), (ids, torch.ones_like(ids)), path,
            ["input_ids", "attention_mask"], ["last_hidden_state"],
            ({0: "batch", 1: "seq"}, {0: "batch", 1: "seq"}))


def gpt2(path):
    """GPT-2 small with its cache as inputs and outputs."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    from transformers.cache_utils import DynamicCache

    config = GPT2Config()
    model = GPT2LMHeadModel(config).eval()
    layers, heads, dim = config.n_layer, config.n_head, config.n_embd // config.n_head

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask, *past):
            cache = DynamicCache()
            for layer in range(layers):
                cache.update(past[2 * layer], past[2 * layer + 1], layer)
            out = self.model(input_ids, attention_mask=attention_mask,
                             past_key_values=cache, use_cache=True, logits_to_keep=1)
            present = []
            for layer in out.past_key_values.layers:
                present += [layer.keys, layer.values]
            return (out.logits, *present)

    past = [torch.zeros(1, heads, 3, dim) for _ in range(2 * layers)]
    ids = torch.zeros(1, 2, dtype=torch.int64)
    names = [f"past_{'kv'[i % 2]}{i // 2}" for i in range(2 * layers)]
    shapes = tuple({0: "batch", 2: "past"} for _ in past)
    _export(Wrapped().eval(), (ids, torch.ones(1, 5, dtype=torch.int64), *past), path,
            ["input_ids", "attention_mask", *names],
            ["logits", *[n.replace("past", "present") for n in names]],
            ({0: "batch", 1: "seq"}, {0: "batch", 1: "total"}, shapes))


def attention(path, causal):
    """Softmax attention alone, as ai.onnx Attention of opset 23."""
    from onnx import TensorProto, helper, save

    dims = ["B", 8, "N", 64]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, dims) for n in "qkvy"]
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], is_causal=int(causal))
    graph = helper.make_graph([node], "attention", values[:3], values[3:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    model.ir_version = 10
    save(model, path)


def _export(module, args, path, inputs, outputs, shapes):
    import torch

    with torch.no_grad():
        program = torch.onnx.export(module, args, dynamo=True, opset_version=18,
                                    input_names=inputs, output_names=outputs,
                                    dynamic_shapes=shapes, verbose=False)
    program.save(path, external_data=False)


def tokens(batch, seq):
    return {"input_ids": np.arange(batch * seq, dtype=np.int64).reshape(batch, seq) % 1000,
            "attention_mask": np.ones((batch, seq), np.int64)}


def cached(seq, past):
    feed = {"input_ids": np.arange(seq, dtype=np.int64).reshape(1, seq),
            "attention_mask": np.ones((1, past + seq), np.int64)}
    rng = np.random.default_rng(0)
    for i in range(24):
        feed[f"past_{'kv'[i % 2]}{i // 2}"] = rng.standard_normal(
            (1, 12, past, 64), dtype=np.float32)
    return feed


def qkv(n):
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal((1, 8, n, 64), dtype=np.float32) for name in "qkv"}


def encoder_flops(batch, seq, layers, hidden):
    """Matrix products of a BERT encoder (feed-forward 4 * hidden); a multiply-add is two."""
    return 2 * batch * seq * layers * (12 * hidden**2 + 2 * seq * hidden)


def attention_flops(n):
    return 4 * 8 * 64 * n * n


# name, file, how to make it, input, in the quick pass, the least ratio to reach, FLOPs where
# they are known
CASES = [
    ("MiniLM 1x16", "minilm", None, lambda: tokens(1, 16), True, 1.3,
     encoder_flops(1, 16, 6, 384)),
    ("MiniLM 1x128", "minilm", None, lambda: tokens(1, 128), True, 1.03,
     encoder_flops(1, 128, 6, 384)),
    ("MiniLM 1x512", "minilm", None, lambda: tokens(1, 512), True, 1.03,
     encoder_flops(1, 512, 6, 384)),
    ("MiniLM 8x128", "minilm", None, lambda: tokens(8, 128), False, 1.03,
     encoder_flops(8, 128, 6, 384)),
    ("BERT-base 1x128", "bert", bert, lambda: tokens(1, 128), False, 1.03,
     encoder_flops(1, 128, 12, 768)),
    ("BERT-base 1x384", "bert", bert, lambda: tokens(1, 384), False, 1.03,
     encoder_flops(1, 384, 12, 768)),
    ("GPT-2 prefill 1x256", "gpt2", gpt2, lambda: cached(256, 0), False, 1.05, None),
    ("GPT-2 decode, 512 cached", "gpt2", gpt2, lambda: cached(1, 512), False, 1.2, None),
    ("attention 8x64, n=1024", "attention", lambda p: attention(p, False),
     lambda: qkv(1024), True, 1.05, attention_flops(1024)),
    ("attention 8x64, n=4096", "attention", lambda p: attention(p, False),
     lambda: qkv(4096), True, 1.05, attention_flops(4096)),
    ("causal attention, n=4096", "causal", lambda p: attention(p, True),
     lambda: qkv(4096), False, 1.05, attention_flops(4096) / 2),
]


def make(case, work):
    """The case's model file and its input file, made where they are not there yet."""
    name, file, maker, feed = case[:4]
    model = f"{work}/models/{file}.onnx"
    if file == "minilm":
        model = f"{work}/../minilm/model.onnx"
    os.makedirs(f"{work}/models", exist_ok=True)
    if not os.path.exists(model):
        print(f"making {model}", flush=True)
        maker(model + ".tmp")
        os.rename(model + ".tmp", model)
    inputs = f"{work}/models/{''.join(c if c.isalnum() else '_' for c in name)}.npz"
    if not os.path.exists(inputs):
        np.savez(inputs, **feed())
    return model, inputs
