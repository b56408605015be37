/* qlinear_matmul.c - QLinearMatMul: the product of real numbers (x - zero_point) * scale,
 * quantized again.
 *
 * a, b          i8 or u8, shapes as MatMul's; products are summed in 32 bits and wrap
 * zero points, scales  one, or one per row of a and y and per column of b (as vectors, or
 *               with their leading dims; those of y are the broadcast ones)
 * y             round(sum * a_scale * b_scale / y_scale) + y_zero_point in float, halves
 *               to even, saturated
 *
 * A constant b is packed, a byte an element. Cost: 2 m n k integer operations. Source:
 * ONNX QLinearMatMul-21. */
#include "gemm_bytes.h"
#include "shapes.h"

enum { QA, A_SCALE, A_ZERO, QB, B_SCALE, B_ZERO, Y_SCALE, Y_ZERO };

struct qlinear_state {
    struct attn_integer_gemm product;
    bool by_column; /* b has scales of its columns */
};

/* Matrices that Y has: A or B may have fewer. */
static int64_t y_matrices(const attnrun_step *step)
{
    const attnrun_type *y = &step->out[0];
    const int of_matrix = (step->in[QA].rank > 1) + (step->in[QB].rank > 1);
    return op_count(y, 0, y->rank - of_matrix);
}

static attn_status check_vectors(const attnrun_step *step,
                                 const struct attn_integer_gemm *g)
{
    for (int in = A_SCALE; in <= A_ZERO; in++)
        TRY(attn_integer_check_vector(step, in, g->rows, g->a_matrices, "row of A"));
    for (int in = B_SCALE; in <= B_ZERO; in++)
        TRY(attn_integer_check_vector(step, in, g->gemm.n, g->b_matrices, "column of B"));
    for (int in = Y_SCALE; in <= Y_ZERO; in++)
        TRY(attn_integer_check_vector(step, in, g->rows, y_matrices(step), "row of Y"));
    return ATTNRUN_OK;
}

static attn_status qlinear_matmul_infer(attnrun_step *step)
{
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    int rank;
    TRY(attn_matmul_dims(step, QA, QB, 0, &rank, dims));
    TRY(op_out(step, 0, step->in[Y_ZERO].dtype, rank, rank < 0 ? NULL : dims));
    if (!step->concrete)
        return ATTNRUN_OK;
    struct qlinear_state *state = step->state;
    struct attn_integer_gemm *g = &state->product;
    TRY(attn_integer_plan(step, QA, QB, true, g));
    TRY(check_vectors(step, g));
    state->by_column = op_count(&step->in[B_SCALE], 0, step->in[B_SCALE].rank) != 1;
    op_tasks(step, 0, g->gemm.n_tasks, g->gemm.task_cost);
    step->scratch_bytes = g->gemm.scratch_bytes + g->columns * (int64_t)sizeof(float);
    return ATTNRUN_OK;
}

ATTN_INTEGER_PACKS(qlinear_matmul, QB, false)

static float scale_at(const attnrun_step *step, int in, int64_t at)
{
    return ((const float *)step->x[in].data)[at];
}

/* What sums of a row are multiplied by, for each column or for all. */
static void find_factors(const attnrun_step *step, const struct attn_integer_block *block,
                         float a, float y, float *factors)
{
    const struct qlinear_state *state = step->state;
    const attnrun_tensor *b = &step->x[B_SCALE];
    const int64_t n = state->by_column ? block->n : 1;
    for (int64_t j = 0; j < n; j++) {
        const int64_t at = attn_integer_pick(b, state->product.gemm.n, block->b_matrix,
                                             block->column + j);
        factors[j] = a * scale_at(step, B_SCALE, at) / y;
    }
}

static void quantize_block(const attnrun_step *step, const attnrun_work *work,
                           const struct attn_integer_block *block, void *scratch)
{
    const struct qlinear_state *state = step->state;
    const int64_t rows = state->product.rows, first = block->c / state->product.gemm.n;
    float *factors = scratch, last_a = 0, last_y = 0;
    (void)work;
    for (int64_t i = 0; i < block->m; i++) {
        const int64_t line = (block->line + i) % rows, m = (first + i) / rows;
        const float a = scale_at(step, A_SCALE,
                                 attn_integer_pick(&step->x[A_SCALE], rows,
                                                   (block->line + i) / rows, line)),
                    y = scale_at(step, Y_SCALE,
                                 attn_integer_pick(&step->x[Y_SCALE], rows, m, line));
        const attnrun_tensor *zero = &step->x[Y_ZERO];
        if (i == 0 || a != last_a || y != last_y)
            find_factors(step, block, last_a = a, last_y = y, factors);
        step->kernels->requantize_i32(
            (uint8_t *)step->y[0].data + block->c + i * state->product.gemm.c_row,
            (const int32_t *)block->sums + i * block->row, NULL, factors,
            state->by_column,
            attn_integer_limits(
                step->out[0].dtype,
                attn_integer_at(zero, attn_integer_pick(zero, rows, m, line))),
            (size_t)block->n);
    }
}

static attn_status qlinear_matmul_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct qlinear_state *state = step->state;
    struct attn_integer_operands o =
        attn_integer_operands_of(step, QA, QB, A_ZERO, B_ZERO);
    o.finish = quantize_block;
    return attn_integer_run(&state->product, step->kernels, &o, work);
}

const attnrun_op_def op_qlinear_matmul_10 = {
    OP_ROW,
    .name = "QLinearMatMul",
    .since = 10,
    .inputs =
        "a:T1 a_scale:TS a_zero_point:T1 b:T2 b_scale:TS b_zero_point:T2 y_scale:TS "
        "y_zero_point:T3",
    .outputs = "y:T3",
    .types = "T1=i8,u8 T2=i8,u8 T3=i8,u8 TS=f32",
    .state_bytes = sizeof(struct qlinear_state),
    .infer = qlinear_matmul_infer,
    .pack = qlinear_matmul_pack,
    .check_packed = qlinear_matmul_check_packed,
    .run = qlinear_matmul_run,
    .cost = "O(m n k)",
};
