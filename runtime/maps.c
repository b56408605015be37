/* maps.c - checks of maps that come from outside; see maps.h. */
#include "maps.h"

#include "abi.h"

static bool strings_are_there(const attnrun_tensor *t)
{
    const attnrun_string *s = t->data;
    if (t->dtype != ATTNRUN_STRING)
        return true;
    for (int64_t i = 0; i < t->dims[0]; i++)
        if (s[i].n < 0 || (s[i].n > 0 && s[i].data == NULL))
            return false;
    return true;
}

static bool column_is(const attnrun_tensor *t, int32_t dtype, int64_t n)
{
    return t->kind == ATTNRUN_TENSOR && t->dtype == dtype && t->rank == 1 &&
           t->dims[0] == n && attnrun_dtype_bits(dtype) >= 8 &&
           attnrun_tensor_bytes(t) >= 0 && attn_tensor_is_dense(t) &&
           (n == 0 || t->data != NULL) && strings_are_there(t);
}

static attn_status check_map(const attnrun_tensor *map, int32_t dtype, int32_t key_dtype,
                             const char *what)
{
    if (map->kind != ATTNRUN_MAP || map->rank != 1 || map->dims[0] < 0 ||
        map->dtype != dtype || map->data == NULL)
        return attn_fail(ATTNRUN_E_USAGE, "%s: the struct of a map is malformed", what);
    TRY(attn_reserved_check((uint32_t)map->reserved, what));
    TRY(attn_reserved_check((uint32_t)map_keys(map)->reserved, what));
    TRY(attn_reserved_check((uint32_t)map_values(map)->reserved, what));
    int32_t keys = map_keys(map)->dtype;
    if ((keys != ATTNRUN_I64 && keys != ATTNRUN_STRING) ||
        (key_dtype != ATTNRUN_UNDEFINED && keys != key_dtype))
        return attn_fail(ATTNRUN_E_DTYPE, "%s: the keys of a map are %s, expected %s",
                         what, attnrun_dtype_name(keys),
                         key_dtype != ATTNRUN_UNDEFINED ? attnrun_dtype_name(key_dtype)
                                                        : "i64 or strings");
    if (!column_is(map_keys(map), keys, map->dims[0]) ||
        !column_is(map_values(map), dtype, map->dims[0]))
        return attn_fail(ATTNRUN_E_USAGE,
                         "%s: a map does not have one key and one value for each entry",
                         what);
    return ATTNRUN_OK;
}

attn_status attn_maps_check(const attnrun_tensor *value, int32_t key_dtype,
                            const char *what)
{
    const attnrun_tensor *maps = value->data;
    if (value->kind == ATTNRUN_MAP)
        return check_map(value, value->dtype, key_dtype, what);
    if (value->rank != 1 || value->dims[0] < 0 || (maps == NULL && value->dims[0] > 0))
        return attn_fail(ATTNRUN_E_USAGE, "%s: the struct of a sequence is malformed",
                         what);
    for (int64_t i = 0; i < value->dims[0]; i++) {
        TRY(check_map(&maps[i], value->dtype, key_dtype, what));
        key_dtype = map_keys(&maps[i])->dtype;
    }
    return ATTNRUN_OK;
}

int32_t attn_maps_key_dtype(const attnrun_tensor *value)
{
    const attnrun_tensor *map = value;
    if (value->kind == ATTNRUN_MAP_SEQUENCE)
        map = value->data != NULL && value->dims[0] > 0 ? value->data : NULL;
    return map != NULL && map->data != NULL ? map_keys(map)->dtype : ATTNRUN_UNDEFINED;
}
