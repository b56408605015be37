/* deadlines.h - calls whose deadline passes at each of their polls in turn. */
#ifndef ATTN_TEST_DEADLINES_H
#define ATTN_TEST_DEADLINES_H

#include <attnrun.h>

/* Makes the call by a clock that passes the deadline at one of its polls, where all work polls:
 * at its first one, in steps of `step`, and at each of the last `last`. Each time it ends with
 * E_TIME, and does not succeed after a poll has stopped it. Those of its calls that have a
 * control of their own need a timeout. Returns how often it was stopped. */
int64_t stop_at_polls(attnrun_status (*call)(void *user), void *user, int64_t step,
                      int64_t last);

#endif
