"""BigBirdAttention: blocks 0, i - 1, i, i + 1, n - 1 and random ones, all for the first and
the last; a block named twice counts twice."""
import torch

from ..operators import REQUIRED, example, integers, mask, operator
from ._counts import blocks_to_tokens, counted_attention, tokens_of
from ._heads import HEADS


def _counts(rand_blocks, blocks, like):
    """(1 or heads, blocks, blocks)"""
    key = torch.arange(blocks, device=like.device)
    query = key[:, None]
    last = blocks - 1
    every = (query == 0) | (query == last)
    named = (key == 0) | (key == last) | ((key - query).abs() <= 1)
    counts = named.to(like.dtype)[None]
    if rand_blocks is not None:
        random = (rand_blocks[..., None] == key).to(like.dtype).sum(-2)
        none = torch.zeros_like(random[:, :1])
        counts = counts + torch.cat([none, random, none], dim=1)
    return torch.where(every, torch.ones_like(counts), counts)


@operator("BigBirdAttention",
          inputs=["Q: heads B N", "K: heads B N", "V: heads B N", "rand_blocks?: . R .",
                  "key_mask?: B N"],
          outputs=["Y"], attributes={**HEADS, "block_size": REQUIRED},
          examples=[
              example(q_num_heads=2, block_size=3, Q=(2, 17, 8), K=(2, 17, 8), V=(2, 17, 8)),
              example(q_num_heads=4, kv_num_heads=2, scale=0.3, block_size=2, Q=(2, 12, 12),
                      K=(2, 12, 6), V=(2, 12, 10), rand_blocks=integers(0, 6, 4, 4, 3),
                      key_mask=mask(2, 12), sizes={"B": 3, "N": 14, "R": 5}),
              example(block_size=4, Q=(1, 3, 21, 8), K=(1, 3, 21, 8), V=(1, 3, 21, 6),
                      rand_blocks=integers(0, 6, 1, 4, 2, dtype="int32"), sizes={"N": 24, "R": 4}),
          ])
def big_bird_attention(Q, K, V, rand_blocks, key_mask, *, q_num_heads, kv_num_heads,
                       is_causal, scale, block_size):
    if is_causal != 0:
        raise ValueError("BigBirdAttention is never causal")
    tokens = tokens_of(Q)
    counts = _counts(rand_blocks, (tokens + block_size - 1) // block_size, Q)
    counts = blocks_to_tokens(counts, block_size, tokens, tokens)
    y = counted_attention(Q, K, V, counts, key_mask, q_num_heads, kv_num_heads, 0, scale)
    if key_mask is None:
        return y
    return y * (key_mask[:, :, None] if Q.dim() == 3 else key_mask[:, None, :, None])
