/* reduce_plan.h - an array cut into dims that are kept and dims that are folded, in as
 * few loops as its axes allow. In: a shape and axes. Out: merged dims and strides. */
#ifndef ATTN_REDUCE_PLAN_H
#define ATTN_REDUCE_PLAN_H

#include "../../runtime/op.h"

struct reduce_loops {
    int32_t n;
    int64_t count;                     /* product of dims */
    int64_t dims[ATTNRUN_MAX_RANK];    /* fastest first */
    int64_t strides[ATTNRUN_MAX_RANK]; /* elements */
};

struct reduce_plan {
    int64_t run;              /* contiguous elements of the fastest dims */
    int32_t run_folded;       /* they are folded to one output; else each has its own */
    struct reduce_loops kept; /* around the run */
    struct reduce_loops folded;
    int64_t folded_count; /* elements behind one output */
};

/* Dense dims; bit d of `mask`: dim d is folded. */
void attn_reduce_plan_make(struct reduce_plan *plan, int rank, const int64_t *dims,
                           uint32_t mask);

/* Element offset of position k. */
static inline int64_t reduce_offset(const struct reduce_loops *loops, int64_t k)
{
    int64_t offset = 0;
    for (int d = 0; d < loops->n; d++) {
        offset += k % loops->dims[d] * loops->strides[d];
        k /= loops->dims[d];
    }
    return offset;
}

#endif
