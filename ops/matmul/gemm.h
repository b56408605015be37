/* gemm.h - matrix products for operators: a descriptor, its cut into tasks, and packed
 * operands. This file is about shapes and strides; the arithmetic is in
 * ops/kernels/gemm_f32.c.
 *
 *   infer:  struct attn_gemm g = { … }; attn_gemm_plan(&g); then state g.n_tasks,
 *           g.task_cost and g.scratch_bytes
 *   run:    attn_gemm_run(&g, kernels, operands, work) does the tasks of work's range
 *   pack:   attn_gemm_pack_bytes(), attn_gemm_pack() for a constant B
 *
 * Cost: 2 m n k FLOPs. Scratch: what attn_gemm_plan() states. */
#ifndef ATTN_GEMM_H
#define ATTN_GEMM_H

#include "../../runtime/op.h"
#include "../storage.h"
#include "../tile.h"
#include "cut.h"

/* C[…,m,n] = epilogue(A[…,m,k] B[…,k,n]). Strides in elements. Zero m, n, k are fine. */
struct attn_gemm {
    int32_t b_type; /* element type of B: f16, bf16, else f32; A and C are f32 */
    int32_t n_batch;
    int64_t batch[ATTNRUN_MAX_RANK]; /* leading dims */
    int64_t a_batch[ATTNRUN_MAX_RANK], b_batch[ATTNRUN_MAX_RANK],
        c_batch[ATTNRUN_MAX_RANK];
    int64_t m, n, k;
    int64_t a_row, a_col, b_row, b_col, c_row;
    /* By attn_gemm_plan(), from the shapes alone: */
    struct attn_cut cut;
    int64_t n_tasks, task_cost; /* nanoseconds */
    int64_t scratch_bytes;      /* per worker */
    int64_t blas_rows; /* plain_product.c: rows of a task that BLAS computes; 0: none */
};

/* An ADD step whose data has C's row stride and col 1 moves with C's batch. */
struct attn_gemm_operands {
    const void *a;
    const void *b;      /* NULL where packed is given */
    const void *packed; /* by attn_gemm_pack(), or NULL */
    void *c;
    const struct attn_epilogue *epilogue;
    int32_t n_epilogue;
    bool in_place; /* b is a constant of f32, with rows side by side, at any address */
};

/* Dense operands without batch; `trans_a`: A is [k,m]; `trans_b`: B is [n,k]. */
void attn_gemm_describe(struct attn_gemm *g, int64_t m, int64_t n, int64_t k,
                        bool trans_a, bool trans_b);
/* Element offsets of matrix `index` of the batch. */
struct attn_gemm_offsets {
    int64_t a, b, c;
};
struct attn_gemm_offsets attn_gemm_batch(const struct attn_gemm *g, int64_t index);
/* E_LIMIT where the number of tasks overflows. */
attn_status attn_gemm_plan(const attnrun_step *step, struct attn_gemm *g);
/* All tasks of a range, as few products; see cut.h. E_CANCELLED. */
attn_status attn_gemm_run(const struct attn_gemm *g, const struct attn_kernels *kernels,
                          const struct attn_gemm_operands *o, const attnrun_work *work);

/* A packed B: position-independent, for one vector length; in words of two bf16 where the
 * table's products are of bf16. */
enum { ATTN_PACKED_MAGIC = 0x42504E41, ATTN_PACKED_VERSION = 1 };
struct attn_packed {
    uint32_t magic, version;
    int32_t dtype, vec_bytes;
    int64_t k, n;
    int32_t stored_as, unused; /* ATTN_B_F32 … */
    int64_t reserved[3];       /* the panels follow */
};
static inline struct attn_packed attn_packed_head(const struct attn_kernels *kernels,
                                                  int32_t dtype, int64_t k, int64_t n)
{
    return (struct attn_packed){ .magic = ATTN_PACKED_MAGIC,
                                 .version = ATTN_PACKED_VERSION,
                                 .dtype = dtype,
                                 .vec_bytes = op_vector_bytes(kernels),
                                 .k = k,
                                 .n = n };
}
/* Bytes of a packed B of elements of `dtype` (f32, f16, bf16), -1 where that overflows. */
int64_t attn_gemm_pack_bytes(const struct attn_kernels *kernels, int32_t dtype, int64_t k,
                             int64_t n);
/* Makes the columns from `column` on, the first one of a panel, the right operand. */
void attn_gemm_use_packed(struct attn_gemm_f32 *g, const struct attn_packed *packed,
                          int64_t column);
/* The right operand where pack() has or has not packed input `in`, a dense (k, n) matrix. */
void attn_gemm_use_weight(struct attn_gemm_f32 *g, const attnrun_step *step, int in);
/* b: elements of `dtype`, with strides in elements. */
void attn_gemm_pack(const struct attn_kernels *kernels, struct attn_packed *packed,
                    int32_t dtype, const void *b, int64_t row, int64_t col, int64_t k,
                    int64_t n);
/* pack() of an operator whose input `in` is B: packs it where that is a constant matrix.
 * All nodes that multiply by the same constant share the packed copy. */
attn_status attn_gemm_pack_input(attnrun_pack *pack, int in, bool trans_b, int64_t *bytes,
                                 void *packed);
/* The same for an operator whose run() takes attn_gemm_factors(): the constant may stay where
 * it is. */
attn_status attn_gemm_pack_factor(attnrun_pack *pack, int in, bool trans_b,
                                  int64_t *bytes, void *packed);
/* The operands of a step that multiplies input 0 by input 1 and writes output 0. */
struct attn_gemm_operands attn_gemm_factors(const attnrun_step *step);
/* check_packed() of such an operator; and of one that packs matrices one by one: E_MODEL where
 * the head is not what attn_gemm_pack() writes for these sizes. */
attn_status attn_gemm_check_input(const attnrun_pack *pack, int in, bool trans_b,
                                  const void *packed);
attn_status attn_gemm_check_header(const attnrun_pack *pack, const void *packed,
                                   int32_t dtype, int64_t k, int64_t n);
/* Both as members of such an operator's row: name_pack and name_check_packed; and of one whose
 * run() takes attn_gemm_factors(). */
#define ATTN_GEMM_PACKS(name, in, trans_b)                                               \
    ATTN_GEMM_PACKS_BY(attn_gemm_pack_input, attn_gemm_check_input, name, in, trans_b)
#define ATTN_GEMM_PACKS_FACTOR(name, trans_b)                                            \
    ATTN_GEMM_PACKS_BY(attn_gemm_pack_factor, attn_gemm_check_input, name, 1, trans_b)
#define ATTN_GEMM_PACKS_BY(packs, checks, name, in, trans_b)                             \
    static attn_status name##_pack(attnrun_pack *pack, int64_t *bytes, void *packed)     \
    {                                                                                    \
        return packs(pack, in, trans_b, bytes, packed);                                  \
    }                                                                                    \
    static attn_status name##_check_packed(const attnrun_pack *pack, int64_t bytes,      \
                                           const void *packed)                           \
    {                                                                                    \
        (void)bytes;                                                                     \
        return checks(pack, in, trans_b, packed);                                        \
    }
attn_status attn_gemm_check_head(const attnrun_pack *pack, const void *packed,
                                 const struct attn_packed *expected);

#endif
