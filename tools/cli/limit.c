/* limit.c - --limit NAME=N: the limits of what files may ask for; those of models
 * (attnrun_limits), and those of inputs (input_limits.h). A configuration file may lower a limit,
 * not raise it: it may come with the model. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "../io/input_limits.h"
#include "cli.h"

static const struct limit_row {
    const char *name;
    int64_t standard, largest;
    size_t offset; /* of the member of attnrun_limits, or of tool_limits */
    bool input;
} rows[] = {
#define X(id, member, standard, largest, text)                                           \
    { #member, (standard), (largest), offsetof(attnrun_limits, member), false },
    ATTNRUN_LIMIT_LIST(X)
#undef X
#define X(member, standard, largest, text)                                               \
    { #member, (standard), (largest), offsetof(struct tool_limits, member), true },
        TOOL_LIMIT_LIST(X)
#undef X
};
enum { ROWS = sizeof rows / sizeof *rows };

static attnrun_status unknown_limit(const char *where, const char *name, bool config)
{
    const char *names[ROWS];
    for (int i = 0; i < ROWS; i++)
        names[i] = rows[i].name;
    if (config)
        tool_fail_config("%s: there is no limit named '%s'", where, tool_quote(name));
    else
        tool_fail(ATTNRUN_E_USAGE, "%s: there is no limit named '%s'", where,
                  tool_quote(name));
    tool_suggest(name, names, ROWS);
    return tool_error.status;
}

static const struct limit_row *find_limit(const char *name)
{
    for (int i = 0; i < ROWS; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

const char *cli_limit_name(int32_t index)
{
    return index >= 0 && index < ROWS ? rows[index].name : NULL;
}

attnrun_status cli_set_limit(struct cli *cli, const char *text, const char *where,
                             bool config)
{
    char name[64], *end = NULL;
    const char *equals = strchr(text, '=');
    if (equals == NULL || equals == text || equals - text >= (ptrdiff_t)sizeof name)
        return tool_fail(ATTNRUN_E_USAGE,
                         "%s is '%s', expected a limit and a number: "
                         "nodes=1000",
                         where, tool_quote(text));
    memcpy(name, text, (size_t)(equals - text));
    name[equals - text] = 0;
    const struct limit_row *row = find_limit(name);
    if (row == NULL)
        return unknown_limit(where, name, config);
    errno = 0;
    const long long value = strtoll(equals + 1, &end, 10);
    const int64_t largest = config ? row->standard : row->largest;
    if (end == equals + 1 || *end != 0 || errno != 0 || value < 1 || value > largest) {
        if (config)
            return tool_fail_config("%s: %s is '%s', expected 1 to %lld; a configuration "
                                    "file can only lower a limit",
                                    where, name, tool_quote(equals + 1),
                                    (long long)largest);
        return tool_fail(ATTNRUN_E_USAGE, "%s: %s is '%s', expected 1 to %lld", where,
                         name, tool_quote(equals + 1), (long long)largest);
    }
    const int64_t number = value;
    char *base = row->input ? (char *)&tool_limits : (char *)&cli->limits;
    memcpy(base + row->offset, &number, sizeof number);
    return ATTNRUN_OK;
}
