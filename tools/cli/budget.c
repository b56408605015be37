/* budget.c - a memory budget that was too small: how many bytes would do.
 *
 * In: a job that failed with E_MEMORY, and its inputs and states as far as it got. Out: a hint that
 * names the smallest budget that works. The model is opened once more in a runtime that may take
 * all memory of the machine, and nothing of it is packed or run:
 *
 *     bytes = max(the most that opening held,
 *                 attnrun_model_plan_states() of these inputs,
 *                 the largest input that is made up or read)
 *
 * What the runtime states as a bound is named as one: sizes that depend on data. */
#include <stdlib.h>
#include <unistd.h>

#include "job.h"

struct budget {
    attnrun_runtime *runtime; /* of the job */
    int64_t max_memory;       /* as given, 0: the default */
    int64_t most;             /* the budget that the measurement has */
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

static attnrun_status need_of_inputs(struct inputs *inputs, struct job *job,
                                     struct budget *budget)
{
    attnrun_runtime_info info = { .struct_size = sizeof info };
    TRY_LIB(attnrun_runtime_query(job->cli->runtime, &info));
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

static void hint(const struct budget *budget, const struct tool_error *failed)
{
    const attnrun_model_need *need = &budget->need;
    const char *words = "%lld bytes are needed with these inputs: --max-memory %lld";
    if (need->n_unbounded_steps > 0)
        words = "at least %lld bytes are needed with these inputs, and what depends on "
                "data comes on top: --max-memory %lld";
    else if (budget->opening_bytes > need->total_bytes)
        words = "%lld bytes are enough with these inputs, fewer where each run may "
                "compute what constants give: --max-memory %lld";
    else if (need->side_heap_bytes > 0)
        words = "%lld bytes are enough with these inputs, fewer where the data need "
                "less: --max-memory %lld";
    tool_error = *failed;
    tool_hint(words, (long long)budget->bytes, (long long)budget->bytes);
}

void job_explain_budget(struct job *job)
{
    struct cli *cli = job->cli;
    const struct tool_error failed = tool_error;
    struct budget budget = { .runtime = cli->runtime,
                             .max_memory = cli->max_memory,
                             .need.struct_size = sizeof budget.need };
    attnrun_runtime_info info = { .struct_size = sizeof info };
    if (failed.status != ATTNRUN_E_MEMORY)
        return;
    int64_t given = cli->max_memory;
    if (given == 0 && cli->runtime != NULL &&
        attnrun_runtime_query(cli->runtime, &info) == ATTNRUN_OK)
        given = (int64_t)info.max_memory;
    attnrun_context_destroy(job->context);
    job->context = NULL;
    budget.most = larger(given, memory_of_machine());
    cli->runtime = NULL;
    cli->max_memory = budget.most;
    const attnrun_status status = measure(job, &budget);
    attnrun_runtime_destroy(cli->runtime);
    cli->runtime = budget.runtime;
    cli->max_memory = budget.max_memory;
    tool_error = failed;
    if (status == ATTNRUN_OK && budget.bytes > given)
        hint(&budget, &failed);
    else if (status == ATTNRUN_E_MEMORY && budget.most > given)
        tool_hint("more than the %lld bytes that this machine has are needed",
                  (long long)budget.most);
}
