/* query_tile_squares.h - softmax attention of a query tile where the instruction set
 * multiplies tiles of words of two bf16 (AMX). Here the scores have a row for each query,
 * so that the terms of two keys are already a word of the second product.
 *
 * Queries are the left operand: squares of words, as query_tile_pack_bf16() makes them. The
 * keys of all segments that a query sees become words of two of their elements, side by
 * side, a line for 16 keys. The values become words of two keys, NR columns at a time.
 * All operands are squares of 16 x 16 words, filled up with zeros. The scores of 32
 * queries are in L1, and the terms of 64 are kept until the values are multiplied. Up to 128
 * queries share the words of keys and values. Cost: as query_tile.h, and one conversion of
 * the keys and values. */
#ifndef ATTN_QUERY_TILE_SQUARES_H
#define ATTN_QUERY_TILE_SQUARES_H

#include "query_tile.h"
#include "transpose.h"

enum {
    SIDE = 16,
    SQUARE = SIDE * SIDE, /* words */
    LINE_BYTES = 4 * SIDE,
    MAX_DIM =
        ATTN_TILE_SQUARES_DIM, /* keys are in tile->scores, and all values are kept */
    BLOCK = 2 * SIDE,
    SCORE_ROW = ATTN_TILE_KEYS + SIDE, /* no power of 2 */
    TERM_STEPS = ATTN_TILE_KEYS / BLOCK
};

/* A segment: the keys of it that some query sees. */
struct seen_run {
    const struct attn_keys *keys;
    struct span span;
    size_t column; /* of the first one among all keys */
};

struct squares {
    const struct attn_query_tile_f32
        *tile;    /* up to 64 queries of those that share the keys */
    size_t first; /* their place among these */
    struct seen_run runs[ATTN_TILE_SEGMENTS];
    const float *k[ATTN_TILE_KEYS], *v[ATTN_TILE_KEYS];
    size_t n, steps, k_steps; /* keys; squares along them and along their elements */
    bool changed;             /* scores and terms of some runs: scaled, own, bands */
    struct lanes lanes;
    float factors[ATTN_TILE_KEYS]; /* of values, where changed */
    float scores[BLOCK * SCORE_ROW] __attribute__((aligned(64)));
    float terms[ATTN_TILE_QUERIES / SIDE * TERM_STEPS * SQUARE]
        __attribute__((aligned(64)));
    float values[MAX_DIM / NR][ATTN_TILE_KEYS / 2 * NR] __attribute__((aligned(64)));
    float room[BLOCK * NR] __attribute__((aligned(64)));
};

/* out = the products of one or two rows of squares of a, which are a_next words apart,
 * and two columns of squares of b. Rows of `out` are out_row floats apart. */
static ALWAYS_INLINE void multiply_squares(float *out, size_t out_row, const float *a,
                                           size_t a_next, const float *b, size_t steps,
                                           const bool both)
{
    v_tiles_fence();
    v_tile_zero(0);
    v_tile_zero(1);
    v_tile_zero(2);
    v_tile_zero(3);
    for (size_t i = 0; i < steps; i++, a += SQUARE, b += SIDE * NR) {
        v_tile_load(4, a, LINE_BYTES);
        v_tile_load(6, b, 2 * LINE_BYTES);
        v_tile_load(7, b + SIDE, 2 * LINE_BYTES);
        v_tile_dot_bf16(0, 4, 6);
        v_tile_dot_bf16(1, 4, 7);
        if (both) {
            v_tile_load(5, a + a_next, LINE_BYTES);
            v_tile_dot_bf16(2, 5, 6);
            v_tile_dot_bf16(3, 5, 7);
        }
    }
    v_tile_store(0, out, 4 * out_row);
    v_tile_store(1, out + SIDE, 4 * out_row);
    if (both) {
        v_tile_store(2, out + SIDE * out_row, 4 * out_row);
        v_tile_store(3, out + SIDE * out_row + SIDE, 4 * out_row);
    }
    v_tiles_fence();
}

/* ---- operands ---- */

static void find_keys(struct squares *s)
{
    const struct attn_query_tile_f32 *tile = s->tile;
    for (size_t p = 0; p < tile->n_keys; p++) {
        const struct attn_keys *keys = &tile->keys[p];
        struct seen_run *run = &s->runs[p];
        *run = (struct seen_run){ keys, keys_seen(keys, 0, tile->queries), s->n };
        s->changed = s->changed || keys->band || keys->scaled || keys->own;
        for (size_t j = run->span.from; j < run->span.to; j++, s->n++) {
            s->k[s->n] = keys->k + (ptrdiff_t)j * keys->k_row;
            s->v[s->n] = keys->v + (ptrdiff_t)j * keys->v_row;
            s->factors[s->n] = keys->scaled ? keys->v_factor : 1.0f;
        }
    }
    s->steps = (s->n + BLOCK - 1) / BLOCK;
    for (size_t j = s->n; j < s->steps * BLOCK; j++)
        s->factors[j] = 1.0f;
    s->k_steps = (tile->dim + BLOCK - 1) / BLOCK;
}

/* Stores keys as panels of 32, in tile->scores. */
static void place_keys(const struct squares *s)
{
    float words[SQUARE];
    float *panel = s->tile->scores;
    for (size_t j = 0; j < s->steps * BLOCK; j += SIDE) {
        float *to = panel + j / BLOCK * s->k_steps * SIDE * NR + j % BLOCK;
        const size_t some = j >= s->n ? 0 : s->n - j < SIDE ? s->n - j : SIDE;
        for (size_t d = 0; d < s->k_steps * BLOCK; d += BLOCK, to += SIDE * NR) {
            const size_t left = s->tile->dim - d;
            if (some < SIDE)
                memset(words, 0, sizeof words);
            for (size_t i = 0; i < some; i++)
                pair_row(words + i * SIDE, s->k[j + i] + d, left < BLOCK ? left : BLOCK);
            transpose_square(to, NR, words, SIDE);
        }
        prefetch_list(s->tile->prefetch);
    }
}

/* Stores NR columns of values, or fewer, as words of two keys. */
static void place_values(const struct squares *s, float *word, size_t column,
                         size_t width)
{
    const size_t n0 = width < VF ? width : VF, n1 = width - n0;
    const v_mask low = v_lanes(v_bits(0, (int64_t)n0)),
                 high = v_lanes(v_bits(0, (int64_t)n1));
    for (size_t j = 0; j < s->steps * BLOCK; j += 2, word += NR) {
        v_f32 x0 = v_set(0.0f), x1 = x0, y0 = x0, y1 = x0;
        if (j < s->n) {
            x0 = v_load_lanes(s->v[j] + column, low);
            if (n1 > 0)
                x1 = v_load_lanes(s->v[j] + column + VF, high);
        }
        if (j + 1 < s->n) {
            y0 = v_load_lanes(s->v[j + 1] + column, low);
            if (n1 > 0)
                y1 = v_load_lanes(s->v[j + 1] + column + VF, high);
        }
        v_store(word, (v_f32)v_pair_bf16(x0, y0));
        v_store(word + VF, (v_f32)v_pair_bf16(x1, y1));
    }
}

/* ---- scores and terms ---- */

/* Applies what segments state beyond products (bias, band, own score) to the scores of
 * query l. */
static void change_scores(const struct squares *s, float *scores, ptrdiff_t l)
{
    for (size_t p = 0; p < s->tile->n_keys; p++) {
        const struct seen_run *run = &s->runs[p];
        const struct attn_keys *keys = run->keys;
        const ptrdiff_t n = (ptrdiff_t)(run->span.to - run->span.from);
        const ptrdiff_t from = (ptrdiff_t)run->span.from, own = l + keys->own_at - from;
        float *x = scores + run->column;
        for (ptrdiff_t j = 0; keys->scaled && j < n; j++)
            x[j] = x[j] * keys->k_factor + keys->bias;
        if (keys->own && own >= 0 && own < n)
            x[own] = keys->own_score;
        for (ptrdiff_t j = 0; keys->band && j < n && j + from < l + keys->first; j++)
            x[j] = -INFINITY;
        ptrdiff_t end = l + keys->last + 1 - from;
        for (end = end < 0 ? 0 : end; keys->band && end < n; end++)
            x[end] = -INFINITY;
    }
}

/* max[r]: the maximum of the scores of query l + r, r < 16. */
static void find_maxima(struct squares *s, float *scores, size_t l, size_t queries,
                        float *max)
{
    v_f32 maxima[VF];
    for (size_t r = 0; r < VF; r++, scores += SCORE_ROW) {
        maxima[r] = v_set(-INFINITY);
        if (r >= queries)
            continue;
        for (size_t j = s->n; j < s->steps * BLOCK; j++)
            scores[j] = -INFINITY;
        if (s->changed)
            change_scores(s, scores, (ptrdiff_t)(s->first + l + r));
        v_f32 x = maxima[r], y = x;
        for (size_t j = 0; j < s->steps * BLOCK; j += BLOCK) {
            x = v_max(x, v_load(scores + j));
            y = v_max(y, v_load(scores + j + VF));
        }
        maxima[r] = v_max(x, y);
    }
    v_store(max, max_lanes_of_rows(maxima));
}

/* The scores of up to 16 queries from l on become words of terms, and their sums are
 * added. */
static void make_square_terms(struct squares *s, const float *scores, size_t l,
                              size_t queries)
{
    const bool changed = s->changed;
    const float min = s->tile->min;
    v_f32 sums[VF];
    float *square = s->terms + l / SIDE * s->steps * SQUARE;
    for (size_t r = 0; r < VF; r++, scores += SCORE_ROW) {
        sums[r] = v_set(0.0f);
        if (r >= queries) {
            for (size_t i = 0; i < s->steps; i++)
                v_store(square + i * SQUARE + r * SIDE, sums[r]);
            continue;
        }
        const v_f32 shift = v_set(s->lanes.shift[l + r]);
        v_f32 sum = sums[r], other = sum;
        for (size_t i = 0; i < s->steps; i++) {
            const float *x = scores + i * BLOCK;
            v_f32 e = rough_term((v_load(x) + shift) * LOG2E, min);
            v_f32 f = rough_term((v_load(x + VF) + shift) * LOG2E, min);
            sum += e;
            other += f;
            if (changed) {
                e *= v_load(s->factors + i * BLOCK);
                f *= v_load(s->factors + i * BLOCK + VF);
            }
            v_store(square + i * SQUARE + r * SIDE, (v_f32)v_join_bf16(e, f));
        }
        sums[r] = sum + other;
    }
    float *total = s->lanes.sum + l;
    v_store(total, v_load(total) + add_lanes_of_rows(sums));
}

/* Computes the terms of queries l … l + 31. */
static void run_scores(struct squares *s, size_t l)
{
    const size_t left = s->tile->queries - l, row = s->k_steps * SQUARE;
    const float *q = s->tile->q + l / SIDE * row, *k = s->tile->scores;
    float max[ROW];
    for (size_t i = 0; i < s->steps; i++, k += s->k_steps * SIDE * NR)
        if (left > SIDE)
            multiply_squares(s->scores + i * BLOCK, SCORE_ROW, q, row, k, s->k_steps,
                             true);
        else
            multiply_squares(s->scores + i * BLOCK, SCORE_ROW, q, row, k, s->k_steps,
                             false);
    for (size_t i = 0; i < BLOCK && i < left; i += SIDE) {
        float *scores = s->scores + i * SCORE_ROW;
        const size_t some = left - i < SIDE ? left - i : SIDE;
        find_maxima(s, scores, l + i, some, max + l + i);
        move_maximum(&s->lanes, max, l + i);
        make_square_terms(s, scores, l + i, some);
    }
}

/* ---- sums of values ---- */

/* Stores the products of up to 32 queries from l on and their values, which are rows of
 * `room`, to their place. */
static void put_values(const struct squares *s, size_t l, size_t column, size_t width)
{
    const struct attn_query_tile_f32 *tile = s->tile;
    const size_t left = tile->queries - l, n = left < BLOCK ? left : BLOCK;
    for (size_t r = 0; r < n; r++)
        for (size_t v = 0; v < width; v += VF) {
            const size_t some = width - v < VF ? width - v : VF;
            const v_mask lanes = v_lanes(v_bits(0, (int64_t)some));
            const float factor = s->lanes.factor[l + r];
            v_f32 x = v_load(s->room + r * NR + v);
            float *to = tile->sums + (l + r) * tile->v_dim + column + v;
            if (tile->y != NULL) {
                to = tile->y + (ptrdiff_t)(l + r) * tile->y_row + column + v;
                x *= factor;
            } else {
                x += v_load_lanes(to, lanes) * factor;
            }
            v_store_lanes(to, lanes, x);
        }
}

/* Words of values from `column` on; all of them are kept where they fit. */
static float *values_at(struct squares *s, size_t column)
{
    return s->values[s->tile->v_dim <= MAX_DIM ? column / NR : 0];
}

static attn_status poll_values(const struct squares *s, size_t width)
{
    return attn_poll_work((int64_t)(width * s->n * (4 + s->tile->queries / 50)));
}

static void place_all_values(struct squares *s)
{
    for (size_t column = 0; column < s->tile->v_dim; column += NR) {
        const size_t left = s->tile->v_dim - column, width = left < NR ? left : NR;
        if (poll_values(s, width) != ATTNRUN_OK)
            return;
        place_values(s, values_at(s, column), column, width);
    }
}

static void add_all_values(struct squares *s)
{
    const size_t queries = s->tile->queries, row = s->steps * SQUARE;
    for (size_t column = 0; column < s->tile->v_dim; column += NR) {
        const size_t left = s->tile->v_dim - column, width = left < NR ? left : NR;
        float *values = values_at(s, column);
        if (poll_values(s, width) != ATTNRUN_OK)
            return;
        if (s->tile->v_dim > MAX_DIM)
            place_values(s, values, column, width);
        for (size_t l = 0; l < queries; l += BLOCK) {
            const float *terms = s->terms + l / SIDE * row;
            if (queries - l > SIDE)
                multiply_squares(s->room, NR, terms, row, values, s->steps, true);
            else
                multiply_squares(s->room, NR, terms, row, values, s->steps, false);
            put_values(s, l, column, width);
        }
    }
}

/* Computes queries first … first + n - 1 of a query tile whose keys are placed. */
static void run_queries(struct squares *s, const struct attn_query_tile_f32 *tile,
                        size_t first, size_t n)
{
    struct attn_query_tile_f32 part = *tile;
    part.queries = n;
    part.q += first / SIDE * s->k_steps * SQUARE;
    if (tile->y != NULL) {
        part.y += (ptrdiff_t)first * tile->y_row;
    } else {
        part.state += first;
        part.sums += first * tile->v_dim;
    }
    s->tile = &part;
    s->first = first;
    begin_lanes(&part, &s->lanes);
    if (attn_poll_work((int64_t)(s->n * tile->dim * (4 + n / 50))) == ATTNRUN_OK) {
        for (size_t l = 0; l < n; l += BLOCK)
            run_scores(s, l);
        end_lanes(&part, &s->lanes);
        add_all_values(s);
    }
    s->tile = tile;
}

/* Computes a query tile, except where dim > MAX_DIM. */
static void run_squares(const struct attn_query_tile_f32 *tile)
{
    struct squares s;
    size_t keys = 0;
    for (size_t p = 0; p < tile->n_keys; p++)
        keys += (size_t)tile->keys[p].n;
    if (keys == 0 || tile->queries == 0)
        return;
    s.tile = tile;
    s.n = 0;
    s.changed = false;
    find_keys(&s);
    v_tiles_begin();
    place_keys(&s);
    if (tile->v_dim <= MAX_DIM)
        place_all_values(&s);
    for (size_t first = 0; first < tile->queries; first += ATTN_TILE_QUERIES) {
        const size_t left = tile->queries - first;
        run_queries(&s, tile, first, left < ATTN_TILE_QUERIES ? left : ATTN_TILE_QUERIES);
    }
    v_tiles_end();
}

#endif
