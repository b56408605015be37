/* skip_layer_normalization.c - com.microsoft SkipLayerNormalization: the layer
 * normalization of input + skip + bias over the last dim.
 * SkipSimplifiedLayerNormalization is the RMS form.
 *
 * input    f32 (B,S,H), or any rank but 1;  skip the same; of rank 3 also without batch
 *          or with a batch of 1
 * gamma, beta, bias  f32 (H);  mean, inv_std_var f32 (…,1);  input_skip_bias_sum as input
 *
 * Cost: O(n), one read of each operand. Source: ONNX Runtime contrib operators. */
#include "norm_rows.h"

struct skip_args {
    float epsilon;
};
static const attnrun_attr_def skip_attrs[] = {
    ATTR_FLOAT(struct skip_args, epsilon, 1e-12f),
    ATTR_END,
};
struct skip_state {
    struct lines lines;
    int64_t skip_rows; /* rows of skip, which repeat */
};

static attn_status check_skip(const attnrun_step *step)
{
    const attnrun_type *x = &step->in[0], *skip = &step->in[1];
    if (x->rank < 0 || skip->rank < 0)
        return ATTNRUN_OK;
    TRY(op_need_rank_between(step, 1, x->rank == 3 ? 2 : x->rank, x->rank));
    for (int i = 0; i < skip->rank; i++) {
        bool batch =
            x->rank == 3 && skip->rank == 3 && i == 0 && dim_is(skip->dims[0], 1);
        if (!batch)
            TRY(op_need_dim(step, 1, i, x->dims[x->rank - skip->rank + i],
                            "as in input 0"));
    }
    return ATTNRUN_OK;
}

static attn_status infer_skip(attnrun_step *step, int n_vectors)
{
    struct skip_state *state = step->state;
    const attnrun_type *x = &step->in[0];
    TRY(op_need_rank_between(step, 0, 2, ATTNRUN_MAX_RANK));
    TRY(check_skip(step));
    for (int in = 2; in < 2 + n_vectors; in++)
        if (op_has_in(step, in)) {
            TRY(op_need_rank(step, in, 1));
            if (x->rank > 0)
                TRY(op_need_dim(step, in, 0, x->dims[x->rank - 1], "the hidden size"));
        }
    TRY(op_out_like(step, 0, 0));
    attnrun_step_inplace(step, 0, 0); /* a row is read before it is written */
    TRY(attn_norm_stats_out(step, 1, ATTNRUN_F32, x->rank - 1));
    TRY(attn_norm_stats_out(step, 2, ATTNRUN_F32, x->rank - 1));
    TRY(op_out_like(step, 3, 0));
    if (!step->concrete)
        return ATTNRUN_OK;
    TRY(attn_lines_plan(step, &state->lines, x, x->rank - 1, x->rank, 0.6));
    state->skip_rows = op_count(&step->in[1], 0, step->in[1].rank - 1);
    step->scratch_bytes = state->lines.length * 4;
    attn_norm_empty_plan(step, &state->lines);
    return ATTNRUN_OK;
}
static attn_status skip_infer(attnrun_step *step) { return infer_skip(step, 3); }
static attn_status skip_simplified_infer(attnrun_step *step)
{
    return infer_skip(step, 2);
}

static const float *input_row(const attnrun_step *step, int in, int64_t offset)
{
    return op_has_in(step, in) ? (const float *)step->x[in].data + offset : NULL;
}

/* Row `row` of input + skip + bias: in the output that wants it, else in scratch. */
static const float *sum_row(const attnrun_step *step, int bias_in, int64_t row,
                            float *room)
{
    const struct skip_state *state = step->state;
    const int64_t n = state->lines.length;
    const float *x = input_row(step, 0, row * n);
    const float *skip = input_row(step, 1, row % state->skip_rows * n);
    const float *bias = input_row(step, bias_in, 0);
    bool wanted = op_has_out(step, 3) && step->y[3].data != NULL;
    float *sum = wanted ? (float *)step->y[3].data + row * n : room;
    step->kernels->add_f32(sum, x, 1, skip, 1, (size_t)n);
    if (bias != NULL)
        step->kernels->add_f32(sum, sum, 1, bias, 1, (size_t)n);
    return sum;
}

static attn_status run_skip(const attnrun_step *step, const attnrun_work *work, bool rms)
{
    const struct skip_state *state = step->state;
    const struct skip_args *args = step->args;
    const int64_t n = state->lines.length;
    if (attn_norm_empty_run(step, &state->lines, 1, 2))
        return ATTNRUN_OK;
    for (int64_t task = work->begin; task < work->end; task++) {
        const struct lines_of_task t = attn_lines_of(&state->lines, task);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        for (int64_t row = t.index; row < t.index + t.n; row++) {
            const float *sum = sum_row(step, rms ? 3 : 4, row, work->scratch);
            float *y = (float *)step->y[0].data + row * n, stats[2] = { 0, 0 };
            if (rms)
                step->kernels->rms_norm_f32(y, sum, input_row(step, 2, 0), (size_t)n,
                                            args->epsilon, &stats[1]);
            else
                step->kernels->layer_norm_f32(y, sum, input_row(step, 2, 0),
                                              input_row(step, 3, 0), (size_t)n,
                                              args->epsilon, stats);
            for (int out = 1; out <= 2; out++)
                if (op_has_out(step, out) && step->y[out].data != NULL)
                    ((float *)step->y[out].data)[row] = stats[out - 1];
        }
    }
    return ATTNRUN_OK;
}
static attn_status skip_run(const attnrun_step *step, const attnrun_work *work)
{
    return run_skip(step, work, false);
}
static attn_status skip_simplified_run(const attnrun_step *step, const attnrun_work *work)
{
    return run_skip(step, work, true);
}

#define SKIP_ROW                                                                         \
    .outputs = "output:T mean:f32? inv_std_var:f32? input_skip_bias_sum:T?",             \
    .types = "T=f32", .args_bytes = sizeof(struct skip_args),                            \
    .state_bytes = sizeof(struct skip_state), .attrs = skip_attrs, .cost = "O(n)",       \
    .source = "ONNX Runtime contrib operators"
const attnrun_op_def op_skip_layer_normalization_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "SkipLayerNormalization",
    .since = 1,
    .inputs = "input:T skip:T gamma:T beta:T? bias:T?",
    .infer = skip_infer,
    .run = skip_run,
    SKIP_ROW,
};

const attnrun_op_def op_skip_simplified_layer_normalization_1 = {
    OP_ROW_OF("com.microsoft"),
    .name = "SkipSimplifiedLayerNormalization",
    .since = 1,
    .inputs = "input:T skip:T gamma:T bias:T?",
    .infer = skip_simplified_infer,
    .run = skip_simplified_run,
    SKIP_ROW,
};
