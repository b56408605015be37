/* causal_conv_with_state.c - CausalConvWithState: each channel is convolved with its own
 * kernel over the present and past positions:
 *
 *   y[t] = act(bias + sum over j < k of weight[j] * padded[t + j]),  padded = past, x
 *
 * input, output             f32 (batch, channels, length)
 * weight, bias              (channels, 1, k); (channels), 0 by default
 * past_state, present_state (batch, channels, k - 1), zeros by default; the last k - 1
 *                           positions of padded
 * activation                none, or silu = swish: x * sigmoid(x)
 * Source: ONNX CausalConvWithState-27. */
#include "../../runtime/op.h"
#include "../kernels/kernels.h"

struct conv_args {
    int32_t activation;
};
static const attnrun_attr_def conv_attrs[] = {
    ATTR_ENUM(struct conv_args, activation, "none|silu|swish", 0), ATTR_END
};

enum { INPUT, WEIGHT, BIAS, PAST };
enum { BLOCK = 2048, VECTOR = 16, TASK_ELEMENTS = 16384 };

struct conv_state {
    int64_t rows, channels, length, taps;
    int64_t rows_per_task;
};

static attn_status conv_check(const attnrun_step *step, attnrun_dim *carried)
{
    const attnrun_type *x = &step->in[INPUT], *w = &step->in[WEIGHT];
    TRY(op_need_rank(step, INPUT, 3));
    TRY(op_need_rank(step, WEIGHT, 3));
    *carried = attnrun_dim_unknown(step);
    if (w->rank >= 0) {
        TRY(op_need_dim(step, WEIGHT, 1, dim_of(1), "channels of one group"));
        if (dim_is(w->dims[2], 0))
            return op_fail_input(step, WEIGHT, ATTNRUN_E_SHAPE,
                                 "expected a kernel of at least 1");
        *carried = attnrun_dim_sub(step, w->dims[2], dim_of(1));
        if (x->rank >= 0)
            TRY(op_need_dim(step, WEIGHT, 0, x->dims[1], "the channels"));
    }
    if (op_has_in(step, BIAS)) {
        TRY(op_need_rank(step, BIAS, 1));
        if (op_rank_known(step, BIAS) && x->rank >= 0)
            TRY(op_need_dim(step, BIAS, 0, x->dims[1], "the channels"));
    }
    if (!op_has_in(step, PAST))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, PAST, 3));
    if (!op_rank_known(step, PAST) || x->rank < 0)
        return ATTNRUN_OK;
    TRY(op_need_dim(step, PAST, 0, x->dims[0], "the batch"));
    TRY(op_need_dim(step, PAST, 1, x->dims[1], "the channels"));
    return op_need_dim(step, PAST, 2, *carried, "the kernel size - 1");
}

static attn_status conv_infer(attnrun_step *step)
{
    const attnrun_type *x = &step->in[INPUT];
    struct conv_state *state = step->state;
    attnrun_dim carried;
    TRY(conv_check(step, &carried));
    TRY(op_out_like(step, 0, INPUT));
    if (step->n_out > 1) {
        attnrun_dim dims[3] = { x->dims[0], x->dims[1], carried };
        TRY(op_out(step, 1, x->dtype, x->rank < 0 ? -1 : 3, dims));
    }
    if (!step->concrete)
        return ATTNRUN_OK;
    state->channels = x->dims[1].value;
    state->length = x->dims[2].value;
    state->taps = step->in[WEIGHT].dims[2].value;
    state->rows_per_task = TASK_ELEMENTS / (state->length + 1);
    if (state->rows_per_task < 1)
        state->rows_per_task = 1;
    if (!ck_mul(x->dims[0].value, state->channels, &state->rows) ||
        !ck_mul(state->taps, (int64_t)(sizeof(float) + sizeof(int64_t)),
                &step->scratch_bytes) ||
        !ck_add(step->scratch_bytes, (BLOCK + VECTOR) * (int64_t)sizeof(float),
                &step->scratch_bytes))
        return op_fail(step, ATTNRUN_E_LIMIT, "the tensor is too large");
    double cost = (double)state->rows_per_task * (double)(state->length + 20) *
                  (double)(state->taps + 4) * 0.1;
    op_tasks(step, 0,
             state->rows / state->rows_per_task +
                 (state->rows % state->rows_per_task != 0),
             cost < 1e15 ? (int64_t)cost : INT64_C(1) << 50);
    return ATTNRUN_OK;
}

/* n elements of padded from position `from` on, of one row. */
static void padded(const struct conv_state *state, const float *past, const float *x,
                   int64_t from, int64_t n, float *to)
{
    int64_t carried = state->taps - 1;
    int64_t old = from < carried ? carried - from : 0;
    old = old < n ? old : n;
    if (past != NULL && old > 0)
        memcpy(to, past + from, (size_t)old * sizeof *to);
    else
        memset(to, 0, (size_t)old * sizeof *to);
    if (n > old)
        memcpy(to + old, x + from + old - carried, (size_t)(n - old) * sizeof *to);
}

static attn_status conv_row(const attnrun_step *step, const attnrun_work *work,
                            int64_t row, const float *past)
{
    static const float swish[2] = { 1, 0 };
    const struct conv_args *args = step->args;
    const struct conv_state *state = step->state;
    const int64_t *offsets = work->scratch;
    float *line = (float *)((int64_t *)work->scratch + state->taps);
    const float *x = (const float *)step->x[INPUT].data + row * state->length;
    const float *w =
        (const float *)step->x[WEIGHT].data + row % state->channels * state->taps;
    float bias = 0, *y = (float *)step->y[0].data + row * state->length;
    if (op_has_in(step, BIAS))
        bias = ((const float *)step->x[BIAS].data)[row % state->channels];
    for (int64_t t = 0; t < state->length; t += BLOCK) {
        int64_t n = state->length - t < BLOCK ? state->length - t : BLOCK;
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        padded(state, past, x, t, n + state->taps - 1, line);
        memset(line + n + state->taps - 1, 0, VECTOR * sizeof *line);
        step->kernels->conv_taps_f32(y + t, n, line, offsets, w, state->taps, bias);
        if (args->activation != 0)
            step->kernels->swish_f32(y + t, y + t, (size_t)n, swish);
    }
    return ATTNRUN_OK;
}

static attn_status conv_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct conv_state *state = step->state;
    const int64_t carried = state->taps - 1;
    int64_t row = work->begin * state->rows_per_task;
    int64_t end = work->end > state->rows / state->rows_per_task
                      ? state->rows
                      : work->end * state->rows_per_task;
    float *present = op_has_out(step, 1) ? step->y[1].data : NULL;
    for (int64_t j = 0; j < state->taps; j++)
        ((int64_t *)work->scratch)[j] = j;
    for (; row < end; row++) {
        const float *past = NULL;
        const float *x = (const float *)step->x[INPUT].data + row * state->length;
        if (op_has_in(step, PAST))
            past = (const float *)step->x[PAST].data + row * carried;
        if (step->y[0].data != NULL)
            TRY(conv_row(step, work, row, past));
        if (present != NULL)
            padded(state, past, x, state->length, carried, present + row * carried);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_causal_conv_with_state_27 = {
    OP_ROW,
    .name = "CausalConvWithState",
    .since = 27,
    .inputs = "input:T weight:T bias:T? past_state:T?",
    .outputs = "output:T present_state:T?",
    .types = "T=f32",
    .args_bytes = sizeof(struct conv_args),
    .state_bytes = sizeof(struct conv_state),
    .attrs = conv_attrs,
    .infer = conv_infer,
    .run = conv_run,
    .cost = "O(n k)",
};
