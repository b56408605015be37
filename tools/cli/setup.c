/* setup.c - what every command begins with: the runtime, the model, and signals.
 *
 * In: the options of the command line. Out: a runtime with its plugins, the source of a model, an
 * open model. SIGINT and SIGTERM cancel the run under way; a second one ends the process. The
 * clock and the resident memory of the process are here, too. */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../io/file.h"
#include "files.h"
#include "inputs.h"

/* The context in a run, for the signal handler. */
static attnrun_context *volatile running;
static volatile sig_atomic_t caught;

static void on_signal(int number)
{
    if (caught || running == NULL) {
        output_file_interrupted();
        _exit(128 + number);
    }
    caught = number;
    attnrun_cancel(running);
}

void cli_catch_signals(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    action.sa_handler = on_signal;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
    sigaction(SIGXFSZ, &action, NULL);
}

int cli_signal(void) { return caught; }

static void on_log(void *user, int32_t level, const char *message)
{
    const struct cli *cli = user;
    if (level <= cli->verbose + 1)
        fprintf(stderr, "attnrun: %s\n", message);
}

/* A name without a folder is a file here, not one of the system's libraries. */
static attnrun_status load_plugin(attnrun_runtime *runtime, const char *path)
{
    char here[4096];
    TRY(file_join(here, sizeof here, strchr(path, '/') == NULL ? "." : "", path));
    TRY_LIB(attnrun_load_plugin(runtime, strchr(path, '/') == NULL ? here : path));
    return ATTNRUN_OK;
}

attnrun_status cli_open_runtime(struct cli *cli)
{
    if (cli->runtime != NULL)
        return ATTNRUN_OK;
    attnrun_runtime_options options = { .struct_size = sizeof options };
    options.threads = (int32_t)cli->threads;
    options.isa = cli->isa;
    options.max_memory = (uint64_t)cli->max_memory;
    options.log = on_log;
    options.log_user = cli;
    TRY_LIB(attnrun_runtime_create(&options, &cli->runtime));
    for (int64_t i = 0; i < cli->plugins.n; i++)
        TRY(load_plugin(cli->runtime, cli->plugins.v[i]));
    return ATTNRUN_OK;
}

/* Of a word of the option's list. */
static int32_t precision_of(const char *word)
{
    if (word == NULL || strcmp(word, "f32") == 0)
        return ATTNRUN_PRECISION_F32;
    return strcmp(word, "bf16") == 0 ? ATTNRUN_PRECISION_BF16 : ATTNRUN_PRECISION_AUTO;
}

static int32_t ragged_of(const char *word)
{
    if (word == NULL || strcmp(word, "off") == 0)
        return ATTNRUN_RAGGED_OFF;
    return strcmp(word, "on") == 0 ? ATTNRUN_RAGGED_ON : ATTNRUN_RAGGED_AUTO;
}

/* --fix S=128, with names that live as long as `cli`; of one name, the last. For commands that edit
 * a model, those of --set follow. */
static attnrun_status read_fixed(struct cli *cli, attnrun_fixed_dim *fixed, int64_t *n)
{
    const bool edit =
        cli->command != NULL && (cli->command->bit & (CLI_OPTIMIZE | CLI_EXTRACT)) != 0;
    for (int64_t i = 0; i < cli->fixed.n; i++) {
        const char *text = cli->fixed.v[i], *equals = strrchr(text, '=');
        const bool set = edit && i >= cli->fixed.n - cli->sets.n;
        int64_t size, k = 0;
        TRY(symbols_size(set ? "--set" : "--fix", text, equals, &size));
        const char *symbol = cli_keep(cli, text, (size_t)(equals - text));
        if (symbol == NULL)
            return tool_fail(ATTNRUN_E_MEMORY, "no memory for a name");
        while (k < *n && strcmp(fixed[k].symbol, symbol) != 0)
            k++;
        *n += k == *n;
        fixed[k] = (attnrun_fixed_dim){ .symbol = symbol, .size = size };
    }
    return ATTNRUN_OK;
}

attnrun_status cli_source_make(struct cli *cli, const char *path, uint32_t more_flags,
                               struct cli_source *made)
{
    size_t n = 0;
    attnrun_source *source = &made->source;
    *made = (struct cli_source){
        .source = { .struct_size = sizeof *source, .flags = more_flags, .path = path }
    };
    for (int64_t i = 0; i < cli->disable_passes.n && n < sizeof made->passes; i++)
        n += (size_t)snprintf(made->passes + n, sizeof made->passes - n, "%s%s",
                              i > 0 ? "," : "", cli->disable_passes.v[i]);
    if (n >= sizeof made->passes)
        return tool_fail(ATTNRUN_E_USAGE,
                         "--disable-pass: the names have more than %zu bytes",
                         sizeof made->passes - 1);
    source->disable_passes = made->passes[0] == 0 ? NULL : made->passes;
    source->flags |= cli->copy_weights ? (uint32_t)ATTNRUN_COPY : 0;
    source->flags |= cli->in_place ? (uint32_t)ATTNRUN_IN_PLACE : 0;
    source->flags |= cli->separate_dims ? (uint32_t)ATTNRUN_SEPARATE_DIMS : 0;
    source->flags |= cli->no_fusion ? (uint32_t)ATTNRUN_NO_FUSION : 0;
    source->flags |= cli->force_bodies ? (uint32_t)ATTNRUN_FORCE_BODIES : 0;
    source->flags |= cli->allow_newer ? (uint32_t)ATTNRUN_ALLOW_NEWER : 0;
    const bool check = cli->command != NULL && cli->command->bit == CLI_CHECK;
    source->flags |= cli->verify || check ? (uint32_t)ATTNRUN_VERIFY : 0;
    source->timeout_us = cli->timeout_us;
    source->precision = precision_of(cli->precision);
    source->ragged = ragged_of(cli->ragged);
    cli->limits.struct_size = sizeof cli->limits;
    source->limits = &cli->limits;
    source->more_outputs = cli->outputs.v;
    source->n_more_outputs = cli->outputs.n;
    made->fixed = calloc((size_t)cli->fixed.n + 1, sizeof *made->fixed);
    if (made->fixed == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for options");
    source->fixed_dims = made->fixed;
    attnrun_status status = read_fixed(cli, made->fixed, &source->n_fixed_dims);
    if (status != ATTNRUN_OK)
        cli_source_free(made);
    return status;
}

void cli_source_free(struct cli_source *source)
{
    free(source->fixed);
    source->fixed = NULL;
}

attnrun_status cli_open_model(struct cli *cli, const char *path, uint32_t more_flags,
                              attnrun_model **model)
{
    struct cli_source source;
    TRY(cli_open_runtime(cli));
    TRY(cli_source_make(cli, path, more_flags, &source));
    attnrun_status status = attnrun_model_open(cli->runtime, &source.source, model);
    if (status != ATTNRUN_OK)
        tool_fail_library(status);
    cli_source_free(&source);
    return status;
}

static bool folder_holds(const char *folder, const char *path)
{
    struct folder_list list;
    char joined[4096];
    bool found = false;
    if (folder_list_read(&list, folder, "*") != ATTNRUN_OK)
        return false;
    for (int64_t i = 0; i < list.n && !found; i++)
        found = file_join(joined, sizeof joined, folder, list.names[i]) == ATTNRUN_OK &&
                file_is_same(path, joined);
    folder_list_free(&list);
    return found;
}

bool cli_reads(const struct cli *cli, const char *path)
{
    const char *const files[] = { cli->with, cli->ref, cli->config, cli->against };
    const struct list *const lists[] = { &cli->paths, &cli->plugins, &cli->inputs };
    char archive[4096];
    bool found = cli->inputs_dir != NULL && file_is_folder(cli->inputs_dir) &&
                 folder_holds(cli->inputs_dir, path);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        found = found || (files[i] != NULL && file_is_same(path, files[i]));
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (int64_t k = 0; k < lists[i]->n; k++)
            found = found || file_is_same(path, lists[i]->v[k]);
    for (int64_t i = 0; i < cli->inputs.n && !found; i++) { /* x=f.npy, x=f.npz:key */
        const char *equals = strrchr(cli->inputs.v[i], '=');
        const char *file = equals != NULL ? equals + 1 : cli->inputs.v[i];
        const char *key = strstr(file, ".npz:");
        snprintf(archive, sizeof archive, "%.*s", key != NULL ? (int)(key - file) + 4 : 0,
                 file);
        found = file_is_same(path, file) || file_is_same(path, archive);
    }
    return found;
}

attnrun_status cli_run_context(const struct cli *cli, attnrun_context *context,
                               const attnrun_run_options *options)
{
    attnrun_run_options all = { .struct_size = sizeof all };
    if (options != NULL)
        all = *options;
    all.validate = cli->validate;
    all.timeout_us = cli->timeout_us;
    running = context;
    attnrun_status status = attnrun_run(context, &all);
    running = NULL;
    if (status != ATTNRUN_OK)
        return tool_fail_library(status);
    if (caught)
        return tool_fail(ATTNRUN_E_CANCELLED, "interrupted");
    return ATTNRUN_OK;
}

int cli_numbers_by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double cli_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static int64_t status_bytes(const char *field)
{
    char line[128];
    long long kib = 0;
    size_t length = strlen(field);
    FILE *status = fopen("/proc/self/status", "r");
    while (status != NULL && fgets(line, sizeof line, status) != NULL)
        if (strncmp(line, field, length) == 0)
            kib = strtoll(line + length, NULL, 10);
    if (status != NULL)
        fclose(status);
    return (int64_t)kib * 1024;
}

/* getrusage() would count the process that started this one, from before exec. */
int64_t cli_peak_rss_bytes(void) { return status_bytes("VmHWM:"); }

int64_t cli_rss_bytes(void) { return status_bytes("VmRSS:"); }

int64_t cli_mapped_rss_bytes(void) { return status_bytes("RssFile:"); }

void cli_reset_peak_rss(void)
{
    FILE *refs = fopen("/proc/self/clear_refs", "w");
    if (refs == NULL)
        return;
    fputs("5", refs); /* proc(5): the peak starts again from what is resident */
    fclose(refs);
}
