/* run.c - attnrun run, and attnrun model.onnx: one screen about the model and its run.
 *
 * In: a model and its inputs (files, or made up). Out: times, memory and summaries of the
 * outputs; with -o files of the outputs, with --profile the time of each operator, with --trace a
 * trace of events. */
#include <inttypes.h>
#include <string.h>

#include "../io/file.h"
#include "chrome_trace.h"
#include "job.h"
#include "profile.h"
#include "screen.h"

enum { TITLE = 9 }; /* the column of what is said, on the screen */

static void print_model(const struct job *job)
{
    const attnrun_model_info *info = &job->info;
    struct line line = { .n = 0 };
    line_add(&line, "%s  ", tool_path(job->path));
    if (info->producer[0] != 0)
        line_add(&line, "%s  ", text_producer(info));
    line_add(&line, "IR %" PRId64 "  opsets %s  %s params, %s (%s)", info->ir_version,
             text_opsets(job->model, info), text_count(info->n_parameters),
             text_bytes(info->weights_bytes), job->cli->copy_weights ? "read" : "mapped");
    screen_text("model", TITLE, line.text);
    if (strcmp(info->precision, "f32") != 0)
        screen_line("", TITLE, "products in %s", info->precision);
}

static void print_free_symbols(const struct inputs *inputs)
{
    struct line line = { .n = 0 };
    line_add(&line, "set with");
    for (int64_t i = 0; i < inputs->n_symbols && i < 6; i++) {
        const struct symbol *symbol = &inputs->symbols[i];
        if (!symbol->set && !symbol->bound)
            line_add(&line, " --set %s=...", tool_quote(symbol->name));
    }
    line_add(&line, " -i %s=...", tool_quote(inputs->v[0].info.name));
    screen_text("", TITLE, line.text);
}

static void print_inputs(const struct job *job)
{
    const struct inputs *inputs = &job->inputs;
    bool made_up = false;
    for (int32_t i = 0; i < inputs->n; i++) {
        const struct input *input = &inputs->v[i];
        screen_line(i == 0 ? "inputs" : "", TITLE, "%s %s %s",
                    tool_quote(input->info.name), text_input(input), input->how);
        made_up = made_up || !input->given;
    }
    if (inputs->n == 0)
        screen_text("inputs", TITLE, "none");
    if (inputs->sizes.tries > 0)
        screen_line("", TITLE,
                    "the default sizes do not fit this model; these were found after %s",
                    tool_plural(inputs->sizes.tries, "attempt"));
    if (made_up)
        print_free_symbols(inputs);
}

static void print_nodes(const struct job *job)
{
    struct line line = { .n = 0 };
    line_add(&line, "%d: %" PRId64 " native", job->info.n_nodes, job->native);
    if (job->body > 0)
        line_add(&line, ", %" PRId64 " from function bodies", job->body);
    if (job->info.n_file_nodes != job->info.n_nodes)
        line_add(&line, " (%d in the file)", job->info.n_file_nodes);
    if (job->body > 0)
        line_add(&line, "   see: attnrun inspect --coverage");
    screen_text("nodes", TITLE, line.text);
}

static void print_memory(const struct job *job, const attnrun_runtime_info *runtime)
{
    const attnrun_plan_info *plan = &job->plan;
    struct line line = { .n = 0 };
    line_add(&line, "weights %s %s", text_bytes(plan->weights_bytes),
             job->cli->copy_weights ? "read" : "mapped");
    if (plan->packed_bytes > 0)
        line_add(&line, ", packed %s", text_bytes(plan->packed_bytes));
    if (plan->folded_bytes > 0)
        line_add(&line, ", folded %s", text_bytes(plan->folded_bytes));
    line_add(&line, ", arena %s", text_bytes(plan->arena_bytes));
    if (plan->arena_bytes > 0 && plan->peak_node != NULL)
        line_add(&line, " (peak at %s)",
                 tool_quote(plan->peak_node[0] != 0 ? plan->peak_node : plan->peak_op));
    if (plan->n_dynamic_steps > 0)
        line_add(&line, ", and memory for %s with shapes known only at run",
                 tool_plural(plan->n_dynamic_steps, "node"));
    screen_text("memory", TITLE, line.text);
    screen_line("with", TITLE, "%s, %s, BLAS %s", tool_plural(runtime->threads, "thread"),
                runtime->isa, text_blas(runtime->blas));
}

static void print_time(const struct job *job)
{
    const struct timing *t = &job->timing;
    struct line line = { .n = 0 };
    line_add(&line, "load %s, first %s", text_ms(t->load_ms), text_ms(t->first_ms));
    if (t->n > 0)
        line_add(&line, ", median %s (%s, ±%.1f%%)", text_ms(t->median_ms),
                 tool_plural(t->n, "run"), t->spread * 100);
    screen_text("time", TITLE, line.text);
}

/* Random numbers mean nothing to some models, so that what comes out is not finite: which
 * inputs need values? Single numbers first, they are bounds and scales. `text` is empty
 * where all is well. */
static attnrun_status advise(struct job *job, char *text, size_t bytes)
{
    int64_t bad = 0;
    bool scalars = false;
    text[0] = 0;
    TRY(outputs_count_not_finite(job, &bad));
    for (int pass = 0; bad > 0 && pass < 2; pass++)
        for (int32_t i = 0; i < job->inputs.n; i++) {
            const struct input *input = &job->inputs.v[i];
            bool scalar = attnrun_tensor_count(&input->held.tensor) == 1;
            size_t n = strlen(text);
            if (!input->random || scalar != (pass == 0) || n + 120 > bytes ||
                (pass == 1 && scalars))
                continue;
            scalars = scalars || scalar;
            snprintf(text + n, bytes - n, "%s -i %s=...",
                     n == 0 ? "made-up inputs gave outputs that are not finite: try" : "",
                     tool_quote(input->info.name));
        }
    return ATTNRUN_OK;
}

static attnrun_status print_advice(struct job *job)
{
    char text[600];
    TRY(advise(job, text, sizeof text));
    if (text[0] != 0)
        screen_text("note", TITLE, text);
    return ATTNRUN_OK;
}

/* Commands that can be copied: a path that is too long for one line is left to the reader. */
static void print_next(const struct job *job)
{
    enum { MAX_CELLS = 56 };
    struct line path = { .n = 0 };
    line_add_word(&path, job->path);
    const char *word = screen_width(path.text, path.n) > MAX_CELLS ? "MODEL" : path.text;
    screen_line("next", TITLE, "attnrun plan %s  |  attnrun bench %s  |  -o out.npz",
                word, word);
}

static attnrun_status print_screen(struct job *job)
{
    attnrun_runtime_info runtime = { .struct_size = sizeof runtime };
    TRY_LIB(attnrun_runtime_query(job->cli->runtime, &runtime));
    print_model(job);
    print_inputs(job);
    print_nodes(job);
    print_memory(job, &runtime);
    print_time(job);
    TRY(outputs_print(job));
    TRY(print_advice(job));
    if (job->cli->output != NULL)
        screen_text("written", TITLE, tool_path(job->cli->output));
    else
        print_next(job);
    return ATTNRUN_OK;
}

static void json_inputs(const struct job *job, struct json *json)
{
    json_open(json, "inputs", '[');
    for (int32_t i = 0; i < job->inputs.n; i++) {
        const struct input *input = &job->inputs.v[i];
        json_open(json, NULL, '{');
        json_text(json, "name", input->info.name);
        json_text(json, "dtype", attnrun_dtype_name(input->held.tensor.dtype));
        json_dims(json, "shape", &input->held.tensor);
        json_bool(json, "given", input->given);
        json_text(json, "filled", input->how);
        json_close(json, '}');
    }
    json_close(json, ']');
}

static attnrun_status print_json(struct job *job, const struct profile *profile)
{
    struct json json = { .out = cli_json_stream() };
    attnrun_runtime_info runtime = { .struct_size = sizeof runtime };
    const struct timing *t = &job->timing;
    TRY_LIB(attnrun_runtime_query(job->cli->runtime, &runtime));
    json_open(&json, NULL, '{');
    json_text(&json, "schema", "attnrun/run/2");
    json_text(&json, "model", job->path);
    json_inputs(job, &json);
    json_open(&json, "nodes", '{');
    json_int(&json, "total", job->info.n_nodes);
    json_int(&json, "native", job->native);
    json_int(&json, "body", job->body);
    json_int(&json, "missing", job->missing);
    json_close(&json, '}');
    json_int(&json, "weights_bytes", job->plan.weights_bytes);
    json_int(&json, "packed_bytes", job->plan.packed_bytes);
    json_int(&json, "arena_bytes", job->plan.arena_bytes);
    json_int(&json, "peak_rss_bytes", cli_peak_rss_bytes());
    json_text(&json, "isa", runtime.isa);
    json_int(&json, "threads", runtime.threads);
    json_ms(&json, "load_ms", t->load_ms);
    json_ms(&json, "first_ms", t->first_ms);
    if (t->n > 0)
        json_ms(&json, "median_ms", t->median_ms);
    if (job->cli->profile)
        profile_json(profile, &json);
    attnrun_status status = outputs_json(job, &json);
    char text[600] = "";
    if (status == ATTNRUN_OK)
        status = advise(job, text, sizeof text);
    if (text[0] != 0)
        json_text(&json, "note", text);
    json_close(&json, '}');
    return status;
}

/* Whether the result is shown with times, so that runs follow the first one. */
static bool shows_screen(const struct cli *cli)
{
    return cli->print == NULL && cli->output == NULL && !cli->quiet;
}

static bool runs_once(const struct cli *cli)
{
    const bool looks = cli->profile || cli->trace != NULL;
    return !looks && (cli->repeat == 1 || (cli->repeat == 0 && !shows_screen(cli)));
}

/* How often to run after the first time: as asked; for a screen up to 5 times or 1 s. */
static attnrun_status repeat(struct job *job)
{
    const struct cli *cli = job->cli;
    if (cli->repeat > 0)
        return job_repeat(job, cli->repeat - 1, 0);
    return shows_screen(cli) ? job_repeat(job, 5, 1000) : ATTNRUN_OK;
}

static attnrun_status show(struct job *job, const struct profile *profile)
{
    const char *print = job->cli->print;
    if (job->cli->json)
        return print_json(job, profile);
    if (job->cli->profile)
        profile_print(profile);
    if (print != NULL && strcmp(print, "full") == 0)
        return outputs_print_full(job);
    if (print != NULL && strcmp(print, "summary") == 0) {
        TRY(outputs_print(job));
        return print_advice(job);
    }
    bool taken = (job->cli->output != NULL && file_is_stdout(job->cli->output)) ||
                 (job->cli->trace != NULL && file_is_stdout(job->cli->trace));
    if (print != NULL || job->cli->quiet || taken)
        return ATTNRUN_OK;
    return print_screen(job);
}

/* A file takes one thing, and so does standard output: the outputs themselves, or what is said of
 * them. */
static attnrun_status check_stream(const struct cli *cli)
{
    const bool traced = cli->trace != NULL && file_is_stdout(cli->trace);
    if (traced && (cli->json || cli->profile || cli->print != NULL))
        return tool_fail(ATTNRUN_E_USAGE,
                         "--trace - writes the trace to standard output, so --json, "
                         "--print and --profile cannot be used");
    if (cli->output != NULL && cli->trace != NULL && !traced &&
        file_is_same_target(cli->output, cli->trace))
        return tool_fail(ATTNRUN_E_USAGE, "both -o and --trace name %s",
                         tool_path(cli->trace));
    if (cli->output == NULL || !file_is_stdout(cli->output))
        return ATTNRUN_OK;
    if (traced)
        return tool_fail(ATTNRUN_E_USAGE,
                         "only one of -o - and --trace - can use standard output");
    if (cli->json || cli->profile ||
        (cli->print != NULL && strcmp(cli->print, "none") != 0))
        return tool_fail(ATTNRUN_E_USAGE,
                         "-o - writes the outputs to standard output, so --json, --print "
                         "and --profile cannot be used");
    return ATTNRUN_OK;
}

/* What looks at a run. */
struct looking {
    struct profile *profile;
    struct chrome_trace *trace; /* or NULL */
};

static void look_at_node(void *user, const attnrun_node_profile *node)
{
    const struct looking *looking = user;
    profile_node(looking->profile, node);
    if (looking->trace != NULL)
        chrome_trace_node(looking->trace, node);
}

static void look_at_tasks(void *user, const attnrun_tasks_profile *tasks)
{
    const struct looking *looking = user;
    chrome_trace_tasks(looking->trace, tasks);
}

/* A run of its own: looking costs time. */
static attnrun_status run_profiled(struct job *job, struct profile *profile)
{
    const struct cli *cli = job->cli;
    struct chrome_trace trace;
    struct looking looking = { .profile = profile,
                               .trace = cli->trace != NULL ? &trace : NULL };
    attnrun_run_options options = { .struct_size = sizeof options,
                                    .on_node = look_at_node,
                                    .on_tasks = cli->trace ? look_at_tasks : NULL,
                                    .profile_user = &looking };
    chrome_trace_begin(&trace);
    attnrun_status status = cli_run_context(cli, job->context, &options);
    if (status == ATTNRUN_OK && cli->trace != NULL)
        status = chrome_trace_write(&trace, job, cli->trace);
    chrome_trace_end(&trace);
    return status;
}

static attnrun_status run_job(struct job *job, struct profile *profile)
{
    struct cli *cli = job->cli;
    TRY(check_stream(cli));
    cli->in_place = cli->in_place || runs_once(cli);
    TRY(job_open(job, cli, cli->paths.v[0]));
    if (cli->output != NULL)
        TRY(outputs_check_path(job, cli->output));
    TRY(job_first_run(job, NULL));
    TRY(repeat(job));
    if (cli->profile || cli->trace != NULL)
        TRY(run_profiled(job, profile));
    if (cli->output != NULL)
        TRY(outputs_write(job, cli->output));
    return show(job, profile);
}

attnrun_status command_run(struct cli *cli, int *exit_code)
{
    struct job job = { .cli = cli };
    struct profile profile = { 0 };
    attnrun_status status = run_job(&job, &profile);
    profile_free(&profile);
    job_close(&job);
    *exit_code = 0;
    return status;
}
