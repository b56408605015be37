/* token_channels.h - operators that multiply tokens from the left, Y = epilogue(W X) with
 * X (tokens, channels). A task is a block of channels. A worker takes several tasks that
 * lie side by side, and reads the tokens once for each block of rows of Y.
 *
 * In: W (rows, tokens) and X, f32. Out: rows of Y, f32 (rows, width). Cost: 2 rows tokens
 * width FLOPs. Scratch: 512 rows of sums and 256 packed tokens of a worker's channels. */
#ifndef ATTN_TOKEN_CHANNELS_H
#define ATTN_TOKEN_CHANNELS_H

#include "../../runtime/op.h"
#include "../tile.h"

enum {
    ATTN_CHANNELS = 64,             /* of a task */
    ATTN_CHANNELS_MAX = 256,        /* side by side: more would push the sums out of L2 */
    ATTN_SUMMED = OP_PRODUCT_TERMS, /* tokens at a time */
    ATTN_SUM_ROWS = 512             /* rows of Y that wait for their sums at a time */
};

struct attn_channels {
    int64_t n, blocks, max; /* channels and tasks of a group; channels side by side */
    int64_t n_tasks;
};

/* `groups` (samples, or heads of samples) of n channels each, where a worker keeps
 * `floats` of its own for each channel. */
attn_status attn_channels_plan(const attnrun_step *step, struct attn_channels *c,
                               int64_t groups, int64_t n, int64_t floats);
/* The tasks from `task` on and before `end` that are taken together: their number, their
 * group, the first of their channels within it and the number of channels. */
struct attn_channels_part {
    int64_t n_tasks, group, first, width;
};
struct attn_channels_part attn_channels_take(const struct attn_channels *c, int64_t task,
                                             int64_t end);

/* C (rows, width) = epilogue(W X). */
struct attn_token_sums {
    const struct attn_kernels *kernels;
    const float *w; /* (rows, tokens), w_row apart */
    int64_t w_row, tokens;
    bool lower; /* W[m, n] counts as 0 for n > m, and is not read */
    /* Packs tokens first … first + n - 1 as gemm_pack_f32 does; NULL: rows of x. */
    void (*pack)(const void *from, int64_t first, int64_t n, float *packed);
    const void *from;
    const float *x;
    int64_t x_row;
    float *c;
    int64_t c_row, width;
    const struct attn_epilogue *epilogue; /* up to ATTN_SUM_STEPS; data: of row 0 */
    int n_epilogue;
    float *scratch; /* attn_token_sums_floats() */
};
enum { ATTN_SUM_STEPS = 3 };

/* The floats of scratch for up to `width` channels of `tokens` tokens, a multiple of
 * 16. */
int64_t attn_token_sums_floats(int64_t width, int64_t tokens, bool lower);
/* Computes rows first … first + n - 1 of C, n <= ATTN_SUM_ROWS; first is a multiple of
 * that. Returns E_CANCELLED where the run is cancelled. */
attn_status attn_token_sums_run(const struct attn_token_sums *s, int64_t first, int64_t n,
                                const attnrun_work *work);

#endif
