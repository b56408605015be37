/* job.h - one model with its inputs and a context, run and timed: what run, plan and
 * bench share. */
#ifndef TOOL_JOB_H
#define TOOL_JOB_H

#include "inputs.h"

struct timing {
    double load_ms;  /* open, and pack the weights */
    double pack_ms;  /* the part of load_ms that is the first context: packing */
    double first_ms; /* the first run, with its plan */
    double *runs_ms; /* later runs, sorted */
    int64_t n;
    double min_ms, median_ms, p90_ms, p99_ms;
    double spread;     /* half the range from the quartiles over the median */
    double per_second; /* runs */
};

struct job {
    struct cli *cli;
    const char *path;
    attnrun_model *model;
    attnrun_context *context;
    attnrun_model_info info;
    attnrun_plan_info plan;
    struct inputs inputs;
    struct timing timing;
    int64_t loaded_rss_bytes; /* with the context, before inputs and plans */
    int64_t load_peak_rss_bytes;
    int64_t native, body, missing; /* nodes */
    attnrun_state_pair *states;
    int64_t n_states;
    bool inputs_made, states_found;
};

/* Opens the model, makes the inputs, plans. On failure job_close() is still to be called.
 */
attnrun_status job_open(struct job *job, struct cli *cli, const char *path);
/* The first run; with smaller made-up sizes where the first ones do not fit. */
attnrun_status job_first_run(struct job *job, const attnrun_run_options *options);
/* `n` more runs, or fewer once `max_ms` have passed (0: no bound). */
attnrun_status job_repeat(struct job *job, int64_t n, double max_ms);
void job_close(struct job *job);
/* Sorts the times of the runs and fills in what is said of them. */
void timing_evaluate(struct timing *timing);

/* ---- budget.c ---- After E_MEMORY: gives the context back, and adds to the recorded error how
 * many bytes are needed. */
void job_explain_budget(struct job *job);
/* The same of any work that opens the runtime of `cli` by itself, writes nothing, and gives back
 * what it made: it is done twice more. */
typedef attnrun_status budget_work(struct cli *cli, void *user);
void budget_explain_work(struct cli *cli, budget_work *work, void *user);
/* The work of opening the first path. `user`: its flags, an uint32_t. */
attnrun_status budget_open(struct cli *cli, void *user);
/* Drops what a model writes. */
int32_t budget_drop(void *user, const void *bytes, uint64_t n);

/* ---- states.c ---- --state, and back to the given length after a run */
/* The pairs that --state means, by the names of the job's model. */
attnrun_status states_find(struct job *job, const struct inputs *inputs);
attnrun_status states_bind(struct job *job);
attnrun_status states_rewind(const struct job *job, attnrun_context *context);
/* The same for another context of the model, on any thread: failures are the library's. */
attnrun_status states_add(const struct job *job, attnrun_context *context);
attnrun_status states_truncate(const struct job *job, attnrun_context *context);

/* ---- outputs.c ---- */
struct summary {
    double mean, min, max;
    int64_t nan, infinite; /* elements, counted beside mean, min and max */
    uint64_t digest;
    bool has_numbers;
};
/* A dense view of output `index`; `copy` is to be freed. */
attnrun_status output_dense(struct job *job, int32_t index, attnrun_tensor *tensor,
                            struct held *copy);
void summarize(const attnrun_tensor *tensor, struct summary *summary);
/* Is `path` a form that outputs can be written to? Asked before the run. */
attnrun_status outputs_check_path(const struct job *job, const char *path);
attnrun_status outputs_write(struct job *job, const char *path);
attnrun_status outputs_print(struct job *job);
/* Infinities and NaN in all outputs of floats. */
attnrun_status outputs_count_not_finite(struct job *job, int64_t *count);
attnrun_status outputs_print_full(struct job *job);
attnrun_status outputs_json(struct job *job, struct json *json);

/* ---- save_json.c ---- */
void json_value(struct json *json, const char *key, const attnrun_tensor *value);
attnrun_status outputs_save_json(struct job *job, const char *path);

/* ---- text.c ---- One of 8 rotating buffers each. */
const char *text_bytes(int64_t bytes);                     /* "165 MB" */
const char *text_count(int64_t count);                     /* "41.2 M" */
const char *text_rate(double per_second);                  /* "16.6 k" */
const char *text_ms(double ms);                            /* "188 ms" */
const char *text_producer(const attnrun_model_info *info); /* "pytorch 2.13" */
const char *text_opsets(const attnrun_model *model, const attnrun_model_info *info);
/* "i64[B=1,S=512]" */
const char *text_input(const struct input *input);
const char *
text_blas(const char *blas); /* "OpenBLAS 0.3.21", without its build options */
const char *text_file_name(const char *path);

#endif
