/* move.c - helpers of the data-movement operators: known values, indices, plain copies.
 * move.h has the interface. */
#include "move.h"

#include "../kernels/kernels.h"

bool op_move_value(const attnrun_step *step, int in, int64_t k, attnrun_dim *value)
{
    if (op_known(step, in)) {
        *value = dim_of(tensor_get_int(&step->x[in], k));
        return true;
    }
    return attnrun_step_value(step, in, k, value) != 0 && value->expr >= 0;
}

bool op_move_peek(const attnrun_step *step, int in, int64_t k, attnrun_dim *value)
{
    if (op_known(step, in))
        return op_move_value(step, in, k, value);
    return op_peek_value(step, in, k, value) && value->expr >= 0;
}

int64_t op_move_n_values(const attnrun_step *step, int in)
{
    const attnrun_type *t = &step->in[in];
    if (t->kind != ATTNRUN_TENSOR ||
        (t->dtype != ATTNRUN_I64 && t->dtype != ATTNRUN_I32) || t->rank < 0)
        return -1;
    for (int i = 0; i < t->rank; i++)
        if (!dim_is_const(t->dims[i]))
            return -1;
    int64_t n = op_count(t, 0, t->rank);
    return n <= 64 ? n : -1;
}

int64_t op_move_list_length(const attnrun_step *step, int in)
{
    const attnrun_type *t = &step->in[in];
    if (t->rank == 0)
        return 1;
    return t->rank == 1 && dim_is_const(t->dims[0]) ? t->dims[0].value : -1;
}

void op_move_values_along(attnrun_step *step)
{
    attnrun_dim values[64];
    int64_t n = op_move_n_values(step, 0);
    if (n < 0)
        return;
    for (int64_t k = 0; k < n; k++)
        if (!op_move_peek(step, 0, k, &values[k]))
            return;
    attnrun_step_set_values(step, 0, n, values);
}

attn_status op_move_need_bytes(const attnrun_step *step, int in)
{
    if (dtype_bits(step->in[in].dtype) >= 8)
        return ATTNRUN_OK;
    return op_fail_input(
        step, in, ATTNRUN_E_UNSUPPORTED,
        "expected a type of whole bytes (types of fewer bits are not moved here)");
}

void op_move_strides(int rank, const int64_t *dims, int64_t *strides)
{
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        strides[i] = stride;
        stride = (int64_t)((uint64_t)stride * (uint64_t)dims[i]); /* unused where 0 */
    }
}

void op_move_dims(const attnrun_type *type, int64_t *dims)
{
    for (int i = 0; i < type->rank; i++)
        dims[i] = type->dims[i].value;
}

bool op_move_planned(const attnrun_step *step, int out)
{
    const attnrun_type *type = &step->out[out];
    if (!step->concrete || type->rank < 0)
        return false;
    for (int i = 0; i < type->rank; i++)
        if (!dim_is_const(type->dims[i]) || type->dims[i].value < 0 ||
            type->dims[i].value > ATTN_MAX_DIM)
            return false;
    int64_t count = op_count(type, 0, type->rank);
    return count >= 0 && count <= ATTN_MAX_ELEMENTS;
}

attn_status op_move_unknown(attnrun_step *step, int out, int32_t dtype, int rank)
{
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    if (rank < 0 || rank > ATTNRUN_MAX_RANK)
        return op_out(step, out, dtype, -1, NULL);
    for (int i = 0; i < rank; i++)
        dims[i] = attnrun_dim_unknown(step);
    return op_out(step, out, dtype, rank, dims);
}

attn_status op_move_same(const attnrun_step *step, int in, int axis, attnrun_dim a,
                         attnrun_dim *both)
{
    attnrun_dim b = step->in[in].dims[axis];
    if (!dim_may_equal(a, b))
        return op_fail_input(step, in, ATTNRUN_E_SHAPE,
                             "expected %lld in dim %d (as in input 0)",
                             (long long)a.value, axis);
    *both = dim_is_const(b) || a.expr < 0 ? b : a;
    return ATTNRUN_OK;
}

static bool all_within(const attnrun_step *step, const attnrun_tensor *t, int64_t begin,
                       int64_t end, int64_t limit)
{
    const char *first = (const char *)t->data + begin * dtype_bytes(t->dtype);
    if (t->dtype == ATTNRUN_I64)
        return step->kernels->indices_within_i64(first, limit, (size_t)(end - begin));
    return t->dtype == ATTNRUN_I32 &&
           step->kernels->indices_within_i32(first, limit, (size_t)(end - begin));
}

attn_status op_move_fail_index(const attnrun_step *step, int in, int64_t k, int64_t limit)
{
    const int64_t at = tensor_get_int(&step->x[in], k);
    if (limit == 0)
        return op_fail_input(step, in, ATTNRUN_E_RANGE,
                             "holds %lld at %lld, but the axis that it indexes is empty",
                             (long long)at, (long long)k);
    return op_fail_input(step, in, ATTNRUN_E_RANGE,
                         "holds %lld at %lld, expected %lld to %lld", (long long)at,
                         (long long)k, (long long)-limit, (long long)(limit - 1));
}

attn_status op_move_check_indices(const attnrun_step *step, int in, int64_t begin,
                                  int64_t end, int64_t limit)
{
    const attnrun_tensor *t = &step->x[in];
    if (end <= begin || all_within(step, t, begin, end, limit))
        return ATTNRUN_OK;
    for (int64_t k = begin; k < end; k++) { /* which one? */
        const int64_t i = tensor_get_int(t, k);
        if (i < -limit || i >= limit)
            return op_move_fail_index(step, in, k, limit);
    }
    return ATTNRUN_OK;
}

void op_move_fill(void *to, int64_t n, const void *value, int64_t bytes)
{
    char *at = to;
    bool zero = true;
    for (int64_t i = 0; i < bytes; i++)
        zero = zero && ((const char *)value)[i] == 0;
    if (n <= 0)
        return;
    if (zero || bytes == 1) {
        const int byte = zero ? 0 : *(const unsigned char *)value;
        if (n * bytes > ATTN_POLL_BYTES)
            (void)attn_poll_fill(at, byte, n * bytes);
        else
            memset(at, byte, (size_t)(n * bytes));
        return;
    }
    for (int64_t i = 0; i < n && !attn_stops(i); i++)
        memcpy(at + i * bytes, value, (size_t)bytes);
}

void op_move_tasks(attnrun_step *step, int phase, int64_t bytes)
{
    op_unit_tasks(step, phase, bytes, OP_MOVE_CHUNK, 0.125);
}

int64_t op_move_chunks(int64_t bytes) { return ceil_div(bytes, OP_MOVE_CHUNK); }

void op_move_copy_chunks(void *to, const void *from, int64_t bytes, int64_t begin,
                         int64_t end)
{
    int64_t first = begin * OP_MOVE_CHUNK, last = end * OP_MOVE_CHUNK;
    if (last > bytes)
        last = bytes;
    if (to != NULL && to != from && first < last) /* a stop is seen by the runtime */
        (void)attn_poll_copy((char *)to + first, (const char *)from + first,
                             last - first);
}
