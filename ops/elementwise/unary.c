/* unary.c - the operators of unary.def: y = f(x), any shape, where f is applied to each
 * element. unary.def lists the types.
 *
 * f32 uses the kernels of ops/kernels/unary_f32.def where there is one; other types use
 * plain loops. Cost: one pass. Source: ONNX, and com.microsoft Gelu and QuickGelu. */
#include <math.h>

#include "convert_dtypes.h"
#include "elementwise.h"

struct unary_args {
    union {
        float p[2]; /* what kernels see */
        struct {
            union {
                float alpha, lambd;
            };
            union {
                float beta, gamma, bias;
            };
        };
    };
    int32_t approximate; /* Gelu: 1 the tanh form */
};

typedef void unary_loop(void *y, const void *x, int64_t n, const struct unary_args *args);
typedef void unary_kernel(float *y, const float *x, size_t n, const float *p);

struct unary {
    unary_loop *loops[ATTNRUN_DTYPE_COUNT];
    size_t kernel; /* KERNEL_AT() of f32, or 0 */
    int64_t cost;  /* nanoseconds per 1000 elements */
};

#define FOR_EACH_FLOAT    1
#define FOR_EACH_SINT     1
#define FOR_EACH_UINT     1
#define FOR_EACH_BOOL     1
#define FOR_EACH_TEMPLATE "elementwise/unary_template.h"
#include "../for_each_dtype.h"

#define ALPHA(value) ATTR_FLOAT(struct unary_args, alpha, value)
#define OLD          ATTR_IGNORED("consumed_inputs")
typedef const attnrun_attr_def unary_attrs;
static unary_attrs none_attrs[] = { OLD, ATTR_END };
static unary_attrs celu_attrs[] = { ALPHA(1.0f), ATTR_END };
static unary_attrs elu_attrs[] = { ALPHA(1.0f), OLD, ATTR_END };
static unary_attrs leaky_relu_attrs[] = { ALPHA(0.01f), OLD, ATTR_END };
static unary_attrs thresholded_relu_attrs[] = { ALPHA(1.0f), ATTR_END };
static unary_attrs swish_attrs[] = { ALPHA(1.0f), ATTR_END };
static unary_attrs quick_gelu_attrs[] = { ALPHA(1.702f), ATTR_END };
static unary_attrs hard_sigmoid_attrs[] = { ALPHA(0.2f),
                                            ATTR_FLOAT(struct unary_args, beta, 0.5f),
                                            OLD, ATTR_END };
static unary_attrs selu_attrs[] = {
    ALPHA(1.67326319217681884765625f),
    ATTR_FLOAT(struct unary_args, gamma, 1.05070102214813232421875f), ATTR_END
};
static unary_attrs selu_1_attrs[] = { ALPHA(1.6732f),
                                      ATTR_FLOAT(struct unary_args, gamma, 1.0507f), OLD,
                                      ATTR_END };
static unary_attrs shrink_attrs[] = { ATTR_FLOAT(struct unary_args, bias, 0.0f),
                                      ATTR_FLOAT(struct unary_args, lambd, 0.5f),
                                      ATTR_END };
static unary_attrs gelu_attrs[] = {
    ATTR_ENUM(struct unary_args, approximate, "none|tanh", 0), ATTR_END
};

/* The two that chains of shapes use. */
static const struct unary *const unary_of_neg, *const unary_of_not;

static attnrun_dim known_neg(const attnrun_step *step, attnrun_dim a, attnrun_dim b)
{
    (void)b;
    return attnrun_dim_sub(step, dim_of(0), a);
}

static attnrun_dim known_not(const attnrun_step *step, attnrun_dim a, attnrun_dim b)
{
    (void)step;
    (void)b;
    return dim_is_const(a) ? dim_of(a.value == 0)
                           : (attnrun_dim){ .expr = ATTN_DIM_UNKNOWN };
}

static attn_status unary_infer(attnrun_step *step)
{
    const struct unary *unary = step->node->op->user;
    int32_t dtype = step->in[0].dtype;
    TRY(op_need_loop(step, 0,
                     unary->loops[dtype] != NULL ||
                         (dtype == ATTNRUN_F32 && unary->kernel != 0)));
    TRY(op_out_like(step, 0, 0));
    op_elementwise_inplace(step, 0);
    if (unary == unary_of_neg || unary == unary_of_not)
        op_elementwise_known(step, 0, -1, unary == unary_of_neg ? known_neg : known_not);
    elementwise_tasks(step, unary->cost);
    return ATTNRUN_OK;
}

static attn_status unary_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct unary *unary = step->node->op->user;
    const struct unary_args *args = step->args;
    const attnrun_tensor *x = &step->x[0];
    int64_t size = dtype_bytes(x->dtype), begin, end;
    size_t at = args->approximate ? KERNEL_AT(gelu_tanh_f32) : unary->kernel;
    elementwise_range(work, tensor_count(x), &begin, &end);
    for (int64_t k = begin; k < end; k += OP_CHUNK) {
        int64_t n = end - k < OP_CHUNK ? end - k : OP_CHUNK;
        char *to = (char *)step->y[0].data + k * size;
        const char *from = (const char *)x->data + k * size;
        if (x->dtype == ATTNRUN_F32 && at != 0) {
            unary_kernel *kernel;
            elementwise_kernel(step->kernels, at, &kernel, sizeof kernel);
            kernel((float *)(void *)to, (const float *)(const void *)from, (size_t)n,
                   args->p);
        } else {
            unary->loops[x->dtype](to, from, n, args);
        }
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
    }
    return ATTNRUN_OK;
}

#define UNARY_ROW(object, row, op_domain, Name, first, group_types, attributes)          \
    const attnrun_op_def row = {                                                         \
        OP_ROW_OF(op_domain),                                                            \
        .name = (Name),                                                                  \
        .since = (first),                                                                \
        .inputs = "x:T",                                                                 \
        .outputs = "y:T",                                                                \
        .types = "T=" group_types,                                                       \
        .args_bytes = sizeof(struct unary_args),                                         \
        .attrs = (attributes),                                                           \
        .infer = unary_infer,                                                            \
        .run = unary_run,                                                                \
        .user = (void *)&(object),                                                       \
    };

/* The kernel is f32's loop: the table of a UNARY_K row has none. */
#define LOOPS_K_FLT(f) LOOPS_F64(f)
#define LOOPS_K_SGN(f) LOOPS_F64(f), LOOPS_SINT(f)
#define LOOPS_K_NUM(f) LOOPS_F64(f), LOOPS_INT(f)
#define UNARY(name, Name, since, group, attributes, cost, f)                             \
    static const struct unary unary_##name = { { LOOPS_##group(name##_loop) },           \
                                               0,                                        \
                                               cost };                                   \
    UNARY_ROW(unary_##name, op_##name##_##since, "", #Name, since, TYPES_##group,        \
              attributes)
#define UNARY_K(name, Name, since, group, attributes, cost, f)                           \
    static const struct unary unary_##name = { { LOOPS_K_##group(name##_loop) },         \
                                               KERNEL_AT(name##_f32),                    \
                                               cost };                                   \
    UNARY_ROW(unary_##name, op_##name##_##since, "", #Name, since, TYPES_##group,        \
              attributes)
#include "unary.def"
#undef UNARY
#undef UNARY_K

static const struct unary *const unary_of_neg = &unary_neg;
static const struct unary *const unary_of_not = &unary_not;

UNARY_ROW(unary_selu, op_selu_1, "", "Selu", 1, TYPES_FLT, selu_1_attrs)
UNARY_ROW(unary_gelu, op_microsoft_gelu_1, "com.microsoft", "Gelu", 1, TYPES_FLT, NULL)
UNARY_ROW(unary_swish, op_microsoft_quick_gelu_1, "com.microsoft", "QuickGelu", 1,
          TYPES_FLT, quick_gelu_attrs)
