"""Attention in blocks whose scores are computed in parts: those of the blocks beside a block of
queries, of gathered blocks, and of blocks that all queries see. One module is the layer of
transformers' BigBird, with padding, and takes x; the others write the same in other ways and
take q, k and v. Modules that differ in one point stay as they are."""
import torch
from torch import einsum, nn
from transformers import BigBirdConfig
from transformers.models.big_bird.modeling_big_bird import (
    BigBirdBlockSparseAttention, BigBirdModel)

PARTS = "FusedPartsAttention"
KNOWN = (PARTS,)


class BigBird(nn.Module):
    """transformers' layer; the first number of a token says whether it is padding."""

    def __init__(self, padded=True, block=4, **settings):
        super().__init__()
        self.padded, self.block = padded, block
        self.layer = BigBirdBlockSparseAttention(BigBirdConfig(
            hidden_size=32, num_attention_heads=4, block_size=block, **settings), seed=1)

    def forward(self, x):
        mask = (x[:, :, 0] < 0.8).float() if self.padded else torch.ones(x.shape[:2])
        blocks, band, rows, keys = BigBirdModel.create_masks_for_block_sparse_attn(
            mask, self.block)
        return self.layer(x, band, rows, keys, blocks, blocks)[0]


class Parts(nn.Module):
    """The first block, each block and those beside it, and the last block; what a near miss changes
    is a setting."""

    def __init__(self, chunk=8, masked=True, scales=(0.3, 0.3, 0.3), turned=False, missing=False,
                 read=False, moved=0, uneven=0, twice=False, other=False):
        super().__init__()
        self.chunk, self.masked, self.scales, self.turned = chunk, masked, scales, turned
        self.missing, self.read, self.moved, self.uneven = missing, read, moved, uneven
        self.twice, self.other = twice, other

    def band(self, x):
        last = 2 if self.uneven else 1
        return torch.cat([x[:, :, :-2], x[:, :, 1:-1], x[:, :, last:last + x.shape[2] - 2]], 3)

    def forward(self, q, k, v):
        b, h, n, d = q.shape
        c = self.chunk
        q, k, v = (x.reshape(b, h, -1, c, d) for x in (q, k, v))
        hidden = (k[..., 0] > 0.5).float() * -1e4
        queries = q[:, :, 1:-1]
        s = [einsum("bhlqd,bhkd->bhlqk", queries, k[:, :, 0]),
             queries @ self.band(k).transpose(-1, -2),
             einsum("bhlqd,bhkd->bhlqk", q[:, :, 2:] if self.other else queries, k[:, :, -1])]
        s = [one * scale for one, scale in zip(s, self.scales)]
        if self.masked:
            s[0] = s[0] + hidden[:, :, :1, None]
            s[1] = self.band(hidden[..., None])[..., 0].unsqueeze(3) + s[1]
        w = torch.cat(s, -1).softmax(-1)
        values = v[:, :, 0], self.band(v), v[:, :, -1]
        first, end = c + self.moved, 4 * c + self.moved
        y = [einsum("bhlqk,bhkd->bhlqd", w[..., :c], values[0]),
             w[..., first:end] @ values[1],
             einsum("bhlqk,bhkd->bhlqd", w[..., -c:], values[2])]
        y = y[1] + (y[2] + y[0]) if self.turned else y[0] + y[1] if self.missing else sum(
            y[1:], y[0])
        if self.twice:
            y = y + w[..., :c] @ v[:, :, 1:-1]
        return y + w.mean() if self.read else y


SHAPE = (2, 3, 48, 8)


def form(operator=PARTS, exporters="sd", **settings):
    return Parts(**settings), "qkv", SHAPE, 2, (), exporters, operator


def stock(tokens, exporters="sd", **settings):
    return BigBird(**settings), "x", (2, tokens, 32), 1, (), exporters, PARTS


FORMS = {
    "bigbird": stock(64),
    "bigbird_shorter": stock(60, num_random_blocks=2),
    "bigbird_whole": stock(64, padded=False, num_random_blocks=1),
    "bigbird_blocks_of_8": stock(128, block=8),
    "parts": form(),
    "unmasked": form(masked=False),
    "other_order": form(turned=True),
    "uneven": form(uneven=1),
    # near misses
    "scaled_apart": form(None, scales=(0.3, 0.2, 0.3)),
    "part_left_out": form(None, missing=True),
    "weights_read": form(None, read=True),
    "slices_moved": form(None, moved=1),
    "part_twice": form(None, twice=True),
    "other_queries": form(None, other=True),
}
SHORT = {name: "sd"[i % 2] for i, name in enumerate(FORMS)}
