/* ops_used.c - attnrun ops --used: the rows and rewrite passes that models need, for a library with
 * these alone.
 *
 * In: model files, or packed ones. Each is opened for every instruction set of this machine, in
 * each precision, with rewriting and without, and the rows are noted that its nodes ever had: in
 * the file, in formulas, between passes. A packed file is opened as it is.
 * Out, to standard output, the file that -DATTNRUN_OPS= of CMake takes, a row a line:
 *
 *   OP(op_softmax_11)            a row
 *   END("", "Softmax", 13)       where it ends: a later version is not in the list
 *   PASS(attention)              a rewrite pass that found something
 */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "job.h"
#include "op_symbols.h"

enum { MAX_PASSES = 64 };

struct used {
    struct cli *cli;
    bool *rows;   /* of op_symbols[] */
    bool *opened; /* of the paths */
    const char *passes[MAX_PASSES];
    bool applied[MAX_PASSES];
    int32_t n_passes;
};

static void see_row(void *user, const attnrun_op_def *op)
{
    struct used *used = user;
    const int32_t i = op_symbol_find(op);
    if (i >= 0)
        used->rows[i] = true; /* plugins bring theirs themselves */
}

static attnrun_status note_passes(struct used *used, const attnrun_model *model)
{
    attnrun_model_info info = { .struct_size = sizeof info };
    TRY_LIB(attnrun_model_query(model, &info));
    for (int32_t i = 0; i < info.n_passes && i < MAX_PASSES; i++) {
        int32_t applied = 0;
        TRY_LIB(attnrun_model_pass(model, i, &used->passes[i], &applied));
        used->applied[i] = used->applied[i] || applied > 0;
        used->n_passes = i + 1;
    }
    return ATTNRUN_OK;
}

static attnrun_status open_one(struct used *used, const char *path, uint32_t flags,
                               bool *packed)
{
    attnrun_model *model = NULL;
    attnrun_model_info info = { .struct_size = sizeof info };
    TRY(cli_open_model(used->cli, path, flags, &model));
    attnrun_status status = attnrun_model_query(model, &info);
    *packed = info.packed_for != NULL && info.packed_for[0] != 0;
    if (status == ATTNRUN_OK && !*packed) /* those of a packed file ran before */
        status = note_passes(used, model);
    attnrun_model_release(model);
    return status;
}

/* With rewriting and without, in each precision; with --ragged, on the tokens of ragged batches,
 * too. */
static attnrun_status open_in_all_ways(struct used *used, const char *path)
{
    static const char *const precisions[] = { "f32", "bf16", "auto" };
    struct cli *cli = used->cli;
    const char *ragged = cli->ragged;
    attnrun_status status = ATTNRUN_OK;
    bool packed = false;
    for (size_t i = 0; i < 3 && status == ATTNRUN_OK && !packed; i++) {
        cli->precision = precisions[i];
        cli->ragged = NULL;
        status = open_one(used, path, 0, &packed);
        if (status == ATTNRUN_OK && !packed)
            status = open_one(used, path, ATTNRUN_NO_FUSION, &packed);
        cli->ragged = ragged;
        if (status == ATTNRUN_OK && !packed && ragged != NULL)
            status = open_one(used, path, 0, &packed);
    }
    return status;
}

/* All models, for one instruction set. A file that was packed for another one is passed over,
 * where that one has opened it or is to come. */
static attnrun_status open_all(struct used *used, const char *isa, bool last)
{
    struct cli *cli = used->cli;
    attnrun_status status = ATTNRUN_OK;
    cli->isa = isa;
    TRY(cli_open_runtime(cli));
    for (int64_t i = 0; i < cli->paths.n && status == ATTNRUN_OK; i++) {
        status = open_in_all_ways(used, cli->paths.v[i]);
        used->opened[i] = used->opened[i] || status == ATTNRUN_OK;
        if (status == ATTNRUN_E_VERSION && (used->opened[i] || !last))
            status = ATTNRUN_OK;
    }
    if (status == ATTNRUN_OK)
        attnrun_runtime_ops(cli->runtime, see_row, used);
    attnrun_runtime_destroy(cli->runtime);
    cli->runtime = NULL;
    return status;
}

/* The first version of an operator that begins after this row of the library, or 0. */
static int32_t end_of(const attnrun_op_def *row)
{
    int32_t end = 0;
    for (int32_t i = 0; i < op_n_symbols; i++) {
        const attnrun_op_def *other = op_symbols[i].row;
        if (strcmp(other->name, row->name) == 0 &&
            strcmp(other->domain, row->domain) == 0 && other->since > row->since &&
            (end == 0 || other->since < end))
            end = other->since;
    }
    return end;
}

static void print_list(const struct used *used)
{
    const struct cli *cli = used->cli;
    printf("# Operators and rewrite passes, for -DATTNRUN_OPS=: made by attnrun %s of\n",
           attnrun_version());
    for (int64_t i = 0; i < cli->paths.n; i++)
        printf("# %s\n", tool_path(text_file_name(cli->paths.v[i])));
    for (int32_t i = 0; i < op_n_symbols; i++) {
        const attnrun_op_def *row = op_symbols[i].row;
        if (!used->rows[i])
            continue;
        printf("OP(%s)\n", op_symbols[i].symbol + strlen(OP_SYMBOL_PREFIX));
        const int32_t end = end_of(row);
        if (end > 0)
            printf("END(\"%s\", \"%s\", %d)\n", row->domain, row->name, end);
    }
    for (int32_t i = 0; i < used->n_passes; i++)
        if (used->applied[i])
            printf("PASS(%s)\n", used->passes[i]);
}

static attnrun_status collect(struct used *used, const char *isas)
{
    char name[32];
    attnrun_status status = ATTNRUN_OK;
    for (const char *at = isas; *at != 0 && status == ATTNRUN_OK; at += strspn(at, " ")) {
        const size_t n = strcspn(at, " ");
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        status = open_all(used, name, at[n] == 0);
        at += n;
    }
    used->cli->isa = NULL;
    return status;
}

attnrun_status command_ops_used(struct cli *cli)
{
    struct used used = { .cli = cli };
    attnrun_runtime_info info = { .struct_size = sizeof info };
    char isas[256];
    if (cli->paths.n == 0)
        return tool_fail(ATTNRUN_E_USAGE,
                         "--used needs model files: attnrun ops --used model.onnx");
#ifdef ATTN_OPS_LISTED
    return tool_fail(ATTNRUN_E_USAGE,
                     "this attnrun was itself built with a list of operators "
                     "(ATTNRUN_OPS); use one with all operators");
#endif
    if (cli->json || cli->domain != NULL)
        return tool_fail(
            ATTNRUN_E_USAGE,
            "--used writes a list for CMake; --json and --domain cannot be used");
    TRY(cli_open_runtime(cli));
    TRY_LIB(attnrun_runtime_query(cli->runtime, &info));
    snprintf(isas, sizeof isas, "%s", info.isas);
    attnrun_runtime_destroy(cli->runtime);
    cli->runtime = NULL;
    used.rows = calloc((size_t)op_n_symbols, sizeof *used.rows);
    used.opened = calloc((size_t)cli->paths.n, sizeof *used.opened);
    attnrun_status status = used.rows != NULL && used.opened != NULL
                                ? collect(&used, isas)
                                : tool_fail(ATTNRUN_E_MEMORY, "no memory for the list");
    if (status == ATTNRUN_OK)
        print_list(&used);
    free(used.rows);
    free(used.opened);
    return status;
}
