/* halo.h - what infer and run of HaloAttention share. halo_attention.c has the formula.
 */
#ifndef ATTN_HALO_H
#define ATTN_HALO_H

#include "gated_maps.h"

struct attn_halo_args {
    int64_t num_heads, block_size, halo_size, rel_scaled, q_stride, allow_partial;
    float scale;
    int32_t padding;
};
enum { ATTN_HALO_ATTEND, ATTN_HALO_MASK, ATTN_HALO_INVERTED };

enum { X, WQ, WK, WV, REL_H, REL_W, BQ, BK, BV, WO, BO };
enum { VALUES, QUERIES, BLOCKS, RESULTS }; /* phases */
enum {
    ROWS = OP_PRODUCT_ROWS, /* of a product */
    PIXELS = 128,           /* that are multiplied with weights at one time, at most */
    KEYS = OP_PRODUCT_TERMS /* that are multiplied at one time, or a row of a window */
};

/* Planes of rows of pixels, in chunks of `chunk_rows` rows, plane by plane. Chunk i is in
 * slot i % slots: all of an image, or those that are worked on. */
struct attn_halo_grid {
    int64_t chunk_rows, chunks, slots, planes;
    int64_t columns; /* at most */
    int64_t chunk_floats, floats;
};

struct attn_halo {
    struct attn_map map;
    int64_t heads, dk, dv, out_channels;
    int64_t block, halo, window, stride;
    int64_t side;          /* queries along a block: block / stride */
    int64_t rows, columns; /* of blocks in an image */
    int64_t out_h, out_w;
    float scale;
    bool relative;
    /* Queries whose scores exist at one time, `width` with those that fill vectors up. */
    int64_t tile_rows, tile_columns, width, keys;
    /* All of each image exists at one time; else each task has a region of blocks. */
    bool whole;
    int64_t y_regions, x_regions, region_rows, region_columns;
    /* By phase: tasks of a chunk, which cut the rows of the weights, and of a block, which cut
     * its heads. */
    int64_t parts[RESULTS + 1];
    /* K (heads * dk planes) and V (heads * dv); Q and what becomes of it, in its place
     * where dk = dv. */
    struct attn_halo_grid values, queries;
    /* Floats of a worker's parts. */
    int64_t gemm_floats, panel_floats, gather_floats, key_floats, rel_floats,
        score_floats, query_floats, out_floats;
};

/* The first plane of results among the queries. */
static inline int64_t attn_halo_results(const struct attn_halo *s)
{
    return s->dk == s->dv ? 0 : s->heads * s->dk;
}

/* A grid in memory: of one image, columns first … first + columns - 1. */
struct attn_halo_store {
    const struct attn_halo_grid *grid;
    float *data;
    int64_t first, columns;
};
/* Plane `plane` of pixel (y, x), and how far it is to the next plane. */
static inline float *attn_halo_at(const struct attn_halo_store *t, int64_t plane,
                                  int64_t y, int64_t x)
{
    const struct attn_halo_grid *g = t->grid;
    return t->data + y / g->chunk_rows % g->slots * g->chunk_floats +
           (plane * g->chunk_rows + y % g->chunk_rows) * t->columns + x - t->first;
}
static inline int64_t attn_halo_plane(const struct attn_halo_store *t)
{
    return t->grid->chunk_rows * t->columns;
}

/* What a worker has. */
struct attn_halo_worker {
    const attnrun_step *step;
    const struct attn_halo *s;
    int64_t image;
    struct attn_halo_store values, queries;
    int64_t
        chunk;   /* whose pixels are in `panels`, where parts of it are tasks; else -1 */
    bool loaded; /* the pixels are those of the task before */
    int64_t part, parts;
    float *gemm, *panels, *gathered, *keys, *relative, *scores, *query, *out;
    int32_t *shifts; /* of queries: of their row, of their column */
    float *own;      /* the stores of a region */
};

/* Results of heads from … to - 1 of a block: windows in values, Q and results in
 * queries. */
attn_status attn_halo_block(const struct attn_halo_worker *w, int64_t block_y,
                            int64_t block_x, int64_t from, int64_t to,
                            const attnrun_work *work);
/* Plan, tasks and run; the second ones for padding "inverted", where all weights of a
 * query are equal, or are those of padding. */
attn_status attn_halo_plan(attnrun_step *step, struct attn_halo *s);
attn_status attn_halo_run(const attnrun_step *step, const attnrun_work *work);
attn_status attn_halo_mean_plan(attnrun_step *step, struct attn_halo *s);
attn_status attn_halo_mean_run(const attnrun_step *step, const attnrun_work *work);

#endif
