/* gather_elements.c - GatherElements: y[.., i, ..] = x[.., indices[.., i, ..], ..].
 *
 * x, indices   the same rank; y has indices' shape, whose extents off the axis are at
 * most x's axis         0 by default Source: ONNX GatherElements-11. */
#include "elements.h"

struct gather_elements_args {
    int64_t axis;
};
static const attnrun_attr_def gather_elements_attrs[] = {
    ATTR_INT(struct gather_elements_args, axis, 0), ATTR_END
};

static attn_status gather_elements_infer(attnrun_step *step)
{
    const struct gather_elements_args *args = step->args;
    const attnrun_type *in = &step->in[0], *indices = &step->in[1];
    int axis = 0;
    TRY(op_out(step, 0, in->dtype, indices->rank, indices->dims));
    if (in->rank < 0 || indices->rank < 0)
        return ATTNRUN_OK;
    TRY(op_need_rank_between(step, 0, 1, ATTNRUN_MAX_RANK));
    TRY(op_need_rank(step, 1, in->rank));
    TRY(op_axis(step, args->axis, in->rank, false, &axis));
    TRY(op_elements_fit(step, 1, axis));
    if (!step->concrete)
        return ATTNRUN_OK;
    TRY(op_move_need_bytes(step, 0));
    op_elements_plan(step, step->state, axis);
    const struct op_elements *e = step->state;
    op_tasks(step, 0, op_chunks(e->count), OP_CHUNK * 2);
    op_tasks(step, 1, e->tasks, e->task_ns);
    return ATTNRUN_OK;
}

/* One element of each size: `k` runs along a line of the indices. */
#define GATHER(bytes)                                                                    \
    for (int64_t k = 0; k < length; k++) {                                               \
        int64_t at = op_move_index(&indices, y + k * inner, extent);                     \
        memcpy(to + k * inner * (bytes), from + at * stride * (bytes), (bytes));         \
    }

static void gather_line(const struct op_elements *e, const attnrun_step *step,
                        int64_t line)
{
    /* Locals, since what is written might be anything to the compiler. */
    const attnrun_tensor indices = { .dtype = step->x[1].dtype, .data = step->x[1].data };
    int64_t length = e->length, inner = e->inner_stride, stride = e->data_stride;
    int64_t extent = e->extent, x = 0, y = 0;
    op_elements_line(e, line, &y, &x);
    const char *from = (const char *)step->x[0].data + x * e->elem_bytes;
    char *to = (char *)step->y[0].data + y * e->elem_bytes;
    switch (e->elem_bytes) {
    case 1:
        GATHER(1)
        break;
    case 2:
        GATHER(2)
        break;
    case 4:
        GATHER(4)
        break;
    case 8:
        GATHER(8)
        break;
    default:
        GATHER(16)
    }
}
#undef GATHER

static attn_status gather_elements_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct op_elements *e = step->state;
    if (work->phase == 0) {
        int64_t end = work->end * OP_CHUNK;
        return op_move_check_indices(step, 1, work->begin * OP_CHUNK,
                                     end < e->count ? end : e->count, e->extent);
    }
    if (step->y[0].data == NULL)
        return ATTNRUN_OK;
    for (int64_t t = work->begin; t < work->end; t++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        int64_t end = (t + 1) * e->lines_per_task;
        for (int64_t line = t * e->lines_per_task; line < end && line < e->lines; line++)
            gather_line(e, step, line);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_gather_elements_11 = { OP_ROW,
                                               .name = "GatherElements",
                                               .since = 11,
                                               .inputs = "data:T indices:I",
                                               .outputs = "output:T",
                                               .types = "T=all I=i32,i64",
                                               .args_bytes =
                                                   sizeof(struct gather_elements_args),
                                               .state_bytes = sizeof(struct op_elements),
                                               .attrs = gather_elements_attrs,
                                               .infer = gather_elements_infer,
                                               .run = gather_elements_run };
