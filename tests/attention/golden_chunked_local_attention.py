"""Golden cases of ChunkedLocalAttention: LocalAttention of local-attention (edge "pad") and
LocalSelfAttention of transformers' Reformer (edge "wrap")."""
import torch
from local_attention import LocalAttention
from transformers import ReformerConfig
from transformers.models.reformer.modeling_reformer import LocalSelfAttention

from golden import heads_of, joined, random, write


def lucidrains(name, seed, tokens, mask=None, **settings):
    heads, chunk = 2, 6
    module = LocalAttention(window_size=chunk, use_rotary_pos_emb=False, autopad=True,
                            **settings).eval()
    q, k, v = (random(seed + i, 2, tokens, 12) for i in range(3))
    y = module(*(heads_of(x, heads) for x in (q, q if settings.get("shared_qk") else k, v)),
               mask=mask)
    causal = int(settings.get("causal", False))
    attributes = dict(q_num_heads=heads, chunk_size=chunk, is_causal=causal,
                      chunks_before=settings.get("look_backward", 1),
                      chunks_after=settings.get("look_forward", 0 if causal else 1),
                      exact_window=int(settings.get("exact_windowsize", False)),
                      shared_qk=int(settings.get("shared_qk", False)))
    write(name, "ChunkedLocalAttention", attributes, [q, k, v, mask], [joined(y)],
          "local-attention", "LocalAttention")


def reformer(name, seed, decoder, tokens, mask):
    config = ReformerConfig(hidden_size=12, attention_head_size=6, num_attention_heads=2,
                            local_attn_chunk_length=4, is_decoder=decoder,
                            local_num_chunks_before=1, local_num_chunks_after=0 if decoder
                            else 1, attention_probs_dropout_prob=0.0)
    torch.manual_seed(seed)
    module = LocalSelfAttention(config).eval()
    x = random(seed, 2, tokens, 12)
    with torch.no_grad():
        y = module(x, attention_mask=mask).hidden_states
        q, k, v = module.query(x), module.key(x), module.value(x)
    write(name, "ChunkedLocalAttention",
          dict(q_num_heads=2, chunk_size=4, edge="wrap", is_causal=int(decoder)),
          [q, k, v, mask], [y], "transformers", "reformer LocalSelfAttention")


def main():
    mask = torch.arange(22) < torch.tensor([[22], [17]])
    lucidrains("chunked_exact_masked", 1, 22, mask=mask, look_backward=2, look_forward=1,
               exact_windowsize=True)
    lucidrains("chunked_exact_single", 10, 6, exact_windowsize=True)
    lucidrains("chunked_shared_causal", 4, 20, causal=True, shared_qk=True)
    mask = torch.arange(20) < torch.tensor([[20], [13]])
    reformer("chunked_wrap", 7, False, 20, mask)
    reformer("chunked_wrap_causal", 8, True, 16, mask[:, :16])
    reformer("chunked_wrap_short", 9, False, 3, mask[:, :3])


main()
