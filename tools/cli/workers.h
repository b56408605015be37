/* workers.h - what processes of one machine take together, for attnrun plan. */
#ifndef TOOL_WORKERS_H
#define TOOL_WORKERS_H

#include "job.h"

struct workers {
    int64_t count;        /* as asked, or as many as fit */
    int64_t max;          /* that fit into memory_bytes */
    int64_t memory_bytes; /* 0: not given */
    int64_t each_bytes, shared_bytes, all_bytes;
};

bool workers_asked(const struct cli *cli);
/* E_LIMIT where the sums overflow. */
attnrun_status workers_plan(const struct job *job, struct workers *workers);
/* E_MEMORY where they do not fit, or none does. */
attnrun_status workers_fit(const struct workers *workers);
void workers_print(const struct workers *workers);
void workers_json(const struct workers *workers, struct json *json);

#endif
