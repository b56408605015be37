/* npy_text.c - arrays of text in NumPy's files: 'S' (bytes) and 'U' (code points of 4 bytes)
 * become string tensors; 'U' becomes UTF-8. NumPy pads with NULs, which are not kept. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "npy_text.h"

int utf8_encode(uint32_t point, char *to)
{
    if (point < 0x80) {
        to[0] = (char)point;
        return 1;
    }
    if (point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
        return 0;
    int n = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--) {
        to[i] = (char)(0x80 | (point & 0x3f));
        point >>= 6;
    }
    to[0] = (char)((0xf00u >> n & 0xf0) | point);
    return n;
}

uint32_t utf8_decode(const char *text, int n)
{
    uint32_t point = (unsigned char)*text & (n > 1 ? 0x7fu >> n : 0x7fu);
    for (int i = 1; i < n; i++)
        point = point << 6 | ((unsigned char)text[i] & 0x3fu);
    return point;
}

/* Code points up to the padding; returns the bytes, -1 where one is no character. */
static int64_t take_points(const uint8_t *from, int64_t bytes, char *to)
{
    int64_t n = 0, length = 0;
    for (int64_t i = 0; i + 4 <= bytes; i += 4) {
        uint32_t point;
        memcpy(&point, from + i, 4);
        int more = utf8_encode(point, to + n);
        if (more == 0)
            return -1;
        n += more;
        length = point != 0 ? n : length;
    }
    return length;
}

static int64_t take_bytes(const uint8_t *from, int64_t bytes, char *to)
{
    while (bytes > 0 && from[bytes - 1] == 0)
        bytes--;
    memcpy(to, from, (size_t)bytes);
    return bytes;
}

attnrun_status npy_text_make(const char *name, const struct npy_text *text,
                             const struct held *raw, uint64_t max_bytes,
                             struct held *made)
{
    const int64_t n = attnrun_tensor_count(&raw->tensor), item = text->item_bytes;
    const uint8_t *from = raw->memory;
    const int64_t table = n * (int64_t)sizeof(attnrun_string);
    memset(made, 0, sizeof *made);
    if (max_bytes != 0 && (uint64_t)(table + n * item) > max_bytes)
        return tool_fail(ATTNRUN_E_MEMORY,
                         "%s needs %" PRId64
                         " bytes, which is over the memory budget of %" PRIu64 " bytes",
                         name, table + n * item, max_bytes);
    /* UTF-8 takes at most the 4 bytes of a code point */
    made->memory = malloc((size_t)(table + n * item) + 1);
    if (made->memory == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for %" PRId64 " bytes",
                         table + n * item);
    made->tensor = raw->tensor;
    made->tensor.dtype = ATTNRUN_STRING;
    made->tensor.data = made->memory;
    attnrun_string *strings = made->memory;
    char *to = (char *)made->memory + table;
    for (int64_t k = 0; k < n; k++) {
        int64_t length = text->kind == 'U' ? take_points(from + k * item, item, to)
                                           : take_bytes(from + k * item, item, to);
        if (length < 0) {
            tool_fail(ATTNRUN_E_PARSE,
                      "%s: element %" PRId64
                      " has a number that is not a character of U+0000 to U+10FFFF",
                      name, k);
            held_free(made);
            return tool_error.status;
        }
        strings[k] = (attnrun_string){ .data = to, .n = length };
        to += length;
    }
    return attnrun_tensor_make(ATTNRUN_STRING, raw->tensor.rank, raw->tensor.dims,
                               made->memory, &made->tensor);
}
