/* window.c - visits the windows of keys of a block of queries. window.h describes the
 * operands and the cost. */
#include "window.h"

#include <math.h>

#include "../../tile.h"

enum {
    KEYS = ATTN_STREAM_KEYS,
    ROWS = ATTN_STREAM_ROWS,
    MAX = ATTN_STREAM_MAX,
    ROW_FLOATS = 1 << 17, /* of the queries and sums of a block, where they are wide */
    GROUP = 32            /* rows that are cut to what they see */
};

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

/* ---- plan ---- */

attn_status attn_window_need_ints(const attnrun_step *step, const char *name,
                                  attnrun_ints ints, attnrun_dim heads, int64_t min_value)
{
    if (ints.v == NULL)
        return ATTNRUN_OK;
    if (ints.n != 1 && dim_is_const(heads) && ints.n != heads.value)
        return op_fail(step, ATTNRUN_E_ATTR,
                       "%s has %s, expected 1 or %lld, one for each head", name,
                       attn_plural(ints.n, "element"), (long long)heads.value);
    for (int64_t i = 0; i < ints.n; i++)
        if (ints.v[i] < min_value)
            return op_fail(step, ATTNRUN_E_ATTR, "%s holds %lld, expected at least %lld",
                           name, (long long)ints.v[i], (long long)min_value);
    return ints.n > 0
               ? ATTNRUN_OK
               : op_fail(step, ATTNRUN_E_ATTR,
                         "%s is empty, expected 1 element, or one for each head", name);
}

static int64_t of_head(attnrun_ints ints, int64_t head, int64_t absent)
{
    return ints.v == NULL ? absent : ints.v[ints.n == 1 ? 0 : head];
}

/* More than that reaches over everything; keeps positions far from overflow. */
static int64_t reach(const struct attn_window *w, int64_t n)
{
    const int64_t limit = w->wrap ? INT32_MAX : w->s.q_len + w->s.kv_len + 1;
    return n < 0 ? -1 : min64(n, limit);
}

/* Keys that a query of the widest head sees, as far as shapes say. */
static double keys_of_query(const struct attn_window *w)
{
    double keys = 0;
    for (int64_t h = 0; h < w->s.q_heads; h++) {
        const int64_t left = of_head(w->left, h, -1), right = of_head(w->right, h, -1),
                      dilation = of_head(w->dilation, h, 1);
        double n = (double)w->s.kv_len / (double)dilation;
        if (left >= 0 && right >= 0) {
            double wide = ((double)left + (double)right + 1) * (double)w->chunk + GROUP;
            n = w->wrap || wide < n ? wide : n;
        }
        keys = n > keys ? n : keys;
        if (w->left.n <= 1 && w->right.n <= 1 && w->dilation.n <= 1)
            break;
    }
    return keys + (double)min64(w->max_globals, 64);
}

static int64_t gather_floats(const struct attn_window *w)
{
    if (w->globals)
        return KEYS * (w->s.dim + w->s.v_dim);
    return w->shared ? KEYS * w->s.dim : 0;
}

static int64_t cost_of(const struct attn_window *w, double rows, double keys)
{
    double cost = 2.0 * rows * keys * (double)(w->s.dim + w->s.v_dim + 32) / 100.0;
    return op_ns(cost + 500);
}

attn_status attn_window_plan(const attnrun_step *step, struct attn_window *w)
{
    const struct attn_sizes *s = &w->s;
    int64_t heads, bytes, lists = 0, stream_at;
    w->blocks = w->block = 1;
    if (s->batch == 0 || s->q_heads == 0 || s->q_len == 0 || s->v_dim == 0) {
        w->globals = false; /* no lists of them, which would have no memory */
        return ATTNRUN_OK;
    }
    bool fits = ck_mul(s->batch, s->q_heads, &heads);
    /* Not by the batch: where a block begins is where its tiles do. */
    int64_t max_rows = MAX;
    while (max_rows > ROWS && max_rows * (s->dim + s->v_dim) > ROW_FLOATS)
        max_rows /= 2;
    w->block =
        op_block_even(s->q_len, op_block_growing(s->q_len, ROWS, max_rows, s->q_heads));
    w->blocks = ceil_div(s->q_len, w->block);
    bytes = attn_stream_bytes(w->block, s->dim, s->v_dim);
    w->scratch_bytes = 0;
    fits = fits && bytes >= 0 && op_slot(&stream_at, &w->scratch_bytes, bytes, 1) &&
           op_slot(&w->keep_at, &w->scratch_bytes, KEYS, 1) &&
           op_slot(&w->at_at, &w->scratch_bytes, w->block, sizeof(int32_t)) &&
           op_slot(&w->gather_at, &w->scratch_bytes, gather_floats(w), sizeof(float)) &&
           ck_mul(heads, w->blocks, &w->n_tasks) && ck_mul(s->batch, s->kv_len, &lists) &&
           ck_mul(lists, 6, &lists) && ck_add(lists, 4 * s->batch, &lists);
    if (!fits)
        return op_fail_scratch(step);
    w->task_cost = cost_of(w, (double)w->block, keys_of_query(w));
    op_flops(step, 2.0 * (double)heads * (double)s->q_len * keys_of_query(w) *
                       (double)(s->dim + s->v_dim));
    if (!w->globals)
        return ATTNRUN_OK;
    w->list_bytes = round_up(lists, 64);
    w->row_tasks = heads * ceil_div(w->max_globals, w->block);
    w->row_cost = cost_of(w, (double)min64(w->block, 16), (double)s->kv_len);
    return ATTNRUN_OK;
}

/* ---- one task ---- */

struct window_walk {
    const struct attn_window *w;
    const struct attn_window_operands *o;
    struct attn_stream stream;
    int64_t b, head;
    int64_t left, right, dilation; /* of this head */
    int32_t *at;                   /* query of each row of the block */
    uint8_t *keep;                 /* of the tile in work */
    float *gather;                 /* keys, then values */
    /* The rows under way: those of one residue, from position x on in the sequence of the
     * `n_keys` keys of residue `key`. */
    int64_t row, rows, x, key, n_keys;
    int64_t period;         /* of wrapped chunks */
    int64_t first, n;       /* keys of the tile: first … first + n - 1 of the sequence */
    const int32_t *globals; /* of the tile; NULL: of the window's part */
    bool masked;            /* some key of the tile is */
};

/* A tile of keys alone: where it begins, and the distance of its tokens. */
static struct attn_keys tile_at(const struct window_walk *t, int64_t token, int64_t step,
                                int64_t n)
{
    const struct attn_sizes *s = &t->w->s;
    const int64_t head = t->head / s->group;
    return (struct attn_keys){
        .k = t->o->k + t->b * s->k.batch + head * s->k.head + token * s->k.row,
        .v = t->o->v + t->b * s->v.batch + head * s->v.head + token * s->v.row,
        .k_row = step * s->k.row,
        .v_row = step * s->v.row,
        .n = n,
    };
}

static const uint8_t *mask_of(const struct window_walk *t, const uint8_t *mask)
{
    return mask == NULL ? NULL : mask + t->b * t->w->s.kv_len;
}

static const float *query_at(const struct window_walk *t, int64_t i)
{
    const struct attn_heads *q = &t->w->s.q;
    return t->o->q + t->b * q->batch + t->head * q->head + i * q->row;
}

/* Keys of the period that the query at position x sees: [*from, *to). */
static void keys_of(const struct window_walk *t, int64_t x, int64_t *from, int64_t *to)
{
    const struct attn_window *w = t->w;
    const int64_t chunk = w->chunk, start = chunk == 1 ? x : floor_div(x, chunk) * chunk,
                  before = t->period * t->n_keys;
    *from = t->left < 0 ? 0 : start - t->left * chunk - before;
    *to = t->right < 0 ? t->n_keys : start + (t->right + 1) * chunk - before;
    if (w->exact) {
        *from = max64(*from, x - t->left * chunk);
        *to = min64(*to, x + t->right * chunk + 1);
    }
    if (w->s.causal)
        *to = min64(*to, x + 1);
    *from = min64(max64(*from, 0), t->n_keys);
    *to = max64(min64(*to, t->n_keys), *from);
}

static void window_mask_scores(float *scores, int64_t from, int64_t to)
{
    for (int64_t j = from; j < to; j++)
        scores[j] = -INFINITY;
}

/* The window of each row. */
static void cut_rows(const struct window_walk *t, float *scores, int64_t row,
                     int64_t rows, int64_t first, int64_t n)
{
    for (int64_t r = 0; r < rows; r++) {
        const int64_t x = t->x + row + r - t->row;
        float *line = scores + r * ATTN_STREAM_SCORES;
        int64_t from, to;
        keys_of(t, x, &from, &to);
        from = min64(max64(from - first, 0), n);
        to = min64(max64(to - first, from), n);
        window_mask_scores(line, 0, from);
        window_mask_scores(line, to, n);
        if (t->w->shared && x >= first && x < first + n && line[x - first] != -INFINITY)
            line[x - first] = -5e4f;
    }
}

/* Global keys or, for global queries, all keys. */
static void cut_causal(const struct window_walk *t, float *scores, int64_t row,
                       int64_t rows, int64_t from, int64_t n)
{
    for (int64_t r = 0; r < rows; r++) {
        const int64_t position = t->at[row + r] + t->w->s.offset;
        int64_t end = n;
        if (t->globals == NULL)
            end = min64(n, position + 1 - t->first - from);
        else
            while (end > 0 && t->globals[from + end - 1] > position)
                end--;
        window_mask_scores(scores + r * ATTN_STREAM_SCORES, max64(end, 0), n);
    }
}

static void keep_seen(const struct window_walk *t, float *scores, int64_t rows,
                      int64_t from, int64_t n)
{
    for (int64_t r = 0; t->masked && r < rows; r++)
        t->stream.kernels->keep_mask_f32(scores + r * ATTN_STREAM_SCORES, t->keep + from,
                                         (size_t)n);
}

static void window_prepare(void *arg, float *scores, int64_t row, int64_t rows,
                           int64_t from, int64_t to)
{
    const struct window_walk *t = arg;
    const int64_t first = t->first + from, n = to - from, x = t->x + row - t->row;
    int64_t unused, all_from, all_to;
    keys_of(t, x + rows - 1, &all_from, &unused);
    keys_of(t, x, &unused, &all_to);
    if (first < all_from || first + n > all_to || t->w->shared)
        cut_rows(t, scores, row, rows, first, n);
    keep_seen(t, scores, rows, from, n);
}

static void prepare_all(void *arg, float *scores, int64_t row, int64_t rows, int64_t from,
                        int64_t to)
{
    const struct window_walk *t = arg;
    if (t->w->s.causal)
        cut_causal(t, scores, row, rows, from, to - from);
    keep_seen(t, scores, rows, from, to - from);
}

static attn_stream_mask all_mask(const struct window_walk *t)
{
    return t->w->s.causal || t->masked ? prepare_all : NULL;
}

/* What is seen of n tokens, every step-th from `token` on. False: nothing. */
static bool find_seen(struct window_walk *t, const uint8_t *mask, int64_t token,
                      int64_t step, int64_t n)
{
    int64_t seen = 0;
    t->masked = false;
    if (mask == NULL)
        return true;
    for (int64_t j = 0; j < n; j++) {
        t->keep[j] = mask[token + j * step] != 0;
        seen += t->keep[j];
    }
    t->masked = seen < n;
    return seen > 0;
}

/* n keys over their length, in place of K. */
static void normalize_keys(struct window_walk *t, struct attn_keys *keys, int64_t token)
{
    const int64_t dim = t->w->s.dim;
    for (int64_t j = 0; j < keys->n; j++) {
        const float *x = query_at(t, token + j);
        const double length = sqrt(t->stream.kernels->sum_square_f32(x, (size_t)dim));
        const float factor = (float)(1.0 / (length > 1e-12 ? length : 1e-12));
        t->stream.kernels->mul_f32(t->gather + j * dim, x, 1, &factor, 0, (size_t)dim);
    }
    keys->k = t->gather;
    keys->k_row = dim;
}

/* Rows that are given keys together: of one chunk, since then all of them see the same
 * ones, or of several short ones. Keys that are made of queries are made anew. */
static int64_t tile_of(const struct window_walk *t)
{
    const int64_t chunk = t->w->chunk,
                  left = chunk - (t->x - floor_div(t->x, chunk) * chunk);
    if (t->w->shared || (chunk > 1 && chunk < GROUP))
        return t->rows;
    return min64(t->rows,
                 chunk == 1 ? ATTN_TILE_QUERIES : min64(ATTN_TILE_QUERIES, left));
}

/* All keys of the tile that some row under way sees are seen by all of them, or by those of
 * a band, which becomes that of `keys`. */
static bool is_band(const struct window_walk *t, struct attn_keys *keys)
{
    const struct attn_window *w = t->w;
    const int64_t all = w->s.q_len + w->s.kv_len + 1;
    const bool near = w->chunk == 1 || w->exact; /* the window goes with the query */
    if (w->shared || t->masked || t->rows > ATTN_TILE_QUERIES ||
        (w->wrap && (near || w->s.causal)) ||
        (w->chunk > 1 &&
         floor_div(t->x, w->chunk) != floor_div(t->x + t->rows - 1, w->chunk)))
        return false;
    const int64_t row = t->x - t->row - t->first; /* key of the tile that row 0 is */
    keys->band = near || w->s.causal;
    keys->first = near && t->left >= 0 ? row - t->left * w->chunk : -all;
    keys->last = near && t->right >= 0 ? row + t->right * w->chunk : all;
    if (w->s.causal)
        keys->last = min64(keys->last, row);
    return true;
}

/* The tile goes to each group of the rows under way that sees some of it. */
static void give_window(struct window_walk *t, const struct attn_keys *all)
{
    const int64_t end = t->row + t->rows;
    struct attn_keys keys = *all;
    const bool band = is_band(t, &keys);
    const int64_t group = band ? ATTN_TILE_QUERIES : GROUP;
    attn_stream_pack(&t->stream, &keys);
    for (int64_t row = t->row; row < end; row += group) {
        const int64_t rows = min64(group, end - row), x = t->x + row - t->row;
        int64_t from, to, unused;
        keys_of(t, x, &from, &unused);
        keys_of(t, x + rows - 1, &unused, &to);
        from = op_panel_begin(max64(from - t->first, 0));
        attn_stream_rows(&t->stream, &keys, row, rows, from, min64(to - t->first, keys.n),
                         band ? NULL : window_prepare, t);
    }
}

/* The window's part of the rows under way, for one period. */
static attn_status walk_period(struct window_walk *t, const attnrun_work *work)
{
    const uint8_t *mask = mask_of(t, t->w->globals ? t->o->lists.seen : t->o->key_mask);
    int64_t first, end, unused;
    keys_of(t, t->x, &first, &unused);
    keys_of(t, t->x + t->rows - 1, &unused, &end);
    const int64_t tiles = (end - first + KEYS - 1) / KEYS;
    for (int64_t i = 0; i < tiles; i++) {
        t->first = first + (end - first) * i / tiles;
        const int64_t token = t->key + t->first * t->dilation;
        t->n = first + (end - first) * (i + 1) / tiles - t->first;
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (!find_seen(t, mask, token, t->dilation, t->n))
            continue;
        struct attn_keys keys = tile_at(t, token, t->dilation, t->n);
        if (t->w->shared)
            normalize_keys(t, &keys, token);
        give_window(t, &keys);
    }
    return ATTNRUN_OK;
}

static attn_status walk_window(struct window_walk *t, const attnrun_work *work)
{
    const int64_t chunk = t->w->chunk, start = t->x / chunk * chunk,
                  last = (t->x + t->rows - 1) / chunk * chunk;
    t->period = 0;
    if (!t->w->wrap || t->left < 0 || t->right < 0)
        return walk_period(t, work);
    const int64_t end = floor_div(last + (t->right + 1) * chunk - 1, t->n_keys);
    for (t->period = floor_div(start - t->left * chunk, t->n_keys); t->period <= end;
         t->period++)
        TRY(walk_period(t, work));
    return ATTNRUN_OK;
}

/* The rows under way, a few at a time; t->row ends behind them. */
static attn_status walk_rows(struct window_walk *t, const attnrun_work *work)
{
    for (const int64_t end = t->row + t->rows; t->row < end;
         t->row += t->rows, t->x += t->rows) {
        t->rows = end - t->row;
        t->rows = tile_of(t);
        TRY(walk_window(t, work));
    }
    return ATTNRUN_OK;
}

/* Row `row` of the block, query `e` in the order of residues, and those behind it of the
 * same residue become the rows under way. */
static void find_rows(struct window_walk *t, int64_t row, int64_t e)
{
    const int64_t n = t->w->s.q_len, d = t->dilation, each = n / d, more = n % d;
    const int64_t long_ones = more * (each + 1);
    int64_t residue, u, length = each;
    if (e < long_ones) {
        length = each + 1;
        residue = e / length;
        u = e % length;
    } else {
        residue = more + (e - long_ones) / each;
        u = (e - long_ones) % each;
    }
    t->row = row;
    t->rows = min64(t->stream.n - row, length - u);
    for (int64_t r = 0; r < t->rows; r++)
        t->at[row + r] = (int32_t)(residue + (u + r) * d);
    const int64_t position = residue + u * d + t->w->s.offset;
    t->x = floor_div(position, d);
    t->key = position - t->x * d;
    t->n_keys = t->key < t->w->s.kv_len ? (t->w->s.kv_len - 1 - t->key) / d + 1 : 0;
}

/* Up to KEYS global tokens that are keys, from number *next on, as a tile. */
static struct attn_keys gather_globals(struct window_walk *t, int64_t *next)
{
    const struct attn_sizes *s = &t->w->s;
    const int32_t *tokens = t->o->lists.tokens + t->b * s->kv_len;
    struct attn_keys keys = { .k = t->gather,
                              .v = t->gather + KEYS * s->dim,
                              .k_row = s->dim,
                              .v_row = s->v_dim,
                              .n = min64(KEYS, t->o->lists.count[t->b] - *next) };
    t->globals = tokens + *next;
    t->masked = false;
    for (int64_t j = 0; j < keys.n; j++) {
        const struct attn_keys from = tile_at(t, t->globals[j], 1, 1);
        t->keep[j] =
            t->o->key_mask == NULL || mask_of(t, t->o->key_mask)[t->globals[j]] != 0;
        t->masked = t->masked || t->keep[j] == 0;
        memcpy(t->gather + j * s->dim, from.k, (size_t)s->dim * sizeof(float));
        memcpy(t->gather + KEYS * s->dim + j * s->v_dim, from.v,
               (size_t)s->v_dim * sizeof(float));
    }
    *next += keys.n;
    return keys;
}

static attn_status walk_globals(struct window_walk *t, const attnrun_work *work)
{
    if (!t->w->globals)
        return ATTNRUN_OK;
    for (int64_t next = 0; next < t->o->lists.count[t->b];) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        const struct attn_keys keys = gather_globals(t, &next);
        attn_stream_tile(&t->stream, &keys, all_mask(t), t);
    }
    return ATTNRUN_OK;
}

/* Global queries over all keys. */
static attn_status walk_all(struct window_walk *t, const attnrun_work *work)
{
    const uint8_t *mask = mask_of(t, t->o->key_mask);
    int64_t end = t->w->s.kv_len;
    t->globals = NULL;
    if (t->w->s.causal)
        end = min64(end, t->at[t->stream.n - 1] + t->w->s.offset + 1);
    for (t->first = 0; t->first < end; t->first += KEYS) {
        const int64_t n = min64(KEYS, end - t->first);
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (!find_seen(t, mask, t->first, 1, n))
            continue;
        const struct attn_keys keys = tile_at(t, t->first, 1, n);
        attn_stream_tile(&t->stream, &keys, all_mask(t), t);
    }
    return ATTNRUN_OK;
}

/* Rows from `row` on whose queries are `step` apart, as far as they go. */
static int64_t run_of(const struct window_walk *t, int64_t row, int64_t *step)
{
    int64_t n = 1;
    *step = row + 1 < t->stream.n ? t->at[row + 1] - t->at[row] : 1;
    while (row + n < t->stream.n && t->at[row + n] - t->at[row + n - 1] == *step)
        n++;
    return n;
}

static void load_rows(struct window_walk *t)
{
    const struct attn_sizes *s = &t->w->s;
    const float *const gates[2] = { t->o->q_gate, t->o->k_gate };
    int64_t step;
    for (int64_t row = 0, n; row < t->stream.n; row += n) {
        n = run_of(t, row, &step);
        attn_stream_load(&t->stream, row, query_at(t, t->at[row]), step * s->q.row, n,
                         s->scale);
    }
    for (int i = 0; i < 2; i++)
        for (int64_t r = 0; gates[i] != NULL && r < t->stream.n; r++) {
            float *to = t->stream.q + r * s->dim;
            t->stream.kernels->mul_f32(to, to, 1, gates[i] + t->head * s->dim, 1,
                                       (size_t)s->dim);
        }
}

/* `globals`: the rows are global ones. */
static void store_rows(const struct window_walk *t, bool globals)
{
    const struct attn_sizes *s = &t->w->s;
    const uint8_t *global = t->w->globals ? mask_of(t, t->o->lists.global) : NULL;
    for (int64_t r = 0; r < t->stream.n; r++) {
        const int64_t i = t->at[r], p = i + s->offset;
        const bool key = p >= 0 && p < s->kv_len;
        float *y = t->o->y + t->b * s->y.batch + t->head * s->y.head + i * s->y.row;
        if (!globals && global != NULL && key && global[p] != 0)
            continue;
        attn_stream_store(&t->stream, r, y, 0.0f);
        if (t->o->y_gate != NULL)
            t->stream.kernels->mul_f32(y, y, 1, t->o->y_gate + t->head * s->v_dim, 1,
                                       (size_t)s->v_dim);
        if (t->w->zero_masked && t->o->key_mask != NULL && key &&
            mask_of(t, t->o->key_mask)[p] == 0)
            memset(y, 0, (size_t)s->v_dim * sizeof *y);
    }
}

static struct window_walk window_begin(const struct attn_window *w,
                                       const struct attn_kernels *kernels,
                                       const struct attn_window_operands *o,
                                       int64_t b_head, const attnrun_work *work)
{
    const struct attn_sizes *s = &w->s;
    struct window_walk t = { .w = w, .o = o };
    attn_stream_begin(&t.stream, kernels, w->block, s->dim, s->v_dim, work->scratch);
    t.keep = op_slot_at(work->scratch, w->keep_at);
    t.at = op_slot_at(work->scratch, w->at_at);
    t.gather = op_slot_floats(work->scratch, w->gather_at);
    t.head = op_take(&b_head, s->q_heads);
    t.b = b_head;
    t.left = reach(w, of_head(w->left, t.head, -1));
    t.right = reach(w, of_head(w->right, t.head, -1));
    /* Further than all tokens are apart, each is alone. */
    t.dilation = min64(of_head(w->dilation, t.head, 1), s->q_len + s->kv_len + 1);
    return t;
}

attn_status attn_window_run(const struct attn_window *w,
                            const struct attn_kernels *kernels,
                            const struct attn_window_operands *o, int64_t task,
                            const attnrun_work *work)
{
    const int64_t first = op_take(&task, w->blocks) * w->block;
    struct window_walk t = window_begin(w, kernels, o, task, work);
    attn_stream_reset(&t.stream, min64(w->block, w->s.q_len - first));
    for (int64_t row = 0; row < t.stream.n; row += t.rows)
        find_rows(&t, row, first + row);
    load_rows(&t);
    TRY(walk_globals(&t, work));
    for (int64_t row = 0; row < t.stream.n; row = t.row) {
        find_rows(&t, row, first + row);
        TRY(walk_rows(&t, work));
    }
    store_rows(&t, false);
    return ATTNRUN_OK;
}

attn_status attn_window_run_rows(const struct attn_window *w,
                                 const struct attn_kernels *kernels,
                                 const struct attn_window_operands *o, int64_t task,
                                 const attnrun_work *work)
{
    const int64_t blocks = ceil_div(w->max_globals, w->block);
    const int64_t first = op_take(&task, blocks) * w->block;
    struct window_walk t = window_begin(w, kernels, o, task, work);
    const int64_t end = min64(o->lists.count[t.b], first + w->block);
    int64_t n = 0;
    for (int64_t g = first; g < end; g++) {
        const int64_t i = o->lists.tokens[t.b * w->s.kv_len + g] - w->s.offset;
        if (i >= 0 && i < w->s.q_len)
            t.at[n++] = (int32_t)i;
    }
    if (n == 0)
        return ATTNRUN_OK;
    attn_stream_reset(&t.stream, n);
    load_rows(&t);
    TRY(walk_all(&t, work));
    store_rows(&t, true);
    return ATTNRUN_OK;
}
