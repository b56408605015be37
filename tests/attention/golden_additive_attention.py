"""Golden cases of AdditiveAttention: keras layers.AdditiveAttention (on torch) and
AdditiveAttention of d2l. Needs KERAS_BACKEND=torch and both packages."""
import os

os.environ["KERAS_BACKEND"] = "torch"
import keras  # noqa: E402
import torch  # noqa: E402
from golden import class_of, random, write  # noqa: E402


def main():
    query, keys, values = random(1, 2, 5, 12), random(2, 2, 19, 12), random(3, 2, 19, 7)
    v, mask = random(4, 12), torch.arange(19) < torch.tensor([[19], [6]])
    layer = keras.layers.AdditiveAttention(use_scale=True)
    layer.build([query.shape, values.shape, keys.shape])
    layer.scale.assign(v)
    y, weights = layer([query, values, keys], mask=[None, mask], return_attention_scores=True)
    write("additive_keras", "AdditiveAttention", {}, [query, keys, v, None, values, mask],
          [y, weights], "keras", "layers.AdditiveAttention")

    upstream = class_of("d2l/torch.py", "masked_softmax", "AdditiveAttention")
    query, keys, lens = random(5, 3, 1, 8), random(6, 3, 17, 8), torch.tensor([17, 1, 9])
    attention = upstream["AdditiveAttention"](10, 0.0).eval()
    y = attention(query, keys, keys, lens)
    write("additive_d2l", "AdditiveAttention", {},
          [attention.W_q(query).detach(), attention.W_k(keys).detach(),
           attention.w_v.weight.detach()[0], None, keys,
           torch.arange(17) < lens[:, None]], [y], "d2l", "torch.AdditiveAttention")


main()
