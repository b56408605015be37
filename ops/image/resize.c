/* resize.c - Resize and Upsample: an image of another size, axis by axis.
 *
 * X        any rank up to 8;  Y the same rank
 * scales   out = floor(in * scale);  sizes: out itself, scale = out / in; one of the two
 * roi      [starts, ends] as parts of the input, for tf_crop_and_resize only
 * axes     which axes scales, sizes and roi speak of; all by default
 * The tables of positions and weights (resize_table.c) are made in phase 0; in phase 1 a
 * task is one line along the last axis: the lines it comes from are added up, then the
 * taps along it. Source: ONNX Resize-10 to 19, Upsample-7, 9. */
#include <math.h>

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
    ATTR_INT(struct resize_args, antialias, 0),
    ATTR_INT(struct resize_args, exclude_outside, 0),
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

/* Number `k` of scales, roi or sizes speaks of axis which[k]. */
static attn_status named_axes(const attnrun_step *step, int rank, int *which, int *n)
{
    const struct resize_args *args = step->args;
    *n = rank;
    for (int i = 0; i < rank; i++)
        which[i] = i;
    if (args->axes.v == NULL)
        return ATTNRUN_OK;
    if (args->axes.n > rank)
        return op_fail(step, ATTNRUN_E_ATTR, "attribute axes names %lld axes of %d",
                       (long long)args->axes.n, rank);
    *n = (int)args->axes.n;
    unsigned seen = 0;
    for (int i = 0; i < *n; i++) {
        TRY(op_axis(step, args->axes.v[i], rank, false, &which[i]));
        if (seen >> which[i] & 1)
            return op_fail(step, ATTNRUN_E_ATTR, "attribute axes names axis %d twice",
                           which[i]);
        seen |= 1u << which[i];
    }
    return ATTNRUN_OK;
}

/* What a node says about its output: scales, or sizes (dims), or neither yet known. */
struct target {
    int which[ATTNRUN_MAX_RANK], n;
    bool have_scales, have_sizes;
    double scales[ATTNRUN_MAX_RANK];
    attnrun_dim sizes[ATTNRUN_MAX_RANK];
};

static bool is_given(const attnrun_step *step, int in)
{
    return op_has_in(step, in) &&
           !(step->in[in].rank == 1 && dim_is(step->in[in].dims[0], 0));
}

static attn_status check_scale(const attnrun_step *step, double scale)
{
    if (scale > 0.0 && scale < 1e9)
        return ATTNRUN_OK;
    return op_fail(step, ATTNRUN_E_SHAPE, "a scale is %g, expected over 0", scale);
}

static attn_status read_scales(const attnrun_step *step, const float *scales,
                               int64_t count, struct target *t)
{
    if (count != t->n)
        return op_fail(step, ATTNRUN_E_SHAPE, "%lld scales are given for %d axes",
                       (long long)count, t->n);
    for (int i = 0; i < t->n; i++) {
        t->scales[i] = (double)scales[i];
        TRY(check_scale(step, t->scales[i]));
    }
    t->have_scales = true;
    return ATTNRUN_OK;
}

static attn_status read_target(const attnrun_step *step, int rank, int scales, int sizes,
                               struct target *t)
{
    const struct resize_args *args = step->args;
    TRY(named_axes(step, rank, t->which, &t->n));
    if (args->scales.v != NULL)
        return read_scales(step, args->scales.v, args->scales.n, t);
    bool by_scales = scales >= 0 && is_given(step, scales);
    bool by_sizes = sizes >= 0 && is_given(step, sizes);
    if (by_sizes) {
        int n;
        TRY(op_dims(step, sizes, t->sizes, ATTNRUN_MAX_RANK, &n, &t->have_sizes));
        if (t->have_sizes && n != t->n)
            return op_fail(step, ATTNRUN_E_SHAPE, "%d sizes are given for %d axes", n,
                           t->n);
        for (int i = 0; t->have_sizes && i < n; i++)
            if (dim_is_const(t->sizes[i]) && t->sizes[i].value < 0)
                return op_fail(step, ATTNRUN_E_SHAPE, "a size is %lld",
                               (long long)t->sizes[i].value);
        return ATTNRUN_OK;
    }
    if (!by_scales)
        return op_fail(step, ATTNRUN_E_INPUT, "neither scales nor sizes are given");
    if (!op_known(step, scales))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, scales, 1));
    return read_scales(step, step->x[scales].data, tensor_count(&step->x[scales]), t);
}

/* floor(in * scale), by rounding as exporters do, in f32. */
static attnrun_dim scaled_dim(const attnrun_step *step, attnrun_dim in, double scale)
{
    if (dim_is_const(in)) {
        float size = floorf((float)in.value * (float)scale);
        return dim_of(size < (float)ATTN_MAX_DIM ? (int64_t)size : ATTN_MAX_DIM + 1);
    }
    if (scale == floor(scale))
        return attnrun_dim_mul(step, in, dim_of((int64_t)scale));
    double inverse = 1.0 / scale;
    if (inverse == floor(inverse))
        return attnrun_dim_div(step, in, dim_of((int64_t)inverse));
    return attnrun_dim_unknown(step);
}

/* keep_aspect_ratio_policy: one scale for all named axes, sizes rounded half up. */
static attn_status keep_aspect(const attnrun_step *step, struct target *t,
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
            return op_fail_input(step, 0, ATTNRUN_E_SHAPE, "axes that are not empty");
        double s = (double)t->sizes[i].value / (double)in[t->which[i]].value;
        bool better = args->keep_aspect_ratio_policy == 1 ? s < scale : s > scale;
        scale = i == 0 || better ? s : scale;
    }
    for (int i = 0; i < t->n; i++) {
        out[t->which[i]] = attnrun_dim_unknown(step);
        if (known) {
            double size = floor(scale * (double)in[t->which[i]].value + 0.5);
            out[t->which[i]] =
                dim_of(size < (double)ATTN_MAX_DIM ? (int64_t)size : ATTN_MAX_DIM + 1);
            t->scales[i] = scale;
        }
    }
    return known && t->n > 0 ? check_scale(step, scale) : ATTNRUN_OK;
}

static attn_status out_dims(const attnrun_step *step, struct target *t, attnrun_dim *out)
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
    *offset = *used;
    return ck_mul(out, taps, &n) && n <= ATTN_MAX_ELEMENTS &&
           ck_add(*used, n * bytes, used) && ck_align(*used, 64, used);
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
        return op_fail(step, ATTNRUN_E_LIMIT, "axis %d is too large", a);
    return ATTNRUN_OK;
}

static attn_status plan(attnrun_step *step, const struct target *t)
{
    struct resize_state *state = step->state;
    int rank = step->in[0].rank;
    state->rank = rank;
    step->shared_bytes = 0;
    for (int a = 0; a < rank; a++) {
        state->axes[a].in = step->in[0].dims[a].value;
        state->axes[a].out = step->out[0].dims[a].value;
        state->axes[a].scale = 1.0;
    }
    for (int i = 0; i < t->n; i++)
        if (t->scales[i] > 0.0)
            state->axes[t->which[i]].scale = t->scales[i];
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
        return op_fail(step, ATTNRUN_E_LIMIT, "the output is too large");
    step->scratch_bytes = line + 64;
    double taps = (double)state->axes[rank - 1].taps;
    double cost =
        combinations * (double)state->last_in * 0.4 + taps * (double)state->last_out;
    op_tasks(step, 0, rank, 1000);
    op_tasks(step, 1, state->rows, cost < 1e15 ? (int64_t)cost + 50 : INT64_C(1) << 50);
    return ATTNRUN_OK;
}

static attn_status infer(attnrun_step *step, int scales, int sizes)
{
    const struct resize_args *args = step->args;
    if (args->antialias && args->mode == RESIZE_NEAREST)
        return op_fail(step, ATTNRUN_E_ATTR, "antialias does not go with mode nearest");
    if (!op_rank_known(step, 0))
        return op_out(step, 0, step->in[0].dtype, -1, NULL);
    TRY(op_need_rank_between(step, 0, 1, ATTNRUN_MAX_RANK));
    struct target t = { 0 };
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
    return plan(step, &t);
}

static attn_status resize_infer(attnrun_step *step)
{
    if (op_has_in(step, 1) && is_given(step, 1) && step->in[1].rank == 1 &&
        dim_is_const(step->in[1].dims[0]) && step->in[0].rank >= 0) {
        const struct resize_args *args = step->args;
        int64_t n = 2 * (args->axes.v != NULL ? args->axes.n : step->in[0].rank);
        if (args->coordinate_transformation_mode == RESIZE_TF_CROP_AND_RESIZE)
            TRY(op_need_dim(step, 1, 0, dim_of(n), "two numbers per axis"));
    }
    return infer(step, 2, 3);
}
static attn_status resize_10_infer(attnrun_step *step) { return infer(step, 1, -1); }
static attn_status upsample_7_infer(attnrun_step *step)
{
    const struct resize_args *args = step->args;
    if (args->scales.v == NULL)
        return op_fail(step, ATTNRUN_E_ATTR, "attribute scales is missing");
    return infer(step, -1, -1);
}

/* ---- run ---- */

static void make_tables(const attnrun_step *step, uint8_t *shared, int64_t a)
{
    const struct resize_args *args = step->args;
    const struct resize_state *state = step->state;
    const struct resize_axis *axis = &state->axes[a];
    if (a >= state->rank || !axis->active || axis->in == 0 || axis->out == 0)
        return;
    double roi[2] = { 0.0, 1.0 };
    int which[ATTNRUN_MAX_RANK], n = 0;
    bool crop = args->coordinate_transformation_mode == RESIZE_TF_CROP_AND_RESIZE;
    if (crop && is_given(step, 1) &&
        named_axes(step, state->rank, which, &n) == ATTNRUN_OK &&
        tensor_count(&step->x[1]) == 2 * n)
        for (int i = 0; i < n; i++)
            if (which[i] == a) {
                roi[0] = tensor_get_real(&step->x[1], i);
                roi[1] = tensor_get_real(&step->x[1], n + i);
            }
    attn_resize_table(args, axis, roi, (int64_t *)(void *)(shared + axis->index),
                      (double *)(void *)(shared + axis->weight),
                      (float *)(void *)(shared + axis->weight_f32));
}

/* The lines that output line `row` comes from, one combination of taps after the other.
 */
struct lines {
    const struct resize_state *state;
    const uint8_t *shared;
    int64_t at[ATTNRUN_MAX_RANK], tap[ATTNRUN_MAX_RANK];
};

static void lines_begin(struct lines *l, int64_t row)
{
    for (int a = l->state->rank - 2; a >= 0; a--) {
        l->at[a] = row % l->state->axes[a].out;
        row /= l->state->axes[a].out;
        l->tap[a] = 0;
    }
}

static bool lines_next(struct lines *l)
{
    for (int a = l->state->rank - 2; a >= 0; a--) {
        if (++l->tap[a] < l->state->axes[a].taps)
            return true;
        l->tap[a] = 0;
    }
    return false;
}

/* The input line of the current combination, -1 where extrapolated, and its weight. */
static int64_t lines_get(const struct lines *l, double *weight)
{
    int64_t line = 0;
    bool outside = false;
    *weight = 1.0;
    for (int a = 0; a + 1 < l->state->rank; a++) {
        const struct resize_axis *axis = &l->state->axes[a];
        int64_t at = l->at[a];
        if (axis->active) {
            int64_t i = at * axis->taps;
            const int64_t *index =
                (const int64_t *)(const void *)(l->shared + axis->index);
            const double *w = (const double *)(const void *)(l->shared + axis->weight);
            outside = outside || index[i] < 0;
            at = index[i + l->tap[a]];
            *weight *= w[i + l->tap[a]];
        }
        line = line * axis->in + at;
    }
    return outside ? -1 : line;
}

static void put_real(int32_t dtype, void *data, int64_t i, double v)
{
    static const double least[] = { [ATTNRUN_I8] = -128.0,
                                    [ATTNRUN_I16] = -32768.0,
                                    [ATTNRUN_I32] = -2147483648.0,
                                    [ATTNRUN_I64] = -9223372036854775808.0,
                                    [ATTNRUN_U64] = 0.0 };
    static const double most[] = { [ATTNRUN_I8] = 127.0,
                                   [ATTNRUN_U8] = 255.0,
                                   [ATTNRUN_I16] = 32767.0,
                                   [ATTNRUN_U16] = 65535.0,
                                   [ATTNRUN_I32] = 2147483647.0,
                                   [ATTNRUN_U32] = 4294967295.0,
                                   [ATTNRUN_I64] = 9223372036854774784.0,
                                   [ATTNRUN_U64] = 18446744073709549568.0,
                                   [ATTNRUN_BOOL] = 1.0 };
    if (dtype == ATTNRUN_F32) {
        ((float *)data)[i] = (float)v;
        return;
    }
    if (dtype == ATTNRUN_F64) {
        ((double *)data)[i] = v;
        return;
    }
    v = nearbyint(v);
    v = v > least[dtype] ? v : least[dtype];
    v = v < most[dtype] ? v : most[dtype];
    uint64_t bits = dtype == ATTNRUN_U64 ? (uint64_t)v : (uint64_t)(int64_t)v;
    memcpy((uint8_t *)data + i * dtype_bytes(dtype), &bits, (size_t)dtype_bytes(dtype));
}

static void fill_line(const attnrun_step *step, int64_t row)
{
    const struct resize_args *args = step->args;
    const struct resize_state *state = step->state;
    for (int64_t i = 0; i < state->last_out; i++)
        put_real(step->y[0].dtype, step->y[0].data, row * state->last_out + i,
                 (double)args->extrapolation_value);
}

static void pick_line(uint8_t *y, const uint8_t *x, const int64_t *index, int64_t n,
                      int64_t bytes)
{
    switch (bytes) {
    case 1:
        for (int64_t i = 0; i < n; i++)
            y[i] = x[index[i]];
        break;
    case 2:
        for (int64_t i = 0; i < n; i++)
            memcpy(y + 2 * i, x + 2 * index[i], 2);
        break;
    case 4:
        for (int64_t i = 0; i < n; i++)
            memcpy(y + 4 * i, x + 4 * index[i], 4);
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            memcpy(y + 8 * i, x + 8 * index[i], 8);
        break;
    }
}

static void run_nearest(const attnrun_step *step, struct lines *l, int64_t row)
{
    const struct resize_args *args = step->args;
    const struct resize_state *state = step->state;
    int64_t bytes = dtype_bytes(step->x[0].dtype);
    double weight;
    int64_t line = lines_get(l, &weight);
    if (line < 0) {
        fill_line(step, row);
        return;
    }
    uint8_t *y = (uint8_t *)step->y[0].data + row * state->last_out * bytes;
    const uint8_t *x = (const uint8_t *)step->x[0].data + line * state->last_in * bytes;
    const struct resize_axis *last = &state->axes[state->rank - 1];
    if (!last->active) {
        memcpy(y, x, (size_t)(state->last_out * bytes));
        return;
    }
    const int64_t *index = (const int64_t *)(const void *)(l->shared + last->index);
    if (args->coordinate_transformation_mode != RESIZE_TF_CROP_AND_RESIZE) {
        pick_line(y, x, index, state->last_out, bytes);
        return;
    }
    for (int64_t i = 0; i < state->last_out; i++) {
        if (index[i] < 0)
            put_real(step->y[0].dtype, y, i, (double)args->extrapolation_value);
        else
            memcpy(y + i * bytes, x + index[i] * bytes, (size_t)bytes);
    }
}

static void taps_f32(float *y, const float *line, const struct resize_axis *a,
                     const int64_t *index, const float *weight)
{
    if (a->taps == 2) {
        for (int64_t i = 0; i < a->out; i++, index += 2, weight += 2)
            y[i] = weight[0] * line[index[0]] + weight[1] * line[index[1]];
        return;
    }
    for (int64_t i = 0; i < a->out; i++, index += a->taps, weight += a->taps) {
        float sum = 0.0f;
        for (int64_t t = 0; t < a->taps; t++)
            sum += weight[t] * line[index[t]];
        y[i] = sum;
    }
}

static void run_f32(const attnrun_step *step, struct lines *l, float *line, int64_t row)
{
    const struct resize_args *args = step->args;
    const struct resize_state *state = step->state;
    const struct resize_axis *last = &state->axes[state->rank - 1];
    float *y = (float *)step->y[0].data + row * state->last_out;
    bool first = true, direct = !last->active;
    float *sum = direct ? y : line;
    do {
        double weight;
        int64_t from = lines_get(l, &weight);
        if (from < 0) {
            fill_line(step, row);
            return;
        }
        const float *x = (const float *)step->x[0].data + from * state->last_in;
        float w = (float)weight;
        if (first)
            for (int64_t i = 0; i < state->last_in; i++)
                sum[i] = w * x[i];
        else if (w != 0.0f)
            for (int64_t i = 0; i < state->last_in; i++)
                sum[i] += w * x[i];
        first = false;
    } while (lines_next(l));
    if (direct)
        return;
    const int64_t *index = (const int64_t *)(const void *)(l->shared + last->index);
    const float *weight = (const float *)(const void *)(l->shared + last->weight_f32);
    if (args->coordinate_transformation_mode != RESIZE_TF_CROP_AND_RESIZE) {
        taps_f32(y, line, last, index, weight);
        return;
    }
    for (int64_t i = 0; i < last->out; i++, index += last->taps, weight += last->taps) {
        float value = 0.0f;
        for (int64_t t = 0; index[0] >= 0 && t < last->taps; t++)
            value += weight[t] * line[index[t]];
        y[i] = index[0] < 0 ? args->extrapolation_value : value;
    }
}

/* Any other type, in f64. */
static void run_real(const attnrun_step *step, struct lines *l, double *line, int64_t row)
{
    const struct resize_args *args = step->args;
    const struct resize_state *state = step->state;
    const struct resize_axis *last = &state->axes[state->rank - 1];
    for (int64_t i = 0; i < state->last_in; i++)
        line[i] = 0.0;
    do {
        double weight;
        int64_t from = lines_get(l, &weight);
        if (from < 0) {
            fill_line(step, row);
            return;
        }
        for (int64_t i = 0; i < state->last_in; i++)
            line[i] += weight * tensor_get_real(&step->x[0], from * state->last_in + i);
    } while (lines_next(l));
    bool direct = !last->active;
    for (int64_t i = 0; i < state->last_out; i++) {
        double value = direct ? line[i] : 0.0;
        if (!direct) {
            const int64_t *index =
                (const int64_t *)(const void *)(l->shared + last->index);
            const double *w = (const double *)(const void *)(l->shared + last->weight);
            index += i * last->taps;
            for (int64_t t = 0; index[0] >= 0 && t < last->taps; t++)
                value += w[i * last->taps + t] * line[index[t]];
            if (index[0] < 0)
                value = (double)args->extrapolation_value;
        }
        put_real(step->y[0].dtype, step->y[0].data, row * state->last_out + i, value);
    }
}

static attn_status resize_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct resize_args *args = step->args;
    if (work->phase == 0) {
        for (int64_t a = work->begin; a < work->end; a++)
            make_tables(step, work->shared, a);
        return ATTNRUN_OK;
    }
    struct lines l = { .state = step->state, .shared = work->shared };
    for (int64_t row = work->begin; row < work->end; row++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        lines_begin(&l, row);
        if (args->mode == RESIZE_NEAREST)
            run_nearest(step, &l, row);
        else if (step->x[0].dtype == ATTNRUN_F32)
            run_f32(step, &l, work->scratch, row);
        else
            run_real(step, &l, work->scratch, row);
    }
    return ATTNRUN_OK;
}

#define RESIZE(row, name_, since_, inputs_, attrs_, infer_)                              \
    const attnrun_op_def row = {                                                         \
        OP_ROW,                                                                          \
        .name = name_,                                                                   \
        .since = since_,                                                                 \
        .args_bytes = sizeof(struct resize_args),                                        \
        .state_bytes = sizeof(struct resize_state),                                      \
        .inputs = inputs_,                                                               \
        .outputs = "Y:T",                                                                \
        .types = "T=f32,f64,i8,i16,i32,i64,u8,u16,u32,u64,b8 R=f32,f64",                 \
        .attrs = attrs_,                                                                 \
        .infer = infer_,                                                                 \
        .run = resize_run,                                                               \
    }
RESIZE(op_upsample_7, "Upsample", 7, "X:T", upsample_7_attrs, upsample_7_infer);
RESIZE(op_upsample_9, "Upsample", 9, "X:T scales:f32", resize_10_attrs, resize_10_infer);
RESIZE(op_resize_10, "Resize", 10, "X:T scales:f32", resize_10_attrs, resize_10_infer);
RESIZE(op_resize_11, "Resize", 11, "X:T roi:R? scales:f32? sizes:i64?", resize_attrs,
       resize_infer);
