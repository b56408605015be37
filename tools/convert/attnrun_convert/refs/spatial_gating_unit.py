"""SpatialGatingUnit: with [u | g] = X, u * act(Ws[h] LayerNorm(g) + bs[h] + gate_res)."""
import torch
from torch.nn import functional

from ..operators import example, operator

ACTIVATIONS = {"none": lambda x: x, "tanh": torch.tanh, "silu": functional.silu,
               "gelu": functional.gelu}


@operator("SpatialGatingUnit",
          inputs=["X: B N .", "gamma", "beta", "Ws", "bs", "gate_res?: B N ."],
          outputs=["Y"],
          attributes={"num_heads": 1, "is_causal": 0, "activation": "none", "epsilon": 1e-5},
          examples=[
              example(X=(2, 5, 16), gamma=(8,), beta=(8,), Ws=(1, 5, 5), bs=(1, 5),
                      sizes=None),
              example(X=(2, 4, 12), gamma=(6,), beta=(6,), Ws=(2, 9, 9), bs=(2, 9),
                      gate_res=(2, 4, 6), num_heads=2, is_causal=1, activation="gelu"),
              example(X=(1, 6, 20), gamma=(10,), beta=(10,), Ws=(5, 6, 6), bs=(5, 6),
                      num_heads=5, activation="silu", epsilon=0.1, sizes=None)],
          note="the length is fixed by Ws unless causal")
def spatial_gating_unit(X, gamma, beta, Ws, bs, gate_res, *, num_heads, is_causal, activation,
                        epsilon):
    u, g = X.chunk(2, dim=-1)
    tokens = X.shape[1]
    g = functional.layer_norm(g, gamma.shape, gamma, beta, epsilon)
    if is_causal:
        Ws, bs = torch.tril(Ws[:, :tokens, :tokens]), bs[:, :tokens]
    heads = g.reshape(*g.shape[:2], num_heads, -1).transpose(1, 2)
    gate = (Ws @ heads + bs[:, :, None]).transpose(1, 2).flatten(2)
    if gate_res is not None:
        gate = gate + gate_res
    return u * ACTIVATIONS[activation](gate)
