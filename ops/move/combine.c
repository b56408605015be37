/* combine.c - element-wise reductions into a place, for all real types. Integers wrap.
 * For bool, add and max are or, mul and min are and. Cost: one read of x, one read and
 * one write of y. */
#include "combine.h"

#define PASTE_(op, type) op##_##type
#define PASTE(op, type)  PASTE_(op, type)

#define INT_ADD(c, a, b) ((c)((uint64_t)(a) + (uint64_t)(b)))
#define INT_MUL(c, a, b) ((c)((uint64_t)(a) * (uint64_t)(b)))
#define LESS_PLAIN(a, b) ((a) < (b))

#define C         int8_t
#define NAME(op)  PASTE(op, i8)
#define ADD(a, b) INT_ADD(int8_t, a, b)
#define MUL(a, b) INT_MUL(int8_t, a, b)
#define LESS      LESS_PLAIN
#define IS_NAN(a) false
#include "combine_type.h"
#define C         int16_t
#define NAME(op)  PASTE(op, i16)
#define ADD(a, b) INT_ADD(int16_t, a, b)
#define MUL(a, b) INT_MUL(int16_t, a, b)
#define LESS      LESS_PLAIN
#define IS_NAN(a) false
#include "combine_type.h"
#define C         int32_t
#define NAME(op)  PASTE(op, i32)
#define ADD(a, b) INT_ADD(int32_t, a, b)
#define MUL(a, b) INT_MUL(int32_t, a, b)
#define LESS      LESS_PLAIN
#define IS_NAN(a) false
#include "combine_type.h"
#define C         int64_t
#define NAME(op)  PASTE(op, i64)
#define ADD(a, b) INT_ADD(int64_t, a, b)
#define MUL(a, b) INT_MUL(int64_t, a, b)
#define LESS      LESS_PLAIN
#define IS_NAN(a) false
#include "combine_type.h"
#define C         uint8_t
#define NAME(op)  PASTE(op, u8)
#define ADD(a, b) INT_ADD(uint8_t, a, b)
#define MUL(a, b) INT_MUL(uint8_t, a, b)
#define LESS      LESS_PLAIN
#define IS_NAN(a) false
#include "combine_type.h"
#define C         uint16_t
#define NAME(op)  PASTE(op, u16)
#define ADD(a, b) INT_ADD(uint16_t, a, b)
#define MUL(a, b) INT_MUL(uint16_t, a, b)
#define LESS      LESS_PLAIN
#define IS_NAN(a) false
#include "combine_type.h"
#define C         uint32_t
#define NAME(op)  PASTE(op, u32)
#define ADD(a, b) INT_ADD(uint32_t, a, b)
#define MUL(a, b) INT_MUL(uint32_t, a, b)
#define LESS      LESS_PLAIN
#define IS_NAN(a) false
#include "combine_type.h"
#define C         uint64_t
#define NAME(op)  PASTE(op, u64)
#define ADD(a, b) INT_ADD(uint64_t, a, b)
#define MUL(a, b) INT_MUL(uint64_t, a, b)
#define LESS      LESS_PLAIN
#define IS_NAN(a) false
#include "combine_type.h"
#define C         float
#define NAME(op)  PASTE(op, f32)
#define ADD(a, b) ((a) + (b))
#define MUL(a, b) ((a) * (b))
#define LESS      LESS_PLAIN
#define IS_NAN(a) ((a) != (a))
#include "combine_type.h"
#define C         double
#define NAME(op)  PASTE(op, f64)
#define ADD(a, b) ((a) + (b))
#define MUL(a, b) ((a) * (b))
#define LESS      LESS_PLAIN
#define IS_NAN(a) ((a) != (a))
#include "combine_type.h"
#define C          uint16_t
#define NAME(op)   PASTE(op, f16)
#define ADD(a, b)  attn_f32_to_f16(attn_f16_to_f32(a) + attn_f16_to_f32(b))
#define MUL(a, b)  attn_f32_to_f16(attn_f16_to_f32(a) * attn_f16_to_f32(b))
#define LESS(a, b) (attn_f16_to_f32(a) < attn_f16_to_f32(b))
#define IS_NAN(a)  (((a) & 0x7fff) > 0x7c00)
#include "combine_type.h"
#define C          uint16_t
#define NAME(op)   PASTE(op, bf16)
#define ADD(a, b)  attn_f32_to_bf16(attn_bf16_to_f32(a) + attn_bf16_to_f32(b))
#define MUL(a, b)  attn_f32_to_bf16(attn_bf16_to_f32(a) * attn_bf16_to_f32(b))
#define LESS(a, b) (attn_bf16_to_f32(a) < attn_bf16_to_f32(b))
#define IS_NAN(a)  (((a) & 0x7fff) > 0x7f80)
#include "combine_type.h"
#define C         uint8_t
#define NAME(op)  PASTE(op, b8)
#define ADD(a, b) ((uint8_t)(((a) | (b)) != 0))
#define MUL(a, b) ((uint8_t)((a) != 0 && (b) != 0))
#define LESS      LESS_PLAIN
#define IS_NAN(a) false
#include "combine_type.h"

#define FOUR(type) { NULL, add_##type, mul_##type, max_##type, min_##type }
static const op_combine_fn functions[ATTNRUN_DTYPE_COUNT][5] = {
    [ATTNRUN_I8] = FOUR(i8),   [ATTNRUN_I16] = FOUR(i16), [ATTNRUN_I32] = FOUR(i32),
    [ATTNRUN_I64] = FOUR(i64), [ATTNRUN_U8] = FOUR(u8),   [ATTNRUN_U16] = FOUR(u16),
    [ATTNRUN_U32] = FOUR(u32), [ATTNRUN_U64] = FOUR(u64), [ATTNRUN_F32] = FOUR(f32),
    [ATTNRUN_F64] = FOUR(f64), [ATTNRUN_F16] = FOUR(f16), [ATTNRUN_BF16] = FOUR(bf16),
    [ATTNRUN_BOOL] = FOUR(b8),
};

op_combine_fn op_combine_find(int32_t dtype, int32_t reduction)
{
    if (dtype <= 0 || dtype >= ATTNRUN_DTYPE_COUNT || reduction < 0 || reduction > 4)
        return NULL;
    return functions[dtype][reduction];
}

attn_status op_combine_check(const attnrun_step *step, int32_t reduction)
{
    if (reduction == OP_REDUCE_NONE ||
        op_combine_find(step->in[0].dtype, reduction) != NULL)
        return ATTNRUN_OK;
    return op_fail_input(step, 0, ATTNRUN_E_DTYPE,
                         "expected a real number or b8 for a reduction");
}
