/* halo_plan.c - chooses the tasks and the memory of HaloAttention. In: the shapes. Out:
 * tiles of queries, regions of blocks, sizes of scratch and shared memory. All of them
 * depend on shapes alone. */
#include "halo.h"
#include "../tile.h"

enum {
    MAX_SCORES = 1 << 18, /* floats of a tile of scores */
    MIN_QUERIES = 16,     /* of a tile, even if its scores are more */
    MAX_QUERIES = 128,
    ENOUGH_TASKS = 16,
    ENOUGH_CHUNKS = 8,
    MIN_PIXELS = 32, /* of a chunk, where there are more: two vectors at most */
    MIN_ROWS = 32,   /* of weights, of a part of a chunk */
    ENOUGH_PARTS = 40,
    MAX_WHOLE = 16
        << 20, /* bytes of all projections, to be computed once for all regions */
    MAX_STORE = 2 << 20 /* bytes of the keys and values of a region */
};

/* Chooses the queries whose scores fit, in whole rows of a block where one fits. */
static void choose_queries(const attnrun_step *step, struct attn_halo *s)
{
    const struct attn_halo_args *args = step->args;
    s->keys = args->padding == ATTN_HALO_ATTEND
                  ? s->window * s->window
                  : min64(s->window, s->map.height) * min64(s->window, s->map.width);
    const int64_t n =
        min64(max64(MAX_SCORES / s->keys, MIN_QUERIES), (int64_t)MAX_QUERIES);
    s->tile_columns = min64(s->side, n);
    s->tile_rows = min64(s->side, n / s->tile_columns);
    s->width = round_up(s->tile_rows * s->tile_columns, 16);
}

/* Halves regions until there are enough of them, and K and V of one are small. */
static void choose_regions(struct attn_halo *s)
{
    const double row = 4.0 * (double)min64(s->map.height, s->window) *
                       (double)(s->heads * (s->dk + s->dv));
    s->region_rows = s->rows;
    s->region_columns = s->columns;
    for (;;) {
        s->values.columns =
            min64(s->map.width, s->region_columns * s->block + 2 * s->halo);
        s->y_regions = ceil_div(s->rows, s->region_rows);
        s->x_regions = ceil_div(s->columns, s->region_columns);
        const bool few = s->map.batch * s->y_regions * s->x_regions < ENOUGH_TASKS;
        const bool large = row * (double)s->values.columns > MAX_STORE;
        if (s->region_columns > 1 &&
            (large || (few && s->region_columns >= s->region_rows)))
            s->region_columns = ceil_div(s->region_columns, 2);
        else if (s->region_rows > 1 && few)
            s->region_rows = ceil_div(s->region_rows, 2);
        else
            break;
    }
    s->queries.columns = min64(s->out_w, s->region_columns * s->side);
}

static bool plan_grid(struct attn_halo_grid *g)
{
    return ck_mul(g->planes, g->chunk_rows * g->columns, &g->chunk_floats) &&
           ck_mul(g->chunk_floats, g->slots, &g->floats) &&
           ck_align(g->floats, 16, &g->floats);
}

/* Plans all rows, in chunks of one product each, with some for each of several
 * threads. */
static bool plan_whole(struct attn_halo_grid *g, int64_t rows, int64_t columns,
                       int64_t batch)
{
    g->columns = columns;
    g->chunk_rows = max64(1, PIXELS / columns);
    while (ceil_div(g->chunk_rows, 2) * columns >= MIN_PIXELS && g->chunk_rows > 1 &&
           batch * ceil_div(rows, g->chunk_rows) < ENOUGH_CHUNKS)
        g->chunk_rows = ceil_div(g->chunk_rows, 2);
    g->chunks = g->slots = ceil_div(rows, g->chunk_rows);
    return plan_grid(g);
}

static bool plan_stores(struct attn_halo *s, int64_t *shared)
{
    struct attn_halo_grid *v = &s->values, *q = &s->queries;
    int64_t floats = 0;
    v->planes = s->heads * (s->dk + s->dv);
    q->planes = attn_halo_results(s) + s->heads * s->dv;
    s->whole = plan_whole(v, s->map.height, s->map.width, s->map.batch) &&
               plan_whole(q, s->out_h, s->out_w, s->map.batch) &&
               ck_add(v->floats, q->floats, &floats) &&
               ck_mul(floats, 4 * s->map.batch, shared) && *shared <= MAX_WHOLE;
    if (s->whole)
        return true;
    *shared = 0;
    choose_regions(s);
    v->chunk_rows = max64(1, PIXELS / v->columns);
    v->chunks = ceil_div(s->map.height, v->chunk_rows);
    v->slots = min64(v->chunks, ceil_div(s->window - 1, v->chunk_rows) + 1);
    q->chunk_rows = s->side;
    q->chunks = s->rows;
    q->slots = 1;
    return plan_grid(v) && plan_grid(q);
}

/* Plans the sizes of a worker's parts, and their sum; false where it overflows. */
static bool plan_scratch(struct attn_halo *s, int64_t *floats)
{
    const int64_t inner = s->heads * s->dv, n = max64(PIXELS, s->width);
    const int64_t depth = max64(s->map.channels, inner);
    const int64_t k = max64(max64(depth, s->dk), KEYS);
    const int64_t keys = max64(KEYS, s->window), head = max64(s->dk, s->dv);
    const int64_t relative = 2 * s->window + s->tile_rows + s->tile_columns;
    const int64_t sizes[][2] = {
        { depth, PIXELS },
        { s->map.channels, PIXELS },
        { keys, head },
        { s->relative ? relative : 0, s->width },
        { s->keys, s->width },
        { 2 * head, s->width },
        { s->out_channels, PIXELS },
    };
    int64_t *const to[] = { &s->panel_floats, &s->gather_floats, &s->key_floats,
                            &s->rel_floats,   &s->score_floats,  &s->query_floats,
                            &s->out_floats };
    s->gemm_floats = round_up((int64_t)attn_gemm_scratch(ROWS, (size_t)n, (size_t)k), 16);
    *floats = s->gemm_floats + 2 * s->width;
    for (size_t i = 0; i < sizeof to / sizeof *to; i++)
        if (!ck_mul(sizes[i][0], sizes[i][1], to[i]) || !ck_align(*to[i], 16, to[i]) ||
            !ck_add(*floats, *to[i], floats))
            return false;
    return s->whole || (ck_add(*floats, s->values.floats, floats) &&
                        ck_add(*floats, s->queries.floats, floats));
}

/* ---- tasks ---- */

static int64_t cost(double products)
{
    const double ns = products / 40.0;
    return op_ns(ns + 200);
}

/* Cuts the rows of the weights where there are few chunks, of one product each. */
static int64_t parts_of_rows(const struct attn_halo *s, const struct attn_halo_grid *g,
                             int64_t rows)
{
    const int64_t chunks = s->map.batch * g->chunks;
    int64_t n = 1;
    while (g->chunk_rows * g->columns <= PIXELS && chunks * n < ENOUGH_PARTS &&
           rows / (2 * n) >= MIN_ROWS)
        n *= 2;
    return n;
}

static void choose_parts(const attnrun_step *step, struct attn_halo *s)
{
    const int64_t blocks = s->map.batch * s->rows * s->columns;
    for (int phase = VALUES; phase <= RESULTS; phase++)
        s->parts[phase] = 1;
    if (!s->whole)
        return;
    s->parts[VALUES] = parts_of_rows(s, &s->values, s->heads * (s->dk + s->dv));
    s->parts[QUERIES] = parts_of_rows(s, &s->queries, s->heads * s->dk);
    s->parts[BLOCKS] = blocks < 2 * ENOUGH_TASKS ? s->heads : 1;
    if (op_has_in(step, WO))
        s->parts[RESULTS] = parts_of_rows(s, &s->queries, s->out_channels);
}

static void state_phase(attnrun_step *step, const struct attn_halo *s, int32_t phase,
                        int64_t n, double products)
{
    op_tasks(step, phase, s->map.batch * n * s->parts[phase],
             cost(products / (double)s->parts[phase]));
}

static void state_tasks(attnrun_step *step, const struct attn_halo *s)
{
    const double q = (double)(s->heads * s->dk), v = (double)(s->heads * s->dv);
    const double c = (double)s->map.channels;
    const double results = op_has_in(step, WO) ? (double)s->out_channels * v : v;
    const double block = (double)(s->side * s->side) * (double)s->keys * (q + v);
    const double pixels = (double)(s->values.chunk_rows * s->values.columns);
    const double chunk = (double)(s->queries.chunk_rows * s->queries.columns);
    if (s->whole) {
        state_phase(step, s, VALUES, s->values.chunks, pixels * c * (q + v));
        state_phase(step, s, QUERIES, s->queries.chunks, chunk * c * q);
        state_phase(step, s, BLOCKS, s->rows * s->columns, block);
        state_phase(step, s, RESULTS, s->queries.chunks, chunk * results);
        return;
    }
    const double rows = (double)s->region_rows, columns = (double)s->region_columns;
    const double made = (double)(s->block * s->block) * c * (q + v);
    op_tasks(step, VALUES, 0, 0);
    op_tasks(step, QUERIES, 0, 0);
    op_tasks(step, BLOCKS, s->map.batch * s->y_regions * s->x_regions,
             cost(rows * (chunk * (c * q + results) + columns * (block + made))));
    op_tasks(step, RESULTS, 0, 0);
}

attn_status attn_halo_plan(attnrun_step *step, struct attn_halo *s)
{
    int64_t floats, n;
    choose_queries(step, s);
    if (!plan_stores(s, &step->shared_bytes) || !plan_scratch(s, &floats) ||
        !ck_mul(floats, 4, &step->scratch_bytes) || !ck_mul(s->rows, s->columns, &n) ||
        !ck_mul(n, s->map.batch, &n) || !ck_mul(n, s->heads, &n))
        return op_fail_scratch(step);
    choose_parts(step, s);
    state_tasks(step, s);
    return ATTNRUN_OK;
}
