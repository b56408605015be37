/* stream.c - the arithmetic of a tile of streaming attention. stream.h describes the
 * interface and the cost.
 *
 * In: a block of queries, a tile of keys and values, a mask. Out: the running maximum,
 * sum and weighted values of each query. Many queries without a mask are computed by
 * query_tile_f32 (a query tile of 64), all others by two matrix products and
 * softmax_rows_f32. */
#include "stream.h"
#include "../../tile.h"
#include "softmax_row.h"

#include <math.h>

enum {
    KEYS = ATTN_STREAM_KEYS,
    ROWS = ATTN_STREAM_ROWS,
    SCORES = ATTN_STREAM_SCORES,
    TILE = ATTN_TILE_QUERIES,
    MIN_TILE = 16 /* fewer queries leave too many lanes of a query tile empty */
};

/* The floats of scratch of both products of a tile. */
static int64_t stream_gemm_floats(int64_t rows, int64_t dim, int64_t v_dim)
{
    size_t m = (size_t)rows;
    size_t scores = attn_gemm_scratch(m, KEYS, (size_t)dim);
    size_t values = attn_gemm_scratch(m, (size_t)v_dim, KEYS);
    return round_up((int64_t)(scores > values ? scores : values), 16);
}

/* Panels are packed here only where several blocks of rows use them. */
static int64_t panel_floats(int64_t max, int64_t dim)
{
    return max > ROWS ? KEYS * round_up(dim + 16, 16) : 0;
}

/* Values of one element are packed, too: where their rows are 1 apart, the kernel would
 * take them for a row of keys and sum in another order than in other layouts. */
static int64_t value_floats(int64_t max, int64_t v_dim)
{
    return panel_floats(v_dim == 1 ? ROWS + 1 : max, v_dim);
}

/* The floats of scores of rows of keys, or of a query tile. */
static int64_t score_floats(int64_t rows)
{
    return rows < MIN_TILE || rows * SCORES > KEYS * TILE ? rows * SCORES : KEYS * TILE;
}

static int64_t tile_floats(int64_t rows, int64_t dim)
{
    return rows < MIN_TILE ? 0 : (int64_t)attn_tile_floats((size_t)dim);
}

/* The floats of all but the panels; -1 where they overflow. */
static int64_t stream_floats(int64_t max, int64_t dim, int64_t v_dim)
{
    int64_t block;
    if (dim > INT64_MAX / (1 << 20) || v_dim > INT64_MAX / (1 << 20) ||
        !ck_mul(max, dim + v_dim + 64, &block) || block > INT64_MAX / 64)
        return -1;
    const int64_t rows = min64(max, ROWS);
    return round_up(max * dim, 16) + round_up(max * v_dim, 16) + 4 * max + 16 +
           score_floats(rows) + tile_floats(rows, dim) +
           stream_gemm_floats(rows, dim, v_dim);
}

int64_t attn_stream_packed_bytes(int64_t max, int64_t dim, int64_t v_dim)
{
    const int64_t floats = stream_floats(max, dim, v_dim);
    return floats < 0 ? -1 : floats * (int64_t)sizeof(float);
}

int64_t attn_stream_bytes(int64_t max, int64_t dim, int64_t v_dim)
{
    const int64_t floats = stream_floats(max, dim, v_dim);
    return floats < 0 ? -1
                      : (floats + panel_floats(max, dim) + value_floats(max, v_dim) +
                         attn_stream_saved_floats(min64(max, ROWS), v_dim)) *
                            (int64_t)sizeof(float);
}

void attn_stream_begin_packed(struct attn_stream *s, const struct attn_kernels *kernels,
                              int64_t max, int64_t dim, int64_t v_dim, void *scratch)
{
    const int64_t rows = min64(max, ROWS);
    *s = (struct attn_stream){ .kernels = kernels,
                               .max = max,
                               .dim = dim,
                               .v_dim = v_dim,
                               .k_col = 1,
                               .packed = true };
    s->gemm = scratch;
    s->scores = s->gemm + stream_gemm_floats(rows, dim, v_dim);
    s->tile = s->scores + score_floats(rows);
    s->sums = s->tile + tile_floats(rows, dim);
    s->q = s->sums + round_up(max * v_dim, 16);
    s->state = (struct attn_softmax_row *)(void *)(s->q + round_up(max * dim, 16));
}

void attn_stream_begin(struct attn_stream *s, const struct attn_kernels *kernels,
                       int64_t max, int64_t dim, int64_t v_dim, void *scratch)
{
    attn_stream_begin_packed(s, kernels, max, dim, v_dim, scratch);
    s->packed = false;
    s->keys = (float *)(void *)s->state;
    s->values = s->keys + panel_floats(max, dim);
    s->before = s->values + value_floats(max, v_dim);
    s->state =
        (struct attn_softmax_row *)(void *)(s->before + attn_stream_saved_floats(
                                                            min64(max, ROWS), v_dim));
}

void attn_stream_reset(struct attn_stream *s, int64_t n)
{
    s->n = n;
    s->tile_rows = 0;
    memset(s->sums, 0, (size_t)(n * s->v_dim) * sizeof *s->sums);
    for (int64_t r = 0; r < n; r++)
        s->state[r] = (struct attn_softmax_row){ .max = -INFINITY };
}

void attn_stream_load(struct attn_stream *s, int64_t row, const float *q, int64_t q_row,
                      int64_t rows, float scale)
{
    s->tile_rows = 0;
    s->kernels->scale_rows_f32(s->q + row * s->dim, s->dim, q, q_row, (size_t)rows,
                               (size_t)s->dim, &scale, 0);
}

void attn_stream_pack(struct attn_stream *s, const struct attn_keys *keys)
{
    (void)keys;
    s->to_pack = !s->packed;
}

/* Packs a tile when the first queries need panels of it: query tiles need none. */
static void pack_tile(struct attn_stream *s, const struct attn_keys *keys)
{
    if (!s->to_pack)
        return;
    s->to_pack = false;
    if (s->n > ROWS)
        s->kernels->gemm_pack_f32(s->keys, keys->k, s->k_col, keys->k_row, (size_t)s->dim,
                                  (size_t)keys->n);
    if (s->n > ROWS || s->v_dim == 1)
        s->kernels->gemm_pack_f32(s->values, keys->v, keys->v_row, 1, (size_t)keys->n,
                                  (size_t)s->v_dim);
}

/* Queries row … row + rows - 1 and keys from … to - 1 of a tile, in columns `at` … of the
 * scores. */
struct stream_part {
    int64_t row, rows, from, to, at;
};

/* scores[r][j] = q_(row + r) k_(from + j) */
static void stream_score(const struct attn_stream *s, const struct attn_keys *keys,
                         struct stream_part part)
{
    const bool packed = s->packed || s->n > ROWS;
    const float *panels = s->packed ? keys->k : s->keys;
    /* A panel within the tile has all its columns, because they say how wide it was
     * packed. */
    const int64_t to = packed ? min64(op_whole_panels(part.to), keys->n) : part.to;
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
                               .prefetch = s->prefetch,
                               .scratch = s->gemm };
    s->kernels->gemm_f32(&g);
}

static float *sums_of(const struct attn_stream *s, int64_t row)
{
    return s->sums + row * s->v_dim;
}

/* Copies the states and the sums of `rows` rows to `floats`, or takes them back. */
static __attribute__((noinline)) void save_rows(const struct attn_stream *s, int64_t row,
                                                int64_t rows, float *floats)
{
    struct attn_softmax_row *state = (void *)floats;
    memcpy(state, s->state + row, (size_t)rows * sizeof *state);
    memcpy(state + rows, sums_of(s, row), (size_t)(rows * s->v_dim) * sizeof *floats);
}

static __attribute__((noinline)) void take_back(const struct attn_stream *s, int64_t row,
                                                int64_t rows)
{
    const struct attn_softmax_row *state = (void *)s->before;
    memcpy(s->state + row, state, (size_t)rows * sizeof *state);
    memcpy(sums_of(s, row), state + rows, (size_t)(rows * s->v_dim) * sizeof(float));
}

/* No NaN or infinity: the sum is taken in double. */
static __attribute__((noinline)) bool all_finite(const struct attn_stream *s,
                                                 const float *x, int64_t n)
{
    return isfinite(s->kernels->sum_f32(x, (size_t)n));
}

/* Adds the values of a row's keys with a weight to its sums. */
static void add_seen_values(const struct attn_stream *s, const struct attn_keys *keys,
                            const float *scores, int64_t n, float *sums)
{
    int32_t index[KEYS];
    float weight[KEYS];
    size_t seen = 0;
    for (int64_t j = 0; j < n; j++)
        if (scores[j] != 0.0f) {
            index[seen] = (int32_t)j;
            weight[seen++] = scores[j];
        }
    s->kernels->gather_sum_f32(sums, keys->v, keys->v_row, index, weight, seen,
                               (size_t)s->v_dim);
}

/* sums_(row + r) += scores[r] V, for sums already multiplied by their factors. */
static void multiply_values(const struct attn_stream *s, const struct attn_keys *keys,
                            struct stream_part part)
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
                               .prefetch = s->prefetch,
                               .scratch = s->gemm };
    s->kernels->gemm_f32(&g);
}

/* Keys from … to - 1 of a segment. */
static struct attn_keys keys_between(const struct attn_keys *keys, int64_t from,
                                     int64_t to)
{
    struct attn_keys some = *keys;
    some.k += from * keys->k_row;
    some.v += from * keys->v_row;
    some.n = to - from;
    some.first -= from;
    some.last -= from;
    some.own_at -= from;
    return some;
}

/* The same where some keys may be `masked`. Values that are not finite are seen in all rows of a
 * product, also where their weight is 0: in the first one, too. */
static void add_values(const struct attn_stream *s, const struct attn_keys *keys,
                       struct stream_part part, bool masked)
{
    masked = (masked || keys->band) && !s->packed;
    if (masked)
        save_rows(s, part.row, part.rows, s->before);
    multiply_values(s, keys, part);
    if (!masked || all_finite(s, sums_of(s, part.row), s->v_dim))
        return;
    take_back(s, part.row, part.rows);
    const struct attn_keys some = keys_between(keys, part.from, part.to);
    for (int64_t r = 0; r < part.rows; r++) {
        if (attn_poll_work(some.n * s->v_dim) != ATTNRUN_OK)
            return;
        add_seen_values(s, &some, s->scores + r * SCORES + part.at, some.n,
                        sums_of(s, part.row + r));
    }
}

/* Columns `at` … of the scores times a factor of the keys or values, plus a bias. */
static void scale(const struct attn_stream *s, const struct attn_keys *keys,
                  struct stream_part part, float factor, float bias)
{
    float *scores = s->scores + part.at;
    for (int64_t r = 0; keys->scaled && r < part.rows; r++, scores += SCORES)
        s->kernels->scale_shift_f32(scores, scores, (size_t)(part.to - part.from), 0.0f,
                                    factor, bias);
}

static void cap(const struct attn_stream *s, struct stream_part part)
{
    float *scores = s->scores + part.at;
    for (int64_t r = 0; s->softcap > 0 && r < part.rows; r++, scores += SCORES)
        s->kernels->softcap_f32(scores, (size_t)(part.to - part.from), s->softcap);
}

/* Own scores and the band in columns `at` … of the scores. */
static void mask_part(const struct attn_stream *s, const struct attn_keys *keys,
                      struct stream_part part)
{
    const int64_t n = part.to - part.from;
    for (int64_t r = 0; (keys->band || keys->own) && r < part.rows; r++) {
        float *scores = s->scores + r * SCORES + part.at;
        const int64_t shift = part.row + r - part.from, own = keys->own_at + shift;
        const int64_t from = keys->band ? keys->first + shift : 0;
        const int64_t to = keys->band ? keys->last + shift + 1 : n;
        if (keys->own && own >= 0 && own < n)
            scores[own] = keys->own_score;
        for (int64_t j = 0; j < min64(from, n); j++)
            scores[j] = -INFINITY;
        for (int64_t j = to > 0 ? to : 0; j < n; j++)
            scores[j] = -INFINITY;
    }
}

/* Scores become weights, and the sums so far are rescaled to the new maximum. */
static void stream_softmax(struct attn_stream *s, struct stream_part part)
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
        float *sums = sums_of(s, part.row + r);
        if (state[r].factor != 1.0f)
            s->kernels->mul_f32(sums, sums, 1, &state[r].factor, 0, (size_t)s->v_dim);
    }
}

/* ---- query tiles ---- */

static bool fits_tile(const struct attn_stream *s, int64_t rows)
{
    return rows >= MIN_TILE && !s->packed && !s->linear && s->softcap <= 0 &&
           s->k_col == 1;
}

/* The packed queries of a tile, which see all of n segments; the caller sets where the result
 * goes. */
static struct attn_query_tile_f32 query_tile_of(const struct attn_stream *s,
                                                const struct attn_keys *segments, int n,
                                                int64_t rows)
{
    return (struct attn_query_tile_f32){ .q = s->tile,
                                         .queries = (size_t)rows,
                                         .dim = (size_t)s->dim,
                                         .v_dim = (size_t)s->v_dim,
                                         .keys = segments,
                                         .n_keys = (size_t)n,
                                         .scores = s->scores,
                                         .min = ATTN_TERMS_THAT_COUNT,
                                         .prefetch = s->prefetch };
}

/* Queries row … row + rows - 1, of one tile, see all of n segments. */
static void stream_run_tile(struct attn_stream *s, const struct attn_keys *segments,
                            int n, int64_t row, int64_t rows)
{
    if (s->tile_row != row || s->tile_rows != rows)
        s->kernels->query_tile_pack_f32(s->tile, s->q + row * s->dim, s->dim,
                                        (size_t)s->dim, (size_t)rows);
    s->tile_row = row;
    s->tile_rows = rows;
    struct attn_query_tile_f32 tile = query_tile_of(s, segments, n, rows);
    tile.state = s->state + row;
    tile.sums = s->sums + row * s->v_dim;
    s->kernels->query_tile_f32(&tile);
}

static bool any_band(const struct attn_keys *segments, int n)
{
    bool band = false;
    for (int i = 0; i < n; i++)
        band = band || segments[i].band;
    return band;
}

/* The queries of a tile: more of them share keys that become words. */
static int64_t tile_queries(const struct attn_stream *s, const struct attn_keys *segments,
                            int n)
{
    return s->kernels->tiles_bf16 && s->dim <= ATTN_TILE_SQUARES_DIM &&
                   !any_band(segments, n)
               ? ATTN_TILE_QUERIES_SQUARES
               : TILE;
}

/* False, with nothing changed: the rows do not fit, or values that are not finite may belong to
 * keys outside of a band. */
static bool run_tiles(struct attn_stream *s, const struct attn_keys *segments, int n,
                      int64_t first, int64_t rows)
{
    const int64_t end = first + rows, max = tile_queries(s, segments, n);
    const bool band = any_band(segments, n);
    struct attn_keys tile[ATTN_STREAM_SEGMENTS];
    if (!fits_tile(s, rows))
        return false;
    if (band)
        save_rows(s, first, rows, s->before);
    for (int64_t m, row = first; row < end; row += m) {
        m = min64(max, end - row);
        for (int i = 0; i < n; i++) {
            tile[i] = segments[i];
            tile[i].first += row;
            tile[i].last += row;
            tile[i].own_at += row;
        }
        stream_run_tile(s, tile, n, row, m);
    }
    if (!band || all_finite(s, sums_of(s, first), rows * s->v_dim))
        return true;
    take_back(s, first, rows);
    return false;
}

/* Prefetches `n` rows of `floats` floats into L2: with few queries the arithmetic waits
 * for them, and the CPU's own prefetcher stops at the end of a page. */
static void fetch_rows(const float *x, int64_t row, int64_t n, int64_t floats)
{
    enum { LINE = 64 / sizeof(float) };
    for (int64_t i = 0; i < n; i++, x += row)
        for (int64_t j = 0; j < floats; j += LINE)
            __builtin_prefetch(x + j, 0, 2);
}

static void fetch_keys(const struct attn_stream *s, const struct attn_keys *keys,
                       int64_t from, int64_t to)
{
    if (s->packed || s->k_col != 1)
        return;
    fetch_rows(keys->k + from * keys->k_row, keys->k_row, to - from, s->dim);
    fetch_rows(keys->v + from * keys->v_row, keys->v_row, to - from, s->v_dim);
}

void attn_stream_rows(struct attn_stream *s, const struct attn_keys *keys, int64_t row,
                      int64_t rows, int64_t from, int64_t to, attn_stream_mask mask,
                      void *arg)
{
    const struct stream_part part = { row, rows, from, to, 0 };
    if (to <= from || rows == 0)
        return;
    const struct attn_keys segment = keys_between(keys, from, to);
    if (mask == NULL && run_tiles(s, &segment, 1, row, rows))
        return;
    if (s->n < MIN_TILE)
        fetch_keys(s, keys, from, to);
    pack_tile(s, keys);
    stream_score(s, keys, part);
    scale(s, keys, part, keys->k_factor, keys->bias);
    cap(s, part);
    mask_part(s, keys, part);
    if (mask != NULL)
        mask(arg, s->scores, row, rows, from, to);
    stream_softmax(s, part);
    scale(s, keys, part, keys->v_factor, 0.0f);
    add_values(s, keys, part, mask != NULL);
}

void attn_stream_tile(struct attn_stream *s, const struct attn_keys *keys,
                      attn_stream_mask mask, void *arg)
{
    attn_stream_pack(s, keys);
    for (int64_t row = 0; row < s->n; row += ROWS)
        attn_stream_rows(s, keys, row, min64(ROWS, s->n - row), 0, keys->n, mask, arg);
}

void attn_stream_segments(struct attn_stream *s, const struct attn_keys *segments, int n,
                          attn_stream_mask mask, void *arg)
{
    struct stream_part all = { .rows = s->n };
    if (mask == NULL && run_tiles(s, segments, n, 0, s->n))
        return;
    for (int i = 0; i < n; all.to += segments[i++].n) {
        const struct stream_part part = { 0, s->n, 0, segments[i].n, all.to };
        stream_score(s, segments + i, part);
        scale(s, segments + i, part, segments[i].k_factor, segments[i].bias);
        cap(s, part);
        mask_part(s, segments + i, part);
    }
    if (all.to == 0 || s->n == 0)
        return;
    if (mask != NULL)
        mask(arg, s->scores, 0, s->n, 0, all.to);
    stream_softmax(s, all);
    for (int i = 0, at = 0; i < n; at += (int)segments[i++].n) {
        const struct stream_part part = { 0, s->n, 0, segments[i].n, at };
        attn_stream_pack(s, segments + i);
        pack_tile(s, segments + i);
        scale(s, segments + i, part, segments[i].v_factor, 0.0f);
        add_values(s, segments + i, part, mask != NULL);
    }
}

void attn_stream_once(struct attn_stream *s, const float *q, int64_t q_row, int64_t rows,
                      float factor, const struct attn_keys *segments, int n, float *y,
                      int64_t y_row)
{
    struct attn_keys tile[ATTN_STREAM_SEGMENTS];
    int64_t keys = 0;
    for (int i = 0; i < n; keys += segments[i++].n) {
        tile[i] = segments[i];
        if (!tile[i].scaled)
            tile[i].k_factor = tile[i].v_factor = 1.0f;
        tile[i].k_factor *= factor;
        tile[i].scaled = true;
    }
    if (!fits_tile(s, rows) || keys == 0) {
        attn_stream_reset(s, rows);
        attn_stream_load(s, 0, q, q_row, rows, factor);
        attn_stream_segments(s, segments, n, NULL, NULL);
        attn_stream_store_rows(s, 0, rows, y, y_row, 0.0f);
        return;
    }
    s->tile_rows = 0;
    s->kernels->query_tile_pack_f32(s->tile, q, q_row, (size_t)s->dim, (size_t)rows);
    struct attn_query_tile_f32 whole = query_tile_of(s, tile, n, rows);
    whole.y = y;
    whole.y_row = y_row;
    s->kernels->query_tile_f32(&whole);
}

void attn_stream_clear_nan(struct attn_stream *s, int64_t row, int64_t rows)
{
    for (int64_t r = row; r < row + rows; r++)
        if (isnan(s->state[r].sum)) {
            s->state[r].sum = 0.0f;
            memset(s->sums + r * s->v_dim, 0, (size_t)s->v_dim * sizeof *s->sums);
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

int64_t attn_stream_saved_floats(int64_t n, int64_t v_dim)
{
    const int64_t state = (int64_t)(sizeof(struct attn_softmax_row) / sizeof(float));
    return round_up(n * (state + v_dim), 16);
}

void attn_stream_save(const struct attn_stream *s, float *floats)
{
    save_rows(s, 0, s->n, floats);
}

void attn_stream_add(struct attn_stream *s, const float *floats)
{
    const struct attn_softmax_row *state = (const void *)floats;
    const float *sums = (const void *)(state + s->n);
    for (int64_t r = 0; r < s->n; r++)
        attn_softmax_row_add(&s->state[r], s->sums + r * s->v_dim, &state[r],
                             sums + r * s->v_dim, s->v_dim);
}

void attn_stream_store(const struct attn_stream *s, int64_t row, float *y, float empty)
{
    const float sum = s->state[row].sum;
    const float scale = sum == 0.0f ? empty : 1.0f / sum;
    s->kernels->mul_f32(y, s->sums + row * s->v_dim, 1, &scale, 0, (size_t)s->v_dim);
}
