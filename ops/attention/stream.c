/* stream.c - the arithmetic of a tile of streaming attention. */
#include "stream.h"

#include <math.h>

enum { KEYS = ATTN_STREAM_KEYS, ROWS = ATTN_STREAM_ROWS, SCORES = ATTN_STREAM_SCORES };

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t round16(int64_t n) { return (n + 15) & ~INT64_C(15); }

/* For both products of a tile. */
static int64_t gemm_floats(int64_t rows, int64_t dim, int64_t v_dim)
{
    size_t m = (size_t)rows;
    size_t scores = attn_gemm_scratch(m, KEYS, (size_t)dim);
    size_t values = attn_gemm_scratch(m, (size_t)v_dim, KEYS);
    return round16((int64_t)(scores > values ? scores : values));
}

/* Panels are packed here only where several blocks of rows use them. */
static int64_t panel_floats(int64_t most, int64_t dim)
{
    return most > ROWS ? KEYS * round16(dim + 16) : 0;
}

/* So are values of one element: where their rows are 1 apart, the kernel would take them
 * for a row of keys and sum in another order than in other layouts. */
static int64_t value_floats(int64_t most, int64_t v_dim)
{
    return panel_floats(v_dim == 1 ? ROWS + 1 : most, v_dim);
}

/* Of everything but the panels; -1 where that overflows. */
static int64_t stream_floats(int64_t most, int64_t dim, int64_t v_dim)
{
    int64_t block;
    if (dim > INT64_MAX / (1 << 20) || v_dim > INT64_MAX / (1 << 20) ||
        !ck_mul(most, dim + v_dim + 64, &block) || block > INT64_MAX / 64)
        return -1;
    const int64_t rows = least(most, ROWS);
    return round16(most * dim) + round16(most * v_dim) + 4 * most + 16 + rows * SCORES +
           gemm_floats(rows, dim, v_dim);
}

int64_t attn_stream_packed_bytes(int64_t most, int64_t dim, int64_t v_dim)
{
    const int64_t floats = stream_floats(most, dim, v_dim);
    return floats < 0 ? -1 : floats * (int64_t)sizeof(float);
}

int64_t attn_stream_bytes(int64_t most, int64_t dim, int64_t v_dim)
{
    const int64_t floats = stream_floats(most, dim, v_dim);
    return floats < 0 ? -1
                      : (floats + panel_floats(most, dim) + value_floats(most, v_dim)) *
                            (int64_t)sizeof(float);
}

void attn_stream_begin_packed(struct attn_stream *s, const struct attn_kernels *kernels,
                              int64_t most, int64_t dim, int64_t v_dim, void *scratch)
{
    const int64_t rows = least(most, ROWS);
    *s = (struct attn_stream){ .kernels = kernels,
                               .most = most,
                               .dim = dim,
                               .v_dim = v_dim,
                               .k_col = 1,
                               .packed = true };
    s->gemm = scratch;
    s->scores = s->gemm + gemm_floats(rows, dim, v_dim);
    s->sums = s->scores + rows * SCORES;
    s->q = s->sums + round16(most * v_dim);
    s->state = (struct attn_softmax_row *)(void *)(s->q + round16(most * dim));
}

void attn_stream_begin(struct attn_stream *s, const struct attn_kernels *kernels,
                       int64_t most, int64_t dim, int64_t v_dim, void *scratch)
{
    attn_stream_begin_packed(s, kernels, most, dim, v_dim, scratch);
    s->packed = false;
    s->keys = (float *)(void *)s->state;
    s->values = s->keys + panel_floats(most, dim);
    s->state = (struct attn_softmax_row *)(void *)(s->values + value_floats(most, v_dim));
}

void attn_stream_reset(struct attn_stream *s, int64_t n)
{
    s->n = n;
    memset(s->sums, 0, (size_t)(n * s->v_dim) * sizeof *s->sums);
    for (int64_t r = 0; r < n; r++)
        s->state[r] = (struct attn_softmax_row){ .max = -INFINITY };
}

void attn_stream_load(struct attn_stream *s, int64_t row, const float *q, int64_t q_row,
                      int64_t rows, float scale)
{
    s->kernels->scale_rows_f32(s->q + row * s->dim, s->dim, q, q_row, (size_t)rows,
                               (size_t)s->dim, &scale, 0);
}

void attn_stream_pack(struct attn_stream *s, const struct attn_stream_keys *keys)
{
    if (s->packed)
        return;
    if (s->n > ROWS)
        s->kernels->gemm_pack_f32(s->keys, keys->k, s->k_col, keys->k_row, (size_t)s->dim,
                                  (size_t)keys->n);
    if (s->n > ROWS || s->v_dim == 1)
        s->kernels->gemm_pack_f32(s->values, keys->v, keys->v_row, 1, (size_t)keys->n,
                                  (size_t)s->v_dim);
}

/* Queries row … row + rows - 1 and keys from … to - 1 of a tile, in columns `at` … of the
 * scores. */
struct part {
    int64_t row, rows, from, to, at;
};

/* scores[r][j] = q_(row + r) k_(from + j) */
static void score(const struct attn_stream *s, const struct attn_stream_keys *keys,
                  struct part part)
{
    const bool packed = s->packed || s->n > ROWS;
    const float *panels = s->packed ? keys->k : s->keys;
    const int64_t panel = ATTN_GEMM_NR_MOST;
    /* Of a panel within the tile all columns: how wide it was packed is told by them. */
    const int64_t to =
        packed ? least((part.to + panel - 1) / panel * panel, keys->n) : part.to;
    struct attn_gemm_f32 g = { .a = s->q + part.row * s->dim,
                               .a_row = s->dim,
                               .b = packed ? panels + part.from * s->dim
                                           : keys->k + part.from * keys->k_row,
                               .b_row = s->k_col,
                               .b_col = keys->k_row,
                               .packed = packed,
                               .c = s->scores + part.at,
                               .c_row = SCORES,
                               .m = (size_t)part.rows,
                               .n = (size_t)(to - part.from),
                               .k = (size_t)s->dim,
                               .ahead = s->ahead,
                               .scratch = s->gemm };
    s->kernels->gemm_f32(&g);
}

/* sums_(row + r) += scores[r] V, for sums already multiplied by their factors. */
static void add_values(const struct attn_stream *s, const struct attn_stream_keys *keys,
                       struct part part)
{
    const bool packed = s->packed || s->n > ROWS || s->v_dim == 1;
    const float *panels = s->packed ? keys->v : s->values;
    struct attn_gemm_f32 g = { .a = s->scores + part.at,
                               .a_row = SCORES,
                               .b = packed ? panels : keys->v + part.from * keys->v_row,
                               .b_row = keys->v_row,
                               .b_col = 1,
                               .packed = packed,
                               .packed_k = packed ? (size_t)keys->n : 0,
                               .packed_from = packed ? (size_t)part.from : 0,
                               .c = s->sums + part.row * s->v_dim,
                               .c_row = s->v_dim,
                               .m = (size_t)part.rows,
                               .n = (size_t)s->v_dim,
                               .k = (size_t)(part.to - part.from),
                               .accumulate = 1,
                               .ahead = s->ahead,
                               .scratch = s->gemm };
    s->kernels->gemm_f32(&g);
}

/* Scores become weights, and the sums so far what they are worth beside them. */
static void weigh(struct attn_stream *s, struct part part)
{
    struct attn_softmax_row *state = s->state + part.row;
    if (s->linear) {
        for (int64_t r = 0; r < part.rows; r++)
            state[r].sum = 1.0f;
        return;
    }
    s->kernels->softmax_rows_f32(s->scores, SCORES, (size_t)part.rows,
                                 (size_t)(part.to - part.from), ATTN_TERMS_THAT_COUNT,
                                 state);
    for (int64_t r = 0; r < part.rows; r++) {
        float *sums = s->sums + (part.row + r) * s->v_dim;
        if (state[r].factor != 1.0f)
            s->kernels->mul_f32(sums, sums, 1, &state[r].factor, 0, (size_t)s->v_dim);
    }
}

void attn_stream_rows(struct attn_stream *s, const struct attn_stream_keys *keys,
                      int64_t row, int64_t rows, int64_t from, int64_t to,
                      attn_stream_mask mask, void *arg)
{
    const struct part part = { row, rows, from, to, 0 };
    if (to <= from || rows == 0)
        return;
    score(s, keys, part);
    if (mask != NULL)
        mask(arg, s->scores, row, rows, from, to);
    weigh(s, part);
    add_values(s, keys, part);
}

void attn_stream_tile(struct attn_stream *s, const struct attn_stream_keys *keys,
                      attn_stream_mask mask, void *arg)
{
    attn_stream_pack(s, keys);
    for (int64_t row = 0; row < s->n; row += ROWS)
        attn_stream_rows(s, keys, row, least(ROWS, s->n - row), 0, keys->n, mask, arg);
}

void attn_stream_pieces(struct attn_stream *s, const struct attn_stream_keys *pieces,
                        int n, attn_stream_mask mask, void *arg)
{
    struct part all = { .rows = s->n };
    for (int i = 0; i < n; all.to += pieces[i++].n)
        score(s, pieces + i, (struct part){ 0, s->n, 0, pieces[i].n, all.to });
    if (all.to == 0 || s->n == 0)
        return;
    if (mask != NULL)
        mask(arg, s->scores, 0, s->n, 0, all.to);
    weigh(s, all);
    for (int i = 0, at = 0; i < n; at += (int)pieces[i++].n) {
        attn_stream_pack(s, pieces + i);
        add_values(s, pieces + i, (struct part){ 0, s->n, 0, pieces[i].n, at });
    }
}

void attn_stream_store_rows(struct attn_stream *s, int64_t row, int64_t rows, float *y,
                            int64_t y_row, float empty)
{
    struct attn_softmax_row *state = s->state + row;
    for (int64_t r = 0; r < rows; r++)
        state[r].factor = state[r].sum == 0.0f ? empty : 1.0f / state[r].sum;
    s->kernels->scale_rows_f32(y, y_row, s->sums + row * s->v_dim, s->v_dim, (size_t)rows,
                               (size_t)s->v_dim, &state->factor,
                               sizeof *state / sizeof(float));
}

void attn_stream_store(const struct attn_stream *s, int64_t row, float *y, float empty)
{
    const float sum = s->state[row].sum;
    const float scale = sum == 0.0f ? empty : 1.0f / sum;
    s->kernels->mul_f32(y, s->sums + row * s->v_dim, 1, &scale, 0, (size_t)s->v_dim);
}
