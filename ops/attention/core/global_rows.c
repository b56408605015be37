/* global_rows.c - computes global queries with projections of their own. global_rows.h
 * describes the operands and the cost. */
#include "global_rows.h"

#include <math.h>

#include "../../tile.h"

enum {
    KEYS = ATTN_STREAM_KEYS,
    FEW = 64,  /* rows of a block where keys are not formed */
    MAX = 256, /* rows of a block where they are */
    SOME = 32  /* rows that are projected together */
};

/* ---- plan ---- */

static int64_t global_rows_gemm_floats(const struct attn_global_rows *g)
{
    const size_t width = (size_t)g->width, dims = (size_t)max64(g->s.dim, g->s.v_dim);
    const size_t project = attn_gemm_scratch(SOME, dims, width),
                 back = attn_gemm_scratch(SOME, width, dims),
                 keys = attn_gemm_scratch(KEYS, dims, width);
    return max64((int64_t)project, max64((int64_t)back, (int64_t)keys));
}

/* Plans the scratch: rows of X or of their means, their projection, a tile of keys and
 * values. */
static bool scratch_of(struct attn_global_rows *g)
{
    const struct attn_sizes *s = &g->s;
    int64_t stream_at, dims, *bytes = &g->scratch_bytes;
    const int64_t few = attn_stream_bytes(FEW, g->width, g->width),
                  many = attn_stream_bytes(g->block, s->dim, s->v_dim);
    if (few < 0 || many < 0 || g->width > INT64_MAX / 65536 ||
        !ck_add(s->dim, s->v_dim, &dims) || dims > INT64_MAX / 65536)
        return false;
    *bytes = 0;
    return op_slot(&stream_at, bytes, max64(few, many), 1) &&
           op_slot(&g->gemm_at, bytes, global_rows_gemm_floats(g), sizeof(float)) &&
           op_slot_rows(&g->x_at, bytes, SOME, g->width, sizeof(float)) &&
           op_slot_rows(&g->projected_at, bytes, SOME, max64(s->dim, s->v_dim),
                        sizeof(float)) &&
           op_slot_rows(&g->k_at, bytes, KEYS, s->dim, sizeof(float)) &&
           op_slot_rows(&g->v_at, bytes, KEYS, s->v_dim, sizeof(float)) &&
           op_slot(&g->keep_at, bytes, KEYS, 1);
}

attn_status attn_global_rows_plan(const attnrun_step *step, struct attn_global_rows *g)
{
    const struct attn_sizes *s = &g->s;
    int64_t rows, heads_blocks;
    g->block = max64(min64(s->kv_len, MAX), 1);
    g->blocks = ceil_div(s->kv_len, g->block);
    bool fits = scratch_of(g) && ck_mul(s->q_heads, s->kv_len, &rows) &&
                ck_mul(s->q_heads, g->blocks, &heads_blocks);
    /* The form is known only at run; these are enough tasks for either. */
    g->per_batch = fits ? max64(ceil_div(min64(rows, g->width), FEW), heads_blocks) : 0;
    if (!fits || !ck_mul(g->per_batch, s->batch, &g->n_tasks))
        return op_fail_scratch(step);
    double cost = 4.0 * (double)s->kv_len * (double)g->width * 16.0 / 100.0;
    g->task_cost = op_ns(cost + 500);
    return ATTNRUN_OK;
}

/* ---- one task ---- */

struct global_walk {
    const struct attn_global_rows *g;
    const struct attn_global_rows_operands *o;
    const struct attn_kernels *kernels;
    struct attn_stream stream;
    float *gemm, *x, *projected, *k, *v;
    uint8_t *keep;
    int64_t b, count; /* global tokens of the sample */
    bool masked;
};

static const float *x_at(const struct global_walk *t, int64_t token)
{
    return t->o->x + (t->b * t->g->s.kv_len + token) * t->g->width;
}

static int64_t token_of(const struct global_walk *t, int64_t global)
{
    return t->o->lists.tokens[t->b * t->g->s.kv_len + global];
}

/* Head `head`'s columns of a weight as B, or with `transposed` as B'. */
struct weight {
    const float *w;
    int64_t row;
    const float *bias; /* or NULL */
    bool transposed;
};

static void global_rows_project(const struct global_walk *t, float *c, int64_t n,
                                const float *a, int64_t m, int64_t k,
                                const struct weight *w, float scale)
{
    const struct attn_epilogue steps[2] = {
        { .kind = ATTN_EPI_ADD, .alpha = 1.0f, .data = w->bias, .col = 1 },
        { .kind = ATTN_EPI_SCALE, .alpha = scale },
    };
    const int skip = w->bias == NULL;
    t->kernels->gemm_f32(
        &(struct attn_gemm_f32){ .a = a,
                                 .a_row = k,
                                 .b = w->w,
                                 .b_row = w->transposed ? 1 : w->row,
                                 .b_col = w->transposed ? w->row : 1,
                                 .c = c,
                                 .c_row = n,
                                 .m = (size_t)m,
                                 .n = (size_t)n,
                                 .k = (size_t)k,
                                 .epilogue = steps + skip,
                                 .n_epilogue = 2 - skip - (scale == 1.0f),
                                 .scratch = t->gemm });
}

/* Computes the scaled queries of head `head` and m global tokens from number `global`
 * on. */
static void make_queries(const struct global_walk *t, float *c, int64_t head,
                         int64_t global, int64_t m)
{
    const struct attn_global_rows *g = t->g;
    const int64_t at = head * g->s.dim;
    for (int64_t r = 0; r < m; r++)
        memcpy(t->x + r * g->width, x_at(t, token_of(t, global + r)),
               (size_t)g->width * sizeof *t->x);
    const struct weight wq = { t->o->wq + at, g->wq,
                               t->o->bq != NULL ? t->o->bq + at : NULL, false };
    global_rows_project(t, c, g->s.dim, t->x, m, g->width, &wq, g->s.scale);
}

static void mask_keys(void *arg, float *scores, int64_t row, int64_t rows, int64_t from,
                      int64_t to)
{
    const struct global_walk *t = arg;
    (void)row;
    for (int64_t r = 0; t->masked && r < rows; r++)
        t->kernels->keep_mask_f32(scores + r * ATTN_STREAM_SCORES, t->keep + from,
                                  (size_t)(to - from));
}

/* Finds the keys of a tile that are seen. False: there is none. */
static bool find_seen(struct global_walk *t, int64_t first, int64_t n)
{
    const uint8_t *mask = t->o->key_mask;
    int64_t seen = 0;
    t->masked = false;
    if (mask == NULL)
        return true;
    for (int64_t j = 0; j < n; j++) {
        t->keep[j] = mask[t->b * t->g->s.kv_len + first + j] != 0;
        seen += t->keep[j];
    }
    t->masked = seen < n;
    return seen > 0;
}

/* Gives the stream all keys: rows of X, or head `head`'s keys and values made from
 * them. */
static attn_status global_rows_walk(struct global_walk *t, bool formed, int64_t head,
                                    const attnrun_work *work)
{
    const struct attn_global_rows *g = t->g;
    const struct attn_sizes *s = &g->s;
    for (int64_t first = 0; first < s->kv_len; first += KEYS) {
        const float *x = x_at(t, first);
        struct attn_keys keys = { .k = x,
                                  .v = x,
                                  .k_row = g->width,
                                  .v_row = g->width,
                                  .n = min64(KEYS, s->kv_len - first) };
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (!find_seen(t, first, keys.n))
            continue;
        if (formed) {
            const float *bv = t->o->bv != NULL ? t->o->bv + head * s->v_dim : NULL;
            const struct weight wk = { t->o->wk + head * s->dim, g->wk, NULL, false };
            const struct weight wv = { t->o->wv + head * s->v_dim, g->wv, bv, false };
            global_rows_project(t, t->k, s->dim, x, keys.n, g->width, &wk, 1.0f);
            global_rows_project(t, t->v, s->v_dim, x, keys.n, g->width, &wv, 1.0f);
            keys.k = t->k;
            keys.v = t->v;
            keys.k_row = s->dim;
            keys.v_row = s->v_dim;
        }
        attn_stream_tile(&t->stream, &keys, mask_keys, t);
    }
    return ATTNRUN_OK;
}

static float *y_at(const struct global_walk *t, int64_t head, int64_t global)
{
    const struct attn_heads *y = &t->g->s.y;
    return t->o->y + t->b * y->batch + head * y->head + token_of(t, global) * y->row;
}

/* Turns means of X into values of head `head`, for m rows of the block from `row` on. */
static void finish_few(const struct global_walk *t, int64_t row, int64_t head,
                       int64_t global, int64_t m)
{
    const struct attn_global_rows *g = t->g;
    const int64_t v_dim = g->s.v_dim, at = head * v_dim;
    for (int64_t r = 0; r < m; r++)
        attn_stream_store(&t->stream, row + r, t->x + r * g->width, 0.0f);
    const struct weight wv = { t->o->wv + at, g->wv,
                               t->o->bv != NULL ? t->o->bv + at : NULL, false };
    global_rows_project(t, t->projected, v_dim, t->x, m, g->width, &wv, 1.0f);
    for (int64_t r = 0; r < m; r++)
        memcpy(y_at(t, head, global + r), t->projected + r * v_dim,
               (size_t)v_dim * sizeof(float));
}

/* Computes up to FEW rows, each a head and a global token, over rows of X. */
static attn_status run_few(struct global_walk *t, int64_t task, const attnrun_work *work)
{
    const struct attn_global_rows *g = t->g;
    const int64_t all = t->count * g->s.q_heads, first = task * FEW,
                  n = min64(FEW, all - first);
    if (n <= 0)
        return ATTNRUN_OK;
    attn_stream_begin(&t->stream, t->kernels, FEW, g->width, g->width, work->scratch);
    attn_stream_reset(&t->stream, n);
    for (int64_t row = 0, m; row < n; row += m) {
        const int64_t head = (first + row) / t->count, global = (first + row) % t->count;
        m = min64(min64(SOME, n - row), t->count - global);
        make_queries(t, t->projected, head, global, m);
        const struct weight wk = { t->o->wk + head * g->s.dim, g->wk, NULL, true };
        global_rows_project(t, t->stream.q + row * g->width, g->width, t->projected, m,
                            g->s.dim, &wk, 1.0f);
    }
    TRY(global_rows_walk(t, false, 0, work));
    for (int64_t row = 0, m; row < n; row += m) {
        const int64_t head = (first + row) / t->count, global = (first + row) % t->count;
        m = min64(min64(SOME, n - row), t->count - global);
        finish_few(t, row, head, global, m);
    }
    return ATTNRUN_OK;
}

/* Computes a block of one head's global rows, over keys and values made for it. */
static attn_status run_many(struct global_walk *t, int64_t task, const attnrun_work *work)
{
    const struct attn_global_rows *g = t->g;
    const int64_t first = op_take(&task, g->blocks) * g->block, head = task,
                  n = min64(g->block, t->count - first);
    if (n <= 0 || head >= g->s.q_heads)
        return ATTNRUN_OK;
    attn_stream_begin(&t->stream, t->kernels, g->block, g->s.dim, g->s.v_dim,
                      work->scratch);
    attn_stream_reset(&t->stream, n);
    for (int64_t row = 0; row < n; row += SOME)
        make_queries(t, t->stream.q + row * g->s.dim, head, first + row,
                     min64(SOME, n - row));
    TRY(global_rows_walk(t, true, head, work));
    for (int64_t row = 0; row < n; row++)
        attn_stream_store(&t->stream, row, y_at(t, head, first + row), 0.0f);
    return ATTNRUN_OK;
}

attn_status attn_global_rows_run(const struct attn_global_rows *g,
                                 const struct attn_kernels *kernels,
                                 const struct attn_global_rows_operands *o, int64_t task,
                                 const attnrun_work *work)
{
    const struct attn_sizes *s = &g->s;
    const int64_t of_sample = op_take(&task, g->per_batch);
    struct global_walk t = { .g = g, .o = o, .kernels = kernels, .b = task };
    t.gemm = op_slot_floats(work->scratch, g->gemm_at);
    t.x = op_slot_floats(work->scratch, g->x_at);
    t.projected = op_slot_floats(work->scratch, g->projected_at);
    t.k = op_slot_floats(work->scratch, g->k_at);
    t.v = op_slot_floats(work->scratch, g->v_at);
    t.keep = op_slot_at(work->scratch, g->keep_at);
    t.count = o->lists.count[t.b];
    if (t.count < ceil_div(g->width, s->q_heads))
        return run_few(&t, of_sample, work);
    return run_many(&t, of_sample, work);
}
