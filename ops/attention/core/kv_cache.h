/* kv_cache.h - keys and values that may lie in a larger buffer, with free space behind
 * the tokens of each head. In: tensors and strides. Out: strides in floats, and copies of
 * elements of any type. Cost of a copy: one pass over the tokens. */
#ifndef ATTN_KV_CACHE_H
#define ATTN_KV_CACHE_H

#include "sdpa.h"

/* The strides in floats of (batch, heads, tokens, dim), or of (batch, tokens, heads *
 * dim) with heads of `dim`. */
static inline struct attn_heads cache_strides(const attnrun_tensor *t, int64_t dim)
{
    const int64_t size = (int64_t)sizeof(float);
    if (t->rank == 3)
        return (struct attn_heads){ t->strides[0] / size, dim, t->strides[1] / size };
    return (struct attn_heads){ t->strides[0] / size, t->strides[1] / size,
                                t->strides[2] / size };
}

/* Token `token` of head h of sample b of (batch, heads, tokens, dim). */
static inline float *cache_at(const attnrun_tensor *t, int64_t b, int64_t h,
                              int64_t token)
{
    return (float *)((char *)t->data + b * t->strides[0] + h * t->strides[1] +
                     token * t->strides[2]);
}

/* Copies n tokens of `bytes` bytes, `row` bytes apart, to dense rows. */
void attn_cache_copy(void *to, const void *from, int64_t row, int64_t n, int64_t bytes);
/* Copies head `head` (counted over all samples) of the past keys or values to the tensor
 * that also holds the new ones. */
void attn_cache_copy_past(const attnrun_tensor *present, const attnrun_tensor *past,
                          int64_t head, int64_t n);

#endif
