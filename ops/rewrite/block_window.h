/* block_window.h - attention in blocks of queries against neighbouring blocks of keys.
 * Its pass (fuse_block_attention.c), its windows (block_window.c) and its masks
 * (block_mask.c) share this file. Block w of c queries sees the keys (w - before) c … (w
 * + after + 1) c - 1. */
#ifndef ATTN_BLOCK_WINDOW_H
#define ATTN_BLOCK_WINDOW_H

#include "product.h"

/* The blocks of a window whose order may be another. */
enum { ATTN_BLOCK_ORDER = 8 };

/* A value (…, blocks, (before + 1 + after) chunk, …) that repeats each block of `source`
 * (…, blocks, chunk, …) beside its neighbours; blocks outside hold `pad`. */
struct attn_block_window {
    int32_t source, padded; /* without and with the blocks outside */
    int axis;               /* of the blocks; the next one is within them */
    int64_t before, after;
    double pad;
    bool
        wraps; /* blocks outside are those of the other end, and `padded` is not made yet */
    /* Where the file has the blocks of a window in another order: of the k-th one, how many blocks
     * of the window are before it. */
    bool reordered;
    int8_t places[ATTN_BLOCK_ORDER];
};
bool attn_block_window_read(const struct attn_graph *graph, int32_t value,
                            struct attn_block_window *window);
/* The same for blocks that wrap around the end (block_wrap.c). */
bool attn_block_wrap_read(const struct attn_graph *graph, int32_t value,
                          struct attn_block_window *window);
/* Whether both windows have the same blocks in the same order. */
bool attn_block_window_same(const struct attn_block_window *a,
                            const struct attn_block_window *b);
struct attn_mask_written;
/* Whether the mask program can be that of a window in this order. */
bool attn_block_wrap_serves(const struct attn_graph *graph,
                            const struct attn_block_window *window,
                            const struct attn_mask_written *program, int64_t chunk);
/* Makes `padded` of both windows, and brings the keys of the leaves into their order. */
attn_status attn_block_wrap_make(struct attn_graph *graph, struct attn_node *before,
                                 struct attn_block_window windows[2],
                                 struct attn_mask_written *program, int64_t chunk);

/* The scores in front of a softmax. */
struct attn_block_scores {
    int rank, blocks, query, key; /* axes */
    int64_t before, after, chunk;
    attnrun_dim n_blocks;
};

/* A number that replaces a score, or is added to it, has no weight beside other scores if
 * it is this or less. All scores are far above it, since BoundedScores refuses others. */
#define ATTN_BLOCK_LOST (-1e30f)

/* A mask of scores: Where(mask, fill, score), Where(mask, score, fill), or score +
 * mask. */
struct attn_block_mask {
    int32_t value;
    bool drops; /* the mask says where the score goes */
    bool added;
    double fill; /* of Where */
};

struct attn_mask_source;
/* Puts the masks in the order of a mask program (write_mask.h); false where a program has
 * no such order. See mask_order.c. */
bool attn_block_masks_order(const struct attn_block_mask *masks, int n_masks,
                            struct attn_mask_source *source);

/* The keys that a query sees, of those that exist: all of the window, those up to its own
 * position, or those with first <= key - query <= last. */
struct attn_block_pattern {
    enum { BLOCK_ALL, BLOCK_CAUSAL, BLOCK_BAND } kind;
    int64_t first, last;
};
/* Examines all pairs of a block, or of all blocks where the masks differ between them.
 * *why: NULL, or the first condition that failed. */
attn_status attn_block_mask_read(const struct attn_graph *graph,
                                 const struct attn_block_scores *scores,
                                 const struct attn_block_mask *masks, int n_masks,
                                 struct attn_block_pattern *pattern, const char **why);

#endif
