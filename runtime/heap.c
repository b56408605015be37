/* heap.c - blocks of the side heap; see heap.h. In: a list and a size. Out: memory behind the
 * budget, counted for the run; releasing a list frees all of its blocks. */
#include "heap.h"

#include "checked.h"

struct attn_heap_block {
    struct attn_heap_block *next;
    int64_t bytes; /* with this header */
    char pad[48];
};
_Static_assert(sizeof(struct attn_heap_block) == ATTN_HEAP_HEADER,
               "blocks are aligned to 64 bytes behind their header");

static void count(struct attn_heap *heap, int64_t bytes)
{
    heap->used_bytes += bytes;
    if (heap->total == NULL)
        return;
    heap->total->used_bytes += bytes;
    if (heap->total->used_bytes > heap->total->peak_bytes)
        heap->total->peak_bytes = heap->total->used_bytes;
}

void *attn_heap_alloc(struct attn_heap *heap, struct attn_heap_list *list, int64_t bytes)
{
    int64_t total;
    if (bytes < 0 || !ck_add(bytes, (int64_t)sizeof(struct attn_heap_block), &total)) {
        attn_fail(ATTNRUN_E_MEMORY, "a size at run time overflows");
        return NULL;
    }
    struct attn_heap_block *block = attn_alloc(heap->memory, heap->kind, total);
    if (block == NULL)
        return NULL;
    block->bytes = total;
    block->next = list->first;
    list->first = block;
    count(heap, total);
    return block + 1;
}

void attn_heap_sweep(struct attn_heap *heap, struct attn_heap_list *list,
                     bool (*keep)(const void *arg, const char *first, const char *end),
                     const void *arg)
{
    for (struct attn_heap_block **at = &list->first; *at != NULL;) {
        struct attn_heap_block *block = *at;
        if (keep(arg, (const char *)(block + 1), (const char *)block + block->bytes)) {
            at = &block->next;
            continue;
        }
        *at = block->next;
        count(heap, -block->bytes);
        attn_free(heap->memory, heap->kind, block, block->bytes);
    }
}

int64_t attn_heap_unread(const struct attn_heap_list *list,
                         bool (*keep)(const void *arg, const char *first,
                                      const char *end),
                         const void *arg)
{
    int64_t bytes = 0;
    for (const struct attn_heap_block *block = list->first; block; block = block->next)
        if (!keep(arg, (const char *)(block + 1), (const char *)block + block->bytes))
            bytes += block->bytes;
    return bytes;
}

void attn_heap_release(struct attn_heap *heap, struct attn_heap_list *list)
{
    while (list->first != NULL) {
        struct attn_heap_block *block = list->first;
        list->first = block->next;
        count(heap, -block->bytes);
        attn_free(heap->memory, heap->kind, block, block->bytes);
    }
}

void attn_heap_release_from(struct attn_heap *heap, struct attn_heap_list *list,
                            const struct attn_heap_block *mark)
{
    struct attn_heap_block **at = &list->first;
    while (*at != NULL && *at != mark)
        at = &(*at)->next;
    struct attn_heap_list old = { *at };
    *at = NULL;
    attn_heap_release(heap, &old);
}

void attn_heap_move(struct attn_heap_list *to, struct attn_heap_list *from)
{
    while (from->first != NULL) {
        struct attn_heap_block *block = from->first;
        from->first = block->next;
        block->next = to->first;
        to->first = block;
    }
}
