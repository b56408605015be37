/* pack_command.c - attnrun pack: writes a model as it is run, with its packed weights,
 * to a file that every command opens in the place of the model. In: a model file and -o.
 * Out: the packed file, whole or not at all, and a line about it. */
#include "../io/file.h"
#include "cli.h"
#include "job.h"

static int32_t write_piece(void *user, const void *bytes, uint64_t n)
{
    return output_file_write(user, bytes, (int64_t)n) != ATTNRUN_OK;
}

static attnrun_status save(attnrun_model *model, const char *path, int64_t *bytes)
{
    struct output_file file;
    TRY(output_file_open(&file, path));
    attnrun_status status = attnrun_model_save(model, write_piece, &file);
    if (file.status != ATTNRUN_OK || status != ATTNRUN_OK) {
        const attnrun_status failed = file.status;
        output_file_abandon(&file);
        return failed != ATTNRUN_OK ? failed : tool_fail_library(status);
    }
    *bytes = file.bytes;
    return output_file_commit(&file);
}

static void print(const struct cli *cli, const attnrun_model_info *info, const char *isa,
                  int64_t bytes)
{
    if (cli->json) {
        struct json json = { .out = cli_json_stream() };
        json_open(&json, NULL, '{');
        json_text(&json, "schema", "attnrun/pack/1");
        json_text(&json, "file", cli->output);
        json_int(&json, "bytes", bytes);
        json_text(&json, "isa", isa);
        json_text(&json, "precision", info->precision);
        json_int(&json, "nodes", info->n_nodes);
        json_close(&json, '}');
    } else if (!cli->quiet && !file_is_stdout(cli->output)) {
        printf("%s: %s for %s, precision %s, %s\n", tool_quote(cli->output),
               text_bytes(bytes), isa, info->precision,
               tool_plural(info->n_nodes, "node"));
    }
}

/* The same without a file: budget_explain_work(). */
static attnrun_status pack_nowhere(struct cli *cli, void *user)
{
    attnrun_model *model = NULL;
    (void)user;
    TRY(cli_open_model(cli, cli->paths.v[0], 0, &model));
    attnrun_status status = attnrun_model_pack(model);
    if (status == ATTNRUN_OK)
        status = attnrun_model_save(model, budget_drop, NULL);
    attnrun_model_release(model);
    return status == ATTNRUN_OK ? ATTNRUN_OK : tool_fail_library(status);
}

attnrun_status command_pack(struct cli *cli, int *exit_code)
{
    attnrun_model_info info = { .struct_size = sizeof info };
    attnrun_runtime_info runtime = { .struct_size = sizeof runtime };
    attnrun_model *model = NULL;
    int64_t bytes = 0;
    *exit_code = 0;
    if (cli->output == NULL)
        return tool_fail(ATTNRUN_E_USAGE, "-o FILE is missing: attnrun "
                                          "pack model.onnx -o model.attnpack");
    TRY(cli_check_stdout(cli, "-o", cli->output));
    progress_start(cli, "loading");
    attnrun_status status = cli_open_model(cli, cli->paths.v[0], 0, &model);
    if (status == ATTNRUN_OK) {
        progress_show(0, 0, "packing weights");
        status = attnrun_model_pack(model);
        if (status != ATTNRUN_OK)
            tool_fail_library(status);
    }
    if (status == ATTNRUN_OK) {
        progress_show(0, 0, "writing");
        status = save(model, cli->output, &bytes);
    }
    progress_end();
    if (status == ATTNRUN_OK)
        status = attnrun_model_query(model, &info);
    if (status == ATTNRUN_OK)
        status = attnrun_runtime_query(cli->runtime, &runtime);
    if (status == ATTNRUN_OK)
        print(cli, &info, runtime.isa, bytes);
    attnrun_model_release(model);
    if (status != ATTNRUN_OK)
        budget_explain_work(cli, pack_nowhere, NULL);
    return status;
}
