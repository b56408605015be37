/* alloc.h - the one way to memory: the caller's allocator (or malloc) behind a budget, with
 * categories and counters; and a pool for allocations that are freed together. */
#ifndef ATTN_ALLOC_H
#define ATTN_ALLOC_H

#include <stdbool.h>

#include "status.h"

enum attn_memory_kind {
    ATTN_MEM_MODEL,   /* graph, names, attributes */
    ATTN_MEM_WEIGHTS, /* read (not mapped), folded and packed constants */
    ATTN_MEM_PLAN,
    ATTN_MEM_ARENA,
    ATTN_MEM_HEAP, /* data-dependent shapes at run */
    ATTN_MEM_KINDS
};

struct attn_memory; /* allocator + budget + counters; shared, thread-safe */

struct attn_memory *attn_memory_create(const attnrun_allocator *allocator,
                                       uint64_t max_bytes);
void attn_memory_destroy(struct attn_memory *memory);
/* Counts this object and the `bytes` of its owner, which the allocator gave to no block, as held
 * from here on. */
void attn_memory_count_owner(struct attn_memory *memory, int64_t bytes);

/* 64-byte aligned, not cleared; NULL (with the error recorded: wanted, used, budget)
 * where the budget or the allocator says no. bytes 0 gives a valid pointer. Negative
 * bytes fail. */
void *attn_alloc(struct attn_memory *memory, enum attn_memory_kind kind, int64_t bytes);
void *attn_alloc_zeroed(struct attn_memory *memory, enum attn_memory_kind kind,
                        int64_t bytes);
/* bytes must be what was asked for. NULL is allowed. */
void attn_free(struct attn_memory *memory, enum attn_memory_kind kind, void *block,
               int64_t bytes);

/* Memory of the same allocator that counts for itself and has no budget: to measure what some
 * work takes. */
struct attn_memory *attn_memory_apart(const struct attn_memory *memory);

/* Memory of `parent`, as plans, that keeps what is freed for what is asked for next: planning for
 * each token asks for the same again. For attn_alloc(), attn_free() and pools alone, from one
 * thread at a time. Ends with attn_memory_destroy(), when nothing of it is in use. */
struct attn_memory *attn_keeper_create(struct attn_memory *parent);
/* Gives back all that is kept; or, where something did not fit since the last call of this, what
 * was kept at that time already. */
void attn_keeper_release(struct attn_memory *keeper, bool all);

struct attn_memory_counts {
    uint64_t max_bytes, used_bytes, peak_bytes, calls;
    uint64_t kind_bytes[ATTN_MEM_KINDS];
};
/* Bytes that the budget still has. */
int64_t attn_memory_left(struct attn_memory *memory);
void attn_memory_counts(struct attn_memory *memory, struct attn_memory_counts *counts);

/* A pool: blocks freed all at once. Not thread-safe. */
struct attn_pool {
    struct attn_memory *memory;
    enum attn_memory_kind kind;
    struct attn_pool_block *last;
    /* Bytes that it had no memory for, or 0: what was put into it may lack something. */
    int64_t failed;
};
/* For tests: each piece is a block of its own, so that each may fail. Set it before any
 * pool is used. */
extern bool attn_pool_apart;
void attn_pool_init(struct attn_pool *pool, struct attn_memory *memory,
                    enum attn_memory_kind kind);
/* Zeroed, 16-byte aligned (64 for blocks over 4 KiB). NULL with the error recorded. */
void *attn_pool_alloc(struct attn_pool *pool, int64_t bytes);
/* The same, but not zeroed: the caller writes all that it reads. */
void *attn_pool_room(struct attn_pool *pool, int64_t bytes);
void *attn_pool_copy(struct attn_pool *pool, const void *data, int64_t bytes);
char *attn_pool_string(struct attn_pool *pool, const char *text); /* NULL text: "" */
char *attn_pool_printf(struct attn_pool *pool, const char *format, ...) ATTN_PRINTF(2, 3);
/* A growing array: makes room for one more element, which is not zeroed. *items and *capacity
 * are updated; the old array stays in the pool until that ends. */
attn_status attn_pool_grow(struct attn_pool *pool, void **items, int64_t *capacity,
                           int64_t used, int64_t item_bytes);
void attn_pool_free(struct attn_pool *pool);
/* Ends all that is in the pool, and keeps its last block for what comes next. */
void attn_pool_reset(struct attn_pool *pool);
/* What more a pool would take, without taking it. */
struct attn_pool_fill {
    int64_t block, used; /* of its last block; block -1: none */
    int64_t more;        /* bytes that it would have asked for since */
};
struct attn_pool_fill attn_pool_fill(const struct attn_pool *pool);
void attn_pool_fill_add(struct attn_pool_fill *fill, int64_t bytes);

#endif
