/* check_sk_select.c - SKSelect against its formula. */
#include "operator_harness.h"
#include "map_words.h"

enum { MAX_MAPS = 8, MAX_CHANNELS = 64, FIRST_MAP = 5 };

struct sk {
    int64_t batch, c, h, w, hidden;
    int maps;
    bool relu, tail;
    float *f[MAX_MAPS];
    const float *w1, *b1, *wsel, *bsel, *identity;
};

static void find_weights(const struct sk *s, int64_t b, double *weights)
{
    const int64_t n = s->h * s->w;
    double sum[MAX_CHANNELS] = { 0 }, z[MAX_CHANNELS];
    for (int64_t c = 0; c < s->c; c++)
        for (int m = 0; m < s->maps; m++)
            sum[c] += map_pool("avg", s->f[m] + (b * s->c + c) * n, n);
    for (int64_t r = 0; r < s->hidden; r++) {
        z[r] = s->b1 != NULL ? (double)s->b1[r] : 0;
        for (int64_t c = 0; c < s->c; c++)
            z[r] += (double)s->w1[r * s->c + c] * sum[c];
        z[r] = s->relu ? map_activate("relu", z[r]) : z[r];
    }
    for (int64_t c = 0; c < s->c; c++) {
        double total = 0, max = -(double)INFINITY;
        for (int m = 0; m < s->maps; m++) {
            double *l = &weights[m * s->c + c];
            *l = s->bsel != NULL ? (double)s->bsel[m * s->c + c] : 0;
            for (int64_t r = 0; r < s->hidden; r++)
                *l += (double)s->wsel[(m * s->c + c) * s->hidden + r] * z[r];
            max = fmax(max, *l);
        }
        for (int m = 0; m < s->maps; m++)
            total += weights[m * s->c + c] = exp(weights[m * s->c + c] - max);
        for (int m = 0; m < s->maps; m++)
            weights[m * s->c + c] /= total;
    }
}

static void reference(const struct sk *s, double *y)
{
    double weights[MAX_MAPS * MAX_CHANNELS];
    const int64_t n = s->h * s->w;
    for (int64_t b = 0; b < s->batch; b++) {
        find_weights(s, b, weights);
        for (int64_t i = b * s->c * n; i < (b + 1) * s->c * n; i++) {
            y[i] = s->identity != NULL ? (double)s->identity[i] : 0;
            for (int m = 0; m < s->maps; m++)
                y[i] += weights[m * s->c + i / n % s->c] * (double)s->f[m][i];
            y[i] = s->tail ? map_activate("relu", y[i]) : y[i];
        }
    }
}

static const float *maybe(struct check *c, const char *name, int rank,
                          const int64_t *dims)
{
    if (check_chance(c, 60))
        return check_weight(c, name, rank, dims);
    check_absent(c);
    return NULL;
}

static void build(struct check *c, struct sk *s)
{
    static const char *const names[] = { "f_0", "f_1", "f_2", "f_3",
                                         "f_4", "f_5", "f_6", "f_7" };
    check_begin(c, "SKSelect");
    s->relu = check_chance(c, 50);
    s->tail = check_chance(c, 40);
    if (s->relu || check_chance(c, 50))
        check_string(c, "activation", s->relu ? "relu" : "none");
    if (s->tail)
        check_string(c, "post_activation", "relu");
    float *w1 = check_weight(c, "w1", DIMS(s->hidden, s->c));
    for (int64_t i = 0; !c->blank && i < s->hidden * s->c; i++)
        w1[i] /= sqrtf((float)s->c);
    s->w1 = w1;
    s->b1 = maybe(c, "b1", DIMS(s->hidden));
    float *wsel = check_weight(c, "wsel", DIMS(s->maps, s->c, s->hidden));
    for (int64_t i = 0; !c->blank && i < s->maps * s->c * s->hidden; i++)
        wsel[i] /= sqrtf((float)s->hidden);
    s->wsel = wsel;
    s->bsel = maybe(c, "bsel", DIMS(s->maps, s->c));
    s->identity = NULL;
    if (check_chance(c, 40))
        s->identity = check_f32(c, "identity", DIMS(s->batch, s->c, s->h, s->w));
    else
        check_absent(c);
    for (int m = 0; m < s->maps; m++)
        s->f[m] = check_f32(c, names[m], DIMS(s->batch, s->c, s->h, s->w));
    c->no_twin = true;
}

static double *output(struct check *c, const struct sk *s)
{
    return check_output(c, "Y", DIMS(s->batch, s->c, s->h, s->w));
}

static void refuse(struct check *c)
{
    struct sk s = { .batch = 2, .c = 6, .h = 3, .w = 5, .hidden = 2, .maps = 2 };
    build(c, &s);
    c->in[FIRST_MAP + 1].dims[3] = 4;
    output(c, &s);
    check_refuses(c, ATTNRUN_E_SHAPE, "f_1|that of f_0");
    build(c, &s);
    c->n_in--;
    output(c, &s);
    check_refuses(c, ATTNRUN_E_INPUT, "1 map|expected 2 to 8");
    build(c, &s);
    c->in[0].dims[1] = 5;
    output(c, &s);
    check_refuses(c, ATTNRUN_E_SHAPE, "w1|channels");
    build(c, &s);
    c->in[2].dims[0] = 3;
    output(c, &s);
    check_refuses(c, ATTNRUN_E_SHAPE, "wsel|number of maps");
    build(c, &s);
    c->in[2].dims[2] = 3;
    output(c, &s);
    check_refuses(c, ATTNRUN_E_SHAPE, "wsel|rows of w1");
    do {
        build(c, &s);
    } while (s.identity == NULL);
    c->in[4].dims[1] = 5;
    output(c, &s);
    check_refuses(c, ATTNRUN_E_SHAPE, "identity|that of the output");
    build(c, &s);
    c->n_attrs = 0;
    check_string(c, "post_activation", "gelu");
    output(c, &s);
    check_refuses(c, ATTNRUN_E_ATTR, "post_activation");
}

/* Of equal branches, the branch. */
static void equal_branches(struct check *c)
{
    struct sk s = { .batch = 3, .c = 5, .h = 7, .w = 9, .hidden = 4, .maps = 3 };
    do {
        build(c, &s);
    } while (s.identity != NULL || s.tail);
    const int64_t n = s.batch * s.c * s.h * s.w;
    memcpy(s.f[1], s.f[0], (size_t)n * sizeof(float));
    memcpy(s.f[2], s.f[0], (size_t)n * sizeof(float));
    double *y = output(c, &s);
    for (int64_t i = 0; i < n; i++)
        y[i] = (double)s.f[0][i];
    check_run(c, CHECK_A);
}

void check_sk_select(struct check *c)
{
    CHECK_ROUNDS(c, 40)
    {
        struct sk s = { .batch = check_between(c, 0, 5),
                        .c = check_between(c, 1, 40),
                        .h = check_between(c, 1, 20),
                        .w = check_between(c, 1, 20),
                        .hidden = check_between(c, 1, 20),
                        .maps = (int)check_between(c, 2, MAX_MAPS) };
        build(c, &s);
        reference(&s, output(c, &s));
        check_run(c, CHECK_A);
    }
    equal_branches(c);
    refuse(c);
    struct sk s = { .batch = 1, .c = 256, .h = 128, .w = 128, .hidden = 32, .maps = 2 };
    c->blank = true;
    build(c, &s);
    output(c, &s);
    check_extra_memory(c, 4 * (256 + 32 + 2 * 256) + 64);
}
