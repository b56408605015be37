/* sdpa.h - softmax attention as a stream: Y = softmax(scale Q K' + bias) V, tile by tile
 * with an online softmax. No matrix of scores exists unless it is an output; the scratch
 * is one tile.
 *
 *   infer:  fill in struct attn_sdpa, attn_sdpa_plan(), then state its tasks and scratch;
 *           or attn_sdpa_phases(), which states two phases
 *   run:    attn_sdpa_run() for each task of them
 *
 * Keys and values may lie in two segments: `past`, then the new ones. Query i of sample b
 * is at position p = offset + i. It sees the keys j < kv_len with j <= p where causal, p
 * - left <= j, and j <= p + right. A query that sees no key gives zeros.
 * Cost: 2 q_len kv_len (dim + v_dim) FLOPs for each query head, half of that where
 * causal. */
#ifndef ATTN_SDPA_H
#define ATTN_SDPA_H

#include "../../../runtime/op.h"
#include "../../storage.h"

enum attn_mask_kind {
    ATTN_MASK_NONE,
    ATTN_MASK_KEEP,
    ATTN_MASK_ADD,
    ATTN_MASK_INTS,
    ATTN_MASK_MAP /* keys are a map: numbers of its rows and of its columns are added */
};
static inline int32_t attn_mask_kind_of(int32_t dtype)
{
    return dtype == ATTNRUN_BOOL                               ? ATTN_MASK_KEEP
           : dtype == ATTNRUN_F32 || attn_stored_narrow(dtype) ? ATTN_MASK_ADD
                                                               : ATTN_MASK_INTS;
}
enum attn_scores_mode {
    ATTN_SCORES_RAW,
    ATTN_SCORES_CAPPED,
    ATTN_SCORES_BIASED,
    ATTN_SCORES_SOFTMAX,
    ATTN_SCORES_SEEN /* capped and biased; 0 where a key is not seen */
};

/* Strides in elements, from one sample, head and row (token) to the next; the innermost
 * stride is 1. */
struct attn_heads {
    int64_t batch, head, row;
};

/* Converts keys and values first … first + n - 1 of a head to floats, in dense rows. */
typedef void (*attn_sdpa_promote)(const void *arg, int64_t b, int64_t kv_head,
                                  int64_t first, int64_t n, float *k, float *v);

enum {
    ATTN_SDPA_GROUP = 64
}; /* rows of a window that are cut to the keys that they see */

/* Further than any two positions are apart: sums of it and of positions do not overflow. */
#define ATTN_SDPA_FAR (INT64_C(1) << 60)

struct attn_sdpa {
    int64_t batch, q_heads, kv_heads, q_len, past_len, kv_len; /* kv_len: with past */
    int64_t head_dim, v_dim;
    struct attn_heads q, k, v, past_k, past_v, y;
    float scale, softcap; /* softcap 0: none */
    bool causal;
    bool nan_rows; /* a query that sees no key gives NaN, as a plain Softmax would */
    bool zero_nan; /* a query whose weights are NaN gives zeros */
    bool promotes; /* keys and values come by `promote` of the operands */
    int64_t left, right; /* -1: without bound; plans limit them to ATTN_SDPA_FAR */
    int32_t mask_kind, scores_mode;
    int32_t mask_dtype; /* of numbers that are added: f16, bf16, or any other for f32 */
    struct attn_heads mask; /* 0 where broadcast; MAP: of the numbers of rows */
    bool mask_one;          /* a row of the mask has one number, for all keys */
    /* MAP: of the numbers of columns, of which a row is dense. */
    struct attn_heads columns;
    int64_t mask_len;   /* keys from there on are not seen */
    int64_t scores_len; /* keys of a row of the scores; 0: kv_len */
    /* By attn_sdpa_plan(): */
    int64_t rows, block,
        blocks;    /* rows of one K: those of all its heads where they are joined */
    int64_t heads; /* such groups of rows */
    int64_t n_tasks, task_cost, scratch_bytes, promoted_bytes;
    /* By attn_sdpa_phases(): the number of tasks that share the keys of the same queries,
     * the phase that adds their results, and the place of these in shared memory. */
    int64_t parts, parts_at;
    int32_t sum_phase;
};

struct attn_sdpa_operands {
    const float *q, *k, *v, *past_k, *past_v;
    /* Given instead of k and v; not together with key_keep and key_ends. */
    attn_sdpa_promote promote;
    const void *promote_arg;
    const void *mask;           /* u8 (KEEP), mask_dtype (ADD) or f32 (MAP) */
    const float *columns;       /* MAP */
    const int64_t *mask_from;   /* per sample, the mask's column of key 0, or NULL: 0 */
    const attnrun_tensor *ints; /* INTS: they are added */
    /* `masked` is added to the scores of some keys: where key_keep is 0 (samples and
     * queries are keep_batch and keep_row numbers apart), from key_ends of a sample on,
     * and before its key_begins. Each may be NULL. If the first or last keys of a sample
     * are all such keys and cannot count beside the others, their values are not read. */
    const int32_t *key_keep, *key_ends, *key_begins;
    int64_t keep_batch, keep_row;
    float masked;
    /* For each head the score of a key without a value, sink_step floats apart; or
     * NULL. */
    const float *sinks;
    int64_t sink_step;
    const attnrun_tensor *lens; /* keys per sample, integers, or NULL: all */
    int64_t lens_add;           /* added to each */
    bool lens_not_before;       /* that position is at least q_len - 1 (padded samples) */
    bool lens_position; /* the last query is at position len - 1; else offset past_len */
    float *y,
        *scores; /* scores: (batch, q_heads, q_len, scores_len or kv_len), or NULL */
};

/* Returns E_LIMIT where a product of these sizes would overflow, even if another one is
 * 0. */
attn_status attn_sdpa_fits(const attnrun_step *step, int64_t batch, int64_t heads,
                           int64_t q_len, int64_t kv_len, int64_t dim);
/* Limits the window to what any positions can be added to. */
static inline void attn_sdpa_limit_window(struct attn_sdpa *s)
{
    s->left = s->left < ATTN_SDPA_FAR ? s->left : ATTN_SDPA_FAR;
    s->right = s->right < ATTN_SDPA_FAR ? s->right : ATTN_SDPA_FAR;
}
/* Describes the mask in input `in`, where there is one. */
attn_status attn_sdpa_plan_mask(const attnrun_step *step, int in, struct attn_sdpa *s);
/* Input `rows` has a number for each query and row of a map of keys, which has so many columns,
 * and the next input one for each query and column: f32 (batch, heads, queries, rows or columns),
 * in whatever shape. Their sum is added to the score. There is no other mask, in input `mask`. */
attn_status attn_sdpa_plan_map(const attnrun_step *step, int mask, int rows,
                               int64_t columns, struct attn_sdpa *s);
attn_status attn_sdpa_plan(const attnrun_step *step, struct attn_sdpa *s);
/* Calls attn_sdpa_plan() and states the tasks of `phase`, which is the attention, and of
 * the next one. Where few heads and queries see many keys (decoding), the keys are split
 * by the shapes of a sample alone, and the next phase adds the parts in their order;
 * otherwise the next phase has no task. If `wanted` is false there are no tasks. Call it
 * last: it adds to step->shared_bytes and raises scratch_bytes. */
attn_status attn_sdpa_phases(attnrun_step *step, struct attn_sdpa *s, int phase,
                             bool wanted);
/* The keys [*from, *to) of `len` that a query at `position` sees. */
void attn_sdpa_keys(const struct attn_sdpa *s, int64_t position, int64_t len,
                    int64_t *from, int64_t *to);
/* Computes one task. Returns E_CANCELLED where a run is cancelled between two tiles. */
attn_status attn_sdpa_run(const struct attn_sdpa *s, const struct attn_kernels *kernels,
                          const struct attn_sdpa_operands *o, int64_t task,
                          const attnrun_work *work);

#endif
