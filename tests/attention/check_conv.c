/* check_conv.c - Conv and FusedConv of floats against their formula: all ways to compute
 * one, by shapes that lead there, on maps and on one plane of a volume. */
#include <stdlib.h>

#include "operator_harness.h"

struct conv {
    int64_t batch, groups, channels, rows; /* channels and rows of a group */
    int64_t in[2], kernel[2], stride[2], dilation[2], before[2], after[2], out[2];
    int activation; /* -1: Conv */
    int planes; /* 0: of two axes; else an axis before them that has one element, which the
                     * window sees (1), or beside which it sees padding (2) */
    const float *x, *w, *bias, *z;
};

static double activate(int activation, double y)
{
    switch (activation) {
    case 1:
        return y > 0 ? y : 0;
    case 2:
        return 1 / (1 + exp(-y));
    case 3:
        return tanh(y);
    default:
        return y;
    }
}

/* Row m, pixel p of image b. */
static double pixel(const struct conv *s, int64_t b, int64_t m, int64_t p)
{
    const int64_t taps = s->kernel[0] * s->kernel[1], group = m / s->rows;
    double sum = s->bias != NULL ? (double)s->bias[m] : 0;
    for (int64_t k = 0; k < s->channels * taps && s->planes != 2; k++) {
        const int64_t plane = (b * s->groups + group) * s->channels + k / taps;
        const int64_t h = p / s->out[1] * s->stride[0] - s->before[0] +
                          k % taps / s->kernel[1] * s->dilation[0];
        const int64_t w = p % s->out[1] * s->stride[1] - s->before[1] +
                          k % s->kernel[1] * s->dilation[1];
        if (h >= 0 && h < s->in[0] && w >= 0 && w < s->in[1])
            sum += (double)s->w[m * s->channels * taps + k] *
                   (double)s->x[(plane * s->in[0] + h) * s->in[1] + w];
    }
    return sum;
}

static void reference(const struct conv *s, double *y)
{
    const int64_t pixels = s->out[0] * s->out[1], rows = s->groups * s->rows;
    for (int64_t i = 0; i < s->batch * rows * pixels; i++) {
        y[i] = pixel(s, i / (rows * pixels), i / pixels % rows, i % pixels);
        if (s->z != NULL)
            y[i] += (double)s->z[i];
        y[i] = activate(s->activation, y[i]);
    }
}

/* The dims without that of planes where there are none. Returns the rank. */
static int ranks_of(const struct conv *s, const int64_t all[5], int64_t dims[5])
{
    const int skip = s->planes == 0;
    for (int i = 0; i < 5 - skip; i++)
        dims[i] = all[i < 2 ? i : i + skip];
    return 5 - skip;
}

static void set_window(struct check *c, const struct conv *s)
{
    const int64_t before = s->planes == 2, skip = s->planes == 0;
    const int64_t strides[3] = { before + 1, s->stride[0], s->stride[1] };
    const int64_t dilations[3] = { 1, s->dilation[0], s->dilation[1] };
    const int64_t pads[6] = { before, s->before[0], s->before[1],
                              0,      s->after[0],  s->after[1] };
    const int64_t of_two[4] = { pads[1], pads[2], pads[4], pads[5] };
    check_ints(c, "strides", 3 - (int)skip, strides + skip);
    check_ints(c, "dilations", 3 - (int)skip, dilations + skip);
    check_ints(c, "pads", skip ? 4 : 6, skip ? of_two : pads);
}

static void build(struct check *c, struct conv *s, bool with_bias, bool with_z)
{
    static const char *const words[] = { "", "Relu", "Sigmoid", "Tanh" };
    check_begin(c, s->activation < 0 ? "::Conv" : "com.microsoft::FusedConv");
    check_int(c, "group", s->groups);
    set_window(c, s);
    if (s->activation > 0)
        check_string(c, "activation", words[s->activation]);
    const int64_t rows = s->groups * s->rows;
    const int64_t x[] = { s->batch, s->groups * s->channels, 1, s->in[0], s->in[1] };
    const int64_t w[] = { rows, s->channels, 1, s->kernel[0], s->kernel[1] };
    const int64_t out[] = { s->batch, rows, 1, s->out[0], s->out[1] };
    int64_t dims[5];
    s->x = check_f32(c, "X", ranks_of(s, x, dims), dims);
    s->w = check_weight(c, "W", ranks_of(s, w, dims), dims);
    s->bias = s->z = NULL;
    if (with_bias)
        s->bias = check_weight(c, "B", DIMS(s->groups * s->rows));
    else
        check_absent(c);
    if (with_z && s->activation >= 0)
        s->z = check_f32(c, "Z", ranks_of(s, out, dims), dims);
    double *y = check_output(c, "Y", ranks_of(s, out, dims), dims);
    reference(s, y);
}

/* `same`: rows of the output are as long as those of the input. */
static void random_axis(struct check *c, struct conv *s, int a, bool same)
{
    s->kernel[a] = check_between(c, 1, 5);
    s->stride[a] = same ? 1 : check_between(c, 1, 3);
    s->dilation[a] = check_between(c, 1, 3);
    const int64_t reach = (s->kernel[a] - 1) * s->dilation[a];
    s->before[a] = same ? check_between(c, 0, reach) : check_between(c, 0, 4);
    s->after[a] = same ? reach - s->before[a] : check_between(c, 0, 4);
    s->in[a] = check_between(c, 1, check_chance(c, 20) ? 70 : 15);
    const int64_t room = s->in[a] + s->before[a] + s->after[a] - reach - 1;
    if (room < 0)
        s->in[a] -= room;
    s->out[a] = (room > 0 ? room : 0) / s->stride[a] + 1;
}

/* The window is the whole axis. */
static void whole_axis(struct check *c, struct conv *s, int a)
{
    s->kernel[a] = s->in[a] = check_between(c, 1, check_chance(c, 60) ? 1 : 7);
    s->stride[a] = check_between(c, 1, 3);
    s->dilation[a] = s->kernel[a] > 1 ? 1 : check_between(c, 1, 2);
    s->before[a] = s->after[a] = 0;
    s->out[a] = 1;
}

void check_conv(struct check *c)
{
    CHECK_ROUNDS(c, 180)
    {
        const bool depthwise = check_chance(c, 30), same = check_chance(c, 60);
        struct conv s = { .batch = check_between(c, 0, 2),
                          .groups = check_between(c, 1, depthwise ? 9 : 3),
                          .channels = depthwise ? 1 : check_between(c, 1, 9),
                          .rows = depthwise ? 1 : check_between(c, 1, 13),
                          .activation = (int)check_below(c, 5) - 1,
                          .planes =
                              check_chance(c, 80) ? 0 : (int)check_between(c, 1, 2) };
        if (check_chance(c, 20)) {
            s.rows = depthwise ? 1 : check_between(c, 1, 70);
            whole_axis(c, &s, 0);
            whole_axis(c, &s, 1);
        } else {
            random_axis(c, &s, 0, same);
            random_axis(c, &s, 1, same);
        }
        build(c, &s, check_chance(c, 50), check_chance(c, 40));
        check_run_with(c, 1e-5, 1e-6 * (double)(4 + s.channels * s.kernel[0]));
    }
}
