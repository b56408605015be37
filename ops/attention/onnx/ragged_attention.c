/* ragged_attention.c - RaggedAttention: softmax attention over the tokens of a batch
 * without its padding. The tokens are packed one sample after the other.
 *
 * Q, K, V     f32 (1, rows, columns): heads side by side from a first column on
 * samples     i64 (batch, 3): the row of a sample's first token, its place, the place
 *             behind its last token; runtime/ragged.c computes it from the mask
 * shape_like  any tensor whose first dims are (batch, tokens); only they are used
 * leaf        of the mask program (core/mask_program.h), which uses places in the batch
 *             as it was before it was packed
 * Y           (1, rows, heads * dim); rows behind the last sample are 0
 *
 * A query sees the tokens of its own sample, as the mask says. Where the mask lets it see
 * a token that does not exist, the run fails (core/masked.c). Domain attnrun.fused:
 * ops/rewrite/ragged_pass.c writes it for FusedAttention. Cost: O(sum of n^2 d) a head
 * over the lengths n of the samples. */
#include "../core/heads.h"
#include "../core/masked.h"

struct ragged_attention_args {
    int64_t kv_num_heads, q_num_heads, nan_rows;
    float scale;
    attnrun_ints columns; /* where Q, K and V begin, dims of a head of Q and of V */
    attnrun_ints code, mask, axes;
};
static const attnrun_attr_def ragged_attention_attrs[] = {
    ATTR_INT_REQUIRED(struct ragged_attention_args, kv_num_heads),
    ATTR_INT_REQUIRED(struct ragged_attention_args, q_num_heads),
    ATTR_INT(struct ragged_attention_args, nan_rows, 0),
    ATTR_FLOAT(struct ragged_attention_args, scale, 1.0f),
    ATTR_INTS_REQUIRED(struct ragged_attention_args, columns),
    ATTR_INTS(struct ragged_attention_args, code),
    ATTR_INTS_REQUIRED(struct ragged_attention_args, mask),
    ATTR_INTS_REQUIRED(struct ragged_attention_args, axes),
    ATTR_END,
};

enum { Q, K, V, SAMPLES, SHAPE_LIKE, LEAVES };
enum { HEAD_DIM = 3, V_DIM, COLUMNS };
enum { SUMMARIZE, ATTEND }; /* phases */

static attn_status ragged_check_args(const attnrun_step *step)
{
    const struct ragged_attention_args *args = step->args;
    if (args->q_num_heads < 1 || args->kv_num_heads < 1 ||
        args->q_num_heads > ATTN_MAX_DIM || args->q_num_heads % args->kv_num_heads != 0)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "q_num_heads is %lld, expected a multiple of kv_num_heads, %lld, "
                       "from 1 to 2^47",
                       (long long)args->q_num_heads, (long long)args->kv_num_heads);
    return attn_need_ints(step, "columns", args->columns, COLUMNS, ATTN_MAX_DIM);
}

/* Checks Q, K or V: rank 3, one batch of as many rows, wide enough. */
static attn_status check_operand(const attnrun_step *step, int in)
{
    const struct ragged_attention_args *args = step->args;
    const int64_t heads = in == Q ? args->q_num_heads : args->kv_num_heads;
    const attnrun_dim width = step->in[in].dims[2];
    int64_t need;
    TRY(op_need_rank(step, in, 3));
    TRY(op_need_dim(step, in, 0, dim_of(1), "the batch of packed tokens"));
    TRY(op_need_dim(step, in, 1, step->in[Q].dims[1], "the number of rows"));
    if (!ck_mul(args->columns.v[in == V ? V_DIM : HEAD_DIM], heads, &need) ||
        !ck_add(need, args->columns.v[in], &need) ||
        (dim_is_const(width) && width.value < need))
        return op_fail_input(
            step, in, ATTNRUN_E_SHAPE, "expected %s of %s in dim 2, from %lld on",
            attn_plural(heads, "head"),
            attn_plural(args->columns.v[in == V ? V_DIM : HEAD_DIM], "column"),
            (long long)args->columns.v[in]);
    return ATTNRUN_OK;
}

static attn_status plan_ragged(attnrun_step *step)
{
    const struct ragged_attention_args *args = step->args;
    struct attn_masked *m = step->state;
    struct attn_sdpa *s = &m->s;
    const int64_t batch = step->in[SHAPE_LIKE].dims[0].value,
                  tokens = step->in[SHAPE_LIKE].dims[1].value;
    const int64_t sizes[] = { 1, batch, args->q_num_heads, tokens, tokens };
    const int64_t dim = args->columns.v[HEAD_DIM], v_dim = args->columns.v[V_DIM];
    *s = (struct attn_sdpa){ .batch = batch,
                             .q_heads = args->q_num_heads,
                             .kv_heads = args->kv_num_heads,
                             .q_len = tokens,
                             .kv_len = tokens,
                             .head_dim = dim,
                             .v_dim = v_dim,
                             .scale = args->scale,
                             .nan_rows = args->nan_rows > 0,
                             .zero_nan = args->nan_rows < 0,
                             .left = -1,
                             .right = -1 };
    s->q = (struct attn_heads){ 0, dim, step->in[Q].dims[2].value };
    s->k = (struct attn_heads){ 0, dim, step->in[K].dims[2].value };
    s->v = (struct attn_heads){ 0, v_dim, step->in[V].dims[2].value };
    s->y = (struct attn_heads){ 0, v_dim, args->q_num_heads * v_dim };
    m->windows = 1;
    m->ragged = step->in[Q].dims[1].value;
    if (m->ragged > 0 && (batch == 0 || tokens == 0 || (m->ragged - 1) / batch >= tokens))
        return op_fail_input(step, Q, ATTNRUN_E_SHAPE,
                             "expected at most the %lld * %s of the batch",
                             (long long)batch, attn_plural(tokens, "token"));
    TRY(attn_sdpa_fits(step, batch, args->q_num_heads, tokens, tokens, dim + v_dim));
    TRY(attn_mask_plan(step, LEAVES, args->code, args->mask, args->axes, sizes,
                       &m->program));
    if (m->ragged == 0) {
        op_tasks(step, SUMMARIZE, 0, 0);
        op_tasks(step, ATTEND, 0, 0);
        return ATTNRUN_OK;
    }
    return attn_masked_plan(step, m);
}

static attn_status ragged_attention_infer(attnrun_step *step)
{
    const struct ragged_attention_args *args = step->args;
    TRY(ragged_check_args(step));
    for (int in = Q; in <= V; in++) {
        if (!op_rank_known(step, in))
            return op_out(step, 0, step->in[Q].dtype, -1, NULL);
        TRY(check_operand(step, in));
    }
    TRY(op_need_rank(step, SAMPLES, 2));
    TRY(op_need_rank_between(step, SHAPE_LIKE, 2, ATTNRUN_MAX_RANK));
    if (op_rank_known(step, SAMPLES) && op_rank_known(step, SHAPE_LIKE)) {
        TRY(op_need_dim(step, SAMPLES, 0, step->in[SHAPE_LIKE].dims[0], "the batch"));
        TRY(op_need_dim(step, SAMPLES, 1, dim_of(ATTN_RAGGED_FIELDS), "the fields"));
    }
    const attnrun_dim y[] = { dim_of(1), step->in[Q].dims[1],
                              attnrun_dim_mul(step, dim_of(args->q_num_heads),
                                              dim_of(args->columns.v[V_DIM])) };
    TRY(op_out(step, 0, step->in[Q].dtype, 3, y));
    return step->concrete ? plan_ragged(step) : ATTNRUN_OK;
}

/* Checks that the samples fit, and that their rows lie one behind the other from the
 * first row on. */
static attn_status check_samples(const attnrun_step *step, const struct attn_masked *m,
                                 const struct attn_ragged_sample *samples)
{
    int64_t end = 0;
    for (int64_t b = 0; b < m->s.batch; b++) {
        if (!attn_ragged_fits(&samples[b], m->ragged, m->s.q_len) ||
            samples[b].start != end)
            return op_fail_input(step, SAMPLES, ATTNRUN_E_RANGE,
                                 "sample %lld has rows from %lld on, expected rows from "
                                 "%lld on that end before row %lld",
                                 (long long)b, (long long)samples[b].start,
                                 (long long)end, (long long)m->ragged + 1);
        end += samples[b].last - samples[b].first;
        TRY(attn_poll_work(32));
    }
    return ATTNRUN_OK;
}

static attn_status ragged_attention_run(const attnrun_step *step,
                                        const attnrun_work *work)
{
    const struct ragged_attention_args *args = step->args;
    const struct attn_masked *m = step->state;
    const struct attn_masked_operands o = {
        .q = (const float *)step->x[Q].data + args->columns.v[Q],
        .k = (const float *)step->x[K].data + args->columns.v[K],
        .v = (const float *)step->x[V].data + args->columns.v[V],
        .y = step->y[0].data,
        .leaves = step->x + LEAVES,
        .samples = step->x[SAMPLES].data,
    };
    if (o.y == NULL)
        return ATTNRUN_OK;
    if (work->phase == SUMMARIZE)
        TRY(check_samples(step, m, o.samples));
    return attn_masked_run(step, m, &o, work);
}

const attnrun_op_def op_ragged_attention_1 = {
    OP_ROW_OF("attnrun.fused"),
    .name = "RaggedAttention",
    .since = 1,
    .inputs = "Q:T K:T V:T samples:i64 shape_like:U leaf:L*!",
    .outputs = "Y:T",
    .types = "T=f32 U=fixed L=f32,b8,i32,i64",
    .args_bytes = sizeof(struct ragged_attention_args),
    .state_bytes = sizeof(struct attn_masked),
    .attrs = ragged_attention_attrs,
    .infer = ragged_attention_infer,
    .run = ragged_attention_run,
    .unaligned_in = 1 << SHAPE_LIKE,
    .cost = "O(sum of n^2 d), scratch O(tile)",
};
