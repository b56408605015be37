"""Golden cases of BigBirdAttention: BigBirdBlockSparseAttention of transformers, in
evaluation (random lists of zeros) and with its drawn lists."""
import numpy as np
import torch
from transformers import BigBirdConfig
from transformers.models.big_bird.modeling_big_bird import (
    BigBirdBlockSparseAttention, BigBirdModel)

from golden import write


def case(name, seed, tokens, block, random_blocks, drawn, kept):
    torch.manual_seed(seed)
    config = BigBirdConfig(hidden_size=16, num_attention_heads=2, block_size=block,
                           num_random_blocks=random_blocks, max_position_embeddings=tokens,
                           attention_type="block_sparse")
    module = BigBirdBlockSparseAttention(config, seed=seed).double().train(drawn)
    lists = []
    draw = module._bigbird_block_rand_mask_with_head

    def remember(**kwargs):
        lists.extend(draw(**kwargs))
        return lists

    module._bigbird_block_rand_mask_with_head = remember
    x = torch.randn(len(kept), tokens, 16, dtype=torch.float64)
    key_mask = torch.arange(tokens) < torch.tensor(kept)[:, None]
    blocked, band, rows, columns = BigBirdModel.create_masks_for_block_sparse_attn(
        key_mask.double(), block)
    with torch.no_grad():
        q, k, v = (layer(x).float() for layer in (module.query, module.key, module.value))
        for layer, value in zip((module.query, module.key, module.value), (q, k, v)):
            layer.forward = lambda _, value=value: value.double()
        y, _ = module(x, band, rows, columns, blocked, blocked)
    rand = torch.zeros(1, tokens // block - 2, random_blocks, dtype=torch.int32)
    if drawn:
        rand = torch.tensor(np.stack(lists)).int()
    masked = min(kept) < tokens
    write(name, "BigBirdAttention", dict(q_num_heads=2, block_size=block),
          [q, k, v, rand, key_mask if masked else None], [y], "transformers",
          "BigBirdBlockSparseAttention" + (", training" if drawn else ", evaluation"))


case("big_bird_evaluation", 1, 32, 4, 2, False, [32])
case("big_bird_drawn", 2, 40, 4, 2, True, [40])
case("big_bird_padded", 3, 40, 4, 2, True, [40, 27])
