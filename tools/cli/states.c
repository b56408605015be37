/* states.c - --state PAST=PRESENT: an output that becomes an input of the next run, kept
 * by the context. A '*' in both stands for the same text: "past_*=present_*". Every timed
 * run begins with what is given: what it added is cut off behind it. */
#include <stdlib.h>
#include <string.h>

#include "job.h"

struct pattern {
    const char *text;
    size_t n, head; /* head: bytes before the star; n where there is none */
};

static struct pattern read_pattern(const char *text, size_t n)
{
    const char *star = memchr(text, '*', n);
    return (struct pattern){ text, n, star ? (size_t)(star - text) : n };
}

/* What the star of `pattern` stands for in `name`; false where the name does not fit. */
static bool fits(const struct pattern *p, const char *name, const char **middle,
                 size_t *middle_n)
{
    size_t n = strlen(name), tail = p->head < p->n ? p->n - p->head - 1 : 0;
    *middle = name + p->head;
    *middle_n = n >= p->head + tail ? n - p->head - tail : 0;
    return n >= p->head + tail && (p->head < p->n || n == p->n) &&
           memcmp(name, p->text, p->head) == 0 &&
           memcmp(name + n - tail, p->text + p->n - tail, tail) == 0;
}

static attnrun_status add_pair(struct job *job, int32_t input, const struct pattern *p,
                               const char *middle, size_t middle_n)
{
    char name[512];
    const char *tail = p->head < p->n ? p->text + p->head + 1 : "";
    snprintf(name, sizeof name, "%.*s%.*s%s", (int)p->head, p->text, (int)middle_n,
             p->head < p->n ? middle : "", tail);
    int32_t output = attnrun_model_find_output(job->model, name);
    if (output < 0)
        return tool_fail(ATTNRUN_E_USAGE, "--state: there is no output %s",
                         tool_quote(name));
    attnrun_state_pair *grown =
        realloc(job->states, (size_t)(job->n_states + 1) * sizeof *grown);
    if (grown == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for a state");
    job->states = grown;
    job->states[job->n_states++] = (attnrun_state_pair){ input, output, 0 };
    return ATTNRUN_OK;
}

attnrun_status states_find(struct job *job, const struct inputs *inputs)
{
    const struct list *given = &job->cli->states;
    if (job->states_found)
        return ATTNRUN_OK;
    for (int64_t k = 0; k < given->n; k++) {
        const char *equals = strchr(given->v[k], '='), *middle;
        size_t middle_n;
        if (equals == NULL)
            return tool_fail(ATTNRUN_E_USAGE, "--state %s: expected PAST=PRESENT",
                             tool_quote(given->v[k]));
        struct pattern past = read_pattern(given->v[k], (size_t)(equals - given->v[k]));
        struct pattern present = read_pattern(equals + 1, strlen(equals + 1));
        int64_t before = job->n_states;
        for (int32_t i = 0; i < inputs->n; i++)
            if (fits(&past, inputs->v[i].info.name, &middle, &middle_n))
                TRY(add_pair(job, i, &present, middle, middle_n));
        if (job->n_states == before)
            return tool_fail(ATTNRUN_E_USAGE,
                             "--state %s: there is no input of this name",
                             tool_quote(given->v[k]));
    }
    job->states_found = true;
    return ATTNRUN_OK;
}

attnrun_status states_bind(struct job *job)
{
    TRY(states_find(job, &job->inputs));
    TRY_LIB(states_add(job, job->context));
    return ATTNRUN_OK;
}

attnrun_status states_add(const struct job *job, attnrun_context *context)
{
    for (int64_t k = 0; k < job->n_states; k++)
        TRY(attnrun_add_state(context, job->states[k].input, job->states[k].output, 0));
    return ATTNRUN_OK;
}

attnrun_status states_truncate(const struct job *job, attnrun_context *context)
{
    for (int64_t k = 0; k < job->n_states; k++) {
        const attnrun_state_pair *pair = &job->states[k];
        const attnrun_tensor *past = &job->inputs.v[pair->input].held.tensor;
        attnrun_tensor present;
        TRY(attnrun_output(context, pair->output, &present));
        int32_t axis = 0;
        while (axis < present.rank && axis < past->rank &&
               past->dims[axis] == present.dims[axis])
            axis++;
        if (axis < present.rank && axis < past->rank)
            TRY(attnrun_truncate_state(context, pair->input, past->dims[axis]));
    }
    return ATTNRUN_OK;
}

attnrun_status states_rewind(const struct job *job, attnrun_context *context)
{
    TRY_LIB(states_truncate(job, context));
    return ATTNRUN_OK;
}
