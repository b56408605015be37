/* scatter_elements.c - ScatterElements (and Scatter-9): y = x, then y[.., indices[.., i,
 * ..], ..] op= updates[.., i, ..] along `axis`.
 *
 * x, y               any type and shape
 * indices, updates   one shape, whose extents off the axis are at most x's
 * axis               0 by default
 * reduction          none (the last of equal indices wins), add, mul, max, min
 *
 * Phase 0 checks the indices, phase 1 copies x where y has other memory, and phase 2
 * scatters. Lines are independent, so the order of equal indices is that of the tensor.
 * Cost: one copy of x, and one element for each index. Source: ONNX ScatterElements-11,
 * 16, 18. */
#include "combine.h"
#include "index_lines.h"

struct scatter_args {
    int64_t axis;
    int32_t reduction;
};
static const attnrun_attr_def scatter_11_attrs[] = {
    ATTR_INT(struct scatter_args, axis, 0), ATTR_END
};
static const attnrun_attr_def scatter_16_attrs[] = {
    ATTR_INT(struct scatter_args, axis, 0),
    ATTR_ENUM(struct scatter_args, reduction, OP_REDUCTIONS, OP_REDUCE_NONE), ATTR_END
};

static attn_status scatter_infer(attnrun_step *step)
{
    const struct scatter_args *args = step->args;
    const attnrun_type *in = &step->in[0], *indices = &step->in[1];
    int axis = 0;
    TRY(op_combine_check(step, args->reduction));
    TRY(op_out_like(step, 0, 0));
    attnrun_step_inplace(step, 0, 0);
    if (in->rank < 0 || indices->rank < 0)
        return ATTNRUN_OK;
    TRY(op_need_rank_between(step, 0, 1, ATTNRUN_MAX_RANK));
    TRY(op_need_rank(step, 1, in->rank));
    TRY(op_need_rank(step, 2, in->rank));
    TRY(op_axis(step, args->axis, in->rank, false, &axis));
    TRY(op_elements_fit(step, 1, axis));
    for (int i = 0; i < in->rank && op_rank_known(step, 2); i++)
        TRY(op_need_dim(step, 2, i, indices->dims[i], "as in indices"));
    if (!step->concrete)
        return ATTNRUN_OK;
    TRY(op_elements_plan(step, axis));
    const struct op_elements *e = step->state;
    int64_t bytes = dtype_bytes_of(in->dtype, op_count(in, 0, in->rank));
    op_move_tasks(step, 1, bytes);
    op_tasks(step, 2, e->tasks, e->task_ns);
    return ATTNRUN_OK;
}

static void scatter_line(const struct op_elements *e, const attnrun_step *step,
                         op_combine_fn combine, int64_t line)
{
    const attnrun_tensor indices = { .dtype = step->x[1].dtype, .data = step->x[1].data };
    int64_t index = 0, data = 0, bytes = e->elem_bytes;
    op_elements_line(e, line, &index, &data);
    char *to = (char *)step->y[0].data + data * bytes;
    const char *from = (const char *)step->x[2].data + index * bytes;
    for (int64_t k = 0; k < e->length && !attn_stops(k); k++) {
        int64_t at = op_move_index(&indices, index + k * e->inner_stride, e->extent);
        char *target = to + at * e->data_stride * bytes;
        const char *source = from + k * e->inner_stride * bytes;
        if (combine != NULL)
            combine(target, source, 1);
        else
            memcpy(target, source, (size_t)bytes);
    }
}

static attn_status scatter_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct scatter_args *args = step->args;
    const struct op_elements *e = step->state;
    if (work->phase == 0) {
        int64_t last = work->end * OP_CHUNK;
        return op_move_check_indices(step, 1, work->begin * OP_CHUNK,
                                     last < e->count ? last : e->count, e->extent);
    }
    if (work->phase == 1) {
        op_move_copy_chunks(step->y[0].data, step->x[0].data, tensor_bytes(&step->x[0]),
                            work->begin, work->end);
        return ATTNRUN_OK;
    }
    op_combine_fn combine = op_combine_find(step->in[0].dtype, args->reduction);
    for (int64_t t = work->begin; t < work->end; t++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        int64_t end = (t + 1) * e->lines_per_task;
        for (int64_t line = t * e->lines_per_task; line < end && line < e->lines; line++)
            scatter_line(e, step, combine, line);
    }
    return ATTNRUN_OK;
}

#define SCATTER_ROW                                                                      \
    OP_ROW, .inputs = "data:T indices:I updates:T", .outputs = "output:T",               \
        .types = "T=all I=i32,i64", .args_bytes = sizeof(struct scatter_args),           \
        .state_bytes = sizeof(struct op_elements), .infer = scatter_infer,               \
        .run = scatter_run

const attnrun_op_def op_scatter_9 = { SCATTER_ROW, .name = "Scatter", .since = 9,
                                      .attrs = scatter_11_attrs };
const attnrun_op_def op_scatter_elements_11 = { SCATTER_ROW, .name = "ScatterElements",
                                                .since = 11, .attrs = scatter_11_attrs };
const attnrun_op_def op_scatter_elements_16 = { SCATTER_ROW, .name = "ScatterElements",
                                                .since = 16, .attrs = scatter_16_attrs };
