/* sliding_window.h - the sliding windows of convolution and pooling: kernel, strides,
 * dilations, pads.
 *
 * There are up to three spatial axes. struct window always has three, right-aligned: a
 * 1-D operator uses axis 2, and an axis that does not exist is 1 wide with kernel 1. */
#ifndef ATTN_OPS_SLIDING_WINDOW_H
#define ATTN_OPS_SLIDING_WINDOW_H

#include "../../runtime/op.h"

enum { WINDOW_AXES = 3 };
enum { WINDOW_NOTSET, WINDOW_SAME_UPPER, WINDOW_SAME_LOWER, WINDOW_VALID };

/* The first member of an args struct that has windows. */
struct window_attrs {
    int32_t auto_pad;
    attnrun_ints kernel_shape, strides, dilations, pads;
};

#define WINDOW_ATTR_ROWS                                                                 \
    ATTR_ENUM(struct window_attrs, auto_pad, "NOTSET|SAME_UPPER|SAME_LOWER|VALID", 0),   \
        ATTR_INTS(struct window_attrs, kernel_shape),                                    \
        ATTR_INTS(struct window_attrs, strides), ATTR_INTS(struct window_attrs, pads)
#define WINDOW_DILATIONS ATTR_INTS(struct window_attrs, dilations)

struct window {
    int64_t in[WINDOW_AXES], out[WINDOW_AXES], kernel[WINDOW_AXES];
    int64_t stride[WINDOW_AXES], dilation[WINDOW_AXES];
    int64_t before[WINDOW_AXES], after[WINDOW_AXES];
};

/* Checks lengths and values of the attributes for `n` spatial axes. Every number that
 * will divide or multiply is in 1 .. 2^31 - 1 (pads from 0), so 64-bit arithmetic on them
 * cannot overflow. */
attn_status attn_window_check(const attnrun_step *step, const struct window_attrs *attrs,
                              int n);
/* The spatial rank of input 0 (2 + n dims), which must be 1 .. 3; -1 where unknown. */
attn_status attn_window_rank(const attnrun_step *step, int *n);
/* The first spatial axis of an image, and the axis of its channels, which may be the last
 * one instead of axis 1. */
static inline int window_spatial(bool channels_last) { return channels_last ? 1 : 2; }
static inline int window_channel(int n, bool channels_last)
{
    return channels_last ? n + 1 : 1;
}
/* The output dim along spatial axis `axis`; `ceil_mode` as in pooling. */
attn_status attn_window_out(const attnrun_step *step, const struct window_attrs *attrs,
                            int n, int axis, attnrun_dim in, attnrun_dim kernel,
                            bool ceil_mode, attnrun_dim *out);
/* Fills in the window from constant dims. */
attn_status attn_window_resolve(const attnrun_step *step,
                                const struct window_attrs *attrs, int n,
                                const attnrun_dim *in, const attnrun_dim *kernel,
                                bool ceil_mode, struct window *window);

static inline int64_t window_attr(attnrun_ints ints, int axis, int64_t otherwise)
{
    return ints.v != NULL && axis < ints.n ? ints.v[axis] : otherwise;
}
/* An estimate of nanoseconds as op_tasks() takes it. */
static inline int64_t window_cost(double ns)
{
    return ns < 1e15 ? (int64_t)ns : INT64_C(1000000000000000);
}
/* The output positions [*from, *to) of an axis whose tap at `offset` = kernel index *
 * dilation falls into the input. */
static inline void window_valid(const struct window *w, int axis, int64_t offset,
                                int64_t *from, int64_t *to)
{
    int64_t s = w->stride[axis], shift = w->before[axis] - offset;
    int64_t lo = shift > 0 ? ceil_div(shift, s) : 0;
    int64_t room = w->in[axis] - 1 + shift;
    int64_t hi = room < 0 ? 0 : room / s + 1;
    *to = hi < w->out[axis] ? hi : w->out[axis];
    *from = lo < *to ? lo : *to;
}

#endif
