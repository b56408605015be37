"""Golden folders of PerformerAttention, from performer-pytorch's FastAttention in double."""
import sys
import types

import torch

import golden

# Imports that FastAttention doesn't use.
for module, names in (("local_attention", ["LocalAttention"]),
                      ("axial_positional_embedding", ["AxialPositionalEmbedding"])):
    sys.modules[module] = types.SimpleNamespace(**dict.fromkeys(names))
from performer_pytorch import performer_pytorch as upstream  # noqa: E402

PACKAGE = "performer-pytorch"
CLASS_P = (1e-3, 1e-5)


def case(name, n, heads, dim, features, attributes, what, **settings):
    torch.manual_seed(3)
    attention = upstream.FastAttention(dim, features, **settings).eval()
    q, k, v = (golden.random(seed, 2, n, heads * dim) for seed in (1, 2, 3))
    w = attention.projection_matrix.float()
    attention.projection_matrix = w.double()
    y = attention(*(golden.heads_of(x.double(), heads) for x in (q, k, v)))
    golden.write(name, "PerformerAttention", {"q_num_heads": heads, **attributes},
                 [q, k, v, w], [golden.joined(y)], PACKAGE, what, CLASS_P)


def main():
    case("performer_positive", 21, 2, 8, 20, {}, "FastAttention")
    case("performer_positive_causal", 21, 2, 8, 20,
         {"is_causal": 1, "denominator": "add_keys"}, "FastAttention, causal, without CUDA",
         causal=True)
    case("performer_relu", 13, 3, 6, 11, {"features": "generalized"},
         "FastAttention, generalized_attention", generalized_attention=True)


if __name__ == "__main__":
    main()
