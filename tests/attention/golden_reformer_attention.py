"""Golden cases of ReformerAttention: LSHSelfAttention of transformers and LSHAttention of
reformer-pytorch, in float64, with rotations drawn here. No case has a hash that is close."""
import sys
import types

import torch
from transformers import ReformerConfig
from transformers.models.reformer.modeling_reformer import LSHSelfAttention

from golden import heads_of, joined, random, write

# reformer-pytorch imports it for a layer that is not used here.
sys.modules.setdefault("product_key_memory", types.SimpleNamespace(PKM=None))
from reformer_pytorch.reformer_pytorch import LSHAttention  # noqa: E402


def with_rotations(run, rotations):
    drawn, torch.randn = torch.randn, lambda *_, **__: rotations.double()
    try:
        return run()
    finally:
        torch.randn = drawn


def transformers(qk, v, rotations, heads, chunk, buckets, after, causal, mask=None):
    config = ReformerConfig(
        hidden_size=qk.shape[2], num_attention_heads=heads,
        attention_head_size=qk.shape[2] // heads, num_hashes=rotations.shape[2],
        num_buckets=buckets, lsh_attn_chunk_length=chunk, lsh_num_chunks_before=1,
        lsh_num_chunks_after=after, is_decoder=causal, attn_layers=["lsh"])
    module = LSHSelfAttention(config).double().eval()
    module.query_key, module.value = torch.nn.Identity(), torch.nn.Identity()
    # One projection of the hidden states is the queries, the other one the values.
    module.value.forward = lambda _: v.double()
    return with_rotations(lambda: module(qk.double(), attention_mask=mask).hidden_states,
                          rotations)


def reformer_pytorch(qk, v, rotations, heads, bucket, causal, **options):
    module = LSHAttention(bucket_size=bucket, n_hashes=rotations.shape[2], causal=causal,
                          **options).double().eval()
    run = [heads_of(x.double(), heads).flatten(0, 1) for x in (qk, v)]
    y = with_rotations(lambda: module(*run)[0], rotations)
    return joined(y.unflatten(0, (qk.shape[0], heads)))


def main():
    qk, v, r = random(1, 1, 40, 16), random(2, 1, 40, 16), random(3, 2, 8, 2, 4)
    write("reformer_transformers_causal", "ReformerAttention",
          dict(q_num_heads=2, num_hashes=2, num_buckets=[4, 4], chunk_length=8, is_causal=1),
          [qk, v, r], [transformers(qk, v, r, 2, 8, [4, 4], 0, True)], "transformers",
          "reformer LSHSelfAttention")

    qk, v, r = random(4, 2, 48, 16), random(5, 2, 48, 16), random(6, 2, 8, 3, 3)
    mask = torch.arange(48) < torch.tensor([[48], [31]])
    write("reformer_transformers_mask", "ReformerAttention",
          dict(q_num_heads=2, num_hashes=3, num_buckets=[6], chunk_length=8, chunks_after=1),
          [qk, v, r, None, mask], [transformers(qk, v, r, 2, 8, 6, 1, False, mask)],
          "transformers", "reformer LSHSelfAttention")

    settings = dict(q_num_heads=2, num_hashes=2, num_buckets=[6], chunk_length=8, is_causal=1,
                    scale=8 ** -0.5, key_norm="l2", self_value=-5e4)
    qk, v, r = random(7, 1, 48, 16), random(8, 1, 48, 16), random(9, 1, 8, 2, 3)
    write("reformer_pytorch_deduplicate", "ReformerAttention", dict(settings, deduplicate=1),
          [qk, v, r], [reformer_pytorch(qk, v, r, 2, 8, True,
                                        allow_duplicate_attention=False)],
          "reformer-pytorch", "LSHAttention", tolerance=(1e-4, 1e-5))
    write("reformer_pytorch_same_bucket", "ReformerAttention",
          dict(settings, attend_across_buckets=0),
          [qk, v, r], [reformer_pytorch(qk, v, r, 2, 8, True, attend_across_buckets=False)],
          "reformer-pytorch", "LSHAttention")


main()
