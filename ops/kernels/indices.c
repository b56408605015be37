/* indices.c - tests whether n indices, at any address, are all in [-limit, limit), where
 * 0 <= limit < 2^62. A sum or difference below 0 has its highest bit set. If one wraps
 * around, the other one does not. Cost: one read of the indices. */
#include "isa.h"

#define INDICES_WITHIN(name, type)                                                       \
    bool K(name)(const void *x, int64_t limit, size_t n)                                 \
    {                                                                                    \
        const char *bytes = x;                                                           \
        const uint64_t above = (uint64_t)limit, last = above - 1;                        \
        uint64_t bad = 0;                                                                \
        for (size_t i = 0; i < n; i++) {                                                 \
            type index;                                                                  \
            memcpy(&index, bytes + i * sizeof index, sizeof index);                      \
            const uint64_t wide = (uint64_t)(int64_t)index;                              \
            bad |= (wide + above) | (last - wide);                                       \
        }                                                                                \
        return bad >> 63 == 0;                                                           \
    }
INDICES_WITHIN(indices_within_i32, int32_t)
INDICES_WITHIN(indices_within_i64, int64_t)
