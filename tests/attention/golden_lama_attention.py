"""Golden cases of LAMAAttention: LAMA of JohnGiorgi/compact-multi-head-self-attention-pytorch,
read from a checkout.

usage: golden_lama_attention.py LAMA_PY
"""
import sys

import torch
from golden import classes_in, random, write

WHAT = "JohnGiorgi/compact-multi-head-self-attention-pytorch 56358ea LAMA, in double"


def case(upstream, name, x, mask, normalize):
    layer = upstream(5, x.shape[2], normalize=normalize == 1)
    layer.double()
    kept = None if mask is None else mask.double()
    weights = layer(x.double(), kept)
    write(name, "LAMAAttention", {"normalize": normalize},
          [x, layer._p.float(), layer._q.float(), None, mask],
          [weights @ x.double(), weights], None, WHAT)


def main(path):
    torch.manual_seed(3)
    upstream = classes_in(open(path).read(), "LAMA")["LAMA"]
    upstream.reset_parameters = lambda self: [
        p.data.copy_(random(8 + i, *p.shape)) for i, p in enumerate((self._p, self._q))]
    case(upstream, "lama_masked", random(1, 2, 19, 12),
         torch.arange(19) < torch.tensor([[19], [7]]), 1)
    case(upstream, "lama_similarity", random(2, 2, 9, 10), None, 0)


with torch.no_grad():
    main(*sys.argv[1:])
