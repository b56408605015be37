/* explain.c - a failure in the words of the user, who gave the inputs.
 *
 * In: the error recorded last, of planning or running with these inputs. Out: the same error;
 * where a node failed that a rewrite pass wrote, that of the operator of the file, which a
 * second load without fusion finds; and a hint with the sizes of the inputs or the symbol that
 * --set and one of them bind differently. */
#include <stdlib.h>
#include <string.h>

#include "job.h"

static bool is_imported(const struct inputs *inputs, const char *domain)
{
    for (int32_t i = 0; i < inputs->model_info.n_opsets; i++) {
        const char *imported;
        int64_t version;
        if (attnrun_model_opset(inputs->model, i, &imported, &version) == ATTNRUN_OK &&
            strcmp(imported, domain) == 0)
            return true;
    }
    return false;
}

/* Whether a rewrite pass wrote the node: the operator is in no domain that the file imports. */
static bool is_rewritten(const struct inputs *inputs, const char *op_type)
{
    const attnrun_op_def *op;
    bool known = false;
    for (int32_t i = 0; (op = attnrun_get_op(inputs->cli->runtime, i)) != NULL; i++) {
        if (strcmp(op->name, op_type) != 0)
            continue;
        known = true;
        if (is_imported(inputs, op->domain))
            return false;
    }
    return known;
}

static attnrun_status run_unfused(const struct inputs *inputs, attnrun_model *model,
                                  bool run)
{
    attnrun_context *context;
    attnrun_tensor *tensors = inputs_tensors(inputs);
    if (tensors == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for inputs");
    attnrun_status status = attnrun_context_create(model, &context);
    if (status == ATTNRUN_OK) {
        status = attnrun_set_timeout(context, inputs->cli->timeout_us);
        if (status == ATTNRUN_OK)
            status = attnrun_plan(context, tensors, NULL);
        for (int32_t i = 0; run && status == ATTNRUN_OK && i < inputs->n; i++)
            status = attnrun_set_input(context, i, &tensors[i]);
        if (run && status == ATTNRUN_OK)
            status = attnrun_run(context, NULL);
        if (status != ATTNRUN_OK)
            tool_fail_library(status);
        attnrun_context_destroy(context);
    }
    free(tensors);
    return status;
}

/* Reports the operator of the file in the place of a fused one, if it fails in the same way. */
static void name_operator(const struct inputs *inputs, bool run)
{
    struct tool_error fused = tool_error;
    attnrun_model *model;
    attnrun_status status =
        cli_open_model(inputs->cli, inputs->cli->paths.v[0], ATTNRUN_NO_FUSION, &model);
    if (status == ATTNRUN_OK) {
        status = run_unfused(inputs, model, run);
        attnrun_model_release(model);
    }
    if (status != fused.status)
        tool_error = fused;
}

static void name_inputs(const struct inputs *inputs)
{
    char text[sizeof tool_error.hint];
    snprintf(text, sizeof text, inputs->n == 1 ? "the input is" : "the inputs are");
    for (int32_t i = 0; i < inputs->n; i++) {
        const struct input *input = &inputs->v[i];
        char word[400];
        snprintf(word, sizeof word, "%s '%s' %s", i > 0 ? "," : "",
                 tool_quote(input->info.name), text_input(input));
        if (strlen(text) + strlen(word) + 5 > sizeof text) {
            strcat(text, " ...");
            break;
        }
        strcat(text, word);
    }
    if (inputs->n > 0)
        tool_hint("%s", text);
}

void explain_failure(const struct inputs *inputs, bool run)
{
    int32_t code = attnrun_status_exit(tool_error.status);
    if (code != 5 && code != 7)
        return;
    if (!inputs->cli->no_fusion && is_rewritten(inputs, tool_error.op_type))
        name_operator(inputs, run);
    if (inputs->conflict[0] != 0)
        tool_hint("%s", inputs->conflict);
    else if (tool_error.op_type[0] != 0 && tool_error.hint[0] == 0)
        name_inputs(inputs);
}
