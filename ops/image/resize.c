/* resize.c - Resize and Upsample: an image of another size, axis by axis.
 *
 * X        any type of real numbers or b8, any rank up to 8;  Y the same type and rank
 * scales   out = floor(in * scale);  sizes: out itself, scale = out / in; one of the two
 * roi      [starts, ends] as fractions of the input, for tf_crop_and_resize only
 * axes     the axes that scales, sizes and roi are for; all by default
 *
 * Phase 0 makes the tables of positions and weights (resize_table.c). In phase 1 a task
 * is one line along the last axis: the lines that it reads are added up, then the taps
 * along it. Cost: the taps of an axis for each element, axis by axis. BlockedResize
 * (domain attnrun.fused) resizes a map in blocks of channels. Source: ONNX Resize-10 to
 * 19, Upsample-7, 9. */
#include <math.h>

#include "blocked.h"
#include "resize.h"

#define COORDINATES                                                                      \
    "half_pixel|pytorch_half_pixel|align_corners|asymmetric|tf_half_pixel_for_nn|"       \
    "tf_crop_and_resize|half_pixel_symmetric"

static const attnrun_attr_def resize_attrs[] = {
    ATTR_ENUM(struct resize_args, mode, "nearest|linear|cubic", RESIZE_NEAREST),
    ATTR_ENUM(struct resize_args, coordinate_transformation_mode, COORDINATES,
              RESIZE_HALF_PIXEL),
    ATTR_ENUM(struct resize_args, nearest_mode,
              "round_prefer_floor|round_prefer_ceil|floor|ceil", 0),
    ATTR_ENUM(struct resize_args, keep_aspect_ratio_policy,
              "stretch|not_larger|not_smaller", 0),
    ATTR_FLAG(struct resize_args, antialias, 0),
    ATTR_FLAG(struct resize_args, exclude_outside, 0),
    ATTR_FLOAT(struct resize_args, cubic_coeff_a, -0.75f),
    ATTR_FLOAT(struct resize_args, extrapolation_value, 0.0f),
    ATTR_INTS(struct resize_args, axes),
    ATTR_END
};

/* Before opset 11: always asymmetric, nearest rounds down. */
#define OLD_ATTR_ROWS                                                                    \
    ATTR_ENUM(struct resize_args, mode, "nearest|linear", RESIZE_NEAREST),               \
        { .name = "coordinate_transformation_mode",                                      \
          .kind = ATTNRUN_ATTR_ENUM,                                                     \
          .offset = offsetof(struct resize_args, coordinate_transformation_mode),        \
          .text = COORDINATES,                                                           \
          .int_default = RESIZE_ASYMMETRIC },                                            \
    {                                                                                    \
        .name = "nearest_mode", .kind = ATTNRUN_ATTR_ENUM,                               \
        .offset = offsetof(struct resize_args, nearest_mode),                            \
        .text = "round_prefer_floor|round_prefer_ceil|floor|ceil",                       \
        .int_default = RESIZE_FLOOR                                                      \
    }

static const attnrun_attr_def resize_10_attrs[] = { OLD_ATTR_ROWS, ATTR_END };
static const attnrun_attr_def upsample_7_attrs[] = {
    OLD_ATTR_ROWS, ATTR_FLOATS(struct resize_args, scales), ATTR_END
};

/* ---- sizes ---- */

attn_status attn_resize_axes(const attnrun_step *step, int rank, int *which, int *n)
{
    const struct resize_args *args = step->args;
    *n = rank;
    for (int i = 0; i < rank; i++)
        which[i] = i;
    if (args->axes.v == NULL)
        return ATTNRUN_OK;
    if (args->axes.n > rank)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "attribute axes has %s, expected at most %d, the rank "
                       "of the input",
                       attn_plural(args->axes.n, "element"), rank);
    *n = (int)args->axes.n;
    uint32_t seen = 0;
    for (int i = 0; i < *n; i++)
        TRY(op_axis_once(step, args->axes.v[i], rank, &seen, &which[i]));
    return ATTNRUN_OK;
}

/* What a node states about its output: scales, or sizes (dims), or neither yet known. */
struct resize_target {
    int which[ATTNRUN_MAX_RANK], n;
    bool have_scales, have_sizes;
    double scales[ATTNRUN_MAX_RANK];
    double from, to; /* of keep_aspect_ratio_policy: to / from is each scale; or 0 */
    attnrun_dim sizes[ATTNRUN_MAX_RANK];
};

bool attn_resize_given(const attnrun_step *step, int in)
{
    return op_has_in(step, in) &&
           !(step->in[in].rank == 1 && dim_is(step->in[in].dims[0], 0));
}

static attn_status check_scale(const attnrun_step *step, double scale)
{
    if (scale > 0.0 && scale < 1e9)
        return ATTNRUN_OK;
    return op_fail(step, ATTNRUN_E_SHAPE,
                   "a scale is %g, expected more than 0 and less than 1e9", scale);
}

static attn_status read_scales(const attnrun_step *step, const float *scales,
                               int64_t count, struct resize_target *t)
{
    if (count != t->n)
        return op_fail(step, ATTNRUN_E_SHAPE,
                       "scales has %s, expected %d, one for each axis",
                       attn_plural(count, "element"), t->n);
    for (int i = 0; i < t->n; i++) {
        t->scales[i] = (double)scales[i];
        TRY(check_scale(step, t->scales[i]));
    }
    t->have_scales = true;
    return ATTNRUN_OK;
}

static attn_status read_target(const attnrun_step *step, int rank, int scales, int sizes,
                               struct resize_target *t)
{
    const struct resize_args *args = step->args;
    TRY(attn_resize_axes(step, rank, t->which, &t->n));
    if (args->scales.v != NULL)
        return read_scales(step, args->scales.v, args->scales.n, t);
    bool by_scales = scales >= 0 && attn_resize_given(step, scales);
    bool by_sizes = sizes >= 0 && attn_resize_given(step, sizes);
    if (by_sizes) {
        int n;
        TRY(op_dims(step, sizes, t->sizes, ATTNRUN_MAX_RANK, &n, &t->have_sizes));
        if (t->have_sizes && n != t->n)
            return op_fail(step, ATTNRUN_E_SHAPE,
                           "sizes has %s, expected %d, one for each axis",
                           attn_plural(n, "element"), t->n);
        for (int i = 0; t->have_sizes && i < n; i++)
            if (dim_is_const(t->sizes[i]) && t->sizes[i].value < 0)
                return op_fail(step, ATTNRUN_E_SHAPE,
                               "sizes holds %lld, expected 0 or more",
                               (long long)t->sizes[i].value);
        return ATTNRUN_OK;
    }
    if (!by_scales)
        return op_fail(step, ATTNRUN_E_INPUT,
                       "neither scales nor sizes are given, expected one of them");
    if (!op_known(step, scales))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, scales, 1));
    return read_scales(step, step->x[scales].data, tensor_count(&step->x[scales]), t);
}

/* The dim floor(in * scale), by rounding as exporters do, in f32. */
static attnrun_dim scaled_dim(const attnrun_step *step, attnrun_dim in, double scale)
{
    if (dim_is_const(in)) {
        float size = floorf((float)in.value * (float)scale);
        return dim_of(size < (float)ATTN_MAX_DIM ? (int64_t)size : ATTN_MAX_DIM + 1);
    }
    if (scale == floor(scale))
        return attnrun_dim_mul(step, in, dim_of((int64_t)scale));
    double inverse = 1.0 / scale;
    if (inverse == floor(inverse) && inverse < (double)ATTN_MAX_DIM)
        return attnrun_dim_div(step, in, dim_of((int64_t)inverse));
    return attnrun_dim_unknown(step);
}

/* keep_aspect_ratio_policy: one scale for all named axes, sizes rounded half up. */
static attn_status keep_aspect(const attnrun_step *step, struct resize_target *t,
                               attnrun_dim *out)
{
    const struct resize_args *args = step->args;
    const attnrun_dim *in = step->in[0].dims;
    double scale = 0.0;
    bool known = true;
    for (int i = 0; i < t->n; i++)
        known = known && dim_is_const(in[t->which[i]]) && dim_is_const(t->sizes[i]);
    for (int i = 0; known && i < t->n; i++) {
        if (in[t->which[i]].value == 0)
            return op_fail_input(step, 0, ATTNRUN_E_SHAPE,
                                 "expected axes that are not empty");
        double a = (double)in[t->which[i]].value, b = (double)t->sizes[i].value;
        if (i > 0 &&
            (args->keep_aspect_ratio_policy == 1 ? b / a >= scale : b / a <= scale))
            continue;
        t->from = a;
        t->to = b;
        scale = b / a;
    }
    for (int i = 0; i < t->n; i++) {
        out[t->which[i]] = attnrun_dim_unknown(step);
        if (known) {
            /* not by the rounded scale: 27 * 13 / 6 ends in one half */
            double size = floor((double)in[t->which[i]].value * t->to / t->from + 0.5);
            out[t->which[i]] =
                dim_of(size < (double)ATTN_MAX_DIM ? (int64_t)size : ATTN_MAX_DIM + 1);
            t->scales[i] = scale;
        }
    }
    return known && t->n > 0 ? check_scale(step, scale) : ATTNRUN_OK;
}

static attn_status out_dims(const attnrun_step *step, struct resize_target *t,
                            attnrun_dim *out)
{
    const struct resize_args *args = step->args;
    const attnrun_dim *in = step->in[0].dims;
    memcpy(out, in, sizeof(attnrun_dim) * (size_t)step->in[0].rank);
    if (t->have_sizes && args->keep_aspect_ratio_policy != 0)
        return keep_aspect(step, t, out);
    for (int i = 0; i < t->n; i++) {
        int a = t->which[i];
        if (t->have_scales) {
            out[a] = scaled_dim(step, in[a], t->scales[i]);
        } else if (t->have_sizes) {
            out[a] = t->sizes[i];
            if (dim_is_const(in[a]) && dim_is_const(out[a]) && in[a].value > 0)
                t->scales[i] = (double)out[a].value / (double)in[a].value;
        } else {
            out[a] = attnrun_dim_unknown(step);
        }
    }
    return ATTNRUN_OK;
}

/* ---- plan ---- */

static bool place_table(int64_t *offset, int64_t *used, int64_t out, int64_t taps,
                        int64_t bytes)
{
    int64_t n;
    return ck_mul(out, taps, &n) && n <= ATTN_MAX_ELEMENTS &&
           op_slot(offset, used, n, bytes);
}

static attn_status plan_axis(attnrun_step *step, struct resize_axis *axis, int a)
{
    const struct resize_args *args = step->args;
    bool crop = args->coordinate_transformation_mode == RESIZE_TF_CROP_AND_RESIZE;
    axis->active = axis->in != axis->out || axis->scale != 1.0 || crop;
    axis->taps = 1;
    if (!axis->active)
        return ATTNRUN_OK;
    if (axis->in == 0 && axis->out > 0)
        return op_fail(step, ATTNRUN_E_SHAPE,
                       "axis %d is empty and cannot become %lld wide", a,
                       (long long)axis->out);
    if (axis->in > 0 && axis->out > 0)
        axis->taps = attn_resize_taps(args, axis->scale);
    if (!place_table(&axis->index, &step->shared_bytes, axis->out, axis->taps, 8) ||
        !place_table(&axis->weight, &step->shared_bytes, axis->out, axis->taps, 8) ||
        !place_table(&axis->weight_f32, &step->shared_bytes, axis->out, axis->taps, 4))
        return op_fail(step, ATTNRUN_E_LIMIT,
                       "the weights of axis %d, %lld wide with %lld taps, take more than "
                       "2^63 - 1 bytes",
                       a, (long long)axis->out, (long long)axis->taps);
    return ATTNRUN_OK;
}

/* The length that a scale gives is whole where only the rounding of the scale is between. */
static void set_scale(const struct resize_target *t, double scale,
                      struct resize_axis *axis)
{
    double length = scale * (double)axis->in, whole = (double)axis->out;
    axis->scale = scale;
    axis->from = t->from > 0.0 ? t->from : (double)axis->in;
    axis->to = fabs(length - whole) <= 1e-6 * whole ? whole : length;
    if (t->from > 0.0)
        axis->to = t->to;
}

static attn_status plan_resize(attnrun_step *step, const struct resize_target *t)
{
    const struct resize_args *args = step->args;
    struct resize_state *state = step->state;
    int rank = step->in[0].rank;
    state->rank = rank;
    step->shared_bytes = 0;
    for (int a = 0; a < rank; a++) {
        state->axes[a].in = step->in[0].dims[a].value;
        state->axes[a].out = step->out[0].dims[a].value;
        state->axes[a].scale = state->axes[a].from = state->axes[a].to = 1.0;
    }
    for (int i = 0; i < t->n; i++)
        if (t->scales[i] > 0.0)
            set_scale(t, t->scales[i], &state->axes[t->which[i]]);
    double combinations = 1.0;
    for (int a = 0; a < rank; a++) {
        TRY(plan_axis(step, &state->axes[a], a));
        combinations *= a + 1 < rank ? (double)state->axes[a].taps : 1.0;
    }
    state->last_in = state->axes[rank - 1].in;
    state->last_out = state->axes[rank - 1].out;
    int64_t all = op_count(&step->out[0], 0, rank), line;
    state->rows = all > 0 ? all / state->last_out : 0;
    if (all < 0 || !ck_mul(state->last_in, 8, &line))
        return op_fail_size(
            step, "the number of elements of the result, or the bytes of a line,",
            "2^63 - 1");
    step->scratch_bytes = line + 64;
    double taps = (double)state->axes[rank - 1].taps;
    double cost =
        combinations * (double)state->last_in * 0.4 + taps * (double)state->last_out;
    op_tasks(step, 0, rank, 1000);
    state->n_passes = 0;
    if (args->antialias != 0 && dtype_in(step->in[0].dtype, ATTN_DT_SINT | ATTN_DT_UINT))
        TRY(attn_resize_plan_passes(step, state));
    if (state->n_passes > 0)
        return ATTNRUN_OK;
    TRY(attn_resize_plan_vectors(step, state));
    if (state->inner > 0)
        return ATTNRUN_OK;
    op_tasks(step, 1, state->rows, cost < 1e15 ? (int64_t)cost + 50 : INT64_C(1) << 50);
    return ATTNRUN_OK;
}

static attn_status resize_infer_sizes(attnrun_step *step, int scales, int sizes)
{
    const struct resize_args *args = step->args;
    if (args->antialias && args->mode == RESIZE_NEAREST)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "antialias cannot be combined with mode nearest");
    if (!op_rank_known(step, 0))
        return op_out(step, 0, step->in[0].dtype, -1, NULL);
    TRY(op_need_rank_between(step, 0, 1, ATTNRUN_MAX_RANK));
    struct resize_target t = { 0 };
    attnrun_dim out[ATTNRUN_MAX_RANK];
    int rank = step->in[0].rank;
    TRY(read_target(step, rank, scales, sizes, &t));
    TRY(out_dims(step, &t, out));
    TRY(op_out(step, 0, step->in[0].dtype, rank, out));
    if (!step->concrete)
        return ATTNRUN_OK;
    for (int i = 0; i < rank; i++)
        if (!dim_is_const(out[i]))
            return ATTNRUN_OK;
    return plan_resize(step, &t);
}

static attn_status resize_infer(attnrun_step *step)
{
    if (op_has_in(step, 1) && attn_resize_given(step, 1) && step->in[1].rank == 1 &&
        dim_is_const(step->in[1].dims[0]) && step->in[0].rank >= 0) {
        const struct resize_args *args = step->args;
        int64_t n = 2 * (args->axes.v != NULL ? args->axes.n : step->in[0].rank);
        if (args->coordinate_transformation_mode == RESIZE_TF_CROP_AND_RESIZE)
            TRY(op_need_dim(step, 1, 0, dim_of(n), "two numbers per axis"));
    }
    return resize_infer_sizes(step, 2, 3);
}

static attn_status resize_10_infer(attnrun_step *step)
{
    return resize_infer_sizes(step, 1, -1);
}

/* Resize of a map in blocks of 16 channels: only height and width change, and no
 * position is outside of the input. */
static attn_status blocked_resize_infer(attnrun_step *step)
{
    const struct resize_args *args = step->args;
    if (args->axes.v == NULL || args->axes.n != 2 || args->axes.v[0] != 2 ||
        args->axes.v[1] != 3)
        return op_fail(step, ATTNRUN_E_ATTR, "expected the axes 2 and 3");
    if (args->coordinate_transformation_mode == RESIZE_TF_CROP_AND_RESIZE)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "the mode tf_crop_and_resize is not supported here");
    if (op_rank_known(step, 0))
        TRY(attn_blocked_check(step, 0));
    return resize_infer_sizes(step, 1, 2);
}

static attn_status upsample_7_infer(attnrun_step *step)
{
    const struct resize_args *args = step->args;
    if (args->scales.v == NULL)
        return op_fail(step, ATTNRUN_E_ATTR, "attribute scales is missing");
    return resize_infer_sizes(step, -1, -1);
}

#define RESIZE(row, domain_, name_, since_, inputs_, types_, attrs_, infer_)             \
    const attnrun_op_def row = {                                                         \
        OP_ROW_OF(domain_),                                                              \
        .name = name_,                                                                   \
        .since = since_,                                                                 \
        .args_bytes = sizeof(struct resize_args),                                        \
        .state_bytes = sizeof(struct resize_state),                                      \
        .inputs = inputs_,                                                               \
        .outputs = "Y:T",                                                                \
        .types = types_,                                                                 \
        .attrs = attrs_,                                                                 \
        .infer = infer_,                                                                 \
        .run = attn_resize_run,                                                          \
    }
#define TYPES "T=f32,f64,i8,i16,i32,i64,u8,u16,u32,u64,b8 R=f32,f64"
RESIZE(op_upsample_7, "", "Upsample", 7, "X:T", TYPES, upsample_7_attrs,
       upsample_7_infer);
RESIZE(op_upsample_9, "", "Upsample", 9, "X:T scales:f32", TYPES, resize_10_attrs,
       resize_10_infer);
RESIZE(op_resize_10, "", "Resize", 10, "X:T scales:f32", TYPES, resize_10_attrs,
       resize_10_infer);
RESIZE(op_resize_11, "", "Resize", 11, "X:T roi:R? scales:f32? sizes:i64?", TYPES,
       resize_attrs, resize_infer);
RESIZE(op_blocked_resize_1, "attnrun.fused", "BlockedResize", 1,
       "X:T scales:f32? sizes:i64?", "T=f32", resize_attrs, blocked_resize_infer);
