"""Rows in another order, as batched indexing takes them: tokens in the order of their buckets, in
Reformer, Sinkhorn and Routing Transformers. Modules that differ in one point stay as they are."""
import torch
from torch import nn

ROWS = "GatherND"
KNOWN = (ROWS,)


class Order(nn.Module):
    """Rows by the order of their first elements; of keys and values as hashed attention has
    them."""

    def __init__(self, take):
        super().__init__()
        self.take = take

    def forward(self, x):
        return self.take(x, x[..., 0].argsort(-1))


def batched_index_select(values, indices):
    """lucidrains' reformer-pytorch."""
    last_dim = values.shape[-1]
    return values.gather(-2, indices[..., None].expand(*indices.shape, last_dim))


def gather_by_expansion(vectors, indices):
    """transformers' Reformer."""
    expanded = indices.unsqueeze(-1).expand(-1, -1, -1, vectors.shape[-1])
    return torch.gather(vectors, 2, expanded)


def some(x, order):
    return batched_index_select(x, order[..., :1])


def three_axes(x, order):
    return batched_index_select(x.flatten(0, 1), order.flatten(0, 1))


def back_and_forth(x, order):
    back = torch.zeros_like(order).scatter(2, order, torch.arange(
        x.shape[2]).expand_as(order))
    return batched_index_select(batched_index_select(x, order).cumsum(2), back)


def blocks(x, order):
    """transformers' BigBird: rows of more axes."""
    x = x.unflatten(-1, (4, 2))
    return x.gather(2, order[..., None, None].expand(-1, -1, -1, 4, 2)).flatten(3)


def constant(x, order):
    index = (torch.arange(2 * 3 * 7) * 5 % 40).view(2, 3, 7, 1)
    return x.gather(2, index.expand(-1, -1, -1, x.shape[3]))


def constant_by_element(x, order):
    return x.gather(2, (torch.arange(2 * 3 * 7 * 8) * 5 % 40).view(2, 3, 7, 8))


def part_of_rows(x, order):
    return x.gather(2, order[..., None].expand(-1, -1, -1, 3))


def other_axis(x, order):
    return x.gather(1, (order % x.shape[1])[..., None].expand(-1, -1, -1, x.shape[3]))


def first_head(x, order):
    """Rows of one head alone are indexed: there are more in x."""
    return x.gather(2, order[:, :1, :, None].expand(-1, -1, -1, x.shape[3]))


def by_element(x, order):
    return x.gather(2, x.argsort(2))


SHAPE, MANY = (2, 3, 40, 8), (1, 33, 300)


def on_rows(take, operator=ROWS):
    return Order(take), "x", SHAPE, 2, MANY, "sd", operator


FORMS = {
    "index_select": on_rows(batched_index_select),
    "expansion": on_rows(gather_by_expansion),
    "some": on_rows(some),
    "three_axes": on_rows(three_axes),
    "back_and_forth": on_rows(back_and_forth),
    "blocks": on_rows(blocks),
    "constant": (Order(constant), "x", SHAPE, 2, (), "sd", ROWS),
    # near misses
    "part_of_rows": on_rows(part_of_rows, None),
    "other_axis": on_rows(other_axis, None),
    "first_head": on_rows(first_head, None),
    "by_element": on_rows(by_element, None),
    "constant_by_element": (Order(constant_by_element), "x", SHAPE, 2, (), "sd", None),
}
SHORT = {name: "sd"[i % 2] for i, name in enumerate(FORMS)}
