"""Golden cases of LuongAttention: keras layers.Attention (on torch) for the global forms;
for local-p a loop over the formula of the authors' distLayerForward.m and
attnLayerForward.m, restated with positions from 0, as they are not Python.
Needs KERAS_BACKEND=torch."""
import math
import os

os.environ["KERAS_BACKEND"] = "torch"
import keras  # noqa: E402
import torch  # noqa: E402
from golden import random, write  # noqa: E402


def global_case(case, mode, seed):
    query, keys = random(seed, 2, 5, 12), random(seed + 1, 2, 19, 12)
    values, v = random(seed + 2, 2, 19, 7), random(seed + 3)
    mask = torch.arange(19) < torch.tensor([[19], [6]])
    layer = keras.layers.Attention(use_scale=mode == "concat", score_mode=mode)
    layer.build([query.shape, values.shape, keys.shape])
    attributes, factor = {"score": mode}, None
    if mode == "concat":  # keras has one factor for all units, and a scale within tanh
        layer.scale.assign(1.0)
        layer.concat_score_weight.assign(v)
        factor = v.expand(12).contiguous()
    y, weights = layer([query, values, keys], mask=[None, mask], return_attention_scores=True)
    write(case, "LuongAttention", attributes, [query, keys, values, None, factor, mask],
          [y, weights], "keras", f'layers.Attention(score_mode="{mode}")')


def local_p(query, keys, pos, lens, window, sigma):
    y = torch.zeros_like(query)
    for b in range(query.shape[0]):
        for i in range(query.shape[1]):
            centre = float(lens[b] * pos[b, i])
            first = max(0, math.floor(centre) - window)
            end = min(int(lens[b]), math.floor(centre) + window + 1)
            if first >= end:
                continue
            align = torch.softmax(keys[b, first:end] @ query[b, i], 0)
            distance = torch.arange(first, end) - centre
            y[b, i] = (align * torch.exp(-distance ** 2 / (2 * sigma ** 2))) @ keys[b, first:end]
    return y


def main():
    global_case("luong_keras_dot", "dot", 1)
    global_case("luong_keras_concat", "concat", 5)
    query, keys = random(9, 2, 6, 8), random(10, 2, 31, 8)
    pos, lens = torch.sigmoid(random(11, 2, 6)), torch.tensor([31, 9])
    y = local_p(query.double(), keys.double(), pos.double(), lens, 4, 2.0)
    write("luong_local_p", "LuongAttention", {"mode": "local_p", "window": 4},
          [query, keys, None, pos, None, torch.arange(31) < lens[:, None]], [y], None,
          "the formula of lmthang/nmt.hybrid 50d5c02, restated (no Python upstream)")


main()
