/* feature_attention.c - computes sums of features times values, and what queries read of
 * them. feature_attention.h describes the operands and the cost. */
#include <math.h>

#include "feature_attention.h"
#include "../../tile.h"

enum { CHUNK = ATTN_FEATURE_CHUNK, PANEL = ATTN_FEATURE_PANEL };

/* ---- sums ---- */

static struct attn_feature_sum sum_at(const struct attn_feature_plan *p, float *memory)
{
    float *z = memory + round_up(p->features * p->sizes.v_dim, 16);
    return (struct attn_feature_sum){ .s = memory,
                                      .z = z,
                                      .more = z + round_up(p->features, 16) };
}

static float *shared_sum(const struct attn_feature_call *c, int64_t head, int64_t slice)
{
    const struct attn_feature_plan *p = c->plan;
    float *all = op_slot_floats(c->work->shared, p->shared_offset);
    return all + (head * p->slices + slice) * p->sum_floats;
}

static struct attn_feature_sum empty_sum(const struct attn_feature_call *c, float *memory)
{
    struct attn_feature_sum sum = sum_at(c->plan, memory);
    memset(memory, 0, (size_t)c->plan->sum_floats * sizeof *memory);
    if (c->plan->callbacks->begin != NULL)
        c->plan->callbacks->begin(c, &sum);
    return sum;
}

/* Copies values of one column, so that they are summed in the order of others, whatever
 * their stride. */
static void take_column(const struct attn_feature_call *c, struct attn_gemm_f32 *g)
{
    if (g->b_row != 1 || c->plan->sizes.dims_first)
        return;
    c->kernels->gemm_pack_f32(c->column, g->b, 1, 1, g->k, g->n);
    g->b = c->column;
    g->packed = 1;
}

/* Values of n keys. */
struct values {
    const float *v;
    int64_t row, n;
};

static struct values values_of(const struct attn_feature_call *c,
                               struct attn_feature_tile t)
{
    struct values values = { .n = t.n };
    values.v = attn_tile_values(c, t, &values.row);
    return values;
}

/* Adds features' V to S for the features of this tile. */
static void add_values(const struct attn_feature_call *c, struct values v,
                       const struct attn_feature_sum *sum)
{
    const struct attn_feature_plan *p = c->plan;
    struct attn_gemm_f32 g = { .a = c->features,
                               .a_row = p->transposed ? ATTN_TRANSPOSED_ROW : 1,
                               .a_col = p->transposed ? 0 : p->features,
                               .b = v.v,
                               .b_row = v.row,
                               .b_col = p->sizes.dims_first ? p->sizes.kv_len : 1,
                               .c = sum->s,
                               .c_row = p->sizes.v_dim,
                               .m = (size_t)p->features,
                               .n = (size_t)p->sizes.v_dim,
                               .k = (size_t)v.n,
                               .accumulate = 1,
                               .scratch = c->gemm };
    take_column(c, &g);
    c->kernels->gemm_f32(&g);
}

/* Key heads from `head` (sample * kv_heads + head) on, with the sums of each. Keys are added to
 * `parts`: to a sum of the slice under way, which close_parts() adds to `sums`, or to `sums`. */
struct heads {
    int64_t head, n;
    struct attn_feature_sum sums[ATTN_FEATURE_TOGETHER], parts[ATTN_FEATURE_TOGETHER];
};

static struct attn_feature_tile tile_of(const struct attn_feature_call *c, int64_t head,
                                        int64_t first, int64_t n)
{
    const int64_t heads = c->plan->sizes.kv_heads;
    return (struct attn_feature_tile){ head / heads, head % heads, first, n };
}

/* Adds the keys of a tile to a sum, whose features stay in c->features; or a chunk of them. */
static void add_tile(const struct attn_feature_call *c, struct values v,
                     const struct attn_feature_sum *sum, float kept)
{
    const size_t n = (size_t)c->plan->features;
    add_values(c, v, sum);
    c->kernels->add_f32(sum->z, sum->z, 1, c->tile_z, 1, n);
    sum->more[0] += kept;
}

static void write_features(const struct attn_feature_call *c, struct attn_feature_tile t,
                           struct attn_feature_sum sum)
{
    sum.tile_z = c->tile_z;
    memset(c->tile_z, 0, (size_t)c->plan->features * sizeof *c->tile_z);
    c->plan->callbacks->keys(c, t, c->features, &sum);
}

/* Adds keys from … to - 1 to the parts, tile by tile, and head by head within a tile, because the
 * rows of heads lie side by side. */
static attn_status add_keys(const struct attn_feature_call *c, const struct heads *h,
                            int64_t from, int64_t to, int64_t tile)
{
    for (int64_t at = from; at < to; at += tile) {
        for (int64_t i = 0; i < h->n; i++) {
            const struct attn_feature_tile t =
                tile_of(c, h->head + i, at, min64(tile, to - at));
            if (OP_CANCELLED(c->work))
                return ATTNRUN_E_CANCELLED;
            write_features(c, t, h->parts[i]);
            add_tile(c, values_of(c, t), &h->parts[i], attn_tile_count(c, t));
        }
    }
    return ATTNRUN_OK;
}

static void add_sum(const struct attn_feature_call *c,
                    const struct attn_feature_sum *into,
                    const struct attn_feature_sum *from)
{
    const struct attn_feature_plan *p = c->plan;
    const size_t n = (size_t)(p->features * p->sizes.v_dim), f = (size_t)p->features;
    if (p->callbacks->combine != NULL)
        p->callbacks->combine(c, into, from);
    c->kernels->add_f32(into->s, into->s, 1, from->s, 1, n);
    c->kernels->add_f32(into->z, into->z, 1, from->z, 1, f);
    into->more[0] += from->more[0];
}

/* Causal: loads the state before the first key. */
static void take_past(const struct attn_feature_call *c, int64_t head,
                      const struct attn_feature_sum *sum)
{
    const struct attn_feature_plan *p = c->plan;
    const int64_t n = p->features * p->sizes.v_dim;
    for (int64_t i = 0; i < p->features; i++)
        sum->z[i] = p->z_begin;
    if (c->o->past_kv == NULL)
        return;
    memcpy(sum->s, c->o->past_kv + head * n, (size_t)n * sizeof(float));
    memcpy(sum->z, c->o->past_z + head * p->features,
           (size_t)p->features * sizeof(float));
    sum->more[0] = 1;
}

static void store_present(const struct attn_feature_call *c, int64_t head,
                          const struct attn_feature_sum *sum)
{
    const struct attn_feature_plan *p = c->plan;
    const int64_t n = p->features * p->sizes.v_dim;
    if (c->o->present_kv != NULL)
        memcpy(c->o->present_kv + head * n, sum->s, (size_t)n * sizeof(float));
    if (c->o->present_z != NULL)
        memcpy(c->o->present_z + head * p->features, sum->z,
               (size_t)p->features * sizeof(float));
}

/* ---- answers ---- */

/* Answers: that of query i begins at y + i * row, and its numbers are `col` apart. */
struct answers {
    float *y;
    int64_t row, col, n;
};

/* Makes scale / g(dots_i) of dots_i; false where all are 1. Answers whose g has no inverse
 * among floats are divided by it here. */
static bool make_factors(const struct attn_feature_call *c, struct answers a)
{
    const struct attn_feature_plan *p = c->plan;
    const float epsilon = p->epsilon;
    float *by = c->dots;
    for (int64_t i = 0; i < a.n; i++) {
        float r = by[i];
        if (p->denominator == ATTN_DENOMINATOR_ADD)
            r += epsilon;
        else if (p->denominator == ATTN_DENOMINATOR_CLAMP)
            r = r < epsilon ? epsilon : r;
        else if (p->denominator == ATTN_DENOMINATOR_GUARD)
            r += r <= epsilon && r >= -epsilon ? 2 * epsilon : 0.0f;
        else
            r = 1.0f;
        if (fabsf(r) < 0x1p-100f) {
            for (int64_t d = 0; d < p->sizes.v_dim; d++)
                a.y[i * a.row + d * a.col] /= r;
            r = 1.0f;
        }
        by[i] = p->scale / r;
    }
    return p->denominator != ATTN_DENOMINATOR_NONE || p->scale != 1.0f;
}

/* Multiplies y_i by scale / g(dots_i) for the rows of a tile of queries; the first
 * `empty` rows see no key. */
static void divide(const struct attn_feature_call *c, float *y, int64_t row, int64_t n,
                   int64_t empty)
{
    const struct attn_feature_plan *p = c->plan;
    const bool scales = make_factors(c, (struct answers){ y, row, 1, n });
    for (int64_t i = 0; i < min64(n, empty); i++)
        memset(y + i * row, 0, (size_t)p->sizes.v_dim * sizeof *y);
    empty = min64(n, empty);
    if (scales)
        c->kernels->multiply_rows_f32(y + empty * row, row, (size_t)(n - empty),
                                      (size_t)p->sizes.v_dim, c->dots + empty);
}

/* The place of S in panels; each head has one. */
static float *panels_of(const struct attn_feature_call *c, int64_t place)
{
    return c->packed + place * c->plan->panel_floats;
}

static void pack_sum(const struct attn_feature_call *c,
                     const struct attn_feature_sum *sum, int64_t place)
{
    const struct attn_feature_plan *p = c->plan;
    c->kernels->gemm_pack_f32(panels_of(c, place), sum->s, p->sizes.v_dim, 1,
                              (size_t)p->features, (size_t)p->sizes.v_dim);
}

/* Computes y = features of queries times S in panels. */
static void read_sum(const struct attn_feature_call *c, float *y, int64_t n,
                     int64_t place)
{
    const struct attn_feature_plan *p = c->plan;
    struct attn_gemm_f32 g = { .a = c->queries,
                               .a_row = p->query_row,
                               .b = panels_of(c, place),
                               .packed = 1,
                               .c = y,
                               .c_row = p->sizes.y.row,
                               .m = (size_t)n,
                               .n = (size_t)p->sizes.v_dim,
                               .k = (size_t)p->features,
                               .scratch = c->gemm };
    c->kernels->gemm_f32(&g);
}

static float *rows_of_y(const struct attn_feature_call *c, struct attn_feature_tile t)
{
    const struct attn_heads *y = &c->plan->sizes.y;
    return c->o->y + t.batch * y->batch + t.head * y->head + t.first * y->row;
}

/* Whether a mask or their position hides all keys of a sum from queries, which give 0 then; without
 * any key they give 0 / g(0). */
static bool hides_all(const struct attn_feature_plan *p,
                      const struct attn_feature_sum *sum)
{
    return sum->more[0] <= 0 && (p->masked || p->sizes.causal);
}

/* Computes a tile of queries that see all keys of `sum`, whose S is in panels. */
static void answer_tile(const struct attn_feature_call *c, struct attn_feature_tile t,
                        const struct attn_feature_sum *sum, int64_t place)
{
    const struct attn_feature_plan *p = c->plan;
    float *y = rows_of_y(c, t);
    p->callbacks->queries(c, t, c->queries, sum->z, c->dots);
    read_sum(c, y, t.n, place);
    divide(c, y, p->sizes.y.row, t.n, hides_all(p, sum) ? t.n : 0);
}

/* The same where tokens are last. */
static void answer_columns(const struct attn_feature_call *c, struct attn_feature_tile t,
                           const struct attn_feature_sum *sum)
{
    const struct attn_feature_plan *p = c->plan;
    float *y = rows_of_y(c, t);
    p->callbacks->queries(c, t, c->queries, sum->z, c->dots);
    const struct attn_gemm_f32 g = { .a = sum->s,
                                     .a_row = 1,
                                     .a_col = p->sizes.v_dim,
                                     .b = c->queries,
                                     .b_row = ATTN_TRANSPOSED_ROW,
                                     .b_col = 1,
                                     .c = y,
                                     .c_row = p->sizes.q_len,
                                     .m = (size_t)p->sizes.v_dim,
                                     .n = (size_t)t.n,
                                     .k = (size_t)p->features,
                                     .scratch = c->gemm };
    c->kernels->gemm_f32(&g);
    if (make_factors(c, (struct answers){ y, 1, p->sizes.q_len, t.n }))
        attn_feature_scale_columns(c, y, p->sizes.q_len, p->sizes.v_dim, t.n, c->dots);
}

/* Computes queries from … to - 1 of the query heads of `h`, chunk by chunk. */
static attn_status answer(const struct attn_feature_call *c, const struct heads *h,
                          int64_t from, int64_t to)
{
    const struct attn_feature_plan *p = c->plan;
    for (int64_t i = 0; i < h->n && !p->sizes.dims_first; i++)
        pack_sum(c, &h->sums[i], i);
    for (int64_t at = from; at < to; at += p->chunk)
        for (int64_t i = 0; i < h->n * p->sizes.group; i++) {
            struct attn_feature_tile t =
                tile_of(c, h->head + i / p->sizes.group, at, min64(p->chunk, to - at));
            if (OP_CANCELLED(c->work))
                return ATTNRUN_E_CANCELLED;
            t.head = t.head * p->sizes.group + i % p->sizes.group;
            const struct attn_feature_sum *sum = &h->sums[i / p->sizes.group];
            if (p->sizes.dims_first)
                answer_columns(c, t, sum);
            else
                answer_tile(c, t, sum, i / p->sizes.group);
        }
    return ATTNRUN_OK;
}

/* Adds the keys of a chunk up to each row, for rows from … on: y += triangle(f(q) f(k)')
 * V. */
static void answer_inside(const struct attn_feature_call *c, struct values v, float *y,
                          int64_t from, int64_t rows)
{
    const struct attn_feature_plan *p = c->plan;
    const int64_t n = from + rows;
    struct attn_gemm_f32 g = { .a = c->queries + from * p->query_row,
                               .a_row = p->query_row,
                               .b = c->features,
                               .b_row = p->transposed ? ATTN_TRANSPOSED_ROW : 1,
                               .b_col = p->transposed ? 1 : p->features,
                               .c = c->scores,
                               .c_row = CHUNK,
                               .m = (size_t)rows,
                               .n = (size_t)n,
                               .k = (size_t)p->features,
                               .scratch = c->gemm };
    c->kernels->gemm_f32(&g);
    c->kernels->causal_rows_f32(c->scores, CHUNK, (size_t)rows, (size_t)n, from,
                                c->dots + from);
    g = (struct attn_gemm_f32){ .a = c->scores,
                                .a_row = CHUNK,
                                .b = v.v,
                                .b_row = v.row,
                                .b_col = 1,
                                .c = y + from * p->sizes.y.row,
                                .c_row = p->sizes.y.row,
                                .m = (size_t)rows,
                                .n = (size_t)p->sizes.v_dim,
                                .k = (size_t)n,
                                .accumulate = 1,
                                .scratch = c->gemm };
    take_column(c, &g);
    c->kernels->gemm_f32(&g);
}

/* Computes a chunk of queries from the keys before it and those in it, `rows` of its rows together.
 * False where values may not be finite: a product gives 0 times later ones to earlier rows. */
static bool answer_chunk(const struct attn_feature_call *c, struct attn_feature_tile t,
                         struct values v, const float *z, int64_t rows)
{
    const int64_t row = c->plan->sizes.y.row;
    float *y = rows_of_y(c, t);
    double sum = 0;
    c->plan->callbacks->queries(c, t, c->queries, z, c->dots);
    read_sum(c, y, t.n, 0);
    for (int64_t from = 0; from < t.n; from += rows) {
        answer_inside(c, v, y, from, min64(rows, t.n - from));
        sum += c->kernels->sum_f32(y + from * row, (size_t)c->plan->sizes.v_dim);
    }
    return isfinite(sum);
}

/* The sum of the keys before a chunk: of those before the slice, and of its own so far. */
static struct attn_feature_sum sum_before(const struct attn_feature_call *c,
                                          const struct attn_feature_sum *sum,
                                          const struct attn_feature_sum *part)
{
    const struct attn_feature_plan *p = c->plan;
    if (part->s == sum->s)
        return *sum;
    const struct attn_feature_sum all =
        sum_at(p, c->sum + 2 * p->together * p->sum_floats);
    const size_t n = (size_t)(p->features * p->sizes.v_dim), f = (size_t)p->features;
    c->kernels->add_f32(all.s, sum->s, 1, part->s, 1, n);
    c->kernels->add_f32(all.z, sum->z, 1, part->z, 1, f);
    all.more[0] = sum->more[0] + part->more[0];
    return all;
}

/* Computes a chunk of keys and the queries in step with them, from query `query` on; then
 * adds the keys to the part. */
static void run_chunk(const struct attn_feature_call *c, struct attn_feature_tile keys,
                      int64_t query, const struct attn_feature_sum *before,
                      const struct attn_feature_sum *part)
{
    const struct attn_feature_plan *p = c->plan;
    const struct attn_feature_sum all = sum_before(c, before, part), *sum = &all;
    write_features(c, keys, all);
    const int64_t empty = sum->more[0] > 0 ? 0 : attn_tile_hidden(c, keys);
    const struct values v = values_of(c, keys);
    if (c->o->y != NULL)
        pack_sum(c, sum, 0);
    for (int64_t h = 0; c->o->y != NULL && h < p->sizes.group; h++) {
        const struct attn_feature_tile t = { keys.batch, keys.head * p->sizes.group + h,
                                             query, keys.n };
        for (int64_t rows = PANEL; !answer_chunk(c, t, v, sum->z, rows) && rows > 1;)
            rows = 1;
        divide(c, rows_of_y(c, t), p->sizes.y.row, t.n, empty);
    }
    add_tile(c, v, part, attn_tile_count(c, keys));
}

/* ---- tasks ---- */

/* Opens empty sums in scratch, and parts in the sums. */
static void open_sums(const struct attn_feature_call *c, struct heads *h)
{
    for (int64_t i = 0; i < h->n; i++)
        h->parts[i] = h->sums[i] = empty_sum(c, c->sum + i * c->plan->sum_floats);
}

static void open_parts(const struct attn_feature_call *c, struct heads *h)
{
    const struct attn_feature_plan *p = c->plan;
    for (int64_t i = 0; i < h->n; i++)
        h->parts[i] = empty_sum(c, c->sum + (p->together + i) * p->sum_floats);
}

static void close_parts(const struct attn_feature_call *c, const struct heads *h)
{
    for (int64_t i = 0; i < h->n; i++)
        if (h->parts[i].s != h->sums[i].s)
            add_sum(c, &h->sums[i], &h->parts[i]);
}

static void shared_sums(const struct attn_feature_call *c, struct heads *h, int64_t slice)
{
    for (int64_t i = 0; i < h->n; i++)
        h->sums[i] = sum_at(c->plan, shared_sum(c, h->head + i, slice));
}

static int64_t slice_end(const struct attn_feature_plan *p, int64_t slice)
{
    return min64((slice + 1) * p->slice, p->sizes.kv_len);
}

/* The first key of from … to that has a query, causal: keys come in chunks from there on. */
static int64_t first_in_step(const struct attn_feature_plan *p, int64_t from, int64_t to)
{
    return p->sizes.causal ? min64(max64(from, p->sizes.offset), to) : to;
}

/* Computes the keys of a slice and their queries; the sums hold the keys before them. */
static attn_status run_causal(const struct attn_feature_call *c, const struct heads *h,
                              int64_t slice)
{
    const struct attn_feature_plan *p = c->plan;
    const struct attn_sizes *s = &p->sizes;
    const int64_t from = slice * p->slice, to = slice_end(p, slice);
    const int64_t first = first_in_step(p, from, to);
    if (from == 0 && s->offset < 0 && c->o->y != NULL) /* queries before all keys */
        TRY(answer(c, h, 0, min64(-s->offset, s->q_len)));
    TRY(add_keys(c, h, from, first, p->tile));
    for (int64_t at = first; at < to; at += p->chunk)
        for (int64_t i = 0; i < h->n; i++) {
            if (OP_CANCELLED(c->work))
                return ATTNRUN_E_CANCELLED;
            run_chunk(c, tile_of(c, h->head + i, at, min64(p->chunk, to - at)),
                      at - s->offset, &h->sums[i], &h->parts[i]);
        }
    close_parts(c, h);
    for (int64_t i = 0; to == s->kv_len && i < h->n; i++)
        store_present(c, h->head + i, &h->sums[i]);
    return ATTNRUN_OK;
}

/* All keys and queries of heads; the sums are taken in the order of slices that are tasks. */
static attn_status run_whole(const struct attn_feature_call *c, struct heads *h)
{
    const struct attn_feature_plan *p = c->plan;
    open_sums(c, h);
    for (int64_t i = 0; p->sizes.causal && i < h->n; i++)
        take_past(c, h->head + i, &h->sums[i]);
    for (int64_t slice = 0; slice < p->slices; slice++) {
        if (p->slices > 1 && (p->sizes.causal || slice > 0))
            open_parts(c, h);
        if (p->sizes.causal) {
            TRY(run_causal(c, h, slice));
            continue;
        }
        TRY(add_keys(c, h, slice * p->slice, slice_end(p, slice), p->tile));
        close_parts(c, h);
    }
    if (p->sizes.causal)
        return ATTNRUN_OK;
    for (int64_t i = 0; i < h->n; i++) {
        if (p->callbacks->end != NULL)
            p->callbacks->end(c, &h->sums[i]);
        store_present(c, h->head + i, &h->sums[i]);
    }
    return c->o->y == NULL ? ATTNRUN_OK : answer(c, h, 0, p->sizes.q_len);
}

/* Phase 0: a slice of the keys. The last one of causal attention has no query behind it. */
static attn_status run_slice(const struct attn_feature_call *c, struct heads *h,
                             int64_t slice)
{
    const struct attn_feature_plan *p = c->plan;
    const int64_t from = slice * p->slice, to = slice_end(p, slice);
    const int64_t first = first_in_step(p, from, to);
    for (int64_t i = 0; i < h->n; i++)
        h->parts[i] = empty_sum(c, shared_sum(c, h->head + i, slice));
    if (p->sizes.causal && slice + 1 == p->slices)
        return ATTNRUN_OK;
    TRY(add_keys(c, h, from, first, p->tile));
    return add_keys(c, h, first, to, p->chunk);
}

/* Phase 1: adds the slices in order. Causal: each slice gets the sum of those before
 * it. */
static void run_combine(const struct attn_feature_call *c, int64_t head)
{
    const struct attn_feature_plan *p = c->plan;
    struct attn_feature_sum sum = sum_at(p, shared_sum(c, head, 0));
    if (!p->sizes.causal) {
        for (int64_t i = 1; i < p->slices; i++) {
            struct attn_feature_sum from = sum_at(p, shared_sum(c, head, i));
            add_sum(c, &sum, &from);
        }
        if (p->callbacks->end != NULL)
            p->callbacks->end(c, &sum);
        store_present(c, head, &sum);
        return;
    }
    struct attn_feature_sum before = empty_sum(c, c->sum);
    take_past(c, head, &before);
    for (int64_t i = 0; i < p->slices; i++) {
        float *slice = shared_sum(c, head, i);
        const struct attn_feature_sum at = sum_at(p, slice);
        add_sum(c, &at, &before); /* a + b = b + a: all up to the end of the slice */
        for (int64_t j = 0; j < p->sum_floats; j++) {
            const float all = slice[j];
            slice[j] = c->sum[j];
            c->sum[j] = all;
        }
    }
}

/* Phase 2: a slice of causal attention, or a block of queries. */
static attn_status run_answers(const struct attn_feature_call *c, struct heads *h,
                               int64_t part)
{
    const struct attn_feature_plan *p = c->plan;
    const struct attn_sizes *s = &p->sizes;
    shared_sums(c, h, s->causal ? part : 0);
    if (s->causal) {
        open_parts(c, h);
        return run_causal(c, h, part);
    }
    return c->o->y == NULL
               ? ATTNRUN_OK
               : answer(c, h, part * p->block, min64((part + 1) * p->block, s->q_len));
}

attn_status attn_feature_run(const struct attn_feature_plan *plan,
                             const struct attn_kernels *kernels,
                             const struct attn_feature_operands *o, const void *rule_arg,
                             const attnrun_work *work)
{
    const struct attn_feature_call c =
        attn_feature_open(plan, kernels, o, rule_arg, work);
    const int phase = work->phase - plan->first_phase;
    const int64_t heads = plan->sizes.batch * plan->sizes.kv_heads;
    struct heads h;
    for (int64_t task = work->begin; task < work->end; task += h.n) {
        int64_t part = task;
        h.head = op_take(&part, heads); /* heads side by side are computed in turns */
        h.n =
            attn_heads_interleaved(task, work->end, plan->sizes.kv_heads, plan->together);
        if (plan->whole)
            TRY(run_whole(&c, &h));
        else if (phase == 0)
            TRY(run_slice(&c, &h, part));
        else if (phase == 2)
            TRY(run_answers(&c, &h, part));
        for (int64_t i = 0; !plan->whole && phase == 1 && i < h.n; i++)
            run_combine(&c, h.head + i);
    }
    return ATTNRUN_OK;
}
