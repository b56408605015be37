/* gemm_bytes.h - products of quantized matrices for operators: sums over k of (a -
 * a_zero)(b - b_zero), modulo 2^32, and what an operator makes of them.
 *
 *   infer:  attn_integer_plan(step, a, b, summed, &g); then tasks of g.gemm.n_tasks and
 *           g.gemm.task_cost, and g.gemm.scratch_bytes (the operator's own lies behind)
 *   run:    attn_integer_run(&g, kernels, operands, work) does the tasks of work's range
 *   pack:   ATTN_INTEGER_PACKS() for a constant B: a byte an element */
#ifndef ATTN_GEMM_BYTES_H
#define ATTN_GEMM_BYTES_H

#include "gemm.h"

struct attn_integer_gemm {
    struct attn_gemm gemm; /* C is dense */
    int64_t rows;          /* of one matrix A */
    int64_t a_matrices, b_matrices;
    int64_t columns;  /* at most, of a block */
    int64_t zeros_at; /* bytes into the scratch */
    int64_t sums_at;  /* bytes into the scratch; -1: sums go to C */
};

/* A block of sums: rows `line` … of all matrices A one after the other, columns
 * `column` … of matrix b_matrix; element [0][0] is element `c` of C. */
struct attn_integer_block {
    int64_t line, b_matrix, column, c, m, n;
    const uint32_t *sums;
    int64_t row; /* from one to the next */
};

/* Zero points are NULL, or one number, one for each row of A (column of B), or one for
 * each row (column) of each matrix. */
struct attn_integer_operands {
    const void *a, *b;                     /* b NULL where packed is given */
    const void *packed;                    /* by attn_integer_pack_input(), or NULL */
    const attnrun_tensor *a_zero, *b_zero; /* of A's and B's type */
    bool a_signed, b_signed;
    uint32_t *c; /* or, with sums_at: what becomes of a block; `scratch` is behind g's */
    void (*finish)(const attnrun_step *step, const attnrun_work *work,
                   const struct attn_integer_block *block, void *scratch);
    const attnrun_step *step; /* for finish */
};

/* The operands that these inputs are; zero points may be absent. */
struct attn_integer_operands attn_integer_operands_of(const attnrun_step *step, int a,
                                                      int b, int a_zero, int b_zero);

/* MatMul's shapes of inputs a and b; `summed`: sums are for finish(). */
attn_status attn_integer_plan(const attnrun_step *step, int a, int b, bool summed,
                              struct attn_integer_gemm *g);
/* The same for a product that is described. */
attn_status attn_integer_cut(const attnrun_step *step, bool summed,
                             struct attn_integer_gemm *g);
attn_status attn_integer_run(const struct attn_integer_gemm *g,
                             const struct attn_kernels *kernels,
                             const struct attn_integer_operands *o,
                             const attnrun_work *work);
/* `transposed`: the input is (n, k). */
attn_status attn_integer_pack_input(attnrun_pack *pack, int in, bool transposed,
                                    int64_t *bytes, void *packed);
/* check_packed() of such an operator; and of one that packs matrices one by one. */
attn_status attn_integer_check_input(const attnrun_pack *pack, int in, bool transposed,
                                     const void *packed);
attn_status attn_integer_check_header(const attnrun_pack *pack, const void *packed,
                                      int64_t k, int64_t n, bool is_signed);
/* Both as members of such an operator's row, as ATTN_GEMM_PACKS() does. */
#define ATTN_INTEGER_PACKS(name, in, transposed)                                         \
    ATTN_GEMM_PACKS_BY(attn_integer_pack_input, attn_integer_check_input, name, in,      \
                       transposed)
/* A packed matrix of k rows and n columns: its bytes (-1: overflow), how b (dense) becomes
 * one, and the operand of a product of its columns from `column` on, the first of a panel
 * (a multiple of OP_PANEL is). */
int64_t attn_integer_packed_bytes(const struct attn_kernels *kernels, int64_t k,
                                  int64_t n);
void attn_integer_pack(const struct attn_kernels *kernels, struct attn_packed *packed,
                       const void *b, int64_t k, int64_t n, bool is_signed);
void attn_integer_packed_columns(const struct attn_packed *packed, int64_t column,
                                 struct attn_gemm_i8 *product);

/* Fails unless input `in` has 1, `lines` or matrices * lines elements: `what` is what a
 * line is. */
attn_status attn_integer_check_vector(const attnrun_step *step, int in, int64_t lines,
                                      int64_t matrices, const char *what);
/* Fails unless input `in`, where it is there, is one number. */
attn_status attn_integer_check_one(const attnrun_step *step, int in);
/* Index of an element of such a vector. */
int64_t attn_integer_pick(const attnrun_tensor *x, int64_t lines, int64_t matrix,
                          int64_t line);
int32_t attn_integer_at(const attnrun_tensor *x, int64_t i);
/* What sums that become bytes of u8 or i8 are clamped to. */
static inline struct attn_byte_limits attn_integer_limits(int32_t dtype, int32_t zero)
{
    const bool is_signed = dtype == ATTNRUN_I8;
    return (struct attn_byte_limits){ zero, is_signed ? -128 : 0, is_signed ? 127 : 255 };
}

/* For finish(): a block as floats, y[c] = sum * (a_scale * b_scale) + bias. b_scale is
 * one number, or such a vector of B's columns; bias is of the columns, or NULL. `scales`:
 * room for the columns of a block. */
struct attn_integer_scales {
    float a;
    const attnrun_tensor *b;
    const float *bias;
};
void attn_integer_to_floats(const struct attn_integer_gemm *g,
                            const struct attn_kernels *kernels,
                            const struct attn_integer_block *block,
                            const struct attn_integer_scales *by, float *y,
                            float *scales);

#endif
