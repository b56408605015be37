"""HaloAttention: softmax attention of blocks of pixels to windows around them."""
import torch
from torch.nn import functional

from ..operators import REQUIRED, example, operator
from ._maps import MAP
from .involution import windows


def project(x, weight, bias, heads):
    """(B, heads, d, h, w)."""
    return functional.conv2d(x, weight[:, :, None, None], bias).unflatten(1, (heads, -1))


def blocks_of(x, rows, columns, side):
    """(B, heads, d, h, w) as (B, heads, rows, columns, side^2, d), filled up with zeros."""
    x = functional.pad(x, (0, columns * side - x.shape[4], 0, rows * side - x.shape[3]))
    x = x.unflatten(4, (-1, side)).unflatten(3, (-1, side))
    return x.permute(0, 1, 3, 5, 4, 6, 2).flatten(4, 5)


def windows_of(x, rows, columns, block, halo):
    """(B, heads, d, h, w) as (B, heads, rows, columns, r^2, d), with zeros around."""
    size = block + 2 * halo
    x = functional.pad(x, (halo, columns * block + halo - x.shape[4],
                           halo, rows * block + halo - x.shape[3]))
    x = x.index_select(3, windows(rows, size, block, x))
    x = x.index_select(4, windows(columns, size, block, x))
    x = x.unflatten(4, (-1, size)).unflatten(3, (-1, size))
    return x.permute(0, 1, 3, 5, 4, 6, 2).flatten(4, 5)


def inside(n, pixels, block, halo, x):
    """(n, r): which rows (or columns) of n windows are in the map."""
    size = block + 2 * halo
    at = windows(n, size, block, x).unflatten(0, (-1, size)) - halo
    return (at >= 0) & (at < pixels)


def relative(q, table, side, size, letters):
    """Terms of (B, heads, rows, columns, side, side, d) with the table's rows, which
    `letters` of "X" and "Y" count."""
    cells = torch.arange(size, device=q.device)
    index = cells[None] - torch.arange(side, device=q.device)[:, None] + size - 1
    table = table.index_select(0, index.flatten()).unflatten(0, (side, size))
    return torch.einsum(f"bnrcXYd,{letters}id->bnrcXYi", q, table)


def hide(scores, seen, padding):
    """The cells that `padding` leaves out; (rows, r) and (columns, r) are seen."""
    if padding == "attend":
        return scores
    real = seen[0][:, None, :, None] & seen[1][None, :, None, :]
    real = real.flatten(2)[:, :, None]
    if padding == "mask":
        return scores.masked_fill(~real, -torch.inf)
    return scores.masked_fill(real, torch.finfo(scores.dtype).min)


@operator("HaloAttention",
          inputs=[f"x: {MAP}", "wq", "wk", "wv", "rel_h?", "rel_w?", "bq?", "bk?", "bv?",
                  "wo?", "bo?"],
          outputs=["Y"],
          attributes={"num_heads": REQUIRED, "block_size": REQUIRED, "halo_size": REQUIRED,
                      "scale": None, "rel_scaled": 1, "padding": "mask", "q_stride": 1,
                      "allow_partial": 0},
          examples=[
              example(x=(2, 6, 8, 4), wq=(8, 6), wk=(8, 6), wv=(10, 6), rel_h=(11, 4),
                      rel_w=(11, 4), wo=(5, 10), bo=(5,), num_heads=2, block_size=4,
                      halo_size=1, sizes={"h": 4, "w": 12}, tolerance=(1e-4, 1e-5)),
              example(x=(2, 5, 4, 8), wq=(6, 5), wk=(6, 5), wv=(6, 5), rel_h=(15, 3),
                      rel_w=(15, 3), bq=(6,), bk=(6,), bv=(6,), num_heads=2, block_size=4,
                      halo_size=2, padding="attend", rel_scaled=0, q_stride=2, scale=0.4,
                      sizes={"h": 8, "w": 4}, tolerance=(1e-4, 1e-5)),
              example(x=(2, 4, 9, 6), wq=(3, 4), wk=(3, 4), wv=(4, 4), wo=(4, 4),
                      num_heads=1, block_size=3, halo_size=2, padding="inverted",
                      sizes={"h": 6, "w": 9}, tolerance=(1e-4, 1e-5)),
              example(x=(2, 4, 7, 5), wq=(6, 4), wk=(6, 4), wv=(8, 4), rel_h=(15, 3),
                      rel_w=(15, 3), num_heads=2, block_size=4, halo_size=2, q_stride=2,
                      allow_partial=1, sizes={"h": 5, "w": 9}, tolerance=(1e-4, 1e-5))])
def halo_attention(x, wq, wk, wv, rel_h, rel_w, bq, bk, bv, wo, bo, *, num_heads, block_size,
                   halo_size, scale, rel_scaled, padding, q_stride, allow_partial):
    side, size = block_size // q_stride, block_size + 2 * halo_size
    height, width = x.shape[2:]
    extra = block_size - 1 if allow_partial else 0
    # An axis of one block would be of one block for ever in an export.
    rows, columns = (torch.sym_max((n + extra) // block_size, 2) for n in (height, width))
    scale = (wq.shape[0] // num_heads) ** -0.5 if scale is None else scale
    q = project(x[:, :, ::q_stride, ::q_stride], wq, bq, num_heads)
    out_height, out_width = q.shape[3:]
    q = blocks_of(q, rows, columns, side)
    k, v = (windows_of(project(x, w, b, num_heads), rows, columns, block_size, halo_size)
            for w, b in ((wk, bk), (wv, bv)))
    scores = q @ k.transpose(-1, -2) * scale
    if rel_h is not None:
        seen = (q * scale if rel_scaled else q).unflatten(4, (side, side))
        terms = (relative(seen, rel_h, side, size, "X")[..., None]
                 + relative(seen, rel_w, side, size, "Y")[..., None, :])
        scores = scores + terms.flatten(6, 7).flatten(4, 5)
    seen = (inside(rows, height, block_size, halo_size, x),
            inside(columns, width, block_size, halo_size, x))
    y = torch.softmax(hide(scores, seen, padding), dim=-1) @ v
    y = y.unflatten(4, (side, side)).permute(0, 1, 6, 2, 4, 3, 5)
    y = y.flatten(5, 6).flatten(3, 4)[..., :out_height, :out_width].flatten(1, 2)
    return y if wo is None else functional.conv2d(y, wo[:, :, None, None], bo)
