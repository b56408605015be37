/* one_hot.c - OneHot: a new axis of `depth`, with the on value at the place that the
 * index names and the off value elsewhere.
 *
 * indices   any shape and number type; values outside -depth … depth-1 give off
 *           everywhere
 * depth     one number
 * values    (off, on), any type
 * axis      of the result, -1 by default
 *
 * Cost: one write of the result. Source: ONNX OneHot-9, 11. */
#include "move.h"

struct one_hot_args {
    int64_t axis;
};
static const attnrun_attr_def one_hot_attrs[] = { ATTR_INT(struct one_hot_args, axis, -1),
                                                  ATTR_END };
struct one_hot_state {
    int64_t depth, inner, blocks,
        blocks_per_task; /* a block: one inner segment of indices */
};

static attn_status depth_of(const attnrun_step *step, attnrun_dim *depth)
{
    *depth = attnrun_dim_unknown(step);
    if (op_known(step, 1)) {
        if (tensor_count(&step->x[1]) != 1)
            return op_fail_input(step, 1, ATTNRUN_E_SHAPE, "expected one element");
        double real = tensor_get_real(&step->x[1], 0);
        if (!(real >= 0 && real <= (double)ATTN_MAX_DIM))
            return op_fail(step, ATTNRUN_E_RANGE, "depth is %g, expected 0 to 2^47",
                           real);
        *depth = dim_of((int64_t)real);
    } else {
        attnrun_dim value;
        if (op_move_value(step, 1, 0, &value))
            *depth = value;
    }
    return ATTNRUN_OK;
}

static attn_status one_hot_infer(attnrun_step *step)
{
    const struct one_hot_args *args = step->args;
    const attnrun_type *indices = &step->in[0];
    struct one_hot_state *s = step->state;
    attnrun_dim dims[ATTNRUN_MAX_RANK + 1], depth;
    int axis = 0, rank = indices->rank;
    TRY(depth_of(step, &depth));
    TRY(op_need_rank(step, 2, 1));
    if (op_rank_known(step, 2))
        TRY(op_need_dim(step, 2, 0, dim_of(2), "off and on"));
    if (rank < 0)
        return op_move_unknown(step, 0, step->in[2].dtype, -1);
    TRY(op_axis(step, args->axis, rank, true, &axis));
    for (int i = 0; i <= rank; i++)
        dims[i] = i == axis ? depth : indices->dims[i < axis ? i : i - 1];
    TRY(op_out(step, 0, step->in[2].dtype, rank + 1, dims));
    if (!op_move_planned(step, 0))
        return ATTNRUN_OK;
    TRY(op_move_need_bytes(step, 2));
    s->depth = depth.value;
    if (op_count(&step->out[0], 0, rank + 1) == 0) {
        op_tasks(step, 0, 0, 0);
        return ATTNRUN_OK;
    }
    s->inner = op_count(indices, axis, rank);
    s->blocks = op_count(indices, 0, axis);
    int64_t each = s->inner * s->depth;
    s->blocks_per_task = each < OP_CHUNK ? OP_CHUNK / each : 1;
    op_unit_tasks(step, 0, s->blocks, s->blocks_per_task, (double)each);
    return ATTNRUN_OK;
}

static int64_t index_at(const attnrun_tensor *t, int64_t k, int64_t depth)
{
    if (dtype_in(t->dtype, ATTN_DT_SINT | ATTN_DT_UINT)) {
        int64_t i = tensor_get_int(t, k); /* below 0 for u64 from 2^63 on */
        return i < 0 && t->dtype != ATTNRUN_U64 ? i + depth : i;
    }
    double real = tensor_get_real(t, k); /* towards zero, as a cast to i64 */
    if (!(real > (double)-depth - 1 && real < (double)depth))
        return -1;
    int64_t i = (int64_t)real;
    return i < 0 ? i + depth : i;
}

static attn_status one_hot_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct one_hot_state *s = step->state;
    int64_t bytes = dtype_bytes(step->in[2].dtype);
    const char *values = step->x[2].data;
    for (int64_t t = work->begin; t < work->end; t++) {
        int64_t end = (t + 1) * s->blocks_per_task;
        for (int64_t b = t * s->blocks_per_task; b < end && b < s->blocks; b++) {
            char *y = (char *)step->y[0].data + b * s->depth * s->inner * bytes;
            op_move_fill(y, s->depth * s->inner, values, bytes);
            for (int64_t i = 0; i < s->inner && !attn_stops(i); i++) {
                int64_t at = index_at(&step->x[0], b * s->inner + i, s->depth);
                if (at >= 0 && at < s->depth)
                    memcpy(y + (at * s->inner + i) * bytes, values + bytes,
                           (size_t)bytes);
            }
        }
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_one_hot_9 = {
    OP_ROW,
    .name = "OneHot",
    .since = 9,
    .inputs = "indices:I depth:D values:T",
    .outputs = "output:T",
    .types = "T=all I=f16,bf16,f32,f64,i8,i16,i32,i64,u8,u16,u32,u64 "
             "D=f16,bf16,f32,f64,i8,i16,i32,i64,u8,u16,u32,u64",
    .args_bytes = sizeof(struct one_hot_args),
    .state_bytes = sizeof(struct one_hot_state),
    .attrs = one_hot_attrs,
    .infer = one_hot_infer,
    .run = one_hot_run
};
