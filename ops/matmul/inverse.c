/* inverse.c - com.microsoft Inverse: the inverse of each square matrix, by Gauss-Jordan
 * elimination with row pivots in double.
 *
 * X, Y   (…, m, m), f32 or f64 (f16 is computed in f32)
 *
 * A matrix without an inverse gives infinities or NaNs. Cost: O(m^3) a matrix; scratch 16
 * m^2 bytes.
 * Source: ONNX Runtime contrib operators; compared with onnxruntime 1.32.0. */
#include "../pivot.h"

static attn_status inverse_infer(attnrun_step *step)
{
    const attnrun_type *x = &step->in[0];
    int64_t bytes;
    TRY(op_need_rank_between(step, 0, 2, ATTNRUN_MAX_RANK));
    if (x->rank >= 0)
        TRY(op_need_dim(step, 0, x->rank - 1, x->dims[x->rank - 2], "a square matrix"));
    TRY(op_out_like(step, 0, 0));
    if (!step->concrete || x->rank < 0)
        return ATTNRUN_OK;
    int64_t m = x->dims[x->rank - 1].value;
    if (!ck_mul(m, m, &bytes) || !ck_mul(bytes, 16, &bytes))
        return op_fail(
            step, ATTNRUN_E_MEMORY,
            "the inverse of %lld rows takes more than 2^63 - 1 bytes of scratch memory",
            (long long)m);
    step->scratch_bytes = bytes;
    op_tasks(step, 0, m == 0 ? 0 : op_count(x, 0, x->rank - 2),
             bytes < INT64_C(1) << 40 ? bytes / 16 * m : bytes);
    return ATTNRUN_OK;
}

/* a: m rows of 2 m, the matrix and the unit matrix; the latter becomes the inverse. */
static attn_status invert(double *a, int64_t m, const attnrun_work *work)
{
    const int64_t row = 2 * m;
    for (int64_t k = 0; k < m; k++) {
        attn_pivot(a, row, m, k);
        const double factor = 1.0 / a[k * row + k];
        for (int64_t c = k; c < row; c++)
            a[k * row + c] *= factor;
        for (int64_t i = 0; i < m; i++) {
            const double times = a[i * row + k];
            if (i == k || times == 0.0)
                continue;
            for (int64_t c = k; c < row; c++)
                a[i * row + c] -= times * a[k * row + c];
            if ((i & 63) == 63 && OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
        }
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

static attn_status inverse_run(const attnrun_step *step, const attnrun_work *work)
{
    const attnrun_tensor *x = &step->x[0], *y = &step->y[0];
    const int64_t m = x->dims[x->rank - 1], row = 2 * m;
    double *a = work->scratch;
    for (int64_t k = work->begin; k < work->end && y->data != NULL; k++) {
        for (int64_t i = 0; i < m; i++)
            for (int64_t c = 0; c < m; c++) {
                a[i * row + c] = tensor_get_real(x, (k * m + i) * m + c);
                a[i * row + m + c] = i == c ? 1.0 : 0.0;
            }
        TRY(invert(a, m, work));
        for (int64_t i = 0; i < m * m; i++) {
            const double value = a[i / m * row + m + i % m];
            if (y->dtype == ATTNRUN_F32)
                ((float *)y->data)[k * m * m + i] = (float)value;
            else
                ((double *)y->data)[k * m * m + i] = value;
        }
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_inverse_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "Inverse",
    .since = 1,
    .inputs = "X:T",
    .outputs = "Y:T",
    .types = "T=f32,f64",
    .infer = inverse_infer,
    .run = inverse_run,
    .cost = "O(m^3) a matrix",
    .source = "ONNX Runtime contrib operators",
};
