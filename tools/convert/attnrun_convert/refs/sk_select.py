"""SKSelect: a sum over branches f_m of maps, weighted by a softmax across branches, for
each channel, of an MLP over the channel means of their sum."""
import torch
from torch.nn import functional

from ..operators import example, operator

MAP = "B . h w"
MOST = 8


@operator("SKSelect",
          inputs=["w1", "b1?", "wsel", "bsel?", f"identity?: {MAP}",
                  f"f_0: {MAP}", f"f_1: {MAP}"] + [f"f_{m}?: {MAP}" for m in range(2, MOST)],
          outputs=["Y"], attributes={"activation": "none", "post_activation": "none"},
          examples=[
              example(w1=(3, 6), b1=(3,), wsel=(2, 6, 3), bsel=(2, 6), f_0=(2, 6, 5, 4),
                      f_1=(2, 6, 5, 4)),
              example(w1=(4, 7), wsel=(2, 7, 4), f_0=(3, 7, 6, 3), f_1=(3, 7, 6, 3),
                      activation="relu"),
              example(w1=(5, 3), wsel=(3, 3, 5), identity=(1, 3, 4, 7), f_0=(1, 3, 4, 7),
                      f_1=(1, 3, 4, 7), f_2=(1, 3, 4, 7), post_activation="relu")])
def sk_select(w1, b1, wsel, bsel, identity, f_0, f_1, *others, activation, post_activation):
    branches = [f_0, f_1] + [f for f in others if f is not None]
    z = functional.linear(sum(branches).mean((2, 3)), w1, b1)
    if activation == "relu":
        z = functional.relu(z)
    logits = torch.einsum("mcd,bd->mbc", wsel, z)
    if bsel is not None:
        logits = logits + bsel[:, None]
    weights = torch.softmax(logits, 0)[..., None, None]
    y = sum(weights[m] * f for m, f in enumerate(branches))
    if identity is not None:
        y = y + identity
    return functional.relu(y) if post_activation == "relu" else y
