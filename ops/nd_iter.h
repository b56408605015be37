/* nd_iter.h - splits operands of up to 8 dims into long segments, with one stride per
 * operand, so that inner loops see only (n, pointers, byte strides).
 *
 *     struct nd_iter it;
 *     attn_nd_iter_init(&it, y->rank, y->dims);
 *     attn_nd_iter_add(&it, y);                    operand 0
 *     attn_nd_iter_add(&it, a);                    operand 1: dims of 1 are repeated
 *     attn_nd_iter_start(&it, begin, end);         elements [begin, end), row-major
 *     while (attn_nd_iter_next(&it))
 *         loop(it.n, it.p[0], it.step[0], it.p[1], it.step[1]);
 *
 * Neighbouring dims that have one stride in every operand are merged, and dims of 1 are
 * dropped, so dense operands of equal dims are one segment. A range may start and end
 * anywhere: tasks cut the elements as they like. Elements have whole bytes. */
#ifndef ATTN_ND_ITER_H
#define ATTN_ND_ITER_H

#include "../runtime/op.h"

enum { ND_OPERANDS = 8 };

struct nd_iter {
    int64_t n;                 /* elements of this run */
    char *p[ND_OPERANDS];      /* first element of this run, by operand */
    int64_t step[ND_OPERANDS]; /* bytes from one element of a run to the next */
    /* The rest belongs to nd_iter.c. */
    int32_t rank, n_operands;
    int64_t left; /* elements behind this run */
    int64_t
        dims[ATTNRUN_MAX_RANK]; /* merged, slowest first; dims[rank - 1] is the segment */
    int64_t index[ATTNRUN_MAX_RANK];                /* of the run's first element */
    int64_t strides[ND_OPERANDS][ATTNRUN_MAX_RANK]; /* bytes */
    char *base[ND_OPERANDS];
};

/* The dims that all operands are broadcast to; 0 <= rank <= ATTNRUN_MAX_RANK. */
void attn_nd_iter_init(struct nd_iter *it, int rank, const int64_t *dims);
/* An operand: dims aligned at the last one; each equals the iterator's or is 1. */
void attn_nd_iter_add(struct nd_iter *it, const attnrun_tensor *operand);
/* An operand given by one stride per dim of the iterator. */
void attn_nd_iter_add_strided(struct nd_iter *it, const void *data,
                              const int64_t *strides);
/* After all operands: only [begin, end) of the elements, 0 <= begin <= end <= their
 * count. */
void attn_nd_iter_start(struct nd_iter *it, int64_t begin, int64_t end);
/* Moves to the next run; false at the end. */
bool attn_nd_iter_next(struct nd_iter *it);

#endif
