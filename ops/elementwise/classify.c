/* classify.c - IsNaN and IsInf: y[i] is true where x[i] is NaN, or an infinity of a
 * wanted sign.
 *
 * x  floats of any shape; y b8 of the same
 * detect_negative, detect_positive  1 by default
 *
 * Cost: one pass. Source: ONNX IsNaN-9 to 20, IsInf-10, 20. */
#include <math.h>

#include "convert_dtypes.h"
#include "elementwise.h"

struct is_inf_args {
    int64_t detect_negative, detect_positive;
};
static const attnrun_attr_def is_inf_attrs[] = {
    ATTR_FLAG(struct is_inf_args, detect_negative, 1),
    ATTR_FLAG(struct is_inf_args, detect_positive, 1), ATTR_END
};

static attn_status classify_infer(attnrun_step *step)
{
    TRY(op_out(step, 0, ATTNRUN_BOOL, step->in[0].rank, step->in[0].dims));
    elementwise_tasks(step, 2000);
    return ATTNRUN_OK;
}

/* Elements begin … end - 1 as doubles, at most CONVERT_RUN. */
static void classify_load(double *run, const attnrun_tensor *x, int64_t first, int64_t n)
{
    float narrow[CONVERT_RUN];
    if (x->dtype == ATTNRUN_F64) {
        memcpy(run, (const double *)x->data + first, (size_t)n * sizeof *run);
        return;
    }
    attn_convert_load_f32(narrow, x->dtype, x->data, first, n);
    for (int64_t i = 0; i < n; i++)
        run[i] = (double)narrow[i];
}

/* y: x is NaN, where that is asked, or one of two numbers; NaN equals nothing. */
static attn_status classify(const attnrun_step *step, const attnrun_work *work, bool nan,
                            double low, double high)
{
    double run[CONVERT_RUN];
    uint8_t *y = step->y[0].data;
    int64_t begin, end;
    elementwise_range(work, tensor_count(&step->x[0]), &begin, &end);
    for (int64_t k = begin; k < end && !OP_CANCELLED_AFTER(work, 4 * CONVERT_RUN);
         k += CONVERT_RUN) {
        int64_t n = end - k < CONVERT_RUN ? end - k : CONVERT_RUN;
        classify_load(run, &step->x[0], k, n);
        for (int64_t i = 0; i < n; i++)
            y[k + i] = (nan && run[i] != run[i]) || run[i] == low || run[i] == high;
    }
    return ATTNRUN_OK;
}

static attn_status is_nan_run(const attnrun_step *step, const attnrun_work *work)
{
    return classify(step, work, true, (double)NAN, (double)NAN);
}

static attn_status is_inf_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct is_inf_args *args = step->args;
    return classify(step, work, false, args->detect_negative ? -HUGE_VAL : (double)NAN,
                    args->detect_positive ? HUGE_VAL : (double)NAN);
}

#define CLASSIFIED "T=f32,f64,f16,bf16,f8e4m3fn,f8e4m3fnuz,f8e5m2,f8e5m2fnuz"
const attnrun_op_def op_is_nan_9 = {
    OP_ROW,
    .name = "IsNaN",
    .since = 9,
    .inputs = "x:T",
    .outputs = "y:b8",
    .types = CLASSIFIED,
    .infer = classify_infer,
    .run = is_nan_run,
};
const attnrun_op_def op_is_inf_10 = {
    OP_ROW,
    .name = "IsInf",
    .since = 10,
    .inputs = "x:T",
    .outputs = "y:b8",
    .types = CLASSIFIED,
    .args_bytes = sizeof(struct is_inf_args),
    .attrs = is_inf_attrs,
    .infer = classify_infer,
    .run = is_inf_run,
};
