"""Gates and attention over maps: BAM, selective kernels, SAGAN's self-attention, external
attention, involution, halo attention, in their usual published forms."""
import torch
from torch import nn

from ..call import call
from ..registry import Adapter, need, need_linear
from ._layers import activation_of, layers_of, matrix, named, need_matrix


def one_weight(layers):
    """(weights, biases) of layers of one shape: a row each, None where all have none."""
    if not layers:
        return None, None
    pairs = [matrix(layer, norm) for layer, norm in layers]
    biases = [torch.zeros(w.shape[0]) if b is None else b for w, b in pairs]
    return (torch.stack([w.unflatten(1, layer.weight.shape[1:])
                         for (w, _), (layer, _) in zip(pairs, layers)]),
            torch.stack(biases) if any(b is not None for _, b in pairs) else None)


class BAM(Adapter):
    """A gate of channels, linear layers over the mean, and one of pixels, dilated
    convolutions of 3 x 3 between two of 1 x 1; sigmoid of their product, as the authors'
    code has it, or of their sum, as the paper. That code pools a square: where a map is
    wider, its other columns are not in the mean, and the probe finds it."""
    names = ("BAM", "BAMBlock")
    shapes = (("channel_att.gate_c", "spatial_att.gate_s"), ("ca.ca", "sa.sa"))
    operator = "BAM"
    PARTS = ((("channel_att", "gate_c"), ("spatial_att", "gate_s")),
             (("ca", "ca"), ("sa", "sa")))

    def check(self):
        for parts in self.PARTS:
            stacks = [getattr(getattr(self.module, outer, None), inner, None)
                      for outer, inner in parts]
            if None not in stacks:
                break
        need(None not in stacks, "it has no gates of channels and pixels")
        self.channel, self.spatial = (layers_of(stack) for stack in stacks)
        first, *middle, last = (layer for layer, _ in self.spatial)
        for layer, _ in self.channel:
            need(isinstance(layer, nn.Linear), "its gate of channels is not linear")
        for layer in (first, last):
            need_matrix(layer, "a layer of its gate of pixels")
        need(last.weight.shape[0] == 1, "its gate of pixels has more than one plane")
        self.dilation = middle[0].dilation[0] if middle else 1
        for layer in middle:
            need(layer.kernel_size == (3, 3) and layer.stride == (1, 1)
                 and layer.groups == 1 and layer.padding_mode == "zeros"
                 and layer.dilation == layer.padding == (self.dilation, self.dilation),
                 "a convolution is not 3 x 3 with as much around the map as its dilation")

    def tensors(self):
        c, s = self.channel, self.spatial
        found = named(c0=matrix(*c[0]), c1=matrix(*c[-1]), s0=matrix(*s[0]), s1=matrix(*s[-1]))
        for name, layers in (("c", c[1:-1]), ("s", s[1:-1])):
            weights, biases = one_weight(layers)
            found |= {f"w{name}m": weights, f"b{name}m": biases}
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    def choices(self):
        return [{"combine": "mul"}, {"combine": "add"}]

    def forward(self, in_tensor):
        have = self.tensors()
        operands = [self.tensor(name) if name in have else None
                    for name in ("wc0", "bc0", "wc1", "bc1", "ws0", "bs0", "wsm", "bsm",
                                 "ws1", "bs1", "wcm", "bcm")]
        return call("BAM", in_tensor, *operands, dilation=self.dilation, **self.choice)


class SKAttention(Adapter):
    """Branches `convs`, `fc` and a list `fcs`."""
    names = ("SKAttention", "SKConv")
    shapes = (("fc", "fcs", "convs"),)
    operator = "SKSelect"

    def check(self):
        m = self.module
        need_linear(m, "fc")
        need(2 <= len(m.fcs) == len(m.convs) <= 8, "it does not have 2 to 8 branches")

    def tensors(self):
        fcs = self.module.fcs
        return {"wsel": torch.stack([fc.weight for fc in fcs]),
                "bsel": torch.stack([fc.bias for fc in fcs])}

    def forward(self, x):
        m = self.module
        return call("SKSelect", m.fc.weight, m.fc.bias, self.tensor("wsel"),
                    self.tensor("bsel"), None, *(conv(x) for conv in m.convs))


class SelectiveKernel(Adapter):
    names = ("timm.layers.selective_kernel.SelectiveKernel",)
    shapes = (("attn.fc_reduce", "attn.fc_select", "paths"),)
    operator = "SKSelect"

    def check(self):
        attn = self.module.attn
        self.activation = activation_of(attn.act)
        need(self.activation in ("none", "relu"), f"its activation is {self.activation}")
        need(isinstance(attn.bn, nn.BatchNorm2d), "its normalization is not a BatchNorm2d")

    def tensors(self):
        attn = self.module.attn
        return named(**{"1": matrix(attn.fc_reduce, attn.bn)}) | {
            "wsel": attn.fc_select.weight.flatten(1).unflatten(0, (attn.num_paths, -1))}

    def forward(self, x):
        m = self.module
        parts = ([x] * len(m.paths) if not m.split_input
                 else torch.split(x, m.in_channels // m.num_paths, 1))
        return call("SKSelect", self.tensor("w1"), self.tensor("b1"), self.tensor("wsel"), None,
                    None, *(path(part) for path, part in zip(m.paths, parts)),
                    activation=self.activation)


class SelfAttn(Adapter):
    """SAGAN's in the common PyTorch port; its second result, the attention map, is computed where
    somebody reads it."""
    names = ("Self_Attn", "SelfAttn")
    shapes = (("query_conv", "key_conv", "value_conv", "gamma"),)
    operator = "SAGANAttention"

    def check(self):
        for name in ("query_conv", "key_conv", "value_conv"):
            need_matrix(getattr(self.module, name, None), f"its {name}")
        need(self.module.gamma.numel() == 1, "its gamma is not a single number")

    def tensors(self):
        m = self.module
        return named(q=matrix(m.query_conv), k=matrix(m.key_conv), v=matrix(m.value_conv))

    def forward(self, x):
        have = self.tensors()
        operands = [self.tensor(n) if n in have else None
                    for n in ("wq", "bq", "wk", "bk", "wv", "bv")]
        m = self.module
        q, k = (layer(x).flatten(2) for layer in (m.query_conv, m.key_conv))
        return (call("SAGANAttention", x, *operands, m.gamma),
                torch.softmax(q.transpose(1, 2) @ k, dim=-1))


class ExternalAttention(Adapter):
    """Over tokens: linear layers mk and mv, softmax over tokens, then sums over slots, by which the
    code divides as it is: 0 / 0 is NaN."""
    names = ("ExternalAttention",)
    shapes = (("mk", "mv"),)
    operator = "ExternalAttention"

    def check(self):
        need_linear(self.module, "mk", "mv")

    def forward(self, queries):
        m = self.module
        need(queries.dim() == 3, f"its input has rank {queries.dim()}")
        return call("ExternalAttention", queries, m.mk.weight, m.mv.weight, m.mv.bias,
                    nan_rows=1)


class Involution(Adapter):
    """conv1, bn, relu, conv2 make the kernels of `group` groups."""
    names = ("Involution",)
    shapes = (("conv1", "conv2", "kernel_size", "group"),)
    operator = "Involution"

    def check(self):
        m = self.module
        need_matrix(m.conv1, "its conv1")
        need_matrix(m.conv2, "its conv2")
        self.activation = activation_of(m.relu)
        need(m.kernel_size % 2 == 1, "its kernel is even")

    def tensors(self):
        m = self.module
        return named(**{"1": matrix(m.conv1, m.bn), "2": matrix(m.conv2)})

    def forward(self, inputs):
        m = self.module
        return call("Involution", inputs, self.tensor("w1"), self.tensor("b1"),
                    self.tensor("w2"), self.tensor("b2"), kernel_size=m.kernel_size,
                    groups=m.group, stride=m.stride, activation=self.activation)


class Halo(Adapter):
    """Linear layers on windows: to_q; to_kv with the keys of all heads, then the values;
    to_out. Releases disagree on which cells of a window its mask hides."""
    names = ("HaloAttention",)
    shapes = (("to_q", "to_kv", "to_out", "rel_pos_emb", "halo_size"),)
    operator = "HaloAttention"

    def check(self):
        m = self.module
        need_linear(m, "to_q", "to_kv", "to_out")
        need(m.to_kv.bias is None, "its to_kv has a bias")

    def choices(self):
        return [{"padding": word} for word in ("mask", "inverted", "attend")]

    def tensors(self):
        m = self.module
        wk, wv = m.to_kv.weight.split([m.to_q.out_features, m.to_out.in_features])
        return {"wk": wk, "wv": wv}

    def forward(self, x):
        m, position = self.module, self.module.rel_pos_emb
        return call("HaloAttention", x, m.to_q.weight, self.tensor("wk"), self.tensor("wv"),
                    position.rel_height, position.rel_width, m.to_q.bias, None, None,
                    m.to_out.weight, m.to_out.bias, num_heads=m.heads,
                    block_size=m.block_size, halo_size=m.halo_size, scale=m.scale,
                    **self.choice)


class HaloAttn(Adapter):
    """timm's: 1 x 1 convolutions q and kv, of which each head's rows are its keys, then its
    values. A mean of 2 x 2 pixels may follow."""
    names = ("timm.layers.halo_attn.HaloAttn",)
    shapes = (("q", "kv", "pos_embed", "halo_size"),)
    operator = "HaloAttention"

    def check(self):
        m = self.module
        need(isinstance(m.q, nn.Conv2d) and m.q.kernel_size == (1, 1)
             and m.q.stride == (m.block_stride,) * 2, "its q is another convolution")
        need_matrix(m.kv, "its kv")

    def choices(self):
        return [{"padding": word} for word in ("attend", "mask")]

    def tensors(self):
        m = self.module
        found = named(q=matrix(m.q))
        for letter, rows in zip("wb", matrix(m.kv)):
            if rows is not None:
                heads = rows.unflatten(0, (m.num_heads, -1))
                parts = heads.split([m.dim_head_qk, m.dim_head_v], 1)
                found |= {letter + name: part.flatten(0, 1) for name, part in zip("kv", parts)}
        return found

    def forward(self, x):
        m, have = self.module, self.tensors()
        wq, wk, wv, bq, bk, bv = (self.tensor(letter + name) if letter + name in have else None
                                  for letter in "wb" for name in "qkv")
        position = m.pos_embed
        return m.pool(call("HaloAttention", x, wq, wk, wv, position.height_rel,
                           position.width_rel, bq, bk, bv, num_heads=m.num_heads,
                           block_size=m.block_size, halo_size=m.halo_size, scale=m.scale,
                           rel_scaled=int(m.scale_pos_embed), q_stride=m.block_stride,
                           **self.choice))
