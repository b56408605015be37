/* check_spatial_gating_unit.c - SpatialGatingUnit against its formula. */
#include <stdlib.h>

#include "operator_harness.h"

struct gating {
    int64_t b, n, c, heads, weights;
    bool causal;
    int activation;
    float epsilon;
    const float *x, *gamma, *beta, *w, *bias, *res;
};

static double activate(int activation, double x)
{
    switch (activation) {
    case 1:
        return tanh(x);
    case 2:
        return x / (1 + exp(-x));
    case 3:
        return 0.5 * x * (1 + erf(x * 0.7071067811865476));
    default:
        return x;
    }
}

/* LayerNorm of the second half of row (b, n). */
static void normalize(const struct gating *s, int64_t row, double *g)
{
    const float *x = s->x + row * 2 * s->c + s->c;
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < s->c; i++)
        mean += (double)x[i] / (double)s->c;
    for (int64_t i = 0; i < s->c; i++)
        variance += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)s->c;
    for (int64_t i = 0; i < s->c; i++)
        g[i] = ((double)x[i] - mean) / sqrt(variance + (double)s->epsilon) *
                   (double)s->gamma[i] +
               (double)s->beta[i];
}

static void reference(const struct gating *s, double *y)
{
    double *g = calloc((size_t)(s->n * s->c) + 1, sizeof *g);
    for (int64_t b = 0; b < s->b; b++) {
        for (int64_t n = 0; n < s->n; n++)
            normalize(s, b * s->n + n, g + n * s->c);
        for (int64_t m = 0; m < s->n; m++)
            for (int64_t i = 0; i < s->c; i++) {
                const int64_t h = i / (s->c / s->heads), at = (b * s->n + m) * s->c + i;
                const float *w = s->w + (h * s->weights + m) * s->weights;
                double z = (double)s->bias[h * s->weights + m];
                for (int64_t n = 0; n < (s->causal ? m + 1 : s->n); n++)
                    z += (double)w[n] * g[n * s->c + i];
                z += s->res != NULL ? (double)s->res[at] : 0;
                y[at] = (double)s->x[(b * s->n + m) * 2 * s->c + i] *
                        activate(s->activation, z);
            }
    }
    free(g);
}

static void build(struct check *c, struct gating *s, bool with_res)
{
    static const char *const words[] = { "none", "tanh", "silu", "gelu" };
    check_begin(c, "SpatialGatingUnit");
    if (s->heads > 1 || check_chance(c, 50))
        check_int(c, "num_heads", s->heads);
    if (s->causal)
        check_int(c, "is_causal", 1);
    if (s->activation > 0)
        check_string(c, "activation", words[s->activation]);
    if (s->epsilon != 1e-5f)
        check_float(c, "epsilon", s->epsilon);
    s->x = check_f32(c, "X", DIMS(s->b, s->n, 2 * s->c));
    s->gamma = check_weight(c, "gamma", DIMS(s->c));
    s->beta = check_weight(c, "beta", DIMS(s->c));
    s->w = check_weight(c, "Ws", DIMS(s->heads, s->weights, s->weights));
    s->bias = check_weight(c, "bs", DIMS(s->heads, s->weights));
    s->res = NULL;
    if (with_res)
        s->res = check_f32(c, "gate_res", DIMS(s->b, s->n, s->c));
    double *y = check_output(c, "Y", DIMS(s->b, s->n, s->c));
    if (!c->blank)
        reference(s, y);
}

static void refusals(struct check *c)
{
    const struct gating plain = {
        .b = 1, .n = 4, .c = 6, .heads = 2, .weights = 4, .epsilon = 1e-5f
    };
    struct gating s = plain;
    build(c, &s, true);
    c->in[0].dims[2] = 11;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 0 X|even dim 2");
    build(c, &s, true);
    c->in[1].dims[0] = 5;
    check_refuses(c, ATTNRUN_E_SHAPE, "in dim 0|half the channels of X");
    build(c, &s, true);
    c->in[5].dims[1] = 3;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 5 gate_res|expected 4 in dim 1");
    s.n = 3;
    build(c, &s, false);
    check_refuses(c, ATTNRUN_E_SHAPE, "input 3 Ws|expected 3 in dim 1|tokens of X");
    s.causal = true;
    s.n = 5;
    c->blank = true;
    build(c, &s, false);
    check_refuses(c, ATTNRUN_E_SHAPE, "input 0 X|at most 4 tokens");
    s = plain;
    s.heads = 4;
    build(c, &s, false);
    check_refuses(c, ATTNRUN_E_SHAPE, "not a multiple of 4 heads");
    c->blank = false;
    s = plain;
    s.epsilon = -1;
    build(c, &s, false);
    check_refuses(c, ATTNRUN_E_ATTR, "epsilon is -1");
    s.epsilon = INFINITY;
    build(c, &s, false);
    check_refuses(c, ATTNRUN_E_ATTR, "epsilon is inf|finite");
}

void check_spatial_gating_unit(struct check *c)
{
    CHECK_ROUNDS(c, 50)
    {
        const bool large = check_chance(c, 20);
        struct gating s = { .b = check_between(c, 0, 3),
                            .n = check_between(c, 0, large ? 300 : 12),
                            .heads = check_between(c, 1, 3),
                            .causal = check_chance(c, 50),
                            .activation = (int)check_below(c, 4),
                            .epsilon = check_chance(c, 50) ? 1e-5f : 0.1f };
        s.c = s.heads * check_between(c, 1, large ? 140 : 30);
        s.weights = s.n + (s.causal ? check_between(c, 0, 5) : 0);
        build(c, &s, check_chance(c, 40));
        /* A constant row (c == 1) turns rounding into values: nothing to compare. */
        check_run_with(c, s.c > 1 ? 2e-5 : 1e9, 1e-5 * (1 + sqrt((double)s.n)));
    }
    for (int causal = 0; causal < 2;
         causal++) { /* several blocks of tokens and of rows */
        struct gating s = { .b = 1,
                            .n = check_between(c, 1025, 1160),
                            .heads = 1,
                            .causal = causal,
                            .c = check_between(c, 2, 20),
                            .epsilon = 1e-5f };
        s.weights = s.n;
        build(c, &s, true);
        check_run_with(c, 2e-5, 1e-5 * (1 + sqrt((double)s.n)));
    }
    refusals(c);
    struct gating s = {
        .b = 1, .n = 4096, .c = 512, .heads = 1, .weights = 4096, .epsilon = 1e-5f
    };
    c->blank = true;
    build(c, &s, false);
    check_extra_memory(c, 2 << 20);
}
