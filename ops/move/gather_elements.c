/* gather_elements.c - GatherElements: y[.., i, ..] = x[.., indices[.., i, ..], ..].
 *
 * x, indices   any type, and i32 or i64; the same rank
 * y            has indices' shape, whose extents off the axis are at most x's
 * axis         0 by default
 *
 * Cost: one element read for each index. Source: ONNX GatherElements-11. */
#include "index_lines.h"

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
    TRY(op_elements_plan(step, axis));
    const struct op_elements *e = step->state;
    op_tasks(step, 1, e->tasks, e->task_ns);
    return ATTNRUN_OK;
}

/* Indices of a type, elements of a size: `k` runs along a line of the indices. */
#define GATHER(type, bytes)                                                              \
    for (int64_t k = 0; k < length && !attn_stops(k); k++) {                             \
        type index; /* of a mapped file: perhaps not aligned */                          \
        memcpy(&index, indices + k * inner * (int64_t)sizeof index, sizeof index);       \
        int64_t at = index + (index < 0 ? extent : 0);                                   \
        memcpy(to + k * inner * (bytes), from + at * stride * (bytes), (bytes));         \
    }
#define GATHER_LINE(name, type)                                                          \
    static void name(const struct op_elements *e, const char *indices, const char *from, \
                     char *to)                                                           \
    {                                                                                    \
        const int64_t length = e->length, inner = e->inner_stride;                       \
        const int64_t stride = e->data_stride, extent = e->extent;                       \
        if (e->elem_bytes == 4 && inner == 1 && stride == 1)                             \
            GATHER_DENSE(type, 4)                                                        \
        else if (e->elem_bytes == 1)                                                     \
            GATHER(type, 1)                                                              \
        else if (e->elem_bytes == 2)                                                     \
            GATHER(type, 2)                                                              \
        else if (e->elem_bytes == 4)                                                     \
            GATHER(type, 4)                                                              \
        else if (e->elem_bytes == 8)                                                     \
            GATHER(type, 8)                                                              \
        else                                                                             \
            GATHER(type, 16)                                                             \
    }
#define GATHER_DENSE(type, bytes)                                                        \
    for (int64_t k = 0; k < length && !attn_stops(k); k++) {                             \
        type index;                                                                      \
        memcpy(&index, indices + k * (int64_t)sizeof index, sizeof index);               \
        int64_t at = index + (index < 0 ? extent : 0);                                   \
        memcpy(to + k * (bytes), from + at * (bytes), (bytes));                          \
    }
GATHER_LINE(gather_line_i32, int32_t)
GATHER_LINE(gather_line_i64, int64_t)

static void gather_line(const struct op_elements *e, const attnrun_step *step,
                        int64_t line)
{
    const bool narrow = step->x[1].dtype == ATTNRUN_I32;
    int64_t x = 0, y = 0;
    op_elements_line(e, line, &y, &x);
    (narrow ? gather_line_i32
            : gather_line_i64)(e, (const char *)step->x[1].data + y * (narrow ? 4 : 8),
                               (const char *)step->x[0].data + x * e->elem_bytes,
                               (char *)step->y[0].data + y * e->elem_bytes);
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
