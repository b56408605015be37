/* offsets_sweep.c - places blocks in one walk over the steps, for plans of so many blocks
 * that a search among all of them would take too long.
 *
 * in:  blocks with sizes and lifetimes
 * out: an offset for each; a block takes a gap that is free at its first step
 *
 *      region: |  taken  | free |   taken   |    free    | taken |
 *                          ▲ by size class        ▲
 *
 * Regions cover the arena side by side. A free one is in the list of its size class (16
 * classes for each power of two, as in allocators with segregated fits); free neighbours
 * become one region. */
#include "offsets_sweep.h"

#include <stdlib.h>

#include "poll.h"

enum {
    SUB_BITS = 4, /* classes for a power of two, as bits */
    CLASSES = 64 << SUB_BITS,
    LOOKS = 16, /* regions of a block's own class to look at: they may be too small */
    NONE = -1
};

struct sweep_region {
    int64_t offset, bytes;
    int32_t left, right; /* the regions beside it */
    int32_t previous_free,
        next; /* in the list of its class; `next` also of unused ones */
    bool free;
};

struct sweep {
    const struct attn_block *blocks;
    bool backward;
    int32_t n_steps;
    int32_t *order;     /* blocks by the step where they start */
    int32_t *ends;      /* of a step: a block that ends there */
    int32_t *next_end;  /* of a block: the next one that ends with it */
    int32_t *region_of; /* of a block */
    struct sweep_region *regions;
    int32_t n_regions, unused, last; /* last: at the end of the arena */
    int32_t lists[CLASSES];
    uint64_t filled[CLASSES / 64]; /* a bit for each list that is not empty */
    int64_t arena;
};

static int32_t start_of(const struct sweep *sweep, int32_t block)
{
    const struct attn_block *b = &sweep->blocks[block];
    return sweep->backward ? sweep->n_steps - 1 - b->last : b->first;
}

static int32_t end_of(const struct sweep *sweep, int32_t block)
{
    const struct attn_block *b = &sweep->blocks[block];
    return sweep->backward ? sweep->n_steps - 1 - b->first : b->last;
}

/* ---- free regions by size ---- */

static int32_t class_of(int64_t bytes)
{
    const uint64_t units = (uint64_t)bytes / ATTN_ARENA_ALIGN;
    if (units < (1 << SUB_BITS))
        return (int32_t)units;
    const int top = 63 - __builtin_clzll(units);
    return ((top - SUB_BITS + 1) << SUB_BITS) +
           (int32_t)(units >> (top - SUB_BITS) & ((1 << SUB_BITS) - 1));
}

static void put_free(struct sweep *sweep, int32_t id)
{
    struct sweep_region *region = &sweep->regions[id];
    const int32_t k = class_of(region->bytes);
    region->free = true;
    region->previous_free = NONE;
    region->next = sweep->lists[k];
    if (region->next != NONE)
        sweep->regions[region->next].previous_free = id;
    sweep->lists[k] = id;
    sweep->filled[k / 64] |= UINT64_C(1) << k % 64;
}

static void take_free(struct sweep *sweep, int32_t id)
{
    struct sweep_region *region = &sweep->regions[id];
    const int32_t k = class_of(region->bytes);
    region->free = false;
    if (region->next != NONE)
        sweep->regions[region->next].previous_free = region->previous_free;
    if (region->previous_free != NONE)
        sweep->regions[region->previous_free].next = region->next;
    else
        sweep->lists[k] = region->next;
    if (sweep->lists[k] == NONE)
        sweep->filled[k / 64] &= ~(UINT64_C(1) << k % 64);
}

/* The first class from k on that has a region; NONE where there is none. */
static int32_t next_class(const struct sweep *sweep, int32_t k)
{
    for (int32_t word = k / 64; word < CLASSES / 64; word++) {
        uint64_t bits = sweep->filled[word];
        if (word == k / 64)
            bits &= ~UINT64_C(0) << k % 64;
        if (bits != 0)
            return word * 64 + __builtin_ctzll(bits);
    }
    return NONE;
}

/* A free region of at least so many bytes, nearly the smallest; NONE where there is none. */
static int32_t find_free(const struct sweep *sweep, int64_t bytes)
{
    const int32_t k = class_of(bytes);
    int32_t best = NONE, looks = 0;
    for (int32_t id = sweep->lists[k]; id != NONE && looks < LOOKS; looks++) {
        const struct sweep_region *region = &sweep->regions[id];
        if (region->bytes >= bytes &&
            (best == NONE || region->bytes < sweep->regions[best].bytes))
            best = id;
        id = region->next;
    }
    const int32_t above = best == NONE ? next_class(sweep, k + 1) : NONE;
    return above != NONE ? sweep->lists[above] : best;
}

/* ---- regions side by side ---- */

/* A new region to the right of region `left` (NONE: the first). */
static int32_t add_region(struct sweep *sweep, int32_t left, int64_t offset,
                          int64_t bytes)
{
    int32_t id = sweep->unused;
    if (id != NONE)
        sweep->unused = sweep->regions[id].next;
    else
        id = sweep->n_regions++;
    const int32_t right = left != NONE ? sweep->regions[left].right : NONE;
    sweep->regions[id] = (struct sweep_region){
        .offset = offset, .bytes = bytes, .left = left, .right = right
    };
    if (left != NONE)
        sweep->regions[left].right = id;
    if (right != NONE)
        sweep->regions[right].left = id;
    else
        sweep->last = id;
    return id;
}

/* Region `right` becomes a part of `left`, which is beside it; neither is in a list. */
static void sweep_join(struct sweep *sweep, int32_t left, int32_t right)
{
    struct sweep_region *l = &sweep->regions[left], *r = &sweep->regions[right];
    l->bytes += r->bytes;
    l->right = r->right;
    if (r->right != NONE)
        sweep->regions[r->right].left = left;
    else
        sweep->last = left;
    r->next = sweep->unused;
    sweep->unused = right;
}

/* A region of exactly so many bytes, taken. */
static int32_t sweep_take(struct sweep *sweep, int64_t bytes)
{
    int32_t id = find_free(sweep, bytes);
    if (id != NONE) {
        take_free(sweep, id);
    } else if (sweep->last != NONE && sweep->regions[sweep->last].free) {
        id = sweep->last; /* too small: the arena grows by what is missing */
        take_free(sweep, id);
        sweep->arena += bytes - sweep->regions[id].bytes;
        sweep->regions[id].bytes = bytes;
    } else {
        id = add_region(sweep, sweep->last, sweep->arena, bytes);
        sweep->arena += bytes;
    }
    const int64_t more = sweep->regions[id].bytes - bytes;
    sweep->regions[id].bytes = bytes;
    if (more > 0)
        put_free(sweep, add_region(sweep, id, sweep->regions[id].offset + bytes, more));
    return id;
}

static void give_back(struct sweep *sweep, int32_t id)
{
    const int32_t left = sweep->regions[id].left, right = sweep->regions[id].right;
    if (right != NONE && sweep->regions[right].free) {
        take_free(sweep, right);
        sweep_join(sweep, id, right);
    }
    if (left != NONE && sweep->regions[left].free) {
        take_free(sweep, left);
        sweep_join(sweep, left, id);
        id = left;
    }
    put_free(sweep, id);
}

/* ---- the walk ---- */

static _Thread_local const struct sweep *sorted; /* by the qsort under way */

static int by_start(const void *left, const void *right)
{
    const int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
    const int32_t x = start_of(sorted, a), y = start_of(sorted, b);
    const int64_t v = sorted->blocks[a].bytes, w = sorted->blocks[b].bytes;
    if (x != y)
        return x > y ? 1 : -1;
    if (v != w)
        return v < w ? 1 : -1;
    return a > b ? 1 : -1;
}

static void offsets_sweep_walk(struct sweep *sweep, int64_t n, int64_t *offsets)
{
    int32_t step = 0;
    for (int64_t i = 0; i < n && !attn_stops(i); i++) {
        const int32_t block = sweep->order[i];
        for (; step < start_of(sweep, block); step++)
            for (int32_t e = sweep->ends[step]; e != NONE; e = sweep->next_end[e])
                if (sweep->region_of[e] != NONE)
                    give_back(sweep, sweep->region_of[e]);
        sweep->region_of[block] = NONE;
        offsets[block] = 0;
        if (sweep->blocks[block].bytes == 0)
            continue;
        const int32_t id = sweep_take(sweep, sweep->blocks[block].bytes);
        sweep->region_of[block] = id;
        offsets[block] = sweep->regions[id].offset;
    }
}

static bool allocate(struct sweep *sweep, struct attn_pool *pool, int64_t n)
{
    const int64_t each = (int64_t)sizeof(int32_t);
    sweep->order = attn_pool_alloc(pool, n * each);
    sweep->next_end = attn_pool_alloc(pool, n * each);
    sweep->region_of = attn_pool_alloc(pool, n * each);
    sweep->ends = attn_pool_alloc(pool, sweep->n_steps * each);
    sweep->regions = /* taken ones, and at most one free one beside each */
        attn_pool_alloc(pool, (2 * n + 1) * (int64_t)sizeof *sweep->regions);
    return sweep->order && sweep->next_end && sweep->region_of && sweep->ends &&
           sweep->regions;
}

attn_status attn_sweep_offsets(struct attn_memory *memory,
                               const struct attn_block *blocks, int64_t n,
                               int32_t n_steps, bool backward, int64_t *offsets,
                               int64_t *arena_bytes)
{
    struct attn_pool pool;
    struct sweep sweep = { .blocks = blocks,
                           .backward = backward,
                           .n_steps = n_steps,
                           .unused = NONE,
                           .last = NONE };
    attn_pool_init(&pool, memory, ATTN_MEM_PLAN);
    if (!allocate(&sweep, &pool, n)) {
        attn_pool_free(&pool);
        return ATTNRUN_E_MEMORY;
    }
    for (int32_t k = 0; k < CLASSES; k++)
        sweep.lists[k] = NONE;
    for (int32_t s = 0; s < n_steps; s++)
        sweep.ends[s] = NONE;
    for (int32_t b = 0; b < n; b++) {
        const int32_t end = end_of(&sweep, b);
        sweep.order[b] = b;
        sweep.next_end[b] = sweep.ends[end];
        sweep.ends[end] = b;
    }
    sorted = &sweep;
    qsort(sweep.order, (size_t)n, sizeof *sweep.order, by_start);
    sorted = NULL;
    offsets_sweep_walk(&sweep, n, offsets);
    attn_pool_free(&pool);
    *arena_bytes = sweep.arena;
    return attn_poll();
}
