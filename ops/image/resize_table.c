/* resize_table.c - computes which input positions an output position reads, and with
 * which weights.
 *
 * x(i) is the place in the input of output position i (the coordinate transformation).
 * nearest   one position, x rounded as nearest_mode says
 * linear    two neighbours, weights 1 - r and r, where r is the fraction of x
 * cubic     four neighbours, Keys' kernel with a = cubic_coeff_a
 * antialias the kernel of linear or cubic, stretched by 1 / scale where the image shrinks
 *
 * Positions outside of the input read its edge, or are left out with exclude_outside.
 * Cost: one term for each tap and output position of an axis. Source: ONNX Resize-19. */
#include <math.h>

#include "resize.h"

int64_t attn_resize_taps(const struct resize_args *args, double scale)
{
    if (args->mode == RESIZE_NEAREST)
        return 1;
    double reach = args->mode == RESIZE_LINEAR ? 1.0 : 2.0;
    if (args->antialias && scale < 1.0)
        return 2 - 2 * ((int64_t)floor(-reach / scale) + 1);
    return args->mode == RESIZE_LINEAR ? 2 : 4;
}

static double source_position(const struct resize_args *args, const struct resize_axis *a,
                              const double roi[2], int64_t i)
{
    double x = (double)i, in = (double)a->in, out = a->to * in / a->from;
    double middle = (x + 0.5) * a->from / a->to;
    switch (args->coordinate_transformation_mode) {
    case RESIZE_ALIGN_CORNERS:
        return out == 1.0 ? 0.0 : x * (in - 1.0) / (out - 1.0);
    case RESIZE_ASYMMETRIC:
        return x * a->from / a->to;
    case RESIZE_TF_HALF_PIXEL_FOR_NN:
        return middle;
    case RESIZE_PYTORCH_HALF_PIXEL:
        return a->out == 1 ? 0.0 : middle - 0.5;
    case RESIZE_HALF_PIXEL_SYMMETRIC:
        return in / 2.0 * (1.0 - (double)a->out / out) + middle - 0.5;
    case RESIZE_TF_CROP_AND_RESIZE: {
        double left = out == 1.0 ? 0.5 : out - 1.0 - x, right = out == 1.0 ? 0.5 : x;
        /* exact at both ends: a place behind the last pixel is extrapolated */
        return (left * roi[0] + right * roi[1]) * (in - 1.0) / (left + right);
    }
    default:
        return middle - 0.5;
    }
}

static double cubic(double x, double a)
{
    x = fabs(x);
    if (x <= 1.0)
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
    if (x < 2.0)
        return ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a;
    return 0.0;
}

static double round_position(double x, int mode)
{
    switch (mode) {
    case RESIZE_ROUND_PREFER_CEIL:
        return floor(x + 0.5);
    case RESIZE_FLOOR:
        return floor(x);
    case RESIZE_CEIL:
        return ceil(x);
    default:
        return ceil(x - 0.5);
    }
}

/* Clamps a position; NaN becomes `lo`. */
static int64_t clamp_position(double x, int64_t n)
{
    if (!(x > 0.0))
        return 0;
    return x < (double)(n - 1) ? (int64_t)x : n - 1;
}

/* Computes the weights of `taps` positions around x, not yet normalized; returns the
 * first position. */
static double kernel_weights(const struct resize_args *args, const struct resize_axis *a,
                             double x, double *weight)
{
    double start = floor(x), part = x - start, stretch = 1.0, sum = 0.0;
    bool smooth = args->antialias && a->scale < 1.0;
    int64_t before = a->taps / 2 - 1;
    if (smooth)
        stretch = a->scale;
    for (int64_t t = 0; t < a->taps; t++) {
        double distance = stretch * ((double)(t - before) - part);
        double linear = 1.0 - fabs(distance);
        if (args->mode == RESIZE_CUBIC)
            weight[t] = cubic(distance, (double)args->cubic_coeff_a);
        else
            weight[t] = linear > 0.0 ? linear : 0.0;
        sum += weight[t];
    }
    for (int64_t t = 0; smooth && t < a->taps; t++)
        weight[t] /= sum;
    return start - (double)before;
}

static void exclude_outside(const struct resize_axis *a, double first, double *weight)
{
    double sum = 0.0;
    for (int64_t t = 0; t < a->taps; t++) {
        double at = first + (double)t;
        if (at < 0.0 || at >= (double)a->in)
            weight[t] = 0.0;
        sum += weight[t];
    }
    for (int64_t t = 0; sum != 0.0 && t < a->taps; t++)
        weight[t] /= sum;
}

void attn_resize_table(const struct resize_args *args, const struct resize_axis *a,
                       const double roi[2], int64_t *index, double *weight,
                       float *weight_f32)
{
    bool crop = args->coordinate_transformation_mode == RESIZE_TF_CROP_AND_RESIZE;
    for (int64_t i = 0; i < a->out && attn_poll_work(a->taps * 16) == ATTNRUN_OK;
         i++, index += a->taps, weight += a->taps) {
        double x = source_position(args, a, roi, i), first;
        if (args->mode == RESIZE_NEAREST) {
            first = round_position(x, args->nearest_mode);
            weight[0] = 1.0;
        } else {
            first = kernel_weights(args, a, x, weight);
            if (args->exclude_outside)
                exclude_outside(a, first, weight);
        }
        for (int64_t t = 0; t < a->taps; t++) {
            index[t] = clamp_position(first + (double)t, a->in);
            *weight_f32++ = (float)weight[t];
        }
        if (crop && !(x >= 0.0 && x <= (double)(a->in - 1)))
            index[0] = -1;
    }
}
