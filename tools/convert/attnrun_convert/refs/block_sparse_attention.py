"""BlockSparseAttention: query block a sees the key blocks col_idx[l, row_ptr[l, a] :
row_ptr[l, a + 1]], l = head mod layouts; a block named twice counts twice."""
import torch

from ..operators import REQUIRED, example, mask, operator
from ._counts import blocks_to_tokens, counted_attention, tokens_of
from ._heads import HEADS


def _row_ptr(*rows):
    return torch.tensor(rows, dtype=torch.int32)


def _counts(row_ptr, col_idx, block, kv_len):
    """(layouts, blocks of queries, blocks of keys)"""
    entry = torch.arange(col_idx.shape[1], device=row_ptr.device)
    key_block = torch.arange((kv_len + block - 1) // block, device=row_ptr.device)
    in_row = (entry >= row_ptr[:, :-1, None]) & (entry < row_ptr[:, 1:, None])
    is_block = col_idx[:, :, None] == key_block
    return in_row.float() @ is_block.float()


@operator("BlockSparseAttention",
          inputs=["Q: heads B Nq", "K: heads B Nk", "V: heads B Nk", "row_ptr", "col_idx",
                  "key_mask?: B Nk"],
          outputs=["Y"], attributes={**HEADS, "block_size": REQUIRED},
          examples=[
              example(q_num_heads=2, block_size=8, is_causal=1, Q=(2, 20, 8), K=(2, 20, 8),
                      V=(2, 20, 8), row_ptr=_row_ptr([0, 1, 3, 5]),
                      col_idx=torch.tensor([[0, 0, 1, 0, 2]], dtype=torch.int32)),
              example(q_num_heads=4, kv_num_heads=2, scale=0.3, block_size=8, Q=(2, 12, 12),
                      K=(2, 27, 6), V=(2, 27, 10), row_ptr=_row_ptr([0, 3, 5], [1, 1, 5]),
                      col_idx=torch.tensor([[1, 1, 3, 0, -1], [0, 0, 3, 2, 0]]),
                      key_mask=mask(2, 27)),
              example(block_size=8, Q=(1, 3, 9, 8), K=(1, 3, 17, 8), V=(1, 3, 17, 6),
                      row_ptr=_row_ptr([0, 2, 5]), col_idx=torch.tensor([[1, 2, 0, 1, 2]])),
          ])
def block_sparse_attention(Q, K, V, row_ptr, col_idx, key_mask, *, q_num_heads, kv_num_heads,
                           is_causal, scale, block_size):
    counts = _counts(row_ptr, col_idx, block_size, tokens_of(K))
    heads = q_num_heads if Q.dim() == 3 else Q.shape[1]
    counts = blocks_to_tokens(counts, block_size, tokens_of(Q), tokens_of(K))
    counts = counts.repeat(heads // row_ptr.shape[0], 1, 1)
    return counted_attention(Q, K, V, counts, key_mask, q_num_heads, kv_num_heads, is_causal,
                             scale)
