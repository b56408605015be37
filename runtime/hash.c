/* hash.c - the hash of what a file chooses; see hash.h. The random number is one of those that the
 * kernel gives each process (AT_RANDOM). */
#include "hash.h"

#include <sys/auxv.h>

uint64_t attn_hash_keyed(uint64_t hash, const void *data, int64_t n)
{
    const void *random = (const void *)(uintptr_t)getauxval(AT_RANDOM);
    uint64_t key[2] = { 0, UINT64_C(1099511628211) };
    if (random != NULL)
        memcpy(key, random, sizeof key);
    key[0] = (key[0] * UINT64_C(0x9E3779B97F4A7C15) ^ key[1]) | 1;
    for (int64_t k = 0; k < n; k++)
        hash = (hash ^ ((const uint8_t *)data)[k]) * key[0];
    return hash;
}
