/* index_lines.c - lines of index tensors. index_lines.h has the interface. */
#include "index_lines.h"

attn_status op_elements_fit(const attnrun_step *step, int in, int axis)
{
    const attnrun_type *data = &step->in[0], *t = &step->in[in];
    for (int i = 0; i < data->rank; i++)
        if (i != axis && dim_is_const(t->dims[i]) && dim_is_const(data->dims[i]) &&
            t->dims[i].value > data->dims[i].value)
            return op_fail_input(step, in, ATTNRUN_E_SHAPE,
                                 "expected at most %lld in dim %d, as in input 0",
                                 (long long)data->dims[i].value, i);
    return ATTNRUN_OK;
}

attn_status op_elements_plan(attnrun_step *step, int axis)
{
    struct op_elements *e = step->state;
    int64_t data[ATTNRUN_MAX_RANK], index[ATTNRUN_MAX_RANK];
    int64_t data_strides[ATTNRUN_MAX_RANK], index_strides[ATTNRUN_MAX_RANK];
    int rank = step->in[0].rank;
    TRY(op_move_need_bytes(step, 0));
    op_move_dims(&step->in[0], data);
    op_move_dims(&step->in[1], index);
    op_move_strides(rank, data, data_strides);
    op_move_strides(rank, index, index_strides);
    memset(e, 0, sizeof *e);
    e->elem_bytes = (int32_t)dtype_bytes(step->in[0].dtype);
    e->count = op_count(&step->in[1], 0, rank);
    op_unit_tasks(step, 0, e->count, OP_CHUNK, 2);
    if (e->count <= 0)
        return ATTNRUN_OK; /* no tasks */
    e->lines = 1;
    for (int i = 0; i < rank; i++) {
        if (i == axis)
            continue;
        e->dims[e->n_outer] = index[i];
        e->index_strides[e->n_outer] = index_strides[i];
        e->data_strides[e->n_outer++] = data_strides[i];
        e->lines *= index[i];
    }
    e->extent = data[axis];
    e->length = index[axis];
    e->inner_stride = index_strides[axis];
    e->data_stride = data_strides[axis];
    e->lines_per_task = OP_CHUNK / e->length > 0 ? OP_CHUNK / e->length : 1;
    e->tasks = ceil_div(e->lines, e->lines_per_task);
    e->task_ns = min64(e->lines, e->lines_per_task) * (e->length * 3 + 10);
    return ATTNRUN_OK;
}

void op_elements_line(const struct op_elements *e, int64_t line, int64_t *index,
                      int64_t *data)
{
    *index = *data = 0;
    for (int i = e->n_outer - 1; i >= 0; i--) {
        int64_t k = line % e->dims[i];
        line /= e->dims[i];
        *index += k * e->index_strides[i];
        *data += k * e->data_strides[i];
    }
}
