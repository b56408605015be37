/* qlinear_global_average_pool.c - com.microsoft QLinearGlobalAveragePool: the average of
 * each channel, of real numbers (q - zero) * scale, quantized again with halves to even.
 *
 * X   u8 or i8 (N, C, spatial), or with channels_last (N, spatial, C)
 * Y   of X's type, spatial dims of 1
 *
 * Scales are one f32 number each, zero points likewise. Cost: one read of X. Source: ONNX
 * Runtime contrib operators; compared with onnxruntime 1.32.0. */
#include "qlinear.h"
#include "../tile.h"

enum { X, X_SCALE, X_ZERO, Y_SCALE, Y_ZERO };

struct pool_args {
    int64_t channels_last;
};
static const attnrun_attr_def global_attrs[] = {
    ATTR_INT(struct pool_args, channels_last, 0), ATTR_END
};

struct pool_state {
    int64_t channels, plane; /* plane: pixels of an image */
};

static attn_status check_scales(const attnrun_step *step)
{
    TRY(op_qlinear_check(step, X_SCALE, X_ZERO));
    return op_qlinear_check(step, Y_SCALE, Y_ZERO);
}

static attn_status global_infer(attnrun_step *step)
{
    const struct pool_args *args = step->args;
    const attnrun_type *x = &step->in[X];
    struct pool_state *s = step->state;
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    TRY(check_scales(step));
    TRY(op_need_rank_between(step, X, 3, ATTNRUN_MAX_RANK));
    if (x->rank < 0)
        return op_out(step, 0, x->dtype, -1, NULL);
    const int channel = args->channels_last != 0 ? x->rank - 1 : 1;
    for (int d = 0; d < x->rank; d++)
        dims[d] = d == 0 || d == channel ? x->dims[d] : dim_of(1);
    TRY(op_out(step, 0, x->dtype, x->rank, dims));
    if (!step->concrete)
        return ATTNRUN_OK;
    s->channels = x->dims[channel].value;
    s->plane = channel == 1 ? op_count(x, 2, x->rank) : op_count(x, 1, x->rank - 1);
    if (s->plane == 0)
        return op_fail_input(step, X, ATTNRUN_E_SHAPE, "expected at least 1 pixel");
    op_tasks(step, 0, op_count(&step->out[0], 0, x->rank), s->plane / 2 + 20);
    return ATTNRUN_OK;
}

static attn_status global_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct pool_args *args = step->args;
    const struct pool_state *s = step->state;
    const bool is_signed = step->in[X].dtype == ATTNRUN_I8;
    const int64_t stride = args->channels_last != 0 ? s->channels : 1;
    for (int64_t t = work->begin; t < work->end; t++) {
        int64_t image = t, channel = op_take(&image, s->channels);
        const uint8_t *x = (const uint8_t *)step->x[X].data +
                           image * s->channels * s->plane +
                           (args->channels_last != 0 ? channel : channel * s->plane);
        int64_t sum = 0;
        for (int64_t i = 0; i < s->plane; i++) {
            sum += is_signed ? (int8_t)x[i * stride] : x[i * stride];
            if ((i & 0xfffff) == 0 && OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
        }
        ((uint8_t *)step->y[0].data)[t] = op_qlinear_mean(
            is_signed, sum, s->plane, op_qlinear_of(step, X_SCALE, X_ZERO),
            op_qlinear_of(step, Y_SCALE, Y_ZERO));
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_qlinear_global_average_pool_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "QLinearGlobalAveragePool",
    .since = 1,
    .inputs = "X:T x_scale:f32 x_zero_point:T y_scale:f32 y_zero_point:T",
    .outputs = "Y:T",
    .types = "T=u8,i8",
    .args_bytes = sizeof(struct pool_args),
    .state_bytes = sizeof(struct pool_state),
    .attrs = global_attrs,
    .infer = global_infer,
    .run = global_run,
    .cost = "O(n)",
    .source = "ONNX Runtime contrib operators",
};
