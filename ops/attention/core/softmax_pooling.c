/* softmax_pooling.c - computes weighted sums of tokens. softmax_pooling.h describes the
 * operands and the cost. */
#include "softmax_pooling.h"
#include "heads.h"
#include "softmax_row.h"

#include "../../matmul/gemm.h"
#include "../../tile.h"

#include <math.h>

enum {
    PART_NS = 100000,
    FEW_TASKS = 8,        /* fewer are cut into parts */
    MAX_PARTS = 64,       /* of all tasks together */
    MAX_SHARED = 1 << 18, /* floats of their results */
    KEPT_FLOATS = 1 << 15 /* of tokens that are copied together */
};

int64_t attn_pooling_tile(int64_t floats_per_token)
{
    const int64_t floats = 1 << 17; /* half a megabyte */
    int64_t tile = floats / max64(1, floats_per_token) / 16 * 16;
    return max64(32, min64(tile, ATTN_POOLING_TILE));
}

/* ---- plan ---- */

static int64_t value_rows(const struct attn_pooling *w)
{
    return w->v_head == 0 ? w->block : 1;
}

static int64_t pooling_gemm_floats(const struct attn_pooling *w)
{
    return round_up((int64_t)attn_gemm_scratch((size_t)value_rows(w), (size_t)w->v_dim,
                                               (size_t)w->tile),
                    16);
}

/* The floats of a token that rows sum. */
static int64_t token_floats(const struct attn_pooling *w)
{
    return w->v_head == 0 ? w->v_dim : w->rows * w->v_head;
}

/* The tokens that are copied together, where some of a tile are masked. */
static int64_t kept_tokens(const struct attn_pooling *w)
{
    return min64(w->tile, KEPT_FLOATS / max64(1, token_floats(w)) + 1);
}

/* The floats that a task keeps of a block of rows: their states, then their sums. */
static int64_t state_floats(const struct attn_pooling *w)
{
    return round_up(w->block * (int64_t)(sizeof(struct attn_softmax_row) / sizeof(float)),
                    16);
}

static bool sizes_fit(const struct attn_pooling *w)
{
    const int64_t limit = INT64_C(1) << 40;
    int64_t x;
    return w->block < limit && w->v_dim < limit && w->extra_floats < limit &&
           ck_mul(w->block, w->v_dim + 64, &x) && x < limit &&
           ck_mul(w->block, w->tile, &x) && x < limit && ck_mul(w->rows, w->tokens, &x) &&
           ck_mul(x, max64(1, w->batch), &x) && w->tokens <= INT32_MAX;
}

static void cut_tokens(struct attn_pooling *w, int64_t tasks)
{
    const double cost = w->token_ns * (double)w->tokens;
    int64_t parts = 1;
    if (tasks > 0 && tasks < FEW_TASKS && cost > 2 * PART_NS) {
        parts = (int64_t)fmin(cost / PART_NS, (double)MAX_PARTS);
        parts = min64(parts, MAX_PARTS / tasks);
        parts = min64(parts, MAX_SHARED / (tasks * w->record));
    }
    w->part = ceil_div(ceil_div(w->tokens, max64(1, parts)), w->tile) * w->tile;
    w->part = max64(w->part, w->tile);
    w->parts = max64(1, ceil_div(w->tokens, w->part));
}

attn_status attn_pooling_plan(const attnrun_step *step, struct attn_pooling *w)
{
    int64_t tasks;
    w->block = max64(1, min64(w->block, w->rows));
    w->blocks = ceil_div(w->rows, w->block);
    if (!sizes_fit(w) || !ck_mul(w->batch, w->blocks, &tasks) ||
        tasks > INT64_MAX / MAX_PARTS)
        return op_fail_scratch(step);
    w->record = state_floats(w) + round_up(w->block * w->v_dim, 16);
    cut_tokens(w, tasks);
    w->n_tasks = tasks * w->parts;
    w->task_cost = op_ns(w->token_ns * (double)min64(w->part, w->tokens));
    w->task_cost += 200 + w->block * w->v_dim / 16;
    w->n_merges = w->parts > 1 ? tasks : 0;
    w->merge_cost = 200 + w->parts * w->block * w->v_dim / 4;
    w->scratch_bytes =
        (w->record + round_up(w->block * w->tile, 16) + pooling_gemm_floats(w) +
         round_up(w->extra_floats, 16) + kept_tokens(w) * token_floats(w)) *
        (int64_t)sizeof(float);
    w->shared_bytes = w->parts > 1 ? w->n_tasks * w->record * (int64_t)sizeof(float) : 0;
    return ATTNRUN_OK;
}

struct attn_pooling_operands attn_pooling_dense(const struct attn_pooling *w,
                                                const float *v, const uint8_t *mask,
                                                float *y, float *weights)
{
    return (struct attn_pooling_operands){ .v = v,
                                           .v_batch = w->tokens * w->v_dim,
                                           .v_row = w->v_dim,
                                           .mask = mask,
                                           .y = y,
                                           .y_batch = w->rows * w->v_dim,
                                           .y_row = w->v_dim,
                                           .weights = weights };
}

void attn_pooling_tasks(attnrun_step *step, const struct attn_pooling *w)
{
    op_tasks(step, 0, w->n_tasks, w->task_cost);
    op_tasks(step, 1, w->n_merges, w->merge_cost);
    step->scratch_bytes = w->scratch_bytes;
    step->shared_bytes = w->shared_bytes;
}

/* ---- a task ---- */

/* The parts of a worker's scratch. */
struct softmax_pooling_place {
    struct attn_softmax_row *state;
    float *sums, *scores, *gemm, *extra; /* behind `extra`: kept tokens */
};

static struct softmax_pooling_place place_of(const struct attn_pooling *w, void *scratch)
{
    struct softmax_pooling_place p = { .state = scratch };
    p.sums = (float *)scratch + state_floats(w);
    p.scores = (float *)scratch + w->record;
    p.gemm = p.scores + round_up(w->block * w->tile, 16);
    p.extra = p.gemm + pooling_gemm_floats(w);
    return p;
}

struct attn_pooling_task attn_pooling_at(const struct attn_pooling *w, int64_t task,
                                         void *scratch)
{
    struct attn_pooling_task t = { .index = task };
    t.from = op_take(&task, w->parts) * w->part;
    t.row = op_take(&task, w->blocks) * w->block;
    t.b = task;
    t.rows = min64(w->block, w->rows - t.row);
    t.to = min64(t.from + w->part, w->tokens);
    t.extra = place_of(w, scratch).extra;
    return t;
}

static bool all_masked(const uint8_t *mask, int64_t n)
{
    int64_t i = 0;
    while (i < n && mask[i] == 0)
        i++;
    return i == n;
}

static void fill_row(float *x, int64_t n, float value)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = value;
}

static float *weights_row(const struct attn_pooling *w,
                          const struct attn_pooling_operands *o,
                          const struct attn_pooling_task *t, int64_t r)
{
    return o->weights + (t->b * w->rows + t->row + r) * w->tokens;
}

/* Sets the scores of masked keys to -inf, or to 0 where scores are weights. */
static void mask_row(const struct attn_pooling *w, const struct attn_kernels *kernels,
                     float *scores, const uint8_t *mask, int64_t n)
{
    if (w->form != ATTN_POOLING_PLAIN) {
        kernels->keep_mask_f32(scores, mask, (size_t)n);
        return;
    }
    for (int64_t j = 0; j < n; j++)
        scores[j] = mask[j] != 0 ? scores[j] : 0.0f;
}

/* Turns scores into weights, up to a factor of the row; earlier sums are rescaled to
 * it. */
static void to_weights(const struct attn_pooling *w, const struct attn_kernels *kernels,
                       const struct softmax_pooling_place *p, int64_t rows, int64_t n)
{
    const float none[2] = { 0.0f, 0.0f };
    if (w->form == ATTN_POOLING_SOFTMAX) {
        kernels->softmax_rows_f32(p->scores, w->tile, (size_t)rows, (size_t)n,
                                  ATTN_TERMS_THAT_COUNT, p->state);
        for (int64_t r = 0; r < rows; r++)
            if (p->state[r].factor != 1.0f)
                kernels->mul_f32(p->sums + r * w->v_dim, p->sums + r * w->v_dim, 1,
                                 &p->state[r].factor, 0, (size_t)w->v_dim);
    }
    for (int64_t r = 0; w->form == ATTN_POOLING_EXP && r < rows; r++) {
        float *s = p->scores + r * w->tile;
        kernels->exp_f32(s, s, (size_t)n, none);
        p->state[r].sum += (float)kernels->sum_f32(s, (size_t)n);
    }
}

/* Adds n values, whose weights are from `at` on. */
static void add_values(const struct attn_pooling *w, const struct attn_kernels *kernels,
                       const struct softmax_pooling_place *p,
                       const struct attn_pooling_task *t, const float *v, int64_t v_row,
                       int64_t at, int64_t n)
{
    const int64_t group = w->v_head == 0 ? t->rows : 1;
    for (int64_t r = 0; r < t->rows; r += group) {
        struct attn_gemm_f32 g = { .a = p->scores + r * w->tile + at,
                                   .a_row = w->tile,
                                   .b = v + (t->row + r) * w->v_head,
                                   .b_row = v_row,
                                   .b_col = 1,
                                   .c = p->sums + r * w->v_dim,
                                   .c_row = w->v_dim,
                                   .m = (size_t)group,
                                   .n = (size_t)w->v_dim,
                                   .k = (size_t)n,
                                   .accumulate = 1,
                                   .scratch = p->gemm };
        kernels->gemm_f32(&g);
    }
}

/* Computes the row's result from its sums, and its weights from its stored scores. */
static void pooling_finish(const struct attn_pooling *w,
                           const struct attn_kernels *kernels,
                           const struct attn_pooling_operands *o,
                           const struct attn_pooling_task *t,
                           const struct attn_softmax_row *state, const float *sums)
{
    for (int64_t r = 0; r < t->rows; r++) {
        const float sum = state[r].sum + w->epsilon;
        const float scale = w->form == ATTN_POOLING_PLAIN ? 1.0f
                            : sum == 0.0f                 ? 0.0f
                                                          : 1.0f / sum;
        float *y = o->y + t->b * o->y_batch + (t->row + r) * o->y_row;
        kernels->mul_f32(y, sums + r * w->v_dim, 1, &scale, 0, (size_t)w->v_dim);
        if (isinf(scale)) /* the sum has no inverse among floats */
            kernels->div_f32(y, sums + r * w->v_dim, 1, &sum, 0, (size_t)w->v_dim);
        if (o->weights == NULL || w->form == ATTN_POOLING_PLAIN)
            continue;
        float *weights = weights_row(w, o, t, r);
        if (sum == 0.0f)
            fill_row(weights, w->tokens, 0.0f);
        else if (w->form == ATTN_POOLING_SOFTMAX)
            kernels->softmax_f32(weights, weights, (size_t)w->tokens, 0);
        else
            kernels->div_f32(weights, weights, 1, &sum, 0, (size_t)w->tokens);
    }
}

static void
pooling_run_tile(const struct attn_pooling *w, const struct attn_kernels *kernels,
                 const struct attn_pooling_operands *o, const struct attn_pooling_task *t,
                 const struct softmax_pooling_place *p, int64_t first, int64_t n)
{
    const uint8_t *mask = o->mask != NULL ? o->mask + t->b * w->tokens + first : NULL;
    const bool masked = mask != NULL && all_masked(mask, n);
    const float nothing = w->form == ATTN_POOLING_SOFTMAX ? -INFINITY : 0.0f;
    for (int64_t r = 0; masked && o->weights != NULL && r < t->rows; r++)
        fill_row(weights_row(w, o, t, r) + first, n, nothing);
    if (masked)
        return;
    o->scores(o->arg, t, p->scores, first, n);
    for (int64_t r = 0; mask != NULL && r < t->rows; r++)
        mask_row(w, kernels, p->scores + r * w->tile, mask, n);
    const bool raw = w->form == ATTN_POOLING_SOFTMAX; /* become weights at the end */
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t r = 0; o->weights != NULL && raw == (pass == 0) && r < t->rows; r++)
            memcpy(weights_row(w, o, t, r) + first, p->scores + r * w->tile,
                   (size_t)n * sizeof(float));
        if (pass == 0)
            to_weights(w, kernels, p, t->rows, n);
    }
    const float *v = o->gathered;
    if (v == NULL)
        v = o->v + t->b * o->v_batch + first * o->v_row;
    float *room = p->extra + round_up(w->extra_floats, 16);
    const bool some = mask != NULL && memchr(mask, 0, (size_t)n) != NULL;
    const int64_t together = some ? kept_tokens(w) : n;
    for (int64_t at = 0; at < n; at += together) {
        const int64_t tokens = min64(together, n - at);
        int64_t row = o->v_row;
        const float *kept = attn_kept_rows(v + at * row, &row, token_floats(w),
                                           some ? mask + at : NULL, tokens, room);
        add_values(w, kernels, p, t, kept, row, at, tokens);
    }
}

attn_status attn_pooling_run(const struct attn_pooling *w,
                             const struct attn_kernels *kernels,
                             const struct attn_pooling_operands *o,
                             const struct attn_pooling_task *t, const attnrun_work *work)
{
    const struct softmax_pooling_place p = place_of(w, work->scratch);
    memset(p.sums, 0, (size_t)(t->rows * w->v_dim) * sizeof *p.sums);
    for (int64_t r = 0; r < t->rows; r++)
        p.state[r] = (struct attn_softmax_row){ .max = -INFINITY };
    for (int64_t first = t->from; first < t->to; first += w->tile) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        pooling_run_tile(w, kernels, o, t, &p, first, min64(w->tile, t->to - first));
    }
    if (w->parts == 1)
        pooling_finish(w, kernels, o, t, p.state, p.sums);
    else
        memcpy((float *)work->shared + t->index * w->record, p.state,
               (size_t)w->record * sizeof(float));
    return ATTNRUN_OK;
}

/* ---- parts ---- */

/* Adds part `x` of a row to the sums `y` of earlier ones. */
static void merge_row(const struct attn_pooling *w, struct attn_softmax_row *to, float *y,
                      const struct attn_softmax_row *from, const float *x)
{
    if (w->form == ATTN_POOLING_SOFTMAX) {
        attn_softmax_row_add(to, y, from, x, w->v_dim);
        return;
    }
    to->sum += from->sum;
    for (int64_t d = 0; d < w->v_dim; d++)
        y[d] += x[d];
}

void attn_pooling_merge(const struct attn_pooling *w, const struct attn_kernels *kernels,
                        const struct attn_pooling_operands *o, int64_t merge,
                        const attnrun_work *work)
{
    const struct attn_pooling_task t =
        attn_pooling_at(w, merge * w->parts, work->scratch);
    const struct softmax_pooling_place p = place_of(w, work->scratch);
    const float *record = (const float *)work->shared + t.index * w->record;
    memcpy(p.state, record, (size_t)w->record * sizeof *record);
    for (int64_t part = 1; part < w->parts; part++) {
        record += w->record;
        const struct attn_softmax_row *state = (const void *)record;
        for (int64_t r = 0; r < t.rows; r++)
            merge_row(w, &p.state[r], p.sums + r * w->v_dim, &state[r],
                      record + state_floats(w) + r * w->v_dim);
    }
    pooling_finish(w, kernels, o, &t, p.state, p.sums);
}

/* ---- logits ---- */

int64_t attn_logits_floats(int64_t tile, int64_t k, int64_t heads)
{
    const int64_t limit = INT64_C(1) << 40;
    int64_t floats;
    if (k > limit || heads > limit || !ck_mul(tile, heads, &floats) || floats > limit)
        return -1;
    return round_up(floats, 16) +
           round_up((int64_t)attn_gemm_scratch((size_t)tile, (size_t)heads, (size_t)k),
                    16);
}

void attn_logits_run(const struct attn_logits *l, const struct attn_kernels *kernels,
                     int64_t n, float *scores, int64_t tile)
{
    struct attn_epilogue steps[3];
    int32_t n_steps = 0;
    if (l->bias != NULL)
        steps[n_steps++] = (struct attn_epilogue){
            .kind = ATTN_EPI_ADD, .alpha = 1.0f, .data = l->bias, .col = 1
        };
    if (l->scale != 1.0f)
        steps[n_steps++] =
            (struct attn_epilogue){ .kind = ATTN_EPI_SCALE, .alpha = l->scale };
    if (l->activation >= 0)
        steps[n_steps++] = (struct attn_epilogue){ .kind = l->activation };
    struct attn_gemm_f32 g = { .a = l->x,
                               .a_row = l->x_row,
                               .b = l->b,
                               .b_row = l->heads,
                               .b_col = 1,
                               .c = l->scratch,
                               .c_row = l->heads,
                               .m = (size_t)n,
                               .n = (size_t)l->heads,
                               .k = (size_t)l->k,
                               .epilogue = steps,
                               .n_epilogue = n_steps,
                               .scratch = l->scratch + round_up(tile * l->heads, 16) };
    if (l->b == NULL)
        attn_gemm_use_weight(&g, l->step, l->in);
    kernels->gemm_f32(&g);
    kernels->transpose_f32(scores, tile, l->scratch, l->heads, (size_t)n,
                           (size_t)l->heads);
}
