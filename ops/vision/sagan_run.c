/* sagan_run.c - computes the two phases of SAGANAttention: tiles of keys, and tiles of
 * queries. sagan_attention.c has the formula and the cost. */
#include <math.h>

#include "sagan.h"

/* ---- products with pixels ---- */

/* Computes c (rows, c_row) = rows first … of weight `w` times n pixels at x. */
static void sagan_project(const attnrun_step *step, int w, int64_t first, int64_t rows,
                          const float *x, int64_t n, float *c, int64_t c_row, float *gemm)
{
    const struct attn_sagan *s = step->state;
    const struct attn_gemm_f32 g = {
        .a = (const float *)step->x[w].data + first * s->map.channels,
        .a_row = s->map.channels,
        .b = x,
        .b_row = s->map.pixels,
        .b_col = 1,
        .c = c,
        .c_row = c_row,
        .m = (size_t)rows,
        .n = (size_t)n,
        .k = (size_t)s->map.channels,
        .scratch = gemm,
    };
    step->kernels->gemm_f32(&g);
}

/* ---- phase 0: keys and values ---- */

/* A rectangle of the map of keys. */
struct sagan_part {
    int64_t row, column, rows, columns;
};

static struct sagan_part part_of(const struct attn_sagan *s, int64_t tile)
{
    struct sagan_part part = { .column =
                                   op_take(&tile, s->column_tiles) * s->tile_columns };
    part.row = tile * s->tile_rows;
    part.rows = min64(s->tile_rows, s->rows - part.row);
    part.columns = min64(s->tile_columns, s->columns - part.column);
    return part;
}

/* Scratch of a tile. */
struct sagan_room {
    float *gemm;
    float *out;                 /* a projection */
    float *pixels, *transposed; /* (ROWS, TILE), (TILE, ROWS) where it is pooled */
};

/* Projects up to ROWS channels of a weight at the 4 POOLED pixels behind some keys:
 * pixels, and their transpose. */
static void project_pixels(const attnrun_step *step, const struct sagan_room *room, int w,
                           int64_t first, int64_t rows, const float *x,
                           struct sagan_part part)
{
    const struct attn_sagan *s = step->state;
    const int64_t line = 2 * part.columns, n = 2 * part.rows * line;
    const float *from = x + 2 * part.row * s->map.width + 2 * part.column;
    const int64_t step_n = line == s->map.width ? n : line; /* whole lines are one run */
    for (int64_t at = 0; at < n; at += step_n, from += s->map.width)
        sagan_project(step, w, first, rows, from, step_n, room->pixels + at, TILE,
                      room->gemm);
    step->kernels->transpose_f32(room->transposed, ROWS, room->pixels, TILE, (size_t)rows,
                                 (size_t)n);
}

/* Computes out[key * row + r] = the largest of the key's four pixels in channel first +
 * r. */
static void pool_part(const attnrun_step *step, const struct sagan_room *room, int w,
                      int64_t first, int64_t rows, const float *x, struct sagan_part part,
                      float *out, int64_t row, int64_t next_line)
{
    const struct attn_kernels *kernels = step->kernels;
    const int64_t line = 2 * part.columns;
    const size_t n = (size_t)rows;
    project_pixels(step, room, w, first, rows, x, part);
    for (int64_t i = 0; i < part.rows; i++)
        for (int64_t j = 0; j < part.columns; j++) {
            const float *upper = room->transposed + (2 * i * line + 2 * j) * ROWS;
            const float *lower = upper + line * ROWS;
            float *to = out + (i * next_line + j) * row;
            kernels->max_f32(to, upper, 1, upper + ROWS, 1, n);
            kernels->max_f32(to, to, 1, lower, 1, n);
            kernels->max_f32(to, to, 1, lower + ROWS, 1, n);
        }
}

/* The same for all keys of a tile, in blocks of POOLED keys at most. */
static void pool_tile(const attnrun_step *step, const struct sagan_room *room, int w,
                      int64_t first, int64_t rows, const float *x, struct sagan_part tile,
                      float *out, int64_t row)
{
    const struct attn_sagan *s = step->state;
    const int64_t columns = min64(tile.columns, POOLED);
    const int64_t lines = columns == s->columns ? POOLED / columns : 1;
    for (int64_t i = 0; i < tile.rows; i += lines)
        for (int64_t j = 0; j < tile.columns; j += columns) {
            const struct sagan_part part = { .row = tile.row + i,
                                             .column = tile.column + j,
                                             .rows = min64(lines, tile.rows - i),
                                             .columns =
                                                 min64(columns, tile.columns - j) };
            pool_part(step, room, w, first, rows, x, part,
                      out + (i * tile.columns + j) * row, row, tile.columns);
        }
}

/* Projects channels first … of a weight at the keys of a tile: to out[key * row + r]
 * where they are pooled, else to out[r * TILE + key]. */
static void project_tile(const attnrun_step *step, const struct sagan_room *room, int w,
                         int64_t first, int64_t rows, const float *x,
                         struct sagan_part tile, float *out, int64_t row)
{
    const struct attn_sagan *s = step->state;
    if (s->pooled)
        pool_tile(step, room, w, first, rows, x, tile, out, row);
    else
        sagan_project(step, w, first, rows, x + tile.column, tile.columns, out, TILE,
                      room->gemm);
}

static void pack_keys(const attnrun_step *step, const struct sagan_room *room,
                      const float *x, struct sagan_part tile, float *k)
{
    const struct attn_sagan *s = step->state;
    const size_t n = (size_t)(tile.rows * tile.columns);
    for (int64_t i = 0; i < s->d; i += ROWS)
        project_tile(step, room, WK, i, min64(ROWS, s->d - i), x, tile,
                     room->out + (s->pooled ? i : i * TILE), s->d);
    step->kernels->gemm_pack_f32(k, room->out, s->pooled ? 1 : TILE, s->pooled ? s->d : 1,
                                 (size_t)s->d, n);
}

static void pack_values(const attnrun_step *step, const struct sagan_room *room,
                        const float *x, struct sagan_part tile, float *v)
{
    const struct attn_sagan *s = step->state;
    const int64_t n = tile.rows * tile.columns;
    if (s->raw) {
        step->kernels->gemm_pack_f32(v, x + tile.column, 1, s->map.pixels, (size_t)n,
                                     (size_t)s->v_dim);
        return;
    }
    for (int64_t i = 0; i < s->e; i += ROWS) { /* whole panels */
        const int64_t rows = min64(ROWS, s->e - i);
        project_tile(step, room, WV, i, rows, x, tile, room->out, ROWS);
        step->kernels->gemm_pack_f32(v + i * n, room->out, s->pooled ? ROWS : 1,
                                     s->pooled ? 1 : TILE, (size_t)n, (size_t)rows);
    }
}

static void run_keys(const attnrun_step *step, const attnrun_work *work, int64_t task)
{
    const struct attn_sagan *s = step->state;
    const int64_t index = op_take(&task, s->tiles), b = task;
    const struct sagan_part tile = part_of(s, index);
    const float *x = (const float *)step->x[X].data + b * s->map.channels * s->map.pixels;
    float *k = (float *)work->shared + b * s->tiles * (s->k_slot + s->v_slot);
    float *v = k + s->tiles * s->k_slot;
    struct sagan_room room = { .gemm = work->scratch };
    room.out = room.gemm + s->gemm_floats;
    room.pixels = room.out + (s->d > ROWS ? s->d : ROWS) * TILE;
    room.transposed = room.pixels + ROWS * TILE;
    pack_keys(step, &room, x, tile, k + index * s->k_slot);
    pack_values(step, &room, x, tile, v + index * s->v_slot);
}

/* The place of gamma (wo bv + bo), behind the keys and values of all samples. */
static float *shift_of(const struct attn_sagan *s, const attnrun_work *work)
{
    return (float *)work->shared + s->map.batch * s->tiles * (s->k_slot + s->v_slot);
}

static void run_shift(const attnrun_step *step, const attnrun_work *work)
{
    const struct attn_sagan *s = step->state;
    const float *bv = op_in_data(step, BV), *bo = op_in_data(step, BO);
    const float gamma = *(const float *)step->x[GAMMA].data;
    const int64_t c = s->map.channels;
    float *shift = shift_of(s, work);
    struct attn_gemm_f32 g = {
        .a_row = s->e, .b = bv, .b_row = 1, .c_row = 1, .n = 1, .k = (size_t)s->e
    };
    g.b_col = s->e;
    g.scratch = work->scratch;
    for (int64_t i = 0; bv != NULL && op_has_in(step, WO) && i < c; i += ROWS) {
        g.a = (const float *)step->x[WO].data + i * s->e;
        g.c = shift + i;
        g.m = (size_t)min64(ROWS, c - i);
        step->kernels->gemm_f32(&g);
    }
    for (int64_t i = 0; i < c; i++) {
        const float v = bv == NULL ? 0.0f : op_has_in(step, WO) ? shift[i] : bv[i];
        shift[i] = gamma * (v + (bo == NULL ? 0.0f : bo[i]));
    }
}

/* ---- phase 1: queries ---- */

/* Loads the n queries at x, times the scale, into s->q. */
static void load_queries(const attnrun_step *step, struct attn_stream *stream,
                         const float *x, int64_t n, float *gemm)
{
    const struct attn_sagan_args *args = step->args;
    const struct attn_sagan *s = step->state;
    const float *bq = op_in_data(step, BQ);
    for (int64_t i = 0; i < s->d; i += ROWS) {
        const int64_t rows = min64(ROWS, s->d - i);
        sagan_project(step, WQ, i, rows, x, n, stream->scores, TILE, gemm);
        for (int64_t r = 0; r < rows && (bq != NULL || args->scale != 1.0f); r++) {
            float *q = stream->scores + r * TILE;
            const float bias = bq != NULL ? bq[i + r] : 0.0f;
            step->kernels->scale_shift_f32(q, q, (size_t)n, -bias, args->scale, 0.0f);
        }
        step->kernels->transpose_f32(stream->q + i, s->d, stream->scores, TILE,
                                     (size_t)rows, (size_t)n);
    }
}

/* Computes y = gamma M o + shift + x for the n pixels of a tile; o (n, v_dim). */
static void store_products(const attnrun_step *step, const float *m, const float *o,
                           const float *shift, const float *x, float *y, int64_t n,
                           float *gemm)
{
    const struct attn_sagan *s = step->state;
    const int64_t pixels = s->map.pixels;
    struct attn_epilogue steps[3] = {
        { .kind = ATTN_EPI_SCALE, .alpha = *(const float *)step->x[GAMMA].data },
        { .kind = ATTN_EPI_ADD, .alpha = 1.0f, .row = pixels, .col = 1 },
        { .kind = ATTN_EPI_ADD, .alpha = 1.0f, .row = 1 },
    };
    struct attn_gemm_f32 g = { .a_row = s->v_dim,
                               .b = o,
                               .b_row = 1,
                               .b_col = s->v_dim,
                               .c_row = pixels,
                               .n = (size_t)n,
                               .k = (size_t)s->v_dim,
                               .epilogue = steps,
                               .n_epilogue = shift != NULL ? 3 : 2,
                               .scratch = gemm };
    for (int64_t i = 0; i < s->map.channels; i += ROWS) {
        steps[1].data = x + i * pixels;
        steps[2].data = shift != NULL ? shift + i : NULL;
        g.a = m + i * s->v_dim;
        g.c = y + i * pixels;
        g.m = (size_t)min64(ROWS, s->map.channels - i);
        step->kernels->gemm_f32(&g);
    }
}

/* Computes y = gamma o + shift + x; room: ROWS * TILE floats. */
static void store_values(const attnrun_step *step, const float *o, const float *shift,
                         const float *x, float *y, int64_t n, float *room)
{
    const struct attn_sagan *s = step->state;
    const float gamma = *(const float *)step->x[GAMMA].data;
    for (int64_t i = 0; i < s->map.channels; i += ROWS) {
        const int64_t rows = min64(ROWS, s->map.channels - i);
        step->kernels->transpose_f32(room, TILE, o + i, s->v_dim, (size_t)n,
                                     (size_t)rows);
        for (int64_t r = 0; r < rows; r++) {
            float *line = room + r * TILE;
            const int64_t at = (i + r) * s->map.pixels;
            step->kernels->scale_shift_f32(line, line, (size_t)n, 0.0f, gamma,
                                           shift != NULL ? shift[i + r] : 0.0f);
            step->kernels->add_f32(y + at, line, 1, x + at, 1, (size_t)n);
        }
    }
}

static attn_status see_keys(const struct attn_sagan *s, const attnrun_work *work,
                            int64_t b, struct attn_stream *stream)
{
    const float *k = (const float *)work->shared + b * s->tiles * (s->k_slot + s->v_slot);
    const float *v = k + s->tiles * s->k_slot;
    for (int64_t i = 0; i < s->tiles; i++) {
        const struct sagan_part tile = part_of(s, i);
        const struct attn_keys keys = { .k = k + i * s->k_slot,
                                        .v = v + i * s->v_slot,
                                        .n = tile.rows * tile.columns };
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        attn_stream_tile(stream, &keys, NULL, NULL);
    }
    return ATTNRUN_OK;
}

static attn_status run_queries(const attnrun_step *step, const attnrun_work *work,
                               int64_t task)
{
    const struct attn_sagan *s = step->state;
    const int64_t first = op_take(&task, s->query_tiles) * s->block, b = task;
    const int64_t n = min64(s->block, s->map.pixels - first);
    const int64_t at = b * s->map.channels * s->map.pixels + first;
    const float *x = (const float *)step->x[X].data + at;
    const float *shift = s->biased ? shift_of(s, work) : NULL;
    float *y = (float *)step->y[0].data + at, *gemm = work->scratch;
    struct attn_stream stream;
    attn_stream_begin_packed(&stream, step->kernels, s->block, s->d, s->v_dim,
                             gemm + s->gemm_floats);
    attn_stream_reset(&stream, n);
    load_queries(step, &stream, x, n, gemm);
    TRY(see_keys(s, work, b, &stream));
    attn_stream_store_rows(&stream, 0, n, stream.sums, s->v_dim, NAN);
    if (s->raw || op_has_in(step, WO)) {
        const float *m = s->folded ? step->node->packed : step->x[s->raw ? WV : WO].data;
        store_products(step, m, stream.sums, shift, x, y, n, gemm);
    } else {
        store_values(step, stream.sums, shift, x, y, n, stream.scores);
    }
    return ATTNRUN_OK;
}

attn_status attn_sagan_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct attn_sagan *s = step->state;
    if (s->map.batch == 0)
        return ATTNRUN_OK;
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (work->phase == QUERIES)
            TRY(run_queries(step, work, task));
        else if (task < s->map.batch * s->tiles)
            run_keys(step, work, task);
        else
            run_shift(step, work);
    }
    return ATTNRUN_OK;
}
