"""SparseTransformerAttention: local, strided, fixed_local, fixed_summary, and the unions
strided_merged and fixed, one pattern for all heads or one per head."""
import torch

from ..operators import REQUIRED, example, mask, operator
from ._counts import counted_attention, tokens_of
from ._heads import HEADS, positions


def _allowed(pattern, queries, keys, stride, first, summary):
    """queries (Nq, 1) and keys (Nk): positions; first: of the summary in a block."""
    local = (queries - keys).abs() < stride
    strided = (queries - keys) % stride == 0
    block = queries - queries % stride == keys - keys % stride
    column = (keys % stride >= first) & (keys % stride < first + summary)
    column = column & (queries == queries)
    return {"local": local, "strided": strided, "fixed_local": block,
            "fixed_summary": column, "strided_merged": local | strided,
            "fixed": block | column}[pattern]


@operator("SparseTransformerAttention",
          inputs=["Q: heads B Nq", "K: heads B Nk", "V: heads B Nk", "key_mask?: B Nk"],
          outputs=["Y"],
          attributes={**HEADS, "is_causal": 1, "pattern": REQUIRED, "stride": REQUIRED,
                      "summary": 1, "num_verts": 1},
          examples=[
              example(q_num_heads=2, pattern=["strided_merged"], stride=3, Q=(2, 11, 8),
                      K=(2, 11, 8), V=(2, 11, 8)),
              example(q_num_heads=4, kv_num_heads=2, scale=0.3, pattern=["fixed"], stride=5,
                      summary=2, num_verts=2, Q=(2, 13, 12), K=(2, 18, 6), V=(2, 18, 10),
                      key_mask=mask(2, 18)),
              example(pattern=["local", "strided", "fixed_summary"], stride=4, is_causal=0,
                      Q=(1, 3, 9, 8), K=(1, 3, 14, 8), V=(1, 3, 14, 6)),
              example(pattern=["fixed_local", "fixed", "strided_merged"], stride=4,
                      is_causal=0, Q=(1, 3, 9, 8), K=(1, 3, 14, 8), V=(1, 3, 14, 6)),
          ])
def sparse_transformer_attention(Q, K, V, key_mask, *, q_num_heads, kv_num_heads, is_causal,
                                 scale, pattern, stride, summary, num_verts):
    queries, keys = positions(tokens_of(Q), tokens_of(K), Q.device)
    heads = q_num_heads if Q.dim() == 3 else Q.shape[1]
    allowed = [_allowed(pattern[h % len(pattern)], queries, keys, stride,
                        stride - (h % num_verts + 1) * summary, summary)
               for h in range(heads)]
    return counted_attention(Q, K, V, torch.stack(allowed), key_mask, q_num_heads,
                             kv_num_heads, is_causal, scale)
