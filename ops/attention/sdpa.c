/* sdpa.c - the streaming attention core: a task is a block of queries of one key head; it
 * walks over the keys that any of them sees, a tile at a time: scores by a product with
 * K, cap, mask, online softmax, product with V added to the sums so far. */
#include "sdpa.h"

#include <math.h>

enum {
    QUERIES = ATTN_GEMM_MC,
    MOST_QUERIES = 4 * QUERIES, /* K and V are packed once for this many */
    ENOUGH_TASKS = 16,          /* keep several threads busy before blocks grow */
    KEYS = 256
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Queries of all heads of a group are rows of one matrix where they lie one behind the
 * other. */
static bool mergeable(const struct attn_sdpa *s)
{
    return s->q.head == s->q_len * s->q.row && s->y.head == s->q_len * s->y.row;
}

attn_status attn_sdpa_fits(const attnrun_step *step, int64_t batch, int64_t heads,
                           int64_t q_len, int64_t kv_len, int64_t dim)
{
    const int64_t sizes[] = { batch, heads, q_len, dim, 8 };
    int64_t a = 1, b = 1;
    bool fits = ck_mul(most(kv_len, 1), most(q_len, 1), &b);
    for (int i = 0; i < 5 && fits; i++)
        fits = ck_mul(a, most(sizes[i], 1), &a) &&
               (i >= 2 || ck_mul(b, most(sizes[i], 1), &b));
    int64_t keys = most(kv_len, 1), rows = most(q_len, 1), c;
    fits = fits && ck_mul(a / rows, keys, &c);
    return fits ? ATTNRUN_OK
                : op_fail(step, ATTNRUN_E_LIMIT, "the attention is too large");
}

/* For both products of a tile. */
static int64_t gemm_floats(const struct attn_sdpa *s, int64_t rows)
{
    size_t m = (size_t)rows;
    size_t scores = attn_gemm_scratch(m, KEYS, (size_t)s->head_dim);
    size_t values = attn_gemm_scratch(m, (size_t)s->v_dim, KEYS);
    return (int64_t)(scores > values ? scores : values);
}

attn_status attn_sdpa_plan(const attnrun_step *step, struct attn_sdpa *s)
{
    const bool empty = s->batch == 0 || s->q_heads == 0 || s->q_len == 0 || s->v_dim == 0;
    s->blocks = s->block = s->heads = 1;
    if (empty)
        return ATTNRUN_OK;
    int64_t group = s->q_heads / s->kv_heads;
    s->rows = s->q_len;
    s->heads = s->q_heads;
    if (group > 1 && mergeable(s) && s->q_len <= QUERIES / 2) {
        s->rows = s->q_len * group;
        s->heads = s->kv_heads;
    }
    int64_t queries = QUERIES;
    while (queries < MOST_QUERIES &&
           s->rows / (2 * queries) >= (ENOUGH_TASKS - 1) / (s->batch * s->heads) + 1)
        queries *= 2;
    s->blocks = s->rows / queries + (s->rows % queries != 0);
    s->block = s->rows / s->blocks + (s->rows % s->blocks != 0);
    s->blocks = s->rows / s->block + (s->rows % s->block != 0);
    const int64_t sub = least(s->block, QUERIES);
    const int64_t panels = s->block > QUERIES ? KEYS * (s->head_dim + s->v_dim + 32) : 0;
    int64_t bytes;
    bool fits = s->head_dim + s->v_dim < INT64_MAX / 65536 &&
                ck_mul(s->batch, s->heads, &s->n_tasks) &&
                ck_mul(s->n_tasks, s->blocks, &s->n_tasks) &&
                ck_mul(s->block, s->head_dim + s->v_dim + 4, &bytes) &&
                bytes < INT64_MAX / 64;
    if (!fits)
        return op_fail(step, ATTNRUN_E_LIMIT, "the attention is too large");
    double cost = 2.0 * (double)s->block * (double)s->kv_len *
                  (double)(s->head_dim + s->v_dim + 32) / 100.0;
    s->task_cost = cost < 1e15 ? (int64_t)cost + 500 : (int64_t)1e15;
    bytes += gemm_floats(s, sub) + sub * KEYS + panels + 64;
    s->scratch_bytes = bytes * 4;
    return ATTNRUN_OK;
}

/* ---- one task ---- */

/* Keys that some row of QUERIES sees, and those that all of them see. */
struct seen {
    int64_t from, to, all_from, all_to;
};

struct queries {
    const struct attn_sdpa *s;
    const struct attn_kernels *kernels;
    const struct attn_sdpa_operands *o;
    int64_t b, kv_head, head, row,
        n;                /* rows row … row + n - 1, the first of head `head` */
    int64_t offset, len;  /* position of query 0; keys that exist for this sample */
    float *q;             /* n x head_dim, times the scale */
    float *keys, *values; /* panels of a tile of K and V; NULL: few queries, not packed */
    int64_t r0;           /* rows from here on are in `scores` */
    float *scores;        /* up to QUERIES x KEYS */
    float *sums, *scratch; /* n x v_dim */
    struct attn_softmax_row *state;
    struct seen seen[MOST_QUERIES / QUERIES];
    bool plain; /* scores are taken as they are, where all rows see a key */
};

/* Keys seen by row r of the block: [*from, *to). */
static void keys_of(const struct queries *t, int64_t r, int64_t *from, int64_t *to)
{
    const struct attn_sdpa *s = t->s;
    int64_t position = t->offset + (t->row + r) % s->q_len;
    *from = s->left >= 0 ? most(0, position - s->left) : 0;
    *to = s->causal ? least(t->len, position + 1) : t->len;
    if (s->right >= 0)
        *to = least(*to, position + s->right + 1);
    if (s->mask_kind != ATTN_MASK_NONE)
        *to = least(*to, s->mask_len);
    *to = most(*to, *from);
}

/* The block's queries, times the scale: once for all keys. */
static void scale_queries(const struct queries *t)
{
    const struct attn_sdpa *s = t->s;
    const float *from =
        t->o->q + t->b * s->q.batch + t->head * s->q.head + t->row % s->q_len * s->q.row;
    for (int64_t r = 0; r < t->n; r++)
        t->kernels->mul_f32(t->q + r * s->head_dim, from + r * s->q.row, 1, &s->scale, 0,
                            (size_t)s->head_dim);
}

/* Where the n keys (or values) from `first` on begin; they lie in one piece. */
static const float *tile_start(const struct queries *t, int64_t first, bool value)
{
    const struct attn_sdpa *s = t->s;
    const bool past = first < s->past_len;
    const struct attn_heads *at =
        value ? (past ? &s->past_v : &s->v) : (past ? &s->past_k : &s->k);
    const float *from =
        value ? (past ? t->o->past_v : t->o->v) : (past ? t->o->past_k : t->o->k);
    return from + t->b * at->batch + t->kv_head * at->head +
           (first - (past ? 0 : s->past_len)) * at->row;
}

static void pack_tile(const struct queries *t, int64_t first, int64_t n)
{
    const struct attn_sdpa *s = t->s;
    const bool past = first < s->past_len;
    if (t->keys == NULL)
        return;
    t->kernels->gemm_pack_f32(t->keys, tile_start(t, first, false), 1,
                              past ? s->past_k.row : s->k.row, (size_t)s->head_dim,
                              (size_t)n);
    t->kernels->gemm_pack_f32(t->values, tile_start(t, first, true),
                              past ? s->past_v.row : s->v.row, 1, (size_t)n,
                              (size_t)s->v_dim);
}

/* scores[r - r0][j] = scale q_r k_(first + j) for `rows` rows from r0 on and n keys. */
static void score_tile(const struct queries *t, int64_t rows, int64_t first, int64_t n)
{
    const struct attn_sdpa *s = t->s;
    const bool past = first < s->past_len;
    struct attn_gemm_f32 g = { .a = t->q + t->r0 * s->head_dim,
                               .a_row = s->head_dim,
                               .b = t->keys ? t->keys : tile_start(t, first, false),
                               .b_row = 1,
                               .b_col = past ? s->past_k.row : s->k.row,
                               .packed = t->keys != NULL,
                               .c = t->scores,
                               .c_row = KEYS,
                               .m = (size_t)rows,
                               .n = (size_t)n,
                               .k = (size_t)s->head_dim,
                               .scratch = t->scratch };
    t->kernels->gemm_f32(&g);
}

/* sums += scores V, for rows already multiplied by their factors. */
static void value_tile(const struct queries *t, int64_t rows, int64_t first, int64_t n)
{
    const struct attn_sdpa *s = t->s;
    const bool past = first < s->past_len;
    struct attn_gemm_f32 g = { .a = t->scores,
                               .a_row = KEYS,
                               .b = t->values ? t->values : tile_start(t, first, true),
                               .b_row = past ? s->past_v.row : s->v.row,
                               .b_col = 1,
                               .packed = t->values != NULL,
                               .c = t->sums + t->r0 * s->v_dim,
                               .c_row = s->v_dim,
                               .m = (size_t)rows,
                               .n = (size_t)s->v_dim,
                               .k = (size_t)n,
                               .accumulate = 1,
                               .scratch = t->scratch };
    t->kernels->gemm_f32(&g);
}

static float *scores_out(const struct queries *t, int64_t r)
{
    const struct attn_sdpa *s = t->s;
    if (t->o->scores == NULL)
        return NULL;
    int64_t row = (t->b * s->q_heads + t->head) * s->q_len + t->row % s->q_len + r;
    return t->o->scores + row * s->kv_len;
}

/* Adds the mask's part for keys first … first + n - 1 to row r. */
static void mask_row(const struct queries *t, int64_t r, int64_t first, int64_t n)
{
    const struct attn_sdpa *s = t->s;
    if (s->mask_kind == ATTN_MASK_NONE)
        return;
    int64_t row = t->row + r, head = t->head - t->row / s->q_len + row / s->q_len;
    int64_t at =
        t->b * s->mask.batch + head * s->mask.head + row % s->q_len * s->mask.row + first;
    n = least(n, s->mask_len - first);
    if (n <= 0)
        return;
    float *scores = t->scores + (r - t->r0) * KEYS;
    if (s->mask_kind == ATTN_MASK_KEEP)
        t->kernels->keep_mask_f32(scores, (const uint8_t *)t->o->mask + at, (size_t)n);
    else
        t->kernels->add_mask_f32(scores, (const float *)t->o->mask + at, (size_t)n);
}

static void hide(float *scores, int64_t from, int64_t to)
{
    for (int64_t j = from; j < to; j++)
        scores[j] = -INFINITY;
}

static void keep_keys(float *scores, const int32_t *keep, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        scores[j] = keep[j] != 0 ? scores[j] : -INFINITY;
}

/* Cap and mask of row r of a tile. */
static void prepare_row(const struct queries *t, int64_t r, int64_t first, int64_t n)
{
    const struct attn_sdpa *s = t->s;
    float *scores = t->scores + (r - t->r0) * KEYS, *out = scores_out(t, r);
    int64_t from, to;
    if (out != NULL && s->scores_mode == ATTN_SCORES_RAW)
        memcpy(out + first, scores, (size_t)n * sizeof *out);
    if (s->softcap > 0)
        t->kernels->softcap_f32(scores, (size_t)n, s->softcap);
    if (out != NULL && s->scores_mode == ATTN_SCORES_CAPPED)
        memcpy(out + first, scores, (size_t)n * sizeof *out);
    mask_row(t, r, first, n);
    if (t->o->key_keep != NULL)
        keep_keys(scores, t->o->key_keep + t->b * s->kv_len + first, n);
    keys_of(t, r, &from, &to);
    from = least(most(from - first, 0), n);
    to = least(most(to - first, from), n);
    hide(scores, 0, from);
    hide(scores, to, n);
    if (out != NULL && s->scores_mode >= ATTN_SCORES_BIASED)
        memcpy(out + first, scores, (size_t)n * sizeof *out);
}

/* The softmax of a tile's rows; their sums are multiplied by what that asks for. */
static void softmax_tile(const struct queries *t, int64_t rows, int64_t first, int64_t n)
{
    const size_t v_dim = (size_t)t->s->v_dim;
    const struct seen *seen = &t->seen[t->r0 / QUERIES];
    if (!t->plain || first < seen->all_from || first + n > seen->all_to)
        for (int64_t r = t->r0; r < t->r0 + rows; r++)
            prepare_row(t, r, first, n);
    t->kernels->softmax_rows_f32(t->scores, KEYS, (size_t)rows, (size_t)n,
                                 t->state + t->r0);
    for (int64_t r = t->r0; r < t->r0 + rows; r++) {
        float *sums = t->sums + r * t->s->v_dim;
        if (t->state[r].factor != 1.0f)
            t->kernels->mul_f32(sums, sums, 1, &t->state[r].factor, 0, v_dim);
    }
}

/* sums / total become Y; a row that saw nothing is zeros. */
static void finish_row(const struct queries *t, int64_t r)
{
    const struct attn_sdpa *s = t->s;
    const float *sums = t->sums + r * s->v_dim;
    const struct attn_softmax_row *state = t->state + r;
    const float empty = s->nan_rows && s->kv_len > 0 ? NAN : 0.0f;
    const float scale = state->sum == 0.0f ? empty : 1.0f / state->sum;
    int64_t row = t->row % s->q_len + r;
    float *y = t->o->y + t->b * s->y.batch + t->head * s->y.head + row * s->y.row;
    t->kernels->mul_f32(y, sums, 1, &scale, 0, (size_t)s->v_dim);
    float *out = s->scores_mode == ATTN_SCORES_SOFTMAX ? scores_out(t, r) : NULL;
    for (int64_t j = 0; out != NULL && j < s->kv_len; j++)
        out[j] = state->sum == 0.0f ? 0.0f : expf(out[j] - state->max) * scale;
}

static struct seen keys_of_rows(const struct queries *t, int64_t r0, int64_t rows)
{
    struct seen seen = { t->s->kv_len, 0, 0, t->s->kv_len };
    if (t->o->scores != NULL)
        return (struct seen){ 0, t->s->kv_len, 0, 0 };
    for (int64_t r = r0; r < r0 + rows; r++) {
        int64_t from, to;
        keys_of(t, r, &from, &to);
        if (from < to) {
            seen.from = least(seen.from, from);
            seen.to = most(seen.to, to);
        }
        seen.all_from = most(seen.all_from, from);
        seen.all_to = least(seen.all_to, to);
    }
    return seen;
}

/* All keys that some row sees, in tiles that begin at multiples of KEYS in each piece.
 * Where the scores are asked for, all keys. */
static attn_status stream(struct queries *t, const attnrun_work *work)
{
    const struct attn_sdpa *s = t->s;
    int64_t least_key = s->kv_len, last_key = 0;
    for (int64_t r0 = 0; r0 < t->n; r0 += QUERIES) {
        struct seen *seen = &t->seen[r0 / QUERIES];
        *seen = keys_of_rows(t, r0, least(QUERIES, t->n - r0));
        least_key = least(least_key, seen->from);
        last_key = most(last_key, seen->to);
    }
    for (int64_t first = 0; first < last_key;) {
        int64_t end = first < s->past_len ? s->past_len : s->kv_len;
        int64_t n = least(KEYS, end - first);
        if (first + n > least_key) {
            if (OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            pack_tile(t, first, n);
            for (t->r0 = 0; t->r0 < t->n; t->r0 += QUERIES) {
                const struct seen *seen = &t->seen[t->r0 / QUERIES];
                int64_t rows = least(QUERIES, t->n - t->r0);
                if (first >= seen->to || first + n <= seen->from)
                    continue;
                score_tile(t, rows, first, n);
                softmax_tile(t, rows, first, n);
                value_tile(t, rows, first, n);
            }
        }
        first += n;
    }
    return ATTNRUN_OK;
}

attn_status attn_sdpa_run(const struct attn_sdpa *s, const struct attn_kernels *kernels,
                          const struct attn_sdpa_operands *o, int64_t task,
                          const attnrun_work *work)
{
    const int64_t group = s->q_heads / s->kv_heads, per_head = s->q_heads / s->heads;
    struct queries t = { .s = s, .kernels = kernels, .o = o };
    t.plain = s->softcap <= 0 && s->mask_kind == ATTN_MASK_NONE && o->scores == NULL &&
              o->key_keep == NULL;
    t.row = task % s->blocks * s->block;
    t.n = least(s->block, s->rows - t.row);
    t.b = task / s->blocks / s->heads;
    t.head = task / s->blocks % s->heads * per_head;
    t.kv_head = t.head / group;
    t.head += t.row / s->q_len;
    t.offset = s->past_len;
    t.len = s->kv_len;
    if (o->lens != NULL) {
        const int64_t limit = INT64_C(1) << 48;
        int64_t len =
            most(-limit, least(limit, tensor_get_int(o->lens, t.b))) + o->lens_add;
        t.len = most(0, least(len, s->kv_len));
        if (o->lens_position)
            t.offset = len - s->q_len;
        if (o->lens_not_before)
            t.offset = most(t.offset, 0);
    }
    const int64_t sub = least(s->block, QUERIES);
    t.scratch = work->scratch;
    t.scores = t.scratch + gemm_floats(s, sub);
    t.sums = t.scores + sub * KEYS;
    t.state = (struct attn_softmax_row *)(void *)(t.sums + s->block * s->v_dim);
    t.q = (float *)(t.state + s->block);
    if (s->block > QUERIES) {
        t.keys = t.q + s->block * s->head_dim;
        t.values = t.keys + KEYS * s->head_dim;
    }
    scale_queries(&t);
    memset(t.sums, 0, (size_t)(t.n * s->v_dim) * sizeof *t.sums);
    for (int64_t r = 0; r < t.n; r++)
        t.state[r] = (struct attn_softmax_row){ .max = -INFINITY };
    TRY(stream(&t, work));
    for (int64_t r = 0; r < t.n; r++)
        finish_row(&t, r);
    return ATTNRUN_OK;
}
