"""A decoder layer with the gated delta rule: Qwen3NextDecoderLayer of transformers with a
dense feed-forward. Its short convolution and its recurrence are ONNX's CausalConvWithState
and LinearAttention of opset 27; their states go in and come out.

Upstream computes a whole sequence at once, and has no other words for a part of one: the
expected outputs are rows of the whole, states are what it has there."""
import onnx
import torch
from torch import nn
from transformers import Qwen3NextConfig
from transformers.models.qwen3_next import modeling_qwen3_next as upstream

from . import _parts as parts

KEY_HEADS, VALUE_HEADS, HEAD, KERNEL = 2, 4, 16, 4
OPSET, DRAFT = 27, "draft"


def layer():
    config = Qwen3NextConfig(
        vocab_size=parts.VOCABULARY, hidden_size=parts.WIDTH, num_hidden_layers=1,
        intermediate_size=2 * parts.WIDTH, num_attention_heads=parts.HEADS,
        num_key_value_heads=2, linear_num_key_heads=KEY_HEADS,
        linear_num_value_heads=VALUE_HEADS, linear_key_head_dim=HEAD,
        linear_value_head_dim=HEAD, linear_conv_kernel_dim=KERNEL,
        layer_types=["linear_attention"], mlp_only_layers=[0])
    return upstream.Qwen3NextDecoderLayer(config, 0)


def convolved(x, weight, past):
    """SiLU of a causal convolution of each channel, and the last columns of the input."""
    if torch.compiler.is_exporting():
        return torch.onnx.ops.symbolic_multi_out(
            f"{DRAFT}::CausalConvWithState", [x, weight, None, past], {"activation": "silu"},
            dtypes=[x.dtype] * 2, shapes=[x.shape, past.shape], version=1)
    whole = torch.cat([past, x], dim=2)
    y = nn.functional.conv1d(whole, weight, groups=weight.shape[0])
    return nn.functional.silu(y), whole[:, :, 1 - KERNEL:]


def recurred(q, k, v, past, decay, beta):
    """The gated delta rule, all of (batch, tokens, heads * size)."""
    if torch.compiler.is_exporting():
        return torch.onnx.ops.symbolic_multi_out(
            f"{DRAFT}::LinearAttention", [q, k, v, past, decay, beta],
            {"q_num_heads": VALUE_HEADS, "kv_num_heads": VALUE_HEADS,
             "update_rule": "gated_delta", "scale": HEAD ** -0.5},
            dtypes=[q.dtype] * 2, shapes=[v.shape, past.shape], version=1)
    q, k, v = (x.unflatten(2, (VALUE_HEADS, HEAD)) for x in (q, k, v))
    y, state = upstream.torch_recurrent_gated_delta_rule(
        q, k, v, g=decay, beta=beta, initial_state=past, output_final_state=True)
    return y.flatten(2), state


class Layer(nn.Module):
    """The layer with its states outside."""

    def __init__(self, whole):
        super().__init__()
        self.layer = whole

    def attend(self, x, conv_state, state):
        net = self.layer.linear_attn
        q, k, v, z, b, a = net.fix_query_key_value_ordering(net.in_proj_qkvz(x),
                                                            net.in_proj_ba(x))
        mixed = torch.cat([part.flatten(2) for part in (q, k, v)], dim=2)
        mixed, conv_state = convolved(mixed.transpose(1, 2), net.conv1d.weight, conv_state)
        q, k, v = mixed.transpose(1, 2).split([net.key_dim, net.key_dim, net.value_dim], 2)
        groups = VALUE_HEADS // KEY_HEADS
        q, k = (upstream.l2norm(x.unflatten(2, (KEY_HEADS, HEAD)), dim=-1, eps=1e-6)
                .repeat_interleave(groups, dim=2).flatten(2) for x in (q, k))
        decay = -net.A_log.exp() * nn.functional.softplus(a + net.dt_bias)
        y, state = recurred(q, k, v, state, decay, torch.sigmoid(b))
        y = net.norm(y.unflatten(2, (VALUE_HEADS, HEAD)), z)
        return net.out_proj(y.flatten(2)), conv_state, state

    def forward(self, hidden_states, conv_state, state):
        part = self.layer
        y, conv_state, state = self.attend(part.input_layernorm(hidden_states), conv_state,
                                           state)
        x = hidden_states + y
        return x + part.mlp(part.post_attention_layernorm(x)), conv_state, state


class Whole:
    """Upstream's layer, run over the tokens before and the new ones."""

    def __init__(self, part):
        self.part, self.before = part, {}

    def run(self, x):
        """(hidden states, state of the convolution, state of the recurrence)"""
        caught = []
        rule = upstream.torch_chunk_gated_delta_rule
        net, part = self.part.linear_attn, self.part

        def catching(*operands, **options):
            caught.append(rule(*operands, **{**options, "output_final_state": True}))
            return caught[-1]

        upstream.torch_chunk_gated_delta_rule = catching
        try:
            y = part(x, position_embeddings=None)
        finally:
            upstream.torch_chunk_gated_delta_rule = rule
        projected = net.fix_query_key_value_ordering(
            net.in_proj_qkvz(part.input_layernorm(x)), net.in_proj_ba(x))[:3]
        mixed = torch.cat([p.flatten(2) for p in projected], dim=2).transpose(1, 2)
        last = nn.functional.pad(mixed, (KERNEL - 1, 0))[:, :, 1 - KERNEL:]
        return y[0] if isinstance(y, tuple) else y, last, caught[0][1]

    def __call__(self, hidden_states, conv_state, state):
        before = self.before[hidden_states.shape]
        y, *states = self.run(torch.cat([before, hidden_states], dim=1))
        return (y[:, before.shape[1]:], *states)

    def inputs(self, batch, past, new):
        before = parts.floats(batch, past, parts.WIDTH, seed=1)
        x = parts.floats(batch, new, parts.WIDTH, seed=2)
        self.before[x.shape] = before
        channels = self.part.linear_attn.conv_dim
        if past == 0:
            return (x, torch.zeros(batch, channels, KERNEL - 1),
                    torch.zeros(batch, VALUE_HEADS, HEAD, HEAD))
        with torch.no_grad():
            return (x, *self.run(before)[1:])


def finish(path):
    """The exporter knows no opset 27: its nodes come from a domain of their own until here.
    The others mean the same in it as in 18."""
    model = onnx.load(path)
    for node in model.graph.node:
        node.domain = "" if node.domain == DRAFT else node.domain
    del model.opset_import[:]
    model.opset_import.append(onnx.helper.make_opsetid("", OPSET))
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


def build():
    part = parts.randomise(layer())
    part.linear_attn.A_log.data -= 3  # a state that lasts for some ten tokens
    whole = Whole(part)
    sets = [whole.inputs(2, 0, 37), whole.inputs(3, 21, 6), whole.inputs(2, 30, 1)]
    return Layer(part).eval(), whole, sets
