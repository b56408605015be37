/* offsets_overlap.h - which placed blocks are alive together with another one. */
#ifndef ATTN_OFFSETS_OVERLAP_H
#define ATTN_OFFSETS_OVERLAP_H

#include "offsets.h"

/* Placed blocks by their lifetimes. */
struct attn_overlaps {
    const struct attn_block *blocks;
    int32_t n_steps;
    int32_t *lists;      /* of a node of the tree over the steps: a link, or -1 */
    int32_t *link_block; /* of a link */
    int32_t *link_next;
    int32_t n_links;
    int32_t *starts;     /* of a step: a placed block that starts there, or -1 */
    int32_t *next_start; /* of a block: the next one that starts with it */
};

/* Room in the pool for all of the n blocks. */
attn_status attn_overlaps_create(struct attn_pool *pool, const struct attn_block *blocks,
                                 int64_t n, int32_t n_steps,
                                 struct attn_overlaps *overlaps);
/* No block is placed. */
void attn_overlaps_clear(struct attn_overlaps *overlaps);
void attn_overlaps_add(struct attn_overlaps *overlaps, int32_t block);
/* The placed blocks that are alive together with `block`, each once; at most `max`.
 * Cost: what is found, the steps of the block, and log(steps). */
int64_t attn_overlaps_find(const struct attn_overlaps *overlaps, int32_t block,
                           int32_t *found, int64_t max);

#endif
