"""Random MatMul, Gemm and Einsum nodes against numpy: broadcast batches, empty dims, vectors,
all types, constant and computed B. Usage: check_products.py ATTNRUN"""
import sys
import tempfile

import numpy as np

from cases import check, one_node_model, write_case

random = np.random.default_rng(11)
DIMS = [0, 1, 1, 2, 3, 5, 8, 17, 33, 40]
EQUATIONS = """ij,jk->ik bij,bjk->bik bhid,bhjd->bhij bhij,bhjd->bihd ij,kj->ik ij,kj->ki ii->i
ii i,i-> i,j->ij ij->ji ...ij,...jk->...ik bi,bj->bij abc,cd,de->abe ij,ij->i
ijk,ilm,njm,nlk,abc-> bsd,dhe->bhse bhse,hed->bsd bij,bij->b ij,jk ba ...i->... abcd,bd->ac
bnqd,bnkd->bqnk ab,cb->abc ijk->k aab,b->a bthd,bThd->bhtT i...,i...->...
blq,blk->blqk blq,bhlk->bhlqk ab,b->ab b,ab->ab ...i,...j->...ij ij,i->ij abc,d->abcd""".split()


def pick(values):
    return values[int(random.integers(len(values)))]


def array(shape, dtype):
    if dtype in ("f4", "f8"):
        return random.standard_normal(shape).astype(dtype)
    return random.integers(0, 9, shape).astype(dtype)


def sizes(large):
    if large:
        return (int(random.integers(100, 300)), int(random.integers(200, 700)),
                int(random.integers(60, 300)))
    return pick(DIMS), pick(DIMS), pick(DIMS)


def matmul(i):
    dtype = pick(["f4", "f4", "f4", "f8", "i4", "i8", "u4"])
    m, k, n = sizes(i % 9 == 0)
    batch = [pick([0, 1, 2, 3] if i % 5 == 0 else [1, 2, 3])
             for _ in range(int(random.integers(4)))]
    a_batch = [d if random.random() < 0.7 else 1 for d in batch]
    b_batch = [d if random.random() < 0.6 else 1 for d in batch]
    b_batch = b_batch[int(random.integers(len(b_batch) + 1)):]
    a = array(a_batch + [m, k] if i % 10 != 3 else [k], dtype)
    b = array(b_batch + [k, n] if i % 10 != 7 else [k], dtype)
    constants = {"b"} if i % 2 else set()
    model, inputs = one_node_model("MatMul", [("a", a), ("b", b)], ["y"], constants)
    return model, inputs, np.asarray(np.matmul(a, b))


def gemm(i):
    dtype = pick(["f4", "f4", "f8"])
    m, k, n = sizes(i % 8 == 0)
    trans_a, trans_b = int(random.integers(2)), int(random.integers(2))
    a = array((k, m) if trans_a else (m, k), dtype)
    b = array((n, k) if trans_b else (k, n), dtype)
    c = array(pick([(m, n), (1, n), (m, 1), (n,), (1,), ()]), dtype)
    alpha, beta = pick([1.0, 0.5, 2.0]), pick([1.0, 0.25, 0.0])
    constants = {"b", "c"} if i % 2 else set()
    model, inputs = one_node_model("Gemm", [("a", a), ("b", b), ("c", c)], ["y"], constants,
                                   transA=trans_a, transB=trans_b, alpha=alpha, beta=beta)
    y = alpha * ((a.T if trans_a else a) @ (b.T if trans_b else b))
    return model, inputs, (y + beta * np.broadcast_to(c, (m, n))).astype(dtype)


def einsum(i):
    equation, form = EQUATIONS[i // 3], i % 3
    few = equation.count(",") > 1
    choices = [[2, 3, 5], [1, 2, 3, 4, 7, 20], [2] if few else [0, 1, 3, 35]][form]
    size = {letter: pick(choices) for letter in sorted(set(equation) - set(",.->"))}
    dots = [pick([1, 2, 3]) for _ in range(int(random.integers(3)))]
    dtype = "f4" if form < 2 else pick(["f4", "f8", "i4"])
    values = []
    for term in equation.split("->")[0].split(","):
        before, found, after = term.partition("...")
        middle = [d if random.random() < 0.7 else 1 for d in dots] if found else []
        values.append(array([size[c] for c in before] + middle + [size[c] for c in after],
                            dtype))
    inputs = [(f"x{n}", value) for n, value in enumerate(values)]
    model, inputs = one_node_model("Einsum", inputs, ["y"], equation=equation)
    return model, inputs, np.asarray(np.einsum(equation, *values)).astype(dtype)


def main():
    with tempfile.TemporaryDirectory() as folder:
        for make, count in ((matmul, 90), (gemm, 40), (einsum, 3 * len(EQUATIONS))):
            for i in range(count):
                model, inputs, y = make(i)
                write_case(f"{folder}/{make.__name__}_{i}", model, inputs, [("y", y)],
                           "1e-3 1e-3")
        check(sys.argv[1], folder)


main()
