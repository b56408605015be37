/* heap.h - the side heap of a run: memory of values whose size is known only then. A list
 * holds the blocks of one value and is released as a whole. */
#ifndef ATTN_HEAP_H
#define ATTN_HEAP_H

#include <stdbool.h>

#include "alloc.h"

/* What several heaps hold together: those of a run, with its subgraphs. */
struct attn_heap_total {
    int64_t used_bytes, peak_bytes;
};

struct attn_heap {
    struct attn_memory *memory;
    enum attn_memory_kind kind;
    int64_t used_bytes;
    struct attn_heap_total *total; /* or NULL */
};

enum { ATTN_HEAP_HEADER = 64 }; /* of each block, counted as used */

struct attn_heap_block; /* header in front of the bytes */
struct attn_heap_list {
    struct attn_heap_block *first;
};

/* 64-byte aligned; NULL with the error recorded. */
void *attn_heap_alloc(struct attn_heap *heap, struct attn_heap_list *list, int64_t bytes);
void attn_heap_release(struct attn_heap *heap, struct attn_heap_list *list);
/* Releases the blocks that were in the list when `mark` was its first one. */
void attn_heap_release_from(struct attn_heap *heap, struct attn_heap_list *list,
                            const struct attn_heap_block *mark);
/* Releases the blocks for which keep(arg, first byte, end) says no. */
void attn_heap_sweep(struct attn_heap *heap, struct attn_heap_list *list,
                     bool (*keep)(const void *arg, const char *first, const char *end),
                     const void *arg);
/* The bytes that attn_heap_sweep() would release. */
int64_t attn_heap_unread(const struct attn_heap_list *list,
                         bool (*keep)(const void *arg, const char *first,
                                      const char *end),
                         const void *arg);
/* Moves all blocks of `from` to `to`. */
void attn_heap_move(struct attn_heap_list *to, struct attn_heap_list *from);

#endif
