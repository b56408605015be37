/* halo_tile.c - HaloAttention for the queries of a block. Scores are keys x queries, so
 * that all operands already lie as the products need them. In: Q, K and V of the pixels.
 * Out: the results, in the place of Q or beside it. halo_attention.c has the formula and
 * the cost. */
#include "halo.h"

/* The queries from output pixel (y, x) on, which have the indexes (row, column) … in
 * their block, and the pixels of its window that are in the image: y_from … y_to - 1 of
 * x_from … x_to - 1. Pixel (0, 0) of the window is image pixel (top, left). */
struct halo_tile {
    int64_t y, x, row, column, rows, columns;
    int64_t top, left, y_from, y_to, x_from, x_to;
};

/* Loads Q of a head as panels, filled up with zeros. */
static void load_queries(const struct attn_halo_worker *w, const struct halo_tile *t,
                         int64_t head)
{
    const struct attn_halo *s = w->s;
    const int64_t n = t->rows * t->columns, chunk = s->queries.chunk_rows;
    float *q = w->query + s->dk * s->width;
    struct attn_boxes b = { .x_plane = attn_halo_plane(&w->queries),
                            .x_row = w->queries.columns,
                            .x_step = 1,
                            .y = q,
                            .y_plane = s->width,
                            .y_row = t->columns,
                            .planes = (size_t)s->dk,
                            .n = (size_t)t->columns };
    for (int64_t y = t->y; y < t->y + t->rows; y += (int64_t)b.rows) {
        b.rows = (size_t)min64(t->y + t->rows - y, chunk - y % chunk);
        b.x = attn_halo_at(&w->queries, head * s->dk, y, t->x);
        w->step->kernels->copy_boxes_f32(&b);
        b.y += (int64_t)b.rows * t->columns;
    }
    for (int64_t d = 0; n < s->width && d < s->dk; d++)
        memset(q + d * s->width + n, 0, (size_t)(s->width - n) * sizeof *q);
    w->step->kernels->gemm_pack_f32(w->query, q, s->width, 1, (size_t)s->dk,
                                    (size_t)s->width);
}

/* Stores `from` (v_dim planes of the tile). */
static void store_results(const struct attn_halo_worker *w, const struct halo_tile *t,
                          int64_t head, const float *from)
{
    const struct attn_halo *s = w->s;
    const int64_t chunk = s->queries.chunk_rows;
    struct attn_boxes b = { .x = from,
                            .x_plane = s->width,
                            .x_row = t->columns,
                            .x_step = 1,
                            .y_plane = attn_halo_plane(&w->queries),
                            .y_row = w->queries.columns,
                            .planes = (size_t)s->dv,
                            .n = (size_t)t->columns };
    for (int64_t y = t->y; y < t->y + t->rows; y += (int64_t)b.rows) {
        b.rows = (size_t)min64(t->y + t->rows - y, chunk - y % chunk);
        b.y = attn_halo_at(&w->queries, attn_halo_results(s) + head * s->dv, y, t->x);
        w->step->kernels->copy_boxes_f32(&b);
        b.x += (int64_t)b.rows * t->columns;
    }
}

/* ---- relative terms ---- */

/* Computes the terms of window rows (or columns), a row each, for queries of which `n`
 * differ in this direction, from number `first` on. Returns the term of pixel 0 of the
 * window. */
static const float *make_terms(const struct attn_halo_worker *w, int in, int64_t first,
                               int64_t n, const int32_t *shifts, float *to)
{
    const struct attn_halo *s = w->s;
    const int64_t rows = s->window + n - 1;
    const struct attn_gemm_f32 g = { .a = (const float *)w->step->x[in].data +
                                          (s->window - first - n) * s->dk,
                                     .a_row = s->dk,
                                     .b = w->query,
                                     .packed = 1,
                                     .c = to,
                                     .c_row = s->width,
                                     .m = (size_t)rows,
                                     .n = (size_t)s->width,
                                     .k = (size_t)s->dk,
                                     .scratch = w->gemm };
    attn_map_product(w->step->kernels, g, NULL, NULL);
    w->step->kernels->shear_columns_f32(to, (size_t)rows, (size_t)s->width, shifts);
    return to + (n - 1) * s->width;
}

/* Stores the sums of terms (0 without terms) for the window's pixels y_from … y_to - 1 of
 * x_from … x_to - 1; returns the end. */
static float *add_terms(const struct attn_halo_worker *w, float *to,
                        const float *terms[2], int64_t y_from, int64_t y_to,
                        int64_t x_from, int64_t x_to)
{
    const int64_t width = w->s->width, rows = y_to - y_from, columns = x_to - x_from;
    if (rows <= 0 || columns <= 0)
        return to;
    const int64_t n = rows * columns * width;
    if (terms[0] != NULL)
        w->step->kernels->add_outer_f32(to, terms[0] + y_from * width, (size_t)rows,
                                        terms[1] + x_from * width, (size_t)columns,
                                        (size_t)width);
    else
        memset(to, 0, (size_t)n * sizeof *to);
    return to + n;
}

/* Initializes the scores: first for the window's pixels in the image, then, where they
 * take part, for those around it. Returns the number of pixels. */
static int64_t start_scores(const struct attn_halo_worker *w, const struct halo_tile *t)
{
    const struct attn_halo_args *args = w->step->args;
    const struct attn_halo *s = w->s;
    const float *terms[2] = { NULL, NULL };
    const int64_t inside = (t->y_to - t->y_from) * (t->x_to - t->x_from);
    float *to = w->scores + inside * s->width;
    if (s->relative) {
        terms[0] = make_terms(w, REL_H, t->row, t->rows, w->shifts, w->relative);
        terms[1] = make_terms(w, REL_W, t->column, t->columns, w->shifts + s->width,
                              w->relative + (s->window + t->rows - 1) * s->width);
        add_terms(w, w->scores, terms, t->y_from, t->y_to, t->x_from, t->x_to);
        if (args->rel_scaled == 0)
            w->step->kernels->mul_f32(w->query, w->query, 1, &s->scale, 0,
                                      (size_t)(s->width * s->dk));
    }
    if (args->padding != ATTN_HALO_ATTEND)
        return inside;
    to = add_terms(w, to, terms, 0, t->y_from, 0, s->window);
    to = add_terms(w, to, terms, t->y_from, t->y_to, 0, t->x_from);
    to = add_terms(w, to, terms, t->y_from, t->y_to, t->x_to, s->window);
    add_terms(w, to, terms, t->y_to, s->window, 0, s->window);
    return s->window * s->window;
}

/* ---- products ---- */

/* Copies planes from number `first` on, of the window's rows y … y + rows - 1, to
 * w->keys. */
static void gather_window(const struct attn_halo_worker *w, int64_t first, int64_t planes,
                          const struct halo_tile *t, int64_t y, int64_t rows)
{
    const int64_t columns = t->x_to - t->x_from, chunk = w->s->values.chunk_rows;
    struct attn_boxes b = { .x_plane = attn_halo_plane(&w->values),
                            .x_row = w->values.columns,
                            .x_step = 1,
                            .y = w->keys,
                            .y_plane = rows * columns,
                            .y_row = columns,
                            .planes = (size_t)planes,
                            .n = (size_t)columns };
    for (int64_t row = t->top + y, to = row + rows; row < to; row += (int64_t)b.rows) {
        b.rows = (size_t)min64(to - row, chunk - row % chunk);
        b.x = attn_halo_at(&w->values, first, row, t->left + t->x_from);
        w->step->kernels->copy_boxes_f32(&b);
        b.y += (int64_t)b.rows * columns;
    }
}

static void add_products(const struct attn_halo_worker *w, const struct halo_tile *t,
                         int64_t head, int64_t y, int64_t rows)
{
    const struct attn_halo *s = w->s;
    const int64_t columns = t->x_to - t->x_from;
    gather_window(w, head * s->dk, s->dk, t, y, rows);
    const struct attn_gemm_f32 g = { .a = w->keys,
                                     .a_row = 1,
                                     .a_col = rows * columns,
                                     .b = w->query,
                                     .packed = 1,
                                     .c =
                                         w->scores + (y - t->y_from) * columns * s->width,
                                     .c_row = s->width,
                                     .m = (size_t)(rows * columns),
                                     .n = (size_t)s->width,
                                     .k = (size_t)s->dk,
                                     .scratch = w->gemm,
                                     .accumulate = s->relative };
    attn_map_product(w->step->kernels, g, NULL, NULL);
}

static void softmax_values(const struct attn_halo_worker *w, const struct halo_tile *t,
                           int64_t head, int64_t y, int64_t rows)
{
    const struct attn_halo *s = w->s;
    const int64_t columns = t->x_to - t->x_from;
    gather_window(w, s->heads * s->dk + head * s->dv, s->dv, t, y, rows);
    const struct attn_gemm_f32 g = { .a = w->keys,
                                     .a_row = rows * columns,
                                     .b =
                                         w->scores + (y - t->y_from) * columns * s->width,
                                     .b_row = s->width,
                                     .b_col = 1,
                                     .c = w->query,
                                     .c_row = s->width,
                                     .m = (size_t)s->dv,
                                     .n = (size_t)s->width,
                                     .k = (size_t)(rows * columns),
                                     .scratch = w->gemm,
                                     .accumulate = y > t->y_from };
    attn_map_product(w->step->kernels, g, NULL, NULL);
}

static void run_head(const struct attn_halo_worker *w, const struct halo_tile *t,
                     int64_t head)
{
    const struct attn_halo *s = w->s;
    const int64_t part = max64(1, KEYS / (t->x_to - t->x_from));
    load_queries(w, t, head);
    const int64_t keys = start_scores(w, t);
    for (int64_t y = t->y_from; y < t->y_to; y += part)
        add_products(w, t, head, y, min64(part, t->y_to - y));
    w->step->kernels->softmax_columns_f32(w->scores, w->scores, (size_t)keys,
                                          (size_t)s->width, (size_t)s->width, 0);
    for (int64_t y = t->y_from; y < t->y_to; y += part)
        softmax_values(w, t, head, y, min64(part, t->y_to - y));
    store_results(w, t, head, w->query);
}

static void set_shifts(const struct attn_halo_worker *w, const struct halo_tile *t)
{
    const int64_t n = t->rows * t->columns, width = w->s->width;
    for (int64_t i = 0; i < width; i++) {
        w->shifts[i] = i < n ? (int32_t)(i / t->columns) : 0;
        w->shifts[width + i] = i < n ? (int32_t)(i % t->columns) : 0;
    }
}

attn_status attn_halo_block(const struct attn_halo_worker *w, int64_t block_y,
                            int64_t block_x, int64_t from, int64_t to,
                            const attnrun_work *work)
{
    const struct attn_halo *s = w->s;
    const int64_t rows = min64(s->side, s->out_h - block_y * s->side);
    const int64_t columns = min64(s->side, s->out_w - block_x * s->side);
    struct halo_tile t = { .top = block_y * s->block - s->halo,
                           .left = block_x * s->block - s->halo };
    t.y_from = max64(0, -t.top);
    t.x_from = max64(0, -t.left);
    t.y_to = min64(s->window, s->map.height - t.top);
    t.x_to = min64(s->window, s->map.width - t.left);
    for (t.row = 0; t.row < rows; t.row += s->tile_rows)
        for (t.column = 0; t.column < columns; t.column += s->tile_columns) {
            t.y = block_y * s->side + t.row;
            t.x = block_x * s->side + t.column;
            t.rows = min64(s->tile_rows, rows - t.row);
            t.columns = min64(s->tile_columns, columns - t.column);
            set_shifts(w, &t);
            for (int64_t head = from; head < to; head++) {
                if (OP_CANCELLED(work))
                    return ATTNRUN_E_CANCELLED;
                run_head(w, &t, head);
            }
        }
    return ATTNRUN_OK;
}
