"""LED: LEDForConditionalGeneration of transformers, the self-attention of its encoder
swapped as in Longformer; the decoder is a plain one."""
import types

from torch import nn
from transformers import LEDConfig, LEDForConditionalGeneration
from transformers.models.led.modeling_led import LEDEncoderSelfAttention

from . import _parts as parts
from .longformer import attention, global_mask


def no_padding(self, input_ids, attention_mask, inputs_embeds, pad_token_id):
    return 0, input_ids, attention_mask, inputs_embeds


class Outputs(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, global_attention_mask, decoder_input_ids):
        return self.model(input_ids=input_ids, attention_mask=attention_mask,
                          global_attention_mask=global_attention_mask,
                          decoder_input_ids=decoder_input_ids, use_cache=False).logits


def build():
    upstream = parts.randomise(Outputs(LEDForConditionalGeneration(LEDConfig(
        vocab_size=parts.VOCABULARY, d_model=parts.WIDTH, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=parts.HEADS, decoder_attention_heads=parts.HEADS,
        encoder_ffn_dim=2 * parts.WIDTH, decoder_ffn_dim=2 * parts.WIDTH,
        max_encoder_position_embeddings=128, max_decoder_position_embeddings=64,
        attention_window=8))))
    module = parts.swapped(upstream, {LEDEncoderSelfAttention: attention})
    encoder = module.model.led.encoder
    encoder._pad_to_window_size = types.MethodType(no_padding, encoder)
    sets = [(parts.ids(b, n), parts.ragged(b, n), global_mask(b, n), parts.ids(b, m, 1))
            for b, n, m in ((2, 40, 9), (3, 61, 22))]
    return module, upstream, sets
