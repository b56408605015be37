/* check_lama_attention.c - LAMAAttention against its formula. */
#include "operator_harness.h"

struct lama {
    int64_t batch, n, dim, heads;
    bool linear, plain;
    double epsilon;
    const float *x, *p, *q, *context;
    int64_t context_step;
    const uint8_t *mask;
};

static bool seen(const struct lama *l, int64_t b, int64_t n)
{
    return l->mask == NULL || l->mask[b * l->n + n] != 0;
}

static void find_context(const struct lama *l, int64_t b, double *c)
{
    double count = 0;
    for (int64_t n = 0; l->context == NULL && n < l->n; n++)
        count += seen(l, b, n);
    for (int64_t d = 0; d < l->dim; d++) {
        c[d] = l->context != NULL ? (double)l->context[b * l->context_step + d] : 0;
        for (int64_t n = 0; l->context == NULL && n < l->n; n++)
            c[d] += seen(l, b, n)
                        ? (double)l->x[(b * l->n + n) * l->dim + d] / fmax(count, 1e-9)
                        : 0;
    }
}

/* g[heads] of a token. */
static void token(const struct lama *l, const double *c, const float *x, double *g)
{
    double squares = 0;
    for (int64_t h = 0; h < l->heads; h++) {
        double a = 0, b = 0;
        for (int64_t d = 0; d < l->dim; d++) {
            a += (double)l->p[d * l->heads + h] * c[d];
            b += (double)l->q[d * l->heads + h] * (double)x[d];
        }
        g[h] = l->linear ? a * b : tanh(a * b);
        squares += g[h] * g[h];
    }
    const double norm = sqrt(squares) + l->epsilon;
    for (int64_t h = 0; h < l->heads; h++)
        g[h] = norm > 0 ? g[h] / norm : 0;
}

static void sample(const struct lama *l, int64_t b, double *y, double *weights)
{
    static double g[16][8192];
    double c[256], of_token[16];
    find_context(l, b, c);
    for (int64_t n = 0; n < l->n; n++) {
        token(l, c, l->x + (b * l->n + n) * l->dim, of_token);
        for (int64_t h = 0; h < l->heads; h++)
            g[h][n] = of_token[h];
    }
    for (int64_t h = 0; h < l->heads; h++) {
        double sum = 0;
        for (int64_t n = 0; n < l->n; n++) {
            g[h][n] = !seen(l, b, n) ? 0 : l->plain ? g[h][n] : exp(g[h][n]);
            sum += g[h][n];
        }
        for (int64_t n = 0; n < l->n; n++) {
            const double a = l->plain ? g[h][n] : sum > 0 ? g[h][n] / sum : 0;
            for (int64_t d = 0; d < l->dim; d++)
                y[h * l->dim + d] += a * (double)l->x[(b * l->n + n) * l->dim + d];
            if (weights != NULL)
                weights[h * l->n + n] = a;
        }
    }
}

static void build(struct check *c, struct lama *l)
{
    check_begin(c, "LAMAAttention");
    l->linear = check_chance(c, 30);
    l->plain = check_chance(c, 30);
    l->epsilon = 0;
    if (l->linear)
        check_string(c, "activation", "none");
    if (l->plain)
        check_int(c, "normalize", 0);
    /* A norm near 0 turns rounding into anything; far from it the bound is small. */
    l->epsilon = l->plain || l->linear || check_chance(c, 70) ? 0.5 : 0;
    if (l->epsilon > 0)
        check_float(c, "norm_epsilon", 0.5f);
    l->x = check_f32(c, "X", DIMS(l->batch, l->n, l->dim));
    l->p = check_weight(c, "P", DIMS(l->dim, l->heads));
    l->q = check_weight(c, "Q", DIMS(l->dim, l->heads));
    l->context = NULL;
    l->mask = NULL;
    if (l->epsilon == 0 || check_chance(c, 50)) {
        const bool one = check_chance(c, 50);
        l->context = check_weight(c, "context", DIMS(one ? 1 : l->batch, l->dim));
        l->context_step = one ? 0 : l->dim;
    } else {
        check_absent(c);
    }
    if (check_chance(c, 60))
        l->mask = check_mask(c, "key_mask", l->batch, l->n);
    double *y = check_output(c, "Y", DIMS(l->batch, l->heads, l->dim)), *weights = NULL;
    if (check_chance(c, 50))
        weights = check_output(c, "weights", DIMS(l->batch, l->heads, l->n));
    for (int64_t b = 0; !c->blank && b < l->batch; b++)
        sample(l, b, y + b * l->heads * l->dim,
               weights != NULL ? weights + b * l->heads * l->n : NULL);
    check_hide(c, c->in[0].data, l->mask, l->batch * l->n, l->dim);
    c->no_twin = true;
}

static void refusals(struct check *c)
{
    struct lama l = { .batch = 2, .n = 5, .dim = 4, .heads = 3 };
    build(c, &l);
    c->n_attrs = 0;
    check_int(c, "normalize", 2);
    check_refuses(c, ATTNRUN_E_ATTR, "normalize is 2");
    build(c, &l);
    c->n_attrs = 0;
    check_string(c, "activation", "relu");
    check_refuses(c, ATTNRUN_E_ATTR, "activation|relu");
    build(c, &l);
    c->n_attrs = 0;
    check_float(c, "norm_epsilon", -1.0f);
    check_refuses(c, ATTNRUN_E_ATTR, "norm_epsilon is -1");
    build(c, &l);
    c->in[2].dims[1] = 2;
    check_refuses(c, ATTNRUN_E_SHAPE, "Q|columns of P");
    build(c, &l);
    c->in[1].dims[0] = 3;
    check_refuses(c, ATTNRUN_E_SHAPE, "the size of X");
    do {
        build(c, &l);
    } while (l.context == NULL);
    c->in[3].dims[0] = 3;
    c->in[3].constant = false;
    check_refuses(c, ATTNRUN_E_SHAPE, "context|the batch, or 1");
}

void check_lama_attention(struct check *c)
{
    CHECK_ROUNDS(c, 60)
    {
        const bool long_ones = c->round % 8 == 0;
        struct lama l = { .batch = check_between(c, 0, 3),
                          .n = check_between(c, 0, long_ones ? 600 : 40),
                          .dim = check_between(c, 1, 40),
                          .heads = check_between(c, 1, 12) };
        if (c->round % 10 == 7) /* parts */
            l = (struct lama){ .batch = 1, .n = 7000, .dim = 40, .heads = 12 };
        build(c, &l);
        /* Without a softmax errors of n terms add up, their sum may be small. */
        check_run_with(c, 1e-5, l.plain ? 1e-6 * (1 + sqrt((double)l.n)) : 1e-6);
    }
    refusals(c);
    c->blank = true;
    build(c, &(struct lama){ .batch = 1, .n = 16384, .dim = 512, .heads = 16 });
    c->n_out = 1;
    check_extra_memory(c, 2 << 20);
    c->blank = false;
}
