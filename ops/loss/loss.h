/* loss.h - what the losses share: samples, ignored classes, weights and reductions.
 *
 * A loss has one value per sample of target (N, d…). Reductions sum in double: each task
 * leaves its part in shared memory, and a second phase adds the parts in order. */
#ifndef ATTN_LOSS_H
#define ATTN_LOSS_H

#include "../../runtime/op.h"

enum loss_reduction { LOSS_NONE, LOSS_SUM, LOSS_MEAN };

struct loss_args {
    int64_t ignore_index; /* OP_INT_ABSENT: no class is ignored */
    int32_t reduction;
};
extern const attnrun_attr_def op_loss_attrs[];

enum { LOSS_SCORES, LOSS_TARGET, LOSS_WEIGHT }; /* inputs */

/* Part of a reduction. */
struct loss_sum {
    double loss, weight;
};

/* Checks scores (N, C, d…), target (N, d…), weight (C); sets output 0. */
attn_status op_loss_infer(attnrun_step *step);
/* Phase 1 and its memory, where there is a reduction; phase 0 has n tasks. */
attn_status op_loss_plan(attnrun_step *step, int64_t n);
/* The class of sample i, -1 where it is ignored. */
attn_status op_loss_class(const attnrun_step *step, int64_t i, int64_t *class_index);
/* Loss of sample i whose log probability is `log_p`: adds to *sum, or stores it. */
void op_loss_add(const attnrun_step *step, int64_t i, int64_t class_index, double log_p,
                 struct loss_sum *sum);
/* Phase 1. */
void op_loss_finish(const attnrun_step *step, const attnrun_work *work);

#endif
