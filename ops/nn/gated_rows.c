/* gated_rows.c - com.microsoft GatedRMSNorm, GatedAdd and LinearAttentionGate: what the
 * layers of gated linear attention do with rows between their products.
 *
 * GatedRMSNorm         Y = X / sqrt(mean(X^2) + epsilon) * scale * act(gate): X, gate, Y (…, n C),
 *                      scale (C); each C elements by themselves; act: silu = swish, sigmoid
 * GatedAdd             output = X + Y * gate: X, Y, output (…, C), gate (…, 1). With gate_weight
 *                      (K, 1) and gate (…, K) the factor is sigmoid(gate . gate_weight); ONNX
 *                      Runtime has this for bf16 alone, and so the sum, the sigmoid and the
 *                      product with Y are rounded to bf16
 * LinearAttentionGate  decay = decay_scale * softplus(a + dt_bias), beta = sigmoid(b): a, b,
 *                      decay, beta (…, H), dt_bias, decay_scale (H)
 * Source: ONNX Runtime contrib operators; compared with onnxruntime 1.32.0. */
#include "lines.h"

enum { X, SECOND, THIRD, FOURTH };
static const float no_parameters[2] = { 1.0f, 0.0f };

/* Input `in` has the dims of input 0, up to but not including axis rank - short. */
static attn_status check_like(const attnrun_step *step, int in, int shorter)
{
    const attnrun_type *x = &step->in[X];
    if (!op_has_in(step, in) || x->rank < 0 || !op_rank_known(step, in))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, in, x->rank));
    for (int i = 0; i < x->rank - shorter; i++)
        TRY(op_need_dim(step, in, i, x->dims[i], "as in input 0"));
    return ATTNRUN_OK;
}

/* Input `in` has one dim, that of the rows. */
static attn_status check_row(const attnrun_step *step, int in)
{
    const attnrun_type *x = &step->in[X];
    TRY(op_need_rank(step, in, 1));
    return x->rank < 1 ? ATTNRUN_OK
                       : op_need_dim(step, in, 0, x->dims[x->rank - 1], "a row's length");
}

static attn_status plan_rows(attnrun_step *step, struct lines *lines)
{
    const attnrun_type *x = &step->in[X];
    if (!step->concrete)
        return ATTNRUN_OK;
    TRY(attn_lines_plan(step, lines, x, x->rank - 1, x->rank, 0.6));
    step->scratch_bytes = lines->length * 4;
    return ATTNRUN_OK;
}

static attn_status
each_row(const attnrun_step *step, const attnrun_work *work, const struct lines *lines,
         void (*row_fn)(const attnrun_step *step, int64_t row, int64_t n, float *scratch))
{
    for (int64_t task = work->begin; task < work->end; task++) {
        const struct lines_of_task t = attn_lines_of(lines, task);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        for (int64_t row = t.index; row < t.index + t.n; row++)
            row_fn(step, row, lines->length, work->scratch);
    }
    return ATTNRUN_OK;
}

static const float *row_of(const attnrun_step *step, int in, int64_t row, int64_t n)
{
    return (const float *)step->x[in].data + row * n;
}

/* ---- GatedRMSNorm ---- */

struct norm_args {
    float epsilon;
    int32_t activation;
};
enum { NORM_SILU, NORM_SWISH, NORM_SIGMOID };
static const attnrun_attr_def norm_attrs[] = {
    ATTR_FLOAT(struct norm_args, epsilon, 1e-5f),
    ATTR_ENUM(struct norm_args, activation, "silu|swish|sigmoid", NORM_SILU), ATTR_END
};

static attn_status norm_infer(attnrun_step *step)
{
    const attnrun_type *x = &step->in[X], *scale = &step->in[SECOND];
    TRY(op_need_rank_between(step, X, 1, ATTNRUN_MAX_RANK));
    TRY(op_need_rank(step, SECOND, 1));
    TRY(check_like(step, THIRD, 0));
    TRY(op_out_like(step, 0, X));
    if (step->concrete &&
        (scale->dims[0].value < 1 || x->dims[x->rank - 1].value % scale->dims[0].value))
        return op_fail_input(step, X, ATTNRUN_E_SHAPE,
                             "its last dim is no multiple of %lld, the scale's",
                             (long long)scale->dims[0].value);
    return plan_rows(step, step->state);
}

static void norm_row(const attnrun_step *step, int64_t row, int64_t n, float *scratch)
{
    const struct norm_args *args = step->args;
    const int64_t part = step->x[SECOND].dims[0];
    const float *x = row_of(step, X, row, n), *gate = row_of(step, THIRD, row, n);
    float *y = (float *)step->y[0].data + row * n, inverse;
    if (args->activation == NORM_SIGMOID)
        step->kernels->sigmoid_f32(scratch, gate, (size_t)n, no_parameters);
    else
        step->kernels->swish_f32(scratch, gate, (size_t)n, no_parameters);
    for (int64_t i = 0; i < n; i += part)
        step->kernels->rms_norm_f32(y + i, x + i, step->x[SECOND].data, (size_t)part,
                                    args->epsilon, &inverse);
    step->kernels->mul_f32(y, y, 1, scratch, 1, (size_t)n);
}

static attn_status norm_run(const attnrun_step *step, const attnrun_work *work)
{
    return each_row(step, work, step->state, norm_row);
}

const attnrun_op_def op_gated_rms_norm_1 = {
    .struct_size = sizeof(attnrun_op_def),
    .domain = "com.microsoft",
    .name = "GatedRMSNorm",
    .since = 1,
    .inputs = "X:T scale:T gate:T",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct norm_args),
    .state_bytes = sizeof(struct lines),
    .attrs = norm_attrs,
    .infer = norm_infer,
    .run = norm_run,
    .cost = "O(n)",
    .source = "ONNX Runtime contrib operators",
};

/* ---- GatedAdd ---- */

static attn_status add_infer(attnrun_step *step)
{
    const attnrun_type *x = &step->in[X], *gate = &step->in[THIRD];
    TRY(op_need_rank_between(step, X, 1, ATTNRUN_MAX_RANK));
    TRY(check_like(step, SECOND, 0));
    TRY(check_like(step, THIRD, 1));
    if (op_has_in(step, FOURTH)) {
        TRY(op_need_rank(step, FOURTH, 2));
        TRY(op_need_dim(step, FOURTH, 1, dim_of(1), "one column"));
        if (gate->rank > 0)
            TRY(op_need_dim(step, FOURTH, 0, gate->dims[gate->rank - 1],
                            "the last dim of gate"));
    } else if (gate->rank > 0) {
        TRY(op_need_dim(step, THIRD, gate->rank - 1, dim_of(1), "one number a row"));
    }
    TRY(op_out_like(step, 0, x->rank >= 0 ? X : SECOND));
    return plan_rows(step, step->state);
}

static float as_bf16(const attnrun_step *step, float x)
{
    uint16_t rounded;
    step->kernels->f32_to_bf16(&rounded, &x, 1);
    step->kernels->bf16_to_f32(&x, &rounded, 1);
    return x;
}

/* sigmoid(gate . gate_weight) of a row. */
static float projected(const attnrun_step *step, int64_t row)
{
    const int64_t k = step->x[FOURTH].dims[0];
    const float *gate = row_of(step, THIRD, row, k), *weight = step->x[FOURTH].data;
    float sum = 0;
    for (int64_t i = 0; i < k; i++)
        sum += gate[i] * weight[i];
    sum = as_bf16(step, sum);
    step->kernels->sigmoid_f32(&sum, &sum, 1, no_parameters);
    return as_bf16(step, sum);
}

static void add_row(const attnrun_step *step, int64_t row, int64_t n, float *scratch)
{
    const bool with_weight = op_has_in(step, FOURTH);
    const float gate = with_weight ? projected(step, row) : *row_of(step, THIRD, row, 1);
    float *y = (float *)step->y[0].data + row * n;
    step->kernels->mul_f32(scratch, row_of(step, SECOND, row, n), 1, &gate, 0, (size_t)n);
    for (int64_t i = 0; with_weight && i < n; i++)
        scratch[i] = as_bf16(step, scratch[i]);
    step->kernels->add_f32(y, row_of(step, X, row, n), 1, scratch, 1, (size_t)n);
}

static attn_status add_run(const attnrun_step *step, const attnrun_work *work)
{
    return each_row(step, work, step->state, add_row);
}

const attnrun_op_def op_gated_add_1 = {
    .struct_size = sizeof(attnrun_op_def),
    .domain = "com.microsoft",
    .name = "GatedAdd",
    .since = 1,
    .inputs = "X:T Y:T gate:T gate_weight:T?",
    .outputs = "output:T",
    .types = "T=f32",
    .state_bytes = sizeof(struct lines),
    .infer = add_infer,
    .run = add_run,
    .cost = "O(n)",
    .source = "ONNX Runtime contrib operators",
};

/* ---- LinearAttentionGate ---- */

enum { DT_BIAS = 1, DECAY_SCALE, B };

static attn_status gate_infer(attnrun_step *step)
{
    TRY(op_need_rank_between(step, X, 1, ATTNRUN_MAX_RANK));
    TRY(check_row(step, DT_BIAS));
    TRY(check_row(step, DECAY_SCALE));
    TRY(check_like(step, B, 0));
    TRY(op_out_like(step, 0, X));
    if (step->n_out > 1) {
        if (!op_has_in(step, B))
            return op_fail(step, ATTNRUN_E_INPUT, "output beta needs input b");
        TRY(op_out_like(step, 1, X));
    }
    return plan_rows(step, step->state);
}

static void gate_row(const attnrun_step *step, int64_t row, int64_t n, float *scratch)
{
    const struct attn_kernels *k = step->kernels;
    const size_t count = (size_t)n;
    if (step->y[0].data != NULL) {
        float *decay = (float *)step->y[0].data + row * n;
        k->add_f32(scratch, row_of(step, X, row, n), 1, step->x[DT_BIAS].data, 1, count);
        k->softplus_f32(scratch, scratch, count, no_parameters);
        k->mul_f32(decay, scratch, 1, step->x[DECAY_SCALE].data, 1, count);
    }
    if (step->n_out > 1 && step->y[1].data != NULL)
        k->sigmoid_f32((float *)step->y[1].data + row * n, row_of(step, B, row, n), count,
                       no_parameters);
}

static attn_status gate_run(const attnrun_step *step, const attnrun_work *work)
{
    return each_row(step, work, step->state, gate_row);
}

const attnrun_op_def op_linear_attention_gate_1 = {
    .struct_size = sizeof(attnrun_op_def),
    .domain = "com.microsoft",
    .name = "LinearAttentionGate",
    .since = 1,
    .inputs = "a:T dt_bias:TF decay_scale:TF b:T?",
    .outputs = "decay:T? beta:T?",
    .types = "T=f32 TF=f32",
    .state_bytes = sizeof(struct lines),
    .infer = gate_infer,
    .run = gate_run,
    .cost = "O(n)",
    .source = "ONNX Runtime contrib operators",
};
