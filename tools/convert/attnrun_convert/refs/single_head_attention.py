"""SingleHeadAttention: a memory that is keys and values, each times a gate."""
from ..operators import example, mask, operator
from ._heads import (all_of, from_heads, key_mask_of, masked_softmax, positions, scale_of,
                     to_heads)


def _gated(x, gate):
    return x if gate is None else x * gate


@operator("SingleHeadAttention",
          inputs=["Q: B Nq .", "memory: B Nk .", "q_gate?", "k_gate?", "v_gate?",
                  "key_mask?: B Nk"],
          outputs=["Y"], attributes={"q_num_heads": 1, "is_causal": 1, "scale": None},
          examples=[
              example(Q=(2, 5, 12), memory=(2, 9, 12), q_gate=(12,), k_gate=(12,),
                      v_gate=(12,), tolerance=(1e-4, 1e-5)),
              example(q_num_heads=2, is_causal=0, scale=0.3, Q=(2, 7, 8), memory=(2, 11, 8),
                      v_gate=(8,), key_mask=mask(2, 11)),
          ])
def single_head_attention(Q, memory, q_gate, k_gate, v_gate, key_mask, *, q_num_heads,
                          is_causal, scale):
    q = to_heads(_gated(_gated(Q, q_gate), k_gate), q_num_heads)
    m = to_heads(memory, q_num_heads)
    queries, keys = positions(q.shape[2], m.shape[2], Q.device)
    allowed = all_of(keys <= queries if is_causal else None, key_mask_of(key_mask))
    scores = scale_of(scale, q) * (q @ m.transpose(-1, -2))
    return _gated(from_heads(masked_softmax(scores, allowed) @ m, Q), v_gate)
