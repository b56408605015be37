/* blocked_bytes.h - what the files of BlockedQLinearConv share: its state, its operands,
 * and the layout of its packed weights. */
#ifndef ATTN_OPS_BLOCKED_BYTES_H
#define ATTN_OPS_BLOCKED_BYTES_H

#include "blocked.h"

struct blocked_bytes_args {
    struct blocked_conv_args conv;
    int64_t x_zero, y_zero, z_zero, sum_zero, low, high;
    float ratio, z_ratio;
};

/* What is packed. The zero points of x are part of the numbers that sums begin with. All
 * lists are by columns, filled up. */
struct blocked_byte_weights {
    const attnrun_tensor *w, *w_zero;
    const int32_t *bias; /* or NULL */
    const float *factor;
    int64_t groups;
    int32_t x_zero;
    bool plain, by_itself;
    int64_t stride, panel; /* along columns of the map; columns of a panel */
    const struct attn_kernels *kernels;
};
/* The bytes of the packed weights, -1 where they overflow; and the packing. */
int64_t attn_blocked_byte_packed(const struct blocked_byte_weights *weights);
void attn_blocked_byte_pack(void *packed, const struct blocked_byte_weights *weights);
struct blocked_byte_packed {
    bool any_zero; /* zero points of weights that are left, as i8 */
    int64_t parts; /* depthwise: 2 or 3 where differences need more than a byte */
    const uint32_t *begin, *w_sum, *w_zero, *ones;
    const float *factor;
    const uint8_t *w;
};
struct blocked_byte_packed attn_blocked_byte_packed_at(const void *packed,
                                                       int64_t columns, int64_t rows);

/* Depthwise: the number of groups of 4 pixels of a line that a pair of outputs sees. */
static inline int64_t blocked_pair_groups(int64_t kernel, int64_t stride)
{
    return (kernel + stride + 3) / 4;
}
attn_status attn_blocked_byte_rows_plan(const attnrun_step *step,
                                        struct blocked_plan *plan);
attn_status attn_blocked_byte_rows_run(const attnrun_step *step, const attnrun_work *work,
                                       const struct blocked_plan *plan,
                                       const struct attn_requantize *to);

#endif
