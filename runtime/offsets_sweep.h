/* offsets_sweep.h - places many blocks in one walk over the steps. */
#ifndef ATTN_OFFSETS_SWEEP_H
#define ATTN_OFFSETS_SWEEP_H

#include "offsets.h"

/* offsets[i] of each block i, and the size of the arena; blocks that start at one step are
 * placed from the largest to the smallest. `backward`: from the last step to the first.
 * The sum of all blocks must not overflow. Cost: O(n log n). */
attn_status attn_sweep_offsets(struct attn_memory *memory,
                               const struct attn_block *blocks, int64_t n,
                               int32_t n_steps, bool backward, int64_t *offsets,
                               int64_t *arena_bytes);

#endif
