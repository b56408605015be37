/* check_sinkhorn_attention.c - SinkhornAttention bucket by bucket. Where logits are not
 * given and a choice is close, its bucket is left out. */
#include "operator_harness.h"

#include <stdlib.h>

struct sinkhorn {
    int64_t batch, heads, q_len, kv_len, dim, v_dim;
    int64_t block, kv_block, top, sortcut, iters;
    bool causal, balanced, keys; /* keys: sorted keys are the values, too */
    float temperature, scale;
    const float *q, *k, *v, *logits, *gumbel, *null_k, *null_v;
    int64_t gumbel_batch;
    const uint8_t *mask;
    /* What follows from these. */
    int64_t n, m, picks, nulls, rows, columns;
    double *weights, *r; /* of a head: (rows, picks, columns); (rows, columns) */
    bool *unclear;       /* (rows) */
};

static void derive(struct sinkhorn *s)
{
    s->n = s->q_len / s->block;
    s->m = s->kv_len / s->kv_block;
    s->picks = s->sortcut > 0 ? s->sortcut : s->top;
    s->picks = s->balanced ? 1 : s->picks < s->m ? s->picks : s->m;
    s->nulls = s->causal ? s->picks : 0;
    s->rows = s->sortcut > 0 ? 1 : s->n;
    s->columns = s->m + s->nulls;
}

/* Token t of head h. */
static int64_t token(const struct sinkhorn *s, int64_t h, int64_t t)
{
    return s->causal && h >= s->heads / 2 ? (t + s->block - 1) % s->q_len : t;
}

static double at(const struct sinkhorn *s, const float *x, int64_t n, int64_t dim,
                 int64_t b, int64_t h, int64_t t, int64_t d)
{
    return (double)x[((b * n + token(s, h, t)) * s->heads + h) * dim + d];
}

/* Feature d of what stands for a bucket in its logits. */
static double summary(const struct sinkhorn *s, const float *x, int64_t n, int64_t b,
                      int64_t h, int64_t from, int64_t count, bool all, int64_t d)
{
    double sum = 0, total = 0;
    if (!s->causal) {
        for (int64_t t = from; t < from + count; t++)
            sum += at(s, x, n, s->dim, b, h, t, d) / (double)count;
        return sum;
    }
    for (int64_t t = 0; t < from + (all ? count : 1); t++) {
        sum += at(s, x, n, s->dim, b, h, t, d);
        total += t >= from ? sum / (double)(t + 1) : 0;
    }
    return total;
}

static void make_logits(struct sinkhorn *s, int64_t b, int64_t h)
{
    for (int64_t u = 0; u < s->rows; u++)
        for (int64_t c = 0; c < s->columns; c++) {
            double *r = &s->r[u * s->columns + c];
            *r = 0;
            if (s->logits != NULL) {
                *r = (double)
                         s->logits[((b * s->heads + h) * s->rows + u) * s->columns + c];
                continue;
            }
            for (int64_t d = 0; d < s->dim && c >= s->nulls; d++)
                *r += summary(s, s->q, s->q_len, b, h, u * s->block,
                              s->sortcut > 0 ? s->q_len : s->block, false, d) *
                      summary(s, s->k, s->kv_len, b, h, (c - s->nulls) * s->kv_block,
                              s->kv_block, true, d) /
                      sqrt((double)s->dim);
        }
}

static void pick(struct sinkhorn *s, int64_t u)
{
    double *r = s->r + u * s->columns;
    for (int64_t c = 0; c < s->columns; c++)
        if (s->causal && c >= u + s->nulls)
            r[c] = -HUGE_VAL;
    for (int64_t p = 0; p < s->picks; p++) {
        double sum = 0, second = -HUGE_VAL;
        int64_t best = 0;
        for (int64_t c = 1; c < s->columns; c++)
            best = r[c] > r[best] ? c : best;
        for (int64_t c = 0; c < s->columns; c++) {
            sum += exp((r[c] - r[best]) / (double)s->temperature);
            second = c != best ? fmax(second, r[c]) : second;
        }
        if (s->logits == NULL && r[best] - second < 1e-4)
            s->unclear[u] = true;
        s->weights[(u * s->picks + p) * s->columns + best] = 1 / sum;
        r[best] = -HUGE_VAL;
    }
}

static void normalize(double *r, int64_t n, int64_t step)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += exp(r[i * step]);
    for (int64_t i = 0; i < n; i++)
        r[i * step] -= log(sum);
}

static void balance(struct sinkhorn *s, int64_t b, int64_t h)
{
    const int64_t n = s->rows * s->columns;
    const int64_t first = ((s->gumbel_batch == 1 ? 0 : b) * s->heads + h) * n;
    for (int64_t i = 0; i < n; i++)
        s->r[i] = (log((s->r[i] < 0 ? 0 : s->r[i]) + 1e-6) +
                   (s->gumbel != NULL ? (double)s->gumbel[first + i] : 0)) /
                  (double)s->temperature;
    for (int64_t i = 0; i < s->iters; i++) {
        for (int64_t u = 0; u < s->rows; u++)
            normalize(s->r + u * s->columns, s->columns, 1);
        for (int64_t c = 0; c < s->columns; c++)
            normalize(s->r + c, s->rows, s->columns);
    }
    for (int64_t i = 0; i < n; i++)
        s->weights[i] = exp(s->r[i]);
}

/* Feature d of key or value t of column c. */
static double column(const struct sinkhorn *s, bool key, int64_t b, int64_t h, int64_t c,
                     int64_t t, int64_t d)
{
    const int64_t dim = key ? s->dim : s->v_dim;
    if (c < s->nulls)
        return (double)(key ? s->null_k : s->null_v)[h * dim + d];
    return at(s, key ? s->k : s->v, s->kv_len, dim, b, h,
              (c - s->nulls) * s->kv_block + t, d);
}

/* Feature d of sorted key or value j of row u of the matrix; d < 0: whether it is seen.
 */
static double sorted(const struct sinkhorn *s, bool key, int64_t b, int64_t h, int64_t u,
                     int64_t j, int64_t d)
{
    const double *w = s->weights + (u * s->picks + j / s->kv_block) * s->columns;
    const int64_t t = j % s->kv_block;
    double sum = 0;
    if (d < 0) {
        int64_t best = 0;
        for (int64_t c = 1; c < s->columns; c++)
            best = w[c] > w[best] ? c : best;
        best -= s->nulls;
        return s->mask == NULL || best < 0 ||
               s->mask[b * s->kv_len + token(s, h, best * s->kv_block + t)];
    }
    for (int64_t c = 0; c < s->columns; c++)
        if (w[c] != 0.0)
            sum += w[c] * column(s, key || s->keys, b, h, c, t, d);
    return sum;
}

static void row(const struct sinkhorn *s, int64_t b, int64_t h, int64_t i, double *y)
{
    const int64_t u = i / s->block, in = i % s->block, r = s->sortcut > 0 ? 0 : u;
    const int64_t n = s->m > 0 ? s->picks * s->kv_block : 0;
    const int64_t own = s->n == s->m ? s->kv_block : 0;
    const bool last = s->causal && h >= s->heads / 2 && u == s->n - 1 && in > 0;
    const double scale = s->scale != 0.0f ? (double)s->scale : 1 / sqrt((double)s->dim);
    double max = -HUGE_VAL, sum = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t j = last ? n + 1 : 0; j < n + own; j++) {
            const int64_t t = u * s->kv_block + j - n;
            double score = 0;
            if (j < n ? sorted(s, true, b, h, r, j, -1) == 0.0
                      : (s->causal && j - n > in) ||
                            (s->mask != NULL && !s->mask[b * s->kv_len + token(s, h, t)]))
                continue;
            for (int64_t d = 0; d < s->dim; d++)
                score += at(s, s->q, s->q_len, s->dim, b, h, i, d) * scale *
                         (j < n ? sorted(s, true, b, h, r, j, d)
                                : at(s, s->k, s->kv_len, s->dim, b, h, t, d));
            max = pass == 0 ? fmax(max, score) : max;
            sum += pass == 1 ? exp(score - max) : 0;
            for (int64_t d = 0; d < s->v_dim && pass == 1; d++)
                y[d] += exp(score - max) *
                        (j < n ? sorted(s, false, b, h, r, j, d)
                               : at(s, s->v, s->kv_len, s->v_dim, b, h, t, d));
        }
    for (int64_t d = 0; d < s->v_dim; d++)
        y[d] = s->unclear[r] ? CHECK_SKIP : sum > 0 ? y[d] / sum : 0;
}

static void reference(struct sinkhorn *s, double *y)
{
    const int64_t n = s->rows * s->columns;
    s->r = calloc((size_t)n + 1, sizeof *s->r);
    s->weights = calloc((size_t)(n * s->picks) + 1, sizeof *s->weights);
    s->unclear = calloc((size_t)s->rows + 1, sizeof *s->unclear);
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t h = 0; h < s->heads; h++) {
            memset(s->weights, 0, (size_t)(n * s->picks) * sizeof *s->weights);
            memset(s->unclear, 0, (size_t)s->rows * sizeof *s->unclear);
            make_logits(s, b, h);
            if (s->balanced)
                balance(s, b, h);
            for (int64_t u = 0; u < s->rows && !s->balanced; u++)
                pick(s, u);
            for (int64_t i = 0; i < s->q_len; i++)
                row(s, b, h, i,
                    y + ((b * s->q_len + token(s, h, i)) * s->heads + h) * s->v_dim);
        }
    free(s->r);
    free(s->weights);
    free(s->unclear);
}

static void attrs(struct check *c, const struct sinkhorn *s)
{
    check_begin(c, "SinkhornAttention");
    check_heads_attrs(c, s->heads, s->heads);
    check_int(c, "bucket_size", s->block);
    if (s->kv_block != s->block)
        check_int(c, "kv_bucket_size", s->kv_block);
    if (s->balanced)
        check_string(c, "mode", "sinkhorn");
    if (s->top != 1)
        check_int(c, "top_buckets", s->top);
    if (s->temperature != 1.0f)
        check_float(c, "temperature", s->temperature);
    if (s->iters != 7)
        check_int(c, "iters", s->iters);
    if (s->sortcut > 0)
        check_int(c, "sortcut", s->sortcut);
    if (s->causal)
        check_int(c, "is_causal", 1);
    if (s->keys)
        check_string(c, "sorted_values", "keys");
    if (s->scale != 0.0f)
        check_float(c, "scale", s->scale);
}

static void build(struct check *c, struct sinkhorn *s, bool logits, bool gumbel,
                  bool mask)
{
    attrs(c, s);
    derive(s);
    float *given = NULL;
    s->q = check_heads(c, "Q", s->batch, s->q_len, s->heads, s->dim);
    s->k = check_heads(c, "K", s->batch, s->kv_len, s->heads, s->dim);
    s->v = check_heads(c, "V", s->batch, s->kv_len, s->heads, s->v_dim);
    s->logits = s->gumbel = NULL;
    s->mask = NULL;
    if (logits)
        s->logits = given =
            check_f32(c, "sort_logits", DIMS(s->batch, s->heads, s->rows, s->columns));
    else
        check_absent(c);
    for (int64_t i = 0; given != NULL && i < s->batch * s->heads * s->rows * s->columns;
         i++)
        given[i] *= 2.0f;
    s->gumbel_batch = check_chance(c, 50) ? 1 : s->batch;
    if (gumbel)
        s->gumbel =
            check_f32(c, "gumbel", DIMS(s->gumbel_batch, s->heads, s->rows, s->columns));
    else
        check_absent(c);
    if (s->causal) {
        s->null_k = check_weight(c, "null_k", DIMS(s->heads, s->dim));
        s->null_v = check_weight(c, "null_v", DIMS(s->heads, s->v_dim));
    } else {
        check_absent(c);
        check_absent(c);
    }
    if (mask)
        s->mask = check_mask(c, "key_mask", s->batch, s->kv_len);
    double *y = check_heads_output(c, "Y", s->batch, s->q_len, s->heads, s->v_dim);
    if (!c->blank)
        reference(s, y);
}

static struct sinkhorn plain(void)
{
    return (struct sinkhorn){ .batch = 1,
                              .heads = 2,
                              .q_len = 12,
                              .kv_len = 12,
                              .dim = 4,
                              .v_dim = 4,
                              .block = 4,
                              .kv_block = 4,
                              .top = 1,
                              .iters = 7,
                              .temperature = 1.0f };
}

static void refuse(struct check *c, struct sinkhorn s, attnrun_status status,
                   const char *words)
{
    c->blank = true;
    build(c, &s, false, false, false);
    check_refuses(c, status, words);
    c->blank = false;
}

static void refusals(struct check *c)
{
    struct sinkhorn s = plain();
    s.q_len = 13;
    refuse(c, s, ATTNRUN_E_SHAPE, "length, 13|bucket_size, 4");
    s = plain();
    s.kv_len = 14;
    refuse(c, s, ATTNRUN_E_SHAPE, "length, 14|bucket size, 4");
    s = plain();
    s.balanced = true;
    s.sortcut = 1;
    refuse(c, s, ATTNRUN_E_ATTR, "sortcut needs mode topk");
    s.causal = true;
    s.sortcut = 0;
    refuse(c, s, ATTNRUN_E_ATTR, "is_causal needs mode topk");
    s = plain();
    s.causal = true;
    s.kv_len = 8;
    refuse(c, s, ATTNRUN_E_SHAPE, "length is 8|expected 12");
    s = plain();
    s.causal = true;
    s.kv_block = 2;
    refuse(c, s, ATTNRUN_E_ATTR, "kv_bucket_size");
    s = plain();
    s.temperature = 0.0f;
    refuse(c, s, ATTNRUN_E_ATTR, "temperature is 0");
    s.temperature = -0.5f;
    refuse(c, s, ATTNRUN_E_ATTR, "temperature is -0.5|more than 0");
    s = plain();
    s.keys = true;
    s.v_dim = 5;
    refuse(c, s, ATTNRUN_E_SHAPE, "head size");
    s = plain();
    c->blank = true;
    build(c, &s, true, false, false);
    c->in[3].dims[3] = 4;
    check_refuses(c, ATTNRUN_E_SHAPE, "sort_logits|the buckets of keys");
    s.causal = true;
    build(c, &s, false, false, false);
    check_leave_out(c, 5);
    check_refuses(c, ATTNRUN_E_INPUT, "null_k");
    c->blank = false;
}

/* A logit that is NaN makes its row of the balanced matrix NaN, and then all columns. */
static void nan_logit(struct check *c)
{
    struct sinkhorn s = plain();
    s.balanced = true;
    s.heads = 1;
    build(c, &s, true, false, false);
    ((float *)c->in[3].data)[check_below(c, 9)] = (float)NAN;
    for (int64_t i = 0; i < s.q_len * s.v_dim; i++)
        c->out[0].want[i] = (double)NAN;
    check_run(c, CHECK_B);
}

void check_sinkhorn_attention(struct check *c)
{
    CHECK_ROUNDS(c, 60)
    {
        const bool big = c->round % 10 == 0;
        struct sinkhorn s = plain();
        s.batch = check_between(c, 0, 2);
        s.heads = check_between(c, 1, 3);
        s.block = s.kv_block = check_between(c, 1, big ? 150 : 12);
        if (check_chance(c, 30))
            s.kv_block = check_between(c, 1, 12);
        s.q_len = s.block * check_between(c, 1, big ? 4 : 20);
        s.kv_len = s.kv_block * check_between(c, 1, 6);
        s.top = check_between(c, 1, 3);
        s.dim = check_between(c, 1, 12);
        s.v_dim = check_between(c, 1, 20);
        s.causal = check_chance(c, 35);
        if (s.causal || check_chance(c, 60)) {
            s.kv_block = s.block;
            s.kv_len = s.q_len;
        }
        s.balanced = !s.causal && check_chance(c, 40);
        if (!s.causal && !s.balanced && check_chance(c, 40))
            s.sortcut = check_between(c, 1, 4);
        s.keys = check_chance(c, 25);
        if (s.keys)
            s.v_dim = s.dim;
        s.temperature = check_chance(c, 50) ? 0.75f : 1.0f;
        s.iters = check_chance(c, 50) ? 7 : check_between(c, 0, 3);
        s.scale = check_chance(c, 30) ? 0.3f : 0.0f;
        build(c, &s, check_chance(c, 60), s.balanced && check_chance(c, 50),
              !s.balanced && check_chance(c, 50));
        if (s.balanced &&
            s.iters == 0) /* scores of sums of keys by weights of any size */
            check_run_with(c, 1e-3, 1e-4);
        else
            check_run(c, s.balanced ? CHECK_B : CHECK_A);
    }
    nan_logit(c);
    refusals(c);
    struct sinkhorn s = plain();
    s.q_len = s.kv_len = 16384;
    s.heads = 8;
    s.dim = s.v_dim = s.block = s.kv_block = 64;
    c->blank = true;
    build(c, &s, false, false, false);
    check_extra_memory(c, 2 << 20);
    c->blank = false;
}
