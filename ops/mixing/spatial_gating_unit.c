/* spatial_gating_unit.c - SpatialGatingUnit: X is cut in two along the channels, [u | g],
 * and Y = u * act(Ws[h] LayerNorm(g) + bs[h] + gate_res). Ws has a matrix over tokens for
 * each of Hs equal groups of channels.
 *
 * X            f32 (batch, N, 2 C)
 * gate_res, Y  f32 (batch, N, C); gate_res is optional
 * gamma, beta  (C);  Ws (Hs, Nw, Nw);  bs (Hs, Nw)
 *
 * The defaults are num_heads 1 (Hs), is_causal 0, activation none (tanh | silu | gelu)
 * and epsilon 1e-5. Not causal: N == Nw. Causal: N <= Nw, the top left part of Ws is
 * used, and Ws[m, n] counts as 0 for n > m. Whole blocks above the diagonal are not
 * computed, which is half of the work.
 *
 * Phase 0 computes mean and deviation of each row of g. A task of phase 1 is a block of
 * channels. Ws is the left operand and is read in place, see token_channels.h.
 *
 * Refused: other ranks, sizes that disagree, C not divisible by num_heads.
 * Cost: 2 N^2 C FLOPs a sample, half where causal. Memory: 8 bytes a token; a worker
 * holds 768 floats for each of up to 256 channels. Source: Liu 2021 (gMLP),
 * arXiv:2105.08050; compared with g-mlp-pytorch 0.1.5 SpatialGatingUnit, which is the
 * same. */
#include <math.h>

#include "token_channels.h"
#include "../attention/core/heads.h"
#include "../tile.h"

struct gating_args {
    int64_t num_heads, is_causal;
    int32_t activation;
    float epsilon;
};
static const attnrun_attr_def gating_attrs[] = {
    ATTR_INT(struct gating_args, num_heads, 1),
    ATTR_FLAG(struct gating_args, is_causal, 0),
    ATTR_ENUM(struct gating_args, activation, "none|tanh|silu|gelu", 0),
    ATTR_FLOAT(struct gating_args, epsilon, 1e-5f),
    ATTR_END,
};

enum { X, GAMMA, BETA, WS, BS, RES };

struct gating_state {
    int64_t batch, n, c, heads, weight_row;
    struct attn_channels channels;
    int64_t rows_floats; /* of normalized tokens */
};

/* ---- infer ---- */

static attn_status gating_check_args(const attnrun_step *step)
{
    const struct gating_args *args = step->args;
    TRY(attn_need_int(step, "num_heads", args->num_heads, 1, INT32_MAX));
    TRY(attn_need_int(step, "is_causal", args->is_causal, 0, 1));
    return attn_need_not_negative(step, "epsilon", args->epsilon);
}

/* Checks the channels; *c: those of Y. */
static attn_status check_channels(const attnrun_step *step, attnrun_dim *c)
{
    const struct gating_args *args = step->args;
    *c = attnrun_dim_unknown(step);
    for (int in = BETA; in >= GAMMA; in--)
        if (op_rank_known(step, in))
            *c = step->in[in].dims[0];
    if (op_rank_known(step, X)) {
        const attnrun_dim both = step->in[X].dims[2];
        if (dim_is_const(both) && both.value % 2 != 0)
            return op_fail_input(step, X, ATTNRUN_E_SHAPE, "expected an even dim 2");
        *c = attnrun_dim_div(step, both, dim_of(2));
    }
    for (int in = GAMMA; in <= BETA; in++)
        TRY(op_need_dim(step, in, 0, *c, "half the channels of X"));
    if (op_has_in(step, RES))
        TRY(op_need_dim(step, RES, 2, *c, "half the channels of X"));
    if (dim_is_const(*c) && c->value % args->num_heads != 0)
        return op_fail_input(step, X, ATTNRUN_E_SHAPE,
                             "half of dim 2, %lld, is not a multiple of %s",
                             (long long)c->value, attn_plural(args->num_heads, "head"));
    return ATTNRUN_OK;
}

static attn_status check_tokens(const attnrun_step *step)
{
    const struct gating_args *args = step->args;
    const attnrun_type *w = &step->in[WS], *x = &step->in[X];
    TRY(op_need_dim(step, WS, 0, dim_of(args->num_heads), "num_heads"));
    TRY(op_need_dim(step, BS, 0, dim_of(args->num_heads), "num_heads"));
    if (w->rank < 0)
        return ATTNRUN_OK;
    TRY(op_need_dim(step, WS, 2, w->dims[1], "a square matrix"));
    TRY(op_need_dim(step, BS, 1, w->dims[1], "the rows of Ws"));
    if (x->rank < 0)
        return ATTNRUN_OK;
    if (args->is_causal == 0)
        return op_need_dim(step, WS, 1, x->dims[1], "the tokens of X");
    if (dim_is_const(w->dims[1]) && dim_is_const(x->dims[1]) &&
        x->dims[1].value > w->dims[1].value)
        return op_fail_input(step, X, ATTNRUN_E_SHAPE, "expected at most %s, as Ws has",
                             attn_plural(w->dims[1].value, "token"));
    return ATTNRUN_OK;
}

static attn_status gating_plan(attnrun_step *step, int64_t c)
{
    const struct gating_args *args = step->args;
    struct gating_state *s = step->state;
    int64_t groups, floats;
    *s = (struct gating_state){ .batch = step->in[X].dims[0].value,
                                .n = step->in[X].dims[1].value,
                                .c = c,
                                .heads = args->num_heads,
                                .weight_row = step->in[WS].dims[1].value };
    if (s->batch == 0 || s->n == 0 || c == 0)
        return ATTNRUN_OK;
    if (!ck_mul(s->batch, s->heads, &groups))
        return op_fail_size(step, "the number of heads of the batch", "2^63 - 1");
    TRY(attn_channels_plan(step, &s->channels, groups, c / s->heads, 0));
    const int64_t width = s->channels.max;
    s->rows_floats = round_up(min64(s->n, ATTN_SUMMED) * width, 16);
    step->scratch_bytes =
        (attn_token_sums_floats(width, s->n, args->is_causal != 0) + s->rows_floats) * 4;
    if (!ck_mul(s->batch, s->n, &floats) || !ck_mul(floats, 8, &step->shared_bytes))
        return op_fail_size(step, "the memory of the statistics of its tokens",
                            "2^63 - 1 bytes");
    const double cost = 2.0 * (double)s->n * (double)s->n * ATTN_CHANNELS / 100.0;
    op_tasks(step, 0, s->batch * s->n, c / 8 + 20);
    op_tasks(step, 1, s->channels.n_tasks, op_ns(cost + 200));
    return ATTNRUN_OK;
}

static attn_status gating_infer(attnrun_step *step)
{
    static const int ranks[] = { 3, 1, 1, 3, 2, 3 };
    attnrun_dim c, y[3] = { attnrun_dim_unknown(step), attnrun_dim_unknown(step) };
    TRY(gating_check_args(step));
    for (int in = X; in <= RES; in++)
        if (op_has_in(step, in))
            TRY(op_need_rank(step, in, ranks[in]));
    TRY(check_channels(step, &c));
    TRY(check_tokens(step));
    for (int in = RES; in >= X; in -= RES)
        for (int i = 0; i < 2 && op_has_in(step, in) && op_rank_known(step, in); i++)
            y[i] = step->in[in].dims[i];
    for (int i = 0; i < 2 && op_has_in(step, RES); i++)
        TRY(op_need_dim(step, RES, i, y[i], "that of X"));
    y[2] = c;
    TRY(op_out(step, 0, step->in[X].dtype, 3, y));
    return step->concrete ? gating_plan(step, c.value) : ATTNRUN_OK;
}

/* ---- run ---- */

/* Computes mean and 1 / deviation of row `row` (of all samples) of g. */
static void find_stats(const attnrun_step *step, float *shared, int64_t row)
{
    const struct gating_args *args = step->args;
    const struct gating_state *s = step->state;
    const float *g = (const float *)step->x[X].data + row * 2 * s->c + s->c;
    float *stats = shared + 2 * row;
    step->kernels->mean_variance_f32(g, (size_t)s->c, stats);
    stats[1] = 1.0f / sqrtf(stats[1] + args->epsilon);
}

/* Some channels of a sample. */
struct gating_channels {
    const attnrun_step *step;
    const float *g, *stats; /* of its first token */
    int64_t first, width;
    float *rows; /* (up to ATTN_SUMMED, width) */
};

/* Packs LayerNorm(g) of n tokens as B. */
static void pack_normalized(const void *from, int64_t token, int64_t n, float *packed)
{
    const struct gating_channels *c = from;
    const attnrun_step *step = c->step;
    const struct gating_state *s = step->state;
    const float *gamma = (const float *)step->x[GAMMA].data + c->first;
    const float *beta = (const float *)step->x[BETA].data + c->first;
    for (int64_t t = 0; t < n; t++) {
        const float *stats = c->stats + 2 * (token + t);
        step->kernels->normalize_f32(c->rows + t * c->width,
                                     c->g + (token + t) * 2 * s->c, gamma, beta,
                                     (size_t)c->width, stats[0], stats[1]);
    }
    step->kernels->gemm_pack_f32(packed, c->rows, c->width, 1, (size_t)n,
                                 (size_t)c->width);
}

/* Lists the steps behind the product. `at`: the element of Y where the channels of the
 * sample's first token begin. */
static int gating_list_epilogue(const attnrun_step *step, int64_t head, int64_t at,
                                struct attn_epilogue *steps)
{
    static const int32_t kinds[] = { -1, ATTN_EPI_TANH, ATTN_EPI_SILU, ATTN_EPI_GELU };
    const struct gating_args *args = step->args;
    const struct gating_state *s = step->state;
    int n = 0;
    steps[n++] = (struct attn_epilogue){ .kind = ATTN_EPI_ADD,
                                         .alpha = 1.0f,
                                         .row = 1,
                                         .data = (const float *)step->x[BS].data +
                                                 head * s->weight_row };
    if (op_has_in(step, RES))
        steps[n++] =
            (struct attn_epilogue){ .kind = ATTN_EPI_ADD,
                                    .alpha = 1.0f,
                                    .row = s->c,
                                    .col = 1,
                                    .data = (const float *)step->x[RES].data + at };
    if (args->activation != 0)
        steps[n++] = (struct attn_epilogue){ .kind = kinds[args->activation] };
    return n;
}

/* Computes channels first … first + width - 1, of one head, of sample b. */
static attn_status run_channels(const attnrun_step *step, const attnrun_work *work,
                                int64_t b, int64_t first, int64_t width)
{
    const struct gating_args *args = step->args;
    const struct gating_state *s = step->state;
    const int64_t head = first / s->channels.n, at = b * s->n * s->c + first;
    const float *u = (const float *)step->x[X].data + b * s->n * 2 * s->c + first;
    float *const y = (float *)step->y[0].data + at;
    struct attn_epilogue steps[ATTN_SUM_STEPS];
    const struct gating_channels channels = {
        step,  u + s->c, (const float *)work->shared + 2 * b * s->n,
        first, width,    work->scratch
    };
    const struct attn_token_sums sums = {
        .kernels = step->kernels,
        .w = (const float *)step->x[WS].data + head * s->weight_row * s->weight_row,
        .w_row = s->weight_row,
        .tokens = s->n,
        .lower = args->is_causal != 0,
        .pack = pack_normalized,
        .from = &channels,
        .c = y,
        .c_row = s->c,
        .width = width,
        .epilogue = steps,
        .n_epilogue = gating_list_epilogue(step, head, at, steps),
        .scratch = channels.rows + s->rows_floats
    };
    for (int64_t m = 0; m < s->n; m += ATTN_SUM_ROWS) {
        const int64_t n = s->n - m < ATTN_SUM_ROWS ? s->n - m : ATTN_SUM_ROWS;
        TRY(attn_token_sums_run(&sums, m, n, work));
        for (int64_t i = m; i < m + n; i++)
            step->kernels->mul_f32(y + i * s->c, y + i * s->c, 1, u + i * 2 * s->c, 1,
                                   (size_t)width);
    }
    return ATTNRUN_OK;
}

/* Runs the tasks from `task` on that lie side by side; *taken: their number. */
static attn_status gating_run_block(const attnrun_step *step, const attnrun_work *work,
                                    int64_t task, int64_t *taken)
{
    const struct gating_state *s = step->state;
    struct attn_channels_part part = attn_channels_take(&s->channels, task, work->end);
    const int64_t head = op_take(&part.group, s->heads);
    *taken = part.n_tasks;
    return run_channels(step, work, part.group, head * s->channels.n + part.first,
                        part.width);
}

static attn_status gating_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct gating_state *s = step->state;
    if (s->batch == 0 || s->n == 0 || s->c == 0)
        return ATTNRUN_OK;
    for (int64_t task = work->begin, taken = 1; task < work->end; task += taken) {
        if (work->phase == 1)
            TRY(gating_run_block(step, work, task, &taken));
        else
            find_stats(step, work->shared, task);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_spatial_gating_unit_1 = {
    OP_ROW_OF("attnrun"),
    .name = "SpatialGatingUnit",
    .since = 1,
    .inputs = "X:T gamma:T beta:T Ws:T bs:T gate_res:T?",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct gating_args),
    .state_bytes = sizeof(struct gating_state),
    .attrs = gating_attrs,
    .infer = gating_infer,
    .run = gating_run,
    .cost = "O(N^2 C)",
    .source = "Liu 2021, arXiv:2105.08050",
};
