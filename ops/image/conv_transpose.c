/* conv_transpose.c - ConvTranspose: every input pixel adds its kernel-sized patch to the
 * output.
 *
 * X   f32 or f64 [N, C, in];  W [C, M / group, kernel];  B [M], zeros by default
 * Y   [N, M, out], out = stride (in - 1) + output_padding + (kernel - 1) dilation + 1 -
 *     pads; with output_shape the pads follow from it instead
 *
 * com.microsoft ConvTransposeWithDynamicPads takes the pads as input 2 (i64, those before
 * each of 2 spatial axes, then those after; none where absent) and B as input 3.
 *
 * f32: patches = W' X for a tile of input pixels (gemm_f32, W transposed once), then
 * added up. A task owns whole output planes, so sums have one order. Constant weights may
 * be stored as f16 or bf16; a task converts those that it multiplies by to floats. f64:
 * plain loops. Cost: 2 N C M / group pixels taps FLOPs over input pixels.
 * Source: ONNX ConvTranspose-11; ONNX Runtime contrib operators. */
#include "../storage.h"
#include "conv.h"

struct conv_transpose_args {
    struct window_attrs window;
    attnrun_ints output_padding, output_shape;
    int64_t group;
};

struct conv_transpose_state {
    struct conv_shape shape; /* window: in, out as named; before is cut off the output */
    int64_t block_rows, row_blocks, block_pixels;
    int64_t line_floats, panel_floats, patch_floats;
    int64_t
        weight_floats; /* of scratch: the weights of a task, where they are f16 or bf16 */
    int32_t transpose; /* phase 0 transposes W into shared memory */
};

/* The index of input B, which is behind the pads where these are an input. */
static int bias_input(const attnrun_node *node)
{
    return node->domain[0] != '\0' ? 3 : 2;
}

enum { PIXELS = 128, PATCH_ROWS = 128, COLUMNS = 256 };

static const attnrun_attr_def conv_transpose_attrs[] = {
    WINDOW_ATTR_ROWS,
    WINDOW_DILATIONS,
    ATTR_INTS(struct conv_transpose_args, output_padding),
    ATTR_INTS(struct conv_transpose_args, output_shape),
    ATTR_INT(struct conv_transpose_args, group, 1),
    ATTR_END
};

/* ---- shapes ---- */

static attn_status check_lists(const attnrun_step *step,
                               const struct conv_transpose_args *args, int n)
{
    attnrun_ints p = args->output_padding, o = args->output_shape;
    if (p.v != NULL && p.n < n)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "attribute output_padding has %s, "
                       "expected %d",
                       attn_plural(p.n, "number"), n);
    for (int64_t i = 0; i < p.n; i++)
        if (p.v[i] < 0 || p.v[i] > INT32_MAX)
            return op_fail(
                step, ATTNRUN_E_ATTR,
                "attribute output_padding holds %lld, expected 0 to 2147483647",
                (long long)p.v[i]);
    if (o.v != NULL && o.n != n && o.n != n + 2)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "attribute output_shape has %s, "
                       "expected %d",
                       attn_plural(o.n, "number"), n);
    for (int64_t i = 0; i < o.n; i++)
        if (o.v[i] < 0 || o.v[i] > ATTN_MAX_DIM)
            return op_fail(step, ATTNRUN_E_ATTR,
                           "attribute output_shape holds %lld, expected 0 to 2^47",
                           (long long)o.v[i]);
    return ATTNRUN_OK;
}

static attn_status conv_transpose_check_weights(const attnrun_step *step,
                                                const struct conv_transpose_args *args,
                                                int n)
{
    TRY(op_need_rank(step, 1, n + 2));
    for (int i = 0; i < n; i++) {
        attnrun_dim k = step->in[1].dims[i + 2];
        if (args->window.kernel_shape.v != NULL)
            TRY(op_need_dim(step, 1, i + 2, dim_of(args->window.kernel_shape.v[i]),
                            "attribute kernel_shape"));
        if (dim_is_const(k) && (k.value < 1 || k.value > INT32_MAX))
            return op_fail_input(step, 1, ATTNRUN_E_SHAPE,
                                 "expected a kernel of at least 1");
    }
    if (args->group < 1 || args->group > INT32_MAX)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "attribute group is %lld, expected 1 to 2147483647",
                       (long long)args->group);
    TRY(op_need_dim(step, 1, 0, step->in[0].dims[1], "channels of X"));
    attnrun_dim c = step->in[1].dims[0];
    if (dim_is_const(c) && (c.value == 0 || c.value % args->group != 0))
        return op_fail(step, ATTNRUN_E_SHAPE,
                       "it has %s, expected a positive multiple of group, %lld",
                       attn_plural(c.value, "channel"), (long long)args->group);
    return ATTNRUN_OK;
}

/* stride (in - 1) + output_padding + (kernel - 1) dilation + 1: the output without
 * pads. */
static attnrun_dim full_size(const attnrun_step *step,
                             const struct conv_transpose_args *args, int i)
{
    attnrun_dim one = dim_of(1);
    attnrun_dim in = attnrun_dim_sub(step, step->in[0].dims[i + 2], one);
    attnrun_dim reach = attnrun_dim_sub(step, step->in[1].dims[i + 2], one);
    in = attnrun_dim_mul(step, in, dim_of(window_attr(args->window.strides, i, 1)));
    reach =
        attnrun_dim_mul(step, reach, dim_of(window_attr(args->window.dilations, i, 1)));
    attnrun_dim size = attnrun_dim_add(step, in, reach);
    return attnrun_dim_add(step, size,
                           dim_of(1 + window_attr(args->output_padding, i, 0)));
}

static attn_status out_size(const attnrun_step *step,
                            const struct conv_transpose_args *args, int n, int i,
                            attnrun_dim *out, int64_t *before)
{
    int32_t mode = args->window.auto_pad;
    attnrun_dim full = full_size(step, args, i);
    *before = 0;
    if (args->output_shape.v != NULL) {
        *out = dim_of(args->output_shape.v[args->output_shape.n - n + i]);
    } else if (mode == WINDOW_SAME_UPPER || mode == WINDOW_SAME_LOWER) {
        *out = attnrun_dim_mul(step, step->in[0].dims[i + 2],
                               dim_of(window_attr(args->window.strides, i, 1)));
    } else {
        int64_t front = 0, back = 0;
        if (mode == WINDOW_NOTSET) {
            front = window_attr(args->window.pads, i, 0);
            back = window_attr(args->window.pads, i + n, 0);
        }
        *out = attnrun_dim_sub(step, full, dim_of(front + back));
        *before = front;
        if (dim_is_const(*out) && out->value < 0)
            return op_fail(step, ATTNRUN_E_SHAPE,
                           "spatial axis %d: pads of %lld remove the whole output", i,
                           (long long)(front + back));
        return ATTNRUN_OK;
    }
    if (dim_is_const(full) && dim_is_const(*out)) {
        int64_t total = full.value > out->value ? full.value - out->value : 0;
        *before = mode == WINDOW_SAME_UPPER ? total / 2 : total - total / 2;
    }
    return ATTNRUN_OK;
}

static attn_status plan_conv_transpose(attnrun_step *step,
                                       struct conv_transpose_state *state)
{
    struct conv_shape *s = &state->shape;
    if (s->rows == 0 || s->pixels == 0 || s->batch == 0) {
        op_tasks(step, 0, 0, 0);
        return ATTNRUN_OK;
    }
    double macs = (double)s->rows * (double)s->k * (double)s->inputs;
    if (step->in[0].dtype != ATTNRUN_F32) {
        op_tasks(step, 0, s->batch * s->groups * s->rows,
                 window_cost(macs / (double)s->rows + 100.0));
        return ATTNRUN_OK;
    }
    state->block_pixels = s->channels > 1024 ? PIXELS / 2 : PIXELS;
    if (s->inputs < state->block_pixels)
        state->block_pixels = s->inputs > 0 ? s->inputs : 1;
    state->block_rows = s->taps < PATCH_ROWS ? PATCH_ROWS / s->taps : 1;
    if (state->block_rows > s->rows)
        state->block_rows = s->rows;
    state->row_blocks = ceil_div(s->rows, state->block_rows);
    state->line_floats =
        round_up(ATTN_IM2COL_LINES * (state->block_pixels + 3 * OP_PANEL), 16);
    int64_t patches = state->block_rows * s->taps, width = state->block_pixels;
    int64_t wide = width + OP_PANEL;
    if (!ck_mul(s->channels, wide, &state->panel_floats) ||
        !ck_mul(patches, width + OP_PANEL, &state->patch_floats) ||
        state->panel_floats > ATTN_MAX_ELEMENTS ||
        state->patch_floats > ATTN_MAX_ELEMENTS)
        return op_fail_size(step, "a block of the image or of the kernel", "2^46 floats");
    state->panel_floats = round_up(state->panel_floats, 16);
    state->patch_floats = round_up(state->patch_floats, 16);
    step->scratch_bytes =
        4 * (state->line_floats + state->panel_floats + state->patch_floats +
             (int64_t)attn_gemm_scratch((size_t)patches, (size_t)state->block_pixels,
                                        (size_t)s->channels));
    state->weight_floats = 0;
    if (attn_stored_narrow(step->in[1].dtype))
        state->weight_floats =
            patches * s->channels; /* at most a matrix of the constant */
    step->scratch_bytes += 4 * state->weight_floats;
    state->transpose = step->node->packed == NULL;
    int64_t per_group = s->rows * s->taps;
    if (state->transpose) {
        step->shared_bytes = s->groups * per_group * s->channels * 4;
        op_tasks(step, 0, s->groups * ceil_div(per_group, COLUMNS), s->channels * 100);
    }
    op_tasks(step, state->transpose, s->batch * s->groups * state->row_blocks,
             window_cost(macs / (double)state->row_blocks / 50.0));
    return ATTNRUN_OK;
}

static attn_status conv_transpose_infer_with(attnrun_step *step,
                                             const struct conv_transpose_args *args)
{
    struct conv_transpose_state *state = step->state;
    const int bias = bias_input(step->node);
    int n;
    TRY(attn_window_rank(step, &n));
    if (n < 0 || !op_rank_known(step, 1))
        return op_out(step, 0, step->in[0].dtype, -1, NULL);
    TRY(attn_window_check(step, &args->window, n));
    TRY(check_lists(step, args, n));
    TRY(conv_transpose_check_weights(step, args, n));
    attnrun_dim out[ATTNRUN_MAX_RANK];
    int64_t before[WINDOW_AXES];
    out[0] = step->in[0].dims[0];
    out[1] = attnrun_dim_mul(step, step->in[1].dims[1], dim_of(args->group));
    for (int i = 0; i < n; i++)
        TRY(out_size(step, args, n, i, &out[i + 2], &before[i]));
    TRY(op_need_vector(step, bias, out[1], "output channels"));
    TRY(op_out(step, 0, step->in[0].dtype, n + 2, out));
    if (!step->concrete)
        return ATTNRUN_OK;
    struct window *w = &state->shape.w;
    for (int a = 0; a < WINDOW_AXES; a++) {
        int i = a - (WINDOW_AXES - n);
        bool there = i >= 0;
        w->in[a] = there ? step->in[0].dims[i + 2].value : 1;
        w->kernel[a] = there ? step->in[1].dims[i + 2].value : 1;
        w->out[a] = there ? out[i + 2].value : 1;
        w->stride[a] = there ? window_attr(args->window.strides, i, 1) : 1;
        w->dilation[a] = there ? window_attr(args->window.dilations, i, 1) : 1;
        w->before[a] = there ? before[i] : 0;
    }
    TRY(attn_conv_shape(step, 1, args->group, true, &state->shape));
    return plan_conv_transpose(step, state);
}

static attn_status conv_transpose_infer(attnrun_step *step)
{
    return conv_transpose_infer_with(step, step->args);
}

static attn_status dynamic_pads_infer(attnrun_step *step)
{
    struct conv_transpose_args args = *(const struct conv_transpose_args *)step->args;
    int64_t pads[2 * WINDOW_AXES];
    int n, count = 0;
    bool known = true;
    TRY(attn_window_rank(step, &n));
    if (op_has_in(step, 2) && n >= 0) {
        TRY(op_need_rank(step, 2, 1));
        if (op_rank_known(step, 2))
            TRY(op_need_dim(step, 2, 0, dim_of(2 * n), "two pads for each axis"));
        TRY(op_ints(step, 2, pads, 2 * n, &count, &known));
    }
    if (n >= 0 && !known) {
        attnrun_dim dims[ATTNRUN_MAX_RANK];
        for (int i = 0; i < n + 2; i++)
            dims[i] = attnrun_dim_unknown(step);
        return op_out(step, 0, step->in[0].dtype, n + 2, dims);
    }
    if (count > 0)
        args.window.pads = (attnrun_ints){ pads, count };
    return conv_transpose_infer_with(step, &args);
}

/* ---- run ---- */

/* The input columns [*from, *to) of [0, in) whose tap falls into the output. */
static void landing(const struct window *w, int axis, int64_t tap, int64_t *from,
                    int64_t *to)
{
    int64_t s = w->stride[axis], shift = tap * w->dilation[axis] - w->before[axis];
    int64_t lo = shift < 0 ? ceil_div(-shift, s) : 0;
    int64_t room = w->out[axis] - 1 - shift;
    int64_t hi = room < 0 ? 0 : room / s + 1;
    *to = hi < w->in[axis] ? hi : w->in[axis];
    *from = lo < *to ? lo : *to;
}

struct landing {
    int64_t kd, kh, kw, from, to;
};

static struct landing tap_landing(const struct window *w, int64_t tap)
{
    struct landing l = { .kw = tap % w->kernel[2],
                         .kh = tap / w->kernel[2] % w->kernel[1],
                         .kd = tap / w->kernel[2] / w->kernel[1] };
    landing(w, 2, l.kw, &l.from, &l.to);
    return l;
}

/* The element of an output plane where column 0 of input row (d, h) falls for this tap;
 * -1: outside. It may be before the row: only columns [from, to) count. */
static bool landing_row(const struct window *w, const struct landing *l, int64_t d,
                        int64_t h, int64_t *at)
{
    int64_t od = d * w->stride[0] + l->kd * w->dilation[0] - w->before[0];
    int64_t oh = h * w->stride[1] + l->kh * w->dilation[1] - w->before[1];
    if (od < 0 || od >= w->out[0] || oh < 0 || oh >= w->out[1])
        return false;
    *at = (od * w->out[1] + oh) * w->out[2] + l->kw * w->dilation[2] - w->before[2];
    return true;
}

/* Adds the patch values of one tap for `n` pixels from `pixel` on to an output plane. */
static void add_tap(float *y, const float *patch, const struct window *w, int64_t tap,
                    int64_t pixel, int64_t n)
{
    struct landing l = tap_landing(w, tap);
    int64_t iw = pixel % w->in[2], row = pixel / w->in[2], stride = w->stride[2];
    for (int64_t done = 0; done < n; row++, iw = 0) {
        int64_t end = iw + n - done < w->in[2] ? iw + n - done : w->in[2], at;
        if (landing_row(w, &l, row / w->in[1], row % w->in[1], &at)) {
            int64_t from = l.from > iw ? l.from : iw, to = l.to < end ? l.to : end;
            const float *p = patch + done - iw;
            if (stride == 1)
                for (int64_t i = from; i < to; i++)
                    y[at + i] += p[i];
            else
                for (int64_t i = from; i < to; i++)
                    y[at + i * stride] += p[i];
        }
        done += end - iw;
    }
}

static void fill_planes(float *y, const float *bias, int64_t planes, int64_t pixels)
{
    for (int64_t m = 0; m < planes && attn_poll_work(4 * pixels) == ATTNRUN_OK; m++)
        for (int64_t i = 0; i < pixels; i++)
            y[m * pixels + i] = bias != NULL ? bias[m] : 0.0f;
}

/* Finds `n` weights from `first` on as floats: in place, or in `room`. */
static const float *find_weights(const attnrun_step *step, const attnrun_work *work,
                                 int64_t first, int64_t n, float *room)
{
    const struct conv_transpose_state *state = step->state;
    const int32_t dtype = step->in[1].dtype;
    if (state->transpose || state->weight_floats == 0)
        return (const float *)(state->transpose ? work->shared : step->node->packed) +
               first;
    attn_stored_to_floats(step->kernels, dtype, room,
                          attn_stored_at(dtype, step->node->packed, first), n);
    return room;
}

static attn_status run_planes(const attnrun_step *step, const attnrun_work *work,
                              int64_t task)
{
    const struct conv_transpose_state *state = step->state;
    const struct conv_shape *s = &state->shape;
    const int64_t row = op_take(&task, state->row_blocks) * state->block_rows;
    const int64_t group = op_take(&task, s->groups), image = task;
    int64_t rows = s->rows - row < state->block_rows ? s->rows - row : state->block_rows;
    int64_t channel = group * s->rows + row;
    float *y =
        (float *)step->y[0].data + (image * s->groups * s->rows + channel) * s->pixels;
    const float *bias = op_in_data(step, bias_input(step->node));
    fill_planes(y, bias != NULL ? bias + channel : NULL, rows, s->pixels);
    float *line = work->scratch,
          *patches = line + state->line_floats + state->panel_floats;
    const float *x = step->x[0].data;
    int64_t image_floats = s->groups * s->channels * s->inputs;
    struct attn_im2col c = { .line = line,
                             .panels = line + state->line_floats,
                             .in = { 1, 1, s->inputs },
                             .out = { 1, 1, s->inputs },
                             .kernel = { 1, 1, 1 },
                             .stride = { 1, 1, 1 },
                             .dilation = { 1, 1, 1 },
                             .k_count = s->channels };
    c.x = x + image * image_floats + group * s->channels * s->inputs;
    c.x_end = x + s->batch * image_floats;
    float *weights = patches + state->patch_floats;
    const int64_t row_floats = s->taps * s->channels;
    struct attn_gemm_f32 g = { .a = find_weights(step, work, channel * row_floats,
                                                 rows * row_floats, weights),
                               .a_row = s->channels,
                               .b = c.panels,
                               .packed = 1,
                               .c = patches,
                               .m = (size_t)(rows * s->taps),
                               .k = (size_t)s->channels };
    g.scratch = weights + state->weight_floats;
    for (c.pixel = 0; c.pixel < s->inputs; c.pixel += state->block_pixels) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        int64_t left = s->inputs - c.pixel;
        c.n = left < state->block_pixels ? left : state->block_pixels;
        step->kernels->conv_im2col_f32(&c);
        g.n = (size_t)c.n;
        g.c_row = c.n;
        step->kernels->gemm_f32(&g);
        for (int64_t r = 0; r < rows * s->taps && !OP_CANCELLED_AFTER(work, c.n * 8); r++)
            add_tap(y + r / s->taps * s->pixels, patches + r * c.n, &s->w, r % s->taps,
                    c.pixel, c.n);
    }
    return ATTNRUN_OK;
}

/* Transposes columns from `from` on of w [channels, columns] to rows of `to`, as
 * floats. */
static void transpose_to_floats(const struct attn_kernels *kernels, float *to,
                                int32_t dtype, const void *w, int64_t channels,
                                int64_t columns, int64_t from, int64_t n)
{
    if (attn_stored_as(dtype) == ATTN_B_F32) {
        kernels->transpose_f32(to + from * channels, channels, (const float *)w + from,
                               columns, (size_t)channels, (size_t)n);
        return;
    }
    for (int64_t j = from; j < from + n && attn_poll_work(16) == ATTNRUN_OK; j++)
        for (int64_t c = 0; c < channels && attn_poll_work(32) == ATTNRUN_OK; c++)
            attn_stored_to_floats(kernels, dtype, to + j * channels + c,
                                  attn_stored_at(dtype, w, c * columns + j), 1);
}

static void run_transpose(const attnrun_step *step, const attnrun_work *work)
{
    const struct conv_transpose_state *state = step->state;
    const struct conv_shape *s = &state->shape;
    const int32_t dtype = step->in[1].dtype;
    int64_t columns = s->rows * s->taps, blocks = ceil_div(columns, COLUMNS);
    for (int64_t task = work->begin; task < work->end; task++) {
        int64_t group = task, from = op_take(&group, blocks) * COLUMNS;
        int64_t n = columns - from < COLUMNS ? columns - from : COLUMNS;
        int64_t offset = group * s->channels * columns;
        transpose_to_floats(step->kernels, (float *)work->shared + offset, dtype,
                            attn_stored_at(dtype, step->x[1].data, offset), s->channels,
                            columns, from, n);
    }
}

static void run_plane_f64(const attnrun_step *step, const struct conv_shape *s,
                          int64_t task)
{
    int64_t channels = s->groups * s->rows;
    int64_t image = task, channel = op_take(&image, channels);
    int64_t group = channel, row = op_take(&group, s->rows);
    const double *bias = op_in_data(step, bias_input(step->node));
    double *y = (double *)step->y[0].data + task * s->pixels;
    for (int64_t i = 0; i < s->pixels && !attn_stops(i); i++)
        y[i] = bias != NULL ? bias[channel] : 0.0;
    int64_t n_rows = s->w.in[0] * s->w.in[1];
    for (int64_t c = 0; c < s->channels; c++) {
        int64_t in = group * s->channels + c;
        const double *x = (const double *)step->x[0].data +
                          (image * s->groups * s->channels + in) * s->inputs;
        const double *w =
            (const double *)step->x[1].data + (in * s->rows + row) * s->taps;
        for (int64_t tap = 0; tap < s->taps; tap++) {
            struct landing l = tap_landing(&s->w, tap);
            for (int64_t r = 0; r < n_rows; r++) {
                int64_t at;
                if (attn_poll_work(s->w.in[2] * 16 + 4) != ATTNRUN_OK)
                    return;
                if (!landing_row(&s->w, &l, r / s->w.in[1], r % s->w.in[1], &at))
                    continue;
                for (int64_t i = l.from; i < l.to; i++)
                    y[at + i * s->w.stride[2]] += w[tap] * x[r * s->w.in[2] + i];
            }
        }
    }
}

static attn_status conv_transpose_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct conv_transpose_state *state = step->state;
    bool plain = step->x[0].dtype != ATTNRUN_F32;
    if (!plain && state->transpose && work->phase == 0) {
        run_transpose(step, work);
        return ATTNRUN_OK;
    }
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (plain)
            run_plane_f64(step, &state->shape, task);
        else
            TRY(run_planes(step, work, task));
    }
    return ATTNRUN_OK;
}

static void transpose_16(uint16_t *to, const uint16_t *w, int64_t channels,
                         int64_t columns)
{
    for (int64_t j = 0; j < columns && attn_poll_work(16) == ATTNRUN_OK; j++)
        for (int64_t c = 0; c < channels && attn_poll_work(8) == ATTNRUN_OK; c++)
            to[j * channels + c] = w[c * columns + j];
}

static attn_status conv_transpose_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    const struct conv_transpose_args *args = pack->args;
    const attnrun_tensor *w = &pack->x[1];
    *bytes = 0;
    const bool narrow = attn_stored_narrow(w->dtype);
    if (w->data == NULL || (w->dtype != ATTNRUN_F32 && !narrow) || w->rank < 3 ||
        args->group < 1 || w->dims[0] % args->group != 0 || tensor_count(w) <= 0)
        return ATTNRUN_OK;
    *bytes = tensor_bytes(w);
    pack->replaces = 2;
    if (packed == NULL)
        return ATTNRUN_OK;
    int64_t channels = w->dims[0] / args->group;
    int64_t columns = tensor_count(w) / w->dims[0];
    for (int64_t g = 0; g < args->group; g++) {
        int64_t offset = g * channels * columns;
        if (narrow)
            transpose_16((uint16_t *)packed + offset, (const uint16_t *)w->data + offset,
                         channels, columns);
        else
            transpose_to_floats(pack->kernels, (float *)packed + offset, w->dtype,
                                (const float *)w->data + offset, channels, columns, 0,
                                columns);
    }
    return ATTNRUN_OK;
}

#define CONV_TRANSPOSE_ROW                                                               \
    .args_bytes = sizeof(struct conv_transpose_args),                                    \
    .state_bytes = sizeof(struct conv_transpose_state), .outputs = "Y:T",                \
    .types = "T=f32,f64", .storage_in = 2, .pack = conv_transpose_pack,                  \
    .check_packed = op_packed_is_data, .run = conv_transpose_run,                        \
    .cost = "O(N C M/g in kernel)"
const attnrun_op_def op_conv_transpose_1 = {
    OP_ROW,
    .name = "ConvTranspose",
    .since = 1,
    .inputs = "X:T W:T B:T?",
    .attrs = conv_transpose_attrs,
    .infer = conv_transpose_infer,
    CONV_TRANSPOSE_ROW,
};

static const attnrun_attr_def dynamic_pads_attrs[] = {
    { .name = "auto_pad",
      .kind = ATTNRUN_ATTR_ENUM,
      .offset = offsetof(struct conv_transpose_args, window.auto_pad),
      .text = "NOTSET|SAME_UPPER|SAME_LOWER|VALID" },
    ATTR_INTS(struct window_attrs, kernel_shape),
    ATTR_INTS(struct window_attrs, strides),
    WINDOW_DILATIONS,
    ATTR_INTS(struct conv_transpose_args, output_padding),
    ATTR_INT(struct conv_transpose_args, group, 1),
    ATTR_END
};
const attnrun_op_def op_conv_transpose_with_dynamic_pads_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "ConvTransposeWithDynamicPads",
    .since = 1,
    .inputs = "X:T W:T Pads:i64? B:T?",
    .attrs = dynamic_pads_attrs,
    .infer = dynamic_pads_infer,
    .source = "ONNX Runtime contrib operators",
    CONV_TRANSPOSE_ROW,
};
