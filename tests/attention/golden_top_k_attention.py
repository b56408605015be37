"""Golden cases of TopKAttention: sparse_topk of x-transformers (threshold), and torch.topk
with a scatter of the softmax of its values, as ExactTopKAttention of
idiap/fast-transformers does (exact)."""
import importlib.util
import sys
import types

import torch

from golden import heads_of, joined, random, write


def attend_class():
    """Of attend.py alone: the package's __init__ imports what this does not need."""
    if "x_transformers" not in sys.modules:
        package = types.ModuleType("x_transformers")
        spec = importlib.util.find_spec("x_transformers")
        package.__path__ = spec.submodule_search_locations
        sys.modules["x_transformers"] = package
    from x_transformers.attend import Attend
    return Attend


def x_transformers(name, seed, tokens, k, causal):
    q, key, v = (random(seed + i, 1, tokens, 16) for i in range(3))
    attend = attend_class()(dropout=0.0, causal=causal, sparse_topk=k, heads=2).eval()
    y = attend(*(heads_of(x.double(), 2) for x in (q, key, v)))[0]
    write(name, "TopKAttention", dict(q_num_heads=2, k=k, is_causal=int(causal)),
          [q, key, v], [joined(y)], "x-transformers", "Attend(sparse_topk)")


def exact(name, seed, k):
    q, key, v = random(seed, 1, 12, 16), random(seed + 1, 1, 33, 16), random(seed + 2, 1, 33, 16)
    queries, keys, values = (heads_of(x.double(), 2) for x in (q, key, v))
    scores = queries @ keys.transpose(-1, -2)
    top, places = torch.topk(scores, k, dim=-1)
    kept = torch.full_like(scores, -torch.inf).scatter(-1, places, top)
    y = torch.softmax(0.25 * kept, dim=-1) @ values
    write(name, "TopKAttention", dict(q_num_heads=2, k=k, tie_rule="exact", scale=0.25),
          [q, key, v], [joined(y)], "torch", "topk, then softmax over the rest")


x_transformers("top_k_plain", 1, 29, 5, False)
x_transformers("top_k_causal", 4, 21, 4, True)
exact("top_k_exact", 7, 6)
