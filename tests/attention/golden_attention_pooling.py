"""Golden cases of AttentionPooling: AttentionPooling of wuch15/Fastformer and the helpers
of uvipen/Hierarchical-attention-networks-pytorch, read from checkouts.

usage: golden_attention_pooling.py FASTFORMER_NOTEBOOK HAN_UTILS_PY
"""
import sys
from types import SimpleNamespace

import torch
from golden import classes_in, notebook, random, write


def main(fastformer, han):
    pooling = classes_in(notebook(fastformer), "AttentionPooling")["AttentionPooling"]
    layer = pooling(SimpleNamespace(hidden_size=12, initializer_range=0.6)).eval()
    x, mask = random(1, 2, 21, 12), torch.arange(21) < torch.tensor([[21], [8]])
    write("pooling_fastformer", "AttentionPooling", {"normalizer": "exp_sum"},
          [x, layer.att_fc1.weight.T.contiguous(), layer.att_fc2.weight[0],
           layer.att_fc1.bias, layer.att_fc2.bias, mask], [layer(x, mask.float())], None,
          "wuch15/Fastformer 84cc859 AttentionPooling")

    upstream = classes_in(open(han).read(), "matrix_mul", "element_wise_mul")
    # Tokens come first there.
    x, w, b, c = random(3, 9, 3, 10), random(4, 10, 6), random(5, 1, 6), random(6, 6, 1)
    hidden = upstream["matrix_mul"](x, w, torch.nn.Parameter(b))
    scores = upstream["matrix_mul"](hidden, c).permute(1, 0)
    weights = torch.softmax(scores, 1)
    y = upstream["element_wise_mul"](x, weights.permute(1, 0))[0]
    write("pooling_han", "AttentionPooling", {"score_activation": "tanh"},
          [x.transpose(0, 1).contiguous(), w, c[:, 0].contiguous(), b[0]], [y, weights], None,
          "uvipen/Hierarchical-attention-networks-pytorch b1ea9e0 WordAttNet")


with torch.no_grad():
    main(*sys.argv[1:])
