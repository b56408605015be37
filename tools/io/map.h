/* map.h - maps as the tools read and compare them: two columns, keys and values. */
#ifndef TOOL_MAP_H
#define TOOL_MAP_H

#include "value.h"

static inline const attnrun_tensor *map_column(const attnrun_tensor *map, int column)
{
    return (const attnrun_tensor *)map->data + column; /* 0: keys, 1: values */
}
/* Parses {"a": 1.5, "b": 2} as a map with keys and values of these types; integer keys
 * are written as strings, too. */
attnrun_status json_parse_map(const char *text, int32_t key_dtype, int32_t dtype,
                              struct held *held);
/* Doubles of a map become floats where `dtype` is f32, and an empty map one to `dtype`:
 * a dict of Python does not know more. Other maps stay as they are. */
void map_narrow(struct held *held, int32_t key_dtype, int32_t dtype);
/* The entries of a map by ascending key, as an array for free(); NULL: no memory. */
int64_t *map_order(const attnrun_tensor *map);
/* Are these two entries of one key? */
bool map_same_key(const attnrun_tensor *a, int64_t i, const attnrun_tensor *b, int64_t k);

#endif
