/* maps.h - values that are maps, or sequences of maps: their two columns, and checks of what
 * a caller gives. */
#ifndef ATTN_MAPS_H
#define ATTN_MAPS_H

#include "dtype.h"
#include "status.h"
#include "tensor.h"

static inline const attnrun_tensor *map_keys(const attnrun_tensor *map)
{
    return map->data;
}
static inline const attnrun_tensor *map_values(const attnrun_tensor *map)
{
    return (const attnrun_tensor *)map->data + 1;
}
static inline bool attn_kind_is_map(int32_t kind)
{
    return kind == ATTNRUN_MAP || kind == ATTNRUN_MAP_SEQUENCE;
}
/* A map or a sequence of maps from a caller: E_USAGE where a part of it is missing or
 * does not fit the others, E_DTYPE where its keys are neither i64 nor strings, or differ
 * from `key_dtype` (0: any). `what` begins the sentence. */
attn_status attn_maps_check(const attnrun_tensor *value, int32_t key_dtype,
                            const char *what);
/* The dtype of the keys, 0 where there are none to look at. */
int32_t attn_maps_key_dtype(const attnrun_tensor *value);

#endif
