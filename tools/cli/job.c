/* job.c - opens one model with its inputs and a context, runs it, and times the runs.
 *
 * In: a path and the options of the command line. Out: struct job; its times are milliseconds of
 * the wall clock, percentiles by nearest rank. The first run is timed apart from the others, since
 * it plans. Cost: as many runs as are asked for or as the time limit allows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "job.h"

static void count_coverage(struct job *job)
{
    for (int32_t i = 0; i < job->info.n_nodes; i++) {
        attnrun_node_info node = { .struct_size = sizeof node };
        if (attnrun_model_node(job->model, i, &node) != ATTNRUN_OK)
            continue;
        job->native += node.coverage == ATTNRUN_NATIVE;
        job->body += node.coverage == ATTNRUN_BODY;
        job->missing += node.coverage == ATTNRUN_MISSING;
    }
}

static attnrun_status open_job(struct job *job, struct cli *cli, const char *path)
{
    memset(job, 0, sizeof *job);
    job->cli = cli;
    job->path = path;
    job->info.struct_size = sizeof job->info;
    job->plan.struct_size = sizeof job->plan;
    TRY(cli_open_runtime(cli));
    progress_start(cli, "loading");
    double start = cli_now_ms();
    attnrun_status status = cli_open_model(cli, path, 0, &job->model);
    if (status == ATTNRUN_OK) {
        progress_show(0, 0, "packing weights");
        double packing = cli_now_ms();
        status = attnrun_context_create(job->model, &job->context);
        if (status == ATTNRUN_OK)
            status = attnrun_set_timeout(job->context, cli->timeout_us);
        job->timing.pack_ms = cli_now_ms() - packing;
        if (status != ATTNRUN_OK)
            tool_fail_library(status);
    }
    job->timing.load_ms = cli_now_ms() - start;
    job->loaded_rss_bytes = cli_rss_bytes();
    job->load_peak_rss_bytes = cli_peak_rss_bytes();
    progress_end();
    TRY(status);
    TRY_LIB(attnrun_model_query(job->model, &job->info));
    count_coverage(job);
    TRY(inputs_make(&job->inputs, cli, job->model));
    job->inputs_made = true;
    TRY(states_bind(job));
    return inputs_fit(&job->inputs, job->context, &job->plan);
}

attnrun_status job_open(struct job *job, struct cli *cli, const char *path)
{
    attnrun_status status = open_job(job, cli, path);
    if (status != ATTNRUN_OK)
        job_explain_budget(job);
    return status;
}

attnrun_status job_first_run(struct job *job, const attnrun_run_options *options)
{
    struct tool_error first = { 0 };
    for (;;) {
        double start = cli_now_ms();
        progress_start(job->cli, "first run");
        attnrun_status status = cli_run_context(job->cli, job->context, options);
        job->timing.first_ms = cli_now_ms() - start;
        progress_end();
        if (status == ATTNRUN_OK)
            return states_rewind(job, job->context);
        if (first.status == ATTNRUN_OK)
            first = tool_error;
        struct tool_error failure = tool_error;
        if (inputs_retry(&job->inputs, &failure) &&
            inputs_fit(&job->inputs, job->context, &job->plan) == ATTNRUN_OK)
            continue;
        inputs_blame(&job->inputs, &first, true);
        job_explain_budget(job);
        return tool_error.status;
    }
}

void timing_evaluate(struct timing *timing)
{
    int64_t n = timing->n;
    const double *ms = timing->runs_ms;
    if (n == 0) {
        timing->min_ms = timing->median_ms = timing->first_ms;
        timing->p90_ms = timing->p99_ms = timing->first_ms;
        return;
    }
    qsort(timing->runs_ms, (size_t)n, sizeof *ms, cli_numbers_by_size);
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += ms[i];
    timing->per_second = sum > 0 ? (double)n * 1e3 / sum : 0;
    timing->min_ms = ms[0];
    timing->p90_ms = ms[(n * 90 + 99) / 100 - 1]; /* nearest rank */
    timing->p99_ms = ms[(n * 99 + 99) / 100 - 1];
    timing->median_ms = n % 2 != 0 ? ms[n / 2] : (ms[n / 2 - 1] + ms[n / 2]) / 2;
    double range = ms[n - 1 - n / 4] - ms[n / 4];
    timing->spread = timing->median_ms > 0 ? range / 2 / timing->median_ms : 0;
}

/* How many of at most n runs a time limit allows, by those that are done; 0: no limit. */
static int64_t expected_runs(int64_t done, int64_t n, double elapsed_ms, double max_ms)
{
    if (max_ms <= 0 || elapsed_ms <= 0 || (double)n * elapsed_ms < (double)done * max_ms)
        return n;
    const int64_t fit = (int64_t)ceil((double)done * max_ms / elapsed_ms);
    return fit > done ? fit : done;
}

attnrun_status job_repeat(struct job *job, int64_t n, double max_ms)
{
    struct timing *timing = &job->timing;
    timing->runs_ms = calloc((size_t)n + 1, sizeof *timing->runs_ms);
    if (timing->runs_ms == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for %lld times", (long long)n);
    progress_start(job->cli, "runs");
    double begin = cli_now_ms();
    attnrun_status status = ATTNRUN_OK;
    while (timing->n < n && status == ATTNRUN_OK) {
        if (timing->n > 0 && max_ms > 0 && cli_now_ms() - begin > max_ms)
            break;
        double start = cli_now_ms();
        status = cli_run_context(job->cli, job->context, NULL);
        timing->runs_ms[timing->n++] = cli_now_ms() - start;
        if (status == ATTNRUN_OK)
            status = states_rewind(job, job->context);
        progress_show(timing->n,
                      expected_runs(timing->n, n, cli_now_ms() - begin, max_ms), "runs");
    }
    progress_end();
    timing_evaluate(timing);
    return status;
}

void job_close(struct job *job)
{
    free(job->timing.runs_ms);
    free(job->states);
    attnrun_context_destroy(job->context);
    inputs_free(&job->inputs);
    attnrun_model_release(job->model);
}
