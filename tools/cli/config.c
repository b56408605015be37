/* config.c - options from a YAML file: a mapping from option names to values.
 *
 *     threads: 4
 *     set: { S: 128, B: 2 }         # the same as a list: [ S=128, B=2 ]
 *     input: { ids: ids.npy }
 *
 * Read by libyaml's events, whose parser stays linear at this depth; 64 kB, depth 16,
 * 1000 events. Anchors, aliases, tags, several documents, unknown and repeated keys are
 * refused. */
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "../io/file.h"
#include "cli.h"

enum { MAX_BYTES = 64 << 10, MAX_DEPTH = 16, MAX_EVENTS = 1000, MAX_KEYS = 64 };

struct config {
    struct cli *cli;
    char path[256]; /* for messages */
    yaml_parser_t parser;
    yaml_event_t event;
    int events, depth;
    const struct cli_option *seen[MAX_KEYS];
    int n_seen;
};

static unsigned long line_of(const struct config *config)
{
    return (unsigned long)config->event.start_mark.line + 1;
}

/* What no configuration needs, and what would let a small file grow. */
static attnrun_status refuse_features(const struct config *config)
{
    const yaml_event_t *e = &config->event;
    const yaml_char_t *anchor = NULL, *tag = NULL;
    if (e->type == YAML_SCALAR_EVENT) {
        anchor = e->data.scalar.anchor;
        tag = e->data.scalar.tag;
    } else if (e->type == YAML_SEQUENCE_START_EVENT) {
        anchor = e->data.sequence_start.anchor;
        tag = e->data.sequence_start.tag;
    } else if (e->type == YAML_MAPPING_START_EVENT) {
        anchor = e->data.mapping_start.anchor;
        tag = e->data.mapping_start.tag;
    }
    if (e->type == YAML_ALIAS_EVENT || anchor != NULL)
        return tool_fail_config("%s:%lu: anchors and aliases are not allowed",
                                config->path, line_of(config));
    if (tag != NULL)
        return tool_fail_config("%s:%lu: tags are not allowed", config->path,
                                line_of(config));
    return ATTNRUN_OK;
}

static attnrun_status next_event(struct config *config)
{
    yaml_event_delete(&config->event);
    if (!yaml_parser_parse(&config->parser, &config->event)) {
        const char *problem = config->parser.problem;
        memset(&config->event, 0, sizeof config->event);
        return tool_fail_config("%s:%lu: %s", config->path,
                                (unsigned long)config->parser.problem_mark.line + 1,
                                problem != NULL ? problem : "not YAML");
    }
    yaml_event_type_t type = config->event.type;
    if (type == YAML_SEQUENCE_START_EVENT || type == YAML_MAPPING_START_EVENT)
        config->depth++;
    if (type == YAML_SEQUENCE_END_EVENT || type == YAML_MAPPING_END_EVENT)
        config->depth--;
    if (config->depth > MAX_DEPTH)
        return tool_fail(ATTNRUN_E_LIMIT, "%s: values are nested more than %d deep",
                         config->path, MAX_DEPTH);
    if (++config->events > MAX_EVENTS)
        return tool_fail(ATTNRUN_E_LIMIT, "%s: there are more than %d items",
                         config->path, MAX_EVENTS);
    return refuse_features(config);
}

static attnrun_status check_scalar(const struct config *config)
{
    const char *value = (const char *)config->event.data.scalar.value;
    if (strlen(value) == config->event.data.scalar.length)
        return ATTNRUN_OK;
    return tool_fail_config("%s:%lu: the value contains a NUL byte", config->path,
                            line_of(config));
}

/* The scalar's text, kept. */
static attnrun_status scalar_text(struct config *config, const char **text)
{
    const char *value = (const char *)config->event.data.scalar.value;
    if (config->event.type != YAML_SCALAR_EVENT)
        return tool_fail_config("%s:%lu: expected a plain value", config->path,
                                line_of(config));
    TRY(check_scalar(config));
    *text = cli_keep(config->cli, value, strlen(value));
    return *text != NULL ? ATTNRUN_OK
                         : tool_fail(ATTNRUN_E_MEMORY, "no memory for a value");
}

/* What stands in a list, as JSON: a text in quotes is a string there, too. `to` has room, for twice
 * the text and two bytes more if it is `quoted`; returns the bytes. */
static size_t put_item(char *to, const char *text, bool quoted)
{
    size_t n = 0;
    if (quoted)
        to[n++] = '"';
    for (; *text != 0; text++) {
        if (quoted && (*text == '"' || *text == '\\'))
            to[n++] = '\\';
        to[n++] = *text;
    }
    if (quoted)
        to[n++] = '"';
    return n;
}

/* Inner lists ([[1,2]] as an input, [1,3] as a shape) become the text they were written
 * as. */
static attnrun_status flow_text(struct config *config, const char **text)
{
    char flow[4096];
    size_t n = 0;
    bool comma = false;
    int open = 0;
    do {
        yaml_event_type_t type = config->event.type;
        const char *part = (const char *)config->event.data.scalar.value;
        bool quoted = false;
        if (type == YAML_SEQUENCE_END_EVENT) {
            part = "]";
            open--;
        } else if (type == YAML_SEQUENCE_START_EVENT) {
            part = "[";
            open++;
        } else if (type != YAML_SCALAR_EVENT) {
            return tool_fail_config("%s:%lu: expected a list of values", config->path,
                                    line_of(config));
        } else {
            TRY(check_scalar(config));
            quoted =
                open > 0 && config->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
        }
        if (n + (quoted ? 2 : 1) * strlen(part) + 3 > sizeof flow)
            return tool_fail(ATTNRUN_E_LIMIT, "%s:%lu: the list has more than %zu bytes",
                             config->path, line_of(config), sizeof flow);
        if (comma && type != YAML_SEQUENCE_END_EVENT)
            flow[n++] = ',';
        n += put_item(flow + n, part, quoted);
        comma = type != YAML_SEQUENCE_START_EVENT;
        if (open > 0)
            TRY(next_event(config));
    } while (open > 0);
    *text = cli_keep(config->cli, flow, n);
    return *text != NULL ? ATTNRUN_OK
                         : tool_fail(ATTNRUN_E_MEMORY, "no memory for a value");
}

static attnrun_status set_option(struct config *config, const struct cli_option *option,
                                 const char *value, const char *where)
{
    TRY(cli_set_option(config->cli, option, value, where, true));
    return cli_keep_word(config->cli, option, value);
}

/* { S: 128 } of a list option: each pair is "S=128". */
static attnrun_status read_pairs(struct config *config, const struct cli_option *option,
                                 const char *where)
{
    for (;;) {
        const char *name = NULL, *value = NULL;
        TRY(next_event(config));
        if (config->event.type == YAML_MAPPING_END_EVENT)
            return ATTNRUN_OK;
        TRY(scalar_text(config, &name));
        TRY(next_event(config));
        TRY(flow_text(config, &value));
        size_t n = strlen(name) + strlen(value) + 2;
        char *pair = malloc(n);
        if (pair == NULL)
            return tool_fail(ATTNRUN_E_MEMORY, "no memory for a value");
        snprintf(pair, n, "%s=%s", name, value);
        const char *kept = cli_keep(config->cli, pair, n - 1);
        free(pair);
        if (kept == NULL)
            return tool_fail(ATTNRUN_E_MEMORY, "no memory for a value");
        TRY(set_option(config, option, kept, where));
    }
}

static attnrun_status read_items(struct config *config, const struct cli_option *option,
                                 const char *where)
{
    for (;;) {
        const char *value = NULL;
        TRY(next_event(config));
        if (config->event.type == YAML_SEQUENCE_END_EVENT)
            return ATTNRUN_OK;
        TRY(scalar_text(config, &value));
        TRY(set_option(config, option, value, where));
    }
}

static attnrun_status config_read_value(struct config *config,
                                        const struct cli_option *option)
{
    char where[400];
    const char *value = NULL;
    snprintf(where, sizeof where, "%.300s:%lu: %s", config->path, line_of(config),
             option->name);
    TRY(next_event(config));
    const bool list = option->kind == OPT_LIST || option->kind == OPT_LIMIT;
    if (list && config->event.type == YAML_MAPPING_START_EVENT)
        return read_pairs(config, option, where);
    if (list && config->event.type == YAML_SEQUENCE_START_EVENT)
        return read_items(config, option, where);
    TRY(scalar_text(config, &value));
    return set_option(config, option, value, where);
}

/* Options that mean nothing in a file, and those that name code to run: a stranger may have written
 * the file. */
static bool is_for_terminals(const char *key)
{
    static const char *const keys[] = { "config", "help", "plugin", "against" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return false;
}

static attnrun_status find_key(struct config *config, const struct cli_option **found)
{
    const char *key = NULL, *names[MAX_KEYS];
    int64_t n = 0;
    TRY(scalar_text(config, &key));
    const struct cli_option *option = cli_find_option(key);
    if (is_for_terminals(key))
        return tool_fail_config("%s:%lu: '%s' is an option of the command line only",
                                config->path, line_of(config), key);
    for (const struct cli_option *o = cli_options; o->name != NULL && n < MAX_KEYS; o++)
        if ((o->commands & config->cli->command->bit) != 0 && !is_for_terminals(o->name))
            names[n++] = o->name;
    if (option == NULL) {
        tool_fail_config("%s:%lu: unknown key '%s'", config->path, line_of(config),
                         tool_quote(key));
        tool_suggest(key, names, n);
        return tool_error.status;
    }
    if ((option->commands & config->cli->command->bit) == 0)
        return tool_fail_config("%s:%lu: 'attnrun %s' takes no '%s'", config->path,
                                line_of(config), config->cli->command->name, key);
    for (int i = 0; i < config->n_seen; i++)
        if (config->seen[i] == option)
            return tool_fail_config("%s:%lu: '%s' appears twice", config->path,
                                    line_of(config), key);
    if (config->n_seen < MAX_KEYS)
        config->seen[config->n_seen++] = option;
    *found = option;
    return ATTNRUN_OK;
}

static attnrun_status read_document(struct config *config)
{
    const struct cli_option *option = NULL;
    TRY(next_event(config)); /* stream start */
    TRY(next_event(config));
    if (config->event.type == YAML_STREAM_END_EVENT)
        return ATTNRUN_OK;
    TRY(next_event(config));
    if (config->event.type != YAML_MAPPING_START_EVENT)
        return tool_fail_config("%s:%lu: expected lines of the form 'option: value'",
                                config->path, line_of(config));
    for (;;) {
        TRY(next_event(config));
        if (config->event.type == YAML_MAPPING_END_EVENT)
            break;
        TRY(find_key(config, &option));
        TRY(config_read_value(config, option));
    }
    TRY(next_event(config)); /* document end */
    TRY(next_event(config));
    if (config->event.type != YAML_STREAM_END_EVENT)
        return tool_fail_config("%s:%lu: there is a second document, expected one",
                                config->path, line_of(config));
    return ATTNRUN_OK;
}

attnrun_status cli_read_config(struct cli *cli, const char *path)
{
    struct config config;
    char *text;
    int64_t bytes;
    TRY(file_read_all(path, MAX_BYTES, &text, &bytes));
    memset(&config, 0, sizeof config);
    config.cli = cli;
    snprintf(config.path, sizeof config.path, "%s", tool_path(path));
    attnrun_status status;
    if (!yaml_parser_initialize(&config.parser)) {
        status = tool_fail(ATTNRUN_E_MEMORY, "no memory for the YAML parser");
    } else {
        yaml_parser_set_input_string(&config.parser, (const unsigned char *)text,
                                     (size_t)bytes);
        status = read_document(&config);
        yaml_event_delete(&config.event);
        yaml_parser_delete(&config.parser);
    }
    free(text);
    return status;
}
