/* softmax_lines.c - cuts lines into tasks. softmax_lines.h has the interface. */
#include "softmax_lines.h"

#include "../tile.h"

enum { TASK_ELEMENTS = 4096, MIN_COLUMNS = 64 };

attn_status attn_lines_plan(attnrun_step *step, struct lines *lines,
                            const attnrun_type *type, int first, int last, double cost)
{
    int64_t all = op_count(type, 0, type->rank);
    *lines = (struct lines){ .block = 1, .blocks = 1 };
    if (all < 0)
        return op_fail_size(step, "the number of elements", "2^63 - 1");
    if (all > 0) {
        lines->outer = op_count(type, 0, first);
        lines->length = op_count(type, first, last);
        lines->inner = op_count(type, last, type->rank);
        int64_t max = lines->inner == 1 ? lines->outer : lines->inner;
        lines->block = TASK_ELEMENTS / lines->length;
        if (lines->inner > 1 && lines->block < MIN_COLUMNS)
            lines->block = MIN_COLUMNS;
        if (lines->block < 1)
            lines->block = 1;
        if (lines->block > max)
            lines->block = max;
        lines->blocks = ceil_div(max, lines->block);
        lines->n_tasks = lines->inner == 1 ? lines->blocks : lines->blocks * lines->outer;
    }
    double elements = (double)lines->block * (double)lines->length;
    op_tasks(step, 0, lines->n_tasks, op_ns(elements * cost + 50));
    return ATTNRUN_OK;
}

struct lines_of_task attn_lines_of(const struct lines *lines, int64_t task)
{
    struct lines_of_task t = { .step = 1 };
    int64_t first = op_take(&task, lines->blocks) * lines->block;
    if (lines->inner == 1) {
        t.step = lines->length;
        t.first = first * lines->length;
        t.index = first;
        t.n = lines->outer - first;
    } else {
        t.first = task * lines->length * lines->inner + first;
        t.index = task * lines->inner + first;
        t.n = lines->inner - first;
    }
    if (t.n > lines->block)
        t.n = lines->block;
    return t;
}
