/* packed_hash.c - the hash of packed files. In: bytes, in pieces of any size. Out: 64 bits,
 * which do not depend on how the bytes were cut. Four lanes of multiply and rotate over 32
 * bytes at a time; reads as fast as memory gives. */
#include <string.h>

#include "packed_format.h"

enum { BLOCK = 32 };

static const uint64_t odd[4] = { UINT64_C(0x9E3779B97F4A7C15),
                                 UINT64_C(0xC2B2AE3D27D4EB4F),
                                 UINT64_C(0x165667B19E3779F9),
                                 UINT64_C(0xD6E8FEB86659FD93) };

static uint64_t rotate(uint64_t x, int by) { return x << by | x >> (64 - by); }

void attn_packed_hash_begin(struct attn_packed_hash *hash)
{
    *hash = (struct attn_packed_hash){ .n_left = 0 };
    memcpy(hash->lanes, odd, sizeof odd);
}

static void add_blocks(struct attn_packed_hash *hash, const uint8_t *at, int64_t n)
{
    uint64_t words[4];
    for (; n >= BLOCK; n -= BLOCK, at += BLOCK) {
        memcpy(words, at, sizeof words);
        for (int i = 0; i < 4; i++)
            hash->lanes[i] = rotate(hash->lanes[i] ^ words[i] * odd[3], 29) * odd[i];
    }
}

void attn_packed_hash_add(struct attn_packed_hash *hash, const void *bytes, int64_t n)
{
    const uint8_t *at = bytes;
    hash->bytes += n;
    if (hash->n_left > 0) {
        const int64_t more = n < BLOCK - hash->n_left ? n : BLOCK - hash->n_left;
        memcpy(hash->left + hash->n_left, at, (size_t)more);
        hash->n_left += more;
        at += more;
        n -= more;
        if (hash->n_left < BLOCK)
            return;
        add_blocks(hash, hash->left, BLOCK);
        hash->n_left = 0;
    }
    add_blocks(hash, at, n);
    hash->n_left = n % BLOCK;
    memcpy(hash->left, at + n - n % BLOCK, (size_t)(n % BLOCK));
}

uint64_t attn_packed_hash_end(struct attn_packed_hash *hash)
{
    uint64_t all = (uint64_t)hash->bytes;
    memset(hash->left + hash->n_left, 0, (size_t)(BLOCK - hash->n_left));
    add_blocks(hash, hash->left, BLOCK);
    for (int i = 0; i < 4; i++)
        all = rotate(all ^ hash->lanes[i], 31) * odd[i];
    all = (all ^ all >> 33) * odd[0];
    return all ^ all >> 29;
}

uint64_t attn_packed_hash_of(const void *bytes, int64_t n)
{
    struct attn_packed_hash hash;
    attn_packed_hash_begin(&hash);
    attn_packed_hash_add(&hash, bytes, n);
    return attn_packed_hash_end(&hash);
}

uint64_t attn_packed_head_hash(const struct attn_packed_head *head)
{
    struct attn_packed_head copy = *head;
    copy.head_hash = 0;
    return attn_packed_hash_of(&copy, (int64_t)sizeof copy);
}
