/* alloc.c - memory behind a budget, and pools; see alloc.h.
 *
 * In: sizes and a category. Out: memory, or NULL with a sentence for the caller. A pool
 * hands out parts of blocks, which grow from 1 KiB up to 1 MiB, and gives all of them back at
 * once. A keeper keeps what is freed for what is asked for next. */
#include "alloc.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "checked.h"
#include "fill.h"
#include "host.h"

enum {
    ALIGNMENT = 64,
    POOL_FIRST_BLOCK = 1 << 10,
    POOL_ALONE = 16 << 10, /* larger pieces are blocks of their own */
    POOL_LARGEST_BLOCK = 1 << 20,
    HUGE_PAGE = 2 << 20,
    HUGE_BYTES = 4 << 20, /* blocks from here on ask for huge pages */
    POOL_HEADER = 64      /* bytes before a block's data: keeps that aligned */
};

/* What a keeper has to give, and what stands before each of its blocks. One block of each size is
 * in the list, and the others behind it: thousands of blocks have a few sizes. */
struct kept {
    struct kept *next, *same; /* of another size, of this one */
    int64_t bytes;            /* behind this header */
    uint64_t round;
};
enum { KEPT_HEADER = 64 };
_Static_assert(sizeof(struct kept) <= KEPT_HEADER, "the header must hold a struct kept");

struct attn_memory {
    /* Of a keeper, which has this and the next three, and no more; or NULL. */
    struct attn_memory *parent;
    struct kept *kept;
    uint64_t round; /* of releases */
    bool missed;    /* in this round something had to be asked for */
    attnrun_allocator allocator;
    uint64_t max_bytes;
    _Atomic uint64_t used, peak, calls;
    _Atomic uint64_t kinds[ATTN_MEM_KINDS];
};

/* ---- the default allocator ---- */

static void *system_alloc(void *user, size_t bytes, size_t align)
{
    (void)user;
    void *block;
    if (bytes >= HUGE_BYTES) /* fewer page faults and TLB misses on weights and arenas */
        align = HUGE_PAGE;
    if (posix_memalign(&block, align, bytes) != 0)
        return NULL;
    if (bytes >= HUGE_BYTES)
        madvise(block, bytes, MADV_HUGEPAGE);
    return block;
}

static void system_free(void *user, void *block, size_t bytes)
{
    (void)user;
    (void)bytes;
    free(block);
}

static uint64_t default_budget(void)
{
    const uint64_t max = UINT64_C(8) << 30;
    uint64_t half = (uint64_t)attn_host_memory() / 2;
    return half < max ? half : max;
}

/* ---- memory ---- */

struct attn_memory *attn_memory_create(const attnrun_allocator *allocator,
                                       uint64_t max_bytes)
{
    attnrun_allocator use = { sizeof use, NULL, system_alloc, system_free };
    if (allocator != NULL)
        use = *allocator;
    struct attn_memory *memory = use.alloc(use.user, sizeof *memory, ALIGNMENT);
    if (memory == NULL) {
        attn_fail(ATTNRUN_E_MEMORY, "the allocator did not provide %zu bytes",
                  sizeof *memory);
        return NULL;
    }
    memory->parent = NULL;
    memory->allocator = use;
    memory->max_bytes = max_bytes == 0 ? default_budget() : max_bytes;
    atomic_init(&memory->used, 0);
    atomic_init(&memory->peak, 0);
    atomic_init(&memory->calls, 0);
    for (int kind = 0; kind < ATTN_MEM_KINDS; kind++)
        atomic_init(&memory->kinds[kind], 0);
    return memory;
}

struct attn_memory *attn_memory_apart(const struct attn_memory *memory)
{
    return attn_memory_create(&memory->allocator, UINT64_MAX);
}

void attn_memory_destroy(struct attn_memory *memory)
{
    if (memory == NULL)
        return;
    if (memory->parent != NULL) {
        attn_keeper_release(memory, true);
        attn_free(memory->parent, ATTN_MEM_PLAN, memory, (int64_t)sizeof *memory);
        return;
    }
    attnrun_allocator allocator = memory->allocator;
    allocator.free(allocator.user, memory, sizeof *memory);
}

static void raise_peak(struct attn_memory *memory, uint64_t used)
{
    uint64_t peak = atomic_load_explicit(&memory->peak, memory_order_relaxed);
    while (used > peak &&
           !atomic_compare_exchange_weak_explicit(
               &memory->peak, &peak, used, memory_order_relaxed, memory_order_relaxed))
        ;
}

void attn_memory_count_owner(struct attn_memory *memory, int64_t bytes)
{
    const uint64_t both = sizeof *memory + (uint64_t)bytes;
    raise_peak(memory, atomic_fetch_add(&memory->used, both) + both);
}

/* Takes `bytes` out of the budget; false where it does not hold them. */
static bool reserve_budget(struct attn_memory *memory, uint64_t bytes, uint64_t *used)
{
    *used = atomic_load_explicit(&memory->used, memory_order_relaxed);
    do {
        if (*used > memory->max_bytes || bytes > memory->max_bytes - *used)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(
        &memory->used, used, *used + bytes, memory_order_relaxed, memory_order_relaxed));
    return true;
}

static const char *kind_word(enum attn_memory_kind kind)
{
    static const char *const words[ATTN_MEM_KINDS] = {
        [ATTN_MEM_MODEL] = "the graph",
        [ATTN_MEM_WEIGHTS] = "a weight",
        [ATTN_MEM_PLAN] = "the plan",
        [ATTN_MEM_ARENA] = "the arena",
        [ATTN_MEM_HEAP] = "a tensor whose size depends on data",
    };
    return words[kind];
}

/* ---- keepers ---- */

struct attn_memory *attn_keeper_create(struct attn_memory *parent)
{
    struct attn_memory *keeper =
        attn_alloc_zeroed(parent, ATTN_MEM_PLAN, (int64_t)sizeof *keeper);
    if (keeper != NULL)
        keeper->parent = parent;
    return keeper;
}

/* Where the smallest kept blocks are that are large enough; NULL: there are none. */
static struct kept **find_kept(struct attn_memory *keeper, int64_t bytes)
{
    struct kept **best = NULL;
    for (struct kept **at = &keeper->kept; *at != NULL; at = &(*at)->next)
        if ((*at)->bytes >= bytes && (best == NULL || (*at)->bytes < (*best)->bytes))
            best = at;
    return best;
}

/* Takes one of them. A caller that asks for a set of blocks, and later for a set in which each is
 * no larger, finds them all, in whatever order it asks. */
static struct kept *take_kept(struct kept **at)
{
    struct kept *first = *at, *block = first->same;
    if (block != NULL) {
        first->same = block->same;
        return block;
    }
    *at = first->next;
    return first;
}

static void *keeper_alloc(struct attn_memory *keeper, int64_t bytes)
{
    int64_t total;
    struct kept **at = find_kept(keeper, bytes);
    struct kept *block = at != NULL ? take_kept(at) : NULL;
    if (block == NULL) {
        if (bytes < 0 || !ck_add(bytes, KEPT_HEADER, &total))
            total = bytes < 0 ? bytes : INT64_MAX; /* refused below, with a sentence */
        block = attn_alloc(keeper->parent, ATTN_MEM_PLAN, total);
        if (block == NULL)
            return NULL;
        block->bytes = bytes;
        keeper->missed = true;
    }
    attn_unwritten((char *)block + KEPT_HEADER, bytes);
    return (char *)block + KEPT_HEADER;
}

static void keeper_free(struct attn_memory *keeper, void *memory)
{
    struct kept *block = (struct kept *)(void *)((char *)memory - KEPT_HEADER);
    struct kept **at = find_kept(keeper, block->bytes);
    block->round = keeper->round;
    if (at != NULL && (*at)->bytes == block->bytes) {
        block->same = (*at)->same;
        (*at)->same = block;
        return;
    }
    block->same = NULL;
    block->next = keeper->kept;
    keeper->kept = block;
}

void attn_keeper_release(struct attn_memory *keeper, bool all)
{
    struct kept *left = all || keeper->missed ? keeper->kept : NULL;
    if (left != NULL)
        keeper->kept = NULL;
    while (left != NULL) {
        struct kept *block = take_kept(&left);
        if (!all && block->round == keeper->round)
            keeper_free(keeper, (char *)block + KEPT_HEADER);
        else
            attn_free(keeper->parent, ATTN_MEM_PLAN, block, block->bytes + KEPT_HEADER);
    }
    keeper->round++;
    keeper->missed = false;
}

/* ---- blocks ---- */

void *attn_alloc(struct attn_memory *memory, enum attn_memory_kind kind, int64_t bytes)
{
    if (memory->parent != NULL)
        return keeper_alloc(memory, bytes);
    if (bytes < 0 || (uint64_t)bytes > SIZE_MAX - ALIGNMENT) {
        attn_fail(ATTNRUN_E_MEMORY,
                  "an allocation of %" PRId64 " bytes is more than can be addressed",
                  bytes);
        return NULL;
    }
    uint64_t used;
    if (!reserve_budget(memory, (uint64_t)bytes, &used)) {
        const uint64_t total = used + (uint64_t)bytes;
        attn_fail(ATTNRUN_E_MEMORY,
                  "%s needs %" PRId64 " bytes with %" PRIu64
                  " in use, which is over the memory budget of %" PRIu64 " bytes",
                  kind_word(kind), bytes, used, memory->max_bytes);
        attn_hint("at least %" PRIu64 " bytes are needed: --max-memory %" PRIu64
                  "M, or max_memory of the runtime",
                  total, (total >> 20) + 1);
        return NULL;
    }
    atomic_fetch_add_explicit(&memory->calls, 1, memory_order_relaxed);
    size_t size = bytes == 0 ? 1 : (size_t)bytes;
    void *block = memory->allocator.alloc(memory->allocator.user, size, ALIGNMENT);
    if (block == NULL) {
        atomic_fetch_sub_explicit(&memory->used, (uint64_t)bytes, memory_order_relaxed);
        attn_fail(ATTNRUN_E_MEMORY,
                  "%s needs %" PRId64 " bytes with %" PRIu64
                  " in use: the system has no more (the budget is %" PRIu64 " bytes)",
                  kind_word(kind), bytes, used, memory->max_bytes);
        return NULL;
    }
    atomic_fetch_add_explicit(&memory->kinds[kind], (uint64_t)bytes,
                              memory_order_relaxed);
    raise_peak(memory, used + (uint64_t)bytes);
    attn_unwritten(block, bytes);
    return block;
}

void *attn_alloc_zeroed(struct attn_memory *memory, enum attn_memory_kind kind,
                        int64_t bytes)
{
    void *block = attn_alloc(memory, kind, bytes);
    if (block != NULL)
        memset(block, 0, (size_t)bytes);
    return block;
}

void attn_free(struct attn_memory *memory, enum attn_memory_kind kind, void *block,
               int64_t bytes)
{
    if (block == NULL)
        return;
    if (memory->parent != NULL) {
        keeper_free(memory, block);
        return;
    }
    memory->allocator.free(memory->allocator.user, block, bytes == 0 ? 1 : (size_t)bytes);
    atomic_fetch_sub_explicit(&memory->kinds[kind], (uint64_t)bytes,
                              memory_order_relaxed);
    atomic_fetch_sub_explicit(&memory->used, (uint64_t)bytes, memory_order_relaxed);
}

void attn_memory_counts(struct attn_memory *memory, struct attn_memory_counts *counts)
{
    counts->max_bytes = memory->max_bytes;
    counts->used_bytes = atomic_load_explicit(&memory->used, memory_order_relaxed);
    counts->peak_bytes = atomic_load_explicit(&memory->peak, memory_order_relaxed);
    counts->calls = atomic_load_explicit(&memory->calls, memory_order_relaxed);
    for (int kind = 0; kind < ATTN_MEM_KINDS; kind++)
        counts->kind_bytes[kind] =
            atomic_load_explicit(&memory->kinds[kind], memory_order_relaxed);
}

int64_t attn_memory_left(struct attn_memory *memory)
{
    uint64_t used = atomic_load_explicit(&memory->used, memory_order_relaxed);
    uint64_t left = used < memory->max_bytes ? memory->max_bytes - used : 0;
    return left < INT64_MAX ? (int64_t)left : INT64_MAX;
}

/* ---- pools ---- */

struct attn_pool_block {
    struct attn_pool_block *before;
    int64_t bytes, used; /* of the data after the header */
};
_Static_assert(sizeof(struct attn_pool_block) <= POOL_HEADER,
               "the header must hold a block");

void attn_pool_init(struct attn_pool *pool, struct attn_memory *memory,
                    enum attn_memory_kind kind)
{
    *pool = (struct attn_pool){ .memory = memory, .kind = kind };
}

static char *block_data(struct attn_pool_block *block)
{
    return (char *)block + POOL_HEADER;
}

static struct attn_pool_block *new_block(struct attn_pool *pool, int64_t bytes)
{
    int64_t total;
    if (bytes < 0 || !ck_add(bytes, POOL_HEADER, &total))
        total = bytes < 0 ? bytes : INT64_MAX; /* refused below, with a sentence */
    struct attn_pool_block *block = attn_alloc(pool->memory, pool->kind, total);
    if (block != NULL)
        *block = (struct attn_pool_block){ .bytes = bytes };
    return block;
}

/* Makes a block for one piece alone. It is put behind the current block, which goes on being
 * filled. */
static void *alloc_alone(struct attn_pool *pool, int64_t bytes)
{
    struct attn_pool_block *block = new_block(pool, bytes);
    if (block == NULL)
        return NULL;
    block->used = bytes;
    if (pool->last == NULL) {
        pool->last = block;
    } else {
        block->before = pool->last->before;
        pool->last->before = block;
    }
    return block_data(block);
}

/* The size of the next block to be filled, after one of `last` bytes (-1: none): twice that, and
 * large enough for a piece of `bytes`. */
static int64_t next_block(int64_t last, int64_t bytes)
{
    int64_t room = POOL_FIRST_BLOCK;
    if (last >= POOL_FIRST_BLOCK - POOL_HEADER)
        room = 2 * (last + POOL_HEADER);
    if (room > POOL_LARGEST_BLOCK)
        room = POOL_LARGEST_BLOCK;
    while (room - POOL_HEADER < bytes)
        room *= 2;
    return room - POOL_HEADER;
}

static bool add_block(struct attn_pool *pool, int64_t bytes)
{
    const int64_t last = pool->last != NULL ? pool->last->bytes : -1;
    struct attn_pool_block *block = new_block(pool, next_block(last, bytes));
    if (block == NULL)
        return false;
    block->before = pool->last;
    pool->last = block;
    return true;
}

bool attn_pool_apart;

static bool is_alone(int64_t bytes)
{
    return bytes < 0 || bytes > POOL_ALONE || attn_pool_apart;
}

static int64_t place_behind(int64_t used, int64_t bytes)
{
    return round_up(used, bytes > 4096 ? 64 : 16);
}

static void *pool_place(struct attn_pool *pool, int64_t bytes)
{
    int64_t at = 0;
    if (is_alone(bytes))
        return alloc_alone(pool, bytes);
    if (pool->last != NULL)
        at = place_behind(pool->last->used, bytes);
    if (pool->last == NULL || at > pool->last->bytes || bytes > pool->last->bytes - at) {
        if (!add_block(pool, bytes))
            return NULL;
        at = 0;
    }
    pool->last->used = at + (bytes == 0 ? 1 : bytes);
    return block_data(pool->last) + at;
}

void *attn_pool_room(struct attn_pool *pool, int64_t bytes)
{
    void *made = pool_place(pool, bytes);
    if (made == NULL && pool->failed == 0)
        pool->failed = max64(bytes, 1);
    attn_unwritten(made, bytes);
    return made;
}

void *attn_pool_alloc(struct attn_pool *pool, int64_t bytes)
{
    void *made = attn_pool_room(pool, bytes);
    if (made != NULL && bytes > 0)
        memset(made, 0, (size_t)bytes);
    return made;
}

void *attn_pool_copy(struct attn_pool *pool, const void *data, int64_t bytes)
{
    void *copy = attn_pool_room(pool, bytes);
    if (copy != NULL && bytes > 0)
        memcpy(copy, data, (size_t)bytes);
    return copy;
}

char *attn_pool_string(struct attn_pool *pool, const char *text)
{
    if (text == NULL)
        text = "";
    return attn_pool_copy(pool, text, (int64_t)strlen(text) + 1);
}

char *attn_pool_printf(struct attn_pool *pool, const char *format, ...)
{
    char first[1]; /* only the length is asked for */
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(first, sizeof first, format, arguments);
    va_end(arguments);
    char *text = attn_pool_alloc(pool, (n < 0 ? 0 : n) + 1);
    if (text == NULL || n < 0)
        return text;
    va_start(arguments, format);
    vsnprintf(text, (size_t)n + 1, format, arguments);
    va_end(arguments);
    return text;
}

attn_status attn_pool_grow(struct attn_pool *pool, void **items, int64_t *capacity,
                           int64_t used, int64_t item_bytes)
{
    if (used < *capacity)
        return ATTNRUN_OK;
    int64_t wanted, bytes;
    if (!ck_add(used, used / 2, &wanted) || !ck_add(wanted, 8, &wanted) ||
        !ck_mul(wanted, item_bytes, &bytes))
        return attn_fail(ATTNRUN_E_MEMORY, "an array of %" PRId64 " items overflows",
                         used);
    void *grown = attn_pool_room(pool, bytes);
    if (grown == NULL)
        return ATTNRUN_E_MEMORY;
    if (used > 0)
        memcpy(grown, *items, (size_t)(used * item_bytes));
    *items = grown;
    *capacity = wanted;
    return ATTNRUN_OK;
}

struct attn_pool_fill attn_pool_fill(const struct attn_pool *pool)
{
    const struct attn_pool_block *last = pool->last;
    return (struct attn_pool_fill){ .block = last != NULL ? last->bytes : -1,
                                    .used = last != NULL ? last->used : 0 };
}

void attn_pool_fill_add(struct attn_pool_fill *fill, int64_t bytes)
{
    if (is_alone(bytes)) {
        fill->more += bytes + POOL_HEADER;
        if (fill->block < 0) { /* it is the last one then, and full */
            fill->block = bytes;
            fill->used = bytes;
        }
        return;
    }
    int64_t at = place_behind(fill->used, bytes);
    if (fill->block < 0 || at > fill->block || bytes > fill->block - at) {
        fill->block = next_block(fill->block, bytes);
        fill->more += fill->block + POOL_HEADER;
        at = 0;
    }
    fill->used = at + (bytes == 0 ? 1 : bytes);
}

void attn_pool_free(struct attn_pool *pool)
{
    pool->failed = 0;
    while (pool->last != NULL) {
        struct attn_pool_block *block = pool->last;
        pool->last = block->before;
        attn_free(pool->memory, pool->kind, block, block->bytes + POOL_HEADER);
    }
}

void attn_pool_reset(struct attn_pool *pool)
{
    struct attn_pool_block *last = pool->last;
    if (last == NULL)
        return;
    pool->last = last->before;
    attn_pool_free(pool);
    last->before = NULL;
    last->used = 0;
    pool->last = last;
}
