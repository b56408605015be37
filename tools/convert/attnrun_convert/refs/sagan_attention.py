"""SAGANAttention: gamma (wo softmax(scale q k') v + bo) + x of the pixels of a map, where k
and v may be the largest of 2 x 2 pixels."""
import torch
from torch.nn import functional

from ..operators import example, operator


def _project(x, w, b, kv_pool):
    """(B, rows, pixels) of a 1x1 convolution."""
    y = functional.conv2d(x, w[:, :, None, None], b)
    return (functional.max_pool2d(y, 2) if kv_pool == 2 else y).flatten(2)


CLASS_B = (1e-4, 1e-5)


@operator("SAGANAttention",
          inputs=["x: B . h w", "wq", "bq?", "wk", "bk?", "wv", "bv?", "gamma", "wo?", "bo?"],
          outputs=["Y"], attributes={"kv_pool": 1, "scale": 1.0},
          examples=[
              example(tolerance=CLASS_B, x=(2, 8, 5, 3), wq=(3, 8), bq=(3,), wk=(3, 8),
                      bk=(3,), wv=(8, 8), bv=(8,), gamma=(1,)),
              example(tolerance=CLASS_B, x=(2, 6, 4, 6), wq=(2, 6), wk=(2, 6), wv=(4, 6),
                      gamma=(), wo=(6, 4), kv_pool=2, sizes={"h": 6, "w": 10}),
              example(tolerance=CLASS_B, x=(2, 6, 3, 4), wq=(2, 6), wk=(2, 6), wv=(9, 6),
                      bv=(9,), gamma=(1,), wo=(6, 9), bo=(6,), scale=0.5),
              example(tolerance=CLASS_B, x=(2, 4, 2, 8), wq=(2, 4), wk=(2, 4), bk=(2,),
                      wv=(4, 4), bv=(4,), gamma=(), kv_pool=2, scale=0.3, sizes=None),
          ])
def sagan_attention(x, wq, bq, wk, bk, wv, bv, gamma, wo, bo, *, kv_pool, scale):
    q, k = _project(x, wq, bq, 1), _project(x, wk, bk, kv_pool)
    v = _project(x, wv, bv, kv_pool)
    o = v @ torch.softmax(scale * (q.transpose(1, 2) @ k), dim=-1).transpose(1, 2)
    if wo is not None:
        o = wo @ o
    if bo is not None:
        o = o + bo[:, None]
    return gamma * o.unflatten(2, x.shape[2:]) + x
