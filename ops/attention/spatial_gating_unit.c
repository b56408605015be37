/* spatial_gating_unit.c - SpatialGatingUnit: with [u | g] = X cut in two along channels,
 * Y = u * act(Ws[h] LayerNorm(g) + bs[h] + gate_res), a matrix over tokens for each of Hs
 * equal groups of channels.
 *
 * X            f32 (batch, N, 2 C); gate_res (batch, N, C), optional
 * gamma, beta  (C);  Ws (Hs, Nw, Nw);  bs (Hs, Nw)
 * num_heads 1 (Hs), is_causal 0, activation none | tanh | silu | gelu, epsilon 1e-5
 * Not causal: N == Nw. Causal: N <= Nw, the top left part, and Ws[m, n] counts as 0 for
 * n > m: whole blocks above the diagonal are left out (half of the work).
 *
 * Phase 0 finds mean and deviation of each row of g. A task of phase 1 normalizes a block
 * of channels into a packed operand, then goes over blocks of rows of Ws, which is the
 * left operand and read where it lies.
 *
 * Refuses: other ranks, sizes that disagree, C not divisible by num_heads.
 * Cost: 2 N^2 C flops a sample, half where causal. Memory: 8 bytes a token; a worker
 * holds 2 N floats for each of 64 to 128 channels. Source: Liu 2021 (gMLP),
 * arXiv:2105.08050; compared with g-mlp-pytorch 0.1.5 SpatialGatingUnit, which is the
 * same. */
#include <math.h>

#include "channels.h"
#include "heads.h"

struct gating_args {
    int64_t num_heads, is_causal;
    int32_t activation;
    float epsilon;
};
static const attnrun_attr_def gating_attrs[] = {
    ATTR_INT(struct gating_args, num_heads, 1),
    ATTR_INT(struct gating_args, is_causal, 0),
    ATTR_ENUM(struct gating_args, activation, "none|tanh|silu|gelu", 0),
    ATTR_FLOAT(struct gating_args, epsilon, 1e-5f),
    ATTR_END,
};

enum { X, GAMMA, BETA, WS, BS, RES };
enum { ROWS = ATTN_GEMM_MC };

struct gating_state {
    int64_t batch, n, c, heads, weight_row;
    struct attn_channels channels;
    int64_t block_floats;
};

/* ---- infer ---- */

static attn_status check_args(const attnrun_step *step)
{
    const struct gating_args *args = step->args;
    TRY(attn_need_int(step, "num_heads", args->num_heads, 1, INT32_MAX));
    TRY(attn_need_int(step, "is_causal", args->is_causal, 0, 1));
    TRY(attn_need_finite(step, "epsilon", args->epsilon, false));
    return args->epsilon < 0
               ? op_fail(step, ATTNRUN_E_ATTR, "epsilon is %g, expected 0 or more",
                         (double)args->epsilon)
               : ATTNRUN_OK;
}

/* *c: the channels of Y. */
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
                             "half of dim 2, %lld, is no multiple of %lld heads",
                             (long long)c->value, (long long)args->num_heads);
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
        return op_fail_input(step, X, ATTNRUN_E_SHAPE,
                             "expected at most %lld tokens, as Ws has",
                             (long long)w->dims[1].value);
    return ATTNRUN_OK;
}

static attn_status gating_plan(attnrun_step *step, int64_t c)
{
    const struct gating_args *args = step->args;
    struct gating_state *s = step->state;
    int64_t groups, floats, gemm;
    *s = (struct gating_state){ .batch = step->in[X].dims[0].value,
                                .n = step->in[X].dims[1].value,
                                .c = c,
                                .heads = args->num_heads,
                                .weight_row = step->in[WS].dims[1].value };
    if (s->batch == 0 || s->n == 0 || c == 0)
        return ATTNRUN_OK;
    if (!ck_mul(s->batch, s->heads, &groups))
        return op_fail(step, ATTNRUN_E_LIMIT, "too many heads");
    TRY(attn_channels_plan(step, &s->channels, groups, c / s->heads, s->n));
    const int64_t width = s->channels.width;
    gemm = (int64_t)attn_gemm_scratch(ROWS, (size_t)width, (size_t)s->n) + ROWS * ROWS;
    if (!ck_mul(s->n, width, &s->block_floats) || !ck_mul(s->block_floats, 2, &floats) ||
        !ck_add(floats, gemm, &floats) || !ck_mul(floats, 4, &step->scratch_bytes) ||
        !ck_mul(s->batch, s->n, &floats) || !ck_mul(floats, 8, &step->shared_bytes))
        return op_fail(step, ATTNRUN_E_LIMIT, "the product is too large");
    double cost = 2.0 * (double)s->n * (double)s->n * (double)width / 100.0;
    op_tasks(step, 0, s->batch * s->n, c / 8 + 20);
    op_tasks(step, 1, s->channels.n_tasks,
             cost < 1e15 ? (int64_t)cost + 200 : INT64_C(1) << 50);
    return ATTNRUN_OK;
}

static attn_status gating_infer(attnrun_step *step)
{
    static const int ranks[] = { 3, 1, 1, 3, 2, 3 };
    attnrun_dim c, y[3] = { attnrun_dim_unknown(step), attnrun_dim_unknown(step) };
    TRY(check_args(step));
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

/* Mean and 1 / deviation of row `row` (of all samples) of g. */
static void find_stats(const attnrun_step *step, float *shared, int64_t row)
{
    const struct gating_args *args = step->args;
    const struct gating_state *s = step->state;
    const float *g = (const float *)step->x[X].data + row * 2 * s->c + s->c;
    float *stats = shared + 2 * row;
    step->kernels->mean_variance_f32(g, (size_t)s->c, stats);
    stats[1] = 1.0f / sqrtf(stats[1] + args->epsilon);
}

/* LayerNorm(g) for channels first … first + width - 1 of sample b, as packed B. */
static void normalize(const attnrun_step *step, const float *stats, int64_t b,
                      int64_t first, int64_t width, float *packed, float *rows)
{
    const struct gating_state *s = step->state;
    const float *gamma = (const float *)step->x[GAMMA].data + first;
    const float *beta = (const float *)step->x[BETA].data + first;
    for (int64_t n = 0; n < s->n; n++) {
        const float *g =
            (const float *)step->x[X].data + (b * s->n + n) * 2 * s->c + s->c;
        const float mean = stats[2 * (b * s->n + n)],
                    factor = stats[2 * (b * s->n + n) + 1];
        for (int64_t i = 0; i < width; i++)
            rows[n * width + i] = (g[first + i] - mean) * factor * gamma[i] + beta[i];
    }
    step->kernels->gemm_pack_f32(packed, rows, width, 1, (size_t)s->n, (size_t)width);
}

static int list_epilogue(const attnrun_step *step, int64_t head, int64_t m, int64_t y_at,
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
                                                 head * s->weight_row + m };
    if (op_has_in(step, RES))
        steps[n++] =
            (struct attn_epilogue){ .kind = ATTN_EPI_ADD,
                                    .alpha = 1.0f,
                                    .row = s->c,
                                    .col = 1,
                                    .data = (const float *)step->x[RES].data + y_at };
    if (args->activation != 0)
        steps[n++] = (struct attn_epilogue){ .kind = kinds[args->activation] };
    return n;
}

/* The rows of Ws on the diagonal with what lies above it as zeros. */
static void lower_part(float *to, const float *w, int64_t row, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            to[i * n + j] = j <= i ? w[i * row + j] : 0.0f;
}

/* Rows m … of Y; `gemm`: scratch of the product, then ROWS * ROWS floats. */
static void run_rows(const attnrun_step *step, int64_t head, int64_t m, int64_t y_at,
                     const float *packed, int64_t width, float *gemm)
{
    const struct gating_args *args = step->args;
    const struct gating_state *s = step->state;
    const int64_t rows = s->n - m < ROWS ? s->n - m : ROWS;
    const float *w =
        (const float *)step->x[WS].data + (head * s->weight_row + m) * s->weight_row;
    struct attn_epilogue steps[3];
    struct attn_gemm_f32 g = { .a = w,
                               .a_row = s->weight_row,
                               .b = packed,
                               .packed = 1,
                               .packed_k = (size_t)s->n,
                               .c = (float *)step->y[0].data + y_at,
                               .c_row = s->c,
                               .m = (size_t)rows,
                               .n = (size_t)width,
                               .k = (size_t)s->n,
                               .epilogue = steps,
                               .scratch = gemm + ROWS * ROWS };
    if (args->is_causal != 0) {
        lower_part(gemm, w + m, s->weight_row, rows);
        g.k = (size_t)m;
        if (m > 0)
            step->kernels->gemm_f32(&g);
        g.a = gemm;
        g.a_row = rows;
        g.k = (size_t)rows;
        g.packed_from = (size_t)m;
        g.accumulate = m > 0;
    }
    g.n_epilogue = list_epilogue(step, head, m, y_at, steps);
    step->kernels->gemm_f32(&g);
}

static attn_status run_block(const attnrun_step *step, const attnrun_work *work,
                             int64_t task)
{
    const struct gating_state *s = step->state;
    float *packed = work->scratch, *rest = packed + s->block_floats;
    int64_t first, width;
    const int64_t group = attn_channels_of(&s->channels, task, &first, &width);
    const int64_t b = group / s->heads, head = group % s->heads;
    first += head * s->channels.n;
    normalize(step, work->shared, b, first, width, packed, rest);
    for (int64_t m = 0; m < s->n; m += ROWS) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        const int64_t y_at = (b * s->n + m) * s->c + first;
        run_rows(step, head, m, y_at, packed, width, rest + s->block_floats);
        for (int64_t i = m; i < s->n && i < m + ROWS; i++) {
            float *y = (float *)step->y[0].data + (b * s->n + i) * s->c + first;
            const float *u =
                (const float *)step->x[X].data + (b * s->n + i) * 2 * s->c + first;
            step->kernels->mul_f32(y, y, 1, u, 1, (size_t)width);
        }
    }
    return ATTNRUN_OK;
}

static attn_status gating_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct gating_state *s = step->state;
    if (s->batch == 0 || s->n == 0 || s->c == 0)
        return ATTNRUN_OK;
    for (int64_t task = work->begin; task < work->end; task++) {
        if (work->phase == 1)
            TRY(run_block(step, work, task));
        else
            find_stats(step, work->shared, task);
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_spatial_gating_unit_1 = {
    .struct_size = sizeof(attnrun_op_def),
    .domain = "attnrun",
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
