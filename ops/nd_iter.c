/* nd_iter.c - broadcast operands as contiguous segments. nd_iter.h has the interface. */
#include "nd_iter.h"

#include <assert.h>

void attn_nd_iter_init(struct nd_iter *it, int rank, const int64_t *dims)
{
    assert(rank >= 0 && rank <= ATTNRUN_MAX_RANK);
    memset(it, 0, sizeof *it);
    it->rank = rank;
    for (int d = 0; d < rank; d++)
        it->dims[d] = dims[d];
}

void attn_nd_iter_add_strided(struct nd_iter *it, const void *data,
                              const int64_t *strides)
{
    int32_t k = it->n_operands++;
    assert(k < ND_OPERANDS);
    it->base[k] = (char *)(uintptr_t)data;
    for (int d = 0; d < it->rank; d++)
        it->strides[k][d] = strides[d];
}

void attn_nd_iter_add(struct nd_iter *it, const attnrun_tensor *operand)
{
    int64_t strides[ATTNRUN_MAX_RANK] = { 0 };
    int first = it->rank - operand->rank;
    assert(first >= 0);
    for (int d = 0; d < operand->rank; d++)
        strides[first + d] = operand->dims[d] == 1 ? 0 : operand->strides[d];
    attn_nd_iter_add_strided(it, operand->data, strides);
}

/* Whether every operand walks dims d and d + 1 (the faster one) as one. */
static bool mergeable(const struct nd_iter *it, int d, int64_t inner, int from)
{
    for (int k = 0; k < it->n_operands; k++)
        if (it->strides[k][d] != it->strides[k][from] * inner)
            return false;
    return true;
}

/* Drops dims of 1 and merges neighbours; at least one dim remains. It works in place from
 * the fastest dim: `to` is the merged dim that is being built, at or behind the dims that
 * are still to be read. */
static void coalesce(struct nd_iter *it)
{
    int to = ATTNRUN_MAX_RANK;
    for (int d = it->rank - 1; d >= 0; d--) {
        if (it->dims[d] == 1)
            continue;
        if (to < ATTNRUN_MAX_RANK && mergeable(it, d, it->dims[to], to)) {
            it->dims[to] *= it->dims[d];
            continue;
        }
        to--;
        it->dims[to] = it->dims[d];
        for (int k = 0; k < it->n_operands; k++)
            it->strides[k][to] = it->strides[k][d];
    }
    it->rank = ATTNRUN_MAX_RANK - to;
    if (it->rank == 0) {
        it->rank = 1;
        it->dims[0] = 1;
        for (int k = 0; k < it->n_operands; k++)
            it->strides[k][0] = 0;
        return;
    }
    memmove(it->dims, it->dims + to, (size_t)it->rank * sizeof it->dims[0]);
    for (int k = 0; k < it->n_operands; k++)
        memmove(it->strides[k], it->strides[k] + to,
                (size_t)it->rank * sizeof it->dims[0]);
}

void attn_nd_iter_start(struct nd_iter *it, int64_t begin, int64_t end)
{
    coalesce(it);
    it->n = 0;
    it->left = end - begin;
    if (it->left <= 0)
        return;
    for (int d = it->rank - 1; d >= 0; d--) {
        it->index[d] = begin % it->dims[d];
        begin /= it->dims[d];
    }
    for (int k = 0; k < it->n_operands; k++) {
        it->p[k] = it->base[k];
        it->step[k] = it->strides[k][it->rank - 1];
        for (int d = 0; d < it->rank; d++)
            it->p[k] += it->index[d] * it->strides[k][d];
    }
}

/* From the end of a run, which is a line's end, to the start of the next line. */
static void next_line(struct nd_iter *it)
{
    int d = it->rank - 1;
    it->index[d] += it->n;
    for (int k = 0; k < it->n_operands; k++)
        it->p[k] += it->n * it->step[k];
    while (d > 0 && it->index[d] == it->dims[d]) {
        for (int k = 0; k < it->n_operands; k++)
            it->p[k] += it->strides[k][d - 1] - it->dims[d] * it->strides[k][d];
        it->index[d] = 0;
        it->index[--d]++;
    }
}

bool attn_nd_iter_next(struct nd_iter *it)
{
    if (it->left <= 0)
        return false;
    if (it->n > 0)
        next_line(it);
    int last = it->rank - 1;
    int64_t line = it->dims[last] - it->index[last];
    it->n = line < it->left ? line : it->left;
    it->left -= it->n;
    return true;
}
