/* scales.c - scales and zero points of elements. scales.h has the interface. */
#include "scales.h"

static attn_status blocked(const attnrun_step *step, int axis, int64_t block_size,
                           struct scales *s)
{
    const attnrun_type *x = &step->in[0], *scale = &step->in[1];
    TRY(op_need_rank(step, 1, x->rank));
    for (int d = 0; d < x->rank; d++) {
        int64_t size = x->dims[d].value;
        if (d == axis)
            size = ceil_div(size, block_size);
        TRY(op_need_dim(step, 1, d, dim_of(size), d == axis ? "blocks" : "as x"));
    }
    s->block = block_size;
    s->n_along = scale->dims[axis].value;
    s->has_inner = s->inner > 1;
    s->per_outer = 1;
    return ATTNRUN_OK;
}

static attn_status same_dims(const attnrun_step *step)
{
    const attnrun_type *scale = &step->in[1], *zero = &step->in[2];
    if (!op_has_in(step, 2))
        return ATTNRUN_OK;
    int64_t n = op_count(scale, 0, scale->rank);
    bool same =
        zero->rank == scale->rank || (n == 1 && op_count(zero, 0, zero->rank) == 1);
    for (int d = 0; same && zero->rank == scale->rank && d < scale->rank; d++)
        same = scale->dims[d].value == zero->dims[d].value;
    if (!same)
        return op_fail_input(step, 2, ATTNRUN_E_SHAPE, "expected the shape of the scale");
    return ATTNRUN_OK;
}

attn_status attn_scales_infer(const attnrun_step *step, int64_t axis, int64_t block_size,
                              struct scales *s)
{
    const attnrun_type *x = &step->in[0], *scale = &step->in[1];
    int at;
    *s = (struct scales){ .length = 1, .inner = 1, .block = 1, .n_along = 1 };
    TRY(same_dims(step));
    if (block_size < 0)
        return op_fail(step, ATTNRUN_E_ATTR, "'block_size' is %lld, expected 0 or more",
                       (long long)block_size);
    int64_t n = op_count(scale, 0, scale->rank);
    if (block_size == 0 && scale->rank <= 1 && n == 1) {
        s->inner = op_count(x, 0, x->rank);
        s->inner = s->inner > 0 ? s->inner : 1;
        return ATTNRUN_OK;
    }
    TRY(op_axis(step, axis, x->rank, false, &at));
    int64_t inner = op_count(x, at + 1, x->rank);
    s->length = x->dims[at].value > 0 ? x->dims[at].value : 1;
    s->inner = inner > 0 ? inner : 1;
    if (block_size > 0)
        return blocked(step, at, block_size, s);
    TRY(op_need_vector(step, 1, x->dims[at], "one scale per index along the axis"));
    s->n_along = s->length;
    return ATTNRUN_OK;
}
