/* token_mixing.c - TokenMixing: Y = W2 act(W1 X + b1 1') + b2 1', over the tokens.
 *
 * X        f32 (batch, N, C)
 * W1, W2   (T, N), (No, T); b1 (T), b2 (No) optional
 * Y        (batch, No, C)
 * activation  gelu (by erf) | gelu_tanh | relu
 *
 * A task is a block of channels of one sample, whose hidden values exist in scratch only.
 * The weights are left operands, whose rows are read in place, so nothing is packed at
 * load; see token_channels.h.
 *
 * Refused: ranks other than 3, 2 and 1, sizes that disagree.
 * Cost: 2 (N + No) T C FLOPs a sample. Memory: a worker holds T + 384 floats for each of
 * 64 to 256 channels. Source: Tolstikhin 2021 (MLP-Mixer), arXiv:2105.01601; compared
 * with mlp-mixer-pytorch 0.3.1 (FeedForward of Conv1d over patches: W = weight[:, :, 0],
 * erf) and, for the tanh form, with flax as google-research/vision_transformer uses it
 * (formula only). */
#include "../../runtime/op.h"
#include "token_channels.h"
#include "../tile.h"

struct mixing_args {
    int32_t activation;
};
static const attnrun_attr_def mixing_attrs[] = {
    ATTR_ENUM(struct mixing_args, activation, "gelu|gelu_tanh|relu", 0),
    ATTR_END,
};

enum { X, W1, W2, B1, B2 };

struct mixing_state {
    int64_t batch, n, c, hidden, out;
    struct attn_channels channels;
    int64_t hidden_floats;
};

/* Checks that vector `in` has the length of dim 0 of matrix `of`. */
static attn_status check_bias(const attnrun_step *step, int in, int of)
{
    if (!op_has_in(step, in))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, in, 1));
    if (!op_rank_known(step, of))
        return ATTNRUN_OK;
    return op_need_dim(step, in, 0, step->in[of].dims[0], "the rows of its matrix");
}

static attn_status mixing_plan(attnrun_step *step)
{
    struct mixing_state *s = step->state;
    const attnrun_type *in = step->in;
    int64_t floats;
    s->batch = in[X].dims[0].value;
    s->n = in[X].dims[1].value;
    s->c = in[X].dims[2].value;
    s->hidden = in[W1].dims[0].value;
    s->out = in[W2].dims[0].value;
    if (s->batch == 0 || s->c == 0 || s->out == 0)
        return ATTNRUN_OK;
    TRY(attn_channels_plan(step, &s->channels, s->batch, s->c, s->hidden));
    const int64_t width = s->channels.max, longest = s->n > s->hidden ? s->n : s->hidden;
    const int64_t sums = attn_token_sums_floats(width, longest, false);
    if (!ck_mul(s->hidden, width, &s->hidden_floats) ||
        !ck_add(s->hidden_floats, sums, &floats) ||
        !ck_mul(floats, 4, &step->scratch_bytes))
        return op_fail_size(step, "the memory of the hidden tokens", "2^63 - 1 bytes");
    const double cost =
        2.0 * (double)s->hidden * (double)(s->n + s->out) * ATTN_CHANNELS / 100.0;
    op_tasks(step, 0, s->channels.n_tasks, op_ns(cost + 200));
    return ATTNRUN_OK;
}

static attn_status mixing_infer(attnrun_step *step)
{
    const attnrun_type *in = step->in;
    attnrun_dim y[3];
    TRY(op_need_rank(step, X, 3));
    TRY(op_need_rank(step, W1, 2));
    TRY(op_need_rank(step, W2, 2));
    if (op_rank_known(step, X) && op_rank_known(step, W1))
        TRY(op_need_dim(step, W1, 1, in[X].dims[1], "the tokens of X"));
    if (op_rank_known(step, W2) && op_rank_known(step, W1))
        TRY(op_need_dim(step, W2, 1, in[W1].dims[0], "the rows of W1"));
    TRY(check_bias(step, B1, W1));
    TRY(check_bias(step, B2, W2));
    y[0] = op_rank_known(step, X) ? in[X].dims[0] : attnrun_dim_unknown(step);
    y[1] = op_rank_known(step, W2) ? in[W2].dims[0] : attnrun_dim_unknown(step);
    y[2] = op_rank_known(step, X) ? in[X].dims[2] : attnrun_dim_unknown(step);
    TRY(op_out(step, 0, in[X].dtype, 3, y));
    return step->concrete ? mixing_plan(step) : ATTNRUN_OK;
}

/* Computes to (rows, width) = activation(W x + bias), W (rows, k); `kind` < 0: no
 * activation. */
static attn_status mixing_product(const attnrun_step *step, const attnrun_work *work,
                                  int w, int bias, int32_t kind,
                                  struct attn_token_sums sums)
{
    const int64_t rows = step->in[w].dims[0].value;
    struct attn_epilogue steps[2];
    sums.kernels = step->kernels;
    sums.w = step->x[w].data;
    sums.w_row = sums.tokens = step->in[w].dims[1].value;
    sums.epilogue = steps;
    if (op_has_in(step, bias))
        steps[sums.n_epilogue++] = (struct attn_epilogue){
            .kind = ATTN_EPI_ADD, .alpha = 1.0f, .row = 1, .data = step->x[bias].data
        };
    if (kind >= 0)
        steps[sums.n_epilogue++] = (struct attn_epilogue){ .kind = kind };
    for (int64_t m = 0; m < rows; m += ATTN_SUM_ROWS)
        TRY(attn_token_sums_run(
            &sums, m, rows - m < ATTN_SUM_ROWS ? rows - m : ATTN_SUM_ROWS, work));
    return ATTNRUN_OK;
}

/* Computes channels first … first + width - 1 of sample b. */
static attn_status run_channels(const attnrun_step *step, const attnrun_work *work,
                                int64_t b, int64_t first, int64_t width)
{
    static const int32_t kinds[] = { ATTN_EPI_GELU, ATTN_EPI_GELU_TANH, ATTN_EPI_RELU };
    const struct mixing_args *args = step->args;
    const struct mixing_state *s = step->state;
    float *hidden = work->scratch;
    struct attn_token_sums sums = { .x = (const float *)step->x[X].data +
                                         b * s->n * s->c + first,
                                    .x_row = s->c,
                                    .c = hidden,
                                    .c_row = width,
                                    .width = width,
                                    .scratch = hidden + s->hidden_floats };
    TRY(mixing_product(step, work, W1, B1, kinds[args->activation], sums));
    sums.x = hidden;
    sums.x_row = width;
    sums.c = (float *)step->y[0].data + b * s->out * s->c + first;
    sums.c_row = s->c;
    return mixing_product(step, work, W2, B2, -1, sums);
}

static attn_status mixing_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct mixing_state *s = step->state;
    if (s->batch == 0 || s->c == 0 || s->out == 0)
        return ATTNRUN_OK;
    for (int64_t task = work->begin; task < work->end;) {
        const struct attn_channels_part part =
            attn_channels_take(&s->channels, task, work->end);
        TRY(run_channels(step, work, part.group, part.first, part.width));
        task += part.n_tasks;
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_token_mixing_1 = {
    OP_ROW_OF("attnrun"),
    .name = "TokenMixing",
    .since = 1,
    .inputs = "X:T W1:T W2:T b1:T? b2:T?",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct mixing_args),
    .state_bytes = sizeof(struct mixing_state),
    .attrs = mixing_attrs,
    .infer = mixing_infer,
    .run = mixing_run,
    .cost = "O((N + No) T C)",
    .source = "Tolstikhin 2021, arXiv:2105.01601",
};
