/* pool.h - what the pooling operators share. */
#ifndef ATTN_OPS_POOL_H
#define ATTN_OPS_POOL_H

#include "window.h"

struct pool_args {
    struct window_attrs window; /* kernel_shape is required */
    int64_t ceil_mode, count_include_pad, storage_order, p;
    float p_float; /* LpPool-1 */
};

struct pool_state {
    struct window w;
    int64_t planes, in_plane, out_plane; /* elements */
};

/* Kernel indices [*from, *to) that see the input for some output position of first..last.
 */
static inline void attn_pool_taps(const struct window *w, int axis, int64_t first,
                                  int64_t last, int64_t *from, int64_t *to)
{
    int64_t d = w->dilation[axis], b = w->before[axis];
    int64_t lo = b - last * w->stride[axis];
    int64_t hi = w->in[axis] - 1 + b - first * w->stride[axis];
    lo = lo > 0 ? (lo + d - 1) / d : 0;
    hi = hi < 0 ? 0 : hi / d + 1;
    *to = hi < w->kernel[axis] ? hi : w->kernel[axis];
    *from = lo < *to ? lo : *to;
}

/* Outputs 0 .. n_out - 1 of the pooled shape; where concrete, the state, and tasks of one
 * row of output pixels each, with scratch for one row of the input. */
attn_status attn_pool_infer(attnrun_step *step, const struct pool_args *args);
/* Where task `task` is: its plane, and output depth and row. */
void attn_pool_at(const struct pool_state *state, int64_t task, int64_t *plane,
                  int64_t at[2]);

#endif
