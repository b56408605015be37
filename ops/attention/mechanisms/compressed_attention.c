/* compressed_attention.c - CompressedAttention: softmax attention over compressed keys
 * and values. A convolution of stride r = `compression` makes one slot of r tokens.
 *
 *   K_c[c] = bk + sum over t < r of Wk[:, :, t] K[c r - p + t],  p = -kv_len mod r
 *   V_c    = the same of V, with Wv and bv
 *   Y      = softmax(scale Q K_c') V_c
 *
 * Q, K, V, Y      see heads.h; groups of query heads cannot share a key head. Tokens
 *                 before the first one are zeros
 * Wk, bk          f32 (C, C / groups, r), (C): channels C = heads * dim, in `groups`
 *                 groups (heads by default)
 * Wv, bv          the same for V; without Wv, Wk is used for V, and so is bk unless bv is
 *                 given
 * null_k, null_v  (C): a first slot that every query sees; either both or none are given
 * key_mask        b8 (batch, kv_len): masked rows of K and V are zeros; a slot that
 *                 covers only masked tokens is masked
 * is_causal       query i sees the slots that end at or before i + kv_len - q_len
 * compression     3 by default
 *
 * A query that sees no slot gives 0.
 *
 * Where groups are heads and there are enough heads, a task is a head. It makes up to
 * 512 KiB of slots in scratch memory, which all queries see, then the next ones; what a
 * query's softmax is so far is carried on in Y and 16 bytes. Otherwise all slots are in
 * shared memory, where phase 0 puts them.
 * Refused: fewer key heads than query heads, only one of null_k and null_v, groups that
 * do not divide C (or, with inputs of rank 4, are not the heads), a V of other channels
 * than K without Wv.
 * Cost: O(kv_len C^2 / groups + q_len (kv_len / r) C). Memory: 1.4 MiB a thread and 16
 * bytes a query of the head under way, or all slots. Constant weights are packed with
 * channels last, so that rows of the convolution are the tokens as they lie.
 * Bound: products. Slots of 4 of 4,096 tokens, 8 heads of 64, on a Zen 4 core: 72.8 ms at the peak
 * and 77 measured, slots 8.8, exponentials 8.5 (34 million), all 97.
 * Source: Liu 2018, arXiv:1801.10198; compared with memory-compressed-attention 0.0.7,
 * which scales by C^-1/2. Its input_mask is inverted; this operator does not follow that.
 */
#include "../core/heads.h"
#include "../core/stream.h"
#include "../../tile.h"

struct compressed_args {
    struct attn_heads_args heads;
    int64_t compression, groups;
};
static const attnrun_attr_def compressed_attrs[] = {
    ATTN_HEADS_ATTRS(struct compressed_args),
    ATTR_INT(struct compressed_args, compression, 3),
    ATTR_INT(struct compressed_args, groups, OP_INT_ABSENT),
    ATTR_END,
};

enum { Q, K, V, WK, BK, WV, BV, NULL_K, NULL_V, KEY_MASK };
enum {
    SLOTS = 128, /* made at one time */
    BLOCK = 512, /* queries of a task, or given the slots together */
    KEYS = ATTN_STREAM_KEYS,
    FEW_HEADS = 4,
    PART_FLOATS = 1 << 17 /* of the slots of a head that exist at one time */
};

struct compressed_state {
    struct attn_sizes sizes;
    int32_t rank;
    int64_t ratio, groups, nulls, slots, pad; /* slots without the null one */
    int64_t k_group, v_group;                 /* channels of a group */
    int64_t slot_blocks, query_blocks;
    int64_t part; /* slots, with the null one, that exist at one time */
    int64_t k_floats, v_floats, gather_floats, gemm_floats, stream_bytes;
    bool by_head;
};

/* ---- infer ---- */

/* Checks a weight (C, C / groups, r) and vectors (C) of `width` channels. */
static attn_status compressed_check_weights(const attnrun_step *step, attnrun_dim width,
                                            int weight, int bias, int null)
{
    const struct compressed_args *args = step->args;
    attnrun_dim part = attnrun_dim_unknown(step);
    if (args->groups != OP_INT_ABSENT && dim_is_const(width)) {
        if (width.value % args->groups != 0)
            return op_fail(step, ATTNRUN_E_ATTR,
                           "groups is %lld, expected a divisor of the %s",
                           (long long)args->groups, attn_plural(width.value, "channel"));
        part = dim_of(width.value / args->groups);
    }
    if (op_has_in(step, weight)) {
        TRY(op_need_rank(step, weight, 3));
        TRY(op_need_dim(step, weight, 0, width, "the channels"));
        TRY(op_need_dim(step, weight, 1, part, "the channels of a group"));
        TRY(op_need_dim(step, weight, 2, dim_of(args->compression), "the compression"));
    }
    const int vectors[2] = { bias, null };
    for (int i = 0; i < 2; i++)
        if (op_has_in(step, vectors[i])) {
            TRY(op_need_rank(step, vectors[i], 1));
            TRY(op_need_dim(step, vectors[i], 0, width, "the channels"));
        }
    return ATTNRUN_OK;
}

static attn_status compressed_check_operands(const attnrun_step *step,
                                             const struct attn_qkv *shape)
{
    const struct compressed_args *args = step->args;
    const attnrun_dim width = attnrun_dim_mul(step, shape->q_heads, shape->dim);
    const attnrun_dim v_width = attnrun_dim_mul(step, shape->q_heads, shape->v_dim);
    TRY(attn_need_int(step, "compression", args->compression, 1, INT32_MAX));
    if (args->groups != OP_INT_ABSENT)
        TRY(attn_need_int(step, "groups", args->groups, 1, INT32_MAX));
    if (shape->rank == 4 && args->groups != OP_INT_ABSENT &&
        !dim_may_equal(shape->q_heads, dim_of(args->groups)))
        return op_fail(step, ATTNRUN_E_ATTR,
                       "groups is %lld, expected the number of heads, %lld, with inputs "
                       "of rank 4",
                       (long long)args->groups, (long long)shape->q_heads.value);
    if (op_has_in(step, NULL_K) != op_has_in(step, NULL_V))
        return op_fail(step, ATTNRUN_E_INPUT,
                       "null_k and null_v go together; only %s is given",
                       op_has_in(step, NULL_K) ? "null_k" : "null_v");
    TRY(compressed_check_weights(step, width, WK, BK, NULL_K));
    TRY(compressed_check_weights(step, v_width, WV, BV, NULL_V));
    if (!op_has_in(step, WV) && !dim_may_equal(width, v_width))
        return op_fail_input(step, V, ATTNRUN_E_SHAPE,
                             "expected %s as in K: there is no Wv",
                             attn_plural(width.value, "channel"));
    return attn_key_mask_check(step, KEY_MASK, shape->batch, shape->kv_len);
}

/* Checks the channels of a group, where `groups` is the number of heads by default. */
static attn_status check_group(const attnrun_step *step, int weight, int64_t part)
{
    return op_has_in(step, weight)
               ? op_need_dim(step, weight, 1, dim_of(part), "the channels of a group")
               : ATTNRUN_OK;
}

/* Chooses how many slots exist at one time. */
static int64_t compressed_part(const struct compressed_state *s)
{
    const int64_t all = s->slots + s->nulls;
    const int64_t row = max64(1, s->sizes.dim + s->sizes.v_dim);
    return s->by_head ? min64(all, max64(1, PART_FLOATS / row / KEYS) * KEYS) : all;
}

static attn_status compressed_memory(attnrun_step *step, struct compressed_state *s)
{
    const struct attn_sizes *z = &s->sizes;
    const int64_t heads = s->by_head ? 1 : z->batch * z->q_heads;
    const int64_t group = max64(s->k_group, s->v_group);
    int64_t row, k, v, state, bytes;
    s->part = compressed_part(s);
    if (!ck_mul(group, s->ratio, &row) || row > INT64_C(1) << 36 ||
        !ck_mul(heads, s->part, &k) || !ck_mul(k, z->v_dim, &v) ||
        !ck_mul(k, z->dim, &k) || k > INT64_MAX / 64 || v > INT64_MAX / 64 ||
        !ck_mul(s->part < s->slots + s->nulls ? z->q_len : 0,
                (int64_t)sizeof(struct attn_softmax_row), &state) ||
        state > INT64_MAX / 64)
        return op_fail_size(step,
                            "a row of the convolution (channels of a group times ratio) "
                            "would be over 2^36, or the memory of its compressed keys",
                            "2^63 - 1 bytes");
    s->k_floats = round_up(k, 16);
    s->v_floats = round_up(v, 16);
    s->gather_floats = round_up(SLOTS * row, 16);
    s->gemm_floats =
        round_up((int64_t)attn_gemm_scratch(SLOTS, (size_t)group, (size_t)row), 16);
    s->stream_bytes = attn_stream_bytes(BLOCK, z->dim, z->v_dim);
    if (s->stream_bytes < 0)
        return op_fail_scratch(step);
    bytes = (s->k_floats + s->v_floats) * (int64_t)sizeof(float);
    s->stream_bytes = round_up(s->stream_bytes, 64);
    const int64_t work = max64(s->stream_bytes, (s->gather_floats + s->gemm_floats) *
                                                    (int64_t)sizeof(float));
    step->shared_bytes = s->by_head ? 0 : bytes;
    step->scratch_bytes = work + (s->by_head ? bytes + round_up(state, 64) : 0);
    return ATTNRUN_OK;
}

static attn_status compressed_plan(attnrun_step *step, struct compressed_state *s)
{
    const struct compressed_args *args = step->args;
    const struct attn_sizes *z = &s->sizes;
    s->ratio = args->compression;
    s->groups = args->groups != OP_INT_ABSENT ? args->groups : max64(z->q_heads, 1);
    s->nulls = op_has_in(step, NULL_K) ? 1 : 0;
    s->slots = ceil_div(z->kv_len, s->ratio);
    s->pad = s->slots * s->ratio - z->kv_len;
    s->k_group = z->q_heads * z->dim / s->groups;
    s->v_group = z->q_heads * z->v_dim / s->groups;
    TRY(check_group(step, WK, s->k_group));
    TRY(check_group(step, WV, s->v_group));
    s->by_head = s->groups == z->q_heads && z->batch * z->q_heads >= FEW_HEADS;
    s->slot_blocks = max64(1, ceil_div(s->slots, SLOTS));
    s->query_blocks = ceil_div(z->q_len, BLOCK);
    TRY(compressed_memory(step, s));
    const double made =
        0.012 * (double)s->ratio * (double)(s->k_group * s->k_group) * (double)s->groups;
    const double asked = 0.012 * (double)s->slots * (double)(z->dim + z->v_dim + 32) *
                         (z->causal ? 0.5 : 1.0);
    const double whole =
        asked * (double)z->q_len + made * (double)s->slots / (double)max64(1, z->q_heads);
    if (s->by_head) {
        op_tasks(step, 0, z->batch * z->q_heads, op_ns(whole + 500));
        return ATTNRUN_OK;
    }
    const double block = made * SLOTS / (double)s->groups, block_asked = asked * BLOCK;
    op_tasks(step, 0, 2 * z->batch * s->groups * s->slot_blocks, op_ns(block + 500));
    op_tasks(step, 1, z->batch * z->q_heads * s->query_blocks, op_ns(block_asked + 500));
    return ATTNRUN_OK;
}

static attn_status compressed_infer(attnrun_step *step)
{
    const struct compressed_args *args = step->args;
    struct compressed_state *s = step->state;
    struct attn_qkv shape;
    TRY(attn_qkv_infer(step, &args->heads, Q, K, V, ATTN_SAME_HEADS, &shape));
    TRY(compressed_check_operands(step, &shape));
    TRY(attn_qkv_output(step, &shape, 0));
    if (!step->concrete)
        return ATTNRUN_OK;
    TRY(attn_qkv_sizes(step, &args->heads, &shape, &s->sizes));
    s->rank = shape.rank;
    return compressed_plan(step, s);
}

/* ---- slots ---- */

/* K or V, its weights, and the place of its slots: `to` is that of slot `first`, with the
 * null one counted, of the group's first channel, and rows are `to_row` floats apart. */
struct compressed_operand {
    const float *x, *weight, *bias, *null;
    bool packed; /* the weights, with channels last */
    struct attn_heads strides;
    int64_t group; /* channels */
    float *to;
    int64_t to_row, first;
};

static struct compressed_operand open_operand(const attnrun_step *step, bool values)
{
    const struct compressed_state *s = step->state;
    const bool own = values && op_has_in(step, WV);
    struct compressed_operand o = { .x = op_in_data(step, values ? V : K),
                                    .weight = op_in_data(step, own ? WV : WK),
                                    .bias = op_in_data(step, values ? BV : BK),
                                    .null = op_in_data(step, values ? NULL_V : NULL_K),
                                    .strides = values ? s->sizes.v : s->sizes.k,
                                    .group = values ? s->v_group : s->k_group };
    if (values && !own && o.bias == NULL)
        o.bias = op_in_data(step, BK);
    o.packed = step->node->packed != NULL;
    if (o.packed) {
        const int64_t channels = s->sizes.q_heads * s->sizes.dim;
        o.weight = (const float *)step->node->packed +
                   (own ? channels * s->k_group * s->ratio : 0);
    }
    return o;
}

/* Packs constant weights as (C, r, C / groups), first Wk, then Wv. */
static attn_status compressed_pack(attnrun_pack *pack, int64_t *bytes, void *packed)
{
    const int inputs[2] = { WK, WV };
    float *to = packed;
    *bytes = 0;
    for (int i = 0; i < 2; i++) {
        const int in = inputs[i];
        if (in >= pack->n_in || pack->in[in].kind == ATTNRUN_ABSENT)
            continue;
        if (pack->x[in].data == NULL || tensor_bytes(&pack->x[in]) <= 0) {
            *bytes = 0;
            pack->replaces = 0;
            return ATTNRUN_OK;
        }
        const attnrun_tensor *x = &pack->x[in];
        const int64_t row = x->dims[1] * x->dims[2];
        for (int64_t c = 0; packed != NULL && c < x->dims[0]; c++, to += row)
            pack->kernels->transpose_f32(to, x->dims[1], (const float *)x->data + c * row,
                                         x->dims[2], (size_t)x->dims[1],
                                         (size_t)x->dims[2]);
        *bytes += tensor_bytes(x);
        pack->replaces |= UINT32_C(1) << in;
    }
    return ATTNRUN_OK;
}

/* Copies the rows of the product: for each slot its channels, r numbers each, or with
 * packed weights its r tokens. */
static void compressed_gather(const attnrun_step *step,
                              const struct compressed_operand *o, int64_t batch,
                              int64_t group, int64_t slot, int64_t n, float *rows)
{
    const struct compressed_state *s = step->state;
    const uint8_t *keep =
        op_in_data(step, KEY_MASK) == NULL
            ? NULL
            : (const uint8_t *)step->x[KEY_MASK].data + batch * s->sizes.kv_len;
    const int64_t channel = s->rank == 4 ? group * o->strides.head : group * o->group;
    const float *x = o->x + batch * o->strides.batch + channel;
    for (int64_t c = 0; c < n; c++) {
        float *row = rows + c * o->group * s->ratio;
        const int64_t first = (slot + c) * s->ratio - s->pad;
        const int64_t skip = first < 0 ? -first : 0;
        if (skip > 0)
            memset(row, 0, (size_t)(o->group * s->ratio) * sizeof *row);
        for (int64_t t = skip; t < s->ratio; t++) {
            const float *token = x + (first + t) * o->strides.row;
            const bool masked = keep != NULL && keep[first + t] == 0;
            if (o->packed && masked)
                memset(row + t * o->group, 0, (size_t)o->group * sizeof *row);
            else if (o->packed)
                memcpy(row + t * o->group, token, (size_t)o->group * sizeof *row);
            for (int64_t i = 0; !o->packed && i < o->group; i++)
                row[i * s->ratio + t] = masked ? 0.0f : token[i];
        }
    }
}

/* Computes slots from … to - 1 of a group of a sample; with the first one also the null
 * slot. */
static void make_slots(const attnrun_step *step, const struct compressed_operand *o,
                       int64_t batch, int64_t group, int64_t from, int64_t to,
                       float *scratch)
{
    const struct compressed_state *s = step->state;
    const int64_t k = o->group * s->ratio;
    const struct attn_epilogue bias = { .kind = ATTN_EPI_ADD,
                                        .alpha = 1,
                                        .col = 1,
                                        .data = o->bias == NULL
                                                    ? NULL
                                                    : o->bias + group * o->group };
    if (from == 0 && o->first == 0 && o->null != NULL)
        memcpy(o->to, o->null + group * o->group, (size_t)o->group * sizeof(float));
    if (to <= from)
        return;
    compressed_gather(step, o, batch, group, from, to - from, scratch);
    struct attn_gemm_f32 g = { .a = scratch,
                               .a_row = k,
                               .b = o->weight + group * o->group * k,
                               .b_row = 1,
                               .b_col = k,
                               .c = o->to + (s->nulls + from - o->first) * o->to_row,
                               .c_row = o->to_row,
                               .m = (size_t)(to - from),
                               .n = (size_t)o->group,
                               .k = (size_t)k,
                               .epilogue = &bias,
                               .n_epilogue = o->bias != NULL ? 1 : 0,
                               .scratch = scratch + s->gather_floats };
    step->kernels->gemm_f32(&g);
}

/* ---- attention ---- */

struct seen {
    const struct compressed_state *s;
    const uint8_t *keep; /* of the sample, or NULL */
    int64_t query;       /* row 0 of the block */
    int64_t tile;        /* its first slot, the null one counted */
    bool valid[KEYS];
};

/* The number of slots that query i sees, with the null slot. */
static int64_t seen_by(const struct compressed_state *s, int64_t i)
{
    const int64_t end = i + s->sizes.offset + s->pad + 1;
    if (!s->sizes.causal)
        return s->nulls + s->slots;
    return s->nulls + (end <= 0 ? 0 : min64(s->slots, end / s->ratio));
}

static void compressed_mask_scores(void *arg, float *scores, int64_t row, int64_t rows,
                                   int64_t from, int64_t to)
{
    const struct seen *seen = arg;
    for (int64_t r = 0; r < rows; r++, scores += ATTN_STREAM_SCORES) {
        const int64_t end = seen_by(seen->s, seen->query + row + r) - seen->tile;
        for (int64_t j = from; j < to; j++)
            if (j >= end || !seen->valid[j])
                scores[j - from] = -__builtin_inff();
    }
}

/* Finds the slots of a tile that are not masked; true where none is masked. */
static bool find_valid(struct seen *seen, int64_t n)
{
    const struct compressed_state *s = seen->s;
    bool all = true;
    for (int64_t j = 0; j < n; j++) {
        const int64_t slot = seen->tile + j - s->nulls, first = slot * s->ratio - s->pad;
        bool valid = slot < 0 || seen->keep == NULL;
        for (int64_t t = max64(first, 0); !valid && t < first + s->ratio; t++)
            valid = seen->keep[t] != 0;
        seen->valid[j] = valid;
        all = all && valid;
    }
    return all;
}

/* The output of a block of queries, and their softmax so far; n of them. */
struct carried {
    float *y;
    struct attn_softmax_row *state; /* NULL where one part has all slots */
    int64_t y_row, n;
};

/* Loads what earlier parts left. */
static void compressed_load(struct attn_stream *stream, const struct carried *c)
{
    memcpy(stream->state, c->state, (size_t)c->n * sizeof *c->state);
    for (int64_t r = 0; r < c->n; r++)
        memcpy(stream->sums + r * stream->v_dim, c->y + r * c->y_row,
               (size_t)stream->v_dim * sizeof *c->y);
}

/* Leaves it to the next part. */
static void compressed_save(const struct attn_stream *stream, const struct carried *c)
{
    memcpy(c->state, stream->state, (size_t)c->n * sizeof *c->state);
    for (int64_t r = 0; r < c->n; r++)
        memcpy(c->y + r * c->y_row, stream->sums + r * stream->v_dim,
               (size_t)stream->v_dim * sizeof *c->y);
}

/* Computes queries of a head, with s->part slots at k and v. state: of all queries. */
static attn_status compressed_attend(const attnrun_step *step, const attnrun_work *work,
                                     int64_t batch, int64_t head, int64_t query,
                                     const struct compressed_operand *k,
                                     const struct compressed_operand *v,
                                     struct attn_softmax_row *state, void *scratch)
{
    const struct compressed_state *s = step->state;
    const struct attn_sizes *z = &s->sizes;
    const int64_t n = min64(BLOCK, z->q_len - query), end = k->first + s->part;
    const int64_t last = min64(seen_by(s, query + n - 1), end), first = seen_by(s, query);
    struct seen seen = { .s = s, .query = query };
    const struct carried carried = { .y = (float *)step->y[0].data + batch * z->y.batch +
                                          head * z->y.head + query * z->y.row,
                                     .state = state == NULL ? NULL : state + query,
                                     .y_row = z->y.row,
                                     .n = n };
    struct attn_stream stream;
    if (op_has_in(step, KEY_MASK))
        seen.keep = (const uint8_t *)step->x[KEY_MASK].data + batch * z->kv_len;
    attn_stream_begin(&stream, step->kernels, BLOCK, z->dim, z->v_dim, scratch);
    attn_stream_reset(&stream, n);
    if (k->first > 0)
        compressed_load(&stream, &carried);
    const float *q = step->x[Q].data;
    attn_stream_load(&stream, 0,
                     q + batch * z->q.batch + head * z->q.head + query * z->q.row,
                     z->q.row, n, z->scale);
    for (seen.tile = k->first; seen.tile < last; seen.tile += KEYS) {
        const struct attn_keys keys = { .k = k->to + (seen.tile - k->first) * k->to_row,
                                        .v = v->to + (seen.tile - v->first) * v->to_row,
                                        .k_row = k->to_row,
                                        .v_row = v->to_row,
                                        .n = min64(KEYS, last - seen.tile) };
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        const bool plain = find_valid(&seen, keys.n) && seen.tile + keys.n <= first;
        attn_stream_tile(&stream, &keys, plain ? NULL : compressed_mask_scores, &seen);
    }
    if (end < s->slots + s->nulls)
        compressed_save(&stream, &carried);
    else
        attn_stream_store_rows(&stream, 0, n, carried.y, z->y.row, 0.0f);
    return ATTNRUN_OK;
}

/* ---- tasks ---- */

/* Computes slots and queries of one head. */
static attn_status run_head(const attnrun_step *step, const attnrun_work *work,
                            int64_t task)
{
    const struct compressed_state *s = step->state;
    const struct attn_sizes *z = &s->sizes;
    const int64_t head = op_take(&task, z->q_heads), batch = task;
    struct compressed_operand k = open_operand(step, false), v = open_operand(step, true);
    k.to = work->scratch;
    k.to_row = z->dim;
    v.to = k.to + s->k_floats;
    v.to_row = z->v_dim;
    struct attn_softmax_row *state = (void *)(v.to + s->v_floats);
    const bool one = s->part >= s->slots + s->nulls;
    float *scratch = v.to + s->v_floats;
    if (!one)
        scratch +=
            round_up(z->q_len * (int64_t)sizeof *state, 64) / (int64_t)sizeof(float);
    int64_t first = 0;
    do {
        k.first = v.first = first;
        const int64_t end = min64(first + s->part - s->nulls, s->slots);
        for (int64_t from = max64(first - s->nulls, 0); from <= end; from += SLOTS) {
            const int64_t to = min64(from + SLOTS, end);
            if (OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            make_slots(step, &k, batch, head, from, to, scratch);
            make_slots(step, &v, batch, head, from, to, scratch);
        }
        for (int64_t b = 0; b < s->query_blocks; b++)
            TRY(compressed_attend(step, work, batch, head, b * BLOCK, &k, &v,
                                  one ? NULL : state, scratch));
        first += s->part;
    } while (first < s->slots + s->nulls);
    return ATTNRUN_OK;
}

/* The slots of a sample in shared memory, from channel `channel` on. */
static struct compressed_operand open_shared(const attnrun_step *step,
                                             const attnrun_work *work, bool values,
                                             int64_t batch, int64_t channel)
{
    const struct compressed_state *s = step->state;
    struct compressed_operand o = open_operand(step, values);
    o.to_row = s->groups * o.group;
    o.to = (float *)work->shared + (values ? s->k_floats : 0) +
           batch * (s->slots + s->nulls) * o.to_row + channel;
    return o;
}

static attn_status run_shared(const attnrun_step *step, const attnrun_work *work,
                              int64_t task)
{
    const struct compressed_state *s = step->state;
    const struct attn_sizes *z = &s->sizes;
    if (work->phase == 0) {
        const int64_t block = op_take(&task, s->slot_blocks),
                      group = op_take(&task, s->groups), batch = op_take(&task, z->batch);
        const bool values = task != 0;
        const int64_t channel = group * (values ? s->v_group : s->k_group);
        const struct compressed_operand o =
            open_shared(step, work, values, batch, channel);
        make_slots(step, &o, batch, group, block * SLOTS,
                   min64((block + 1) * SLOTS, s->slots), work->scratch);
        return ATTNRUN_OK;
    }
    const struct op_task at = op_task_at(task, z->q_heads, s->query_blocks);
    const struct compressed_operand k =
        open_shared(step, work, false, at.b, at.head * z->dim);
    const struct compressed_operand v =
        open_shared(step, work, true, at.b, at.head * z->v_dim);
    return compressed_attend(step, work, at.b, at.head, at.block * BLOCK, &k, &v, NULL,
                             work->scratch);
}

static attn_status compressed_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct compressed_state *s = step->state;
    for (int64_t task = work->begin; task < work->end; task++)
        TRY(s->by_head ? run_head(step, work, task) : run_shared(step, work, task));
    return ATTNRUN_OK;
}

const attnrun_op_def op_compressed_attention_1 = {
    OP_ROW_OF("attnrun"),
    .name = "CompressedAttention",
    .since = 1,
    .inputs = "Q:T K:T V:T Wk:T bk:T? Wv:T? bv:T? null_k:T? null_v:T? key_mask:b8?",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct compressed_args),
    .state_bytes = sizeof(struct compressed_state),
    .attrs = compressed_attrs,
    .infer = compressed_infer,
    .pack = compressed_pack,
    .check_packed = op_packed_is_data,
    .run = compressed_run,
    .cost = "O(tokens C^2 / groups + tokens^2 C / r)",
    .source = "arXiv:1801.10198",
};
