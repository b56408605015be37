/* feature_attention.c - sums of features times values, and what queries read of them: see
 * feature_attention.h. */
#include "feature_attention.h"

enum {
    CHUNK = 64,    /* causal: tokens of a triangle */
    PANEL = 32,    /* rows of it that are computed together */
    QUERIES = 128, /* at one time, where all keys are seen */
    BLOCK = 1024,  /* queries of a task */
    PARTS = 32,    /* wanted: (key heads) x slices */
    LEAST_SLICE = 1024,
    MOST_SHARED = 1 << 18, /* floats of all slices beyond one for each head */
    MANY_HEADS = 32
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t round16(int64_t n) { return (n + 15) & ~INT64_C(15); }
static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

/* ---- plan ---- */

static int64_t gemm_floats(const struct attn_feature_plan *p)
{
    const size_t f = (size_t)p->features, v = (size_t)p->sizes.v_dim;
    const size_t n = (size_t)p->chunk, tile = (size_t)p->tile;
    size_t a = attn_gemm_scratch(f, v, tile), b = attn_gemm_scratch(n, v, f);
    size_t c = attn_gemm_scratch(PANEL, n, f), d = attn_gemm_scratch(PANEL, v, n);
    a = a > b ? a : b;
    c = c > d ? c : d;
    return round16(most((int64_t)(a > c ? a : c), p->rule_gemm));
}

static void cut(struct attn_feature_plan *p)
{
    const struct attn_sizes *s = &p->sizes;
    const int64_t heads = s->batch * s->kv_heads;
    p->chunk = s->causal ? CHUNK : QUERIES;
    p->slices = 1;
    p->whole = heads >= (s->causal ? PARTS / 4 : MANY_HEADS) ||
               (s->causal && s->kv_len < 2 * LEAST_SLICE);
    if (!p->whole && heads > 0)
        p->slices = most(1, least(least(ceil_div(PARTS, heads), s->kv_len / LEAST_SLICE),
                                  MOST_SHARED / (p->sum_floats * heads)));
    if (s->causal && p->slices == 1)
        p->whole = true;
    /* Slices end with whole tiles; causal, also with whole chunks, and all but the keys
     * before the first query are in step with queries. */
    const int64_t unit = most(p->tile, p->chunk);
    p->slice = most(1, ceil_div(ceil_div(s->kv_len, p->slices), unit)) * unit;
    p->slices = most(1, ceil_div(s->kv_len, p->slice));
    p->blocks = ceil_div(s->q_len, BLOCK);
}

static int64_t nanoseconds(double x)
{
    return x < 1e15 ? (int64_t)x + 100 : INT64_C(1) << 50;
}

static void state_tasks(attnrun_step *step, const struct attn_feature_plan *p)
{
    const struct attn_sizes *s = &p->sizes;
    const double sum =
        (double)p->features * (double)(s->v_dim + 1) * 0.01 + p->token_cost;
    const double triangle =
        s->causal ? 0.01 * CHUNK * (double)(p->features + s->v_dim) : 0.0;
    const double answer = sum + triangle;
    const int64_t heads = s->batch * s->kv_heads;
    const int first = p->first_phase;
    if (p->whole) {
        op_tasks(step, first, heads,
                 nanoseconds(sum * (double)s->kv_len +
                             answer * (double)s->q_len * (double)s->group));
        return;
    }
    op_tasks(step, first, heads * p->slices, nanoseconds(sum * (double)p->slice));
    op_tasks(step, first + 1, heads,
             nanoseconds(0.3 * (double)p->sum_floats * (double)p->slices));
    if (s->causal)
        op_tasks(step, first + 2, heads * p->slices,
                 nanoseconds((sum + answer * (double)s->group) * (double)p->slice));
    else
        op_tasks(step, first + 2, s->batch * s->q_heads * p->blocks,
                 nanoseconds(answer * BLOCK));
}

attn_status attn_feature_plan_make(attnrun_step *step, struct attn_feature_plan *p,
                                   int64_t rule_floats)
{
    const struct attn_sizes *s = &p->sizes;
    int64_t row, sum, count, shared, panels, features;
    p->sum_floats = 1;
    if (s->v_dim >= INT64_C(1) << 40 || p->features >= INT64_C(1) << 40 ||
        !ck_mul(round16(p->features) + 512, s->v_dim + 1024 + 2 * p->tile, &row) ||
        row > INT64_C(1) << 40 || p->more > INT64_C(1) << 40 ||
        rule_floats > INT64_C(1) << 44)
        return op_fail(step, ATTNRUN_E_LIMIT, "its %lld features are too many",
                       (long long)p->features);
    sum = round16(p->features * s->v_dim) + round16(p->features) + round16(p->more);
    p->sum_floats = sum;
    cut(p);
    if (!ck_mul(s->batch, s->kv_heads, &count) || !ck_mul(count, p->slices, &count) ||
        !ck_mul(count, p->whole ? 0 : sum * (int64_t)sizeof(float), &shared) ||
        !ck_add(step->shared_bytes, shared, &step->shared_bytes))
        return op_fail(step, ATTNRUN_E_LIMIT, "its sums are too large");
    p->shared_offset = step->shared_bytes - shared;
    p->query_row = p->features + (p->features % 256 == 0 ? 16 : 0);
    features = round16(most(ATTN_TURNED_ROW, p->chunk) * round16(p->query_row));
    p->features_floats = features;
    panels = round16(p->features * ceil_div(s->v_dim, 32) * 32);
    step->scratch_bytes =
        (2 * features + round16(p->features) + round16(p->chunk) + PANEL * CHUNK +
         16 * p->tile + panels + gemm_floats(p) + sum + round16(rule_floats)) *
        (int64_t)sizeof(float);
    state_tasks(step, p);
    return ATTNRUN_OK;
}

/* ---- sums ---- */

static void open_scratch(struct attn_feature_call *c, void *scratch)
{
    const struct attn_feature_plan *p = c->plan;
    c->features = scratch;
    c->queries = c->features + p->features_floats;
    c->dots = c->queries + p->features_floats;
    c->scores = c->dots + round16(p->chunk) + round16(p->features);
    c->column = c->scores + PANEL * CHUNK;
    c->packed = c->column + 16 * p->tile;
    c->gemm = c->packed + round16(p->features * ceil_div(p->sizes.v_dim, 32) * 32);
    c->sum = c->gemm + gemm_floats(p);
    c->rule_scratch = c->sum + p->sum_floats;
}

static struct attn_feature_sum sum_at(const struct attn_feature_plan *p, float *memory)
{
    float *z = memory + round16(p->features * p->sizes.v_dim);
    return (
        struct attn_feature_sum){ .s = memory, .z = z, .more = z + round16(p->features) };
}

static float *shared_sum(const struct attn_feature_call *c, int64_t head, int64_t slice)
{
    const struct attn_feature_plan *p = c->plan;
    float *all = (float *)(void *)((char *)c->work->shared + p->shared_offset);
    return all + (head * p->slices + slice) * p->sum_floats;
}

static struct attn_feature_sum empty_sum(const struct attn_feature_call *c, float *memory)
{
    struct attn_feature_sum sum = sum_at(c->plan, memory);
    memset(memory, 0, (size_t)c->plan->sum_floats * sizeof *memory);
    if (c->plan->rules->begin != NULL)
        c->plan->rules->begin(c, &sum);
    return sum;
}

static float count_kept(const struct attn_feature_call *c, struct attn_feature_tile t)
{
    const uint8_t *keep = attn_tile_keep(c, t);
    int64_t n = 0;
    if (keep == NULL)
        return (float)t.n;
    for (int64_t i = 0; i < t.n; i++)
        n += keep[i] != 0;
    return (float)n;
}

/* Values that are one column are summed in the order of others, whatever their stride. */
static void take_column(const struct attn_feature_call *c, struct attn_gemm_f32 *g)
{
    if (g->b_row != 1)
        return;
    c->kernels->gemm_pack_f32(c->column, g->b, 1, 1, g->k, g->n);
    g->b = c->column;
    g->packed = 1;
}

/* S += features' V for the features of this tile. */
static void add_values(const struct attn_feature_call *c, struct attn_feature_tile t,
                       const struct attn_feature_sum *sum)
{
    const struct attn_feature_plan *p = c->plan;
    const float *v = attn_tile_rows(c->o->v, &p->sizes.v, t);
    struct attn_gemm_f32 g = { .a = c->features,
                               .a_row = p->turned ? ATTN_TURNED_ROW : 1,
                               .a_col = p->turned ? 0 : p->features,
                               .b = v,
                               .b_row = p->sizes.v.row,
                               .b_col = 1,
                               .c = sum->s,
                               .c_row = p->sizes.v_dim,
                               .m = (size_t)p->features,
                               .n = (size_t)p->sizes.v_dim,
                               .k = (size_t)t.n,
                               .accumulate = 1,
                               .scratch = c->gemm };
    take_column(c, &g);
    c->kernels->gemm_f32(&g);
}

/* Keys from … to - 1 of a key head, tile by tile. */
static attn_status add_keys(const struct attn_feature_call *c, int64_t batch,
                            int64_t head, int64_t from, int64_t to,
                            const struct attn_feature_sum *sum)
{
    const struct attn_feature_plan *p = c->plan;
    struct attn_feature_tile t = { batch, head, from, 0 };
    for (; t.first < to; t.first += p->tile) {
        if (OP_CANCELLED(c->work))
            return ATTNRUN_E_CANCELLED;
        t.n = least(p->tile, to - t.first);
        p->rules->keys(c, t, c->features, sum);
        add_values(c, t, sum);
        sum->more[0] += count_kept(c, t);
    }
    return ATTNRUN_OK;
}

static void add_sum(const struct attn_feature_call *c,
                    const struct attn_feature_sum *into,
                    const struct attn_feature_sum *from)
{
    const struct attn_feature_plan *p = c->plan;
    const size_t n = (size_t)(p->features * p->sizes.v_dim), f = (size_t)p->features;
    if (p->rules->combine != NULL)
        p->rules->combine(c, into, from);
    c->kernels->add_f32(into->s, into->s, 1, from->s, 1, n);
    c->kernels->add_f32(into->z, into->z, 1, from->z, 1, f);
    into->more[0] += from->more[0];
}

/* Causal: what there is before the first key. */
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

/* y_i *= scale / g(dots_i) for the rows of a tile of queries; the first `empty` rows see
 * no key. */
static void divide(const struct attn_feature_call *c, float *y, int64_t row, int64_t n,
                   int64_t empty)
{
    const struct attn_feature_plan *p = c->plan;
    const float epsilon = p->epsilon;
    float *by = c->dots;
    for (int64_t i = 0; i < n; i++) {
        float r = by[i];
        if (p->denominator == ATTN_DENOMINATOR_ADD)
            r += epsilon;
        else if (p->denominator == ATTN_DENOMINATOR_CLAMP)
            r = r < epsilon ? epsilon : r;
        else if (p->denominator == ATTN_DENOMINATOR_GUARD)
            r += r <= epsilon && r >= -epsilon ? 2 * epsilon : 0.0f;
        else
            r = 1.0f;
        by[i] = p->scale / r;
    }
    for (int64_t i = 0; i < least(n, empty); i++)
        memset(y + i * row, 0, (size_t)p->sizes.v_dim * sizeof *y);
    empty = least(n, empty);
    if (p->denominator != ATTN_DENOMINATOR_NONE || p->scale != 1.0f)
        c->kernels->multiply_rows_f32(y + empty * row, row, (size_t)(n - empty),
                                      (size_t)p->sizes.v_dim, by + empty);
}

static void pack_sum(const struct attn_feature_call *c,
                     const struct attn_feature_sum *sum)
{
    const struct attn_feature_plan *p = c->plan;
    c->kernels->gemm_pack_f32(c->packed, sum->s, p->sizes.v_dim, 1, (size_t)p->features,
                              (size_t)p->sizes.v_dim);
}

/* y = features of queries times S, packed. */
static void read_sum(const struct attn_feature_call *c, float *y, int64_t n)
{
    const struct attn_feature_plan *p = c->plan;
    struct attn_gemm_f32 g = { .a = c->queries,
                               .a_row = p->query_row,
                               .b = c->packed,
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

/* Queries from … to - 1 that see all keys of `sum`, whose S is packed. */
static attn_status answer(const struct attn_feature_call *c, int64_t batch, int64_t head,
                          int64_t from, int64_t to, const struct attn_feature_sum *sum)
{
    const struct attn_feature_plan *p = c->plan;
    struct attn_feature_tile t = { batch, head, from, 0 };
    for (; t.first < to; t.first += p->chunk) {
        if (OP_CANCELLED(c->work))
            return ATTNRUN_E_CANCELLED;
        t.n = least(p->chunk, to - t.first);
        float *y = rows_of_y(c, t);
        p->rules->queries(c, t, c->queries, sum->z, c->dots);
        read_sum(c, y, t.n);
        divide(c, y, p->sizes.y.row, t.n, sum->more[0] > 0 ? 0 : t.n);
    }
    return ATTNRUN_OK;
}

/* Rows from … of a chunk and the keys up to them: y += triangle(f(q) f(k)') V. */
static void answer_inside(const struct attn_feature_call *c,
                          struct attn_feature_tile keys, float *y, int64_t from,
                          int64_t rows)
{
    const struct attn_feature_plan *p = c->plan;
    const int64_t n = from + rows;
    struct attn_gemm_f32 g = { .a = c->queries + from * p->query_row,
                               .a_row = p->query_row,
                               .b = c->features,
                               .b_row = p->turned ? ATTN_TURNED_ROW : 1,
                               .b_col = p->turned ? 1 : p->features,
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
                                .b = attn_tile_rows(c->o->v, &p->sizes.v, keys),
                                .b_row = p->sizes.v.row,
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

/* Rows of a chunk before the first key that is not masked. */
static int64_t empty_rows(const struct attn_feature_call *c,
                          struct attn_feature_tile keys,
                          const struct attn_feature_sum *sum)
{
    const uint8_t *keep = attn_tile_keep(c, keys);
    int64_t n = 0;
    if (sum->more[0] > 0 || keep == NULL)
        return 0;
    while (n < keys.n && keep[n] == 0)
        n++;
    return n;
}

/* A chunk of keys and the queries in step with them, from query `query` on; then the sum
 * has the keys. */
static void run_chunk(const struct attn_feature_call *c, struct attn_feature_tile keys,
                      int64_t query, const struct attn_feature_sum *sum)
{
    const struct attn_feature_plan *p = c->plan;
    float *z = c->dots + round16(p->chunk);
    const struct attn_feature_sum inside = { .s = sum->s, .z = z, .more = sum->more };
    memset(z, 0, (size_t)p->features * sizeof *z);
    p->rules->keys(c, keys, c->features, &inside);
    const int64_t empty = empty_rows(c, keys, sum);
    if (c->o->y != NULL)
        pack_sum(c, sum);
    for (int64_t h = 0; c->o->y != NULL && h < p->sizes.group; h++) {
        const struct attn_feature_tile t = { keys.batch, keys.head * p->sizes.group + h,
                                             query, keys.n };
        float *y = rows_of_y(c, t);
        p->rules->queries(c, t, c->queries, sum->z, c->dots);
        read_sum(c, y, t.n);
        for (int64_t from = 0; from < t.n; from += PANEL)
            answer_inside(c, keys, y, from, least(PANEL, t.n - from));
        divide(c, y, p->sizes.y.row, t.n, empty);
    }
    add_values(c, keys, sum);
    c->kernels->add_f32(sum->z, sum->z, 1, z, 1, (size_t)p->features);
    sum->more[0] += count_kept(c, keys);
}

/* ---- tasks ---- */

/* Keys from … to - 1 of a key head, whose sum holds those before, and their queries. */
static attn_status run_causal(const struct attn_feature_call *c, int64_t head,
                              int64_t from, int64_t to,
                              const struct attn_feature_sum *sum)
{
    const struct attn_feature_plan *p = c->plan;
    const struct attn_sizes *s = &p->sizes;
    const int64_t batch = head / s->kv_heads, kv_head = head % s->kv_heads;
    if (from == 0 && s->offset < 0 && c->o->y != NULL) { /* queries before all keys */
        pack_sum(c, sum);
        for (int64_t h = 0; h < s->group; h++)
            TRY(answer(c, batch, kv_head * s->group + h, 0, least(-s->offset, s->q_len),
                       sum));
    }
    const int64_t first = least(most(from, s->offset), to); /* the first with a query */
    TRY(add_keys(c, batch, kv_head, from, first, sum));
    struct attn_feature_tile t = { batch, kv_head, first, 0 };
    for (; t.first < to; t.first += t.n) {
        if (OP_CANCELLED(c->work))
            return ATTNRUN_E_CANCELLED;
        t.n = least(p->chunk, to - t.first);
        run_chunk(c, t, t.first - s->offset, sum);
    }
    if (to == s->kv_len)
        store_present(c, head, sum);
    return ATTNRUN_OK;
}

static attn_status run_whole(const struct attn_feature_call *c, int64_t head)
{
    const struct attn_feature_plan *p = c->plan;
    const struct attn_sizes *s = &p->sizes;
    const int64_t batch = head / s->kv_heads, kv_head = head % s->kv_heads;
    const struct attn_feature_sum sum = empty_sum(c, c->sum);
    if (s->causal) {
        take_past(c, head, &sum);
        return run_causal(c, head, 0, s->kv_len, &sum);
    }
    TRY(add_keys(c, batch, kv_head, 0, s->kv_len, &sum));
    if (p->rules->end != NULL)
        p->rules->end(c, &sum);
    store_present(c, head, &sum);
    if (c->o->y == NULL)
        return ATTNRUN_OK;
    pack_sum(c, &sum);
    for (int64_t h = 0; h < s->group; h++)
        TRY(answer(c, batch, kv_head * s->group + h, 0, s->q_len, &sum));
    return ATTNRUN_OK;
}

/* Phase 0: a slice of the keys. The last one of causal attention has nobody behind it. */
static attn_status run_slice(const struct attn_feature_call *c, int64_t task)
{
    const struct attn_feature_plan *p = c->plan;
    const int64_t head = task / p->slices, slice = task % p->slices;
    const struct attn_feature_sum sum = empty_sum(c, shared_sum(c, head, slice));
    if (p->sizes.causal && slice + 1 == p->slices)
        return ATTNRUN_OK;
    return add_keys(c, head / p->sizes.kv_heads, head % p->sizes.kv_heads,
                    slice * p->slice, least((slice + 1) * p->slice, p->sizes.kv_len),
                    &sum);
}

/* Phase 1: slices in order. Causal: each gets what comes before it. */
static void run_combine(const struct attn_feature_call *c, int64_t head)
{
    const struct attn_feature_plan *p = c->plan;
    struct attn_feature_sum sum = sum_at(p, shared_sum(c, head, 0));
    if (!p->sizes.causal) {
        for (int64_t i = 1; i < p->slices; i++) {
            struct attn_feature_sum from = sum_at(p, shared_sum(c, head, i));
            add_sum(c, &sum, &from);
        }
        if (p->rules->end != NULL)
            p->rules->end(c, &sum);
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

static attn_status run_answer(const struct attn_feature_call *c, int64_t task)
{
    const struct attn_feature_plan *p = c->plan;
    const struct attn_sizes *s = &p->sizes;
    if (s->causal) {
        const int64_t head = task / p->slices, slice = task % p->slices;
        const struct attn_feature_sum sum = sum_at(p, shared_sum(c, head, slice));
        return run_causal(c, head, slice * p->slice,
                          least((slice + 1) * p->slice, s->kv_len), &sum);
    }
    if (c->o->y == NULL)
        return ATTNRUN_OK;
    const int64_t block = task % p->blocks, head = task / p->blocks % s->q_heads;
    const int64_t batch = task / p->blocks / s->q_heads;
    const struct attn_feature_sum sum =
        sum_at(p, shared_sum(c, batch * s->kv_heads + head / s->group, 0));
    pack_sum(c, &sum);
    return answer(c, batch, head, block * BLOCK, least((block + 1) * BLOCK, s->q_len),
                  &sum);
}

struct attn_feature_call attn_feature_open(const struct attn_feature_plan *plan,
                                           const struct attn_kernels *kernels,
                                           const struct attn_feature_operands *o,
                                           const void *rule_arg, const attnrun_work *work)
{
    struct attn_feature_call c = {
        .plan = plan, .kernels = kernels, .o = o, .rule_arg = rule_arg, .work = work
    };
    open_scratch(&c, work->scratch);
    return c;
}

attn_status attn_feature_run(const struct attn_feature_plan *plan,
                             const struct attn_kernels *kernels,
                             const struct attn_feature_operands *o, const void *rule_arg,
                             const attnrun_work *work)
{
    const struct attn_feature_call c =
        attn_feature_open(plan, kernels, o, rule_arg, work);
    const int phase = work->phase - plan->first_phase;
    for (int64_t task = work->begin; task < work->end; task++) {
        if (plan->whole)
            TRY(run_whole(&c, task));
        else if (phase == 0)
            TRY(run_slice(&c, task));
        else if (phase == 1)
            run_combine(&c, task);
        else
            TRY(run_answer(&c, task));
    }
    return ATTNRUN_OK;
}
