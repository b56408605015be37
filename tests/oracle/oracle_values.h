/* oracle_values.h - values that outlive their run: see oracle.c.
 *
 * In: an output of a context. Out: a copy, to free_value(); or its hash, which is equal for equal
 * dtypes, shapes and bits. */
#ifndef ATTN_TESTS_ORACLE_VALUES_H
#define ATTN_TESTS_ORACLE_VALUES_H

#include <stdlib.h>
#include <string.h>

#include "../../runtime/attnrun.h"
#include "../../runtime/hash.h"

/* Elements of a sequence, the keys and the values of a map, what an optional holds. */
static int64_t inner_count(const attnrun_tensor *value)
{
    return value->kind == ATTNRUN_SEQUENCE || value->kind == ATTNRUN_MAP_SEQUENCE
               ? value->dims[0]
           : value->kind == ATTNRUN_MAP ? 2
                                        : 1;
}

static attnrun_tensor copy_value(const attnrun_tensor *from);

static void *copy_elements(const attnrun_tensor *from)
{
    int64_t bytes = attnrun_tensor_bytes(from), n = attnrun_tensor_count(from);
    char *to = calloc(1, bytes > 0 ? (size_t)bytes : 1);
    if (bytes > 0)
        memcpy(to, from->data, (size_t)bytes);
    attnrun_string *strings = (attnrun_string *)(void *)to;
    for (int64_t k = 0; from->dtype == ATTNRUN_STRING && k < n; k++) {
        char *text = calloc(1, (size_t)strings[k].n + 1);
        if (strings[k].n > 0)
            memcpy(text, strings[k].data, strings[k].n);
        strings[k].data = text;
    }
    return to;
}

static attnrun_tensor copy_value(const attnrun_tensor *from)
{
    attnrun_tensor to = *from;
    int64_t n = inner_count(from);
    if (from->kind == ATTNRUN_TENSOR) {
        to.data = copy_elements(from);
        return to;
    }
    if (from->data == NULL || from->kind == ATTNRUN_ABSENT)
        return to;
    attnrun_tensor *inner = calloc((size_t)n + 1, sizeof *inner);
    for (int64_t i = 0; i < n; i++)
        inner[i] = copy_value(&((const attnrun_tensor *)from->data)[i]);
    to.data = inner;
    return to;
}

static void free_value(attnrun_tensor *value)
{
    int64_t n =
        value->kind == ATTNRUN_TENSOR ? attnrun_tensor_count(value) : inner_count(value);
    if (value->kind == ATTNRUN_ABSENT || value->data == NULL)
        return;
    for (int64_t k = 0;
         value->kind == ATTNRUN_TENSOR && value->dtype == ATTNRUN_STRING && k < n; k++)
        free((void *)(uintptr_t)((attnrun_string *)value->data)[k].data);
    for (int64_t i = 0; value->kind != ATTNRUN_TENSOR && i < n; i++)
        free_value(&((attnrun_tensor *)value->data)[i]);
    free(value->data);
}

/* The hash of `value` behind `hash`; ATTN_HASH_SEED begins. */
static uint64_t digest_value(const attnrun_tensor *value, uint64_t hash)
{
    const int32_t head[] = { value->kind, value->dtype, value->rank };
    const attnrun_string *strings = value->data;
    hash = attn_hash_bytes(hash, head, sizeof head);
    hash = attn_hash_bytes(hash, value->dims, value->rank * (int64_t)sizeof *value->dims);
    if (value->kind == ATTNRUN_ABSENT || value->data == NULL)
        return hash;
    if (value->kind != ATTNRUN_TENSOR) {
        for (int64_t i = 0; i < inner_count(value); i++)
            hash = digest_value(&((const attnrun_tensor *)value->data)[i], hash);
        return hash;
    }
    if (value->dtype != ATTNRUN_STRING)
        return attn_hash_bytes(hash, value->data, attnrun_tensor_bytes(value));
    for (int64_t k = 0; k < attnrun_tensor_count(value); k++) {
        hash = attn_hash_bytes(hash, &strings[k].n, sizeof strings[k].n);
        hash = attn_hash_bytes(hash, strings[k].data, strings[k].n);
    }
    return hash;
}

#endif
