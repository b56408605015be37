"""MemoryCompressedAttention of memory-compressed-attention."""
from ..call import call
from ..registry import Adapter, need, need_linear


class MemoryCompressedAttention(Adapter):
    names = ("memory_compressed_attention.memory_compressed_attention"
             ".MemoryCompressedAttention",)
    shapes = (("to_qkv", "compress_fn.conv", "compression_factor"),)
    operator = "CompressedAttention"

    def check(self):
        need_linear(self.module, "to_qkv", "to_out")
        conv = self.module.compress_fn.conv
        ratio = self.module.compression_factor
        need(conv.kernel_size == conv.stride == (ratio,), "its convolution overlaps")
        need(conv.groups == self.module.heads, "its convolution's groups are not the heads")

    def tensors(self):
        m = self.module
        return {"null_k": m.null_k.reshape(-1), "null_v": m.null_v.reshape(-1)}

    def forward(self, x, input_mask=None):
        m = self.module
        need(input_mask is None, "its input_mask hides the tokens that it means to keep")
        q, k, v = m.to_qkv(x).chunk(3, dim=-1)
        conv = m.compress_fn.conv
        y = call("CompressedAttention", q, k, v, conv.weight, conv.bias, None, None,
                 self.tensor("null_k"), self.tensor("null_v"), q_num_heads=m.heads,
                 compression=m.compression_factor, is_causal=int(m.causal),
                 scale=x.shape[-1] ** -0.5)
        return m.to_out(y)
