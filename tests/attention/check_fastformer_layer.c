/* check_fastformer_layer.c - FastformerLayer against its formula. */
#include <stdlib.h>

#include "operator_harness.h"

struct layer {
    int64_t batch, n, channels, heads, dim;
    bool biases, adds; /* a mask of floats */
    int mask_rank;     /* 0: none */
    const float *x, *w[5], *b[5], *added;
    const uint8_t *mask;
};
enum { WQ, WQA, WK, WKA, WT };

static const char *const names[5][2] = {
    { "Wq", "bq" }, { "Wqa", "bqa" }, { "Wk", "bk" }, { "Wka", "bka" }, { "Wt", "bt" }
};

/* y (n, rows) = w x + b. */
static void linear(const struct layer *f, int which, const double *x, int64_t rows,
                   int64_t columns, double *y)
{
    for (int64_t i = 0; i < f->n; i++)
        for (int64_t r = 0; r < rows; r++) {
            double sum = f->b[which] != NULL ? (double)f->b[which][r] : 0;
            for (int64_t c = 0; c < columns; c++)
                sum += (double)f->w[which][r * columns + c] * x[i * columns + c];
            y[i * rows + r] = sum;
        }
}

/* sums[heads * dim] = softmax over tokens of the logits of x, times x. */
static void pool(const struct layer *f, int64_t b, int which, const double *x,
                 double *logits, double *sums)
{
    const int64_t width = f->heads * f->dim;
    linear(f, which, x, f->heads, width, logits);
    for (int64_t h = 0; h < f->heads; h++) {
        double max = -HUGE_VAL, sum = 0;
        for (int64_t i = 0; i < f->n; i++) {
            double *l = &logits[i * f->heads + h];
            *l /= sqrt((double)f->dim);
            *l += f->adds && f->added != NULL ? (double)f->added[b * f->n + i] : 0;
            *l = f->mask == NULL || f->mask[b * f->n + i] != 0 ? *l : -HUGE_VAL;
            max = fmax(max, *l);
        }
        for (int64_t i = 0; i < f->n; i++) {
            double *l = &logits[i * f->heads + h];
            sum += *l = *l == -HUGE_VAL ? 0 : exp(*l - max);
        }
        for (int64_t d = h * f->dim; d < (h + 1) * f->dim; d++) {
            sums[d] = 0;
            for (int64_t i = 0; sum > 0 && i < f->n; i++)
                sums[d] += logits[i * f->heads + h] / sum * x[i * width + d];
        }
    }
}

static void reference(const struct layer *f, double *y)
{
    const int64_t width = f->heads * f->dim, n = f->n * width;
    double *x = calloc((size_t)(f->n * f->channels) + 1, sizeof *x),
           *q = calloc((size_t)n + 1, sizeof *q), *k = calloc((size_t)n + 1, sizeof *k),
           *logits = calloc((size_t)(f->n * f->heads) + 1, sizeof *logits),
           *sums = calloc((size_t)width, sizeof *sums);
    for (int64_t b = 0; b < f->batch; b++) {
        for (int64_t i = 0; i < f->n * f->channels; i++)
            x[i] = (double)f->x[b * f->n * f->channels + i];
        linear(f, WQ, x, width, f->channels, q);
        linear(f, WK, x, width, f->channels, k);
        pool(f, b, WQA, q, logits, sums);
        for (int64_t i = 0; i < n; i++)
            k[i] *= sums[i % width];
        pool(f, b, WKA, k, logits, sums);
        for (int64_t i = 0; i < n; i++)
            k[i] = q[i] * sums[i % width];
        linear(f, WT, k, width, width, y + b * n);
        for (int64_t i = 0; i < n; i++)
            y[b * n + i] += q[i];
    }
    free(x);
    free(q);
    free(k);
    free(logits);
    free(sums);
}

static void add_mask(struct check *c, struct layer *f)
{
    const int64_t flat[2] = { f->batch, f->n }, one[3] = { f->batch, 1, f->n };
    const int64_t *dims = f->mask_rank == 2 ? flat : one;
    f->mask = NULL;
    f->added = NULL;
    if (f->mask_rank == 0)
        return;
    if (f->adds) {
        float *added = check_f32(c, "mask", f->mask_rank, dims);
        for (int64_t i = 0; i < f->batch * f->n && !c->blank; i++)
            added[i] = check_chance(c, 30) ? -10000.0f : added[i];
        f->added = added;
    } else {
        f->mask = check_mask(c, "mask", f->batch, f->n);
    }
}

static double *build(struct check *c, struct layer *f)
{
    const int64_t width = f->heads * f->dim;
    const int64_t rows[5] = { width, f->heads, width, f->heads, width },
                  columns[5] = { f->channels, width, f->channels, width, width };
    check_begin(c, "FastformerLayer");
    if (f->heads != 1 || check_chance(c, 50))
        check_int(c, "num_heads", f->heads);
    f->x = check_f32(c, "x", DIMS(f->batch, f->n, f->channels));
    for (int i = 0; i < 5; i++) {
        float *w = check_weight(c, names[i][0], DIMS(rows[i], columns[i]));
        for (int64_t j = 0; j < rows[i] * columns[i]; j++)
            w[j] /= sqrtf((float)columns[i]);
        f->w[i] = w;
        f->b[i] = NULL;
        if (f->biases && check_chance(c, 70))
            f->b[i] = check_weight(c, names[i][1], DIMS(rows[i]));
        else
            check_absent(c);
    }
    add_mask(c, f);
    double *y = check_output(c, "Y", DIMS(f->batch, f->n, width));
    if (!c->blank)
        reference(f, y);
    return y;
}

static void refusals(struct check *c)
{
    struct layer f = {
        .batch = 2, .n = 5, .channels = 6, .heads = 2, .dim = 4, .biases = false
    };
    build(c, &f);
    c->in[3].dims[1] = 7;
    check_refuses(c, ATTNRUN_E_SHAPE, "FastformerLayer");
    build(c, &f);
    c->in[5].dims[0] = 6;
    check_refuses(c, ATTNRUN_E_SHAPE, "FastformerLayer");
    build(c, &f);
    c->in[9].dims[0] = 9;
    check_refuses(c, ATTNRUN_E_SHAPE, "FastformerLayer");
    build(c, &f);
    c->in[0].rank = 2;
    check_refuses(c, ATTNRUN_E_SHAPE, "FastformerLayer");
    build(c, &f);
    c->in[9].dims[0] = 1; /* no number for all channels */
    check_refuses(c, ATTNRUN_E_SHAPE, "FastformerLayer");
    f.mask_rank = 2;
    build(c, &f);
    c->in[11].dims[1] = 4;
    check_refuses(c, ATTNRUN_E_SHAPE, "FastformerLayer");
}

void check_fastformer_layer(struct check *c)
{
    CHECK_ROUNDS(c, 40)
    {
        struct layer f = { .batch = check_between(c, 0, 3),
                           .n = check_between(c, 1, check_chance(c, 20) ? 300 : 40),
                           .channels = check_between(c, 1, 40),
                           .heads = check_between(c, 1, 5),
                           .dim = check_between(c, 1, 20),
                           .biases = check_chance(c, 60),
                           .adds = check_chance(c, 50),
                           .mask_rank = check_chance(c, 40) ? 0 : 2 };
        if (f.adds && f.mask_rank == 2 && check_chance(c, 50))
            f.mask_rank = 3;
        build(c, &f);
        check_run(c, CHECK_B);
    }
    refusals(c);
}
