"""Longformer's self-attention of transformers, and LED's encoder, which copies it.

attention_mask (B, N) is below zero for padding, above it for global tokens. The models pad
to a multiple of the window and cut it off again; the operator takes any length, so they no
longer do: an export would keep one side of that decision, for all lengths.
"""
import contextlib
import inspect

from ..call import call
from ..registry import Adapter, companion, need, need_linear

LONGFORMER = "transformers.models.longformer.modeling_longformer."
LED = "transformers.models.led.modeling_led."


class LongformerSelfAttention(Adapter):
    names = (LONGFORMER + "LongformerSelfAttention", LED + "LEDEncoderSelfAttention")
    shapes = (("query_global", "value_global", "one_sided_attn_window_size"),)
    operator = "LongformerAttention"

    def check(self):
        need_linear(self.module, "query", "key", "value", "query_global", "key_global",
                    "value_global")
        need(isinstance(getattr(self.module, "one_sided_attn_window_size", None), int),
             "it has no one_sided_attn_window_size")

    def tensors(self):
        m = self.module
        layers = {"q": m.query_global, "k": m.key_global, "v": m.value_global}
        return {f"w{name}g": layer.weight.t() for name, layer in layers.items()}

    def forward(self, hidden_states, attention_mask=None, is_index_masked=None,
                is_index_global_attn=None, is_global_attn=None, output_attentions=False):
        m = self.module
        need(not output_attentions, "output_attentions=True asks for the weights")
        need(attention_mask is not None, "it is called without attention_mask")
        y = call("LongformerAttention", m.query(hidden_states), m.key(hidden_states),
                 m.value(hidden_states), attention_mask >= 0, attention_mask > 0, None, None,
                 None, hidden_states, self.tensor("wqg"), self.tensor("wkg"),
                 self.tensor("wvg"), m.query_global.bias, m.key_global.bias,
                 m.value_global.bias, q_num_heads=m.num_heads,
                 window=[m.one_sided_attn_window_size])
        return (y,)


@companion(LONGFORMER + "LongformerModel", "_pad_to_window_size", LongformerSelfAttention)
def _longformer_pads_nothing(self, input_ids, attention_mask, token_type_ids, position_ids,
                             inputs_embeds, pad_token_id):
    return 0, input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds


@companion(LED + "LEDEncoder", "_pad_to_window_size", LongformerSelfAttention)
def _led_pads_nothing(self, input_ids, attention_mask, inputs_embeds, pad_token_id):
    return 0, input_ids, attention_mask, inputs_embeds


@contextlib.contextmanager
def unfolded(model):
    """The model with config.onnx_export, as it was afterwards. Without it, a layer that is not
    replaced cuts its chunks by strides, and the exporter writes them for another layout than that
    of the tensor: the file would compute something else."""
    undo = []
    for part in model.modules():
        chunk, config = getattr(part, "_chunk", None), getattr(part, "config", None)
        if not callable(chunk) or "onnx_export" not in inspect.signature(chunk).parameters:
            continue
        if config is not None and not getattr(config, "onnx_export", False):
            undo.append((config, hasattr(config, "onnx_export")))
            config.onnx_export = True
    try:
        yield
    finally:
        for config, had in undo:
            if had:
                config.onnx_export = False
            else:
                del config.onnx_export
