"""Golden cases of LocalAttention: scaled dot product attention under a mask made index by
index."""
import torch

from golden import heads_of, joined, random, write


def allowed(p, j, left, right, dilation):
    t, rest = divmod(j - p, dilation)
    return rest == 0 and (left < 0 or t >= -left) and (right < 0 or t <= right)


def dense(q, k, v, heads, kv_heads, left, right, dilation, globals_=(), causal=False):
    """left, right, dilation: one a head; globals_: a set of tokens for each sample."""
    q, k, v = heads_of(q, heads), heads_of(k, kv_heads), heads_of(v, kv_heads)
    k, v = (x.repeat_interleave(heads // kv_heads, 1) for x in (k, v))
    q_len, kv_len = q.shape[2], k.shape[2]
    mask = torch.zeros(q.shape[0], heads, q_len, kv_len, dtype=torch.bool)
    for b in range(q.shape[0]):
        tokens = globals_[b] if globals_ else set()
        for h in range(heads):
            for i in range(q_len):
                p = i + kv_len - q_len
                for j in range(kv_len):
                    mask[b, h, i, j] = ((j <= p or not causal) and (
                        j in tokens or p in tokens
                        or allowed(p, j, left[h], right[h], dilation[h])))
    return joined(torch.nn.functional.scaled_dot_product_attention(
        q.double(), k.double(), v.double(), attn_mask=mask))


def main():
    what = "scaled_dot_product_attention under an explicit mask"
    q, k, v = random(1, 1, 7, 24), random(2, 1, 40, 12), random(3, 1, 40, 16)
    write("local_decode_gqa", "LocalAttention",
          dict(q_num_heads=4, kv_num_heads=2, is_causal=1, left_window=[5, 9, 2, -1],
               dilation=[1, 2, 4, 3], num_global=2),
          [q, k, v], [dense(q, k, v, 4, 2, [5, 9, 2, -1], [0] * 4, [1, 2, 4, 3], [{0, 1}],
                            True)], "torch", what)
    q, k, v = random(4, 2, 37, 16), random(5, 2, 37, 16), random(6, 2, 37, 10)
    global_mask = torch.zeros(2, 37, dtype=torch.bool)
    global_mask[0, [3, 20]] = True
    global_mask[1, 36] = True
    write("local_globals", "LocalAttention",
          dict(q_num_heads=2, left_window=[4], right_window=[1]),
          [q, k, v, None, global_mask],
          [dense(q, k, v, 2, 2, [4] * 2, [1] * 2, [1] * 2, [{3, 20}, {36}])], "torch", what)


main()
