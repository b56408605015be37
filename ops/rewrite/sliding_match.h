/* sliding_match.h - attention over a window of keys around each query, as fuse_sliding_chunks.c
 * finds it: what is read of its scores (sliding_scores.c), and of its weights and values
 * (sliding_weights.c). All sizes are constants. */
#ifndef ATTN_SLIDING_MATCH_H
#define ATTN_SLIDING_MATCH_H

#include "sliding_rows.h"

/* What is no place of a key, or of the mask of one. */
enum {
    SLIDING_HIDDEN = -1,  /* minus infinity */
    SLIDING_PLAIN = -2,   /* a mask adds 0 */
    SLIDING_REMOVED = -3, /* a mask adds a number that masks (ATTN_BLOCK_LOST) */
};

struct attn_sliding_match {
    struct attn_provenance p;
    struct attn_pool pool;
    struct attn_node *softmax;
    /* Weights are those of `globals` tokens, which all queries see, and of `width` tokens around
     * the query. */
    int64_t batch, heads, tokens, globals, width, left;
    int32_t scores, global_scores, /* of the window, and of the globals or -1 */
        mask_scores; /* what the Softmax reads of the window is the sum; -1: none */
    int32_t weights,
        dropped; /* behind the Softmax; the queries that become zeros, or -1 */
    /* The product of weights and values; with globals, that of the window and that of the globals
     * and the Add of both. */
    struct attn_node *user, *sum;
    struct attn_sliding_product product, global, mask, result, global_result;
    struct attn_sliding_places q, k, v, m;
    int64_t *key, *mask_key; /* of the row at hand: places in k, in m; or SLIDING_ … */
    int64_t *global_key;     /* [batch][globals]: the token; -1: none */
    uint8_t *is_global;      /* [batch][tokens] */
    uint8_t *removed;        /* the same; a constant mask removes the key from windows */
    uint8_t *alone;          /* the same: the query sees no key */
    int64_t *seen; /* of each weight of a head: the last token that had it, from 1 on */
    int64_t row;   /* batch * tokens + token */
    const char *why;
};

/* Splits what the Softmax reads into scores of a window, of globals, and of a mask; sets the
 * numbers of globals and of the window. */
void attn_sliding_split(struct attn_sliding_match *found);
/* *done: the scores are those of windows and globals. f->why: the first condition that failed. */
attn_status attn_sliding_read_scores(struct attn_sliding_match *found, bool *done);
/* *done: the weights multiply the values of their keys, and nothing else reads them. */
attn_status attn_sliding_read_weights(struct attn_sliding_match *found, bool *done);

#endif
