/* qgemm.c - com.microsoft QGemm: Gemm of real numbers (q - zero) * scale on bytes.
 *
 * A, B          (m, k), (k, n), u8 or i8; with transA, transB (k, m), (n, k)
 * a_scale, a_zero_point   one number
 * b_scale, b_zero_point   one number, or one for each column of B
 * C             i32, broadcast to (m, n): of scale alpha * a_scale * b_scale, added to
 *               the sums
 * y_scale, y_zero_point   with them Y is saturate(round(y / y_scale) + zero), halves to
 *               even, of A's type; without them Y is f32, with y_scale alone y / y_scale
 * Y             (m, n)
 *
 * Cost: 2 m n k integer operations. Source: ONNX Runtime contrib operators; compared with
 * onnxruntime 1.32.0. */
#include "gemm_bytes.h"

enum { A, A_SCALE, A_ZERO, B, B_SCALE, B_ZERO, C, Y_SCALE, Y_ZERO };

struct qgemm_args {
    int64_t transA, transB;
    float alpha;
};
static const attnrun_attr_def qgemm_attrs[] = {
    ATTR_INT(struct qgemm_args, transA, 0), ATTR_INT(struct qgemm_args, transB, 0),
    ATTR_FLOAT(struct qgemm_args, alpha, 1.0f), ATTR_END
};

struct qgemm_state {
    struct attn_integer_gemm product;
    int64_t c_row, c_col;
};

static attn_status check_c(const attnrun_step *step, attnrun_dim m, attnrun_dim n)
{
    const attnrun_type *c = &step->in[C];
    if (!op_has_in(step, C) || c->rank < 0)
        return ATTNRUN_OK;
    TRY(op_need_rank_between(step, C, 0, 2));
    if (c->rank > 0 && !dim_is(c->dims[c->rank - 1], 1))
        TRY(op_need_dim(step, C, c->rank - 1, n, "columns of B"));
    if (c->rank == 2 && !dim_is(c->dims[0], 1))
        TRY(op_need_dim(step, C, 0, m, "rows of A"));
    return ATTNRUN_OK;
}

static attn_status plan_qgemm(attnrun_step *step, int64_t m, int64_t n, int64_t k)
{
    const struct qgemm_args *args = step->args;
    struct qgemm_state *state = step->state;
    struct attn_integer_gemm *g = &state->product;
    const attnrun_type *c = &step->in[C];
    attn_gemm_describe(&g->gemm, m, n, k, args->transA != 0, args->transB != 0);
    g->rows = m;
    g->a_matrices = g->b_matrices = 1;
    TRY(attn_integer_cut(step, true, g));
    for (int in = B_SCALE; in <= B_ZERO; in++)
        TRY(attn_integer_check_vector(step, in, n, 1, "column of B"));
    if (op_has_in(step, C)) {
        state->c_col = c->rank > 0 && c->dims[c->rank - 1].value != 1;
        state->c_row = c->rank == 2 && c->dims[0].value != 1 ? c->dims[1].value : 0;
    }
    op_tasks(step, 0, g->gemm.n_tasks, g->gemm.task_cost);
    step->scratch_bytes = g->gemm.scratch_bytes + g->columns * 8;
    return ATTNRUN_OK;
}

static attn_status qgemm_infer(attnrun_step *step)
{
    const struct qgemm_args *args = step->args;
    const int32_t dtype = op_has_in(step, Y_ZERO) ? step->in[A].dtype : ATTNRUN_F32;
    if (!op_has_in(step, Y_SCALE) && op_has_in(step, Y_ZERO))
        return op_fail(step, ATTNRUN_E_INPUT, "y_zero_point is given without y_scale");
    TRY(op_need_rank(step, A, 2));
    TRY(op_need_rank(step, B, 2));
    for (int in = A_SCALE; in <= A_ZERO; in++)
        TRY(attn_integer_check_one(step, in));
    for (int in = Y_SCALE; in <= Y_ZERO; in++)
        TRY(attn_integer_check_one(step, in));
    if (!op_rank_known(step, A) || !op_rank_known(step, B))
        return op_out(step, 0, dtype, -1, NULL);
    const attnrun_dim *a = step->in[A].dims, *b = step->in[B].dims;
    const int ta = args->transA != 0, tb = args->transB != 0;
    const attnrun_dim dims[2] = { a[ta], b[!tb] };
    TRY(op_need_dim(step, B, tb, a[!ta], "the inner dim of A"));
    TRY(check_c(step, dims[0], dims[1]));
    TRY(op_out(step, 0, dtype, 2, dims));
    return step->concrete ? plan_qgemm(step, dims[0].value, dims[1].value, a[!ta].value)
                          : ATTNRUN_OK;
}

ATTN_INTEGER_PACKS(qgemm, B, ((const struct qgemm_args *)pack->args)->transB != 0)

/* C of line i of a block from its first column on. */
static const int32_t *c_at(const attnrun_step *step,
                           const struct attn_integer_block *block, int64_t i)
{
    const struct qgemm_state *state = step->state;
    return (const int32_t *)step->x[C].data + (block->line + i) * state->c_row +
           block->column * state->c_col;
}

static void add_c(const attnrun_step *step, const struct attn_integer_block *block)
{
    const struct qgemm_state *state = step->state;
    uint32_t *sums = (uint32_t *)(uintptr_t)block->sums; /* in this worker's scratch */
    for (int64_t i = 0; i < block->m; i++) {
        const int32_t *c = c_at(step, block, i);
        for (int64_t j = 0; j < block->n; j++)
            sums[i * block->row + j] += (uint32_t)c[j * state->c_col];
    }
}

static void quantize_rows(const attnrun_step *step,
                          const struct attn_integer_block *block, float a, float *factors)
{
    const struct qgemm_state *state = step->state;
    const attnrun_tensor *b = &step->x[B_SCALE];
    const bool by_column = tensor_count(b) != 1;
    const bool add = op_has_in(step, C) && state->c_col != 0;
    const float y = *(const float *)step->x[Y_SCALE].data;
    const struct attn_byte_limits to =
        attn_integer_limits(step->out[0].dtype, attn_integer_at(&step->x[Y_ZERO], 0));
    for (int64_t j = 0; j < (by_column ? block->n : 1); j++)
        factors[j] = a * ((const float *)b->data)[by_column ? block->column + j : 0] / y;
    for (int64_t i = 0; i < block->m; i++)
        step->kernels->requantize_i32(
            (uint8_t *)step->y[0].data + block->c + i * state->product.gemm.c_row,
            (const int32_t *)block->sums + i * block->row,
            add ? c_at(step, block, i) : NULL, factors, by_column, to, (size_t)block->n);
}

static void qgemm_finish(const attnrun_step *step, const attnrun_work *work,
                         const struct attn_integer_block *block, void *scratch)
{
    const struct qgemm_args *args = step->args;
    const struct qgemm_state *state = step->state;
    const float *y_scale = op_in_data(step, Y_SCALE);
    const bool bytes = op_has_in(step, Y_ZERO);
    float a = args->alpha * *(const float *)step->x[A_SCALE].data;
    (void)work;
    if (op_has_in(step, C) && (!bytes || state->c_col == 0))
        add_c(step, block);
    if (bytes) {
        quantize_rows(step, block, a, scratch);
        return;
    }
    a /= y_scale != NULL ? *y_scale : 1.0f;
    const struct attn_integer_scales by = { a, &step->x[B_SCALE], NULL };
    attn_integer_to_floats(&state->product, step->kernels, block, &by, step->y[0].data,
                           scratch);
}

static attn_status qgemm_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct qgemm_state *state = step->state;
    struct attn_integer_operands o = attn_integer_operands_of(step, A, B, A_ZERO, B_ZERO);
    o.finish = qgemm_finish;
    return attn_integer_run(&state->product, step->kernels, &o, work);
}

const attnrun_op_def op_qgemm_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "QGemm",
    .since = 1,
    .inputs = "A:TA a_scale:f32 a_zero_point:TA B:TB b_scale:f32 b_zero_point:TB C:i32? "
              "y_scale:f32? y_zero_point:TA?",
    .outputs = "Y:TY",
    .types = "TA=u8,i8 TB=u8,i8 TY=f32,u8,i8",
    .args_bytes = sizeof(struct qgemm_args),
    .state_bytes = sizeof(struct qgemm_state),
    .attrs = qgemm_attrs,
    .infer = qgemm_infer,
    .pack = qgemm_pack,
    .check_packed = qgemm_check_packed,
    .run = qgemm_run,
    .cost = "O(m n k)",
    .source = "ONNX Runtime contrib operators",
};
