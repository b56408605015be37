/* channels.h - tasks of operators that multiply tokens from the left: blocks of channels
 * of one group (a head, or all) of one sample. */
#ifndef ATTN_CHANNELS_H
#define ATTN_CHANNELS_H

#include "../../runtime/op.h"
#include "../kernels/kernels.h"

struct attn_channels {
    int64_t n, width, blocks; /* channels of a group; of a block; blocks of a group */
    int64_t n_tasks;
};

/* `groups` times `n` channels over `tokens` tokens: 128 channels a task, 64 where that
 * gives few tasks or much scratch. Widths are multiples of ATTN_GEMM_NR_MOST. */
static inline attn_status attn_channels_plan(const attnrun_step *step,
                                             struct attn_channels *c, int64_t groups,
                                             int64_t n, int64_t tokens)
{
    enum { WIDE = 128, NARROW = 64, ENOUGH_TASKS = 8, MANY_TOKENS = 2048 };
    c->n = n;
    c->width = tokens > MANY_TOKENS || n / WIDE < ENOUGH_TASKS / groups ? NARROW : WIDE;
    c->blocks = n / c->width + (n % c->width != 0);
    if (!ck_mul(groups, c->blocks, &c->n_tasks))
        return op_fail(step, ATTNRUN_E_LIMIT, "too many channels");
    return ATTNRUN_OK;
}

/* The group of a task, its first channel within the group and their number. */
static inline int64_t attn_channels_of(const struct attn_channels *c, int64_t task,
                                       int64_t *first, int64_t *width)
{
    *first = task % c->blocks * c->width;
    *width = c->n - *first < c->width ? c->n - *first : c->width;
    return task / c->blocks;
}

#endif
