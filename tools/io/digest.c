/* digest.c - XXH64 as its specification defines it: four lanes of 32-byte stripes, then
 * the rest in steps of 8, 4 and 1. Little-endian. */
#include <string.h>

#include "digest.h"

#define P1 UINT64_C(0x9e3779b185ebca87)
#define P2 UINT64_C(0xc2b2ae3d27d4eb4f)
#define P3 UINT64_C(0x165667b19e3779f9)
#define P4 UINT64_C(0x85ebca77c2b2ae63)
#define P5 UINT64_C(0x27d4eb2f165667c5)

static uint64_t rotate(uint64_t x, int n) { return x << n | x >> (64 - n); }

static uint64_t read64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

static uint32_t read32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

static uint64_t mix(uint64_t lane, uint64_t word)
{
    return rotate(lane + word * P2, 31) * P1;
}

static uint64_t merge(uint64_t hash, uint64_t lane)
{
    return (hash ^ mix(0, lane)) * P1 + P4;
}

static uint64_t digest_finish(uint64_t hash, const uint8_t *p, const uint8_t *end)
{
    for (; end - p >= 8; p += 8)
        hash = rotate(hash ^ mix(0, read64(p)), 27) * P1 + P4;
    if (end - p >= 4) {
        hash = rotate(hash ^ read32(p) * P1, 23) * P2 + P3;
        p += 4;
    }
    for (; p < end; p++)
        hash = rotate(hash ^ *p * P5, 11) * P1;
    hash = (hash ^ hash >> 33) * P2;
    hash = (hash ^ hash >> 29) * P3;
    return hash ^ hash >> 32;
}

uint64_t digest_xxh64(const void *data, size_t bytes, uint64_t seed)
{
    const uint8_t *p = data, *end = bytes == 0 ? p : p + bytes;
    if (bytes < 32)
        return digest_finish(seed + P5 + bytes, p, end);
    uint64_t lanes[4] = { seed + P1 + P2, seed + P2, seed, seed - P1 };
    for (; end - p >= 32; p += 32)
        for (int i = 0; i < 4; i++)
            lanes[i] = mix(lanes[i], read64(p + (ptrdiff_t)8 * i));
    uint64_t hash = rotate(lanes[0], 1) + rotate(lanes[1], 7) + rotate(lanes[2], 12) +
                    rotate(lanes[3], 18);
    for (int i = 0; i < 4; i++)
        hash = merge(hash, lanes[i]);
    return digest_finish(hash + bytes, p, end);
}
