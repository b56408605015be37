"""Golden cases of TokenMixing: mlp-mixer-pytorch's FeedForward over patches, in double;
with torch's tanh form of GELU in its place for the second one."""
from functools import partial

import torch
from mlp_mixer_pytorch.mlp_mixer_pytorch import FeedForward
from torch import nn

from golden import random, write


def weights(layer):
    return [layer[0].weight[:, :, 0], layer[3].weight[:, :, 0], layer[0].bias, layer[3].bias]


for case, activation, tokens, hidden, channels in (
        ("token_mixing_patches", "gelu", 9, 20, 13),
        ("token_mixing_tanh", "gelu_tanh", 16, 7, 12)):
    torch.manual_seed(3)
    layer = FeedForward(tokens, hidden, dense=partial(nn.Conv1d, kernel_size=1)).eval()
    if activation == "gelu_tanh":
        layer[1] = nn.GELU(approximate="tanh")
    x = random(4, 2, tokens, channels)
    operands = [x] + [w.detach().clone() for w in weights(layer)]
    write(case, "TokenMixing", {"activation": activation}, operands,
          [layer.double()(x.double())], "mlp-mixer-pytorch",
          f"FeedForward(Conv1d), {activation}, float64")
