/* elementwise.c - infer helpers of elementwise operators. elementwise.h has the
 * interface. */
#include "elementwise.h"

enum { MAX_KNOWN = 64, POLL_ELEMENTS = 4 * OP_CHUNK };

bool op_elementwise_same_dims(const attnrun_step *step, int in)
{
    const attnrun_type *x = &step->in[in], *y = &step->out[0];
    if (y->rank < 0 || x->rank != y->rank)
        return false;
    for (int d = 0; d < x->rank; d++)
        if (!dim_equal(x->dims[d], y->dims[d]))
            return false;
    return true;
}

void op_elementwise_inplace(attnrun_step *step, int in)
{
    if (dtype_bits(step->in[in].dtype) != dtype_bits(step->out[0].dtype) ||
        !op_elementwise_same_dims(step, in))
        return;
    attnrun_step_inplace(step, 0, in);
}

attn_status op_elementwise_broadcast(attnrun_step *step, int first, int n, int32_t dtype)
{
    attnrun_dim dims[ATTNRUN_MAX_RANK];
    int rank;
    TRY(op_broadcast(step, first, n, &rank, dims));
    return op_out(step, 0, dtype, rank, rank < 0 ? NULL : dims);
}

/* The number of elements of a type of rank 0 or 1, or -1 where that is not known. */
static int64_t small_count(const attnrun_type *type)
{
    if (type->rank == 0)
        return 1;
    if (type->rank != 1 || !dim_is_const(type->dims[0]))
        return -1;
    return type->dims[0].value;
}

void op_elementwise_known(attnrun_step *step, int a, int b, elementwise_combine *combine)
{
    attnrun_dim values[MAX_KNOWN], va, vb = dim_of(0);
    int32_t dtype = step->out[0].dtype;
    int64_t n = small_count(&step->out[0]);
    int64_t na = small_count(&step->in[a]), nb = b < 0 ? 1 : small_count(&step->in[b]);
    if ((dtype != ATTNRUN_I64 && dtype != ATTNRUN_I32 && dtype != ATTNRUN_BOOL) ||
        n < 0 || n > MAX_KNOWN || na < 0 || nb < 0)
        return;
    for (int64_t k = 0; k < n; k++) {
        if (!op_peek_value(step, a, na == 1 ? 0 : k, &va) ||
            (b >= 0 && !op_peek_value(step, b, nb == 1 ? 0 : k, &vb)))
            return;
        values[k] = combine(step, va, vb);
        if (values[k].expr < 0)
            return;
    }
    attnrun_step_set_values(step, 0, n, values);
}

attn_status op_elementwise_run(const attnrun_step *step, const attnrun_work *work,
                               const attnrun_tensor *const *operands, int n,
                               elementwise_segment *run, const void *arg)
{
    const attnrun_tensor *y = &step->y[0];
    struct nd_iter it;
    int64_t begin, end;
    if (y->data == NULL)
        return ATTNRUN_OK;
    elementwise_range(work, tensor_count(y), &begin, &end);
    attn_nd_iter_init(&it, y->rank, y->dims);
    attn_nd_iter_add(&it, y);
    for (int i = 0; i < n; i++)
        attn_nd_iter_add(&it, operands[i]);
    for (; begin < end; begin += POLL_ELEMENTS) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        attn_nd_iter_start(&it, begin, min64(end, begin + POLL_ELEMENTS));
        while (attn_nd_iter_next(&it))
            run(step, &it, arg);
    }
    return ATTNRUN_OK;
}
