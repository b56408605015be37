"""ReformerAttention: softmax over the keys near a query in the order of hash buckets.

A pair's score is the same in all rounds, so all rounds together are one softmax in which
a pair counts as often as it meets."""
import torch

from ..operators import REQUIRED, example, integers, mask, operator
from ._counts import counted_softmax
from ._heads import from_heads, key_mask_of, lowest, positions, tiniest, to_heads


def _hash(x, rotations, num_buckets):
    """(B, H, N, D) -> buckets (B, H, T, N)"""
    rotations = rotations.expand(x.shape[1], -1, -1, -1)
    rotated = torch.einsum("bhnd,hdtf->bhtnf", x, rotations)
    buckets, times, first = None, 1, 0
    for count in num_buckets:
        part = rotated[..., first:first + count // 2]
        digit = torch.argmax(torch.cat([part, -part], dim=-1), dim=-1) * times
        buckets = digit if buckets is None else buckets + digit
        times, first = times * count, first + count // 2
    return buckets


def _chunks(buckets, chunk_length):
    """Chunk of each token (B, H, T, N), and how many there are."""
    rounds, tokens = buckets.shape[2:]
    query, key = positions(tokens, tokens, buckets.device)
    mine, other = buckets[..., :, None], buckets[..., None, :]
    place = ((other < mine) | ((other == mine) & (key < query))).sum(dim=-1)
    per_round = ((key >= 0).sum() + chunk_length - 1) // chunk_length
    round_of = torch.arange(rounds, device=buckets.device)[:, None]
    return place // chunk_length + round_of * per_round, rounds * per_round


def _meetings(chunk, n_chunks, buckets, own, before, after, across):
    """How often query i meets key j: (B, H, N, N)."""
    counts = 0
    for t in range(chunk.shape[2]):
        for s in range(chunk.shape[2]):
            for offset in range(-before, after + 1):
                wanted = torch.remainder(chunk[:, :, t, :, None] + offset, n_chunks)
                meets = wanted == chunk[:, :, s, None, :]
                if not across:
                    same = buckets[:, :, t, :, None] == buckets[:, :, s, None, :]
                    meets = meets & ((same & (s == t)) | own)
                counts = counts + meets.to(torch.int64)
    return counts


def _duplicates(chunk, n_chunks):
    """In how many rounds, and ways, a pair of tokens meets."""
    query, key = chunk[..., :, None], chunk[..., None, :]
    return ((query == key).to(torch.int64) +
            (query == torch.remainder(key + 1, n_chunks)).to(torch.int64)).sum(dim=2)


@operator("ReformerAttention",
          inputs=["QK: heads B N", "V: heads B N", "rotations?", "buckets?: B . . N",
                  "key_mask?: B N"],
          outputs=["Y", "buckets_out"],
          attributes={"q_num_heads": None, "kv_num_heads": None, "is_causal": 0,
                      "num_hashes": 1, "num_buckets": REQUIRED, "chunk_length": 64,
                      "chunks_before": 1, "chunks_after": 0, "scale": 1.0,
                      "key_norm": "rms", "self_value": -1e5, "attend_across_buckets": 1,
                      "deduplicate": 0, "full_below_chunk": 1},
          examples=[
              example(q_num_heads=2, num_hashes=2, num_buckets=[4], chunk_length=4,
                      is_causal=1, QK=(2, 22, 16), V=(2, 22, 16), rotations=(2, 8, 2, 2),
                      outputs=2),
              example(q_num_heads=2, num_hashes=2, num_buckets=[2, 4], chunk_length=5,
                      chunks_after=1, scale=0.5, QK=(2, 23, 16), V=(2, 23, 12),
                      rotations=(1, 8, 2, 3), key_mask=mask(2, 23)),
              example(num_hashes=3, num_buckets=[6], chunk_length=4, key_norm="l2",
                      deduplicate=1, self_value=-5e4, QK=(1, 2, 17, 8), V=(1, 2, 17, 6),
                      buckets=integers(0, 6, 1, 2, 3, 17, dtype="int32")),
              example(num_hashes=2, num_buckets=[4], chunk_length=4, is_causal=1,
                      attend_across_buckets=0, QK=(1, 2, 17, 8), V=(1, 2, 17, 6),
                      buckets=integers(0, 4, 1, 2, 2, 17), key_mask=mask(1, 17)),
              example(q_num_heads=2, num_buckets=[4], chunk_length=64, is_causal=1,
                      QK=(2, 9, 16), V=(2, 9, 16), key_mask=mask(2, 9)),
          ])
def reformer_attention(QK, V, rotations, buckets, key_mask, *, q_num_heads, kv_num_heads,
                       is_causal, num_hashes, num_buckets, chunk_length, chunks_before,
                       chunks_after, scale, key_norm, self_value, attend_across_buckets,
                       deduplicate, full_below_chunk):
    x, v = to_heads(QK, q_num_heads), to_heads(V, q_num_heads)
    tokens = x.shape[2]
    query, key = positions(tokens, tokens, x.device)
    own = query == key
    square = (x * x).sum(dim=-1, keepdim=True)
    length = ((square + 1e-6 * x.shape[3]).sqrt() if key_norm == "rms"
              else square.sqrt().clamp(min=tiniest(square, 1e-12)))
    scores = torch.where(own, torch.full_like(square, max(self_value, lowest(square))),
                         scale * (x @ (x / length).transpose(-1, -2)))
    counts = torch.ones_like(scores)
    raw = buckets.to(torch.int64) if buckets is not None else None
    if rotations is not None:
        raw = _hash(x, rotations, num_buckets)
    if raw is not None:
        order = raw
        if rotations is not None and key_mask is not None:
            order = torch.where(key_mask[:, None, None, :], raw, torch.full_like(raw, 2**31))
        chunk, n_chunks = _chunks(order, chunk_length)
        met = _meetings(chunk, n_chunks, order, own, chunks_before, chunks_after,
                        attend_across_buckets)
        whole = (key >= 0).sum() <= (chunk_length if full_below_chunk else -1)
        counts = torch.where(whole, counts, met.to(counts.dtype))
        if deduplicate:
            often = _duplicates(chunk, n_chunks).to(scores.dtype)
            scores = scores - torch.where(whole, torch.zeros_like(often),
                                          torch.log(often.clamp(min=tiniest(often, 1e-9))))
    if is_causal:
        counts = torch.where((key <= query) | own, counts, torch.zeros_like(counts))
    if key_mask is not None:
        counts = torch.where(key_mask_of(key_mask) | own, counts, torch.zeros_like(counts))
    y = from_heads(counted_softmax(scores, counts) @ v, QK)
    return y if raw is None else (y, raw.to(torch.int32))
