/* check_conv_integer.c - ConvInteger and QLinearConv against sums in 64 bits, to the bit:
 * groups, strides, dilations, pads, zero points and scales of all or each channel. */
#include <stdlib.h>

#include "operator_harness.h"

struct conv {
    int64_t batch, groups, channels, rows; /* channels and rows of a group */
    int64_t in[2], kernel[2], stride[2], dilation[2], before[2], after[2], out[2];
    int32_t x_type, w_type, y_type;
    bool by_channel;
    const uint8_t *x, *w, *x_zero, *w_zero, *y_zero; /* zeros may be NULL */
    const float *x_scale, *w_scale, *y_scale;
    const int32_t *bias;
};

static int number(const uint8_t *data, int32_t dtype, int64_t i)
{
    if (data == NULL)
        return 0;
    return dtype == ATTNRUN_I8 ? (int8_t)data[i] : data[i];
}

static int64_t at_channel(const struct conv *s, int64_t m)
{
    return s->by_channel ? m : 0;
}

/* Row m, pixel p of image b. */
static int32_t pixel(const struct conv *s, int64_t b, int64_t m, int64_t p)
{
    const int64_t taps = s->kernel[0] * s->kernel[1], group = m / s->rows;
    const int x_zero = number(s->x_zero, s->x_type, 0),
              w_zero = number(s->w_zero, s->w_type, at_channel(s, m));
    int64_t sum = s->bias != NULL ? s->bias[m] : 0;
    for (int64_t k = 0; k < s->channels * taps; k++) {
        const int64_t plane = (b * s->groups + group) * s->channels + k / taps;
        const int64_t h = p / s->out[1] * s->stride[0] - s->before[0] +
                          k % taps / s->kernel[1] * s->dilation[0];
        const int64_t w = p % s->out[1] * s->stride[1] - s->before[1] +
                          k % s->kernel[1] * s->dilation[1];
        if (h >= 0 && h < s->in[0] && w >= 0 && w < s->in[1])
            sum +=
                (int64_t)(number(s->w, s->w_type, m * s->channels * taps + k) - w_zero) *
                (number(s->x, s->x_type, (plane * s->in[0] + h) * s->in[1] + w) - x_zero);
    }
    return (int32_t)sum;
}

static double quantized(const struct conv *s, int64_t m, int32_t sum)
{
    const float factor = s->x_scale[0] * s->w_scale[at_channel(s, m)] / s->y_scale[0];
    const double low = s->y_type == ATTNRUN_I8 ? -128 : 0;
    const float value = nearbyintf((float)sum * factor);
    return fmin(fmax((double)value + number(s->y_zero, s->y_type, 0), low), low + 255);
}

static uint8_t *bytes(struct check *c, const char *name, int32_t dtype, int rank,
                      const int64_t *dims)
{
    uint8_t *data = check_data(c, name, dtype, rank, dims);
    int64_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= dims[i];
    for (int64_t i = 0; i < n; i++)
        data[i] = (uint8_t)check_below(c, 256);
    return data;
}
static float *scales(struct check *c, const char *name, int rank, const int64_t *dims,
                     float about)
{
    float *data = check_f32(c, name, rank, dims);
    for (int64_t i = 0; i < (rank > 0 ? dims[0] : 1); i++)
        data[i] = about * (1.0f + 0.25f * (float)check_below(c, 4));
    return data;
}

static struct conv draw(struct check *c)
{
    struct conv s = { .batch = check_between(c, 1, 2) };
    const int64_t kind = check_below(c, 4); /* 0: depthwise, 1: 1x1, else any */
    const bool large = check_chance(c, 10);
    s.groups = kind == 0 ? check_between(c, 1, 12) : check_between(c, 1, 3);
    s.channels = kind == 0 ? 1 : check_between(c, 1, large ? 150 : 20);
    s.rows = kind == 0 ? check_between(c, 1, 2) : check_between(c, 1, large ? 270 : 20);
    for (int a = 0; a < 2; a++) {
        const bool plain = kind == 1 && check_chance(c, 60);
        s.kernel[a] = kind == 1 ? 1 : check_between(c, 1, 4);
        s.stride[a] = plain ? 1 : check_between(c, 1, 3);
        s.dilation[a] = plain ? 1 : check_between(c, 1, 3);
        s.before[a] = plain ? 0 : check_between(c, 0, 3);
        s.after[a] = plain ? 0 : check_between(c, 0, 3);
        const int64_t span = (s.kernel[a] - 1) * s.dilation[a] + 1;
        s.in[a] = check_between(c, span, span + (large ? 8 : 25));
        s.out[a] = (s.in[a] + s.before[a] + s.after[a] - span) / s.stride[a] + 1;
    }
    s.x_type = check_chance(c, 50) ? ATTNRUN_I8 : ATTNRUN_U8;
    s.w_type = check_chance(c, 50) ? ATTNRUN_I8 : ATTNRUN_U8;
    s.y_type = check_chance(c, 50) ? ATTNRUN_I8 : ATTNRUN_U8;
    s.by_channel = check_chance(c, 50);
    return s;
}

static void begin(struct check *c, const struct conv *s, const char *op)
{
    check_begin(c, op);
    check_int(c, "group", s->groups);
    check_ints(c, "strides", 2, s->stride);
    check_ints(c, "dilations", 2, s->dilation);
    check_ints(c, "pads", 4,
               (const int64_t[]){ s->before[0], s->before[1], s->after[0], s->after[1] });
}
static void give_x(struct check *c, struct conv *s)
{
    s->x = bytes(c, "x", s->x_type,
                 DIMS(s->batch, s->groups * s->channels, s->in[0], s->in[1]));
}
static void give_w(struct check *c, struct conv *s)
{
    s->w = bytes(c, "w", s->w_type,
                 DIMS(s->groups * s->rows, s->channels, s->kernel[0], s->kernel[1]));
    if (check_chance(c, 50))
        check_constant(c);
}

static void expect(struct check *c, const struct conv *s, int32_t dtype)
{
    const int64_t rows = s->groups * s->rows, pixels = s->out[0] * s->out[1];
    double *y =
        check_output_of(c, "y", dtype, DIMS(s->batch, rows, s->out[0], s->out[1]));
    for (int64_t i = 0; i < s->batch * rows * pixels; i++) {
        const int64_t m = i / pixels % rows;
        const int32_t sum = pixel(s, i / (rows * pixels), m, i % pixels);
        y[i] = s->x_scale == NULL ? sum : quantized(s, m, sum);
    }
    check_run(c, CHECK_EXACT);
}

static void check_sums(struct check *c)
{
    struct conv s = draw(c);
    begin(c, &s, "::ConvInteger");
    give_x(c, &s);
    give_w(c, &s);
    if (check_chance(c, 70))
        s.x_zero = bytes(c, "x_zero", s.x_type, 0, NULL);
    else
        check_absent(c);
    if (check_chance(c, 70))
        s.w_zero = bytes(c, "w_zero", s.w_type, s.by_channel,
                         (const int64_t[]){ s.groups * s.rows });
    expect(c, &s, ATTNRUN_I32);
}

static void check_quantized(struct check *c)
{
    struct conv s = draw(c);
    const int64_t all[] = { s.groups * s.rows };
    begin(c, &s, "::QLinearConv");
    give_x(c, &s);
    s.x_scale = scales(c, "x_scale", 0, NULL, 0.01f);
    s.x_zero = bytes(c, "x_zero", s.x_type, 0, NULL);
    give_w(c, &s);
    s.w_scale = scales(c, "w_scale", s.by_channel, all, 0.02f);
    s.w_zero = bytes(c, "w_zero", s.w_type, s.by_channel, all);
    s.y_scale = scales(c, "y_scale", 0, NULL, 0.125f);
    s.y_zero = bytes(c, "y_zero", s.y_type, 0, NULL);
    if (check_chance(c, 60)) {
        int32_t *bias = check_data(c, "B", ATTNRUN_I32, 1, all);
        for (int64_t i = 0; i < all[0]; i++)
            bias[i] = (int32_t)check_between(c, -20000, 20000);
        s.bias = bias;
    }
    expect(c, &s, s.y_type);
}

void check_conv_integer(struct check *c)
{
    CHECK_ROUNDS(c, 90)
    check_sums(c);
    CHECK_ROUNDS(c, 90)
    check_quantized(c);
}
