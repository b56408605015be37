/* check_token_mixing.c - TokenMixing against its formula. */
#include <stdlib.h>

#include "operator_harness.h"

struct mixing {
    int64_t b, n, c, hidden, out;
    int activation;
    const float *x, *w1, *w2, *b1, *b2;
};

static double activate(int activation, double x)
{
    if (activation == 2)
        return x > 0 ? x : 0;
    if (activation == 1)
        return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    return 0.5 * x * (1 + erf(x * 0.7071067811865476));
}

static void reference(const struct mixing *s, double *y)
{
    double *h = calloc((size_t)s->hidden + 1, sizeof *h);
    for (int64_t b = 0; b < s->b; b++)
        for (int64_t c = 0; c < s->c; c++) {
            for (int64_t t = 0; t < s->hidden; t++) {
                h[t] = s->b1 != NULL ? (double)s->b1[t] : 0;
                for (int64_t n = 0; n < s->n; n++)
                    h[t] += (double)s->w1[t * s->n + n] *
                            (double)s->x[(b * s->n + n) * s->c + c];
                h[t] = activate(s->activation, h[t]);
            }
            for (int64_t o = 0; o < s->out; o++) {
                double *to = y + (b * s->out + o) * s->c + c;
                *to = s->b2 != NULL ? (double)s->b2[o] : 0;
                for (int64_t t = 0; t < s->hidden; t++)
                    *to += (double)s->w2[o * s->hidden + t] * h[t];
            }
        }
    free(h);
}

static void build(struct check *c, struct mixing *s)
{
    static const char *const words[] = { "gelu", "gelu_tanh", "relu" };
    check_begin(c, "TokenMixing");
    if (s->activation > 0 || check_chance(c, 50))
        check_string(c, "activation", words[s->activation]);
    s->x = check_f32(c, "X", DIMS(s->b, s->n, s->c));
    s->w1 = check_weight(c, "W1", DIMS(s->hidden, s->n));
    s->w2 = check_weight(c, "W2", DIMS(s->out, s->hidden));
    s->b1 = s->b2 = NULL;
    if (check_chance(c, 60))
        s->b1 = check_weight(c, "b1", DIMS(s->hidden));
    else
        check_absent(c);
    if (check_chance(c, 60))
        s->b2 = check_weight(c, "b2", DIMS(s->out));
    double *y = check_output(c, "Y", DIMS(s->b, s->out, s->c));
    if (!c->blank)
        reference(s, y);
}

static void refusals(struct check *c)
{
    struct mixing s = { 1, 4, 3, 5, 6, 0, NULL, NULL, NULL, NULL, NULL };
    build(c, &s);
    c->in[1].dims[1] = 3;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 1 W1|expected 4 in dim 1|tokens of X");
    build(c, &s);
    c->in[2].dims[1] = 4;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 2 W2|expected 5 in dim 1|rows of W1");
    build(c, &s);
    c->in[0].rank = 2;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 0 X|expected rank 3");
    build(c, &s);
    c->n_attrs = 0;
    check_string(c, "activation", "selu");
    check_refuses(c, ATTNRUN_E_ATTR, "activation|selu");
    build(c, &s);
    check_int(c, "axis", 1);
    check_refuses(c, ATTNRUN_E_ATTR, "axis");
}

void check_token_mixing(struct check *c)
{
    CHECK_ROUNDS(c, 50)
    {
        const bool large = check_chance(c, 20);
        struct mixing s = { .b = check_between(c, 0, 3),
                            .n = check_between(c, 0, large ? 400 : 12),
                            .c = check_between(c, 0, large ? 300 : 70),
                            .hidden = check_between(c, 0, large ? 150 : 12),
                            .out = check_between(c, 0, large ? 150 : 12),
                            .activation = (int)check_below(c, 3) };
        build(c, &s);
        check_run_with(c, 1e-5, 3e-6 * (1 + sqrt((double)(s.n * s.hidden))));
    }
    { /* several blocks of tokens, of hidden values and of rows */
        struct mixing s = { .b = 1,
                            .n = check_between(c, 385, 800),
                            .c = check_between(c, 1, 20),
                            .hidden = check_between(c, 513, 800),
                            .out = check_between(c, 513, 800) };
        build(c, &s);
        check_run_with(c, 1e-5, 3e-6 * (1 + sqrt((double)(s.n * s.hidden))));
    }
    refusals(c);
    struct mixing s = { 1, 4096, 512, 4096, 4096, 0, NULL, NULL, NULL, NULL, NULL };
    c->blank = true;
    build(c, &s);
    check_extra_memory(c, 2 << 20);
}
