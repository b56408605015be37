/* tensor.h - views: dtype bytes, counts, strides, whether they are dense, and copies. */
#ifndef ATTN_TENSOR_H
#define ATTN_TENSOR_H

#include <stdbool.h>

#include "dtype.h"
#include "status.h"

void attn_tensor_set_dense(attnrun_tensor *t);
bool attn_tensor_is_dense(const attnrun_tensor *t);
/* The first dim from which on its elements lie densely, in order: 0 for a dense one. */
int attn_tensor_dense_from(const attnrun_tensor *t);
/* The address of element k of the dims before `rank` (0 in the others). */
char *attn_tensor_at(const attnrun_tensor *t, int rank, int64_t k);
/* Whether the product of its dims, without those of 0, is at most ATTN_MAX_ELEMENTS: the same for a
 * tensor without an element, so that no product of some dims overflows. */
bool attn_tensor_can_exist(const attnrun_tensor *t);
int64_t attn_tensor_dims_product(const attnrun_tensor *t, int from, int to);
void attn_tensor_copy(const attnrun_tensor *to, const attnrun_tensor *from);
/* The same, with polls between parts of ATTN_POLL_BYTES. */
attn_status attn_tensor_copy_polled(const attnrun_tensor *to, const attnrun_tensor *from);
/* Zeroes the bits behind the last element of a type under 8 bits. */
void attn_tensor_clear_padding(const attnrun_tensor *t);
int64_t attn_tensor_get_int(const attnrun_tensor *t, int64_t k);
double attn_tensor_get_real(const attnrun_tensor *t, int64_t k);

/* Elements; -1 where the product overflows or a dim is negative. A zero dim gives 0
 * whatever the others are. */
static inline int64_t tensor_count(const attnrun_tensor *t)
{
    return attnrun_tensor_count(t);
}
/* Bytes when dense; -1 where that overflows. */
static inline int64_t tensor_bytes(const attnrun_tensor *t)
{
    return attnrun_tensor_bytes(t);
}
/* Row-major strides for its dims. */
static inline void tensor_set_dense(attnrun_tensor *t) { attn_tensor_set_dense(t); }
static inline bool tensor_is_dense(const attnrun_tensor *t)
{
    return attn_tensor_is_dense(t);
}
/* Product of dims from..to-1 of a tensor whose count is known to fit; 0 where it would
 * not fit (beside a zero dim). */
static inline int64_t tensor_dims_product(const attnrun_tensor *t, int from, int to)
{
    return attn_tensor_dims_product(t, from, to);
}
/* Copies elements into a tensor of the same dtype and dims; any strides on both sides. */
static inline void tensor_copy(const attnrun_tensor *to, const attnrun_tensor *from)
{
    attn_tensor_copy(to, from);
}
/* Element k of a dense integer tensor (any integer dtype or bool) as int64. */
static inline int64_t tensor_get_int(const attnrun_tensor *t, int64_t k)
{
    return attn_tensor_get_int(t, k);
}
/* Element k of a dense real tensor of any dtype but string and complex. */
static inline double tensor_get_real(const attnrun_tensor *t, int64_t k)
{
    return attn_tensor_get_real(t, k);
}

#endif
