/* sinkhorn.h - what the sorting (sinkhorn_sort.c) and the attention
 * (sinkhorn_attention.c) of SinkhornAttention share: sizes, tasks, and the places of
 * results in shared memory. */
#ifndef ATTN_SINKHORN_H
#define ATTN_SINKHORN_H

#include "../core/heads.h"

struct sinkhorn_args {
    struct attn_heads_args heads;
    int64_t bucket_size, kv_bucket_size, top_buckets, iters, sortcut;
    float temperature;
    int32_t mode, sorted_values;
};
enum { SINKHORN_TOPK, SINKHORN_BALANCED };
enum { SINKHORN_VALUES, SINKHORN_KEYS };
enum {
    SINKHORN_Q,
    SINKHORN_K,
    SINKHORN_V,
    SINKHORN_LOGITS,
    SINKHORN_GUMBEL,
    SINKHORN_NULL_K,
    SINKHORN_NULL_V,
    SINKHORN_MASK
};
enum { SINKHORN_ROWS = 16 }; /* of logits at one time */

struct sinkhorn_state {
    struct attn_sizes sizes;
    int64_t block, kv_block;     /* tokens of a bucket */
    int64_t buckets, kv_buckets; /* of queries, of keys */
    int64_t picks;               /* sorted buckets of a bucket of queries */
    int64_t nulls;               /* columns of null buckets: picks, where causal */
    int64_t rows, columns;       /* of the logits of a head */
    bool balanced, shared;       /* sinkhorn; one row of logits serves all (sortcut) */
    /* Offsets in shared memory, in bytes. For each head there are (rows, picks) columns
     * and weights; balanced: (rows, columns) weights, and for each row the column with
     * the largest one. */
    int64_t index_at, weight_at;
    int64_t group, groups; /* buckets of a task; tasks of a head */
    int64_t together;      /* heads whose buckets are averaged in turns */
    int64_t sorted_rows;   /* sorted keys that a bucket of queries sees */
    bool own;              /* and its own bucket */
    bool joined;           /* in one tile with them */
    /* Offsets in the scratch of the attention, in bytes. */
    int64_t keys_at, values_at, gemm_at;
};

/* The index of token n of head h; where causal, the second half of the heads are
 * rotated. */
static inline int64_t sinkhorn_token(const struct sinkhorn_state *s, int64_t h, int64_t n)
{
    if (!s->sizes.causal || h < s->sizes.q_heads / 2)
        return n;
    n += s->block - 1;
    return n < s->sizes.q_len ? n : n - s->sizes.q_len;
}

attn_status attn_sinkhorn_check_args(const attnrun_step *step);
/* Checks the optional inputs besides Q, K and V: their ranks, the null tokens and the key
 * mask. */
attn_status attn_sinkhorn_check_operands(const attnrun_step *step,
                                         const struct attn_qkv *shape);
/* The bytes of scratch; -1 where they overflow. */
int64_t attn_sinkhorn_sort_bytes(const struct sinkhorn_state *s);
/* Fills the shared memory of up to `together` heads from `task` on (sample * heads +
 * head), which are of one sample. */
void attn_sinkhorn_sort(const attnrun_step *step, const attnrun_work *work, int64_t task,
                        int64_t heads);

#endif
