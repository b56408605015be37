/* gated_rows.c - com.microsoft GatedRMSNorm, GatedAdd and LinearAttentionGate: what the layers of
 * gated linear attention do with rows between their products. All tensors are f32.
 *
 * GatedRMSNorm         Y = X / sqrt(mean(X^2) + epsilon) * scale * act(gate): X, gate, Y (…, n C),
 *                      scale of C elements in any shape; each group of C elements is normalized
 *                      alone; act: silu = swish, sigmoid
 * GatedAdd             output = X + Y * gate: X, Y, output (…, C), gate (…, 1). With gate_weight
 *                      (K, 1) and gate (…, K) the factor is sigmoid(gate . gate_weight). ONNX
 *                      Runtime has this only for bf16, so the sum, the sigmoid and the product
 *                      with Y are rounded to bf16
 * LinearAttentionGate  decay = decay_scale * softplus(a + dt_bias), beta = sigmoid(b): a, b,
 *                      decay, beta (…, H), dt_bias, decay_scale (H)
 *
 * The rows are formulas. Cost: O(n). Source: ONNX Runtime contrib operators; compared with
 * onnxruntime 1.32.0. */
#include "../../runtime/op.h"

enum { X, SECOND, THIRD, FOURTH };

/* Checks that input `in` has the dims of input 0, but for the last `shorter` ones. */
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

/* Checks that input `in` has one dim, the length of the rows of input 0. */
static attn_status check_row(const attnrun_step *step, int in)
{
    const attnrun_type *x = &step->in[X];
    TRY(op_need_rank(step, in, 1));
    return x->rank < 1 ? ATTNRUN_OK
                       : op_need_dim(step, in, 0, x->dims[x->rank - 1], "a row's length");
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
    TRY(check_like(step, THIRD, 0));
    TRY(op_out_like(step, 0, X));
    if (x->rank < 1 || scale->rank < 0 || !dim_is_const(x->dims[x->rank - 1]))
        return ATTNRUN_OK;
    int64_t part = 1;
    for (int i = 0; i < scale->rank; i++) {
        if (!dim_is_const(scale->dims[i]))
            return ATTNRUN_OK;
        if (!ck_mul(part, scale->dims[i].value, &part))
            part = INT64_MAX;
    }
    if (part < 1 || x->dims[x->rank - 1].value % part)
        return op_fail_input(
            step, X, ATTNRUN_E_SHAPE,
            "expected a multiple of %lld, the size of the scale, in its last dim",
            (long long)part);
    return ATTNRUN_OK;
}

static attn_status norm_expand(const attnrun_step *step, attnrun_body *body)
{
    const struct norm_args *args = step->args;
    attnrun_body_number(body, "epsilon", (double)args->epsilon);
    /* A part that would go on in the next row is an error, also where the length of rows is known
     * only at run. */
    TRY(attnrun_body_add(body,
                         "scale = Reshape(scale, [-1]);"
                         "n = Max(ReduceProd(Shape<end=-1>(X)), [1]);"
                         "parts = Reshape(X, Concat<axis=0>(n, [-1], Shape(scale)));"
                         "parts = RMSNormalization<epsilon=epsilon>(parts, scale);"
                         "rows = Reshape<allowzero=1>(parts, Shape(X));"
                         "gate = attnrun.fused.CheckDims(gate, X)"));
    return attnrun_body_add(body, args->activation == NORM_SIGMOID
                                      ? "Y = rows * Sigmoid(gate)"
                                      : "Y = rows * Swish(gate)");
}

const attnrun_op_def op_gated_rms_norm_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "GatedRMSNorm",
    .since = 1,
    .inputs = "X:T scale:T gate:T",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct norm_args),
    .attrs = norm_attrs,
    .infer = norm_infer,
    .expand = norm_expand,
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
        TRY(op_need_dim(step, THIRD, gate->rank - 1, dim_of(1),
                        "one number for each row"));
    }
    TRY(op_out_like(step, 0, x->rank >= 0 ? X : SECOND));
    return ATTNRUN_OK;
}

static attn_status add_expand(const attnrun_step *step, attnrun_body *body)
{
    const attnrun_type *gate = &step->in[THIRD];
    if (!op_has_in(step, FOURTH)) {
        if (gate->rank < 1 ||
            !dim_is(gate->dims[gate->rank - 1], 1)) /* an error at run */
            TRY(attnrun_body_add(body, "gate = Unsqueeze(Squeeze(gate, [-1]), [-1])"));
        return attnrun_body_add(body,
                                "output = X + attnrun.fused.CheckDims(Y, X) * gate");
    }
    return attnrun_body_add(body,
                            "sum = Cast<to=1>(Cast<to=16>(MatMul(gate, gate_weight)));"
                            "factor = Cast<to=1>(Cast<to=16>(Sigmoid(sum)));"
                            "Y = attnrun.fused.CheckDims(Y, X) * factor;"
                            "output = X + Cast<to=1>(Cast<to=16>(Y))");
}

const attnrun_op_def op_gated_add_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "GatedAdd",
    .since = 1,
    .inputs = "X:T Y:T gate:T gate_weight:T?",
    .outputs = "output:T",
    .types = "T=f32",
    .infer = add_infer,
    .expand = add_expand,
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
            return op_fail(step, ATTNRUN_E_INPUT,
                           "output beta is named, but input b is absent");
        TRY(op_out_like(step, 1, X));
    }
    return ATTNRUN_OK;
}

static attn_status gate_expand(const attnrun_step *step, attnrun_body *body)
{
    if (op_has_out(step, 1))
        TRY(attnrun_body_add(body, "beta = Sigmoid(attnrun.fused.CheckDims(b, a))"));
    return attnrun_body_add(body, "dt_bias = attnrun.fused.CheckDims(dt_bias, a);"
                                  "scale = attnrun.fused.CheckDims(decay_scale, a);"
                                  "decay = Softplus(a + dt_bias) * scale");
}

const attnrun_op_def op_linear_attention_gate_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "LinearAttentionGate",
    .since = 1,
    .inputs = "a:T dt_bias:TF decay_scale:TF b:T?",
    .outputs = "decay:T? beta:T?",
    .types = "T=f32 TF=f32",
    .infer = gate_infer,
    .expand = gate_expand,
    .cost = "O(n)",
    .source = "ONNX Runtime contrib operators",
};
