/* where.c - Where: y = condition ? a : b, element by element with numpy broadcasting.
 *
 * condition  b8
 * a, b       of any one dtype of whole bytes
 * y          of that dtype, the broadcast shape
 *
 * Cost: one pass. Source: ONNX Where-9, 16. */
#include "elementwise.h"

#include "../../runtime/tensor.h"

static attnrun_dim pick(const attnrun_step *step, attnrun_dim a, attnrun_dim b)
{
    (void)step;
    return dim_equal(a, b) ? a : (attnrun_dim){ .expr = ATTN_DIM_UNKNOWN };
}

/* Element k of input `in`, of which all or one are known. */
static bool known_at(const attnrun_step *step, int in, int64_t k, attnrun_dim *value)
{
    const attnrun_type *type = &step->in[in];
    int64_t n =
        type->rank == 0 || (type->rank == 1 && dim_is(type->dims[0], 1)) ? 1 : k + 1;
    if (in == 0 && op_known(step, 0)) {
        if (n > tensor_count(&step->x[0]))
            return false;
        *value = dim_of(tensor_get_int(&step->x[0], n - 1));
        return true;
    }
    return op_peek_value(step, in, n - 1, value);
}

/* Small integers, so that chains of shapes stay known. */
static void where_known(attnrun_step *step)
{
    const attnrun_type *y = &step->out[0];
    attnrun_dim values[64], condition, chosen;
    if ((y->dtype != ATTNRUN_I64 && y->dtype != ATTNRUN_I32) || y->rank < 0 ||
        y->rank > 1 ||
        (y->rank == 1 && (!dim_is_const(y->dims[0]) || y->dims[0].value > 64)))
        return;
    int64_t n = y->rank == 0 ? 1 : y->dims[0].value;
    for (int64_t k = 0; k < n; k++) {
        if (known_at(step, 0, k, &condition) && dim_is_const(condition)) {
            if (!known_at(step, condition.value ? 1 : 2, k, &values[k]))
                return;
            continue;
        }
        if (!known_at(step, 1, k, &values[k]) || !known_at(step, 2, k, &chosen))
            return;
        values[k] = pick(step, values[k], chosen);
        if (values[k].expr < 0)
            return;
    }
    attnrun_step_set_values(step, 0, n, values);
}

static attn_status where_infer(attnrun_step *step)
{
    if (dtype_bits(step->in[1].dtype) < 8)
        return op_fail_input(step, 1, ATTNRUN_E_UNSUPPORTED,
                             "expected elements of whole bytes");
    TRY(op_elementwise_broadcast(step, 0, 3, step->in[1].dtype));
    op_elementwise_inplace(step, 2);
    op_elementwise_inplace(step, 1);
    where_known(step);
    elementwise_tasks(step, 300);
    return ATTNRUN_OK;
}

struct bytes16 {
    uint64_t low, high;
};
/* p[0] = p[1] ? p[2] : p[3]; the first branch has the strides that models have. */
#define WHERE_LOOP(name, type)                                                           \
    static void name(const attnrun_step *step, const struct nd_iter *it,                 \
                     const void *arg)                                                    \
    {                                                                                    \
        (void)step, (void)arg;                                                           \
        type *y = (type *)(void *)it->p[0];                                              \
        const uint8_t *c = (const uint8_t *)it->p[1];                                    \
        const char *a = it->p[2], *b = it->p[3];                                         \
        int64_t c_step = it->step[1], a_step = it->step[2], b_step = it->step[3];        \
        if (c_step == 1 && a_step == sizeof(type) && b_step == sizeof(type)) {           \
            for (int64_t i = 0; i < it->n; i++)                                          \
                y[i] = c[i] ? ((const type *)(const void *)a)[i]                         \
                            : ((const type *)(const void *)b)[i];                        \
            return;                                                                      \
        }                                                                                \
        for (int64_t i = 0; i < it->n; i++)                                              \
            y[i] = *(const type *)(const void *)(c[i * c_step] ? a + i * a_step          \
                                                               : b + i * b_step);        \
    }
WHERE_LOOP(where_1, uint8_t)
WHERE_LOOP(where_2, uint16_t)
WHERE_LOOP(where_8, uint64_t)
WHERE_LOOP(where_16, struct bytes16)

/* Elements of 4 bytes: their bits are moved, whatever their type. */
static void where_words(const attnrun_step *step, const struct nd_iter *it,
                        const void *arg)
{
    (void)arg;
    step->kernels->where_f32((float *)(void *)it->p[0], (const uint8_t *)it->p[1],
                             it->step[1] != 0, (const float *)(void *)it->p[2],
                             it->step[2] != 0, (const float *)(void *)it->p[3],
                             it->step[3] != 0, (size_t)it->n);
}

static elementwise_segment *loop_of(int64_t bytes)
{
    return bytes == 1   ? where_1
           : bytes == 2 ? where_2
           : bytes == 4 ? where_words
           : bytes == 8 ? where_8
                        : where_16;
}

static attn_status where_run(const attnrun_step *step, const attnrun_work *work)
{
    const attnrun_tensor *operands[] = { &step->x[0], &step->x[1], &step->x[2] };
    return op_elementwise_run(step, work, operands, 3,
                              loop_of(dtype_bytes(step->y[0].dtype)), NULL);
}

const attnrun_op_def op_where_9 = {
    OP_ROW,
    .name = "Where",
    .since = 9,
    .inputs = "condition:b8 a:T b:T",
    .outputs = "y:T",
    .types = "T=all",
    .infer = where_infer,
    .run = where_run,
};
