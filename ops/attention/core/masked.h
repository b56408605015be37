/* masked.h - softmax attention under a mask program (mask_program.h). Keys that are not
 * seen are not computed, keys that are seen are not masked, and only tiles at a border
 * read the mask.
 *
 *   infer:  fill in `s` of struct attn_masked and its program, then attn_masked_plan(),
 *           which states tasks of phases 0 and 1, scratch and shared memory
 *   run:    attn_masked_run() for both phases
 *
 * Attention in blocks: the queries of each sample are `windows` blocks. A block sees as
 * many keys from its own first key on, and these lie in blocks as the queries do. The
 * samples of s are then the blocks of all samples.
 *
 * Scores that get a finite number, such as the smallest float, are left out only where
 * they cannot count beside the scores that are seen; the bound is |q k| <= |q| |k|. Where
 * a query sees nothing else, its tile is computed element by element, as the file says.
 *
 * Ragged: of sample b only the tokens first … last - 1 exist, at the rows from `start` on
 * of Q, K, V and Y, which have no batch. Queries and keys keep their places in the mask.
 * The mask of keys that do not exist is read too: it must leave them no weight (E_RANGE).
 */
#ifndef ATTN_MASKED_H
#define ATTN_MASKED_H

#include "../../../runtime/ragged_sample.h"
#include "mask_program.h"
#include "sdpa.h"

struct attn_masked {
    struct attn_sdpa s; /* sizes, strides, scale, softcap, nan_rows */
    struct attn_mask_program program;
    int64_t windows;                                /* blocks of a sample; 1: one */
    int64_t q_window, k_window, v_window, y_window; /* elements from one to the next */
    struct attn_heads sums; /* of the log of sums, where it is wanted */
    int64_t sums_window;
    /* By attn_masked_plan(): */
    int64_t block, blocks; /* queries of a task */
    int64_t norms;         /* offset in the shared memory */
    int64_t stream_bytes, row_bytes;
    int64_t
        edges; /* of a ragged batch: offset of struct masked_edge in the shared memory */
    /* Of a ragged batch: rows of Q, K, V and Y; 0: it is none. */
    int64_t ragged;
    int64_t distinct_heads; /* that the mask tells apart: 1 or all */
};

struct attn_masked_operands {
    const float *q, *k, *v;
    float *y, *log_sums; /* of the exponentials of a query's scores; or NULL */
    const attnrun_tensor *leaves;
    const struct attn_ragged_sample *samples; /* of a ragged batch, which fit; or NULL */
};

/* The sizes for attn_mask_plan() where the batch of `s` has `windows` blocks of each sample, one
 * after the other. */
attn_status attn_masked_sizes(const attnrun_step *step, const struct attn_sdpa *s,
                              int64_t windows, int64_t sizes[MASK_AXES]);
/* For a run: the strides of the operands, which are those of such a batch, become those of samples
 * and blocks. */
void attn_masked_split_batch(struct attn_masked *m);
attn_status attn_masked_plan(attnrun_step *step, struct attn_masked *m);
attn_status attn_masked_run(const attnrun_step *step, const struct attn_masked *m,
                            const struct attn_masked_operands *o,
                            const attnrun_work *work);

#endif
