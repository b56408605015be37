/* check_boom.c - Boom against its formula. */
#include "operator_harness.h"

enum { QUICK_GELU, GELU, GELU_TANH, RELU };

static const char *const activations[] = { "quick_gelu", "gelu", "gelu_tanh", "relu" };

struct boom {
    int64_t batch, n, in, hidden, size;
    int activation;
    bool flat;
    const float *x, *w, *bias;
};

static double act(int kind, double x)
{
    switch (kind) {
    case QUICK_GELU:
        return x / (1 + exp(-1.702 * x));
    case GELU:
        return x * erfc(-x / sqrt(2.0)) / 2;
    case GELU_TANH:
        return x / 2 *
               (1 + tanh(sqrt(2 / 3.14159265358979324) * (x + 0.044715 * x * x * x)));
    default:
        return fmax(x, 0);
    }
}

static void reference(const struct boom *b, double *y)
{
    for (int64_t row = 0; row < b->batch * b->n; row++)
        for (int64_t f = 0; f < b->hidden / b->size * b->size; f++) {
            double x = b->bias != NULL ? (double)b->bias[f] : 0;
            for (int64_t d = 0; d < b->in; d++)
                x += (double)b->x[row * b->in + d] * (double)b->w[d * b->hidden + f];
            y[row * b->size + f % b->size] += act(b->activation, x);
        }
}

static void build(struct check *c, struct boom *b)
{
    check_begin(c, "Boom");
    b->activation = (int)check_below(c, 4);
    if (b->activation != QUICK_GELU || check_chance(c, 30))
        check_string(c, "activation", activations[b->activation]);
    if (b->size != b->in || check_chance(c, 30))
        check_int(c, "output_size", b->size);
    b->x = b->flat ? check_f32(c, "X", DIMS(b->batch * b->n, b->in))
                   : check_f32(c, "X", DIMS(b->batch, b->n, b->in));
    float *w = check_weight(c, "W", DIMS(b->in, b->hidden));
    for (int64_t i = 0; i < b->in * b->hidden; i++)
        w[i] /= sqrtf((float)b->in);
    b->w = w;
    b->bias = check_chance(c, 60) ? check_weight(c, "b", DIMS(b->hidden)) : NULL;
    double *y = b->flat ? check_output(c, "Y", DIMS(b->batch * b->n, b->size))
                        : check_output(c, "Y", DIMS(b->batch, b->n, b->size));
    if (!c->blank)
        reference(b, y);
    c->no_twin = true;
}

static void refusals(struct check *c)
{
    struct boom b = { .batch = 2, .n = 3, .in = 4, .hidden = 9, .size = 4 };
    build(c, &b);
    c->n_attrs = 0;
    check_int(c, "output_size", 10);
    check_refuses(c, ATTNRUN_E_SHAPE, "W|at least 10 columns");
    build(c, &b);
    c->n_attrs = 0;
    check_int(c, "output_size", 0);
    check_refuses(c, ATTNRUN_E_ATTR, "output_size is 0");
    build(c, &b);
    c->n_attrs = 0;
    check_string(c, "activation", "silu");
    check_refuses(c, ATTNRUN_E_ATTR, "activation|silu");
    build(c, &b);
    c->in[1].dims[0] = 3;
    check_refuses(c, ATTNRUN_E_SHAPE, "W|expected 4|last dim of X");
    do {
        build(c, &b);
    } while (b.bias == NULL);
    c->in[2].dims[0] = 8;
    check_refuses(c, ATTNRUN_E_SHAPE, "b|expected 9|columns of W");
}

void check_boom(struct check *c)
{
    CHECK_ROUNDS(c, 60)
    {
        const bool large = c->round % 8 == 0;
        struct boom b = { .batch = check_between(c, 0, 3),
                          .n = check_between(c, 0, large ? 120 : 9),
                          .in = check_between(c, 1, 40),
                          .size = check_between(c, 1, large ? 300 : 40),
                          .flat = check_chance(c, 30) };
        if (check_chance(c, 50))
            b.size = b.in;
        b.hidden = b.size * check_between(c, 1, 4) + check_below(c, b.size);
        build(c, &b);
        /* Pieces may cancel each other. */
        check_run_with(c, 1e-5, 1e-6 * (double)(1 + b.hidden / b.size));
    }
    refusals(c);
    c->blank = true;
    build(c, &(struct boom){
                 .batch = 1, .n = 16384, .in = 512, .hidden = 2048, .size = 512 });
    check_extra_memory(c, 2 << 20);
    c->blank = false;
}
