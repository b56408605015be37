/* reformer_chunks.c - attention of a block of queries, in the order of their buckets, to
 * the chunks around their own. reformer_attention.c has the formula.
 *
 * In: the order and the norms that reformer_hash.c made, and rows of QK and V. Out: rows
 * of Y and their running softmax.
 *
 * Places are counted through all rounds, each of which has `padded` places. Keys may be
 * at any place, modulo the number of all places; the queries of round t are at the places
 * from t * padded on. A tile is a segment of keys of one round. Places behind the last
 * token of a round have no key and no query.
 * Cost: 2 chunk (1 + before + after) (dim + v_dim) FLOPs a query and round. Source:
 * Kitaev 2020, arXiv:2001.04451. */
#include "reformer.h"
#include "../../tile.h"

#include <math.h>

enum { KEYS = ATTN_STREAM_KEYS, MIN_GROUP = 32 };

struct chunks {
    const struct reformer *s;
    const struct reformer_operands *o;
    struct attn_stream stream;
    int64_t head, round, rows;
    int64_t query;        /* place of the first query of the block */
    const int32_t *token; /* of the queries */
    /* Of the tile: */
    int64_t key, n;           /* place of its first key, as the queries see it */
    const int32_t *key_token; /* of its keys */
    bool simple; /* all that is special is a query's own key, which is here */
    bool ragged; /* rows of a group see different keys */
    float *keys, *values, *key_factor;
    struct attn_pairs pairs;
    int32_t *query_limit, *key_limit;
};

bool attn_reformer_chunks_place(struct reformer *s, int64_t *bytes)
{
    const struct attn_sizes *z = &s->sizes;
    const int64_t stream = attn_stream_bytes(s->rows, z->dim, z->v_dim);
    int64_t stream_at;
    *bytes = 0;
    return stream >= 0 && op_slot(&stream_at, bytes, stream, 1) &&
           op_slot_rows(&s->keys_at, bytes, KEYS, z->dim, sizeof(float)) &&
           op_slot_rows(&s->values_at, bytes, KEYS, z->v_dim, sizeof(float)) &&
           op_slot(&s->key_limit_at, bytes, KEYS, sizeof(int32_t)) &&
           op_slot(&s->key_factor_at, bytes, KEYS, sizeof(float)) &&
           op_slot(&s->query_limit_at, bytes, s->rows, sizeof(int32_t));
}

static void reformer_chunks_begin(struct chunks *t, const struct attn_kernels *kernels,
                                  void *scratch)
{
    const struct reformer *s = t->s;
    attn_stream_begin(&t->stream, kernels, s->rows, s->sizes.dim, s->sizes.v_dim,
                      scratch);
    t->keys = op_slot_floats(scratch, s->keys_at);
    t->values = op_slot_floats(scratch, s->values_at);
    t->key_limit = op_slot_at(scratch, s->key_limit_at);
    t->key_factor = op_slot_floats(scratch, s->key_factor_at);
    t->query_limit = op_slot_at(scratch, s->query_limit_at);
}

static float *output(const struct chunks *t)
{
    const struct attn_sizes *z = &t->s->sizes;
    return t->o->y + attn_head_at(&z->y, z->q_heads, t->head);
}

/* Loads queries, and the running softmax that earlier rounds left for them. */
static void reformer_chunks_load(struct chunks *t, const struct attn_kernels *kernels)
{
    const struct reformer *s = t->s;
    const struct attn_sizes *z = &s->sizes;
    const struct reformer_sum *sums = t->o->sums + reformer_tokens_at(s, t->o, t->head);
    const size_t rows = (size_t)t->rows;
    attn_stream_reset(&t->stream, t->rows);
    kernels->gather_rows_f32(t->stream.q, z->dim,
                             reformer_head(t->o->qk, &z->q, s, t->head), z->q.row,
                             t->token, NULL, 1.0f, rows, (size_t)z->dim);
    for (int64_t r = 0; r < t->rows; r++)
        t->query_limit[r] = z->causal ? t->token[r] : 0;
    if (t->round == 0)
        return;
    kernels->gather_rows_f32(t->stream.sums, z->v_dim, output(t), z->y.row, t->token,
                             NULL, 1.0f, rows, (size_t)z->v_dim);
    for (int64_t r = 0; r < t->rows; r++) {
        const struct reformer_sum *sum = &sums[t->token[r]];
        t->stream.state[r] = (struct attn_softmax_row){ .max = sum->max,
                                                        .sum = sum->sum,
                                                        .shift = sum->shift };
    }
}

/* Stores the result after the last round, and otherwise the running softmax for the next
 * one. */
static void reformer_chunks_store(struct chunks *t, const struct attn_kernels *kernels)
{
    const struct attn_sizes *z = &t->s->sizes;
    struct attn_softmax_row *state = t->stream.state;
    const bool last = t->round + 1 == t->s->rounds;
    struct reformer_sum *sums = t->o->sums + reformer_tokens_at(t->s, t->o, t->head);
    for (int64_t r = 0; r < t->rows; r++)
        state[r].factor = !last ? 1.0f : state[r].sum == 0.0f ? 0.0f : 1 / state[r].sum;
    for (int64_t r = 0; !last && r < t->rows; r++)
        sums[t->token[r]] =
            (struct reformer_sum){ state[r].max, state[r].sum, state[r].shift };
    kernels->scatter_rows_f32(output(t), z->y.row, t->token, t->stream.sums, z->v_dim,
                              &state->factor, sizeof *state / sizeof(float),
                              (size_t)t->rows, (size_t)z->v_dim);
}

/* ---- scores ---- */

/* The places of the keys that query r of the block sees: [*from, *to). */
static void seen(const struct chunks *t, int64_t r, int64_t *from, int64_t *to)
{
    const struct reformer *s = t->s;
    const int64_t chunk = (t->query + r) / s->chunk;
    *from = (chunk - s->before) * s->chunk;
    *to = (chunk + s->after + 1) * s->chunk;
}

static void mask_unseen(const struct chunks *t, float *scores, int64_t row, int64_t rows,
                        int64_t from, int64_t to)
{
    for (int64_t r = row; r < row + rows; r++, scores += ATTN_STREAM_SCORES) {
        int64_t first, end;
        seen(t, r, &first, &end);
        for (int64_t j = from; j < min64(to, first - t->key); j++)
            scores[j - from] = -INFINITY;
        for (int64_t j = max64(from, end - t->key); j < to; j++)
            scores[j - from] = -INFINITY;
    }
}

/* Subtracts log(number of meetings of the pair in all rounds + 1e-9). */
static void deduplicate(const struct chunks *t, float *scores, int64_t row, int64_t rows,
                        int64_t from, int64_t to)
{
    const struct reformer *s = t->s;
    const int64_t n = s->sizes.q_len;
    const int32_t chunks = (int32_t)(s->rounds * s->padded / s->chunk);
    const int32_t *place = t->o->place + reformer_items_at(s, t->o, t->head, 0);
    for (int64_t r = row; r < row + rows; r++, scores += ATTN_STREAM_SCORES) {
        if (attn_poll_work((to - from) * (s->rounds + 8)) != ATTNRUN_OK)
            return;
        for (int64_t j = from; j < to; j++) {
            int32_t count = 0;
            for (int64_t round = 0; round < s->rounds; round++) {
                int32_t q = place[round * n + t->token[r]];
                int32_t k = place[round * n + t->key_token[j]];
                count += (q == k) + (q == (k + 1 == chunks ? 0 : k + 1));
            }
            scores[j - from] -= (float)log((double)count + 1e-9);
        }
    }
}

static void reformer_chunks_prepare(void *arg, float *scores, int64_t row, int64_t rows,
                                    int64_t from, int64_t to)
{
    const struct chunks *t = arg;
    const struct reformer *s = t->s;
    struct attn_pairs pairs = t->pairs;
    if (!t->simple) {
        pairs.key += from;
        pairs.key_limit += from;
        pairs.query += row;
        pairs.query_limit += row;
        if (pairs.key_group != NULL) {
            pairs.key_group += from;
            pairs.query_group += row;
        }
        t->stream.kernels->pair_mask_f32(scores, ATTN_STREAM_SCORES, (size_t)rows,
                                         (size_t)(to - from), &pairs);
    }
    if (s->deduplicate)
        deduplicate(t, scores, row, rows, from, to);
    if (t->ragged)
        mask_unseen(t, scores, row, rows, from, to);
}

/* ---- tiles ---- */

/* Loads keys, scaled to length 1. Those of the block's own tokens are made from the
 * queries. */
static void load_keys(struct chunks *t, bool same_round)
{
    const struct attn_sizes *z = &t->s->sizes;
    const struct attn_kernels *kernels = t->stream.kernels;
    const float *norms = t->o->norms + reformer_tokens_at(t->s, t->o, t->head);
    const float *x = reformer_head(t->o->qk, &z->q, t->s, t->head);
    int64_t own = same_round ? min64(max64(t->query - t->key, 0), t->n) : t->n;
    int64_t end = same_round ? max64(min64(t->query + t->rows - t->key, t->n), own) : own;
    for (int64_t j = own; j < end; j++)
        t->key_factor[j] = z->scale * norms[t->key_token[j]];
    kernels->gather_rows_f32(t->keys, z->dim, x, z->q.row, t->key_token, norms, z->scale,
                             (size_t)own, (size_t)z->dim);
    if (own < end)
        kernels->scale_rows_f32(t->keys + own * z->dim, z->dim,
                                t->stream.q + (t->key + own - t->query) * z->dim, z->dim,
                                (size_t)(end - own), (size_t)z->dim, t->key_factor + own,
                                1);
    kernels->gather_rows_f32(t->keys + end * z->dim, z->dim, x, z->q.row,
                             t->key_token + end, norms, z->scale, (size_t)(t->n - end),
                             (size_t)z->dim);
}

/* Loads the keys from place t->key on, which are those from `at` on of a round. */
static void load_tile(struct chunks *t, int64_t round, int64_t at, bool same_round)
{
    const struct reformer *s = t->s;
    const struct attn_sizes *z = &s->sizes;
    const struct attn_kernels *kernels = t->stream.kernels;
    const int64_t first = reformer_items_at(s, t->o, t->head, round) + at;
    const bool other_buckets = s->by_bucket && round != t->round;
    const uint8_t *keep = t->o->key_mask;
    t->key_token = t->o->order + first;
    load_keys(t, same_round);
    kernels->gather_rows_f32(t->values, z->v_dim,
                             reformer_head(t->o->v, &z->v, s, t->head), z->v.row,
                             t->key_token, NULL, 1.0f, (size_t)t->n, (size_t)z->v_dim);
    t->simple = same_round && !z->causal && keep == NULL && !s->by_bucket;
    if (t->simple)
        return;
    if (keep != NULL)
        keep += t->head / z->q_heads * z->q_len;
    for (int64_t j = 0; j < t->n; j++) {
        const int32_t token = t->key_token[j];
        const bool masked = (keep != NULL && !keep[token]) || other_buckets;
        t->key_limit[j] = masked ? INT32_MAX : z->causal ? token : 0;
    }
    t->pairs = (struct attn_pairs){ .query = t->token,
                                    .query_limit = t->query_limit,
                                    .key = t->key_token,
                                    .key_limit = t->key_limit,
                                    .self = s->self };
    if (s->by_bucket) {
        t->pairs.key_group = t->o->group + first;
        t->pairs.query_group = t->o->group + (t->token - t->o->order);
    }
}

/* The number of rows from r on that see a tile together: rows of one chunk, or of several
 * short ones. */
static int64_t group_from(const struct chunks *t, int64_t r)
{
    const int64_t chunk = t->s->chunk, at = (t->query + r) % chunk;
    int64_t rows = chunk - at;
    if (chunk < MIN_GROUP)
        rows += (MIN_GROUP / chunk - 1) * chunk;
    return min64(min64(rows, ATTN_STREAM_ROWS), t->rows - r);
}

static void reformer_chunks_run_tile(struct chunks *t)
{
    const struct reformer *s = t->s;
    const struct attn_keys keys = { .k = t->keys,
                                    .v = t->values,
                                    .k_row = s->sizes.dim,
                                    .v_row = s->sizes.v_dim,
                                    .n = t->n,
                                    .own = t->simple,
                                    .own_at = t->query - t->key,
                                    .own_score = s->self };
    attn_stream_pack(&t->stream, &keys);
    for (int64_t row = 0, rows; row < t->rows; row += rows) {
        int64_t first, end, last_first;
        rows = group_from(t, row);
        seen(t, row, &first, &end);
        seen(t, row + rows - 1, &last_first, &end);
        int64_t from = max64(first - t->key, 0), to = min64(end - t->key, t->n);
        t->ragged = last_first != first || from % OP_PANEL != 0;
        const bool plain = t->simple && !s->deduplicate && !t->ragged;
        attn_stream_rows(&t->stream, &keys, row, rows, op_panel_begin(from), to,
                         plain ? NULL : reformer_chunks_prepare, t);
    }
}

attn_status attn_reformer_chunks(const struct reformer *s,
                                 const struct attn_kernels *kernels,
                                 const struct reformer_operands *o, int64_t head,
                                 int64_t round, int64_t block, const attnrun_work *work)
{
    const int64_t n = s->sizes.q_len, first_row = block * s->rows;
    struct chunks t = { .s = s, .o = o, .head = head, .round = round };
    int64_t from, to, unused;
    t.rows = min64(s->rows, n - first_row);
    t.query = round * s->padded + first_row;
    t.token = o->order + reformer_items_at(s, o, head, round) + first_row;
    reformer_chunks_begin(&t, kernels, work->scratch);
    reformer_chunks_load(&t, kernels);
    seen(&t, 0, &from, &unused);
    seen(&t, t.rows - 1, &unused, &to);
    for (t.key = from; t.key < to;) {
        int64_t repeat = t.key / s->padded - (t.key % s->padded < 0);
        int64_t at = t.key - repeat * s->padded, key_round = repeat % s->rounds;
        if (at >= n) {
            t.key = (repeat + 1) * s->padded;
            continue;
        }
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        key_round += key_round < 0 ? s->rounds : 0;
        t.n = min64(min64(KEYS, n - at), to - t.key);
        load_tile(&t, key_round, at, repeat == round);
        reformer_chunks_run_tile(&t);
        t.key += t.n;
    }
    reformer_chunks_store(&t, kernels);
    return ATTNRUN_OK;
}
