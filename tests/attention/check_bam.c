/* check_bam.c - BAM against its formula. */
#include <stdlib.h>

#include "operator_harness.h"
#include "map_words.h"

enum { MAX = 40, CW0 = 1, CB0, CW1, CB1, SW0, SB0, SWM, SBM, SW1, SB1, CWM, CBM };

struct bam {
    int64_t batch, c, h, w, hidden, middle, layers, more, dilation;
    bool add, tail;
    const float *x, *identity, *in[CBM + 1];
};

/* y = W z + b, relu but for the last. */
static void layer(const float *w, const float *b, const double *z, int64_t rows,
                  int64_t k, bool relu, double *y)
{
    for (int64_t r = 0; r < rows; r++) {
        y[r] = b != NULL ? (double)b[r] : 0;
        for (int64_t i = 0; i < k; i++)
            y[r] += (double)w[r * k + i] * z[i];
        y[r] = relu ? map_activate("relu", y[r]) : y[r];
    }
}

static void channel_gates(const struct bam *s, const float *x, double *gates)
{
    double z[2][MAX], mean[MAX];
    const int64_t n = s->h * s->w, m = s->middle;
    for (int64_t c = 0; c < s->c; c++)
        mean[c] = map_pool("avg", x + c * n, n);
    layer(s->in[CW0], s->in[CB0], mean, m, s->c, true, z[0]);
    for (int64_t i = 0; i < s->more; i++)
        layer(s->in[CWM] + i * m * m, s->in[CBM] != NULL ? s->in[CBM] + i * m : NULL,
              z[i % 2], m, m, true, z[(i + 1) % 2]);
    layer(s->in[CW1], s->in[CB1], z[s->more % 2], s->c, m, false, gates);
}

static double tap_sum(const struct bam *s, const double *t, const float *w, int64_t y,
                      int64_t x)
{
    double sum = 0;
    for (int64_t c = 0; c < s->hidden; c++)
        for (int64_t i = 0; i < 3; i++)
            for (int64_t j = 0; j < 3; j++) {
                const int64_t a = y + (i - 1) * s->dilation,
                              b = x + (j - 1) * s->dilation;
                if (a >= 0 && a < s->h && b >= 0 && b < s->w)
                    sum += (double)w[(c * 3 + i) * 3 + j] * t[(c * s->h + a) * s->w + b];
            }
    return sum;
}

/* s_p of an image; t: two times R planes. */
static void pixel_numbers(const struct bam *s, const float *x, double *t, double *numbers)
{
    const int64_t n = s->h * s->w, r = s->hidden;
    for (int64_t i = 0; i < r * n; i++) {
        t[i] = s->in[SB0] != NULL ? (double)s->in[SB0][i / n] : 0;
        for (int64_t c = 0; c < s->c; c++)
            t[i] += (double)s->in[SW0][i / n * s->c + c] * (double)x[c * n + i % n];
        t[i] = map_activate("relu", t[i]);
    }
    for (int64_t l = 0; l < s->layers; l++) {
        const double *from = t + l % 2 * r * n;
        double *to = t + (l + 1) % 2 * r * n;
        for (int64_t i = 0; i < r * n; i++) {
            to[i] = s->in[SBM] != NULL ? (double)s->in[SBM][l * r + i / n] : 0;
            to[i] += tap_sum(s, from, s->in[SWM] + (l * r + i / n) * r * 9, i % n / s->w,
                             i % s->w);
            to[i] = map_activate("relu", to[i]);
        }
    }
    for (int64_t p = 0; p < n; p++) {
        numbers[p] = s->in[SB1] != NULL ? (double)s->in[SB1][0] : 0;
        for (int64_t i = 0; i < r; i++)
            numbers[p] += (double)s->in[SW1][i] * t[(s->layers % 2 * r + i) * n + p];
    }
}

static void reference(const struct bam *s, double *y)
{
    const int64_t n = s->h * s->w, image = s->c * n;
    double gates[MAX], *t = malloc(sizeof(double) * (size_t)(2 * s->hidden * n + n)),
                       *numbers = t + 2 * s->hidden * n;
    for (int64_t b = 0; b < s->batch; b++) {
        channel_gates(s, s->x + b * image, gates);
        pixel_numbers(s, s->x + b * image, t, numbers);
        for (int64_t i = 0; i < image; i++) {
            const double u = s->add ? gates[i / n] + numbers[i % n]
                                    : gates[i / n] * numbers[i % n],
                         x = (double)s->x[b * image + i];
            double v = x * (1 + map_gate("sigmoid", u));
            if (s->identity != NULL)
                v += (double)s->identity[b * image + i];
            y[b * image + i] = s->tail ? map_activate("relu", v) : v;
        }
    }
    free(t);
}

static void weight(struct check *c, struct bam *s, int in, const char *name, int percent,
                   int rank, const int64_t *dims)
{
    s->in[in] = NULL;
    if (!check_chance(c, percent)) {
        check_absent(c);
        return;
    }
    float *w = check_weight(c, name, rank, dims);
    int64_t n = 1, k = 1;
    for (int i = 0; i < rank; i++) {
        n *= dims[i];
        k *= i > (rank > 2) ? dims[i] : 1;
    }
    for (int64_t i = 0; !c->blank && i < n; i++)
        w[i] /= sqrtf((float)k);
    s->in[in] = w;
}

static void build(struct check *c, struct bam *s)
{
    const int64_t r = s->hidden, m = s->middle, stack = s->layers > 0 ? 100 : 0,
                  more = s->more > 0 ? 100 : 0;
    check_begin(c, "BAM");
    if (s->add)
        check_string(c, "combine", "add");
    if (s->dilation != 4 || check_chance(c, 50))
        check_int(c, "dilation", s->dilation);
    if (s->tail)
        check_string(c, "post_activation", "relu");
    s->x = check_f32(c, "x", DIMS(s->batch, s->c, s->h, s->w));
    weight(c, s, CW0, "cw0", 100, DIMS(m, s->c));
    weight(c, s, CB0, "cb0", 50, DIMS(m));
    weight(c, s, CW1, "cw1", 100, DIMS(s->c, m));
    weight(c, s, CB1, "cb1", 50, DIMS(s->c));
    weight(c, s, SW0, "sw0", 100, DIMS(r, s->c));
    weight(c, s, SB0, "sb0", 50, DIMS(r));
    weight(c, s, SWM, "swm", (int)stack, DIMS(s->layers, r, r, 3, 3));
    weight(c, s, SBM, "sbm", (int)stack / 2, DIMS(s->layers, r));
    weight(c, s, SW1, "sw1", 100, DIMS(1, r));
    weight(c, s, SB1, "sb1", 50, DIMS(1));
    weight(c, s, CWM, "cwm", (int)more, DIMS(s->more, m, m));
    weight(c, s, CBM, "cbm", (int)more / 2, DIMS(s->more, m));
    s->identity = NULL;
    if (check_chance(c, 40))
        s->identity = check_f32(c, "identity", DIMS(s->batch, s->c, s->h, s->w));
    c->no_twin = true;
}

static double *output(struct check *c, const struct bam *s)
{
    return check_output(c, "Y", DIMS(s->batch, s->c, s->h, s->w));
}

static void refuse(struct check *c)
{
    static const struct {
        int in, axis;
        int64_t dim;
        const char *words;
    } cases[] = {
        { CW0, 1, 5, "cw0|channels" },    { CW1, 0, 5, "cw1|channels" },
        { SW0, 1, 5, "sw0|channels" },    { SW0, 0, 0, "sw0|dim 0 is 0" },
        { SWM, 1, 1, "swm|rows of sw0" }, { SWM, 4, 2, "swm|3 x 3" },
        { SW1, 1, 1, "sw1|rows of sw0" }, { CWM, 2, 2, "cwm|rows of sw0 or cw0" }
    };
    struct bam s = { .batch = 2,
                     .c = 6,
                     .h = 3,
                     .w = 5,
                     .hidden = 2,
                     .middle = 3,
                     .layers = 1,
                     .more = 1,
                     .dilation = 4 };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        build(c, &s);
        c->in[cases[i].in].dims[cases[i].axis] = cases[i].dim;
        output(c, &s);
        check_refuses(c, ATTNRUN_E_SHAPE, cases[i].words);
    }
    s.dilation = 0;
    build(c, &s);
    output(c, &s);
    check_refuses(c, ATTNRUN_E_ATTR, "dilation|1 or more");
    s.dilation = 1;
    do {
        build(c, &s);
    } while (s.in[SBM] == NULL);
    check_leave_out(c, SWM);
    output(c, &s);
    check_refuses(c, ATTNRUN_E_INPUT, "sbm|weights of its layers");
    do {
        build(c, &s);
    } while (s.identity == NULL);
    c->in[CBM + 1].dims[2] = 4;
    output(c, &s);
    check_refuses(c, ATTNRUN_E_SHAPE, "identity|that of the output");
}

void check_bam(struct check *c)
{
    CHECK_ROUNDS(c, 30)
    {
        struct bam s = { .batch = check_between(c, 0, 5),
                         .c = check_between(c, 1, MAX),
                         .h = check_between(c, 1, 40),
                         .w = check_between(c, 1, 40),
                         .hidden = check_between(c, 1, 6),
                         .middle = check_between(c, 1, 6),
                         .layers = check_chance(c, 90) ? check_between(c, 0, 3) : 8,
                         .more = check_between(c, 0, 2),
                         .dilation = check_between(c, 1, 6),
                         .add = check_chance(c, 40),
                         .tail = check_chance(c, 30) };
        build(c, &s);
        reference(&s, output(c, &s));
        check_run(c, CHECK_B);
    }
    refuse(c);
    struct bam s = { .batch = 1,
                     .c = 256,
                     .h = 128,
                     .w = 128,
                     .hidden = 16,
                     .middle = 16,
                     .layers = 2,
                     .dilation = 4 };
    c->blank = true;
    build(c, &s);
    output(c, &s);
    check_extra_memory(c, 3 << 20);
}
