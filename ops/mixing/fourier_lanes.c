/* fourier_lanes.c - FourierMix: transforms of one length over ATTN_FFT_LANES lines side
 * by side.
 *
 * In: n complex numbers of each line. Out: their transforms. A length N = A B of 256 or
 * more takes four steps: B transforms of length A over elements that are B apart,
 * rotations by e^(-2 pi i q k / N), and A transforms of length B. Each of these stays in
 * the first-level cache, and the whole block is read and written twice instead of once
 * for each radix. Between the steps a row of the block ends with one free element,
 * because otherwise all elements of a column would fall into a few lines of cache.
 * Lengths with a prime factor above 31 take Bluestein's method in f64 (ops/image/fft.h).
 * One twiddle in eight is computed; the others follow from it. Cost: O(n log n) a line.
 * Source: Bailey 1990 (four steps). */
#include "fourier_mix.h"

#include <math.h>

enum { LANES = FOURIER_LANES, ELEMENT = FOURIER_ELEMENT, MIN_SPLIT = 256 };
static const double pi = 3.14159265358979323846;

/* A = n / B, where B is the largest divisor up to the root of n. */
static int64_t split_at(const struct fft_plan *plan)
{
    const int64_t n = plan->n;
    int64_t b = (int64_t)sqrt((double)n);
    if (n < MIN_SPLIT || plan->length != n)
        return n;
    while (n % b != 0)
        b--;
    return n / b;
}

bool attn_fourier_plan(struct fourier_lanes *t, int64_t n)
{
    *t = (struct fourier_lanes){ 0 };
    if (!attn_fft_plan(&t->plan, n))
        return false;
    const int64_t a = split_at(&t->plan);
    if (!attn_fft_plan(&t->parts[0], a) || !attn_fft_plan(&t->parts[1], n / a))
        return false;
    t->wide = t->plan.length != n;
    const int64_t line = (int64_t)sizeof(struct complex64);
    const int64_t element = ELEMENT * (int64_t)sizeof(float);
    t->table_bytes = n * 2 * (int64_t)sizeof(float);
    t->block_bytes = n * element;
    t->work_bytes = t->block_bytes;
    if (t->wide) {
        t->table_bytes = attn_fft_table_size(&t->plan) * line;
        t->work_bytes = max64(t->work_bytes, (n + attn_fft_work_size(&t->plan)) * line);
    } else if (fourier_split(t)) {
        t->table_bytes += (a + n / a) * 2 * (int64_t)sizeof(float);
        t->work_bytes += a * element;
        t->line_bytes = a * element;
    }
    return ck_align(t->table_bytes, 64, &t->table_bytes) &&
           ck_align(t->work_bytes, 64, &t->work_bytes);
}

struct fourier_room attn_fourier_room(const struct fourier_lanes *t, float *scratch,
                                      bool with_block)
{
    struct fourier_room r = { .work = scratch };
    r.line[0] = scratch + t->work_bytes / (int64_t)sizeof *scratch;
    r.line[1] = r.line[0] + t->line_bytes / (int64_t)sizeof *scratch;
    if (with_block)
        r.block = r.line[1] + t->line_bytes / (int64_t)sizeof *scratch;
    return r;
}

/* Computes w[t] = e^(-2 pi i t / n), t < n. */
static void make_roots(float *w, int64_t n)
{
    const int64_t n_computed = n % 8 == 0 ? n / 8 + 1 : n;
    for (int64_t i = 0; i < n_computed; i++) {
        const double angle = 2.0 * pi * (double)i / (double)n;
        w[2 * i] = (float)cos(angle);
        w[2 * i + 1] = (float)-sin(angle);
    }
    if (n_computed == n)
        return;
    for (int64_t i = 0; i < n / 8; i++) { /* mirrored at an eighth of the circle … */
        w[2 * (n / 4 - i)] = -w[2 * i + 1];
        w[2 * (n / 4 - i) + 1] = -w[2 * i];
    }
    for (int64_t i = n / 4 + 1; i < n; i++) { /* … and rotated by -i for each quarter */
        w[2 * i] = w[2 * (i - n / 4) + 1];
        w[2 * i + 1] = -w[2 * (i - n / 4)];
    }
}

void attn_fourier_table(const struct fourier_lanes *t, void *table, void *work)
{
    const int64_t n = t->plan.n, a = t->parts[0].n, b = t->parts[1].n;
    float *w = table, *roots = work;
    if (t->wide) {
        attn_fft_make_table(&t->plan, table, work);
        return;
    }
    if (!fourier_split(t)) {
        make_roots(w, n);
        return;
    }
    make_roots(roots, n);
    for (int64_t k = 0; k < a; k++, w += 2)
        memcpy(w, roots + 2 * k * b, 2 * sizeof *w);
    for (int64_t k = 0; k < b; k++, w += 2)
        memcpy(w, roots + 2 * k * a, 2 * sizeof *w);
    for (int64_t q = 0; q < b; q++)
        for (int64_t k = 0; k < a; k++, w += 2)
            memcpy(w, roots + 2 * q * k, 2 * sizeof *w);
}

static void run_wide(const struct fourier_lanes *t, const void *table, float *x,
                     void *work)
{
    struct complex64 *line = work;
    for (int lane = 0; lane < LANES; lane++) {
        for (int64_t i = 0; i < t->plan.n; i++)
            line[i] = (struct complex64){ (double)x[i * ELEMENT + lane],
                                          (double)x[i * ELEMENT + LANES + lane] };
        attn_fft(&t->plan, table, line, line + t->plan.n, false);
        for (int64_t i = 0; i < t->plan.n; i++) {
            x[i * ELEMENT + lane] = (float)line[i].re;
            x[i * ELEMENT + LANES + lane] = (float)line[i].im;
        }
    }
}

/* Computes a whole transform with the roots of its length. */
static float *run_line(const struct attn_kernels *kernels, const struct fft_plan *plan,
                       const float *roots, const struct fourier_line *l)
{
    struct attn_fft_pass pass = { .table = roots, .length = plan->n, .s = 1 };
    const float *from = l->x;
    float *to = l->room[0];
    int64_t left = plan->n;
    for (int i = 0; i < plan->n_factors; i++) {
        const bool to_y = i + 1 == plan->n_factors && l->y != NULL;
        to = to_y ? l->y : from == l->room[0] ? l->room[1] : l->room[0];
        pass.radix = plan->factors[i];
        left /= pass.radix;
        pass.m = left;
        pass.x_row = i == 0 ? l->x_row : ELEMENT;
        pass.x_im = i == 0 ? l->x_im : LANES;
        pass.y_row = to_y ? l->y_row : ELEMENT;
        pass.y_im = to_y ? l->y_im : LANES;
        kernels->fft_pass_f32(to, from, &pass);
        pass.s *= pass.radix;
        from = to;
    }
    return to;
}

float *attn_fourier_part(const struct fourier_lanes *t,
                         const struct attn_kernels *kernels, const float *table, int part,
                         const struct fourier_line *l)
{
    const float *roots = table + (part == 0 ? 0 : 2 * t->parts[0].n);
    return run_line(kernels, &t->parts[part], roots, l);
}

const float *attn_fourier_rotations(const struct fourier_lanes *t, const float *table,
                                    int64_t q)
{
    const int64_t a = t->parts[0].n, b = t->parts[1].n;
    return table + 2 * (a + b) + 2 * q * a;
}

static void run_split(const struct fourier_lanes *t, const struct attn_kernels *kernels,
                      const float *table, const struct fourier_room *r)
{
    const int64_t a = t->parts[0].n, b = t->parts[1].n;
    struct fourier_line l = { .x_row = b * ELEMENT, .x_im = LANES, .y_im = LANES };
    l.room[0] = r->line[0];
    l.room[1] = r->line[1];
    for (int64_t q = 0; q < b; q++) {
        l.x = r->block + q * ELEMENT;
        kernels->fft_rotate_f32(r->work + q * ELEMENT, (b + 1) * ELEMENT, LANES,
                                attn_fourier_part(t, kernels, table, 0, &l), (size_t)a,
                                attn_fourier_rotations(t, table, q));
    }
    l.x_row = ELEMENT;
    l.y_row = a * ELEMENT;
    for (int64_t k = 0; k < a; k++) {
        l.x = r->work + k * (b + 1) * ELEMENT;
        l.y = r->block + k * ELEMENT;
        attn_fourier_part(t, kernels, table, 1, &l);
    }
}

float *attn_fourier_run(const struct fourier_lanes *t, const struct attn_kernels *kernels,
                        const void *table, const struct fourier_room *r)
{
    const struct fourier_line l = {
        .x = r->block, .x_row = ELEMENT, .x_im = LANES, .room = { r->block, r->work }
    };
    if (t->plan.n == 1)
        return r->block;
    if (!t->wide && !fourier_split(t))
        return run_line(kernels, &t->plan, table, &l);
    if (t->wide)
        run_wide(t, table, r->block, r->work);
    else
        run_split(t, kernels, table, r);
    return r->block;
}

void attn_fourier_load_rows(const struct attn_kernels *kernels, float *block,
                            const float *x, ptrdiff_t row, int64_t n_rows, int64_t c)
{
    if (n_rows < ELEMENT)
        memset(block, 0, (size_t)(c * ELEMENT) * sizeof *block);
    kernels->transpose_f32(block, ELEMENT, x, row, (size_t)n_rows, (size_t)c);
}
