/* blocks.c - the walk over a layout of blocks: see blocks.h. */
#include "blocks.h"
#include "ahead.h"
#include "stream.h"

#include <math.h>

enum {
    KEYS = ATTN_STREAM_KEYS,
    PANEL = ATTN_GEMM_NR_MOST,
    PANELS = KEYS / PANEL,
    CELL = 64,       /* more would see more on the diagonal than they need */
    LEAST_CELL = 32, /* fewer queries would not be worth a product */
    MOST_ROWS = 2 * ATTN_STREAM_MOST, /* the more, the more of them share a panel */
    ENOUGH_TASKS = 16,
    BIAS_BYTES = 512 << 10
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t parts(int64_t n, int64_t part) { return n / part + (n % part != 0); }

/* ---- plan ---- */

/* Small blocks are put together, large ones cut into equal pieces. */
static int64_t cell_of(int64_t block)
{
    if (block < LEAST_CELL)
        return block * parts(LEAST_CELL, block);
    return parts(block, parts(block, CELL));
}

/* Bytes of the biases of a group, -1 where that overflows. */
static int64_t bias_bytes(const struct attn_blocks *p, int64_t rows)
{
    int64_t bytes;
    bool fits = ck_mul((rows - 1) / p->block + 2, p->key_blocks, &bytes) &&
                ck_mul(bytes, (int64_t)sizeof(float), &bytes) &&
                ck_align(bytes, 64, &bytes);
    return fits ? bytes : -1;
}

attn_status attn_blocks_plan(const attnrun_step *step, struct attn_blocks *p)
{
    const struct attn_sizes *s = &p->sizes;
    p->groups = p->rows = 1;
    p->n_tasks = p->scratch_bytes = 0;
    if (s->batch == 0 || s->q_heads == 0 || s->q_len == 0 || s->v_dim == 0)
        return ATTNRUN_OK;
    p->key_blocks = parts(s->kv_len, p->block);
    p->cell = cell_of(p->block);
    p->rows = MOST_ROWS;
    while (p->rows > 2 * CELL &&
           parts(s->q_len, p->rows) < (ENOUGH_TASKS - 1) / (s->batch * s->q_heads) + 1)
        p->rows /= 2;
    int64_t bias = bias_bytes(p, p->rows);
    while (p->rows > CELL && (bias < 0 || bias > BIAS_BYTES)) {
        p->rows /= 2;
        bias = bias_bytes(p, p->rows);
    }
    p->rows = least(p->rows, s->q_len);
    p->groups = parts(s->q_len, p->rows);
    const int64_t stream = attn_stream_bytes(p->rows, s->dim, s->v_dim);
    bool fits = bias >= 0 && stream >= 0 && ck_align(stream, 64, &p->scratch_bytes) &&
                ck_add(p->scratch_bytes, bias, &p->scratch_bytes) &&
                ck_mul(s->batch, s->q_heads, &p->n_tasks) &&
                ck_mul(p->n_tasks, p->groups, &p->n_tasks);
    if (!fits)
        return op_fail(step, ATTNRUN_E_LIMIT, "the attention is too large");
    double cost = 2.0 * (double)p->rows * (double)s->kv_len * p->density *
                  (double)(s->dim + s->v_dim + 32) / 100.0;
    p->task_cost = cost < 1e15 ? (int64_t)cost + 2000 : (int64_t)1e15;
    return ATTNRUN_OK;
}

/* ---- one task ---- */

struct tile {
    int64_t first;
    struct attn_stream_keys keys;
    uint32_t seen; /* bit i: some query of the group sees some of panel i */
};

struct walk {
    const struct attn_blocks *p;
    const struct attn_blocks_operands *o;
    struct attn_stream stream;
    int64_t b, head, row; /* rows row … row + stream.n - 1 */
    int64_t first_block;  /* of the layout: that of the first row */
    float *bias;          /* (blocks of the group, key_blocks): log of the count */
    struct tile tile;     /* in work */
    uint32_t packed;      /* bit i: its panel i is */
};

static int64_t block_of(const struct walk *w, int64_t row)
{
    return (w->o->first + w->row + row) / w->p->block - w->first_block;
}

static void fill_bias(struct walk *w)
{
    const int64_t columns = w->p->key_blocks;
    const int64_t n = block_of(w, w->stream.n - 1) + 1;
    for (int64_t i = 0; i < n; i++) {
        float *bias = w->bias + i * columns;
        memset(bias, 0, (size_t)columns * sizeof *bias);
        w->o->fill(w->o->arg, w->b, w->head, w->first_block + i, bias);
        for (int64_t j = 0; j < columns; j++)
            bias[j] = bias[j] == 0.0f   ? -INFINITY
                      : bias[j] == 1.0f ? 0.0f
                                        : logf(bias[j]);
    }
}

/* How many of the rows from `row` on are one cell: blocks are not cut but into cells. */
static int64_t cell_rows(const struct walk *w, int64_t row)
{
    const int64_t block = w->p->block, at = (w->o->first + w->row + row) % block;
    int64_t rows = w->p->cell;
    if (block < LEAST_CELL)
        rows -= at;
    else
        rows = least(rows - at % rows, block - at);
    return least(rows, w->stream.n - row);
}

/* Keys of a tile that are there for the last of some rows. */
static int64_t keys_seen(const struct walk *w, const struct tile *tile, int64_t last_row)
{
    const int64_t n = tile->keys.n;
    if (!w->p->sizes.causal)
        return n;
    return most(0, least(n, w->o->position + w->row + last_row + 1 - tile->first));
}

/* Bit i: some of the rows see some of panel i. */
static uint32_t panels_seen(const struct walk *w, const struct tile *tile, int64_t row,
                            int64_t rows)
{
    const int64_t block = w->p->block, n = keys_seen(w, tile, row + rows - 1);
    const int64_t begin = tile->first / block, end = (tile->first + n - 1) / block;
    const int64_t last = block_of(w, row + rows - 1);
    uint32_t seen = 0;
    for (int64_t i = block_of(w, row); n > 0 && i <= last; i++) {
        const float *bias = w->bias + i * w->p->key_blocks;
        for (int64_t j = begin; j <= end; j++) {
            if (bias[j] == -INFINITY)
                continue;
            const int64_t from = most(0, j * block - tile->first) / PANEL;
            const int64_t to = least(n, (j + 1) * block - tile->first) - 1;
            seen |= (UINT32_C(2) << to / PANEL) - (UINT32_C(1) << from);
        }
    }
    return seen;
}

/* The next run of panels from *i on: *i … *end - 1. False: there is none. */
static bool next_run(uint32_t seen, int64_t *i, int64_t *end)
{
    while (*i < PANELS && !(seen >> *i & 1))
        ++*i;
    for (*end = *i; *end < PANELS && (seen >> *end & 1);)
        ++*end;
    return *i < PANELS;
}

/* The first tile from `first` on of which the group sees something. False: none. */
static bool find_tile(const struct walk *w, int64_t first, struct tile *tile)
{
    const struct attn_sizes *s = &w->p->sizes;
    const int64_t kv_head = w->head / s->group;
    for (; first < w->o->kv_len; first += KEYS) {
        *tile =
            (struct tile){ .first = first, .keys.n = least(KEYS, w->o->kv_len - first) };
        tile->seen = panels_seen(w, tile, 0, w->stream.n);
        if (tile->seen == 0)
            continue;
        tile->keys.k_row = s->k.row;
        tile->keys.v_row = s->v.row;
        tile->keys.k =
            w->o->k + w->b * s->k.batch + kv_head * s->k.head + first * s->k.row;
        tile->keys.v =
            w->o->v + w->b * s->v.batch + kv_head * s->v.head + first * s->v.row;
        return true;
    }
    return false;
}

/* What packing the tile will read. */
static struct attn_ahead rows_of(const struct walk *w, const struct tile *tile)
{
    const struct attn_stream_keys *keys = &tile->keys;
    struct attn_ahead rows = { .n = 0 };
    for (int64_t i = 0, end; next_run(tile->seen, &i, &end); i = end) {
        const int64_t key = i * PANEL, n = least(end * PANEL, keys->n) - key;
        attn_ahead_add(&rows, keys->k + key * keys->k_row, keys->k_row, n,
                       w->p->sizes.dim);
        attn_ahead_add(&rows, keys->v + key * keys->v_row, keys->v_row, n,
                       w->p->sizes.v_dim);
    }
    return rows;
}

/* Panels from … to - 1 of the tile, where they are not packed yet. */
static void pack_panels(struct walk *w, int64_t from, int64_t to)
{
    const struct attn_stream *s = &w->stream;
    const struct attn_stream_keys *keys = &w->tile.keys;
    const int64_t wide = s->kernels->vec_bytes / (int64_t)sizeof(float) * 2;
    const bool all = s->n > ATTN_STREAM_ROWS; /* values of one element always */
    if (!all && s->v_dim != 1)
        return;
    for (int64_t i = from; i < to; i++) {
        const int64_t key = i * PANEL, n = least(PANEL, keys->n - key);
        if (w->packed >> i & 1)
            continue;
        w->packed |= UINT32_C(1) << i;
        if (all)
            s->kernels->gemm_pack_f32(s->keys + key * s->dim, keys->k + key * keys->k_row,
                                      1, keys->k_row, (size_t)s->dim, (size_t)n);
        for (int64_t d = 0; d < s->v_dim; d += wide) {
            const int64_t width = s->v_dim - d <= wide / 2 ? wide / 2 : wide;
            s->kernels->gemm_pack_f32(s->values + d * keys->n + key * width,
                                      keys->v + key * keys->v_row + d, keys->v_row, 1,
                                      (size_t)n, (size_t)least(wide, s->v_dim - d));
        }
    }
}

static const uint8_t *mask_of(const struct walk *w, int64_t key)
{
    if (w->o->key_mask == NULL)
        return NULL;
    return w->o->key_mask + w->b * w->p->sizes.kv_len + key;
}

/* Rows row … row + rows - 1 see all of the keys from … to - 1 of the tile, once. */
static bool all_seen(const struct walk *w, int64_t row, int64_t rows, int64_t from,
                     int64_t to)
{
    const int64_t block = w->p->block, key = w->tile.first + from;
    const uint8_t *mask = mask_of(w, key);
    if (keys_seen(w, &w->tile, row) < to ||
        (mask != NULL && memchr(mask, 0, (size_t)(to - from)) != NULL))
        return false;
    for (int64_t i = block_of(w, row); i <= block_of(w, row + rows - 1); i++)
        for (int64_t j = key / block; j <= (w->tile.first + to - 1) / block; j++)
            if (w->bias[i * w->p->key_blocks + j] != 0.0f)
                return false;
    return true;
}

static void hide(float *scores, int64_t from, int64_t to)
{
    for (int64_t j = from; j < to; j++)
        scores[j] = -INFINITY;
}

static void mask_row(const struct walk *w, float *scores, int64_t row, int64_t from,
                     int64_t to)
{
    const int64_t block = w->p->block, key = w->tile.first + from;
    const int64_t end = w->tile.first + to;
    const float *bias = w->bias + block_of(w, row) * w->p->key_blocks;
    const uint8_t *mask = mask_of(w, key);
    for (int64_t j = key / block; j <= (end - 1) / block; j++) {
        const int64_t at = most(j * block, key) - key;
        const int64_t to_at = least((j + 1) * block, end) - key;
        if (bias[j] == -INFINITY)
            hide(scores, at, to_at);
        else if (bias[j] != 0.0f)
            for (int64_t i = at; i < to_at; i++)
                scores[i] += bias[j];
    }
    if (mask != NULL)
        w->stream.kernels->keep_mask_f32(scores, mask, (size_t)(to - from));
    hide(scores, most(keys_seen(w, &w->tile, row) - from, 0), to - from);
}

static void mask_cell(void *arg, float *scores, int64_t row, int64_t rows, int64_t from,
                      int64_t to)
{
    const struct walk *w = arg;
    if (all_seen(w, row, rows, from, to))
        return;
    for (int64_t r = 0; r < rows; r++)
        mask_row(w, scores + r * ATTN_STREAM_SCORES, row + r, from, to);
}

static void run_tile(struct walk *w)
{
    const struct attn_stream_keys *keys = &w->tile.keys;
    w->packed = 0;
    for (int64_t row = 0, rows; row < w->stream.n; row += rows) {
        rows = cell_rows(w, row);
        const uint32_t seen = panels_seen(w, &w->tile, row, rows);
        for (int64_t i = 0, end; next_run(seen, &i, &end); i = end) {
            pack_panels(w, i, end);
            attn_stream_rows(&w->stream, keys, row, rows, i * PANEL,
                             least(end * PANEL, keys->n), mask_cell, w);
        }
    }
}

/* While a tile is in work, its products ask for the rows of the next. */
static attn_status run_tiles(struct walk *w, const attnrun_work *work)
{
    struct tile next = { 0 };
    struct attn_ahead ahead;
    for (bool more = find_tile(w, 0, &w->tile); more; w->tile = next) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        more = find_tile(w, w->tile.first + KEYS, &next);
        ahead = more ? rows_of(w, &next) : (struct attn_ahead){ .n = 0 };
        w->stream.ahead = &ahead;
        run_tile(w);
    }
    return ATTNRUN_OK;
}

static void store(const struct walk *w)
{
    const struct attn_sizes *s = &w->p->sizes;
    const uint8_t *mask = w->o->query_mask;
    float *y = w->o->y + w->b * s->y.batch + w->head * s->y.head + w->row * s->y.row;
    for (int64_t r = 0; r < w->stream.n; r++, y += s->y.row) {
        if (mask != NULL && !mask[w->b * s->q_len + w->row + r])
            memset(y, 0, (size_t)s->v_dim * sizeof *y);
        else
            attn_stream_store(&w->stream, r, y, 0.0f);
    }
}

attn_status attn_blocks_run(const struct attn_blocks *p,
                            const struct attn_kernels *kernels,
                            const struct attn_blocks_operands *o, int64_t task,
                            const attnrun_work *work)
{
    const struct attn_sizes *s = &p->sizes;
    int64_t stream;
    struct walk w = { .p = p,
                      .o = o,
                      .b = attn_blocks_sample(p, task),
                      .head = task % s->q_heads, /* their rows lie side by side */
                      .row = task / s->q_heads % p->groups * p->rows };
    ck_align(attn_stream_bytes(p->rows, s->dim, s->v_dim), 64, &stream);
    w.bias = (float *)(void *)((char *)work->scratch + stream);
    w.first_block = (o->first + w.row) / p->block;
    attn_stream_begin(&w.stream, kernels, p->rows, s->dim, s->v_dim, work->scratch);
    attn_stream_reset(&w.stream, least(p->rows, s->q_len - w.row));
    attn_stream_load(&w.stream, 0,
                     o->q + w.b * s->q.batch + w.head * s->q.head + w.row * s->q.row,
                     s->q.row, w.stream.n, s->scale);
    fill_bias(&w);
    TRY(run_tiles(&w, work));
    store(&w);
    return ATTNRUN_OK;
}
