"""OLMoE with random weights: onnxruntime_genai's builder has no such family, so the file is written
here in the builder's operators (MatMul or MatMulNBits, GroupQueryAttention with rotation, MoE or
QMoE whose router's probabilities are not divided by their sum).

The greedy tokens must be those of transformers on the same weights (of the int4 file: on what its
weights stand for), step by step behind a prompt, with the past as inputs and outputs, and the
logits within 2e-5 of the largest. With `--precision auto` logits of int4 stay within 5e-2.

usage: check_olmoe.py ATTNRUN"""
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import torch
import transformers
from onnx import TensorProto, helper, numpy_helper

SEED, LAYERS, HIDDEN, INNER, HEADS, KV_HEADS, WORDS = 5, 2, 64, 32, 4, 2, 96
EXPERTS, CHOSEN, BLOCK, DIM, PROMPT, STEPS, POSITIONS = 4, 2, 32, 16, 9, 6, 64


def network():
    config = transformers.OlmoeConfig(
        vocab_size=WORDS, hidden_size=HIDDEN, intermediate_size=INNER, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, num_experts=EXPERTS,
        num_experts_per_tok=CHOSEN, norm_topk_prob=False, max_position_embeddings=POSITIONS,
        bos_token_id=1, eos_token_id=2, pad_token_id=0, attn_implementation="eager")
    torch.manual_seed(SEED)
    module = transformers.OlmoeForCausalLM(config).eval()
    with torch.no_grad():
        for name, value in module.named_parameters():
            if value.dim() > 1:
                value.normal_(0, 0.5 if "embed" in name else 0.12)
            else:
                value.uniform_(0.5, 1.5)
    return module


class Writer:
    """A file; with four_bits it changes the module's weights into what it writes."""

    def __init__(self, module, four_bits):
        self.module, self.four_bits = module, four_bits
        self.weights = dict(module.named_parameters())
        self.nodes, self.constants, self.count = [], [], 0

    def constant(self, value):
        self.count += 1
        self.constants.append(numpy_helper.from_array(
            np.ascontiguousarray(value), f"c{self.count}"))
        return f"c{self.count}"

    def node(self, op, inputs, outputs=1, domain="com.microsoft", **attributes):
        self.count += 1
        names = (outputs if isinstance(outputs, list)
                 else [f"{op}{self.count}_{i}" for i in range(outputs)])
        self.nodes.append(helper.make_node(op, inputs, names, domain=domain, **attributes))
        return names[0]

    def quantized(self, name, part=slice(None)):
        """Lines of a weight as bytes of 4 bits and scales; it becomes what they stand for."""
        weight = self.weights[name].data[..., part, :]
        blocks = weight.reshape(*weight.shape[:-1], -1, BLOCK)
        scales = blocks.abs().amax(-1) / 7
        q = torch.round(blocks / scales[..., None]).clamp(-8, 7) + 8
        weight.copy_(((q - 8) * scales[..., None]).reshape(weight.shape))
        q = q.to(torch.uint8)
        return (q[..., ::2] | q[..., 1::2] << 4).numpy(), scales.numpy()

    def product(self, x, name):
        n, k = self.weights[name].shape
        if not self.four_bits:
            return self.node("MatMul", [x, self.constant(self.weights[name].detach().numpy().T)],
                             domain="")
        q, scales = self.quantized(name)
        return self.node("MatMulNBits", [x, self.constant(q), self.constant(scales)], K=k, N=n,
                         bits=4, block_size=BLOCK)

    def norm(self, x, name):
        return self.node("SimplifiedLayerNormalization",
                         [x, self.constant(self.weights[name].detach().numpy())], domain="",
                         axis=-1, epsilon=1e-5, stash_type=1)

    def mixture(self, x, i):
        prefix = f"model.layers.{i}.mlp."
        rows = self.node("Reshape", [x, self.constant(np.array([-1, HIDDEN]))], domain="")
        router = self.weights[prefix + "gate.weight"].detach().numpy().T
        logits = self.node("MatMul", [rows, self.constant(router)], domain="")
        up, down = prefix + "experts.gate_up_proj", prefix + "experts.down_proj"
        parts = ((up, slice(0, INNER)), (down, slice(None)), (up, slice(INNER, None)))
        options = {"k": CHOSEN, "activation_type": "silu", "normalize_routing_weights": 0}
        if not self.four_bits:
            given = [rows, logits]
            for name, part in parts:
                given += [self.constant(self.weights[name].detach().numpy()[:, part]), ""]
            return self.shaped(self.node("MoE", given[:-1], **options), x)
        given = [rows, logits]
        for name, part in parts:
            q, scales = self.quantized(name, part)
            given += [self.constant(q.reshape(*q.shape[:2], -1)), self.constant(scales), ""]
        mix = self.node("Softmax", [logits], domain="", axis=-1)
        return self.shaped(self.node("QMoE", [*given, "", "", "", mix], expert_weight_bits=4,
                                     block_size=BLOCK, **options), x)

    def shaped(self, rows, like):
        shape = self.node("Shape", [like], domain="")
        return self.node("Reshape", [rows, shape], domain="")

    def layer(self, x, i):
        prefix = f"model.layers.{i}.self_attn."
        y = self.norm(x, f"model.layers.{i}.input_layernorm.weight")
        q = self.norm(self.product(y, prefix + "q_proj.weight"), prefix + "q_norm.weight")
        k = self.norm(self.product(y, prefix + "k_proj.weight"), prefix + "k_norm.weight")
        v = self.product(y, prefix + "v_proj.weight")
        y = self.node("GroupQueryAttention", [q, k, v, f"past_k{i}", f"past_v{i}", "last", "total",
                                              "cos", "sin"],
                      [f"attention{i}", f"present_k{i}", f"present_v{i}"], num_heads=HEADS,
                      kv_num_heads=KV_HEADS, do_rotary=1)
        y = self.product(y, prefix + "o_proj.weight")
        x = self.node("Add", [x, y], domain="")
        y = self.norm(x, f"model.layers.{i}.post_attention_layernorm.weight")
        return self.node("Add", [x, self.mixture(y, i)], domain="")

    def write(self, path):
        angles = np.arange(POSITIONS)[:, None] / 1e4**(np.arange(0, DIM, 2) / DIM)
        self.constants += [numpy_helper.from_array(f(angles).astype("f4"), name)
                           for name, f in (("cos", np.cos), ("sin", np.sin))]
        x = self.node("Gather", [self.constant(
            self.weights["model.embed_tokens.weight"].detach().numpy()), "ids"], domain="")
        for i in range(LAYERS):
            x = self.layer(x, i)
        logits = self.product(self.norm(x, "model.norm.weight"), "lm_head.weight")

        def value(name, dims, kind=TensorProto.FLOAT):
            return helper.make_tensor_value_info(name, kind, dims)

        caches = [f"{c}{i}" for i in range(LAYERS) for c in "kv"]
        graph = helper.make_graph(
            self.nodes, "olmoe", [
                value("ids", [1, "n"], TensorProto.INT64), value("last", [1], TensorProto.INT32),
                value("total", [], TensorProto.INT32),
                *(value("past_" + c, [1, KV_HEADS, "p", DIM]) for c in caches)],
            [value(logits, [1, "n", WORDS]),
             *(value("present_" + c, [1, KV_HEADS, "t", DIM]) for c in caches)], self.constants)
        onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[
            helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]), path)
        return logits


def decode(attnrun, folder, path, logits, ids, tokens=None, options=()):
    """Logits of each step; the next token is the greedy one, or that of `tokens`."""
    past = {f"past_{c}{i}": np.zeros((1, KV_HEADS, 0, DIM), "f4")
            for i in range(LAYERS) for c in "kv"}
    made, total = [], 0
    while len(made) < STEPS:
        total += ids.shape[1]
        np.savez(folder / "in.npz", ids=ids, last=np.array([total - 1], "i4"),
                 total=np.array(total, "i4"), **past)
        subprocess.run([attnrun, "run", "-q", path, "-i", folder / "in.npz", "-o",
                        folder / "out.npz", *options], check=True, timeout=60)
        with np.load(folder / "out.npz") as out:
            made.append(out[logits][0, -1])
            past = {name: out[name.replace("past", "present")] for name in past}
        token = made[-1].argmax() if tokens is None else tokens[len(made) - 1]
        ids = np.array([[token]])
    return np.array(made)


def wanted(module, ids):
    """The same without a cache."""
    made = []
    for _ in range(STEPS):
        with torch.no_grad():
            made.append(module(torch.from_numpy(ids), use_cache=False).logits[0, -1].numpy())
        ids = np.append(ids, [[made[-1].argmax()]], 1)
    return np.array(made)


def main(attnrun):
    failed = 0
    ids = np.random.default_rng(SEED).integers(3, WORDS, (1, PROMPT))
    for kind in ("fp32", "int4"):
        with tempfile.TemporaryDirectory() as work:
            folder, module = Path(work), network()
            logits = Writer(module, kind == "int4").write(folder / "model.onnx")
            exact = wanted(module, ids)
            tokens, scale = exact.argmax(-1), np.abs(exact).max()
            ours = decode(attnrun, folder, folder / "model.onnx", logits, ids)
            auto = decode(attnrun, folder, folder / "model.onnx", logits, ids, tokens,
                          ("--precision", "auto"))
            errors = np.abs(ours - exact).max() / scale, np.abs(auto - exact).max() / scale
        right = (ours.argmax(-1) == tokens).all() and errors[0] <= 2e-5 and errors[1] <= 5e-2
        failed += not right
        print(f"{'ok' if right else 'FAIL'} {kind} (seed {SEED}): tokens {ours.argmax(-1)} of "
              f"{tokens}, errors {errors[0]:.1e}, with auto {errors[1]:.1e}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
