"""Golden cases of LongformerAttention: LongformerSelfAttention and LEDEncoderSelfAttention
of transformers, whose Linear layers are applied here (global ones by the operator)."""
import torch
from transformers import LEDConfig, LongformerConfig
from transformers.models.led.modeling_led import LEDEncoderSelfAttention
from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

from golden import random, write


def layer(kind, config, width, seed):
    torch.manual_seed(seed)
    module = kind(config, layer_id=0).eval()
    for parameter in module.parameters():
        parameter.data = torch.randn_like(parameter) * width ** -0.5
    return module


def upstream(module, x, merged):
    """`merged`: < 0 masked, 0 local, > 0 global."""
    with torch.no_grad():
        return module(x, attention_mask=merged.float() * 10000,
                      is_index_masked=merged < 0, is_index_global_attn=merged > 0,
                      is_global_attn=bool((merged > 0).any()))[0]


def case(name, module, x, merged, window, heads, weights):
    query, key, value = module.query(x), module.key(x), module.value(x)
    inputs = [query, key, value, merged >= 0, merged > 0]
    if weights:
        layers = module.query_global, module.key_global, module.value_global
        inputs += [None] * 3 + [x] + [m.weight.T.contiguous() for m in layers]
        inputs += [m.bias for m in layers]
    else:
        inputs += [module.query_global(x), module.key_global(x), module.value_global(x)]
    inputs = [None if t is None else t.detach() for t in inputs]
    write(name, "LongformerAttention", dict(q_num_heads=heads, window=[window]), inputs,
          [upstream(module, x, merged)], "transformers", type(module).__name__,
          (1e-4, 1e-5))


def main():
    config = LongformerConfig(hidden_size=18, num_attention_heads=3, attention_window=[8],
                              num_hidden_layers=1)
    merged = torch.zeros(2, 24, dtype=torch.int64)
    merged[0, [0, 17]] = 1
    merged[0, 21:] = -1
    merged[1, 5] = 1
    case("longformer_weights", layer(LongformerSelfAttention, config, 18, 1),
         random(1, 2, 24, 18), merged, 4, 3, True)
    config = LEDConfig(d_model=16, encoder_attention_heads=2, attention_window=[4],
                       encoder_layers=1)
    merged = torch.zeros(1, 20, dtype=torch.int64)
    merged[0, :11] = 1
    case("longformer_many_globals", layer(LEDEncoderSelfAttention, config, 16, 2),
         random(2, 1, 20, 16), merged, 2, 2, True)
    merged = torch.tensor([[1] + [0] * 11] * 2)
    case("longformer_projected", layer(LEDEncoderSelfAttention, config, 16, 3),
         random(3, 2, 12, 16), merged, 2, 2, False)


main()
