/* check_file.c - attnrun check model.onnx --ref: one run against expected outputs.
 *
 * In: a model, the inputs of -i and --inputs, and a file or a folder with the expected outputs.
 * Out: a line for each output with its errors, or JSON; exit code 1 where one is beyond the
 * tolerance. An output that is not in the file is named, and what is in it for no output is
 * refused. */
#include <stdlib.h>
#include <string.h>

#include "../io/file.h"
#include "../io/npy.h"
#include "../io/npz.h"
#include "difference.h"
#include "files.h"
#include "job.h"

struct reference {
    struct job *job;
    const char *path;
    struct tolerance tolerance;
    int64_t failed;
    struct compared_list compared;
};

/* output_N.pb or NAME.npy of a folder. */
static attnrun_status read_from_folder(struct reference *r, int32_t index,
                                       const char *name, int32_t kind, struct held *held,
                                       bool *found)
{
    char path[4096], file[512];
    snprintf(file, sizeof file, "output_%d.pb", index);
    TRY(file_join(path, sizeof path, r->path, file));
    *found = true;
    if (file_exists(path))
        return file_read_pb(r->job->cli->runtime, path, kind, held);
    file_name_of(name, ".npy", file, sizeof file);
    TRY(file_join(path, sizeof path, r->path, file));
    *found = file_exists(path);
    return *found ? npy_read(path, r->job->inputs.max_bytes, held) : ATTNRUN_OK;
}

static attnrun_status read_from_archive(struct reference *r, int32_t index,
                                        const char *name, struct held *held, bool *found)
{
    struct zip zip;
    char place[32];
    snprintf(place, sizeof place, "arr_%d", index);
    TRY(zip_open(&zip, r->path));
    const struct zip_entry *entry = npz_find(&zip, name);
    if (entry == NULL && attnrun_model_find_output(r->job->model, place) < 0)
        entry = npz_find(&zip, place);
    *found = entry != NULL;
    attnrun_status status = ATTNRUN_OK;
    if (*found)
        status = npz_read(&zip, entry, r->job->inputs.max_bytes, held);
    zip_close(&zip);
    return status;
}

static attnrun_status read_expected(struct reference *r, int32_t index,
                                    const attnrun_value_info *info, struct held *held,
                                    bool *found)
{
    *found = false;
    if (file_is_folder(r->path))
        return read_from_folder(r, index, info->name, info->kind, held, found);
    if (file_has_extension(r->path, ".npz"))
        return read_from_archive(r, index, info->name, held, found);
    *found = index == 0;
    if (index > 0)
        return ATTNRUN_OK;
    if (file_has_extension(r->path, ".npy"))
        return npy_read(r->path, r->job->inputs.max_bytes, held);
    if (file_has_extension(r->path, ".pb"))
        return file_read_pb(r->job->cli->runtime, r->path, info->kind, held);
    return tool_fail(ATTNRUN_E_USAGE,
                     "--ref %s: neither an npz, npy or pb file nor a folder",
                     tool_path(r->path));
}

/* "arr_1": an output by its place. */
static bool is_place(const char *key, int32_t n_outputs)
{
    char place[32];
    const long index = strncmp(key, "arr_", 4) == 0 ? strtol(key + 4, NULL, 10) : -1;
    snprintf(place, sizeof place, "arr_%ld", index);
    return index >= 0 && index < n_outputs && strcmp(key, place) == 0;
}

/* All arrays are for outputs, but for those that are for inputs. */
static attnrun_status check_archive(const struct reference *r)
{
    static char key[1 << 16]; /* the longest name of an entry */
    struct zip zip;
    const attnrun_model *model = r->job->model;
    attnrun_status status = ATTNRUN_OK;
    TRY(zip_open(&zip, r->path));
    for (int64_t i = 0; i < zip.n && status == ATTNRUN_OK; i++)
        if (!npz_key(&zip.entries[i], key, sizeof key) ||
            (attnrun_model_find_output(model, key) < 0 &&
             attnrun_model_find_input(model, key) < 0 &&
             !is_place(key, r->job->info.n_outputs)))
            status =
                tool_fail(ATTNRUN_E_INPUT, "--ref: %s holds '%s', which is no output",
                          tool_path(r->path), tool_quote(zip.entries[i].name));
    zip_close(&zip);
    return status;
}

static attnrun_status check_folder(const struct reference *r)
{
    char path[4096], file[64];
    snprintf(file, sizeof file, "output_%d.pb", r->job->info.n_outputs);
    TRY(file_join(path, sizeof path, r->path, file));
    if (!file_exists(path))
        return ATTNRUN_OK;
    return tool_fail(ATTNRUN_E_INPUT, "--ref: there is an %s, but the model has %s", file,
                     tool_plural(r->job->info.n_outputs, "output"));
}

static attnrun_status compare_one(struct reference *r, int32_t index)
{
    attnrun_value_info info = { .struct_size = sizeof info };
    attnrun_tensor got;
    struct held expected = { 0 }, copy = { 0 };
    bool found;
    TRY_LIB(attnrun_model_output(r->job->model, index, &info));
    TRY(read_expected(r, index, &info, &expected, &found));
    if (!found) {
        fprintf(stderr, "attnrun: note: %s has no output '%s', which is not compared\n",
                tool_path(r->path), tool_quote(info.name));
        return ATTNRUN_OK;
    }
    attnrun_status status = output_dense(r->job, index, &got, &copy);
    if (status == ATTNRUN_OK && expected.tensor.kind == ATTNRUN_TENSOR)
        (void)given_narrow(&expected,
                           got.dtype); /* what does not fit differs by its type */
    if (status == ATTNRUN_OK) {
        bool same = compare_values(&got, &expected.tensor, &r->tolerance) == ATTNRUN_OK;
        if (!same) {
            tool_fail_at("output %d '%s'", index, tool_quote(info.name));
            r->failed++;
            if (!r->job->cli->json)
                printf("FAIL %s: %s\n", tool_path(r->job->path), tool_error.message);
        }
        status = compared_note(&r->compared, "", info.name, &got, &expected.tensor, same);
    }
    held_free(&copy);
    held_free(&expected);
    return status;
}

static attnrun_status compare_all(struct reference *r, struct cli *cli)
{
    TRY(job_open(r->job, cli, cli->paths.v[0]));
    r->tolerance = compare_tolerance(cli, r->job->model);
    if (!file_exists(r->path))
        return tool_fail(ATTNRUN_E_IO, "--ref: %s does not exist", tool_path(r->path));
    if (file_is_folder(r->path))
        TRY(check_folder(r));
    else if (file_has_extension(r->path, ".npz"))
        TRY(check_archive(r));
    TRY(job_first_run(r->job, NULL));
    for (int32_t i = 0; i < r->job->info.n_outputs; i++)
        TRY(compare_one(r, i));
    if (r->compared.n == 0)
        return tool_fail(ATTNRUN_E_USAGE,
                         "there is nothing to check: %s has none of the outputs",
                         tool_path(r->path));
    return ATTNRUN_OK;
}

attnrun_status check_against_reference(struct cli *cli, int *exit_code)
{
    struct job job = { .cli = cli };
    struct reference r = { .job = &job, .path = cli->ref };
    if (cli->paths.n != 1 || file_is_folder(cli->paths.v[0]))
        return tool_fail(ATTNRUN_E_USAGE, "--ref needs one model file");
    if (cli->isolate || cli->filter != NULL)
        return tool_fail(ATTNRUN_E_USAGE, "--isolate and --filter are for folders, which "
                                          "have no --ref");
    attnrun_status status = compare_all(&r, cli);
    job_close(&job);
    if (status == ATTNRUN_OK && cli->json) {
        struct json json = { .out = cli_json_stream() };
        json_open(&json, NULL, '{');
        json_text(&json, "schema", "attnrun/check/2");
        json_open(&json, "folders", '[');
        json_open(&json, NULL, '{');
        json_text(&json, "path", cli->paths.v[0]);
        json_bool(&json, "passed", r.failed == 0);
        if (r.failed > 0)
            json_text(&json, "reason", tool_error.message);
        compared_json(&r.compared, &json, "outputs");
        json_close(&json, '}');
        json_close(&json, ']');
        json_int(&json, "passed", r.failed == 0);
        json_int(&json, "failed", r.failed != 0);
        json_close(&json, '}');
    } else if (status == ATTNRUN_OK) {
        compared_print(&r.compared);
        printf("%d passed, %d failed\n", r.failed == 0, r.failed != 0);
    }
    compared_free(&r.compared);
    *exit_code = r.failed > 0 ? 1 : 0;
    return status;
}
