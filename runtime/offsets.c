/* offsets.c - greedy placement: blocks in some order, each into the smallest gap that
 * fits between the blocks already placed that are alive with it. Orders by size, by area
 * and by time are tried until one is near the lower bound; then blocks that raise the
 * arena are moved to the front and the order is tried again.
 *
 * A try looks at all pairs of blocks. Of more than SCANNED blocks it looks only at pairs that
 * are alive together (offsets_overlap.c), and at no more than PAIRS of them in all; walks
 * over the steps (offsets_sweep.c) give the offsets to start with. */
#include "offsets.h"

#include <stdlib.h>
#include <string.h>

#include "checked.h"
#include "offsets_overlap.h"
#include "offsets_sweep.h"
#include "poll.h"

enum { PULLS = 24, SCANNED = 8192, PAIRS = 1 << 24 };
static const int64_t NOT_PLACED = INT64_MAX; /* no multiple of ATTN_ARENA_ALIGN */

struct packing {
    struct attn_block *blocks;
    int64_t n;
    int32_t *order, *best_order;   /* indices of blocks */
    int32_t *placed;               /* those placed so far, by offset */
    int64_t *offsets;              /* of the try under way */
    int64_t best, best_top;        /* bytes; place in the order of what ends there */
    struct attn_overlaps overlaps; /* of more than SCANNED blocks */
    int32_t *rank_of_block;        /* of a block: its place in the order, once placed */
    int64_t pairs;                 /* that may still be looked at */
};

static bool alive_together(const struct attn_block *a, const struct attn_block *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* The best offset for a block: the smallest gap that holds it, else behind all. `others`:
 * blocks by offset, all that are alive with it among them. */
static int64_t best_fit(const struct packing *packing, const int32_t *others, int64_t n,
                        int32_t block)
{
    const struct attn_block *b = &packing->blocks[block];
    int64_t end = 0, best = -1, best_gap = INT64_MAX;
    for (int64_t i = 0; i < n; i++) {
        int32_t other = others[i];
        if (!alive_together(b, &packing->blocks[other]))
            continue;
        int64_t gap = packing->offsets[other] - end;
        if (gap >= b->bytes && gap < best_gap) {
            best = end;
            best_gap = gap;
        }
        int64_t other_end = packing->offsets[other] + packing->blocks[other].bytes;
        if (other_end > end)
            end = other_end;
    }
    return best >= 0 ? best : end;
}

static void insert_placed(struct packing *packing, int64_t n_placed, int32_t block)
{
    int64_t i = n_placed;
    for (; i > 0 && packing->offsets[packing->placed[i - 1]] > packing->offsets[block];
         i--)
        packing->placed[i] = packing->placed[i - 1];
    packing->placed[i] = block;
}

static _Thread_local const struct packing *sort_packing; /* of the qsort under way */

/* As insert_placed() has them: of two at one offset, the one placed first. */
static int by_offset(const void *left, const void *right)
{
    const int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
    const int64_t x = sort_packing->offsets[a], y = sort_packing->offsets[b];
    if (x != y)
        return x > y ? 1 : -1;
    return sort_packing->rank_of_block[a] > sort_packing->rank_of_block[b] ? 1 : -1;
}

/* Places the block that is number `i` of the order; false where no pairs are left. */
static bool place(struct packing *packing, int64_t i, int32_t block)
{
    if (packing->rank_of_block == NULL) {
        packing->offsets[block] = best_fit(packing, packing->placed, i, block);
        insert_placed(packing, i, block);
        return true;
    }
    int64_t n =
        attn_overlaps_find(&packing->overlaps, block, packing->placed, packing->n);
    packing->pairs -= n + packing->blocks[block].last - packing->blocks[block].first;
    sort_packing = packing;
    qsort(packing->placed, (size_t)n, sizeof *packing->placed, by_offset);
    packing->offsets[block] = best_fit(packing, packing->placed, n, block);
    packing->rank_of_block[block] = (int32_t)i;
    attn_overlaps_add(&packing->overlaps, block);
    return packing->pairs > 0;
}

/* Places all blocks in packing->order; keeps the result where it is the best so far. *top
 * is the place in the order of the block that ends highest. */
static void try_order(struct packing *packing, int64_t *top)
{
    int64_t arena = 0;
    *top = 0;
    if (packing->rank_of_block != NULL)
        attn_overlaps_clear(&packing->overlaps);
    for (int64_t i = 0; i < packing->n; i++) {
        int32_t block = packing->order[i];
        if (attn_poll_work(packing->rank_of_block == NULL ? i * 8 + 64 : 4096) !=
                ATTNRUN_OK ||
            !place(packing, i, block))
            return;
        int64_t end = packing->offsets[block] + packing->blocks[block].bytes;
        if (end > arena) {
            arena = end;
            *top = i;
        }
    }
    if (arena >= packing->best)
        return;
    packing->best = arena;
    packing->best_top = *top;
    memcpy(packing->best_order, packing->order, (size_t)packing->n * sizeof(int32_t));
    for (int64_t i = 0; i < packing->n; i++)
        packing->blocks[i].offset = packing->offsets[i];
}

static _Thread_local const struct attn_block *sort_blocks; /* of the qsort under way */

static int blocks_by_size(const void *left, const void *right)
{
    const struct attn_block *a = &sort_blocks[*(const int32_t *)left];
    const struct attn_block *b = &sort_blocks[*(const int32_t *)right];
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return (a->first > b->first) - (a->first < b->first);
}

static int by_area(const void *left, const void *right)
{
    const struct attn_block *a = &sort_blocks[*(const int32_t *)left];
    const struct attn_block *b = &sort_blocks[*(const int32_t *)right];
    double x = (double)a->bytes * (a->last - a->first + 1);
    double y = (double)b->bytes * (b->last - b->first + 1);
    if (x > y || x < y)
        return x < y ? 1 : -1;
    return (a->first > b->first) - (a->first < b->first);
}

static int by_life(const void *left, const void *right)
{
    const struct attn_block *a = &sort_blocks[*(const int32_t *)left];
    const struct attn_block *b = &sort_blocks[*(const int32_t *)right];
    int32_t x = a->last - a->first, y = b->last - b->first;
    return x != y ? (x < y ? 1 : -1) : blocks_by_size(left, right);
}

static int by_start(const void *left, const void *right)
{
    const struct attn_block *a = &sort_blocks[*(const int32_t *)left];
    const struct attn_block *b = &sort_blocks[*(const int32_t *)right];
    return a->first != b->first ? (a->first > b->first ? 1 : -1)
                                : blocks_by_size(left, right);
}

static bool good_enough(int64_t arena, int64_t bound)
{
    return arena != NOT_PLACED && arena - bound <= bound / 100;
}

static bool may_go_on(const struct packing *packing, int64_t bound)
{
    return !good_enough(packing->best, bound) && packing->pairs > 0 &&
           attn_poll() == ATTNRUN_OK;
}

static void search(struct packing *packing, int64_t bound)
{
    int (*const orders[])(const void *, const void *) = { blocks_by_size, by_area,
                                                          by_life, by_start };
    int64_t top;
    sort_blocks = packing->blocks;
    for (size_t k = 0; k < 4 && may_go_on(packing, bound); k++) {
        for (int64_t i = 0; i < packing->n; i++)
            packing->order[i] = (int32_t)i;
        qsort(packing->order, (size_t)packing->n, sizeof(int32_t), orders[k]);
        try_order(packing, &top);
    }
    /* Pull the block that sticks out towards the front of the order, a bounded time; from
     * the best order again where some pulls have not made it better. */
    int64_t tries = packing->n < 1000 ? 200 : packing->n < 5000 ? 20 : 4;
    uint32_t mix = 1;
    memcpy(packing->order, packing->best_order, (size_t)packing->n * sizeof(int32_t));
    for (int64_t t = 0; t < tries && may_go_on(packing, bound); t++) {
        try_order(packing, &top);
        if (t % PULLS == PULLS - 1) {
            memcpy(packing->order, packing->best_order,
                   (size_t)packing->n * sizeof(int32_t));
            top = packing->best_top;
        }
        mix = mix * 1664525 + 1013904223; /* the same plan every time */
        int64_t to =
            t % 2 == 0 ? 0 : (int64_t)((uint64_t)mix * (uint64_t)(top + 1) >> 32);
        int32_t block = packing->order[top];
        memmove(&packing->order[to + 1], &packing->order[to],
                (size_t)(top - to) * sizeof(int32_t));
        packing->order[to] = block;
    }
}

static attn_status measure_bound(struct attn_memory *memory,
                                 const struct attn_block *blocks, int64_t n,
                                 int32_t n_steps, int64_t *bound, int32_t *peak)
{
    int64_t bytes = ((int64_t)n_steps + 1) * (int64_t)sizeof(int64_t);
    int64_t *change = attn_alloc_zeroed(memory, ATTN_MEM_PLAN, bytes);
    if (change == NULL)
        return ATTNRUN_E_MEMORY;
    bool fits = true;
    for (int64_t i = 0; i < n; i++) {
        fits = fits &&
               ck_add(change[blocks[i].first], blocks[i].bytes, &change[blocks[i].first]);
        fits = fits && ck_sub(change[blocks[i].last + 1], blocks[i].bytes,
                              &change[blocks[i].last + 1]);
    }
    int64_t alive = 0;
    *bound = 0;
    *peak = 0;
    for (int32_t s = 0; fits && s < n_steps; s++) {
        fits = ck_add(alive, change[s], &alive);
        if (alive > *bound) {
            *bound = alive;
            *peak = s;
        }
    }
    attn_free(memory, ATTN_MEM_PLAN, change, bytes);
    return fits ? ATTNRUN_OK
                : attn_fail(ATTNRUN_E_MEMORY, "the sizes of the arena's blocks overflow");
}

/* The better one of a walk forward and one backward. */
static attn_status sweep(struct attn_memory *memory, struct packing *packing,
                         int32_t n_steps, int64_t bound)
{
    for (int backward = 0; backward < 2 && !good_enough(packing->best, bound);
         backward++) {
        int64_t arena;
        TRY(attn_sweep_offsets(memory, packing->blocks, packing->n, n_steps, backward,
                               packing->offsets, &arena));
        for (int64_t i = 0; arena < packing->best && i < packing->n; i++)
            packing->blocks[i].offset = packing->offsets[i];
        if (arena < packing->best)
            packing->best = arena;
    }
    return ATTNRUN_OK;
}

/* What a search among many blocks needs: where the first order has no pairs left, the
 * order to go on from is that of the blocks. */
static attn_status prepare_many(struct attn_pool *scratch, struct packing *packing,
                                int32_t n_steps)
{
    for (int64_t i = 0; i < packing->n; i++)
        packing->best_order[i] = (int32_t)i;
    packing->rank_of_block =
        attn_pool_alloc(scratch, packing->n * (int64_t)sizeof(int32_t));
    if (packing->rank_of_block == NULL)
        return ATTNRUN_E_MEMORY;
    return attn_overlaps_create(scratch, packing->blocks, packing->n, n_steps,
                                &packing->overlaps);
}

/* ---- scratch ---- */

static int by_place(const void *left, const void *right)
{
    const struct attn_block *a = &sort_blocks[*(const int32_t *)left];
    const struct attn_block *b = &sort_blocks[*(const int32_t *)right];
    return (a->offset > b->offset) - (a->offset < b->offset);
}

/* The highest place that a block of one step can have beside `others`, all blocks by
 * offset; its own where other scratch of that step may move, too. */
static int64_t highest_place(const struct packing *packing, const int32_t *others,
                             const struct attn_block *block)
{
    int64_t end = packing->best;
    bool found = false;
    for (int64_t i = packing->n - 1; i >= 0; i--) {
        const struct attn_block *other = &packing->blocks[others[i]];
        if (other == block || other->bytes == 0 || !alive_together(block, other))
            continue; /* an empty one may lie where another one begins */
        if (other->value < 0)
            return block->offset;
        found = found || end - (other->offset + other->bytes) >= block->bytes;
        end = found ? end : other->offset;
    }
    return end - block->bytes;
}

/* Scratch goes to the top of the arena, where maps are few: a worker then finds the lines that
 * it wrote before, and not those of a map that other cores have read, which are slow to
 * write. */
static void lift_scratch(struct packing *packing)
{
    int32_t *const others = packing->placed;
    for (int64_t i = 0; i < packing->n; i++)
        others[i] = (int32_t)i;
    sort_blocks = packing->blocks;
    qsort(others, (size_t)packing->n, sizeof *others, by_place);
    for (int64_t i = 0; i < packing->n; i++) {
        struct attn_block *block = &packing->blocks[i];
        if (block->value >= 0 || block->first != block->last)
            continue;
        if (attn_poll_work(packing->n * 8) != ATTNRUN_OK)
            return;
        block->offset = highest_place(packing, others, block);
    }
}

attn_status attn_pack_offsets(struct attn_memory *memory, struct attn_block *blocks,
                              int64_t n, int32_t n_steps, int64_t *arena_bytes,
                              int64_t *lower_bound, int32_t *peak_step)
{
    struct packing packing = {
        .blocks = blocks, .n = n, .best = NOT_PLACED, .pairs = PAIRS
    };
    struct attn_pool scratch;
    *arena_bytes = *lower_bound = 0;
    *peak_step = 0;
    if (n == 0)
        return ATTNRUN_OK;
    TRY(measure_bound(memory, blocks, n, n_steps, lower_bound, peak_step));
    int64_t sum = 0; /* the worst arena must not overflow either */
    for (int64_t i = 0; i < n; i++)
        if (!ck_add(sum, blocks[i].bytes, &sum))
            return attn_fail(ATTNRUN_E_MEMORY,
                             "the sizes of the arena's blocks overflow");
    attn_pool_init(&scratch, memory, ATTN_MEM_PLAN);
    packing.order = attn_pool_alloc(&scratch, n * (int64_t)sizeof(int32_t));
    packing.best_order = attn_pool_alloc(&scratch, n * (int64_t)sizeof(int32_t));
    packing.placed = attn_pool_alloc(&scratch, n * (int64_t)sizeof(int32_t));
    packing.offsets = attn_pool_alloc(&scratch, n * (int64_t)sizeof(int64_t));
    bool made = packing.order && packing.best_order && packing.placed && packing.offsets;
    attn_status status = made ? ATTNRUN_OK : ATTNRUN_E_MEMORY;
    if (made && n > SCANNED) {
        status = sweep(memory, &packing, n_steps, *lower_bound);
        if (status == ATTNRUN_OK)
            status = prepare_many(&scratch, &packing, n_steps);
    }
    if (status == ATTNRUN_OK)
        search(&packing, *lower_bound);
    if (status == ATTNRUN_OK && n <= SCANNED && attn_poll() == ATTNRUN_OK)
        lift_scratch(&packing);
    *arena_bytes = packing.best;
    attn_pool_free(&scratch);
    return status == ATTNRUN_OK ? attn_poll() : status;
}
