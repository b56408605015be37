/* sinkhorn_sort.c - which buckets of keys a bucket of queries gets: logits of pairs of
 * buckets, and the largest of them or a balanced matrix. */
#include "sinkhorn.h"

#include <math.h>

#include "../kernels/kernels.h"

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static bool place(int64_t *end, int64_t n, int64_t m)
{
    int64_t bytes;
    return ck_mul(n, m, &bytes) && ck_mul(bytes, (int64_t)sizeof(float), &bytes) &&
           ck_add(*end, bytes, end) && ck_align(*end, 64, end);
}

int64_t attn_sinkhorn_sort_bytes(const struct sinkhorn_state *s)
{
    const size_t gemm =
        attn_gemm_scratch(SINKHORN_ROWS, (size_t)s->columns, (size_t)s->sizes.dim);
    int64_t end = 0;
    /* Two sums in double, of queries, of keys; rows of logits. */
    bool fits = place(&end, 4, s->sizes.dim) && place(&end, s->rows, s->sizes.dim) &&
                place(&end, s->columns, s->sizes.dim) &&
                place(&end, SINKHORN_ROWS, s->columns) && place(&end, 1, (int64_t)gemm);
    return fits ? end : -1;
}

struct sort {
    const attnrun_step *step;
    const struct sinkhorn_state *s;
    int64_t b, h;
    double *sum, *total;  /* (dim) each */
    float *q, *k;         /* (rows, dim), (columns, dim) */
    float *logits, *gemm; /* (ROWS, columns) */
};

/* out = the mean of n tokens from `first` on. */
static void mean(const struct sort *t, float *out, const float *x, int64_t row,
                 int64_t first, int64_t n)
{
    const int64_t dim = t->s->sizes.dim;
    const float scale = 1.0f / (float)n;
    memset(out, 0, (size_t)dim * sizeof *out);
    for (int64_t i = first; i < first + n; i++)
        t->step->kernels->add_f32(out, out, 1, x + i * row, 1, (size_t)dim);
    t->step->kernels->mul_f32(out, out, 1, &scale, 0, (size_t)dim);
}

static void means(const struct sort *t, const float *q, const float *k)
{
    const struct sinkhorn_state *s = t->s;
    const int64_t dim = s->sizes.dim, block = s->shared ? s->sizes.q_len : s->block;
    for (int64_t u = 0; u < s->rows; u++)
        mean(t, t->q + u * dim, q, s->sizes.q.row, u * block, block);
    for (int64_t v = 0; v < s->columns; v++)
        mean(t, t->k + v * dim, k, s->sizes.k.row, v * s->kv_block, s->kv_block);
}

/* Running means: that of the first query of a bucket; the sum of those of its keys. */
static void running_means(const struct sort *t, const float *q, const float *k)
{
    const struct sinkhorn_state *s = t->s;
    const int64_t dim = s->sizes.dim, block = s->block;
    memset(t->k, 0, (size_t)(s->nulls * dim) * sizeof *t->k);
    for (int which = 0; which < 2; which++) {
        const float *x = which == 0 ? q : k;
        const int64_t row = which == 0 ? s->sizes.q.row : s->sizes.k.row;
        memset(t->sum, 0, (size_t)dim * sizeof *t->sum);
        for (int64_t n = 0; n < s->sizes.q_len; n++) {
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

/* n rows of logits from `row` on. */
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

/* The picks of one row: the largest logit, with its probability among those that are
 * left, again and again. */
static void pick(const struct sort *t, float *logits, int64_t row, int32_t *index,
                 float *weight)
{
    const struct sinkhorn_state *s = t->s;
    const struct sinkhorn_args *args = t->step->args;
    const int64_t n = s->nulls > 0 ? least(s->columns, row + s->nulls) : s->columns;
    for (int64_t i = 0; i < s->picks; i++) {
        int64_t best = 0;
        double sum = 0;
        for (int64_t c = 1; c < n; c++)
            best = logits[c] > logits[best] ? c : best;
        for (int64_t c = 0; c < n; c++)
            sum += (double)expf((logits[c] - logits[best]) / args->temperature);
        index[i] = (int32_t)best;
        weight[i] = (float)(1.0 / sum);
        logits[best] = -INFINITY;
    }
}

/* r -= log of the sum of exp(r) over n elements `step` apart. */
static void normalize(float *r, int64_t n, int64_t step)
{
    double sum = 0;
    float most = -INFINITY;
    for (int64_t i = 0; i < n; i++)
        most = fmaxf(most, r[i * step]);
    for (int64_t i = 0; i < n; i++)
        sum += (double)expf(r[i * step] - most);
    const float shift = most + (float)log(sum);
    for (int64_t i = 0; i < n; i++)
        r[i * step] -= shift;
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
    for (int64_t i = 0; i < rows * columns; i++) {
        const float x = logf((p[i] > 0 ? p[i] : 0) + 1e-6f);
        p[i] = (x + (gumbel != NULL ? gumbel[i] : 0)) / args->temperature;
    }
    for (int64_t n = 0; n < args->iters; n++) {
        for (int64_t u = 0; u < rows; u++)
            normalize(p + u * columns, columns, 1);
        for (int64_t v = 0; v < columns; v++)
            normalize(p + v, rows, columns);
    }
    for (int64_t i = 0; i < rows * columns; i++)
        p[i] = expf(p[i]);
    for (int64_t u = 0; u < rows; u++) {
        best[u] = 0;
        for (int64_t v = 1; v < columns; v++)
            if (p[u * columns + v] > p[u * columns + best[u]])
                best[u] = (int32_t)v;
    }
}

static void *take(char **at, int64_t floats)
{
    void *found = *at;
    *at += (floats * (int64_t)sizeof(float) + 63) / 64 * 64;
    return found;
}

void attn_sinkhorn_sort(const attnrun_step *step, const attnrun_work *work, int64_t task)
{
    const struct sinkhorn_state *s = step->state;
    const struct attn_sizes *z = &s->sizes;
    struct sort t = {
        .step = step, .s = s, .b = task / z->q_heads, .h = task % z->q_heads
    };
    char *at = work->scratch, *shared = work->shared;
    t.sum = take(&at, 4 * z->dim);
    t.total = t.sum + z->dim;
    t.q = take(&at, s->rows * z->dim);
    t.k = take(&at, s->columns * z->dim);
    t.logits = take(&at, SINKHORN_ROWS * s->columns);
    t.gemm = (float *)(void *)at;
    int32_t *index = (int32_t *)(void *)(shared + s->index_at);
    float *weight = (float *)(void *)(shared + s->weight_at);
    const float *q =
        (const float *)step->x[SINKHORN_Q].data + t.b * z->q.batch + t.h * z->q.head;
    const float *k =
        (const float *)step->x[SINKHORN_K].data + t.b * z->k.batch + t.h * z->k.head;
    if (s->columns == 0)
        return;
    if (!op_has_in(step, SINKHORN_LOGITS) && z->causal)
        running_means(&t, q, k);
    else if (!op_has_in(step, SINKHORN_LOGITS))
        means(&t, q, k);
    weight += task * s->rows * (s->balanced ? s->columns : s->picks);
    index += task * s->rows * (s->balanced ? 1 : s->picks);
    for (int64_t row = 0; row < s->rows; row += SINKHORN_ROWS) {
        const int64_t n = least(SINKHORN_ROWS, s->rows - row);
        float *logits = s->balanced ? weight + row * s->columns : t.logits;
        make_logits(&t, logits, row, n);
        for (int64_t i = 0; i < n && !s->balanced; i++)
            pick(&t, logits + i * s->columns, row + i, index + (row + i) * s->picks,
                 weight + (row + i) * s->picks);
    }
    if (s->balanced)
        balance(&t, weight, index);
}
