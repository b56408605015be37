/* hash.h - the hash functions of tables of names, whose sizes are powers of two.
 *
 * In: bytes or a text, and the hash of what comes before them (ATTN_HASH_SEED at the start). Out:
 * 64 bits, of which attn_hash_slot() makes the place in a table. Cost: one multiplication for each
 * byte. What a file chooses is hashed by attn_hash_keyed(). Source: FNV-1a, Fowler, Noll and Vo,
 * draft-eastlake-fnv; the last step is Fibonacci hashing, Knuth, volume 3, 6.4. */
#ifndef ATTN_HASH_H
#define ATTN_HASH_H

#include <stdint.h>
#include <string.h>

#define ATTN_HASH_SEED UINT64_C(14695981039346656037)

/* FNV-1a, from `hash` on. */
static inline uint64_t attn_hash_bytes(uint64_t hash, const void *data, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        hash = (hash ^ ((const uint8_t *)data)[k]) * UINT64_C(1099511628211);
    return hash;
}

static inline uint64_t attn_hash_text(uint64_t hash, const char *text)
{
    return attn_hash_bytes(hash, text, (int64_t)strlen(text));
}

/* The same with a random factor of this process in the place of FNV's: nobody can prepare a file
 * whose names collide. Equal bytes have equal hashes within a process. */
uint64_t attn_hash_keyed(uint64_t hash, const void *data, int64_t n);

/* A slot's number, of which the lowest bits are taken. v1, v2, …: without this, names that count
 * up lie side by side. */
static inline uint32_t attn_hash_slot(uint64_t hash)
{
    return (uint32_t)((hash ^ hash >> 32) * UINT64_C(0x9E3779B97F4A7C15) >> 32);
}

/* The slot's number of a name that a file chooses. */
static inline uint32_t attn_hash_name(const void *name, int64_t n)
{
    return attn_hash_slot(attn_hash_keyed(ATTN_HASH_SEED, name, n));
}

#endif
