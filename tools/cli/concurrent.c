/* concurrent.c - attnrun bench --concurrency N: one model, N contexts that run at once.
 *
 * In: a job that has run once. Out: the times of all runs of all contexts, and runs a second
 * together. The contexts share the model, its weights and the inputs; each has an arena of its
 * own and a thread that calls it. The threads of the runtime are shared, too. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

struct lane {
    pthread_t thread;
    attnrun_context *context;
    const struct job *job;
    struct gate *gate;
    double *ms;
    int64_t n, max; /* runs so far, and at most */
    double max_ms;  /* 0: no bound */
    attnrun_status status;
    char message[768]; /* of its failure: errors are those of a thread */
    bool started;
};

/* Where all lanes wait until the last one is there. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int state; /* 0 shut, 1 open, -1: go home */
};

static int wait_at(struct gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    while (gate->state == 0)
        pthread_cond_wait(&gate->moved, &gate->lock);
    const int state = gate->state;
    pthread_mutex_unlock(&gate->lock);
    return state;
}

static void open_gate(struct gate *gate, int state)
{
    pthread_mutex_lock(&gate->lock);
    gate->state = state;
    pthread_cond_broadcast(&gate->moved);
    pthread_mutex_unlock(&gate->lock);
}

static void *run_lane(void *arg)
{
    struct lane *lane = arg;
    const bool runs = wait_at(lane->gate) > 0;
    const double begin = cli_now_ms();
    while (runs && lane->n < lane->max && lane->status == ATTNRUN_OK) {
        const double start = cli_now_ms();
        if (lane->n > 0 && lane->max_ms > 0 && start - begin > lane->max_ms)
            break;
        lane->status = attnrun_run(lane->context, NULL);
        lane->ms[lane->n++] = cli_now_ms() - start;
        if (lane->status == ATTNRUN_OK)
            lane->status = states_truncate(lane->job, lane->context);
    }
    if (lane->status != ATTNRUN_OK)
        snprintf(lane->message, sizeof lane->message, "%s",
                 attnrun_last_error()->message);
    return NULL;
}

/* A context with the inputs of the job, which has run once: its plan and pages are there. */
static attnrun_status open_lane(struct job *job, struct lane *lane)
{
    if (lane->ms == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for %lld times",
                         (long long)lane->max);
    TRY_LIB(attnrun_context_create(job->model, &lane->context));
    TRY_LIB(attnrun_set_timeout(lane->context, job->cli->timeout_us));
    TRY_LIB(states_add(job, lane->context));
    for (int32_t i = 0; i < job->inputs.n; i++)
        TRY_LIB(attnrun_set_input(lane->context, i, &job->inputs.v[i].held.tensor));
    TRY(cli_run_context(job->cli, lane->context, NULL));
    return states_rewind(job, lane->context);
}

static attnrun_status run_lanes(struct lane *lanes, int64_t n, double *wall_ms)
{
    struct gate gate = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0 };
    attnrun_status status = ATTNRUN_OK;
    bool all = true;
    for (int64_t i = 0; i < n && all; i++) {
        lanes[i].gate = &gate;
        all = pthread_create(&lanes[i].thread, NULL, run_lane, &lanes[i]) == 0;
        lanes[i].started = all;
    }
    const double start = cli_now_ms();
    open_gate(&gate, all ? 1 : -1);
    for (int64_t i = 0; i < n && lanes[i].started; i++) {
        pthread_join(lanes[i].thread, NULL);
        if (lanes[i].status != ATTNRUN_OK && status == ATTNRUN_OK)
            status = tool_fail(lanes[i].status, "%s", lanes[i].message);
    }
    *wall_ms = cli_now_ms() - start;
    if (!all)
        status = tool_fail(ATTNRUN_E_MEMORY, "cannot start %lld threads", (long long)n);
    return status;
}

static attnrun_status gather(struct job *job, const struct lane *lanes, int64_t n,
                             double wall_ms)
{
    struct timing *timing = &job->timing;
    int64_t total = 0;
    for (int64_t i = 0; i < n; i++)
        total += lanes[i].n;
    timing->runs_ms = calloc((size_t)total + 1, sizeof *timing->runs_ms);
    if (timing->runs_ms == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for %lld times", (long long)total);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < lanes[i].n; k++)
            timing->runs_ms[timing->n++] = lanes[i].ms[k];
    timing_evaluate(timing);
    timing->per_second = (double)total * 1e3 / wall_ms;
    return ATTNRUN_OK;
}

attnrun_status bench_concurrent(struct job *job, int64_t n_contexts, int64_t n,
                                double max_ms)
{
    struct lane *lanes = calloc((size_t)n_contexts, sizeof *lanes);
    double wall_ms = 0;
    if (lanes == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for %lld contexts",
                         (long long)n_contexts);
    attnrun_status status = ATTNRUN_OK;
    progress_start(job->cli, "runs of all contexts");
    for (int64_t i = 0; i < n_contexts && status == ATTNRUN_OK; i++) {
        lanes[i] = (struct lane){ .job = job, .max = n, .max_ms = max_ms };
        lanes[i].ms = calloc((size_t)n + 1, sizeof *lanes[i].ms);
        status = open_lane(job, &lanes[i]);
    }
    if (status == ATTNRUN_OK)
        status = run_lanes(lanes, n_contexts, &wall_ms);
    if (status == ATTNRUN_OK)
        status = gather(job, lanes, n_contexts, wall_ms);
    progress_end();
    for (int64_t i = 0; i < n_contexts; i++) {
        attnrun_context_destroy(lanes[i].context);
        free(lanes[i].ms);
    }
    free(lanes);
    return status;
}
