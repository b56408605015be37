"""Golden cases of BlockSparseAttention: com.microsoft SparseAttention of ONNX Runtime, and
scaled dot product attention under the expanded mask (log of the counts)."""
import math

import numpy as np
import onnxruntime
import torch
from onnx import TensorProto, helper

from golden import heads_of, joined, random, write


def sparse_attention(q, k, v, row_ptr, col_idx, heads, kv_heads, block):
    """ONNX Runtime's kernel, causal, without a past."""
    batch, tokens, _ = q.shape
    dim = q.shape[2] // heads
    empty = np.zeros((batch, kv_heads, tokens, dim), np.float32)
    feeds = dict(query=q.numpy(), key=k.numpy(), value=v.numpy(), past_key=empty,
                 past_value=empty, block_row_indices=row_ptr.numpy(),
                 block_col_indices=col_idx.numpy(),
                 total_sequence_length=np.array([tokens], np.int32),
                 key_total_sequence_lengths=np.full(batch, tokens, np.int32))
    kinds = [TensorProto.FLOAT] * 5 + [TensorProto.INT32] * 4
    node = helper.make_node("SparseAttention", list(feeds), ["y", "pk", "pv"],
                            domain="com.microsoft", num_heads=heads, kv_num_heads=kv_heads,
                            sparse_block_size=block)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info(name, kind, feeds[name].shape)
                      for name, kind in zip(feeds, kinds)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
         for name in ("y", "pk", "pv")])
    model = helper.make_model(graph, ir_version=8, opset_imports=[
        helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)])
    engine = onnxruntime.InferenceSession(model.SerializeToString(),
                                           providers=["CPUExecutionProvider"])
    binding = engine.io_binding()
    for name, value in feeds.items():  # present must lie where past does
        held = onnxruntime.OrtValue.ortvalue_from_numpy(value)
        binding.bind_ortvalue_input(name, held)
        if name.startswith("past_"):
            binding.bind_ortvalue_output("p" + name[5], held)
    binding.bind_output("y")
    engine.run_with_iobinding(binding)
    return torch.from_numpy(binding.get_outputs()[-1].numpy())


def counts_of(row_ptr, col_idx, block, heads, q_len, kv_len):
    counts = torch.zeros(heads, q_len, kv_len)
    for h in range(heads):
        layout = h % row_ptr.shape[0]
        for i in range(q_len):
            a = i // block
            for entry in col_idx[layout, row_ptr[layout, a]:row_ptr[layout, a + 1]].tolist():
                if entry >= 0:
                    counts[h, i, entry * block:(entry + 1) * block] += 1
    return counts


def main():
    q, k, v = random(1, 1, 48, 32), random(2, 1, 48, 16), random(3, 1, 48, 16)
    row_ptr = torch.tensor([[0, 1, 3, 5], [0, 1, 2, 5]], dtype=torch.int32)
    col_idx = torch.tensor([[0, 0, 1, 0, 2], [0, 1, 0, 1, 2]], dtype=torch.int32)
    write("block_sparse_onnxruntime", "BlockSparseAttention",
          dict(q_num_heads=4, kv_num_heads=2, block_size=16, is_causal=1),
          [q, k, v, row_ptr, col_idx],
          [sparse_attention(q, k, v, row_ptr, col_idx, 4, 2, 16)], "onnxruntime",
          "com.microsoft SparseAttention (CPU)")

    q, k, v = random(4, 2, 21, 16), random(5, 2, 37, 16), random(6, 2, 37, 12)
    row_ptr = torch.tensor([[1, 4, 6, 9]], dtype=torch.int32)
    col_idx = torch.tensor([[3, 0, 0, 4, 2, -1, 1, 3, 3]])
    key_mask = torch.arange(37) < torch.tensor([[37], [20]])
    counts = counts_of(row_ptr, col_idx, 8, 2, 21, 37) * key_mask[:, None, None]
    y = torch.nn.functional.scaled_dot_product_attention(
        *(heads_of(x.double(), 2) for x in (q, k, v)), scale=1 / math.sqrt(8),
        attn_mask=torch.log(counts).double())
    y[~(counts > 0).any(-1)] = 0
    write("block_sparse_counts", "BlockSparseAttention", dict(q_num_heads=2, block_size=8),
          [q, k, v, row_ptr, col_idx, key_mask], [joined(y)], "torch",
          "scaled_dot_product_attention, log of the counts as mask")


main()
