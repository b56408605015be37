/* softmax_lines.h - a tensor cut along one axis (or from an axis on) into independent
 * lines, and the lines into tasks. Softmax and the normalizations share it. In: a shape
 * and an axis. Out: the number, length and stride of the lines, and tasks. */
#ifndef ATTN_NN_SOFTMAX_LINES_H
#define ATTN_NN_SOFTMAX_LINES_H

#include "../../runtime/op.h"
#include "../kernels/kernels.h"

/* outer x length x inner elements; a line has `length` elements, `inner` apart. A task is
 * `block` neighbouring lines: of one row of `inner` where that is not 1. */
struct lines {
    int64_t outer, length, inner;
    int64_t block, blocks; /* blocks: tasks per row where inner > 1, else over all */
    int64_t n_tasks;
};

/* Lines along dims first … last - 1 of a type with constant dims, about 16384 elements a
 * task. `cost`: nanoseconds per element. Fails where the count overflows. */
attn_status attn_lines_plan(attnrun_step *step, struct lines *lines,
                            const attnrun_type *type, int first, int last, double cost);

/* The lines of a task: their first element, how many, and how far apart. */
struct lines_of_task {
    int64_t first, n, step;
    int64_t index; /* number of the first line: outer * inner + column */
};
struct lines_of_task attn_lines_of(const struct lines *lines, int64_t task);

#endif
