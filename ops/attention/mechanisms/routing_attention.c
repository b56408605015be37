/* routing_attention.c - RoutingAttention: attention within clusters of tokens (k-means
 * routing). For each head and cluster c:
 *
 *   The `window` queries of largest mean_c q / |q| and the `context_window` keys of
 *   largest mean_c k / |k| belong to c (of equal ones the first; masks do not matter
 *   here).
 *   o = softmax(scale Q_c [mem_k_c; K_c]') [mem_v_c; V_c], without pairs of a masked
 *   query or a masked key, and without later keys (is_causal); memory is always seen
 *   y_i = sum of o over the clusters of i / (their number + epsilon); 0 where i has none
 *   shared_qk: keys are q / |q|, chosen by q; a query's own key has score -5e4
 *
 * Q, K, V      see heads.h; as many key heads as query heads; with shared_qk K is not
 *              read
 * means        f32 (heads, clusters, dim)
 * mem_k, mem_v f32 (heads, clusters, m, dim or v_dim), both or none
 * key_mask     bool (batch, kv_len), optional
 * query_mask   bool (batch, q_len), optional
 *
 * window is required. The defaults are context_window = window, shared_qk 0, epsilon 1e-5
 * and is_causal 0.
 *
 * A query that sees no key of a cluster gets 0 from it; upstream gives the mean of all
 * its keys. is_causal compares positions counted from the end, as in heads.h.
 * Refused: window below 1, one of mem_k and mem_v, shared_qk with other lengths.
 * Cost: 2 ((q_len + kv_len) clusters dim + clusters window (context_window + m) (dim +
 * v_dim)) FLOPs a head. Memory: up to 1.4 MiB a thread, and 8 bytes a token for norms and
 * 4 for each token of a cluster: of the head under way for each thread, where the heads
 * keep 8 threads busy, else of all heads. The clusters of a head are computed one by one.
 * Bound: products. Windows of 256 at 4,096 tokens, 8 heads of 64, on a Zen 4 core: 18.2 ms at the
 * peak and 19 measured, exponentials 2.3, norms 2.1, gathered rows 1.9, products with means 1.7,
 * sums of rows and the choice 2.3, all 31.
 * Source: Roy 2020, arXiv:2003.05997; compared with KmeansAttention of
 * routing-transformer 1.6.1. */
#include "../core/heads.h"
#include "../core/stream.h"
#include "../../tile.h"

#include <math.h>

struct routing_args {
    struct attn_heads_args heads;
    int64_t window, context_window, shared_qk;
    float epsilon;
};
static const attnrun_attr_def routing_attrs[] = {
    ATTN_HEADS_ATTRS(struct routing_args),
    ATTR_INT_REQUIRED(struct routing_args, window),
    ATTR_INT(struct routing_args, context_window, OP_INT_ABSENT),
    ATTR_INT(struct routing_args, shared_qk, 0),
    ATTR_FLOAT(struct routing_args, epsilon, 1e-5f),
    ATTR_END,
};

enum { Q, K, V, MEANS, MEM_K, MEM_V, KEY_MASK, QUERY_MASK };
enum { NORMS, CHOOSE, ATTEND };
enum { KEYS = ATTN_STREAM_KEYS, DISTANCES = 1 << 18, MAX_CLUSTERS = 64, SAMPLE = 256 };
#define SELF (-5e4f)

struct routing_state {
    struct attn_sizes sizes;
    int64_t heads, clusters,
        memory;              /* heads: of all samples; memory: keys of a cluster */
    int64_t window[2], n[2]; /* of queries, of keys */
    int64_t sides;           /* 1: keys are chosen as queries are */
    int64_t group, groups;   /* clusters of a task */
    int64_t rows;            /* queries of a block */
    /* Bytes into shared memory, or from arrays_at into scratch where a task is all of a
     * head. */
    int64_t norms_at[2], chosen_at[2], arrays_at;
    /* Slots of scratch: of a choice, and of a cluster's attention. */
    int64_t distance_at, value_at, index_at, rank_at, gemm_at;
    int64_t k_at, v_at, row_at, key_at, key_limit_at, query_limit_at, count_at;
    bool by_head;
    bool shared;
    float epsilon;
};

/* ---- shapes ---- */

static attn_status routing_check_args(const attnrun_step *step)
{
    const struct routing_args *args = step->args;
    TRY(attn_need_int(step, "window", args->window, 1, INT32_MAX));
    if (args->context_window != OP_INT_ABSENT)
        TRY(attn_need_int(step, "context_window", args->context_window, 1, INT32_MAX));
    TRY(attn_need_int(step, "shared_qk", args->shared_qk, 0, 1));
    TRY(attn_need_not_negative(step, "epsilon", args->epsilon));
    if (op_has_in(step, MEM_K) != op_has_in(step, MEM_V))
        return op_fail(step, ATTNRUN_E_MODEL, "%s is given without %s",
                       op_has_in(step, MEM_K) ? "mem_k" : "mem_v",
                       op_has_in(step, MEM_K) ? "mem_v" : "mem_k");
    return ATTNRUN_OK;
}

static attn_status check_memory(const attnrun_step *step, int in, attnrun_dim heads,
                                attnrun_dim dim)
{
    if (!op_has_in(step, in))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, in, 4));
    TRY(op_need_dim(step, in, 0, heads, "the heads"));
    if (op_rank_known(step, MEANS) && step->in[in].rank == 4)
        TRY(op_need_dim(step, in, 1, step->in[MEANS].dims[1], "the clusters of means"));
    if (op_rank_known(step, MEM_K) && step->in[in].rank == 4)
        TRY(op_need_dim(step, in, 2, step->in[MEM_K].dims[2], "the keys of mem_k"));
    return op_need_dim(step, in, 3, dim, "the head size");
}

static attn_status routing_check_inputs(const attnrun_step *step,
                                        const struct attn_qkv *shape)
{
    TRY(op_need_rank(step, MEANS, 3));
    TRY(op_need_dim(step, MEANS, 0, shape->q_heads, "the heads"));
    TRY(op_need_dim(step, MEANS, 2, shape->dim, "the head size"));
    TRY(check_memory(step, MEM_K, shape->q_heads, shape->dim));
    TRY(check_memory(step, MEM_V, shape->q_heads, shape->v_dim));
    TRY(attn_key_mask_check(step, KEY_MASK, shape->batch, shape->kv_len));
    if (!op_has_in(step, QUERY_MASK))
        return ATTNRUN_OK;
    TRY(op_need_rank(step, QUERY_MASK, 2));
    TRY(op_need_dim(step, QUERY_MASK, 0, shape->batch, "the batch"));
    return op_need_dim(step, QUERY_MASK, 1, shape->q_len, "the number of queries");
}

/* ---- the plan of a shape ---- */

/* The scratch of a choice of tokens. */
static bool place_choice(struct routing_state *s, int64_t *bytes)
{
    const int64_t n = max64(s->n[0], s->n[1]), size = (int64_t)sizeof(float);
    const int64_t gemm =
        (int64_t)attn_gemm_scratch((size_t)s->group, (size_t)n, (size_t)s->sizes.dim);
    return op_slot_rows(&s->distance_at, bytes, s->group, n, size) &&
           op_slot(&s->value_at, bytes, n, size) &&
           op_slot(&s->index_at, bytes, n, sizeof(int32_t)) &&
           op_slot(&s->rank_at, bytes, n, sizeof(int32_t)) &&
           op_slot(&s->gemm_at, bytes, gemm, size);
}

/* The scratch of the attention of a cluster, behind that of its stream. */
static bool place_cluster(struct routing_state *s, int64_t *bytes)
{
    const struct attn_sizes *z = &s->sizes;
    const int64_t stream = attn_stream_bytes(s->rows, z->dim, z->v_dim);
    const int64_t size = (int64_t)sizeof(float);
    int64_t stream_at;
    return stream >= 0 && op_slot(&stream_at, bytes, stream, 1) &&
           op_slot_rows(&s->k_at, bytes, KEYS, z->dim, size) &&
           op_slot_rows(&s->v_at, bytes, KEYS, z->v_dim, size) &&
           op_slot(&s->row_at, bytes, z->v_dim, size) &&
           op_slot(&s->key_at, bytes, KEYS, sizeof(int32_t)) &&
           op_slot(&s->key_limit_at, bytes, KEYS, sizeof(int32_t)) &&
           op_slot(&s->query_limit_at, bytes, s->rows, sizeof(int32_t)) &&
           op_slot(&s->count_at, bytes, z->q_len, size);
}

static attn_status routing_plan_memory(attnrun_step *step, struct routing_state *s)
{
    const int64_t heads = s->by_head ? 1 : s->heads;
    int64_t chosen[2], choice = 0, cluster = 0;
    bool fits = place_choice(s, &choice) && place_cluster(s, &cluster);
    step->shared_bytes = 0;
    for (int side = 0; side < 2; side++)
        fits = fits && ck_mul(s->clusters, s->window[side], &chosen[side]) &&
               op_slot_rows(&s->norms_at[side], &step->shared_bytes, heads, s->n[side],
                            sizeof(float)) &&
               op_slot_rows(&s->chosen_at[side], &step->shared_bytes, heads,
                            side < s->sides ? chosen[side] : 0, sizeof(int32_t));
    if (!fits)
        return op_fail_scratch(step);
    if (s->sides == 1)
        s->chosen_at[1] = s->chosen_at[0];
    step->scratch_bytes = max64(choice, cluster);
    return s->by_head && !op_shared_to_scratch(step, &s->arrays_at)
               ? op_fail_scratch(step)
               : ATTNRUN_OK;
}

static int64_t nanoseconds(double flops) { return op_ns(flops / 100 + 500); }

static attn_status routing_plan_tasks(attnrun_step *step, const struct routing_state *s)
{
    const struct attn_sizes *z = &s->sizes;
    const double n = (double)max64(s->n[0], s->n[1]);
    const double pairs =
        (double)s->clusters * (double)s->window[0] * (double)(s->window[1] + s->memory);
    const bool any = z->q_len > 0 && z->v_dim > 0;
    int64_t choosing;
    if (!ck_mul(s->heads, 2 * s->groups, &choosing))
        return op_fail_scratch(step);
    const double choose = 2 * n * (double)s->group * (double)(z->dim + 50);
    const double attend = 2 * pairs * (double)(z->dim + z->v_dim + 32);
    if (s->by_head) {
        const double choices = (double)s->sides * (double)s->groups;
        op_tasks(step, 0, any ? s->heads : 0, nanoseconds(choices * choose + attend));
        return ATTNRUN_OK;
    }
    op_tasks(step, NORMS, any ? 2 * s->heads : 0, nanoseconds(n * (double)z->dim));
    op_tasks(step, CHOOSE, any ? s->heads * s->sides * s->groups : 0,
             nanoseconds(choose));
    op_tasks(step, ATTEND, any ? s->heads : 0, nanoseconds(attend));
    return ATTNRUN_OK;
}

static attn_status plan_routing(attnrun_step *step, const struct attn_qkv *shape)
{
    const struct routing_args *args = step->args;
    struct routing_state *s = step->state;
    const int64_t context =
        args->context_window == OP_INT_ABSENT ? args->window : args->context_window;
    TRY(attn_qkv_sizes(step, &args->heads, shape, &s->sizes));
    s->shared = args->shared_qk != 0;
    if (s->shared && s->sizes.q_len != s->sizes.kv_len)
        return op_fail(step, ATTNRUN_E_SHAPE,
                       "it has %s and %s, expected equal numbers with shared_qk 1",
                       attn_plural(s->sizes.q_len, "query"),
                       attn_plural(s->sizes.kv_len, "key"));
    s->heads = s->sizes.batch * s->sizes.q_heads;
    s->clusters = step->in[MEANS].dims[1].value;
    s->memory = op_has_in(step, MEM_K) ? step->in[MEM_K].dims[2].value : 0;
    s->epsilon = args->epsilon;
    s->n[0] = s->sizes.q_len;
    s->n[1] = s->sizes.kv_len;
    s->window[0] = min64(args->window, s->n[0]);
    s->window[1] = min64(context, s->n[1]);
    s->sides = s->shared && s->window[0] == s->window[1] ? 1 : 2;
    s->group =
        min64(MAX_CLUSTERS, max64(8, DISTANCES / max64(1, max64(s->n[0], s->n[1]))));
    s->groups = ceil_div(s->clusters, s->group);
    s->rows = max64(1, min64(s->window[0], ATTN_STREAM_MAX));
    s->by_head = op_even_tasks(s->heads);
    TRY(routing_plan_memory(step, s));
    return routing_plan_tasks(step, s);
}

static attn_status routing_infer(attnrun_step *step)
{
    const struct routing_args *args = step->args;
    struct attn_qkv shape;
    TRY(routing_check_args(step));
    TRY(attn_qkv_infer(step, &args->heads, Q, K, V, ATTN_SAME_HEADS, &shape));
    TRY(routing_check_inputs(step, &shape));
    TRY(attn_qkv_output(step, &shape, 0));
    return step->concrete ? plan_routing(step, &shape) : ATTNRUN_OK;
}

/* ---- the tokens of a cluster ---- */

static const float *head_of(const float *x, const struct attn_heads *strides,
                            const struct routing_state *s, int64_t head)
{
    return x + attn_head_at(strides, s->sizes.q_heads, head);
}

/* The tokens of a side: queries, or keys, which are the queries where they are shared. */
static const float *routing_tokens(const attnrun_step *step, int64_t head, int side,
                                   int64_t *row)
{
    const struct routing_state *s = step->state;
    const bool queries = side == 0 || s->shared;
    const struct attn_heads *strides = queries ? &s->sizes.q : &s->sizes.k;
    *row = strides->row;
    return head_of(step->x[queries ? Q : K].data, strides, s, head);
}

/* Where the norms and the chosen tokens are. */
static char *arrays_of(const struct routing_state *s, const attnrun_work *work)
{
    return s->by_head ? op_slot_at(work->scratch, s->arrays_at) : work->shared;
}

static float *norms_of(const struct routing_state *s, const attnrun_work *work,
                       int64_t head, int side)
{
    return (float *)(void *)(arrays_of(s, work) + s->norms_at[side]) +
           (s->by_head ? 0 : head) * s->n[side];
}

static int32_t *chosen_of(const struct routing_state *s, const attnrun_work *work,
                          int64_t head, int side)
{
    return (int32_t *)(void *)(arrays_of(s, work) + s->chosen_at[side]) +
           (s->by_head ? 0 : head) * s->clusters * s->window[side];
}

static void find_norms(const attnrun_step *step, int64_t head, int side,
                       const attnrun_work *work)
{
    const struct routing_state *s = step->state;
    int64_t row;
    const float *x = routing_tokens(step, head, side, &row);
    step->kernels->inverse_norms_f32(norms_of(s, work, head, side), x, row,
                                     (size_t)s->n[side], (size_t)s->sizes.dim, 0.0f,
                                     1e-12f);
}

/* Finds the places of the k largest of n values, in order; of equal ones the first. A
 * sample gives an estimate of the k-th, so that few values must be compared exactly.
 * index, value and rank have space for n each. */
static void routing_choose(const struct attn_kernels *kernels, const float *x, int64_t n,
                           int64_t k, int32_t *chosen, int32_t *index, float *value,
                           int32_t *rank)
{
    const int64_t step = n / SAMPLE;
    const int64_t wanted = step > 0 ? k / step + k / step / 2 + 12 : SAMPLE;
    float threshold = -INFINITY;
    size_t above;
    if (wanted < SAMPLE) {
        for (int64_t i = 0; i < SAMPLE; i++)
            value[i] = x[i * step];
        kernels->rank_f32(rank, value, SAMPLE);
        threshold = attn_float_of_rank(
            kernels->kth_greatest_i32(rank, SAMPLE, (size_t)wanted, &above));
    }
    size_t found = kernels->select_f32(index, value, x, (size_t)n, 0, threshold);
    if (found < (size_t)k)
        found = kernels->select_f32(index, value, x, (size_t)n, 0, -INFINITY);
    kernels->rank_f32(rank, value, found);
    const int32_t last = kernels->kth_greatest_i32(rank, found, (size_t)k, &above);
    kernels->keep_greatest_f32(index, value, rank, found, last, (size_t)k - above);
    memcpy(chosen, index, (size_t)k * sizeof *chosen);
}

/* Chooses the tokens of a group of clusters. */
static void choose_group(const attnrun_step *step, int64_t head, int side, int64_t group,
                         const attnrun_work *work)
{
    const struct routing_state *s = step->state;
    const int64_t first = group * s->group, n = s->n[side], dim = s->sizes.dim;
    const int64_t m = min64(s->group, s->clusters - first);
    const float *norms = norms_of(s, work, head, side);
    int32_t *chosen = chosen_of(s, work, head, side) + first * s->window[side];
    float *distance = op_slot_floats(work->scratch, s->distance_at);
    int64_t row;
    const float *x = routing_tokens(step, head, side, &row);
    const struct attn_gemm_f32 g = {
        .a = (const float *)step->x[MEANS].data +
             (head % s->sizes.q_heads * s->clusters + first) * dim,
        .a_row = dim,
        .b = x,
        .b_row = 1,
        .b_col = row,
        .c = distance,
        .c_row = n,
        .m = (size_t)m,
        .n = (size_t)n,
        .k = (size_t)dim,
        .exact = 1, /* it says which tokens belong together */
        .scratch = op_slot_at(work->scratch, s->gemm_at),
    };
    if (s->window[side] == 0)
        return;
    step->kernels->gemm_f32(&g);
    for (int64_t c = 0; c < m; c++, distance += n, chosen += s->window[side]) {
        step->kernels->mul_f32(distance, distance, 1, norms, 1, (size_t)n);
        routing_choose(step->kernels, distance, n, s->window[side], chosen,
                       op_slot_at(work->scratch, s->index_at),
                       op_slot_at(work->scratch, s->value_at),
                       op_slot_at(work->scratch, s->rank_at));
    }
}

/* ---- attention of a cluster ---- */

struct cluster {
    const attnrun_step *step;
    const struct routing_state *s;
    struct attn_stream stream;
    int64_t head, number;
    const uint8_t *key_mask, *query_mask; /* of the sample, or NULL */
    const int32_t *queries, *keys;
    float *k, *v, *row;
    int32_t *key, *key_limit, *query_limit;
    float *count; /* clusters of each token */
    struct attn_pairs pairs;
};

static void routing_begin(struct cluster *t, const attnrun_step *step, int64_t head,
                          void *scratch)
{
    const struct routing_state *s = step->state;
    const struct attn_sizes *z = &s->sizes;
    const int64_t sample = head / z->q_heads;
    *t = (struct cluster){ .step = step, .s = s, .head = head };
    if (op_has_in(step, KEY_MASK))
        t->key_mask = (const uint8_t *)step->x[KEY_MASK].data + sample * z->kv_len;
    if (op_has_in(step, QUERY_MASK))
        t->query_mask = (const uint8_t *)step->x[QUERY_MASK].data + sample * z->q_len;
    attn_stream_begin(&t->stream, step->kernels, s->rows, z->dim, z->v_dim, scratch);
    t->k = op_slot_floats(scratch, s->k_at);
    t->v = op_slot_floats(scratch, s->v_at);
    t->row = op_slot_floats(scratch, s->row_at);
    t->key = op_slot_at(scratch, s->key_at);
    t->key_limit = op_slot_at(scratch, s->key_limit_at);
    t->query_limit = op_slot_at(scratch, s->query_limit_at);
    t->count = op_slot_floats(scratch, s->count_at);
    memset(t->count, 0, (size_t)z->q_len * sizeof *t->count);
}

static void routing_prepare(void *arg, float *scores, int64_t row, int64_t rows,
                            int64_t from, int64_t to)
{
    const struct cluster *t = arg;
    struct attn_pairs pairs = t->pairs;
    pairs.query += row;
    pairs.query_limit += row;
    pairs.key_limit += from;
    if (pairs.key != NULL)
        pairs.key += from;
    t->stream.kernels->pair_mask_f32(scores, ATTN_STREAM_SCORES, (size_t)rows,
                                     (size_t)(to - from), &pairs);
}

/* Loads the keys `first` … of the cluster as a tile; memory comes before all others. */
static struct attn_keys load_tile(struct cluster *t, int64_t first)
{
    const struct routing_state *s = t->s;
    const struct attn_sizes *z = &s->sizes;
    const struct attn_kernels *kernels = t->step->kernels;
    const int64_t n = min64(KEYS, s->memory + s->window[1] - first);
    const int64_t memory = max64(0, min64(n, s->memory - first)), others = n - memory;
    const int32_t *keys = t->keys + first + memory - s->memory;
    if (memory > 0) {
        const int64_t at =
            (t->head % z->q_heads * s->clusters + t->number) * s->memory + first;
        memcpy(t->k, (const float *)t->step->x[MEM_K].data + at * z->dim,
               (size_t)(memory * z->dim) * sizeof *t->k);
        memcpy(t->v, (const float *)t->step->x[MEM_V].data + at * z->v_dim,
               (size_t)(memory * z->v_dim) * sizeof *t->v);
    }
    int64_t row;
    const float *k = routing_tokens(t->step, t->head, 1, &row);
    kernels->gather_rows_f32(t->k + memory * z->dim, z->dim, k, row, keys, NULL, 1.0f,
                             (size_t)others, (size_t)z->dim);
    kernels->gather_rows_f32(t->v + memory * z->v_dim, z->v_dim,
                             head_of(t->step->x[V].data, &z->v, s, t->head), z->v.row,
                             keys, NULL, 1.0f, (size_t)others, (size_t)z->v_dim);
    for (int64_t j = 0; j < n; j++) {
        const int32_t key = j < memory ? -1 : keys[j - memory];
        const bool masked = key >= 0 && t->key_mask != NULL && !t->key_mask[key];
        t->key[j] = key;
        t->key_limit[j] = key < 0 ? INT32_MIN : masked ? INT32_MAX : z->causal ? key : 0;
    }
    return (struct attn_keys){
        .k = t->k, .v = t->v, .k_row = z->dim, .v_row = z->v_dim, .n = n
    };
}

/* Scales keys that are the queries to length 1. */
static void make_unit(struct cluster *t, const struct attn_keys *keys, const float *norms)
{
    for (int64_t j = 0; j < keys->n; j++)
        if (t->key[j] >= 0)
            t->step->kernels->mul_f32(t->k + j * keys->k_row, t->k + j * keys->k_row, 1,
                                      norms + t->key[j], 0, (size_t)keys->k_row);
}

static void load_queries(struct cluster *t, int64_t rows)
{
    const struct attn_sizes *z = &t->s->sizes;
    attn_stream_reset(&t->stream, rows);
    t->step->kernels->gather_rows_f32(
        t->stream.q, z->dim, head_of(t->step->x[Q].data, &z->q, t->s, t->head), z->q.row,
        t->queries, NULL, z->scale, (size_t)rows, (size_t)z->dim);
    for (int64_t r = 0; r < rows; r++) {
        const int64_t i = t->queries[r];
        const bool masked = t->query_mask != NULL && !t->query_mask[i];
        const int64_t sees = max64(-1, min64(INT32_MAX - 1, i + z->offset));
        t->query_limit[r] = masked ? -1 : z->causal ? (int32_t)sees : 0;
    }
    t->pairs = (struct attn_pairs){ .query = t->queries,
                                    .query_limit = t->query_limit,
                                    .key = t->s->shared ? t->key : NULL,
                                    .key_limit = t->key_limit,
                                    .self = SELF };
}

/* Adds the results of a block of a cluster's queries to their rows of Y. */
static void run_queries(struct cluster *t, int64_t rows, const attnrun_work *work)
{
    const struct routing_state *s = t->s;
    const struct attn_sizes *z = &s->sizes;
    const bool plain =
        !z->causal && !s->shared && t->key_mask == NULL && t->query_mask == NULL;
    float *y = (float *)t->step->y[0].data + attn_head_at(&z->y, z->q_heads, t->head);
    load_queries(t, rows);
    for (int64_t first = 0; first < s->memory + s->window[1]; first += KEYS) {
        const struct attn_keys keys = load_tile(t, first);
        if (s->shared)
            make_unit(t, &keys, norms_of(s, work, t->head, 1));
        attn_stream_tile(&t->stream, &keys, plain ? NULL : routing_prepare, t);
    }
    for (int64_t r = 0; r < rows; r++) {
        float *to = y + t->queries[r] * z->y.row;
        attn_stream_store(&t->stream, r, t->row, 0.0f);
        t->step->kernels->add_f32(to, to, 1, t->row, 1, (size_t)z->v_dim);
        t->count[t->queries[r]] += 1.0f;
    }
}

static attn_status routing_attend(const attnrun_step *step, int64_t head,
                                  const attnrun_work *work)
{
    const struct routing_state *s = step->state;
    const struct attn_sizes *z = &s->sizes;
    const int32_t *queries = chosen_of(s, work, head, 0);
    struct cluster t;
    routing_begin(&t, step, head, work->scratch);
    float *y = (float *)step->y[0].data + attn_head_at(&z->y, z->q_heads, head);
    for (int64_t i = 0; i < z->q_len; i++)
        memset(y + i * z->y.row, 0, (size_t)z->v_dim * sizeof *y);
    for (t.number = 0; t.number < s->clusters; t.number++) {
        t.keys = chosen_of(s, work, head, 1) + t.number * s->window[1];
        for (int64_t first = 0; first < s->window[0]; first += s->rows) {
            if (OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            t.queries = queries + t.number * s->window[0] + first;
            run_queries(&t, min64(s->rows, s->window[0] - first), work);
        }
    }
    for (int64_t i = 0; i < z->q_len; i++)
        t.count[i] = t.count[i] > 0.0f ? 1.0f / (t.count[i] + s->epsilon) : 0.0f;
    step->kernels->scale_rows_f32(y, z->y.row, y, z->y.row, (size_t)z->q_len,
                                  (size_t)z->v_dim, t.count, 1);
    return ATTNRUN_OK;
}

/* Computes all of a head. */
static attn_status routing_run_head(const attnrun_step *step, int64_t head,
                                    const attnrun_work *work)
{
    const struct routing_state *s = step->state;
    for (int side = 0; side < 2; side++)
        find_norms(step, head, side, work);
    for (int side = 0; side < s->sides; side++)
        for (int64_t group = 0; group < s->groups; group++) {
            if (OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            choose_group(step, head, side, group, work);
        }
    return routing_attend(step, head, work);
}

static attn_status routing_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct routing_state *s = step->state;
    for (int64_t task = work->begin; task < work->end; task++) {
        int64_t head = task;
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (s->by_head)
            TRY(routing_run_head(step, head, work));
        else if (work->phase == NORMS) {
            const int side = (int)op_take(&head, 2);
            find_norms(step, head, side, work);
        } else if (work->phase == CHOOSE) {
            const int64_t group = op_take(&head, s->groups);
            const int side = (int)op_take(&head, s->sides);
            choose_group(step, head, side, group, work);
        } else
            TRY(routing_attend(step, head, work));
    }
    return ATTNRUN_OK;
}

const attnrun_op_def op_routing_attention_1 = {
    OP_ROW_OF("attnrun"),
    .name = "RoutingAttention",
    .since = 1,
    .inputs = "Q:T K:T V:T means:T mem_k:T? mem_v:T? key_mask:b8? query_mask:b8?",
    .outputs = "Y:T",
    .types = "T=f32",
    .args_bytes = sizeof(struct routing_args),
    .state_bytes = sizeof(struct routing_state),
    .attrs = routing_attrs,
    .infer = routing_infer,
    .run = routing_run,
    .cost = "O(n clusters d + clusters window^2 d), scratch O(n)",
    .source = "Roy 2020, arXiv:2003.05997",
};
