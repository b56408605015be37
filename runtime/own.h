/* own.h - what a caller's values hold besides numbers (strings, the elements of sequences
 * and optionals): checked before a run, and copied where an output may refer to it. Operators copy
 * values in the same way (op_heap_copy() of op.h). */
#ifndef ATTN_OWN_H
#define ATTN_OWN_H

#include "heap.h"
#include "tensor.h"

/* A string tensor, a sequence or an optional: more than a block of numbers. */
static inline bool attn_value_is_deep(const attnrun_tensor *value)
{
    return value->kind != ATTNRUN_TENSOR || value->dtype == ATTNRUN_STRING;
}
/* E_USAGE where a length is negative, or elements or characters have no memory; names
 * input `index`. Elements of numbers are not looked at. */
attn_status attn_value_check(const attnrun_tensor *value, int32_t index);
/* A copy that holds no address of `from`; its memory is in `list`. */
attn_status attn_value_own(struct attn_heap *heap, struct attn_heap_list *list,
                           const attnrun_tensor *from, attnrun_tensor *to);
/* The same of the characters of a tensor of strings, which stays where it is. */
attn_status attn_strings_own(struct attn_heap *heap, struct attn_heap_list *list,
                             attnrun_tensor *tensor);

#endif
