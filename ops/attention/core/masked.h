/* masked.h - softmax attention under a mask program: what is not seen is not computed, what
 * is seen is not masked, and only tiles at a border read the mask. See mask_program.h.
 *
 *   infer:  fill in `s` of struct attn_masked and its program, then attn_masked_plan(),
 *           which states tasks of phases 0 and 1, scratch and shared memory
 *   run:    attn_masked_run() for both phases
 *
 * Scores that get a finite number, as float's least one, are left out only where they are
 * lost beside those that are seen: |q k| <= |q| |k| bounds them. Where a query sees nothing
 * else, its tile is computed element by element, as the file says. */
#ifndef ATTN_MASKED_H
#define ATTN_MASKED_H

#include "mask_program.h"
#include "sdpa.h"

struct attn_masked {
    struct attn_sdpa s; /* sizes, strides, scale, nan_rows */
    struct attn_mask_program program;
    /* By attn_masked_plan(): */
    int64_t block, blocks; /* queries of a task */
    int64_t norms;         /* offset in the shared memory */
    int64_t stream_bytes, row_bytes;
};

struct attn_masked_operands {
    const float *q, *k, *v;
    float *y;
    const attnrun_tensor *leaves;
};

attn_status attn_masked_plan(attnrun_step *step, struct attn_masked *m);
attn_status attn_masked_run(const attnrun_step *step, const struct attn_masked *m,
                            const struct attn_masked_operands *o,
                            const attnrun_work *work);

#endif
