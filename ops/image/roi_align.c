/* roi_align.c - RoiAlign and MaxRoiPool: a fixed number of bins for each region of
 * interest.
 *
 * X              f32 or f64 [N, C, H, W];  Y [n_rois, C, bins down, bins across]
 * RoiAlign       rois [n_rois, 4] (x1, y1, x2, y2), batch_indices i64 [n_rois]; a bin is
 *                the mean (or max) of sampling_ratio^2 bilinear samples; with a ratio of
 *                0 their number follows from the size of the bin
 * MaxRoiPool     rois [n_rois, 5] (image, x1, y1, x2, y2), rounded; a bin is the largest
 *                pixel, and an empty one is 0
 * coordinate_transformation_mode   half_pixel shifts rois by half a pixel; before opset 16
 *                it is output_half_pixel, with regions at least one pixel wide
 *
 * A task is one plane of Y. Cost: 4 reads of X for each sample of RoiAlign; one
 * comparison for each pixel of a region of MaxRoiPool. Source: ONNX RoiAlign-16,
 * MaxRoiPool-1. */
#include <math.h>

#include "real_pixels.h"
#include "../tile.h"

struct roi_args {
    int32_t mode, half_pixel;
    int64_t output_height, output_width, sampling_ratio;
    float spatial_scale;
    attnrun_ints pooled_shape;
};

struct roi_state {
    int64_t channels, height, width, down, across;
};

#define ROI_ALIGN_ROWS                                                                   \
    ATTR_ENUM(struct roi_args, mode, "avg|max", 0),                                      \
        ATTR_INT(struct roi_args, output_height, 1),                                     \
        ATTR_INT(struct roi_args, output_width, 1),                                      \
        ATTR_INT(struct roi_args, sampling_ratio, 0),                                    \
        ATTR_FLOAT(struct roi_args, spatial_scale, 1.0f)

static const attnrun_attr_def roi_align_10_attrs[] = { ROI_ALIGN_ROWS, ATTR_END };
static const attnrun_attr_def roi_align_16_attrs[] = {
    ROI_ALIGN_ROWS,
    { .name = "coordinate_transformation_mode",
      .kind = ATTNRUN_ATTR_ENUM,
      .offset = offsetof(struct roi_args, half_pixel),
      .text = "output_half_pixel|half_pixel",
      .int_default = 1 },
    ATTR_END
};
static const attnrun_attr_def max_roi_pool_attrs[] = {
    ATTR_INTS_REQUIRED(struct roi_args, pooled_shape),
    ATTR_FLOAT(struct roi_args, spatial_scale, 1.0f), ATTR_END
};

static attn_status regions_infer(attnrun_step *step, int64_t down, int64_t across,
                                 int roi_numbers)
{
    struct roi_state *state = step->state;
    if (down < 1 || across < 1 || down > INT32_MAX || across > INT32_MAX)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "the output is %lld x %lld, expected 1 to 2147483647",
                       (long long)down, (long long)across);
    attnrun_dim out[4] = { attnrun_dim_unknown(step), attnrun_dim_unknown(step),
                           dim_of(down), dim_of(across) };
    if (op_rank_known(step, 1)) {
        TRY(op_need_rank(step, 1, 2));
        TRY(op_need_dim(step, 1, 1, dim_of(roi_numbers), "numbers of a region"));
        out[0] = step->in[1].dims[0];
    }
    TRY(op_need_vector(step, 2, out[0], "the regions"));
    if (op_rank_known(step, 0)) {
        TRY(op_need_rank(step, 0, 4));
        out[1] = step->in[0].dims[1];
    }
    TRY(op_out(step, 0, step->in[0].dtype, 4, out));
    if (!step->concrete)
        return ATTNRUN_OK;
    state->channels = out[1].value;
    state->height = step->in[0].dims[2].value;
    state->width = step->in[0].dims[3].value;
    state->down = down;
    state->across = across;
    if (out[0].value > 0 && (state->height == 0 || state->width == 0))
        return op_fail_input(step, 0, ATTNRUN_E_SHAPE,
                             "expected an image that is not empty");
    int64_t tasks;
    if (!ck_mul(out[0].value, out[1].value, &tasks))
        return op_fail_size(step, "the number of planes of the result", "2^63 - 1");
    op_tasks(step, 0, tasks, down * across < 1 << 20 ? down * across * 100 : 1 << 27);
    return ATTNRUN_OK;
}

static attn_status check_image(const attnrun_step *step, int64_t roi, int64_t image)
{
    int64_t n = step->x[0].dims[0];
    if (image >= 0 && image < n)
        return ATTNRUN_OK;
    return op_fail(step, ATTNRUN_E_RANGE,
                   "region %lld is in image %lld, expected 0 to %lld", (long long)roi,
                   (long long)image, (long long)n - 1);
}

/* What is counted or rounded follows the arithmetic of the regions' type: 1.7 - 0.7 is one pixel
 * of f32, and more than one of f64. */
static double as_type(int32_t dtype, double v)
{
    return dtype == ATTNRUN_F32 ? (double)(float)v : v;
}

/* Number `i` of the regions, in pixels. */
static double scaled(const attnrun_step *step, int64_t i)
{
    const struct roi_args *args = step->args;
    return as_type(step->x[1].dtype,
                   real_get(&step->x[1], i) * (double)args->spatial_scale);
}

/* ---- RoiAlign ---- */

/* One region of one plane of X. */
struct roi_align_region {
    double top, left, bin_h, bin_w;
    int64_t samples_h, samples_w, plane;
};

static attn_status region_of(const attnrun_step *step, int64_t roi,
                             struct roi_align_region *r)
{
    const struct roi_args *args = step->args;
    const struct roi_state *state = step->state;
    const int32_t dtype = step->x[1].dtype;
    double corner[4];
    for (int i = 0; i < 4; i++)
        corner[i] =
            as_type(dtype, scaled(step, roi * 4 + i) - (args->half_pixel ? 0.5 : 0.0));
    r->left = corner[0];
    r->top = corner[1];
    double width = as_type(dtype, corner[2] - r->left);
    double height = as_type(dtype, corner[3] - r->top);
    if (!args->half_pixel) {
        width = width > 1.0 ? width : 1.0;
        height = height > 1.0 ? height : 1.0;
    }
    r->bin_h = as_type(dtype, height / (double)state->down);
    r->bin_w = as_type(dtype, width / (double)state->across);
    r->samples_h = r->samples_w = args->sampling_ratio;
    if (args->sampling_ratio <= 0) {
        if (!(fabs(r->bin_h) < 1e6 && fabs(r->bin_w) < 1e6))
            return op_fail(step, ATTNRUN_E_RANGE,
                           "region %lld is %g x %g pixels large, expected less than 1e6 "
                           "for each point of the output",
                           (long long)roi, width, height);
        r->samples_h = (int64_t)ceil(r->bin_h);
        r->samples_w = (int64_t)ceil(r->bin_w);
    }
    return ATTNRUN_OK;
}

/* Finds the two neighbours of x and the weight of the larger one; false outside of the
 * image. */
static bool neighbours(double x, int64_t n, int64_t *low, int64_t *high, double *part)
{
    if (!(x >= -1.0 && x <= (double)n))
        return false;
    x = x > 0.0 ? x : 0.0;
    *low = (int64_t)x;
    *high = *low + 1;
    if (*low >= n - 1) {
        *low = *high = n - 1;
        x = (double)*low;
    }
    *part = x - (double)*low;
    return true;
}

static void take_sample(const attnrun_step *step, const struct roi_align_region *r,
                        double y, double x, double *sum, double *max)
{
    const struct roi_state *state = step->state;
    int64_t y0, y1, x0, x1;
    double down, right, v[4] = { 0.0, 0.0, 0.0, 0.0 };
    if (neighbours(y, state->height, &y0, &y1, &down) &&
        neighbours(x, state->width, &x0, &x1, &right)) {
        const attnrun_tensor *t = &step->x[0];
        int64_t top = r->plane + y0 * state->width, bottom = r->plane + y1 * state->width;
        v[0] = (1.0 - down) * (1.0 - right) * real_get(t, top + x0);
        v[1] = (1.0 - down) * right * real_get(t, top + x1);
        v[2] = down * (1.0 - right) * real_get(t, bottom + x0);
        v[3] = down * right * real_get(t, bottom + x1);
    }
    *sum += v[0] + v[1] + v[2] + v[3];
    for (int i = 0; i < 4; i++)
        *max = v[i] > *max ? v[i] : *max;
}

/* The samples of a bin along an axis: sample i is at first + (i + 0.5) * size / all. */
struct samples {
    double first, size;
    int64_t all, from, to; /* those before `from` and from `to` on lie outside */
};

static double sample_at(const struct samples *s, int64_t i)
{
    return s->first + ((double)i + 0.5) * s->size / (double)s->all;
}

/* If a region is much larger than its image of n pixels, few of its samples are on the
 * image. */
static struct samples samples_of(double first, double size, int64_t all, int64_t n)
{
    struct samples s = { first, size, all, 0, all };
    const double each = size / (double)all, margin = 2.0;
    if (all <= 0 || !(each > 0.0))
        return s;
    const double from = (-1.0 - first) / each - margin;
    const double to = ((double)n - first) / each + margin;
    s.from = from > 0.0 ? (from < (double)all ? (int64_t)from : all) : 0;
    s.to = to < (double)all ? (to > (double)s.from ? (int64_t)to : s.from) : all;
    return s;
}

static double pool_bin(const attnrun_step *step, const struct roi_align_region *r,
                       int64_t bin_y, int64_t bin_x)
{
    const struct roi_args *args = step->args;
    const struct roi_state *state = step->state;
    const struct samples h = samples_of(r->top + (double)bin_y * r->bin_h, r->bin_h,
                                        r->samples_h, state->height);
    const struct samples w = samples_of(r->left + (double)bin_x * r->bin_w, r->bin_w,
                                        r->samples_w, state->width);
    const bool outside =
        h.to - h.from < h.all || w.to - w.from < w.all; /* samples of 0 */
    double sum = 0.0, max = outside ? 0.0 : (double)-INFINITY;
    int64_t taken = 0;
    for (int64_t i = h.from; i < h.to; i++)
        for (int64_t j = w.from; j < w.to; j++) {
            if (attn_stops(taken++))
                return 0.0;
            take_sample(step, r, sample_at(&h, i), sample_at(&w, j), &sum, &max);
        }
    bool none = r->samples_h <= 0 || r->samples_w <= 0;
    if (args->mode == 1)
        return none ? 0.0 : max;
    return none ? 0.0 : sum / ((double)r->samples_h * (double)r->samples_w);
}

static attn_status roi_align_infer(attnrun_step *step)
{
    const struct roi_args *args = step->args;
    if (args->sampling_ratio > 1 << 12)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "attribute sampling_ratio is %lld, expected at most 4096",
                       (long long)args->sampling_ratio);
    return regions_infer(step, args->output_height, args->output_width, 4);
}

static attn_status roi_align_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct roi_state *state = step->state;
    const int64_t *images = step->x[2].data;
    for (int64_t task = work->begin; task < work->end; task++) {
        int64_t roi = task, channel = op_take(&roi, state->channels);
        struct roi_align_region r;
        TRY(check_image(step, roi, images[roi]));
        TRY(region_of(step, roi, &r));
        r.plane =
            (images[roi] * state->channels + channel) * state->height * state->width;
        for (int64_t b = 0; b < state->down * state->across; b++) {
            if (OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            real_put(&step->y[0], task * state->down * state->across + b,
                     pool_bin(step, &r, b / state->across, b % state->across));
        }
    }
    return ATTNRUN_OK;
}

#define ROI_ALIGN(since_)                                                                \
    const attnrun_op_def op_roi_align_##since_ = {                                       \
        OP_ROW,                                                                          \
        .name = "RoiAlign",                                                              \
        .since = since_,                                                                 \
        .args_bytes = sizeof(struct roi_args),                                           \
        .state_bytes = sizeof(struct roi_state),                                         \
        .inputs = "X:T rois:T batch_indices:i64",                                        \
        .outputs = "Y:T",                                                                \
        .types = "T=f32,f64",                                                            \
        .attrs = roi_align_##since_##_attrs,                                             \
        .infer = roi_align_infer,                                                        \
        .run = roi_align_run,                                                            \
    }
ROI_ALIGN(10);
ROI_ALIGN(16);

/* ---- MaxRoiPool ---- */

static attn_status max_roi_pool_infer(attnrun_step *step)
{
    const struct roi_args *args = step->args;
    if (args->pooled_shape.n != 2)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "attribute pooled_shape has %s, "
                       "expected 2",
                       attn_plural(args->pooled_shape.n, "number"));
    return regions_infer(step, args->pooled_shape.v[0], args->pooled_shape.v[1], 5);
}

/* The pixels [*from, *to) of bin `bin` of `bins` along an axis of `n` pixels. */
static void bin_range(double first, double last, int64_t bin, int64_t bins, int64_t n,
                      int64_t *from, int64_t *to)
{
    double size = last - first + 1.0 > 1.0 ? last - first + 1.0 : 1.0;
    double lo = first + floor((double)bin * size / (double)bins),
           hi = first + ceil((double)(bin + 1) * size / (double)bins);
    *to = hi < (double)n ? (hi > 0.0 ? (int64_t)hi : 0) : n;
    *from = lo > 0.0 ? (lo < (double)*to ? (int64_t)lo : *to) : 0;
}

static double largest(const attnrun_step *step, int64_t plane, int64_t roi, int64_t bin)
{
    const struct roi_state *state = step->state;
    double corner[4];
    int64_t h0, h1, w0, w1;
    for (int i = 0; i < 4; i++)
        corner[i] = round(scaled(step, roi * 5 + 1 + i));
    bin_range(corner[1], corner[3], bin / state->across, state->down, state->height, &h0,
              &h1);
    bin_range(corner[0], corner[2], bin % state->across, state->across, state->width, &w0,
              &w1);
    double max = h0 < h1 && w0 < w1 ? (double)-INFINITY : 0.0;
    for (int64_t h = h0; h < h1; h++)
        for (int64_t w = w0; w < w1; w++) {
            if (attn_poll_work(16) != ATTNRUN_OK)
                return max;
            double v = real_get(&step->x[0], plane + h * state->width + w);
            max = v > max || isnan(v) ? v : max;
        }
    return max;
}

static attn_status max_roi_pool_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct roi_state *state = step->state;
    for (int64_t task = work->begin; task < work->end; task++) {
        int64_t roi = task, channel = op_take(&roi, state->channels);
        double image = real_get(&step->x[1], roi * 5);
        TRY(check_image(step, roi, image > -1.0 && image < 1e15 ? (int64_t)image : -1));
        int64_t plane = (int64_t)image * state->channels + channel;
        plane *= state->height * state->width;
        for (int64_t b = 0; b < state->down * state->across; b++) {
            if (OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            real_put(&step->y[0], task * state->down * state->across + b,
                     largest(step, plane, roi, b));
        }
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_max_roi_pool_1 = {
    OP_ROW,
    .name = "MaxRoiPool",
    .since = 1,
    .args_bytes = sizeof(struct roi_args),
    .state_bytes = sizeof(struct roi_state),
    .inputs = "X:T rois:T",
    .outputs = "Y:T",
    .types = "T=f32,f64",
    .attrs = max_roi_pool_attrs,
    .infer = max_roi_pool_infer,
    .run = max_roi_pool_run,
};
