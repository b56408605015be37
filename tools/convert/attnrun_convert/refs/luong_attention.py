"""LuongAttention: softmax_j(score) values, over all keys or in a window around a centre."""
import torch

from ..operators import Data, example, mask, operator
from ._heads import all_of, masked_softmax
from ._tokens import additive_scores, over_tokens


def _fractions(*shape):
    return Data(shape, lambda generator, shape: torch.rand(shape, generator=generator))


def _prefix(*shape):
    def make(generator, shape):
        lens = torch.randint(0, shape[1] + 1, (shape[0], 1), generator=generator)
        return torch.arange(shape[1]) < lens
    return Data(shape, make)


def _centres(query, keys, pos, key_mask, step_offset):
    """p of (B, Nq), or (1, Nq)."""
    if pos is None:
        rows = torch.arange(query.shape[1], device=query.device)
        return (rows + step_offset).to(query.dtype)[None]
    if key_mask is None:
        return pos * keys.shape[1]
    return pos * key_mask.to(query.dtype).sum(dim=1, keepdim=True)


def _local(scores, centre, allowed, window, sigma, before):
    columns = torch.arange(scores.shape[2], device=scores.device).to(scores.dtype)
    near = (columns - torch.floor(centre)[..., None]).abs() <= window
    allowed = all_of(near, allowed)
    if sigma is None:
        return masked_softmax(scores, allowed)
    bell = torch.exp(-((columns - centre[..., None]) / sigma) ** 2 / 2)
    if before:
        return masked_softmax(scores * bell, allowed)
    return masked_softmax(scores, allowed) * bell


@operator("LuongAttention",
          inputs=["query: B Nq .", "keys: B Nk .", "values?: B Nk .", "pos?: B Nq", "v?",
                  "key_mask?: B Nk"],
          outputs=["Y", "weights"],
          attributes={"score": "dot", "mode": "global", "scale": 1.0, "window": 10,
                      "gaussian": None, "sigma": None, "gaussian_at": "after",
                      "step_offset": 0},
          note="the body forms Nq x Nk, with score concat Nq x Nk x units",
          examples=[
              example(query=(2, 5, 8), keys=(2, 7, 8)),
              example(outputs=2, scale=0.5, query=(2, 5, 8), keys=(2, 7, 8), values=(2, 7, 6),
                      key_mask=mask(2, 7)),
              example(outputs=2, score="concat", query=(2, 5, 8), keys=(2, 7, 8), v=(8,)),
              example(outputs=2, mode="local_m", window=2, step_offset=3, query=(2, 5, 8),
                      keys=(2, 11, 8), key_mask=_prefix(2, 11)),
              example(outputs=2, mode="local_p", window=3, scale=0.3, query=(2, 5, 8),
                      keys=(2, 11, 8), pos=_fractions(2, 5), key_mask=_prefix(2, 11)),
              example(mode="local_p", score="concat", window=2, gaussian_at="before",
                      sigma=1.5, query=(2, 5, 8), keys=(2, 11, 8), v=(8,),
                      pos=_fractions(2, 5)),
          ])
def luong_attention(query, keys, values, pos, v, key_mask, *, score, mode, scale, window,
                    gaussian, sigma, gaussian_at, step_offset):
    if score == "concat":
        scores = additive_scores(query, keys, v, None) * scale
    else:
        scores = query @ keys.transpose(1, 2) * scale
    allowed = over_tokens(key_mask)
    if mode == "global":
        weights = masked_softmax(scores, allowed)
    else:
        bell = gaussian == 1 or (gaussian is None and mode == "local_p")
        sigma = (sigma if sigma is not None else window / 2) if bell else None
        weights = _local(scores, _centres(query, keys, pos, key_mask, step_offset), allowed,
                         window, sigma, gaussian_at == "before")
    return weights @ (keys if values is None else values), weights
