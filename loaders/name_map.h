/* name_map.h - from names (or other short keys) to numbers, for the time of loading. The keys
 * belong to the caller and must live as long as the map. */
#ifndef ATTN_NAME_MAP_H
#define ATTN_NAME_MAP_H

#include "../runtime/alloc.h"

struct attn_name_entry {
    const void *key; /* NULL: free */
    int64_t value;
    int32_t length;
    uint32_t hash;
};

struct attn_name_map {
    struct attn_pool *pool; /* for the table; keys must live as long as the map */
    struct attn_name_entry *entries;
    int64_t capacity, used;
};

/* The value of a key, or NULL. */
int64_t *attn_map_find(const struct attn_name_map *map, const void *key, int64_t length);
/* Makes room for n keys in all. */
attn_status attn_map_reserve(struct attn_name_map *map, int64_t n);
/* Adds a key of less than 2 GiB that is not there yet. */
attn_status attn_map_add(struct attn_name_map *map, const void *key, int64_t length,
                         int64_t value);

#endif
