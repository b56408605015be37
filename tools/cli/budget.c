/* budget.c - a memory budget that was too small: how many bytes would do.
 *
 * In: a job that failed with E_MEMORY, and its inputs and states as far as it got. Out: a hint that
 * names the smallest budget that works. The model is opened once more in a runtime with a budget
 * that is larger by MORE_BYTES, and no more, because a stranger's file may ask for any memory.
 * Nothing of it is packed or run:
 *
 *     bytes = max(the most that opening held,
 *                 attnrun_model_plan_states() of these inputs,
 *                 the largest input that is made up or read)
 *
 * What the runtime states as a bound is named as one: sizes that depend on data.
 *
 * Commands that have no such plan do their work once more with that budget, and again with one byte
 * less than that took: where this fails, the number is exact. Where more is needed, the library's
 * sentence about the allocation that failed stays.
 * Where the process may not have as many addresses (ulimit -v), the hint names that limit. */
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "job.h"

enum { MORE_BYTES = 64 << 20 };

struct budget {
    attnrun_runtime *runtime; /* of the job */
    int64_t max_memory;       /* as given, 0: the default */
    int64_t max_bytes;        /* the budget that the measurement has */
    int64_t opening_bytes;    /* the most that opening holds */
    int64_t bytes;            /* that are needed */
    attnrun_model_need need;
};

static int64_t memory_of_machine(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (int64_t)pages * page : INT64_C(4) << 30;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* The budget of the second try. */
static int64_t budget_of_try(int64_t given)
{
    const int64_t machine = memory_of_machine();
    return larger(given, given < machine - MORE_BYTES ? given + MORE_BYTES : machine);
}

/* The memory of each state: what the run makes of it. Runs take twice that where the budget has it;
 * that is what a plan counts of a state without a capacity. */
static attnrun_status fit_states(struct inputs *inputs, struct job *job)
{
    for (int64_t i = 0; i < job->n_states; i++) {
        attnrun_model_need need = { .struct_size = sizeof need };
        attnrun_state_pair *pair = &job->states[i];
        pair->capacity_bytes = 0;
        TRY(inputs_need(inputs, pair, 1, &need));
        pair->capacity_bytes = need.states_bytes / 2;
    }
    return ATTNRUN_OK;
}

/* The made-up sizes that a run would have. */
static attnrun_status fit_sizes(struct inputs *inputs)
{
    attnrun_model_need need = { .struct_size = sizeof need };
    attnrun_status status = inputs_need(inputs, NULL, 0, &need);
    while (status != ATTNRUN_OK && inputs_retry(inputs, &tool_error))
        status = inputs_need(inputs, NULL, 0, &need);
    return status;
}

static attnrun_status need_of_inputs(struct inputs *inputs, struct job *job,
                                     struct budget *budget)
{
    attnrun_runtime_info info = { .struct_size = sizeof info };
    TRY_LIB(attnrun_runtime_query(job->cli->runtime, &info));
    TRY(fit_sizes(inputs));
    TRY(states_find(job, inputs));
    TRY(fit_states(inputs, job));
    TRY(inputs_need(inputs, job->states, job->n_states, &budget->need));
    budget->opening_bytes = (int64_t)info.peak_memory;
    budget->bytes = larger(budget->opening_bytes, budget->need.total_bytes);
    for (int32_t i = 0; i < inputs->n; i++)
        budget->bytes =
            larger(budget->bytes, attnrun_tensor_bytes(&inputs->v[i].held.tensor));
    return ATTNRUN_OK;
}

/* The inputs of the job, where it has some; else such as it would have made. */
static attnrun_status measure(struct job *job, struct budget *budget)
{
    attnrun_model *model = NULL, *const before = job->model;
    struct inputs made = { .v = NULL };
    attnrun_status status = cli_open_model(job->cli, job->path, 0, &model);
    if (status != ATTNRUN_OK)
        return status;
    job->model = model;
    struct inputs *inputs = job->inputs_made ? &job->inputs : &made;
    if (!job->inputs_made)
        status = inputs_make(&made, job->cli, model);
    inputs->model = model;
    if (status == ATTNRUN_OK)
        status = need_of_inputs(inputs, job, budget);
    job->model = before;
    job->inputs.model = before;
    inputs_free(&made);
    attnrun_model_release(model);
    return status;
}

/* Whether the process has a limit of addresses, which is then the cause: the budget is large. */
static bool hint_addresses(int64_t need)
{
    struct rlimit space;
    if (getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur == RLIM_INFINITY)
        return false;
    if (need > 0)
        tool_hint(
            "attnrun needs %lld bytes for this, besides the program and mapped files, "
            "and ulimit -v leaves the process %lld bytes of addresses",
            (long long)need, (long long)space.rlim_cur);
    else
        tool_hint("ulimit -v leaves the process %lld bytes of addresses",
                  (long long)space.rlim_cur);
    return true;
}

static void hint(const struct budget *budget, const struct tool_error *failed)
{
    const attnrun_model_need *need = &budget->need;
    const char *words = "%lld bytes are needed with these inputs: --max-memory %lld";
    if (need->n_unbounded_steps > 0)
        words = "at least %lld bytes are needed with these inputs, besides what depends "
                "on data: --max-memory %lld";
    else if (budget->opening_bytes > need->total_bytes)
        words = "%lld bytes are enough with these inputs; fewer are enough if each run "
                "computes what depends only on constants: --max-memory %lld";
    else if (need->side_heap_bytes > 0)
        words = "%lld bytes are enough with these inputs; fewer are enough if the data "
                "need less: --max-memory %lld";
    tool_error = *failed;
    tool_hint(words, (long long)budget->bytes, (long long)budget->bytes);
}

/* The budget is not the cause, or no budget of this machine is enough: the second try had
 * `max_bytes`. The library gives a hint only where the budget is the cause: what depends on data
 * may be over it, and is not in `need`. */
static void hint_limits(attnrun_status status, int64_t need, int64_t max_bytes,
                        int64_t given)
{
    const bool over_budget = tool_error.hint[0] != 0;
    if ((over_budget || !hint_addresses(status == ATTNRUN_OK ? need : 0)) &&
        status == ATTNRUN_E_MEMORY && max_bytes > given &&
        max_bytes == memory_of_machine())
        tool_hint("this needs more than the %lld bytes that this machine has",
                  (long long)max_bytes);
}

/* The budget that was too small: that of --max-memory, or the default. */
static int64_t budget_given(const struct cli *cli)
{
    attnrun_runtime_info info = { .struct_size = sizeof info };
    if (cli->max_memory == 0 && cli->runtime != NULL &&
        attnrun_runtime_query(cli->runtime, &info) == ATTNRUN_OK)
        return (int64_t)info.max_memory;
    return cli->max_memory;
}

void job_explain_budget(struct job *job)
{
    struct cli *cli = job->cli;
    const struct tool_error failed = tool_error;
    struct budget budget = { .runtime = cli->runtime,
                             .max_memory = cli->max_memory,
                             .need.struct_size = sizeof budget.need };
    if (failed.status != ATTNRUN_E_MEMORY)
        return;
    const int64_t given = budget_given(cli);
    attnrun_context_destroy(job->context);
    job->context = NULL;
    budget.max_bytes = budget_of_try(given);
    cli->runtime = NULL;
    cli->max_memory = budget.max_bytes;
    const attnrun_status status = measure(job, &budget);
    attnrun_runtime_destroy(cli->runtime);
    cli->runtime = budget.runtime;
    cli->max_memory = budget.max_memory;
    tool_error = failed;
    if (status == ATTNRUN_OK && budget.bytes > given)
        hint(&budget, &failed);
    else
        hint_limits(status, budget.bytes, budget.max_bytes, given);
}

/* ---- work without a plan ---- */

/* Does the work within a budget. *bytes: the most that its runtime held. */
static attnrun_status work_within(struct cli *cli, int64_t max_memory, budget_work *work,
                                  void *user, int64_t *bytes)
{
    attnrun_runtime_info info = { .struct_size = sizeof info };
    cli->runtime = NULL;
    cli->max_memory = max_memory;
    cli->other_peak_bytes = 0;
    const attnrun_status status = work(cli, user);
    if (cli->runtime != NULL && attnrun_runtime_query(cli->runtime, &info) == ATTNRUN_OK)
        *bytes = larger((int64_t)info.peak_memory, cli->other_peak_bytes);
    attnrun_runtime_destroy(cli->runtime);
    return status;
}

void budget_explain_work(struct cli *cli, budget_work *work, void *user)
{
    const struct tool_error failed = tool_error;
    attnrun_runtime *const runtime = cli->runtime;
    const int64_t max_memory = cli->max_memory;
    if (failed.status != ATTNRUN_E_MEMORY)
        return;
    const int64_t given = budget_given(cli), max_bytes = budget_of_try(given);
    int64_t bytes = 0, unused = 0;
    attnrun_status fewer = ATTNRUN_OK,
                   status = work_within(cli, max_bytes, work, user, &bytes);
    if (status == ATTNRUN_OK && bytes > given)
        fewer = work_within(cli, bytes - 1, work, user, &unused);
    cli->runtime = runtime;
    cli->max_memory = max_memory;
    tool_error = failed;
    if (status == ATTNRUN_OK && bytes > given)
        tool_hint(fewer == ATTNRUN_E_MEMORY
                      ? "%lld bytes are needed for this: --max-memory %lld"
                      : "%lld bytes are enough for this, and fewer may be enough: "
                        "--max-memory %lld",
                  (long long)bytes, (long long)bytes);
    else
        hint_limits(status, bytes, max_bytes, given);
}

attnrun_status budget_open(struct cli *cli, void *user)
{
    attnrun_model *model = NULL;
    const attnrun_status status =
        cli_open_model(cli, cli->paths.v[0], *(const uint32_t *)user, &model);
    attnrun_model_release(model);
    return status;
}

int32_t budget_drop(void *user, const void *bytes, uint64_t n)
{
    (void)user, (void)bytes, (void)n;
    return 0;
}
