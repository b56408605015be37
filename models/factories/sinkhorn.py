"""Sinkhorn Transformer: SinkhornTransformerLM of sinkhorn-transformer with its sort of
buckets by attention, its attention swapped. Upstream's sorted values are the sorted keys;
so they are here."""
from attnrun_convert.call import call

from . import _parts as parts
from ._local import LocalAttention  # noqa: F401

parts.stub(product_key_memory="PKM")
from sinkhorn_transformer import SinkhornTransformerLM  # noqa: E402
from sinkhorn_transformer.sinkhorn_transformer import SinkhornAttention  # noqa: E402

BUCKET, LENGTH = 8, 48


def attention(self, q, k, v, q_mask=None, kv_mask=None):
    return call("SinkhornAttention", q, k, v, None, None, None, None, kv_mask,
                bucket_size=self.bucket_size, top_buckets=self.n_top_buckets,
                sorted_values="keys")


def build():
    upstream = parts.randomise(parts.Tokens(SinkhornTransformerLM(
        num_tokens=parts.VOCABULARY, dim=parts.WIDTH, max_seq_len=LENGTH, depth=2,
        heads=parts.HEADS, bucket_size=BUCKET, n_top_buckets=2)))
    module = parts.swapped(upstream, {SinkhornAttention: attention})
    return module, upstream, [(parts.ids(2, LENGTH),), (parts.ids(3, LENGTH),)]
