/* values.c - makes deep copies of values. values.h has the interface. */
#include "values.h"

#include "../../runtime/maps.h"

attn_status op_value_own_strings(const attnrun_step *step, int out,
                                 attnrun_tensor *tensor)
{
    attnrun_string *strings = tensor->data;
    int64_t count = tensor_count(tensor), bytes = 0;
    for (int64_t i = 0; i < count; i++) {
        TRY(attn_poll_work((int64_t)sizeof *strings));
        if (!ck_add(bytes, strings[i].n, &bytes))
            return op_fail(step, ATTNRUN_E_MEMORY,
                           "the strings of output %d have more than 2^63 - 1 bytes", out);
    }
    char *at = count > 0 ? op_heap(step, out, bytes) : NULL;
    if (count > 0 && at == NULL)
        return ATTNRUN_E_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        TRY(attn_poll_work(strings[i].n + (int64_t)sizeof *strings));
        if (strings[i].n > 0)
            memcpy(at, strings[i].data, (size_t)strings[i].n);
        strings[i].data = at;
        at += strings[i].n;
    }
    return ATTNRUN_OK;
}

static attn_status copy_tensor(const attnrun_step *step, int out,
                               const attnrun_tensor *from, attnrun_tensor *to)
{
    TRY(op_heap_tensor(step, out, from->dtype, from->rank, from->dims, to));
    tensor_copy(to, from);
    return from->dtype == ATTNRUN_STRING ? op_value_own_strings(step, out, to)
                                         : ATTNRUN_OK;
}

static attn_status copy_map(const attnrun_step *step, int out, const attnrun_tensor *from,
                            attnrun_tensor *to)
{
    attnrun_tensor *columns = op_heap(step, out, 2 * (int64_t)sizeof *columns);
    if (columns == NULL)
        return ATTNRUN_E_MEMORY;
    TRY(copy_tensor(step, out, map_keys(from), &columns[0]));
    TRY(copy_tensor(step, out, map_values(from), &columns[1]));
    *to = *from;
    to->data = columns;
    return ATTNRUN_OK;
}

static attn_status copy_sequence(const attnrun_step *step, int out,
                                 const attnrun_tensor *from, attnrun_tensor *to)
{
    const attnrun_tensor *items = from->data;
    int64_t n = from->dims[0], bytes;
    if (!ck_mul(n, (int64_t)sizeof *items, &bytes))
        return op_fail(step, ATTNRUN_E_MEMORY,
                       "a sequence of %lld elements needs more than 2^63 - 1 bytes",
                       (long long)n);
    attnrun_tensor *copies = op_heap(step, out, bytes);
    if (copies == NULL)
        return ATTNRUN_E_MEMORY;
    for (int64_t i = 0; i < n; i++)
        TRY((items[i].kind == ATTNRUN_MAP ? copy_map : copy_tensor)(step, out, &items[i],
                                                                    &copies[i]));
    *to = *from;
    to->data = copies;
    return ATTNRUN_OK;
}

static attn_status copy_plain(const attnrun_step *step, int out,
                              const attnrun_tensor *from, attnrun_tensor *to)
{
    switch (from->kind) {
    case ATTNRUN_SEQUENCE:
    case ATTNRUN_MAP_SEQUENCE:
        return copy_sequence(step, out, from, to);
    case ATTNRUN_MAP:
        return copy_map(step, out, from, to);
    default:
        return copy_tensor(step, out, from, to);
    }
}

attn_status op_value_copy(const attnrun_step *step, int out, const attnrun_tensor *from,
                          attnrun_tensor *to)
{
    if (from->kind != ATTNRUN_OPTIONAL && from->kind != ATTNRUN_OPTIONAL_SEQUENCE)
        return copy_plain(step, out, from, to);
    attnrun_tensor made = *from;
    if (from->data != NULL) {
        made.data = op_heap(step, out, (int64_t)sizeof made);
        if (made.data == NULL)
            return ATTNRUN_E_MEMORY;
        TRY(copy_plain(step, out, from->data, made.data));
    }
    *to = made;
    return ATTNRUN_OK;
}

attn_status op_value_out(const attnrun_step *step, int out, const attnrun_tensor *from)
{
    if (!op_has_out(step, out))
        return ATTNRUN_OK;
    attnrun_tensor *y = &step->y[out];
    if (from->kind != ATTNRUN_TENSOR)
        return op_value_copy(step, out, from, y);
    TRY(attnrun_step_alloc(step, out, from->dtype, from->rank, from->dims));
    if (y->data == NULL)
        return ATTNRUN_OK;
    tensor_copy(y, from);
    return from->dtype == ATTNRUN_STRING ? op_value_own_strings(step, out, y)
                                         : ATTNRUN_OK;
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
