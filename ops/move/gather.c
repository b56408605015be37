/* gather.c - Gather: y[a, i, b] = x[a, indices[i], b] with a, b the dims around `axis`.
 *
 * x, indices   any type, and i32 or i64; any shapes; axis 0 by default
 * y            x's dims with the axis replaced by indices'
 *
 * Phase 0 checks the indices, and phase 1 copies rows. Cost: one copy of y. Source: ONNX
 * Gather-1. */
#include "move.h"
#include "../tile.h"

struct gather_args {
    int64_t axis;
};
static const attnrun_attr_def gather_attrs[] = { ATTR_INT(struct gather_args, axis, 0),
                                                 ATTR_END };
struct gather_state {
    int64_t n_indices, axis_extent, rows, row_bytes;
    int64_t rows_per_task, segments; /* a row of many bytes is cut into them */
};
enum { CHECK_INDICES = 32768 };

static void gather_values(attnrun_step *step, int axis)
{
    attnrun_dim values[64], at;
    int64_t n = op_move_n_values(step, 0), count = op_move_n_values(step, 1);
    if (n < 0 || count < 0 || axis != 0 || step->in[0].rank != 1)
        return;
    for (int64_t k = 0; k < count; k++) {
        if (!op_move_peek(step, 1, k, &at) || !dim_is_const(at))
            return;
        if (at.value < -n || at.value >= n)
            return; /* run() says so */
        if (!op_move_peek(step, 0, at.value < 0 ? at.value + n : at.value, &values[k]))
            values[k] = op_move_no_value();
    }
    attnrun_step_set_values(step, 0, count, values);
}

static attn_status gather_plan(attnrun_step *step, int axis)
{
    struct gather_state *s = step->state;
    const attnrun_type *in = &step->in[0], *indices = &step->in[1];
    if (op_count(&step->out[0], 0, step->out[0].rank) == 0) {
        op_tasks(step, 0, 0, 0);
        return ATTNRUN_OK;
    }
    TRY(op_move_need_bytes(step, 0));
    s->n_indices = op_count(indices, 0, indices->rank);
    s->axis_extent = in->dims[axis].value;
    s->rows = op_count(in, 0, axis) * s->n_indices;
    s->row_bytes = dtype_bytes_of(in->dtype, op_count(in, axis + 1, in->rank));
    s->segments = s->row_bytes <= 2 * OP_MOVE_CHUNK ? 1 : op_move_chunks(s->row_bytes);
    s->rows_per_task = op_move_rows_per_task(s->row_bytes);
    op_unit_tasks(step, 0, s->n_indices, CHECK_INDICES, 2);
    if (s->segments > 1)
        op_tasks(step, 1, s->rows * s->segments, OP_MOVE_CHUNK / 4);
    else
        op_unit_tasks(step, 1, s->rows, s->rows_per_task, op_move_ns(s->row_bytes));
    return ATTNRUN_OK;
}

static attn_status gather_infer(attnrun_step *step)
{
    const struct gather_args *args = step->args;
    const attnrun_type *in = &step->in[0], *indices = &step->in[1];
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    int axis = 0, rank = 0;
    if (in->rank < 0 || indices->rank < 0)
        return op_move_unknown(step, 0, in->dtype, -1);
    TRY(op_need_rank_between(step, 0, 1, ATTNRUN_MAX_RANK));
    TRY(op_axis(step, args->axis, in->rank, false, &axis));
    if (in->rank - 1 + indices->rank > ATTNRUN_MAX_RANK)
        return op_fail(
            step, ATTNRUN_E_UNSUPPORTED, "the result would have %s, expected at most %d",
            attn_plural(in->rank - 1 + indices->rank, "dim"), ATTNRUN_MAX_RANK);
    for (int i = 0; i < axis; i++)
        dims[rank++] = in->dims[i];
    for (int i = 0; i < indices->rank; i++)
        dims[rank++] = indices->dims[i];
    for (int i = axis + 1; i < in->rank; i++)
        dims[rank++] = in->dims[i];
    TRY(op_out(step, 0, in->dtype, rank, dims));
    gather_values(step, axis);
    return op_move_planned(step, 0) ? gather_plan(step, axis) : ATTNRUN_OK;
}

static void gather_row(const attnrun_step *step, int64_t row, int64_t from, int64_t bytes)
{
    const struct gather_state *s = step->state;
    int64_t at = op_move_index(&step->x[1], row % s->n_indices, s->axis_extent);
    int64_t source = row / s->n_indices * s->axis_extent + at;
    memcpy((char *)step->y[0].data + row * s->row_bytes + from,
           (const char *)step->x[0].data + source * s->row_bytes + from, (size_t)bytes);
}

static attn_status gather_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct gather_state *s = step->state;
    if (work->phase == 0) {
        int64_t end = work->end * CHECK_INDICES;
        return op_move_check_indices(step, 1, work->begin * CHECK_INDICES,
                                     end < s->n_indices ? end : s->n_indices,
                                     s->axis_extent);
    }
    for (int64_t t = work->begin; t < work->end; t++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (s->segments > 1) {
            int64_t row = t, from = op_take(&row, s->segments) * OP_MOVE_CHUNK;
            int64_t left = s->row_bytes - from;
            gather_row(step, row, from, left < OP_MOVE_CHUNK ? left : OP_MOVE_CHUNK);
            continue;
        }
        int64_t end = (t + 1) * s->rows_per_task;
        for (int64_t row = t * s->rows_per_task; row < end && row < s->rows; row++)
            gather_row(step, row, 0, s->row_bytes);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_gather_1 = { OP_ROW,
                                     .name = "Gather",
                                     .since = 1,
                                     .inputs = "data:T indices:I",
                                     .outputs = "output:T",
                                     .types = "T=all I=i32,i64",
                                     .args_bytes = sizeof(struct gather_args),
                                     .state_bytes = sizeof(struct gather_state),
                                     .attrs = gather_attrs,
                                     .infer = gather_infer,
                                     .run = gather_run,
                                     .unaligned_in = 1 };
