/* mask_band.c - finds whether a constant matrix is a band: one element along some
 * adjacent diagonals, and another one elsewhere. In: the matrix. Out: the diagonals. The
 * bounds are taken from the first rows that contain them, and then each element is
 * compared, as bytes. Cost: one pass over the matrix. */
#include "../../runtime/dtype.h"
#include "../../runtime/poll.h"
#include "write_mask.h"

struct matrix {
    const char *data;
    int64_t rows, columns, size; /* bytes of an element */
};

static const char *at(const struct matrix *m, int64_t row, int64_t column)
{
    return m->data + (row * m->columns + column) * m->size;
}

/* Elements from … to - 1 of a row are all the same as `x`. */
static bool all_are(const struct matrix *m, int64_t row, int64_t from, int64_t to,
                    const char *x)
{
    const char *p = at(m, row, from);
    return from >= to ||
           (memcmp(p, x, (size_t)m->size) == 0 &&
            memcmp(p, p + m->size, (size_t)((to - from - 1) * m->size)) == 0);
}

/* Where the elements that are `x` begin and end in a row; false: there are none. */
static bool run_of(const struct matrix *m, int64_t row, const char *x, int64_t *from,
                   int64_t *to)
{
    int64_t j = 0;
    while (j < m->columns && memcmp(at(m, row, j), x, (size_t)m->size) != 0)
        j++;
    *from = j;
    for (*to = j; j < m->columns; j++)
        if (memcmp(at(m, row, j), x, (size_t)m->size) == 0)
            *to = j + 1;
    return *from < *to;
}

/* The bounds, as the first rows that have one show them. */
static attn_status find_bounds(const struct matrix *m, const char *inside,
                               struct attn_mask_band *band)
{
    band->open_first = band->open_last = true;
    for (int64_t i = 0; i < m->rows && (band->open_first || band->open_last); i++) {
        int64_t from, to;
        TRY(attn_poll_work(m->columns * m->size));
        if (!run_of(m, i, inside, &from, &to))
            continue;
        if (from > 0 && band->open_first) {
            band->first = from - i;
            band->open_first = false;
        }
        if (to < m->columns && band->open_last) {
            band->last = to - 1 - i;
            band->open_last = false;
        }
    }
    return ATTNRUN_OK;
}

static int64_t clamp(int64_t x, int64_t high) { return x < 0 ? 0 : x > high ? high : x; }

static attn_status mask_band_compare(const struct matrix *m, const char *inside,
                                     const char *outside,
                                     const struct attn_mask_band *band, bool *same)
{
    *same = true;
    for (int64_t i = 0; i < m->rows && *same; i++) {
        int64_t from = band->open_first ? 0 : clamp(i + band->first, m->columns);
        int64_t to = band->open_last ? m->columns : clamp(i + band->last + 1, m->columns);
        to = to < from ? from : to;
        TRY(attn_poll_work(m->columns * m->size));
        *same = all_are(m, i, 0, from, outside) && all_are(m, i, from, to, inside) &&
                all_are(m, i, to, m->columns, outside);
    }
    return ATTNRUN_OK;
}

/* The first element that is another one than the first of all; -1: there is none. */
static attn_status find_other(const struct matrix *m, int64_t *other)
{
    *other = -1;
    for (int64_t i = 0; i < m->rows && *other < 0; i++) {
        TRY(attn_poll_work(m->columns * m->size));
        if (all_are(m, i, 0, m->columns, m->data))
            continue;
        for (int64_t j = 0; j < m->columns && *other < 0; j++)
            if (memcmp(at(m, i, j), m->data, (size_t)m->size) != 0)
                *other = i * m->columns + j;
    }
    return ATTNRUN_OK;
}

attn_status attn_mask_find_band(const attnrun_tensor *x, int64_t rows, int64_t columns,
                                struct attn_mask_band *band, bool *found)
{
    const struct matrix m = { x->data, rows, columns, dtype_bytes(x->dtype) };
    int64_t other;
    *found = false;
    if (rows < 1 || columns < 1 || m.size < 1)
        return ATTNRUN_OK;
    TRY(find_other(&m, &other));
    if (other < 0) {
        *band = (struct attn_mask_band){
            .rows = rows, .columns = columns, .open_first = true, .open_last = true
        };
        *found = true;
        return ATTNRUN_OK;
    }
    for (int k = 0; k < 2 && !*found; k++) {
        *band = (struct attn_mask_band){ .rows = rows,
                                         .columns = columns,
                                         .inside = k == 0 ? 0 : other,
                                         .outside = k == 0 ? other : 0 };
        const char *in = m.data + band->inside * m.size;
        const char *out = m.data + band->outside * m.size;
        TRY(find_bounds(&m, in, band));
        TRY(mask_band_compare(&m, in, out, band, found));
    }
    return ATTNRUN_OK;
}
