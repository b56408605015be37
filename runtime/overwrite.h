/* overwrite.h - states whose content a run overwrites. In: what run() of an operator is about to
 * write over. Out: where that holds something, a run that fails loses the state. */
#ifndef ATTN_OVERWRITE_H
#define ATTN_OVERWRITE_H

#include "op.h"

/* run(): these bytes of an input, whose buffer its output has (attnrun_step_append()), are
 * overwritten. Bytes of 0 hold nothing. */
void op_overwrite(const attnrun_step *step, const void *at, int64_t bytes);

#endif
