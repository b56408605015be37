"""SinkhornAttention and SinkhornCausalAttention of sinkhorn-transformer, with the sort net
that needs no weights. A query whose own mask is false is computed like the others: nobody
reads it."""
from ..call import call
from ..registry import Adapter, need

MODULE = "sinkhorn_transformer.sinkhorn_transformer."


def need_attention_sort(module):
    kind = type(module.sort_net).__name__
    need(kind in ("AttentionSortNet", "CausalAttentionSortNet"),
         f"its sort net is {kind}, which fixes the number of buckets")


class SinkhornAttention(Adapter):
    names = (MODULE + "SinkhornAttention",)
    shapes = (("sort_net", "n_sortcut", "non_permutative"),)
    operator = "SinkhornAttention"

    def check(self):
        need_attention_sort(self.module)
        need(self.module.non_permutative, "it draws random numbers (non_permutative=False)")

    def forward(self, q, k, v, q_mask=None, kv_mask=None):
        m = self.module
        mask = kv_mask if kv_mask is not None else q_mask
        return call("SinkhornAttention", q, k, v, None, None, None, None, mask,
                    bucket_size=m.bucket_size, kv_bucket_size=m.kv_bucket_size,
                    top_buckets=m.n_top_buckets, sortcut=m.n_sortcut,
                    sorted_values="values" if m.n_sortcut else "keys")


class SinkhornCausalAttention(Adapter):
    names = (MODULE + "SinkhornCausalAttention",)
    shapes = (("sort_net", "null_keys", "null_values"),)
    operator = "SinkhornAttention"

    def check(self):
        need_attention_sort(self.module)

    def tensors(self):
        m = self.module
        return {"null_k": m.null_keys[:, 0], "null_v": m.null_values[:, 0]}

    def forward(self, q, k, v, q_mask=None, kv_mask=None):
        m = self.module
        mask = kv_mask if kv_mask is not None else q_mask
        need(mask is None or m.n_top_buckets == 2,
             "a mask with n_top_buckets other than 2, for which its code hides other buckets")
        return call("SinkhornAttention", q, k, v, None, None, self.tensor("null_k"),
                    self.tensor("null_v"), mask, bucket_size=m.bucket_size, is_causal=1,
                    top_buckets=m.n_top_buckets, temperature=float(m.sort_net.temperature))
