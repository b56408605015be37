/* top_k.c - TopK: the k largest (smallest) elements along an axis, and their places.
 *
 * X        any real type and shape; values as X with k along the axis, indices i64 of the
 *          same shape
 * K        i64 of one element, an attribute in opset 1; 0 <= k <= the axis
 * axis     -1 by default
 * largest  1 by default. The result is always sorted; lower indices first among equals
 *
 * Cost: O(n log k) a line; scratch 8 k bytes. Source: ONNX TopK-1, 10, 11, 24. */
#include "../elementwise/elementwise.h"
#include "axis_lines.h"

struct top_k_args {
    int64_t axis, largest, sorted, k;
};
static const attnrun_attr_def top_k_1_attrs[] = { ATTR_INT(struct top_k_args, axis, -1),
                                                  ATTR_INT_REQUIRED(struct top_k_args, k),
                                                  ATTR_END };
static const attnrun_attr_def top_k_10_attrs[] = { ATTR_INT(struct top_k_args, axis, -1),
                                                   ATTR_END };
static const attnrun_attr_def top_k_11_attrs[] = {
    ATTR_INT(struct top_k_args, axis, -1), ATTR_FLAG(struct top_k_args, largest, 1),
    ATTR_FLAG(struct top_k_args, sorted, 1), ATTR_END
};
struct top_k_state {
    int32_t axis;
    int64_t k;
};

struct top_k_line {
    const void *x;
    int64_t length, stride; /* elements */
    bool largest;
};
typedef void top_k_fn(const struct top_k_line *line, int64_t k, int64_t *index);
typedef void gather_fn(void *to, const struct top_k_line *line, int64_t k,
                       const int64_t *index);
#define FOR_EACH_FLOAT    1
#define FOR_EACH_SINT     1
#define FOR_EACH_UINT     1
#define FOR_EACH_TEMPLATE "reduce/top_k_template.h"
#include "../for_each_dtype.h"
static top_k_fn *const top_k_of[ATTNRUN_DTYPE_COUNT] = { LOOPS_NUM(top_k) };
static gather_fn *const gather_of[ATTNRUN_DTYPE_COUNT] = { LOOPS_NUM(gather) };

/* k as a constant or symbol; an unknown dim where it is not known yet. */
static attn_status infer_k(attnrun_step *step, attnrun_dim *k)
{
    const struct top_k_args *args = step->args;
    bool known = true;
    int n = 1;
    *k = dim_of(args->k);
    if (step->node->op->since >= 10)
        TRY(op_dims(step, 1, k, 1, &n, &known));
    if (known && n != 1)
        return op_fail_input(step, 1, ATTNRUN_E_SHAPE, "expected one element");
    if (!known)
        *k = attnrun_dim_unknown(step);
    return ATTNRUN_OK;
}

static attn_status plan_lines(attnrun_step *step, int64_t k)
{
    struct top_k_state *state = step->state;
    const attnrun_type *x = &step->in[0];
    int64_t length = x->dims[state->axis].value;
    if (k < 0 || k > length)
        return op_fail(step, ATTNRUN_E_RANGE,
                       "k is %lld, expected 0 to %lld (dim %d of input 0)", (long long)k,
                       (long long)length, state->axis);
    state->k = k;
    int64_t n = length > 0 ? op_count(x, 0, x->rank) / length : 0;
    int64_t per_task = lines_per_task(length);
    if (!ck_mul(k > 0 ? k : 1, (int64_t)sizeof(int64_t), &step->scratch_bytes))
        return op_fail(step, ATTNRUN_E_MEMORY,
                       "k is %lld, and the scratch memory would be over 2^63 - 1 bytes",
                       (long long)k);
    op_tasks(step, 0, ceil_div(n, per_task), per_task * length * 4);
    return ATTNRUN_OK;
}

static attn_status top_k_infer(attnrun_step *step)
{
    const struct top_k_args *args = step->args;
    struct top_k_state *state = step->state;
    const attnrun_type *x = &step->in[0];
    attnrun_dim dims[ATTNRUN_MAX_RANK], k;
    int axis;
    TRY(op_need_loop(step, 0, top_k_of[x->dtype] != NULL && gather_of[x->dtype] != NULL));
    TRY(infer_k(step, &k));
    if (x->rank < 0) {
        TRY(op_out(step, 0, x->dtype, -1, NULL));
        return op_out(step, 1, ATTNRUN_I64, -1, NULL);
    }
    TRY(op_axis(step, args->axis, x->rank, false, &axis));
    state->axis = axis;
    for (int d = 0; d < x->rank; d++)
        dims[d] = d == axis ? k : x->dims[d];
    if (step->concrete && dim_is_const(k))
        TRY(plan_lines(step, k.value));
    TRY(op_out(step, 0, x->dtype, x->rank, dims));
    return op_out(step, 1, ATTNRUN_I64, x->rank, dims);
}

static attn_status top_k_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct top_k_args *args = step->args;
    const struct top_k_state *state = step->state;
    const attnrun_tensor *x = &step->x[0];
    bool largest = args->largest != 0 || step->node->op->since < 11;
    struct lines lines = lines_along(x, state->axis);
    int64_t per_task = lines_per_task(lines.length), size = dtype_bytes(x->dtype);
    int64_t *index = work->scratch;
    struct lines found = { lines.count, state->k, lines.inner };
    for (int64_t line = work->begin * per_task; line < work->end * per_task; line++) {
        if (line >= lines.count || state->k == 0)
            break;
        struct top_k_line of = { (const char *)x->data + lines_start(&lines, line) * size,
                                 lines.length, lines.inner, largest };
        int64_t at = lines_start(&found, line);
        top_k_of[x->dtype](&of, state->k, index);
        if (op_has_out(step, 0) && step->y[0].data != NULL)
            gather_of[x->dtype]((char *)step->y[0].data + at * size, &of, state->k,
                                index);
        if (op_has_out(step, 1) && step->y[1].data != NULL)
            for (int64_t i = 0; i < state->k; i++)
                ((int64_t *)step->y[1].data)[at + i * lines.inner] = index[i];
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

#define TOP_K_ROW                                                                        \
    OP_ROW, .name = "TopK", .outputs = "values:T indices:i64", .types = "T=" TYPES_NUM,  \
        .args_bytes = sizeof(struct top_k_args),                                         \
        .state_bytes = sizeof(struct top_k_state), .infer = top_k_infer,                 \
        .run = top_k_run
const attnrun_op_def op_top_k_1 = { TOP_K_ROW, .since = 1, .inputs = "x:T",
                                    .attrs = top_k_1_attrs };
const attnrun_op_def op_top_k_10 = { TOP_K_ROW, .since = 10, .inputs = "x:T k:i64",
                                     .attrs = top_k_10_attrs };
const attnrun_op_def op_top_k_11 = { TOP_K_ROW, .since = 11, .inputs = "x:T k:i64",
                                     .attrs = top_k_11_attrs };
