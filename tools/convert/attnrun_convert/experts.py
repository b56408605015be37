"""Mixtures of experts of transformers while a module is exported.

Their own code multiplies groups of tokens whose lengths are data, or picks a matrix for each
token, which no file of a sensible size is. In: a module. Out: the same with, for each mixture,
com.microsoft MoE where its experts are silu(gate) * up in float32, which runs the chosen experts
alone; else all experts of all tokens, whose results are added with the weights of the router.
"""
import contextlib
import types

import torch
from torch import nn

from . import registry

DOMAIN = "com.microsoft"
LEAST = 1e-30  # the weight of an expert that is not chosen: its logarithm is finite


def _is_mixture(part):
    """Of a class that transformers' use_experts_implementation has decorated, and without a
    forward of its own."""
    return "forward" not in vars(part) and all(hasattr(part, name) for name in (
        "num_experts", "has_gate", "has_bias", "is_transposed", "down_proj", "_apply_gate")) \
        and isinstance(part.down_proj, nn.Parameter) and part.down_proj.dim() == 3


def _is_operator(part):
    return (part.has_gate and not part.has_bias and not part.is_transposed
            and getattr(part, "is_concatenated", True)
            and not getattr(part, "has_post_expert_norm", False)
            and part._apply_gate.__name__ == "_default_apply_gate"
            and type(getattr(part, "act_fn", None)).__name__ in ("SiLU", "SiLUActivation")
            and part.down_proj.dtype == torch.float32)


def _by_expert(part, top_k_index, top_k_weights):
    """(tokens, experts): the weight of each expert, 0 where it is not chosen."""
    experts = torch.arange(part.num_experts, device=top_k_index.device)
    chosen = top_k_index[..., None] == experts
    return torch.where(chosen, top_k_weights[..., None], 0.0).sum(1)


def _operator(self, hidden_states, top_k_index, top_k_weights):
    """The router's softmax of the logarithms of weights gives these weights over their sum."""
    weights = _by_expert(self, top_k_index, top_k_weights)
    operands = [hidden_states, weights.clamp(min=LEAST).log(), self.attnrun_pairs, None,
                self.down_proj]
    given = {"k": top_k_index.shape[-1], "normalize_routing_weights": 1,
             "activation_type": "swiglu", "swiglu_fusion": 1}
    y = torch.onnx.ops.symbolic(f"{DOMAIN}::MoE", operands, given, dtype=hidden_states.dtype,
                                shape=hidden_states.shape, version=1)
    return y * weights.sum(-1, keepdim=True)


def _pairs(part):
    """Rows of gate and up in turn, the one layout that ONNX Runtime takes, too."""
    rows = part.gate_up_proj.detach()
    return torch.stack(rows.chunk(2, 1), 2).flatten(1, 2)


def _linear(part, x, name, expert):
    weight = getattr(part, name)[expert]
    y = x @ (weight if part.is_transposed else weight.mT)
    return y + getattr(part, f"{name}_bias")[expert] if part.has_bias else y


def _all(self, hidden_states, top_k_index, top_k_weights):
    weights = _by_expert(self, top_k_index, top_k_weights).to(hidden_states.dtype)
    total = torch.zeros_like(hidden_states)
    for expert in range(self.num_experts):
        if self.has_gate:
            y = self._apply_gate(_linear(self, hidden_states, "gate_up_proj", expert))
        else:
            y = self.act_fn(_linear(self, hidden_states, "up_proj", expert))
        y = _linear(self, y, "down_proj", expert)
        if getattr(self, "has_post_expert_norm", False):
            y = self.post_expert_norm(y)
        total = total + y * weights[:, expert, None]
    return total


def lines(module):
    """What becomes of the mixtures of a module, a sentence for each kind."""
    found = {type(part).__name__: _is_operator(part) for part in module.modules()
             if _is_mixture(part)}
    return [f"{kind}: MoE of com.microsoft" if operator else
            f"{kind}: all experts of all tokens are computed, since they are not silu(gate) * up "
            "in float32" for kind, operator in found.items()]


@contextlib.contextmanager
def as_nodes(module):
    """Inside, the mixtures of `module` export as nodes; eager they don't run."""
    found = [part for part in module.modules() if _is_mixture(part)]
    try:
        for part in found:
            operator = _is_operator(part)
            if operator:
                part.register_buffer("attnrun_pairs", _pairs(part), persistent=False)
            forward = types.MethodType(_operator if operator else _all, part)
            part.forward = registry.with_signature(part, forward)
        yield
    finally:
        for part in found:
            part.__dict__.pop("forward", None)
            part._buffers.pop("attnrun_pairs", None)
