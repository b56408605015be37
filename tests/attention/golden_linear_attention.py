"""Golden folders of LinearAttention, from linear-attention-transformer in double."""
import sys
import types

import torch

import golden

# Imports that its attention functions don't use.
for module, names in (("local_attention", ["LocalAttention"]), ("product_key_memory", ["PKM"]),
                      ("axial_positional_embedding", ["AxialPositionalEmbedding"])):
    sys.modules[module] = types.SimpleNamespace(**dict.fromkeys(names))
from linear_attention_transformer import linear_attention_transformer as upstream  # noqa: E402

PACKAGE = "linear-attention-transformer"


def heads(x, n):
    return golden.heads_of(x.double(), n).clone()  # upstream fills masked places in place


def main():
    q, k, v = (golden.random(seed, 2, 11, 24) for seed in (1, 2, 3))
    mask = golden.random(4, 2, 11) < 0.5
    y = upstream.linear_attn(*(heads(x, 3) for x in (q, k, v)), kv_mask=mask)
    golden.write("linear_softmax", "LinearAttention",
                 {"q_num_heads": 3, "feature_map_q": "softmax_d", "feature_map_k": "softmax_n",
                  "denominator": "none", "scale": 8 ** -0.5}, [q, k, v, mask],
                 [golden.joined(y)], PACKAGE, "linear_attn")
    q, k, v = (golden.random(seed, 2, 70, 12) for seed in (5, 6, 7))
    mask = golden.random(8, 2, 70) < 0.5
    mask[:, 0] = True
    y = upstream.causal_linear_attn(*(heads(x, 2) for x in (q, k, v)), kv_mask=mask,
                                    bucket_size=1)
    golden.write("linear_causal_exp", "LinearAttention",
                 {"q_num_heads": 2, "is_causal": 1, "feature_map_q": "softmax_d",
                  "feature_map_k": "exp", "denominator": "clamp", "epsilon": 1e-3 * 6 ** 0.5},
                 [q, k, v, mask], [golden.joined(y)], PACKAGE,
                 "causal_linear_attn, bucket_size 1", (1e-4, 1e-5))


if __name__ == "__main__":
    main()
