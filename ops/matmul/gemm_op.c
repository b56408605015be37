/* gemm_op.c - Gemm: Y = alpha A' B' + beta C, where A' is A or, with transA, its
 * transpose.
 *
 * A, B   (m,k) and (k,n) after transposing;  C broadcasts to (m,n), optional
 * Defaults: alpha = beta = 1. Source: ONNX Gemm-13; the `broadcast` of version 6 is how C
 * is always treated. com.microsoft FusedGemm adds an activation. */
#include "plain.h"

struct gemm_args {
    int64_t transA, transB;
    float alpha, beta;
};

static const attnrun_attr_def gemm_attrs[] = {
    ATTR_INT(struct gemm_args, transA, 0),
    ATTR_INT(struct gemm_args, transB, 0),
    ATTR_FLOAT(struct gemm_args, alpha, 1.0f),
    ATTR_FLOAT(struct gemm_args, beta, 1.0f),
    ATTR_IGNORED("broadcast"),
    ATTR_END,
};

struct gemm_state {
    struct attn_gemm gemm;
    int64_t c_row, c_col;
};

/* C's dims against the product's, from the right. */
static attn_status check_c(const attnrun_step *step, const attnrun_dim *dims)
{
    const attnrun_type *c = &step->in[2];
    TRY(op_need_rank_between(step, 2, 0, 2));
    for (int i = 0; i < c->rank; i++)
        if (!dim_is(c->dims[i], 1))
            TRY(op_need_dim(step, 2, i, dims[2 - c->rank + i], "the product's, or 1"));
    return ATTNRUN_OK;
}

static void c_strides(const attnrun_type *c, struct gemm_state *state)
{
    int64_t columns = c->rank > 0 ? c->dims[c->rank - 1].value : 1;
    state->c_col = columns == 1 ? 0 : 1;
    state->c_row = c->rank < 2 || c->dims[0].value == 1 ? 0 : columns;
}

static attn_status gemm_infer(attnrun_step *step)
{
    const struct gemm_args *args = step->args;
    struct gemm_state *state = step->state;
    const attnrun_type *a = &step->in[0], *b = &step->in[1];
    attnrun_dim dims[2] = { attnrun_dim_unknown(step), attnrun_dim_unknown(step) };
    bool ta = args->transA != 0, tb = args->transB != 0;
    TRY(op_need_rank(step, 0, 2));
    TRY(op_need_rank(step, 1, 2));
    if (a->rank == 2)
        dims[0] = a->dims[ta];
    if (b->rank == 2)
        dims[1] = b->dims[!tb];
    if (a->rank == 2 && b->rank == 2)
        TRY(op_need_dim(step, 1, tb, a->dims[!ta], "the depth of A"));
    if (op_has_in(step, 2))
        TRY(check_c(step, dims));
    TRY(op_out(step, 0, a->dtype, 2, dims));
    if (!step->concrete)
        return ATTNRUN_OK;
    attn_gemm_describe(&state->gemm, dims[0].value, dims[1].value, a->dims[!ta].value, ta,
                       tb);
    if (op_has_in(step, 2))
        c_strides(&step->in[2], state);
    if (a->dtype == ATTNRUN_F32)
        TRY(attn_gemm_plan(step, &state->gemm));
    else
        TRY(attn_plain_plan(step, &state->gemm));
    op_tasks(step, 0, state->gemm.n_tasks, state->gemm.task_cost);
    step->scratch_bytes = state->gemm.scratch_bytes;
    return ATTNRUN_OK;
}

static attn_status gemm_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    const struct gemm_args *args = pack->args;
    return attn_gemm_pack_input(pack, 1, args->transB != 0, bytes, packed);
}

static int list_epilogue(const attnrun_step *step, struct attn_epilogue *steps)
{
    const struct gemm_args *args = step->args;
    const struct gemm_state *state = step->state;
    int n = 0;
    if (args->alpha != 1.0f)
        steps[n++] =
            (struct attn_epilogue){ .kind = ATTN_EPI_SCALE, .alpha = args->alpha };
    if (op_has_in(step, 2) && args->beta != 0.0f)
        steps[n++] = (struct attn_epilogue){ .kind = ATTN_EPI_ADD,
                                             .alpha = args->beta,
                                             .data = step->x[2].data,
                                             .row = state->c_row,
                                             .col = state->c_col };
    return n;
}

static attn_status gemm_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct gemm_args *args = step->args;
    const struct gemm_state *state = step->state;
    struct attn_epilogue steps[4];
    const struct attn_gemm_operands o = { .a = step->x[0].data,
                                          .b = step->x[1].data,
                                          .packed = step->node->packed,
                                          .c = step->y[0].data,
                                          .epilogue = steps,
                                          .n_epilogue = list_epilogue(step, steps) };
    const struct attn_plain plain = { .dtype = step->x[0].dtype,
                                      .alpha = (double)args->alpha,
                                      .beta = (double)args->beta,
                                      .c0_row = state->c_row,
                                      .c0_col = state->c_col };
    const void *c = op_has_in(step, 2) ? step->x[2].data : NULL;
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (plain.dtype == ATTNRUN_F32)
            attn_gemm_run(&state->gemm, step->kernels, &o, task, work->scratch);
        else
            TRY(attn_plain_row(&state->gemm, &plain, &o, c, task, work));
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_gemm_1 = {
    OP_ROW,
    .name = "Gemm",
    .since = 1,
    .inputs = "A:T B:T C:T?",
    .outputs = "Y:T",
    .types = "T=f32,f64,i32,i64,u32,u64",
    .args_bytes = sizeof(struct gemm_args),
    .state_bytes = sizeof(struct gemm_state),
    .attrs = gemm_attrs,
    .infer = gemm_infer,
    .pack = gemm_pack,
    .run = gemm_run,
    .cost = "O(m n k)",
};
