/* report.c - how a command ends: what it says of an error, and where its JSON goes.
 *
 * In: the error recorded last (tools/io/fail.h). Out: a line "attnrun: NAME: sentence" and, where
 * there is one, a line "hint: …" on standard error; with --json also one object on standard
 * output. What a command writes as JSON is kept until it has ended, so that standard output
 * holds one object, the result or the error. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../io/file.h"
#include "../io/text_stream.h"
#include "cli.h"

static struct text_stream stream;

FILE *cli_json_stream(void)
{
    return stream.file != NULL || text_stream_open(&stream) ? stream.file : stdout;
}

int cli_json_end(attnrun_status *status)
{
    int failed = 0;
    if (stream.file == NULL)
        return 0;
    if (!text_stream_close(&stream) && *status == ATTNRUN_OK)
        *status = tool_fail(ATTNRUN_E_MEMORY, "no memory for the JSON of a result");
    errno = 0;
    if (*status == ATTNRUN_OK &&
        fwrite(stream.text, 1, stream.bytes, stdout) != stream.bytes)
        failed = errno;
    text_stream_free(&stream);
    return failed;
}

attnrun_status cli_check_stdout(const struct cli *cli, const char *option,
                                const char *path)
{
    if (!cli->json || path == NULL || !file_is_stdout(path))
        return ATTNRUN_OK;
    return tool_fail(ATTNRUN_E_USAGE,
                     "%s %s writes the file to standard output, so --json cannot be used",
                     option, tool_path(path));
}

static void json_error(int code)
{
    const struct tool_error *e = &tool_error;
    struct json json = { .out = stdout };
    const char *colon = strstr(e->message, ": ");
    char status[32];
    snprintf(status, sizeof status, "%.*s",
             colon == NULL ? 0 : (int)(colon - e->message < 30 ? colon - e->message : 30),
             e->message);
    json_open(&json, NULL, '{');
    json_text(&json, "schema", "attnrun/error/1");
    json_text(&json, "status", status);
    json_int(&json, "exit_code", code);
    json_text(&json, "message", colon == NULL ? e->message : colon + 2);
    json_text(&json, "hint", e->hint);
    if (e->op_type[0] != 0) {
        json_open(&json, "node", '{');
        json_text(&json, "name", e->node_name);
        json_text(&json, "op_type", e->op_type);
        json_close(&json, '}');
    }
    if (e->tensor[0] != 0)
        json_text(&json, "tensor", e->tensor);
    json_close(&json, '}');
}

int cli_report(const struct cli *cli)
{
    int code = attnrun_status_exit(tool_error.status);
    if (cli_signal() != 0)
        code = 128 + cli_signal();
    if (code == 70 && tool_error.hint[0] == 0)
        tool_hint("this is a fault of attnrun %s: please report it with the model",
                  attnrun_version());
    fprintf(stderr, "attnrun: %s\n", tool_error.message);
    if (tool_error.hint[0] != 0)
        fprintf(stderr, "hint: %s\n", tool_error.hint);
    if (cli->json)
        json_error(code);
    return code;
}
