/* strided_copy.h - one engine for all operators that rearrange elements: Transpose,
 * Slice, Expand, Tile, DepthToSpace, the inner block of Pad. In: extents and element
 * strides of both sides. Out: a plan that has merged dims, an inner loop and tasks. Cost:
 * one copy. */
#ifndef OP_STRIDED_COPY_H
#define OP_STRIDED_COPY_H

#include "../../runtime/op.h"

enum { OP_COPY_RANK = 2 * ATTNRUN_MAX_RANK };

enum op_copy_mode {
    OP_COPY_NONE, /* nothing to do */
    OP_COPY_RUN,  /* both inner strides are one element */
    OP_COPY_FILL, /* the inner source stride is 0 */
    OP_COPY_TILE, /* a transposition: rows are dense in the source, columns in the result
                   */
    OP_COPY_STRIDED, /* anything else */
    OP_COPY_BITS     /* types under 8 bits: one task, element by element */
};

/* The inner block is rows x cols; around it n_outer dims. Strides in bytes (in elements
 * for OP_COPY_BITS). Lives in a step's state. */
struct op_copy {
    int32_t mode, n_outer, elem_bytes, dtype;
    int64_t n[OP_COPY_RANK], from[OP_COPY_RANK], to[OP_COPY_RANK];
    int64_t rows, row_from, row_to, cols, col_from, col_to;
    int64_t row_step, col_step, row_blocks, col_blocks; /* of one unit of work */
    int64_t from_offset, to_offset;
    int64_t units, units_per_task, unit_ns;
};

/* Strides and offsets in elements; `to` descending. The counts must have been checked. */
void op_copy_plan(struct op_copy *copy, int32_t dtype, int rank, const int64_t *dims,
                  const int64_t *from, int64_t from_offset, const int64_t *to,
                  int64_t to_offset);
/* In each of `batch` samples, (rows, columns) becomes (columns, rows). */
void op_copy_plan_exchange(struct op_copy *copy, int32_t dtype, int64_t batch,
                           int64_t rows, int64_t columns);
/* Whether the result is one contiguous segment of the source's bytes: a view. */
bool op_copy_is_view(const struct op_copy *copy, int64_t *byte_offset);
/* States the plan's tasks in `phase`. */
void op_copy_tasks(attnrun_step *step, int phase, const struct op_copy *copy);
/* Runs tasks [begin, end). */
attn_status op_copy_run(const struct op_copy *copy, const attnrun_work *work, void *to,
                        const void *from);

#endif
