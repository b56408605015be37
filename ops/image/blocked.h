/* blocked.h - what the operators on maps in blocks of 16 channels share. A blocked map is an
 * ordinary tensor [N, ceil(C / 16), H, W, 16]; lanes of the last block beyond C hold anything,
 * and no operator lets one lane reach another. The pass blocked_layout writes these operators;
 * they check their inputs nevertheless, since a file may name them, too. */
#ifndef ATTN_OPS_BLOCKED_H
#define ATTN_OPS_BLOCKED_H

#include "conv.h"

/* Input `in` has rank 5 and ends with 16. */
attn_status attn_blocked_check(const attnrun_step *step, int in);
/* Outputs of rank 5: blocks of `channels`, height and width. */
attn_status attn_blocked_out(attnrun_step *step, attnrun_dim batch, attnrun_dim blocks,
                             attnrun_dim height, attnrun_dim width);
static inline int64_t blocked_count(int64_t channels)
{
    return (channels + ATTN_BLOCK - 1) / ATTN_BLOCK;
}

/* A convolution of a blocked map, or with `plain` of X[N, C, H, W], to a blocked one. By
 * itself: each channel alone; winograd: in tiles of 2 x 2. */
struct blocked_shape {
    struct window w;               /* axes 1 and 2 */
    int64_t batch, channels, rows; /* of X and Y, without what fills up blocks */
    int64_t groups;
    bool plain, by_itself, winograd;
};
/* How it is cut into tasks. Pixels of one task are `block_h` lines of `block_w` columns of the
 * output, of several lines only where they are whole; columns of one task are panels. */
struct blocked_plan {
    struct blocked_shape shape; /* flattened where the window is 1 */
    int64_t inputs;             /* side by side in X: 16, plain 1 */
    int64_t taps, weight_rows;  /* of a group */
    int64_t columns;            /* of a group */
    int64_t block_h, block_w, h_blocks, w_blocks;
    int64_t block_columns, column_blocks;
    int64_t strip_h, strip_w; /* of the padded copy; 0: X is read where it is */
    int64_t x_row,
        x_plane; /* of X or the copy: floats from a line, a block to the next */
    int64_t n_tasks, task_cost, scratch_bytes, shared_bytes;
};
/* packed: bias by columns, then the weights. */
struct blocked_operands {
    const float *x, *packed, *z, *gate;
    float *y;
    const struct attn_epilogue *activation;
    int n_activation;
    float least, most;
    bool clipped; /* least and most are all of the activation */
};

attn_status attn_blocked_dense_plan(const attnrun_step *step, struct blocked_plan *plan);
void attn_blocked_dense_prepare(const struct blocked_plan *plan, void *shared);
attn_status attn_blocked_dense_run(const attnrun_step *step, const attnrun_work *work,
                                   const struct blocked_plan *plan,
                                   const struct blocked_operands *operands);
/* Of 3 x 3 taps without strides and dilations, in one group. */
attn_status attn_blocked_winograd_plan(const attnrun_step *step,
                                       struct blocked_plan *plan);
void attn_blocked_winograd_prepare(const struct blocked_plan *plan, void *shared);
attn_status attn_blocked_winograd_run(const attnrun_step *step, const attnrun_work *work,
                                      const struct blocked_plan *plan,
                                      const struct blocked_operands *operands);
/* What kernels that look at each channel by itself need of a window. */
static inline struct attn_blocked_rows blocked_rows_of(const struct window *w)
{
    struct attn_blocked_rows d = { .columns = w->out[2] };
    for (int a = 0; a < 2; a++) {
        d.in[a] = w->in[a + 1];
        d.kernel[a] = w->kernel[a + 1];
        d.stride[a] = w->stride[a + 1];
        d.dilation[a] = w->dilation[a + 1];
        d.before[a] = w->before[a + 1];
    }
    return d;
}
/* Each channel by itself; no tables. */
void attn_blocked_rows_plan(struct blocked_plan *plan);
attn_status attn_blocked_rows_run(const attnrun_step *step, const attnrun_work *work,
                                  const struct blocked_plan *plan,
                                  const struct blocked_operands *operands);

/* Packed weights of W[rows, channels / groups, height, width] and of a bias (or NULL): floats
 * needed, -1 where that overflows; and the packing. */
struct blocked_weights {
    const attnrun_tensor *w;
    const float *bias;
    int64_t groups;
    bool plain, by_itself, winograd;
    int vec_bytes;
};
int64_t attn_blocked_packed_floats(const struct blocked_weights *weights);
void attn_blocked_pack(float *packed, const struct blocked_weights *weights);

#endif
