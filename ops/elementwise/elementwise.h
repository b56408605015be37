/* elementwise.h - what the files of this folder share: loops by dtype, and their infer.
 * In: operands that broadcast. Out: a result of the broadcast shape. A task is a range of
 * elements. */
#ifndef ATTN_ELEMENTWISE_H
#define ATTN_ELEMENTWISE_H

#include "../kernels/kernels.h"
#include "../nd_iter.h"

/* One entry per dtype of a group: LOOPS_NUM(relu) is [ATTNRUN_F32] = relu_f32, … */
#define LOOPS_F64(f) [ATTNRUN_F64] = f##_f64
#define LOOPS_FLT(f) [ATTNRUN_F32] = f##_f32, LOOPS_F64(f)
#define LOOPS_SINT(f)                                                                    \
    [ATTNRUN_I8] = f##_i8, [ATTNRUN_I16] = f##_i16, [ATTNRUN_I32] = f##_i32,             \
    [ATTNRUN_I64] = f##_i64
#define LOOPS_UINT(f)                                                                    \
    [ATTNRUN_U8] = f##_u8, [ATTNRUN_U16] = f##_u16, [ATTNRUN_U32] = f##_u32,             \
    [ATTNRUN_U64] = f##_u64
#define LOOPS_INT(f) LOOPS_SINT(f), LOOPS_UINT(f)
#define LOOPS_SGN(f) LOOPS_FLT(f), LOOPS_SINT(f)
#define LOOPS_NUM(f) LOOPS_FLT(f), LOOPS_INT(f)
#define LOOPS_B8(f)  [ATTNRUN_BOOL] = f##_b8
#define LOOPS_ALL(f) LOOPS_NUM(f), LOOPS_B8(f)

/* The same groups as type lists of a row. f16 and bf16 are computed in f32. */
#define TYPES_FLT  "f32,f64"
#define TYPES_SINT "i8,i16,i32,i64"
#define TYPES_UINT "u8,u16,u32,u64"
#define TYPES_INT  TYPES_SINT "," TYPES_UINT
#define TYPES_SGN  TYPES_FLT "," TYPES_SINT
#define TYPES_NUM  TYPES_FLT "," TYPES_INT
#define TYPES_B8   "b8"
#define TYPES_ALL  TYPES_NUM ",b8"

/* Place of a kernel in any struct attn_kernels; 0 means none, for no kernel is there. */
#ifdef ATTN_KERNELS_BY_USE
#define KERNEL_AT(name) ((size_t)(uintptr_t)attn_kernel_##name)
#else
#define KERNEL_AT(name) offsetof(struct attn_kernels, name)
#endif

/* *kernel, a pointer of `bytes` bytes, becomes the kernel of that place. */
static inline void elementwise_kernel(const struct attn_kernels *kernels, size_t at,
                                      void *kernel, size_t bytes)
{
#ifdef ATTN_KERNELS_BY_USE
    memcpy(kernel, (const char *)(uintptr_t)at + (size_t)kernels->set * bytes, bytes);
#else
    memcpy(kernel, (const char *)kernels + at, bytes);
#endif
}

/* Tasks of OP_CHUNK elements of output 0, at `cost` nanoseconds per 1000 elements. */
static inline void elementwise_tasks(attnrun_step *step, int64_t cost)
{
    if (!step->concrete || step->out[0].rank < 0)
        return;
    int64_t n = op_count(&step->out[0], 0, step->out[0].rank);
    op_unit_tasks(step, 0, max64(n, 0), OP_CHUNK, (double)cost / 1000);
    op_flops(step, n < 0 ? 0 : (double)n);
}

/* The elements of tasks [begin, end) when there are n. */
static inline void elementwise_range(const attnrun_work *work, int64_t n, int64_t *begin,
                                     int64_t *end)
{
    *begin = work->begin * OP_CHUNK;
    *end = work->end > n / OP_CHUNK ? n : work->end * OP_CHUNK;
}

/* Computes a segment of elements: operand 0 is output 0, the others are those given. */
typedef void elementwise_segment(const attnrun_step *step, const struct nd_iter *it,
                                 const void *arg);
/* Runs segments of 4 OP_CHUNK elements at most over output 0 and `n` operands that are broadcast
 * to its dims. An output that nobody reads (NULL) has no segments. */
attn_status op_elementwise_run(const attnrun_step *step, const attnrun_work *work,
                               const attnrun_tensor *const *operands, int n,
                               elementwise_segment *run, const void *arg);

/* Whether input `in` has the dims that output 0 got, for certain. */
bool op_elementwise_same_dims(const attnrun_step *step, int in);
/* States that output 0 may lie over input `in` where dims and bytes agree and no other
 * operand is the same value. */
void op_elementwise_inplace(attnrun_step *step, int in);

/* Output 0 = broadcast dims of inputs first … first + n - 1, of `dtype`. */
attn_status op_elementwise_broadcast(attnrun_step *step, int first, int n, int32_t dtype);

/* Integer results of up to 64 elements as dims: out[k] = combine(values of the inputs at
 * k). */
typedef attnrun_dim elementwise_combine(const attnrun_step *step, attnrun_dim a,
                                        attnrun_dim b);
void op_elementwise_known(attnrun_step *step, int a, int b, elementwise_combine *combine);

#endif
