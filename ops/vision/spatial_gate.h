/* spatial_gate.h - gates of pixels, computed from the channels of each pixel. m_p and a_p
 * are the maximum and the mean over c of v[c,p] = g_c x[c,p]. Then
 *
 *   s_p = gate(bs + sum over i, j of ws[0,i,j] m(p + δ) + ws[1,i,j] a(p + δ))
 *   Y[c,p] = post(v[c,p] s_p + identity[c,p])
 *
 * with zeros around the map. The work goes in tiles of rows: first m and a of the rows
 * that a tile needs, then its s and Y while its x is still in a cache. Neither v nor a
 * plane of m, a or s exists. A worker whose first tile is not at the top computes the
 * rows above it again.
 *
 *   infer:  attn_spatial_plan()
 *   run:    attn_spatial_begin(); attn_spatial_tiles() for each image
 *
 * Cost: 4 K^2 FLOPs a pixel, and two reads of x. Scratch: K rows of m and a, and a tile
 * of s. */
#ifndef ATTN_SPATIAL_GATE_H
#define ATTN_SPATIAL_GATE_H

#include "gated_maps.h"

struct attn_spatial {
    struct attn_map map;
    int64_t kernel;         /* K, odd */
    int64_t around, beside; /* rows above a pixel, columns beside it, that it sees */
    int64_t tile, tiles;    /* rows of a task; tasks of an image */
    int64_t at_once;        /* rows that a worker finds at a time: some tiles */
    int64_t window;         /* rows of m and a that are kept */
    int64_t row;            /* floats of one of them: m, then a, both padded */
    int64_t taps;           /* of a pixel inside the map */
    int64_t tile_floats, rows_floats; /* of s, and of the window */
    int64_t scratch_bytes;
};

/* What stays the same for all images. */
struct attn_spatial_gate {
    const attnrun_step *step;
    const attnrun_work *work;
    const struct attn_spatial *plan;
    int x, ws, bs, identity; /* inputs */
    int32_t gate, tail;      /* words */
};

/* False where the sizes overflow. */
bool attn_spatial_plan(struct attn_spatial *plan, const struct attn_map *map,
                       int64_t kernel);
/* The taps, for runs with this scratch. */
void attn_spatial_begin(const struct attn_spatial_gate *gate, void *scratch);
/* Tiles begin … end - 1 of an image with channel gates g (NULL: all 1). */
attn_status attn_spatial_tiles(const struct attn_spatial_gate *gate, void *scratch,
                               int64_t image, int64_t begin, int64_t end, const float *g);

#endif
