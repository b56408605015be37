/* dropout.c - Dropout: y = x in inference; in training y = x / (1 - ratio) where an
 * element is kept, else 0.
 *
 * x              floats of any shape; y is a view of it in inference
 * ratio          scalar, 0.5 by default, in [0, 1)
 * training_mode  scalar, false by default; without that input always inference
 * mask           as x, true where kept: all of it in inference
 *
 * Cost: none in inference without a mask; one pass otherwise. Source: ONNX Dropout-1, 6,
 * 7, 10, 12 to 22. */
#include "convert_dtypes.h"
#include "elementwise.h"
#include "random.h"

struct dropout_args {
    float ratio; /* before 12; of no effect in inference */
    int64_t seed;
};
static const attnrun_attr_def dropout_1_attrs[] = {
    ATTR_FLOAT(struct dropout_args, ratio, 0.5f), ATTR_IGNORED("is_test"),
    ATTR_IGNORED("consumed_inputs"), ATTR_END
};
static const attnrun_attr_def dropout_12_attrs[] = {
    ATTR_INT(struct dropout_args, seed, OP_INT_ABSENT), ATTR_END
};

static attn_status dropout_infer(attnrun_step *step)
{
    bool mask_like_x = step->node->op->since < 10;
    const attnrun_type *x = &step->in[0];
    TRY(op_out_like(step, 0, 0));
    TRY(op_out(step, 1, mask_like_x ? x->dtype : ATTNRUN_BOOL, x->rank, x->dims));
    if (!op_has_in(step, 2) || (op_known(step, 2) && tensor_count(&step->x[2]) == 1 &&
                                tensor_get_int(&step->x[2], 0) == 0))
        attnrun_step_view(step, 0, 0, 0);
    return ATTNRUN_OK;
}

static attn_status read_scalar(const attnrun_step *step, int in, double *value)
{
    if (!op_has_in(step, in))
        return ATTNRUN_OK;
    if (tensor_count(&step->x[in]) != 1)
        return op_fail_input(step, in, ATTNRUN_E_SHAPE, "expected one element");
    *value = tensor_get_real(&step->x[in], 0);
    return ATTNRUN_OK;
}

static void drop(const attnrun_step *step, const attnrun_work *work, double ratio)
{
    const struct convert_rule rule = { true, ROUND_UP };
    const struct dropout_args *args = step->args;
    const attnrun_tensor *x = &step->x[0];
    int64_t count = tensor_count(x);
    double run[CONVERT_RUN], scale = 1.0 / (1.0 - ratio);
    int64_t seed = args->seed == OP_INT_ABSENT ? step->node->index : args->seed;
    uint8_t *mask = op_has_out(step, 1) ? step->y[1].data : NULL;
    for (int64_t k = 0; k < count && !OP_CANCELLED_AFTER(work, 4 * CONVERT_RUN);
         k += CONVERT_RUN) {
        int64_t n = count - k < CONVERT_RUN ? count - k : CONVERT_RUN;
        for (int64_t i = 0; i < n; i++) {
            bool keep = random_unit((uint64_t)seed, (uint64_t)(k + i)) >= ratio;
            run[i] = keep ? tensor_get_real(x, k + i) * scale : 0.0;
            if (mask != NULL)
                mask[k + i] = keep;
        }
        if (step->y[0].data != NULL)
            attn_convert_store(x->dtype, step->y[0].data, k, n, ATTNRUN_F64, run, &rule);
    }
}

static void fill_mask(const attnrun_tensor *mask)
{
    const float one = 1.0f;
    int64_t count = tensor_count(mask);
    for (int64_t k = 0; k < count && !attn_stops(k); k++)
        attn_convert_store_f32(mask->dtype, mask->data, k, 1, &one);
}

static attn_status dropout_run(const attnrun_step *step, const attnrun_work *work)
{
    double ratio = 0.5, training = 0;
    TRY(read_scalar(step, 1, &ratio));
    TRY(read_scalar(step, 2, &training));
    if (training != 0 && !(ratio >= 0 && ratio < 1))
        return op_fail(step, ATTNRUN_E_RANGE, "ratio is %g, expected 0 <= ratio < 1",
                       ratio);
    if (training != 0 && ratio > 0) {
        drop(step, work, ratio);
        return ATTNRUN_OK;
    }
    const attnrun_tensor *x = &step->x[0], *y = &step->y[0];
    if (y->data != NULL && y->data != x->data)
        TRY(attn_poll_copy(y->data, x->data, tensor_bytes(x)));
    if (op_has_out(step, 1) && step->y[1].data != NULL)
        fill_mask(&step->y[1]);
    return ATTNRUN_OK;
}

#define FLOATS   "f16,bf16,f32,f64"
#define FLOATS_8 FLOATS ",f8e4m3fn,f8e4m3fnuz,f8e5m2,f8e5m2fnuz"
#define DROPOUT(row, first, mask, attributes)                                            \
    const attnrun_op_def row = {                                                         \
        OP_ROW,                                                                          \
        .name = "Dropout",                                                               \
        .since = (first),                                                                \
        .inputs = "data:T",                                                              \
        .outputs = "output:T mask:" mask "?",                                            \
        .types = "T=" FLOATS,                                                            \
        .args_bytes = sizeof(struct dropout_args),                                       \
        .attrs = (attributes),                                                           \
        .infer = dropout_infer,                                                          \
        .run = dropout_run,                                                              \
    };
DROPOUT(op_dropout_1, 1, "T", dropout_1_attrs)
DROPOUT(op_dropout_10, 10, "b8", dropout_1_attrs)
const attnrun_op_def op_dropout_12 = {
    OP_ROW,
    .name = "Dropout",
    .since = 12,
    .inputs = "data:T ratio:R? training_mode:b8?",
    .outputs = "output:T mask:b8?",
    .types = "T=" FLOATS_8 " R=" FLOATS_8,
    .args_bytes = sizeof(struct dropout_args),
    .attrs = dropout_12_attrs,
    .infer = dropout_infer,
    .run = dropout_run,
};
