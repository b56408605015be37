/* bench.h - the parts of attnrun bench. */
#ifndef TOOL_BENCH_H
#define TOOL_BENCH_H

#include "job.h"

/* Opens the job and times its runs, as --repeat, --time and --warmup say. On failure
 * job_close() is still to be called. */
attnrun_status bench_job(struct job *job, struct cli *cli);
int64_t bench_contexts(const struct cli *cli);
/* Names, types and shapes of the inputs, as the member "inputs". */
void bench_json_inputs(const struct job *job, struct json *json);
/* sweep.c: --set S=128,256,512 gives a row for each size. NULL: there is no such option; else its
 * text, like "S=128,256,512". */
const char *sweep_of(const struct cli *cli);
/* Refuses several lists, and a later --set that gives the symbol of the list one size, which would
 * hold for all rows. */
attnrun_status sweep_check(const struct cli *cli);
attnrun_status bench_sweep(struct cli *cli, const char *sweep);
/* against.c: this program and another one in turns. *slower says whether this one lost. */
attnrun_status bench_against(struct cli *cli, bool *slower);
/* Whether this process is one of those: it leaves the machine cool for the next one. */
bool against_takes_turns(void);
/* The same where --against is a file of JSON, an earlier result of bench. */
struct base {
    const char *path;
    char *text;
    double peak_gflops; /* of this machine, by one thread */
    int32_t threads;    /* of this run */
};
bool against_is_file(const struct cli *cli);
/* On failure base_free() is still to be called. The caller that measures fills in the other
 * two. */
attnrun_status base_read(struct base *base, const struct cli *cli);
void base_print(const struct base *base, const struct job *job);
void base_json(const struct base *base, const struct job *job, struct json *json);
void base_free(struct base *base);
/* concurrent.c: --concurrency contexts at once, each on a thread of its own. Fills in the times of
 * job->timing; per_second is that of all. */
attnrun_status bench_concurrent(struct job *job, int64_t n_contexts, int64_t n,
                                double max_ms);
/* node_table.c: one run with the figures of each node. */
struct node_table {
    struct node_row *rows;
    int64_t n, capacity;
    int64_t at;  /* of the next node, in a run after the first */
    double ms;   /* of all nodes */
    bool failed; /* no memory */
};
/* The shortest time of each node in a few runs. */
attnrun_status node_table_run(struct job *job, struct node_table *table);
/* Shares are of the machine's peak and bandwidth with all threads; 0: not known. */
void node_table_print(const struct node_table *table, double peak_gflops,
                      double read_gbs);
void node_table_json(const struct node_table *table, struct json *json);
void node_table_free(struct node_table *table);

#endif
