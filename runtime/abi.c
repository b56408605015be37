/* abi.c - reads and writes structs that cross the API; see abi.h. */
#include "abi.h"

#include <stdbool.h>
#include <string.h>

/* A struct may grow by this much; a larger struct_size is not looked at beyond. */
enum { MAX_GROWTH = 256, MULTIPLE = 8 };

static uint32_t size_of(const void *given)
{
    uint32_t bytes;
    memcpy(&bytes, given, sizeof bytes);
    return bytes;
}

attn_status attn_struct_check(const void *given, size_t known_bytes, const char *what)
{
    if (given == NULL)
        return attn_fail(ATTNRUN_E_USAGE, "%s is NULL", what);
    const uint32_t bytes = size_of(given);
    bool right = bytes > 0 && bytes % MULTIPLE == 0 && bytes <= known_bytes + MAX_GROWTH;
    const unsigned char *at = given;
    for (size_t i = known_bytes; right && i < bytes; i++)
        right = at[i] == 0;
    if (right)
        return ATTNRUN_OK;
    attn_fail(ATTNRUN_E_USAGE,
              "%s: struct_size %u is that of another ABI (it has %zu bytes here)", what,
              bytes, known_bytes);
    attn_hint("begin with zeros and set struct_size = sizeof(the struct)");
    return ATTNRUN_E_USAGE;
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

attn_status attn_struct_read(const void *given, void *own, size_t known_bytes,
                             const char *what)
{
    TRY(attn_struct_check(given, known_bytes, what));
    memset(own, 0, known_bytes);
    memcpy(own, given, smaller(size_of(given), known_bytes));
    return ATTNRUN_OK;
}

attn_status attn_reserved_check(uint32_t reserved, const char *what)
{
    if (reserved == 0)
        return ATTNRUN_OK;
    attn_fail(ATTNRUN_E_USAGE, "%s: the member 'reserved' is %u, expected 0", what,
              reserved);
    attn_hint("begin with zeros: attnrun_tensor t = { 0 }");
    return ATTNRUN_E_USAGE;
}

attn_status attn_struct_write(void *to, const void *filled, size_t known_bytes,
                              const char *what)
{
    const size_t head = sizeof(uint32_t);
    TRY(attn_struct_check(to, known_bytes, what));
    memcpy((char *)to + head, (const char *)filled + head,
           smaller(size_of(to), known_bytes) - head);
    return ATTNRUN_OK;
}
