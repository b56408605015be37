/* sdpa.c - computes softmax attention on the streaming core. sdpa.h describes the
 * operands and the cost.
 *
 * A task is a block of queries of one key head. It visits the keys that any of its
 * queries sees, a tile at a time, and writes the rows of Y. If several query heads share
 * a key head, the rows of all of them are computed in one pass over the keys. */
#include "sdpa.h"
#include "stream.h"

#include <math.h>
#include "../../tile.h"

enum {
    QUERIES = ATTN_STREAM_ROWS,
    MAX_QUERIES = ATTN_STREAM_MAX,
    MIN_GROUP = ATTN_SDPA_GROUP,
    KEYS = ATTN_STREAM_KEYS,
    PART_STEP = 64 /* parts of the keys begin at multiples of it */
};

/* ---- one task ---- */

/* The keys that some row of a group sees, and those that all of its rows see. */
struct seen {
    int64_t from, to, all_from, all_to;
};

struct queries {
    const struct attn_sdpa *s;
    const struct attn_sdpa_operands *o;
    struct attn_stream stream;
    int64_t b, kv_head, head, row; /* rows row … row + n - 1, the first of head `head` */
    int64_t offset, len; /* position of query 0; keys that exist for this sample */
    int64_t group;       /* rows that are given a tile together */
    struct seen seen[MAX_QUERIES / MIN_GROUP];
    /* `masked` is added to the keys before `front` and from `padding` on; nothing is
     * added to the keys from `front` to `shown`. */
    int64_t front, shown, padding;
    /* The scores need no change, where all rows see a key, except for the mask. */
    bool plain, plain_but_mask;
    int64_t part;      /* of the keys, of s->parts */
    int64_t first;     /* key of the tile in work */
    int64_t min_key;   /* that some row sees */
    int64_t mask_from; /* column of the mask that is key 0 */
    float *wide;       /* a tile of keys, then of values, where they are promoted */
};

void attn_sdpa_keys(const struct attn_sdpa *s, int64_t position, int64_t len,
                    int64_t *from, int64_t *to)
{
    *from = s->left >= 0 ? max64(0, position - s->left) : 0;
    *to = s->causal ? min64(len, position + 1) : len;
    if (s->right >= 0)
        *to = min64(*to, position + s->right + 1);
    if (s->mask_kind != ATTN_MASK_NONE)
        *to = min64(*to, s->mask_len);
    *to = max64(*to, *from);
}

/* The keys that row r of the block sees: [*from, *to). */
static void keys_of(const struct queries *t, int64_t r, int64_t *from, int64_t *to)
{
    const int64_t row = t->row + r, q_len = t->s->q_len;
    attn_sdpa_keys(t->s, t->offset + (row < q_len ? row : row % q_len), t->len, from, to);
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
            seen.from = min64(seen.from, from);
            seen.to = max64(seen.to, to);
        }
        seen.all_from = max64(seen.all_from, from);
        seen.all_to = min64(seen.all_to, to);
    }
    return seen;
}

/* The n keys and values from `first` on; they lie in one segment. */
static struct attn_keys tile_at(const struct queries *t, int64_t first, int64_t n)
{
    const struct attn_sdpa *s = t->s;
    if (s->promotes) {
        float *k = t->wide, *v = k + KEYS * s->head_dim;
        t->o->promote(t->o->promote_arg, t->b, t->kv_head, first, n, k, v);
        return (struct attn_keys){
            .k = k, .v = v, .k_row = s->head_dim, .v_row = s->v_dim, .n = n
        };
    }
    const bool past = first < s->past_len;
    const struct attn_heads *k = past ? &s->past_k : &s->k,
                            *v = past ? &s->past_v : &s->v;
    const int64_t row = first - (past ? 0 : s->past_len);
    return (struct attn_keys){
        .k = (past ? t->o->past_k : t->o->k) + t->b * k->batch + t->kv_head * k->head +
             row * k->row,
        .v = (past ? t->o->past_v : t->o->v) + t->b * v->batch + t->kv_head * v->head +
             row * v->row,
        .k_row = k->row,
        .v_row = v->row,
        .n = n,
    };
}

static int64_t scores_len(const struct attn_sdpa *s)
{
    return s->scores_len > 0 ? s->scores_len : s->kv_len;
}

static float *scores_out(const struct queries *t, int64_t r)
{
    const struct attn_sdpa *s = t->s;
    if (t->o->scores == NULL)
        return NULL;
    int64_t row = (t->b * s->q_heads + t->head) * s->q_len + t->row % s->q_len + r;
    return t->o->scores + row * scores_len(s);
}

/* The head of row r; the rows of several heads lie one behind the other. */
static int64_t head_of(const struct queries *t, int64_t r)
{
    return t->head + (t->row + r) / t->s->q_len - t->row / t->s->q_len;
}

/* Where the numbers of row r begin. */
static int64_t row_at(const struct queries *t, const struct attn_heads *at, int64_t r)
{
    return t->b * at->batch + head_of(t, r) * at->head +
           (t->row + r) % t->s->q_len * at->row;
}

static int64_t mask_at(const struct queries *t, int64_t r, int64_t key)
{
    return row_at(t, &t->s->mask, r) + t->mask_from + key;
}

/* Numbers at … at + n - 1 of the mask, n <= KEYS, as floats: those of 16 bits in `room`. */
static const float *mask_floats(const struct queries *t, int64_t at, int64_t n,
                                float *room)
{
    const int32_t dtype = t->s->mask_dtype;
    const void *from = attn_stored_at(dtype, t->o->mask, at);
    if (!attn_stored_narrow(dtype))
        return from;
    attn_stored_to_floats(t->stream.kernels, dtype, room, from, n);
    return room;
}

/* Adds the one number that the mask has for row r to n scores of it. */
static void mask_whole_row(const struct queries *t, float *scores, int64_t r, int64_t n)
{
    const int32_t kind = t->s->mask_kind;
    const int64_t at = row_at(t, &t->s->mask, r);
    float room[1];
    const float x = kind == ATTN_MASK_INTS ? (float)tensor_get_int(t->o->ints, at)
                    : kind == ATTN_MASK_ADD
                        ? *mask_floats(t, at, 1, room)
                        : (((const uint8_t *)t->o->mask)[at] != 0 ? 0.0f : -INFINITY);
    for (int64_t j = 0; j < n; j++)
        scores[j] = x == -INFINITY ? -INFINITY : scores[j] + x;
}

/* Adds the mask of keys first … first + n - 1 to the scores of row r. */
static void mask_row(const struct queries *t, float *scores, int64_t r, int64_t first,
                     int64_t n)
{
    const struct attn_sdpa *s = t->s;
    const struct attn_kernels *kernels = t->stream.kernels;
    float room[KEYS];
    if (s->mask_kind == ATTN_MASK_NONE)
        return;
    if (s->mask_kind == ATTN_MASK_MAP) {
        kernels->add_map_f32(scores, (const float *)t->o->mask + row_at(t, &s->mask, r),
                             t->o->columns + row_at(t, &s->columns, r),
                             (size_t)s->columns.row, (size_t)first, (size_t)n);
        return;
    }
    if (s->mask_one) {
        mask_whole_row(t, scores, r, n);
        return;
    }
    const int64_t at = mask_at(t, r, first);
    n = min64(n, s->mask_len - t->mask_from - first);
    if (n <= 0)
        return;
    for (int64_t j = 0; s->mask_kind == ATTN_MASK_INTS && j < n; j++)
        scores[j] += (float)tensor_get_int(t->o->ints, at + j);
    if (s->mask_kind == ATTN_MASK_KEEP)
        kernels->keep_mask_f32(scores, (const uint8_t *)t->o->mask + at, (size_t)n);
    else if (s->mask_kind == ATTN_MASK_ADD)
        kernels->add_mask_f32(scores, mask_floats(t, at, n, room), (size_t)n);
}

static void sdpa_mask_scores(float *scores, int64_t from, int64_t to)
{
    for (int64_t j = from; j < to; j++)
        scores[j] = -INFINITY;
}

/* Adds what operators of com.microsoft add to masked keys first … first + n - 1 of row
 * r. */
static void add_masked(const struct queries *t, float *scores, int64_t r, int64_t first,
                       int64_t n)
{
    const struct attn_sdpa_operands *o = t->o;
    const int64_t row = (t->row + r) % t->s->q_len;
    if (o->key_keep != NULL) {
        const int32_t *keep =
            o->key_keep + t->b * o->keep_batch + row * o->keep_row + first;
        for (int64_t j = 0; j < n; j++)
            scores[j] += keep[j] > 0 ? 0.0f : o->masked;
    }
    for (int64_t j = 0; o->key_ends != NULL && j < n; j++)
        if (first + j < t->front || first + j >= t->padding)
            scores[j] += o->masked;
}

/* Writes the scores of row r, in the form of `mode`, to their output. */
static void show_scores(const struct queries *t, const float *scores, int64_t r,
                        int64_t first, int64_t n, int32_t mode)
{
    float *out = scores_out(t, r);
    const int64_t shown = min64(n, scores_len(t->s) - first);
    if (out != NULL && mode == t->s->scores_mode && shown > 0)
        memcpy(out + first, scores, (size_t)shown * sizeof *out);
}

/* Sets the scores of keys that row r does not see to 0. */
static void show_unseen(const struct queries *t, int64_t r, int64_t first, int64_t n)
{
    float *out = scores_out(t, r);
    int64_t from, to;
    if (out == NULL || t->s->scores_mode != ATTN_SCORES_SEEN)
        return;
    keys_of(t, r, &from, &to);
    for (int64_t j = first; j < first + n && j < scores_len(t->s); j++)
        if (j < from || j >= to)
            out[j] = 0.0f;
}

/* Applies cap and mask to row r for keys first … first + n - 1; whole: the row sees all
 * of them. */
static void prepare_row(const struct queries *t, float *scores, int64_t r, int64_t first,
                        int64_t n, bool whole)
{
    const struct attn_sdpa *s = t->s;
    int64_t from, to;
    show_scores(t, scores, r, first, n, ATTN_SCORES_RAW);
    if (s->softcap > 0)
        t->stream.kernels->softcap_f32(scores, (size_t)n, s->softcap);
    show_scores(t, scores, r, first, n, ATTN_SCORES_CAPPED);
    mask_row(t, scores, r, first, n);
    if (first < t->front || first + n > t->shown)
        add_masked(t, scores, r, first, n);
    if (!whole) {
        keys_of(t, r, &from, &to);
        from = min64(max64(from - first, 0), n);
        to = min64(max64(to - first, from), n);
        sdpa_mask_scores(scores, 0, from);
        sdpa_mask_scores(scores, to, n);
    }
    for (int32_t mode = ATTN_SCORES_BIASED; mode <= ATTN_SCORES_SEEN; mode++)
        show_scores(t, scores, r, first, n, mode);
    show_unseen(t, r, first, n);
}

/* Whether a mask of only the keys masks nothing and adds nothing: there is no padding
 * here. */
static bool mask_is_empty(const struct queries *t, int64_t first, int64_t n)
{
    const struct attn_sdpa *s = t->s;
    if (s->mask_kind == ATTN_MASK_INTS || s->mask_one || s->mask.row != 0 ||
        s->mask.head != 0 || first + n > s->mask_len || t->mask_from != 0)
        return false;
    int64_t at = t->b * s->mask.batch + first, j = 0;
    if (s->mask_kind == ATTN_MASK_KEEP)
        while (j < n && ((const uint8_t *)t->o->mask)[at + j] != 0)
            j++;
    else {
        float room[KEYS];
        const float *added = mask_floats(t, at, n, room);
        while (j < n && added[j] == 0.0f)
            j++;
    }
    return j == n;
}

/* Whether only the positions of the keys from … to - 1 of the tile decide which query
 * sees them, so that their scores need no other change. */
static bool is_plain(const struct queries *t, int64_t from, int64_t to)
{
    const int64_t first = t->first + from, n = to - from;
    return first >= t->front && first + n <= t->shown &&
           (t->plain || (t->plain_but_mask && mask_is_empty(t, first, n)));
}

static bool all_seen(const struct queries *t, int64_t row, int64_t from, int64_t to)
{
    const struct seen *seen = &t->seen[row / t->group];
    return t->first + from >= seen->all_from && t->first + to <= seen->all_to;
}

static void sdpa_prepare(void *arg, float *scores, int64_t row, int64_t rows,
                         int64_t from, int64_t to)
{
    const struct queries *t = arg;
    const bool whole = all_seen(t, row, from, to);
    for (int64_t r = 0; r < rows; r++)
        prepare_row(t, scores + r * ATTN_STREAM_SCORES, row + r, t->first + from,
                    to - from, whole);
}

/* Sets the band of keys that queries of one head see around their own position. */
static void set_band(const struct queries *t, struct attn_keys *keys)
{
    const struct attn_sdpa *s = t->s;
    const int64_t own = t->offset + t->row % s->q_len - t->first;
    keys->band = true;
    keys->first = s->left >= 0 ? own - s->left : -ATTN_SDPA_FAR;
    keys->last = s->right >= 0 ? own + s->right : ATTN_SDPA_FAR;
    if (s->causal)
        keys->last = min64(keys->last, own);
}

/* Adds the key without a value to the totals. */
static void add_sinks(struct queries *t)
{
    for (int64_t r = 0; t->o->sinks != NULL && r < t->stream.n; r++) {
        struct attn_softmax_row *state = t->stream.state + r;
        if (state->sum > 0)
            state->sum += expf(t->o->sinks[head_of(t, r) * t->o->sink_step] - state->max);
    }
}

/* Divides the sums by their total, which gives Y; a row without keys is zeros. */
static void finish_rows(struct queries *t)
{
    const struct attn_sdpa *s = t->s;
    const float empty = s->nan_rows && s->kv_len > 0 ? NAN : 0.0f;
    add_sinks(t);
    if (s->zero_nan)
        attn_stream_clear_nan(&t->stream, 0, t->stream.n);
    attn_stream_store_rows(&t->stream, 0, t->stream.n,
                           t->o->y + t->b * s->y.batch + t->head * s->y.head +
                               t->row % s->q_len * s->y.row,
                           s->y.row, empty);
    for (int64_t r = 0; s->scores_mode == ATTN_SCORES_SOFTMAX && r < t->stream.n; r++) {
        const struct attn_softmax_row *state = t->stream.state + r;
        float *out = scores_out(t, r);
        if (attn_poll() != ATTNRUN_OK)
            return;
        for (int64_t j = 0; out != NULL && j < scores_len(s); j++)
            out[j] = state->sum == 0.0f ? 0.0f : expf(out[j] - state->max) / state->sum;
    }
}

/* Gives a tile to each group of rows that sees some of it, cut to the keys that they
 * see. */
static void sdpa_run_tile(struct queries *t, const struct attn_keys *all)
{
    /* Not whether these rows happen to be: the batch decides how they are cut. */
    const bool one_head = t->s->rows == t->s->q_len;
    struct attn_keys band = *all;
    set_band(t, &band);
    attn_stream_pack(&t->stream, all);
    for (int64_t row = 0; row < t->stream.n; row += t->group) {
        const struct seen *seen = &t->seen[row / t->group];
        int64_t from = op_panel_begin(max64(seen->from - t->first, 0));
        int64_t to = min64(seen->to - t->first, all->n);
        const bool plain = is_plain(t, from, to), whole = all_seen(t, row, from, to);
        const bool free = plain && (whole || one_head);
        attn_stream_rows(&t->stream, free && !whole ? &band : all, row,
                         min64(t->group, t->stream.n - row), from, to,
                         free ? NULL : sdpa_prepare, t);
    }
}

/* The squared length of the longest key from … to - 1; -1 where it is not finite. */
static double longest_key(const struct queries *t, int64_t from, int64_t to)
{
    const struct attn_sdpa *s = t->s;
    double longest = 0;
    for (int64_t first = from; first < to;) {
        const int64_t end = first < s->past_len ? min64(s->past_len, to) : to;
        const struct attn_keys keys = tile_at(t, first, end - first);
        for (int64_t j = 0; j < keys.n; j++) {
            const double x = t->stream.kernels->sum_square_f32(keys.k + j * keys.k_row,
                                                               (size_t)s->head_dim);
            if (!(x < 1e30))
                return -1;
            longest = x > longest ? x : longest;
        }
        first = end;
    }
    return longest;
}

/* Whether the keys from … to - 1, to whose scores `masked` is added, cannot count beside
 * those seen so far: |q k| <= |q| |k| bounds their scores, and no row's weights of them
 * reach what the softmax counts. Whatever the scores and `masked` are, the result is then
 * that of leaving these keys out. */
static bool padding_is_lost(const struct queries *t, int64_t from, int64_t to)
{
    const struct attn_sdpa *s = t->s;
    const struct attn_kernels *kernels = t->stream.kernels;
    const size_t n = (size_t)(t->stream.n * s->head_dim);
    const double longest = longest_key(t, from, to);
    if (longest < 0 || attn_stored_narrow(s->mask_dtype))
        return false;
    const double high = n > 0 ? (double)kernels->reduce_max_f32(t->stream.q, n) : 0;
    const double low = n > 0 ? (double)kernels->reduce_min_f32(t->stream.q, n) : 0;
    const double bound = /* of scores, and what rounding adds */
        1.001 * sqrt(longest * (double)s->head_dim) * (high > -low ? high : -low);
    for (int64_t r = 0; r < t->stream.n; r++) {
        double max = bound + (double)t->o->masked - (double)t->stream.state[r].max;
        if (s->mask_kind == ATTN_MASK_ADD)
            max += (double)kernels->reduce_max_f32(
                (const float *)t->o->mask + mask_at(t, r, from), (size_t)(to - from));
        if (!(max < (double)ATTN_TERMS_THAT_COUNT))
            return false;
    }
    return true;
}

/* Visits those of the keys from … to - 1 that are in this task's part, in tiles of KEYS
 * that end where a segment does, and at `limit`. Keys to which `masked` is added are
 * skipped where they cannot count. */
static attn_status sdpa_walk(struct queries *t, int64_t from, int64_t to, int64_t limit,
                             bool masked, const attnrun_work *work)
{
    const struct attn_sdpa *s = t->s;
    if (s->parts > 1) {
        const int64_t n = round_up(ceil_div(to - from, s->parts), PART_STEP);
        from = min64(from + t->part * n, to);
        limit = from + n < to ? from + n : limit;
        to = min64(to, limit);
    }
    const int64_t first = max64(from, t->min_key);
    if (first >= to || (masked && padding_is_lost(t, first, to)))
        return ATTNRUN_OK;
    for (t->first = from; t->first < to;) {
        int64_t end = t->first < s->past_len ? min64(s->past_len, limit) : limit;
        int64_t n = min64(KEYS, end - t->first);
        if (t->first + n > t->min_key) {
            const struct attn_keys keys = tile_at(t, t->first, n);
            if (OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            sdpa_run_tile(t, &keys);
        }
        t->first += n;
    }
    return ATTNRUN_OK;
}

/* Visits all keys that some row sees; where the scores are an output, all keys. */
static attn_status stream(struct queries *t, const attnrun_work *work)
{
    const struct attn_sdpa *s = t->s;
    int64_t last_key = 0;
    t->min_key = s->kv_len;
    for (int64_t row = 0; row < t->stream.n; row += t->group) {
        struct seen *seen = &t->seen[row / t->group];
        *seen = keys_of_rows(t, row, min64(t->group, t->stream.n - row));
        t->min_key = min64(t->min_key, seen->from);
        last_key = max64(last_key, seen->to);
    }
    const int64_t front = min64(t->front, last_key), back = min64(t->padding, last_key);
    const bool whole = (front == 0 && back == last_key) || front >= back ||
                       !t->plain_but_mask || s->mask_kind == ATTN_MASK_KEEP ||
                       s->mask_kind == ATTN_MASK_INTS;
    if (whole)
        return sdpa_walk(t, 0, last_key, s->kv_len, false, work);
    TRY(sdpa_walk(t, front, back, back, false, work));
    TRY(sdpa_walk(t, 0, front, front, true, work));
    return sdpa_walk(t, back, last_key, s->kv_len, true, work);
}

/* Finds the padding by key_keep, where all queries of a sample agree on it. */
static void find_kept(struct queries *t, const int32_t *keep)
{
    while (t->padding > 0 && keep[t->padding - 1] <= 0)
        t->padding--;
    while (t->front < t->padding && keep[t->front] <= 0)
        t->front++;
    t->shown = t->front;
    while (t->shown < t->padding && keep[t->shown] > 0)
        t->shown++;
}

/* Finds the keys to which `masked` is added. */
static void find_padding(struct queries *t)
{
    const struct attn_sdpa_operands *o = t->o;
    const int64_t keys = t->s->kv_len;
    t->front = 0;
    t->shown = t->padding = keys;
    if (o->key_ends != NULL) {
        t->shown = t->padding = max64(0, min64(o->key_ends[t->b], keys));
        if (o->key_begins != NULL)
            t->front = max64(0, min64(o->key_begins[t->b], keys));
    } else if (o->key_keep != NULL && o->keep_row == 0) {
        find_kept(t, o->key_keep + t->b * o->keep_batch);
    } else if (o->key_keep != NULL) {
        t->shown = 0;
    }
}

/* Finds where sample b's keys end, and the position of its first query. */
static void find_length(struct queries *t)
{
    const struct attn_sdpa *s = t->s;
    const struct attn_sdpa_operands *o = t->o;
    const int64_t limit = INT64_C(1) << 48;
    t->offset = s->past_len;
    t->len = s->kv_len;
    if (o->lens == NULL)
        return;
    int64_t len =
        max64(-limit, min64(limit, tensor_get_int(o->lens, t->b))) + o->lens_add;
    t->len = max64(0, min64(len, s->kv_len));
    if (o->lens_position)
        t->offset = len - s->q_len;
    if (o->lens_not_before)
        t->offset = max64(t->offset, 0);
}

/* The place of the results of a part of the keys. */
static float *saved(const struct queries *t, int64_t block, const attnrun_work *work)
{
    const struct attn_sdpa *s = t->s;
    return op_slot_floats(work->shared, s->parts_at) +
           (block * s->parts + t->part) * attn_stream_saved_floats(s->block, s->v_dim);
}

attn_status attn_sdpa_run(const struct attn_sdpa *s, const struct attn_kernels *kernels,
                          const struct attn_sdpa_operands *o, int64_t task,
                          const attnrun_work *work)
{
    const int64_t group = s->q_heads / s->kv_heads, per_head = s->q_heads / s->heads;
    const bool window = s->left >= 0 || s->right >= 0;
    const bool sums = s->parts > 1 && work->phase == s->sum_phase;
    struct queries t = { .s = s, .o = o, .group = window ? MIN_GROUP : QUERIES };
    t.part = op_take(&task, sums ? 1 : s->parts);
    const struct op_task at = op_task_at(task, s->heads, s->blocks);
    t.row = at.block * s->block;
    t.b = at.b;
    t.head = at.head * per_head;
    t.plain_but_mask = s->softcap <= 0 && o->scores == NULL;
    t.plain = t.plain_but_mask && s->mask_kind == ATTN_MASK_NONE;
    t.mask_from = o->mask_from != NULL ? o->mask_from[t.b] : 0;
    t.kv_head = t.head / group;
    t.head += t.row / s->q_len;
    find_length(&t);
    find_padding(&t);
    const int64_t n = min64(s->block, s->rows - t.row);
    t.wide = work->scratch;
    attn_stream_begin(&t.stream, kernels, s->block, s->head_dim, s->v_dim,
                      op_slot_at(work->scratch, s->promoted_bytes));
    attn_stream_reset(&t.stream, n);
    if (sums) {
        for (; t.part < s->parts; t.part++)
            attn_stream_add(&t.stream, saved(&t, task, work));
        finish_rows(&t);
        return ATTNRUN_OK;
    }
    attn_stream_load(&t.stream, 0,
                     o->q + t.b * s->q.batch + t.head * s->q.head +
                         t.row % s->q_len * s->q.row,
                     s->q.row, n, s->scale);
    TRY(stream(&t, work));
    if (s->parts > 1)
        attn_stream_save(&t.stream, saved(&t, task, work));
    else
        finish_rows(&t);
    return ATTNRUN_OK;
}
