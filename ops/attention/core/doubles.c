/* doubles.c - computes attention of doubles with loops and without vectors. doubles.h
 * describes the operands and the cost. */
#include "doubles.h"

#include <math.h>

#include "../../tile.h"

enum { ROWS = 32, KEYS = 64 };

struct doubles_row {
    double max, sum;
};

struct doubles_block {
    const struct attn_sdpa *s;
    const struct attn_doubles *o;
    const struct attn_kernels *kernels;
    int64_t b, head, first, n; /* queries first … first + n - 1 */
    int64_t offset, len;       /* position of query 0; keys of this sample */
    struct doubles_row *rows;
    double *sums, *scores; /* (ROWS, v_dim), (KEYS) */
};

/* Plans blocks of queries, their cost and scratch. There are no tasks for an empty
 * result. */
static attn_status plan_blocks(const attnrun_step *step, struct attn_sdpa *s)
{
    int64_t sums;
    s->blocks = s->parts = 1;
    s->n_tasks = 0;
    attn_sdpa_limit_window(s);
    if (s->batch == 0 || s->q_heads == 0 || s->q_len == 0)
        return ATTNRUN_OK;
    s->heads = s->q_heads;
    s->block = min64(ROWS, s->q_len);
    s->blocks = ceil_div(s->q_len, s->block);
    if (!op_grid_tasks(s->batch, s->heads, s->blocks, &s->n_tasks) ||
        !ck_mul(ROWS, s->v_dim, &sums) || !ck_add(sums, 2 * ROWS + KEYS, &sums) ||
        !ck_mul(sums, (int64_t)sizeof(double), &s->scratch_bytes))
        return op_fail_scratch(step);
    const double cost = (double)s->block * (double)s->kv_len *
                        ((double)s->head_dim + (double)s->v_dim + 32);
    s->task_cost = op_ns(cost + 500);
    return ATTNRUN_OK;
}

attn_status attn_doubles_plan(attnrun_step *step, struct attn_sdpa *s, int phase,
                              bool wanted)
{
    TRY(plan_blocks(step, s));
    op_tasks(step, phase, wanted ? s->n_tasks : 0, s->task_cost);
    op_tasks(step, phase + 1, 0, 0);
    if (s->n_tasks == 0)
        return ATTNRUN_OK;
    step->scratch_bytes = s->scratch_bytes;
    op_flops(step, 2.0 * (double)s->batch * (double)s->q_heads * (double)s->q_len *
                       (double)s->kv_len * (double)(s->head_dim + s->v_dim));
    return ATTNRUN_OK;
}

/* Key or value j of the block's head. */
static const double *token_at(const struct doubles_block *t, int64_t j, bool value)
{
    const struct attn_sdpa *s = t->s;
    const bool past = j < s->past_len;
    const struct attn_heads *at =
        value ? (past ? &s->past_v : &s->v) : (past ? &s->past_k : &s->k);
    const double *from =
        value ? (past ? t->o->past_v : t->o->v) : (past ? t->o->past_k : t->o->k);
    return from + t->b * at->batch + t->head / (s->q_heads / s->kv_heads) * at->head +
           (j - (past ? 0 : s->past_len)) * at->row;
}

/* What the mask adds for query i and key j < mask_len. */
static double added(const struct doubles_block *t, int64_t i, int64_t j)
{
    const struct attn_heads *at = &t->s->mask;
    const attnrun_tensor *mask = t->o->mask;
    const int64_t k =
        t->b * at->batch + t->head * at->head + i * at->row + (t->s->mask_one ? 0 : j);
    switch (mask->dtype) {
    case ATTNRUN_BOOL:
        return ((const uint8_t *)mask->data)[k] != 0 ? 0.0 : (double)-INFINITY;
    case ATTNRUN_F64:
        return ((const double *)mask->data)[k];
    case ATTNRUN_F32:
        return (double)((const float *)mask->data)[k];
    default:
        return (double)tensor_get_int(mask, k);
    }
}

/* Adds the mask to a score; what gets -infinity is masked, whatever its score is. */
static double masked(const struct doubles_block *t, double score, int64_t i, int64_t j)
{
    if (t->o->mask == NULL)
        return score;
    const double x = added(t, i, j);
    return x == (double)-INFINITY ? x : score + x;
}

static double *scores_out(const struct doubles_block *t, int64_t i)
{
    const struct attn_sdpa *s = t->s;
    return t->o->scores == NULL
               ? NULL
               : t->o->scores +
                     ((t->b * s->q_heads + t->head) * s->q_len + i) * s->kv_len;
}

/* The score of query i and key j that the softmax takes, from their product. */
static double score_of(const struct doubles_block *t, double score, int64_t i, int64_t j,
                       bool seen)
{
    const struct attn_sdpa *s = t->s;
    double stages[ATTN_SCORES_SOFTMAX + 1], *out = scores_out(t, i);
    score *= t->o->scale;
    stages[ATTN_SCORES_RAW] = score;
    if (s->softcap > 0)
        score = (double)s->softcap * tanh(score / (double)s->softcap);
    stages[ATTN_SCORES_CAPPED] = score;
    score = seen ? masked(t, score, i, j) : (double)-INFINITY;
    stages[ATTN_SCORES_BIASED] = stages[ATTN_SCORES_SOFTMAX] = score;
    if (out != NULL)
        out[j] = stages[s->scores_mode];
    return score;
}

/* Replaces the scores of a tile's keys by weights, and updates the row's state. */
static void doubles_softmax(struct doubles_row *row, double *scores, int64_t n,
                            double *sums, int64_t v_dim)
{
    double max = row->max, sum = 0;
    for (int64_t j = 0; j < n; j++)
        if (!(scores[j] <= max)) /* NaN too */
            max = scores[j];
    const double factor = max == row->max ? 1 : exp(row->max - max);
    for (int64_t j = 0; j < n; j++) {
        scores[j] = scores[j] == (double)-INFINITY ? 0 : exp(scores[j] - max);
        sum += scores[j];
    }
    for (int64_t d = 0; factor != 1 && d < v_dim; d++)
        sums[d] *= factor;
    *row = (struct doubles_row){ max, row->sum * factor + sum };
}

/* Computes query i with keys first … end - 1, which lie in one segment. */
static void doubles_run_row(const struct doubles_block *t, int64_t i, int64_t first,
                            int64_t end)
{
    const struct attn_sdpa *s = t->s;
    const double *q = t->o->q + t->b * s->q.batch + t->head * s->q.head + i * s->q.row;
    double *sums = t->sums + (i - t->first) * s->v_dim;
    int64_t from, to;
    attn_sdpa_keys(s, t->offset + i, t->len, &from, &to);
    if (t->o->scores == NULL) {
        first = first > from ? first : from;
        end = min64(end, to);
    }
    if (end <= first)
        return;
    t->kernels->dot_rows_f64(t->scores, q, token_at(t, first, false),
                             first < s->past_len ? s->past_k.row : s->k.row,
                             (size_t)(end - first), (size_t)s->head_dim);
    for (int64_t j = first; j < end; j++)
        t->scores[j - first] =
            score_of(t, t->scores[j - first], i, j, j >= from && j < to);
    doubles_softmax(&t->rows[i - t->first], t->scores, end - first, sums, s->v_dim);
    t->kernels->sum_rows_f64(sums, t->scores, token_at(t, first, true),
                             first < s->past_len ? s->past_v.row : s->v.row,
                             (size_t)(end - first), (size_t)s->v_dim);
}

/* Divides the sums by their total, which gives Y; a row without keys is zeros. */
static void finish_row(const struct doubles_block *t, int64_t i)
{
    const struct attn_sdpa *s = t->s;
    const struct doubles_row *row = &t->rows[i - t->first];
    const double *sums = t->sums + (i - t->first) * s->v_dim;
    double *y = t->o->y + t->b * s->y.batch + t->head * s->y.head + i * s->y.row;
    double *out = scores_out(t, i);
    for (int64_t d = 0; d < s->v_dim; d++)
        y[d] = row->sum == 0 ? 0 : sums[d] / row->sum;
    for (int64_t j = 0;
         out != NULL && s->scores_mode == ATTN_SCORES_SOFTMAX && j < s->kv_len; j++)
        out[j] = row->sum == 0 ? 0 : exp(out[j] - row->max) / row->sum;
}

static void find_length(struct doubles_block *t)
{
    const struct attn_sdpa *s = t->s;
    t->offset = s->past_len;
    t->len = s->kv_len;
    if (t->o->lens == NULL)
        return;
    const int64_t limit = INT64_C(1) << 48, given = tensor_get_int(t->o->lens, t->b);
    const int64_t len = given < -limit ? -limit : min64(given, limit);
    t->len = len < 0 ? 0 : min64(len, s->kv_len);
    t->offset = len - s->q_len;
}

attn_status attn_doubles_run(const struct attn_sdpa *s,
                             const struct attn_kernels *kernels,
                             const struct attn_doubles *o, int64_t task,
                             const attnrun_work *work)
{
    struct doubles_block t = {
        .s = s, .o = o, .kernels = kernels, .rows = work->scratch
    };
    const struct op_task at = op_task_at(task, s->heads, s->blocks);
    t.first = at.block * s->block;
    t.head = at.head;
    t.b = at.b;
    t.n = min64(s->block, s->q_len - t.first);
    t.scores = (double *)(void *)(t.rows + ROWS);
    t.sums = t.scores + KEYS;
    find_length(&t);
    memset(t.sums, 0, (size_t)(t.n * s->v_dim) * sizeof *t.sums);
    for (int64_t i = 0; i < t.n; i++)
        t.rows[i] = (struct doubles_row){ .max = (double)-INFINITY };
    for (int64_t first = 0, end; first < s->kv_len; first = end) {
        end = min64(first + KEYS, first < s->past_len ? s->past_len : s->kv_len);
        for (int64_t i = t.first; i < t.first + t.n; i++) {
            if (OP_CANCELLED_AFTER(work, 8 * (end - first) * (s->head_dim + s->v_dim)))
                return ATTNRUN_E_CANCELLED;
            doubles_run_row(&t, i, first, end);
        }
    }
    for (int64_t i = t.first; i < t.first + t.n; i++)
        finish_row(&t, i);
    return ATTNRUN_OK;
}
