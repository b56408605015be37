/* offsets_overlap.c - which placed blocks are alive together with another one.
 *
 * in:  blocks, as they are placed, and one that is to be placed
 * out: those whose lifetimes overlap its own, without a look at the others
 *
 * Two lifetimes overlap where one has the first step of the other. A tree over the steps
 * lists a lifetime at the O(log steps) nodes that cover it, so those that have a given step
 * are in the lists from its leaf up to the root; those that start later within the lifetime
 * are listed by their first steps. */
#include "offsets_overlap.h"

#include <string.h>

/* The nodes that cover the steps of a block, from leaves n_steps + step: calls visit(). */
static void cover(struct attn_overlaps *overlaps, int32_t block, bool add)
{
    int64_t left = (int64_t)overlaps->blocks[block].first + overlaps->n_steps;
    int64_t right = (int64_t)overlaps->blocks[block].last + overlaps->n_steps + 1;
    for (; left < right; left /= 2, right /= 2) {
        int64_t nodes[2], n = 0;
        if (left % 2 == 1)
            nodes[n++] = left++;
        if (right % 2 == 1)
            nodes[n++] = --right;
        for (int64_t i = 0; i < n; i++, overlaps->n_links++) {
            if (!add)
                continue;
            overlaps->link_block[overlaps->n_links] = block;
            overlaps->link_next[overlaps->n_links] = overlaps->lists[nodes[i]];
            overlaps->lists[nodes[i]] = overlaps->n_links;
        }
    }
}

attn_status attn_overlaps_create(struct attn_pool *pool, const struct attn_block *blocks,
                                 int64_t n, int32_t n_steps,
                                 struct attn_overlaps *overlaps)
{
    const int64_t each = (int64_t)sizeof(int32_t);
    *overlaps = (struct attn_overlaps){ .blocks = blocks, .n_steps = n_steps };
    for (int32_t b = 0; b < n; b++)
        cover(overlaps, b, false); /* counts the links */
    overlaps->lists = attn_pool_alloc(pool, 2 * (int64_t)n_steps * each);
    overlaps->starts = attn_pool_alloc(pool, n_steps * each);
    overlaps->next_start = attn_pool_alloc(pool, n * each);
    overlaps->link_block = attn_pool_alloc(pool, overlaps->n_links * each);
    overlaps->link_next = attn_pool_alloc(pool, overlaps->n_links * each);
    bool made = overlaps->lists && overlaps->starts && overlaps->next_start &&
                overlaps->link_block && overlaps->link_next;
    return made ? ATTNRUN_OK : ATTNRUN_E_MEMORY;
}

void attn_overlaps_clear(struct attn_overlaps *overlaps)
{
    const size_t n = (size_t)overlaps->n_steps;
    memset(overlaps->lists, 0xff, 2 * n * sizeof *overlaps->lists); /* -1 */
    memset(overlaps->starts, 0xff, n * sizeof *overlaps->starts);
    overlaps->n_links = 0;
}

void attn_overlaps_add(struct attn_overlaps *overlaps, int32_t block)
{
    int32_t *start = &overlaps->starts[overlaps->blocks[block].first];
    overlaps->next_start[block] = *start;
    *start = block;
    cover(overlaps, block, true);
}

int64_t attn_overlaps_find(const struct attn_overlaps *overlaps, int32_t block,
                           int32_t *found, int64_t max)
{
    const struct attn_block *b = &overlaps->blocks[block];
    int64_t n = 0;
    for (int64_t node = (int64_t)b->first + overlaps->n_steps; node >= 1; node /= 2)
        for (int32_t link = overlaps->lists[node]; link >= 0 && n < max;
             link = overlaps->link_next[link])
            found[n++] = overlaps->link_block[link];
    for (int32_t step = b->first + 1; step <= b->last && n < max; step++)
        for (int32_t other = overlaps->starts[step]; other >= 0 && n < max;
             other = overlaps->next_start[other])
            found[n++] = other;
    return n;
}
