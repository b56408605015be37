/* transpose.c - Transpose: y[i_perm[0], …] = x[i_0, …].
 *
 * x, y   any type and shape
 * perm   reversed dims by default
 *
 * Cost: one copy, after dims are merged: contiguous bytes where the inner dims stay, 64 x
 * 64 tiles where they move. y is a view where only dims of 1 move. Source: ONNX
 * Transpose-1. */
#include "move.h"

struct transpose_args {
    attnrun_ints perm;
};
static const attnrun_attr_def transpose_attrs[] = {
    ATTR_INTS(struct transpose_args, perm), ATTR_END
};

static attn_status transpose_perm(const attnrun_step *step, int rank, int *perm)
{
    const struct transpose_args *args = step->args;
    bool used[ATTNRUN_MAX_RANK] = { false };
    if (args->perm.v != NULL && args->perm.n != rank)
        return op_fail_input(step, 0, ATTNRUN_E_SHAPE,
                             "expected rank %lld, the length of perm",
                             (long long)args->perm.n);
    for (int i = 0; i < rank; i++) {
        if (args->perm.v == NULL)
            perm[i] = rank - 1 - i;
        else if (args->perm.v[i] >= 0 && args->perm.v[i] < rank)
            perm[i] = (int)args->perm.v[i];
        else
            return op_fail(step, ATTNRUN_E_ATTR, "perm holds %lld, expected 0 to %d",
                           (long long)args->perm.v[i], rank - 1);
        if (used[perm[i]])
            return op_fail(step, ATTNRUN_E_ATTR, "axis %d appears twice in perm",
                           perm[i]);
        used[perm[i]] = true;
    }
    return ATTNRUN_OK;
}

static attn_status transpose_infer(attnrun_step *step)
{
    const struct transpose_args *args = step->args;
    const attnrun_type *in = &step->in[0];
    int perm[ATTNRUN_MAX_RANK];
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    if (in->rank < 0) { /* rewrite passes read perm, so it is checked all the same */
        const int rank = args->perm.v != NULL ? (int)args->perm.n : -1;
        if (rank > ATTNRUN_MAX_RANK)
            return op_fail(step, ATTNRUN_E_ATTR, "perm has %d axes, expected at most %d",
                           rank, ATTNRUN_MAX_RANK);
        TRY(transpose_perm(step, rank, perm));
        return op_move_unknown(step, 0, in->dtype, rank);
    }
    TRY(transpose_perm(step, in->rank, perm));
    for (int i = 0; i < in->rank; i++)
        dims[i] = in->dims[perm[i]];
    TRY(op_out(step, 0, in->dtype, in->rank, dims));
    if (!step->concrete)
        return ATTNRUN_OK;
    int64_t n[ATTNRUN_MAX_RANK], strides[ATTNRUN_MAX_RANK], to_n[ATTNRUN_MAX_RANK];
    int64_t from[ATTNRUN_MAX_RANK], to[ATTNRUN_MAX_RANK], offset;
    struct op_copy *copy = step->state;
    op_move_dims(in, n);
    op_move_strides(in->rank, n, strides);
    for (int i = 0; i < in->rank; i++) {
        to_n[i] = n[perm[i]];
        from[i] = strides[perm[i]];
    }
    op_move_strides(in->rank, to_n, to);
    op_copy_plan(copy, in->dtype, in->rank, to_n, from, 0, to, 0);
    op_copy_tasks(step, 0, copy);
    if (op_copy_is_view(copy, &offset))
        attnrun_step_view(step, 0, 0, 0);
    return ATTNRUN_OK;
}

static attn_status transpose_run(const attnrun_step *step, const attnrun_work *work)
{
    return op_copy_run(step->state, work, step->y[0].data, step->x[0].data);
}

const attnrun_op_def op_transpose_1 = { OP_ROW,
                                        .name = "Transpose",
                                        .since = 1,
                                        .inputs = "data:T",
                                        .outputs = "transposed:T",
                                        .types = "T=all",
                                        .args_bytes = sizeof(struct transpose_args),
                                        .state_bytes = sizeof(struct op_copy),
                                        .attrs = transpose_attrs,
                                        .infer = transpose_infer,
                                        .run = transpose_run };
