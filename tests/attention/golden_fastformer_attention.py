"""Golden cases of FastformerAttention and of FastformerLayer: what FastSelfAttention of
wuch15/Fastformer gives to its transform, and what it gives, read from a checkout.

usage: golden_fastformer_attention.py FASTFORMER_NOTEBOOK
"""
import sys
from types import SimpleNamespace

import torch
from golden import classes_in, notebook, random, write


class Fixed(torch.nn.Module):
    """A projection whose result is known, rounded to float."""

    def __init__(self, value):
        super().__init__()
        self.value = value.float()

    def forward(self, x):
        return self.value.to(x.dtype)


def case(upstream, name, heads, size, x, mask):
    config = SimpleNamespace(hidden_size=size, num_attention_heads=heads,
                             initializer_range=0.4)
    layer = upstream(config).eval()
    layer.query_att.bias.data = random(20, heads)
    layer.key_att.bias.data = random(21, heads)
    layer.transform.weight.data = torch.eye(size)
    layer.double()
    kept = torch.ones(x.shape[:2], dtype=torch.bool) if mask is None else mask
    layer.query, layer.key = Fixed(layer.query(x.double())), Fixed(layer.key(x.double()))
    query, key = layer.query.value, layer.key.value
    y = layer(x.double(), (1.0 - kept[:, None].double()) * -10000.0) - query
    weights = [w.float().T.contiguous() for w in (layer.query_att.weight, layer.key_att.weight)]
    write(name, "FastformerAttention", {"q_num_heads": heads},
          [query, key, query, *weights,
           layer.query_att.bias.float(), layer.key_att.bias.float(), mask], [y], None,
          "wuch15/Fastformer 84cc859 FastSelfAttention (input of transform), in double")


def layer_case(upstream, name, heads, size, x, mask):
    layer = upstream(SimpleNamespace(hidden_size=size, num_attention_heads=heads,
                                     initializer_range=0.4)).eval()
    linear = [layer.query, layer.query_att, layer.key, layer.key_att, layer.transform]
    for i, one in enumerate(linear):
        one.bias.data = random(30 + i, *one.bias.shape)
    weights = [w.detach().clone() for one in linear for w in (one.weight, one.bias)]
    y = layer.double()(x.double(), mask.double())
    write(name, "FastformerLayer", {"num_heads": heads}, [x, *weights, mask], [y], None,
          "wuch15/Fastformer 84cc859 FastSelfAttention, in double", (1e-4, 1e-5))


def main(path):
    torch.manual_seed(7)
    upstream = classes_in(notebook(path), "FastSelfAttention")["FastSelfAttention"]
    case(upstream, "fastformer_plain", 3, 24, random(1, 2, 13, 24), None)
    mask = torch.arange(33) < torch.tensor([[33], [5]])
    case(upstream, "fastformer_masked", 2, 8, random(2, 2, 33, 8), mask)
    layer_case(upstream, "fastformer_layer", 3, 24, random(3, 2, 13, 24),
               torch.zeros(2, 1, 13))
    layer_case(upstream, "fastformer_layer_masked", 2, 8, random(4, 2, 33, 8),
               (1.0 - mask[:, None].float()) * -10000.0)


with torch.no_grad():
    main(*sys.argv[1:])
