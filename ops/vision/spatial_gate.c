/* spatial_gate.c - computes gates of pixels, row by row. spatial_gate.h describes the
 * operands and the cost. */
#include "spatial_gate.h"

/* ---- sizes ---- */

enum {
    TILE = 128,       /* pixels of a tile at least */
    AT_ONCE = 1024,   /* pixels found at a time at most: a page of each plane */
    FLOATS = 1 << 19, /* of the map, that should stay in a cache */
    SLACK = 16        /* of a vector at most */
};

bool attn_spatial_plan(struct attn_spatial *plan, const struct attn_map *map,
                       int64_t kernel)
{
    const int64_t half = kernel / 2;
    struct attn_spatial p = { .map = *map, .kernel = kernel };
    int64_t floats, taps_bytes;
    p.around = min64(half, map->height - 1);
    p.beside = min64(half, map->width - 1);
    p.tile = min64(ceil_div(TILE, map->width), map->height);
    p.tiles = ceil_div(map->height, p.tile);
    p.at_once = min64(AT_ONCE, FLOATS / map->channels) / map->width;
    p.at_once = min64(p.at_once < p.tile ? p.tile : p.at_once, map->height);
    p.window = min64(p.at_once + 2 * p.around, map->height);
    p.taps = 2 * (2 * p.around + 1) * (2 * p.beside + 1);
    if (!ck_mul(map->width + 2 * p.beside, 2, &p.row) ||
        !ck_mul(p.row, p.window, &p.rows_floats) ||
        !ck_add(p.rows_floats, SLACK, &p.rows_floats) ||
        !ck_mul(2 * p.at_once, map->width, &p.tile_floats) ||
        !ck_mul(p.taps, 12, &taps_bytes) ||
        !ck_add(p.rows_floats, p.tile_floats, &floats) || !ck_mul(floats, 4, &floats) ||
        !ck_add(floats, taps_bytes, &p.scratch_bytes))
        return false;
    *plan = p;
    return true;
}

/* The parts of scratch. */
struct segments {
    int64_t *offsets; /* of a tap from m of the pixel's own row, column - beside */
    float *weights;   /* in the order of offsets: row, m or a, column */
    float *tile;      /* m and a of some rows; then s of them */
    float *rows;
};

static struct segments segments_of(const struct attn_spatial *p, void *scratch)
{
    struct segments s = { .offsets = scratch };
    s.weights = (float *)(s.offsets + p->taps);
    s.tile = s.weights + p->taps;
    s.rows = s.tile + p->tile_floats;
    return s;
}

void attn_spatial_begin(const struct attn_spatial_gate *gate, void *scratch)
{
    const struct attn_spatial *p = gate->plan;
    const struct segments s = segments_of(p, scratch);
    const float *w = gate->step->x[gate->ws].data;
    const int64_t half = p->kernel / 2, plane = p->row / 2;
    int64_t n = 0;
    for (int64_t i = -p->around; i <= p->around; i++)
        for (int64_t from = 0; from < 2; from++)
            for (int64_t j = -p->beside; j <= p->beside; j++, n++) {
                s.offsets[n] = i * p->row + from * plane + j + p->beside;
                s.weights[n] = w[(from * p->kernel + half + i) * p->kernel + half + j];
            }
    memset(s.rows, 0, (size_t)p->rows_floats * sizeof *s.rows);
}

/* ---- the walk ---- */

/* The rows of m and a that exist: first … end - 1. */
struct spatial_gate_walk {
    const struct attn_spatial_gate *gate;
    struct segments segments;
    int64_t first, end;
    const float *x, *g; /* of the image */
};

/* Adds up to at_once rows behind those that exist. */
static void add_rows(struct spatial_gate_walk *k, int64_t rows)
{
    const struct attn_spatial *p = k->gate->plan;
    const int64_t w = p->map.width, n = rows * w;
    const float share = 1.0f / (float)p->map.channels;
    float *max = k->segments.tile, *sum = max + n;
    const int64_t lanes = p->map.lanes;
    const struct attn_kernels *kernels = k->gate->step->kernels;
    (lanes > 1 ? kernels->blocked_pool_channels_f32 : kernels->pool_channels_f32)(
        max, sum, k->x + k->end * w * lanes, p->map.pixels * lanes, k->g,
        (size_t)p->map.channels, (size_t)n);
    for (int64_t i = 0; i < rows; i++) {
        float *to = k->segments.rows + (k->end - k->first + i) * p->row + p->beside;
        memcpy(to, max + i * w, (size_t)w * sizeof *to);
        to += p->row / 2;
        for (int64_t j = 0; j < w; j++)
            to[j] = sum[i * w + j] * share;
    }
    k->end += rows;
}

/* Keeps rows from `first` on and makes those up to `end`. */
static void move_window(struct spatial_gate_walk *k, int64_t first, int64_t end)
{
    const struct attn_spatial *p = k->gate->plan;
    if (k->end <= first) {
        k->first = k->end = first;
    } else if (first > k->first && end - k->first > p->window) {
        float *rows = k->segments.rows;
        memmove(rows, rows + (first - k->first) * p->row,
                (size_t)((k->end - first) * p->row) * sizeof *rows);
        k->first = first;
    }
    while (k->end < end)
        add_rows(k, min64(end - k->end, p->at_once));
}

/* Computes s of a row; all rows that it sees exist. */
static void gate_row(const struct spatial_gate_walk *k, int64_t y, float *s)
{
    const struct attn_spatial *p = k->gate->plan;
    const struct attn_spatial_gate *gate = k->gate;
    const int64_t of_row = p->taps / (2 * p->around + 1);
    const int64_t above = min64(p->around, y);
    const int64_t below = min64(p->around, p->map.height - 1 - y);
    const int64_t from = (p->around - above) * of_row;
    const float *bias = op_in_data(gate->step, gate->bs);
    gate->step->kernels->conv_taps_f32(
        s, p->map.width, k->segments.rows + (y - k->first) * p->row,
        k->segments.offsets + from, k->segments.weights + from,
        (above + below + 1) * of_row, bias != NULL ? *bias : 0.0f);
}

static attn_status do_rows(struct spatial_gate_walk *k, int64_t image, int64_t y,
                           int64_t rows)
{
    const struct attn_spatial_gate *gate = k->gate;
    const struct attn_spatial *p = gate->plan;
    const struct attn_map *map = &p->map;
    float *s = k->segments.tile;
    const int64_t min = y > p->around ? y - p->around : 0;
    move_window(k, min, min64(y + rows + p->around, map->height));
    for (int64_t i = 0; i < rows; i++)
        gate_row(k, y + i, s + i * map->width);
    attn_map_gate(gate->step, gate->gate, s, rows * map->width);
    struct attn_gate last = attn_residual_relu(
        gate->step, gate->x, gate->identity, gate->tail,
        map_place(map, image, 0) + y * map->width * map->lanes, map->pixels * map->lanes);
    last.blocks = map->lanes > 1;
    last.gate = k->g;
    last.pixels = s;
    last.planes = (size_t)(map->stored / map->lanes);
    last.n = (size_t)(rows * map->width);
    return attn_map_scale(gate->step, gate->work, &last);
}

attn_status attn_spatial_tiles(const struct attn_spatial_gate *gate, void *scratch,
                               int64_t image, int64_t begin, int64_t end, const float *g)
{
    const struct attn_spatial *p = gate->plan;
    const float *x = gate->step->x[gate->x].data;
    struct spatial_gate_walk k = { .gate = gate,
                                   .segments = segments_of(p, scratch),
                                   .x = x + map_place(&p->map, image, 0),
                                   .g = g };
    const int64_t last = min64(end * p->tile, p->map.height);
    for (int64_t y = begin * p->tile, rows; y < last; y += rows) {
        if (OP_CANCELLED(gate->work))
            return ATTNRUN_E_CANCELLED;
        rows = min64(p->at_once, last - y);
        TRY(do_rows(&k, image, y, rows));
    }
    return ATTNRUN_OK;
}
