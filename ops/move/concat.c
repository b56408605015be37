/* concat.c - Concat: joins tensors along one axis. All other dims must be equal.
 *
 * axis   1 by default up to 3, required from 4
 * Tasks are pieces of 64 KiB of the result; pieces that the plan put in place already are
 * not copied.  Source: ONNX Concat-1, 4. */
#include "move.h"

struct concat_args {
    int64_t axis;
};
static const attnrun_attr_def concat_1_attrs[] = { ATTR_INT(struct concat_args, axis, 1),
                                                   ATTR_END };
static const attnrun_attr_def concat_4_attrs[] = {
    ATTR_INT_REQUIRED(struct concat_args, axis), ATTR_END
};
struct concat_state {
    int64_t row_bytes, total_bytes;
    int32_t axis;
};

/* The elements of the result in order, where only the axis has an extent before the
 * pieces. */
static void concat_values(attnrun_step *step, int axis)
{
    attnrun_dim values[64];
    int64_t n = 0;
    for (int i = 0; i < axis; i++)
        if (!dim_is(step->out[0].dims[i], 1))
            return;
    for (int i = 0; i < step->n_in; i++) {
        int64_t count = op_move_n_values(step, i);
        if (count < 0 || n + count > 64)
            return;
        for (int64_t k = 0; k < count; k++, n++)
            if (!op_move_value(step, i, k, &values[n]))
                values[n] = op_move_no_value();
    }
    attnrun_step_set_values(step, 0, n, values);
}

static attn_status concat_plan(attnrun_step *step, int axis)
{
    struct concat_state *state = step->state;
    const attnrun_type *out = &step->out[0];
    int64_t count = op_count(out, 0, out->rank), row = op_count(out, axis, out->rank);
    state->axis = axis;
    if (count <= 0) {
        op_tasks(step, 0, 0, 0);
        return ATTNRUN_OK;
    }
    bool one = row == count; /* a single row: pieces need whole bytes only */
    for (int i = 0; i < step->n_in && dtype_bits(out->dtype) < 8; i++) {
        const attnrun_type *in = &step->in[i];
        if (!one || op_count(in, 0, in->rank) * dtype_bits(out->dtype) % 8 != 0)
            return op_move_need_bytes(step, i);
    }
    state->row_bytes = dtype_bytes_of(out->dtype, row);
    state->total_bytes = dtype_bytes_of(out->dtype, count);
    op_tasks(step, 0, op_move_chunks(state->total_bytes), OP_MOVE_CHUNK / 8);
    return ATTNRUN_OK;
}

static attn_status concat_infer(attnrun_step *step)
{
    const struct concat_args *args = step->args;
    int rank = -1, axis = 0, known = 0;
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    for (int i = 0; i < step->n_in; i++) {
        if (!op_rank_known(step, i))
            continue;
        if (rank >= 0)
            TRY(op_need_rank(step, i, rank));
        if (rank < 0) {
            rank = step->in[i].rank;
            TRY(op_axis(step, args->axis, rank, false, &axis));
            memcpy(dims, step->in[i].dims, sizeof dims);
        } else {
            for (int k = 0; k < rank; k++)
                if (k != axis)
                    TRY(op_move_same(step, i, k, dims[k], &dims[k]));
            dims[axis] = attnrun_dim_add(step, dims[axis], step->in[i].dims[axis]);
        }
        known++;
    }
    if (rank < 0)
        return op_move_unknown(step, 0, step->in[0].dtype, -1);
    if (known < step->n_in)
        dims[axis] = attnrun_dim_unknown(step);
    TRY(op_out(step, 0, step->in[0].dtype, rank, dims));
    if (known == step->n_in)
        concat_values(step, axis);
    return op_move_planned(step, 0) ? concat_plan(step, axis) : ATTNRUN_OK;
}

/* Bytes of one row of input i. */
static int64_t piece_bytes(const attnrun_step *step, int i, int axis)
{
    const attnrun_tensor *x = &step->x[i];
    return dtype_bytes_of(x->dtype, tensor_dims_product(x, axis, x->rank));
}

enum { KNOWN_PIECES = 32 }; /* whose sizes are computed once a call */

static attn_status concat_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct concat_state *state = step->state;
    char *y = step->y[0].data;
    int64_t known[KNOWN_PIECES];
    for (int i = 0; i < step->n_in && i < KNOWN_PIECES; i++)
        known[i] = piece_bytes(step, i, state->axis);
    int64_t at = work->begin * OP_MOVE_CHUNK, end = work->end * OP_MOVE_CHUNK;
    if (end > state->total_bytes)
        end = state->total_bytes;
    while (y != NULL && at < end) {
        int64_t row = at / state->row_bytes, skip = at % state->row_bytes;
        for (int i = 0; i < step->n_in && at < end; i++) {
            int64_t bytes =
                i < KNOWN_PIECES ? known[i] : piece_bytes(step, i, state->axis);
            if (skip >= bytes) {
                skip -= bytes;
                continue;
            }
            int64_t n = bytes - skip < end - at ? bytes - skip : end - at;
            const char *from = (const char *)step->x[i].data + row * bytes + skip;
            if (y + at != from)
                memcpy(y + at, from, (size_t)n);
            at += n;
            skip = 0;
        }
        if ((row & 63) == 0 && OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_concat_1 = { OP_ROW,
                                     .name = "Concat",
                                     .since = 1,
                                     .inputs = "inputs:T*",
                                     .outputs = "concat_result:T",
                                     .types = "T=all",
                                     .args_bytes = sizeof(struct concat_args),
                                     .state_bytes = sizeof(struct concat_state),
                                     .attrs = concat_1_attrs,
                                     .infer = concat_infer,
                                     .run = concat_run };
const attnrun_op_def op_concat_4 = { OP_ROW,
                                     .name = "Concat",
                                     .since = 4,
                                     .inputs = "inputs:T*",
                                     .outputs = "concat_result:T",
                                     .types = "T=all",
                                     .args_bytes = sizeof(struct concat_args),
                                     .state_bytes = sizeof(struct concat_state),
                                     .attrs = concat_4_attrs,
                                     .infer = concat_infer,
                                     .run = concat_run };
