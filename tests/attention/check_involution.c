/* check_involution.c - Involution against its formula. */
#include <stdlib.h>

#include "operator_harness.h"

struct involution {
    int64_t b, channels, groups, size, stride, h, w; /* channels of a group; h, w of Y */
    int64_t hidden;                                  /* 0: input kernel */
    const char *activation;
    bool with_b1, with_b2;
    const float *x, *w1, *b1, *w2, *b2, *kernel;
    double terms; /* the largest sum of amounts of an element of Y */
};

static double activate(const char *name, double x)
{
    if (strcmp(name, "relu") == 0)
        return x < 0 ? 0 : x;
    if (strcmp(name, "silu") == 0)
        return x / (1 + exp(-x));
    if (strcmp(name, "gelu") == 0)
        return x * 0.5 * (1 + erf(x * sqrt(0.5)));
    if (strcmp(name, "hardswish") == 0)
        return x * fmin(1, fmax(0, x / 6 + 0.5));
    return x;
}

/* H[hidden] of an output pixel. */
static void find_hidden(const struct involution *s, int64_t b, int64_t y, int64_t z,
                        double *hidden)
{
    const int64_t all = s->groups * s->channels, w = s->w * s->stride;
    for (int64_t r = 0; r < s->hidden; r++) {
        double sum = s->b1 != NULL ? (double)s->b1[r] : 0;
        for (int64_t c = 0; c < all; c++) {
            const float *x =
                s->x + ((b * all + c) * s->h * s->stride + y * s->stride) * w;
            double mean = 0;
            for (int64_t i = 0; i < s->stride * s->stride; i++)
                mean += (double)x[i / s->stride * w + z * s->stride + i % s->stride];
            sum += (double)s->w1[r * all + c] * mean / (double)(s->stride * s->stride);
        }
        hidden[r] = activate(s->activation, sum);
    }
}

static double find_kernel(const struct involution *s, int64_t b, int64_t row,
                          int64_t pixel, const double *hidden)
{
    const int64_t rows = s->groups * s->size * s->size;
    if (s->hidden == 0)
        return (double)s->kernel[(b * rows + row) * s->h * s->w + pixel];
    double sum = s->b2 != NULL ? (double)s->b2[row] : 0;
    for (int64_t r = 0; r < s->hidden; r++)
        sum += (double)s->w2[row * s->hidden + r] * hidden[r];
    return sum;
}

/* Of pixel (y, z) all channels of group g. Zeros around the image are multiplied, too. */
static void find_pixel(struct involution *s, int64_t b, int64_t g, int64_t y, int64_t z,
                       const double *hidden, double *out)
{
    const int64_t h = s->h * s->stride, w = s->w * s->stride, taps = s->size * s->size;
    double kernel[31 * 31];
    for (int64_t t = 0; t < taps; t++)
        kernel[t] = find_kernel(s, b, g * taps + t, y * s->w + z, hidden);
    for (int64_t c = g * s->channels; c < (g + 1) * s->channels; c++) {
        const int64_t plane = b * s->groups * s->channels + c;
        double sum = 0, terms = 0;
        for (int64_t t = 0; t < taps; t++) {
            const int64_t row = y * s->stride + t / s->size - s->size / 2;
            const int64_t column = z * s->stride + t % s->size - s->size / 2;
            const bool inside = row >= 0 && row < h && column >= 0 && column < w;
            const double term =
                kernel[t] * (inside ? (double)s->x[(plane * h + row) * w + column] : 0);
            sum += term;
            terms += fabs(term);
        }
        out[(plane * s->h + y) * s->w + z] = sum;
        s->terms = terms > s->terms ? terms : s->terms;
    }
}

static void reference(struct involution *s, double *out)
{
    double hidden[300];
    s->terms = 0;
    for (int64_t b = 0; b < s->b; b++)
        for (int64_t p = 0; p < s->h * s->w; p++) {
            find_hidden(s, b, p / s->w, p % s->w, hidden);
            for (int64_t g = 0; g < s->groups; g++)
                find_pixel(s, b, g, p / s->w, p % s->w, hidden, out);
        }
}

static float *weight(struct check *c, const char *name, int64_t rows, int64_t columns)
{
    float *w = columns > 0 ? check_weight(c, name, DIMS(rows, columns))
                           : check_weight(c, name, DIMS(rows));
    for (int64_t i = 0; columns > 0 && i < rows * columns; i++)
        w[i] /= sqrtf((float)columns);
    return w;
}

static void add_generator(struct check *c, struct involution *s)
{
    const int64_t rows = s->groups * s->size * s->size;
    s->w1 = weight(c, "w1", s->hidden, s->groups * s->channels);
    if (s->with_b1)
        s->b1 = weight(c, "b1", s->hidden, 0);
    else
        check_absent(c);
    s->w2 = weight(c, "w2", rows, s->hidden);
    if (s->with_b2)
        s->b2 = weight(c, "b2", rows, 0);
}

static void build(struct check *c, struct involution *s)
{
    check_begin(c, "Involution");
    check_int(c, "kernel_size", s->size);
    check_int(c, "groups", s->groups);
    if (s->stride != 1)
        check_int(c, "stride", s->stride);
    if (strcmp(s->activation, "relu") != 0)
        check_string(c, "activation", s->activation);
    s->w1 = s->b1 = s->w2 = s->b2 = s->kernel = NULL;
    s->x = check_f32(
        c, "x", DIMS(s->b, s->groups * s->channels, s->h * s->stride, s->w * s->stride));
    if (s->hidden > 0) {
        add_generator(c, s);
    } else {
        for (int i = 0; i < 4; i++)
            check_absent(c);
        s->kernel =
            check_f32(c, "kernel", DIMS(s->b, s->groups * s->size * s->size, s->h, s->w));
    }
    double *y = check_output(c, "Y", DIMS(s->b, s->groups * s->channels, s->h, s->w));
    if (!c->blank)
        reference(s, y);
}

static struct involution draw(struct check *c)
{
    static const char *const names[] = { "relu", "none", "silu", "gelu", "hardswish" };
    struct involution s = { .b = check_between(c, 0, 3),
                            .channels = check_between(c, 1, 9),
                            .groups = check_between(c, 1, 5),
                            .size = 1 + 2 * check_between(c, 0, 4),
                            .stride = 1,
                            .h = check_between(c, 1, 14),
                            .w = check_between(c, 1, 40),
                            .hidden = check_between(c, 1, 20),
                            .activation = names[check_below(c, 5)],
                            .with_b1 = check_chance(c, 50),
                            .with_b2 = check_chance(c, 60) };
    if (check_chance(c, 40))
        s.stride = check_between(c, 2, 5);
    if (check_chance(c, 10)) { /* the hidden layer is cut into blocks of rows */
        s.hidden = 150;
        s.h = 3;
    }
    if (check_chance(c, 30))
        s.hidden = 0;
    return s;
}

static void run(struct check *c, const struct involution *s)
{
    check_run_with(c, 1e-4, 1e-5 + 2e-6 * s->terms);
}

/* Many tiles: each makes its H itself. A window larger than the image; more rows of taps
 * than a product has; wide rows that meet at the edges of blocks. */
static void large_ones(struct check *c)
{
    const struct involution cases[] = {
        { .b = 2, .channels = 3, .groups = 2, .size = 3, .h = 40, .w = 61, .hidden = 5 },
        { .b = 1, .channels = 2, .groups = 3, .size = 31, .h = 9, .w = 11, .hidden = 4 },
        { .b = 1, .channels = 2, .groups = 1, .size = 13, .h = 5, .w = 133, .hidden = 3 },
        { .b = 1, .channels = 17, .groups = 2, .size = 7, .h = 28, .w = 28, .hidden = 8 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int64_t stride = 1; stride <= 2; stride++) {
            struct involution s = cases[i];
            s.stride = stride;
            s.activation = "relu";
            s.with_b1 = s.with_b2 = true;
            build(c, &s);
            run(c, &s);
        }
}

/* With one channel a group, K = 1 and kernels of 1, Y is x. */
static void identity(struct check *c)
{
    struct involution s = draw(c);
    s.b = 2;
    s.channels = s.size = s.stride = 1;
    s.hidden = 3;
    s.with_b2 = true;
    build(c, &s);
    for (int64_t i = 0; i < s.groups * s.hidden; i++)
        ((float *)c->in[3].data)[i] = 0.0f;
    for (int64_t i = 0; i < s.groups; i++)
        ((float *)c->in[4].data)[i] = 1.0f;
    for (int64_t i = 0; i < s.b * s.groups * s.h * s.w; i++)
        c->out[0].want[i] = (double)s.x[i];
    check_run(c, CHECK_EXACT);
}

/* What one pixel that is no number, or infinite, makes of the others. */
static void not_finite(struct check *c, float value)
{
    struct involution s = draw(c);
    s.b = 2;
    s.activation = "relu";
    build(c, &s);
    const int64_t n = s.groups * s.channels * s.h * s.w * s.stride * s.stride;
    ((float *)c->in[0].data)[n + check_below(c, n)] = value;
    reference(&s, c->out[0].want);
    check_run_with(c, 1e-4, 1e-4);
}

static void refuse_shapes(struct check *c, const struct involution *plain)
{
    struct involution s = *plain;
    build(c, &s);
    c->in[0].rank = 3;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 0 x|expected rank 4");
    build(c, &s);
    c->in[0].dims[2] = 0;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 0 x|dim 2 is 0");
    build(c, &s);
    c->in[0].dims[1] = c->in[1].dims[1] = 7;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 0 x|channels that groups, 2, divides");
    build(c, &s);
    c->in[0].dims[2] = 9;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 0 x|a height that stride 2 divides");
    build(c, &s);
    c->in[0].dims[3] = 9;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 0 x|a width that stride 2 divides");
    build(c, &s);
    c->in[1].dims[1] = 5;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 1 w1|expected 6 in dim 1|the channels");
    build(c, &s);
    c->in[1].dims[0] = 0;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 1 w1|dim 0 is 0");
    build(c, &s);
    c->in[2].dims[0] = 5;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 2 b1|expected 4 in dim 0|the rows of w1");
    build(c, &s);
    c->in[3].dims[0] = 19;
    check_refuses(c, ATTNRUN_E_SHAPE,
                  "input 3 w2|expected 18 in dim 0|groups * kernel_size^2");
    build(c, &s);
    c->in[3].dims[1] = 3;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 3 w2|expected 4 in dim 1|the rows of w1");
    build(c, &s);
    c->in[4].dims[0] = 3;
    check_refuses(c, ATTNRUN_E_SHAPE, "input 4 b2|expected 18 in dim 0");
    s.hidden = 0;
    for (int i = 0; i < 4; i++) {
        static const char *const words[] = {
            "expected 1 in dim 0|the batch",
            "expected 18 in dim 1|groups * kernel_size^2",
            "expected 4 in dim 2|height / stride", "expected 5 in dim 3|width / stride"
        };
        build(c, &s);
        c->in[5].dims[i]++;
        check_refuses(c, ATTNRUN_E_SHAPE, words[i]);
    }
}

static void refuse_inputs(struct check *c, const struct involution *plain)
{
    struct involution s = *plain;
    s.with_b2 = false;
    build(c, &s);
    check_absent(c);
    check_f32(c, "kernel", DIMS(1, 18, 4, 5));
    check_refuses(c, ATTNRUN_E_INPUT, "input 1 w1|none beside kernel");
    build(c, &s);
    c->n_in = 3;
    check_refuses(c, ATTNRUN_E_INPUT, "w1 and w2 are missing");
    build(c, &s);
    c->in[1].dtype = c->in[1].name[0] = 0;
    c->in[1].constant = false;
    check_refuses(c, ATTNRUN_E_INPUT, "w1 and w2 are missing");
    build(c, &s);
    c->n_in = 1;
    check_refuses(c, ATTNRUN_E_INPUT, "w1 and w2 are missing");
}

static void refuse_attributes(struct check *c, const struct involution *plain)
{
    struct involution s = *plain;
    const int64_t sizes[] = { 0, 2, 33 };
    for (int i = 0; i < 3; i++) {
        build(c, &s);
        c->attrs[0].ints[0] = sizes[i];
        check_refuses(c, ATTNRUN_E_ATTR, "kernel_size is");
    }
    build(c, &s);
    c->attrs[1].ints[0] = 0;
    check_refuses(c, ATTNRUN_E_ATTR, "groups is 0");
    build(c, &s);
    c->attrs[2].ints[0] = 0;
    check_refuses(c, ATTNRUN_E_ATTR, "stride is 0");
    build(c, &s);
    check_string(c, "activation", "tanh");
    check_refuses(c, ATTNRUN_E_ATTR, "activation|tanh");
    build(c, &s);
    check_int(c, "dilation", 2);
    check_refuses(c, ATTNRUN_E_ATTR, "dilation");
}

void check_involution(struct check *c)
{
    CHECK_ROUNDS(c, 60)
    {
        struct involution s = draw(c);
        build(c, &s);
        run(c, &s);
    }
    large_ones(c);
    for (int i = 0; i < 8; i++) {
        identity(c);
        not_finite(c, NAN);
        not_finite(c, i % 2 == 0 ? INFINITY : -INFINITY);
    }
    c->blank = true;
    const struct involution plain = { .b = 1,
                                      .channels = 3,
                                      .groups = 2,
                                      .size = 3,
                                      .stride = 2,
                                      .h = 4,
                                      .w = 5,
                                      .hidden = 4,
                                      .activation = "relu",
                                      .with_b1 = true,
                                      .with_b2 = true };
    refuse_shapes(c, &plain);
    refuse_inputs(c, &plain);
    refuse_attributes(c, &plain);
    struct involution s = { .b = 1,
                            .channels = 16,
                            .groups = 16,
                            .size = 7,
                            .stride = 1,
                            .h = 128,
                            .w = 128,
                            .hidden = 64,
                            .activation = "relu" };
    build(c, &s);
    check_extra_memory(c, 49 * 16 * 128 * 4); /* a tile of kernels */
}
