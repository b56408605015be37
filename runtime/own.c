/* own.c - checks strings, sequences, optionals and maps of a caller, and copies such values; see
 * own.h. */
#include "own.h"

#include <stdio.h>
#include <string.h>

#include "checked.h"
#include "maps.h"
#include "poll.h"

static bool is_optional(const attnrun_tensor *value)
{
    return value->kind == ATTNRUN_OPTIONAL || value->kind == ATTNRUN_OPTIONAL_SEQUENCE;
}

/* ---- checks ---- */

static attn_status check_tensor(const attnrun_tensor *t, int32_t index)
{
    int64_t n = tensor_count(t);
    if (n < 0 || (n > 0 && t->data == NULL))
        return attn_fail(ATTNRUN_E_USAGE, "input %d: a tensor of %s has no data", index,
                         attnrun_dtype_name(t->dtype));
    for (int64_t k = 0; t->dtype == ATTNRUN_STRING && k < n; k++) {
        const attnrun_string *s = (const void *)attn_tensor_at(t, t->rank, k);
        TRY(attn_poll_work((int64_t)sizeof *s));
        if (s->n < 0 || (s->n > 0 && s->data == NULL))
            return attn_fail(
                ATTNRUN_E_USAGE, "input %d: string %lld has a length of %lld%s", index,
                (long long)k, (long long)s->n, s->n > 0 ? " and no characters" : "");
    }
    return ATTNRUN_OK;
}

static attn_status check_plain(const attnrun_tensor *value, int32_t index)
{
    if (value->kind == ATTNRUN_TENSOR)
        return check_tensor(value, index);
    const attnrun_tensor *items = value->data;
    const int64_t n = value->dims[0];
    if (value->kind != ATTNRUN_SEQUENCE || n < 0 || (n > 0 && items == NULL))
        return attn_fail(ATTNRUN_E_USAGE, "input %d: a sequence of %s is malformed",
                         index, attn_plural(n, "element"));
    for (int64_t i = 0; i < n; i++)
        if (items[i].kind != ATTNRUN_TENSOR)
            return attn_fail(ATTNRUN_E_USAGE,
                             "input %d: element %lld of a sequence is not a tensor",
                             index, (long long)i);
        else
            TRY(check_tensor(&items[i], index));
    return ATTNRUN_OK;
}

attn_status attn_value_check(const attnrun_tensor *value, int32_t index)
{
    if (attn_kind_is_map(value->kind)) {
        char what[32]; /* not for each input of each run */
        snprintf(what, sizeof what, "input %d", index);
        return attn_maps_check(value, ATTNRUN_UNDEFINED, what);
    }
    if (!is_optional(value))
        return check_plain(value, index);
    return value->data ? check_plain(value->data, index) : ATTNRUN_OK;
}

/* ---- copies ---- */

attn_status attn_strings_own(struct attn_heap *heap, struct attn_heap_list *list,
                             attnrun_tensor *t)
{
    attnrun_string *strings = t->data;
    int64_t n = tensor_count(t), bytes = 0;
    for (int64_t k = 0; k < n; k++) {
        TRY(attn_poll_work((int64_t)sizeof *strings));
        if (!ck_add(bytes, strings[k].n, &bytes))
            return attn_fail(ATTNRUN_E_MEMORY,
                             "the strings of a tensor have more than 2^63 - 1 bytes");
    }
    if (n == 0)
        return ATTNRUN_OK;
    char *at = attn_heap_alloc(heap, list, bytes);
    if (at == NULL)
        return ATTNRUN_E_MEMORY;
    for (int64_t k = 0; k < n; k++) {
        TRY(attn_poll_work(strings[k].n + (int64_t)sizeof *strings));
        if (strings[k].n > 0)
            memcpy(at, strings[k].data, (size_t)strings[k].n);
        strings[k].data = at;
        at += strings[k].n;
    }
    return ATTNRUN_OK;
}

static attn_status own_tensor(struct attn_heap *heap, struct attn_heap_list *list,
                              const attnrun_tensor *from, attnrun_tensor *to)
{
    attnrun_tensor made = *from;
    tensor_set_dense(&made);
    made.data = attn_heap_alloc(heap, list, tensor_bytes(&made));
    if (made.data == NULL)
        return ATTNRUN_E_MEMORY;
    TRY(attn_tensor_copy_polled(&made, from));
    *to = made;
    return made.dtype == ATTNRUN_STRING ? attn_strings_own(heap, list, to) : ATTNRUN_OK;
}

/* The keys and the values of a map. */
static attn_status own_map(struct attn_heap *heap, struct attn_heap_list *list,
                           const attnrun_tensor *from, attnrun_tensor *to)
{
    attnrun_tensor *columns = attn_heap_alloc(heap, list, 2 * (int64_t)sizeof *columns);
    if (columns == NULL)
        return ATTNRUN_E_MEMORY;
    TRY(own_tensor(heap, list, map_keys(from), &columns[0]));
    TRY(own_tensor(heap, list, map_values(from), &columns[1]));
    *to = *from;
    to->data = columns;
    return ATTNRUN_OK;
}

static attn_status own_plain(struct attn_heap *heap, struct attn_heap_list *list,
                             const attnrun_tensor *from, attnrun_tensor *to)
{
    int64_t bytes;
    if (from->kind == ATTNRUN_MAP)
        return own_map(heap, list, from, to);
    if (from->kind != ATTNRUN_SEQUENCE && from->kind != ATTNRUN_MAP_SEQUENCE)
        return own_tensor(heap, list, from, to);
    const attnrun_tensor *items = from->data;
    if (!ck_mul(from->dims[0], (int64_t)sizeof *items, &bytes))
        return attn_fail(ATTNRUN_E_MEMORY,
                         "a sequence of %lld elements needs more than 2^63 - 1 bytes",
                         (long long)from->dims[0]);
    attnrun_tensor *copies = attn_heap_alloc(heap, list, bytes);
    if (copies == NULL)
        return ATTNRUN_E_MEMORY;
    for (int64_t i = 0; i < from->dims[0]; i++)
        TRY((items[i].kind == ATTNRUN_MAP ? own_map : own_tensor)(heap, list, &items[i],
                                                                  &copies[i]));
    *to = *from;
    to->data = copies;
    return ATTNRUN_OK;
}

attn_status attn_value_own(struct attn_heap *heap, struct attn_heap_list *list,
                           const attnrun_tensor *from, attnrun_tensor *to)
{
    if (!is_optional(from))
        return own_plain(heap, list, from, to);
    attnrun_tensor made = *from;
    if (from->data != NULL) {
        made.data = attn_heap_alloc(heap, list, (int64_t)sizeof made);
        if (made.data == NULL)
            return ATTNRUN_E_MEMORY;
        TRY(own_plain(heap, list, from->data, made.data));
    }
    *to = made;
    return ATTNRUN_OK;
}
