/* ops.c - attnrun ops: the operators that this build (and its plugins) can run.
 *
 * In: a name or a domain, or neither. Out: a line for each operator; of a name its inputs,
 * outputs, attributes, cost and source; as text or with --json. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "screen.h"

static bool is_wanted(const struct cli *cli, const attnrun_op_def *op)
{
    const char *domain = cli->domain;
    if (cli->paths.n > 0 && strcmp(cli->paths.v[0], op->name) != 0)
        return false;
    if (domain == NULL)
        return true;
    if (strcmp(domain, "ai.onnx") == 0)
        domain = "";
    return strcmp(op->domain, domain) == 0;
}

/* A model that was converted with tools/convert brings a function for such a node, which
 * runs where there is no operator. */
static bool has_body(const attnrun_op_def *op)
{
    static const char *const names[] = {
#define BODY(name) #name,
#include "bodies.def"
#undef BODY
        NULL
    };
    for (int i = 0; names[i] != NULL; i++)
        if (strcmp(op->name, names[i]) == 0)
            return true;
    return false;
}

static bool is_ours(const attnrun_op_def *op)
{
    return strcmp(op->domain, "attnrun") == 0;
}

/* What an attribute of domain attnrun means: by the row of its operator, else by the one of all;
 * NULL where there is none. */
static const char *attr_meaning(const attnrun_op_def *op, const char *name)
{
    static const struct {
        const char *op, *attribute, *text;
    } rows[] = {
#define ATTRIBUTE(op, attribute, text) { op, attribute, text },
#include "attribute_texts.def"
#undef ATTRIBUTE
    };
    const char *of_all = NULL;
    for (size_t i = 0; is_ours(op) && i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].attribute, name) != 0)
            continue;
        if (strcmp(rows[i].op, op->name) == 0)
            return rows[i].text;
        if (rows[i].op[0] == 0)
            of_all = rows[i].text;
    }
    return of_all;
}

static const char *kind_name(int32_t kind)
{
    static const char *const kinds[] = { "end",    "int",   "float",  "string",
                                         "string", "ints",  "floats", "strings",
                                         "tensor", "graph", "type",   "ignored" };
    return kind > 0 && kind < 12 ? kinds[kind] : "unknown";
}

static void json_default(struct json *json, const attnrun_attr_def *attr)
{
    switch (attr->kind) {
    case ATTNRUN_ATTR_INT:
        if ((attr->flags & ATTNRUN_ATTR_REQUIRED) == 0 && attr->int_default != INT64_MIN)
            json_int(json, "default", attr->int_default);
        break;
    case ATTNRUN_ATTR_FLOAT:
        if ((attr->flags & ATTNRUN_ATTR_REQUIRED) == 0 && isfinite(attr->float_default))
            json_real_of(json, "default", (double)attr->float_default, ATTNRUN_F32);
        break;
    case ATTNRUN_ATTR_STRING:
        if (attr->text != NULL)
            json_text(json, "default", attr->text);
        break;
    case ATTNRUN_ATTR_ENUM: {
        json_words(json, "words", attr->text, "|");
        json_int(json, "default_index", attr->int_default);
        break;
    }
    default:
        break;
    }
}

/* "x:T w:T?" as objects: name, type and marks of each operand. */
static void json_operands(struct json *json, const char *key, const char *text)
{
    json_open(json, key, '[');
    for (const char *at = text; *at != 0; at += strspn(at, " ")) {
        size_t n = strcspn(at, " "), name = strcspn(at, ": ");
        char word[128];
        snprintf(word, sizeof word, "%.*s", n > 120 ? 120 : (int)n, at);
        size_t marks = strcspn(word, "?*!");
        bool optional = strchr(word + marks, '?') != NULL;
        bool variadic = strchr(word + marks, '*') != NULL;
        bool mixed = strchr(word + marks, '!') != NULL;
        word[marks] = 0;
        word[name < marks ? name : marks] = 0;
        json_open(json, NULL, '{');
        json_text(json, "name", word);
        json_text(json, "type", name < marks ? word + name + 1 : "");
        json_bool(json, "optional", optional);
        json_bool(json, "variadic", variadic);
        json_bool(json, "mixed_types", mixed);
        json_close(json, '}');
        at += n;
    }
    json_close(json, ']');
}

/* "T=f32,f64 I=i32,i64" as an object of lists. */
static void json_types(struct json *json, const char *text)
{
    json_open(json, "types", '{');
    for (const char *at = text == NULL ? "" : text; *at != 0; at += strspn(at, " ")) {
        size_t n = strcspn(at, " "), name = strcspn(at, "= ");
        char word[256];
        snprintf(word, sizeof word, "%.*s", n > 250 ? 250 : (int)n, at);
        word[name < n ? name : n] = 0;
        json_words(json, word, name < n ? word + name + 1 : "", ",");
        at += n;
    }
    json_close(json, '}');
}

static void json_op(struct json *json, const attnrun_op_def *op, const char *isa)
{
    json_open(json, NULL, '{');
    json_text(json, "domain", op->domain);
    json_text(json, "name", op->name);
    json_int(json, "since", op->since);
    json_operands(json, "inputs", op->inputs);
    json_operands(json, "outputs", op->outputs);
    json_types(json, op->types);
    if (op->cost != NULL)
        json_text(json, "cost", op->cost);
    if (op->source != NULL)
        json_text(json, "source", op->source);
    if (is_ours(op)) {
        json_text(json, "isa", isa);
        json_bool(json, "body", has_body(op));
    }
    json_open(json, "attributes", '[');
    for (const attnrun_attr_def *a = op->attrs; a != NULL && a->kind != ATTNRUN_ATTR_END;
         a++) {
        json_open(json, NULL, '{');
        json_text(json, "name", a->name);
        json_text(json, "kind", kind_name(a->kind));
        json_bool(json, "required", (a->flags & ATTNRUN_ATTR_REQUIRED) != 0);
        json_default(json, a);
        if (attr_meaning(op, a->name) != NULL)
            json_text(json, "meaning", attr_meaning(op, a->name));
        json_close(json, '}');
    }
    json_close(json, ']');
    json_close(json, '}');
}

/* `isa`: whose kernels it would run here. */
static void print_op(const attnrun_op_def *op, const char *isa)
{
    struct line line = { .n = 0 };
    line_add(&line, "%-14s %-28s %3d  %s -> %s",
             op->domain[0] == 0 ? "ai.onnx" : op->domain, op->name, op->since, op->inputs,
             op->outputs);
    if (op->types != NULL && op->types[0] != 0)
        line_add(&line, "  %s", op->types);
    if (op->cost != NULL)
        line_add(&line, "  %s", op->cost);
    if (is_ours(op))
        line_add(&line, "  isa %s  body %s", isa, has_body(op) ? "yes" : "no");
    if (op->source != NULL)
        line_add(&line, "  %s", op->source);
    if (isatty(STDOUT_FILENO))
        screen_text("", 0, line.text);
    else
        puts(line.text); /* a line an operator, for other programs */
}

static const char *attr_default(const attnrun_attr_def *a)
{
    static char text[160];
    text[0] = 0;
    if (a->flags & ATTNRUN_ATTR_REQUIRED)
        return "required";
    if (a->kind == ATTNRUN_ATTR_INT && a->int_default != INT64_MIN)
        snprintf(text, sizeof text, "default %" PRId64, a->int_default);
    if (a->kind == ATTNRUN_ATTR_FLOAT && isfinite(a->float_default))
        snprintf(text, sizeof text, "default %s",
                 value_number((double)a->float_default, ATTNRUN_F32));
    if (a->kind == ATTNRUN_ATTR_STRING && a->text != NULL)
        snprintf(text, sizeof text, "default '%s'", a->text);
    if (a->kind == ATTNRUN_ATTR_ENUM) {
        const char *word = a->text;
        for (int64_t i = 0; i < a->int_default && strchr(word, '|') != NULL; i++)
            word = strchr(word, '|') + 1;
        snprintf(text, sizeof text, "one of %s; default %.*s", a->text,
                 (int)strcspn(word, "|"), word);
    }
    return text[0] != 0 ? text : "optional";
}

/* One version of an operator, as a page for its users. */
static void describe_op(const attnrun_op_def *op, const char *isa)
{
    const char *domain = op->domain[0] == 0 ? "ai.onnx" : op->domain;
    screen_line("operator", 12, "%s of %s, from opset %d on", op->name, domain,
                op->since);
    screen_text("inputs", 12, op->inputs[0] != 0 ? op->inputs : "none");
    screen_text("outputs", 12, op->outputs);
    if (op->types != NULL && op->types[0] != 0)
        screen_text("types", 12, op->types);
    for (const attnrun_attr_def *a = op->attrs; a != NULL && a->kind != ATTNRUN_ATTR_END;
         a++) {
        const char *meaning = attr_meaning(op, a->name);
        screen_line(a == op->attrs ? "attributes" : "", 12, "%s: %s, %s", a->name,
                    kind_name(a->kind), attr_default(a));
        if (meaning != NULL)
            screen_text("", 14, meaning);
    }
    if (op->cost != NULL)
        screen_text("cost", 12, op->cost);
    if (op->source != NULL)
        screen_text("source", 12, op->source);
    if (is_ours(op))
        screen_line("runs", 12, "on %s here; %s function body for other runtimes", isa,
                    has_body(op) ? "with a" : "without a");
    putchar('\n');
}

static attnrun_status none_found(const struct cli *cli)
{
    enum { MAX = 1024 };
    const char *names[MAX];
    const attnrun_op_def *op;
    int64_t n = 0;
    if (cli->paths.n == 0)
        return tool_fail(ATTNRUN_E_USAGE, "there is no operator of the domain '%s'",
                         tool_quote(cli->domain));
    for (int32_t i = 0; n < MAX && (op = attnrun_get_op(cli->runtime, i)) != NULL; i++)
        names[n++] = op->name;
    tool_fail(ATTNRUN_E_USAGE, "there is no operator '%s'", tool_quote(cli->paths.v[0]));
    tool_suggest(cli->paths.v[0], names, n);
    return ATTNRUN_E_USAGE;
}

attnrun_status command_ops(struct cli *cli, int *exit_code)
{
    struct json json = { .out = cli->json ? cli_json_stream() : NULL };
    const attnrun_op_def *op;
    attnrun_runtime_info info = { .struct_size = sizeof info };
    int64_t n = 0;
    *exit_code = 0;
    if (cli->used)
        return command_ops_used(cli);
    if (cli->paths.n > 1)
        return tool_fail(ATTNRUN_E_USAGE, "unexpected argument '%s'",
                         tool_quote(cli->paths.v[1]));
    TRY(cli_open_runtime(cli));
    TRY_LIB(attnrun_runtime_query(cli->runtime, &info));
    if (cli->json) {
        json_open(&json, NULL, '{');
        json_text(&json, "schema", "attnrun/ops/3");
        json_open(&json, "ops", '[');
    }
    for (int32_t i = 0; (op = attnrun_get_op(cli->runtime, i)) != NULL; i++) {
        if (!is_wanted(cli, op))
            continue;
        n++;
        if (cli->json)
            json_op(&json, op, info.isa);
        else if (cli->paths.n > 0)
            describe_op(op, info.isa);
        else
            print_op(op, info.isa);
    }
    if (cli->json) {
        json_close(&json, ']');
        json_close(&json, '}');
    }
    if (n == 0)
        return none_found(cli);
    return ATTNRUN_OK;
}
