/* check_attention_kernels.c - row steps of the streaming attention core. */
#include <float.h>
#include <string.h>

#include "checks.h"

static void fill_scores(struct check *c, float *s, size_t n)
{
    int form = (int)check_below(c, 5);
    const float scale = form == 2 ? 60.0f : 5.0f; /* of 60, many terms are nothing */
    for (size_t i = 0; i < n; i++)
        s[i] = form == 0 || (form == 1 && check_below(c, 2) == 0)
                   ? -INFINITY
                   : scale * check_normal(c);
}

/* Two calls give the softmax of both halves of three rows together. */
enum { ROWS = 3 };

static void check_softmax_row(struct check *c, size_t n, const float *before[2],
                              const float *after[2], const struct attn_softmax_row *state,
                              double earlier, float min)
{
    double max = (double)-INFINITY, sum = 0;
    for (int part = 0; part < 2; part++)
        for (size_t i = 0; i < n; i++)
            max = fmax(max, (double)before[part][i]);
    check_near(c, n, (double)state->max, isfinite(max) ? max - 4 : max,
               isfinite(max) ? 4 : 0);
    max = (double)state->max;
    for (int part = 0; part < 2 && isfinite(max); part++)
        for (size_t i = 0; i < n; i++)
            sum += exp((double)before[part][i] - max);
    check_near(c, n + 1, (double)state->sum, sum,
               (4e-6 + (isfinite(max) ? 1.2e-7 * fabs(max) : 0)) * sum);
    for (int part = 0; part < 2; part++)
        for (size_t i = 0; i < n; i++) {
            double want = isfinite(max) ? exp((double)before[part][i] - max) : 0.0;
            double got = (double)after[part][i] * (part == 0 ? earlier : 1.0);
            /* Scores and maximum are rounded before their difference is. */
            double bound = 6e-6 + 6e-8 * (fabs((double)before[part][i]) + fabs(max));
            check_near(c, i, got, want,
                       isinf(before[part][i])
                           ? 0
                           : bound * want + 1.2 * exp2(fmax((double)min, -149)));
            const double lowest = 0.9999 * exp2(fmax((double)min, -149));
            if (after[part][i] != 0.0f)
                check_near(c, i, fmin((double)after[part][i], lowest), lowest, 0);
            if (before[part][i] == -INFINITY)
                check_near(c, i, got, 0, 0);
        }
}

/* Scores that are as low as a float can be, as masks of -FLT_MAX make them: alone they
 * count alike, beside others they count nothing. */
static void check_far_rows(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const float lowest[] = { -3.0e38f, -FLT_MAX, -FLT_MAX, 1.0f };
        struct attn_softmax_row state = { .max = -INFINITY };
        float *s = check_memory(c, n * sizeof(float));
        double sum = 0;
        for (size_t part = 0; n > 0 && part < sizeof(lowest) / sizeof(*lowest); part++) {
            const size_t lower = check_below(c, 2) ? n - 1 : 0; /* are lower still */
            for (size_t i = 0; i < n; i++)
                s[i] = i < lower ? -INFINITY : lowest[part];
            c->k->softmax_rows_f32(s, (ptrdiff_t)n, 1, n, ATTN_TERMS_THAT_COUNT, &state);
            const bool counts = part == 0 || part == 3;
            sum = counts ? (double)(n - lower) : sum;
            check_near(c, part, (double)state.sum, sum, 1e-6 * sum);
            for (size_t i = 0; i < n; i++)
                check_near(c, i, (double)s[i], counts && i >= lower ? 1 : 0, 0);
        }
    }
}

void check_softmax_rows_f32(struct check *c)
{
    check_far_rows(c);
    CHECK_SIZES(c, n)
    {
        const size_t row = n + check_below(c, 3);
        const float min = check_below(c, 2) ? ATTN_TERMS_THAT_COUNT : ATTN_TERMS_ALL;
        float *s[2], before[2][ROWS][1000];
        struct attn_softmax_row state[ROWS];
        for (int r = 0; r < ROWS; r++)
            state[r] = (struct attn_softmax_row){ .max = -INFINITY };
        for (int part = 0; part < 2; part++) {
            s[part] =
                check_memory(c, (ROWS - 1) * row * sizeof(float) + n * sizeof(float));
            for (int r = 0; r < ROWS; r++) {
                fill_scores(c, s[part] + (size_t)r * row, n);
                memcpy(before[part][r], s[part] + (size_t)r * row, n * sizeof(float));
            }
            c->k->softmax_rows_f32(s[part], (ptrdiff_t)row, ROWS, n, min, state);
        }
        for (int r = 0; r < ROWS; r++)
            check_softmax_row(
                c, n, (const float *[]){ before[0][r], before[1][r] },
                (const float *[]){ s[0] + (size_t)r * row, s[1] + (size_t)r * row },
                &state[r], (double)state[r].factor, min);
    }
}

/* A query tile of two calls, the second with other keys, beside sums in double. */
enum {
    TILE_DIM = 41,
    TILE_V_DIM = 83,
    TILE_SEGMENTS = 3,
    TILE_SEGMENT = 21,
    TILE_CALLS = 2
};
enum { TILE_KEYS = TILE_CALLS * TILE_SEGMENTS * TILE_SEGMENT };

struct tile_case {
    size_t queries, dim, v_dim, n; /* n: keys so far */
    float *q, *sums;
    const float *k[TILE_KEYS], *v[TILE_KEYS];
    ptrdiff_t first[TILE_KEYS], last[TILE_KEYS]; /* queries that see the key */
    double k_factor[TILE_KEYS], v_factor[TILE_KEYS], bias[TILE_KEYS];
    ptrdiff_t own[TILE_KEYS]; /* the query that the key is, or -1 */
    float own_score;
    struct attn_softmax_row *state;
};

static bool is_bf16(const struct check *c) { return strstr(c->kernel, "bf16") != NULL; }

/* Of bf16 operands the products are exact; terms are rounded. */
static float operand(struct check *c, float x)
{
    uint16_t narrow;
    if (!is_bf16(c))
        return x;
    c->k->f32_to_bf16(&narrow, &x, 1);
    c->k->bf16_to_f32(&x, &narrow, 1);
    return x;
}

static void check_tile_row(struct check *c, const struct tile_case *x, size_t r)
{
    double max = (double)-INFINITY, sum = 0, score[TILE_KEYS];
    for (size_t j = 0; j < x->n; j++) {
        score[j] = 0;
        for (size_t d = 0; d < x->dim; d++)
            score[j] += (double)x->q[r * x->dim + d] * (double)x->k[j][d];
        score[j] = score[j] * x->k_factor[j] + x->bias[j];
        if ((ptrdiff_t)r == x->own[j])
            score[j] = (double)x->own_score;
        if ((ptrdiff_t)r < x->first[j] || (ptrdiff_t)r > x->last[j])
            score[j] = (double)-INFINITY;
        max = fmax(max, score[j]);
    }
    if (max == (double)-INFINITY) {
        check_near(c, r, (double)x->state[r].max, max, 0);
        max = 0;
    } else {
        check_near(c, r, (double)x->state[r].max, max - 4, 4 + 1e-5 * (1 + fabs(max)));
        max = (double)x->state[r].max;
    }
    for (size_t j = 0; j < x->n; j++)
        sum += exp(score[j] - max);
    check_near(c, r, (double)x->state[r].sum, sum, (2e-5 + 1e-6 * fabs(max)) * sum);
    for (size_t d = 0; d < x->v_dim; d++) {
        double want = 0, size = 0;
        for (size_t j = 0; j < x->n; j++) {
            const double term = exp(score[j] - max);
            const double value = (double)x->v[j][d] * x->v_factor[j];
            want += term * value;
            size += term * fabs(value);
        }
        check_near(c, r * x->v_dim + d, (double)x->sums[r * x->v_dim + d], want,
                   (2e-5 + 1e-6 * fabs(max) + (is_bf16(c) ? 0x1p-8 : 0)) * size);
    }
}

/* One more run of keys, with rows of any distance, all of them or a band. */
static struct attn_keys tile_segment(struct check *c, struct tile_case *x, float scale)
{
    struct attn_keys run = { .n = 1 + check_below(c, TILE_SEGMENT) };
    run.k_row = (ptrdiff_t)(x->dim + check_below(c, 5));
    run.v_row = (ptrdiff_t)(x->v_dim + check_below(c, 5));
    float *k = check_memory(c, ((run.n - 1) * (size_t)run.k_row + x->dim) * 4);
    float *v = check_memory(c, ((run.n - 1) * (size_t)run.v_row + x->v_dim) * 4);
    run.band = check_below(c, 2) != 0;
    run.first = (ptrdiff_t)check_below(c, 100) - 80;
    run.last = run.first - 2 + (ptrdiff_t)check_below(c, 60); /* nothing at times */
    run.scaled = check_below(c, 2) != 0;
    run.k_factor = check_normal(c);
    run.v_factor = check_normal(c);
    run.bias = check_normal(c);
    run.own = check_below(c, 2) != 0;
    run.own_at = (ptrdiff_t)check_below(c, 90) - 70;
    run.own_score = x->own_score;
    for (size_t j = 0; j < (size_t)run.n; j++, x->n++) {
        const ptrdiff_t own = (ptrdiff_t)j - run.own_at;
        x->own[x->n] = run.own ? own : -1;
        x->k_factor[x->n] = run.scaled ? (double)run.k_factor : 1;
        x->bias[x->n] = run.scaled ? (double)run.bias : 0;
        x->v_factor[x->n] = run.scaled ? (double)run.v_factor : 1;
        x->first[x->n] = run.band ? (ptrdiff_t)j - run.last : 0;
        x->last[x->n] = run.band ? (ptrdiff_t)j - run.first : ATTN_TILE_QUERIES_SQUARES;
        x->k[x->n] = k + (ptrdiff_t)j * run.k_row;
        x->v[x->n] = v + (ptrdiff_t)j * run.v_row;
        for (size_t d = 0; d < x->dim; d++)
            k[(ptrdiff_t)j * run.k_row + (ptrdiff_t)d] =
                operand(c, scale * check_normal(c));
        for (size_t d = 0; d < x->v_dim; d++)
            v[(ptrdiff_t)j * run.v_row + (ptrdiff_t)d] = operand(c, check_normal(c));
    }
    run.k = k;
    run.v = v;
    return run;
}

/* Once more with the last runs alone: what they give over their sum. */
static void check_tile_once(struct check *c, struct attn_query_tile_f32 tile,
                            size_t queries)
{
    float *y = check_memory(c, queries * tile.v_dim * sizeof *y);
    for (size_t r = 0; r < queries; r++)
        tile.state[r] = (struct attn_softmax_row){ .max = -INFINITY };
    memset(tile.sums, 0, queries * tile.v_dim * sizeof *tile.sums);
    (is_bf16(c) ? c->k->query_tile_bf16 : c->k->query_tile_f32)(&tile);
    tile.y = y;
    tile.y_row = (ptrdiff_t)tile.v_dim;
    (is_bf16(c) ? c->k->query_tile_bf16 : c->k->query_tile_f32)(&tile);
    for (size_t i = 0; i < queries * tile.v_dim; i++) {
        const double sum = (double)tile.state[i / tile.v_dim].sum;
        const double want = sum == 0 ? 0 : (double)tile.sums[i] / sum;
        check_near(c, i, (double)y[i], want, 1e-6 * fabs(want) + 1e-30);
    }
}

static void check_tile(struct check *c, size_t queries)
{
    struct tile_case x = { .queries = queries,
                           .dim = 1 + check_below(c, TILE_DIM),
                           .v_dim = 1 + check_below(c, TILE_V_DIM) +
                                    (check_below(c, 8) == 0 ? ATTN_TILE_SQUARES_DIM : 0),
                           .own_score = -3 };
    struct attn_keys runs[TILE_SEGMENTS];
    struct attn_query_tile_f32 tile = { .queries = 0 };
    float *panels = check_memory(c, attn_tile_floats(x.dim) * sizeof *panels);
    float *scores = check_memory(c, (size_t)(TILE_SEGMENTS * TILE_SEGMENT + 31) / 32 *
                                        32 * ATTN_TILE_QUERIES * 4);
    x.q = check_memory(c, queries * x.dim * sizeof *x.q);
    x.sums = check_memory(c, queries * x.v_dim * sizeof *x.sums);
    x.state = check_memory(c, queries * sizeof *x.state);
    for (size_t i = 0; i < queries * x.dim; i++)
        x.q[i] = operand(c, check_normal(c));
    memset(x.sums, 0, queries * x.v_dim * sizeof *x.sums);
    for (size_t r = 0; r < queries; r++)
        x.state[r] = (struct attn_softmax_row){ .max = -INFINITY };
    (is_bf16(c) ? c->k->query_tile_pack_bf16 : c->k->query_tile_pack_f32)(
        panels, x.q, (ptrdiff_t)x.dim, x.dim, queries);
    for (int call = 0; call < TILE_CALLS; call++) {
        const size_t n_runs = 1 + check_below(c, TILE_SEGMENTS);
        const float scale = check_below(c, 3) == 0 ? 6.0f : 1.0f; /* maxima move */
        for (size_t i = 0; i < n_runs; i++)
            runs[i] = tile_segment(c, &x, scale);
        struct attn_prefetch prefetch = {
            .n = 1, .list[0] = { runs[0].k, runs[0].k_row, (int32_t)runs[0].n, 2 }
        };
        tile = (struct attn_query_tile_f32){ .q = panels,
                                             .queries = queries,
                                             .dim = x.dim,
                                             .v_dim = x.v_dim,
                                             .keys = runs,
                                             .n_keys = n_runs,
                                             .scores = scores,
                                             .state = x.state,
                                             .sums = x.sums,
                                             .min = ATTN_TERMS_THAT_COUNT,
                                             .prefetch =
                                                 check_below(c, 2) ? &prefetch : NULL };
        (is_bf16(c) ? c->k->query_tile_bf16 : c->k->query_tile_f32)(&tile);
    }
    for (size_t r = 0; r < queries; r++)
        check_tile_row(c, &x, r);
    tile.prefetch = NULL;
    check_tile_once(c, tile, queries);
}

void check_query_tile_f32(struct check *c)
{
    const size_t max =
        is_bf16(c) && c->k->tiles_bf16 ? ATTN_TILE_QUERIES_SQUARES : ATTN_TILE_QUERIES;
    CHECK_SIZES(c, n)
    {
        if (n > 0 && (n <= max || n == 1000))
            check_tile(c, n <= max ? n : max);
    }
}

void check_query_tile_bf16(struct check *c) { check_query_tile_f32(c); }
void check_query_tile_pack_f32(struct check *c) { check_query_tile_f32(c); }
void check_query_tile_pack_bf16(struct check *c) { check_query_tile_f32(c); }

void check_softcap_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        float *s = check_memory(c, n * sizeof *s), before[1000];
        for (size_t i = 0; i < n; i++)
            before[i] = s[i] = 20 * check_normal(c);
        c->k->softcap_f32(s, n, 7.0f);
        for (size_t i = 0; i < n; i++) {
            double want = 7 * tanh((double)before[i] / 7);
            check_near(c, i, (double)s[i], want, 1e-6 * fabs(want) + 1e-30);
            s[i] = 0;
        }
        c->k->softcap_f32(s, n, 1e-40f);
        for (size_t i = 0; i < n; i++)
            check_near(c, i, (double)s[i], 0, 1e-30);
    }
}

void check_add_mask_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        float *s = check_edge_f32(c, n), *mask = check_memory(c, n * sizeof *mask),
              old[1000];
        fill_scores(c, mask, n);
        for (size_t i = 0; i < n; i++)
            old[i] = s[i];
        c->k->add_mask_f32(s, mask, n);
        for (size_t i = 0; i < n; i++)
            check_f32(c, i, s[i], (double)(isinf(mask[i]) ? mask[i] : old[i] + mask[i]),
                      0);
    }
}

void check_add_map_f32(struct check *c)
{
    static const size_t widths[] = { 1, 2, 7, 14, 16, 64, 1500 }, from[] = { 0, 3, 64 };
    CHECK_SIZES(c, n)
    {
        const size_t width = widths[n % 7], first = from[n / 7 % 3];
        const size_t n_rows = (first + n + width - 1) / width;
        float *s = check_edge_f32(c, n), old[1000];
        float *rows = check_memory(c, n_rows * sizeof *rows),
              *columns = check_memory(c, width * sizeof *columns);
        fill_scores(c, rows, n_rows);
        fill_scores(c, columns, width);
        for (size_t i = 0; i < n; i++)
            old[i] = s[i];
        c->k->add_map_f32(s, rows, columns, width, first, n);
        for (size_t i = 0; i < n; i++)
            check_f32(c, i, s[i],
                      (double)(old[i] + (rows[(first + i) / width] +
                                         columns[(first + i) % width])),
                      0);
    }
}

void check_keep_mask_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        float *s = check_edge_f32(c, n), old[1000];
        uint8_t *keep = check_bytes(c, n);
        for (size_t i = 0; i < n; i++) {
            keep[i] &= 1;
            old[i] = s[i];
        }
        c->k->keep_mask_f32(s, keep, n);
        for (size_t i = 0; i < n; i++)
            check_f32(c, i, s[i], (double)(keep[i] ? old[i] : -INFINITY), 0);
    }
}

void check_scale_rows_f32(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const size_t x_row = n + check_below(c, 3), y_row = n + check_below(c, 3);
        const size_t step = check_below(c, 3);
        float *x = check_memory(c, ((ROWS - 1) * x_row + n) * sizeof *x);
        float *y = check_memory(c, ((ROWS - 1) * y_row + n) * sizeof *y);
        float scale[2 * ROWS];
        for (size_t i = 0; i < 2 * ROWS; i++)
            scale[i] = check_normal(c);
        for (size_t i = 0; i < (ROWS - 1) * x_row + n; i++)
            x[i] = check_normal(c);
        c->k->scale_rows_f32(y, (ptrdiff_t)y_row, x, (ptrdiff_t)x_row, ROWS, n, scale,
                             (ptrdiff_t)step);
        for (size_t r = 0; r < ROWS; r++)
            for (size_t i = 0; i < n; i++)
                check_f32(c, i, y[r * y_row + i],
                          (double)(x[r * x_row + i] * scale[r * step]), 0);
    }
}

/* ROWS rows of n numbers; of row 1 NaN where `hidden`, which is not to be read. */
static double *rows_f64(struct check *c, size_t n, size_t row, bool hidden)
{
    double *rows = check_memory_f64(c, (ROWS - 1) * row + n);
    for (size_t i = 0; i < (ROWS - 1) * row + n; i++)
        rows[i] = hidden && i / row == 1 ? (double)NAN : (double)check_normal(c);
    return rows;
}

void check_dot_rows_f64(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const size_t row = n + check_below(c, 3);
        const double *rows = rows_f64(c, n, row, false);
        double *x = check_memory_f64(c, n), y[ROWS];
        for (size_t i = 0; i < n; i++)
            x[i] = (double)check_normal(c);
        c->k->dot_rows_f64(y, x, rows, (ptrdiff_t)row, ROWS, n);
        for (size_t r = 0; r < ROWS; r++) {
            long double want = 0;
            for (size_t i = 0; i < n; i++)
                want += (long double)x[i] * (long double)rows[r * row + i];
            check_near(c, r, y[r], (double)want, 1e-13 * (double)(n + 1));
        }
    }
}

void check_sum_rows_f64(struct check *c)
{
    CHECK_SIZES(c, n)
    {
        const size_t row = n + check_below(c, 3);
        const double *rows = rows_f64(c, n, row, n > 0);
        double *y = check_memory_f64(c, n), weights[ROWS], old[1000];
        for (size_t r = 0; r < ROWS; r++)
            weights[r] = r == 1 ? 0 : (double)check_normal(c);
        for (size_t i = 0; i < n; i++)
            y[i] = old[i] = (double)check_normal(c);
        c->k->sum_rows_f64(y, weights, rows, (ptrdiff_t)row, ROWS, n);
        for (size_t i = 0; i < n; i++) {
            long double want = (long double)old[i];
            for (size_t r = 0; r < ROWS; r++)
                want +=
                    r == 1 ? 0 : (long double)weights[r] * (long double)rows[r * row + i];
            check_near(c, i, y[i], (double)want, 1e-13);
        }
    }
}
