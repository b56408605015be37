/* nbits.h - weights of 2, 4 or 8 bits in panels (struct attn_nbits of kernel_types.h),
 * and products with them: Y (m, n) = A (m, k) B + bias, where B stays packed.
 *
 *   infer:  attn_nbits_layout(), attn_nbits_plan(); then tasks of n_tasks and task_cost
 *   pack:   the operator fills the panels that attn_nbits_at() names
 *   run:    attn_nbits_run() does the tasks of work's range
 *
 * Up to ATTN_NBITS_ROWS rows of A: nbits_rows_f32 reads the weights once; nbits_digits
 * may have to prepare the rows in scratch. With more rows, or rows with blocks of their
 * own (g_idx), parts of panels become floats in scratch and are multiplied by gemm_f32
 * while they are in cache; or words of bf16, where the model's precision has products of
 * them by tiles (AMX). If numbers of A may be rounded to bytes (`rounded`: precision
 * auto, or a file that permits it) and the CPU has products of bytes, nbits_round()
 * prepares rows and nbits_rounded_f32 multiplies them, for any number of rows. Operators
 * of one matrix round many rows in a phase of its own, into shared memory; otherwise rows
 * are rounded in scratch. Cost: 2 m n k operations. */
#ifndef ATTN_NBITS_H
#define ATTN_NBITS_H

#include "gemm.h"

enum { NBITS_ZERO_ONE, NBITS_ZERO_U8, NBITS_ZERO_F32 };

/* What is packed, as one block of memory: byte offsets from its start. */
struct attn_nbits_layout {
    int64_t k, n, block, blocks; /* rows that share a scale; of those along k */
    int32_t bits, zeros, by_group, by_table;
    bool rounded;          /* rows of A may be rounded to bytes (nbits_round) */
    bool words;            /* many rows are multiplied by words of bf16, by tiles (AMX) */
    int64_t width, panels; /* columns of a panel */
    int64_t scale_at, zero_at, group_at, table_at, bytes;
    int64_t digit_bytes;   /* of a row of A, where few rows are multiplied in digits */
    int64_t rounded_bytes; /* of a row of A that is rounded; 0: none is */
};

/* From k, n, block, bits, zeros, by_group, by_table and rounded, which are set; false:
 * overflow. What is packed does not depend on `rounded`. */
bool attn_nbits_layout(const struct attn_kernels *kernels, struct attn_nbits_layout *l);
/* The arrays in packed memory; `zero` for NBITS_ZERO_ONE. */
struct attn_nbits attn_nbits_at(const struct attn_nbits_layout *l, const void *packed,
                                float zero);
/* Whether the precision of the model, or the accuracy_level of a node, lets rows of A be rounded
 * to bytes, and that pays: where tiles multiply bf16, only few rows are. */
bool attn_nbits_rounds(const attnrun_step *step, int64_t rows, int64_t accuracy_level);
/* Zeros panels [begin, end), whose places and scales are then written one by one. */
void attn_nbits_clear(const struct attn_nbits_layout *l, int64_t begin, int64_t end,
                      uint8_t *to);
/* Puts q in the place of row k, column j; the memory was zeroed before. */
static inline void attn_nbits_put(const struct attn_nbits_layout *l, uint8_t *packed,
                                  int64_t k, int64_t j, uint8_t q)
{
    const int64_t per = 32 / l->bits, words = ceil_div(l->k, per);
    const int64_t word = (j / l->width * words + k / per) * l->width + j % l->width;
    packed[word * 4 + k % per * l->bits / 8] |= (uint8_t)(q << k * l->bits % 8);
}
/* check_packed() of an operator; `l` NULL: its layout cannot be. All are numbers, but for the
 * blocks of rows, where the layout is by_group. E_MODEL. */
attn_status attn_nbits_check_packed(const struct attn_nbits_layout *l,
                                    const attnrun_pack *pack, int64_t bytes,
                                    const void *packed);
/* Index of the scale (and zero point) of a block of column j. */
static inline int64_t attn_nbits_scale(const struct attn_nbits_layout *l, int64_t block,
                                       int64_t j)
{
    return (j / l->width * l->blocks + block) * l->width + j % l->width;
}

/* A matrix as files hold it: column j is line first + j * step. A line is b_line bytes of
 * elements, the first in the low bits of a byte, and has scale_line scales and zero_line
 * zero points (packed as the elements, or floats). */
struct attn_nbits_source {
    const uint8_t *b, *zeros_u8; /* zeros: as layout.zeros says */
    const float *scales, *zeros_f32;
    int64_t first, step, b_line, scale_line, zero_line;
};
/* Panels [begin, end); the columns that fill up the last one are zeros. E_CANCELLED. */
attn_status attn_nbits_fill(const struct attn_nbits_layout *l,
                            const struct attn_nbits_source *from, int64_t begin,
                            int64_t end, uint8_t *to);

struct attn_nbits_plan {
    int64_t rows;        /* of A */
    struct attn_cut cut; /* columns in panels */
    int64_t n_tasks, task_cost, scratch_bytes, kept_at;
    /* Tasks of attn_nbits_round(), in a phase before; 0: none. Rows of one. */
    int64_t round_tasks, round_rows;
};
attn_status attn_nbits_plan(const attnrun_step *step, const struct attn_nbits_layout *l,
                            int64_t rows, struct attn_nbits_plan *plan);
struct attn_nbits_operands {
    const float *a, *bias; /* bias may be NULL */
    float *y;
    struct attn_nbits b;
    char *rounded; /* rounded_bytes a row, where round_tasks is over 0 */
};
/* Rounds the rows of the tasks of work's range. */
attn_status attn_nbits_round(const struct attn_nbits_layout *l,
                             const struct attn_nbits_plan *plan,
                             const struct attn_kernels *kernels,
                             const struct attn_nbits_operands *o,
                             const attnrun_work *work);
attn_status attn_nbits_run(const struct attn_nbits_layout *l,
                           const struct attn_nbits_plan *plan,
                           const struct attn_kernels *kernels,
                           const struct attn_nbits_operands *o, const attnrun_work *work);

/* m rows of A times columns [column, column + n) of B, where `column` begins a panel; as
 * many tasks' worth of arithmetic as m and n say. `scratch`: attn_nbits_scratch() bytes of m or
 * more rows. A product sets `rows` to what it has made of the rows of A; another product of these
 * rows may begin with that, and with the same scratch, by the same matrix or one that
 * attn_nbits_same_rows(). */
struct attn_nbits_block {
    const struct attn_nbits *b;
    const float *a, *bias; /* bias: of column `column` on, or NULL */
    const void *rows;      /* NULL: to be made */
    float *c, *scratch;
    int64_t a_row, c_row, m, column, n;
};
int64_t attn_nbits_scratch(const struct attn_nbits_layout *l, int64_t m);
attn_status attn_nbits_multiply(const struct attn_nbits_layout *l,
                                const struct attn_kernels *kernels,
                                struct attn_nbits_block *block);
/* Whether both make the same of rows of A, where their `zero` is the same. */
bool attn_nbits_same_rows(const struct attn_nbits_layout *l,
                          const struct attn_nbits_layout *other);

/* ---- operators of one such matrix: A (…, K) is input 0 ---- */

struct attn_nbits_state {
    struct attn_nbits_layout layout;
    struct attn_nbits_plan plan;
    int64_t rounded_at; /* in shared memory, behind what is packed there */
};
/* Writes panels [begin, end) of undefined memory from inputs x. */
typedef attn_status (*attn_nbits_fill_fn)(const attnrun_node *node,
                                          const struct attn_nbits_layout *l,
                                          const attnrun_tensor *x, int64_t begin,
                                          int64_t end, uint8_t *to);
/* Y is (…, n). */
attn_status attn_nbits_output(attnrun_step *step, int64_t k, int64_t n);
/* Of the state's layout: tasks, and phases before: one that packs where nothing is packed, and one
 * that rounds many rows. */
attn_status attn_nbits_tasks(attnrun_step *step);
/* Fails unless input `in`, where it is there, has n elements (lines of `each`). */
attn_status attn_nbits_check_count(const attnrun_step *step, int in, int64_t lines,
                                   int64_t each);
/* block_size, K and N of the attributes. */
attn_status attn_nbits_check_sizes(const attnrun_step *step, int64_t block_size,
                                   int64_t k, int64_t n);
/* zero: for NBITS_ZERO_ONE; bias may be NULL. */
attn_status attn_nbits_op_run(const attnrun_step *step, const attnrun_work *work,
                              attn_nbits_fill_fn fill, float zero, const float *bias);

#endif
