/* inputs.c - the inputs of a run.
 *
 * In: the options of the command line, and a model. Out: a tensor for each input of the model,
 * given (given.c) or made up (make_up.c) with sizes of symbols.c and sizes.c; then bound to a
 * context. */
#include <stdlib.h>
#include <string.h>

#include "inputs.h"

static attnrun_status inputs_collect(struct inputs *inputs)
{
    TRY_LIB(attnrun_model_query(inputs->model, &inputs->model_info));
    int32_t n = inputs->model_info.n_inputs;
    inputs->v = calloc((size_t)n + 1, sizeof *inputs->v);
    if (inputs->v == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for inputs");
    inputs->n = n;
    for (int32_t i = 0; i < n; i++) {
        inputs->v[i].info.struct_size = sizeof inputs->v[i].info;
        inputs->v[i].shape_rank = -1;
        TRY_LIB(attnrun_model_input(inputs->model, i, &inputs->v[i].info));
    }
    return ATTNRUN_OK;
}

/* "ones" and "zeros" of -i, on top of what was made up. */
static void overwrite(struct input *input)
{
    const attnrun_tensor *tensor = &input->held.tensor;
    if (input->value == NULL || strcmp(input->value, "random") == 0 ||
        tensor->kind != ATTNRUN_TENSOR || tensor->dtype == ATTNRUN_STRING)
        return;
    int64_t n = attnrun_tensor_count(tensor);
    for (int64_t k = 0; k < n; k++)
        value_set_int(tensor, k, strcmp(input->value, "ones") == 0);
    snprintf(input->how, sizeof input->how, "%s", input->value);
}

/* Who gives some inputs wants an answer about them: no other one may be random unasked.
 */
static attnrun_status check_asked(struct inputs *inputs, const struct input *input)
{
    uint32_t answers = CLI_RUN | CLI_CHECK;
    if (!inputs->some_given || !input->random || input->value != NULL ||
        (inputs->cli->command->bit & answers) == 0)
        return ATTNRUN_OK;
    tool_fail(ATTNRUN_E_INPUT, "input '%s' is not given", tool_quote(input->info.name));
    tool_hint("-i %s=random generates values", tool_quote(input->info.name));
    inputs->guessed = false; /* other sizes would change nothing */
    return ATTNRUN_E_INPUT;
}

/* Shapes of what is not given, and the data where that is asked for. */
static attnrun_status make_shapes(struct inputs *inputs)
{
    inputs->guessed = false;
    symbols_default(inputs);
    for (int32_t i = 0; i < inputs->n; i++) {
        struct input *input = &inputs->v[i];
        if (input->given)
            continue;
        held_free(&input->held);
        TRY(make_up_shape(inputs, input));
    }
    return ATTNRUN_OK;
}

static attnrun_status make_data(struct inputs *inputs)
{
    for (int32_t i = 0; i < inputs->n; i++) {
        struct input *input = &inputs->v[i];
        if (input->given || input->held.memory != NULL)
            continue;
        TRY(make_up_data(inputs, input));
        TRY(check_asked(inputs, input));
        overwrite(input);
    }
    return ATTNRUN_OK;
}

attnrun_status inputs_make(struct inputs *inputs, struct cli *cli, attnrun_model *model)
{
    attnrun_runtime_info info = { .struct_size = sizeof info };
    memset(inputs, 0, sizeof *inputs);
    inputs->cli = cli;
    inputs->model = model;
    inputs->shapes_only = cli->command->bit == CLI_PLAN;
    inputs->sizes.trying = inputs->sizes.best_profile = -1;
    inputs->sizes.start_ms = cli_now_ms();
    inputs->model_info.struct_size = sizeof inputs->model_info;
    TRY_LIB(attnrun_runtime_query(cli->runtime, &info));
    inputs->max_bytes = info.max_memory;
    TRY(inputs_collect(inputs));
    TRY(symbols_collect(inputs));
    TRY(symbols_set(inputs));
    return give_inputs(inputs);
}

bool inputs_retry(struct inputs *inputs, const struct tool_error *failure)
{
    const int64_t limit_us = inputs->cli->timeout_us;
    int32_t code = attnrun_status_exit(failure->status);
    if (limit_us > 0 && (cli_now_ms() - inputs->sizes.start_ms) * 1e3 > (double)limit_us)
        return false;
    bool may_be_size =
        code == 5 || code == 7 || (code == 6 && sizes_are_large(&inputs->sizes));
    return may_be_size && sizes_next(inputs, failure);
}

static bool lacks_memory(const struct inputs *inputs)
{
    return attnrun_status_exit(tool_error.status) == 6 &&
           !sizes_are_large(&inputs->sizes);
}

void inputs_blame(const struct inputs *inputs, const struct tool_error *first, bool ran)
{
    const bool sizes = !lacks_memory(inputs);
    if (sizes)
        tool_error = *first;
    explain_failure(inputs, ran);
    if (sizes)
        sizes_explain(inputs);
}

attnrun_status inputs_set(const struct inputs *inputs, attnrun_context *context)
{
    for (int32_t i = 0; i < inputs->n; i++)
        TRY_LIB(attnrun_set_input(context, i, &inputs->v[i].held.tensor));
    return ATTNRUN_OK;
}

attnrun_tensor *inputs_tensors(const struct inputs *inputs)
{
    attnrun_tensor *tensors = calloc((size_t)inputs->n + 1, sizeof *tensors);
    for (int32_t i = 0; tensors != NULL && i < inputs->n; i++)
        tensors[i] = inputs->v[i].held.tensor;
    return tensors;
}

void inputs_free(struct inputs *inputs)
{
    for (int32_t i = 0; i < inputs->n; i++)
        held_free(&inputs->v[i].held);
    free(inputs->v);
    free(inputs->symbols);
    free(inputs->slots);
    memset(inputs, 0, sizeof *inputs);
}

/* Without the plans of sizes that did not fit: the budget counts for one plan. */
static attnrun_status plan_once(struct inputs *inputs, attnrun_context *context,
                                attnrun_plan_info *plan)
{
    attnrun_trim(context);
    TRY(make_shapes(inputs));
    if (inputs->some_given && !inputs->shapes_only)
        TRY(make_data(inputs)); /* says first what is not given */
    attnrun_tensor *tensors = inputs_tensors(inputs);
    if (tensors == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for inputs");
    attnrun_status status = attnrun_plan(context, tensors, plan);
    free(tensors);
    if (status != ATTNRUN_OK)
        return tool_fail_library(status);
    if (inputs->shapes_only)
        return ATTNRUN_OK;
    TRY(make_data(inputs));
    return inputs_set(inputs, context);
}

attnrun_status inputs_need(struct inputs *inputs, const attnrun_state_pair *states,
                           int64_t n_states, attnrun_model_need *need)
{
    TRY(make_shapes(inputs));
    attnrun_tensor *tensors = inputs_tensors(inputs);
    if (tensors == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for inputs");
    attnrun_status status =
        attnrun_model_plan_states(inputs->model, tensors, states, n_states, need);
    free(tensors);
    return status == ATTNRUN_OK ? ATTNRUN_OK : tool_fail_library(status);
}

attnrun_status inputs_fit(struct inputs *inputs, attnrun_context *context,
                          attnrun_plan_info *plan)
{
    attnrun_status status = plan_once(inputs, context, plan);
    struct tool_error first = tool_error;
    while (status != ATTNRUN_OK && inputs_retry(inputs, &tool_error))
        status = plan_once(inputs, context, plan);
    if (status == ATTNRUN_OK)
        return ATTNRUN_OK;
    inputs_blame(inputs, &first, false);
    return tool_error.status;
}
