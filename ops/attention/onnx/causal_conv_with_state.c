/* causal_conv_with_state.c - CausalConvWithState: each channel is convolved with its own kernel
 * over the present and past positions:
 *
 *   y[t] = act(bias + sum over j < k of weight[j] * padded[t + j * dilation]), padded = past, x
 *
 * input, output             f32 (batch, channels, length)
 * weight, bias              (channels, 1, k); (channels), 0 by default
 * past_state, present_state (batch, channels, carried), zeros by default; carried = (k - 1) *
 *                           dilation; the last positions of padded
 * activation                none, or silu = swish: x * sigmoid(x)
 * com.microsoft only:
 * dilation                  1 by default
 * channels_last             input and output are (batch, length, channels…), the states (batch,
 *                           carried, channels…); two more phases transpose them to lines and back
 *                           in shared memory
 * state_window W > 0        the states have W slots in front: the last slot is the state; the
 *                           others are the states after the positions before it, zeros before the
 *                           first position
 *
 * Other options of com.microsoft (ndim, compact states) have no kernel for CPUs in ONNX Runtime
 * and are refused.
 *
 * VarlenCausalConvWithState of com.microsoft: one tensor holds sequences of different lengths.
 * Each sequence is convolved alone, with a state of its own:
 * input, output                 f32 (tokens, channels)
 * cumulative_sequence_length    i32 (batch + 1): sequence b has tokens [c[b], c[b + 1]), at least
 *                               one
 * initial_state, final_state    (batch, channels, carried)
 * capture_count                 i32 (batch), only with state_update_capacity
 * state_update                  (batch, state_update_capacity, channels): the first tokens of each
 *                               sequence, at most capture_count of them, then zeros
 *
 * Deltas of the kernel (kernel_delta, previous_mask) have no kernel for CPUs there and are
 * refused, too.
 * Cost: 2 k FLOPs an element. Source: ONNX CausalConvWithState-27; ONNX Runtime contrib operators,
 * compared with onnxruntime 1.32.0. */
#include "../../../runtime/op.h"
#include "../../kernels/kernels.h"
#include "../../move/strided_copy.h"
#include "../../tile.h"

struct conv_args {
    int32_t activation;
    int64_t dilation, channels_last, state_window;
    int64_t ndim, state_update_capacity, state_channels_last, state_length;
    int64_t input_channel_offset, input_channels;
    int64_t delta_offset, group_size; /* of what is refused */
};
static const attnrun_attr_def conv_attrs[] = {
    ATTR_ENUM(struct conv_args, activation, "none|silu|swish", 0), ATTR_END
};
static const attnrun_attr_def ms_conv_attrs[] = {
    ATTR_ENUM(struct conv_args, activation, "none|silu|swish", 0),
    ATTR_CHOICE(struct conv_args, dilation, "1..2147483647", 1),
    ATTR_FLAG(struct conv_args, channels_last, 0),
    ATTR_CHOICE(struct conv_args, state_window, "0..8", 0),
    ATTR_CHOICE(struct conv_args, ndim, "1..3", 1),
    ATTR_INT(struct conv_args, state_update_capacity, 0),
    ATTR_INT(struct conv_args, state_channels_last, -1),
    ATTR_INT(struct conv_args, state_length, 0),
    ATTR_INT(struct conv_args, input_channel_offset, 0),
    ATTR_INT(struct conv_args, input_channels, 0),
    ATTR_END
};

static const attnrun_attr_def varlen_attrs[] = {
    ATTR_ENUM(struct conv_args, activation, "none|silu|swish", 0),
    ATTR_CHOICE(struct conv_args, dilation, "1..2147483647", 1),
    ATTR_CHOICE(struct conv_args, state_update_capacity, "0..8", 0),
    ATTR_INT(struct conv_args, delta_offset, 0),
    ATTR_INT(struct conv_args, group_size, 1),
    ATTR_END
};

enum { INPUT, WEIGHT, BIAS, PAST };
enum { STARTS = 2, VARLEN_BIAS, INITIAL, COUNTS, DELTA, MASK };
enum { BLOCK = 2048, VECTOR = 16, TASK_ELEMENTS = 16384 };
/* Positions between two polls, and their products, of which a kernel of many taps has more. */
enum { PART = 64, PART_TAPS = 1 << 21 };
enum { TO_LINES, CONVOLVE, FROM_LINES };

struct conv_state {
    int64_t rows, channels, length, taps, carried, slots;
    int64_t batch; /* VarlenCausalConvWithState: a row is a channel of all tokens */
    int64_t rows_per_task;
    int64_t y_at;                        /* bytes into shared memory */
    struct op_copy to_lines, from_lines; /* channels_last */
};

/* The dilation; ONNX, whose row has no such attribute, has 1. */
static int64_t dilation_of(const struct conv_args *args)
{
    return args->dilation == 0 ? 1 : args->dilation;
}

static attn_status check_options(const attnrun_step *step)
{
    const struct conv_args *args = step->args;
    if (args->ndim > 1 || args->state_update_capacity != 0 || args->state_length != 0 ||
        args->input_channel_offset != 0 || args->input_channels != 0 ||
        (args->ndim == 1 && args->state_channels_last != -1))
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "state_update_capacity, state_length, input_channel_offset, "
                       "input_channels, state_channels_last or ndim over 1 is given, "
                       "expected none of them");
    return ATTNRUN_OK;
}

/* The product of the dims of the channels, where input 0 is known. */
static attnrun_dim channels_of(const attnrun_step *step)
{
    const attnrun_type *x = &step->in[INPUT];
    if (((const struct conv_args *)step->args)->channels_last)
        return op_dims_product(step, x->dims, 2, x->rank);
    return x->dims[1];
}

static attn_status causal_conv_check_past(const attnrun_step *step, attnrun_dim carried)
{
    const struct conv_args *args = step->args;
    const attnrun_type *x = &step->in[INPUT];
    const int first = args->state_window > 0;
    const int at = first + (args->channels_last ? 1 : 2);
    if (!op_has_in(step, PAST) || x->rank < 0)
        return ATTNRUN_OK;
    TRY(op_need_rank(step, PAST, x->rank + first));
    if (!op_rank_known(step, PAST))
        return ATTNRUN_OK;
    if (first)
        TRY(op_need_dim(step, PAST, 0, dim_of(args->state_window), "state_window"));
    TRY(op_need_dim(step, PAST, first, x->dims[0], "the batch"));
    for (int i = 1; i < x->rank; i++)
        if (first + i != at)
            TRY(op_need_dim(step, PAST, first + i, x->dims[i], "the channels"));
    return op_need_dim(step, PAST, at, carried, "the kernel size - 1, times dilation");
}

/* Checks the weight, and the bias, which is input `bias`; both have as many channels as
 * input 0. */
static attn_status check_kernel(const attnrun_step *step, int bias, attnrun_dim *carried)
{
    const int of_channels[] = { WEIGHT, bias };
    const attnrun_type *w = &step->in[WEIGHT];
    TRY(op_need_rank(step, WEIGHT, 3));
    if (op_has_in(step, bias))
        TRY(op_need_rank(step, bias, 1));
    for (int i = 0; i < 2 && step->in[INPUT].rank >= 0; i++)
        if (op_has_in(step, of_channels[i]) && op_rank_known(step, of_channels[i]))
            TRY(op_need_dim(step, of_channels[i], 0, channels_of(step), "the channels"));
    *carried = attnrun_dim_unknown(step);
    if (w->rank < 0)
        return ATTNRUN_OK;
    TRY(op_need_dim(step, WEIGHT, 1, dim_of(1), "channels of one group"));
    if (dim_is(w->dims[2], 0))
        return op_fail_input(step, WEIGHT, ATTNRUN_E_SHAPE,
                             "expected a kernel of at least 1");
    *carried = attnrun_dim_sub(step, w->dims[2], dim_of(1));
    *carried = attnrun_dim_mul(step, *carried, dim_of(dilation_of(step->args)));
    return ATTNRUN_OK;
}

static attn_status conv_check(const attnrun_step *step, attnrun_dim *carried)
{
    const struct conv_args *args = step->args;
    TRY(check_options(step));
    TRY(op_need_rank_between(step, INPUT, 3,
                             args->channels_last ? ATTNRUN_MAX_RANK - 1 : 3));
    TRY(check_kernel(step, BIAS, carried));
    return causal_conv_check_past(step, *carried);
}

/* Plans the scratch: offsets of the taps and a line of a row; *bytes: those of all rows,
 * within the limit of a tensor. */
static attn_status plan_scratch(attnrun_step *step, const struct conv_state *state,
                                int64_t *bytes)
{
    int64_t line;
    if (!ck_mul(state->rows, state->length, bytes) || *bytes > ATTN_MAX_ELEMENTS ||
        !ck_add(state->carried, BLOCK + VECTOR, &line) ||
        !ck_mul(line, (int64_t)sizeof(float), &line) ||
        !ck_mul(state->taps, (int64_t)sizeof(int64_t), &step->scratch_bytes) ||
        !ck_add(step->scratch_bytes, line, &step->scratch_bytes))
        return op_fail_size(
            step, "its number of results would be over 2^46, or its scratch memory",
            "2^63 - 1 bytes");
    *bytes *= (int64_t)sizeof(float);
    return ATTNRUN_OK;
}

/* Plans the phases that transpose (batch, length, channels) to lines of channels in
 * shared memory, and back to y. */
static void plan_lines(attnrun_step *step, struct conv_state *state, int64_t batch,
                       int64_t bytes)
{
    op_copy_plan_exchange(&state->to_lines, ATTNRUN_F32, batch, state->length,
                          state->channels);
    op_copy_plan_exchange(&state->from_lines, ATTNRUN_F32, batch, state->channels,
                          state->length);
    state->y_at = bytes;
    step->shared_bytes = 2 * bytes;
    op_copy_tasks(step, TO_LINES, &state->to_lines);
    op_copy_tasks(step, FROM_LINES, &state->from_lines);
}

/* States the tasks. row_length: the elements of a row and its cost besides them. */
static void plan_tasks(attnrun_step *step, const struct conv_state *state, int phase,
                       double row_length)
{
    const double cost =
        (double)state->rows_per_task * row_length * (double)(state->taps + 4) * 0.1;
    op_tasks(step, phase, ceil_div(state->rows, state->rows_per_task), op_ns(cost));
}

static attn_status plan_causal_conv_with_state(attnrun_step *step, int64_t carried)
{
    const struct conv_args *args = step->args;
    const attnrun_type *x = &step->in[INPUT];
    struct conv_state *state = step->state;
    const int64_t batch = x->dims[0].value;
    const bool last = args->channels_last != 0;
    int64_t bytes;
    state->channels = last ? op_count(x, 2, x->rank) : x->dims[1].value;
    state->length = x->dims[last ? 1 : 2].value;
    state->taps = step->in[WEIGHT].dims[2].value;
    state->carried = carried;
    state->slots = max64(1, args->state_window);
    state->rows_per_task = max64(1, TASK_ELEMENTS / (state->length + 1));
    if (!ck_mul(batch, state->channels, &state->rows))
        return op_fail_size(step, "the number of channels of the batch", "2^63 - 1");
    TRY(plan_scratch(step, state, &bytes));
    if (last)
        plan_lines(step, state, batch, bytes);
    plan_tasks(step, state, last ? CONVOLVE : 0, (double)state->length + 20);
    return ATTNRUN_OK;
}

static attn_status conv_infer(attnrun_step *step)
{
    const struct conv_args *args = step->args;
    const attnrun_type *x = &step->in[INPUT];
    const int first = args->state_window > 0;
    attnrun_dim carried;
    TRY(conv_check(step, &carried));
    TRY(op_out_like(step, 0, INPUT));
    if (step->n_out > 2)
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "output 2, state_update, is not supported");
    if (step->n_out > 1) {
        attnrun_dim dims[ATTNRUN_MAX_RANK] = { dim_of(args->state_window) };
        for (int i = 0; i < x->rank; i++)
            dims[first + i] = x->dims[i];
        dims[first + (args->channels_last ? 1 : 2)] = carried;
        TRY(op_out(step, 1, x->dtype, x->rank < 0 ? -1 : x->rank + first, dims));
    }
    return step->concrete ? plan_causal_conv_with_state(step, carried.value) : ATTNRUN_OK;
}

/* A row of past or present: `carried` elements, `step` apart. */
struct carried {
    float *at; /* NULL: zeros */
    int64_t step;
};
static struct carried carried_of(const attnrun_step *step, const attnrun_tensor *x,
                                 int64_t slot, int64_t row)
{
    const struct conv_args *args = step->args;
    const struct conv_state *state = step->state;
    const int64_t c = row % state->channels, b = row / state->channels;
    float *from = (float *)x->data + slot * state->rows * state->carried;
    if (!args->channels_last)
        return (struct carried){ from + row * state->carried, 1 };
    return (struct carried){ from + b * state->carried * state->channels + c,
                             state->channels };
}

/* Copies n elements of padded from position `from` on, of one row, `step` apart in
 * `to`. */
static void padded(const struct conv_state *state, struct carried past, const float *x,
                   int64_t from, int64_t n, struct carried to)
{
    int64_t old = from < state->carried ? state->carried - from : 0;
    old = old < n ? old : n;
    for (int64_t i = 0; i < old; i++)
        to.at[i * to.step] = past.at != NULL ? past.at[(from + i) * past.step] : 0.0f;
    if (to.step == 1 && n > old)
        memcpy(to.at + old, x + (from + old - state->carried),
               (size_t)(n - old) * sizeof *x);
    else
        for (int64_t i = old; i < n; i++)
            to.at[i * to.step] = x[from + i - state->carried];
}

/* Computes `length` positions of a channel. */
static attn_status conv_row(const attnrun_step *step, const attnrun_work *work,
                            int64_t channel, int64_t length, const float *bias_of,
                            struct carried past, const float *x, float *y)
{
    static const float swish[2] = { 1, 0 };
    const struct conv_args *args = step->args;
    const struct conv_state *state = step->state;
    const int64_t *offsets = work->scratch;
    float *line = (float *)((int64_t *)work->scratch + state->taps);
    const float *w = (const float *)step->x[WEIGHT].data + channel * state->taps;
    const float bias = bias_of != NULL ? bias_of[channel] : 0;
    const int64_t part = max64(PART, PART_TAPS / state->taps / PART * PART);
    for (int64_t t = 0; t < length; t += BLOCK) {
        int64_t n = length - t < BLOCK ? length - t : BLOCK;
        padded(state, past, x, t, n + state->carried, (struct carried){ line, 1 });
        memset(line + n + state->carried, 0, VECTOR * sizeof *line);
        for (int64_t i = 0; i < n; i += part) {
            if (OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            step->kernels->conv_taps_f32(y + t + i, min64(part, n - i), line + i, offsets,
                                         w, state->taps, bias);
        }
        if (args->activation != 0)
            step->kernels->swish_f32(y + t, y + t, (size_t)n, swish);
    }
    return ATTNRUN_OK;
}

/* Stores the states of a row: slot j is the state after position length - slots + j. */
static void store_states(const attnrun_step *step, int64_t row, struct carried past,
                         const float *x)
{
    const struct conv_state *state = step->state;
    if (!op_has_out(step, 1) || step->y[1].data == NULL)
        return;
    for (int64_t slot = 0; slot < state->slots; slot++) {
        const struct carried to = carried_of(step, &step->y[1], slot, row);
        const int64_t after = state->length - state->slots + slot + 1;
        const bool there = after > 0 || slot == state->slots - 1;
        for (int64_t i = 0; !there && i < state->carried; i++)
            to.at[i * to.step] = 0.0f;
        if (there)
            padded(state, past, x, after, state->carried, to);
    }
}

static void write_offsets(const attnrun_step *step, const attnrun_work *work)
{
    const struct conv_state *state = step->state;
    for (int64_t j = 0; j < state->taps; j++)
        ((int64_t *)work->scratch)[j] = j * dilation_of(step->args);
}

static attn_status causal_conv_run_rows(const attnrun_step *step,
                                        const attnrun_work *work, const float *x,
                                        float *y)
{
    const struct conv_state *state = step->state;
    int64_t row = work->begin * state->rows_per_task;
    const int64_t end = min64(state->rows, work->end * state->rows_per_task);
    write_offsets(step, work);
    for (; row < end; row++) {
        struct carried past = { NULL, 1 };
        if (op_has_in(step, PAST))
            past = carried_of(step, &step->x[PAST], state->slots - 1, row);
        if (y != NULL)
            TRY(conv_row(step, work, row % state->channels, state->length,
                         op_in_data(step, BIAS), past, x + row * state->length,
                         y + row * state->length));
        store_states(step, row, past, x + row * state->length);
        TRY(attn_poll_work((state->slots + 1) * state->carried + 64));
    }
    return ATTNRUN_OK;
}

static attn_status conv_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct conv_args *args = step->args;
    const struct conv_state *state = step->state;
    float *lines = op_slot_floats(work->shared, state->y_at);
    if (!args->channels_last)
        return causal_conv_run_rows(step, work, step->x[INPUT].data, step->y[0].data);
    if (work->phase == TO_LINES)
        return op_copy_run(&state->to_lines, work, work->shared, step->x[INPUT].data);
    if (work->phase == CONVOLVE)
        return causal_conv_run_rows(step, work, work->shared, lines);
    return step->y[0].data == NULL
               ? ATTNRUN_OK
               : op_copy_run(&state->from_lines, work, step->y[0].data, lines);
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

const attnrun_op_def op_ms_causal_conv_with_state_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "CausalConvWithState",
    .since = 1,
    .inputs = "input:T weight:T bias:T? past_state:T?",
    .outputs = "output:T present_state:T? state_update:T?",
    .types = "T=f32",
    .args_bytes = sizeof(struct conv_args),
    .state_bytes = sizeof(struct conv_state),
    .attrs = ms_conv_attrs,
    .infer = conv_infer,
    .run = conv_run,
    .cost = "O(n k)",
    .source = "ONNX Runtime contrib operators",
};

/* ---- sequences of other lengths ---- */

static attn_status check_varlen(const attnrun_step *step, attnrun_dim *carried)
{
    const struct conv_args *args = step->args;
    if (op_has_in(step, DELTA) || op_has_in(step, MASK))
        return op_fail(step, ATTNRUN_E_UNSUPPORTED,
                       "inputs delta and mask are not supported");
    if (op_has_in(step, COUNTS) != (args->state_update_capacity > 0))
        return op_fail(step, ATTNRUN_E_INPUT,
                       "state_update_capacity is %lld and capture_count is %s, expected "
                       "both or none",
                       (long long)args->state_update_capacity,
                       op_has_in(step, COUNTS) ? "given" : "absent");
    TRY(op_need_rank(step, INPUT, 2));
    TRY(op_need_rank(step, STARTS, 1));
    TRY(op_need_rank(step, INITIAL, 3));
    return check_kernel(step, VARLEN_BIAS, carried);
}

/* Checks the states and the captured tokens, for `batch` sequences. */
static attn_status check_sequences(const attnrun_step *step, attnrun_dim batch,
                                   attnrun_dim carried)
{
    const attnrun_type *x = &step->in[INPUT];
    if (op_rank_known(step, INITIAL)) {
        TRY(op_need_dim(step, INITIAL, 0, batch, "the sequences"));
        if (x->rank >= 0)
            TRY(op_need_dim(step, INITIAL, 1, x->dims[1], "the channels"));
        TRY(op_need_dim(step, INITIAL, 2, carried,
                        "the kernel size - 1, times dilation"));
    }
    if (!op_has_in(step, COUNTS))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, COUNTS, 1));
    return op_rank_known(step, COUNTS)
               ? op_need_dim(step, COUNTS, 0, batch, "the sequences")
               : ATTNRUN_OK;
}

static attn_status plan_varlen(attnrun_step *step, int64_t batch, int64_t carried)
{
    const attnrun_type *x = &step->in[INPUT];
    struct conv_state *state = step->state;
    int64_t bytes;
    state->length = x->dims[0].value;
    state->rows = state->channels = x->dims[1].value;
    state->taps = step->in[WEIGHT].dims[2].value;
    state->carried = carried;
    state->batch = batch;
    state->rows_per_task = max64(1, TASK_ELEMENTS / (state->length + 20 * batch + 1));
    TRY(plan_scratch(step, state, &bytes));
    plan_lines(step, state, 1, bytes);
    plan_tasks(step, state, CONVOLVE, (double)state->length + 20 * (double)batch);
    return ATTNRUN_OK;
}

static attn_status varlen_infer(attnrun_step *step)
{
    const struct conv_args *args = step->args;
    const attnrun_type *x = &step->in[INPUT];
    attnrun_dim carried, batch = attnrun_dim_unknown(step);
    TRY(check_varlen(step, &carried));
    if (op_rank_known(step, STARTS)) {
        if (dim_is(step->in[STARTS].dims[0], 0))
            return op_fail_input(step, STARTS, ATTNRUN_E_SHAPE,
                                 "expected at least 1 in dim 0, one more than sequences");
        batch = attnrun_dim_sub(step, step->in[STARTS].dims[0], dim_of(1));
    }
    TRY(check_sequences(step, batch, carried));
    TRY(op_out_like(step, 0, INPUT));
    const attnrun_dim channels = x->rank < 0 ? attnrun_dim_unknown(step) : x->dims[1];
    if (step->n_out > 1)
        TRY(op_out(step, 1, x->dtype, 3, (attnrun_dim[]){ batch, channels, carried }));
    if (op_has_out(step, 2))
        TRY(op_out(
            step, 2, x->dtype, 3,
            (attnrun_dim[]){ batch, dim_of(args->state_update_capacity), channels }));
    return step->concrete ? plan_varlen(step, batch.value, carried.value) : ATTNRUN_OK;
}

/* Checks that the sequences follow each other, and fill all tokens. */
static attn_status check_starts(const attnrun_step *step, const int32_t *starts)
{
    const struct conv_state *state = step->state;
    for (int64_t b = 0; b <= state->batch; b++) {
        const int64_t low = b == 0 ? 0 : (int64_t)starts[b - 1] + 1;
        const int64_t high = b == 0 ? 0 : state->length;
        if (starts[b] < low || starts[b] > high ||
            (b == state->batch && starts[b] != state->length))
            return op_fail(
                step, ATTNRUN_E_RANGE,
                "cumulative_sequence_length[%lld] is %d, expected %lld to %lld, "
                "and %lld at the end",
                (long long)b, starts[b], (long long)low, (long long)high,
                (long long)state->length);
    }
    return ATTNRUN_OK;
}

/* Captures the first tokens of a sequence, of one channel. */
static void capture(const attnrun_step *step, int64_t b, int64_t channel, const float *x,
                    int64_t length)
{
    const struct conv_args *args = step->args;
    const struct conv_state *state = step->state;
    const int64_t capacity = args->state_update_capacity;
    if (!op_has_out(step, 2) || step->y[2].data == NULL || capacity == 0)
        return;
    const int32_t count = ((const int32_t *)step->x[COUNTS].data)[b];
    const int64_t n = min64(max64(count, 0), min64(capacity, length));
    float *to = (float *)step->y[2].data + b * capacity * state->channels + channel;
    for (int64_t i = 0; i < capacity; i++)
        to[i * state->channels] = i < n ? x[i] : 0.0f;
}

/* Computes all sequences of a channel. */
static attn_status run_channel(const attnrun_step *step, const attnrun_work *work,
                               int64_t channel, const float *x, float *y)
{
    const struct conv_state *state = step->state;
    const int32_t *starts = step->x[STARTS].data;
    const bool keeps = op_has_out(step, 1) && step->y[1].data != NULL;
    for (int64_t b = 0; b < state->batch; b++) {
        const int64_t at = starts[b], length = starts[b + 1] - at;
        const int64_t row = (b * state->channels + channel) * state->carried;
        const struct carried past = { (float *)step->x[INITIAL].data + row, 1 };
        TRY(conv_row(step, work, channel, length, op_in_data(step, VARLEN_BIAS), past,
                     x + at, y + at));
        if (keeps)
            padded(state, past, x + at, length, state->carried,
                   (struct carried){ (float *)step->y[1].data + row, 1 });
        capture(step, b, channel, x + at, length);
        TRY(attn_poll_work(4 * state->carried + 64));
    }
    return ATTNRUN_OK;
}

static attn_status varlen_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct conv_state *state = step->state;
    const float *x = work->shared;
    float *y = op_slot_floats(work->shared, state->y_at);
    if (work->phase == TO_LINES)
        return op_copy_run(&state->to_lines, work, work->shared, step->x[INPUT].data);
    if (work->phase == FROM_LINES)
        return step->y[0].data == NULL
                   ? ATTNRUN_OK
                   : op_copy_run(&state->from_lines, work, step->y[0].data, y);
    const int64_t end = min64(state->rows, work->end * state->rows_per_task);
    TRY(check_starts(step, step->x[STARTS].data));
    write_offsets(step, work);
    for (int64_t c = work->begin * state->rows_per_task; c < end; c++)
        TRY(run_channel(step, work, c, x + c * state->length, y + c * state->length));
    return ATTNRUN_OK;
}

const attnrun_op_def op_ms_varlen_causal_conv_with_state_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "VarlenCausalConvWithState",
    .since = 1,
    .inputs = "input:T weight:T cumulative_sequence_length:i32 bias:T? initial_state:T "
              "capture_count:i32? kernel_delta:T? previous_mask:T?",
    .outputs = "output:T final_state:T state_update:T?",
    .types = "T=f32",
    .args_bytes = sizeof(struct conv_args),
    .state_bytes = sizeof(struct conv_state),
    .attrs = varlen_attrs,
    .infer = varlen_infer,
    .run = varlen_run,
    .cost = "O(n k)",
    .source = "ONNX Runtime contrib operators",
};
