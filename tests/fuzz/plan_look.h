/* plan_look.h - what holds of the blocks of any plan. */
#ifndef ATTN_FUZZ_PLAN_LOOK_H
#define ATTN_FUZZ_PLAN_LOOK_H

#include "attnrun.h"

/* The plan for the inputs that `context` has: blocks in use at one step are apart and in the
 * arena, each holds its tensor, and the arena is no smaller than the lower bound and no larger
 * than all blocks. What is wrong, or NULL; also where nothing can be planned. O(blocks^2). */
const char *fuzz_look_at_plan(attnrun_context *context);

#endif
