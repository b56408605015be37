/* op_heap.c - memory for outputs whose shapes depend on data. In: an output of a step and its
 * bytes, a tensor's dims or the length of a sequence. Out: memory of the side heap, which lives
 * until the last reader of the output is done. Declared and explained in op.h. */
#include "op.h"
#include "own.h"
#include "step.h"

void *op_heap(const attnrun_step *step, int out, int64_t bytes)
{
    return attn_heap_alloc(step_of(step)->heap, &step_of(step)->lists[out], bytes);
}

attn_status op_heap_copy(const attnrun_step *step, int out, const attnrun_tensor *from,
                         attnrun_tensor *to)
{
    return attn_value_own(step_of(step)->heap, &step_of(step)->lists[out], from, to);
}

const void *op_heap_mark(const attnrun_step *step, int out)
{
    return step_of(step)->lists[out].first;
}

void op_heap_release(const attnrun_step *step, int out, const void *mark)
{
    attn_heap_release_from(step_of(step)->heap, &step_of(step)->lists[out], mark);
}

attn_status op_heap_strings(const attnrun_step *step, int out, attnrun_tensor *tensor)
{
    return attn_strings_own(step_of(step)->heap, &step_of(step)->lists[out], tensor);
}

attn_status op_heap_tensor(const attnrun_step *step, int out, int32_t dtype, int rank,
                           const int64_t *dims, attnrun_tensor *tensor)
{
    attnrun_tensor made;
    TRY(attnrun_tensor_make(dtype, rank, dims, NULL, &made));
    TRY(attn_tensor_check_size(&made));
    made.data = op_heap(step, out, tensor_bytes(&made));
    if (made.data == NULL)
        return ATTNRUN_E_MEMORY;
    *tensor = made;
    return ATTNRUN_OK;
}

attn_status op_sequence(const attnrun_step *step, int out, int64_t n)
{
    if (!op_has_out(step, out))
        return ATTNRUN_OK;
    int64_t bytes;
    if (!ck_mul(n, (int64_t)sizeof(attnrun_tensor), &bytes))
        return op_fail(step, ATTNRUN_E_MEMORY,
                       "a sequence of %lld elements needs more than 2^63 - 1 bytes",
                       (long long)n);
    attnrun_tensor *items = op_heap(step, out, bytes);
    if (items == NULL)
        return ATTNRUN_E_MEMORY;
    memset(items, 0, (size_t)bytes);
    step->y[out] = (attnrun_tensor){ .kind = ATTNRUN_SEQUENCE,
                                     .dtype = step->out[out].dtype,
                                     .rank = 1,
                                     .dims = { n },
                                     .data = items };
    return ATTNRUN_OK;
}
