/* conv.h - what the convolution operators share: the shape in numbers, the tiling, and
 * the float kernels' drivers. */
#ifndef ATTN_OPS_CONV_H
#define ATTN_OPS_CONV_H

#include "../kernels/kernels.h"
#include "window.h"

/* Y[batch, groups * rows, pixels] from X[batch, groups * channels, w.in] and
 * W[groups * rows, channels, w.kernel]. */
struct conv_shape {
    struct window w;
    int64_t batch, groups, channels, rows;
    int64_t taps;   /* kernel volume */
    int64_t k;      /* channels * taps */
    int64_t pixels; /* out volume */
    int64_t inputs; /* in volume */
};

/* Fills in all but the window from X and W (input `w_in`); refuses what does not fit.
 * `transposed`: W is [groups * channels, rows, kernel]. */
attn_status attn_conv_shape(const attnrun_step *step, int w_in, int64_t groups,
                            bool transposed, struct conv_shape *shape);
/* Checks a convolution of input 0 with the weights in input `w_in` and sets output 0;
 * where the step is concrete, fills in `shape`. */
attn_status attn_conv_infer(attnrun_step *step, const struct window_attrs *attrs,
                            int64_t group, int w_in, int32_t out_dtype,
                            struct conv_shape *shape);

/* A tile of the product: `block_rows` rows of one group, `block_pixels` pixels, K in
 * chunks of at most `block_k`. */
struct conv_tiles {
    int64_t block_rows, block_pixels, block_k;
    int64_t row_blocks, pixel_blocks, k_blocks;
    int64_t line_floats, panel_floats;
};

/* By columns and matrix products. A window of 1 without stride and padding is flattened
 * to one row first. */
attn_status attn_conv_gemm_plan(attnrun_step *step, struct conv_shape *shape,
                                struct conv_tiles *tiles);
struct conv_operands {
    const float *x, *w, *bias, *z; /* bias, z may be NULL */
    float *y;
    const struct attn_epilogue *activation;
    int n_activation;
};
attn_status attn_conv_gemm_run(const attnrun_step *step, const attnrun_work *work,
                               const struct conv_shape *shape,
                               const struct conv_tiles *tiles,
                               const struct conv_operands *operands);

/* Depthwise, one channel per group: rows of the input are padded and de-interleaved into
 * scratch. *fits is false where the kernel spans too much for that. */
struct conv_strip {
    int64_t block_h, block_w, h_blocks, w_blocks;
    int64_t rows;        /* of input, per block */
    int64_t phase;       /* floats of one phase (stride) of a row */
    int64_t first_float; /* of the strip in scratch; the tap offsets come before */
};
void attn_conv_depthwise_plan(attnrun_step *step, const struct conv_shape *shape,
                              struct conv_strip *strip, bool *fits);
attn_status attn_conv_depthwise_run(const attnrun_step *step, const attnrun_work *work,
                                    const struct conv_shape *shape,
                                    const struct conv_strip *strip,
                                    const struct conv_operands *operands);

/* Plain loops: one task is one row of output pixels (out axis 2) of all rows of one
 * group. */
attn_status attn_conv_plain_plan(attnrun_step *step, const struct conv_shape *shape);
attn_status attn_conv_f64_run(const attnrun_step *step, const attnrun_work *work,
                              const struct conv_shape *shape);

/* Steps that need no matrix: y[i] = steps(y[i]). */
void attn_conv_apply(const struct attn_kernels *kernels,
                     const struct attn_epilogue *steps, int n_steps, float *y, int64_t n);

/* The activation of a fused node as steps of a gemm epilogue, at most 3; 0 for none. */
enum conv_activation {
    CONV_ACT_NONE,
    CONV_ACT_RELU,
    CONV_ACT_CLIP,
    CONV_ACT_RELU6,
    CONV_ACT_SILU,
    CONV_ACT_HARDSWISH,
    CONV_ACT_SIGMOID,
    CONV_ACT_TANH,
    CONV_ACT_LEAKYRELU,
    CONV_ACT_GELU,
    CONV_ACT_GELU_TANH,
    CONV_ACT_HARDSIGMOID
};
int attn_conv_activation(int kind, const float *alpha, const float *beta,
                         struct attn_epilogue *steps);

#endif
