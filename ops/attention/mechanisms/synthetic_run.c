/* synthetic_run.c - the arithmetic of SyntheticAttention, on the streaming core.
 * synthetic_attention.c has the formula.
 *
 * In: the operands of a step whose state is planned. Out: rows of Y. A task is a block of
 * queries of a head, of one sample or of several samples that have the same weights. The
 * values of several samples are then put side by side, so one product serves them all.
 * Cost: 2 kv_len (inner + v_dim) FLOPs a query. */
#include "synthetic.h"
#include "../../tile.h"

#include <math.h>

enum {
    KEYS = ATTN_STREAM_KEYS,
    ROWS = ATTN_STREAM_ROWS,
    ENOUGH_VALUES = 256,   /* columns of values of several samples */
    MAX_SCRATCH = 2 << 20, /* where blocks stop growing */
    FLOAT = sizeof(float)
};

static bool has(const struct synthetic_state *s, enum synthetic_kind kind)
{
    return s->kinds >> kind & 1;
}

/* ---- plan ---- */

/* The bytes of scratch for `rows` queries, -1 where they overflow; sets where tiles of
 * keys and values are gathered. */
static int64_t scratch_of(struct synthetic_state *s, int64_t rows)
{
    const int64_t values = s->samples * s->sizes.v_dim;
    const int64_t keys = s->joined ? s->inner : 0, copied = s->samples > 1 ? values : 0;
    /* The last samples may be fewer, and values of one element need a panel. */
    const int64_t one = attn_stream_bytes(rows, s->inner, s->sizes.v_dim);
    const int64_t all = attn_stream_bytes(rows, s->inner, values);
    int64_t end;
    bool fits = one >= 0 && all >= 0 && ck_align(max64(one, all), 64, &s->keys_at) &&
                ck_add(s->keys_at, keys * KEYS * FLOAT, &s->values_at) &&
                ck_add(s->values_at, copied * KEYS * FLOAT, &end);
    return fits ? end : -1;
}

/* The number of samples that have the same weights and whose values are worth a common
 * product. */
static int64_t samples_of(const attnrun_step *step, const struct synthetic_state *s)
{
    const unsigned of_sample =
        1u << SYNTHETIC_DOT | 1u << SYNTHETIC_DENSE | 1u << SYNTHETIC_OUTER;
    if ((s->kinds & of_sample) != 0 || op_has_in(step, SYNTHETIC_KEY_MASK))
        return 1;
    return min64(s->sizes.batch, max64(1, ENOUGH_VALUES / s->sizes.v_dim));
}

attn_status attn_synthetic_plan(const attnrun_step *step, struct synthetic_state *s)
{
    const struct attn_sizes *z = &s->sizes;
    s->samples = s->groups = s->block = s->blocks = 1;
    s->n_tasks = s->scratch_bytes = 0;
    if (z->batch == 0 || z->q_heads == 0 || z->q_len == 0 || z->v_dim == 0)
        return ATTNRUN_OK;
    const int64_t factors = has(s, SYNTHETIC_OUTER) ? s->a.n + s->b.n : 0;
    TRY(attn_sdpa_fits(step, z->batch, z->q_heads, z->q_len, z->kv_len,
                       s->inner + z->v_dim + factors));
    s->samples = samples_of(step, s);
    s->groups = ceil_div(z->batch, s->samples);
    s->block = ROWS;
    while (s->block < ATTN_STREAM_MAX &&
           z->q_len / (2 * s->block) >=
               (OP_ENOUGH_TASKS - 1) / (s->groups * z->q_heads) + 1 &&
           scratch_of(s, 2 * s->block) <= MAX_SCRATCH)
        s->block *= 2;
    s->block = op_block_even(z->q_len, s->block);
    s->blocks = ceil_div(z->q_len, s->block);
    s->scratch_bytes = scratch_of(s, s->block);
    if (s->scratch_bytes < 0 ||
        !op_grid_tasks(s->groups, z->q_heads, s->blocks, &s->n_tasks))
        return op_fail_scratch(step);
    double cost = 2.0 * (double)s->block * (double)z->kv_len *
                  (double)(s->inner + s->samples * z->v_dim + 64) / 100.0;
    s->task_cost = op_ns(cost + 500);
    return ATTNRUN_OK;
}

/* ---- one task ---- */

struct synthetic_walk {
    const attnrun_step *step;
    const struct synthetic_state *s;
    struct attn_stream stream;
    float coefficients[SYNTHETIC_KINDS];
    int64_t b, samples; /* b … b + samples - 1 */
    int64_t head, row;  /* queries row … row + stream.n - 1 */
    float *keys, *values;
    /* The tile in work. */
    int64_t first;
    const uint8_t *mask; /* of its keys, or NULL: all are there */
    bool biased;         /* bias is not all zeros: of the keys, -inf masks one */
    float bias[KEYS];
};

static const float *input(const struct synthetic_walk *w, int in)
{
    return w->step->x[in].data;
}

/* Finds the coefficients of the components of each kind. */
static void find_coefficients(struct synthetic_walk *w)
{
    const struct synthetic_args *args = w->step->args;
    const float *alpha =
        op_has_in(w->step, SYNTHETIC_ALPHA) ? input(w, SYNTHETIC_ALPHA) : NULL;
    for (int64_t m = 0; m < args->components.n; m++)
        w->coefficients[attn_synthetic_kind(args, m)] += alpha != NULL ? alpha[m] : 1.0f;
}

static const float *at(const struct synthetic_walk *w, int in, const struct attn_heads *x,
                       int64_t row)
{
    return input(w, in) + w->b * x->batch + w->head * x->head + row * x->row;
}

/* Loads the queries of all products, side by side. */
static void synthetic_load(struct synthetic_walk *w)
{
    struct attn_stream *stream = &w->stream;
    float *q = stream->q;
    for (int kind = 0; kind < SYNTHETIC_PRODUCTS; kind++) {
        const struct synthetic_product *p = &w->s->products[kind];
        float factor = w->coefficients[kind];
        if (p->dim == 0)
            continue;
        if (kind == SYNTHETIC_DOT)
            factor *= w->s->sizes.scale;
        stream->kernels->scale_rows_f32(q, stream->dim, at(w, p->q_in, &p->q, w->row),
                                        p->q.row, (size_t)stream->n, (size_t)p->dim,
                                        &factor, 0);
        q += p->dim;
    }
}

/* Copies n keys of all products, side by side. */
static void join_keys(struct synthetic_walk *w, int64_t n)
{
    const struct attn_kernels *kernels = w->stream.kernels;
    const int64_t inner = w->s->inner;
    const float one = 1.0f;
    float *y = w->keys;
    for (int kind = 0; kind < SYNTHETIC_PRODUCTS; kind++) {
        const struct synthetic_product *p = &w->s->products[kind];
        if (p->dim == 0)
            continue;
        const float *k = at(w, p->k_in, &p->k, w->first);
        if (kind == SYNTHETIC_DENSE)
            kernels->transpose_f32(y, inner, k, p->k_col, (size_t)p->dim, (size_t)n);
        else
            kernels->scale_rows_f32(y, inner, k, p->k.row, (size_t)n, (size_t)p->dim,
                                    &one, 0);
        y += p->dim;
    }
}

static void find_keys(struct synthetic_walk *w, struct attn_keys *tile)
{
    tile->k = w->keys;
    tile->k_row = w->s->inner;
    if (w->s->joined) {
        join_keys(w, tile->n);
        return;
    }
    for (int kind = 0; kind < SYNTHETIC_PRODUCTS; kind++) {
        const struct synthetic_product *p = &w->s->products[kind];
        if (p->dim == 0)
            continue;
        tile->k = at(w, p->k_in, &p->k, w->first);
        tile->k_row = p->k.row;
        w->stream.k_col = p->k_col;
    }
}

static void find_values(struct synthetic_walk *w, struct attn_keys *tile)
{
    const struct attn_heads *v = &w->s->sizes.v;
    const int64_t dim = w->s->sizes.v_dim;
    const float *x = at(w, SYNTHETIC_V, v, w->first), one = 1.0f;
    tile->v = x;
    tile->v_row = v->row;
    if (w->s->samples == 1)
        return;
    tile->v = w->values;
    tile->v_row = w->stream.v_dim;
    for (int64_t i = 0; i < w->samples; i++, x += v->batch)
        w->stream.kernels->scale_rows_f32(w->values + i * dim, tile->v_row, x, v->row,
                                          (size_t)tile->n, (size_t)dim, &one, 0);
}

/* Computes what is added for a key of the tile, for every query. */
static void find_bias(struct synthetic_walk *w, int64_t n)
{
    const struct synthetic_state *s = w->s;
    const bool bias = has(s, SYNTHETIC_DENSE) && op_has_in(w->step, SYNTHETIC_B2);
    w->mask = NULL;
    if (op_has_in(w->step, SYNTHETIC_KEY_MASK)) {
        const uint8_t *mask = w->step->x[SYNTHETIC_KEY_MASK].data;
        mask += w->b * s->sizes.kv_len + w->first;
        w->mask = memchr(mask, 0, (size_t)n) != NULL ? mask : NULL;
    }
    memset(w->bias, 0, (size_t)n * sizeof *w->bias);
    if (bias)
        w->stream.kernels->mul_f32(
            w->bias, input(w, SYNTHETIC_B2) + w->head * s->b2_head + w->first, 1,
            &w->coefficients[SYNTHETIC_DENSE], 0, (size_t)n);
    w->biased = bias || (w->mask != NULL && !w->stream.linear);
    if (w->mask != NULL && !w->stream.linear)
        w->stream.kernels->keep_mask_f32(w->bias, w->mask, (size_t)n);
}

/* ---- scores ---- */

/* Adds coefficient x to the scores, n <= KEYS. */
static void add_row(const struct synthetic_walk *w, float *scores, const float *x,
                    enum synthetic_kind kind, int64_t n)
{
    const struct attn_kernels *kernels = w->stream.kernels;
    float product[KEYS];
    if (w->coefficients[kind] != 1.0f) {
        kernels->mul_f32(product, x, 1, &w->coefficients[kind], 0, (size_t)n);
        x = product;
    }
    kernels->add_f32(scores, scores, 1, x, 1, (size_t)n);
}

/* The place of key j in a factor, and the number of keys that follow at this place, or at
 * the next places one by one. */
static int64_t place_in(const struct synthetic_factor *f, int64_t j, int64_t *run)
{
    if (f->repeat == 0) {
        *run = f->n - j % f->n;
        return j % f->n;
    }
    *run = f->repeat - j % f->repeat;
    return j / f->repeat;
}

/* scores[j] += coefficient a_i[ia(j)] b_i[ib(j)] for n keys from `key` on. */
static void add_outer(const struct synthetic_walk *w, float *scores, int64_t query,
                      int64_t key, int64_t n)
{
    const struct synthetic_factor *fa = &w->s->a, *fb = &w->s->b;
    const float *a = at(w, SYNTHETIC_A, &fa->x, query);
    const float *b = at(w, SYNTHETIC_B, &fb->x, query);
    float products[KEYS];
    for (int64_t j = 0, run_a, run_b, run; j < n; j += run) {
        const int64_t ia = place_in(fa, key + j, &run_a);
        const int64_t ib = place_in(fb, key + j, &run_b);
        run = min64(n - j, min64(run_a, run_b));
        w->stream.kernels->mul_f32(products + j, a + ia, fa->repeat == 0, b + ib,
                                   fb->repeat == 0, (size_t)run);
    }
    add_row(w, scores, products, SYNTHETIC_OUTER, n);
}

/* Masks the scores of masked keys. */
static void synthetic_mask_scores(const struct synthetic_walk *w, float *scores,
                                  int64_t from, int64_t to)
{
    const float masked = w->stream.linear ? 0.0f : -INFINITY;
    for (int64_t j = from; j < to; j++)
        scores[j] = masked;
}

/* The end of the keys that row `row` of the block may see. */
static int64_t synthetic_end(const struct synthetic_walk *w, int64_t row)
{
    const struct attn_sizes *z = &w->s->sizes;
    return z->causal ? max64(0, min64(z->kv_len, w->row + row + z->offset + 1))
                     : z->kv_len;
}

static void finish_row(const struct synthetic_walk *w, float *scores, int64_t row,
                       int64_t from, int64_t to)
{
    const struct attn_kernels *kernels = w->stream.kernels;
    const struct synthetic_state *s = w->s;
    const int64_t query = w->row + row, key = w->first + from, n = to - from;
    if (has(s, SYNTHETIC_RANDOM))
        add_row(w, scores,
                input(w, SYNTHETIC_R) + w->head * s->r_head + query * s->r_row + key,
                SYNTHETIC_RANDOM, n);
    if (has(s, SYNTHETIC_OUTER))
        add_outer(w, scores, query, key, n);
    if (w->biased)
        kernels->add_mask_f32(scores, w->bias + from, (size_t)n);
    for (int64_t j = 0; w->mask != NULL && w->stream.linear && j < n; j++)
        scores[j] = w->mask[from + j] != 0 ? scores[j] : 0.0f;
    synthetic_mask_scores(w, scores, max64(0, min64(n, synthetic_end(w, row) - key)), n);
}

static void finish_scores(void *arg, float *scores, int64_t row, int64_t rows,
                          int64_t from, int64_t to)
{
    const struct synthetic_walk *w = arg;
    const unsigned added = 1u << SYNTHETIC_RANDOM | 1u << SYNTHETIC_OUTER;
    if ((w->s->kinds & added) == 0 && !w->biased && w->mask == NULL &&
        synthetic_end(w, row) >= w->first + to)
        return;
    for (int64_t r = 0; r < rows; r++)
        finish_row(w, scores + r * ATTN_STREAM_SCORES, row + r, from, to);
}

static void synthetic_run_tile(struct synthetic_walk *w, int64_t last)
{
    struct attn_keys tile = { .n = min64(KEYS, last - w->first) };
    find_keys(w, &tile);
    find_values(w, &tile);
    find_bias(w, tile.n);
    attn_stream_pack(&w->stream, &tile);
    for (int64_t row = 0; row < w->stream.n; row += ROWS) {
        const int64_t rows = min64(ROWS, w->stream.n - row);
        const int64_t to = min64(tile.n, synthetic_end(w, row + rows - 1) - w->first);
        attn_stream_rows(&w->stream, &tile, row, rows, 0, to, finish_scores, w);
    }
}

static void synthetic_store(struct synthetic_walk *w)
{
    const struct attn_sizes *z = &w->s->sizes;
    struct attn_stream *stream = &w->stream;
    float *y = w->step->y[0].data;
    y += w->b * z->y.batch + w->head * z->y.head + w->row * z->y.row;
    for (int64_t r = 0; r < stream->n; r++)
        stream->state[r].factor =
            stream->state[r].sum == 0.0f ? 0.0f : 1.0f / stream->state[r].sum;
    for (int64_t i = 0; i < w->samples; i++, y += z->y.batch)
        stream->kernels->scale_rows_f32(y, z->y.row, stream->sums + i * z->v_dim,
                                        stream->v_dim, (size_t)stream->n,
                                        (size_t)z->v_dim, &stream->state->factor,
                                        sizeof *stream->state / sizeof(float));
}

static attn_status run_task(const attnrun_step *step, const attnrun_work *work,
                            int64_t task)
{
    const struct synthetic_args *args = step->args;
    const struct synthetic_state *s = step->state;
    struct synthetic_walk w = { .step = step, .s = s };
    const struct op_task at = op_task_at(task, s->sizes.q_heads, s->blocks);
    w.row = at.block * s->block;
    w.head = at.head;
    w.b = at.b * s->samples;
    w.samples = min64(s->samples, s->sizes.batch - w.b);
    w.keys = op_slot_floats(work->scratch, s->keys_at);
    w.values = op_slot_floats(work->scratch, s->values_at);
    attn_stream_begin(&w.stream, step->kernels, s->block, s->inner,
                      w.samples * s->sizes.v_dim, work->scratch);
    w.stream.linear = args->normalize == 0;
    attn_stream_reset(&w.stream, min64(s->block, s->sizes.q_len - w.row));
    find_coefficients(&w);
    synthetic_load(&w);
    const int64_t last = synthetic_end(&w, w.stream.n - 1);
    for (w.first = 0; w.first < last; w.first += KEYS) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        synthetic_run_tile(&w, last);
    }
    synthetic_store(&w);
    return ATTNRUN_OK;
}

attn_status attn_synthetic_run(const attnrun_step *step, const attnrun_work *work)
{
    for (int64_t task = work->begin; task < work->end; task++)
        TRY(run_task(step, work, task));
    return ATTNRUN_OK;
}
