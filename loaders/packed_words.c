/* packed_words.c - words, texts, dims, types and constants of the graph part of a packed file.
 *
 * In: words of a mapped file, none of which is trusted. Out: the values that they stand for; a
 * word that does not fit its place sets reader->failed, and every read past the end gives 0.
 * Nothing here takes more memory than a small multiple of the words read. */
#include <string.h>

#include "../runtime/dim_table.h"
#include "../runtime/poll.h"
#include "packed_format.h"

/* Numbers of dims are below 2^62, so that sums of two fit. */
#define MAX_NUMBER (INT64_C(1) << 62)

int64_t attn_packed_word(struct attn_packed_reader *reader)
{
    if (reader->at >= reader->n_words) {
        reader->failed = true;
        return 0;
    }
    return reader->words[reader->at++];
}

int64_t attn_packed_number(struct attn_packed_reader *reader, int64_t low, int64_t high)
{
    const int64_t word = attn_packed_word(reader);
    if (word >= low && word <= high)
        return word;
    reader->failed = true;
    return low;
}

const void *attn_packed_array(struct attn_packed_reader *reader, int64_t n, int64_t size)
{
    int64_t bytes;
    const void *at = reader->words + reader->at;
    if (n < 0 || !ck_mul(n, size, &bytes) || bytes / 8 > reader->n_words - reader->at ||
        ceil_div(bytes, 8) > reader->n_words - reader->at) {
        reader->failed = true;
        return NULL;
    }
    reader->at += ceil_div(bytes, 8);
    return at;
}

const char *attn_packed_text(struct attn_packed_reader *reader, int64_t *bytes)
{
    const int64_t n = attn_packed_number(reader, 0, INT64_MAX - 1);
    const char *text = attn_packed_array(reader, n + 1, 1);
    if (text == NULL || text[n] != 0 || (bytes == NULL && strlen(text) != (size_t)n)) {
        reader->failed = true;
        text = "";
    }
    if (bytes != NULL)
        *bytes = reader->failed ? 0 : n;
    return text;
}

attn_status attn_packed_check(const struct attn_packed_reader *reader)
{
    if (reader->model->pool.failed || reader->pool->failed)
        return ATTNRUN_E_MEMORY;
    return reader->failed
               ? attn_fail(ATTNRUN_E_PARSE,
                           "word %lld of the packed graph is not valid at its place",
                           (long long)reader->at)
               : ATTNRUN_OK;
}

/* ---- dims ---- */

static attnrun_dim packed_dim(struct attn_packed_reader *reader)
{
    struct dim_term terms[DIM_MAX_TERMS];
    const int64_t n = attn_packed_number(reader, -1, DIM_MAX_TERMS);
    int32_t last = -1;
    if (n < 0)
        return (attnrun_dim){ .expr = ATTN_DIM_UNKNOWN };
    const int64_t constant = attn_packed_number(reader, -MAX_NUMBER, MAX_NUMBER);
    for (int64_t i = 0; i < n; i++) {
        terms[i].k = attn_packed_number(reader, -MAX_NUMBER, MAX_NUMBER);
        const int64_t symbol = attn_packed_number(reader, 0, reader->n_symbols - 1);
        if (reader->failed || terms[i].k == 0 || reader->symbols[symbol] <= last) {
            reader->failed = true;
            return (attnrun_dim){ .expr = ATTN_DIM_UNKNOWN };
        }
        terms[i].symbol = last = reader->symbols[symbol];
    }
    return n == 0 ? dim_of(constant)
                  : attn_dims_intern(reader->model->dims, constant, terms, (int)n);
}

void attn_packed_type(struct attn_packed_reader *reader, attnrun_type *type)
{
    *type = (attnrun_type){ .kind = ATTNRUN_ABSENT };
    type->kind =
        (int32_t)attn_packed_number(reader, ATTNRUN_ABSENT, ATTNRUN_MAP_SEQUENCE);
    type->dtype = (int32_t)attn_packed_number(reader, 0, ATTNRUN_DTYPE_COUNT - 1);
    type->rank = (int32_t)attn_packed_number(reader, -1, ATTNRUN_MAX_RANK);
    type->key_dtype = (int32_t)attn_packed_number(reader, 0, ATTNRUN_DTYPE_COUNT - 1);
    for (int i = 0; i < type->rank; i++) {
        type->dims[i] = packed_dim(reader);
        if (dim_is_const(type->dims[i]) &&
            (type->dims[i].value < 0 || type->dims[i].value > ATTN_MAX_DIM))
            reader->failed = true;
    }
}

static int32_t read_product(struct attn_packed_reader *reader)
{
    int32_t factors[DIM_MAX_FACTORS];
    const int64_t n = attn_packed_number(reader, 2, DIM_MAX_FACTORS);
    for (int64_t f = 0; f < n; f++) {
        const int64_t symbol = attn_packed_number(reader, 0, reader->n_symbols - 1);
        if (reader->failed)
            return -1;
        factors[f] = reader->symbols[symbol];
        if (reader->model->dims->symbols[factors[f]].kind == SYMBOL_PRODUCT ||
            (f > 0 && factors[f] < factors[f - 1]))
            reader->failed = true;
    }
    return reader->failed ? -1 : attn_dims_factors(reader->model->dims, factors, (int)n);
}

static int32_t read_symbol(struct attn_packed_reader *reader)
{
    struct attn_dims *dims = reader->model->dims;
    const int64_t kind = attn_packed_number(reader, SYMBOL_PLAIN, SYMBOL_NONZERO);
    if (kind == SYMBOL_PLAIN) {
        const char *name = attn_packed_text(reader, NULL);
        const bool vague = attn_packed_number(reader, 0, 1) != 0;
        const bool given = attn_packed_number(reader, 0, 1) != 0;
        const int32_t symbol = reader->failed ? -1 : attn_dims_plain(dims, name, vague);
        if (given)
            attn_dims_give(dims, symbol);
        return symbol;
    }
    if (kind == SYMBOL_PRODUCT)
        return read_product(reader);
    const attnrun_dim a = packed_dim(reader), b = packed_dim(reader);
    if (reader->failed || a.expr < 0 || b.expr < 0)
        return -1;
    return attn_dims_derived(dims, (enum dim_symbol_kind)kind, a, b);
}

attn_status attn_packed_symbols(struct attn_packed_reader *reader)
{
    const int64_t n = attn_packed_number(reader, 0, DIM_MAX_SYMBOLS);
    reader->symbols =
        attn_pool_alloc(reader->pool, (n + 1) * (int64_t)sizeof *reader->symbols);
    if (reader->symbols == NULL)
        return ATTNRUN_E_MEMORY;
    while (reader->n_symbols < n && !reader->failed) {
        const int32_t symbol = read_symbol(reader);
        TRY(attn_poll_work(256));
        reader->failed = reader->failed || symbol < 0;
        reader->symbols[reader->n_symbols] = symbol;
        reader->n_symbols += !reader->failed;
    }
    return attn_packed_check(reader);
}

/* ---- constants ---- */

static attn_status read_strings(struct attn_packed_reader *reader, attnrun_tensor *tensor)
{
    const int64_t n = tensor_count(tensor);
    if (n < 0 || n > reader->n_words - reader->at) { /* two words each, at least */
        reader->failed = true;
        return ATTNRUN_OK;
    }
    attnrun_string *texts =
        attn_pool_alloc(&reader->model->weights, n * (int64_t)sizeof *texts + 1);
    if (texts == NULL)
        return ATTNRUN_E_MEMORY;
    for (int64_t i = 0; i < n; i++)
        texts[i].data = attn_packed_text(reader, &texts[i].n);
    tensor->data = texts;
    return ATTNRUN_OK;
}

attn_status attn_packed_constant(struct attn_packed_reader *reader,
                                 const attnrun_type *type, attnrun_tensor *tensor,
                                 bool *released)
{
    const int64_t place = attn_packed_number(reader, PACKED_STRINGS, INT64_MAX);
    attnrun_tensor made = { .kind = ATTNRUN_TENSOR,
                            .dtype = type->dtype,
                            .rank = type->rank };
    *tensor = (attnrun_tensor){ .kind = ATTNRUN_ABSENT };
    *released = place == PACKED_RELEASED;
    if (place == PACKED_NONE)
        return ATTNRUN_OK;
    bool right = !reader->failed && type->kind == ATTNRUN_TENSOR && type->rank >= 0 &&
                 type->dtype != ATTNRUN_UNDEFINED &&
                 (place == PACKED_STRINGS) == (type->dtype == ATTNRUN_STRING);
    for (int i = 0; right && i < type->rank; i++) {
        right = dim_is_const(type->dims[i]);
        made.dims[i] = type->dims[i].value;
    }
    const int64_t bytes = right ? tensor_bytes(&made) : -1;
    if (bytes < 0 || !attn_tensor_can_exist(&made) ||
        (place == PACKED_RELEASED && bytes > reader->released_bytes) ||
        (place >= 0 &&
         (place > reader->data_bytes || bytes > reader->data_bytes - place))) {
        reader->failed = true;
        return ATTNRUN_OK;
    }
    tensor_set_dense(&made);
    if (place == PACKED_STRINGS)
        TRY(read_strings(reader, &made));
    else
        made.data = place == PACKED_RELEASED ? reader->zeros
                                             : (void *)(uintptr_t)(reader->data + place);
    *tensor = made;
    return ATTNRUN_OK;
}
