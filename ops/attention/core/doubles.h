/* doubles.h - softmax attention of doubles, one query at a time: what sdpa.h is for
 * floats.
 *
 *   infer:  fill in struct attn_sdpa, attn_doubles_plan(), which states tasks and scratch
 *   run:    attn_doubles_run() for each task: up to 32 queries of a head, which take
 *           their keys in tiles of 64 with an online softmax
 *
 * The keys that a query sees, the order of cap and mask, the scores that are output and
 * rows without a key are as in sdpa.h. Cost: 2 n keys (dim + v_dim) FLOPs and n keys
 * exponentials, without vectors. A matrix of scores exists only where it is an output.
 * Source: ONNX Attention-25; compared with onnx's evaluator and torch in double. */
#ifndef ATTN_DOUBLES_H
#define ATTN_DOUBLES_H

#include "sdpa.h"

struct attn_doubles {
    const double *q, *k, *v, *past_k, *past_v;
    const attnrun_tensor *mask; /* bools, doubles, floats or integers; or NULL */
    const attnrun_tensor *lens; /* keys per sample, the last query's position plus 1 */
    double scale;
    double *y, *scores; /* scores: (batch, q_heads, q_len, kv_len), or NULL */
};

/* Like attn_sdpa_phases(), but keys are not split. */
attn_status attn_doubles_plan(attnrun_step *step, struct attn_sdpa *s, int phase,
                              bool wanted);
attn_status attn_doubles_run(const struct attn_sdpa *s,
                             const struct attn_kernels *kernels,
                             const struct attn_doubles *o, int64_t task,
                             const attnrun_work *work);

#endif
