/* speedup.h - a bound of the speed-up that more threads give a plan, for attnrun plan --threads.
 *
 * In: the last plan of a job's context. Out: struct speedup: the phases that cost most, and for
 * each number of threads the bound and what keeps it below that number. speedup.c has the formula.
 * Cost: one pass over the phases of the plan. */
#ifndef TOOL_SPEEDUP_H
#define TOOL_SPEEDUP_H

#include "job.h"

enum { SPEEDUP_COUNTS = 4, SPEEDUP_ROWS = 12 };

/* Nanoseconds by what they are lost to, beside a run that all threads share evenly. */
struct speedup_loss {
    double serial;   /* phases that one thread does */
    double uneven;   /* threads that wait for the longest ones of a phase */
    double barriers; /* opening and closing phases */
};
struct speedup {
    struct phase_row { /* those that cost most */
        int32_t step, phase;
        const char *name, *op_type; /* of the model */
        int64_t n_tasks, task_ns;
        bool shared;
        double ns;
    } *rows;
    int64_t n_rows;
    double one_ns; /* by one thread */
    int64_t threads[SPEEDUP_COUNTS];
    double bound[SPEEDUP_COUNTS];
    struct speedup_loss loss[SPEEDUP_COUNTS];
};
/* Of the last plan of the job's context. */
attnrun_status speedup_read(const struct job *job, struct speedup *speedup);
void speedup_print(const struct speedup *speedup);
void speedup_json(const struct speedup *speedup, struct json *json);
void speedup_free(struct speedup *speedup);

#endif
