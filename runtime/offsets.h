/* offsets.h - the place of each block of memory in the arena.
 *
 * In: the bytes of blocks, and the steps in which each is alive. Out: offsets at which blocks that
 * are alive together never overlap, and a lower bound of the bytes of any arena. */
#ifndef ATTN_OFFSETS_H
#define ATTN_OFFSETS_H

#include "alloc.h"

enum { ATTN_ARENA_ALIGN = ATTNRUN_ARENA_ALIGN };

/* Alive from step `first` to step `last`, both included. */
struct attn_block {
    int64_t bytes; /* a multiple of ATTN_ARENA_ALIGN */
    int64_t offset;
    int32_t first, last;
    int32_t value; /* graph value id; -1: scratch of step `first` */
};

/* Sets offsets so that blocks alive at the same step never overlap. *lower_bound is the
 * largest sum of bytes alive at one step, at *peak_step; no arena can be smaller.
 * Cost: O(n^2) for up to 8,192 blocks, a few orders tried where the first misses the bound;
 * O(n log n) for more, and what is left of 2^24 looks at pairs of blocks. */
attn_status attn_pack_offsets(struct attn_memory *memory, struct attn_block *blocks,
                              int64_t n, int32_t n_steps, int64_t *arena_bytes,
                              int64_t *lower_bound, int32_t *peak_step);

#endif
