/* grid_sample.c - GridSample: reads X at the places that a grid names.
 *
 * X              f32 or f64 [N, C, spatial 2 or 3]
 * grid           [N, out, 2 or 3]: places in [-1, 1], innermost axis first
 * Y              [N, C, out]
 * mode           linear, nearest (half to even) or cubic (Keys, a = -0.75)
 * padding_mode   zeros, border (clamped), reflection at the border
 * align_corners  1: -1 and 1 are the centres of the corner pixels; 0: they are the edges
 *                of the image
 *
 * A task is one line of places along the last axis. The places and weights of its taps
 * are computed once for all channels. Cost: 2 C taps FLOPs a place, with 1, 2 or 4 taps
 * along each axis. Scratch: the taps of a line.
 * Source: ONNX GridSample-20; ONNX Runtime contrib operators. */
#include <math.h>

#include "real_pixels.h"
#include "../tile.h"

enum { GRID_LINEAR, GRID_NEAREST, GRID_CUBIC };
enum { GRID_ZEROS, GRID_BORDER, GRID_REFLECTION };
enum { GRID_AXES = 3 };

struct grid_args {
    int32_t mode, padding_mode;
    int64_t align_corners;
};

struct grid_state {
    int32_t axes, taps_axis, taps;
    int64_t in[GRID_AXES];                          /* outermost first */
    int64_t channels, pixels, places, width, lines; /* width: places of a line */
};

struct grid_tap {
    int64_t at; /* -1: a zero outside of the image */
    double weight;
};

static const attnrun_attr_def grid_20_attrs[] = {
    ATTR_ENUM(struct grid_args, mode, "linear|nearest|cubic", 0),
    ATTR_ENUM(struct grid_args, padding_mode, "zeros|border|reflection", 0),
    ATTR_FLAG(struct grid_args, align_corners, 0), ATTR_END
};
static const attnrun_attr_def grid_16_attrs[] = {
    ATTR_ENUM(struct grid_args, mode, "bilinear|nearest|bicubic", 0),
    ATTR_ENUM(struct grid_args, padding_mode, "zeros|border|reflection", 0),
    ATTR_FLAG(struct grid_args, align_corners, 0), ATTR_END
};

static attn_status plan_grid_sample(attnrun_step *step)
{
    const struct grid_args *args = step->args;
    struct grid_state *s = step->state;
    s->axes = step->in[0].rank - 2;
    s->taps_axis = args->mode == GRID_NEAREST ? 1 : args->mode == GRID_LINEAR ? 2 : 4;
    s->taps = 1;
    for (int a = 0; a < s->axes; a++) {
        s->in[a] = step->in[0].dims[a + 2].value;
        s->taps *= s->taps_axis;
    }
    int rank = step->out[0].rank;
    s->channels = step->in[0].dims[1].value;
    s->pixels = op_count(&step->in[0], 2, rank);
    s->places = op_count(&step->out[0], 2, rank);
    s->width = step->out[0].dims[rank - 1].value;
    s->lines = s->width > 0 ? s->places / s->width : 0;
    int64_t bytes, tasks;
    if (s->pixels < 0 || s->places < 0 ||
        !ck_mul(s->width, s->taps * (int64_t)sizeof(struct grid_tap), &bytes) ||
        !ck_mul(step->out[0].dims[0].value, s->lines, &tasks))
        return op_fail_size(step,
                            "the number of pixels or of lines, or the memory of the taps "
                            "of a line in bytes,",
                            "2^63 - 1");
    if (s->pixels == 0 && s->places > 0)
        return op_fail_input(step, 0, ATTNRUN_E_SHAPE,
                             "expected an image that is not empty");
    step->scratch_bytes = bytes;
    double cost = (double)s->width * (double)s->taps * (10.0 + 2.0 * (double)s->channels);
    op_tasks(step, 0, tasks, cost < 1e15 ? (int64_t)cost + 50 : INT64_C(1) << 50);
    return ATTNRUN_OK;
}

static attn_status grid_infer(attnrun_step *step)
{
    int rank = step->in[0].rank >= 0 ? step->in[0].rank : step->in[1].rank;
    if (rank < 0)
        return op_out(step, 0, step->in[0].dtype, -1, NULL);
    if (rank != 4 && rank != 5)
        return op_fail_input(step, step->in[0].rank >= 0 ? 0 : 1, ATTNRUN_E_SHAPE,
                             "expected rank 4 or 5");
    attnrun_dim out[ATTNRUN_MAX_RANK];
    for (int i = 0; i < rank; i++)
        out[i] = attnrun_dim_unknown(step);
    if (op_rank_known(step, 0)) {
        out[0] = step->in[0].dims[0];
        out[1] = step->in[0].dims[1];
    }
    if (op_rank_known(step, 1)) {
        TRY(op_need_rank(step, 1, rank));
        TRY(op_need_dim(step, 1, rank - 1, dim_of(rank - 2),
                        "one number per spatial axis"));
        if (op_rank_known(step, 0))
            TRY(op_need_dim(step, 1, 0, out[0], "the batch"));
        for (int i = 2; i < rank; i++)
            out[i] = step->in[1].dims[i - 1];
    }
    TRY(op_out(step, 0, step->in[0].dtype, rank, out));
    return step->concrete ? plan_grid_sample(step) : ATTNRUN_OK;
}

/* ---- one axis of one place ---- */

static double reflect(double x, double lo, double hi)
{
    double range = hi - lo;
    if (x >= lo && x <= hi)
        return x;
    if (!(range > 0.0))
        return lo;
    double distance = x < lo ? lo - x : x - hi;
    double turns = floor(distance / range), rest = distance - turns * range;
    bool even = fmod(turns, 2.0) == 0.0;
    return (x < lo) == even ? lo + rest : hi - rest;
}

/* The pixel that the padding mode gives for pixel `i` of an axis of n; -1: zero. */
static int64_t pixel_at(int64_t i, int64_t n, int mode, double lo, double hi)
{
    if (i >= 0 && i < n)
        return i;
    if (mode == GRID_ZEROS)
        return -1;
    if (mode == GRID_REFLECTION)
        i = (int64_t)reflect((double)i, lo, hi);
    return i < 0 ? 0 : i < n ? i : n - 1;
}

static void cubic_weights(double t, double *w)
{
    const double a = -0.75;
    double u = 1.0 - t;
    w[0] = ((a * (t + 1.0) - 5.0 * a) * (t + 1.0) + 8.0 * a) * (t + 1.0) - 4.0 * a;
    w[1] = ((a + 2.0) * t - (a + 3.0)) * t * t + 1.0;
    w[2] = ((a + 2.0) * u - (a + 3.0)) * u * u + 1.0;
    w[3] = ((a * (u + 1.0) - 5.0 * a) * (u + 1.0) + 8.0 * a) * (u + 1.0) - 4.0 * a;
}

/* Finds the taps of an axis of n pixels for the grid's number. Coordinates are f32 where
 * the grid is, so that ties of nearest are broken as elsewhere. */
static void axis_taps(const struct grid_args *args, const attnrun_tensor *grid,
                      int64_t place, int64_t n, struct grid_tap *taps)
{
    double g = real_get(grid, place), x, length = (double)n;
    bool align = args->align_corners != 0;
    if (grid->dtype == ATTNRUN_F32) {
        float v = (float)g;
        x = (double)(align ? (v + 1.0f) / 2.0f * (float)(n - 1)
                           : ((v + 1.0f) * (float)n - 1.0f) / 2.0f);
    } else {
        x = align ? (g + 1.0) / 2.0 * (length - 1.0) : ((g + 1.0) * length - 1.0) / 2.0;
    }
    double lo = align ? 0.0 : -0.5, hi = align ? length - 1.0 : length - 0.5;
    x = x > -1e9 ? (x < 1e15 ? x : 1e15) : -1e9; /* NaN is far outside */
    if (args->mode == GRID_NEAREST)
        x = nearbyint(x);
    if (x < lo || x > hi) {
        if (args->padding_mode == GRID_BORDER &&
            args->mode != GRID_CUBIC) /* else by tap */
            x = x < 0.0 ? 0.0 : length - 1.0;
        else if (args->padding_mode == GRID_REFLECTION)
            x = reflect(x, lo, hi);
    }
    double w[4] = { 1.0, 0.0, 0.0, 0.0 };
    int64_t first = real_floor(x);
    double part = x - (double)first;
    if (args->mode == GRID_LINEAR) {
        w[0] = 1.0 - part;
        w[1] = part;
    } else if (args->mode == GRID_CUBIC) {
        cubic_weights(part, w);
        first--;
    }
    int count = args->mode == GRID_NEAREST ? 1 : args->mode == GRID_LINEAR ? 2 : 4;
    for (int t = 0; t < count; t++) {
        taps[t].at = pixel_at(first + t, n, args->padding_mode, lo, hi);
        taps[t].weight = w[t];
    }
}

/* Finds all taps of place number `place` of the grid. */
static void place_taps(const attnrun_step *step, int64_t place, struct grid_tap *taps)
{
    const struct grid_state *s = step->state;
    struct grid_tap axis[GRID_AXES][4];
    for (int a = 0; a < s->axes; a++)
        axis_taps(step->args, &step->x[1], place * s->axes + s->axes - 1 - a, s->in[a],
                  axis[a]);
    for (int t = 0; t < s->taps; t++) {
        int64_t at = 0;
        double weight = 1.0;
        int rest = t;
        int scale = s->taps / s->taps_axis;
        for (int a = 0; a < s->axes; a++) {
            const struct grid_tap *tap = &axis[a][rest / scale];
            rest %= scale;
            scale = scale > 1 ? scale / s->taps_axis : 1;
            weight *= tap->weight;
            at = tap->at < 0 || at < 0 ? -1 : at * s->in[a] + tap->at;
        }
        taps[t].at = at;
        taps[t].weight = weight;
    }
}

static void run_channel(const attnrun_step *step, const struct grid_tap *taps,
                        int64_t plane, int64_t out)
{
    const struct grid_state *s = step->state;
    for (int64_t i = 0; i < s->width && !attn_stops(i); i++, taps += s->taps) {
        double sum = 0.0;
        for (int t = 0; t < s->taps; t++)
            if (taps[t].at >= 0) /* 0 times a pixel that is NaN is NaN, too */
                sum += taps[t].weight * real_get(&step->x[0], plane + taps[t].at);
        real_put(&step->y[0], out + i, sum);
    }
}

static attn_status grid_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct grid_state *s = step->state;
    struct grid_tap *taps = work->scratch;
    for (int64_t task = work->begin; task < work->end; task++) {
        int64_t image = task, line = op_take(&image, s->lines);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        for (int64_t i = 0; i < s->width && !attn_stops(i); i++)
            place_taps(step, task * s->width + i, taps + i * s->taps);
        const int64_t bytes = s->width * s->taps * (int64_t)sizeof(struct grid_tap);
        for (int64_t c = 0; c < s->channels && attn_poll_work(bytes) == ATTNRUN_OK; c++) {
            int64_t plane = image * s->channels + c;
            run_channel(step, taps, plane * s->pixels,
                        plane * s->places + line * s->width);
        }
    }
    return ATTNRUN_OK;
}

#define GRID_SAMPLE(row, domain_, since_, attrs_)                                        \
    const attnrun_op_def row = {                                                         \
        OP_ROW_OF(domain_),                                                              \
        .name = "GridSample",                                                            \
        .since = since_,                                                                 \
        .args_bytes = sizeof(struct grid_args),                                          \
        .state_bytes = sizeof(struct grid_state),                                        \
        .inputs = "X:T grid:G",                                                          \
        .outputs = "Y:T",                                                                \
        .types = "T=f32,f64 G=f32,f64",                                                  \
        .attrs = attrs_,                                                                 \
        .infer = grid_infer,                                                             \
        .run = grid_run,                                                                 \
    }
GRID_SAMPLE(op_grid_sample_16, "", 16, grid_16_attrs);
GRID_SAMPLE(op_grid_sample_20, "", 20, grid_20_attrs);
GRID_SAMPLE(op_ms_grid_sample_1, "com.microsoft", 1, grid_16_attrs);
