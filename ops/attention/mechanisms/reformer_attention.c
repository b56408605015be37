/* reformer_attention.c - ReformerAttention: attention among tokens that hash into the
 * same buckets (LSH). The keys are the queries, scaled to a length of about 1. For each
 * head and round t:
 *
 *   u = QK_i R_t, cut into one part for each factor of num_buckets. The index of the
 *   largest of [part, -part] (the first of equal ones) is a digit of the bucket of i.
 *   The tokens are sorted by (bucket, position) and cut into chunks. Masked tokens come
 *   last, and so do those that fill up the last chunk. A query of chunk a sees the chunks
 *   a - chunks_before … a + chunks_after of the chunks of all rounds, modulo their
 *   number.
 *   s = scale q k / |k|. It is masked where key_mask is false, where the key comes later
 *   (is_causal) or where the key is of another bucket (attend_across_buckets 0). It is
 *   self_value where q and k are one token.
 *   y = the softmax of the scores of all rounds together, so a pair that meets in several
 *   rounds counts several times. deduplicate: s -= log(number of meetings + 1e-9).
 *
 * QK         f32 (batch, n, heads * dim) or (batch, heads, n, dim): heads.h
 * V          f32 as QK, with v_dim
 * rotations  f32 (heads or 1, dim, num_hashes, features), features = sum num_buckets / 2
 * buckets    i32 or i64 (batch, heads, num_hashes, n), 0 … product of num_buckets - 1:
 *            given in place of rotations; they are used unchanged, those of masked tokens
 *            too
 * key_mask   bool (batch, n), optional
 * Y          as QK, with v_dim
 * buckets_out  i32 (batch, heads, num_hashes, n), optional: the buckets before the mask
 *
 * The defaults are num_hashes 1, chunk_length 64, chunks_before 1, chunks_after 0, scale
 * 1, is_causal 0, self_value -1e5, attend_across_buckets 1 and deduplicate 0. num_buckets
 * is a list of even numbers. key_norm is "rms" (default): |k| is sqrt(sum k^2 + 1e-6
 * dim), or "l2": max(sqrt(sum k^2), 1e-12). With full_below_chunk 1 (default) up to
 * chunk_length tokens all see each other, without hashing.
 *
 * The running (max, sum) and the unfinished rows of Y are carried from one round to the
 * next. The factor exp(lse_t - lse) is never formed for rounds in which a token sees only
 * itself, where lse is about -1e5.
 * Refused: other lengths of keys, fewer key heads, odd num_buckets, more chunks before or
 * after than there are, deduplicate with other chunks or attend_across_buckets 0.
 * Cost: 2 n T (dim features + chunk (1 + before + after) (dim + v_dim)) FLOPs a head,
 * with T = num_hashes. Memory: 1.3 MiB a thread, and 4 (T + 4) bytes a token (more with
 * attend_across_buckets 0 or deduplicate): of the head under way for each thread, where
 * the heads keep 8 threads busy, else of all heads.
 * Bound: products, then rows that are moved. 2 rounds at 4,096 tokens, 8 heads of 64, on a Zen 4
 * core: 18.2 ms at the peak and 20.5 measured, gathering and scattering rows of 256 bytes 3.7,
 * hashes 3.8, exponentials 2.8, norms 0.8; all 33.2. At 16,384 tokens hashes, n^2 / 64, are 42 of
 * 182 ms and rows, which leave L3, 34.
 * Source: Kitaev 2020, arXiv:2001.04451; compared with LSHSelfAttention of transformers
 * 5.23.0 and LSHAttention of reformer-pytorch 1.4.4. */
#include "reformer.h"
#include "../../tile.h"

#include <math.h>

struct reformer_args {
    struct attn_heads_args heads;
    int64_t num_hashes, chunk_length, chunks_before, chunks_after;
    int64_t attend_across_buckets, deduplicate, full_below_chunk;
    attnrun_ints num_buckets;
    float self_value;
    int32_t key_norm;
};
static const attnrun_attr_def reformer_attrs[] = {
    ATTN_HEADS_ATTRS_WITH(struct reformer_args, 0, 1.0f),
    ATTR_INT(struct reformer_args, num_hashes, 1),
    ATTR_INT(struct reformer_args, chunk_length, 64),
    ATTR_INT(struct reformer_args, chunks_before, 1),
    ATTR_INT(struct reformer_args, chunks_after, 0),
    ATTR_INT(struct reformer_args, attend_across_buckets, 1),
    ATTR_INT(struct reformer_args, deduplicate, 0),
    ATTR_INT(struct reformer_args, full_below_chunk, 1),
    ATTR_INTS_REQUIRED(struct reformer_args, num_buckets),
    ATTR_FLOAT(struct reformer_args, self_value, -1e5f),
    ATTR_ENUM(struct reformer_args, key_norm, "rms|l2", 0),
    ATTR_END,
};

enum {
    QK = REFORMER_QK,
    V = REFORMER_V,
    ROTATIONS = REFORMER_ROTATIONS,
    BUCKETS = REFORMER_BUCKETS,
    MASK = REFORMER_MASK
};
enum { HASH, SORT, ATTEND, ROUNDS_APART = ATTNRUN_MAX_PHASES - ATTEND };
enum { MAX_ROWS = ATTN_STREAM_MAX, MIN_ROWS = 256 };

/* ---- attributes ---- */

static attn_status check_flags(const attnrun_step *step)
{
    const struct reformer_args *args = step->args;
    TRY(attn_need_int(step, "num_hashes", args->num_hashes, 1, INT32_MAX));
    TRY(attn_need_int(step, "chunk_length", args->chunk_length, 1, INT32_MAX));
    TRY(attn_need_int(step, "chunks_before", args->chunks_before, 0, INT32_MAX));
    TRY(attn_need_int(step, "chunks_after", args->chunks_after, 0, INT32_MAX));
    TRY(attn_need_int(step, "attend_across_buckets", args->attend_across_buckets, 0, 1));
    TRY(attn_need_int(step, "deduplicate", args->deduplicate, 0, 1));
    TRY(attn_need_int(step, "full_below_chunk", args->full_below_chunk, 0, 1));
    TRY(attn_need_finite(step, "self_value", args->self_value, false));
    if (args->deduplicate && (args->chunks_before != 1 || args->chunks_after != 0))
        return op_fail(step, ATTNRUN_E_ATTR,
                       "deduplicate needs chunks_before 1 and chunks_after 0");
    if (args->deduplicate && !args->attend_across_buckets)
        return op_fail(step, ATTNRUN_E_ATTR, "deduplicate needs attend_across_buckets 1");
    return ATTNRUN_OK;
}

/* Reads the factors of the number of buckets. */
static attn_status read_buckets(const attnrun_step *step, struct reformer *s)
{
    const struct reformer_args *args = step->args;
    s->n_buckets = 1;
    if (args->num_buckets.n < 1)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "num_buckets is empty, expected its factors");
    for (int64_t i = 0; i < args->num_buckets.n; i++) {
        int64_t n = args->num_buckets.v[i];
        if (n < 2 || n % 2 != 0)
            return op_fail(
                step, ATTNRUN_E_ATTR,
                "num_buckets holds %lld, expected an even number that is at least 2",
                (long long)n);
        if (!ck_mul(s->n_buckets, n, &s->n_buckets) || s->n_buckets >= INT32_MAX)
            return op_fail(step, ATTNRUN_E_LIMIT,
                           "the product of num_buckets is over 2^31 - 2");
        s->widths[i] = n / 2;
        s->features += n / 2;
        s->n_factors = i + 1;
    }
    return ATTNRUN_OK;
}

/* ---- shapes ---- */

static attn_status check_rotations(const attnrun_step *step, const struct reformer *s,
                                   const struct attn_qkv *shape)
{
    const struct reformer_args *args = step->args;
    const attnrun_type *in = &step->in[ROTATIONS];
    TRY(op_need_rank(step, ROTATIONS, 4));
    if (in->rank < 0)
        return ATTNRUN_OK;
    if (!dim_is(in->dims[0], 1))
        TRY(op_need_dim(step, ROTATIONS, 0, shape->q_heads, "the heads"));
    TRY(op_need_dim(step, ROTATIONS, 1, shape->dim, "the head size"));
    TRY(op_need_dim(step, ROTATIONS, 2, dim_of(args->num_hashes), "num_hashes"));
    return op_need_dim(step, ROTATIONS, 3, dim_of(s->features),
                       "half the sum of num_buckets");
}

static attn_status check_buckets(const attnrun_step *step, const struct attn_qkv *shape)
{
    const struct reformer_args *args = step->args;
    TRY(op_need_rank(step, BUCKETS, 4));
    if (step->in[BUCKETS].rank < 0)
        return ATTNRUN_OK;
    TRY(op_need_dim(step, BUCKETS, 0, shape->batch, "the batch"));
    TRY(op_need_dim(step, BUCKETS, 1, shape->q_heads, "the heads"));
    TRY(op_need_dim(step, BUCKETS, 2, dim_of(args->num_hashes), "num_hashes"));
    return op_need_dim(step, BUCKETS, 3, shape->q_len, "the length");
}

static attn_status reformer_check_inputs(const attnrun_step *step,
                                         const struct reformer *s,
                                         const struct attn_qkv *shape)
{
    if (op_has_in(step, ROTATIONS) && op_has_in(step, BUCKETS))
        return op_fail(step, ATTNRUN_E_MODEL,
                       "rotations and buckets are given, expected one of them");
    if (op_has_in(step, ROTATIONS))
        TRY(check_rotations(step, s, shape));
    if (op_has_in(step, BUCKETS))
        TRY(check_buckets(step, shape));
    return attn_key_mask_check(step, MASK, shape->batch, shape->kv_len);
}

static attn_status reformer_set_outputs(attnrun_step *step, const struct attn_qkv *shape)
{
    const struct reformer_args *args = step->args;
    attnrun_dim dims[4] = { shape->batch, shape->q_heads, dim_of(args->num_hashes),
                            shape->q_len };
    TRY(attn_qkv_output(step, shape, 0));
    return op_has_out(step, 1) ? op_out(step, 1, ATTNRUN_I32, 4, dims) : ATTNRUN_OK;
}

/* ---- the plan of a shape ---- */

static attn_status plan_rounds(const attnrun_step *step, struct reformer *s)
{
    const struct reformer_args *args = step->args;
    const int64_t n = s->sizes.q_len;
    int64_t places;
    s->whole = args->full_below_chunk && n <= args->chunk_length;
    s->given = op_has_in(step, BUCKETS);
    s->hashed = op_has_in(step, ROTATIONS) && (!s->whole || op_has_out(step, 1));
    s->hashes = s->given || s->hashed ? args->num_hashes : 1;
    s->rounds = s->whole ? 1 : args->num_hashes;
    s->chunk = s->whole ? max64(n, 1) : args->chunk_length;
    s->before = s->whole ? 0 : args->chunks_before;
    s->after = s->whole ? 0 : args->chunks_after;
    s->padded = ceil_div(n, s->chunk) * s->chunk;
    s->by_bucket = !s->whole && !args->attend_across_buckets;
    s->deduplicate = !s->whole && args->deduplicate;
    s->l2 = args->key_norm == 1;
    s->self = args->self_value;
    if (!s->given && !op_has_in(step, ROTATIONS) && (!s->whole || op_has_out(step, 1)))
        return op_fail(step, ATTNRUN_E_MODEL, "neither rotations nor buckets are given");
    if (!ck_mul(s->padded, s->rounds, &places) || places > INT64_MAX / 4)
        return op_fail_size(step, "the number of sorted tokens (tokens times num_hashes)",
                            "2^61");
    if (n > 0 && max64(s->before, s->after) > places / s->chunk)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "%s is %lld, expected at most %lld, the number of chunks",
                       s->before > s->after ? "chunks_before" : "chunks_after",
                       (long long)max64(s->before, s->after),
                       (long long)(places / s->chunk));
    return places / s->chunk < INT32_MAX
               ? ATTNRUN_OK
               : op_fail(step, ATTNRUN_E_LIMIT, "the number of chunks is over 2^31 - 2");
}

static attn_status reformer_plan_memory(attnrun_step *step, struct reformer *s)
{
    const int64_t index = (int64_t)sizeof(int32_t);
    const int64_t sort = attn_reformer_sort_bytes(s);
    int64_t tokens, items, hash, chunks;
    step->shared_bytes = 0;
    bool fits =
        attn_reformer_hash_place(s, &hash) && attn_reformer_chunks_place(s, &chunks) &&
        ck_mul(s->by_head ? 1 : s->heads, s->sizes.q_len, &tokens) &&
        ck_mul(tokens, s->hashes, &items) &&
        op_slot(&s->order_at, &step->shared_bytes, items, index) &&
        op_slot(&s->norms_at, &step->shared_bytes, tokens, sizeof(float)) &&
        op_slot(&s->group_at, &step->shared_bytes, s->by_bucket ? items : 0, index) &&
        op_slot(&s->place_at, &step->shared_bytes, s->deduplicate ? items : 0, index) &&
        op_slot(&s->sums_at, &step->shared_bytes, s->rounds > 1 ? tokens : 0,
                sizeof(struct reformer_sum));
    if (!fits)
        return op_fail_scratch(step);
    step->scratch_bytes = max64(hash, max64(sort, chunks));
    return s->by_head && !op_shared_to_scratch(step, &s->arrays_at)
               ? op_fail_scratch(step)
               : ATTNRUN_OK;
}

/* Cuts the queries into blocks of whole chunks, or parts of very long ones. */
static void plan_blocks(struct reformer *s)
{
    const int64_t n = s->sizes.q_len;
    int64_t rows = MAX_ROWS;
    while (rows > MIN_ROWS && s->heads * ((n - 1) / rows + 1) < OP_ENOUGH_TASKS)
        rows /= 2;
    s->rows = rows > s->chunk ? rows / s->chunk * s->chunk : rows;
    s->rows = max64(1, min64(s->rows, n));
    s->blocks = ceil_div(n, s->rows);
}

static int64_t nanoseconds(double flops) { return op_ns(flops / 100 + 500); }

static attn_status reformer_plan_tasks(attnrun_step *step, const struct reformer *s)
{
    const struct attn_sizes *z = &s->sizes;
    const int64_t tokens = REFORMER_TOKENS;
    const double dims = (double)(z->dim + z->v_dim + 32);
    const double keys = (double)(s->before + s->after + 1) * (double)s->chunk;
    const int64_t cost = nanoseconds(2 * (double)s->rows * keys * dims);
    const bool any = z->v_dim > 0 && z->q_len > 0 && s->wanted;
    const int64_t hash_blocks = ceil_div(z->q_len, tokens);
    int64_t hashing, sorting, attending;
    if (!ck_mul(s->heads, hash_blocks, &hashing) ||
        !ck_mul(s->heads, s->hashes, &sorting) ||
        !ck_mul(any ? s->heads : 0, s->blocks, &attending))
        return op_fail_scratch(step);
    const int64_t hash_cost = nanoseconds(2.0 * (double)tokens * (double)z->dim *
                                          (double)(s->hashes * s->features + 16));
    if (s->by_head) {
        op_tasks(step, 0, z->q_len > 0 ? s->heads : 0,
                 op_ns((double)hash_blocks * (double)hash_cost +
                       (double)s->blocks * (double)s->rounds * (double)cost));
        return ATTNRUN_OK;
    }
    op_tasks(step, HASH, z->q_len > 0 ? hashing : 0, hash_cost);
    op_tasks(step, SORT, z->q_len > 0 ? sorting : 0, z->q_len * 4);
    for (int64_t t = 0; t < min64(s->rounds, ROUNDS_APART - 1); t++)
        op_tasks(step, (int)(ATTEND + t), attending, cost);
    if (s->rounds >= ROUNDS_APART) /* all that are left */
        op_tasks(step, ATTEND + ROUNDS_APART - 1, any ? s->heads : 0,
                 nanoseconds((double)cost * 100 * (double)s->blocks *
                             (double)(s->rounds - ROUNDS_APART + 1)));
    return ATTNRUN_OK;
}

static attn_status plan_reformer(attnrun_step *step, const struct reformer *found,
                                 const struct attn_qkv *shape)
{
    const struct reformer_args *args = step->args;
    struct reformer *s = step->state;
    int64_t features;
    *s = *found;
    TRY(attn_qkv_sizes(step, &args->heads, shape, &s->sizes));
    s->heads = s->sizes.batch * s->sizes.q_heads;
    s->rotation_heads =
        op_has_in(step, ROTATIONS) ? step->in[ROTATIONS].dims[0].value : 1;
    TRY(plan_rounds(step, s));
    s->wanted = step->y == NULL || op_has_out(step, 0);
    s->by_head = op_even_tasks(s->heads);
    if (!ck_mul(s->hashes, s->features, &features))
        return op_fail_size(step, "the number of rotations", "2^63 - 1");
    plan_blocks(s);
    TRY(reformer_plan_memory(step, s));
    return reformer_plan_tasks(step, s);
}

static attn_status reformer_infer(attnrun_step *step)
{
    const struct reformer_args *args = step->args;
    struct reformer found = { 0 };
    struct attn_qkv shape;
    TRY(check_flags(step));
    TRY(read_buckets(step, &found));
    TRY(attn_qkv_infer(step, &args->heads, QK, QK, V, ATTN_SAME_LENGTH | ATTN_SAME_HEADS,
                       &shape));
    TRY(reformer_check_inputs(step, &found, &shape));
    TRY(reformer_set_outputs(step, &shape));
    return step->concrete ? plan_reformer(step, &found, &shape) : ATTNRUN_OK;
}

/* Packs the rotations with a token's coordinates as rows. */
static attn_status reformer_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    *bytes = 0;
    if (ROTATIONS >= pack->n_in || pack->x[ROTATIONS].data == NULL)
        return ATTNRUN_OK;
    const attnrun_tensor *x = &pack->x[ROTATIONS];
    if (tensor_bytes(x) <= 0) /* none, whatever the other dims are */
        return ATTNRUN_OK;
    const int64_t all = x->dims[2] * x->dims[3], matrix = x->dims[1] * all;
    *bytes = tensor_bytes(x);
    for (int64_t h = 0; packed != NULL && h < x->dims[0]; h++)
        pack->kernels->transpose_f32((float *)packed + h * matrix, x->dims[1],
                                     (const float *)x->data + h * matrix, all,
                                     (size_t)x->dims[1], (size_t)all);
    pack->replaces = UINT32_C(1) << ROTATIONS;
    return ATTNRUN_OK;
}

/* ---- run ---- */

static struct reformer_operands operands(const attnrun_step *step,
                                         const attnrun_work *work)
{
    const struct reformer *s = step->state;
    char *shared = s->by_head ? op_slot_at(work->scratch, s->arrays_at) : work->shared;
    return (struct reformer_operands){
        .qk = step->x[QK].data,
        .v = step->x[V].data,
        .rotations = op_in_data(step, ROTATIONS),
        .transposed = step->node->packed,
        .given = s->given ? &step->x[BUCKETS] : NULL,
        .key_mask = op_in_data(step, MASK),
        .y = step->y[0].data,
        .buckets_out = op_has_out(step, 1) ? step->y[1].data : NULL,
        .order = op_slot_at(shared, s->order_at),
        .group = op_slot_at(shared, s->group_at),
        .place = op_slot_at(shared, s->place_at),
        .norms = op_slot_at(shared, s->norms_at),
        .sums = op_slot_at(shared, s->sums_at),
    };
}

/* Computes the rounds of a head from round `first` on. */
static attn_status rounds_from(const attnrun_step *step,
                               const struct reformer_operands *o, int64_t head,
                               int64_t first, const attnrun_work *work)
{
    const struct reformer *s = step->state;
    for (int64_t round = first; round < s->rounds; round++)
        for (int64_t block = 0; block < s->blocks; block++)
            TRY(attn_reformer_chunks(s, step->kernels, o, head, round, block, work));
    return ATTNRUN_OK;
}

/* Computes all of a head. */
static attn_status reformer_run_head(const attnrun_step *step,
                                     struct reformer_operands *o, int64_t head,
                                     int64_t hash_blocks, const attnrun_work *work)
{
    const struct reformer *s = step->state;
    o->first_head = head;
    for (int64_t block = 0; block < hash_blocks; block++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        TRY(attn_reformer_hash(step, s, o, head, block, work->scratch));
    }
    for (int64_t round = 0; round < s->hashes; round++)
        attn_reformer_sort(s, o, head, round, work->scratch);
    if (!s->wanted || s->sizes.v_dim == 0)
        return ATTNRUN_OK;
    return rounds_from(step, o, head, 0, work);
}

/* Computes a block of tokens, a round of hashes or a block of a round of one head. */
static attn_status reformer_run_part(const attnrun_step *step,
                                     struct reformer_operands *o, int64_t head,
                                     int64_t hash_blocks, const attnrun_work *work)
{
    const struct reformer *s = step->state;
    const int64_t part = op_take(&head, work->phase == HASH   ? hash_blocks
                                        : work->phase == SORT ? s->hashes
                                                              : s->blocks);
    if (work->phase == HASH)
        return attn_reformer_hash(step, s, o, head, part, work->scratch);
    if (work->phase != SORT)
        return attn_reformer_chunks(s, step->kernels, o, head, work->phase - ATTEND, part,
                                    work);
    attn_reformer_sort(s, o, head, part, work->scratch);
    return ATTNRUN_OK;
}

static attn_status reformer_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct reformer *s = step->state;
    struct reformer_operands o = operands(step, work);
    const int64_t hash_blocks = ceil_div(s->sizes.q_len, REFORMER_TOKENS);
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (s->by_head)
            TRY(reformer_run_head(step, &o, task, hash_blocks, work));
        else if (work->phase - ATTEND == ROUNDS_APART - 1)
            TRY(rounds_from(step, &o, task, ROUNDS_APART - 1, work));
        else
            TRY(reformer_run_part(step, &o, task, hash_blocks, work));
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_reformer_attention_1 = {
    OP_ROW_OF("attnrun"),
    .name = "ReformerAttention",
    .since = 1,
    .inputs = "QK:T V:T rotations:T? buckets:I? key_mask:b8?",
    .outputs = "Y:T buckets_out:i32?",
    .types = "T=f32 I=i32,i64",
    .args_bytes = sizeof(struct reformer_args),
    .state_bytes = sizeof(struct reformer),
    .attrs = reformer_attrs,
    .infer = reformer_infer,
    .pack = reformer_pack,
    .check_packed = op_packed_is_data,
    .run = reformer_run,
    .cost = "O(n T (dim features + chunk d)), scratch O(T n) integers",
    .source = "Kitaev 2020, arXiv:2001.04451",
};
