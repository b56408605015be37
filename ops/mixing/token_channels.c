/* token_channels.c - multiplies tokens from the left. token_channels.h describes the
 * operands.
 *
 * For a block of rows of C, tokens are packed ATTN_SUMMED at a time, and all rows add
 * their products. A block of W is read once for all channels, and X and the sums stay in
 * L2. */
#include "token_channels.h"

enum { ROWS = OP_PRODUCT_ROWS };
_Static_assert(ATTN_SUMMED % ROWS == 0 && ATTN_SUM_ROWS % ROWS == 0,
               "rows on the diagonal lie in one block of tokens");

attn_status attn_channels_plan(const attnrun_step *step, struct attn_channels *c,
                               int64_t groups, int64_t n, int64_t floats)
{
    enum { FLOATS = 1 << 17 }; /* of a worker's own: half a MiB */
    const int64_t fit = FLOATS / (floats > 0 ? floats : 1) / ATTN_CHANNELS;
    c->n = n;
    c->blocks = ceil_div(n, ATTN_CHANNELS);
    c->max = ATTN_CHANNELS * (fit > 1 ? fit : 1);
    c->max = min64(min64(c->max, ATTN_CHANNELS_MAX), max64(c->blocks, 1) * ATTN_CHANNELS);
    if (!ck_mul(groups, c->blocks, &c->n_tasks))
        return op_fail_size(step, "the number of tasks", "2^63 - 1");
    return ATTNRUN_OK;
}

struct attn_channels_part attn_channels_take(const struct attn_channels *c, int64_t task,
                                             int64_t end)
{
    struct attn_channels_part part = { .group = task };
    const int64_t block = op_take(&part.group, c->blocks);
    part.n_tasks = min64(min64(end - task, c->blocks - block), c->max / ATTN_CHANNELS);
    part.first = block * ATTN_CHANNELS;
    part.width = min64(c->n - part.first, part.n_tasks * ATTN_CHANNELS);
    return part;
}

/* ---- sums ---- */

static int64_t packed_floats(int64_t width, int64_t tokens)
{
    return op_whole_panels(width) * min64(ATTN_SUMMED, tokens);
}

/* The floats of a square on the diagonal of W. */
static int64_t square_floats(bool lower) { return lower ? ROWS * ROWS : 0; }

int64_t attn_token_sums_floats(int64_t width, int64_t tokens, bool lower)
{
    const size_t gemm =
        attn_gemm_scratch(ROWS, (size_t)width, (size_t)min64(ATTN_SUMMED, tokens));
    return packed_floats(width, tokens) + square_floats(lower) +
           round_up((int64_t)gemm, 16);
}

/* Copies a square on the diagonal of W with zeros above the diagonal. */
static void lower_part(float *to, const float *w, int64_t row, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            to[i * n + j] = j <= i ? w[i * row + j] : 0.0f;
}

/* Copies the steps of the epilogue, moved to row m; returns their number. */
static int steps_of(const struct attn_token_sums *s, int64_t m,
                    struct attn_epilogue *steps)
{
    for (int i = 0; i < s->n_epilogue; i++)
        steps[i] = attn_epilogue_at(s->epilogue[i], m, 0);
    return s->n_epilogue;
}

/* Adds the products of rows m … m + rows - 1 with tokens t … t + n - 1. */
static void add_tokens(const struct attn_token_sums *s, const float *packed, int64_t t,
                       int64_t n, int64_t m, int64_t rows)
{
    struct attn_epilogue steps[ATTN_SUM_STEPS];
    float *square = s->scratch + packed_floats(s->width, s->tokens);
    struct attn_gemm_f32 g = { .a = s->w + m * s->w_row + t,
                               .a_row = s->w_row,
                               .b = packed,
                               .packed = 1,
                               .packed_k = (size_t)n,
                               .c = s->c + m * s->c_row,
                               .c_row = s->c_row,
                               .m = (size_t)rows,
                               .n = (size_t)s->width,
                               .k = (size_t)n,
                               .accumulate = t > 0,
                               .epilogue = steps,
                               .scratch = square + square_floats(s->lower) };
    bool last = t + n >= s->tokens;
    if (s->lower && t > m)
        return;
    if (s->lower && t + n > m) {
        const int64_t left = m - t;
        g.k = (size_t)left;
        if (left > 0)
            s->kernels->gemm_f32(&g);
        lower_part(square, g.a + left, s->w_row, rows);
        g.a = square;
        g.a_row = rows;
        g.k = (size_t)rows;
        g.packed_from = (size_t)left;
        g.accumulate = m > 0;
        last = true;
    }
    g.n_epilogue = last ? steps_of(s, m, steps) : 0;
    s->kernels->gemm_f32(&g);
}

attn_status attn_token_sums_run(const struct attn_token_sums *s, int64_t first, int64_t n,
                                const attnrun_work *work)
{
    const int64_t end = s->lower ? first + n : s->tokens;
    int64_t t = 0;
    do {
        const int64_t block = min64(ATTN_SUMMED, s->tokens - t);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (s->pack != NULL)
            s->pack(s->from, t, block, s->scratch);
        else
            s->kernels->gemm_pack_f32(s->scratch, s->x + t * s->x_row, s->x_row, 1,
                                      (size_t)block, (size_t)s->width);
        for (int64_t m = first; m < first + n; m += ROWS)
            add_tokens(s, s->scratch, t, block, m, min64(ROWS, first + n - m));
        t += block;
    } while (t < end);
    return ATTNRUN_OK;
}
