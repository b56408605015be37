"""Golden cases of SparseTransformerAttention: scaled dot product attention under the masks
of openai/sparse_attention (get_attn_mask: local, strided; get_blocksparse_obj: fixed),
stated anew token by token; the package itself needs blocksparse and TensorFlow 1."""
import torch

from golden import heads_of, joined, random, write


def openai_mask(pattern, n, stride, summary=1, vert=0):
    mask = torch.zeros(n, n, dtype=torch.bool)
    for i in range(n):
        for j in range(i + 1):
            local = i - j < stride
            strided = (i - j) % stride == 0
            column = stride - (vert + 1) * summary <= j % stride < stride - vert * summary
            mask[i, j] = {"local": local, "strided": strided,
                          "strided_merged": local or strided,
                          "fixed": i // stride == j // stride or column}[pattern]
    return mask


def case(name, attributes, heads, masks, seed, tokens):
    q, k, v = (random(seed + i, 1, tokens, heads * 8) for i in range(3))
    y = torch.nn.functional.scaled_dot_product_attention(
        *(heads_of(x.double(), heads) for x in (q, k, v)), attn_mask=torch.stack(masks))
    write(name, "SparseTransformerAttention", dict(q_num_heads=heads, **attributes),
          [q, k, v], [joined(y)], "torch",
          "scaled_dot_product_attention under the masks of openai/sparse_attention c53f3bd")


case("sparse_transformer_strided", dict(pattern=["local", "strided"], stride=6), 2,
     [openai_mask("local", 40, 6), openai_mask("strided", 40, 6)], 1, 40)
case("sparse_transformer_merged", dict(pattern=["strided_merged"], stride=7), 1,
     [openai_mask("strided_merged", 50, 7)], 4, 50)
case("sparse_transformer_fixed", dict(pattern=["fixed"], stride=8, summary=2, num_verts=2),
     2, [openai_mask("fixed", 37, 8, 2, 0), openai_mask("fixed", 37, 8, 2, 1)], 7, 37)
