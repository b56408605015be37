"""LinformerAttention: softmax(scale Q K_p^T) V_p, K_p = E^T K + b_E, V_p = F^T V + b_F."""
import torch

from ..operators import example, mask, operator
from ._heads import HEADS, from_heads, masked_softmax, repeat, scale_of, to_heads


def project(x, matrix, bias, mask):
    """x (B, H, Nk, D), matrix (Nmax, k) or (H, Nmax, k) -> (B, H, k, D)."""
    matrix = matrix[..., :x.shape[2], :]
    if mask is not None:
        x = torch.where(mask[:, None, :, None], x, torch.zeros_like(x))
    projected = matrix.transpose(-1, -2) @ x
    return projected if bias is None else projected + bias[:, None]


@operator("LinformerAttention",
          inputs=["Q: heads B Nq", "K: heads B Nk", "V: heads B Nk", "E", "F?", "E_bias?",
                  "F_bias?", "key_mask?: B Nk"],
          outputs=["Y"], attributes=HEADS,
          examples=[
              example(q_num_heads=2, Q=(2, 5, 8), K=(2, 7, 8), V=(2, 7, 8), E=(12, 3)),
              example(q_num_heads=4, kv_num_heads=2, scale=0.3, Q=(2, 6, 12), K=(2, 9, 6),
                      V=(2, 9, 10), E=(2, 12, 3), F=(2, 12, 3), E_bias=(3,), F_bias=(3,),
                      key_mask=mask(2, 9)),
              example(Q=(1, 3, 4, 8), K=(1, 3, 7, 8), V=(1, 3, 7, 6), E=(12, 5), F=(12, 5)),
          ])
def linformer_attention(Q, K, V, E, F, E_bias, F_bias, key_mask, *, q_num_heads, kv_num_heads,
                        is_causal, scale):
    if is_causal != 0:
        raise ValueError("LinformerAttention is never causal")
    kv = kv_num_heads if kv_num_heads is not None else q_num_heads
    q, k, v = to_heads(Q, q_num_heads), to_heads(K, kv), to_heads(V, kv)
    k = project(k, E, E_bias, key_mask)
    v = project(v, E if F is None else F, F_bias, key_mask)
    groups = q.shape[1] // k.shape[1]
    scores = scale_of(scale, q) * (q @ repeat(k, groups).transpose(-1, -2))
    return from_heads(masked_softmax(scores) @ repeat(v, groups), Q)
