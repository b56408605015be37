/* integer_matmul.c - MatMulInteger: Y = (A - a_zero_point)(B - b_zero_point) in i32.
 *
 * A, B          i8 or u8, shapes as MatMul's; products are summed in 32 bits and wrap
 * zero points   one, or one per row of A and per column of B (as vectors, or with A's and
 *               B's leading dims)
 * Y             i32
 *
 * A constant B is packed, a byte an element. Cost: 2 m n k integer operations. Source:
 * ONNX MatMulInteger-10. */
#include "gemm_bytes.h"
#include "shapes.h"

struct integer_state {
    struct attn_integer_gemm product;
};

static attn_status matmul_integer_infer(attnrun_step *step)
{
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    int rank;
    TRY(attn_matmul_dims(step, 0, 1, 0, &rank, dims));
    TRY(op_out(step, 0, ATTNRUN_I32, rank, rank < 0 ? NULL : dims));
    if (!step->concrete)
        return ATTNRUN_OK;
    struct attn_integer_gemm *g = &((struct integer_state *)step->state)->product;
    TRY(attn_integer_plan(step, 0, 1, false, g));
    TRY(attn_integer_check_vector(step, 2, g->rows, g->a_matrices, "row of A"));
    TRY(attn_integer_check_vector(step, 3, g->gemm.n, g->b_matrices, "column of B"));
    op_tasks(step, 0, g->gemm.n_tasks, g->gemm.task_cost);
    step->scratch_bytes = g->gemm.scratch_bytes;
    return ATTNRUN_OK;
}

ATTN_INTEGER_PACKS(matmul_integer, 1, false)

static attn_status matmul_integer_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct integer_state *state = step->state;
    struct attn_integer_operands o = attn_integer_operands_of(step, 0, 1, 2, 3);
    o.c = step->y[0].data;
    return attn_integer_run(&state->product, step->kernels, &o, work);
}

const attnrun_op_def op_matmul_integer_10 = {
    OP_ROW,
    .name = "MatMulInteger",
    .since = 10,
    .inputs = "A:T1 B:T2 a_zero_point:T1? b_zero_point:T2?",
    .outputs = "Y:i32",
    .types = "T1=i8,u8 T2=i8,u8",
    .state_bytes = sizeof(struct integer_state),
    .infer = matmul_integer_infer,
    .pack = matmul_integer_pack,
    .check_packed = matmul_integer_check_packed,
    .run = matmul_integer_run,
    .cost = "O(m n k)",
};
