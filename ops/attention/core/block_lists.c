/* block_lists.c - computes attention under a layout of blocks, query tile by query tile.
 * block_lists.h describes the operands and the cost. */
#include "block_lists.h"
#include "prefetch.h"
#include "stream.h"
#include "../../tile.h"

#include <math.h>

enum {
    KEYS = ATTN_STREAM_KEYS,
    TILE = ATTN_TILE_QUERIES,
    MIN_BLOCK = 16, /* fewer queries would not be worth a product … */
    MIN_TILE = 32,  /* … and are put together to so many */
    MAX_ROWS = 512, /* a head at a time, that window blocks stay near */
    BIAS_BYTES = 512 << 10,
    FEW_KEYS = 2 * KEYS /* longer segments come in a stream */
};

/* ---- plan ---- */

/* The queries of a query tile: small blocks are joined, large ones are cut into equal
 * parts. */
static int64_t tile_of(int64_t block)
{
    if (block < MIN_BLOCK)
        return block * ceil_div(MIN_TILE, block);
    return ceil_div(block, ceil_div(block, TILE));
}

static int64_t words(const struct attn_blocks *p) { return ceil_div(p->key_blocks, 64); }

/* The bytes of the biases of a group, and of their words; -1 where they overflow. */
static int64_t bias_bytes(const struct attn_blocks *p, int64_t rows)
{
    int64_t bytes;
    bool fits = ck_mul((rows - 1) / p->block + 2, words(p) * (64 * 4 + 8), &bytes) &&
                ck_align(bytes, 64, &bytes);
    return fits ? bytes : -1;
}

/* The bytes of a task and of the first query tile of the next one. */
static int64_t task_bytes(const struct attn_blocks *p)
{
    const int64_t rows = bias_bytes(p, p->rows), tile = bias_bytes(p, p->tile);
    int64_t bytes;
    return rows >= 0 && tile >= 0 && ck_add(rows, tile, &bytes) ? bytes : -1;
}

attn_status attn_blocks_plan(const attnrun_step *step, struct attn_blocks *p)
{
    const struct attn_sizes *s = &p->sizes;
    p->groups = p->rows = 1;
    p->n_tasks = p->scratch_bytes = 0;
    if (s->batch == 0 || s->q_heads == 0 || s->q_len == 0 || s->v_dim == 0)
        return ATTNRUN_OK;
    p->key_blocks = ceil_div(s->kv_len, p->block);
    p->tile = tile_of(p->block);
    p->rows = MAX_ROWS;
    while (p->rows > 2 * TILE && ceil_div(s->q_len, p->rows) <
                                     (OP_ENOUGH_TASKS - 1) / (s->batch * s->q_heads) + 1)
        p->rows /= 2;
    int64_t bias = task_bytes(p);
    while (p->rows > TILE && (bias < 0 || bias > BIAS_BYTES)) {
        p->rows /= 2;
        bias = task_bytes(p);
    }
    p->rows = min64(p->rows, s->q_len);
    p->groups = ceil_div(s->q_len, p->rows);
    const int64_t stream = attn_stream_bytes(p->tile, s->dim, s->v_dim);
    bool fits = bias >= 0 && stream >= 0 && ck_align(stream, 64, &p->scratch_bytes) &&
                ck_add(p->scratch_bytes, bias, &p->scratch_bytes) &&
                op_grid_tasks(s->batch, s->q_heads, p->groups, &p->n_tasks);
    if (!fits)
        return op_fail_scratch(step);
    double cost = 2.0 * (double)p->rows * (double)s->kv_len * p->density *
                  (double)(s->dim + s->v_dim + 32) / 100.0;
    p->task_cost = op_ns(cost + 2000);
    op_flops(step, 2.0 * (double)s->batch * (double)s->q_heads * (double)s->q_len *
                       (double)s->kv_len * p->density * (double)(s->dim + s->v_dim));
    return ATTNRUN_OK;
}

/* ---- one task ---- */

struct block_lists_walk {
    const struct attn_blocks *p;
    const struct attn_blocks_operands *o;
    struct attn_stream stream;
    int64_t b, head, row, rows; /* rows row … row + rows - 1 */
    int64_t first_block;        /* of the layout: that of the first row */
    float *bias;                /* (blocks of the group, key_blocks): log of the count */
    uint64_t *seen; /* (blocks of the group, words): bit j: block j of the keys is */
    /* Keys that the query tile under way sees as one; `key`: the first of the last segment. */
    struct attn_keys segments[ATTN_STREAM_SEGMENTS];
    int n_segments;
    int64_t tile, n_keys, key; /* query tile: its first row */
};

static int64_t block_of(const struct block_lists_walk *w, int64_t row)
{
    return (w->o->first + w->row + row) / w->p->block - w->first_block;
}

/* Fills in the biases of the blocks that the first `rows` rows see. */
static void fill_bias(struct block_lists_walk *w, int64_t rows)
{
    const int64_t columns = w->p->key_blocks;
    const int64_t n = block_of(w, rows - 1) + 1;
    for (int64_t i = 0; i < n; i++) {
        float *bias = w->bias + i * columns;
        uint64_t *seen = w->seen + i * words(w->p);
        memset(bias, 0, (size_t)columns * sizeof *bias);
        w->o->fill(w->o->arg, w->b, w->head, w->first_block + i, bias);
        memset(seen, 0, (size_t)words(w->p) * sizeof *seen);
        for (int64_t j = 0; j < columns; j++) {
            seen[j / 64] |= (uint64_t)(bias[j] != 0.0f) << j % 64;
            bias[j] = bias[j] == 0.0f   ? -INFINITY
                      : bias[j] == 1.0f ? 0.0f
                                        : logf(bias[j]);
        }
    }
}

/* The number of rows from `row` on that are one query tile: a block is cut into whole
 * tiles. */
static int64_t tile_rows(const struct block_lists_walk *w, int64_t row)
{
    const int64_t block = w->p->block, at = (w->o->first + w->row + row) % block;
    int64_t rows = w->p->tile;
    if (block < MIN_BLOCK)
        rows -= at;
    else
        rows = min64(rows - at % rows, block - at);
    return min64(rows, w->rows - row);
}

/* ---- segments of keys ---- */

/* Keys from … to - 1 that the rows of a query tile see, all with one bias, or (`mixed`) each
 * block of rows with its own. */
struct run {
    int64_t from, to;
    float bias;
    bool mixed;
};

/* The biases of block j of the keys for the rows of blocks first … last of the group. */
static struct run block_run(const struct block_lists_walk *w, int64_t first, int64_t last,
                            int64_t j)
{
    const int64_t block = w->p->block;
    const float *bias = w->bias + first * w->p->key_blocks + j;
    struct run run = { j * block, min64((j + 1) * block, w->o->kv_len), *bias, false };
    for (int64_t i = first + 1; i <= last; i++) {
        bias += w->p->key_blocks;
        run.mixed = run.mixed || *bias != run.bias;
    }
    return run;
}

/* The end of the keys that row `row` may see. */
static int64_t end_for(const struct block_lists_walk *w, int64_t row)
{
    if (!w->p->sizes.causal)
        return w->o->kv_len;
    return min64(w->o->kv_len, max64(0, w->o->position + w->row + row + 1));
}

/* The first block of the keys from j on that one of the blocks first … last sees. */
static int64_t next_block(const struct block_lists_walk *w, int64_t first, int64_t last,
                          int64_t j)
{
    const int64_t n = words(w->p);
    for (uint64_t skip = ~UINT64_C(0) << j % 64; j / 64 < n; skip = ~UINT64_C(0)) {
        uint64_t seen = 0;
        for (int64_t i = first; i <= last; i++)
            seen |= w->seen[i * n + j / 64];
        if ((seen & skip) != 0)
            return j / 64 * 64 + __builtin_ctzll(seen & skip);
        j = (j / 64 + 1) * 64;
    }
    return j;
}

/* Finds the first segment from key `from` on that rows row … row + rows - 1 see. False:
 * there is none. */
static bool next_run(const struct block_lists_walk *w, int64_t row, int64_t rows,
                     int64_t from, struct run *run)
{
    const int64_t block = w->p->block, end = end_for(w, row + rows - 1);
    const int64_t first = block_of(w, row), last = block_of(w, row + rows - 1);
    int64_t j = next_block(w, first, last, ceil_div(from, block));
    if (j * block >= end)
        return false;
    *run = block_run(w, first, last, j);
    while ((j + 1) * block < end) {
        const struct run more = block_run(w, first, last, ++j);
        if (more.mixed != run->mixed || (!run->mixed && more.bias != run->bias))
            break;
        run->to = more.to;
    }
    run->to = min64(run->to, end);
    return true;
}

static const float *head_of(const struct block_lists_walk *w, const float *x,
                            const struct attn_heads *at)
{
    return x + w->b * at->batch + w->head / w->p->sizes.group * at->head;
}

static void add_keys(const struct block_lists_walk *w, struct attn_prefetch *prefetch,
                     int64_t from, int64_t to)
{
    const struct attn_sizes *s = &w->p->sizes;
    attn_prefetch_add(prefetch, head_of(w, w->o->k, &s->k) + from * s->k.row, s->k.row,
                      to - from, s->dim);
    attn_prefetch_add(prefetch, head_of(w, w->o->v, &s->v) + from * s->v.row, s->v.row,
                      to - from, s->v_dim);
}

/* The keys that the query tile of rows row … + rows - 1 reads, without those of the tile
 * before it, which begins at row `before` (-1: none). */
static struct attn_prefetch block_lists_rows_of(const struct block_lists_walk *w,
                                                int64_t row, int64_t rows, int64_t before)
{
    const int64_t block = w->p->block;
    const float *known =
        before < 0 ? NULL : w->bias + block_of(w, before) * w->p->key_blocks;
    struct attn_prefetch prefetch = { .n = 0 };
    struct run run = { .to = 0 };
    while (next_run(w, row, rows, run.to, &run)) {
        int64_t from = run.from, to = run.to;
        while (known != NULL && from < to && known[from / block] != -INFINITY)
            from = (from / block + 1) * block;
        while (known != NULL && to > from && known[(to - 1) / block] != -INFINITY)
            to = (to - 1) / block * block;
        if (to > from && to - from <= FEW_KEYS)
            add_keys(w, &prefetch, from, to);
    }
    return prefetch;
}

/* ---- a query tile ---- */

static const uint8_t *mask_of(const struct block_lists_walk *w, int64_t key)
{
    if (w->o->key_mask == NULL)
        return NULL;
    return w->o->key_mask + w->b * w->p->sizes.kv_len + key;
}

/* Masks the scores of one segment of keys, whose rows have biases of their own, or of
 * which some are masked. */
static void block_mask_row(const struct block_lists_walk *w, float *scores, int64_t row,
                           int64_t n)
{
    const int64_t block = w->p->block, end = w->key + n;
    const float *bias = w->bias + block_of(w, row) * w->p->key_blocks;
    const uint8_t *mask = mask_of(w, w->key);
    for (int64_t j = w->key / block; j <= (end - 1) / block; j++) {
        const int64_t to = min64((j + 1) * block, end) - w->key;
        for (int64_t i = max64(j * block, w->key) - w->key; i < to; i++)
            scores[i] = bias[j] == -INFINITY ? -INFINITY : scores[i] + bias[j];
    }
    if (mask != NULL)
        w->stream.kernels->keep_mask_f32(scores, mask, (size_t)n);
}

static void mask_rows(void *arg, float *scores, int64_t row, int64_t rows, int64_t from,
                      int64_t to)
{
    const struct block_lists_walk *w = arg;
    for (int64_t r = 0; r < rows; r++)
        block_mask_row(w, scores + r * ATTN_STREAM_SCORES, w->tile + row + r, to - from);
}

static void give_segments(struct block_lists_walk *w)
{
    attn_stream_segments(&w->stream, w->segments, w->n_segments, NULL, NULL);
    w->n_segments = 0;
    w->n_keys = 0;
}

/* Gives the stream the keys from … to - 1 of a segment, at most KEYS of them. */
static void give_keys(struct block_lists_walk *w, struct run run)
{
    const struct attn_sizes *s = &w->p->sizes;
    const int64_t n = run.to - run.from;
    const uint8_t *mask = mask_of(w, run.from);
    const bool masked = mask != NULL && memchr(mask, 0, (size_t)n) != NULL;
    const struct attn_keys keys = {
        .k = head_of(w, w->o->k, &s->k) + run.from * s->k.row,
        .v = head_of(w, w->o->v, &s->v) + run.from * s->v.row,
        .k_row = s->k.row,
        .v_row = s->v.row,
        .n = n,
        /* The first rows do not see all of the last keys. */
        .band = run.to > end_for(w, w->tile),
        .first = -run.to - TILE,
        .last = w->o->position + w->row + w->tile - run.from,
        .scaled = !run.mixed && !masked && run.bias != 0.0f,
        .k_factor = 1.0f,
        .v_factor = 1.0f,
        .bias = run.bias,
    };
    if (run.mixed || masked) {
        w->key = run.from;
        attn_stream_segments(&w->stream, &keys, 1, mask_rows, w);
        return;
    }
    if (w->n_keys + n > KEYS || w->n_segments == ATTN_STREAM_SEGMENTS)
        give_segments(w);
    w->segments[w->n_segments++] = keys;
    w->n_keys += n;
}

static void block_lists_store(struct block_lists_walk *w)
{
    const struct attn_sizes *s = &w->p->sizes;
    const int64_t first = w->row + w->tile;
    const uint8_t *mask = w->o->query_mask;
    float *y = w->o->y + w->b * s->y.batch + w->head * s->y.head + first * s->y.row;
    attn_stream_store_rows(&w->stream, 0, w->stream.n, y, s->y.row, 0.0f);
    for (int64_t r = 0; mask != NULL && r < w->stream.n; r++)
        if (!mask[w->b * s->q_len + first + r])
            memset(y + r * s->y.row, 0, (size_t)s->v_dim * sizeof *y);
}

/* Products prefetch the rows that are read after this query tile. */
static attn_status block_lists_run_tile(struct block_lists_walk *w, int64_t rows,
                                        struct attn_prefetch *prefetch,
                                        const attnrun_work *work)
{
    const struct attn_sizes *s = &w->p->sizes;
    struct run run = { .to = 0 };
    w->stream.prefetch = prefetch;
    attn_stream_reset(&w->stream, rows);
    attn_stream_load(&w->stream, 0,
                     w->o->q + w->b * s->q.batch + w->head * s->q.head +
                         (w->row + w->tile) * s->q.row,
                     s->q.row, rows, s->scale);
    while (next_run(w, w->tile, rows, run.to, &run)) {
        struct run part = run;
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        for (; part.from < run.to; part.from = part.to) {
            part.to = min64(part.from + KEYS, run.to);
            give_keys(w, part);
        }
    }
    give_segments(w);
    block_lists_store(w);
    return ATTNRUN_OK;
}

/* Opens task `task`, with space for the biases of `rows` rows in *memory. */
static struct block_lists_walk open_task(const struct attn_blocks *p,
                                         const struct attn_blocks_operands *o,
                                         int64_t task, int64_t rows, char **memory)
{
    const struct attn_sizes *s = &p->sizes;
    struct block_lists_walk w = { .p = p, .o = o };
    w.head = op_take(&task, s->q_heads); /* their rows lie side by side */
    w.row = op_take(&task, p->groups) * p->rows;
    w.b = task;
    w.rows = min64(rows, s->q_len - w.row);
    w.first_block = (o->first + w.row) / p->block;
    w.seen = (uint64_t *)(void *)*memory;
    w.bias = (float *)(void *)(w.seen + ((rows - 1) / p->block + 2) * words(p));
    *memory += bias_bytes(p, rows);
    return w;
}

/* The rows that the first query tile of the next task reads. */
static struct attn_prefetch first_rows(const struct block_lists_walk *w, int64_t task,
                                       const attnrun_work *work, char *memory)
{
    const struct attn_blocks *p = w->p;
    if (task + 1 >= work->end || attn_blocks_sample(p, task + 1) != w->b)
        return (struct attn_prefetch){ .n = 0 };
    struct block_lists_walk next = open_task(p, w->o, task + 1, p->tile, &memory);
    const int64_t rows = tile_rows(&next, 0);
    fill_bias(&next, rows);
    return block_lists_rows_of(&next, 0, rows, -1);
}

attn_status attn_blocks_run(const struct attn_blocks *p,
                            const struct attn_kernels *kernels,
                            const struct attn_blocks_operands *o, int64_t task,
                            const attnrun_work *work)
{
    const struct attn_sizes *s = &p->sizes;
    int64_t stream;
    char *memory = work->scratch;
    ck_align(attn_stream_bytes(p->tile, s->dim, s->v_dim), 64, &stream);
    memory += stream;
    struct block_lists_walk w = open_task(p, o, task, p->rows, &memory);
    attn_stream_begin(&w.stream, kernels, p->tile, s->dim, s->v_dim, work->scratch);
    fill_bias(&w, w.rows);
    for (int64_t rows; w.tile < w.rows; w.tile += rows) {
        rows = tile_rows(&w, w.tile);
        const int64_t next = w.tile + rows;
        struct attn_prefetch prefetch =
            next < w.rows ? block_lists_rows_of(&w, next, tile_rows(&w, next), w.tile)
                          : first_rows(&w, task, work, memory);
        TRY(block_lists_run_tile(&w, rows, &prefetch, work));
    }
    return ATTNRUN_OK;
}
