/* storage.h - constant operands that are stored in 16 bits and computed with in 32.
 *
 * in:  elements of f16, bf16 or f32, as a file or pack() has them
 * out: what kernels call that type (ATTN_B_F32 …), the address of an element, floats
 * A row of an operator says by storage_in which operands it reads so. */
#ifndef ATTN_OPS_STORAGE_H
#define ATTN_OPS_STORAGE_H

#include "../runtime/attnrun.h"
#include "kernels/kernels.h"

/* The type of a right operand of gemm_f32; ATTN_B_F32 for all that is neither f16 nor bf16. */
static inline int32_t attn_stored_as(int32_t dtype)
{
    return dtype == ATTNRUN_F16    ? ATTN_B_F16
           : dtype == ATTNRUN_BF16 ? ATTN_B_BF16
                                   : ATTN_B_F32;
}
static inline bool attn_stored_narrow(int32_t dtype)
{
    return attn_stored_as(dtype) != ATTN_B_F32;
}
static inline int64_t attn_stored_bytes(int32_t dtype)
{
    return attn_stored_narrow(dtype) ? 2 : 4;
}
/* The address of element `index`. */
static inline const void *attn_stored_at(int32_t dtype, const void *data, int64_t index)
{
    return (const char *)data + index * attn_stored_bytes(dtype);
}
/* n elements, f16 or bf16, as floats. */
static inline void attn_stored_to_floats(const struct attn_kernels *kernels,
                                         int32_t dtype, float *y, const void *x,
                                         int64_t n)
{
    if (dtype == ATTNRUN_F16)
        kernels->f16_to_f32(y, x, (size_t)n);
    else
        kernels->bf16_to_f32(y, x, (size_t)n);
}

#endif
