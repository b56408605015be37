/* non_zero.c - NonZero: the coordinates of the elements that are not zero, as i64 (rank,
 * n) in row-major order. X has any type; a scalar gives (0, n). The step is a
 * dynamic-shape step, because n is known only at run. Cost: two reads of X. Source: ONNX
 * NonZero-9. */
#include "move.h"

static attn_status non_zero_infer(attnrun_step *step)
{
    int rank = step->in[0].rank;
    attnrun_dim dims[2] = { rank < 0 ? attnrun_dim_unknown(step) : dim_of(rank),
                            attnrun_dim_unknown(step) };
    int64_t bytes;
    TRY(op_move_need_bytes(step, 0));
    if (step->concrete && ck_mul(op_count(&step->in[0], 0, rank), 8 * rank, &bytes))
        attnrun_step_heap_bound(step, bytes);
    return op_out(step, 0, ATTNRUN_I64, 2, dims);
}

/* -0.0 is zero; a string is zero where it is empty. */
static bool is_non_zero(const attnrun_tensor *t, int64_t k)
{
    uint64_t word = 0;
    int64_t bytes = dtype_bytes(t->dtype);
    if (t->dtype == ATTNRUN_STRING)
        return ((const attnrun_string *)t->data)[k].n != 0;
    if (t->dtype == ATTNRUN_F64)
        return ((const double *)t->data)[k] != 0;
    if (t->dtype == ATTNRUN_F32)
        return ((const float *)t->data)[k] != 0;
    if (t->dtype == ATTNRUN_C64 || t->dtype == ATTNRUN_C128) {
        const float *f = (const float *)t->data + 2 * k;
        const double *d = (const double *)t->data + 2 * k;
        return t->dtype == ATTNRUN_C64 ? f[0] != 0 || f[1] != 0 : d[0] != 0 || d[1] != 0;
    }
    memcpy(&word, (const char *)t->data + k * bytes, (size_t)bytes);
    if (t->dtype == ATTNRUN_F16 || t->dtype == ATTNRUN_BF16)
        word &= 0x7fff;
    if (t->dtype == ATTNRUN_F8E4M3FN || t->dtype == ATTNRUN_F8E5M2)
        word &= 0x7f;
    return word != 0;
}

static attn_status non_zero_run(const attnrun_step *step, const attnrun_work *work)
{
    const attnrun_tensor *x = &step->x[0];
    int64_t count = tensor_count(x), n = 0, found = 0, at[ATTNRUN_MAX_RANK] = { 0 };
    for (int64_t k = 0; k < count; k++) {
        if ((k & 0xffff) == 0 && OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        n += is_non_zero(x, k);
    }
    int64_t dims[2] = { x->rank, n };
    TRY(attnrun_step_alloc(step, 0, ATTNRUN_I64, 2, dims));
    int64_t *y = step->y[0].data;
    for (int64_t k = 0; k < count && y != NULL; k++) {
        if ((k & 0xffff) == 0 && OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (is_non_zero(x, k)) {
            for (int i = 0; i < x->rank; i++)
                y[i * n + found] = at[i];
            found++;
        }
        for (int i = x->rank - 1; i >= 0 && ++at[i] == x->dims[i]; i--)
            at[i] = 0;
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_non_zero_9 = { OP_ROW,
                                       .flags = ATTNRUN_OP_DYNAMIC,
                                       .name = "NonZero",
                                       .since = 9,
                                       .inputs = "X:T",
                                       .outputs = "Y:i64",
                                       .types = "T=all",
                                       .infer = non_zero_infer,
                                       .run = non_zero_run };
