/* checked.h - arithmetic on sizes. In: two sizes. Out: those that come from a file or a caller:
 * their sum, difference or product, or false instead of wrapping; a raw '*' on dims is a bug.
 * Those that are known to be small: minima, quotients and multiples. */
#ifndef ATTN_CHECKED_H
#define ATTN_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

static inline bool ck_add(int64_t a, int64_t b, int64_t *sum)
{
    return !__builtin_add_overflow(a, b, sum);
}

static inline bool ck_sub(int64_t a, int64_t b, int64_t *difference)
{
    return !__builtin_sub_overflow(a, b, difference);
}

static inline bool ck_mul(int64_t a, int64_t b, int64_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}

/* Rounds up to a multiple of `align` (a power of two). */
static inline bool ck_align(int64_t n, int64_t align, int64_t *rounded)
{
    if (!ck_add(n, align - 1, rounded))
        return false;
    *rounded &= ~(align - 1);
    return true;
}

static inline int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
/* Rounded up; of b > 0 and a >= 0. */
static inline int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }
/* To a multiple of `align`, a power of two; the caller knows that it fits. */
static inline int64_t round_up(int64_t n, int64_t align)
{
    return (n + align - 1) & ~(align - 1);
}

#endif
