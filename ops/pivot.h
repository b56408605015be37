/* pivot.h - partial pivoting: the row of column k with the largest element becomes row k.
 *
 * In: m rows of doubles, `row` from one to the next, of which the first k are done. Out: the rows
 * k … m - 1 with two of them exchanged, or as they were; true where they were exchanged. Polls:
 * a stop leaves the choice unfinished, which the caller sees at its next poll. Cost: m - k
 * comparisons and one exchange. */
#ifndef ATTN_PIVOT_H
#define ATTN_PIVOT_H

#include <math.h>

#include "../runtime/op.h"

static inline bool attn_pivot(double *a, int64_t row, int64_t m, int64_t k)
{
    int64_t pivot = k;
    for (int64_t i = k + 1; i < m && !attn_stops(i); i++)
        if (fabs(a[i * row + k]) > fabs(a[pivot * row + k]))
            pivot = i;
    for (int64_t c = 0; pivot != k && c < row; c++) {
        const double moved = a[k * row + c];
        a[k * row + c] = a[pivot * row + c];
        a[pivot * row + c] = moved;
    }
    return pivot != k;
}

#endif
