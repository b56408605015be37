/* crop_and_resize.c - com.microsoft CropAndResize: each box is a part of an image, which
 * is resized to one common size.
 *
 * X              f32 (N, C, h, w)
 * rois           f32 (R, 4): y1, x1, y2, x2 as fractions of the image's last row and
 *                column; y1 > y2 flips the part upside down
 * batch_indices  i32 (R): the image of each box, 0 to N - 1
 * crop_size      i32 (2): height and width of the parts
 * Y              f32 (R, C, height, width): at row i, X at
 *                  y1 (h - 1) + i (y2 - y1) (h - 1) / (height - 1);
 *                for a height of 1 the place is in the middle of y1 and y2; columns
 *                likewise
 * mode           bilinear (by default), nearest (halves away from 0)
 *
 * Places outside of the image give extrapolation_value (0 by default). Cost: 4 reads of X
 * for each element of Y, or 1 with nearest.
 * Source: ONNX Runtime contrib operators; compared with onnxruntime 1.32.0. */
#include <math.h>

#include "../../runtime/op.h"
#include "../tile.h"

struct crop_args {
    int32_t mode;
    float extrapolation_value;
};
static const attnrun_attr_def crop_attrs[] = {
    ATTR_ENUM(struct crop_args, mode, "bilinear|nearest", 0),
    ATTR_FLOAT(struct crop_args, extrapolation_value, 0.0f), ATTR_END
};

static attn_status crop_infer(attnrun_step *step)
{
    const attnrun_type *x = &step->in[0];
    int64_t size[2];
    int n = 0;
    bool known = false;
    TRY(op_need_rank(step, 0, 4));
    TRY(op_need_rank(step, 1, 2));
    TRY(op_need_rank(step, 2, 1));
    TRY(op_need_rank(step, 3, 1));
    if (op_rank_known(step, 3))
        TRY(op_need_dim(step, 3, 0, dim_of(2), "height and width"));
    if (op_rank_known(step, 1))
        TRY(op_need_dim(step, 1, 1, dim_of(4), "the ends of a box"));
    if (op_rank_known(step, 1) && op_rank_known(step, 2))
        TRY(op_need_dim(step, 2, 0, step->in[1].dims[0], "a number for each box"));
    TRY(op_ints(step, 3, size, 2, &n, &known));
    if (known && (n != 2 || size[0] < 1 || size[1] < 1))
        return op_fail_input(step, 3, ATTNRUN_E_SHAPE,
                             "expected two sizes that are greater than 0");
    if (!op_rank_known(step, 0) || !op_rank_known(step, 1))
        return op_out(step, 0, x->dtype, -1, NULL);
    const attnrun_dim dims[4] = { step->in[1].dims[0], x->dims[1],
                                  known ? dim_of(size[0]) : attnrun_dim_unknown(step),
                                  known ? dim_of(size[1]) : attnrun_dim_unknown(step) };
    TRY(op_out(step, 0, x->dtype, 4, dims));
    if (step->concrete && known) {
        int64_t rows;
        if (!ck_mul(dims[0].value, size[0], &rows) || !ck_mul(rows, dims[1].value, &rows))
            return op_fail_size(step, "the number of rows of the result", "2^63 - 1");
        op_tasks(step, 0, rows, size[1] * 6);
    }
    return ATTNRUN_OK;
}

/* The place of position i of n in an image of `in` positions. */
static float crop_and_resize_place(float from, float to, int64_t in, int64_t i, int64_t n)
{
    const float last = (float)(in - 1);
    if (n == 1)
        return 0.5f * (from + to) * last;
    return from * last + (float)i * ((to - from) * last / (float)(n - 1));
}

/* The row (or column) before a place and the one behind it, and the weight of the
 * latter. */
struct ends {
    int64_t low, high;
    float part;
};

/* `at` may be above in - 1, which floats round from 2^24 on. */
static struct ends ends_of(float at, int64_t in, bool nearest)
{
    struct ends e;
    if (nearest) {
        e.low = e.high = (int64_t)roundf(at);
        e.part = 0.0f;
    } else {
        e.low = (int64_t)floorf(at);
        e.high = (int64_t)ceilf(at);
        e.part = at - (float)e.low;
    }
    e.low = min64(e.low, in - 1);
    e.high = min64(e.high, in - 1);
    return e;
}

static bool inside(float at, int64_t in) { return at >= 0.0f && at <= (float)(in - 1); }

static void crop_row(const attnrun_step *step, int64_t roi, int64_t channel, int64_t row,
                     float *y)
{
    const struct crop_args *args = step->args;
    const bool nearest = args->mode != 0;
    const int64_t h = step->x[0].dims[2], w = step->x[0].dims[3];
    const int64_t height = step->y[0].dims[2], width = step->y[0].dims[3];
    const float *box = (const float *)step->x[1].data + roi * 4;
    const int64_t image = ((const int32_t *)step->x[2].data)[roi];
    const float *x =
        (const float *)step->x[0].data + (image * step->x[0].dims[1] + channel) * h * w;
    const float at = crop_and_resize_place(box[0], box[2], h, row, height);
    const bool there = inside(at, h);
    const struct ends v = there ? ends_of(at, h, nearest) : (struct ends){ 0, 0, 0.0f };
    for (int64_t i = 0; i < width; i++) {
        const float across = crop_and_resize_place(box[1], box[3], w, i, width);
        if (!there || !inside(across, w)) {
            y[i] = args->extrapolation_value;
            continue;
        }
        const struct ends u = ends_of(across, w, nearest);
        const float *above = x + v.low * w, *below = x + v.high * w;
        const float top = above[u.low] + (above[u.high] - above[u.low]) * u.part;
        const float bottom = below[u.low] + (below[u.high] - below[u.low]) * u.part;
        y[i] = nearest ? above[u.low] : top + (bottom - top) * v.part;
    }
}

static attn_status crop_run(const attnrun_step *step, const attnrun_work *work)
{
    const int64_t channels = step->y[0].dims[1], height = step->y[0].dims[2];
    const int64_t width = step->y[0].dims[3];
    for (int64_t t = work->begin; t < work->end; t++) {
        int64_t roi = t, row = op_take(&roi, height), channel = op_take(&roi, channels);
        const int64_t image = ((const int32_t *)step->x[2].data)[roi];
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (image < 0 || image >= step->x[0].dims[0])
            return op_fail(
                step, ATTNRUN_E_RANGE, "box %lld is of image %lld, expected 0 to %lld",
                (long long)roi, (long long)image, (long long)step->x[0].dims[0] - 1);
        crop_row(step, roi, channel, row, (float *)step->y[0].data + t * width);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_crop_and_resize_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "CropAndResize",
    .since = 1,
    .inputs = "X:T rois:T batch_indices:i32 crop_size:i32",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct crop_args),
    .attrs = crop_attrs,
    .infer = crop_infer,
    .run = crop_run,
    .cost = "O(output)",
    .source = "ONNX Runtime contrib operators",
};
