/* blocked.h - what the operators on maps in blocks of 16 channels share. A blocked map is
 * an ordinary tensor [N, ceil(C / 16), H, W, 16]. The lanes of the last block beyond C
 * may hold any number, and no operator lets one lane influence another. The pass
 * blocked_layout writes these operators; they check their inputs nevertheless, because a
 * file may name them, too. */
#ifndef ATTN_OPS_BLOCKED_H
#define ATTN_OPS_BLOCKED_H

#include "../../runtime/range.h"
#include "../storage.h"
#include "conv.h"

/* Columns of a panel of weights: attn_blocked_conv. */
static inline int64_t blocked_panel(const struct attn_kernels *kernels)
{
    return attn_blocked_panel(op_vector_bytes(kernels));
}

/* Input `in` has rank 5 and ends with 16. */
attn_status attn_blocked_check(const attnrun_step *step, int in);
/* An attribute that is a byte: a zero point, or a limit of bytes. */
attn_status attn_blocked_check_byte(const attnrun_step *step, const char *name,
                                    int64_t byte);
/* Outputs of rank 5: blocks of `channels`, height and width. */
attn_status attn_blocked_out(attnrun_step *step, attnrun_dim batch, attnrun_dim blocks,
                             attnrun_dim height, attnrun_dim width);
static inline int64_t blocked_count(int64_t channels)
{
    return ceil_div(channels, ATTN_BLOCK);
}

/* Of n pixels of `unit` words of two bf16, `left` inputs of each are channels. Lanes beyond the
 * channels may hold anything, NaN too, which a weight of 0 does not take away: they become 0. */
static inline void blocked_clear_words(uint32_t *pixel, int64_t n, int64_t unit,
                                       int64_t left)
{
    for (int64_t i = 0; i < n; i++, pixel += unit) {
        if (left % 2 != 0)
            pixel[left / 2] &= 0xffff;
        for (int64_t word = (left + 1) / 2; word < unit; word++)
            pixel[word] = 0;
    }
}

/* Products are those of tiles (AMX). */
static inline bool blocked_by_tiles(const struct attn_kernels *kernels, bool bytes,
                                    bool words)
{
    return bytes ? kernels->tiles : words && kernels->tiles_bf16;
}

/* Channels of a pixel that lie side by side where a kernel reads them, of a group of `channels`:
 * those of a block, or, for tiles (AMX), of the blocks whose words fill a row of one. A plain map
 * is read by channels, but words have all channels of a pixel. */
static inline int64_t blocked_inputs(const struct attn_kernels *kernels, int64_t channels,
                                     bool plain, bool bytes, bool words)
{
    if (plain)
        return bytes ? 4 : words ? (channels + 1) / 2 * 2 : 1;
    if (!blocked_by_tiles(kernels, bytes, words))
        return ATTN_BLOCK;
    const int64_t blocks = blocked_count(channels), most = bytes ? 4 : 2;
    return ceil_div(blocks, ceil_div(blocks, most)) * ATTN_BLOCK;
}

/* Rows of weights of those channels from c on: a row has 4 of bytes, 2 of words. Kernels of several
 * columns have rows for all inputs, so that a line of the kernel sees words without gaps; so have
 * tiles, whose taps are alike. */
static inline int64_t blocked_rows_from(const struct attn_kernels *kernels,
                                        int64_t channels, int64_t inputs, int64_t c,
                                        int64_t kernel_columns, bool bytes, bool words)
{
    const int64_t of_row = bytes ? 4 : words ? 2 : 1;
    if (of_row > 1 && (kernel_columns > 1 || blocked_by_tiles(kernels, bytes, words)))
        return inputs / of_row;
    return ceil_div(min64(channels - c, inputs), of_row);
}

/* A convolution of a blocked map, or with `plain` of X[N, C, H, W], to a blocked one. By
 * itself: each channel alone; winograd: in tiles of 2 x 2. */
struct blocked_shape {
    struct window w;               /* axes 1 and 2 */
    int64_t batch, channels, rows; /* of X and Y, without what fills up blocks */
    int64_t groups;
    bool plain, by_itself, winograd;
    bool bytes;          /* X, Y: u8; plain: [N, ceil(C / 4), H, W, 4] with C <= 4 */
    bool x_bf16, y_bf16; /* X, Y: bf16, two of which are a word of the products */
    bool z_bf16;
    int32_t plain_type; /* of a plain X in f16 or bf16, whose copy has floats; else 0 */
    /* A pixel of the sums becomes spread[0] x spread[1] pixels of Y, of rows / their number
     * channels each; `line`: pixels of a line of X. 1, 1: it stays one. */
    int64_t spread[2], line;
};
/* How it is cut into tasks. Pixels of one task are `block_h` lines of `block_w` columns of the
 * output, of several lines only where they are whole; columns of one task are panels. */
struct blocked_plan {
    struct blocked_shape shape; /* flattened where the window is 1 */
    int64_t inputs;             /* side by side where kernels read X: blocked_inputs() */
    int64_t taps, weight_rows;  /* of a group; of bytes a row has 4 inputs */
    bool whole_rows;            /* a tap is a whole row of the kernel */
    bool words;                 /* products of bf16: the copy has words of two inputs */
    bool
        tiles; /* of AMX: they read the copy, and each tap has tap_rows rows of weights */
    int64_t tap_rows;
    int64_t columns; /* of a group */
    int64_t block_h, block_w, h_blocks, w_blocks;
    int64_t block_columns, column_blocks;
    int64_t strip_h, strip_w; /* of the padded copy; 0: X is read where it is */
    int64_t x_row,
        x_plane; /* of X or the copy: elements from a line, a block to the next */
    int64_t n_tasks, task_cost, scratch_bytes, shared_bytes;
    const struct attn_kernels *kernels;
    int32_t
        w_type; /* of the packed weights: ATTN_B_F32 …; words of bf16 count as floats */
    int64_t sums_at; /* in scratch: of bytes sums of inputs, else results to be rounded */
    int64_t
        floats_at;   /* the floats of a panel of weights of 16 bits; 0: there are none */
    int64_t kept_at; /* and which strip of the input scratch shows; 0: there is none */
};
/* Columns of the widest panel of `columns` columns. */
static inline int64_t blocked_widest_panel(const struct attn_kernels *kernels,
                                           int64_t columns)
{
    return min64(columns, blocked_panel(kernels));
}
/* The parts of what attn_blocked_pack() has packed: bias and scale (or NULL) by columns, and the
 * weights. */
struct blocked_operands {
    const float *x, *bias, *scale, *z;
    const void *w; /* of plan->w_type */
    float *y;      /* x, y: of the types of X and Y */
    const struct attn_epilogue *activation;
    int n_activation;
    float min, max;
    bool clipped; /* min and max are all of the activation */
};

/* Packed weights from element `index` on. */
static inline const void *blocked_weights_at(const struct blocked_plan *plan,
                                             const void *weights, int64_t index)
{
    return (const char *)weights + index * (plan->w_type == ATTN_B_F32 ? 4 : 2);
}

/* What BlockedConv and BlockedQLinearConv share: attributes, and inputs X, W, B, Z. */
struct blocked_conv_args {
    struct window_attrs window;
    int64_t group, channels, plain, winograd, transposed, to_bf16, spread_h, spread_w;
    int32_t activation;
    float alpha, beta;
};
#define BLOCKED_CONV_ATTRS                                                               \
    WINDOW_ATTR_ROWS, WINDOW_DILATIONS, ATTR_INT(struct blocked_conv_args, group, 1),    \
        ATTR_INT_REQUIRED(struct blocked_conv_args, channels),                           \
        ATTR_FLAG(struct blocked_conv_args, plain, 0)
static inline bool blocked_by_itself(const struct blocked_conv_args *args, int64_t rows)
{
    return args->group > 1 && args->group == args->channels && args->group == rows;
}
/* Checks all of them, states the output, and for concrete shapes makes plan->shape; *empty:
 * there is nothing to compute, and the step is complete. */
attn_status attn_blocked_conv_shape(attnrun_step *step,
                                    const struct blocked_conv_args *args,
                                    struct blocked_plan *plan, bool *empty);
/* Height and width of the output, by the window of W (input 1), which kernel_shape may repeat. */
attn_status attn_blocked_window(const attnrun_step *step,
                                const struct window_attrs *window, attnrun_dim out[2]);
/* Input `in` has the dims of the output. */
attn_status attn_blocked_check_like_out(const attnrun_step *step, int in);
/* The activation of a convolution as steps (room for 3), and what it clips to. */
void attn_blocked_set_activation(struct blocked_operands *operands,
                                 struct attn_epilogue *steps, int32_t kind,
                                 const float *alpha, const float *beta);
/* Bias, factors and weights of `rows` output channels in what attn_blocked_pack() has packed. */
void attn_blocked_set_packed(struct blocked_operands *operands, const void *packed,
                             int64_t rows, bool scaled);
/* Scratch, shared memory and tasks of a plan. */
void attn_blocked_conv_tasks(attnrun_step *step, struct blocked_plan *plan);

/* A part of the output: lines from h on, columns from w on. */
struct blocked_part {
    int64_t image, group, h, w, rows, columns;
};
/* A task of a dense convolution: its strip, whose input it sees, and its columns. The first one is
 * counted through all groups; `y`: the element of Y where that is, for the first pixel. */
struct blocked_task {
    struct blocked_part part;
    int64_t strip, column, columns, y;
};
struct blocked_task attn_blocked_task_at(const struct blocked_plan *plan, int64_t task);
/* Its first column alone. */
int64_t attn_blocked_first_column(const struct blocked_plan *plan, int64_t task);
/* Elements from a block of Y to the next. */
static inline int64_t blocked_y_block(const struct blocked_plan *plan)
{
    return plan->shape.w.out[1] * plan->shape.w.out[2] * ATTN_BLOCK;
}
/* Columns of all groups. */
static inline int64_t blocked_all_columns(const struct blocked_plan *plan)
{
    return plan->shape.groups == 1 ? plan->columns : plan->shape.rows;
}
/* Where a part finds its input: in X, or in the copy `strip`, with `padding` around; `kept`:
 * that is there already. */
const void *attn_blocked_find_x(const struct blocked_plan *plan,
                                const struct blocked_part *part, const void *x,
                                void *strip, int padding, bool kept);
/* The strip that the worker's scratch shows as a range begins, or -1; and what it shows
 * then, for the ranges that follow. */
static inline int64_t attn_blocked_kept(const struct blocked_plan *plan,
                                        const attnrun_work *work)
{
    if (plan->kept_at == 0 || !attn_work_resumes(work))
        return -1;
    return *(const int64_t *)op_slot_at(work->scratch, plan->kept_at);
}
static inline void attn_blocked_keep(const struct blocked_plan *plan,
                                     const attnrun_work *work, int64_t strip)
{
    if (plan->kept_at > 0)
        *(int64_t *)op_slot_at(work->scratch, plan->kept_at) = strip;
}

/* The grid of the pixels of a part, where tiles read them. */
struct attn_pixel_grid attn_blocked_grid(const struct blocked_plan *plan,
                                         const struct blocked_part *part);
attn_status attn_blocked_dense_plan(const attnrun_step *step, struct blocked_plan *plan);
void attn_blocked_dense_prepare(const struct blocked_plan *plan, void *shared);
attn_status attn_blocked_dense_run(const attnrun_step *step, const attnrun_work *work,
                                   const struct blocked_plan *plan,
                                   const struct blocked_operands *operands);
/* All columns of some pixels of floats: fills in `columns` and `next` of c, which advances. */
attn_status attn_blocked_dense_floats(const attnrun_step *step,
                                      const struct blocked_operands *operands,
                                      struct attn_blocked_conv *c, int64_t columns);
/* Of 3 x 3 taps without strides. */
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
/* How many columns, from `from` on, one call computes of so many lines: all, or of one line a part,
 * an even number, because kernels poll a line at a time. */
int64_t attn_blocked_columns(const struct window *w, int64_t rows, int64_t from);
/* Each channel by itself; no tables. */
void attn_blocked_rows_plan(struct blocked_plan *plan);
attn_status attn_blocked_rows_run(const attnrun_step *step, const attnrun_work *work,
                                  const struct blocked_plan *plan,
                                  const struct blocked_operands *operands);

/* Packed weights of W[rows, channels / groups, height, width] and of a bias (or NULL): bytes
 * needed, -1 where that overflows; and the packing. Weights of f16 and bf16 stay what they are
 * (but for words of bf16), with the scale packed beside the bias; else it is multiplied in. */
struct blocked_weights {
    const attnrun_tensor *w;
    const float *bias;
    int64_t groups;
    bool plain, by_itself, winograd;
    bool transposed;    /* w is [channels, rows, 1, 1] */
    bool floats;        /* no words of bf16, whatever the products are */
    const float *scale; /* of each row of W and of the bias; or NULL */
    const struct attn_kernels *kernels;
};
/* The products are of words of two bf16; of a plain map with a few channels in a pixel, too. */
static inline bool blocked_has_words(const struct attn_kernels *kernels, int64_t channels,
                                     bool plain, bool by_itself)
{
    return kernels->dots_bf16 && !by_itself && (!plain || channels <= ATTN_BLOCK);
}
/* The type of the packed weights of W of this type. */
static inline int32_t blocked_w_type(int32_t dtype, bool words)
{
    return words ? ATTN_B_F32 : attn_stored_as(dtype);
}
int64_t attn_blocked_packed_bytes(const struct blocked_weights *weights);
void attn_blocked_pack(void *packed, const struct blocked_weights *weights);

#endif
