"""Golden cases of Boom: Boom(shortcut=True) of Smerity/sha-rnn, read from a checkout.

usage: golden_boom.py MODEL_PY
"""
import sys

import torch
from golden import classes_in, random, write


def main(path):
    torch.manual_seed(5)
    upstream = classes_in(open(path).read(), "Boom", "GELU")["Boom"]
    for name, size, hidden, seed in (("boom_sha", 12, 48, 1), ("boom_sha_ragged", 10, 37, 2)):
        layer = upstream(size, hidden, dropout=0.0, shortcut=True).double().eval()
        x = random(seed, 2, 7, size)
        write(name, "Boom", {}, [x, layer.linear1.weight.float().T.contiguous(),
                                 layer.linear1.bias.float()], [layer(x.double())], None,
              "Smerity/sha-rnn 218d748 Boom(shortcut=True), in double")


with torch.no_grad():
    main(*sys.argv[1:])
