/* reformer.h - what the files of ReformerAttention share. reformer_attention.c has the
 * operator row and the formula, reformer_hash.c the buckets and their order, and
 * reformer_chunks.c the attention of chunks. */
#ifndef ATTN_REFORMER_H
#define ATTN_REFORMER_H

#include "../core/heads.h"
#include "../core/stream.h"

enum {
    REFORMER_TOKENS = 256,    /* hashed by a task */
    REFORMER_FEATURES = 128,  /* rotated coordinates that exist at one time */
    REFORMER_MAX_FACTORS = 31 /* of a number of buckets below 2^31 */
};

enum { REFORMER_QK, REFORMER_V, REFORMER_ROTATIONS, REFORMER_BUCKETS, REFORMER_MASK };

/* Sizes and strides of a step. Head `head` below counts through all samples. */
struct reformer {
    struct attn_sizes sizes;
    int64_t heads;         /* batch * q_heads */
    int64_t hashes;        /* rounds that are hashed or given; 1 where none is */
    int64_t rounds, chunk; /* of the attention; whole: 1 and all tokens */
    int64_t before, after; /* chunks */
    int64_t padded;        /* tokens of a round, a multiple of chunk */
    int64_t features;      /* of a round */
    int64_t rotation_heads;
    int64_t widths[REFORMER_MAX_FACTORS]; /* features of a factor */
    int64_t n_factors, n_buckets;
    bool whole, hashed, given, by_bucket, deduplicate, l2;
    bool by_head; /* a task is all of a head, and its arrays are in its scratch memory */
    bool wanted;  /* Y */
    float self;
    int64_t rows, blocks; /* queries of a task; tasks of a round and head */
    int64_t arrays_at; /* bytes into scratch, by_head: of the memory of the next ones */
    /* Bytes into shared memory. */
    int64_t order_at, group_at, place_at, norms_at, sums_at;
    /* Slots of scratch: of a hash, and of a tile of chunks. */
    int64_t gemm_at, u_at, extremes_at, tokens_at, transposed_at;
    int64_t keys_at, values_at, key_limit_at, key_factor_at, query_limit_at;
};

struct reformer_operands {
    const float *qk, *v;
    const float *rotations;      /* (rotation_heads, dim, hashes * features), or NULL */
    const float *transposed;     /* the same as (…, hashes * features, dim), or NULL */
    const attnrun_tensor *given; /* buckets, or NULL */
    const uint8_t *key_mask;     /* (batch, tokens) or NULL */
    float *y;
    int32_t *buckets_out; /* or NULL */
    /* By head, from `first_head` on, in shared memory or in scratch. order: first the
     * buckets, then the tokens in the order of their buckets. group: the buckets in that
     * order. place: the chunk of a token. sums: the running softmax of a token. */
    int64_t first_head;
    int32_t *order, *group, *place; /* (hashes, tokens) */
    float *norms;                   /* inverse */
    struct reformer_sum {
        float max, sum, shift;
    } *sums;
};

/* Place the slots of scratch, of which each needs so many bytes. False: overflow. */
bool attn_reformer_hash_place(struct reformer *s, int64_t *bytes);
bool attn_reformer_chunks_place(struct reformer *s, int64_t *bytes);
int64_t attn_reformer_sort_bytes(const struct reformer *s);
/* Computes the norms and buckets of a block of tokens. */
attn_status attn_reformer_hash(const attnrun_step *step, const struct reformer *s,
                               const struct reformer_operands *o, int64_t head,
                               int64_t block, void *scratch);
/* Sorts the tokens of a round by their buckets. */
void attn_reformer_sort(const struct reformer *s, const struct reformer_operands *o,
                        int64_t head, int64_t round, void *scratch);
/* Computes a block of a round's queries, in their order; the rounds come one by one. */
attn_status attn_reformer_chunks(const struct reformer *s,
                                 const struct attn_kernels *kernels,
                                 const struct reformer_operands *o, int64_t head,
                                 int64_t round, int64_t block, const attnrun_work *work);

/* Where the norms and sums of a head begin, and where its items of a round do. */
static inline int64_t reformer_tokens_at(const struct reformer *s,
                                         const struct reformer_operands *o, int64_t head)
{
    return (head - o->first_head) * s->sizes.q_len;
}

static inline int64_t reformer_items_at(const struct reformer *s,
                                        const struct reformer_operands *o, int64_t head,
                                        int64_t round)
{
    return ((head - o->first_head) * s->hashes + round) * s->sizes.q_len;
}

static inline const float *reformer_head(const float *x, const struct attn_heads *strides,
                                         const struct reformer *s, int64_t head)
{
    return x + attn_head_at(strides, s->sizes.q_heads, head);
}

#endif
