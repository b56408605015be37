/* qlinear_softmax.c - com.microsoft QLinearSoftmax: Softmax of real numbers on bytes.
 *
 *   y = saturate(round(exp((x - max x) x_scale) / sum / y_scale) + y_zero), halves to
 *   even
 *
 * X, Y   u8 or i8 of one shape; scales f32, one number; x's zero point changes nothing
 * opset  of the Softmax that it was: from 13 on lines along `axis` (-1 by default),
 *        before over all dims from `axis` on
 *
 * Cost: three passes, with a table of 256 exponentials, and one of the results of long
 * lines. Source: ONNX Runtime contrib operators; compared with onnxruntime 1.32.0. */
#include "qlinear.h"
#include "../tile.h"

enum { X, X_SCALE, X_ZERO, Y_SCALE, Y_ZERO };
enum { LONG_LINE = 128 };

struct softmax_args {
    int64_t axis, opset;
};
static const attnrun_attr_def softmax_attrs[] = {
    ATTR_INT(struct softmax_args, axis, -1),
    ATTR_INT_REQUIRED(struct softmax_args, opset), ATTR_END
};
struct softmax_state {
    int64_t n, inner; /* of a line: elements, and from one to the next */
};

static attn_status softmax_infer(attnrun_step *step)
{
    const struct softmax_args *args = step->args;
    const attnrun_type *x = &step->in[X];
    struct softmax_state *s = step->state;
    int axis;
    TRY(op_qlinear_check(step, X_SCALE, X_ZERO));
    TRY(op_qlinear_check(step, Y_SCALE, Y_ZERO));
    TRY(op_out_like(step, 0, X));
    if (x->rank < 0)
        return ATTNRUN_OK;
    TRY(op_need_rank_between(step, X, 1, ATTNRUN_MAX_RANK));
    TRY(op_axis(step, args->axis, x->rank, false, &axis));
    if (!step->concrete)
        return ATTNRUN_OK;
    const int end = args->opset < 13 ? x->rank : axis + 1;
    s->n = op_count(x, axis, end);
    s->inner = op_count(x, end, x->rank);
    op_tasks(step, 0, s->n == 0 ? 0 : op_count(x, 0, axis) * s->inner, s->n * 4);
    return ATTNRUN_OK;
}

/* The largest byte of a line, in the order of 0 to 255. Four at a time do not wait for each
 * other; so are the sums below. */
static int largest_of(const struct softmax_state *s, const uint8_t *x, int flip)
{
    int max[4] = { 0 };
    int64_t i = 0;
    for (; i + 4 <= s->n; i += 4)
        for (int k = 0; k < 4; k++) {
            const int v = x[(i + k) * s->inner] ^ flip;
            max[k] = v > max[k] ? v : max[k];
        }
    for (; i < s->n; i++) {
        const int v = x[i * s->inner] ^ flip;
        max[0] = v > max[0] ? v : max[0];
    }
    for (int k = 1; k < 4; k++)
        max[0] = max[k] > max[0] ? max[k] : max[0];
    return max[0];
}

static float sum_of(const struct softmax_state *s, const uint8_t *x, int flip,
                    const float *power)
{
    float sum[4] = { 0 };
    int64_t i = 0;
    for (; i + 4 <= s->n; i += 4)
        for (int k = 0; k < 4; k++)
            sum[k] += power[x[(i + k) * s->inner] ^ flip];
    for (; i < s->n; i++)
        sum[0] += power[x[i * s->inner] ^ flip];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* A long line has at most as many results as there are bytes. */
static void softmax_line(const attnrun_step *step, uint8_t *y, const uint8_t *x,
                         const float *powers, bool is_signed, struct op_qlinear to)
{
    const struct softmax_state *s = step->state;
    const int flip = is_signed ? 128 : 0; /* bytes in their order as 0 to 255 */
    const int highest = largest_of(s, x, flip);
    const float *power = powers + 255 - highest;
    const float sum = sum_of(s, x, flip, power);
    if (s->n < LONG_LINE || s->inner != 1) {
        for (int64_t i = 0; i < s->n; i++)
            y[i * s->inner] = op_qlinear_byte(
                is_signed, power[x[i * s->inner] ^ flip] / sum / to.scale, to.zero);
        return;
    }
    const struct attn_kernels *k = step->kernels;
    const size_t n = (size_t)highest + 1;
    uint8_t table[256] = { 0 }, bytes[256] = { 0 };
    float shares[256];
    k->div_f32(shares, power, 1, &sum, 0, n);
    if (is_signed)
        k->quantize_i8_f32((int8_t *)bytes, shares, to.scale, to.zero, n);
    else
        k->quantize_u8_f32(bytes, shares, to.scale, to.zero, n);
    memcpy(table, bytes + flip, sizeof table - (size_t)flip);
    memcpy(table + 256 - flip, bytes, (size_t)flip);
    k->look_up_u8(y, x, table, (size_t)s->n);
}

static attn_status softmax_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct softmax_state *s = step->state;
    const bool is_signed = step->in[X].dtype == ATTNRUN_I8;
    const struct op_qlinear from = op_qlinear_of(step, X_SCALE, X_ZERO),
                            to = op_qlinear_of(step, Y_SCALE, Y_ZERO);
    float powers[256]; /* exp((i - 255) scale) */
    for (int i = 0; i < 256; i++)
        powers[i] = expf((float)(i - 255) * from.scale);
    for (int64_t t = work->begin; t < work->end && step->y[0].data != NULL; t++) {
        int64_t outer = t, at = op_take(&outer, s->inner);
        at += outer * s->n * s->inner;
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        softmax_line(step, (uint8_t *)step->y[0].data + at,
                     (const uint8_t *)step->x[X].data + at, powers, is_signed, to);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_qlinear_softmax_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "QLinearSoftmax",
    .since = 1,
    .inputs = "X:T X_scale:f32 x_zero_point:T? y_scale:f32 y_zero_point:T",
    .outputs = "Y:T",
    .types = "T=u8,i8",
    .args_bytes = sizeof(struct softmax_args),
    .state_bytes = sizeof(struct softmax_state),
    .attrs = softmax_attrs,
    .infer = softmax_infer,
    .run = softmax_run,
    .cost = "O(n)",
    .source = "ONNX Runtime contrib operators",
};
