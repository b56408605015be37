/* range.h - what the runtime says of the range of tasks that a worker runs: work->internal
 * of every attnrun_work that it makes. */
#ifndef ATTN_RANGE_H
#define ATTN_RANGE_H

#include <stdbool.h>

#include "attnrun.h"

struct attn_control;

struct attn_range {
    struct attn_control *control;
    bool resumes; /* this worker has run a range of the same phase, and its scratch is as
                   * that range left it */
};

static inline bool attn_work_resumes(const attnrun_work *work)
{
    return work->internal != NULL && ((const struct attn_range *)work->internal)->resumes;
}

#endif
