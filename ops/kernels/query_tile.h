/* query_tile.h - softmax attention of a query tile: a few queries and segments of keys
 * that all of them see, or the keys of a band around the diagonal. Scores are computed
 * transposed, a row per key and a lane per query, so that maxima, exponentials and sums
 * go down the rows, and each query has its lane.
 *
 * In: struct attn_query_tile_f32, and by the file that includes this one PAIRS. Out: the
 * running softmax and sums of the queries. Without PAIRS, keys and values are floats that
 * are read in place; only the queries are packed. With PAIRS, operands are words of two
 * bf16: keys become words along their elements, MR keys at a time, values along the
 * tokens, NR columns at a time, and so do the terms of two tokens.
 *
 * Tiles are MR keys by NR queries, then MR queries by NR elements of the values. The
 * operands of a tile are prefetched while the tile before it is computed. Cost: 2 queries
 * keys (dim + v_dim) FLOPs, and an exponential for each pair. Source: Milakov 2018,
 * arXiv:1805.02867. */
#ifndef ATTN_QUERY_TILE_H
#define ATTN_QUERY_TILE_H

#include "lanes.h"
#include "outer.h"
#include "pairs.h"
#include "softmax.h"

enum {
    NR = 2 * VF,
    ROW = ATTN_TILE_QUERIES, /* from the scores of a key to those of the next */
    STRIP = 8,
    STRIPS = 2, /* so many together prefetch lines that are read after this query tile */
    PREFETCH_LINES = 3,
    LINE = 64 / sizeof(float),
    WORDS = ATTN_TILE_PAIRS_DIM / 2, /* of a key at most … */
    WORD_ROW = WORDS + 16,           /* … and from those of one to the next */
    EACH = PAIRS ? 2 : 1             /* elements of a word */
};

/* ---- bands ---- */

struct span {
    size_t from, to;
};

/* The keys of a segment that some of the queries l … l + n - 1 see. */
static struct span keys_seen(const struct attn_keys *keys, size_t l, size_t n)
{
    ptrdiff_t from = 0, to = (ptrdiff_t)keys->n;
    if (keys->band) {
        const ptrdiff_t low = (ptrdiff_t)l + keys->first;
        const ptrdiff_t high = (ptrdiff_t)(l + n) + keys->last;
        from = low > from ? low : from;
        to = high < to ? high : to;
    }
    from = from < (ptrdiff_t)keys->n ? from : (ptrdiff_t)keys->n;
    to = to > from ? to : from;
    return (struct span){ (size_t)from, (size_t)to };
}

/* With PAIRS: extends a span to whole words of keys. */
static struct span whole_words(struct span keys)
{
    return (struct span){ keys.from / EACH * EACH, (keys.to + EACH - 1) / EACH * EACH };
}

/* The keys of segment p that the panel of queries from l on sees. */
static struct span panel_sees(const struct attn_query_tile_f32 *tile, size_t p, size_t l)
{
    const size_t left = tile->queries - l;
    return keys_seen(&tile->keys[p], l, left < NR ? left : NR);
}

/* Whether some of the queries l … l + n - 1 do not see all of the keys, or are one of
 * them. */
static bool is_masked(const struct attn_keys *keys, struct span span, size_t l, size_t n)
{
    const ptrdiff_t low = (ptrdiff_t)span.from - (ptrdiff_t)(l + n - 1);
    const ptrdiff_t high = (ptrdiff_t)(span.to - 1) - (ptrdiff_t)l;
    return (keys->band && (low < keys->first || high > keys->last)) ||
           (keys->own && low <= keys->own_at && high >= keys->own_at);
}

static size_t lane_of(ptrdiff_t l) { return l < 0 ? 0 : l > NR ? NR : (size_t)l; }

/* Masks the scores outside of the band for a panel of queries, from l on, writes own
 * scores and finds the maxima: max[i] for i < width. */
static void mask_scores(const struct attn_keys *keys, struct span span, float *scores,
                        size_t l, size_t width, float *max)
{
    for (size_t j = span.from; j < span.to; j++, scores += ROW) {
        const ptrdiff_t at = (ptrdiff_t)j - (ptrdiff_t)l, own = at - keys->own_at;
        if (keys->own && own >= 0 && own < (ptrdiff_t)width)
            scores[own] = keys->own_score;
        const size_t from = lane_of(at - keys->last), to = lane_of(at - keys->first + 1);
        for (size_t i = 0; keys->band && i < width; i++)
            scores[i] = i < from || i >= to ? -INFINITY : scores[i];
        for (size_t i = 0; i < width; i += VF)
            v_store(max + i, v_max(v_load(max + i), v_load(scores + i)));
    }
}

/* ---- prefetch ---- */

/* Prefetches the next lines of what is read after this query tile, into L2. */
static ALWAYS_INLINE void prefetch_list(struct attn_prefetch *prefetch)
{
    for (int i = 0; prefetch != NULL && i < PREFETCH_LINES && prefetch->at < prefetch->n;
         i++) {
        const struct attn_prefetch_rows *rows = &prefetch->list[prefetch->at];
        __builtin_prefetch(
            rows->first + prefetch->row * rows->row + prefetch->line * LINE, 0, 2);
        attn_prefetch_pass(prefetch, 1);
    }
}

/* Eight rows that the following tiles read. Each strip of a tile prefetches NEXT_LINES of
 * one of them. */
enum { NEXT_ROWS = 8, NEXT_LINES = 4 };
struct next_rows {
    const float *x;
    ptrdiff_t row;
};

static ALWAYS_INLINE const float *prefetch_next(const float *x, ptrdiff_t row,
                                                size_t strip)
{
    UNROLL
    for (int line = 0; line < NEXT_LINES; line++)
        __builtin_prefetch(x + line * LINE, 0, 3);
    const bool last = strip % NEXT_ROWS == NEXT_ROWS - 1;
    return x + (last ? NEXT_LINES * LINE - (NEXT_ROWS - 1) * row : row);
}

/* ---- scores ---- */

struct score_tile {
    const float *k, *q; /* words; q: a panel */
    ptrdiff_t k_row;
    size_t words;
    float factor, bias;
    float *out, *max; /* max: NR so far */
    struct next_rows next_rows;
    struct attn_prefetch *prefetch;
};

static ALWAYS_INLINE void product_step(v_f32 (*acc)[2], const float *a, ptrdiff_t a_row,
                                       const float *b, const struct rows rows,
                                       const int nv)
{
    if (PAIRS)
        pair_step(acc, a, a_row, b, rows, nv);
    else
        outer_step(acc, a, a_row, b, rows, nv);
}

/* out[i][l] = factor k_i . q_l + bias for each row i, l < nv * VF. */
static ALWAYS_INLINE void score(const struct score_tile *t, const struct rows rows,
                                const int nv)
{
    v_f32 acc[MR][2] = { { { 0 } } };
    const float *k = t->k, *q = t->q;
    const ptrdiff_t k_row = t->k_row;
    const float *next_rows = t->next_rows.x;
    const ptrdiff_t next_row = t->next_rows.row;
    const size_t strips = t->words / STRIP;
    for (size_t i = 0; i < strips; i++) {
        for (size_t each = 0; each < EACH; each++)
            next_rows = prefetch_next(next_rows, next_row, EACH * i + each);
        if (i % STRIPS == 0)
            prefetch_list(t->prefetch);
        for (int s = 0; s < STRIP; s += steps_at_once(rows, nv))
            UNROLL
        for (int u = 0; u < steps_at_once(rows, nv); u++, k++, q += nv * VF)
            product_step(acc, k, k_row, q, rows, nv);
    }
    for (size_t d = strips * STRIP; d < t->words; d++, k++, q += nv * VF)
        product_step(acc, k, k_row, q, rows, nv);
    UNROLL
    for (int v = 0; v < nv; v++) {
        v_f32 max = v_load(t->max + v * VF);
        EACH_ROW (i, rows) {
            const v_f32 score = acc[i][v] * t->factor + t->bias;
            v_store(t->out + i * ROW + v * VF, score);
            max = v_max(max, score);
        }
        v_store(t->max + v * VF, max);
    }
}

/* ---- values ---- */

struct value_tile {
    const struct attn_query_tile_f32 *tile;
    size_t query;        /* the first of the rows */
    const float *factor; /* of them */
    size_t column;       /* first element of the values */
    v_mask lanes;        /* of one vector, where nv is 1 */
    const float *words;  /* PAIRS: of the values of all runs, NR a row */
};

/* acc[i] += the terms of one or two keys times their values. */
static ALWAYS_INLINE void value_step(v_f32 (*acc)[2], const float *v, const float *scores,
                                     v_mask lanes, const struct rows rows, const int nv)
{
    v_f32 x[2];
    if (PAIRS) {
        pair_step(acc, scores, 1, v, rows, nv);
        return;
    }
    x[0] = nv == 1 ? v_load_lanes(v, lanes) : v_load(v);
    if (nv == 2)
        x[1] = v_load(v + VF);
    EACH_ROW (i, rows) {
        const v_f32 weight = v_set(scores[i]);
        UNROLL
        for (int c = 0; c < nv; c++)
            acc[i][c] = v_add_product(acc[i][c], weight, x[c]);
    }
}

/* With s = the sum over keys of scores[key][i] v_key: sums[i] = sums[i] factor[i] + s,
 * or y[i] = factor[i] s. */
static ALWAYS_INLINE void value(const struct value_tile *t, const struct rows rows,
                                const int nv)
{
    v_f32 acc[MR][2] = { { { 0 } } };
    const struct attn_query_tile_f32 *tile = t->tile;
    const float *run = tile->scores + t->query;
    const v_mask lanes = t->lanes;
    const float *words = t->words;
    for (size_t p = 0; p < tile->n_keys; run += tile->keys[p++].n * ROW) {
        const struct attn_keys *keys = &tile->keys[p];
        const struct span seen = whole_words(keys_seen(keys, t->query, (size_t)rows.n));
        const ptrdiff_t v_row = PAIRS ? NR : keys->v_row;
        const float *scores = run + seen.from * ROW;
        const size_t n = (seen.to - seen.from) / EACH, strips = n / STRIP;
        const float *v = PAIRS ? words + seen.from / EACH * NR
                               : keys->v + t->column + (ptrdiff_t)seen.from * v_row;
        words += PAIRS ? (keys->n + 1) / EACH * NR : 0;
        for (size_t i = 0; i < strips; i++) {
            if (i % STRIPS == 0)
                prefetch_list(tile->prefetch);
            for (int s = 0; s < STRIP; s += steps_at_once(rows, nv))
                UNROLL
            for (int u = 0; u < steps_at_once(rows, nv);
                 u++, v += v_row, scores += EACH * ROW)
                value_step(acc, v, scores, lanes, rows, nv);
        }
        for (size_t j = strips * STRIP; j < n; j++, v += v_row, scores += EACH * ROW)
            value_step(acc, v, scores, lanes, rows, nv);
    }
    if (tile->y != NULL) {
        float *y = tile->y + (ptrdiff_t)t->query * tile->y_row + t->column;
        EACH_ROW (i, rows) {
            if (nv == 1)
                v_store_lanes(y, lanes, acc[i][0] * t->factor[i]);
            for (int c = 0; nv == 2 && c < nv; c++)
                v_store(y + c * VF, acc[i][c] * t->factor[i]);
            y += tile->y_row;
        }
        return;
    }
    EACH_ROW (i, rows) {
        float *sums = tile->sums + (t->query + (size_t)i) * tile->v_dim + t->column;
        UNROLL
        for (int c = 0; c < nv; c++) {
            if (nv == 1) {
                const v_f32 old = v_load_lanes(sums, lanes);
                v_store_lanes(sums, lanes,
                              v_add_product(acc[i][0], old, v_set(t->factor[i])));
            } else {
                const v_f32 old = v_load(sums + c * VF);
                v_store(sums + c * VF,
                        v_add_product(acc[i][c], old, v_set(t->factor[i])));
            }
        }
    }
}

/* clang-format off */
#define TILE(min, max, nv)                                                               \
    static void score_##min##x##nv(const struct score_tile *t, size_t n)                 \
    {                                                                                    \
        score(t, (struct rows){ (int)n, min, max }, nv);                                 \
    }                                                                                    \
    static void value_##min##x##nv(const struct value_tile *t, size_t n)                 \
    {                                                                                    \
        value(t, (struct rows){ (int)n, min, max }, nv);                                 \
    }
ATTN_NARROW_TEXTS(ATTN_F32_ROWS, TILE, 1)
ATTN_TEXTS(ATTN_F32_ROWS, TILE, 2)
#define SCORE(min, max, nv) score_##min##x##nv,
#define VALUE(min, max, nv) value_##min##x##nv,
static void (*const score_tiles[2][MR])(const struct score_tile *t, size_t n) = {
    { ATTN_NARROW_TEXTS(ATTN_F32_ROWS, SCORE, 1) }, { ATTN_TEXTS(ATTN_F32_ROWS, SCORE, 2) }
};
static void (*const value_tiles[2][MR])(const struct value_tile *t, size_t n) = {
    { ATTN_NARROW_TEXTS(ATTN_F32_ROWS, VALUE, 1) }, { ATTN_TEXTS(ATTN_F32_ROWS, VALUE, 2) }
};
#undef VALUE
#undef SCORE
#undef TILE
/* clang-format on */

/* Which text has a tile of n rows and nv vectors. */
static size_t tile_text(size_t n, size_t nv)
{
    return nv == 1 ? narrow_text_of(n, MR) : text_of(n, MR);
}

/* ---- a query tile ---- */

/* The rows to prefetch while n keys from `from` on of segment p are multiplied by one
 * panel of queries: in the first panel the next keys, in the last one the values of these
 * keys. */
static struct next_rows next_of(const struct attn_query_tile_f32 *tile, size_t p,
                                struct span span, bool first)
{
    const struct attn_keys *keys = &tile->keys[p];
    if (first && span.to < (size_t)keys->n)
        return (struct next_rows){ keys->k + (ptrdiff_t)span.to * keys->k_row,
                                   keys->k_row };
    if (first && p + 1 < tile->n_keys)
        return (struct next_rows){ keys[1].k, keys[1].k_row };
    return (struct next_rows){ keys->v + (ptrdiff_t)span.from * keys->v_row,
                               keys->v_row };
}

/* Computes the scores of the keys of a span of segment p with all queries. `out`: the
 * scores of the first key. */
static void score_keys(const struct attn_query_tile_f32 *tile, size_t p, struct span span,
                       float *out, float *max)
{
    const struct attn_keys *keys = &tile->keys[p];
    float unused[NR], words[PAIRS ? MR * WORD_ROW : 1];
    const size_t n_words = (tile->dim + EACH - 1) / EACH;
    const float *k = keys->k + (ptrdiff_t)span.from * keys->k_row;
    for (size_t i = 0; PAIRS && i < span.to - span.from; i++)
        pair_row(words + i * WORD_ROW, k + (ptrdiff_t)i * keys->k_row, tile->dim);
    for (size_t l = 0; l < tile->queries; l += NR) {
        const size_t left = tile->queries - l, width = left <= VF ? VF : NR;
        const struct span seen = panel_sees(tile, p, l);
        const bool cut = is_masked(keys, span, l, left < width ? left : width);
        if (seen.to <= span.from || seen.from >= span.to)
            continue;
        for (size_t i = 0; cut && i < NR; i++)
            unused[i] = -INFINITY;
        score_tiles[width / VF - 1][tile_text(span.to - span.from, width / VF)](
            &(struct score_tile){ .k = PAIRS ? words : k,
                                  .k_row = PAIRS ? (ptrdiff_t)WORD_ROW : keys->k_row,
                                  .q = tile->q + l * n_words,
                                  .words = n_words,
                                  .factor = keys->scaled ? keys->k_factor : 1.0f,
                                  .bias = keys->scaled ? keys->bias : 0.0f,
                                  .out = out + l,
                                  .max = cut ? unused : max + l,
                                  .next_rows = next_of(tile, p, span, l == 0),
                                  .prefetch = tile->prefetch },
            span.to - span.from);
        if (cut)
            mask_scores(keys, span, out + l, l, width, max + l);
    }
}

static void make_scores(const struct attn_query_tile_f32 *tile, float *max)
{
    float *out = tile->scores;
    const size_t work = (tile->queries * tile->dim / 5) + 4 * tile->dim; /* for a key */
    for (size_t p = 0; p < tile->n_keys; out += tile->keys[p++].n * ROW) {
        const struct span seen = keys_seen(&tile->keys[p], 0, tile->queries);
        for (size_t from = seen.from, to; from < seen.to; from = to) {
            to = from + next_rows(seen.to - from, MR);
            const struct span span = { from, to };
            if (attn_poll_work((int64_t)((span.to - span.from) * work)) != ATTNRUN_OK)
                return;
            score_keys(tile, p, span, out + span.from * ROW, max);
        }
    }
}

/* The rows of the online softmax, as lanes. */
struct lanes {
    float max[ROW], sum[ROW], shift[ROW], factor[ROW];
};

static void move_maximum(struct lanes *lanes, const float *max, size_t l)
{
    const v_f32 new = v_load(max + l), old = v_load(lanes->max + l);
    const v_f32 shift = v_load(lanes->shift + l), sum = v_load(lanes->sum + l);
    const v_i32 moves = (new > old + (float)SLACK) | ((new > old) & (sum == 0.0f));
    const v_f32 moved = v_select(moves, -new, shift);
    /* Before the first key the sum is empty. */
    const v_i32 counts = moves & (old != -INFINITY);
    const v_f32 factor = v_select(counts, v_exp2((moved - shift) * LOG2E), v_set(1.0f));
    v_store(lanes->max + l, v_select(moves, new, old));
    v_store(lanes->shift + l, moved);
    v_store(lanes->factor + l, factor);
    v_store(lanes->sum + l, sum * factor);
}

/* 2^t, or 0 below 2^min, for terms that become bf16, which is an error of 2e-3. Both
 * polynomials are of degree 4 and minimax fits of our own: the one for fractions has a
 * relative error of 2.9e-6 and is 1 at 0, the other one has 2.7e-6. */
static ALWAYS_INLINE v_f32 rough_term(v_f32 t, float min)
{
#ifdef v_fraction
    const v_f32 r = v_fraction(t);
    v_f32 p = 1.34266866e-02f * r + 5.22424728e-02f;
    p = p * r + 2.41280213e-01f;
    p = p * r + 6.93044841e-01f;
    return v_scale2_from(p * r + 1.0f, t, min);
#else
    const float magic = 12582912.0f; /* as v_exp2_core() */
    const v_f32 none = { 0 }, x = v_max(v_set(min), t);
    const v_f32 shifted = x + magic, k = shifted - magic, r = x - k;
    v_f32 p = 9.570101e-03f * r + 5.591786e-02f;
    p = p * r + 2.40247448e-01f;
    p = p * r + 6.93121815e-01f;
    p = p * r + 9.99999261e-01f;
    return v_select(t < min, none, v_scale2_normal(p, k, shifted));
#endif
}

/* The term of score s of key j; 0 where the panel does not see the key. */
static ALWAYS_INLINE v_f32 term_of(const float *s, struct span seen, size_t j,
                                   v_f32 shift, float min)
{
    if (!PAIRS)
        return normal_term((v_load(s) + shift) * LOG2E, min);
    if (j < seen.from || j >= seen.to)
        return v_set(0.0f);
    return rough_term((v_load(s) + shift) * LOG2E, min);
}

/* The scores of queries l … l + nv * VF - 1 become terms, times the factor of the values.
 * With PAIRS the words of two keys take the place of the first key's scores. */
static ALWAYS_INLINE void make_terms(const struct attn_query_tile_f32 *tile,
                                     struct lanes *lanes, size_t l, const int nv)
{
    v_f32 sum[2] = { { 0 } }, shift[2];
    float *run = tile->scores + l;
    UNROLL
    for (int v = 0; v < nv; v++)
        shift[v] = v_load(lanes->shift + l + (size_t)v * VF);
    for (size_t p = 0; p < tile->n_keys; run += tile->keys[p++].n * ROW) {
        const struct span seen = panel_sees(tile, p, l), all = whole_words(seen);
        const v_f32 factor = v_set(tile->keys[p].scaled ? tile->keys[p].v_factor : 1.0f);
        float *s = run + all.from * ROW;
        for (size_t j = all.from; j < all.to; j += EACH, s += EACH * ROW) {
            UNROLL
            for (int v = 0; v < nv; v++) {
                const v_f32 e = term_of(s + v * VF, seen, j, shift[v], tile->min);
                v_f32 word = e * factor;
                sum[v] += e;
                if (PAIRS) {
                    const v_f32 next =
                        term_of(s + v * VF + ROW, seen, j + 1, shift[v], tile->min);
                    sum[v] += next;
                    word = (v_f32)v_pair_bf16(word, next * factor);
                }
                v_store(s + v * VF, word);
            }
        }
    }
    UNROLL
    for (int v = 0; v < nv; v++) {
        float *total = lanes->sum + l + (size_t)v * VF;
        v_store(total, v_load(total) + sum[v]);
    }
}

/* Loads the rows of `state` as lanes; and stores them, with the divisors of results, or
 * the factors of earlier sums. */
static void begin_lanes(const struct attn_query_tile_f32 *tile, struct lanes *lanes)
{
    const size_t whole = (tile->queries + VF - 1) / VF * VF;
    for (size_t r = 0; r < whole; r++) {
        const struct attn_softmax_row fresh = { .max = -INFINITY };
        const struct attn_softmax_row *row =
            r < tile->queries && tile->y == NULL ? &tile->state[r] : &fresh;
        lanes->max[r] = row->max;
        lanes->sum[r] = row->sum;
        lanes->shift[r] = row->shift;
    }
}

static void end_lanes(const struct attn_query_tile_f32 *tile, struct lanes *lanes)
{
    for (size_t r = 0; tile->y != NULL && r < tile->queries; r++)
        lanes->factor[r] = lanes->sum[r] == 0.0f ? 0.0f : 1.0f / lanes->sum[r];
    for (size_t r = 0; tile->y == NULL && r < tile->queries; r++)
        tile->state[r] = (struct attn_softmax_row){ lanes->max[r], lanes->sum[r],
                                                    lanes->shift[r], lanes->factor[r] };
}

static void softmax(const struct attn_query_tile_f32 *tile, struct lanes *lanes,
                    const float *max)
{
    const size_t whole = (tile->queries + VF - 1) / VF * VF;
    begin_lanes(tile, lanes);
    for (size_t l = 0; l < whole; l += VF)
        move_maximum(lanes, max, l);
    for (size_t l = 0; l < whole; l += NR)
        if (whole - l > VF)
            make_terms(tile, lanes, l, 2);
        else
            make_terms(tile, lanes, l, 1);
    end_lanes(tile, lanes);
}

/* PAIRS: stores the values of a token and of the next one (NULL: there is none) as words: NR of
 * them, or those of a vector that `lanes` choose. */
static ALWAYS_INLINE void pair_token(float *word, const float *v, const float *next,
                                     size_t width, v_mask lanes)
{
    v_f32 x[2], y[2] = { { 0 }, { 0 } };
    if (width < NR) {
        x[0] = v_load_lanes(v, lanes);
        if (next != NULL)
            y[0] = v_load_lanes(next, lanes);
        v_store(word, (v_f32)v_pair_bf16(x[0], y[0]));
        return;
    }
    UNROLL
    for (int i = 0; i < 2; i++) {
        x[i] = v_load(v + i * VF);
        if (next != NULL)
            y[i] = v_load(next + i * VF);
        v_store(word + i * VF, (v_f32)v_pair_bf16(x[i], y[i]));
    }
}

/* PAIRS: stores the values of all segments that the queries see, some columns of them. */
static void pair_values(const struct attn_query_tile_f32 *tile, float *words,
                        size_t column, size_t width, v_mask lanes)
{
    for (size_t p = 0; p < tile->n_keys; words += (tile->keys[p++].n + 1) / 2 * NR) {
        const struct attn_keys *keys = &tile->keys[p];
        const struct span seen = whole_words(keys_seen(keys, 0, tile->queries));
        const size_t whole = (size_t)keys->n / 2 * 2,
                     both = seen.to < whole ? seen.to : whole;
        const float *v = keys->v + (ptrdiff_t)seen.from * keys->v_row + column;
        float *word = words + seen.from / 2 * NR;
        size_t j = seen.from;
        for (; j < both && width == NR; j += 2, v += 2 * keys->v_row, word += NR)
            pair_token(word, v, v + keys->v_row, NR, lanes);
        for (; j < seen.to; j += 2, v += 2 * keys->v_row, word += NR)
            pair_token(word, v, j < both ? v + keys->v_row : NULL, width, lanes);
    }
}

/* Adds the values of all queries, `part` of them at a time, all columns. */
static void add_values(const struct attn_query_tile_f32 *tile, const float *factor,
                       size_t part, size_t keys)
{
    float words[PAIRS ? (ATTN_TILE_KEYS + ATTN_TILE_SEGMENTS) / 2 * NR : 1];
    struct value_tile t = { .tile = tile, .words = words };
    for (size_t width; t.column < tile->v_dim; t.column += width) {
        const size_t left = tile->v_dim - t.column, n = tile->queries;
        width = left >= NR ? NR : left < VF ? left : VF;
        t.lanes = v_lanes(v_bits(0, width < VF ? (int64_t)width : VF));
        if (attn_poll_work((int64_t)(width * keys * (4 + n / 5))) != ATTNRUN_OK)
            return;
        if (PAIRS)
            pair_values(tile, words, t.column, width, t.lanes);
        for (size_t i = 0, rows; i < n; i += rows) {
            const size_t end = (i / part + 1) * part;
            rows = next_rows((end < n ? end : n) - i, MR);
            t.query = i;
            t.factor = factor + i;
            value_tiles[width == NR][tile_text(rows, width == NR ? 2 : 1)](&t, rows);
        }
    }
}

static inline void run_query_tile(const struct attn_query_tile_f32 *tile)
{
    struct lanes lanes;
    float max[ROW];
    /* A tile of values with queries of two panels would read scores of keys that one of
     * the panels never saw. */
    size_t keys = 0, part = ROW;
    for (size_t p = 0; p < tile->n_keys; p++) {
        keys += tile->keys[p].n;
        part = tile->keys[p].band ? NR : part;
    }
    if (keys == 0 || tile->queries == 0)
        return;
    for (size_t l = 0; l < ROW; l++)
        max[l] = -INFINITY;
    make_scores(tile, max);
    softmax(tile, &lanes, max);
    add_values(tile, lanes.factor, part, keys);
}

#endif
