/* additive.h - the scores of additive attention between a block of queries and a tile of
 * keys.
 *
 *   s_ij = sum over units u of v_u f(q_iu + k_ju),   f is tanh or max(x, 0)
 *
 * In: rows of queries and of keys. Out: a tile of scores, (queries, keys).
 *
 * The keys of a tile are transposed into columns once for all queries of the block. If
 * the block has two or more queries and no |q| or |k| is above 20, tanh(q + k) is
 * computed from exp(2 q) and exp(2 k): an exponential is then needed for each element of
 * q and k, but not for each term of the sum. This form is not used where all elements are
 * close to 0 and v is large, because it would lose digits there. */
#ifndef ATTN_ADDITIVE_H
#define ATTN_ADDITIVE_H

#include "../core/heads.h"
#include "../core/softmax_pooling.h"

enum { ATTN_ADDITIVE_TANH, ATTN_ADDITIVE_RELU };

struct attn_additive {
    int64_t units, tile; /* of keys, whose scores are that far apart */
    int32_t form;
    float scale; /* of the scores */
};

/* The state of a worker for a block of queries. */
struct attn_additive_block {
    const struct attn_additive *a;
    const struct attn_kernels *kernels;
    int64_t rows;
    bool small;  /* the queries allow for exponentials */
    bool close;  /* and would lose digits: they are all near 0, and v is large */
    float total; /* of v */
    float *q, *q_exp, *keys;
    float *v, *v_twice; /* times the scale, times -2 */
};

/* The floats of scratch; -1 where they overflow. */
int64_t attn_additive_floats(const struct attn_additive *a, int64_t max_rows);
/* Loads a block of queries. `bias` is (units), or NULL. `scratch` has
 * attn_additive_floats(). */
void attn_additive_load(struct attn_additive_block *block, const struct attn_additive *a,
                        const struct attn_kernels *kernels, const float *q, int64_t q_row,
                        int64_t rows, const float *bias, const float *v, float *scratch);
void attn_additive_scores(const struct attn_additive_block *block, float *scores,
                          const float *k, int64_t k_row, int64_t n);

/* ---- shapes of queries (batch, q_len, units) or (batch, units), keys (batch, kv_len,
 * units), values (batch, kv_len, v_dim), which are the keys where absent, and key_mask
 * (batch, kv_len) ---- */
struct attn_single_head {
    int32_t rank; /* of the queries, or -1 */
    attnrun_dim batch, q_len, kv_len, units, v_dim;
};
struct attn_single_head_inputs {
    int query, keys, values, key_mask;
    int min_rank; /* 2 or 3 */
};
attn_status attn_single_head_infer(const attnrun_step *step,
                                   const struct attn_single_head_inputs *in,
                                   struct attn_single_head *shape);
/* Fails unless input `in`, where given, is (units). */
attn_status attn_single_head_vector(const attnrun_step *step, int in,
                                    const struct attn_single_head *shape);
/* States output 0, which is like the queries, and output 1, the weights. */
attn_status attn_single_head_outputs(attnrun_step *step,
                                     const struct attn_single_head *shape);
/* Fills in the sizes of `w`, where step->concrete. */
void attn_single_head_sizes(const struct attn_single_head *shape, struct attn_pooling *w);

/* ---- the whole operator, for queries in blocks of up to `rows` ---- */
struct attn_additive_operands {
    const float *q, *k, *values, *bias, *v; /* dense; bias NULL: none */
    const uint8_t *mask;
    float *y, *weights; /* weights NULL: not wanted */
};
/* Fills in `a`, the remaining fields of `w`, and the tasks and memory of the step. */
attn_status attn_additive_plan(attnrun_step *step, struct attn_additive *a, int32_t form,
                               float scale, int64_t units, int64_t rows,
                               struct attn_pooling *w);
attn_status attn_additive_run(const struct attn_additive *a, const struct attn_pooling *w,
                              const struct attn_kernels *kernels,
                              const struct attn_additive_operands *o,
                              const attnrun_work *work);

#endif
