"""SinkhornAttention: own bucket of keys and sorted ones, picked (topk) or mixed by a balanced
matrix (sinkhorn). A body is for one length: it decides which buckets there are."""
import torch

from ..operators import REQUIRED, Data, example, mask, operator
from ._heads import HEADS, from_heads, masked_softmax, scale_of, to_heads


def _buckets(x, size):
    """(B, H, N, D) as (B, H, N / size, size, D)."""
    return x.reshape(x.shape[0], x.shape[1], -1, size, x.shape[3])


def _rotate(x, by):
    """The second half of the heads, to the left along the tokens."""
    half = x.shape[1] // 2
    moved = x[:, half:]
    return torch.cat([x[:, :half], torch.cat([moved[:, :, by:], moved[:, :, :by]], 2)], 1)


def _running_mean(x):
    counts = torch.arange(1, x.shape[2] + 1, device=x.device).to(x.dtype)
    return x.cumsum(2) / counts[:, None]


def _logits(q, k, block, kv_block, causal, shared, nulls):
    if causal:
        queries = _buckets(_running_mean(q), block)[:, :, :, 0]
        keys = _buckets(_running_mean(k), kv_block).sum(3)
        keys = torch.cat([torch.zeros_like(keys[:, :, :1]).repeat(1, 1, nulls, 1), keys], 2)
    else:
        queries = q.mean(2, keepdim=True) if shared else _buckets(q, block).mean(3)
        keys = _buckets(k, kv_block).mean(3)
    return q.shape[-1] ** -0.5 * (queries @ keys.transpose(-1, -2))


def _pick(logits, picks, temperature, nulls):
    """(B, H, rows, picks, columns) of weights."""
    column = torch.arange(logits.shape[-1], device=logits.device)
    if nulls:
        row = torch.arange(logits.shape[-2], device=logits.device)[:, None]
        logits = torch.where(column < row + nulls, logits, -torch.inf)
    chosen = []
    for _ in range(picks):
        weights = torch.softmax(logits / temperature, dim=-1)
        best = column == weights.argmax(-1, keepdim=True)
        chosen.append(torch.where(best, weights, torch.zeros_like(weights)))
        logits = torch.where(best, -torch.inf, logits)
    return torch.stack(chosen, dim=3)


def _balance(logits, gumbel, temperature, iters):
    r = torch.log(torch.relu(logits) + 1e-6)
    r = (r if gumbel is None else r + gumbel) / temperature
    for _ in range(iters):
        r = r - torch.logsumexp(r, -1, keepdim=True)
        r = r - torch.logsumexp(r, -2, keepdim=True)
    return torch.exp(r)[:, :, :, None]


def _mask(key_mask, weights, q, kv_block, causal, nulls, own):
    """(B, H, buckets, 1, keys) or None"""
    if key_mask is None:
        return None
    heads = key_mask[:, None, :, None].repeat(1, q.shape[1], 1, 1)
    if causal:
        heads = _rotate(heads, kv_block - 1)
    buckets = _buckets(heads, kv_block)[..., 0]
    ones = torch.ones_like(buckets[:, :, :1]).repeat(1, 1, nulls, 1)
    columns = torch.cat([ones, buckets], 2)
    best = weights.argmax(-1).flatten(2)[..., None].expand(-1, -1, -1, kv_block)
    found = columns.gather(2, best).unflatten(2, weights.shape[2:4]).flatten(3)
    if own:
        found = torch.cat([found.expand(-1, -1, buckets.shape[2], -1), buckets], -1)
    return found[:, :, :, None]


def _causal(q, buckets, block, sorted_keys):
    """(H, buckets, rows, keys)"""
    def along(n, axis):
        return torch.arange(n, device=q.device).reshape([-1] + [1] * (3 - axis))
    head, bucket, row = along(q.shape[1], 0), along(buckets, 1), along(block, 2)
    key = torch.arange(sorted_keys + block, device=q.device) - sorted_keys
    last = (head >= q.shape[1] // 2) & (bucket == buckets - 1) & (row > 0)
    return (key <= row) & ~(last & (key <= 0))


def _given(*shape):
    return Data(shape, lambda g, s: 3 * torch.randn(s, generator=g))


@operator("SinkhornAttention",
          inputs=["Q: heads B .", "K: heads B .", "V: heads B .", "sort_logits?: B . . .",
                  "gumbel?", "null_k?", "null_v?", "key_mask?: B ."],
          outputs=["Y"],
          attributes={**HEADS, "bucket_size": REQUIRED, "kv_bucket_size": None,
                      "mode": "topk", "top_buckets": 1, "temperature": 1.0, "iters": 7,
                      "sortcut": 0, "sorted_values": "values"},
          examples=[
              example(q_num_heads=2, bucket_size=4, Q=(2, 12, 8), K=(2, 12, 8),
                      V=(2, 12, 8), sort_logits=_given(2, 2, 3, 3)),
              example(q_num_heads=2, bucket_size=4, kv_bucket_size=3, top_buckets=2,
                      temperature=0.7, scale=0.3, Q=(2, 8, 12), K=(2, 12, 12), V=(2, 12, 8),
                      sort_logits=_given(2, 2, 2, 4), key_mask=mask(2, 12)),
              example(bucket_size=2, mode="sinkhorn", temperature=0.75,
                      tolerance=(1e-4, 1e-5), Q=(1, 3, 8, 8), K=(1, 3, 8, 8),
                      V=(1, 3, 8, 6), gumbel=(1, 3, 4, 4)),
              example(q_num_heads=2, bucket_size=3, sortcut=2, Q=(2, 12, 8),
                      K=(2, 12, 8), V=(2, 12, 8), sort_logits=_given(2, 2, 1, 4)),
              example(q_num_heads=3, bucket_size=4, is_causal=1, top_buckets=2,
                      Q=(2, 12, 12), K=(2, 12, 12), V=(2, 12, 12), null_k=(3, 4),
                      null_v=(3, 4), sort_logits=_given(2, 3, 3, 5), key_mask=mask(2, 12)),
          ],
          note="for one length")
def sinkhorn_attention(Q, K, V, sort_logits, gumbel, null_k, null_v, key_mask, *, q_num_heads,
                       kv_num_heads, is_causal, scale, bucket_size, kv_bucket_size, mode,
                       top_buckets, temperature, iters, sortcut, sorted_values):
    q, k, v = (to_heads(x, q_num_heads) for x in (Q, K, V))
    kv_block = kv_bucket_size if kv_bucket_size is not None else bucket_size
    picks = min(sortcut if sortcut > 0 else top_buckets, k.shape[2] // kv_block)
    nulls = picks if is_causal else 0
    if is_causal:
        q, k, v = (_rotate(x, bucket_size - 1) for x in (q, k, v))
    own = q.shape[2] // bucket_size == k.shape[2] // kv_block
    logits = sort_logits
    if logits is None:
        logits = _logits(q, k, bucket_size, kv_block, is_causal, sortcut > 0, nulls)
    weights = (_balance(logits, gumbel, temperature, iters) if mode == "sinkhorn"
               else _pick(logits, picks, temperature, nulls))

    def sort(x, null):
        columns = _buckets(x, kv_block)
        if nulls:
            null = null[None, :, None, None].to(x.dtype)
            columns = torch.cat([null.expand(x.shape[0], -1, nulls, kv_block, -1), columns], 2)
        return torch.einsum("bhrtc,bhcid->bhrtid", weights, columns).flatten(3, 4)

    queries = _buckets(q, bucket_size)
    keys = sort(k, null_k)
    values = keys if sorted_values == "keys" else sort(v, null_v)
    sorted_keys = keys.shape[3]
    if own:
        keys, values = (
            torch.cat([s.expand(-1, -1, queries.shape[2], -1, -1), _buckets(x, kv_block)], 3)
            for s, x in ((keys, k), (values, v)))
    allowed = _mask(key_mask, weights, q, kv_block, is_causal, nulls, own)
    if is_causal:
        causal = _causal(q, queries.shape[2], bucket_size, sorted_keys)
        allowed = causal if allowed is None else allowed & causal
    scores = scale_of(scale, q) * (queries @ keys.transpose(-1, -2))
    y = (masked_softmax(scores, allowed) @ values).flatten(2, 3)
    if is_causal:
        y = _rotate(y, y.shape[2] - bucket_size + 1)
    return from_heads(y, Q)
