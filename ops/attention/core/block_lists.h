/* block_lists.h - softmax attention under a layout of blocks: block a of the queries sees
 * a list of blocks of the keys. A list may name a block several times; its keys then
 * count that often. Blocks may have any size. No matrix of scores exists.
 *
 *   infer:  fill in sizes, block and density, attn_blocks_plan(), then state its tasks
 *           and scratch
 *   run:    attn_blocks_run() for each task
 *
 * A task is a group of queries of one head, a query tile after the other. A query tile is
 * up to 64 queries of a block, or of several small blocks together. It takes the segments
 * of keys that it sees, a few at a time, and prefetches those of the next query tile. A
 * block that is named m times is computed once, with log m added to its scores.
 * Scratch: a stream of one query tile, and 4 bytes for each pair of blocks of the group
 * and of the next tile (at most 512 KiB where a group has more than one tile). Source:
 * Child 2019, arXiv:1904.10509. */
#ifndef ATTN_BLOCK_LISTS_H
#define ATTN_BLOCK_LISTS_H

#include "../../tile.h"
#include "heads.h"

struct attn_blocks {
    struct attn_sizes sizes;
    int64_t block;  /* tokens of one, at least 1 */
    double density; /* about how much of all pairs is seen: for the cost of tasks */
    /* By attn_blocks_plan(): */
    int64_t rows, groups; /* queries of a task; tasks of a head */
    int64_t tile;         /* queries that are given keys together, at most */
    int64_t key_blocks;
    int64_t n_tasks, task_cost, scratch_bytes;
};

/* Adds to counts[block of keys] how often block `block` of the queries names it. */
typedef void (*attn_blocks_fill)(const void *arg, int64_t sample, int64_t head,
                                 int64_t block, float *counts);

struct attn_blocks_operands {
    const float *q, *k, *v;    /* strides: those of sizes */
    const uint8_t *key_mask;   /* (batch, kv_len), or NULL */
    const uint8_t *query_mask; /* (batch, q_len), or NULL: false gives zeros */
    float *y;
    attn_blocks_fill fill;
    const void *arg;
    /* The place of the sample: query 0 is token `first` of the layout. Where
     * sizes.causal, query i sees the keys j <= position + i. Keys from kv_len on do not
     * exist. */
    int64_t first, position, kv_len;
};

attn_status attn_blocks_plan(const attnrun_step *step, struct attn_blocks *p);
static inline int64_t attn_blocks_sample(const struct attn_blocks *p, int64_t task)
{
    return op_task_at(task, p->groups, p->sizes.q_heads).b;
}
/* Computes one task. Returns E_CANCELLED where a run is cancelled between two
 * segments. */
attn_status attn_blocks_run(const struct attn_blocks *p,
                            const struct attn_kernels *kernels,
                            const struct attn_blocks_operands *o, int64_t task,
                            const attnrun_work *work);

#endif
