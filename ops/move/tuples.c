/* tuples.c - index tuples. tuples.h has the interface. */
#include "tuples.h"

attn_status op_tuples_check(const attnrun_step *step, int batch_dims, bool *known,
                            int *length)
{
    const attnrun_type *data = &step->in[0], *indices = &step->in[1];
    *known = false;
    if (data->rank < 0 || indices->rank < 0)
        return ATTNRUN_OK;
    TRY(op_need_rank_between(step, 0, batch_dims + 1, ATTNRUN_MAX_RANK));
    TRY(op_need_rank_between(step, 1, batch_dims + 1, ATTNRUN_MAX_RANK));
    for (int i = 0; i < batch_dims; i++)
        TRY(op_need_dim(step, 1, i, data->dims[i], "a batch dim, as in input 0"));
    attnrun_dim last = indices->dims[indices->rank - 1];
    if (!dim_is_const(last))
        return ATTNRUN_OK;
    if (last.value < 0 || last.value > data->rank - batch_dims)
        return op_fail_input(step, 1, ATTNRUN_E_SHAPE,
                             "expected tuples of at most %d indices",
                             data->rank - batch_dims);
    *known = true;
    *length = (int)last.value;
    return ATTNRUN_OK;
}

void op_tuples_plan(const attnrun_step *step, struct op_tuples *t, int batch_dims,
                    int length)
{
    const attnrun_type *data = &step->in[0], *indices = &step->in[1];
    int64_t stride = 1;
    memset(t, 0, sizeof *t);
    t->length = length;
    t->slice_elements = op_count(data, batch_dims + length, data->rank);
    t->slice_bytes = dtype_bytes_of(data->dtype, t->slice_elements);
    t->count = op_count(indices, 0, indices->rank - 1);
    t->per_batch = op_count(indices, batch_dims, indices->rank - 1);
    for (int i = length - 1; i >= 0; i--) {
        t->dims[i] = data->dims[batch_dims + i].value;
        t->strides[i] = stride;
        stride = (int64_t)((uint64_t)stride * (uint64_t)t->dims[i]); /* unused where 0 */
    }
    t->batch_stride = stride;
}

attn_status op_tuples_verify(const attnrun_step *step, const struct op_tuples *t,
                             int64_t begin, int64_t end)
{
    for (int64_t k = begin; k < end; k++)
        for (int i = 0; i < t->length; i++) {
            int64_t at = tensor_get_int(&step->x[1], k * t->length + i);
            if (at < -t->dims[i] || at >= t->dims[i])
                return op_move_fail_index(step, 1, k * t->length + i, t->dims[i]);
        }
    return ATTNRUN_OK;
}

int64_t op_tuples_slice(const attnrun_step *step, const struct op_tuples *t, int64_t k)
{
    int64_t slice = k / t->per_batch * t->batch_stride;
    for (int i = 0; i < t->length; i++)
        slice +=
            op_move_index(&step->x[1], k * t->length + i, t->dims[i]) * t->strides[i];
    return slice;
}
