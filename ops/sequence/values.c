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

enum { TEXT_PIECE = 4 * ATTN_POLL_BYTES };

bool op_texts_equal(const attnrun_string *a, const attnrun_string *b)
{
    for (int64_t at = 0, n; at < a->n && a->n == b->n; at += n) {
        n = a->n - at < TEXT_PIECE ? a->n - at : TEXT_PIECE;
        if (memcmp(a->data + at, b->data + at, (size_t)n) != 0 ||
            attn_poll_work(n) != ATTNRUN_OK)
            return false;
    }
    return a->n == b->n;
}

const char *op_text_find(const char *text, int64_t n, const attnrun_string *word)
{
    for (int64_t at = 0, piece; n - at >= word->n; at += piece - word->n + 1) {
        piece = n - at < TEXT_PIECE + word->n ? n - at : TEXT_PIECE + word->n;
        const char *found = memmem(text + at, (size_t)piece, word->data, (size_t)word->n);
        if (found != NULL || attn_poll_work(piece) != ATTNRUN_OK)
            return found;
    }
    return NULL;
}
