/* halo_run.c - computes the phases of HaloAttention: K, V and Q of pixels, blocks,
 * results; or all of them for regions, one after the other. halo_attention.c has the
 * formula and the cost. */
#include "../tile.h"
#include "halo.h"

static struct attn_halo_worker open_worker(const attnrun_step *step,
                                           const attnrun_work *work)
{
    const struct attn_halo *s = step->state;
    struct attn_halo_worker w = { .step = step, .s = s, .chunk = -1, .parts = 1 };
    float *at = work->scratch;
    float **const to[] = { &w.gemm,     &w.panels, &w.gathered, &w.keys,
                           &w.relative, &w.scores, &w.query,    &w.out };
    const int64_t sizes[] = { s->gemm_floats,  s->panel_floats, s->gather_floats,
                              s->key_floats,   s->rel_floats,   s->score_floats,
                              s->query_floats, s->out_floats };
    for (size_t i = 0; i < sizeof to / sizeof *to; at += sizes[i++])
        *to[i] = at;
    w.shifts = (int32_t *)(void *)at;
    w.own = at + 2 * s->width;
    w.values.grid = &s->values;
    w.queries.grid = &s->queries;
    return w;
}

/* Opens the stores of an image, which workers share. */
static void open_image(struct attn_halo_worker *w, const attnrun_work *work,
                       int64_t image)
{
    const struct attn_halo *s = w->s;
    w->image = image;
    w->values.data =
        (float *)work->shared + image * (s->values.floats + s->queries.floats);
    w->queries.data = w->values.data + s->values.floats;
    w->values.columns = s->map.width;
    w->queries.columns = s->out_w;
}

/* ---- products with weights ---- */

struct halo_rows {
    int64_t from, to;
};

/* Those rows of `rows` that are the worker's part. */
static struct halo_rows rows_of_part(const struct attn_halo_worker *w, int64_t rows)
{
    return (struct halo_rows){ rows * w->part / w->parts,
                               rows * (w->part + 1) / w->parts };
}

/* Computes y[rows x n] = (rows of weight input `in` times the panels + bias) * scale. */
static void halo_apply(const struct attn_halo_worker *w, int in, int bias,
                       struct halo_rows rows, int64_t n, float scale, float *y,
                       int64_t y_row)
{
    const attnrun_tensor *weight = &w->step->x[in];
    const float *added = op_in_data(w->step, bias);
    const struct attn_gemm_f32 g = { .a = (const float *)weight->data +
                                          rows.from * weight->dims[1],
                                     .a_row = weight->dims[1],
                                     .b = w->panels,
                                     .packed = 1,
                                     .c = y,
                                     .c_row = y_row,
                                     .m = (size_t)(rows.to - rows.from),
                                     .n = (size_t)n,
                                     .k = (size_t)weight->dims[1],
                                     .scratch = w->gemm };
    const struct attn_epilogue last = { .kind = ATTN_EPI_SCALE, .alpha = scale };
    attn_map_product(w->step->kernels, g, added != NULL ? added + rows.from : NULL,
                     scale != 1.0f ? &last : NULL);
}

/* Loads the pixels from (y, x) on, every stride-th of both directions, as panels. */
static void load_pixels(const struct attn_halo_worker *w, int64_t stride, int64_t y,
                        int64_t x, int64_t rows, int64_t columns)
{
    const struct attn_map *map = &w->s->map;
    const int64_t n = rows * columns;
    const struct attn_boxes b = {
        .x = (const float *)w->step->x[X].data +
             (w->image * map->channels * map->height + y * stride) * map->width +
             x * stride,
        .x_plane = map->pixels,
        .x_row = stride * map->width,
        .x_step = stride,
        .y = w->gathered,
        .y_plane = n,
        .y_row = columns,
        .planes = (size_t)map->channels,
        .rows = (size_t)rows,
        .n = (size_t)columns,
    };
    const bool dense = stride == 1 && (rows == 1 || columns == map->width);
    if (w->loaded)
        return;
    if (!dense)
        w->step->kernels->copy_boxes_f32(&b);
    w->step->kernels->gemm_pack_f32(w->panels, dense ? b.x : b.y, dense ? b.x_plane : n,
                                    1, b.planes, (size_t)n);
}

/* ---- parts of chunks that are one product ---- */

static void make_values(const struct attn_halo_worker *w, int64_t y, int64_t x,
                        int64_t rows, int64_t columns)
{
    const struct attn_halo *s = w->s;
    const int64_t plane = attn_halo_plane(&w->values), n = rows * columns;
    const int64_t keys = s->heads * s->dk, planes = keys + s->heads * s->dv;
    const struct halo_rows part = rows_of_part(w, planes);
    const struct halo_rows k = { part.from, min64(part.to, keys) };
    const struct halo_rows v = { max64(part.from, keys) - keys, part.to - keys };
    load_pixels(w, 1, y, x, rows, columns);
    if (k.from < k.to)
        halo_apply(w, WK, BK, k, n, 1.0f, attn_halo_at(&w->values, k.from, y, x), plane);
    if (v.from < v.to)
        halo_apply(w, WV, BV, v, n, 1.0f, attn_halo_at(&w->values, keys + v.from, y, x),
                   plane);
}

/* Computes queries times the scale, unless the relative terms need them without it. */
static void make_queries(const struct attn_halo_worker *w, int64_t y, int64_t x,
                         int64_t rows, int64_t columns)
{
    const struct attn_halo_args *args = w->step->args;
    const struct attn_halo *s = w->s;
    const struct halo_rows part = rows_of_part(w, s->heads * s->dk);
    load_pixels(w, s->stride, y, x, rows, columns);
    halo_apply(w, WQ, BQ, part, rows * columns,
               s->relative && args->rel_scaled == 0 ? 1.0f : s->scale,
               attn_halo_at(&w->queries, part.from, y, x), attn_halo_plane(&w->queries));
}

static void make_results(const struct attn_halo_worker *w, int64_t y, int64_t x,
                         int64_t rows, int64_t columns)
{
    const struct attn_halo *s = w->s;
    const int64_t n = rows * columns, plane = s->out_h * s->out_w;
    struct attn_boxes b = {
        .x = attn_halo_at(&w->queries, attn_halo_results(s), y, x),
        .x_plane = attn_halo_plane(&w->queries),
        .x_row = columns,
        .x_step = 1,
        .y = (float *)w->step->y[0].data +
             (w->image * s->out_channels * s->out_h + y) * s->out_w + x,
        .y_plane = plane,
        .y_row = s->out_w,
        .planes = (size_t)s->out_channels,
        .rows = (size_t)rows,
        .n = (size_t)columns,
    };
    const bool dense = rows == 1 || columns == s->out_w;
    if (op_has_in(w->step, WO)) {
        const struct halo_rows part = rows_of_part(w, s->out_channels);
        const int64_t row = dense ? plane : n;
        if (!w->loaded)
            w->step->kernels->gemm_pack_f32(w->panels, b.x, b.x_plane, 1,
                                            (size_t)(s->heads * s->dv), (size_t)n);
        halo_apply(w, WO, BO, part, n, 1.0f, (dense ? b.y : w->out) + part.from * row,
                   row);
        b.x = w->out;
        b.x_plane = n;
    }
    if (!dense || !op_has_in(w->step, WO))
        w->step->kernels->copy_boxes_f32(&b);
}

/* Visits rows y … y_end - 1 of all columns of a store, a part at a time: rows of one
 * chunk, or pixels of one row. */
static attn_status for_parts(const struct attn_halo_worker *w,
                             const struct attn_halo_store *store, int64_t y,
                             int64_t y_end, const attnrun_work *work,
                             void (*make)(const struct attn_halo_worker *w, int64_t y,
                                          int64_t x, int64_t rows, int64_t columns))
{
    const int64_t chunk = store->grid->chunk_rows, columns = store->columns;
    for (int64_t rows; y < y_end; y += rows) {
        rows = min64(max64(1, PIXELS / columns), min64(y_end - y, chunk - y % chunk));
        const int64_t n = min64(columns, PIXELS);
        for (int64_t x = 0; x < columns; x += n) {
            if (OP_CANCELLED(work))
                return ATTNRUN_E_CANCELLED;
            make(w, y, store->first + x, rows, min64(n, columns - x));
        }
    }
    return ATTNRUN_OK;
}

/* ---- tasks ---- */

/* Computes a chunk of K and V, of Q, or of results, or some rows of its product. */
static attn_status run_chunk(struct attn_halo_worker *w, const attnrun_work *work,
                             int64_t task)
{
    const struct attn_halo *s = w->s;
    const bool values = work->phase == VALUES;
    const struct attn_halo_grid *grid = values ? &s->values : &s->queries;
    w->parts = s->parts[work->phase];
    w->part = op_take(&task, w->parts);
    w->loaded = w->parts > 1 && task == w->chunk;
    w->chunk = task;
    const int64_t y = op_take(&task, grid->chunks) * grid->chunk_rows;
    const int64_t rows = min64(grid->chunk_rows, (values ? s->map.height : s->out_h) - y);
    open_image(w, work, task);
    return for_parts(w, values ? &w->values : &w->queries, y, y + rows, work,
                     values                   ? make_values
                     : work->phase == QUERIES ? make_queries
                                              : make_results);
}

static attn_status halo_run_block(struct attn_halo_worker *w, const attnrun_work *work,
                                  int64_t task)
{
    const struct attn_halo *s = w->s;
    const int64_t parts = s->parts[BLOCKS], part = s->heads / parts;
    const int64_t head = op_take(&task, parts) * part,
                  column = op_take(&task, s->columns), row = op_take(&task, s->rows);
    open_image(w, work, task);
    return attn_halo_block(w, row, column, head, head + part, work);
}

/* Computes rows of blocks one after the other. K and V that the next row sees, too, are
 * kept. */
static attn_status run_region(struct attn_halo_worker *w, const attnrun_work *work,
                              int64_t task)
{
    const struct attn_halo *s = w->s;
    const int64_t x = op_take(&task, s->x_regions) * s->region_columns;
    const int64_t y = op_take(&task, s->y_regions) * s->region_rows;
    const int64_t x_end = min64(s->columns, x + s->region_columns);
    w->image = task;
    w->values.data = w->own;
    w->values.first = max64(0, x * s->block - s->halo);
    w->values.columns = min64(s->map.width, x_end * s->block + s->halo) - w->values.first;
    w->queries.data = w->own + s->values.floats;
    w->queries.first = x * s->side;
    w->queries.columns = min64(s->out_w, x_end * s->side) - w->queries.first;
    const int64_t chunk = s->values.chunk_rows;
    int64_t made = max64(0, y * s->block - s->halo) / chunk * chunk;
    for (int64_t row = y; row < min64(s->rows, y + s->region_rows); row++) {
        int64_t to = min64(s->map.height, (row + 1) * s->block + s->halo);
        to = min64(s->map.height, ceil_div(to, chunk) * chunk);
        TRY(for_parts(w, &w->values, made, to, work, make_values));
        made = max64(made, to);
        to = min64(s->out_h, (row + 1) * s->side);
        TRY(for_parts(w, &w->queries, row * s->side, to, work, make_queries));
        for (int64_t column = x; column < x_end; column++)
            TRY(attn_halo_block(w, row, column, 0, s->heads, work));
        TRY(for_parts(w, &w->queries, row * s->side, to, work, make_results));
    }
    return ATTNRUN_OK;
}

attn_status attn_halo_run(const attnrun_step *step, const attnrun_work *work)
{
    const struct attn_halo *s = step->state;
    struct attn_halo_worker w = open_worker(step, work);
    for (int64_t task = work->begin; task < work->end; task++) {
        if (OP_CANCELLED(work))
            return ATTNRUN_E_CANCELLED;
        if (!s->whole)
            TRY(run_region(&w, work, task));
        else if (work->phase == BLOCKS)
            TRY(halo_run_block(&w, work, task));
        else
            TRY(run_chunk(&w, work, task));
    }
    return ATTNRUN_OK;
}
