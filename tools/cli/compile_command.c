/* compile_command.c - attnrun compile: a model as a C file.
 *
 * In: a model file, and -o model.c. Out: a C file with
 *   - the packed file (pack_command.c) as an array of words, aligned as it has to be;
 *   - attn_ops[], the rows of the operators that its nodes have, in the place of the library's
 *     list of all: what it does not name is not linked;
 *   - attn_passes[], which is empty: a packed model is rewritten already;
 *   - the attnrun_source that opens it, model_NAME for NAME.c. No code.
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
    int64_t bytes, words;
    bool *used; /* of op_symbols[] */
    bool foreign;
    char name[64];
};

static void put(struct c_file *c, const char *format, ...) TOOL_PRINTF(2, 3);
static void put(struct c_file *c, const char *format, ...)
{
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    output_file_write(&c->file, text, n < (int)sizeof text ? n : (int)sizeof text - 1);
}

/* ---- the packed bytes ---- */

static void put_word(struct c_file *c)
{
    put(c, "%s0x%016" PRIx64 ",", c->words % WORDS_PER_LINE == 0 ? "\n    " : " ",
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
            put(c, "extern const attnrun_op_def %s;\n", op_symbols[i].symbol);
    put(c, "extern const attnrun_op_def *const attn_ops[];\n"
           "const attnrun_op_def *const attn_ops[] = {\n");
    for (int32_t i = 0; i < op_n_symbols; i++)
        if (c->used[i])
            put(c, "    &%s,\n", op_symbols[i].symbol);
    put(c, "    0\n};\n\n"
           "struct attn_pass;\n"
           "extern const struct attn_pass *const attn_passes[];\n"
           "const struct attn_pass *const attn_passes[] = { 0 };\n\n");
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

static attnrun_status put_file(struct c_file *c, attnrun_model *model, const char *isa)
{
    put(c,
        "/* %s as C, for %s: made by attnrun %s.\n"
        " * Link it with libattnrun.a, and open the model:\n"
        " *\n"
        " *     extern const attnrun_source %s;\n"
        " *     attnrun_model_open(NULL, &%s, &model); */\n"
        "#include <attnrun.h>\n\n",
        c->name, isa, attnrun_version(), c->name, c->name);
    put_rows(c);
    put(c, "static const uint64_t words[] __attribute__((aligned(64))) = {");
    attnrun_status status = attnrun_model_save(model, write_words, c);
    if (status != ATTNRUN_OK)
        return c->file.status != ATTNRUN_OK ? c->file.status : tool_fail_library(status);
    if (c->bytes % 8 != 0)
        put_word(c);
    put(c,
        "\n};\n\n"
        "extern const attnrun_source %s;\n"
        "const attnrun_source %s = { .struct_size = sizeof(attnrun_source),\n"
        "    .data = words, .bytes = UINT64_C(%" PRId64 ") };\n",
        c->name, c->name, c->bytes);
    return c->file.status;
}

static attnrun_status write_c(struct c_file *c, const struct cli *cli,
                              attnrun_model *model)
{
    attnrun_runtime_info info = { .struct_size = sizeof info };
    TRY_LIB(attnrun_runtime_query(cli->runtime, &info));
    TRY_LIB(attnrun_model_ops(model, see_row, c));
    if (c->foreign)
        return tool_fail(ATTNRUN_E_UNSUPPORTED,
                         "an operator of a plugin has no place in a compiled model");
    name_of(cli->output, c->name, sizeof c->name);
    TRY(output_file_open(&c->file, cli->output));
    return output_file_finish(&c->file, put_file(c, model, info.isa));
}

attnrun_status command_compile(struct cli *cli, int *exit_code)
{
    struct c_file c = { .bytes = 0 };
    attnrun_model *model = NULL;
    *exit_code = 0;
    if (cli->output == NULL)
        return tool_fail(ATTNRUN_E_USAGE, "-o FILE is missing: attnrun compile "
                                          "model.onnx -o model.c");
    TRY(cli_open_model(cli, cli->paths.v[0], 0, &model));
    c.used = calloc((size_t)op_n_symbols, sizeof *c.used);
    attnrun_status status = c.used != NULL
                                ? write_c(&c, cli, model)
                                : tool_fail(ATTNRUN_E_MEMORY, "no memory for the list");
    attnrun_model_release(model);
    int n = 0;
    for (int32_t i = 0; i < op_n_symbols; i++)
        n += c.used != NULL && c.used[i];
    free(c.used);
    if (status == ATTNRUN_OK && !cli->quiet && !file_is_stream(cli->output))
        printf("%s: %s of model, %s, as %s\n", tool_path(cli->output),
               text_bytes(c.bytes), tool_plural(n, "operator"), c.name);
    return status;
}
