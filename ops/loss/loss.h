/* loss.h - what the losses and PickClass share: checks of scores, classes and weights. */
#ifndef ATTN_LOSS_H
#define ATTN_LOSS_H

#include "../../runtime/op.h"

enum { LOSS_SCORES, LOSS_TARGET, LOSS_WEIGHT }; /* inputs */

/* Scores (N, C, d…), target (N, d…), and weight (C) where it is there. */
attn_status op_loss_check(const attnrun_step *step);
/* Output `out` has the type of the scores and the dims of the target. */
attn_status op_loss_out_samples(attnrun_step *step, int out);

#endif
