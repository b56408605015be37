/* eye_like.c - EyeLike: ones on diagonal k of a matrix of zeros shaped like the input.
 *
 * dtype   the input's by default
 * k       0 by default, > 0 above the main diagonal
 *
 * Cost: one write of the output. Source: ONNX EyeLike-9. */
#include "move.h"

struct eye_args {
    int64_t dtype, k;
};
static const attnrun_attr_def eye_attrs[] = { ATTR_INT(struct eye_args, dtype, 0),
                                              ATTR_INT(struct eye_args, k, 0), ATTR_END };

static attn_status one_of(const attnrun_step *step, int32_t dtype, char *one)
{
    static const float f32 = 1;
    static const double f64 = 1;
    uint16_t f16 = attn_f32_to_f16(1), bf16 = attn_f32_to_bf16(1);
    memset(one, 0, 8);
    if (dtype == ATTNRUN_F32)
        memcpy(one, &f32, 4);
    else if (dtype == ATTNRUN_F64)
        memcpy(one, &f64, 8);
    else if (dtype == ATTNRUN_F16)
        memcpy(one, &f16, 2);
    else if (dtype == ATTNRUN_BF16)
        memcpy(one, &bf16, 2);
    else if (dtype_in(dtype, ATTN_DT_SINT | ATTN_DT_UINT | ATTN_DT(BOOL)))
        one[0] = 1; /* little-endian */
    else
        return op_fail(step, ATTNRUN_E_DTYPE, "dtype is %s, expected a real number or b8",
                       attnrun_dtype_name(dtype));
    return ATTNRUN_OK;
}

static attn_status eye_infer(attnrun_step *step)
{
    const struct eye_args *args = step->args;
    const attnrun_type *in = &step->in[0];
    char one[8];
    if (args->dtype < 0 || args->dtype >= ATTNRUN_DTYPE_COUNT)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "dtype is %lld, expected the number of an element type",
                       (long long)args->dtype);
    int32_t dtype = args->dtype != 0 ? (int32_t)args->dtype : in->dtype;
    TRY(one_of(step, dtype, one));
    TRY(op_need_rank(step, 0, 2));
    if (in->rank < 0)
        return op_move_unknown(step, 0, dtype, 2);
    TRY(op_out(step, 0, dtype, 2, in->dims));
    if (op_move_planned(step, 0))
        op_tasks(step, 0, in->dims[1].value == 0 ? 0 : in->dims[0].value,
                 in->dims[1].value / 4 + 5);
    return ATTNRUN_OK;
}

static attn_status eye_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct eye_args *args = step->args;
    const attnrun_tensor *y = &step->y[0];
    int64_t bytes = dtype_bytes(y->dtype), at = 0;
    char one[8];
    TRY(one_of(step, y->dtype, one));
    for (int64_t row = work->begin; row < work->end && y->data != NULL; row++) {
        char *to = (char *)y->data + row * y->dims[1] * bytes;
        TRY(attn_poll_fill(to, 0, y->dims[1] * bytes));
        if (ck_add(row, args->k, &at) && at >= 0 && at < y->dims[1])
            memcpy(to + at * bytes, one, (size_t)bytes);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_eye_like_9 = { OP_ROW,
                                       .name = "EyeLike",
                                       .since = 9,
                                       .inputs = "input:T",
                                       .outputs = "output:U",
                                       .types = "T=all U=num,b8",
                                       .args_bytes = sizeof(struct eye_args),
                                       .attrs = eye_attrs,
                                       .infer = eye_infer,
                                       .run = eye_run };
