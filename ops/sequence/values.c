/* values.c - sets outputs that may be values of any kind. values.h has the interface. */
#include "values.h"

attn_status op_value_out(const attnrun_step *step, int out, const attnrun_tensor *from)
{
    if (!op_has_out(step, out))
        return ATTNRUN_OK;
    attnrun_tensor *y = &step->y[out];
    if (from->kind != ATTNRUN_TENSOR)
        return op_heap_copy(step, out, from, y);
    TRY(attnrun_step_alloc(step, out, from->dtype, from->rank, from->dims));
    if (y->data == NULL)
        return ATTNRUN_OK;
    tensor_copy(y, from);
    return from->dtype == ATTNRUN_STRING ? op_heap_strings(step, out, y) : ATTNRUN_OK;
}

attn_status op_value_unknown(attnrun_step *step, int out, int32_t kind, int32_t dtype)
{
    TRY(op_out(step, out, dtype, -1, NULL));
    if (op_has_out(step, out))
        step->out[out].kind = kind;
    return ATTNRUN_OK;
}

void op_value_forget(attnrun_type *type)
{
    type->rank = -1;
    memset(type->dims, 0, sizeof type->dims);
}
