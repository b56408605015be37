/* winograd_f32.c - the transforms of Winograd's F(2 x 2, 3 x 3), for one block of 16 channels:
 * struct attn_winograd and struct attn_winograd_weights.
 *
 *   winograd_input_f32     d, 4 x 4 pixels of the map          ->  16 places of B' d B
 *   winograd_output_f32    m, 16 sums of products              ->  2 x 2 pixels of A' m A
 *   winograd_weights_f32   g, 3 x 3 weights of f16 or bf16     ->  16 places of G g G'
 *
 *        1  0 -1  0          1  1  1  0           1    0    0
 *   B' = 0  1  1  0     A' = 0  1 -1 -1     G =  1/2  1/2  1/2
 *        0 -1  1  0                              1/2 -1/2  1/2
 *        0  1  0 -1                               0    0    1
 *
 * Pixels outside the map count as 0. Neighbouring tiles of a line share two columns of pixels,
 * whose sums are computed once. Pixels of a tile are as far apart as the taps of a dilated kernel.
 * Cost: about 24 additions a tile and channel in each direction; 35 operations and 16 stores for
 * the 9 taps of a column and channel.
 * Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2016. */
#include "isa.h"

enum { IN = 4, OUT = 2 };

/* B' of four things. */
static ALWAYS_INLINE void transform(v_f32 *to, v_f32 a, v_f32 b, v_f32 c, v_f32 d)
{
    to[0] = a - c;
    to[1] = b + c;
    to[2] = c - b;
    to[3] = b - d;
}

/* A column of four pixels, `valid` (bit i: row i is in the map), added up down the rows. */
static ALWAYS_INLINE void load_column(v_f32 *to, const float *x, int64_t row, int valid)
{
    const v_f32 zero = { 0 };
    const v_f32 a = valid & 1 ? v_load(x) : zero;
    const v_f32 b = valid & 2 ? v_load(x + row) : zero;
    const v_f32 c = valid & 4 ? v_load(x + 2 * row) : zero;
    const v_f32 d = valid & 8 ? v_load(x + 3 * row) : zero;
    transform(to, a, b, c, d);
}

static ALWAYS_INLINE int valid_rows(int64_t first, int64_t apart, int64_t height)
{
    int valid = 0;
    for (int i = 0; i < IN; i++)
        valid |= (first + i * apart >= 0 && first + i * apart < height) << i;
    return valid;
}

/* Tiles from t on that are of the same line. */
static ALWAYS_INLINE int64_t tiles_of_line(const struct attn_winograd *w, int64_t t)
{
    const int64_t left = w->first + w->n - t;
    const int64_t of_line = w->tile_columns - t % w->tile_columns;
    return of_line < left ? of_line : left;
}

/* `n` tiles of a line, from tile `from` of it on. */
static ALWAYS_INLINE void input_line(const struct attn_winograd *w, int64_t line,
                                     int64_t from, int64_t n, float *places, int lane)
{
    const int64_t width = w->in[1], below = w->dilation[0], beside = w->dilation[1];
    const int64_t row = below * width * ATTN_BLOCK, pixel = beside * ATTN_BLOCK;
    int64_t top, left;
    attn_winograd_line(w, line, &top, &left);
    top -= w->before[0];
    left += from * OUT * beside - w->before[1];
    const int valid = valid_rows(top, below, w->in[0]);
    const float *x = w->x + (top * width + left) * ATTN_BLOCK + lane;
    v_f32 columns[IN][IN];
    for (int j = 0; j < 2; j++)
        load_column(columns[j], x + j * pixel, row,
                    left + j * beside >= 0 && left + j * beside < width ? valid : 0);
    left += OUT * beside; /* of the third column */
    for (; n > 0; n--, left += OUT * beside, places += ATTN_BLOCK) {
        x += OUT * pixel;
        if (valid == 15 && left >= 0 && left + beside < width) {
            load_column(columns[2], x, row, 15);
            load_column(columns[3], x + pixel, row, 15);
        } else {
            for (int j = 0; j < 2; j++)
                load_column(columns[OUT + j], x + j * pixel, row,
                            left + j * beside >= 0 && left + j * beside < width ? valid
                                                                                : 0);
        }
        UNROLL
        for (int i = 0; i < IN; i++) {
            v_f32 places_of[IN];
            transform(places_of, columns[0][i], columns[1][i], columns[2][i],
                      columns[3][i]);
            UNROLL
            for (int j = 0; j < IN; j++)
                v_store(places + (i * IN + j) * w->plane, places_of[j]);
        }
        UNROLL
        for (int i = 0; i < IN; i++) {
            columns[0][i] = columns[2][i];
            columns[1][i] = columns[3][i];
        }
    }
}

void K(winograd_input_f32)(const struct attn_winograd *w)
{
    if (attn_poll_work(w->n * ATTN_WINOGRAD_PLACES * 2 * ATTN_BLOCK * 4) != ATTNRUN_OK)
        return;
    for (int lane = 0; lane < ATTN_BLOCK; lane += VF)
        for (int64_t t = w->first, n; t < w->first + w->n; t += n) {
            n = tiles_of_line(w, t);
            input_line(w, t / w->tile_columns, t % w->tile_columns, n,
                       w->places + (t - w->first) * ATTN_BLOCK + lane, lane);
        }
}

/* The outputs of a tile whose first one is at (row, column). */
static ALWAYS_INLINE void output_tile(const struct attn_winograd *w, const float *m,
                                      int64_t row, int64_t column, int lane)
{
    const int64_t below = w->dilation[0], beside = w->dilation[1];
    const v_f32 min = v_set(w->min), max = v_set(w->max);
    const v_f32 bias = v_load(w->bias + lane);
    const v_f32 scale = w->scale != NULL ? v_load(w->scale + lane) : v_set(1.0f);
    v_f32 sums[OUT][IN];
    UNROLL
    for (int j = 0; j < IN; j++) {
        const v_f32 a = v_load(m + j * w->plane), b = v_load(m + (IN + j) * w->plane);
        const v_f32 c = v_load(m + (2 * IN + j) * w->plane);
        const v_f32 d = v_load(m + (3 * IN + j) * w->plane);
        sums[0][j] = a + b + c;
        sums[1][j] = b - c - d;
    }
    UNROLL
    for (int i = 0; i < OUT; i++) {
        const v_f32 *s = sums[i];
        v_f32 y[OUT] = { bias + scale * (s[0] + s[1] + s[2]),
                         bias + scale * (s[1] - s[2] - s[3]) };
        const int64_t h = row + i * below;
        if (h >= w->out[0])
            break;
        UNROLL
        for (int j = 0; j < OUT; j++) {
            const int64_t at = (h * w->out[1] + column + j * beside) * ATTN_BLOCK + lane;
            if (column + j * beside >= w->out[1])
                break;
            if (w->z != NULL)
                y[j] += v_load(w->z + at);
            v_store(w->y + at, v_min(max, v_max(min, y[j])));
        }
    }
}

void K(winograd_output_f32)(const struct attn_winograd *w)
{
    if (attn_poll_work(w->n * ATTN_WINOGRAD_PLACES * 2 * ATTN_BLOCK * 4) != ATTNRUN_OK)
        return;
    for (int lane = 0; lane < ATTN_BLOCK; lane += VF) {
        const float *m = w->places + lane;
        for (int64_t t = w->first, n; t < w->first + w->n; t += n) {
            int64_t row, column;
            n = tiles_of_line(w, t);
            attn_winograd_line(w, t / w->tile_columns, &row, &column);
            column += t % w->tile_columns * OUT * w->dilation[1];
            for (int64_t i = 0; i < n; i++, m += ATTN_BLOCK)
                output_tile(w, m, row, column + i * OUT * w->dilation[1], lane);
        }
    }
}

/* ---- weights ---- */

/* A row of G g G' from a row of G g. */
static ALWAYS_INLINE void put_places(float *y, int64_t place, v_f32 a, v_f32 b, v_f32 c)
{
    const v_f32 half = v_set(0.5f), ends = half * (a + c), middle = half * b;
    v_store(y, a);
    v_store(y + place, ends + middle);
    v_store(y + 2 * place, ends - middle);
    v_store(y + 3 * place, c);
}

static ALWAYS_INLINE void transform_weights(const struct attn_winograd_weights *p,
                                            const bool f16)
{
    const v_f32 half = v_set(0.5f);
    const int64_t line = 3 * p->width; /* from a row of g to the next */
    const uint16_t *w = p->w;
    float *y = p->y;
    for (int64_t c = 0; c < p->channels; c++, w += 3 * line, y += p->width)
        for (int64_t i = 0; i < p->width; i += VF) {
            v_f32 rows[IN][3]; /* of G g */
            UNROLL
            for (int j = 0; j < 3; j++) {
                const uint16_t *g = w + j * p->width + i;
                const v_f32 first = v_load_half(g, f16);
                const v_f32 last = v_load_half(g + 2 * line, f16);
                const v_f32 ends = half * (first + last);
                const v_f32 middle = half * v_load_half(g + line, f16);
                rows[0][j] = first;
                rows[1][j] = ends + middle;
                rows[2][j] = ends - middle;
                rows[3][j] = last;
            }
            UNROLL
            for (int k = 0; k < IN; k++)
                put_places(y + k * IN * p->place + i, p->place, rows[k][0], rows[k][1],
                           rows[k][2]);
        }
}

void K(winograd_weights_f32)(const struct attn_winograd_weights *p)
{
    if (attn_poll_work(p->channels * p->width * 9 * 8) != ATTNRUN_OK)
        return;
    if (p->w_type == ATTN_B_F16)
        transform_weights(p, true);
    else
        transform_weights(p, false);
}
