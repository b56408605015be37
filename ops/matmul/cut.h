/* cut.h - how products are cut into tasks: rectangles of C, by their shapes alone.
 *
 *   a block of rows   columns 0   columns 1   …
 *   part 0            task 0      task 2
 *   part 1            task 1      task 3
 *
 * The tasks of a block of rows come in this order, then those of the next block of rows, then
 * those of the next product of a batch.
 *
 * If a range of tasks has all parts of some columns, all their rows are one product, and
 * columns side by side are one product, too. Only the ends of a range are as small as a
 * task. Small tasks, which many threads share evenly, therefore cost nothing on one
 * thread. */
#ifndef ATTN_CUT_H
#define ATTN_CUT_H

#include "../../runtime/op.h"

struct attn_cut {
    int64_t products;          /* of a batch */
    int64_t m, n;              /* of C; columns in units of the operator */
    int64_t m_block, m_blocks; /* rows of a block, and blocks of a product */
    int64_t m_part, parts;     /* rows of a part, and parts of a block of rows */
    int64_t n_block, n_blocks; /* columns of a task */
};
/* No tasks. */
void attn_cut_none(struct attn_cut *cut);
/* Rows in blocks of the same length, at most m_block (a multiple of 8), columns in blocks of a
 * multiple of `grain`, at most n_block or grain; one part. Of m, n > 0. */
void attn_cut_blocks(struct attn_cut *cut, int64_t products, int64_t m, int64_t n,
                     int64_t m_block, int64_t n_block, int64_t grain);

/* Nanoseconds of a task of m_part rows and n_block columns. */
typedef double (*attn_cut_ns)(const struct attn_cut *cut, const void *what);
struct attn_cut_limits {
    int64_t grain, min_columns; /* of n_block */
    bool whole_rows;            /* no parts */
    int64_t few_rows; /* so few are computed in another way: parts must not be */
    int64_t min_ns;   /* of a task; more where a range has to prepare A */
};
/* Where there are few tasks, makes them smaller as far as that makes them more even. */
void attn_cut_refine(struct attn_cut *cut, const struct attn_cut_limits *limits,
                     attn_cut_ns ns, const void *what);
/* False where the number of tasks is over 2^63 - 1. */
bool attn_cut_tasks(const struct attn_cut *cut, int64_t *n_tasks);

/* A rectangle of C. */
struct attn_cut_piece {
    int64_t product, row, m, column, n;
    int64_t n_tasks; /* that it is */
};
/* The next one of tasks `task` to `end`, with at most max_blocks blocks of columns. m may be 0:
 * parts behind the last row are empty. */
struct attn_cut_piece attn_cut_next(const struct attn_cut *cut, int64_t task, int64_t end,
                                    int64_t max_blocks);

#endif
