/* conv.c - Conv:
 *
 *   y[n, m] = bias[m] + sum over channels c and taps k of w[m, c, k] x[n, c, at k]
 *
 * X     [N, C, spatial 1 to 3];  W [M, C / group, kernel];  B [M], zeros by default
 * Y     [N, M, out]; the sizes are in sliding_window.c
 * Z     of the fused forms: shaped as Y, added before the activation
 * S     [M], of FusedConv: the sums of channel m are multiplied by S[m] before B is added
 *
 * W may be stored as f16 or bf16: a task converts the rows that it multiplies by to floats.
 * Float convolutions with few channels per group run directly (conv_planes.c, conv_strip.c), those
 * of one window as a product with a vector (conv_dense.c), the others as matrix products
 * (conv_gemm.c).
 * Cost: 2 N M out taps C / group FLOPs. Source: ONNX Conv-11. */
#include <math.h>

#include "conv.h"

struct conv_args {
    struct window_attrs window;
    int64_t group;
    int32_t activation;
    float alpha, beta;
    attnrun_floats activation_params;
};

struct conv_state {
    struct conv_plan plan;
    bool plain; /* doubles */
};

static const attnrun_attr_def conv_attrs[] = { WINDOW_ATTR_ROWS, WINDOW_DILATIONS,
                                               ATTR_INT(struct conv_args, group, 1),
                                               ATTR_END };

static attn_status check_kernel(const attnrun_step *step,
                                const struct window_attrs *attrs, int64_t group, int w_in,
                                int n, bool channels_last)
{
    TRY(op_need_rank(step, w_in, n + 2));
    for (int i = 0; i < n; i++)
        if (attrs->kernel_shape.v != NULL)
            TRY(op_need_dim(step, w_in, i + 2, dim_of(attrs->kernel_shape.v[i]),
                            "attribute kernel_shape"));
    const attnrun_dim *w = step->in[w_in].dims;
    if (group < 1 || group > INT32_MAX)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "attribute group is %lld, expected 1 to 2147483647",
                       (long long)group);
    if (dim_is_const(w[0]) && w[0].value % group != 0)
        return op_fail(step, ATTNRUN_E_SHAPE,
                       "it has %s, expected a multiple of group, %lld",
                       attn_plural(w[0].value, "output channel"), (long long)group);
    if (dim_is(w[1], 0))
        return op_fail_input(step, w_in, ATTNRUN_E_SHAPE,
                             "expected at least one channel");
    attnrun_dim channels = attnrun_dim_mul(step, w[1], dim_of(group));
    return op_need_dim(step, 0, window_channel(n, channels_last), channels,
                       "channels of the weights times groups");
}

attn_status attn_conv_infer(attnrun_step *step, const struct window_attrs *attrs,
                            int64_t group, int w_in, bool channels_last,
                            int32_t out_dtype, struct conv_shape *shape)
{
    const int first = window_spatial(channels_last);
    int n;
    TRY(attn_window_rank(step, &n));
    if (n < 0 || !op_rank_known(step, w_in))
        return op_out(step, 0, out_dtype, -1, NULL);
    TRY(attn_window_check(step, attrs, n));
    TRY(check_kernel(step, attrs, group, w_in, n, channels_last));
    const attnrun_dim *x = step->in[0].dims, *w = step->in[w_in].dims;
    attnrun_dim out[ATTNRUN_MAX_RANK];
    out[0] = x[0];
    out[window_channel(n, channels_last)] = w[0];
    for (int i = 0; i < n; i++)
        TRY(attn_window_out(step, attrs, n, i, x[i + first], w[i + 2], false,
                            &out[i + first]));
    TRY(op_out(step, 0, out_dtype, n + 2, out));
    if (!step->concrete)
        return ATTNRUN_OK;
    TRY(attn_window_resolve(step, attrs, n, x + first, w + 2, false, &shape->w));
    return attn_conv_shape(step, w_in, group, false, shape);
}

static attn_status check_extras(const attnrun_step *step)
{
    const attnrun_type *out = &step->out[0];
    if (out->rank < 0)
        return ATTNRUN_OK;
    TRY(op_need_vector(step, 2, out->dims[1], "output channels"));
    if (op_has_in(step, 3) && op_rank_known(step, 3)) {
        TRY(op_need_rank(step, 3, out->rank));
        for (int i = 0; i < out->rank; i++)
            TRY(op_need_dim(step, 3, i, out->dims[i], "the output"));
    }
    TRY(op_need_vector(step, 4, out->dims[1], "output channels"));
    return ATTNRUN_OK;
}

static attn_status conv_infer(attnrun_step *step)
{
    const struct conv_args *args = step->args;
    struct conv_state *state = step->state;
    struct conv_plan *plan = &state->plan;
    const int32_t dtype = step->in[0].dtype;
    TRY(attn_conv_infer(step, &args->window, args->group, 1, false, dtype, &plan->shape));
    TRY(check_extras(step));
    if (!step->concrete || step->out[0].rank < 0)
        return ATTNRUN_OK;
    state->plain = dtype != ATTNRUN_F32;
    if (state->plain)
        return attn_conv_plain_plan(step, &plan->shape);
    TRY(attn_conv_plan(step, plan));
    step->scratch_bytes = plan->scratch_bytes;
    step->shared_bytes = plan->shared_bytes;
    op_tasks(step, 0, plan->shared_bytes > 0, plan->shared_bytes);
    op_tasks(step, 1, plan->n_tasks, plan->task_cost);
    return ATTNRUN_OK;
}

attn_status attn_conv_plan(const attnrun_step *step, struct conv_plan *plan)
{
    bool fits;
    plan->converts = attn_stored_narrow(step->in[1].dtype) || op_has_in(step, 4);
    plan->way = CONV_DENSE;
    attn_conv_dense_plan(plan, &fits);
    if (fits)
        return ATTNRUN_OK;
    plan->way = CONV_PLANES;
    attn_conv_planes_plan(plan, &fits);
    if (fits)
        return ATTNRUN_OK;
    plan->way = CONV_STRIP;
    attn_conv_strip_plan(plan, &fits);
    if (fits)
        return ATTNRUN_OK;
    plan->way = CONV_GEMM;
    return attn_conv_gemm_plan(step, plan);
}

void attn_conv_add_room(struct conv_plan *plan, int64_t weights)
{
    if (!plan->converts)
        return;
    plan->room_at = round_up(plan->scratch_bytes, 64);
    plan->scratch_bytes = plan->room_at + weights * (int64_t)sizeof(float);
}

const float *attn_conv_weights(const attnrun_step *step, const attnrun_work *work,
                               const struct conv_plan *plan,
                               const struct conv_operands *o, int64_t row, int64_t rows,
                               int64_t from, int64_t n, int64_t *stride)
{
    const int64_t k = plan->shape.k;
    *stride = k;
    if (!plan->converts)
        return (const float *)o->w + row * k + from;
    float *const room = op_slot_floats(work->scratch, plan->room_at);
    for (int64_t r = 0; r < rows; r++) {
        float *to = room + r * n;
        const float scale = o->scale != NULL ? o->scale[row + r] : 1.0f;
        const void *w = attn_stored_at(o->w_dtype, o->w, (row + r) * k + from);
        if (attn_stored_narrow(o->w_dtype))
            attn_stored_to_floats(step->kernels, o->w_dtype, to, w, n);
        else
            memcpy(to, w, (size_t)n * sizeof *to);
        if (o->scale != NULL)
            step->kernels->mul_f32(to, to, 1, &scale, 0, (size_t)n);
    }
    *stride = n;
    return room;
}

void attn_conv_prepare(const attnrun_step *step, const struct conv_plan *plan,
                       void *shared)
{
    if (plan->way == CONV_PLANES)
        attn_conv_planes_prepare(step, plan, shared);
    else if (plan->way == CONV_STRIP)
        attn_conv_strip_prepare(plan, shared);
}

attn_status attn_conv_run(const attnrun_step *step, const attnrun_work *work,
                          const struct conv_plan *plan, const struct conv_operands *o)
{
    if (plan->way == CONV_PLANES)
        return attn_conv_planes_run(step, work, plan, o);
    if (plan->way == CONV_STRIP)
        return attn_conv_strip_run(step, work, plan, o);
    if (plan->way == CONV_DENSE)
        return attn_conv_dense_run(step, work, plan, o);
    return attn_conv_gemm_run(step, work, plan, o);
}

bool attn_conv_limits(const struct conv_operands *o, float *min, float *max)
{
    const struct attn_epilogue *e = o->activation;
    const bool relu = o->n_activation == 1 && e->kind == ATTN_EPI_RELU;
    const bool clip = o->n_activation == 1 && e->kind == ATTN_EPI_CLIP;
    *min = relu ? 0.0f : clip ? e->alpha : -INFINITY;
    *max = clip ? e->beta : INFINITY;
    return relu || clip || o->n_activation == 0;
}

int attn_conv_activation(int kind, const float *alpha, const float *beta,
                         struct attn_epilogue *steps)
{
    static const int32_t simple[] = {
        [CONV_ACT_RELU] = ATTN_EPI_RELU,
        [CONV_ACT_CLIP] = ATTN_EPI_CLIP,
        [CONV_ACT_RELU6] = ATTN_EPI_CLIP,
        [CONV_ACT_SILU] = ATTN_EPI_SILU,
        [CONV_ACT_HARDSWISH] = ATTN_EPI_HARD_SWISH,
        [CONV_ACT_SIGMOID] = ATTN_EPI_SIGMOID,
        [CONV_ACT_TANH] = ATTN_EPI_TANH,
        [CONV_ACT_LEAKYRELU] = ATTN_EPI_LEAKY_RELU,
        [CONV_ACT_GELU] = ATTN_EPI_GELU,
        [CONV_ACT_GELU_TANH] = ATTN_EPI_GELU_TANH,
    };
    if (kind == CONV_ACT_NONE)
        return 0;
    if (kind == CONV_ACT_HARDSIGMOID) { /* clip(alpha x + beta, 0, 1) */
        steps[0] = (struct attn_epilogue){ .kind = ATTN_EPI_SCALE, .alpha = *alpha };
        steps[1] =
            (struct attn_epilogue){ .kind = ATTN_EPI_ADD, .alpha = 1.0f, .data = beta };
        steps[2] =
            (struct attn_epilogue){ .kind = ATTN_EPI_CLIP, .alpha = 0, .beta = 1.0f };
        return 3;
    }
    steps[0] =
        (struct attn_epilogue){ .kind = simple[kind], .alpha = *alpha, .beta = *beta };
    if (kind == CONV_ACT_RELU6) {
        steps[0].alpha = 0.0f;
        steps[0].beta = 6.0f;
    }
    return 1;
}

void attn_conv_apply(const struct attn_kernels *k, const struct attn_epilogue *steps,
                     int n_steps, float *y, int64_t n)
{
    size_t count = (size_t)n;
    for (const struct attn_epilogue *e = steps; e < steps + n_steps; e++) {
        const float p[2] = { e->alpha, e->beta }, one[2] = { 1.0f, 0.0f };
        switch (e->kind) {
        case ATTN_EPI_SCALE:
            k->mul_f32(y, y, 1, p, 0, count);
            break;
        case ATTN_EPI_ADD:
            k->add_f32(y, y, 1, e->data, 0, count);
            break;
        case ATTN_EPI_RELU:
            k->relu_f32(y, y, count, p);
            break;
        case ATTN_EPI_GELU:
            k->gelu_f32(y, y, count, p);
            break;
        case ATTN_EPI_GELU_TANH:
            k->gelu_tanh_f32(y, y, count, p);
            break;
        case ATTN_EPI_SILU:
            k->swish_f32(y, y, count, one);
            break;
        case ATTN_EPI_TANH:
            k->tanh_f32(y, y, count, p);
            break;
        case ATTN_EPI_SIGMOID:
            k->sigmoid_f32(y, y, count, p);
            break;
        case ATTN_EPI_CLIP:
            k->clip_f32(y, y, count, p);
            break;
        case ATTN_EPI_LEAKY_RELU:
            k->leaky_relu_f32(y, y, count, p);
            break;
        case ATTN_EPI_HARD_SWISH:
            k->hard_swish_f32(y, y, count, p);
            break;
        default:
            break;
        }
    }
}

static attn_status conv_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct conv_args *args = step->args;
    const struct conv_state *state = step->state;
    if (state->plain)
        return attn_conv_f64_run(step, work, &state->plan.shape);
    struct attn_epilogue steps[3];
    const float *params = args->activation_params.v;
    const float *alpha = args->activation_params.n > 0 ? params : &args->alpha;
    const float *beta = args->activation_params.n > 1 ? params + 1 : &args->beta;
    struct conv_operands o = {
        .x = step->x[0].data,
        .w = step->x[1].data,
        .w_dtype = step->in[1].dtype,
        .scale = op_in_data(step, 4),
        .bias = op_in_data(step, 2),
        .z = op_in_data(step, 3),
        .y = step->y[0].data,
        .activation = steps,
        .n_activation = attn_conv_activation(args->activation, alpha, beta, steps),
    };
    if (work->phase == 1)
        return attn_conv_run(step, work, &state->plan, &o);
    attn_conv_prepare(step, &state->plan, work->shared);
    return ATTNRUN_OK;
}

#define CONV_ROW                                                                         \
    .args_bytes = sizeof(struct conv_args), .state_bytes = sizeof(struct conv_state),    \
    .outputs = "Y:T", .infer = conv_infer, .run = conv_run,                              \
    .cost = "O(N M C/g out kernel)"
const attnrun_op_def op_conv_1 = {
    OP_ROW,
    .name = "Conv",
    .since = 1,
    .inputs = "X:T W:T B:T?",
    .types = "T=f32,f64",
    .attrs = conv_attrs,
    .storage_in = 2,
    CONV_ROW,
};

/* ---- fused forms ---- */

static const attnrun_attr_def fused_attrs[] = { WINDOW_ATTR_ROWS,
                                                WINDOW_DILATIONS,
                                                ATTR_INT(struct conv_args, group, 1),
                                                ATTR_ENUM(struct conv_args, activation,
                                                          CONV_ACTIVATIONS, 0),
                                                ATTR_FLOAT(struct conv_args, alpha, 0.0f),
                                                ATTR_FLOAT(struct conv_args, beta, 0.0f),
                                                ATTR_END };

const attnrun_op_def op_fused_conv_1 = {
    OP_ROW_OF("attnrun.fused"),
    .name = "FusedConv",
    .since = 1,
    .inputs = "X:T W:W B:T? Z:T? S:T?",
    .types = "T=f32 W=f32,f16,bf16",
    .attrs = fused_attrs,
    CONV_ROW,
};

/* The words at the same places as in CONV_ACTIVATIONS. */
static const attnrun_attr_def ms_fused_attrs[] = {
    WINDOW_ATTR_ROWS,
    WINDOW_DILATIONS,
    ATTR_INT(struct conv_args, group, 1),
    ATTR_ENUM(struct conv_args, activation,
              "|Relu|Clip|Relu6|Silu|HardSwish|Sigmoid|Tanh|LeakyRelu|Gelu|GeluTanh|"
              "HardSigmoid",
              0),
    ATTR_FLOATS(struct conv_args, activation_params),
    ATTR_END
};

const attnrun_op_def op_ms_fused_conv_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "FusedConv",
    .since = 1,
    .inputs = "X:T W:T B:T? Z:T?",
    .types = "T=f32",
    .attrs = ms_fused_attrs,
    .storage_in = 2,
    CONV_ROW,
};
