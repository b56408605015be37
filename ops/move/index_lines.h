/* index_lines.h - lines along an axis of an index tensor, and the same lines of a larger
 * data tensor. GatherElements and ScatterElements share this file. Line l holds the
 * indices with fixed coordinates off the axis. Lines touch disjoint lines of the data, so
 * they are independent. In: both tensors. Out: where a line begins in each, and its
 * indices, checked. */
#ifndef OP_INDEX_LINES_H
#define OP_INDEX_LINES_H

#include "move.h"

struct op_elements {
    int32_t n_outer, elem_bytes;             /* dims off the axis */
    int64_t dims[ATTNRUN_MAX_RANK];          /* of the index tensor, off the axis */
    int64_t index_strides[ATTNRUN_MAX_RANK]; /* elements */
    int64_t data_strides[ATTNRUN_MAX_RANK];
    int64_t extent, length;            /* of the axis: data's, indices' */
    int64_t inner_stride, data_stride; /* along the axis, in elements */
    int64_t lines, lines_per_task, tasks, task_ns, count;
};

/* Fails where the extents of input `in` off the axis exceed those of input 0. */
attn_status op_elements_fit(const attnrun_step *step, int in, int axis);
/* Fills in the state, and states the tasks of phase 0, which checks the indices. For constant
 * dims of inputs 0 (data) and 1 (indices). */
attn_status op_elements_plan(attnrun_step *step, int axis);
/* The first elements of a line. */
void op_elements_line(const struct op_elements *e, int64_t line, int64_t *index,
                      int64_t *data);

#endif
