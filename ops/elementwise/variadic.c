/* variadic.c - Max, Min, Sum, Mean: y = x0 op x1 op … from left to right.
 *
 * x*  one or more, of any shapes that broadcast as numpy's do (equal before opset 8); Max
 *     and Min take real types, Sum and Mean f32 or f64
 *
 * Max and Min give NaN where any operand is NaN. Mean divides the sum by the number of
 * operands. Cost: one pass over each operand. Source: ONNX Max, Min, Sum, Mean 1 to 13.
 */
#include "binary.h"

#include "../../runtime/tensor.h"

static attn_status variadic_infer(attnrun_step *step)
{
    const struct binary *binary = step->node->op->user;
    if (step->n_in < 1 || !op_has_in(step, 0))
        return op_fail(step, ATTNRUN_E_INPUT, "expected at least one input");
    TRY(attn_binary_need_loop(step));
    TRY(op_elementwise_broadcast(step, 0, step->n_in, step->in[0].dtype));
    op_elementwise_inplace(step, 0);
    if (step->n_in == 2 && binary->known != NULL && binary != &attn_binary_add)
        op_elementwise_known(step, 0, 1, binary->known);
    elementwise_tasks(step, step->n_in * binary->cost);
    return ATTNRUN_OK;
}

/* Elements [begin, end) of x, broadcast, to y. */
static void copy_range(const attnrun_tensor *y, const attnrun_tensor *x, int64_t begin,
                       int64_t end)
{
    struct nd_iter it;
    int64_t size = dtype_bytes(y->dtype);
    attn_nd_iter_init(&it, y->rank, y->dims);
    attn_nd_iter_add(&it, y);
    attn_nd_iter_add(&it, x);
    attn_nd_iter_start(&it, begin, end);
    while (attn_nd_iter_next(&it)) {
        if (it.step[1] == size) {
            memmove(it.p[0], it.p[1], (size_t)(it.n * size));
            continue;
        }
        for (int64_t i = 0; i < it.n; i++)
            memcpy(it.p[0] + i * size, it.p[1] + i * it.step[1], (size_t)size);
    }
}

static void variadic_range(const attnrun_step *step, int64_t begin, int64_t end)
{
    const struct binary *binary = step->node->op->user;
    const attnrun_tensor *y = &step->y[0];
    if (step->n_in == 1) {
        if (y->data != step->x[0].data)
            copy_range(y, &step->x[0], begin, end);
        return;
    }
    attn_binary_apply(binary, step->kernels, NULL, y, &step->x[0], &step->x[1], begin,
                      end);
    for (int i = 2; i < step->n_in; i++)
        attn_binary_apply(binary, step->kernels, NULL, y, y, &step->x[i], begin, end);
}

static attn_status variadic_run(const attnrun_step *step, const attnrun_work *work)
{
    int64_t begin, end;
    if (step->y[0].data == NULL)
        return ATTNRUN_OK;
    elementwise_range(work, tensor_count(&step->y[0]), &begin, &end);
    for (int64_t k = begin; k < end; k += OP_CHUNK) {
        variadic_range(step, k, end - k < OP_CHUNK ? end : k + OP_CHUNK);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

static attn_status mean_run(const attnrun_step *step, const attnrun_work *work)
{
    const attnrun_tensor *y = &step->y[0];
    const float n32 = (float)step->n_in;
    const double n64 = (double)step->n_in;
    attnrun_tensor n = { .kind = ATTNRUN_TENSOR, .dtype = y->dtype };
    int64_t begin, end;
    TRY(variadic_run(step, work));
    if (y->data == NULL)
        return ATTNRUN_OK;
    n.data = y->dtype == ATTNRUN_F32 ? (void *)&n32 : (void *)&n64;
    elementwise_range(work, tensor_count(y), &begin, &end);
    attn_binary_apply(&attn_binary_div, step->kernels, NULL, y, y, &n, begin, end);
    return ATTNRUN_OK;
}

#define OLD ATTR_IGNORED("consumed_inputs")
static const attnrun_attr_def variadic_attrs[] = { OLD, ATTR_END };
#define VARIADIC(row, Name, group_types, loops, run_function)                            \
    const attnrun_op_def row = {                                                         \
        OP_ROW,                                                                          \
        .name = Name,                                                                    \
        .since = 1,                                                                      \
        .inputs = "x:T*",                                                                \
        .outputs = "y:T",                                                                \
        .types = "T=" group_types,                                                       \
        .attrs = variadic_attrs,                                                         \
        .infer = variadic_infer,                                                         \
        .run = run_function,                                                             \
        .user = (void *)&(loops),                                                        \
    };
VARIADIC(op_max_1, "Max", TYPES_NUM, attn_binary_max, variadic_run)
VARIADIC(op_min_1, "Min", TYPES_NUM, attn_binary_min, variadic_run)
VARIADIC(op_sum_1, "Sum", TYPES_FLT, attn_binary_add, variadic_run)
VARIADIC(op_mean_1, "Mean", TYPES_FLT, attn_binary_add, mean_run)
