/* axis_lines.h - a dense array as lines along one axis. Line (o, i) starts at element (o
 * * length) * inner + i, and its elements are `inner` apart. */
#ifndef ATTN_AXIS_LINES_H
#define ATTN_AXIS_LINES_H

#include "../../runtime/tensor.h"

struct lines {
    int64_t count, length, inner; /* count = outer * inner */
};

static inline struct lines lines_along(const attnrun_tensor *x, int axis)
{
    struct lines lines = { .length = x->dims[axis],
                           .inner = tensor_dims_product(x, axis + 1, x->rank) };
    lines.count = tensor_dims_product(x, 0, axis) * lines.inner;
    return lines;
}
static inline int64_t lines_start(const struct lines *lines, int64_t line)
{
    return line / lines->inner * lines->length * lines->inner + line % lines->inner;
}
/* Lines of a task, so that a task has about OP_CHUNK elements. */
static inline int64_t lines_per_task(int64_t length)
{
    return length > 0 && length < 4096 ? 4096 / length : 1;
}

#endif
