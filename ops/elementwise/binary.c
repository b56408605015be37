/* binary.c - the operators of binary.def: z = f(a, b), element by element.
 *
 * a, b  any shapes that broadcast as numpy's do; z has the broadcast shape. binary.def
 *       lists the types
 *
 * In opset 1 and 6, with `broadcast`, b lies over the dims of a from `axis` on (the last
 * ones by default). Where the ranks are known, these forms are formulas over the newest
 * ones, with dims of 1 behind those of b: passes see numpy's broadcasting alone, and no
 * attributes. Integer Div and Mod by zero fail with E_RANGE. f32 uses the kernels of
 * ops/kernels/binary_f32.def where there is one. Cost: one pass. Source: ONNX. */
#include "binary.h"

#include <math.h>
#include <stdio.h>

#define FOR_EACH_FLOAT    1
#define FOR_EACH_SINT     1
#define FOR_EACH_UINT     1
#define FOR_EACH_BOOL     1
#define FOR_EACH_TEMPLATE "elementwise/binary_template.h"
#include "../for_each_dtype.h"

static void equal_strings(void *to, const char *pa, int64_t a_step, const char *pb,
                          int64_t b_step, int64_t n, const struct binary_args *args)
{
    uint8_t *z = to;
    (void)args;
    for (int64_t i = 0; i < n; i++) {
        const attnrun_string *a = (const void *)(pa + i * a_step);
        const attnrun_string *b = (const void *)(pb + i * b_step);
        z[i] = a->n == b->n && (a->n == 0 || memcmp(a->data, b->data, (size_t)a->n) == 0);
    }
}

/* ---- integers known at load ---- */

static const attnrun_dim unknown = { .expr = ATTN_DIM_UNKNOWN };

/* Not negative, whatever the symbols are. */
static bool is_size(const attnrun_step *step, attnrun_dim a)
{
    return dim_equal(attnrun_dim_max(step, a, dim_of(0)), a);
}

static attnrun_dim known_div(const attnrun_step *step, attnrun_dim a, attnrun_dim b)
{
    if (dim_is(b, 0) || dim_is(b, -1))
        return unknown;
    if (dim_is_const(a) && dim_is_const(b))
        return dim_of(a.value / b.value);
    if (!is_size(step, b))
        return unknown;
    if (is_size(step, a))
        return attnrun_dim_div(step, a, b);
    /* S - 8 may be negative. It is divided towards zero, while dims are rounded down. */
    const attnrun_dim zero = dim_of(0), minus = attnrun_dim_sub(step, zero, a);
    const attnrun_dim up = attnrun_dim_div(step, attnrun_dim_max(step, a, zero), b);
    const attnrun_dim down = attnrun_dim_max(step, minus, zero);
    return is_size(step,
                   attnrun_dim_sub(step, attnrun_dim_sub(step, b, minus), dim_of(1)))
               ? up
               : attnrun_dim_sub(step, up, attnrun_dim_div(step, down, b));
}

static attnrun_dim known_mod(const attnrun_step *step, attnrun_dim a, attnrun_dim b)
{
    const struct binary_args *args = step->args;
    if (args->fmod || dim_is(b, 0) || dim_is(b, -1))
        return unknown;
    attnrun_dim whole = attnrun_dim_mul(step, attnrun_dim_div(step, a, b), b);
    return attnrun_dim_sub(step, a, whole);
}

/* Expressions of sizes are often known to differ: S == -1 is false. */
static attnrun_dim known_equal(const attnrun_step *step, attnrun_dim a, attnrun_dim b)
{
    if (dim_equal(a, b))
        return dim_of(1);
    if (dim_is_const(a) && dim_is_const(b))
        return dim_of(0);
    attnrun_dim above = attnrun_dim_add(step, b, dim_of(1));
    attnrun_dim below = attnrun_dim_sub(step, b, dim_of(1));
    if (dim_equal(attnrun_dim_min(step, a, above), above) ||
        dim_equal(attnrun_dim_max(step, a, below), below))
        return dim_of(0);
    return unknown;
}

#define KNOWN(name, f)                                                                   \
    static attnrun_dim known_##name(const attnrun_step *step, attnrun_dim x,             \
                                    attnrun_dim y)                                       \
    {                                                                                    \
        int64_t a = x.value, b = y.value;                                                \
        (void)step;                                                                      \
        return dim_is_const(x) && dim_is_const(y) ? dim_of(f) : unknown;                 \
    }
KNOWN(and, a &&b)
KNOWN(or, a || b)
KNOWN(xor, !a != !b)
KNOWN(greater, a > b)
KNOWN(greater_or_equal, a >= b)
KNOWN(less, a < b)
KNOWN(less_or_equal, a <= b)

/* ---- infer ---- */

attn_status attn_binary_need_loop(const attnrun_step *step)
{
    const struct binary *binary = step->node->op->user;
    int32_t dtype = step->in[0].dtype;
    return op_need_loop(step, 0,
                        binary->loops[dtype] != NULL ||
                            (dtype == ATTNRUN_F32 && binary->kernel != 0));
}

static attn_status finish_infer(attnrun_step *step)
{
    const struct binary *binary = step->node->op->user;
    TRY(attn_binary_need_loop(step));
    op_elementwise_inplace(step, 1);
    op_elementwise_inplace(step, 0);
    if (binary->known != NULL)
        op_elementwise_known(step, 0, 1, binary->known);
    elementwise_tasks(step, binary->cost);
    return ATTNRUN_OK;
}

static attn_status binary_infer(attnrun_step *step)
{
    const struct binary *binary = step->node->op->user;
    TRY(op_elementwise_broadcast(step, 0, 2,
                                 binary->to_bool ? ATTNRUN_BOOL : step->in[0].dtype));
    return finish_infer(step);
}

/* The dim of a where that of b starts, in the old forms. */
static attn_status old_axis(const attnrun_step *step, int *axis)
{
    const struct binary_args *args = step->args;
    int rank_a = step->in[0].rank, rank_b = step->in[1].rank;
    if (rank_b > rank_a)
        return op_fail_input(step, 1, ATTNRUN_E_SHAPE, "expected at most rank %d",
                             rank_a);
    if (strcmp(step->node->op_type, "PRelu") == 0)
        *axis = rank_b == 1 && rank_a > 1 ? 1 : rank_a - rank_b;
    else if (args->axis == OP_INT_ABSENT)
        *axis = rank_a - rank_b;
    else
        TRY(op_axis(step, args->axis, rank_a, args->axis >= 0, axis));
    if (*axis + rank_b > rank_a)
        return op_fail_input(step, 1, ATTNRUN_E_SHAPE,
                             "expected at most rank %d, behind axis %d of rank %d",
                             rank_a - *axis, *axis, rank_a);
    return ATTNRUN_OK;
}

attn_status attn_binary_old_infer(attnrun_step *step, int32_t dtype, int32_t *append)
{
    const attnrun_type *a = &step->in[0], *b = &step->in[1];
    int axis = 0;
    *append = 0;
    if (a->rank < 0 || b->rank < 0)
        return op_out(step, 0, dtype, a->rank, a->dims);
    TRY(old_axis(step, &axis));
    for (int d = 0; d < b->rank; d++)
        if (!dim_is(b->dims[d], 1) && !dim_may_equal(b->dims[d], a->dims[axis + d]))
            return op_fail_input(step, 1, ATTNRUN_E_SHAPE, "expected %lld in dim %d",
                                 (long long)a->dims[axis + d].value, d);
    *append = a->rank - axis - b->rank;
    return op_out(step, 0, dtype, a->rank, a->dims);
}

attn_status attn_binary_old_expand(const attnrun_step *step, attnrun_body *body)
{
    const struct binary_state *state = step->state;
    int64_t axes[ATTNRUN_MAX_RANK];
    char formula[64];
    if (step->in[0].rank < 0 || step->in[1].rank < 0)
        return ATTNRUN_OK;
    for (int32_t k = 0; k < state->append; k++)
        axes[k] = step->in[1].rank + k;
    snprintf(formula, sizeof formula, "z = %s(a, %s)", step->node->op_type,
             state->append > 0 ? "Unsqueeze(b, axes)" : "b");
    attnrun_body_input(body, "a", 0);
    attnrun_body_input(body, "b", 1);
    attnrun_body_ints(body, "axes", state->append, axes);
    return attnrun_body_add(body, formula);
}

void attn_binary_append(attnrun_tensor *b, int32_t append)
{
    for (; append > 0; append--)
        b->dims[b->rank++] = 1;
}

static attn_status binary_old_infer(attnrun_step *step)
{
    const struct binary *binary = step->node->op->user;
    struct binary_state *state = step->state;
    TRY(attn_binary_old_infer(step, binary->to_bool ? ATTNRUN_BOOL : step->in[0].dtype,
                              &state->append));
    return finish_infer(step);
}

/* ---- run ---- */

static void apply_kernel(const struct nd_iter *it, const struct attn_kernels *kernels,
                         size_t at, bool to_bool)
{
    if (to_bool) {
        void (*compare)(uint8_t *, const float *, size_t, const float *, size_t, size_t);
        elementwise_kernel(kernels, at, &compare, sizeof compare);
        compare((uint8_t *)it->p[0], (const float *)(void *)it->p[1], it->step[1] != 0,
                (const float *)(void *)it->p[2], it->step[2] != 0, (size_t)it->n);
        return;
    }
    void (*kernel)(float *, const float *, size_t, const float *, size_t, size_t);
    elementwise_kernel(kernels, at, &kernel, sizeof kernel);
    kernel((float *)(void *)it->p[0], (const float *)(void *)it->p[1], it->step[1] != 0,
           (const float *)(void *)it->p[2], it->step[2] != 0, (size_t)it->n);
}

void attn_binary_apply(const struct binary *binary, const struct attn_kernels *kernels,
                       const struct binary_args *args, const attnrun_tensor *z,
                       const attnrun_tensor *a, const attnrun_tensor *b, int64_t begin,
                       int64_t end)
{
    struct nd_iter it;
    attn_nd_iter_init(&it, z->rank, z->dims);
    attn_nd_iter_add(&it, z);
    attn_nd_iter_add(&it, a);
    attn_nd_iter_add(&it, b);
    attn_nd_iter_start(&it, begin, end);
    while (attn_nd_iter_next(&it)) {
        if (a->dtype == ATTNRUN_F32 && binary->kernel != 0)
            apply_kernel(&it, kernels, binary->kernel, binary->to_bool);
        else
            binary->loops[a->dtype](it.p[0], it.p[1], it.step[1], it.p[2], it.step[2],
                                    it.n, args);
    }
}

typedef bool any_zero(const char *b, int64_t step, int64_t n);
static any_zero *const any_zero_of[ATTNRUN_DTYPE_COUNT] = { LOOPS_INT(any_zero) };

static bool divides(const struct binary *binary)
{
    return binary == &attn_binary_div || binary == &attn_binary_mod;
}

/* Whether elements [begin, end) of z would be divided by an integer zero. */
static bool divides_by_zero(const attnrun_tensor *z, const attnrun_tensor *b,
                            int64_t begin, int64_t end)
{
    any_zero *find = any_zero_of[b->dtype];
    struct nd_iter it;
    if (find == NULL)
        return false;
    attn_nd_iter_init(&it, z->rank, z->dims);
    attn_nd_iter_add(&it, b);
    attn_nd_iter_start(&it, begin, end);
    while (attn_nd_iter_next(&it))
        if (find(it.p[0], it.step[0], it.step[0] == 0 ? 1 : it.n))
            return true;
    return false;
}

static attn_status binary_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct binary *binary = step->node->op->user;
    const struct binary_state *state = step->state;
    attnrun_tensor b = step->x[1];
    int64_t begin, end;
    if (step->y[0].data == NULL)
        return ATTNRUN_OK;
    attn_binary_append(&b, state->append);
    elementwise_range(work, tensor_count(&step->y[0]), &begin, &end);
    /* Texts may be long. */
    const int64_t each = b.dtype == ATTNRUN_STRING ? 64 : 4 * OP_CHUNK;
    for (int64_t k = begin; k < end; k += each) {
        int64_t to = end - k < each ? end : k + each;
        if (divides(binary) && divides_by_zero(&step->y[0], &b, k, to))
            return op_fail(step, ATTNRUN_E_RANGE,
                           "input 1 holds a zero: division by zero");
        attn_binary_apply(binary, step->kernels, step->args, &step->y[0], &step->x[0], &b,
                          k, to);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

/* ---- rows ---- */

static const attnrun_attr_def old_attrs[] = {
    ATTR_INT(struct binary_args, axis, OP_INT_ABSENT),
    ATTR_FLAG(struct binary_args, broadcast, 0), ATTR_IGNORED("consumed_inputs"), ATTR_END
};
static const attnrun_attr_def mod_attrs[] = { ATTR_FLAG(struct binary_args, fmod, 0),
                                              ATTR_END };
static const attnrun_attr_def bit_shift_attrs[] = { { .name = "direction",
                                                      .kind = ATTNRUN_ATTR_ENUM,
                                                      .flags = ATTNRUN_ATTR_REQUIRED,
                                                      .offset = offsetof(
                                                          struct binary_args, direction),
                                                      .text = "LEFT|RIGHT" },
                                                    ATTR_END };

#define LOOPS_EQ(f)    LOOPS_ALL(f), [ATTNRUN_STRING] = equal_strings
#define TYPES_EQ       TYPES_ALL ",string"
#define LOOPS_K_NUM(f) LOOPS_F64(f), LOOPS_INT(f)
#define LOOPS_K_EQ(f)  LOOPS_K_NUM(f), LOOPS_B8(f), [ATTNRUN_STRING] = equal_strings
#define OUT_SAME       "T"
#define OUT_B8         "b8"
#define IS_SAME        false
#define IS_B8          true
#define BINARY_ROW(snake, Name, first, group_types, z, attributes, infer_function,       \
                   expand_function)                                                      \
    const attnrun_op_def op_##snake##_##first = {                                        \
        OP_ROW,                                                                          \
        .name = #Name,                                                                   \
        .since = first,                                                                  \
        .inputs = "a:T b:T",                                                             \
        .outputs = "z:" z,                                                               \
        .types = "T=" group_types,                                                       \
        .args_bytes = sizeof(struct binary_args),                                        \
        .state_bytes = sizeof(struct binary_state),                                      \
        .attrs = attributes,                                                             \
        .infer = infer_function,                                                         \
        .expand = expand_function,                                                       \
        .run = binary_run,                                                               \
        .user = (void *)&attn_binary_##snake,                                            \
    };
#define BINARY(name, Name, since, group, attrs, out, known, cost, f)                     \
    const struct binary attn_binary_##name = {                                           \
        { LOOPS_##group(name##_loop) }, 0, cost, IS_##out, known                         \
    };                                                                                   \
    BINARY_ROW(name, Name, since, TYPES_##group, OUT_##out, attrs, binary_infer, NULL)
#define BINARY_K(name, Name, since, group, attrs, out, known, cost, f)                   \
    const struct binary attn_binary_##name = {                                           \
        { LOOPS_K_##group(name##_loop) }, KERNEL_AT(name##_f32), cost, IS_##out, known   \
    };                                                                                   \
    BINARY_ROW(name, Name, since, TYPES_##group, OUT_##out, attrs, binary_infer, NULL)
#define BINARY_LOOPS(name, group, known, f)                                              \
    const struct binary attn_binary_##name = {                                           \
        { LOOPS_K_##group(name##_loop) }, KERNEL_AT(name##_f32), 100, false, known       \
    };
#define BINARY_OLD(name, Name, group, out)                                               \
    BINARY_ROW(name, Name, 1, TYPES_##group, OUT_##out, old_attrs, binary_old_infer,     \
               attn_binary_old_expand)
#include "binary.def"
