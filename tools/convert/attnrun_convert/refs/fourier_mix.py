"""FourierMix: the real part of the Fourier transform over tokens and channels."""
import math

import torch

from ..operators import example, operator


def waves(n, like):
    """cos and sin of 2 pi a b / n, (n, n). The product is taken mod n, so that large n
    keep their precision."""
    places = torch.arange(n, device=like.device)
    turns = torch.remainder(places[:, None] * places, places[-1] + 1)
    angles = turns.to(like.dtype) * (2 * math.pi / n)
    return torch.cos(angles), torch.sin(angles)


@operator("FourierMix", inputs=["X: B N ."], outputs=["Y"], attributes={},
          examples=[example(X=(2, 5, 7), tolerance=(1e-5, 5e-5)),
                    example(X=(1, 16, 12), tolerance=(1e-5, 1e-4))])
def fourier_mix(X):
    token_cos, token_sin = waves(X.shape[1], X)
    channel_cos, channel_sin = waves(X.shape[2], X)
    return token_cos @ (X @ channel_cos) - token_sin @ (X @ channel_sin)
