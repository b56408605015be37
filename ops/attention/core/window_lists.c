/* window_lists.c - lists which tokens of a sample are global and which keys are seen; all
 * windows of the sample share these lists. window.h describes the operands.
 *
 * In: a mask of keys and a mask of global tokens, (kv_len) bytes each. Out: struct
 * attn_window_lists. Cost: one pass over the masks. */
#include "window.h"

struct attn_window_lists attn_window_lists_at(const struct attn_window *w, void *memory)
{
    struct attn_window_lists lists = { .count = memory };
    const int64_t n = w->s.batch * w->s.kv_len;
    if (!w->globals)
        return (struct attn_window_lists){ .count = NULL };
    lists.tokens = lists.count + w->s.batch;
    lists.seen = (uint8_t *)(lists.tokens + n);
    lists.global = lists.seen + n;
    return lists;
}

void attn_window_list(const struct attn_window *w, const struct attn_window_lists *lists,
                      int64_t b, int64_t first, const uint8_t *global_mask,
                      const uint8_t *key_mask, bool needs_key)
{
    const int64_t n = w->s.kv_len;
    int32_t count = 0;
    for (int64_t j = 0; j < n; j++) {
        const bool key = key_mask == NULL || key_mask[j] != 0;
        const bool global = (j < first || (global_mask != NULL && global_mask[j] != 0)) &&
                            (key || !needs_key);
        lists->global[b * n + j] = global;
        lists->seen[b * n + j] = key && !global;
        if (global)
            lists->tokens[b * n + count++] = (int32_t)j;
    }
    lists->count[b] = count;
}
