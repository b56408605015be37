/* fourier_rows.c - FourierMix of long sequences, N = A B. It reads and writes whole rows.
 *
 * Phase 1, for each q < B: the rows q, q + B, … of X are transformed over the channels.
 * Of their spectra the real parts of c < C / 2 come first, then the real part of C / 2
 * and the imaginary parts of the others. Column c and column C / 2 + c are then one
 * complex column, and c = 0 holds two real columns. These are transformed over the A
 * rows, rotated, and stored as rows q A … of Y. Phase 2, for each k <= A / 2: the rows k,
 * k + A, … and -k, -k + A, … of that are transformed over their B elements and replaced
 * by Y[n, c] = Re Z_c[n] and Y[n, C - c] = Re Z_c[-n]. Column 0 holds a + i b of two real
 * columns, whose real parts are half of Z[n] + Z[-n].
 *
 * In: X. Out: Y, which also holds the numbers between the phases. Cost: as in
 * fourier_mix.c. Memory is read and written in rows of 2 C bytes or more, by copies to
 * and from tiles in the second-level cache; columns would use 64 bytes of each row at a
 * time. */
#include "fourier_mix.h"
#include "../tile.h"

enum { LANES = FOURIER_LANES, ELEMENT = FOURIER_ELEMENT, MAX_TILE = 1 << 20 };

/* The floats of a row of a tile: rows that are a multiple of 4 KiB apart would share a
 * few lines of cache. */
static int64_t tile_row(const struct fourier_state *s) { return s->c + LANES; }

static int64_t tile_bytes(const struct fourier_state *s)
{
    return s->tokens.parts[0].n * tile_row(s) * (int64_t)sizeof(float);
}

bool attn_fourier_rows_fit(const struct fourier_state *s)
{
    return fourier_split(&s->tokens) && s->c % ELEMENT == 0 &&
           s->tokens.parts[0].n <= MAX_TILE / (s->c + LANES);
}

int64_t attn_fourier_rows_scratch(const struct fourier_state *s)
{
    return 2 * s->tokens.line_bytes + 2 * tile_bytes(s) +
           fourier_rows_bytes(&s->channels);
}

/* Transforms of tokens between rows of a tile and rows of Y. */
static struct fourier_line line_of(const struct fourier_state *s, float *scratch)
{
    struct fourier_line l = { .x_im = s->c / 2, .y_im = s->c / 2 };
    l.room[0] = scratch;
    l.room[1] = scratch + s->tokens.line_bytes / (int64_t)sizeof *scratch;
    return l;
}

/* Computes the spectra of n rows, `row` floats apart, as rows of the tile. */
static void transform_rows(const attnrun_step *step, const attnrun_work *work,
                           const float *x, int64_t row, int64_t n, float *tile,
                           float *scratch)
{
    const struct fourier_state *s = step->state;
    const char *table = (const char *)work->shared + s->tokens.table_bytes;
    const struct fourier_room r = attn_fourier_room(&s->channels, scratch, true);
    for (int64_t t = 0; t < n; t += ELEMENT) {
        const int64_t rows = n - t < ELEMENT ? n - t : ELEMENT;
        attn_fourier_load_rows(step->kernels, r.block, x + t * row, (ptrdiff_t)row, rows,
                               s->c);
        float *got = attn_fourier_run(&s->channels, step->kernels, table, &r);
        float *halves = got == r.block ? r.work : r.block;
        step->kernels->fft_halves_f32(halves, got, (size_t)s->c, 1);
        step->kernels->transpose_f32(tile + t * tile_row(s), (ptrdiff_t)tile_row(s),
                                     halves, ELEMENT, (size_t)s->c, (size_t)rows);
    }
}

void attn_fourier_rows_first(const attnrun_step *step, const attnrun_work *work,
                             int64_t task)
{
    const struct fourier_state *s = step->state;
    const int64_t a = s->tokens.parts[0].n, b = s->tokens.parts[1].n;
    const int64_t q = op_take(&task, b), at = task * s->n * s->c;
    const float *rotations = attn_fourier_rotations(&s->tokens, work->shared, q);
    float *y = (float *)step->y[0].data + at + q * a * s->c;
    struct fourier_line l = line_of(s, work->scratch);
    float *tile = l.room[1] + s->tokens.line_bytes / (int64_t)sizeof *tile;
    transform_rows(step, work, (const float *)step->x[0].data + at + q * s->c, b * s->c,
                   a, tile, tile + a * tile_row(s));
    l.x_row = tile_row(s);
    for (int64_t c = 0; c < s->c / 2; c += LANES) {
        l.x = tile + c;
        const float *got =
            attn_fourier_part(&s->tokens, step->kernels, work->shared, 0, &l);
        step->kernels->fft_rotate_f32(tile + c, tile_row(s), s->c / 2, got, (size_t)a,
                                      rotations);
    }
    for (int64_t k = 0; k < a; k++)
        memcpy(y + k * s->c, tile + k * tile_row(s), (size_t)s->c * sizeof *y);
}

/* Stores row n = k + A i of Y from Z[n] and Z[-n]. */
static void store_row(const attnrun_step *step, float *y, const float *z,
                      const float *opposite)
{
    const struct fourier_state *s = step->state;
    const int64_t half = s->c / 2;
    memcpy(y, z, (size_t)half * sizeof *y);
    step->kernels->reverse_f32(y + half + 1, opposite + 1, (size_t)half - 1);
    y[0] = 0.5f * (z[0] + opposite[0]);
    y[half] = 0.5f * (z[half] + opposite[half]);
}

/* Stores rows k, k + A, … from Z at these and at the opposite rows. */
static void store_rows(const attnrun_step *step, float *y, int64_t k, const float *z,
                       const float *opposite)
{
    const struct fourier_state *s = step->state;
    const int64_t a = s->tokens.parts[0].n, b = s->tokens.parts[1].n, row = tile_row(s);
    for (int64_t i = 0; i < b; i++) {
        const int64_t j = k == 0 ? (b - i) % b : b - 1 - i;
        store_row(step, y + (k + a * i) * s->c, z + i * row, opposite + j * row);
    }
}

void attn_fourier_rows_second(const attnrun_step *step, const attnrun_work *work,
                              int64_t task)
{
    const struct fourier_state *s = step->state;
    const int64_t a = s->tokens.parts[0].n, b = s->tokens.parts[1].n;
    const int64_t k = op_take(&task, a / 2 + 1), other = (a - k) % a;
    float *y = (float *)step->y[0].data + task * s->n * s->c;
    struct fourier_line l = line_of(s, work->scratch);
    float *tile = l.room[1] + s->tokens.line_bytes / (int64_t)sizeof *tile;
    float *tiles[2] = { tile, tile + (other == k ? 0 : b * tile_row(s)) };
    l.x_row = l.y_row = tile_row(s);
    for (int side = 0; side < (other == k ? 1 : 2); side++) {
        const float *rows = y + (side == 0 ? k : other) * s->c;
        for (int64_t i = 0; i < b; i++)
            memcpy(tiles[side] + i * tile_row(s), rows + i * a * s->c,
                   (size_t)s->c * sizeof *y);
        for (int64_t c = 0; c < s->c / 2; c += LANES) {
            l.x = l.y = tiles[side] + c; /* one pass alone reads before it writes */
            attn_fourier_part(&s->tokens, step->kernels, work->shared, 1, &l);
        }
    }
    store_rows(step, y, k, tiles[0], tiles[1]);
    if (other != k)
        store_rows(step, y, other, tiles[1], tiles[0]);
}
