/* npy_read.c - reads NumPy's array files. Every field of the header is checked against
 * the bytes that are there before anything is allocated.
 *
 *     "\x93NUMPY" major minor header_bytes(2 or 4)
 *     "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }"
 *     data */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "input_limits.h"
#include "npy.h"
#include "npy_text.h"

enum { MAX_EMPTY = 1 << 20 }; /* texts that take no bytes of the file */

struct npy {
    const char *name;    /* for messages */
    int32_t dtype, rank; /* dtype STRING: what the elements are is in `text` */
    int64_t item_bytes;
    bool fortran, swapped;
    struct npy_text text;
    int64_t dims[ATTNRUN_MAX_RANK];
    int64_t data_offset, data_bytes;
    uint64_t max_bytes;
};

static attnrun_status malformed(const struct npy *npy, const char *what)
{
    return tool_fail(ATTNRUN_E_PARSE, "%s is not a valid npy file: %s", npy->name, what);
}

/* ---- the header's dictionary ---- */

static const char *npy_skip_spaces(const char *at)
{
    while (*at == ' ' || *at == '\t' || *at == '\n')
        at++;
    return at;
}

/* 'text' in either quotes; returns what follows, or NULL. */
static const char *quoted(const char *at, char *text, size_t bytes)
{
    char quote = *at;
    if (quote != '\'' && quote != '"')
        return NULL;
    const char *end = strchr(at + 1, quote);
    if (end == NULL || (size_t)(end - at) > bytes)
        return NULL;
    memcpy(text, at + 1, (size_t)(end - at - 1));
    text[end - at - 1] = 0;
    return end + 1;
}

static attnrun_status set_type(struct npy *npy, const char *descr)
{
    static const struct {
        char kind;
        int bytes;
        int32_t dtype;
    } types[] = {
        { 'f', 2, ATTNRUN_F16 }, { 'f', 4, ATTNRUN_F32 },   { 'f', 8, ATTNRUN_F64 },
        { 'i', 1, ATTNRUN_I8 },  { 'i', 2, ATTNRUN_I16 },   { 'i', 4, ATTNRUN_I32 },
        { 'i', 8, ATTNRUN_I64 }, { 'u', 1, ATTNRUN_U8 },    { 'u', 2, ATTNRUN_U16 },
        { 'u', 4, ATTNRUN_U32 }, { 'u', 8, ATTNRUN_U64 },   { 'b', 1, ATTNRUN_BOOL },
        { 'c', 8, ATTNRUN_C64 }, { 'c', 16, ATTNRUN_C128 },
    };
    bool order = strchr("<>|=", descr[0]) != NULL && descr[0] != 0;
    const char *type = descr + (order ? 1 : 0);
    size_t digits = type[0] == 0 ? 0 : strspn(type + 1, "0123456789");
    int bytes = digits > 0 && digits < 9 ? atoi(type + 1) : 0;
    if (type[0] == 0 || type[1 + digits] != 0)
        bytes = 0;
    else if ((type[0] == 'S' || type[0] == 'U') && digits > 0 && digits < 9) {
        npy->dtype = ATTNRUN_STRING;
        npy->item_bytes = (int64_t)bytes * (type[0] == 'U' ? 4 : 1);
        npy->text = (struct npy_text){ type[0], npy->item_bytes };
        npy->swapped = descr[0] == '>' && type[0] == 'U';
        return ATTNRUN_OK;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].kind == type[0] && types[i].bytes == bytes) {
            npy->dtype = types[i].dtype;
            npy->item_bytes = bytes;
            npy->swapped = descr[0] == '>' && bytes > 1;
            return ATTNRUN_OK;
        }
    return tool_fail(ATTNRUN_E_INPUT,
                     "%s holds elements of type '%s', which attnrun does not read",
                     npy->name, tool_quote(descr));
}

/* "(3, 4)", "(3,)", "()"; sets *at behind it. */
static attnrun_status set_shape(struct npy *npy, const char **at)
{
    const char *c = npy_skip_spaces(*at + 1);
    npy->rank = 0;
    while (*c != ')') {
        uint64_t d = 0;
        if (!isdigit((unsigned char)*c))
            return malformed(npy, "its shape is not a list of sizes that are 0 or more");
        for (; isdigit((unsigned char)*c); c++) {
            d = d * 10 + (uint64_t)(*c - '0');
            if (d > INT64_C(1) << 47)
                return tool_fail(ATTNRUN_E_LIMIT, "%s has a dimension above 2^47",
                                 npy->name);
        }
        if (npy->rank == ATTNRUN_MAX_RANK)
            return tool_fail(ATTNRUN_E_LIMIT, "%s has more than %d dimensions", npy->name,
                             ATTNRUN_MAX_RANK);
        npy->dims[npy->rank++] = (int64_t)d;
        c = npy_skip_spaces(c);
        if (*c == ',')
            c = npy_skip_spaces(c + 1);
        else if (*c != ')')
            return malformed(npy, "its shape is not a list of sizes");
    }
    *at = c + 1;
    return ATTNRUN_OK;
}

/* One "'key': value"; bits of *seen: 1 descr, 2 fortran_order, 4 shape. */
static attnrun_status read_entry(struct npy *npy, const char **at, int *seen)
{
    char key[32], descr[64];
    int bit;
    const char *c = quoted(*at, key, sizeof key);
    if (c == NULL || *(c = npy_skip_spaces(c)) != ':')
        return malformed(npy, "its header is not a dictionary");
    c = npy_skip_spaces(c + 1);
    if (strcmp(key, "descr") == 0) {
        bit = 1;
        bool records = *c == '[';
        c = quoted(c, descr, sizeof descr);
        if (c == NULL && !records)
            return malformed(npy, "its descr is not quoted");
        if (c == NULL)
            return tool_fail(ATTNRUN_E_INPUT,
                             "%s holds records, which attnrun does not read", npy->name);
        TRY(set_type(npy, descr));
    } else if (strcmp(key, "fortran_order") == 0) {
        bit = 2;
        npy->fortran = strncmp(c, "True", 4) == 0;
        if (!npy->fortran && strncmp(c, "False", 5) != 0)
            return malformed(npy, "fortran_order is neither True nor False");
        c += npy->fortran ? 4 : 5;
    } else if (strcmp(key, "shape") == 0) {
        bit = 4;
        if (*c != '(')
            return malformed(npy, "its shape is not a tuple");
        TRY(set_shape(npy, &c));
    } else {
        return malformed(npy, "its header has an unknown key");
    }
    if (*seen & bit)
        return malformed(npy, "a key appears twice in its header");
    *seen |= bit;
    *at = c;
    return ATTNRUN_OK;
}

static attnrun_status read_dictionary(struct npy *npy, const char *text)
{
    const char *at = npy_skip_spaces(text);
    int seen = 0;
    if (*at != '{')
        return malformed(npy, "its header is not a dictionary");
    at = npy_skip_spaces(at + 1);
    while (*at != '}') {
        TRY(read_entry(npy, &at, &seen));
        at = npy_skip_spaces(at);
        if (*at == ',')
            at = npy_skip_spaces(at + 1);
        else if (*at != '}')
            return malformed(npy, "its header is not a dictionary");
    }
    if (*npy_skip_spaces(at + 1) != 0)
        return malformed(npy, "there is text behind the dictionary in its header");
    return seen == 7 ? ATTNRUN_OK
                     : malformed(npy, "its header lacks descr, fortran_order or shape");
}

/* Elements times their size, against what is there. */
static attnrun_status check_bytes(struct npy *npy, int64_t there)
{
    attnrun_tensor tensor;
    if (attnrun_tensor_make(npy->dtype, npy->rank, npy->dims, NULL, &tensor) !=
        ATTNRUN_OK)
        return tool_fail(ATTNRUN_E_LIMIT, "%s has a shape that is too large", npy->name);
    if (npy->dtype == ATTNRUN_STRING && npy->item_bytes == 0 &&
        attnrun_tensor_count(&tensor) > MAX_EMPTY)
        return tool_fail(ATTNRUN_E_LIMIT, "%s has more than %d strings of 0 bytes",
                         npy->name, MAX_EMPTY);
    npy->data_bytes = attnrun_tensor_bytes(&tensor);
    if (npy->dtype == ATTNRUN_STRING && npy->data_bytes >= 0 &&
        __builtin_mul_overflow(attnrun_tensor_count(&tensor), npy->item_bytes,
                               &npy->data_bytes))
        npy->data_bytes = -1;
    if (npy->data_bytes < 0)
        return tool_fail(ATTNRUN_E_LIMIT, "%s has a shape that is too large", npy->name);
    if (npy->data_bytes != there)
        return tool_fail(ATTNRUN_E_PARSE, "%s declares %s, which is %s, but holds %s",
                         npy->name, value_shape(&tensor),
                         tool_plural(npy->data_bytes, "byte"),
                         tool_plural(there, "byte"));
    return ATTNRUN_OK;
}

/* The first 12 bytes: where the header's text lies. */
static attnrun_status read_prefix(struct npy *npy, const uint8_t *head, int64_t bytes,
                                  int64_t *text_offset, int64_t *text_bytes)
{
    if (bytes < 10 || memcmp(head, "\x93NUMPY", 6) != 0) {
        const char *kind = file_other_kind(head, bytes);
        return malformed(npy, kind != NULL ? kind : "it does not begin with \\x93NUMPY");
    }
    if (head[6] < 1 || head[6] > 3 || (head[6] > 1 && bytes < 12))
        return malformed(npy, "its version is not 1, 2 or 3");
    *text_offset = head[6] == 1 ? 10 : 12;
    *text_bytes = head[8] | head[9] << 8;
    if (head[6] > 1)
        *text_bytes |= (int64_t)head[10] << 16 | (int64_t)head[11] << 24;
    if (*text_bytes > bytes - *text_offset)
        return malformed(npy, "its header is longer than the file");
    if (*text_bytes > tool_limits.npy_header_bytes) {
        tool_fail(ATTNRUN_E_LIMIT,
                  "%s has a header of more than %" PRId64
                  " bytes (limit 'npy_header_bytes')",
                  npy->name, tool_limits.npy_header_bytes);
        return tool_hint_limit("npy_header_bytes");
    }
    npy->data_offset = *text_offset + *text_bytes;
    return ATTNRUN_OK;
}

static attnrun_status read_header_text(struct npy *npy, char *text, int64_t text_bytes,
                                       int64_t there)
{
    text[text_bytes] = 0;
    if (memchr(text, 0, (size_t)text_bytes) != NULL)
        return malformed(npy, "its header has a NUL byte");
    TRY(read_dictionary(npy, text));
    return check_bytes(npy, there);
}

/* ---- the data ---- */

static void swap_bytes(uint8_t *data, int64_t bytes, int unit)
{
    for (int64_t at = 0; at + unit <= bytes; at += unit)
        for (int i = 0; i < unit / 2; i++) {
            uint8_t b = data[at + i];
            data[at + i] = data[at + unit - 1 - i];
            data[at + unit - 1 - i] = b;
        }
}

/* Column-major to row-major. */
static attnrun_status from_fortran(const struct npy *npy, struct held *held)
{
    attnrun_tensor *t = &held->tensor;
    int64_t n = attnrun_tensor_count(t), index[ATTNRUN_MAX_RANK] = { 0 };
    int64_t strides[ATTNRUN_MAX_RANK], stride = npy->item_bytes;
    uint8_t *to = malloc((size_t)npy->data_bytes + 1);
    if (to == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for %" PRId64 " bytes",
                         npy->data_bytes);
    for (int32_t i = 0; i < t->rank && n > 0; i++) { /* n 0: they may overflow */
        strides[i] = stride;
        stride *= t->dims[i];
    }
    const uint8_t *from = held->memory;
    for (int64_t k = 0; k < n; k++) {
        memcpy(to + k * npy->item_bytes, from, (size_t)npy->item_bytes);
        for (int32_t i = t->rank - 1; i >= 0; i--) {
            from += strides[i];
            if (++index[i] < t->dims[i])
                break;
            from -= strides[i] * t->dims[i];
            index[i] = 0;
        }
    }
    free(held->memory);
    held->memory = t->data = to;
    return ATTNRUN_OK;
}

static attnrun_status make_strings(const struct npy *npy, struct held *held)
{
    struct held strings;
    TRY(npy_text_make(npy->name, &npy->text, held, npy->max_bytes, &strings));
    held_free(held);
    *held = strings;
    return ATTNRUN_OK;
}

/* Bytes as in the file to what the library wants. */
static attnrun_status npy_finish(const struct npy *npy, struct held *held)
{
    bool complex = value_is_complex(npy->dtype);
    const bool text = npy->dtype == ATTNRUN_STRING;
    if (npy->swapped)
        swap_bytes(held->memory, npy->data_bytes,
                   text      ? 4
                   : complex ? (int)npy->item_bytes / 2
                             : (int)npy->item_bytes);
    if (npy->dtype == ATTNRUN_BOOL) /* any byte but 0 is true */
        for (int64_t k = 0; k < npy->data_bytes; k++)
            ((uint8_t *)held->memory)[k] = ((uint8_t *)held->memory)[k] != 0;
    if (npy->fortran && npy->rank > 1)
        TRY(from_fortran(npy, held));
    return text ? make_strings(npy, held) : ATTNRUN_OK;
}

/* Memory for the bytes of the file. Those of text come under the shape that they have. */
static attnrun_status make_room(const struct npy *npy, uint64_t max_bytes,
                                struct held *held)
{
    if (npy->dtype != ATTNRUN_STRING)
        return held_make(held, npy->dtype, npy->rank, npy->dims, max_bytes);
    TRY(held_make(held, ATTNRUN_U8, 1, &npy->data_bytes, max_bytes));
    held->tensor.rank = npy->rank;
    memcpy(held->tensor.dims, npy->dims, sizeof npy->dims);
    return ATTNRUN_OK;
}

attnrun_status npy_parse(const char *name, const uint8_t *data, int64_t bytes,
                         uint64_t max_bytes, struct held *held)
{
    struct npy npy = { .name = name, .max_bytes = max_bytes };
    int64_t text_offset = 0, text_bytes = 0;
    TRY(read_prefix(&npy, data, bytes, &text_offset, &text_bytes));
    char *text = malloc((size_t)text_bytes + 1);
    if (text == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for a header");
    memcpy(text, data + text_offset, (size_t)text_bytes);
    attnrun_status status =
        read_header_text(&npy, text, text_bytes, bytes - npy.data_offset);
    free(text);
    TRY(status);
    TRY(make_room(&npy, max_bytes, held));
    memcpy(held->memory, data + npy.data_offset, (size_t)npy.data_bytes);
    status = npy_finish(&npy, held);
    if (status != ATTNRUN_OK)
        held_free(held);
    return status;
}

static attnrun_status read_open_file(const struct input_file *file, struct npy *npy,
                                     uint64_t max_bytes, struct held *held)
{
    uint8_t head[12] = { 0 };
    int64_t text_offset = 0, text_bytes = 0;
    TRY(input_file_read(file, 0, head, file->bytes < 12 ? file->bytes : 12));
    TRY(read_prefix(npy, head, file->bytes, &text_offset, &text_bytes));
    char *text = malloc((size_t)text_bytes + 1);
    if (text == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for a header");
    attnrun_status status = input_file_read(file, text_offset, text, text_bytes);
    if (status == ATTNRUN_OK)
        status = read_header_text(npy, text, text_bytes, file->bytes - npy->data_offset);
    free(text);
    TRY(status);
    TRY(make_room(npy, max_bytes, held));
    status = input_file_read(file, npy->data_offset, held->memory, npy->data_bytes);
    if (status == ATTNRUN_OK)
        status = npy_finish(npy, held);
    if (status != ATTNRUN_OK)
        held_free(held);
    return status;
}

attnrun_status npy_read(const char *path, uint64_t max_bytes, struct held *held)
{
    struct input_file file;
    char name[256];
    snprintf(name, sizeof name, "%s", tool_path(path));
    struct npy npy = { .name = name, .max_bytes = max_bytes };
    TRY(input_file_open(&file, path));
    attnrun_status status = read_open_file(&file, &npy, max_bytes, held);
    input_file_close(&file);
    return status;
}
