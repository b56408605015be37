/* bench.h - the parts of attnrun bench. */
#ifndef TOOL_BENCH_H
#define TOOL_BENCH_H

#include "job.h"

/* Opens the job and times its runs, as --repeat, --time and --warmup say. On failure
 * job_close() is still to be called. */
attnrun_status bench_job(struct job *job, struct cli *cli);
/* sweep.c: --set S=128,256,512 gives a row for each size. NULL: there is no such option; else its
 * text, like "S=128,256,512". */
const char *sweep_of(const struct cli *cli);
attnrun_status bench_sweep(struct cli *cli, const char *sweep);
/* against.c: this program and another one in turns. *slower says whether this one lost. */
attnrun_status bench_against(struct cli *cli, bool *slower);

#endif
