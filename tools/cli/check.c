/* check.c - attnrun check: folders of the ONNX backend test form, and files against
 * --ref.
 *
 * A folder with a model.onnx is a test: each test_data_set_N holds input_K.pb, the K-th
 * graph input that is no initializer, and output_K.pb; tol.txt may hold "rtol atol". A
 * folder without one is searched one level down. */
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../io/file.h"
#include "../io/map.h"
#include "child.h"
#include "cli.h"
#include "difference.h"
#include "files.h"
#include "job.h"

enum { PATH_BYTES = 4096 };

struct check {
    struct cli *cli;
    struct json json;
    int64_t passed, failed;
    bool alone; /* one folder: its outputs are listed */
};

/* What is compared: a data set of a model. */
struct data_set {
    struct cli *cli;
    attnrun_model *model;
    const char *folder, *name; /* name: "" where there is only one */
    const struct tolerance *tolerance;
    struct compared_list *compared;
};

/* Quantising operators round: their integers may be one off. */
static bool quantizes(const attnrun_model *model, int32_t n_nodes)
{
    attnrun_node_info node = { .struct_size = sizeof node };
    for (int32_t i = 0; i < n_nodes; i++)
        if (attnrun_model_node(model, i, &node) == ATTNRUN_OK &&
            (strncmp(node.op_type, "QLinear", 7) == 0 ||
             strstr(node.op_type, "QuantizeLinear") == node.op_type ||
             strcmp(node.op_type, "DynamicQuantizeLinear") == 0))
            return true;
    return false;
}

/* "rtol atol" of the folder, then the options. */
static attnrun_status read_tolerance(const struct cli *cli, const char *folder,
                                     struct tolerance *tolerance)
{
    char path[PATH_BYTES], *text = NULL;
    int64_t bytes;
    *tolerance = compare_tolerance(cli, NULL);
    TRY(file_join(path, sizeof path, folder, "tol.txt"));
    if (file_exists(path)) {
        TRY(file_read_all(path, 4096, &text, &bytes));
        char *end, *second;
        double rtol = strtod(text, &second), atol = strtod(second, &end);
        bool good = second != text && end != second && rtol >= 0 && atol >= 0 &&
                    isfinite(rtol + atol);
        free(text);
        if (!good)
            return tool_fail(ATTNRUN_E_PARSE,
                             "tol.txt does not hold the two numbers rtol and atol");
        tolerance->rtol = rtol;
        tolerance->atol = atol;
    }
    if (cli->rtol >= 0)
        tolerance->rtol = cli->rtol;
    if (cli->atol >= 0)
        tolerance->atol = cli->atol;
    return ATTNRUN_OK;
}

static attnrun_status find_numbered(const char *folder, const char *word, int32_t index,
                                    char *path, bool *found)
{
    char name[48];
    snprintf(name, sizeof name, "%s_%d.pb", word, index);
    TRY(file_join(path, PATH_BYTES, folder, name));
    *found = file_exists(path);
    return ATTNRUN_OK;
}

/* Reads <folder>/<word>_<index>.pb; *found says whether there is one. */
static attnrun_status read_numbered(struct cli *cli, const char *folder, const char *word,
                                    int32_t index, int32_t kind, struct held *held,
                                    bool *found)
{
    char path[PATH_BYTES];
    TRY(find_numbered(folder, word, index, path, found));
    return *found ? file_read_pb(cli->runtime, path, kind, held) : ATTNRUN_OK;
}

static attnrun_status set_inputs(struct cli *cli, attnrun_context *context,
                                 const attnrun_model *model, const char *folder,
                                 struct held *inputs, int32_t n)
{
    bool found;
    char path[PATH_BYTES];
    for (int32_t i = 0; i < n; i++) {
        attnrun_value_info info = { .struct_size = sizeof info };
        TRY_LIB(attnrun_model_input(model, i, &info));
        TRY(read_numbered(cli, folder, "input", i, info.kind, &inputs[i], &found));
        map_narrow(&inputs[i], info.key_dtype, info.dtype);
        if (found)
            TRY_LIB(attnrun_set_input(context, i, &inputs[i].tensor));
    }
    TRY(find_numbered(folder, "input", n, path, &found));
    if (found)
        return tool_fail(ATTNRUN_E_INPUT, "there is an input_%d.pb, but the model has %s",
                         n, tool_plural(n, "input"));
    return ATTNRUN_OK;
}

static attnrun_status compare_output(struct data_set *set, attnrun_context *context,
                                     int32_t i)
{
    struct cli *cli = set->cli;
    const attnrun_model *model = set->model;
    const char *folder = set->folder;
    attnrun_value_info info = { .struct_size = sizeof info };
    attnrun_tensor got;
    struct held expected = { 0 };
    bool found;
    TRY_LIB(attnrun_model_output(model, i, &info));
    TRY_LIB(attnrun_output(context, i, &got));
    int32_t kind = info.kind == ATTNRUN_ABSENT ? got.kind : info.kind;
    TRY(read_numbered(cli, folder, "output", i, kind, &expected, &found));
    if (!found)
        return tool_fail(ATTNRUN_E_IO, "there is no output_%d.pb", i);
    attnrun_status status = compare_values(&got, &expected.tensor, set->tolerance);
    if (status != ATTNRUN_OK)
        tool_fail_at("output %d '%s'", i, tool_quote(info.name));
    if (compared_note(set->compared, set->name, info.name, &got, &expected.tensor,
                      status == ATTNRUN_OK) != ATTNRUN_OK)
        status = tool_error.status;
    held_free(&expected);
    return status;
}

/* All outputs, also behind one that differs: the first failure is the one reported. */
static attnrun_status compare_outputs(struct data_set *set, attnrun_context *context,
                                      int32_t n)
{
    struct tool_error first = { .status = ATTNRUN_OK };
    char path[PATH_BYTES];
    bool found;
    TRY(find_numbered(set->folder, "output", n, path, &found));
    if (found)
        return tool_fail(ATTNRUN_E_INPUT,
                         "there is an output_%d.pb, but the model has %s", n,
                         tool_plural(n, "output"));
    for (int32_t i = 0; i < n; i++) {
        attnrun_status status = compare_output(set, context, i);
        if (status != ATTNRUN_OK && first.status == ATTNRUN_OK)
            first = tool_error;
        if (status != ATTNRUN_OK && status != ATTNRUN_E_RANGE)
            break;
    }
    if (first.status != ATTNRUN_OK)
        tool_error = first;
    return first.status;
}

/* Runs one data set on a fresh context, so that nothing is left of the one before. */
static attnrun_status check_data_set(struct data_set *set)
{
    struct cli *cli = set->cli;
    attnrun_model *model = set->model;
    attnrun_model_info info = { .struct_size = sizeof info };
    attnrun_context *context;
    TRY_LIB(attnrun_model_query(model, &info));
    TRY_LIB(attnrun_context_create(model, &context));
    struct held *inputs = calloc((size_t)info.n_inputs + 1, sizeof *inputs);
    attnrun_status status =
        inputs == NULL ? tool_fail(ATTNRUN_E_MEMORY, "no memory for inputs") : ATTNRUN_OK;
    if (status == ATTNRUN_OK)
        status = set_inputs(cli, context, model, set->folder, inputs, info.n_inputs);
    if (status == ATTNRUN_OK)
        status = cli_run_context(cli, context, NULL);
    if (status == ATTNRUN_OK)
        status = compare_outputs(set, context, info.n_outputs);
    attnrun_context_destroy(context);
    for (int32_t i = 0; inputs != NULL && i < info.n_inputs; i++)
        held_free(&inputs[i]);
    free(inputs);
    return status;
}

static attnrun_status check_data_sets(struct data_set *set, const char *folder)
{
    struct folder_list sets;
    TRY(folder_list_read(&sets, folder, "test_data_set_*"));
    attnrun_status status = ATTNRUN_OK;
    for (int64_t i = 0; i < sets.n && status == ATTNRUN_OK; i++) {
        char path[PATH_BYTES];
        status = file_join(path, sizeof path, folder, sets.names[i]);
        if (status == ATTNRUN_OK) {
            set->folder = path;
            set->name = sets.n > 1 ? sets.names[i] : "";
            status = check_data_set(set);
        }
        if (status != ATTNRUN_OK && sets.n > 1)
            tool_fail_at("%s", tool_quote(sets.names[i]));
    }
    if (sets.n == 0)
        status = tool_fail(ATTNRUN_E_IO, "there is no test_data_set_* beside model.onnx");
    folder_list_free(&sets);
    return status;
}

static attnrun_status check_folder(struct cli *cli, const char *folder,
                                   struct compared_list *compared)
{
    struct tolerance tolerance = { 0 };
    struct data_set set = { .cli = cli, .tolerance = &tolerance, .compared = compared };
    attnrun_model_info info = { .struct_size = sizeof info };
    attnrun_model *model;
    char path[PATH_BYTES];
    TRY(read_tolerance(cli, folder, &tolerance));
    TRY(file_join(path, sizeof path, folder, "model.onnx"));
    TRY(cli_open_model(cli, path, 0, &model));
    attnrun_status status = attnrun_model_query(model, &info);
    tolerance.quantized = status == ATTNRUN_OK && quantizes(model, info.n_nodes);
    tolerance.of_largest = compare_tolerance(cli, model).of_largest;
    set.model = model;
    status =
        status != ATTNRUN_OK ? tool_fail_library(status) : check_data_sets(&set, folder);
    attnrun_model_release(model);
    return status;
}

static attnrun_status check_again(struct cli *cli, void *user)
{
    struct compared_list compared = { 0 };
    const attnrun_status status = check_folder(cli, user, &compared);
    compared_free(&compared);
    return status;
}

/* A folder that does not fit into the budget: the hint says how much does. */
static attnrun_status check_explained(struct cli *cli, const char *folder,
                                      struct compared_list *compared)
{
    char path[PATH_BYTES];
    const attnrun_status status = check_folder(cli, folder, compared);
    snprintf(path, sizeof path, "%s", folder);
    if (status != ATTNRUN_OK)
        budget_explain_work(cli, check_again, path);
    return status;
}

/* The child's end of --isolate: the error goes through the pipe. */
static void run_child(struct cli *cli, const char *folder, int to_parent)
{
    signal(SIGALRM, SIG_DFL);
    if (cli->timeout_us > 0 && cli->timeout_us / 1000000 < INT32_MAX / 2 - 5)
        alarm((unsigned)(cli->timeout_us / 1000000) * 2 + 5);
    struct compared_list compared = { 0 };
    attnrun_status status = check_explained(cli, folder, &compared);
    struct tool_error error = { .status = ATTNRUN_OK };
    if (status != ATTNRUN_OK)
        error = tool_error;
    (void)!write(to_parent, &error, sizeof error);
    for (int64_t i = 0; i < compared.n; i++)
        (void)!write(to_parent, &compared.v[i], sizeof compared.v[i]);
    compared_free(&compared);
    attnrun_runtime_destroy(cli->runtime);
    close(to_parent);
    _exit(status == ATTNRUN_OK ? 0 : 1);
}

/* Reads `bytes` bytes from a pipe; false if it ends before. */
static bool read_whole(int from, void *to, size_t bytes)
{
    size_t got = 0;
    while (got < bytes) {
        ssize_t n = read(from, (char *)to + got, bytes - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        got += (size_t)n;
    }
    return true;
}

static attnrun_status check_isolated(struct cli *cli, const char *folder,
                                     struct compared_list *compared)
{
    int ends[2], result = 0;
    if (pipe(ends) != 0)
        return tool_fail_io("cannot make a pipe");
    fflush(NULL);
    const pid_t self = getpid(), child = fork();
    if (child == 0) {
        child_end_with(self);
        close(ends[0]);
        run_child(cli, folder, ends[1]);
    }
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        return tool_fail_io("cannot start a process");
    }
    struct tool_error error;
    struct compared row;
    bool ended = read_whole(ends[0], &error, sizeof error);
    while (ended && read_whole(ends[0], &row, sizeof row))
        TRY(compared_add(compared, &row));
    close(ends[0]);
    waitpid(child, &result, 0);
    if (WIFSIGNALED(result))
        return tool_fail(ATTNRUN_E_INTERNAL, "the process crashed: %s",
                         strsignal(WTERMSIG(result)));
    if (ended && error.status != ATTNRUN_OK) {
        tool_error = error;
        return error.status;
    }
    return WEXITSTATUS(result) == 0
               ? ATTNRUN_OK
               : tool_fail(ATTNRUN_E_INTERNAL, "the process ended with exit code %d",
                           WEXITSTATUS(result));
}

static void report_folder(struct check *check, const char *folder, attnrun_status status,
                          const struct compared_list *compared)
{
    struct cli *cli = check->cli;
    char reason[sizeof tool_error.message + sizeof tool_error.hint + 4];
    const bool hints = status == ATTNRUN_E_MEMORY && tool_error.hint[0] != 0;
    snprintf(reason, sizeof reason, "%s%s%s", tool_error.message, hints ? "; " : "",
             hints ? tool_error.hint : "");
    check->passed += status == ATTNRUN_OK;
    check->failed += status != ATTNRUN_OK;
    if (cli->json) {
        json_open(&check->json, NULL, '{');
        json_text(&check->json, "path", folder);
        json_bool(&check->json, "passed", status == ATTNRUN_OK);
        if (status != ATTNRUN_OK)
            json_text(&check->json, "reason", reason);
        compared_json(compared, &check->json, "outputs");
        json_close(&check->json, '}');
        return;
    }
    const bool says = status != ATTNRUN_OK || cli->list_passed || check->alone;
    if (says) /* the line makes room */
        progress_end();
    if (status != ATTNRUN_OK)
        printf("FAIL %s: %s\n", tool_path(folder), reason);
    else if (cli->list_passed)
        printf("PASS %s\n", tool_path(folder));
    if (cli->list_passed || check->alone)
        compared_print(compared);
    if (says)
        progress_start(cli, "check");
    progress_show(check->passed + check->failed, 0, "check");
}

/* One folder: counted, reported, and no reason to stop unless the user says so. */
static attnrun_status count_folder(struct check *check, const char *folder)
{
    struct cli *cli = check->cli;
    struct compared_list compared = { 0 };
    attnrun_status status = cli->isolate ? check_isolated(cli, folder, &compared)
                                         : check_explained(cli, folder, &compared);
    if (cli_signal() != 0)
        status = tool_fail(ATTNRUN_E_CANCELLED, "interrupted");
    else
        report_folder(check, folder, status, &compared);
    compared_free(&compared);
    return cli_signal() != 0 ? status : ATTNRUN_OK;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

static bool is_test_folder(const char *folder)
{
    char path[PATH_BYTES];
    return file_join(path, sizeof path, folder, "model.onnx") == ATTNRUN_OK &&
           file_exists(path);
}

static bool is_wanted(const struct cli *cli, const char *folder)
{
    return cli->filter == NULL || fnmatch(cli->filter, base_name(folder), 0) == 0;
}

static attnrun_status check_path(struct check *check, const char *given)
{
    char folder[PATH_BYTES], below[PATH_BYTES];
    if (!file_is_folder(given)) {
        if (!file_exists(given))
            return tool_fail(ATTNRUN_E_IO, "%s does not exist", tool_path(given));
        tool_fail(ATTNRUN_E_USAGE,
                  "%s is a model file: its expected outputs are missing (--ref)",
                  tool_path(given));
        tool_hint("attnrun check model.onnx -i x=x.npy --ref y.npy");
        return ATTNRUN_E_USAGE;
    }
    const struct cli *cli = check->cli;
    if (cli->inputs.n + cli->sets.n + cli->shapes.n > 0 || cli->inputs_dir != NULL)
        return tool_fail(
            ATTNRUN_E_USAGE,
            "-i, --inputs, --set and --shape need --ref and a model file: %s "
            "has its own inputs",
            tool_path(given));
    snprintf(folder, sizeof folder, "%s", given);
    for (size_t n = strlen(folder); n > 1 && folder[n - 1] == '/'; n--)
        folder[n - 1] = 0;
    if (is_test_folder(folder))
        return is_wanted(check->cli, folder) ? count_folder(check, folder) : ATTNRUN_OK;
    struct folder_list names;
    attnrun_status status = ATTNRUN_OK;
    TRY(folder_list_read(&names, folder, "*"));
    for (int64_t i = 0; i < names.n && status == ATTNRUN_OK; i++) {
        status = file_join(below, sizeof below, folder, names.names[i]);
        if (status == ATTNRUN_OK && is_test_folder(below) && is_wanted(check->cli, below))
            status = count_folder(check, below);
    }
    folder_list_free(&names);
    return status;
}

static attnrun_status check_folders(struct check *check)
{
    struct cli *cli = check->cli;
    attnrun_status status = cli->isolate ? ATTNRUN_OK : cli_open_runtime(cli);
    if (status != ATTNRUN_OK && status != ATTNRUN_E_MEMORY) /* that is said of a folder */
        return status;
    for (int64_t i = 0; i < cli->paths.n; i++)
        TRY(check_path(check, cli->paths.v[i]));
    if (check->passed + check->failed == 0)
        return tool_fail(ATTNRUN_E_USAGE,
                         "there is nothing to check: no folder%s contains a model.onnx",
                         cli->filter != NULL ? " of such a name" : "");
    return ATTNRUN_OK;
}

attnrun_status command_check(struct cli *cli, int *exit_code)
{
    struct check check = { .cli = cli,
                           .alone =
                               cli->paths.n == 1 && is_test_folder(cli->paths.v[0]) };
    if (cli->ref != NULL)
        return check_against_reference(cli, exit_code);
    progress_start(cli, "check");
    if (cli->json) {
        check.json.out = cli_json_stream();
        json_open(&check.json, NULL, '{');
        json_text(&check.json, "schema", "attnrun/check/2");
        json_open(&check.json, "folders", '[');
    }
    attnrun_status status = check_folders(&check);
    progress_end();
    if (cli->json) {
        json_close(&check.json, ']');
        json_int(&check.json, "passed", check.passed);
        json_int(&check.json, "failed", check.failed);
        json_close(&check.json, '}');
    } else if (check.passed + check.failed > 0) {
        printf("%" PRId64 " passed, %" PRId64 " failed\n", check.passed, check.failed);
    }
    *exit_code = check.failed > 0 ? 1 : 0;
    return status;
}
