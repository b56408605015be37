/* ragged_sample.h - one sample of a ragged batch: a row of the tensor `samples`, i64 (B, 3), that
 * runtime/ragged.c makes and operators read. */
#ifndef ATTN_RAGGED_SAMPLE_H
#define ATTN_RAGGED_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

/* Tokens first … last - 1 of the sample are the packed rows from `start` on. */
struct attn_ragged_sample {
    int64_t start, first, last;
};
enum { ATTN_RAGGED_FIELDS = sizeof(struct attn_ragged_sample) / sizeof(int64_t) };

/* Its tokens are among `tokens`, and its rows among `rows`. */
static inline bool attn_ragged_fits(const struct attn_ragged_sample *sample, int64_t rows,
                                    int64_t tokens)
{
    return sample->start >= 0 && sample->start <= rows && sample->first >= 0 &&
           sample->first <= sample->last && sample->last <= tokens &&
           sample->last - sample->first <= rows - sample->start;
}

#endif
