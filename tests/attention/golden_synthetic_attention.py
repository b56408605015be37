"""Golden cases of SyntheticAttention: the classes of leaderj1001's Synthesizer (3ee5829,
synthesizer.py, whose path is the argument: it is no package), and torch's scaled dot
product attention under the logits of several components and a mask.

The upstream file is run as it is; its hidden layers are recomputed here in float, so that
they can be inputs.
"""
import importlib.util
import sys
import types

import torch

from golden import heads_of, joined, random, write

sys.modules.setdefault("torchvision", types.ModuleType("torchvision"))  # not used there
SPEC = importlib.util.spec_from_file_location("synthesizer", sys.argv[1])
UPSTREAM = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(UPSTREAM)
WIDTH, TOKENS = 10, 12


def upstream(name, module, components, operands, **attributes):
    """operands(module, x): the operands but V by place, from the module's layers."""
    module = module.double().eval()
    x = random(1, 2, TOKENS, WIDTH)
    with torch.no_grad():
        values = module.value_fc(x.double()).float()
        given = operands(module, x.double())
        tensors = [values] + [None] * 12
        for place, tensor in given.items():
            tensors[place] = tensor.float().contiguous()
        y, _ = module(x.double())
    write(name, "SyntheticAttention", dict(q_num_heads=1, components=components, **attributes),
          tensors, [y], "torch", f"leaderj1001 Synthesizer 3ee5829 {type(module).__name__}")


torch.manual_seed(1)
upstream("synthetic_dense", UPSTREAM.SynthesizerDense(WIDTH, TOKENS), ["dense"],
         lambda m, x: {3: m.dense[:2](x), 4: m.dense[2].weight.T[None],
                       5: m.dense[2].bias[None]})
upstream("synthetic_factorized_dense", UPSTREAM.FactorizedSynthesizerDense(WIDTH, TOKENS),
         ["factorized_dense"], lambda m, x: {6: m.a_proj(x), 7: m.b_proj(x)})
upstream("synthetic_random", UPSTREAM.SynthesizerRandom(WIDTH, TOKENS), ["random"],
         lambda m, x: {8: m.attention}, normalize=0)
upstream("synthetic_mixture", UPSTREAM.MixtureSynthesizers(WIDTH, TOKENS), ["random", "dot"],
         lambda m, x: {1: m.query_fc(x), 2: m.key_fc(x), 8: m.attention}, scale=1.0)


def torch_case(name, heads, q_len, kv_len):
    values, hid = random(2, 2, kv_len, heads * 4), random(3, 2, q_len, heads * 3)
    w2, b2, alpha = random(4, heads, 3, 16), random(5, heads, 16), random(6, 2)
    r1, r2 = random(7, heads, 16, 2), random(8, heads, 16, 2)
    kept = torch.arange(kv_len) < torch.tensor([kv_len, kv_len - 4])[:, None]
    seen = torch.ones(q_len, kv_len).tril(kv_len - q_len).bool() & kept[:, None, None]
    dense = heads_of(hid, heads).double() @ w2.double() + b2.double()[:, None]
    factors = r1.double() @ r2.double().transpose(-1, -2)
    logits = alpha[0].double() * dense[..., :kv_len] + alpha[1] * factors[:, :q_len, :kv_len]
    v = heads_of(values, heads).double()
    zeros = torch.zeros(2, heads, q_len, 1, dtype=torch.float64)
    y = torch.nn.functional.scaled_dot_product_attention(
        zeros, torch.zeros(2, heads, kv_len, 1, dtype=torch.float64), v,
        logits.masked_fill(~seen, -torch.inf))
    write(name, "SyntheticAttention",
          dict(q_num_heads=heads, components=["dense", "factorized_random"], is_causal=1),
          [values, None, None, hid, w2, b2, None, None, None, r1, r2, alpha, kept],
          [joined(y)], "torch", "scaled_dot_product_attention under the logits as a mask")


torch_case("synthetic_heads_masked", 2, 9, 11)
