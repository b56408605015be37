/* training.c - the optimizers of ONNX, for tensors that come in groups. The inputs are R (one
 * real: the learning rate), T (one i64: the count of updates), then n tensors of each kind, X1 …
 * Xn, G1 … Gn (gradients), …; outputs likewise. Tensors of one number have the same dims and
 * dtype, f32 or f64.
 *
 *   all       G = norm_coefficient X + G
 *   Adagrad   H' = H + G G;  X' = X - R / (1 + T decay_factor) G / (sqrt H' + epsilon)
 *   Adam      V' = alpha V + (1 - alpha) G;  H' = beta H + (1 - beta) G G
 *             X' = (1 - norm_coefficient_post) (X - r V' / (sqrt H' + epsilon)),
 *             r = R sqrt(1 - beta^T) / (1 - alpha^T) where T > 0, else R
 *   Momentum  V' = alpha V + b G, b = beta where T > 0, else 1
 *             X' = X - R V' (standard), or X - R (G + alpha V') (nesterov)
 *
 * The rows are formulas. The rate is computed in f64, the rest in the type of the tensors. Cost:
 * O(n). Source: ONNX ai.onnx.preview.training Adagrad-1, Adam-1, Momentum-1. */
#include "../../runtime/op.h"

enum { RATE, COUNT, FIRST };

struct training_args {
    float alpha, beta, epsilon, decay_factor, norm_coefficient, norm_coefficient_post;
    int32_t mode; /* 1: nesterov */
};

static const attnrun_attr_def adagrad_attrs[] = {
    ATTR_FLOAT(struct training_args, decay_factor, 0.0f),
    ATTR_FLOAT(struct training_args, epsilon, 1e-6f),
    ATTR_FLOAT(struct training_args, norm_coefficient, 0.0f),
    ATTR_END,
};
static const attnrun_attr_def adam_attrs[] = {
    ATTR_FLOAT(struct training_args, alpha, 0.9f),
    ATTR_FLOAT(struct training_args, beta, 0.999f),
    ATTR_FLOAT(struct training_args, epsilon, 1e-6f),
    ATTR_FLOAT(struct training_args, norm_coefficient, 0.0f),
    ATTR_FLOAT(struct training_args, norm_coefficient_post, 0.0f),
    ATTR_END,
};
static const attnrun_attr_def momentum_attrs[] = {
    ATTR_FLOAT(struct training_args, alpha, 0.0f),
    ATTR_FLOAT(struct training_args, beta, 0.0f),
    ATTR_FLOAT(struct training_args, norm_coefficient, 0.0f),
    ATTR_ENUM(struct training_args, mode, "standard|nesterov", 0),
    ATTR_END,
};

/* What an optimizer reads of each tensor; it writes all of them but the gradient. */
enum { MAX_KINDS = 4, X = 0, G = 1 };
struct optimizer {
    int n_kinds;
    const char *in[MAX_KINDS], *out[MAX_KINDS];
    const char *check;     /* the dims of a tensor's companions */
    const char *rate;      /* makes r of R and T, in f64 */
    const char *update[2]; /* by mode */
};

static const struct optimizer adagrad = {
    .n_kinds = 3,
    .in = { "X", "G", "H" },
    .out = { "new_X", NULL, "new_H" },
    .check = "G = attnrun.fused.CheckDims(G, X); H = attnrun.fused.CheckDims(H, X)",
    .rate = "r = R / (1 + T * decay)",
    .update = { "new_H = H + G * G; new_X = X - r * G / (Sqrt(new_H) + epsilon)" },
};
static const struct optimizer adam = {
    .n_kinds = 4,
    .in = { "X", "G", "V", "H" },
    .out = { "new_X", NULL, "new_V", "new_H" },
    .check = "G = attnrun.fused.CheckDims(G, X); V = attnrun.fused.CheckDims(V, X);"
             "H = attnrun.fused.CheckDims(H, X)",
    .rate = "r = R * Where(Greater(T, 0),"
            "Sqrt(1 - Pow(beta, T)) / (1 - Pow(alpha, T)), 1)",
    .update = { "new_V = alpha * V + one_less_alpha * G;"
                "new_H = beta * H + one_less_beta * G * G;"
                "new_X = post * (X - r * new_V / (Sqrt(new_H) + epsilon))" },
};
static const struct optimizer momentum = {
    .n_kinds = 3,
    .in = { "X", "G", "V" },
    .out = { "new_X", NULL, "new_V" },
    .check = "G = attnrun.fused.CheckDims(G, X); V = attnrun.fused.CheckDims(V, X)",
    .rate = "r = R; b = Where(Greater(T, 0), beta, 1)",
    .update = { "new_V = alpha * V + Cast<to=dtype>(b) * G; new_X = X - r * new_V",
                "new_V = alpha * V + Cast<to=dtype>(b) * G;"
                "new_X = X - r * (G + alpha * new_V)" },
};

/* ---- checks ---- */

static attn_status one_element(const attnrun_step *step, int in)
{
    const attnrun_type *type = &step->in[in];
    if (step->concrete && op_count(type, 0, type->rank) != 1)
        return op_fail_input(step, in, ATTNRUN_E_SHAPE, "expected one element");
    return ATTNRUN_OK;
}

/* Input `in` has the dims and dtype of `like`. */
static attn_status training_same_type(const attnrun_step *step, int in, int like)
{
    const attnrun_type *type = &step->in[in], *first = &step->in[like];
    if (type->dtype != first->dtype)
        return op_fail_input(step, in, ATTNRUN_E_DTYPE, "expected %s as in input %d",
                             attnrun_dtype_name(first->dtype), like);
    if (type->rank < 0 || first->rank < 0)
        return ATTNRUN_OK;
    TRY(op_need_rank(step, in, first->rank));
    for (int d = 0; d < first->rank; d++)
        TRY(op_need_dim(step, in, d, first->dims[d], "the dim of what it belongs to"));
    return ATTNRUN_OK;
}

static attn_status training_infer(attnrun_step *step)
{
    const struct optimizer *optimizer = step->node->op->user;
    const int kinds = optimizer->n_kinds, n = (step->n_in - FIRST) / kinds;
    if (n < 1 || n * kinds != step->n_in - FIRST || step->n_out > n * (kinds - 1))
        return op_fail(
            step, ATTNRUN_E_MODEL,
            "it has %s and %s, expected 2 inputs, then %d inputs and %s for each tensor",
            attn_plural(step->n_in, "input"), attn_plural(step->n_out, "output"), kinds,
            attn_plural(kinds - 1, "output"));
    TRY(one_element(step, RATE));
    TRY(one_element(step, COUNT));
    for (int in = FIRST; in < step->n_in; in++) {
        if (!op_has_in(step, in))
            return op_fail(step, ATTNRUN_E_INPUT, "input %d is missing", in);
        TRY(training_same_type(step, in, FIRST + (in - FIRST) % n));
    }
    for (int out = 0; out < step->n_out; out++)
        if (op_has_out(step, out))
            TRY(op_out_like(step, out, FIRST + out % n));
    return ATTNRUN_OK;
}

/* ---- formulas ---- */

static void name_numbers(const struct training_args *args, attnrun_body *body,
                         int32_t dtype)
{
    attnrun_body_dtype(body, dtype);
    attnrun_body_number(body, "alpha", (double)args->alpha);
    attnrun_body_number(body, "beta", (double)args->beta);
    attnrun_body_number(body, "one_less_alpha", 1 - (double)args->alpha);
    attnrun_body_number(body, "one_less_beta", 1 - (double)args->beta);
    attnrun_body_number(body, "epsilon", (double)args->epsilon);
    attnrun_body_number(body, "decay", (double)args->decay_factor);
    attnrun_body_number(body, "norm", (double)args->norm_coefficient);
    attnrun_body_number(body, "post", 1 - (double)args->norm_coefficient_post);
}

/* The update of tensor i of n. */
static attn_status update(const attnrun_step *step, attnrun_body *body, int i, int n)
{
    const struct optimizer *optimizer = step->node->op->user;
    const struct training_args *args = step->args;
    const int64_t dtype = step->in[FIRST + i].dtype;
    name_numbers(args, body, (int32_t)dtype);
    attnrun_body_ints(body, "dtype", 1, &dtype);
    for (int kind = 0, out = 0; kind < optimizer->n_kinds; kind++) {
        attnrun_body_input(body, optimizer->in[kind], FIRST + kind * n + i);
        if (kind != G)
            attnrun_body_output(body, optimizer->out[kind], out++ * n + i);
    }
    TRY(attnrun_body_add(body, optimizer->check));
    TRY(attnrun_body_add(body, "r = Cast<to=dtype>(rate)"));
    if (args->norm_coefficient != 0)
        TRY(attnrun_body_add(body, "G = norm * X + G"));
    return attnrun_body_add(body, optimizer->update[args->mode]);
}

static attn_status training_expand(const attnrun_step *step, attnrun_body *body)
{
    const struct optimizer *optimizer = step->node->op->user;
    const int n = (step->n_in - FIRST) / optimizer->n_kinds;
    name_numbers(step->args, body, ATTNRUN_F64);
    TRY(attnrun_body_add(body, "R = Reshape(Cast<to=11>(R), []);"
                               "T = Reshape(Cast<to=11>(T), [])"));
    TRY(attnrun_body_add(body, optimizer->rate));
    TRY(attnrun_body_add(body, "rate = r"));
    for (int i = 0; i < n; i++)
        TRY(update(step, body, i, n));
    return ATTNRUN_OK;
}

#define TRAINING_ROW(row, onnx_name, optimizer, attributes)                              \
    const attnrun_op_def row = {                                                         \
        OP_ROW_OF("ai.onnx.preview.training"),                                           \
        .name = onnx_name,                                                               \
        .since = 1,                                                                      \
        .inputs = "R:R T:i64 inputs:T*!",                                                \
        .outputs = "outputs:T*!",                                                        \
        .types = "R=f32,f64 T=f32,f64",                                                  \
        .args_bytes = sizeof(struct training_args),                                      \
        .attrs = attributes,                                                             \
        .infer = training_infer,                                                         \
        .expand = training_expand,                                                       \
        .user = (void *)(uintptr_t)&optimizer,                                           \
        .cost = "O(n)",                                                                  \
    }
TRAINING_ROW(op_adagrad_1, "Adagrad", adagrad, adagrad_attrs);
TRAINING_ROW(op_adam_1, "Adam", adam, adam_attrs);
TRAINING_ROW(op_momentum_1, "Momentum", momentum, momentum_attrs);
