"""families.py - tiny random configurations of the model families, one function each.

A function returns a Family: a module whose forward takes positional tensors only,
three sets of inputs of different sizes, names, and the dynamic axes of each input.
The first set is the example that the exporters trace. Weights are random (seeded) and
large enough that every part of a model moves the result.
"""
import dataclasses
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch  # noqa: E402
from torch import nn  # noqa: E402
import transformers as tf  # noqa: E402

VOCAB = 99


@dataclasses.dataclass
class Family:
    module: nn.Module
    sets: list  # three tuples of tensors
    inputs: list
    outputs: list
    axes: dict  # input name -> {axis: symbol}


def randomise(module):
    """Replace the initial weights by ones of unit gain and non-trivial norms."""
    generator = torch.Generator().manual_seed(7)

    def normal(like):
        return torch.randn(like.shape, generator=generator, dtype=like.dtype)

    with torch.no_grad():
        for name, value in module.named_parameters():
            if name.endswith(("A_log", "dt_proj.bias", ".D")):
                continue
            if name.endswith("bias"):
                value.copy_(0.1 * normal(value))
            elif value.dim() >= 2:
                value.copy_(normal(value) / max(1, value[0].numel()) ** 0.5)
            else:
                value.mul_(1 + 0.1 * normal(value))
        for name, value in module.named_buffers():
            if name.endswith("running_mean"):
                value.copy_(0.1 * normal(value))
            elif name.endswith("running_var"):
                value.copy_(1 + 0.2 * normal(value).abs())
    return module.eval()


def ids(batch, length, seed=0, low=3):
    generator = torch.Generator().manual_seed(100 + seed + 31 * length + batch)
    return torch.randint(low, VOCAB, (batch, length), generator=generator)


def floats(*shape, seed=0):
    generator = torch.Generator().manual_seed(200 + seed + sum(shape))
    return torch.randn(shape, generator=generator)


def ragged(batch, length):
    """A mask of ones where row b has its last b * length / (2 batch) places cleared."""
    mask = torch.ones(batch, length, dtype=torch.int64)
    for b in range(1, batch):
        mask[b, length - max(1, b * length // (2 * batch)):] = 0
    return mask


SIZES = [(2, 12), (1, 7), (3, 19)]
IMAGES = [(2, 64, 64), (1, 64, 64), (3, 64, 64)]
FREE_IMAGES = [(2, 64, 64), (1, 96, 64), (3, 80, 112)]
TEXT_AXES = {0: "batch", 1: "seq"}


# ---- encoders of text -------------------------------------------------------------

class TextEncoder(nn.Module):
    def __init__(self, model, pooled=False):
        super().__init__()
        self.model = model
        self.pooled = pooled

    def forward(self, input_ids, attention_mask):
        out = self.model(input_ids=input_ids, attention_mask=attention_mask)
        if self.pooled:
            return out.last_hidden_state, out.pooler_output
        return out.last_hidden_state


class IdsEncoder(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids=input_ids).last_hidden_state


class BertEncoder(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, token_type_ids):
        out = self.model(input_ids=input_ids, attention_mask=attention_mask,
                         token_type_ids=token_type_ids)
        return out.last_hidden_state, out.pooler_output


def text_family(model, pooled=False, sizes=SIZES):
    names = ["last_hidden_state"] + (["pooler_output"] if pooled else [])
    return Family(randomise(TextEncoder(model, pooled)),
                  [(ids(b, s), ragged(b, s)) for b, s in sizes],
                  ["input_ids", "attention_mask"], names,
                  {"input_ids": TEXT_AXES, "attention_mask": TEXT_AXES})


SMALL = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2,
             num_attention_heads=4, intermediate_size=48)


def bert():
    model = tf.BertModel(tf.BertConfig(**SMALL, max_position_embeddings=64))
    sets = [(ids(b, s), ragged(b, s), (ids(b, s, 5) % 2)) for b, s in SIZES]
    names = ["input_ids", "attention_mask", "token_type_ids"]
    return Family(randomise(BertEncoder(model)), sets, names,
                  ["last_hidden_state", "pooler_output"], {n: TEXT_AXES for n in names})


def distilbert():
    return text_family(tf.DistilBertModel(tf.DistilBertConfig(
        vocab_size=VOCAB, dim=32, n_layers=2, n_heads=4, hidden_dim=48,
        max_position_embeddings=64)))


def mpnet():
    return text_family(tf.MPNetModel(tf.MPNetConfig(
        **SMALL, max_position_embeddings=64)), pooled=True)


def deberta_v2():
    return text_family(tf.DebertaV2Model(tf.DebertaV2Config(
        **SMALL, max_position_embeddings=64, relative_attention=True,
        position_buckets=8, max_relative_positions=32, norm_rel_ebd="layer_norm",
        pos_att_type=["p2c", "c2p"], share_att_key=True, type_vocab_size=0)))


def modernbert():
    """No query is without a key in its window: what PyTorch answers there depends on the
    kernel that it picks."""
    family = text_family(tf.ModernBertModel(tf.ModernBertConfig(
        vocab_size=VOCAB, hidden_size=32, num_hidden_layers=4, num_attention_heads=4,
        intermediate_size=48, max_position_embeddings=64, local_attention=8,
        global_attn_every_n_layers=3, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        cls_token_id=1, sep_token_id=2)))
    for _, mask in family.sets:
        mask[:, :-3] = 1
    return family


def fnet():
    model = tf.FNetModel(tf.FNetConfig(
        vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, intermediate_size=48,
        max_position_embeddings=64))
    return Family(randomise(IdsEncoder(model)), [(ids(b, s),) for b, s in SIZES],
                  ["input_ids"], ["last_hidden_state"], {"input_ids": TEXT_AXES})


def mamba():
    model = tf.MambaModel(tf.MambaConfig(
        vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, state_size=8,
        use_cache=False))
    sets = [(ids(2, 12),), (ids(1, 12, 1),), (ids(3, 12, 2),)]
    return Family(randomise(IdsEncoder(model)), sets, ["input_ids"],
                  ["last_hidden_state"], {"input_ids": {0: "batch"}})


def minilm_shape():
    """MiniLM-L6's own size with random weights."""
    model = tf.BertModel(tf.BertConfig(
        vocab_size=30522, hidden_size=384, num_hidden_layers=6,
        num_attention_heads=12, intermediate_size=1536))
    return text_family(model, pooled=True, sizes=[(2, 16), (1, 128), (3, 37)])


# ---- decoders of text -------------------------------------------------------------

class Causal(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask,
                          use_cache=False).logits


class CausalWithPast(nn.Module):
    """Two layers; past and present keys and values are inputs and outputs."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, past_k0, past_v0, past_k1, past_v1):
        cache = tf.DynamicCache([(past_k0, past_v0), (past_k1, past_v1)])
        out = self.model(input_ids=input_ids, attention_mask=attention_mask,
                         past_key_values=cache, use_cache=True)
        layers = out.past_key_values.layers
        return (out.logits, layers[0].keys, layers[0].values,
                layers[1].keys, layers[1].values)


def causal_family(model):
    return Family(randomise(Causal(model)),
                  [(ids(b, s), ragged(b, s)) for b, s in SIZES],
                  ["input_ids", "attention_mask"], ["logits"],
                  {"input_ids": TEXT_AXES, "attention_mask": TEXT_AXES})


def past_family(model, kv_heads, head_dim):
    sets = []
    for batch, past, new in [(2, 9, 3), (1, 4, 1), (3, 17, 2)]:
        mask = torch.ones(batch, past + new, dtype=torch.int64)
        mask[batch - 1, : past // 2] = 0
        keys = [floats(batch, kv_heads, past, head_dim, seed=k) for k in range(4)]
        sets.append((ids(batch, new), mask, *keys))
    names = ["past_k0", "past_v0", "past_k1", "past_v1"]
    axes = {"input_ids": {0: "batch", 1: "seq"}, "attention_mask": {0: "batch", 1: "total"}}
    axes.update({n: {0: "batch", 2: "past"} for n in names})
    return Family(randomise(CausalWithPast(model)), sets,
                  ["input_ids", "attention_mask"] + names,
                  ["logits", "present_k0", "present_v0", "present_k1", "present_v1"], axes)


def gpt2_model():
    return tf.GPT2LMHeadModel(tf.GPT2Config(
        vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=64,
        bos_token_id=1, eos_token_id=2))


def llama_model():
    return tf.LlamaForCausalLM(tf.LlamaConfig(
        **SMALL, num_key_value_heads=2, max_position_embeddings=64))


def qwen3_model():
    return tf.Qwen3ForCausalLM(tf.Qwen3Config(
        **SMALL, num_key_value_heads=2, head_dim=16, max_position_embeddings=64))


def gpt2():
    return causal_family(gpt2_model())


def gpt2_past():
    return past_family(gpt2_model(), 4, 8)


def llama():
    return causal_family(llama_model())


def llama_past():
    return past_family(llama_model(), 2, 8)


def qwen3():
    return causal_family(qwen3_model())


def qwen3_past():
    return past_family(qwen3_model(), 2, 16)


# ---- encoder and decoder ----------------------------------------------------------

class Seq2Seq(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, decoder_input_ids):
        return self.model(input_ids=input_ids, attention_mask=attention_mask,
                          decoder_input_ids=decoder_input_ids, use_cache=False).logits


def seq2seq_family(model):
    sets = [(ids(b, s), ragged(b, s), ids(b, t, 3)) for b, s, t in
            [(2, 12, 5), (1, 7, 1), (3, 19, 9)]]
    axes = {"input_ids": TEXT_AXES, "attention_mask": TEXT_AXES,
            "decoder_input_ids": {0: "batch", 1: "target"}}
    return Family(randomise(Seq2Seq(model)), sets, list(axes), ["logits"], axes)


def t5_config():
    return tf.T5Config(vocab_size=VOCAB, d_model=32, d_kv=8, d_ff=48, num_layers=2,
                       num_heads=4, relative_attention_num_buckets=8,
                       relative_attention_max_distance=16, decoder_start_token_id=0)


def t5_encoder():
    return text_family(tf.T5EncoderModel(t5_config()))


def t5():
    return seq2seq_family(tf.T5ForConditionalGeneration(t5_config()))


def bart():
    return seq2seq_family(tf.BartForConditionalGeneration(tf.BartConfig(
        vocab_size=VOCAB, d_model=32, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
        decoder_ffn_dim=48, max_position_embeddings=64)))


class WhisperDecoder(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.decoder = model.model.decoder
        self.head = model.proj_out

    def forward(self, decoder_input_ids, encoder_hidden_states):
        out = self.decoder(input_ids=decoder_input_ids,
                           encoder_hidden_states=encoder_hidden_states, use_cache=False)
        return self.head(out.last_hidden_state)


class First(nn.Module):
    """A model with one tensor in; the named fields come out."""

    def __init__(self, model, fields):
        super().__init__()
        self.model = model
        self.fields = fields

    def forward(self, x):
        out = self.model(x)
        values = tuple(getattr(out, field) for field in self.fields)
        return values if len(values) > 1 else values[0]


def whisper_model():
    return tf.WhisperForConditionalGeneration(tf.WhisperConfig(
        vocab_size=VOCAB, d_model=32, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
        decoder_ffn_dim=48, num_mel_bins=16, max_source_positions=30,
        max_target_positions=40, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1))


def whisper_encoder():
    return Family(randomise(First(whisper_model().model.encoder, ["last_hidden_state"])),
                  [(floats(b, 16, 60),) for b in (2, 1, 3)], ["input_features"],
                  ["last_hidden_state"], {"input_features": {0: "batch"}})


def whisper_decoder():
    sets = [(ids(b, t), floats(b, 30, 32)) for b, t in [(2, 6), (1, 1), (3, 11)]]
    axes = {"decoder_input_ids": {0: "batch", 1: "target"},
            "encoder_hidden_states": {0: "batch"}}
    return Family(randomise(WhisperDecoder(whisper_model())), sets, list(axes),
                  ["logits"], axes)


def wav2vec2():
    model = tf.Wav2Vec2ForCTC(tf.Wav2Vec2Config(
        **SMALL, conv_dim=(16, 16, 16), conv_stride=(5, 2, 2), conv_kernel=(10, 3, 3),
        num_feat_extract_layers=3, num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4, mask_time_prob=0.0))
    return Family(randomise(First(model, ["logits"])),
                  [(floats(2, 800),), (floats(1, 500),), (floats(3, 1234),)],
                  ["input_values"], ["logits"], {"input_values": {0: "batch", 1: "samples"}})


# ---- images -----------------------------------------------------------------------

def image_family(model, fields, sizes=IMAGES):
    axes = {0: "batch"}
    if sizes is FREE_IMAGES:
        axes = {0: "batch", 2: "height", 3: "width"}
    return Family(randomise(First(model, fields)),
                  [(floats(b, 3, h, w),) for b, h, w in sizes], ["pixel_values"],
                  list(fields), {"pixel_values": axes})


def vit():
    return image_family(tf.ViTModel(tf.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=48, image_size=64, patch_size=16)),
        ["last_hidden_state", "pooler_output"])


def swin():
    return image_family(tf.SwinModel(tf.SwinConfig(
        image_size=64, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4],
        window_size=4)), ["last_hidden_state", "pooler_output"])


def segformer():
    return image_family(tf.SegformerForSemanticSegmentation(tf.SegformerConfig(
        depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 32, 48],
        num_attention_heads=[1, 2, 2, 4], decoder_hidden_size=32, num_labels=7)),
        ["logits"])


def convnext():
    return image_family(tf.ConvNextModel(tf.ConvNextConfig(
        depths=[1, 1, 2, 1], hidden_sizes=[16, 24, 32, 48])),
        ["last_hidden_state", "pooler_output"])


def resnet():
    return image_family(tf.ResNetForImageClassification(tf.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 24, 32, 48], depths=[1, 1, 2, 1],
        layer_type="bottleneck", num_labels=10)), ["logits"], FREE_IMAGES)


def resnet_basic():
    return image_family(tf.ResNetForImageClassification(tf.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 24], depths=[2, 1], layer_type="basic",
        num_labels=10)), ["logits"])


def resnet50_shape():
    """ResNet-50's own size with random weights."""
    family = image_family(tf.ResNetForImageClassification(tf.ResNetConfig(
        num_labels=1000)), ["logits"])
    family.sets = [(floats(b, 3, 224, 224, seed=s),) for b, s in [(1, 0), (1, 1), (2, 2)]]
    return family


def mobilenet_v2():
    return image_family(tf.MobileNetV2ForImageClassification(tf.MobileNetV2Config(
        depth_multiplier=0.25, image_size=64, num_labels=10)), ["logits"])


def efficientnet():
    return image_family(tf.EfficientNetForImageClassification(tf.EfficientNetConfig(
        image_size=64, width_coefficient=0.25, depth_coefficient=0.3, hidden_dim=320,
        num_labels=10)), ["logits"])


class UNet(nn.Module):
    """Two levels: strided Conv down; ConvTranspose and Resize up; concatenations."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8),
                                  nn.ReLU())
        self.down1 = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1),
                                   nn.GroupNorm(4, 16), nn.SiLU())
        self.down2 = nn.Sequential(nn.Conv2d(16, 24, 3, stride=2, padding=1), nn.GELU())
        self.up2 = nn.ConvTranspose2d(24, 16, 2, stride=2)
        self.mix2 = nn.Conv2d(32, 16, 3, padding=1)
        self.up1 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.near = nn.Upsample(scale_factor=2, mode="nearest")
        self.mix1 = nn.Conv2d(40, 8, 3, padding=1)
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x):
        a = self.stem(x)
        b = self.down1(a)
        c = self.down2(b)
        d = torch.relu(self.mix2(torch.cat([self.up2(c), b], dim=1)))
        e = torch.cat([self.up1(d), self.near(b), a], dim=1)
        return self.head(nn.functional.leaky_relu(self.mix1(e)))


def unet():
    return Family(randomise(UNet()), [(floats(b, 3, h, w),) for b, h, w in FREE_IMAGES],
                  ["image"], ["mask"],
                  {"image": {0: "batch", 2: "height", 3: "width"}})


# ---- recurrent layers and nn.Transformer ------------------------------------------

class Recurrent(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        y, state = self.layer(x)
        return (y, *state) if isinstance(state, tuple) else (y, state)


def recurrent_family(kind, batch_first=True, **options):
    layer = kind(10, 12, batch_first=batch_first, **options)
    sets = []
    for batch, length in SIZES:
        shape = (batch, length) if batch_first else (length, batch)
        sets.append((floats(*shape, 10),))
    axes = {0: "batch", 1: "seq"} if batch_first else {0: "seq", 1: "batch"}
    outputs = ["y", "h"] + (["c"] if kind is nn.LSTM else [])
    return Family(randomise(Recurrent(layer)), sets, ["x"], outputs, {"x": axes})


def lstm():
    return recurrent_family(nn.LSTM)


def lstm_2_bi():
    return recurrent_family(nn.LSTM, num_layers=2, bidirectional=True)


def lstm_time_first():
    return recurrent_family(nn.LSTM, batch_first=False, bias=False)


def gru():
    return recurrent_family(nn.GRU)


def gru_2_bi():
    return recurrent_family(nn.GRU, num_layers=2, bidirectional=True, batch_first=False)


def rnn():
    return recurrent_family(nn.RNN)


def rnn_2_bi():
    return recurrent_family(nn.RNN, num_layers=2, bidirectional=True,
                            nonlinearity="relu")


def rnn_fixed():
    """The newer exporter unrolls nn.RNN: the length is fixed."""
    family = recurrent_family(nn.RNN)
    family.sets = [(floats(batch, 12, 10),) for batch in (2, 1, 3)]
    family.axes = {"x": {0: "batch"}}
    return family


class TorchTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Transformer(32, 4, 2, 2, 48, batch_first=True, dropout=0.0)

    def forward(self, source, target, target_mask):
        return self.layers(source, target, tgt_mask=target_mask,
                           tgt_is_causal=False)


def nn_transformer():
    def mask(n):
        return torch.triu(torch.full((n, n), float("-inf")), diagonal=1)

    sets = [(floats(b, s, 32), floats(b, t, 32, seed=4), mask(t))
            for b, s, t in [(2, 12, 5), (1, 7, 3), (3, 19, 9)]]
    axes = {"source": TEXT_AXES, "target": {0: "batch", 1: "target"},
            "target_mask": {0: "target", 1: "target"}}
    return Family(randomise(TorchTransformer()), sets, list(axes), ["y"], axes)


# name -> (function, what the short mode exports). "d18": dynamo at opset 18; "o13":
# the older exporter at opset 13.
FAMILIES = {
    "bert": (bert, "d18 o13"), "distilbert": (distilbert, "d20"),
    "mpnet": (mpnet, "o17"), "deberta_v2": (deberta_v2, "d18"),
    "modernbert": (modernbert, "d23 d18"), "fnet": (fnet, "d20"),
    "mamba": (mamba, "d18"), "gpt2": (gpt2, "o13"), "gpt2_past": (gpt2_past, "d18"),
    "llama": (llama, "d23 D23"), "llama_past": (llama_past, "d18 o17"),
    "qwen3": (qwen3, "d20"), "qwen3_past": (qwen3_past, "D23"),
    "t5_encoder": (t5_encoder, "o13"), "t5": (t5, "d20"), "bart": (bart, "d18"),
    "whisper_encoder": (whisper_encoder, "d18"),
    "whisper_decoder": (whisper_decoder, "d23"), "wav2vec2": (wav2vec2, "d18"),
    "vit": (vit, "d20"), "swin": (swin, "d18"), "segformer": (segformer, "d18"),
    "convnext": (convnext, "d20"), "resnet": (resnet, "d18 o11"),
    "resnet_basic": (resnet_basic, "o13"), "mobilenet_v2": (mobilenet_v2, "d18"),
    "efficientnet": (efficientnet, "o17"), "unet": (unet, "d18 o13"),
    "lstm": (lstm, "o13"), "lstm_2_bi": (lstm_2_bi, "d18"),
    "lstm_time_first": (lstm_time_first, "o17"), "gru": (gru, "d18"),
    "gru_2_bi": (gru_2_bi, "o13"), "rnn": (rnn, "o11"), "rnn_2_bi": (rnn_2_bi, "o17"),
    "rnn_fixed": (rnn_fixed, "d18"),
    "nn_transformer": (nn_transformer, "d18"),
    "minilm_shape": (minilm_shape, "d18"), "resnet50_shape": (resnet50_shape, "d18"),
}
