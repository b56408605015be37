/* fail.c - the one error of the tools, and names made safe to print.
 *
 * In: a status, a sentence with its values, and perhaps a hint. Out: the status; the sentence is
 * kept in tool_error until the command ends and prints it (tools/cli/report.c). */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "fail.h"

#include "input_limits.h"

struct tool_error tool_error;

struct tool_limits tool_limits = {
#define X(member, standard, largest, text) .member = (standard),
    TOOL_LIMIT_LIST(X)
#undef X
};

static attnrun_status record(attnrun_status status, const char *word, const char *format,
                             va_list args)
{
    char text[sizeof tool_error.message];
    vsnprintf(text, sizeof text, format, args);
    snprintf(tool_error.message, sizeof tool_error.message, "%s: %.*s", word,
             (int)(sizeof tool_error.message - 40), text);
    tool_error.hint[0] = 0;
    tool_error.node_name[0] = tool_error.op_type[0] = tool_error.tensor[0] = 0;
    tool_error.node_index = -1;
    tool_error.status = status;
    return status;
}

/* "SHAPE" for ATTNRUN_E_SHAPE. */
static const char *status_word(attnrun_status status)
{
    const char *name = attnrun_status_name(status);
    return strncmp(name, "E_", 2) == 0 ? name + 2 : name;
}

attnrun_status tool_fail(attnrun_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    record(status, status_word(status), format, args);
    va_end(args);
    return status;
}

attnrun_status tool_fail_config(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    record(ATTNRUN_E_USAGE, "CONFIG", format, args);
    va_end(args);
    return ATTNRUN_E_USAGE;
}

attnrun_status tool_fail_io(const char *format, ...)
{
    const char *reason = strerror(errno);
    va_list args;
    va_start(args, format);
    record(ATTNRUN_E_IO, "IO", format, args);
    va_end(args);
    size_t n = strlen(tool_error.message);
    snprintf(tool_error.message + n, sizeof tool_error.message - n, ": %s", reason);
    return ATTNRUN_E_IO;
}

attnrun_status tool_fail_library(attnrun_status status)
{
    const attnrun_error *error = attnrun_last_error();
    if (error == NULL || error->status != status)
        return tool_fail(status, "no details are known");
    snprintf(tool_error.message, sizeof tool_error.message, "%s", error->message);
    snprintf(tool_error.hint, sizeof tool_error.hint, "%s", error->hint);
    snprintf(tool_error.node_name, sizeof tool_error.node_name, "%s", error->node_name);
    snprintf(tool_error.op_type, sizeof tool_error.op_type, "%s", error->op_type);
    snprintf(tool_error.tensor, sizeof tool_error.tensor, "%s", error->tensor);
    tool_error.node_index = error->node_index;
    tool_error.status = status;
    return status;
}

void tool_hint(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(tool_error.hint, sizeof tool_error.hint, format, args);
    va_end(args);
}

attnrun_status tool_hint_limit(const char *name)
{
    tool_hint("--limit %s=N changes this limit", name);
    return tool_error.status;
}

bool tool_suggest(const char *word, const char *const *words, int64_t n)
{
    const char *near = attnrun_nearest_word(word, words, n);
    size_t used = strlen(tool_error.message);
    if (near != NULL)
        snprintf(tool_error.message + used, sizeof tool_error.message - used,
                 " (did you mean '%s'?)", tool_quote(near));
    return near != NULL;
}

attnrun_status tool_fail_at(const char *format, ...)
{
    char place[320], old[sizeof tool_error.message];
    va_list args;
    va_start(args, format);
    vsnprintf(place, sizeof place, format, args);
    va_end(args);
    memcpy(old, tool_error.message, sizeof old);
    char *rest = strstr(old, ": ");
    int word = rest == NULL ? 0 : (int)(rest - old);
    snprintf(tool_error.message, sizeof tool_error.message, "%.*s: %s: %.600s", word, old,
             place, rest == NULL ? old : rest + 2);
    return tool_error.status;
}

static char *next_buffer(void)
{
    static char buffers[8][256];
    static unsigned next;
    return buffers[next++ % 8];
}

const char *tool_quote(const char *text)
{
    char *out = next_buffer();
    attnrun_escape(text, out, 92);
    return out;
}

const char *tool_path(const char *path)
{
    char *out = next_buffer();
    attnrun_escape(path, out, 254);
    return out;
}

const char *tool_plural(int64_t n, const char *noun)
{
    char *out = next_buffer();
    attnrun_plural(n, noun, out, 92);
    return out;
}
