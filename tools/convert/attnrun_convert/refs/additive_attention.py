"""AdditiveAttention: softmax_j(v . f(q_i + k_j + bias)) values."""
from ..operators import example, mask, operator
from ._heads import masked_softmax
from ._tokens import additive_scores, over_tokens


@operator("AdditiveAttention",
          inputs=["query: B Nq .", "keys: B Nk .", "v", "bias?", "values?: B Nk .",
                  "key_mask?: B Nk"],
          outputs=["Y", "weights"], attributes={"activation": "tanh"},
          note="the body forms Nq x Nk x units",
          examples=[
              example(query=(2, 5, 8), keys=(2, 7, 8), v=(8,)),
              example(outputs=2, query=(2, 5, 8), keys=(2, 7, 8), v=(8,), bias=(8,),
                      values=(2, 7, 6), key_mask=mask(2, 7)),
              example(activation="relu", outputs=2, query=(3, 4, 6), keys=(3, 9, 6), v=(6,),
                      bias=(6,)),
          ])
def additive_attention(query, keys, v, bias, values, key_mask, *, activation):
    rows = query[:, None] if query.dim() == 2 else query
    weights = masked_softmax(additive_scores(rows, keys, v, bias, activation),
                             over_tokens(key_mask))
    y = weights @ (keys if values is None else values)
    return (y[:, 0], weights[:, 0]) if query.dim() == 2 else (y, weights)
