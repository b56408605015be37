/* padding.c - rows of padded tensors. padding.h has the interface. */
#include "padding.h"
#include "../tile.h"

static attn_status plan_axis(const attnrun_step *step, struct op_padding *p, int i,
                             int64_t begin, int64_t end)
{
    int64_t extent = step->in[0].dims[i].value;
    p->first[i] = begin < 0 ? -begin : 0;
    p->begin[i] = begin > 0 ? begin : 0;
    p->n[i] = extent - p->first[i] + (end < 0 ? end : 0);
    p->dims[i] = step->out[0].dims[i].value;
    if (p->n[i] < 0 && p->dims[i] > 0 && p->mode == OP_PAD_CONSTANT)
        p->n[i] = 0; /* cropped away: all of it is padding */
    bool more = p->dims[i] > p->n[i];
    if (p->n[i] <= 0 && more && p->mode != OP_PAD_CONSTANT)
        return op_fail_input(step, 0, ATTNRUN_E_SHAPE,
                             "axis %d is empty, so there is nothing to pad with", i);
    if (begin != 0 || end != 0)
        p->row_axis = i;
    return ATTNRUN_OK;
}

attn_status op_padding_plan(attnrun_step *step, struct op_padding *p, int32_t mode,
                            const int64_t *begin, const int64_t *end)
{
    const attnrun_type *in = &step->in[0], *out = &step->out[0];
    int64_t stride = 1;
    memset(p, 0, sizeof *p);
    p->mode = mode;
    p->rank = in->rank;
    TRY(op_move_need_bytes(step, 0));
    for (int i = 0; i < in->rank; i++)
        TRY(plan_axis(step, p, i, begin[i], end[i]));
    if (op_count(out, 0, out->rank) == 0) {
        op_tasks(step, 0, 0, 0);
        return ATTNRUN_OK;
    }
    p->elem_bytes = dtype_bytes(in->dtype);
    if (in->rank == 0) { /* a scalar: one row of one unit */
        p->rank = 1;
        p->n[0] = p->dims[0] = 1;
        p->unit_bytes = p->elem_bytes;
    } else {
        p->unit_bytes =
            dtype_bytes_of(in->dtype, op_count(out, p->row_axis + 1, in->rank));
    }
    for (int i = p->row_axis; i >= 0; i--) {
        p->strides[i] = stride;
        stride *= in->rank == 0 ? 1 : in->dims[i].value;
    }
    p->rows = op_count(out, 0, in->rank == 0 ? 0 : p->row_axis);
    int64_t row_bytes = p->unit_bytes * p->dims[p->row_axis];
    p->rows_per_task = row_bytes >= OP_MOVE_CHUNK ? 1 : OP_MOVE_CHUNK / row_bytes;
    p->tasks = ceil_div(p->rows, p->rows_per_task);
    op_unit_tasks(step, 0, p->rows, p->rows_per_task, (double)row_bytes / 8 + 20);
    return ATTNRUN_OK;
}

/* The source of place i along an axis; -1: padding. */
static int64_t source_of(const struct op_padding *p, int axis, int64_t i)
{
    int64_t n = p->n[axis], at = i - p->begin[axis];
    if (at >= 0 && at < n)
        return at + p->first[axis];
    switch (p->mode) {
    case OP_PAD_EDGE:
        at = at < 0 ? 0 : n - 1;
        break;
    case OP_PAD_WRAP:
        at %= n;
        at = at < 0 ? at + n : at;
        break;
    case OP_PAD_REFLECT: /* 2 1 0 1 2 1 0: a period of 2 (n - 1) */
        at = n == 1 ? 0 : at % (2 * (n - 1));
        at = at < 0 ? -at : at;
        at = at >= n ? 2 * (n - 1) - at : at;
        break;
    default:
        return -1;
    }
    return at + p->first[axis];
}

/* memcpy() that polls where it takes long. */
static void copy_units(char *to, const char *from, int64_t bytes)
{
    if (bytes > ATTN_POLL_BYTES)
        (void)attn_poll_copy(to, from, bytes);
    else
        memcpy(to, from, (size_t)bytes);
}

static void pad_units(const struct op_padding *p, char *to, const char *row, int64_t from,
                      int64_t end, const void *value)
{
    int64_t bytes = p->unit_bytes;
    if (p->mode == OP_PAD_CONSTANT) {
        op_move_fill(to + from * bytes, (end - from) * (bytes / p->elem_bytes), value,
                     p->elem_bytes);
        return;
    }
    for (int64_t i = from; i < end && attn_poll_work(bytes + 16) == ATTNRUN_OK; i++)
        copy_units(to + i * bytes, row + source_of(p, p->row_axis, i) * bytes, bytes);
}

static void pad_row(const attnrun_step *step, const struct op_padding *p, int64_t row,
                    const void *value)
{
    int axis = p->row_axis;
    int64_t length = p->dims[axis], at = 0, left = row;
    char *to = (char *)step->y[0].data + row * length * p->unit_bytes;
    for (int i = axis - 1; i >= 0; i--) {
        int64_t source = source_of(p, i, op_take(&left, p->dims[i]));
        if (source < 0) {
            op_move_fill(to, length * (p->unit_bytes / p->elem_bytes), value,
                         p->elem_bytes);
            return;
        }
        at += source * p->strides[i];
    }
    const char *from = (const char *)step->x[0].data + at * p->unit_bytes;
    int64_t begin = p->begin[axis] < length ? p->begin[axis] : length;
    int64_t inner = p->n[axis] < length - begin ? p->n[axis] : length - begin;
    inner = inner < 0 ? 0 : inner;
    pad_units(p, to, from, 0, begin, value);
    copy_units(to + begin * p->unit_bytes, from + p->first[axis] * p->unit_bytes,
               inner * p->unit_bytes);
    pad_units(p, to, from, begin + inner, length, value);
}

attn_status op_padding_run(const attnrun_step *step, const struct op_padding *p,
                           const attnrun_work *work, const void *value)
{
    for (int64_t t = work->begin; t < work->end; t++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        int64_t end = (t + 1) * p->rows_per_task;
        for (int64_t row = t * p->rows_per_task; row < end && row < p->rows; row++)
            pad_row(step, p, row, value);
    }
    return ATTNRUN_OK;
}
