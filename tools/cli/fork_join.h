/* fork_join.h - what it costs to hand a step to all threads and to have them back. */
#ifndef TOOL_FORK_JOIN_H
#define TOOL_FORK_JOIN_H

#include "../io/value.h"

/* Microseconds for one loop of one empty task a thread, each done by another one, while
 * the workers still spin; the median of many. 0 with one thread. */
attnrun_status measure_fork_join(attnrun_runtime *runtime, int32_t threads,
                                 double *microseconds);

#endif
