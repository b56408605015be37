/* gated_maps.h - what gates over maps share. A map is f32 (batch, channels, height,
 * width). A gate multiplies it by a number for each channel, for each pixel, or for both:
 *
 *   infer:  attn_map_check(), attn_map_check_mlp(), attn_map_check_identity();
 *           where step->concrete: attn_map_sizes()
 *   run:    attn_map_pool()              numbers of channels: mean, maximum, …
 *           attn_map_dense(), attn_map_activate(), attn_map_gate()   products of vectors
 *           kernels->pool_channels_f32() numbers of pixels
 *           attn_residual_relu(), kernels->gate_planes_f32()                Y
 *
 * The result for a channel or a pixel has the same bits in any task. Cost: each pass
 * reads the map once. */
#ifndef ATTN_GATED_MAPS_H
#define ATTN_GATED_MAPS_H

#include "../../runtime/op.h"
#include "../tile.h"

/* ---- attributes ---- */

#define ATTN_MAP_ACTIVATIONS "none|relu|silu|gelu|hardswish"
enum attn_map_activation {
    ATTN_ACT_NONE,
    ATTN_ACT_RELU,
    ATTN_ACT_SILU,
    ATTN_ACT_GELU,     /* by erf */
    ATTN_ACT_HARDSWISH /* x clip(x / 6 + 1/2, 0, 1) */
};
#define ATTN_MAP_GATES "sigmoid|hard_sigmoid" /* hard: clip(x / 6 + 1/2, 0, 1) */
enum attn_map_gate_word { ATTN_GATE_SIGMOID, ATTN_GATE_HARD_SIGMOID };
#define ATTN_MAP_TAILS "none|relu" /* post_activation */
/* Numbers of a plane. lp: square root of the sum of squares; lse: log of the sum of
 * exponentials. Neither is divided by the pixels. */
enum attn_map_pool_word {
    ATTN_POOL_AVG,
    ATTN_POOL_MAX, /* NaN where any pixel is */
    ATTN_POOL_LP,
    ATTN_POOL_LSE,
    ATTN_POOL_WORDS
};

/* ---- infer ---- */

struct attn_map {
    int64_t batch, channels, height, width, pixels;
    /* `stored` and `lanes` of maps in blocks of 16 channels, (batch, stored / 16, height,
     * width, 16), where lanes beyond the channels hold any number. For other maps they
     * are the channels, and 1. */
    int64_t stored, lanes;
};
/* The element of the first pixel of a channel; in maps in blocks the channel is the first
 * of a block. */
static inline int64_t map_place(const struct attn_map *map, int64_t image,
                                int64_t channel)
{
    return (image * map->stored + channel) * map->pixels;
}

/* Fails unless input `in` has rank 4 and no dim but the first is 0. */
attn_status attn_map_check(const attnrun_step *step, int in);
/* The same, but its height and width may be 0, as the result's are: attn_map_runs() says whether
 * a step of constant dims has work. */
attn_status attn_map_check_gated(const attnrun_step *step, int in);
static inline bool attn_map_runs(const attnrun_step *step, int in)
{
    return step->concrete && op_count(&step->in[in], 0, step->in[in].rank) != 0;
}
/* Fails unless input `identity`, where given, has the dims of input `map`. */
attn_status attn_map_check_identity(const attnrun_step *step, int identity, int map);
/* Fails unless input `in` is a matrix of `rows` x `columns`, which messages call
 * `what`. */
attn_status attn_map_check_matrix(const attnrun_step *step, int in, attnrun_dim rows,
                                  attnrun_dim columns, const char *what);
/* Checks the inputs w1 (R, C), w1 + 1: b1 (R), w1 + 2: w2 (C, R), w1 + 3: b2 (C), with R
 * >= 1. The vectors and w2 may be absent. `channels`: C. */
attn_status attn_map_check_mlp(const attnrun_step *step, int w1, attnrun_dim channels);
/* The channels of input `in`, or an unknown dim. */
attnrun_dim attn_map_channels(const attnrun_step *step, int in);
/* Fills in the constant dims; E_LIMIT where a product of them and 4 overflows. */
attn_status attn_map_sizes(const attnrun_step *step, int in, struct attn_map *map);
/* The same for a map in blocks: the check, and the sizes. */
attn_status attn_map_check_blocks(const attnrun_step *step, int in, int64_t channels);
attn_status attn_map_block_sizes(const attnrun_step *step, int in, int64_t channels,
                                 struct attn_map *map);
/* How the work on a batch is cut into tasks. Small batches are cut into groups of
 * `images`, each with phases of its own. Their tasks are blocks of channels of all images
 * of the group; in maps in blocks, whole blocks. In other batches an image is a task and
 * stays in a cache between its passes; `images` is then 0. */
struct attn_map_cut {
    int64_t images;
    int64_t block, blocks; /* channels of a task; tasks of a group */
};
/* `weights`: the numbers that each image needs besides its own; if there are more of
 * these, images share them. There are at most `max` groups. */
struct attn_map_cut attn_map_cut(const struct attn_map *map, int64_t weights, int max);

/* ---- run ---- */

/* z[t * z_row + c] = number t of `pools` of plane c, for c < planes of n pixels each, one
 * after the other at x. */
struct attn_map_pools {
    int32_t n;
    int32_t words[ATTN_POOL_WORDS]; /* enum attn_map_pool_word */
};
attn_status attn_map_pool(const attnrun_step *step, const attnrun_work *work,
                          const struct attn_map_pools *pools, const float *x,
                          int64_t planes, int64_t n, float *z, int64_t z_row);
/* The same for `planes` channels in blocks of 16, whose first one begins a block. Only
 * the pools ATTN_POOL_AVG and ATTN_POOL_MAX are known here. */
attn_status attn_map_pool_blocks(const attnrun_step *step, const attnrun_work *work,
                                 const struct attn_map_pools *pools, const float *x,
                                 int64_t planes, int64_t n, float *z, int64_t z_row);
/* Describes rows first … first + rows - 1 of weight input `w` with bias input `b` (-1:
 * none). The caller sets z, y, m and their row strides. */
struct attn_dense attn_map_dense(const attnrun_step *step, int w, int b, int64_t first,
                                 int64_t rows);
void attn_map_activate(const attnrun_step *step, int32_t activation, float *v, int64_t n);
void attn_map_gate(const attnrun_step *step, int32_t gate, float *v, int64_t n);
/* Describes Y (output 0) of some planes, `row` apart, from element `at` of the map on,
 * with input `identity` where given, and relu where `tail` is 1. The caller sets planes,
 * n, gate and pixels. */
struct attn_gate attn_residual_relu(const attnrun_step *step, int x, int identity,
                                    int32_t tail, int64_t at, int64_t row);
/* Computes g, OP_PRODUCT_ROWS rows at a time, which its scratch is for: A B, added to C
 * where g.accumulate, + bias[row] (or NULL), then `last` (or NULL). */
void attn_map_product(const struct attn_kernels *kernels, struct attn_gemm_f32 g,
                      const float *bias, const struct attn_epilogue *last);
/* Scales the last plane first, since the plane that was pooled last may still be in a
 * cache. */
attn_status attn_map_scale(const attnrun_step *step, const attnrun_work *work,
                           const struct attn_gate *gate);

#endif
