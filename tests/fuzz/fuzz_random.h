/* fuzz_random.h - the numbers of the fuzz: a sequence that depends on its seed alone. */
#ifndef ATTN_FUZZ_RANDOM_H
#define ATTN_FUZZ_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

struct fuzz_random {
    uint64_t state;
};

/* SplitMix64 (Steele, Lea, Flood 2014). */
static inline uint64_t fuzz_next(struct fuzz_random *r)
{
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* 0 to n - 1. */
static inline int64_t fuzz_below(struct fuzz_random *r, int64_t n)
{
    return n > 0 ? (int64_t)(fuzz_next(r) % (uint64_t)n) : 0;
}

static inline bool fuzz_chance(struct fuzz_random *r, int percent)
{
    return fuzz_below(r, 100) < percent;
}

/* Mostly small; sometimes at a border of some width. */
static inline int64_t fuzz_int(struct fuzz_random *r)
{
    static const int64_t borders[] = { INT64_MIN,  INT64_MAX, INT32_MIN,
                                       INT32_MAX,  -128,      127,
                                       65536,      99,        INT64_C(1) << 40,
                                       1000000007, -1000,     INT64_C(1) << 62 };
    if (fuzz_chance(r, 12))
        return borders[fuzz_below(r, (int64_t)(sizeof borders / sizeof borders[0]))];
    return fuzz_chance(r, 30) ? fuzz_below(r, 20) - 6 : fuzz_below(r, 5) - 1;
}

/* At most `max` away from x; past the ends it goes on at the other. */
static inline int64_t fuzz_near(struct fuzz_random *r, int64_t x, int64_t max)
{
    return (int64_t)((uint64_t)x + (uint64_t)(fuzz_below(r, 2 * max + 1) - max));
}

/* -2 to 2, in thousandths. */
static inline float fuzz_small_float(struct fuzz_random *r)
{
    return (float)(fuzz_below(r, 4001) - 2000) / 1000.0f;
}

static inline float fuzz_float(struct fuzz_random *r)
{
    static const float borders[] = { 0.0f,
                                     -0.0f,
                                     1.0f,
                                     -1.0f,
                                     1e30f,
                                     -1e30f,
                                     1e-40f,
                                     2.5f,
                                     65504,
                                     70000,
                                     __builtin_inff(),
                                     -__builtin_inff(),
                                     __builtin_nanf("") };
    if (fuzz_chance(r, 5))
        return borders[fuzz_below(r, (int64_t)(sizeof borders / sizeof borders[0]))];
    return fuzz_small_float(r);
}

#endif
