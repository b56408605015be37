/* scatter_nd.c - ScatterND: y = x, then y[indices[i]] op= updates[i] for every tuple i.
 *
 * x, y        any type and shape
 * indices     (…, n): tuples of n indices into x's first dims
 * updates     indices' dims without the last, then x's after the first n
 * reduction   none (the last of equal tuples wins), add, mul, max, min
 *
 * Phase 0 checks the indices, phase 1 copies x where y has other memory, and phase 2
 * scatters. Tasks cut the slices, not the tuples, so equal tuples are taken in order.
 * Cost: one copy of x and one of updates. Source: ONNX ScatterND-11, 16, 18. */
#include "combine.h"
#include "tuples.h"

struct scatter_nd_args {
    int32_t reduction;
};
static const attnrun_attr_def scatter_nd_attrs[] = {
    ATTR_ENUM(struct scatter_nd_args, reduction, OP_REDUCTIONS, OP_REDUCE_NONE), ATTR_END
};
struct scatter_nd_state {
    struct op_tuples tuples;
    int64_t segment; /* elements of a slice that one task does */
};

static int32_t reduction_of(const attnrun_step *step)
{
    const struct scatter_nd_args *args = op_move_args(step);
    return args != NULL ? args->reduction : OP_REDUCE_NONE;
}

static attn_status check_updates(const attnrun_step *step, int length)
{
    const attnrun_type *data = &step->in[0], *indices = &step->in[1];
    int lead = indices->rank - 1, rank = lead + data->rank - length;
    TRY(op_need_rank(step, 2, rank));
    if (!op_rank_known(step, 2))
        return ATTNRUN_OK;
    for (int i = 0; i < rank; i++)
        TRY(op_need_dim(step, 2, i,
                        i < lead ? indices->dims[i] : data->dims[i - lead + length],
                        i < lead ? "as in indices" : "as in data"));
    return ATTNRUN_OK;
}

static attn_status scatter_nd_infer(attnrun_step *step)
{
    struct scatter_nd_state *s = step->state;
    int length = 0;
    bool known = false;
    TRY(op_combine_check(step, reduction_of(step)));
    TRY(op_out_like(step, 0, 0));
    attnrun_step_inplace(step, 0, 0);
    TRY(op_tuples_check(step, 0, &known, &length));
    if (known)
        TRY(check_updates(step, length));
    if (!step->concrete || !known)
        return ATTNRUN_OK;
    TRY(op_move_need_bytes(step, 0));
    op_tuples_plan(step, &s->tuples, 0, length);
    int64_t elements = s->tuples.slice_elements, segments = 1;
    if (s->tuples.count <= 0 || elements <= 0) {
        s->tuples.count = 0;
        s->segment = 1;
    } else { /* about 64 K elements a task, but no part below 64 elements */
        s->segment = 65536 / s->tuples.count > 64 ? 65536 / s->tuples.count : 64;
        s->segment = s->segment < elements ? s->segment : elements;
        segments = ceil_div(elements, s->segment);
    }
    int64_t bytes =
        dtype_bytes_of(step->in[0].dtype, op_count(&step->in[0], 0, step->in[0].rank));
    op_unit_tasks(step, 0, s->tuples.count, OP_CHUNK, 4);
    op_move_tasks(step, 1, bytes);
    op_tasks(step, 2, s->tuples.count > 0 ? segments : 0,
             s->tuples.count * (s->segment / 4 + 10));
    return ATTNRUN_OK;
}

/* Elements [from, from + n) of all slices. */
static attn_status scatter_segment(const attnrun_step *step, const attnrun_work *work,
                                   int64_t from, int64_t n)
{
    const struct scatter_nd_state *s = step->state;
    const struct op_tuples *t = &s->tuples;
    op_combine_fn combine = op_combine_find(step->in[0].dtype, reduction_of(step));
    int64_t elem = dtype_bytes(step->in[0].dtype);
    for (int64_t k = 0; k < t->count; k++) {
        if (OP_CANCELLED_AFTER(work, 2 * t->slice_bytes + 16))
            return ATTNRUN_E_CANCELLED;
        char *to = (char *)step->y[0].data +
                   op_tuples_slice(step, t, k) * t->slice_bytes + from * elem;
        const char *x = (const char *)step->x[2].data + k * t->slice_bytes + from * elem;
        if (combine != NULL)
            combine(to, x, n);
        else
            memcpy(to, x, (size_t)(n * elem));
    }
    return ATTNRUN_OK;
}

static attn_status scatter_nd_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct scatter_nd_state *s = step->state;
    if (work->phase == 0) {
        int64_t end = work->end * OP_CHUNK;
        return op_tuples_verify(step, &s->tuples, work->begin * OP_CHUNK,
                                end < s->tuples.count ? end : s->tuples.count);
    }
    if (work->phase == 1) {
        op_move_copy_chunks(step->y[0].data, step->x[0].data, tensor_bytes(&step->x[0]),
                            work->begin, work->end);
        return ATTNRUN_OK;
    }
    for (int64_t t = work->begin; t < work->end; t++) {
        int64_t from = t * s->segment, left = s->tuples.slice_elements - from;
        TRY(scatter_segment(step, work, from, left < s->segment ? left : s->segment));
    }
    return ATTNRUN_OK;
}

#define SCATTER_ND_ROW                                                                   \
    OP_ROW, .name = "ScatterND", .inputs = "data:T indices:i64 updates:T",               \
        .outputs = "output:T", .types = "T=all",                                         \
        .state_bytes = sizeof(struct scatter_nd_state), .infer = scatter_nd_infer,       \
        .run = scatter_nd_run

const attnrun_op_def op_scatter_nd_11 = { SCATTER_ND_ROW, .since = 11 };
const attnrun_op_def op_scatter_nd_16 = { SCATTER_ND_ROW, .since = 16,
                                          .args_bytes = sizeof(struct scatter_nd_args),
                                          .attrs = scatter_nd_attrs };
