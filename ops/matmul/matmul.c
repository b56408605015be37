/* matmul.c - MatMul: Y = A B, numpy's matmul.
 *
 * A, B   f32, f64, i32, i64, u32 or u64, (…, m, k) and (…, k, n); leading dims broadcast;
 *        a vector is a row on the left and a column on the right
 * Y      (…, m, n), without the dims that a vector lacks
 *
 * The f32 product is tuned: a constant B is packed, and one B for a whole batch of A is
 * one product. The other types use plain loops. Cost: 2 m n k FLOPs. Source: ONNX
 * MatMul-13. */
#include "plain_product.h"
#include "shapes.h"

struct matmul_state {
    struct attn_gemm gemm;
};

static attn_status matmul_infer(attnrun_step *step)
{
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    int rank;
    TRY(attn_matmul_dims(step, 0, 1, 0, &rank, dims));
    TRY(op_out(step, 0, step->in[0].dtype, rank, rank < 0 ? NULL : dims));
    if (!step->concrete)
        return ATTNRUN_OK;
    struct attn_gemm *g = &((struct matmul_state *)step->state)->gemm;
    TRY(attn_matmul_describe(step, 0, 1, 0, g));
    if (step->in[0].dtype == ATTNRUN_F32)
        TRY(attn_gemm_plan(step, g));
    else
        TRY(attn_plain_plan(step, g));
    op_tasks(step, 0, g->n_tasks, g->task_cost);
    step->scratch_bytes = g->scratch_bytes;
    return ATTNRUN_OK;
}

ATTN_GEMM_PACKS_FACTOR(matmul, false)

static attn_status matmul_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct attn_gemm *g = &((const struct matmul_state *)step->state)->gemm;
    const struct attn_gemm_operands o = attn_gemm_factors(step);
    const struct attn_plain plain = { .dtype = step->x[0].dtype, .alpha = 1.0 };
    if (plain.dtype == ATTNRUN_F32)
        return attn_gemm_run(g, step->kernels, &o, work);
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        TRY(attn_plain_row(g, &plain, &o, NULL, task, work));
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_matmul_1 = {
    OP_ROW,
    .name = "MatMul",
    .since = 1,
    .inputs = "A:T B:T",
    .outputs = "Y:T",
    .types = "T=f32,f64,i32,i64,u32,u64",
    .state_bytes = sizeof(struct matmul_state),
    .infer = matmul_infer,
    .pack = matmul_pack,
    .check_packed = matmul_check_packed,
    .storage_in = 2,
    .run = matmul_run,
    .cost = "O(m n k)",
};
