/* sinkhorn_sort.c - chooses the buckets of keys that each bucket of queries of
 * SinkhornAttention sees.
 *
 * In: queries and keys, or logits that are given. Out, in shared memory: for each bucket
 * of queries the columns with the largest logits and their weights, or a balanced matrix
 * over all columns. Cost: one pass over queries and keys, 2 n m dim FLOPs, and iters n m
 * terms for the balanced matrix. Source: Tay 2020, arXiv:2002.11296. */
#include "sinkhorn.h"

#include <float.h>
#include <math.h>

#include "../../kernels/kernels.h"
#include "../../tile.h"

enum { SUMMED = 32 /* rows at one time */ };

/* Appends n rows of m floats. */
static bool sinkhorn_sort_place(int64_t *end, int64_t n, int64_t m)
{
    int64_t at;
    return op_slot_rows(&at, end, n, m, sizeof(float));
}

int64_t attn_sinkhorn_sort_bytes(const struct sinkhorn_state *s)
{
    const size_t gemm =
        attn_gemm_scratch(SINKHORN_ROWS, (size_t)s->columns, (size_t)s->sizes.dim);
    int64_t end = 0;
    /* Two sums in double, of queries, of keys; rows of logits. */
    int64_t means;
    bool fits = sinkhorn_sort_place(&end, 4, s->sizes.dim) &&
                ck_add(s->rows, s->columns, &means) &&
                ck_mul(means, s->together, &means) &&
                sinkhorn_sort_place(&end, means, s->sizes.dim) &&
                sinkhorn_sort_place(&end, SINKHORN_ROWS, s->columns) &&
                sinkhorn_sort_place(&end, 1, s->columns) &&
                sinkhorn_sort_place(&end, 1, (int64_t)gemm);
    return fits ? end : -1;
}

struct sort {
    const attnrun_step *step;
    const struct sinkhorn_state *s;
    int64_t b, h;         /* sample, the head in work */
    int64_t heads, apart; /* heads in turns; from the means of one to the next */
    double *sum, *total;  /* (dim) each */
    float *q, *k;         /* (rows, dim), (columns, dim) of the head */
    float *logits, *row;  /* (ROWS, columns), (columns) */
    float *gemm;
};

/* out = the mean of n tokens from `first` on. */
static void mean(const struct sort *t, float *out, const float *x, int64_t row,
                 int64_t first, int64_t n)
{
    const int64_t dim = t->s->sizes.dim;
    memset(t->sum, 0, (size_t)dim * sizeof *t->sum);
    const int64_t bytes = min64(SUMMED, n) * dim * (int64_t)sizeof *x;
    for (int64_t i = first; i < first + n && attn_poll_work(bytes) == ATTNRUN_OK;
         i += SUMMED)
        t->step->kernels->add_rows_f32(t->sum, x + i * row, row,
                                       (size_t)min64(SUMMED, first + n - i), (size_t)dim);
    for (int64_t d = 0; d < dim; d++)
        out[d] = (float)(t->sum[d] / (double)n);
}

/* Computes the means of the buckets of `n` tokens of several heads, in turns, because
 * their rows lie side by side. The means of head i are i * apart floats after those of
 * the first. */
static void means(const struct sort *t, float *out, const float *x,
                  const struct attn_heads *rows, int64_t buckets, int64_t n)
{
    const struct sinkhorn_state *s = t->s;
    for (int64_t u = 0; u < buckets; u++)
        for (int64_t i = 0; i < t->heads; i++)
            mean(t, out + i * t->apart + u * s->sizes.dim, x + i * rows->head, rows->row,
                 u * n, n);
}

/* Computes running means: the mean up to the first query of a bucket, and the sum of the
 * means up to its keys. */
static void running_means(const struct sort *t, const float *q, const float *k)
{
    const struct sinkhorn_state *s = t->s;
    const int64_t dim = s->sizes.dim, block = s->block;
    memset(t->k, 0, (size_t)(s->nulls * dim) * sizeof *t->k);
    for (int which = 0; which < 2; which++) {
        const float *x = which == 0 ? q : k;
        const int64_t row = which == 0 ? s->sizes.q.row : s->sizes.k.row;
        memset(t->sum, 0, (size_t)dim * sizeof *t->sum);
        for (int64_t n = 0; n < s->sizes.q_len && attn_poll_work(dim * 16) == ATTNRUN_OK;
             n++) {
            const float *token = x + sinkhorn_token(s, t->h, n) * row;
            const double scale = 1.0 / (double)(n + 1);
            if (n % block == 0)
                memset(t->total, 0, (size_t)dim * sizeof *t->total);
            for (int64_t d = 0; d < dim; d++) {
                t->sum[d] += (double)token[d];
                t->total[d] += t->sum[d] * scale;
            }
            float *out =
                which == 0 ? t->q + n / block * dim : t->k + (s->nulls + n / block) * dim;
            if (which == 0 ? n % block == 0 : n % block == block - 1)
                for (int64_t d = 0; d < dim; d++)
                    out[d] = (float)t->total[d];
        }
    }
}

/* Computes n rows of logits from `row` on. */
static void make_logits(const struct sort *t, float *logits, int64_t row, int64_t n)
{
    const struct sinkhorn_state *s = t->s;
    const int64_t dim = s->sizes.dim;
    const struct attn_epilogue scale = { .kind = ATTN_EPI_SCALE,
                                         .alpha = 1.0f / sqrtf((float)dim) };
    if (op_has_in(t->step, SINKHORN_LOGITS)) {
        const float *given = t->step->x[SINKHORN_LOGITS].data;
        const int64_t at =
            ((t->b * s->sizes.q_heads + t->h) * s->rows + row) * s->columns;
        memcpy(logits, given + at, (size_t)(n * s->columns) * sizeof *logits);
        return;
    }
    t->step->kernels->gemm_f32(&(struct attn_gemm_f32){ .a = t->q + row * dim,
                                                        .a_row = dim,
                                                        .b = t->k,
                                                        .b_row = 1,
                                                        .b_col = dim,
                                                        .c = logits,
                                                        .c_row = s->columns,
                                                        .m = (size_t)n,
                                                        .n = (size_t)s->columns,
                                                        .k = (size_t)dim,
                                                        .epilogue = &scale,
                                                        .n_epilogue = 1,
                                                        .scratch = t->gemm });
}

/* The index of the first of the largest logits; 0 where none is a number. */
static int64_t largest(const struct sort *t, const float *logits, int64_t n)
{
    const float max = t->step->kernels->reduce_max_f32(logits, (size_t)n);
    int64_t best = 0;
    while (best < n && logits[best] != max)
        best++;
    return best < n ? best : 0;
}

/* Picks for one row, several times, the largest logit, with its probability among those
 * that are left. */
static void pick(const struct sort *t, float *logits, int64_t row, int32_t *index,
                 float *weight)
{
    const struct sinkhorn_state *s = t->s;
    const struct sinkhorn_args *args = t->step->args;
    const struct attn_kernels *kernels = t->step->kernels;
    const int64_t n = s->nulls > 0 ? min64(s->columns, row + s->nulls) : s->columns;
    for (int64_t i = 0; i < s->picks; i++) {
        if (attn_poll_work(n * 8) != ATTNRUN_OK)
            return;
        const int64_t best = largest(t, logits, n);
        kernels->scale_shift_f32(t->row, logits, (size_t)n, logits[best],
                                 fminf(1.0f / args->temperature, FLT_MAX), 0.0f);
        kernels->softmax_f32(t->row, t->row, (size_t)n, 0);
        index[i] = (int32_t)best;
        weight[i] = t->row[best];
        logits[best] = -INFINITY;
    }
}

/* r -= log of the sum of exp(r) over n elements `step` apart. False: the call is to end. */
static bool normalize(float *r, int64_t n, int64_t step)
{
    double sum = 0;
    float max = -INFINITY;
    if (attn_poll_work(n * 16) != ATTNRUN_OK)
        return false;
    for (int64_t i = 0; i < n; i++)
        max = fmaxf(max, r[i * step]);
    for (int64_t i = 0; i < n; i++)
        sum += (double)expf(r[i * step] - max);
    const float shift = max + (float)log(sum);
    for (int64_t i = 0; i < n; i++)
        r[i * step] -= shift;
    return true;
}

static void balance(const struct sort *t, float *p, int32_t *best)
{
    const struct sinkhorn_state *s = t->s;
    const struct sinkhorn_args *args = t->step->args;
    const int64_t rows = s->rows, columns = s->columns;
    const float *gumbel = NULL;
    if (op_has_in(t->step, SINKHORN_GUMBEL)) {
        const int64_t sample = t->step->x[SINKHORN_GUMBEL].dims[0] == 1 ? 0 : t->b;
        gumbel = (const float *)t->step->x[SINKHORN_GUMBEL].data +
                 (sample * s->sizes.q_heads + t->h) * rows * columns;
    }
    for (int64_t i = 0; i < rows * columns && !attn_stops(i); i++) {
        const float x = logf((p[i] < 0 ? 0 : p[i]) + 1e-6f); /* NaN stays */
        p[i] = (x + (gumbel != NULL ? gumbel[i] : 0)) / args->temperature;
    }
    for (int64_t n = 0; n < args->iters; n++) {
        for (int64_t u = 0; u < rows; u++)
            if (!normalize(p + u * columns, columns, 1))
                return;
        for (int64_t v = 0; v < columns; v++)
            if (!normalize(p + v, rows, columns))
                return;
    }
    for (int64_t i = 0; i < rows * columns && !attn_stops(i); i++)
        p[i] = expf(p[i]);
    for (int64_t u = 0; u < rows; u++) {
        best[u] = 0;
        for (int64_t v = 1; v < columns; v++)
            if (p[u * columns + v] > p[u * columns + best[u]])
                best[u] = (int32_t)v;
    }
}

static void *sinkhorn_sort_take(char **at, int64_t floats)
{
    void *found = *at;
    *at += round_up(floats * (int64_t)sizeof(float), 64);
    return found;
}

/* Computes the logits of a head, and its picks or balanced matrix. */
static void sort_head(const struct sort *t, char *shared, int64_t head)
{
    const struct sinkhorn_state *s = t->s;
    int32_t *index = (int32_t *)(void *)(shared + s->index_at);
    float *weight = (float *)(void *)(shared + s->weight_at);
    weight += head * s->rows * (s->balanced ? s->columns : s->picks);
    index += head * s->rows * (s->balanced ? 1 : s->picks);
    for (int64_t row = 0; row < s->rows; row += SINKHORN_ROWS) {
        const int64_t n = min64(SINKHORN_ROWS, s->rows - row);
        float *logits = s->balanced ? weight + row * s->columns : t->logits;
        make_logits(t, logits, row, n);
        for (int64_t i = 0; i < n && !s->balanced; i++)
            pick(t, logits + i * s->columns, row + i, index + (row + i) * s->picks,
                 weight + (row + i) * s->picks);
    }
    if (s->balanced)
        balance(t, weight, index);
}

void attn_sinkhorn_sort(const attnrun_step *step, const attnrun_work *work, int64_t task,
                        int64_t heads)
{
    const struct sinkhorn_state *s = step->state;
    const struct attn_sizes *z = &s->sizes;
    const bool given = op_has_in(step, SINKHORN_LOGITS);
    const struct op_task head = op_task_at(task, z->q_heads, 1);
    struct sort t = { .step = step,
                      .s = s,
                      .b = head.b,
                      .h = head.head,
                      .heads = heads,
                      .apart = (s->rows + s->columns) * z->dim };
    char *at = work->scratch;
    t.sum = sinkhorn_sort_take(&at, 4 * z->dim);
    t.total = t.sum + z->dim;
    t.q = sinkhorn_sort_take(&at, heads * t.apart);
    t.k = t.q + s->rows * z->dim;
    t.logits = sinkhorn_sort_take(&at, SINKHORN_ROWS * s->columns);
    t.row = sinkhorn_sort_take(&at, s->columns);
    t.gemm = (float *)(void *)at;
    const float *q =
        (const float *)step->x[SINKHORN_Q].data + t.b * z->q.batch + t.h * z->q.head;
    const float *k =
        (const float *)step->x[SINKHORN_K].data + t.b * z->k.batch + t.h * z->k.head;
    if (s->columns == 0)
        return;
    if (!given && !z->causal) {
        means(&t, t.q, q, &z->q, s->rows, s->shared ? z->q_len : s->block);
        means(&t, t.k, k, &z->k, s->columns, s->kv_block);
    }
    for (int64_t i = 0; i < heads; i++, t.h++, t.q += t.apart, t.k += t.apart) {
        if (!given && z->causal)
            running_means(&t, q + i * z->q.head, k + i * z->k.head);
        sort_head(&t, work->shared, task + i);
    }
}
