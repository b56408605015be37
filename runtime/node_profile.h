/* node_profile.h - what a run tells its caller of steps and of ranges of tasks
 * (attnrun_run_options.on_step, on_node, on_tasks). */
#ifndef ATTN_NODE_PROFILE_H
#define ATTN_NODE_PROFILE_H

#include <stdatomic.h>

#include "frame.h"

enum { ATTN_PROFILE_WORDS = 16 }; /* a bit for each of 1,024 workers */

/* Of the run of a main graph; while it lasts its frame shows it. */
struct attn_profiling {
    const attnrun_run_options *options;
    int64_t start_ns;
    bool ranges; /* on_node or on_tasks is set: ranges of tasks count, too */
    _Atomic uint64_t
        workers[ATTN_PROFILE_WORDS]; /* that ran tasks of the step under way */
};

/* Begins to profile a run; *profiling is in the frame then, where the caller wants it. */
void attn_profile_begin(struct attn_profiling *profiling, struct attn_frame *frame);
/* Bytes of a step's operands, each once: read, constants included, and written. */
int64_t attn_step_read_bytes(const struct attn_step *step);
int64_t attn_step_written_bytes(const struct attn_step *step);
/* Before and after a step. */
int64_t attn_profile_step_begin(struct attn_profiling *profiling);
void attn_profile_step_end(struct attn_profiling *profiling, const struct attn_step *step,
                           int64_t start_ns);
/* A range of tasks, in the thread that runs it: with `ranges`. */
attn_status attn_profile_tasks(struct attn_profiling *profiling,
                               const struct attn_step *step, attnrun_work *work);

#endif
