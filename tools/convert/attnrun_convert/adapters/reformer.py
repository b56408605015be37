"""Reformer: hashed and local attention of transformers, LSHAttention of reformer-pytorch.

The rotations are drawn once and stored, so a file holds no random numbers: transformers'
from config.hash_seed, or from seed 0 where it has none; the module is compared with itself
under the same seed. The surrounding model pads to whole chunks; an export of a text that is
padded keeps that for all lengths, and adds nothing where the chunks are whole.
"""
import contextlib
import types

import torch
from torch.utils._python_dispatch import _disable_current_modes

from ..call import call, exporting
from ..errors import UnsupportedError
from ..registry import Adapter, companion, need, need_linear

TRANSFORMERS = "transformers.models.reformer.modeling_reformer."


def counts_of(num_buckets):
    return [num_buckets] if isinstance(num_buckets, int) else list(num_buckets)


def drawn(seed, *shape):
    """What upstream draws after torch.manual_seed(seed); numbers in an export, too."""
    with _disable_current_modes():
        return torch.empty(shape).normal_(generator=torch.Generator().manual_seed(seed))


@contextlib.contextmanager
def drawing(seed):
    """torch.randn gives the rotations of this seed, in every dtype the same ones."""
    original = torch.randn

    def randn(*shape, dtype=None, **_):
        return drawn(seed, *(shape[0] if isinstance(shape[0], (tuple, list)) else shape)
                     ).to(dtype)
    torch.randn = randn
    try:
        yield
    finally:
        torch.randn = original


class LSHSelfAttention(Adapter):
    names = (TRANSFORMERS + "LSHSelfAttention",)
    operator = "ReformerAttention"

    def check(self):
        m = self.module
        need_linear(m, "query_key", "value")
        if m.num_buckets is None:
            raise UnsupportedError("config.num_buckets is not set, so the model would choose it by "
                                   "the length of the first text that is longer than a chunk: set "
                                   "it to a power of two, about 2 * length / "
                                   "lsh_attn_chunk_length")

    def tensors(self):
        m = self.module
        return {"rotations": drawn(m.hash_seed or 0, m.num_attention_heads,
                                   m.attention_head_size, m.num_hashes,
                                   sum(counts_of(m.num_buckets)) // 2)}

    def reference(self):
        return drawing(self.module.hash_seed or 0)

    def note(self):
        if self.module.hash_seed is not None:
            return ""
        return ", its rotations drawn once with seed 0 (set config.hash_seed for others)"

    def forward(self, hidden_states, attention_mask=None, num_hashes=None, buckets=None,
                past_buckets_states=None, use_cache=False, output_attentions=False, **kwargs):
        m = self.module
        need(not output_attentions, "output_attentions=True asks for the weights")
        need(not use_cache and not past_buckets_states, "use_cache=True keeps states")
        need(num_hashes in (None, m.num_hashes), "num_hashes differs from the config's")
        need(buckets is None, "buckets are given")
        mask = None if attention_mask is None else attention_mask > 0
        y, hashes = call("ReformerAttention", m.query_key(hidden_states),
                         m.value(hidden_states), self.tensor("rotations"), None, mask,
                         n_outputs=2, q_num_heads=m.num_attention_heads,
                         num_hashes=m.num_hashes, num_buckets=counts_of(m.num_buckets),
                         chunk_length=m.chunk_length, chunks_before=m.num_chunks_before,
                         chunks_after=m.num_chunks_after, is_causal=int(m.is_decoder),
                         self_value=-1e3 if hidden_states.dtype == torch.float16 else -1e5)
        # What the model makes of the buckets matters to training alone.
        return types.SimpleNamespace(hidden_states=y, attention_probs=(),
                                     buckets=None if exporting() else hashes)

    def results(self, output):
        return output.hidden_states


class LocalSelfAttention(Adapter):
    names = (TRANSFORMERS + "LocalSelfAttention",)
    operator = "ChunkedLocalAttention"

    def check(self):
        need_linear(self.module, "query", "key", "value")

    def forward(self, hidden_states, attention_mask=None, past_buckets_states=None,
                use_cache=False, output_attentions=False, **kwargs):
        m = self.module
        need(not output_attentions, "output_attentions=True asks for the weights")
        need(not use_cache and not past_buckets_states, "use_cache=True keeps states")
        mask = (torch.ones_like(hidden_states[:, :, 0]) if attention_mask is None
                else attention_mask) > 0
        n = hidden_states.shape[1]
        missing = (-n) % m.chunk_length  # chunks wrap around, so they must be whole ones
        q, k, v = (torch.nn.functional.pad(layer(hidden_states), (0, 0, 0, missing))
                   for layer in (m.query, m.key, m.value))
        y = call("ChunkedLocalAttention", q, k, v,
                 torch.nn.functional.pad(mask, (0, missing)), edge="wrap",
                 q_num_heads=m.num_attention_heads, chunk_size=m.chunk_length,
                 chunks_before=m.num_chunks_before, chunks_after=m.num_chunks_after,
                 is_causal=int(m.is_decoder))
        return types.SimpleNamespace(hidden_states=y[:, :n], attention_probs=())

    def results(self, output):
        return output.hidden_states


@companion(TRANSFORMERS + "ReformerModel", "_pad_to_mult_of_chunk_length",
           (LSHSelfAttention, LocalSelfAttention))
def _pads_to_whole_chunks(self, *args, input_shape, padding_length, padded_seq_length, **kwargs):
    """Upstream does not come here with whole chunks, and would add one; a file does."""
    return type(self)._pad_to_mult_of_chunk_length(
        self, *args, input_shape=input_shape, padding_length=-input_shape[-1] % padded_seq_length,
        padded_seq_length=padded_seq_length, **kwargs)


class AxialPositionEmbeddings(Adapter):
    """The same numbers, gathered: the class cuts its table at the largest position."""
    names = (TRANSFORMERS + "AxialPositionEmbeddings",)
    operator = "Gather"

    def check(self):
        need(len(self.module.weights) == 2, "it does not have two axes")

    def tensors(self):
        return {f"axis{i}": w.flatten(0, 1) for i, w in enumerate(self.module.weights)}

    def forward(self, position_ids):
        width = self.module.axial_pos_shape[1]
        row = torch.div(position_ids, width, rounding_mode="floor")
        return torch.cat([self.tensor("axis0")[row],
                          self.tensor("axis1")[position_ids - row * width]], dim=-1)


def _hashed(x, rotations):
    """Buckets (B, 1, rounds, N) of x (B, N, D) by rotations (D, rounds, buckets / 2)."""
    turned = torch.einsum("bnd,dtf->btnf", x, rotations)
    return torch.cat([turned, -turned], dim=-1).argmax(-1)[:, None]


class LSHAttention(Adapter):
    """reformer-pytorch's: qk and v (B * heads, N, D). It hashes into N / bucket_size buckets,
    so the file is for one length."""
    names = ("reformer_pytorch.reformer_pytorch.LSHAttention",)
    operator = "ReformerAttention"
    seed = 0

    def check(self):
        m = self.module
        need(m._rehash_each_round, "rehash_each_round=False repeats one round")
        need(not m._random_rotations_per_head, "random_rotations_per_head=True")
        need(not m._return_attn, "return_attn=True asks for the weights")

    def reference(self):
        return drawing(self.seed)

    def forward(self, qk, v, query_len=None, input_mask=None, input_attn_mask=None,
                pos_emb=None, **kwargs):
        m = self.module
        n, width = int(qk.shape[1]), int(qk.shape[2])
        need(query_len in (None, n), "query_len differs from the length of the keys")
        need(input_attn_mask is None, "input_attn_mask is a table of its own")
        need(pos_emb is None, "pos_emb turns the queries (rotary positions)")
        need(n % (2 * m.bucket_size) == 0, "its length is not a multiple of two buckets")
        rotations = drawn(self.seed, 1, width, m.n_hashes, n // m.bucket_size // 2).to(qk.dtype)
        buckets = None
        if input_mask is not None:  # with rotations, what it hides would come behind the rest
            rotations, buckets = None, _hashed(qk, rotations[0])
        y = call("ReformerAttention", qk[:, None], v[:, None], rotations, buckets, input_mask,
                 num_hashes=m.n_hashes, num_buckets=[n // m.bucket_size],
                 chunk_length=m.bucket_size, scale=width ** -0.5, key_norm="l2",
                 self_value=-5e4, is_causal=int(m.causal),
                 attend_across_buckets=int(m._attend_across_buckets),
                 deduplicate=int(not m._allow_duplicate_attention), full_below_chunk=0)
        y, nothing = y[:, 0], torch.empty(0)
        if input_mask is not None:  # what it hides sees itself alone, and later layers hash it
            y = torch.where(input_mask[..., None], y, v)
        return y, nothing, nothing

    def results(self, output):
        return output[0]
