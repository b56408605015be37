/* map.c - maps as the tools read and compare them; see map.h.
 *
 * In: two columns, keys and values. Out: the order of the keys, whether two maps have equal keys,
 * and columns of narrower types where the model declares these. */
#include "map.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

/* ---- the order of keys ---- */

static int compare_keys(const attnrun_tensor *a, int64_t i, const attnrun_tensor *b,
                        int64_t k)
{
    if (a->dtype != ATTNRUN_STRING) {
        int64_t p = value_get_int(a, i), q = value_get_int(b, k);
        return p < q ? -1 : p > q;
    }
    const attnrun_string *p = (const attnrun_string *)a->data + i;
    const attnrun_string *q = (const attnrun_string *)b->data + k;
    int64_t n = p->n < q->n ? p->n : q->n;
    int order = n > 0 ? memcmp(p->data, q->data, (size_t)n) : 0;
    return order != 0 ? order : p->n < q->n ? -1 : p->n > q->n;
}

bool map_same_key(const attnrun_tensor *a, int64_t i, const attnrun_tensor *b, int64_t k)
{
    a = map_column(a, 0);
    b = map_column(b, 0);
    return a->dtype == b->dtype && compare_keys(a, i, b, k) == 0;
}

static int by_key(const void *a, const void *b, void *keys)
{
    return compare_keys(keys, *(const int64_t *)a, keys, *(const int64_t *)b);
}

int64_t *map_order(const attnrun_tensor *map)
{
    attnrun_tensor keys = *map_column(map, 0);
    int64_t *order = calloc((size_t)map->dims[0] + 1, sizeof *order);
    if (order == NULL)
        return NULL;
    for (int64_t i = 0; i < map->dims[0]; i++)
        order[i] = i;
    qsort_r(order, (size_t)map->dims[0], sizeof *order, by_key, &keys);
    return order;
}

/* ---- from a dict of Python ---- */

void map_narrow(struct held *held, int32_t key_dtype, int32_t dtype)
{
    attnrun_tensor *map = &held->tensor, *columns = map->data;
    if (map->kind != ATTNRUN_MAP || columns == NULL)
        return;
    if (map->dims[0] == 0 && dtype != ATTNRUN_UNDEFINED) {
        columns[1].dtype = map->dtype = dtype;
        columns[0].dtype = key_dtype != ATTNRUN_UNDEFINED ? key_dtype : columns[0].dtype;
    }
    if (map->dtype != ATTNRUN_F64 || dtype != ATTNRUN_F32)
        return;
    for (int64_t i = 0; i < map->dims[0]; i++)
        ((float *)columns[1].data)[i] = (float)((const double *)columns[1].data)[i];
    columns[1].dtype = map->dtype = ATTNRUN_F32;
    columns[1].strides[0] = (int64_t)sizeof(float);
}

/* ---- from an inline object ---- */

/* The end of the item that begins at `at`: behind a string, or at a blank or a mark. */
static const char *item_end(const char *at)
{
    if (*at != '"')
        return at + strcspn(at, " \t\r\n,:{}[]\"");
    for (at++; *at != '"'; at++) {
        if (*at == '\\' && at[1] != 0)
            at++;
        if (*at == 0)
            return at;
    }
    return at + 1;
}

static const char *skip_spaces(const char *at)
{
    while (isspace((unsigned char)*at))
        at++;
    return at;
}

static attnrun_status bad(const char *text, const char *at)
{
    return tool_fail(ATTNRUN_E_INPUT, "no object at character %d of '%s'",
                     (int)(at - text) + 1, tool_quote(text));
}

/* Appends the item at *at to a list, without its quotes if `unquote`, and moves *at behind it and
 * the blanks after it; false where no item is. */
static bool copy_item(const char **at, char **list, bool unquote)
{
    const char *end = item_end(*at);
    if (end == *at)
        return false;
    const size_t n = (size_t)(end - *at) - (unquote ? 2 : 0);
    memcpy(*list, *at + (unquote ? 1 : 0), n);
    *list += n;
    *at = skip_spaces(end);
    return true;
}

static bool is_quoted(const char *at)
{
    const char *end = item_end(at);
    return *at == '"' && end > at + 1 && end[-1] == '"';
}

/* Splits {"a": 1, "b": 2} into the lists ["a", "b"] and [1, 2]; whole keys lose their
 * quotes. Each list has room for the text and two bytes more. */
static attnrun_status split_object(const char *text, bool whole_keys, char *keys,
                                   char *values)
{
    const char *at = skip_spaces(text + 1);
    *keys++ = *values++ = '[';
    while (*at != '}') {
        if (!is_quoted(at) || !copy_item(&at, &keys, whole_keys) || *at != ':')
            return bad(text, at);
        at = skip_spaces(at + 1);
        if (!copy_item(&at, &values, false) || (*at != '}' && *at != ','))
            return bad(text, at);
        if (*at == '}')
            break;
        at = skip_spaces(at + 1);
        *keys++ = *values++ = ',';
        if (*at == '}') /* a comma before the end */
            return bad(text, at);
    }
    *keys++ = *values++ = ']';
    *keys = *values = 0;
    at = skip_spaces(at + 1);
    return *at == 0 ? ATTNRUN_OK : bad(text, at);
}

/* One key for each value. A key that is an integer was a text, which may have held a list. */
static bool are_columns(const struct held *columns)
{
    const attnrun_tensor *keys = &columns[0].tensor, *values = &columns[1].tensor;
    return keys->rank == 1 && values->rank == 1 && keys->dims[0] == values->dims[0];
}

/* A map has each key once. */
static attnrun_status check_keys(const attnrun_tensor *map)
{
    int64_t *order = map_order(map), i = 1;
    if (order == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for an inline value");
    while (i < map->dims[0] && !map_same_key(map, order[i - 1], map, order[i]))
        i++;
    const bool good = i >= map->dims[0];
    if (!good)
        tool_fail(ATTNRUN_E_INPUT, "the key %s appears twice",
                  value_text(map_column(map, 0), order[i]));
    free(order);
    return good ? ATTNRUN_OK : ATTNRUN_E_INPUT;
}

attnrun_status json_parse_map(const char *text, int32_t key_dtype, int32_t dtype,
                              struct held *held)
{
    char *keys = malloc(strlen(text) + 3), *values = malloc(strlen(text) + 3);
    memset(held, 0, sizeof *held);
    held->columns = calloc(2, sizeof *held->columns);
    attnrun_tensor *columns = held->memory = calloc(2, sizeof *columns);
    attnrun_status status =
        !keys || !values || !held->columns || !columns
            ? tool_fail(ATTNRUN_E_MEMORY, "no memory for an inline value")
            : split_object(text, key_dtype != ATTNRUN_STRING, keys, values);
    if (status == ATTNRUN_OK)
        status = json_parse_tensor(keys, key_dtype, &held->columns[0]);
    if (status == ATTNRUN_OK)
        status = json_parse_tensor(values, dtype, &held->columns[1]);
    free(keys);
    free(values);
    if (status == ATTNRUN_OK && !are_columns(held->columns))
        status = tool_fail(ATTNRUN_E_INPUT, "a key of '%s' is not an integer",
                           tool_quote(text));
    if (status != ATTNRUN_OK) {
        held_free(held);
        return status;
    }
    columns[0] = held->columns[0].tensor;
    columns[1] = held->columns[1].tensor;
    held->tensor = (attnrun_tensor){ .kind = ATTNRUN_MAP,
                                     .dtype = dtype,
                                     .rank = 1,
                                     .dims = { columns[0].dims[0] },
                                     .data = columns };
    status = check_keys(&held->tensor);
    if (status != ATTNRUN_OK)
        held_free(held);
    return status;
}
