"""Modules of the attention packages and of transformers, each replaced by one operator, in a
file that ONNX Runtime and attnrun run at other sizes like PyTorch.

usage: test_packages.py ROOT ATTNRUN [test …]
"""
import sys
import types

import onnx
import torch
from torch import nn

import common
from test_adapters import check, randomised
from attnrun_convert import convert, registry

WIDTH, HEADS = 24, 3


class Layer(nn.Module):
    """Attention over heads with its projections, as the packages' models have it."""

    def __init__(self, attention, first=lambda y: y, shared_qk=False):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.attention, self.first, self.shared_qk = attention, first, shared_qk

    def forward(self, x):
        q, k, v = (t.unflatten(2, (HEADS, -1)).transpose(1, 2)
                   for t in self.qkv(x).chunk(3, -1))
        y = self.first(self.attention(q, q if self.shared_qk else k, v))
        return self.out(y.transpose(1, 2).flatten(2))


def tokens(batch, length, width=WIDTH):
    generator = torch.Generator().manual_seed(length)
    return {"x": torch.randn(batch, length, width, generator=generator)}


AXES = {"x": {0: "batch", 1: "seq"}}
ONE_LENGTH = {"x": {0: "batch"}}
SIZES = [(2, 24), (3, 31), (1, 7)]


def one(folder, model, operator, sizes=SIZES, axes=AXES, count=1, **more):
    check(folder, randomised(model), tokens, sizes, axes, {operator: count}, ["y"], **more)


def reasons(model, *args, **kwargs):
    plan = registry.plan(model.eval(), args, kwargs)
    plan.close()
    assert not plan.taken, plan.lines()
    return [entry.reason for entry in plan.entries]


# performer-pytorch

def fast_attention(**settings):
    from performer_pytorch import FastAttention
    torch.manual_seed(1)
    return FastAttention(WIDTH // HEADS, 16, **settings)


def test_performer(folder):
    one(folder, Layer(fast_attention()), "PerformerAttention")


def test_performer_causal(folder):
    one(folder, Layer(fast_attention(causal=True)), "PerformerAttention")


def test_performer_relu(folder):
    one(folder, Layer(fast_attention(generalized_attention=True)), "PerformerAttention")


def test_performer_without_projection(folder):
    one(folder, Layer(fast_attention(no_projection=True)), "LinearAttention")


def test_performer_with_another_kernel_stays(folder):
    layer = Layer(fast_attention(generalized_attention=True, kernel_fn=nn.Softplus()))
    assert "its kernel is Softplus" in reasons(layer, **tokens(2, 9))[0]


# linformer, linformer-pytorch

def test_linformer(folder):
    from linformer import LinformerSelfAttention
    one(folder, LinformerSelfAttention(WIDTH, 40, k=5, heads=HEADS, one_kv_head=True),
        "LinformerAttention")


def test_linformer_shared(folder):
    from linformer import LinformerSelfAttention
    one(folder, LinformerSelfAttention(WIDTH, 40, k=5, heads=HEADS, share_kv=True),
        "LinformerAttention")


def test_linformer_pytorch(folder):
    # Draws pictures, and needs what does.
    sys.modules["linformer_pytorch.visualizer"] = types.SimpleNamespace(Visualizer=None)
    from linformer_pytorch import Linformer
    model = Linformer(input_size=20, channels=WIDTH, dim_k=6, dim_ff=32, nhead=2, depth=1,
                      dropout=0.0, dropout_ff=0.0, parameter_sharing="headwise")
    check(folder, randomised(model), lambda *size: {"tensor": tokens(*size)["x"]},
          [(2, 20), (3, 20)], {"tensor": {0: "batch"}}, {"LinformerAttention": 2}, ["y"])


# routing-transformer, sinkhorn-transformer, memory-compressed-attention

def kmeans(**settings):
    from routing_transformer.routing_transformer import KmeansAttention
    attention = KmeansAttention(4, 6, HEADS, WIDTH // HEADS, **settings)
    attention.kmeans.initted.fill_(True)
    return Layer(attention, lambda y: y[0], settings.get("shared_qk", False))


def test_routing(folder):
    one(folder, kmeans(num_mem_kv=2), "RoutingAttention")


def test_routing_causal(folder):
    one(folder, kmeans(causal=True, shared_qk=True), "RoutingAttention")


def test_routing_gives_the_loss(folder):
    """Small numbers, which the tolerance of a proof hides."""
    layer = kmeans()
    layer.first = lambda y: y[0] + 1e6 * y[1]
    one(folder, layer, "RoutingAttention")


def test_routing_without_means_stays(folder):
    layer = kmeans()
    layer.attention.kmeans.initted.fill_(False)
    assert "its means were never set" in reasons(layer, **tokens(1, 24))[0]


def test_routing_with_a_mask(folder):
    """Where it hides all keys of a cluster, upstream attends to them all the same, unless there are
    memories, or the query itself."""
    mask = torch.ones(2, 24, dtype=torch.bool)
    x = torch.randn(2, HEADS, 24, WIDTH // HEADS)
    for settings, kept in (({}, True), ({"num_mem_kv": 2}, False), ({"shared_qk": True}, False)):
        attention = kmeans(**settings).attention.eval()
        plan = registry.plan(attention, (x, x, x), {"query_mask": mask})
        plan.close()
        assert [bool(entry.reason) for entry in plan.entries] == [kept], plan.lines()


def test_sinkhorn(folder):
    from sinkhorn_transformer.sinkhorn_transformer import SinkhornAttention
    one(folder, Layer(SinkhornAttention(6, WIDTH, WIDTH // HEADS, HEADS, 24)),
        "SinkhornAttention", [(2, 24), (3, 24)], ONE_LENGTH)


def test_sinkhorn_causal(folder):
    from sinkhorn_transformer.sinkhorn_transformer import SinkhornCausalAttention
    one(folder, Layer(SinkhornCausalAttention(6, WIDTH, WIDTH // HEADS, HEADS, 24)),
        "SinkhornAttention", [(2, 24), (3, 24)], ONE_LENGTH)


def test_sinkhorn_causal_with_a_mask(folder):
    """Its mask takes two buckets to be before the first one, however many there are."""
    from sinkhorn_transformer.sinkhorn_transformer import SinkhornCausalAttention
    mask = torch.ones(2, 24, dtype=torch.bool)
    q, k, v = (torch.randn(2, HEADS, 24, WIDTH // HEADS) for _ in range(3))
    for tops, kept in ((2, False), (1, True)):
        attention = SinkhornCausalAttention(6, WIDTH, WIDTH // HEADS, HEADS, 24,
                                            n_top_buckets=tops)
        plan = registry.plan(attention.eval(), (q, k, v), {"q_mask": mask})
        plan.close()
        assert [bool(entry.reason) for entry in plan.entries] == [kept], plan.lines()


def test_compressed(folder):
    from memory_compressed_attention import MemoryCompressedAttention
    one(folder, MemoryCompressedAttention(WIDTH, HEADS, causal=True, compression_factor=4),
        "CompressedAttention")


# local-attention, linear-attention-transformer

def local(**settings):
    from local_attention import LocalAttention
    return LocalAttention(window_size=8, **settings)


def test_local(folder):
    one(folder, Layer(local(causal=True, autopad=True, use_rotary_pos_emb=False)),
        "ChunkedLocalAttention")


def test_local_rotary(folder):
    one(folder, Layer(local(dim=WIDTH // HEADS, autopad=True, exact_windowsize=True)),
        "ChunkedLocalAttention")


def test_local_rotary_far_from_the_start(folder):
    """Neighbours have the same score wherever they are in a long text."""
    from attnrun_convert.adapters.local import rotated
    x = rotated(torch.ones(1, 1, 100000, 8), local(dim=8).rel_pos.inv_freq, 0)
    scores = (x[..., 1:, :] * x[..., :-1, :]).sum(-1)
    assert (scores.max() - scores.min()) < 2e-5, (scores.min(), scores.max())


def test_local_own_window_alone(folder):
    one(folder, Layer(local(autopad=True, look_backward=0, look_forward=0,
                            use_rotary_pos_emb=False)), "ChunkedLocalAttention")


def test_local_with_xpos_stays(folder):
    layer = Layer(local(dim=WIDTH // HEADS, causal=True, use_xpos=True, autopad=True))
    assert "use_xpos" in reasons(layer, **tokens(1, 24))[0]


def linear_attention(**settings):
    from linear_attention_transformer.linear_attention_transformer import SelfAttention
    return SelfAttention(WIDTH, HEADS, **settings)


def test_linear_attention_transformer(folder):
    one(folder, linear_attention(), "LinearAttention")


def test_linear_attention_transformer_causal_and_local(folder):
    model = randomised(linear_attention(causal=True, n_local_attn_heads=1,
                                        local_attn_window_size=8))
    check(folder, model, tokens, [(2, 24), (3, 32)], AXES,
          {"LinearAttention": 1, "ChunkedLocalAttention": 1}, ["y"])


# reformer-pytorch; Reformer, BigBird and FNet of transformers

def test_reformer_pytorch_for_one_length(folder):
    from reformer_pytorch.reformer_pytorch import LSHAttention

    class Hashed(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = LSHAttention(bucket_size=6, n_hashes=2, causal=True)

        def forward(self, x):
            return self.attention(x, x.flip(-1))[0]

    convert(Hashed().eval(), tokens(2, 24), dynamic=ONE_LENGTH, output=folder / "m.onnx",
            attnrun=common.ATTNRUN, quiet=True)
    kinds = [node.op_type for node in onnx.load(folder / "m.onnx").graph.node]
    assert any(kind.startswith("ReformerAttention__") for kind in kinds), kinds


def test_reformer_pytorch_with_a_mask(folder):
    """What its mask hides stays where its bucket is, whatever the mask of the example hides, and
    gets what upstream gives it: a next layer hashes it, too."""
    from reformer_pytorch.reformer_pytorch import LSHAttention
    x, v = tokens(2, 24)["x"], tokens(2, 24)["x"].flip(-1)
    for causal in (False, True):
        model = LSHAttention(bucket_size=4, n_hashes=2, causal=causal).eval()
        shown = torch.ones(2, 24, dtype=torch.bool)
        plan = registry.plan(model, (x, v), {"input_mask": shown})
        mask = shown.clone()
        mask[-1, :7] = False
        with plan.referenced(), torch.no_grad():
            want = model(x, v, input_mask=mask)[0]
            got = plan.taken[0].adapter.forward(x, v, input_mask=mask)[0]
        plan.close()
        common.close([got.numpy()], [want], 1e-2, 1e-2)


def sentences(batch, length):
    generator = torch.Generator().manual_seed(length)
    ids = torch.randint(3, 90, (batch, length), generator=generator)
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[-1, -length // 5:] = 0
    return {"input_ids": ids, "attention_mask": mask}


class Read(nn.Module):
    """A model's last hidden states where the mask is true: the rest nobody reads, and models
    that pad to whole chunks fill it in other ways."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        y = self.model(input_ids, attention_mask=attention_mask)[0]
        return y * attention_mask[..., None]


IDS = dict.fromkeys(("input_ids", "attention_mask"), {0: "batch", 1: "seq"})


def test_reformer_of_transformers(folder):
    from transformers import ReformerConfig, ReformerModel
    model = ReformerModel(ReformerConfig(
        vocab_size=100, hidden_size=32, attention_head_size=8, num_attention_heads=4,
        feed_forward_size=48, attn_layers=["lsh", "local"], lsh_attn_chunk_length=8,
        local_attn_chunk_length=8, num_hashes=2, num_buckets=[2, 4], hash_seed=5,
        axial_pos_shape=[8, 16], axial_pos_embds_dim=[16, 16], use_cache=False))
    check(folder, randomised(Read(model)), sentences, [(2, 48), (3, 61), (1, 27)], IDS,
          {"ReformerAttention": 1, "ChunkedLocalAttention": 1}, ["last_hidden_state"])


def test_reformer_of_transformers_pads_as_much_as_it_must(folder):
    """A text of whole chunks gets no more of them, also where that of the example is padded."""
    from transformers import ReformerConfig, ReformerModel
    model = ReformerModel(ReformerConfig(
        vocab_size=100, hidden_size=32, attention_head_size=8, num_attention_heads=4,
        feed_forward_size=48, attn_layers=["lsh", "local"], lsh_attn_chunk_length=8,
        local_attn_chunk_length=8, num_hashes=2, num_buckets=[2, 4], hash_seed=5,
        axial_pos_embds=False, max_position_embeddings=8192, is_decoder=False, use_cache=False))
    check(folder, randomised(Read(model)), sentences, [(2, 43), (3, 48), (1, 27)], IDS,
          {"ReformerAttention": 1, "ChunkedLocalAttention": 1}, ["last_hidden_state"])


def test_big_bird_of_transformers(folder):
    from transformers import BigBirdConfig, BigBirdModel
    model = BigBirdModel(BigBirdConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=48, block_size=4, num_random_blocks=2, max_position_embeddings=128,
        attention_type="block_sparse"), add_pooling_layer=False)
    check(folder, randomised(Read(model)), sentences, [(2, 48), (3, 61), (1, 40)], IDS,
          {"BigBirdAttention": 2}, ["last_hidden_state"])


def test_fnet_of_transformers(folder):
    from transformers import FNetConfig, FNetModel
    model = FNetModel(FNetConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, intermediate_size=48,
        max_position_embeddings=128, use_tpu_fourier_optimizations=False),
        add_pooling_layer=False)

    def ids(batch, length):
        return {"input_ids": sentences(batch, length)["input_ids"]}
    check(folder, randomised(model), ids, [(2, 24), (3, 31)],
          {"input_ids": {0: "batch", 1: "seq"}}, {"FourierMix": 2}, ["last_hidden_state"])


if __name__ == "__main__":
    common.main([value for name, value in list(globals().items())
                 if name.startswith("test_")])
