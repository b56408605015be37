/* check_attention_pooling.c - AttentionPooling against its formula. */
#include "operator_harness.h"

struct pooling {
    int64_t batch, n, dim, units, heads;
    bool tanh_score, exp_sum;
    double epsilon;
    const float *x, *w, *context, *bias, *context_bias;
    const uint8_t *mask;
};

static double score(const struct pooling *p, const float *x, int64_t h)
{
    double s = p->context_bias != NULL ? (double)p->context_bias[h] : 0;
    for (int64_t a = 0; a < p->units; a++) {
        double u = p->bias != NULL ? (double)p->bias[a] : 0;
        for (int64_t d = 0; d < p->dim; d++)
            u += (double)x[d] * (double)p->w[d * p->units + a];
        s += tanh(u) * (double)p->context[a * p->heads + h];
    }
    return p->tanh_score ? tanh(s) : s;
}

static void pool(const struct pooling *p, int64_t b, int64_t h, double *y,
                 double *weights)
{
    double max = -HUGE_VAL, sum = p->exp_sum ? p->epsilon : 0, s[4096];
    const float *x = p->x + b * p->n * p->dim;
    for (int64_t n = 0; n < p->n; n++) {
        const bool seen = p->mask == NULL || p->mask[b * p->n + n] != 0;
        s[n] = seen ? score(p, x + n * p->dim, h) : -HUGE_VAL;
        max = fmax(max, s[n]);
    }
    for (int64_t n = 0; n < p->n; n++)
        sum += s[n] = s[n] == -HUGE_VAL ? 0 : exp(s[n] - (p->exp_sum ? 0 : max));
    for (int64_t n = 0; n < p->n; n++) {
        s[n] = sum > 0 ? s[n] / sum : 0;
        for (int64_t d = 0; d < p->dim; d++)
            y[d] += s[n] * (double)x[n * p->dim + d];
        if (weights != NULL)
            weights[n] = s[n];
    }
}

static void outputs(struct check *c, const struct pooling *p, bool with_weights)
{
    double *y = check_output(c, "Y", DIMS(p->batch, p->heads * p->dim)), *weights = NULL;
    if (with_weights)
        weights = p->heads > 1
                      ? check_output(c, "weights", DIMS(p->batch, p->heads, p->n))
                      : check_output(c, "weights", DIMS(p->batch, p->n));
    for (int64_t i = 0; !c->blank && i < p->batch * p->heads; i++)
        pool(p, i / p->heads, i % p->heads, y + i * p->dim,
             weights != NULL ? weights + i * p->n : NULL);
}

static void build(struct check *c, struct pooling *p)
{
    check_begin(c, "AttentionPooling");
    p->tanh_score = check_chance(c, 50);
    if (p->tanh_score)
        check_string(c, "score_activation", "tanh");
    p->exp_sum = check_chance(c, 50);
    p->epsilon = (double)1e-8f;
    if (p->exp_sum)
        check_string(c, "normalizer", "exp_sum");
    if (check_chance(c, 30)) {
        p->epsilon = 0.5;
        check_float(c, "epsilon", 0.5f);
    }
    p->x = check_f32(c, "X", DIMS(p->batch, p->n, p->dim));
    p->w = check_weight(c, "W", DIMS(p->dim, p->units));
    float *context = p->heads > 1 || check_chance(c, 30)
                         ? check_weight(c, "c", DIMS(p->units, p->heads))
                         : check_weight(c, "c", DIMS(p->units));
    for (int64_t i = 0; i < p->units * p->heads; i++)
        context[i] /= sqrtf((float)p->units);
    p->context = context;
    const bool with_weights = check_chance(c, 50);
    if (with_weights && c->in[2].rank == 2) /* the rank of weights depends on the heads */
        check_constant(c);
    p->bias = p->context_bias = NULL;
    p->mask = NULL;
    if (check_chance(c, 50))
        p->bias = check_weight(c, "b", DIMS(p->units));
    else
        check_absent(c);
    if (check_chance(c, 50))
        p->context_bias = check_weight(c, "c_bias", DIMS(p->heads));
    else
        check_absent(c);
    if (check_chance(c, 60))
        p->mask = check_mask(c, "key_mask", p->batch, p->n);
    outputs(c, p, with_weights);
    check_hide(c, c->in[0].data, p->mask, p->batch * p->n, p->dim);
    c->no_twin = true;
}

/* Exponentials that are infinite are NaN over their sum. */
static void overflow(struct check *c)
{
    struct pooling p = { .batch = 3, .n = 5, .dim = 4, .units = 3, .heads = 2 };
    do {
        build(c, &p);
    } while (!p.exp_sum || p.tanh_score || p.context_bias == NULL || c->n_out < 2);
    for (int64_t h = 0; h < p.heads; h++)
        ((float *)c->in[4].data)[h] = 200.0f;
    for (int64_t i = 0; i < p.batch * p.heads * p.n; i++) {
        const int64_t row = i / p.n, b = row / p.heads;
        if (p.mask != NULL && p.mask[b * p.n + i % p.n] == 0)
            continue;
        c->out[1].want[i] = (double)NAN;
        for (int64_t d = 0; d < p.dim; d++)
            c->out[0].want[row * p.dim + d] = (double)NAN;
    }
    check_run(c, CHECK_A);
}

static void refusals(struct check *c)
{
    struct pooling p = { .batch = 2, .n = 5, .dim = 4, .units = 3, .heads = 2 };
    build(c, &p);
    check_float(c, "epsilon", -1.0f);
    if (c->n_attrs == 1)
        check_refuses(c, ATTNRUN_E_ATTR, "epsilon is -1");
    build(c, &p);
    check_string(c, "score_activation", "relu");
    if (!p.tanh_score)
        check_refuses(c, ATTNRUN_E_ATTR, "score_activation|relu");
    build(c, &p);
    c->in[1].dims[0] = 3;
    check_refuses(c, ATTNRUN_E_SHAPE, "W|expected 4|the size of X");
    build(c, &p);
    c->in[2].dims[0] = 2;
    check_refuses(c, ATTNRUN_E_SHAPE, "dim 0 (the columns of W)");
    build(c, &p);
    c->in[0].rank = 2;
    check_refuses(c, ATTNRUN_E_SHAPE, "X|rank 3");
}

void check_attention_pooling(struct check *c)
{
    CHECK_ROUNDS(c, 60)
    {
        const bool long_ones = c->round % 8 == 0;
        struct pooling p = { .batch = check_between(c, 0, 3),
                             .n = check_between(c, 0, long_ones ? 700 : 40),
                             .dim = check_between(c, 1, 40),
                             .units = check_between(c, 1, 40),
                             .heads = check_chance(c, 50) ? 1 : check_between(c, 2, 9) };
        if (c->round == 7) { /* parts */
            p.batch = 1;
            p.n = 4000;
            p.dim = p.units = 64;
        }
        build(c, &p);
        check_run(c, CHECK_A);
    }
    overflow(c);
    refusals(c);
    c->blank = true;
    build(c, &(struct pooling){
                 .batch = 1, .n = 16384, .dim = 512, .units = 256, .heads = 4 });
    c->n_out = 1;
    check_extra_memory(c, 2 << 20);
    c->blank = false;
}
