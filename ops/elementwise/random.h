/* random.h - a counter-based generator of random numbers.
 *
 * In: a seed and the place k of a number in the stream. Out: 64 bits, a uniform number in [0, 1),
 * or a normal one. Number k is a hash of (seed, k), so tasks share no state, and results do not
 * depend on how work is cut into tasks. Cost: two multiplications a number; a logarithm, a root
 * and a cosine for a normal one. Source: SplitMix64, Steele, Lea and Flood 2014; Box and Muller
 * 1958. */
#ifndef ATTN_RANDOM_H
#define ATTN_RANDOM_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Weyl sequence and two multiply-xorshift rounds: SplitMix64 (Steele, Lea, Flood
 * 2014). */
static inline uint64_t random_bits(uint64_t seed, uint64_t k)
{
    uint64_t z = seed + (k + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}
/* In [0, 1), of 53 bits. */
static inline double random_unit(uint64_t seed, uint64_t k)
{
    return (double)(random_bits(seed, k) >> 11) * 0x1p-53;
}
/* Box-Muller; numbers 2k and 2k + 1 of the stream. */
static inline double random_normal(uint64_t seed, uint64_t k)
{
    double u = 1.0 - random_unit(seed, 2 * k); /* (0, 1]: its log is finite */
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586477 * random_unit(seed, 2 * k + 1));
}
/* The stream of an operator's `seed` attribute; NaN where that is absent: one fixed by
 * `salt`, so that a model gives the same numbers in every run. */
static inline uint64_t random_seed(float seed, int64_t salt)
{
    uint32_t bits = 0;
    memcpy(&bits, &seed, sizeof bits);
    if (seed != seed)
        bits = (uint32_t)salt * 2654435761u + 97u;
    return random_bits(bits, 0);
}

#endif
