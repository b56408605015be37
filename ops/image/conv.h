/* conv.h - what the convolution operators share: the shape in numbers, the tiling, and
 * the drivers of the float kernels.
 *
 *   Y[batch, groups * rows, pixels] = W[groups * rows, channels, taps]
 *                                     over X[batch, groups * channels, inputs]
 *
 * The shape alone chooses one of four ways: matrix products of columns (conv_gemm.c), a
 * padded strip (conv_strip.c), the planes where they lie (conv_planes.c), or one product of
 * a matrix and a vector, where the window is the whole image (conv_dense.c).
 * Cost: 2 batch groups rows pixels channels taps FLOPs. */
#ifndef ATTN_OPS_CONV_H
#define ATTN_OPS_CONV_H

#include "../storage.h"
#include "../tile.h"
#include "sliding_window.h"

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
 * where the step is concrete, fills in `shape`. channels_last: of input and output. */
attn_status attn_conv_infer(attnrun_step *step, const struct window_attrs *attrs,
                            int64_t group, int w_in, bool channels_last,
                            int32_t out_dtype, struct conv_shape *shape);

/* By columns and matrix products. A tile of the product: `block_rows` rows of one group,
 * `block_pixels` pixels, K in chunks of at most `block_k`. */
struct conv_tiles {
    int64_t block_rows, block_pixels, block_k;
    int64_t row_blocks, pixel_blocks, k_blocks;
    int64_t line_floats, panel_floats;
    int64_t room_rows; /* rows of weights that become floats together */
};

/* Directly, from the planes as they are: blocks of pixels of `groups` groups. */
struct conv_planes {
    int64_t block, blocks, groups, group_blocks;
};

/* Directly: blocks of pixels of one group, whose padded input is in scratch. */
struct conv_strip {
    int64_t room_rows; /* of W that a task computes at one time */
    int64_t block_h, block_w, h_blocks, w_blocks;
    int64_t rows, pitch, tail; /* of a plane of the strip: see conv_strip.c */
    int64_t floats;
};

/* The window is the image: blocks of `rows` rows of weights. */
struct conv_dense {
    int64_t rows, blocks;
};

/* How a convolution of floats is computed; the tiling depends on the shape alone. */
enum conv_way { CONV_GEMM, CONV_PLANES, CONV_STRIP, CONV_DENSE };
struct conv_plan {
    struct conv_shape shape; /* as given, but flattened where the window is 1 */
    struct conv_tiles tiles;
    struct conv_planes planes;
    struct conv_strip strip;
    struct conv_dense dense;
    enum conv_way way;
    int64_t n_tasks, task_cost, scratch_bytes;
    int64_t shared_bytes; /* what attn_conv_prepare() writes; 0: nothing */
    /* Weights of f16 or bf16, or with a scale, become floats in scratch from room_at on. */
    bool converts;
    int64_t room_at;
};
struct conv_operands {
    const float *x, *bias, *z; /* bias, z may be NULL */
    const void *w;             /* of w_dtype */
    int32_t w_dtype;
    const float *scale; /* of the output channels; or NULL */
    float *y;
    const struct attn_epilogue *activation;
    int n_activation;
};
/* From plan->shape. Fails where sizes overflow. */
attn_status attn_conv_plan(const attnrun_step *step, struct conv_plan *plan);
/* Before the tasks: tables for all of them. */
void attn_conv_prepare(const attnrun_step *step, const struct conv_plan *plan,
                       void *shared);
/* The tasks of `work`: its scratch has plan->scratch_bytes, `shared` is as prepared.
 * E_CANCELLED. */
attn_status attn_conv_run(const attnrun_step *step, const attnrun_work *work,
                          const struct conv_plan *plan,
                          const struct conv_operands *operands);

/* The ways; *fits is false where one is not possible or not the best. */
attn_status attn_conv_gemm_plan(const attnrun_step *step, struct conv_plan *plan);
attn_status attn_conv_gemm_run(const attnrun_step *step, const attnrun_work *work,
                               const struct conv_plan *plan,
                               const struct conv_operands *operands);
void attn_conv_planes_plan(struct conv_plan *plan, bool *fits);
void attn_conv_planes_prepare(const attnrun_step *step, const struct conv_plan *plan,
                              uint16_t *edges);
attn_status attn_conv_planes_run(const attnrun_step *step, const attnrun_work *work,
                                 const struct conv_plan *plan,
                                 const struct conv_operands *operands);
void attn_conv_strip_plan(struct conv_plan *plan, bool *fits);
void attn_conv_strip_prepare(const struct conv_plan *plan, int64_t *offsets);
attn_status attn_conv_strip_run(const attnrun_step *step, const attnrun_work *work,
                                const struct conv_plan *plan,
                                const struct conv_operands *operands);
void attn_conv_dense_plan(struct conv_plan *plan, bool *fits);
attn_status attn_conv_dense_run(const attnrun_step *step, const attnrun_work *work,
                                const struct conv_plan *plan,
                                const struct conv_operands *operands);
/* Room for so many weights at the end of scratch, where the plan converts. */
void attn_conv_add_room(struct conv_plan *plan, int64_t weights);
/* Weights from .. from + n - 1 of `rows` output channels from `row` on, as floats whose rows are
 * *stride apart: where they are, or in the worker's room. */
const float *attn_conv_weights(const attnrun_step *step, const attnrun_work *work,
                               const struct conv_plan *plan,
                               const struct conv_operands *o, int64_t row, int64_t rows,
                               int64_t from, int64_t n, int64_t *stride);
/* [*min, *max] is what relu or clip leaves, everything for none of them; false where
 * there is another activation. */
bool attn_conv_limits(const struct conv_operands *o, float *min, float *max);

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
/* The words of the fused forms, in this order. */
#define CONV_ACTIVATIONS                                                                 \
    "none|relu|clip|relu6|silu|hardswish|sigmoid|tanh|leakyrelu|gelu|gelu_tanh|"         \
    "hardsigmoid"
int attn_conv_activation(int kind, const float *alpha, const float *beta,
                         struct attn_epilogue *steps);

#endif
