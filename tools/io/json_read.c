/* json_read.c - inline values of inputs: numbers, true, false, strings, and lists of
 * lists of them, of one shape. Two passes over the text: the first finds the shape and
 * checks the syntax, the second stores. No recursion: the lists of at most 8 levels are
 * counters. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "npy_text.h"

struct json_reader {
    const char *text, *at;
    int32_t depth, rank;              /* rank -1: not known yet */
    int64_t counts[ATTNRUN_MAX_RANK]; /* items so far at each open level */
    int64_t dims[ATTNRUN_MAX_RANK];   /* -1: not known yet */
    attnrun_tensor *tensor;           /* NULL in the first pass */
    char *strings;                    /* room for the bytes of strings */
    int64_t n;                        /* scalars so far */
};

static attnrun_status bad(const struct json_reader *reader, const char *what)
{
    return tool_fail(ATTNRUN_E_INPUT, "%s at character %d of '%s'", what,
                     (int)(reader->at - reader->text) + 1, tool_quote(reader->text));
}

static void skip_spaces(struct json_reader *reader)
{
    while (isspace((unsigned char)*reader->at))
        reader->at++;
}

/* A whole number above those of i64, for a tensor of u64. */
static bool store_large(const attnrun_tensor *tensor, int64_t k, const char *word)
{
    char *end;
    errno = 0;
    const unsigned long long whole = strtoull(word, &end, 10);
    const bool good =
        tensor->dtype == ATTNRUN_U64 && word[0] != '-' && *end == 0 && errno == 0;
    if (good)
        ((uint64_t *)tensor->data)[k] = whole;
    return good;
}

/* The four hex digits behind \u; -1 where they are none. */
static int32_t take_unit(struct json_reader *reader)
{
    int32_t unit = 0;
    for (int i = 0; i < 4; i++) {
        int c = (unsigned char)reader->at[i];
        if (!isxdigit(c))
            return -1;
        unit = unit * 16 + (isdigit(c) ? c - '0' : (c | 32) - 'a' + 10);
    }
    reader->at += 4;
    return unit;
}

/* What follows \u as UTF-8; two surrogates, as \ud83d\ude00, are one character. */
static attnrun_status read_unicode(struct json_reader *reader, char *out, int *n)
{
    int32_t code = take_unit(reader);
    if (code >= 0xd800 && code < 0xdc00 && strncmp(reader->at, "\\u", 2) == 0) {
        reader->at += 2;
        const int32_t low = take_unit(reader);
        const bool pair = low >= 0xdc00 && low < 0xe000;
        code = pair      ? 0x10000 + ((code & 0x3ff) << 10) + (low & 0x3ff)
               : low < 0 ? -1
                         : code;
    }
    if (code < 0)
        return bad(reader, "\\u needs four hex digits");
    const int bytes = utf8_encode((uint32_t)code, out + *n);
    *n += bytes;
    return bytes > 0 ? ATTNRUN_OK
                     : bad(reader, "half of a surrogate pair is no character");
}

/* Reads a string at its opening quote into `out`, which has room for the rest of the
 * text. */
static attnrun_status read_string(struct json_reader *reader, char *out, int *n)
{
    static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    *n = 0;
    for (reader->at++; *reader->at != '"';) {
        char c = *reader->at;
        if (c == 0)
            return bad(reader, "a string that is not terminated");
        reader->at++;
        if (c != '\\') {
            out[(*n)++] = c;
        } else if (*reader->at == 'u') {
            reader->at++;
            TRY(read_unicode(reader, out, n));
        } else {
            const char *found = *reader->at == 0 ? NULL : strchr(escapes, *reader->at);
            if (found == NULL)
                return bad(reader, "an unknown escape");
            out[(*n)++] = meant[found - escapes];
            reader->at++;
        }
    }
    reader->at++;
    return ATTNRUN_OK;
}

static attnrun_status store_string(struct json_reader *reader)
{
    int n;
    TRY(read_string(reader, reader->strings, &n));
    if (reader->tensor == NULL)
        return ATTNRUN_OK;
    if (reader->tensor->dtype != ATTNRUN_STRING)
        return bad(reader, "a string, expected a number");
    ((attnrun_string *)reader->tensor->data)[reader->n] =
        (attnrun_string){ reader->strings, n };
    reader->strings += n;
    return ATTNRUN_OK;
}

static attnrun_status store_number(struct json_reader *reader, const char *word,
                                   size_t length)
{
    attnrun_tensor *tensor = reader->tensor;
    char copy[64], *end;
    if (length >= sizeof copy)
        return bad(reader, "no number");
    memcpy(copy, word, length);
    copy[length] = 0;
    bool good, yes = strcmp(copy, "true") == 0, no = strcmp(copy, "false") == 0;
    errno = 0;
    double real = strtod(copy, &end);
    bool is_real = *end == 0 && length > 0;
    if (!yes && !no && !is_real)
        return bad(reader, "no number");
    if (tensor == NULL)
        return ATTNRUN_OK;
    if (tensor->dtype == ATTNRUN_STRING)
        return bad(reader, "a number, expected a string");
    errno = 0;
    int64_t whole = strtoll(copy, &end, 10);
    if (yes || no)
        good = value_set_int(tensor, reader->n, yes);
    else if (*end == 0 && errno == 0)
        good = value_set_int(tensor, reader->n, whole);
    else
        good = store_large(tensor, reader->n, copy) || value_set(tensor, reader->n, real);
    if (good)
        return ATTNRUN_OK;
    return tool_fail(ATTNRUN_E_INPUT, "%s does not fit %s", tool_quote(copy),
                     attnrun_dtype_name(tensor->dtype));
}

static attnrun_status read_scalar(struct json_reader *reader)
{
    if (reader->rank >= 0 && reader->depth != reader->rank)
        return bad(reader, "lists of different depth");
    reader->rank = reader->depth;
    if (*reader->at == '"') {
        TRY(store_string(reader));
    } else {
        size_t length = strcspn(reader->at, " \t\r\n,[]\"");
        TRY(store_number(reader, reader->at, length));
        reader->at += length;
    }
    reader->n++;
    return ATTNRUN_OK;
}

static attnrun_status close_list(struct json_reader *reader)
{
    if (reader->depth == 0)
        return bad(reader, "a ] too many");
    int32_t level = --reader->depth;
    if (reader->rank < 0)
        reader->rank = level + 1; /* an empty list */
    if (reader->dims[level] >= 0 && reader->dims[level] != reader->counts[level])
        return bad(reader, "lists of different length");
    reader->dims[level] = reader->counts[level];
    reader->at++;
    return ATTNRUN_OK;
}

/* One value: counts it in the list that it stands in. */
static attnrun_status begin_value(struct json_reader *reader)
{
    if (reader->depth > 0)
        reader->counts[reader->depth - 1]++;
    if (*reader->at != '[')
        return read_scalar(reader);
    if (reader->depth == ATTNRUN_MAX_RANK)
        return bad(reader, "lists nested more than 8 deep");
    if (reader->rank >= 0 && reader->depth >= reader->rank)
        return bad(reader, "lists of different depth");
    reader->counts[reader->depth++] = 0;
    reader->at++;
    return ATTNRUN_OK;
}

static attnrun_status read_values(struct json_reader *reader)
{
    bool expect_value = true, may_close = false;
    for (;;) {
        skip_spaces(reader);
        char c = *reader->at;
        if (c == ']' && (!expect_value || may_close)) {
            TRY(close_list(reader));
            expect_value = may_close = false;
        } else if (expect_value && c != 0 && c != ',') {
            bool list = c == '[';
            TRY(begin_value(reader));
            expect_value = may_close = list;
        } else if (!expect_value && c == ',' && reader->depth > 0) {
            reader->at++;
            expect_value = true;
            may_close = false;
        } else if (!expect_value && c == 0 && reader->depth == 0) {
            return ATTNRUN_OK;
        } else {
            return bad(reader,
                       c == 0 ? "unexpected end of text" : "an unexpected character");
        }
        if (reader->depth == 0 && !expect_value) {
            skip_spaces(reader);
            return *reader->at == 0 ? ATTNRUN_OK
                                    : bad(reader, "unexpected text after the value");
        }
    }
}

static void start(struct json_reader *reader, const char *text)
{
    memset(reader, 0, sizeof *reader);
    reader->text = reader->at = text;
    reader->rank = -1;
    for (int i = 0; i < ATTNRUN_MAX_RANK; i++)
        reader->dims[i] = -1;
}

attnrun_status json_parse_tensor(const char *text, int32_t dtype, struct held *held)
{
    struct json_reader reader;
    size_t room = dtype == ATTNRUN_STRING ? strlen(text) + 1 : 0;
    char *scratch = malloc(strlen(text) + 1);
    if (scratch == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for an inline value");
    start(&reader, text);
    reader.strings = scratch;
    attnrun_status status = read_values(&reader);
    free(scratch);
    TRY(status);
    for (int32_t i = 0; i < reader.rank; i++) /* below an empty list nothing is known */
        reader.dims[i] = reader.dims[i] < 0 ? 0 : reader.dims[i];
    int64_t dims[ATTNRUN_MAX_RANK];
    memcpy(dims, reader.dims, sizeof dims);
    int32_t rank = reader.rank;
    TRY(held_make(held, dtype, rank, dims, 0));
    size_t bytes = (size_t)attnrun_tensor_bytes(&held->tensor);
    char *memory = realloc(held->memory, bytes + room + 1);
    if (memory == NULL) {
        held_free(held);
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for an inline value");
    }
    held->memory = held->tensor.data = memory;
    start(&reader, text);
    reader.tensor = &held->tensor;
    reader.strings = memory + bytes;
    char *no_strings = room == 0 ? malloc(strlen(text) + 1) : NULL;
    if (room == 0)
        reader.strings = no_strings;
    status = room == 0 && no_strings == NULL
                 ? tool_fail(ATTNRUN_E_MEMORY, "no memory for an inline value")
                 : read_values(&reader);
    free(no_strings);
    if (status != ATTNRUN_OK)
        held_free(held);
    return status;
}
