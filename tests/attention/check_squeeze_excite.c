/* check_squeeze_excite.c - SqueezeExcite against its formula. */
#include "operator_harness.h"
#include "map_words.h"

enum { MAX_CHANNELS = 640 };

struct se {
    int64_t batch, c, h, w, hidden; /* hidden 0: no w2 */
    const char *activation, *gate, *pool;
    bool relu;
    float *x;
    const float *w1, *b1, *w2, *b2, *identity;
};

/* y = w z + b */
static void product(const float *w, const float *b, const double *z, int64_t rows,
                    int64_t columns, double *y)
{
    for (int64_t r = 0; r < rows; r++) {
        y[r] = b != NULL ? (double)b[r] : 0;
        for (int64_t i = 0; i < columns; i++)
            y[r] += (double)w[r * columns + i] * z[i];
    }
}

static void find_gates(const struct se *s, const float *x, double *g)
{
    double z[MAX_CHANNELS], u[MAX_CHANNELS];
    const int64_t n = s->h * s->w;
    for (int64_t c = 0; c < s->c; c++) {
        const float *plane = x + c * n;
        z[c] = strcmp(s->pool, "avg_max") != 0
                   ? map_pool(s->pool, plane, n)
                   : (map_pool("avg", plane, n) + map_pool("max", plane, n)) / 2;
    }
    if (s->hidden == 0) {
        product(s->w1, s->b1, z, s->c, s->c, g);
    } else {
        product(s->w1, s->b1, z, s->hidden, s->c, u);
        for (int64_t r = 0; r < s->hidden; r++)
            u[r] = map_activate(s->activation, u[r]);
        product(s->w2, s->b2, u, s->c, s->hidden, g);
    }
    for (int64_t c = 0; c < s->c; c++)
        g[c] = map_gate(s->gate, g[c]);
}

static void reference(const struct se *s, double *y)
{
    const int64_t n = s->h * s->w;
    double g[MAX_CHANNELS];
    for (int64_t b = 0; b < s->batch; b++) {
        find_gates(s, s->x + b * s->c * n, g);
        for (int64_t i = b * s->c * n; i < (b + 1) * s->c * n; i++) {
            y[i] = (double)s->x[i] * g[i / n % s->c];
            if (s->identity != NULL)
                y[i] += (double)s->identity[i];
            y[i] = s->relu ? map_activate("relu", y[i]) : y[i];
        }
    }
}

/* Weights are about as large as those of a layer, so that gates are not all 0 or 1. */
static const float *weight(struct check *c, const char *name, int64_t rows,
                           int64_t columns)
{
    float *w = check_weight(c, name, DIMS(rows, columns));
    for (int64_t i = 0; !c->blank && i < rows * columns; i++)
        w[i] /= sqrtf((float)columns);
    return w;
}

static void words(struct check *c, struct se *s)
{
    static const char *const pools[] = { "avg", "max", "avg_max" };
    s->activation = s->hidden == 0 ? "none" : map_activations[check_below(c, 5)];
    s->gate = map_gates[check_below(c, 2)];
    s->pool = pools[check_below(c, 3)];
    s->relu = check_chance(c, 30);
    if (strcmp(s->activation, "relu") != 0 || check_chance(c, 50))
        check_string(c, "activation", s->activation);
    if (strcmp(s->gate, "sigmoid") != 0 || check_chance(c, 50))
        check_string(c, "gate", s->gate);
    if (strcmp(s->pool, "avg") != 0 || check_chance(c, 50))
        check_string(c, "pool", s->pool);
    if (s->relu || check_chance(c, 30))
        check_string(c, "post_activation", s->relu ? "relu" : "none");
}

static const float *maybe(struct check *c, const char *name, int64_t n)
{
    if (check_chance(c, 50))
        return check_weight(c, name, DIMS(n));
    check_absent(c);
    return NULL;
}

/* The identity is nothing, an input, or x. */
static void build(struct check *c, struct se *s)
{
    check_begin(c, "SqueezeExcite");
    words(c, s);
    s->x = check_f32(c, "x", DIMS(s->batch, s->c, s->h, s->w));
    s->w1 = weight(c, "w1", s->hidden > 0 ? s->hidden : s->c, s->c);
    s->b1 = maybe(c, "b1", s->hidden > 0 ? s->hidden : s->c);
    s->b2 = s->identity = NULL;
    if (s->hidden > 0) {
        s->w2 = weight(c, "w2", s->c, s->hidden);
        s->b2 = maybe(c, "b2", s->c);
    } else {
        check_absent(c);
        check_absent(c);
    }
    if (check_chance(c, 40))
        s->identity = check_f32(c, "identity", DIMS(s->batch, s->c, s->h, s->w));
    c->no_twin = true;
}

static void run(struct check *c, struct se *s)
{
    double *y = check_output(c, "Y", DIMS(s->batch, s->c, s->h, s->w));
    reference(s, y);
    check_run(c, CHECK_A);
}

static void refuse_weights(struct check *c)
{
    struct se s = { .batch = 2, .c = 6, .h = 3, .w = 5, .hidden = 2 };
#define OUTPUT check_output(c, "Y", DIMS(s.batch, s.c, s.h, s.w))
    build(c, &s);
    c->in[1].dims[1] = 5;
    OUTPUT;
    check_refuses(c, ATTNRUN_E_SHAPE, "w1|expected 6 in dim 1|channels");
    build(c, &s);
    c->in[1].dims[0] = 0;
    OUTPUT;
    check_refuses(c, ATTNRUN_E_SHAPE, "w1|dim 0 is 0");
    build(c, &s);
    c->in[3].dims[1] = 1;
    OUTPUT;
    check_refuses(c, ATTNRUN_E_SHAPE, "w2|rows of the first matrix");
    do {
        build(c, &s);
    } while (s.b1 == NULL || s.b2 == NULL);
    c->in[2].dims[0] = 1;
    OUTPUT;
    check_refuses(c, ATTNRUN_E_SHAPE, "b1|rows of the first matrix");
    do {
        build(c, &s);
    } while (s.b2 == NULL);
    c->in[4].dims[0] = 5;
    OUTPUT;
    check_refuses(c, ATTNRUN_E_SHAPE, "b2|channels");
    do {
        build(c, &s);
    } while (s.b2 == NULL);
    c->in[3] = (struct check_operand){ 0 };
    OUTPUT;
    check_refuses(c, ATTNRUN_E_INPUT, "b2|needs w2");
}

static void refusals(struct check *c)
{
    struct se s = { .batch = 2, .c = 6, .h = 3, .w = 5 };
    refuse_weights(c);
    build(c, &s);
    c->n_attrs = 0;
    OUTPUT;
    check_refuses(c, ATTNRUN_E_ATTR, "activation|no w2");
    do {
        build(c, &s);
    } while (s.b1 != NULL);
    c->in[1].dims[0] = 5;
    OUTPUT;
    check_refuses(c, ATTNRUN_E_SHAPE, "w1|without w2");
    s.hidden = 3;
    static const char *const attributes[] = { "activation", "gate", "pool",
                                              "post_activation" };
    for (int i = 0; i < 4; i++) {
        build(c, &s);
        c->n_attrs = 0;
        check_string(c, attributes[i], "tanh");
        OUTPUT;
        check_refuses(c, ATTNRUN_E_ATTR, attributes[i]);
    }
    build(c, &s);
    c->in[0].dims[1] = 0; /* of height or width 0 there is a result of nothing */
    OUTPUT;
    check_refuses(c, ATTNRUN_E_SHAPE, "x|is 0");
    build(c, &s);
    c->in[0].rank = 3;
    OUTPUT;
    check_refuses(c, ATTNRUN_E_SHAPE, "x|rank 4");
    do {
        build(c, &s);
    } while (s.identity == NULL);
    c->in[5].dims[3] = 1;
    OUTPUT;
    check_refuses(c, ATTNRUN_E_SHAPE, "identity|that of the output");
}

/* A pixel that is no number takes part in all gates; an infinite one in some. */
static void odd_pixels(struct check *c)
{
    CHECK_ROUNDS(c, 12)
    {
        struct se s = { .batch = 2, .c = 9, .h = 5, .w = 7, .hidden = 3 };
        build(c, &s);
        s.x[check_below(c, s.c * 35)] = c->round % 2 ? (float)NAN : (float)INFINITY;
        run(c, &s);
    }
}

void check_squeeze_excite(struct check *c)
{
    CHECK_ROUNDS(c, 60)
    {
        struct se s = { .batch = check_between(c, 0, c->round % 7 == 0 ? 20 : 4),
                        .c = check_between(c, 1, c->round % 5 == 0 ? 90 : 20),
                        .h = check_between(c, 1, 19),
                        .w = check_between(c, 1, 19),
                        .hidden = check_between(c, 0, 24) };
        if (c->round % 10 == 3) /* planes of more than one block */
            s = (struct se){ .batch = 3, .c = 5, .h = 47, .w = 61, .hidden = 2 };
        if (c->round % 10 == 8) /* large weights */
            s = (struct se){ .batch = 9, .c = 610, .h = 2, .w = 2, .hidden = 39 };
        build(c, &s);
        run(c, &s);
    }
    odd_pixels(c);
    refusals(c);
    c->blank = true;
    struct se s = { .batch = 1, .c = 256, .h = 128, .w = 128, .hidden = 16 };
    build(c, &s);
    OUTPUT;
    check_extra_memory(c, 4 * (2 * 256 + 16));
    s.batch = 16;
    build(c, &s);
    OUTPUT;
    check_extra_memory(c, 4 * (2 * 256 + 16));
    c->blank = false;
}
