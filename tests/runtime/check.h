/* check.h - what every cmocka test of runtime/ includes. */
#ifndef ATTN_TESTS_CHECK_H
#define ATTN_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

#include <cmocka.h>

/* xorshift64*: the same numbers everywhere. */
static inline uint64_t next_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

/* 0 … n - 1. */
static inline int64_t random_below(uint64_t *state, int64_t n)
{
    return (int64_t)(next_random(state) % (uint64_t)n);
}

#endif
