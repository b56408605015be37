"""Golden cases of HaloAttention: timm ("attend"), halonet-pytorch ("mask") and
fightingcv-attention ("inverted"), in double.

usage: golden_halo_attention.py
"""
import torch
from fightingcv_attention.attention.HaloAttention import HaloAttention as Inverted
from golden import random, timm_layers, write
from halonet_pytorch import HaloAttention

timm_layers()
from timm.layers.halo_attn import HaloAttn  # noqa: E402


def randomize(layer, seed):
    for i, p in enumerate(layer.parameters()):
        p.data.copy_(random(seed + i, *p.shape) / p[0].numel() ** 0.5)
    return layer.double().eval()


def timm_case(name, x, heads, **options):
    layer = randomize(HaloAttn(x.shape[1], num_heads=heads, **options), x.shape[3])
    dk, dv = layer.dim_head_qk, layer.dim_head_v

    def split(rows):  # keys and values of a head lie side by side
        rows = rows.reshape(heads, dk + dv, -1)
        return [part.reshape(-1, rows.shape[2]).squeeze(1) if rows.shape[2] == 1
                else part.reshape(-1, rows.shape[2]) for part in rows.split([dk, dv], 1)]

    wk, wv = split(layer.kv.weight[..., 0, 0])
    bq, bk, bv = (None,) * 3
    if layer.kv.bias is not None:
        bq, (bk, bv) = layer.q.bias, split(layer.kv.bias)
    tensors = [layer.q.weight[..., 0, 0], wk, wv, layer.pos_embed.height_rel,
               layer.pos_embed.width_rel, bq, bk, bv]
    write(name, "HaloAttention",
          {"num_heads": heads, "block_size": layer.block_size, "halo_size": layer.halo_size,
           "padding": "attend", "rel_scaled": int(layer.scale_pos_embed),
           "q_stride": layer.block_stride},
          [x] + [t if t is None else t.float() for t in tensors], [layer(x.double())], "timm",
          "HaloAttn, in double", (1e-4, 1e-5))


def other(name, upstream, padding, package, x):
    layer = randomize(upstream(dim=x.shape[1], block_size=4, halo_size=1, dim_head=6, heads=2),
                      x.shape[2])
    wk, wv = layer.to_kv.weight.chunk(2)
    position = layer.rel_pos_emb
    tensors = [layer.to_q.weight, wk, wv, position.rel_height, position.rel_width, None, None,
               None, layer.to_out.weight, layer.to_out.bias]
    write(name, "HaloAttention",
          {"num_heads": 2, "block_size": 4, "halo_size": 1, "padding": padding},
          [x] + [t if t is None else t.float() for t in tensors], [layer(x.double())], package,
          "HaloAttention, in double", (1e-4, 1e-5))


with torch.no_grad():
    timm_case("halo_timm", random(1, 1, 16, 8, 16), 2, halo_size=2)
    timm_case("halo_timm_stride", random(2, 2, 8, 8, 4), 2, block_size=4, halo_size=1,
              stride=2, qkv_bias=True, scale_pos_embed=True, dim_head=3)
    other("halo_lucidrains", HaloAttention, "mask", "halonet-pytorch", random(3, 2, 8, 8, 12))
    other("halo_inverted", Inverted, "inverted", "fightingcv-attention",
          random(4, 1, 8, 12, 16))
