/* deform_conv.c - DeformConv: convolution where each tap reads at an offset of its own.
 *
 * X       f32 or f64 [N, C, H, W];  W [M, C / group, kh, kw];  B [M], zeros by default
 * offset  [N, offset_group kh kw 2, oh, ow]: is added to the row and column of a tap
 * mask    [N, offset_group kh kw, oh, ow]: factor of a tap, ones by default
 * Y       [N, M, oh, ow]
 *
 * A tap between pixels is bilinear; pixels outside are zero. A task is one row of output
 * pixels: the taps of a group are collected in scratch and then multiplied by the
 * weights. Cost: 2 M C / group kh kw FLOPs a pixel, and 4 reads of X for each tap.
 * Scratch: the taps of a row. Source: ONNX DeformConv-19, arXiv:1811.11168. */
#include "conv.h"
#include "real_pixels.h"

enum { DEFORM_X, DEFORM_W, DEFORM_OFFSET, DEFORM_B, DEFORM_MASK };

struct deform_args {
    struct window_attrs window;
    int64_t group, offset_group;
};

static const attnrun_attr_def deform_attrs[] = {
    ATTR_INTS(struct window_attrs, kernel_shape),
    ATTR_INTS(struct window_attrs, strides),
    ATTR_INTS(struct window_attrs, pads),
    WINDOW_DILATIONS,
    ATTR_INT(struct deform_args, group, 1),
    ATTR_INT(struct deform_args, offset_group, 1),
    ATTR_END
};

static attn_status check_offsets(const attnrun_step *step)
{
    const struct deform_args *args = step->args;
    const attnrun_dim *x = step->in[DEFORM_X].dims, *w = step->in[DEFORM_W].dims;
    const attnrun_dim *y = step->out[0].dims;
    attnrun_dim groups = dim_of(args->offset_group);
    attnrun_dim taps = attnrun_dim_mul(step, groups, attnrun_dim_mul(step, w[2], w[3]));
    if (dim_is_const(x[1]) && x[1].value % args->offset_group != 0)
        return op_fail(step, ATTNRUN_E_SHAPE,
                       "it has %s, expected a multiple of offset_group, %lld",
                       attn_plural(x[1].value, "channel"), (long long)args->offset_group);
    for (int in = DEFORM_OFFSET; in <= DEFORM_MASK; in += DEFORM_MASK - DEFORM_OFFSET) {
        if (!op_has_in(step, in) || !op_rank_known(step, in))
            continue;
        attnrun_dim channels = taps;
        if (in == DEFORM_OFFSET)
            channels = attnrun_dim_mul(step, taps, dim_of(2));
        TRY(op_need_rank(step, in, 4));
        TRY(op_need_dim(step, in, 0, x[0], "the batch"));
        TRY(op_need_dim(step, in, 1, channels, "offset groups times kernel"));
        TRY(op_need_dim(step, in, 2, y[2], "output rows"));
        TRY(op_need_dim(step, in, 3, y[3], "output columns"));
    }
    TRY(op_need_vector(step, DEFORM_B, w[0], "output channels"));
    return ATTNRUN_OK;
}

static attn_status deform_infer(attnrun_step *step)
{
    const struct deform_args *args = step->args;
    struct conv_shape *s = step->state;
    if (op_rank_known(step, DEFORM_X))
        TRY(op_need_rank(step, DEFORM_X, 4));
    if (args->offset_group < 1 || args->offset_group > INT32_MAX)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "attribute offset_group is %lld, expected 1 to 2147483647",
                       (long long)args->offset_group);
    TRY(attn_conv_infer(step, &args->window, args->group, DEFORM_W, false,
                        step->in[0].dtype, s));
    if (step->out[0].rank < 0)
        return ATTNRUN_OK;
    TRY(check_offsets(step));
    if (!step->concrete)
        return ATTNRUN_OK;
    int64_t columns;
    if (!ck_mul(s->k, s->w.out[2], &columns) || columns > ATTN_MAX_ELEMENTS)
        return op_fail_size(
            step, "the number of sampled elements of a line of the result", "2^46");
    columns = round_up(columns, 16);
    step->scratch_bytes =
        columns * 8 + 4 * (int64_t)attn_gemm_scratch((size_t)s->rows, (size_t)s->w.out[2],
                                                     (size_t)s->k);
    double cost = (double)s->groups * (double)columns * (20.0 + (double)s->rows / 15.0);
    op_tasks(step, 0, s->batch * s->w.out[1], window_cost(cost + 100.0));
    return ATTNRUN_OK;
}

/* Reads a pixel at a place, bilinearly, with zeros outside. */
static double sample(const attnrun_tensor *x, int64_t plane, const struct window *w,
                     double row, double column)
{
    int64_t h = real_floor(row), c = real_floor(column);
    double down = row - (double)h, right = column - (double)c, sum = 0.0;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) {
            if (h + i < 0 || h + i >= w->in[1] || c + j < 0 || c + j >= w->in[2])
                continue;
            double weight = (i ? down : 1.0 - down) * (j ? right : 1.0 - right);
            sum += weight * real_get(x, plane + (h + i) * w->in[2] + c + j);
        }
    return sum;
}

/* Collects the column values of one row of output pixels: [k][out columns], of X's
 * dtype. */
static void gather_taps(const attnrun_step *step, attnrun_tensor *columns, int64_t image,
                        int64_t group, int64_t oh)
{
    const struct deform_args *args = step->args;
    const struct conv_shape *s = step->state;
    const struct window *w = &s->w;
    int64_t per_offset = s->groups * s->channels / args->offset_group;
    for (int64_t k = 0; k < s->k; k++) {
        int64_t channel = group * s->channels + k / s->taps, tap = k % s->taps;
        int64_t kh = tap / w->kernel[2], kw = tap % w->kernel[2];
        int64_t plane = (image * s->groups * s->channels + channel) * s->inputs;
        int64_t set = (image * args->offset_group + channel / per_offset) * s->taps + tap;
        for (int64_t i = 0; i < w->out[2] && attn_poll_work(64) == ATTNRUN_OK; i++) {
            int64_t pixel = oh * w->out[2] + i;
            double row = real_get(&step->x[DEFORM_OFFSET], 2 * set * s->pixels + pixel);
            double column =
                real_get(&step->x[DEFORM_OFFSET], (2 * set + 1) * s->pixels + pixel);
            row += (double)(oh * w->stride[1] - w->before[1] + kh * w->dilation[1]);
            column += (double)(i * w->stride[2] - w->before[2] + kw * w->dilation[2]);
            double v = sample(&step->x[DEFORM_X], plane, w, row, column);
            if (op_has_in(step, DEFORM_MASK))
                v *= real_get(&step->x[DEFORM_MASK], set * s->pixels + pixel);
            real_put(columns, k * w->out[2] + i, v);
        }
    }
}

static void deform_conv_multiply(const attnrun_step *step, const attnrun_tensor *columns,
                                 float *scratch, int64_t image, int64_t group, int64_t oh)
{
    const struct conv_shape *s = step->state;
    int64_t width = s->w.out[2], row = group * s->rows;
    int64_t at = (image * s->groups * s->rows + row) * s->pixels + oh * width;
    bool biased = op_has_in(step, DEFORM_B);
    if (columns->dtype == ATTNRUN_F32) {
        struct attn_epilogue bias = { .kind = ATTN_EPI_ADD, .alpha = 1.0f, .row = 1 };
        if (biased)
            bias.data = (const float *)step->x[DEFORM_B].data + row;
        struct attn_gemm_f32 g = { .a =
                                       (const float *)step->x[DEFORM_W].data + row * s->k,
                                   .a_row = s->k,
                                   .b = columns->data,
                                   .b_row = width,
                                   .b_col = 1,
                                   .c = (float *)step->y[0].data + at,
                                   .c_row = s->pixels,
                                   .m = (size_t)s->rows,
                                   .n = (size_t)width,
                                   .k = (size_t)s->k,
                                   .epilogue = &bias,
                                   .n_epilogue = biased ? 1 : 0,
                                   .scratch = scratch };
        step->kernels->gemm_f32(&g);
        return;
    }
    for (int64_t m = 0; m < s->rows; m++)
        for (int64_t i = 0; i < width && attn_poll_work(s->k * 16) == ATTNRUN_OK; i++) {
            double sum = biased ? real_get(&step->x[DEFORM_B], row + m) : 0.0;
            for (int64_t k = 0; k < s->k; k++)
                sum += real_get(&step->x[DEFORM_W], (row + m) * s->k + k) *
                       real_get(columns, k * width + i);
            real_put(&step->y[0], at + m * s->pixels + i, sum);
        }
}

static attn_status deform_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct conv_shape *s = step->state;
    attnrun_tensor columns = { .dtype = step->x[0].dtype, .data = work->scratch };
    int64_t floats = s->k * s->w.out[2];
    float *scratch = (float *)work->scratch + 2 * round_up(floats, 16);
    for (int64_t task = work->begin; task < work->end; task++) {
        int64_t image = task, oh = op_take(&image, s->w.out[1]);
        for (int64_t group = 0; group < s->groups; group++) {
            if (OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            gather_taps(step, &columns, image, group, oh);
            deform_conv_multiply(step, &columns, scratch, image, group, oh);
        }
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_deform_conv_19 = {
    OP_ROW,
    .name = "DeformConv",
    .since = 19,
    .args_bytes = sizeof(struct deform_args),
    .state_bytes = sizeof(struct conv_shape),
    .inputs = "X:T W:T offset:T B:T? mask:T?",
    .outputs = "Y:T",
    .types = "T=f32,f64",
    .attrs = deform_attrs,
    .infer = deform_infer,
    .run = deform_run,
};
