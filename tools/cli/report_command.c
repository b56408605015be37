/* report_command.c - attnrun report: one page about a model.
 *
 * In: a model and its options. Out: an HTML file of its own: the template of tools/report/ with the
 * objects that inspect, plan, bench, doctor and compare write with --json. Each comes from a
 * process of its own, with those of the options that its command takes, so that memory and times
 * are what that command says. What fails is a sentence in its section; the page is made in any
 * case, unless the model cannot be opened. */
#include <stdlib.h>
#include <string.h>

#include "../io/file.h"
#include "../io/text_stream.h"
#include "bench.h"
#include "child.h"
#include "job.h"

/* The files of tools/report/ and the colours of the gallery: tools/report/report.cmake. */
#include "report_page.h"

enum { PARTS = 8, SIZES_TEXT = 128 };

struct report {
    struct cli *cli;
    struct text_stream page;
    char self[4096];
    char symbol[64], sizes[SIZES_TEXT],
        one[SIZES_TEXT]; /* "S", "S=32,64", "S=64"; or "" */
    int done;
    bool comma;
    int last_code, refused_with; /* of the last part; 0: of none */
};

/* ---- the parts ---- */

static attnrun_status add_options(const struct report *report, uint32_t command,
                                  struct list *arguments)
{
    static const char *const own[] = { "output", "set", NULL };
    return cli_words_of(report->cli, command, own, arguments);
}

/* --set of the user's, but for the symbol that is gone through; that has one size here. */
static attnrun_status add_sets(const struct report *report, const char *sizes,
                               struct list *arguments)
{
    const size_t n = strlen(report->symbol);
    for (int64_t i = 0; i < report->cli->sets.n; i++) {
        const char *set = report->cli->sets.v[i];
        if (n > 0 && strncmp(set, report->symbol, n) == 0 && set[n] == '=')
            continue;
        TRY(list_add(arguments, "--set"));
        TRY(list_add(arguments, set));
    }
    if (sizes[0] == 0)
        return ATTNRUN_OK;
    TRY(list_add(arguments, "--set"));
    return list_add(arguments, sizes);
}

/* Only within strings can it stand in JSON, and there it may be written so. */
static void put_json(FILE *out, const char *text)
{
    for (; *text != 0; text++)
        if (*text == '<')
            fputs("\\u003c", out);
        else
            putc(*text, out);
}

static attnrun_status add_all(const struct report *report, const char *command,
                              const char *sizes, const char *const *more,
                              struct list *arguments)
{
    const struct cli_command *known = cli_find_command(command);
    TRY(list_add(arguments, command));
    TRY(add_options(report, known->bit, arguments));
    if (sizes != NULL)
        TRY(add_sets(report, sizes, arguments));
    for (; *more != NULL; more++)
        TRY(list_add(arguments, *more));
    if (known->bit == CLI_DOCTOR)
        return ATTNRUN_OK;
    TRY(list_add(arguments, "--"));
    return list_add(arguments, report->cli->paths.v[0]);
}

/* `more` ends with NULL; *text is what the command writes, to free(). */
static attnrun_status run_command(const struct report *report, const char *command,
                                  const char *sizes, const char *const *more, char **text,
                                  int *code)
{
    struct list arguments = { 0 };
    attnrun_status status = add_all(report, command, sizes, more, &arguments);
    if (status == ATTNRUN_OK)
        status = child_run(report->self, &arguments, true, text, code);
    free(arguments.v);
    return status;
}

/* One command whose `more` has --json. */
static attnrun_status run_part(struct report *report, const char *key,
                               const char *command, const char *sizes,
                               const char *const *more)
{
    char *text = NULL;
    progress_show(report->done++, PARTS, command);
    attnrun_status status =
        run_command(report, command, sizes, more, &text, &report->last_code);
    if (status == ATTNRUN_OK) {
        fputs(report->comma ? ",\n" : "\n", report->page.file);
        report->comma = true;
        if (key != NULL)
            fprintf(report->page.file, "\"%s\": ", key);
        put_json(
            report->page.file,
            text[0] != 0
                ? text
                : "{\"schema\": \"attnrun/error/1\", \"message\": \"it was ended\"}");
    }
    free(text);
    return status;
}

#define MORE(...)                                                                        \
    (const char *const[]) { __VA_ARGS__, NULL }

static attnrun_status run_compare(struct report *report, const char *with)
{
    fprintf(report->page.file,
            "%s{\"with\": \"%s\", \"result\":", report->comma ? ",\n" : "\n", with);
    report->comma = false;
    TRY(run_part(report, NULL, "compare", report->one, MORE("--json", "--with", with)));
    fputs("}", report->page.file);
    return ATTNRUN_OK;
}

/* ---- the sizes ---- */

/* The symbol of a sequence: the first one that is not the first dim of its input. */
static void find_symbol(struct report *report, const attnrun_model *model)
{
    attnrun_model_info info = { .struct_size = sizeof info };
    if (attnrun_model_query(model, &info) != ATTNRUN_OK)
        return;
    for (int32_t i = 0; i < info.n_inputs && report->symbol[0] == 0; i++) {
        attnrun_value_info value = { .struct_size = sizeof value };
        if (attnrun_model_input(model, i, &value) != ATTNRUN_OK)
            continue;
        for (int32_t d = 1; d < value.rank && value.rank <= 3; d++)
            if (value.dims[d] < 0 && value.dim_names[d][0] != 0 &&
                strpbrk(value.dim_names[d], "+-*/ ,=") == NULL &&
                strlen(value.dim_names[d]) < sizeof report->symbol &&
                report->symbol[0] == 0)
                snprintf(report->symbol, sizeof report->symbol, "%s", value.dim_names[d]);
    }
}

/* Whether the model has a plan for one size of the symbol. */
static attnrun_status has_plan(const struct report *report, const char *size, bool *fits)
{
    char *text = NULL;
    int code = 1;
    attnrun_status status =
        run_command(report, "plan", size, MORE("--quiet"), &text, &code);
    *fits = code == 0;
    free(text);
    return status;
}

/* Five sizes, the largest of which the model takes: its table of positions may be short. */
static attnrun_status find_sizes(struct report *report)
{
    char size[SIZES_TEXT];
    for (int max = 512; max >= 16; max /= 2) {
        bool fits = false;
        snprintf(size, sizeof size, "%s=%d", report->symbol, max);
        TRY(has_plan(report, size, &fits));
        if (!fits)
            continue;
        snprintf(report->sizes, sizeof report->sizes, "%s=%d,%d,%d,%d,%d", report->symbol,
                 max / 16, max / 8, max / 4, max / 2, max);
        return ATTNRUN_OK;
    }
    return ATTNRUN_OK;
}

/* Sizes from --set S=A,B, of which the last one is the size of the other parts; or those of the
 * symbol that is found, and the other parts have the size that --set gives it, if any. */
static attnrun_status choose_sizes(struct report *report, const attnrun_model *model)
{
    const char *set = sweep_of(report->cli);
    TRY(sweep_check(report->cli));
    if (set != NULL) {
        const char *equals = strrchr(set, '='), *last = strrchr(set, ',') + 1;
        if ((size_t)(equals - set) >= sizeof report->symbol ||
            strlen(set) >= sizeof report->sizes)
            return tool_fail(ATTNRUN_E_USAGE, "--set: '%s' is too long", tool_quote(set));
        snprintf(report->symbol, sizeof report->symbol, "%.*s", (int)(equals - set), set);
        snprintf(report->sizes, sizeof report->sizes, "%s", set);
        snprintf(report->one, sizeof report->one, "%s=%s", report->symbol, last);
        return ATTNRUN_OK;
    }
    find_symbol(report, model);
    if (report->symbol[0] == 0)
        return ATTNRUN_OK;
    TRY(find_sizes(report));
    const size_t n = strlen(report->symbol);
    for (int64_t i = 0; i < report->cli->sets.n; i++)
        if (strncmp(report->cli->sets.v[i], report->symbol, n) == 0 &&
            report->cli->sets.v[i][n] == '=')
            snprintf(report->one, sizeof report->one, "%s", report->cli->sets.v[i]);
    return ATTNRUN_OK;
}

/* ---- the page ---- */

static bool some_given(const struct cli *cli)
{
    return cli->inputs.n > 0 || cli->inputs_dir != NULL || cli->sets.n > 0 ||
           cli->shapes.n > 0;
}

/* Options that do not fit the model, such as --set of a symbol that it does not have, are a fault
 * in all parts: no page is written, and the plan's own message is shown. */
static attnrun_status refuse_options(struct report *report)
{
    char *text = NULL;
    struct list arguments = { 0 };
    attnrun_status status =
        add_all(report, "plan", report->one, MORE("--quiet"), &arguments);
    progress_end();
    if (status == ATTNRUN_OK)
        status = child_run(report->self, &arguments, false, &text, &report->refused_with);
    free(text);
    free(arguments.v);
    return status;
}

static attnrun_status gather(struct report *report)
{
    const struct cli *cli = report->cli;
    fprintf(report->page.file, "{\"version\": \"%s\"", attnrun_version());
    report->comma = true;
    TRY(run_part(report, "inspect", "inspect", NULL,
                 MORE("--json", "--layers", "--coverage")));
    TRY(run_part(report, "plan", "plan", report->one, MORE("--json", "--quiet")));
    if (report->last_code == 2 || (report->last_code == 5 && some_given(report->cli)))
        return refuse_options(report);
    TRY(run_part(report, "bench", "bench", report->one,
                 MORE("--json", "--per-node", "--repeat", "20")));
    TRY(run_part(report, "doctor", "doctor", NULL, MORE("--json")));
    if (report->sizes[0] != 0) {
        TRY(run_part(report, "sweep", "bench", report->sizes,
                     MORE("--json", "--repeat", "5")));
        if (!cli->no_fusion)
            TRY(run_part(report, "dense", "bench", report->sizes,
                         MORE("--json", "--repeat", "5", "--no-fusion")));
    }
    fputs(",\n\"compare\": [", report->page.file);
    report->comma = false;
    TRY(run_compare(report, "no-fusion"));
    report->comma = true;
    TRY(run_compare(report, "precision=bf16"));
    fputs("]}", report->page.file);
    return ATTNRUN_OK;
}

/* The template with "@NAME@" replaced by the other files and the data. */
static attnrun_status write_page(const struct report *report, struct output_file *file)
{
    const struct {
        const char *name, *text;
        size_t n;
    } parts[] = { { "@COLOURS@", (const char *)report_colours, sizeof report_colours },
                  { "@STYLE@", (const char *)report_style, sizeof report_style },
                  { "@DATA@", report->page.text, report->page.bytes },
                  { "@SCRIPT@", (const char *)report_script, sizeof report_script } };
    const char *at = (const char *)report_template, *end = at + sizeof report_template;
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        const size_t n = strlen(parts[k].name);
        const char *found = memmem(at, (size_t)(end - at), parts[k].name, n);
        if (found == NULL)
            return tool_fail(ATTNRUN_E_INTERNAL, "the template has no %s", parts[k].name);
        TRY(output_file_write(file, at, found - at));
        TRY(output_file_write(file, parts[k].text, (int64_t)parts[k].n));
        at = found + n;
    }
    return output_file_write(file, at, end - at);
}

static attnrun_status write_report(struct report *report)
{
    struct output_file file;
    TRY(output_file_open(&file, report->cli->output));
    return output_file_finish(&file, write_page(report, &file));
}

attnrun_status command_report(struct cli *cli, int *exit_code)
{
    struct report report = { .cli = cli };
    attnrun_model *model = NULL;
    *exit_code = 0;
    if (cli->output == NULL)
        return tool_fail(ATTNRUN_E_USAGE, "-o FILE is missing: attnrun report "
                                          "model.onnx -o report.html");
    for (int64_t i = 0; i < cli->inputs.n; i++) {
        const char *equals = strrchr(cli->inputs.v[i], '=');
        if (file_is_stream(equals != NULL ? equals + 1 : cli->inputs.v[i]))
            return tool_fail(ATTNRUN_E_USAGE, "the inputs are read several times, so "
                                              "standard input cannot be one of them");
    }
    TRY(child_self(report.self, sizeof report.self));
    uint32_t flags = 0;
    attnrun_status status = cli_open_model(cli, cli->paths.v[0], flags, &model);
    if (status != ATTNRUN_OK) {
        budget_explain_work(cli, budget_open, &flags);
        return status;
    }
    file_note_mapped(); /* it is not open when the page is written */
    status = choose_sizes(&report, model);
    attnrun_model_release(model);
    TRY(status);
    if (!text_stream_open(&report.page))
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for the page");
    progress_start(cli, "report");
    status = gather(&report);
    progress_end();
    if (!text_stream_close(&report.page) && status == ATTNRUN_OK)
        status = tool_fail(ATTNRUN_E_MEMORY, "no memory for the page");
    *exit_code = report.refused_with;
    if (status == ATTNRUN_OK && *exit_code == 0)
        status = write_report(&report);
    if (status == ATTNRUN_OK && *exit_code == 0 && !cli->quiet &&
        !file_is_special(cli->output))
        printf("written  %s\n", tool_path(cli->output));
    text_stream_free(&report.page);
    return status;
}
