/* name_map.c - open addressing with linear probing, at most half full; see name_map.h.
 * Cost: O(1) for a key, amortised. */
#include "name_map.h"

#include <string.h>

#include "../runtime/hash.h"

static struct attn_name_entry *slot_of(const struct attn_name_map *map, const void *key,
                                       int64_t length, uint32_t hash)
{
    uint64_t mask = (uint64_t)map->capacity - 1;
    for (uint64_t k = hash;; k++) {
        struct attn_name_entry *entry = &map->entries[k & mask];
        if (entry->key == NULL)
            return entry;
        if (entry->hash == hash && entry->length == length &&
            memcmp(entry->key, key, (size_t)length) == 0)
            return entry;
    }
}

int64_t *attn_map_find(const struct attn_name_map *map, const void *key, int64_t length)
{
    if (map->capacity == 0)
        return NULL;
    struct attn_name_entry *entry =
        slot_of(map, key, length, attn_hash_name(key, length));
    return entry->key != NULL ? &entry->value : NULL;
}

attn_status attn_map_reserve(struct attn_name_map *map, int64_t n)
{
    if (n * 2 <= map->capacity)
        return ATTNRUN_OK;
    struct attn_name_map larger = { .pool = map->pool,
                                    .capacity = 16,
                                    .used = map->used };
    while (larger.capacity < n * 2)
        larger.capacity *= 2;
    larger.entries =
        attn_pool_alloc(map->pool, larger.capacity * (int64_t)sizeof *larger.entries);
    if (larger.entries == NULL)
        return ATTNRUN_E_MEMORY;
    for (int64_t k = 0; k < map->capacity; k++) {
        const struct attn_name_entry *entry = &map->entries[k];
        if (entry->key != NULL)
            *slot_of(&larger, entry->key, entry->length, entry->hash) = *entry;
    }
    *map = larger;
    return ATTNRUN_OK;
}

attn_status attn_map_add(struct attn_name_map *map, const void *key, int64_t length,
                         int64_t value)
{
    TRY(attn_map_reserve(map, map->used + 1));
    uint32_t hash = attn_hash_name(key, length);
    map->used++;
    *slot_of(map, key, length, hash) = (struct attn_name_entry){
        .key = key, .length = (int32_t)length, .hash = hash, .value = value
    };
    return ATTNRUN_OK;
}
