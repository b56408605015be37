/* tile.h - how operators cut their work into tasks and panels, and their scratch memory into
 * slots. All are chosen in infer() and found again in run().
 *
 * Tasks of a phase are a grid (batch, heads, blocks), blocks first:
 *
 *   infer:  s->block = op_block_even(rows, op_block_growing(rows, 64, 1024, heads));
 *           s->blocks = ceil_div(rows, s->block);
 *           if (!op_grid_tasks(batch, heads, s->blocks, &n_tasks)) return op_fail_scratch(step);
 *           op_tasks(step, phase, n_tasks, op_ns(nanoseconds));
 *   run:    const struct op_task at = op_task_at(task, heads, s->blocks);
 *           rows from at.block * s->block on, of head at.head of sample at.b
 *           or, of other axes, innermost first: column = op_take(&task, s->columns); …
 *
 * Slots of scratch or shared memory begin at multiples of 64 bytes:
 *
 *   infer:  int64_t end = 0;
 *           if (!op_slot(&s->scores_at, &end, n, sizeof(float)) || …) return op_fail_scratch(step);
 *           step->scratch_bytes = end;
 *   run:    float *scores = op_slot_floats(work->scratch, s->scores_at); */
#ifndef ATTN_OPS_TILE_H
#define ATTN_OPS_TILE_H

#include "../runtime/checked.h"
#include "../runtime/op.h"
#include "kernels/kernels.h"

/* ---- what the kernels of a set are cut for: the one place where operators learn it ---- */

static inline int32_t op_vector_bytes(const struct attn_kernels *kernels)
{
    return kernels->vec_bytes;
}
/* Floats of a vector: to so many the columns of a packed right operand are filled up. */
static inline int64_t op_lanes(const struct attn_kernels *kernels)
{
    return kernels->vec_bytes / (int64_t)sizeof(float);
}
/* Columns of a panel of a product: two vectors of floats, or of sums of bytes. */
static inline int64_t op_panel_columns_of(int32_t vector_bytes)
{
    return 2 * (vector_bytes / (int64_t)sizeof(float));
}
static inline int64_t op_panel_columns(const struct attn_kernels *kernels)
{
    return op_panel_columns_of(kernels->vec_bytes);
}
/* What operators cut products for, on every set. */
enum {
    OP_PANEL = ATTN_GEMM_NR_MAX,         /* columns that are whole panels */
    OP_PRODUCT_ROWS = 128,               /* of A, which a panel of B is read for */
    OP_PRODUCT_TERMS = ATTN_GEMM_KC,     /* of a sum that the kernel adds in one piece */
    OP_PRODUCT_COLUMNS = ATTN_GEMM_WIDE, /* that share a block of A */
};
/* The first column of the panel that has column i, on every set. */
static inline int64_t op_panel_begin(int64_t i) { return i / OP_PANEL * OP_PANEL; }
/* n columns, filled up to whole panels of every set. */
static inline int64_t op_whole_panels(int64_t n) { return round_up(n, OP_PANEL); }

/* Elements of a packed (k, n) right operand, whose sizes are those of a tensor. */
static inline int64_t op_packed_elements(const struct attn_kernels *kernels, int64_t k,
                                         int64_t n)
{
    return round_up(n, op_lanes(kernels)) * k;
}

/* ---- tasks ---- */

/* A grid has at least so many tasks before its blocks grow, to keep several threads busy. */
enum { OP_ENOUGH_TASKS = 16 };

/* Tasks are made for so many threads: the time of the one that does most, by which the cuts of
 * an operator are compared. Shapes decide, never the threads that there are. */
enum { OP_THREADS = 8 };
static inline double op_longest_thread(int64_t tasks, double task_ns)
{
    return (double)ceil_div(tasks, OP_THREADS) * task_ns;
}

/* Whether so many equal tasks keep these threads busy, but for an eighth of their time. */
static inline bool op_even_tasks(int64_t tasks)
{
    const int64_t each = ceil_div(tasks, OP_THREADS);
    return each > 0 && tasks / each >= OP_THREADS * 7 / 8;
}

/* Makes what the step states as shared memory a part of each worker's scratch, from *at on: a
 * task that computes all of a head needs it for that head alone. False where that overflows. */
static inline bool op_shared_to_scratch(attnrun_step *step, int64_t *at)
{
    if (!ck_align(step->scratch_bytes, 64, at) ||
        !ck_add(*at, step->shared_bytes, &step->scratch_bytes))
        return false;
    step->shared_bytes = 0;
    return true;
}

/* An estimate of nanoseconds as op_tasks() takes it: at most 1e15, eleven days. */
static inline int64_t op_ns(double ns)
{
    return ns < 1e15 ? (int64_t)ns : INT64_C(1000000000000000);
}

/* A block of `rows` rows: from `min` on it doubles, up to `max`, while twice as many rows a block
 * leave OP_ENOUGH_TASKS tasks in `others` (> 0) times the blocks. */
static inline int64_t op_block_growing(int64_t rows, int64_t min, int64_t max,
                                       int64_t others)
{
    int64_t block = min;
    while (block < max && rows / (2 * block) >= (OP_ENOUGH_TASKS - 1) / others + 1)
        block *= 2;
    return block;
}

/* Half of a block that may not grow, down to `min`, while that makes `others` times the blocks
 * clearly more even. */
static inline int64_t op_block_finer(int64_t rows, int64_t block, int64_t min,
                                     int64_t others)
{
    while (block % 2 == 0 && block / 2 >= min && others < INT64_MAX / 2 / rows &&
           op_longest_thread(others * ceil_div(rows, block / 2), (double)block / 2) <
               0.95 * op_longest_thread(others * ceil_div(rows, block), (double)block))
        block /= 2;
    return block;
}

/* The smallest block that needs no more blocks than `block`: blocks are of one length, but for the
 * last. Of rows > 0. */
static inline int64_t op_block_even(int64_t rows, int64_t block)
{
    return ceil_div(rows, ceil_div(rows, block));
}

/* False where the number of tasks is over 2^63 - 1. */
static inline bool op_grid_tasks(int64_t batch, int64_t heads, int64_t blocks,
                                 int64_t *n_tasks)
{
    return ck_mul(batch, heads, n_tasks) && ck_mul(*n_tasks, blocks, n_tasks);
}

struct op_task {
    int64_t b, head, block;
};

static inline struct op_task op_task_at(int64_t task, int64_t heads, int64_t blocks)
{
    return (struct op_task){ .b = task / blocks / heads,
                             .head = task / blocks % heads,
                             .block = task % blocks };
}

/* Takes the innermost axis, of n places, off the number of a task of any grid: its index there.
 * What is left in *task counts the places of the other axes. */
static inline int64_t op_take(int64_t *task, int64_t n)
{
    const int64_t index = *task % n;
    *task /= n;
    return index;
}

/* ---- slots ---- */

enum { OP_SLOT_ALIGN = 64 };

/* A slot of n elements of `size` bytes at *end, which becomes a multiple of 64 behind it. False
 * where it would be over 2^63 - 1. */
static inline bool op_slot(int64_t *at, int64_t *end, int64_t n, int64_t size)
{
    int64_t bytes;
    *at = *end;
    return ck_mul(n, size, &bytes) && ck_add(*end, bytes, end) &&
           ck_align(*end, OP_SLOT_ALIGN, end);
}

/* The same of rows of n elements of `size` bytes. */
static inline bool op_slot_rows(int64_t *at, int64_t *end, int64_t rows, int64_t n,
                                int64_t size)
{
    int64_t count;
    return ck_mul(rows, n, &count) && op_slot(at, end, count, size);
}

static inline void *op_slot_at(void *memory, int64_t at) { return (char *)memory + at; }
static inline float *op_slot_floats(void *memory, int64_t at)
{
    return op_slot_at(memory, at);
}

#endif
