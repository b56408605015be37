/* sparse_transformer_attention.c - SparseTransformerAttention: the factorized patterns of
 * Sparse Transformers. With p = i + kv_len - q_len, l = stride, c = summary and s = head
 * mod num_verts, query i sees those keys j <= p (any j where is_causal is 0) for which
 *
 *   local           p - j < l (|p - j| < l)
 *   strided         (p - j) mod l = 0
 *   fixed_local     floor(p / l) = floor(j / l)
 *   fixed_summary   l - (s + 1) c <= j mod l < l - s c
 *   strided_merged  local or strided, one softmax over both
 *   fixed           fixed_local or fixed_summary
 *
 * Q, K, V     see heads.h; groups of query heads may share a key head
 * key_mask    bool (batch, kv_len), optional: false masks a key
 * pattern     one for all heads, or one per query head
 * stride      at least 1; summary 1 … stride (default 1); num_verts * summary <= stride
 *             (default 1)
 * is_causal   1 by default
 *
 * A query that sees no key gives zeros.
 * Refused: unknown patterns, a list of neither one pattern nor one for each head, stride
 * < 1, summary or num_verts * summary above stride.
 * Cost: O(pairs that are seen), which is n sqrt(n) for l = sqrt(n). Strided keys are
 * copied to scratch, for all queries of one remainder together: rows that are l tokens
 * apart share a few places of each cache. Where all heads are strided, a task computes its
 * remainders for all heads, and up to 512 KiB of rows of several heads are copied
 * together, because the heads of a token lie side by side. Bound: bytes. Stride 64 at 4,096
 * tokens, 8 heads of 64, on a Zen 4 core: Q, K, V and Y are 33 MB, which leave L3, for 2.3 ms of
 * products at the peak; copies 2.2 ms, products 3.7, exponentials 0.7, all 7.5. At 16,384 tokens
 * products are 45 ms (36.5 at the peak) and copies 14 of 68. Where queries also have a local
 * part, the running sums of up to 4,096 of them are kept in scratch until that part is
 * computed.
 * Source: Child 2019, arXiv:1904.10509; the patterns are those of openai/sparse_attention
 * c53f3bd attention.py. There local means l keys with the query's own, where the paper
 * writes l + 1. */
#include "sparse_transformer.h"
#include "../../tile.h"

#include <math.h>

static const attnrun_attr_def sparse_attrs[] = {
    ATTN_HEADS_ATTRS_WITH(struct sparse_args, 1, ATTN_SCALE_ABSENT),
    { .name = "pattern",
      .kind = ATTNRUN_ATTR_STRINGS,
      .offset = offsetof(struct sparse_args, pattern),
      .flags = ATTNRUN_ATTR_REQUIRED },
    ATTR_INT_REQUIRED(struct sparse_args, stride),
    ATTR_INT(struct sparse_args, summary, 1),
    ATTR_INT(struct sparse_args, num_verts, 1),
    ATTR_END,
};

static const struct {
    const char *name;
    int parts;
} patterns[] = { { "local", SPARSE_LOCAL },
                 { "strided", SPARSE_STRIDED },
                 { "fixed_local", SPARSE_OWN_BLOCK },
                 { "fixed_summary", SPARSE_SUMMARY },
                 { "strided_merged", SPARSE_LOCAL | SPARSE_STRIDED },
                 { "fixed", SPARSE_OWN_BLOCK | SPARSE_SUMMARY } };

enum {
    KEYS = ATTN_STREAM_KEYS,
    FAR_GROUP = 4096,
    FAR_BYTES = 1200 << 10, /* of sums that wait */
    ROWS = 256,             /* of queries beside such sums, and of a remainder */
    COPY_BYTES = 512 << 10  /* of rows that are copied together, but for one head's */
};

int attn_sparse_parts(const struct sparse_args *args, int64_t head)
{
    const attnrun_string *s = &args->pattern.v[args->pattern.n == 1 ? 0 : head];
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (op_text_is(*s, patterns[i].name))
            return patterns[i].parts;
    return 0;
}

/* ---- infer ---- */

static attn_status sparse_transformer_check_args(const attnrun_step *step)
{
    const struct sparse_args *args = step->args;
    TRY(attn_need_int(step, "stride", args->stride, 1, INT32_MAX));
    TRY(attn_need_int(step, "summary", args->summary, 1, args->stride));
    TRY(attn_need_int(step, "num_verts", args->num_verts, 1,
                      args->stride / args->summary));
    if (args->pattern.n < 1)
        return op_fail(step, ATTNRUN_E_ATTR, "pattern is empty");
    for (int64_t i = 0; i < args->pattern.n; i++)
        if (attn_sparse_parts(args, i) == 0)
            return op_fail(step, ATTNRUN_E_ATTR,
                           "pattern '%.*s' is unknown, expected local, strided, "
                           "fixed_local, fixed_summary, strided_merged or fixed",
                           (int)min64(args->pattern.v[i].n, 64), args->pattern.v[i].data);
    return ATTNRUN_OK;
}

static attn_status check_pattern(const attnrun_step *step, attnrun_dim heads)
{
    const struct sparse_args *args = step->args;
    if (args->pattern.n == 1 || !dim_is_const(heads) || heads.value == args->pattern.n)
        return ATTNRUN_OK;
    return op_fail(step, ATTNRUN_E_ATTR, "pattern has %s, expected 1 or %lld",
                   attn_plural(args->pattern.n, "element"), (long long)heads.value);
}

/* Whether some head's pattern has all of these parts. */
static bool any_has(const struct sparse_args *args, int wanted)
{
    for (int64_t i = 0; i < args->pattern.n; i++)
        if ((attn_sparse_parts(args, i) & wanted) == wanted)
            return true;
    return false;
}

static bool all_strided(const struct sparse_args *args)
{
    for (int64_t i = 0; i < args->pattern.n; i++)
        if (attn_sparse_parts(args, i) != SPARSE_STRIDED)
            return false;
    return true;
}

/* Chooses the remainders of a task and the heads that are copied together. Every task
 * computes all heads. */
static void cut_strided(const struct sparse_args *args, struct sparse_state *s)
{
    const struct attn_sizes *z = &s->sizes;
    const int64_t l = args->stride, remainders = min64(l, s->group);
    const int64_t keys = min64(ceil_div(z->kv_len, l), KEYS);
    s->remainders = ceil_div(remainders, OP_ENOUGH_TASKS);
    s->parts = ceil_div(remainders, s->remainders);
    s->row_floats = ceil_div(s->group, l) * z->dim;
    s->key_floats = keys * (z->dim + z->v_dim);
    if (ceil_div(z->kv_len, l) > KEYS)
        return;
    const int64_t each = (s->row_floats + s->key_floats) * (int64_t)sizeof(float);
    s->copied = max64(1, min64(z->q_heads, COPY_BYTES / max64(each, 1)));
}

/* Chooses the queries of a task. With strided keys they are many, because each remainder
 * is a product of its own. The batch has no influence, so a sample's bits do not depend
 * on other samples. */
static void sparse_transformer_cut(const struct sparse_args *args, struct sparse_state *s)
{
    const struct attn_sizes *z = &s->sizes;
    const bool far = any_has(args, SPARSE_STRIDED);
    const bool strided = all_strided(args) && args->stride >= OP_ENOUGH_TASKS;
    const int64_t row = (z->v_dim + 4) * (int64_t)sizeof(float);
    s->group = far ? FAR_GROUP : ATTN_STREAM_MAX;
    while (far && s->group > ROWS && s->group > FAR_BYTES / row)
        s->group /= 2;
    while (s->group > (far ? FAR_GROUP / 4 : ATTN_STREAM_ROWS) &&
           ceil_div(z->q_len, s->group) < (OP_ENOUGH_TASKS - 1) / z->q_heads + 1)
        s->group /= 2;
    if (far && args->stride < s->group)
        s->group -= s->group % args->stride;
    if (strided)
        s->group = ROWS * args->stride;
    s->group = min64(s->group, z->q_len);
    s->groups = ceil_div(z->q_len, s->group);
    s->rows = far ? min64(ROWS, s->group) : s->group;
    const bool even =
        args->stride % ATTN_TILE_QUERIES == 0 || !any_has(args, SPARSE_OWN_BLOCK);
    s->tile = even || args->stride >= 256 ? ATTN_TILE_QUERIES : ATTN_TILE_QUERIES / 2;
    s->remainders = s->parts = s->copied = s->row_floats = s->key_floats = 0;
    if (strided)
        cut_strided(args, s);
}

static attn_status plan_sparse_transformer(attnrun_step *step, struct sparse_state *s)
{
    const struct sparse_args *args = step->args;
    const struct attn_sizes *z = &s->sizes;
    int64_t floats = 0, tasks = 0, stream_at;
    op_tasks(step, 0, 0, 0);
    if (z->batch == 0 || z->q_heads == 0 || z->q_len == 0 || z->v_dim == 0)
        return ATTNRUN_OK;
    sparse_transformer_cut(args, s);
    const bool waits = s->parts == 0 && any_has(args, SPARSE_STRIDED | SPARSE_LOCAL);
    const int64_t far = waits ? s->group : 0, size = sizeof(float);
    /* Two streams, one after the other, in one place. */
    const int64_t stream =
        attn_stream_bytes(max64(s->rows, ATTN_STREAM_ROWS), z->dim, z->v_dim);
    step->scratch_bytes = 0;
    bool fits =
        stream >= 0 && op_slot(&stream_at, &step->scratch_bytes, stream, 1) &&
        ck_mul(far, z->v_dim, &floats) &&
        op_slot(&s->far_at, &step->scratch_bytes, floats, size) &&
        op_slot(&s->far_state_at, &step->scratch_bytes, far, 4 * size) &&
        op_slot(&s->keys_at, &step->scratch_bytes, z->dim + z->v_dim, KEYS * size) &&
        op_slot(&s->copies_at, &step->scratch_bytes, s->row_floats + s->key_floats,
                s->copied * size) &&
        op_grid_tasks(z->batch, s->parts > 0 ? s->parts : z->q_heads, s->groups, &tasks);
    if (!fits)
        return op_fail_scratch(step);
    const double stride = (double)args->stride, keys = (double)z->kv_len;
    const double seen = fmin(keys, stride + keys / stride * (double)args->summary);
    const double cost = (double)s->group * seen * (double)(z->dim + z->v_dim + 32) / 50.0;
    const double heads = s->parts > 0 ? (double)z->q_heads / (double)s->parts : 1.0;
    op_tasks(step, 0, tasks, op_ns(cost * heads + 2000));
    return ATTNRUN_OK;
}

static attn_status sparse_infer(attnrun_step *step)
{
    const struct sparse_args *args = step->args;
    struct sparse_state *s = step->state;
    struct attn_qkv shape;
    TRY(sparse_transformer_check_args(step));
    TRY(attn_qkv_infer(step, &args->heads, SPARSE_Q, SPARSE_K, SPARSE_V, 0, &shape));
    TRY(attn_key_mask_check(step, SPARSE_KEY_MASK, shape.batch, shape.kv_len));
    TRY(check_pattern(step, shape.q_heads));
    TRY(attn_qkv_output(step, &shape, 0));
    if (!step->concrete)
        return ATTNRUN_OK;
    TRY(attn_qkv_sizes(step, &args->heads, &shape, &s->sizes));
    return plan_sparse_transformer(step, s);
}

const attnrun_op_def op_sparse_transformer_attention_1 = {
    OP_ROW_OF("attnrun"),
    .name = "SparseTransformerAttention",
    .since = 1,
    .inputs = "Q:T K:T V:T key_mask:b8?",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct sparse_args),
    .state_bytes = sizeof(struct sparse_state),
    .attrs = sparse_attrs,
    .infer = sparse_infer,
    .run = attn_sparse_run,
    .cost = "O(n sqrt(n) d) where stride is sqrt(n)",
    .source = "Child 2019, arXiv:1904.10509",
};
