/* gather_nd.c - GatherND: y[b, i] = x[b][indices[b, i]], where the last dim of indices
 * holds tuples that name slices of x.
 *
 * x, indices   any type, and i64
 * batch_dims   0 by default: leading dims that x and indices share
 * y            indices' dims without the last one, then those of a slice
 *
 * Phase 0 checks the indices. Cost: one copy of y. Source: ONNX GatherND-11, 12; ONNX
 * Runtime contrib operators (indices of 32 bits too). */
#include "tuples.h"

struct gather_nd_args {
    int64_t batch_dims;
};
static const attnrun_attr_def gather_nd_attrs[] = {
    ATTR_INT(struct gather_nd_args, batch_dims, 0), ATTR_END
};
struct gather_nd_state {
    struct op_tuples tuples;
    int64_t per_task;
};

static attn_status gather_nd_infer(attnrun_step *step)
{
    const struct gather_nd_args *args = op_move_args(step);
    const attnrun_type *in = &step->in[0], *indices = &step->in[1];
    struct gather_nd_state *s = step->state;
    int64_t batch = args != NULL ? args->batch_dims : 0;
    attnrun_dim dims[2 * ATTNRUN_MAX_RANK];
    int length = 0, rank = 0;
    bool known = false;
    if (batch < 0 || batch >= ATTNRUN_MAX_RANK)
        return op_fail(step, ATTNRUN_E_ATTR, "batch_dims is %lld, expected 0 to %d",
                       (long long)batch, ATTNRUN_MAX_RANK - 1);
    TRY(op_tuples_check(step, (int)batch, &known, &length));
    if (!known)
        return op_move_unknown(step, 0, in->dtype, -1);
    for (int i = 0; i < indices->rank - 1; i++)
        dims[rank++] = indices->dims[i];
    for (int i = (int)batch + length; i < in->rank; i++)
        dims[rank++] = in->dims[i];
    TRY(op_out(step, 0, in->dtype, rank, dims));
    if (!op_move_planned(step, 0))
        return ATTNRUN_OK;
    TRY(op_move_need_bytes(step, 0));
    if (op_count(&step->out[0], 0, rank) == 0) {
        op_tasks(step, 0, 0, 0);
        return ATTNRUN_OK;
    }
    op_tuples_plan(step, &s->tuples, (int)batch, length);
    s->per_task = op_move_rows_per_task(s->tuples.slice_bytes);
    op_unit_tasks(step, 0, s->tuples.count, OP_CHUNK, 4);
    op_unit_tasks(step, 1, s->tuples.count, s->per_task,
                  op_move_ns(s->tuples.slice_bytes));
    return ATTNRUN_OK;
}

static attn_status gather_nd_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct gather_nd_state *s = step->state;
    const struct op_tuples *t = &s->tuples;
    int64_t each = work->phase == 0 ? OP_CHUNK : s->per_task;
    int64_t begin = work->begin * each, end = work->end * each;
    end = end < t->count ? end : t->count;
    if (work->phase == 0)
        return op_tuples_verify(step, t, begin, end);
    const char *x = step->x[0].data;
    char *y = step->y[0].data;
    for (int64_t k = begin; k < end && y != NULL; k++) {
        if (OP_CANCELLED_AFTER(work, 16))
            return ATTNRUN_E_CANCELLED;
        TRY(attn_poll_copy(y + k * t->slice_bytes,
                           x + op_tuples_slice(step, t, k) * t->slice_bytes,
                           t->slice_bytes));
    }
    return ATTNRUN_OK;
}

#define GATHER_ND_ROW                                                                    \
    .inputs = "data:T indices:i64", .outputs = "output:T", .types = "T=all",             \
    .state_bytes = sizeof(struct gather_nd_state), .infer = gather_nd_infer,             \
    .run = gather_nd_run
const attnrun_op_def op_gather_nd_11 = {
    OP_ROW,
    .name = "GatherND",
    .since = 11,
    GATHER_ND_ROW,
};
const attnrun_op_def op_gather_nd_12 = {
    OP_ROW,
    .name = "GatherND",
    .since = 12,
    .args_bytes = sizeof(struct gather_nd_args),
    .attrs = gather_nd_attrs,
    GATHER_ND_ROW,
};
const attnrun_op_def op_ms_gather_nd_1 = { OP_ROW_OF("com.microsoft"),
                                           .name = "GatherND",
                                           .since = 1,
                                           .inputs = "data:T indices:I",
                                           .outputs = "output:T",
                                           .types = "T=all I=i32,i64",
                                           .state_bytes = sizeof(struct gather_nd_state),
                                           .infer = gather_nd_infer,
                                           .run = gather_nd_run };
