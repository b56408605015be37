/* det.c - Det: the determinant of each square matrix, by LU with row pivots in double.
 *
 * x  f32 or f64 (…, m, m); y (…)
 *
 * The determinant of 0 x 0 is 1. Cost: O(m^3) a matrix; scratch 8 m^2 bytes. Source: ONNX
 * Det-11, 22. */
#include "../elementwise/elementwise.h"
#include "../pivot.h"
#include "axis_lines.h"

static attn_status det_infer(attnrun_step *step)
{
    const attnrun_type *x = &step->in[0];
    TRY(op_need_rank_between(step, 0, 2, ATTNRUN_MAX_RANK));
    if (x->rank < 0)
        return op_out(step, 0, x->dtype, -1, NULL);
    TRY(op_need_dim(step, 0, x->rank - 1, x->dims[x->rank - 2], "a square matrix"));
    TRY(op_out(step, 0, x->dtype, x->rank - 2, x->dims));
    if (!step->concrete)
        return ATTNRUN_OK;
    int64_t m = x->dims[x->rank - 1].value, bytes;
    if (!ck_mul(m, m, &bytes) || !ck_mul(bytes, 8, &bytes))
        return op_fail(step, ATTNRUN_E_MEMORY,
                       "a determinant of %lld rows needs more than 2^63 - 1 bytes",
                       (long long)m);
    step->scratch_bytes = bytes;
    op_tasks(step, 0, op_count(x, 0, x->rank - 2), bytes / 8 * m / 3);
    return ATTNRUN_OK;
}

/* a (m, m) is overwritten. */
static double determinant(double *a, int64_t m)
{
    double det = 1;
    for (int64_t k = 0; k < m; k++) {
        if (attn_pivot(a, m, m, k))
            det = -det;
        if (a[k * m + k] == 0)
            return 0;
        det *= a[k * m + k];
        for (int64_t i = k + 1; i < m; i++) {
            if (attn_poll_work((m - k) * 16) != ATTNRUN_OK)
                return 0;
            double factor = a[i * m + k] / a[k * m + k];
            for (int64_t c = k + 1; c < m; c++)
                a[i * m + c] -= factor * a[k * m + c];
        }
    }
    return det;
}

static attn_status det_run(const attnrun_step *step, const attnrun_work *work)
{
    const attnrun_tensor *x = &step->x[0], *y = &step->y[0];
    int64_t m = x->dims[x->rank - 1];
    double *a = work->scratch;
    for (int64_t k = work->begin; k < work->end; k++) {
        for (int64_t i = 0; i < m * m && !attn_stops(i); i++)
            a[i] = tensor_get_real(x, k * m * m + i);
        if (y->dtype == ATTNRUN_F32)
            ((float *)y->data)[k] = (float)determinant(a, m);
        else
            ((double *)y->data)[k] = determinant(a, m);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_det_11 = {
    OP_ROW,
    .name = "Det",
    .since = 11,
    .inputs = "x:T",
    .outputs = "y:T",
    .types = "T=" TYPES_FLT,
    .infer = det_infer,
    .run = det_run,
    .cost = "O(m^3) a matrix",
};
