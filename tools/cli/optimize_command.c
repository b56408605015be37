/* optimize_command.c - attnrun optimize and attnrun extract: an ONNX model made of another.
 *
 * In: a model file, -o, and for extract the values that are the inputs and outputs of the part.
 * Out: the new model, whole or not at all, with --external a file of its large constants
 * beside it, and a line about it. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../io/file.h"
#include "edit.h"
#include "job.h"

/* ---- writing ---- */

struct edited_files {
    struct output_file model, beside;
};

static int32_t write_model(void *user, const void *bytes, uint64_t n)
{
    struct edited_files *files = user;
    return output_file_write(&files->model, bytes, (int64_t)n) != ATTNRUN_OK;
}

static int32_t write_beside(void *user, const void *bytes, uint64_t n)
{
    struct edited_files *files = user;
    return output_file_write(&files->beside, bytes, (int64_t)n) != ATTNRUN_OK;
}

/* "folder/m.onnx.data" for folder/m.onnx, and its name without the folder. Where `path` is a link,
 * `followed` is what it names; who opens the model by either must find the data. */
static attnrun_status beside_path(const char *path, const char *followed, char *beside,
                                  size_t bytes, const char **name)
{
    struct stat st;
    if (!file_is_same_folder(path, followed))
        return tool_fail(ATTNRUN_E_USAGE,
                         "--external: %s is a link into another folder: -o %s keeps the "
                         "model and its data together",
                         tool_path(path), tool_path(followed));
    if (snprintf(beside, bytes, "%s.data", followed) >= (int)bytes)
        return tool_fail(ATTNRUN_E_IO, "the path has more than %zu bytes", bytes - 1);
    if (lstat(beside, &st) == 0 && !S_ISREG(st.st_mode))
        return tool_fail(
            ATTNRUN_E_USAGE,
            "--external: %s is no regular file, as the data of a model must be",
            tool_path(beside));
    const char *slash = strrchr(beside, '/');
    *name = slash != NULL ? slash + 1 : beside;
    return ATTNRUN_OK;
}

/* The first failure of a file says more than that of the library. */
static attnrun_status optimize_finish(struct edited_files *files, bool external,
                                      attnrun_status status)
{
    const attnrun_status failed =
        files->model.status != ATTNRUN_OK ? files->model.status : files->beside.status;
    if (status == ATTNRUN_OK && failed == ATTNRUN_OK) {
        if (external && files->beside.bytes > 0)
            return output_file_commit_pair(&files->beside, &files->model);
        if (external) /* no constant is large */
            output_file_abandon(&files->beside);
        return output_file_commit(&files->model);
    } else if (failed != ATTNRUN_OK) {
        status = failed;
    } else {
        tool_fail_library(status);
    }
    if (external)
        output_file_abandon(&files->beside);
    output_file_abandon(&files->model);
    return status;
}

static attnrun_onnx_edit edit_of(const struct edit *edit)
{
    return (attnrun_onnx_edit){ .struct_size = sizeof(attnrun_onnx_edit),
                                .flags = edit->simplify ? ATTNRUN_ONNX_SIMPLIFY : 0,
                                .inputs = edit->inputs.v,
                                .outputs = edit->outputs.v,
                                .n_inputs = edit->inputs.n,
                                .n_outputs = edit->outputs.n };
}

static attnrun_status source_of(struct cli *cli, const char *from,
                                const struct edit *edit, struct cli_source *source)
{
    TRY(cli_open_runtime(cli));
    TRY(cli_source_make(cli, from, edit->simplify ? 0 : ATTNRUN_ALLOW_MISSING, source));
    source->source.more_outputs = NULL;
    source->source.n_more_outputs = 0;
    return ATTNRUN_OK;
}

/* The same without a file: budget_explain_work(). */
static attnrun_status edit_nowhere(struct cli *cli, void *user)
{
    const struct edit *edit = user;
    struct cli_source source;
    attnrun_onnx_edit given = edit_of(edit);
    given.external_name = edit->external ? "data" : NULL;
    given.write_external = edit->external ? budget_drop : NULL;
    TRY(source_of(cli, cli->paths.v[0], edit, &source));
    const attnrun_status status =
        attnrun_save_onnx(cli->runtime, &source.source, &given, budget_drop, NULL, NULL);
    cli_source_free(&source);
    return status == ATTNRUN_OK ? ATTNRUN_OK : tool_fail_library(status);
}

attnrun_status edit_write(struct cli *cli, const char *from, const struct edit *edit,
                          const char *path, attnrun_onnx_saved *saved)
{
    struct edited_files files = { .beside = { .fd = -1 } };
    struct cli_source source;
    char beside[4096];
    attnrun_onnx_edit given = edit_of(edit);
    given.write_external = edit->external ? write_beside : NULL;
    if (edit->external && file_is_special(path))
        return tool_fail(ATTNRUN_E_USAGE,
                         "--external: %s is not a file, so no file can be beside it",
                         tool_path(path));
    TRY(source_of(cli, from, edit, &source));
    attnrun_status status = output_file_open(&files.model, path);
    if ((cli->command->bit & (CLI_OPTIMIZE | CLI_EXTRACT)) != 0)
        files.model.edited = from;
    if (status == ATTNRUN_OK && edit->external) {
        status = beside_path(path, files.model.path, beside, sizeof beside,
                             &given.external_name);
        if (status == ATTNRUN_OK)
            status = output_file_open(&files.beside, beside);
        if (status != ATTNRUN_OK)
            output_file_abandon(&files.model);
    }
    if (status == ATTNRUN_OK) {
        progress_start(cli, edit->simplify ? "optimizing" : "extracting");
        status = attnrun_save_onnx(cli->runtime, &source.source, &given, write_model,
                                   &files, saved);
        progress_end();
        status = optimize_finish(&files, edit->external, status);
    }
    cli_source_free(&source);
    return status;
}

/* ---- the commands ---- */

/* "a,b" as two names, kept by `cli`. */
static attnrun_status add_names(struct cli *cli, const char *text, struct list *names)
{
    while (text != NULL && *text != 0) {
        const size_t n = strcspn(text, ",");
        const char *name = cli_keep(cli, text, n);
        if (name == NULL)
            return tool_fail(ATTNRUN_E_MEMORY, "no memory for names");
        TRY(list_add(names, name));
        text += n + (text[n] == ',');
    }
    return ATTNRUN_OK;
}

static void print(const struct cli *cli, const attnrun_onnx_saved *saved)
{
    if (cli->json) {
        struct json json = { .out = cli_json_stream() };
        json_open(&json, NULL, '{');
        json_text(&json, "schema", "attnrun/edit/1");
        json_text(&json, "file", cli->output);
        json_int(&json, "bytes", saved->bytes);
        json_int(&json, "external_bytes", saved->external_bytes);
        json_int(&json, "nodes_before", saved->n_file_nodes);
        json_int(&json, "nodes", saved->n_nodes);
        json_close(&json, '}');
    } else if (!cli->quiet && !file_is_special(cli->output)) {
        printf("%s: %s, %d of %s\n", tool_quote(cli->output),
               text_bytes(saved->bytes + saved->external_bytes), saved->n_nodes,
               tool_plural(saved->n_file_nodes, "node"));
    }
}

static attnrun_status write_edited(struct cli *cli, struct edit *edit)
{
    attnrun_onnx_saved saved = { .struct_size = sizeof saved };
    if (cli->output == NULL)
        return tool_fail(ATTNRUN_E_USAGE, "-o FILE is missing: attnrun %s %s",
                         cli->command->name, cli->command->arguments);
    TRY(cli_check_stdout(cli, "-o", cli->output));
    edit->external = cli->external != 0;
    for (int64_t i = 0; i < cli->sets.n;
         i++) /* a file has no other sizes than fixed ones */
        TRY(list_add(&cli->fixed, cli->sets.v[i]));
    const attnrun_status status =
        edit_write(cli, cli->paths.v[0], edit, cli->output, &saved);
    if (status == ATTNRUN_OK)
        print(cli, &saved);
    else
        budget_explain_work(cli, edit_nowhere, edit);
    return status;
}

attnrun_status command_optimize(struct cli *cli, int *exit_code)
{
    struct edit edit = { .simplify = true };
    *exit_code = 0;
    return write_edited(cli, &edit);
}

attnrun_status command_extract(struct cli *cli, int *exit_code)
{
    struct edit edit = { .simplify = false };
    attnrun_status status = add_names(cli, cli->inputs_dir, &edit.inputs);
    *exit_code = 0;
    for (int64_t i = 0; i < cli->outputs.n && status == ATTNRUN_OK; i++)
        status = add_names(cli, cli->outputs.v[i], &edit.outputs);
    if (status == ATTNRUN_OK && edit.inputs.n + edit.outputs.n == 0)
        status = tool_fail(ATTNRUN_E_USAGE,
                           "--inputs and --outputs name the values where the part begins "
                           "and ends");
    if (status == ATTNRUN_OK)
        status = write_edited(cli, &edit);
    free(edit.inputs.v);
    free(edit.outputs.v);
    return status;
}
