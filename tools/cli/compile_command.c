/* compile_command.c - attnrun compile: models as a C file.
 *
 * In: model files, and -o model.c. Out: a C file with
 *   - each packed file (pack_command.c) as an array of words, aligned as it has to be;
 *   - attn_ops[], the rows of the operators that their nodes have, in the place of the library's
 *     list of all: what it does not name is not linked;
 *   - attn_passes[], which is empty: a packed model is rewritten already;
 *   - the attnrun_source that opens each: model_NAME for NAME.c, or for each of several files
 *     NAME.onnx. No code.
 * A program has one attn_ops[], so one such file.
 * Words are in the order of bytes of this machine, and of all that the library runs on. */
#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "../io/file.h"
#include "cli.h"
#include "job.h"
#include "op_symbols.h"

enum { WORDS_PER_LINE = 4 };

struct c_file {
    struct output_file file;
    uint64_t word; /* in the making */
    int64_t bytes, words, all_bytes;
    bool *used; /* of op_symbols[] */
    bool foreign;
    attnrun_model **models;
    char (*names)[64];
    int64_t n;
};

static void c_put(struct c_file *c, const char *format, ...) TOOL_PRINTF(2, 3);
static void c_put(struct c_file *c, const char *format, ...)
{
    char text[1024]; /* the longest format, with three names */
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    output_file_write(&c->file, text, n < (int)sizeof text ? n : (int)sizeof text - 1);
}

/* ---- the packed bytes ---- */

static void put_word(struct c_file *c)
{
    c_put(c, "%s0x%016" PRIx64 ",", c->words % WORDS_PER_LINE == 0 ? "\n    " : " ",
          c->word);
    c->words++;
    c->word = 0;
}

static int32_t write_words(void *user, const void *data, uint64_t n)
{
    struct c_file *c = user;
    const uint8_t *bytes = data;
    for (uint64_t i = 0; i < n; i++) {
        c->word |= (uint64_t)bytes[i] << 8 * (c->bytes++ % 8);
        if (c->bytes % 8 == 0)
            put_word(c);
    }
    return c->file.status != ATTNRUN_OK;
}

/* ---- the rows ---- */

static void see_row(void *user, const attnrun_op_def *op)
{
    struct c_file *c = user;
    const int32_t i = op_symbol_find(op);
    if (i >= 0)
        c->used[i] = true;
    else
        c->foreign = true; /* of a plugin */
}

static void put_rows(struct c_file *c)
{
    for (int32_t i = 0; i < op_n_symbols; i++)
        if (c->used[i])
            c_put(c, "extern const attnrun_op_def %s;\n", op_symbols[i].symbol);
    c_put(c, "extern const attnrun_op_def *const attn_ops[];\n"
             "const attnrun_op_def *const attn_ops[] = {\n");
    for (int32_t i = 0; i < op_n_symbols; i++)
        if (c->used[i])
            c_put(c, "    &%s,\n", op_symbols[i].symbol);
    c_put(c, "    0\n};\n\n"
             "struct attn_pass;\n"
             "extern const struct attn_pass *const attn_passes[];\n"
             "const struct attn_pass *const attn_passes[] = { 0 };\n\n");
}

/* In the place of the code that reads ONNX, which the linker then leaves out. */
static void put_loader(struct c_file *c)
{
    c_put(c, "struct attn_model;\n"
             "struct attn_file;\n"
             "attnrun_status attn_packed_only(const attnrun_source *source);\n"
             "attnrun_status attn_onnx_open(struct attn_model *model,\n"
             "    const attnrun_source *source, const struct attn_file *file);\n");
    c_put(c, "attnrun_status attn_onnx_open(struct attn_model *model,\n"
             "    const attnrun_source *source, const struct attn_file *file)\n"
             "{\n"
             "    (void)model;\n"
             "    (void)file;\n"
             "    return attn_packed_only(source);\n"
             "}\n\n");
}

/* ---- the file ---- */

/* A C name out of the file's. The prefix keeps it apart from keywords, types, and the other names
 * of the file. */
static void name_of(const char *path, char *name, size_t bytes)
{
    const char *from = text_file_name(path);
    size_t n = (size_t)snprintf(name, bytes, "model_");
    for (; *from != 0 && *from != '.' && n + 1 < bytes; from++)
        name[n++] = isalnum((unsigned char)*from) ? *from : '_';
    name[n] = 0;
}

static void put_head(struct c_file *c, const char *isa)
{
    c_put(c, "/* %s", c->names[0]);
    for (int64_t i = 1; i < c->n; i++)
        c_put(c, ", %s", c->names[i]);
    c_put(c,
          " as C, for %s: made by attnrun %s.\n"
          " * Link it with libattnrun.a, -lpthread, -ldl and -lm, and open the model:\n"
          " *\n"
          " *     extern const attnrun_source %s;\n"
          " *     attnrun_model_open(NULL, &%s, &model);\n"
          " *\n"
          " * A program has one such file: attnrun compile takes several models. */\n"
          "#include <attnrun.h>\n\n",
          isa, attnrun_version(), c->names[0], c->names[0]);
}

static attnrun_status put_model(struct c_file *c, int64_t i)
{
    const char *name = c->names[i];
    c->bytes = c->words = 0;
    c_put(c, "\nstatic const uint64_t words_of_%s[] __attribute__((aligned(64))) = {",
          name);
    attnrun_status status = attnrun_model_save(c->models[i], write_words, c);
    if (status != ATTNRUN_OK)
        return c->file.status != ATTNRUN_OK ? c->file.status : tool_fail_library(status);
    if (c->bytes % 8 != 0)
        put_word(c);
    c_put(c,
          "\n};\n\n"
          "extern const attnrun_source %s;\n"
          "const attnrun_source %s = { .struct_size = sizeof(attnrun_source),\n"
          "    .data = words_of_%s, .bytes = UINT64_C(%" PRId64 ") };\n",
          name, name, name, c->bytes);
    c->all_bytes += c->bytes;
    return c->file.status;
}

static attnrun_status put_file(struct c_file *c, const char *isa)
{
    put_head(c, isa);
    put_rows(c);
    put_loader(c);
    for (int64_t i = 0; i < c->n; i++)
        TRY(put_model(c, i));
    return ATTNRUN_OK;
}

/* One model is called as the C file, several as their own files. */
static attnrun_status choose_names(struct c_file *c, const struct cli *cli)
{
    for (int64_t i = 0; i < c->n; i++) {
        name_of(c->n == 1 ? cli->output : cli->paths.v[i], c->names[i],
                sizeof c->names[i]);
        for (int64_t k = 0; k < i; k++)
            if (strcmp(c->names[k], c->names[i]) == 0)
                return tool_fail(ATTNRUN_E_USAGE, "both '%s' and '%s' would be %s",
                                 tool_quote(cli->paths.v[k]), tool_quote(cli->paths.v[i]),
                                 c->names[i]);
    }
    return ATTNRUN_OK;
}

static attnrun_status write_c(struct c_file *c, struct cli *cli)
{
    attnrun_runtime_info info = { .struct_size = sizeof info };
    if (c->used == NULL || c->models == NULL || c->names == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for the list");
    TRY(choose_names(c, cli));
    for (int64_t i = 0; i < c->n; i++) {
        TRY(cli_open_model(cli, cli->paths.v[i], 0, &c->models[i]));
        TRY_LIB(attnrun_model_ops(c->models[i], see_row, c));
    }
    TRY_LIB(attnrun_runtime_query(cli->runtime, &info));
    if (c->foreign)
        return tool_fail(ATTNRUN_E_UNSUPPORTED,
                         "a compiled model cannot contain an operator of a plugin");
    TRY(output_file_open(&c->file, cli->output));
    return output_file_finish(&c->file, put_file(c, info.isa));
}

/* The same without a file: budget_explain_work(). */
static attnrun_status compile_nowhere(struct cli *cli, void *user)
{
    attnrun_model **models = calloc((size_t)cli->paths.n, sizeof(attnrun_model *));
    attnrun_status status = models == NULL
                                ? tool_fail(ATTNRUN_E_MEMORY, "no memory for the list")
                                : ATTNRUN_OK;
    (void)user;
    for (int64_t i = 0; i < cli->paths.n && status == ATTNRUN_OK; i++)
        status = cli_open_model(cli, cli->paths.v[i], 0, &models[i]);
    for (int64_t i = 0; i < cli->paths.n && status == ATTNRUN_OK; i++) {
        status = attnrun_model_save(models[i], budget_drop, NULL);
        if (status != ATTNRUN_OK)
            tool_fail_library(status);
    }
    for (int64_t i = 0; models != NULL && i < cli->paths.n; i++)
        attnrun_model_release(models[i]);
    free(models);
    return status;
}

static void say(const struct c_file *c, const struct cli *cli)
{
    int n = 0;
    for (int32_t i = 0; i < op_n_symbols; i++)
        n += c->used[i];
    printf("%s: %s of %s, %s, as %s", tool_path(cli->output), text_bytes(c->all_bytes),
           c->n == 1 ? "model" : tool_plural(c->n, "model"), tool_plural(n, "operator"),
           c->names[0]);
    for (int64_t i = 1; i < c->n; i++)
        printf(", %s", c->names[i]);
    printf("\n");
}

attnrun_status command_compile(struct cli *cli, int *exit_code)
{
    const size_t n = (size_t)cli->paths.n;
    *exit_code = 0;
    if (cli->output == NULL)
        return tool_fail(ATTNRUN_E_USAGE, "-o FILE is missing: attnrun compile "
                                          "model.onnx -o model.c");
    struct c_file c = { .n = cli->paths.n,
                        .used = calloc((size_t)op_n_symbols, sizeof *c.used),
                        .models = calloc(n, sizeof(attnrun_model *)),
                        .names = calloc(n, sizeof *c.names) };
    const attnrun_status status = write_c(&c, cli);
    if (status == ATTNRUN_OK && !cli->quiet && !file_is_stdout(cli->output))
        say(&c, cli);
    for (size_t i = 0; c.models != NULL && i < n; i++)
        attnrun_model_release(c.models[i]);
    free(c.used);
    free(c.models);
    free(c.names);
    if (status != ATTNRUN_OK)
        budget_explain_work(cli, compile_nowhere, NULL);
    return status;
}
