/* conv_bytes.h - convolution of 8-bit integers as products of weights and columns, tile
 * by tile, for operators. Its results are sums over taps of (x - x_zero)(w - w_zero),
 * modulo 2^32. */
#ifndef ATTN_OPS_CONV_BYTES_H
#define ATTN_OPS_CONV_BYTES_H

#include "conv.h"

/* A tile: `block_rows` rows of one group, `block_pixels` pixels. Offsets of scratch in
 * bytes. */
struct conv_bytes {
    struct conv_shape shape;
    int64_t block_rows, block_pixels, row_blocks, pixel_blocks;
    int64_t columns_at, panels_at, column_sums_at, zeros_at, sums_at;
    int64_t n_tasks, task_cost, scratch_bytes;
    bool summed; /* sums are for finish() */
    bool direct; /* windows of one pixel: X has its columns already */
};

/* Sums of rows channel … channel + m - 1 (all groups counted), n pixels; [0][0] is
 * element `y` of Y. */
struct conv_bytes_block {
    uint32_t *sums;
    int64_t row, channel, m, n, y; /* row: from one to the next */
    void *target;                  /* of the operands */
};
struct conv_bytes_operands {
    const attnrun_tensor *x, *w, *w_zero; /* w_zero NULL, one, or one a channel */
    int32_t x_zero;
    uint32_t *y;  /* or finish(); `scratch` has room for block_pixels floats */
    void *target; /* for finish(): where Y is */
    void (*finish)(const attnrun_step *step, const struct conv_bytes_block *block,
                   float *scratch);
};

/* Fills in c from c->shape, and states the tasks of `phase`, and scratch. */
attn_status attn_conv_bytes_plan(attnrun_step *step, int phase, bool summed,
                                 struct conv_bytes *c);
attn_status attn_conv_bytes_run(const attnrun_step *step, const attnrun_work *work,
                                const struct conv_bytes *c,
                                const struct conv_bytes_operands *o);

#endif
