"""HaloNet: two stages of ByobNet of timm with HaloAttn, the second of stride 2, its
attention swapped. Cells outside of the image take part, as upstream."""
from attnrun_convert.call import call

from . import _parts as parts
from ._timm import ByoBlockCfg, ByobNet, ByoModelCfg, HaloAttn


def attention(self, x):
    """A head's rows of the joint weight are its keys, then its values."""
    heads = self.kv.weight[:, :, 0, 0].unflatten(0, (self.num_heads, -1))
    wk = heads[:, :self.dim_head_qk].flatten(0, 1)
    wv = heads[:, self.dim_head_qk:].flatten(0, 1)
    y = call("HaloAttention", x, self.q.weight[:, :, 0, 0], wk, wv, self.pos_embed.height_rel,
             self.pos_embed.width_rel, num_heads=self.num_heads, block_size=self.block_size,
             halo_size=self.halo_size, scale=self.scale, padding="attend",
             rel_scaled=int(self.scale_pos_embed), q_stride=self.block_stride)
    return self.pool(y)


def build():
    config = ByoModelCfg(
        blocks=(ByoBlockCfg(type="self_attn", d=2, c=32, s=1, gs=0, br=1.0),
                ByoBlockCfg(type="self_attn", d=2, c=48, s=2, gs=0, br=1.0)),
        stem_chs=24, stem_type="7x7", stem_pool="maxpool", self_attn_layer="halo",
        self_attn_kwargs=dict(block_size=4, halo_size=1, num_heads=4))
    upstream = parts.randomise(parts.Image(ByobNet(config, num_classes=10,
                                                   zero_init_last=False)))
    sets = [(parts.floats(b, 3, h, w),) for b, h, w in ((2, 64, 64), (1, 96, 32))]
    return parts.swapped(upstream, {HaloAttn: attention}), upstream, sets
