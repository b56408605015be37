/* conv_plain.h - rows of output pixels for the plain loops of conv_plain.c. */
#ifndef ATTN_OPS_CONV_PLAIN_H
#define ATTN_OPS_CONV_PLAIN_H

#include "conv.h"

struct conv_plain_row {
    int64_t at[2];   /* output depth and row */
    int64_t x;       /* element of X where the group begins */
    int64_t channel; /* first output channel of the group */
    int64_t y;       /* element of Y of the row in that channel */
};
void attn_conv_plain_at(const struct conv_shape *shape, int64_t task,
                        struct conv_plain_row *row);
/* sum[i] += taps of output channel row->channel + m, for 8-bit X and W; wraps. */
void attn_conv_int_row(uint32_t *sum, const attnrun_tensor *x, const attnrun_tensor *w,
                       const struct conv_shape *shape, const struct conv_plain_row *row,
                       int64_t m, int32_t x_zero, int32_t w_zero);

#endif
