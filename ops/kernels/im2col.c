/* im2col.c - the columns of a tile of output pixels of a convolution, packed in the
 * panels that gemm_f32 reads. image_types.h describes the operands (struct attn_im2col).
 *
 * A line holds what one tap reads for all pixels of a chunk. It is joined from segments,
 * one per output row. A segment is copied in whole vectors, past its ends, and the
 * padding in it is zeroed afterwards; the next segment overwrites what went too far.
 * LINES lines are filled before they are copied into the panels, because reading at once
 * what was just written at other boundaries would wait for the stores.
 *
 * Where rows of the output are as long as those of the input and strides are 1, a tap is
 * the plane at an offset, with a mask for the pixels outside, and there are no lines.
 * Cost: one copy for each tap. */
#include "lanes.h"

enum { NR = 2 * VF, LINES = ATTN_IM2COL_LINES, CHUNK = 128 };

#define INLINE static inline __attribute__((always_inline))

/* Output pixels of one row: where the row of tap 0 lies in the input, the first column,
 * and how many. `x` is that row for the current channel and outer kernel indices, or
 * NULL. */
struct segment {
    int64_t d, h, column, n;
    const float *x;
};

struct chunk {
    const struct attn_im2col *t;
    int64_t pixel, n, n_segments;
    struct segment segments[CHUNK];
    int64_t channel, at[3]; /* the current tap */
};

static void find_segments(struct chunk *c)
{
    const struct attn_im2col *t = c->t;
    int64_t row = c->pixel / t->out[2], column = c->pixel % t->out[2];
    int64_t od = row / t->out[1], oh = row % t->out[1];
    c->n_segments = 0;
    for (int64_t left = c->n; left > 0;) {
        struct segment *s = &c->segments[c->n_segments++];
        s->d = od * t->stride[0] - t->before[0];
        s->h = oh * t->stride[1] - t->before[1];
        s->column = column;
        s->n = t->out[2] - column < left ? t->out[2] - column : left;
        left -= s->n;
        column = 0;
        if (++oh == t->out[1]) {
            oh = 0;
            od++;
        }
    }
}

static void find_rows(struct chunk *c)
{
    const struct attn_im2col *t = c->t;
    int64_t kd = c->at[0] * t->dilation[0], kh = c->at[1] * t->dilation[1];
    const float *x = t->x + c->channel * t->in[0] * t->in[1] * t->in[2];
    for (int64_t i = 0; i < c->n_segments; i++) {
        struct segment *s = &c->segments[i];
        int64_t d = s->d + kd, h = s->h + kh;
        bool inside = d >= 0 && d < t->in[0] && h >= 0 && h < t->in[1];
        s->x = inside ? x + (d * t->in[1] + h) * t->in[2] : NULL;
    }
}

/* Output columns [*from, *to) that see the input for kernel column `kw`. */
static void find_columns(const struct attn_im2col *t, int64_t kw, int64_t *from,
                         int64_t *to)
{
    int64_t s = t->stride[2], shift = t->before[2] - kw * t->dilation[2];
    int64_t lo = shift > 0 ? shift : 0, hi = t->in[2] + shift;
    if (s > 1) {
        lo = (lo + s - 1) / s;
        hi = hi > 0 ? (hi - 1) / s + 1 : 0;
    }
    *to = hi < t->out[2] ? hi : t->out[2];
    *from = lo < *to ? lo : *to;
}

INLINE int64_t clamp(int64_t x, int64_t lo, int64_t hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

/* Mostly none or one: the empty statement keeps the compiler from making vectors of
 * it. */
INLINE void put_zeros(float *line, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        __asm__ volatile("");
        line[i] = 0.0f;
    }
}

/* line[0 … n - 1] from the row s->x; columns outside of [from, to) are zero. */
INLINE void put_segment(const struct attn_im2col *t, const struct segment *s, float *line,
                        int64_t shift, int64_t from, int64_t to)
{
    const float *x = s->x + s->column * t->stride[2] + shift;
    int64_t lo = clamp(from - s->column, 0, s->n), hi = clamp(to - s->column, lo, s->n);
    if (t->stride[2] == 1 && x >= t->x && t->x_end - x >= s->n + VF) {
        for (int64_t i = 0; i < s->n; i += VF)
            v_store(line + i, v_load(x + i));
    } else if (t->stride[2] == 1) {
        for (int64_t i = lo; i < hi; i++)
            line[i] = x[i];
    } else if (t->stride[2] == 2) {
        for (int64_t i = lo; i < hi; i++)
            line[i] = x[2 * i];
    } else {
        for (int64_t i = lo; i < hi; i++)
            line[i] = x[t->stride[2] * i];
    }
    put_zeros(line, lo);
    put_zeros(line + hi, s->n - hi);
}

/* The current tap's line: in `line`, or where the pixels lie one after the other. */
static const float *put_line(const struct chunk *c, float *line)
{
    const struct attn_im2col *t = c->t;
    const float *const start = line;
    int64_t from, to, shift = c->at[2] * t->dilation[2] - t->before[2];
    find_columns(t, c->at[2], &from, &to);
    const struct segment *s = c->segments;
    if (c->n_segments == 1 && s->x != NULL && t->stride[2] == 1 && s->column >= from &&
        s->column + s->n <= to && t->x_end - s->x - s->column - shift >= s->n + NR)
        return s->x + s->column + shift;
    for (; s < c->segments + c->n_segments; s++) {
        if (s->x != NULL)
            put_segment(t, s, line, shift, from, to);
        else
            for (int64_t i = 0; i < s->n; i += VF)
                v_store(line + i, v_set(0.0f));
        line += s->n;
    }
    for (int64_t i = 0; i < NR; i += VF)
        v_store(line + i, v_set(0.0f));
    return start;
}

static void next_tap(struct chunk *c)
{
    if (++c->at[2] < c->t->kernel[2])
        return;
    c->at[2] = 0;
    if (++c->at[1] == c->t->kernel[1]) {
        c->at[1] = 0;
        if (++c->at[0] == c->t->kernel[0]) {
            c->at[0] = 0;
            c->channel++;
        }
    }
}

/* Lines of taps i … i + count - 1 into the panels of the chunk. */
static void put_panels(const struct chunk *c, float *to, const float *const *lines,
                       int64_t i, int64_t count)
{
    int64_t p = 0;
    for (; p + VF < c->n; p += NR, to += c->t->k_count * NR)
        for (int64_t j = 0; j < count; j++) {
            v_store(to + (i + j) * NR, v_load(lines[j] + p));
            v_store(to + (i + j) * NR + VF, v_load(lines[j] + p + VF));
        }
    for (int64_t j = 0; p < c->n && j < count; j++)
        v_store(to + (i + j) * VF, v_load(lines[j] + p));
}

static void run_chunk(struct chunk *c, float *panels)
{
    const struct attn_im2col *t = c->t;
    const int64_t pitch = (c->n + 2 * NR) & -(int64_t)NR;
    int64_t k = t->k_from;
    for (int a = 2; a >= 0; a--) {
        c->at[a] = k % t->kernel[a];
        k /= t->kernel[a];
    }
    c->channel = k;
    find_segments(c);
    find_rows(c);
    for (int64_t i = 0; i < t->k_count; i += LINES) {
        const float *lines[LINES];
        int64_t count = t->k_count - i < LINES ? t->k_count - i : LINES;
        for (int64_t j = 0; j < count; j++) {
            lines[j] = put_line(c, t->line + j * pitch);
            next_tap(c);
            if (c->at[2] == 0 && i + j + 1 < t->k_count)
                find_rows(c);
        }
        put_panels(c, panels, lines, i, count);
    }
}

/* ---- rows as long as those of the input ---- */

enum { MAX_TAPS = 64, MAX_PANELS = 4, MAX_VECTORS = 2 * MAX_PANELS };

/* Some panels: for each tap of the kernel its offset and what its vectors see. */
struct flat {
    const struct attn_im2col *t;
    int64_t pixel, n, taps;
    int64_t offset[MAX_TAPS];
    uint32_t bits[MAX_TAPS][MAX_VECTORS];
};

/* Vectors of four have no loads with a mask. */
static bool is_flat(const struct attn_im2col *t)
{
    return VF > 4 && t->kernel[0] == 1 && t->in[0] == 1 && t->out[0] == 1 &&
           t->before[0] == 0 && t->stride[1] == 1 && t->stride[2] == 1 &&
           t->in[2] == t->out[2] && t->kernel[1] <= MAX_TAPS &&
           t->kernel[2] <= MAX_TAPS && t->kernel[1] * t->kernel[2] > 1 &&
           t->kernel[1] * t->kernel[2] <= MAX_TAPS;
}

/* Lanes of the vector that begins in this column that see the input for kernel column
 * `kw`. */
static uint32_t column_bits(const struct attn_im2col *t, int64_t column, int64_t kw)
{
    uint32_t bits = 0;
    int64_t from, to;
    find_columns(t, kw, &from, &to);
    for (int64_t start = -column; start < VF; start += t->out[2])
        bits |= v_bits(clamp(start + from, 0, VF), clamp(start + to, 0, VF));
    return bits;
}

static void find_bits(struct flat *f)
{
    const struct attn_im2col *t = f->t;
    const int64_t width = t->in[2], plane = t->in[1] * width;
    for (int64_t v = 0; v * VF < f->n; v++) {
        const int64_t at = f->pixel + v * VF;
        for (int64_t j = 0; j < t->kernel[2]; j++) {
            const uint32_t columns =
                column_bits(t, at % width, j) & v_bits(0, clamp(f->n - v * VF, 0, VF));
            for (int64_t i = 0; i < t->kernel[1]; i++) {
                const int64_t tap = i * t->kernel[2] + j;
                const int64_t down = (i * t->dilation[1] - t->before[1]) * width;
                f->offset[tap] = down + j * t->dilation[2] - t->before[2];
                f->bits[tap][v] = columns & v_bits(clamp(-down - at, 0, VF),
                                                   clamp(plane - down - at, 0, VF));
            }
        }
    }
}

/* All taps of so many panels of so many vectors, from vector `from` on. */
INLINE void copy_panels(const struct flat *f, float *to, int64_t from, const int panels,
                        const int vectors)
{
    const struct attn_im2col *t = f->t;
    const int64_t plane = t->in[1] * t->in[2], taps = f->taps, rows = t->k_count;
    const float *x = t->x + t->k_from / taps * plane + f->pixel + from * VF;
    int64_t tap = t->k_from % taps;
    for (int64_t k = 0; k < rows; k++, to += vectors * VF) {
        const float *at = x + f->offset[tap];
        const uint32_t *bits = f->bits[tap] + from;
        UNROLL
        for (int v = 0; v < panels * vectors; v++)
            v_store(to + v / vectors * rows * NR + v % vectors * VF,
                    v_load_lanes(at + v * VF, v_lanes(bits[v])));
        if (++tap == taps) {
            tap = 0;
            x += plane;
        }
    }
}

static void run_flat(const struct attn_im2col *t)
{
    struct flat f = { .t = t, .taps = t->kernel[1] * t->kernel[2] };
    for (int64_t first = 0; first < t->n; first += f.n) {
        f.n = t->n - first < MAX_PANELS * NR ? t->n - first : MAX_PANELS * NR;
        f.pixel = t->pixel + first;
        find_bits(&f);
        float *to = t->panels + first * t->k_count;
        const int64_t panels = (f.n + VF - 1) / NR;
        if (panels == 4)
            copy_panels(&f, to, 0, 4, 2);
        else if (panels == 3)
            copy_panels(&f, to, 0, 3, 2);
        else if (panels == 2)
            copy_panels(&f, to, 0, 2, 2);
        else if (panels == 1)
            copy_panels(&f, to, 0, 1, 2);
        if (panels * NR < f.n)
            copy_panels(&f, to + panels * NR * t->k_count, 2 * panels, 1, 1);
    }
}

void K(conv_im2col_f32)(const struct attn_im2col *t)
{
    if (is_flat(t)) {
        run_flat(t);
        return;
    }
    struct chunk c;
    c.t = t;
    for (int64_t first = 0; first < t->n; first += CHUNK) {
        c.pixel = t->pixel + first;
        c.n = t->n - first < CHUNK ? t->n - first : CHUNK;
        run_chunk(&c, t->panels + first * t->k_count);
    }
}
