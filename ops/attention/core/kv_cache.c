/* kv_cache.c - copies keys or values of a head, with polls. kv_cache.h describes the operands and
 * the cost. */
#include "kv_cache.h"

void attn_cache_copy(void *to, const void *from, int64_t row, int64_t n, int64_t bytes)
{
    const bool dense = row == bytes;
    const int64_t rows = dense && n > 0 ? 1 : n, size = dense ? n * bytes : bytes;
    for (int64_t i = 0; i < rows; i++)
        if (attn_poll_copy((char *)to + i * bytes, (const char *)from + i * row, size) !=
            ATTNRUN_OK)
            return;
}

void attn_cache_copy_past(const attnrun_tensor *present, const attnrun_tensor *past,
                          int64_t head, int64_t n)
{
    if (n == 0) /* then the node may have no such input */
        return;
    const int64_t heads = present->dims[1], b = head / heads, h = head % heads;
    attn_cache_copy(cache_at(present, b, h, 0), cache_at(past, b, h, 0), past->strides[2],
                    n, past->dims[3] * dtype_bytes(past->dtype));
}
