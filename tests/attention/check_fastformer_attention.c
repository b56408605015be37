/* check_fastformer_attention.c - FastformerAttention against its formula. */
#include "operator_harness.h"

struct fastformer {
    int64_t batch, n, heads, dim;
    double scale;
    const float *q, *k, *v, *wq, *wk, *bq, *bk;
    const uint8_t *mask;
};

/* sums[heads * dim] += softmax_n(scale (x_n w + bias))_h x_(n,h) of one sample. */
static void pool(const struct fastformer *f, int64_t b, const double *x, const float *w,
                 const float *bias, double *sums)
{
    const int64_t width = f->heads * f->dim;
    for (int64_t h = 0; h < f->heads; h++) {
        double s[8192], max = -HUGE_VAL, sum = 0;
        for (int64_t i = 0; i < f->n; i++) {
            const bool seen = f->mask == NULL || f->mask[b * f->n + i] != 0;
            s[i] = bias != NULL ? (double)bias[h] : 0;
            for (int64_t d = 0; d < width; d++)
                s[i] += x[i * width + d] * (double)w[d * f->heads + h];
            s[i] = seen ? s[i] * f->scale : -HUGE_VAL;
            max = fmax(max, s[i]);
        }
        for (int64_t i = 0; i < f->n; i++)
            sum += s[i] = s[i] == -HUGE_VAL ? 0 : exp(s[i] - max);
        for (int64_t i = 0; sum > 0 && i < f->n; i++)
            for (int64_t d = h * f->dim; d < (h + 1) * f->dim; d++)
                sums[d] += s[i] / sum * x[i * width + d];
    }
}

static void reference(const struct fastformer *f, double *y)
{
    const int64_t width = f->heads * f->dim;
    static double x[1 << 20];
    for (int64_t b = 0; b < f->batch; b++) {
        double query[1024] = { 0 }, key[1024] = { 0 };
        const int64_t at = b * f->n * width;
        for (int64_t i = 0; i < f->n * width; i++)
            x[i] = (double)f->q[at + i];
        pool(f, b, x, f->wq, f->bq, query);
        for (int64_t i = 0; i < f->n * width; i++)
            x[i] = (double)f->k[at + i] * query[i % width];
        pool(f, b, x, f->wk, f->bk, key);
        for (int64_t i = 0; i < f->n * width; i++)
            y[at + i] = key[i % width] * (double)f->v[at + i];
    }
}

static void build(struct check *c, struct fastformer *f)
{
    const int64_t width = f->heads * f->dim;
    check_begin(c, "FastformerAttention");
    check_heads_attrs(c, f->heads, f->heads);
    f->scale = 1 / sqrt((double)f->dim);
    if (check_chance(c, 30)) {
        f->scale = (double)0.3f;
        check_float(c, "scale", 0.3f);
    }
    f->q = check_heads(c, "Q", f->batch, f->n, f->heads, f->dim);
    f->k = check_heads(c, "K", f->batch, f->n, f->heads, f->dim);
    f->v = check_heads(c, "V", f->batch, f->n, f->heads, f->dim);
    float *wq = check_weight(c, "Wq", DIMS(width, f->heads));
    float *wk = check_weight(c, "Wk", DIMS(width, f->heads));
    for (int64_t i = 0; i < width * f->heads; i++) {
        wq[i] /= sqrtf((float)f->heads);
        wk[i] /= sqrtf((float)f->heads);
    }
    f->wq = wq;
    f->wk = wk;
    f->bq = f->bk = NULL;
    f->mask = NULL;
    if (check_chance(c, 60))
        f->bq = check_weight(c, "bq", DIMS(f->heads));
    else
        check_absent(c);
    if (check_chance(c, 60))
        f->bk = check_weight(c, "bk", DIMS(f->heads));
    else
        check_absent(c);
    if (check_chance(c, 60))
        f->mask = check_mask(c, "key_mask", f->batch, f->n);
    double *y = check_heads_output(c, "Y", f->batch, f->n, f->heads, f->dim);
    if (!c->blank)
        reference(f, y);
    for (int in = 0; in < 2; in++)
        check_hide(c, c->in[in].data, f->mask, f->batch * f->n, width);
}

static void refusals(struct check *c)
{
    struct fastformer f = { .batch = 2, .n = 5, .heads = 2, .dim = 4 };
    build(c, &f);
    check_int(c, "is_causal", 1);
    check_refuses(c, ATTNRUN_E_ATTR, "is_causal");
    build(c, &f);
    c->in[3].dims[0] = 7;
    check_refuses(c, ATTNRUN_E_SHAPE, "Wq|expected 8|head size");
    build(c, &f);
    c->in[4].dims[1] = 1;
    check_refuses(c, ATTNRUN_E_SHAPE, "Wk|expected 2|heads");
    build(c, &f);
    c->in[2].dims[2] = 6;
    check_refuses(c, ATTNRUN_E_SHAPE, "V|head size is 3, expected 4");
    build(c, &f);
    c->in[1].dims[1] = 4;
    check_refuses(c, ATTNRUN_E_SHAPE, "expected 4");
    build(c, &f);
    c->attrs[0].ints[0] = 3;
    c->n_attrs = 1;
    check_refuses(c, ATTNRUN_E_SHAPE, "heads");
}

void check_fastformer_attention(struct check *c)
{
    CHECK_ROUNDS(c, 50)
    {
        const bool long_ones = c->round % 8 == 0;
        struct fastformer f = { .batch = check_between(c, 0, 3),
                                .n = check_between(c, 0, long_ones ? 600 : 40),
                                .heads = check_between(c, 1, 5),
                                .dim = check_between(c, 1, 20) };
        if (c->round == 7) { /* parts */
            f = (struct fastformer){ .batch = 1, .n = 4500, .heads = 4, .dim = 40 };
        }
        build(c, &f);
        check_run(c, CHECK_A);
    }
    refusals(c);
    c->blank = true;
    build(c, &(struct fastformer){ .batch = 1, .n = 16384, .heads = 8, .dim = 64 });
    check_extra_memory(c, 2 << 20);
    c->blank = false;
}
