/* attention_match.h - decomposed softmax attention as attention_match.c reads it, for
 * fuse_attention.c: Y = MatMul(Softmax(scale * MatMul(Q, K') + masks), V). */
#ifndef ATTN_ATTENTION_MATCH_H
#define ATTN_ATTENTION_MATCH_H

#include "write_mask.h"

/* k is (batch, heads, tokens, dim), (batch, tokens, heads, dim), (batch, heads, dim,
 * tokens). */
enum attn_k_form { K_AS_GIVEN, K_BY_TOKEN, K_BY_DIM };

struct attn_attention_match {
    struct attn_node *softmax;
    int rank; /* of the operands: 4, or 3 without heads */
    int32_t q, k, v;
    int32_t added[MASK_ADDS]; /* to the scores, from the softmax on; -1: none */
    enum attn_k_form k_form;
    int32_t scores;          /* the product */
    int32_t keep, keep_fill; /* Where's condition and filling, or -1 */
    double fill;
    bool drops;            /* the condition chooses the filling */
    bool filled_last;      /* what is added goes with the scores */
    double scale, softcap; /* softcap 0: none */
    int32_t q_factor;      /* of each head or query; -1: none */
    const char *q_with;    /* Mul or Div of q and q_factor */
    int32_t result;
    int64_t nan_rows; /* 1; -1: rows of NaN become zeros */
    bool by_dim;      /* V and the result are (…, dim, tokens): V' P' */
    /* Between two Reshapes the scores are (samples, windows, heads, queries, keys), and so are the
     * masks there; the other masks are the same for all samples and windows. */
    int64_t windows; /* 0: none */
    attnrun_dim samples;
    bool in_windows; /* where the walk is; where a mask was found: */
    bool keep_in_windows, added_in_windows[MASK_ADDS];
};

static const int64_t match_swap3[] = { 0, 2, 1 }, match_swap4[] = { 0, 1, 3, 2 };

/* Reads what is around found->softmax. Returns NULL, or the first condition that failed. */
const char *attn_attention_read(const struct attn_graph *graph,
                                struct attn_attention_match *found);
/* Dim `axis` of a value as one of rank 4, where those of rank 3 have no batch. */
attnrun_dim attn_attention_dim(const struct attn_graph *graph, int32_t value, int axis);
/* Dim `axis` of K as (batch, heads, tokens, dim). */
attnrun_dim attn_attention_k_dim(const struct attn_graph *graph,
                                 const struct attn_attention_match *found, int axis);

#endif
