/* inspect_print.c - attnrun inspect as text: what inspect.c gathered, for people. */
#include <inttypes.h>
#include <string.h>

#include "inspect.h"
#include "job.h"
#include "screen.h"

enum { TITLE = 11 };

static const char *const coverage_names[] = { "native", "body", "MISSING" };

/* "f32[B,128]" */
static void add_type(struct line *line, const attnrun_value_info *info)
{
    static const char *const kinds[] = { "", "", "sequence of ", "optional ",
                                         "optional sequence of " };
    if (info->kind == ATTNRUN_MAP || info->kind == ATTNRUN_MAP_SEQUENCE) {
        line_add(line, "%s %s to %s",
                 info->kind == ATTNRUN_MAP ? "map from" : "sequence of maps from",
                 attnrun_dtype_name(info->key_dtype), attnrun_dtype_name(info->dtype));
        return;
    }
    line_add(line, "%s%s[", info->kind > 0 && info->kind < 5 ? kinds[info->kind] : "",
             attnrun_dtype_name(info->dtype));
    for (int32_t d = 0; d < info->rank; d++) {
        const char *name = info->dim_names[d];
        const bool cut = strlen(name) + 1 == sizeof info->dim_names[d];
        if (info->dims[d] >= 0)
            line_add(line, "%s%" PRId64, d > 0 ? "," : "", info->dims[d]);
        else
            line_add(line, "%s%s%s", d > 0 ? "," : "",
                     name[0] != 0 ? tool_quote(name) : "?", cut ? "..." : "");
    }
    line_add(line, info->rank < 0 ? "...]" : "]");
}

typedef attnrun_status value_getter(const attnrun_model *model, int32_t index,
                                    attnrun_value_info *info);

static attnrun_status print_values(const struct inspect *inspect, const char *title,
                                   int32_t n, value_getter *get)
{
    for (int32_t i = 0; i < n; i++) {
        attnrun_value_info info = { .struct_size = sizeof info };
        TRY_LIB(get(inspect->model, i, &info));
        struct line line = { .n = 0 };
        line_add(&line, "%s ", tool_quote(info.name));
        add_type(&line, &info);
        screen_text(i == 0 ? title : "", TITLE, line.text);
    }
    return ATTNRUN_OK;
}

static attnrun_status print_metadata(const struct inspect *inspect)
{
    for (int32_t i = 0; i < inspect->info.n_metadata; i++) {
        const char *key, *value;
        TRY_LIB(attnrun_model_metadata(inspect->model, i, &key, &value));
        screen_line(i == 0 ? "metadata" : "", TITLE, "%s = %s", tool_quote(key),
                    tool_quote(value));
    }
    return ATTNRUN_OK;
}

static attnrun_status print_passes(const struct inspect *inspect)
{
    bool first = true;
    for (int32_t i = 0; i < inspect->info.n_passes; i++) {
        const char *name;
        int32_t applied;
        TRY_LIB(attnrun_model_pass(inspect->model, i, &name, &applied));
        if (applied == 0)
            continue;
        printf("%-10s %s, %s\n", first ? "passes" : "", name,
               tool_plural(applied, "time"));
        first = false;
    }
    return ATTNRUN_OK;
}

/* What passes found but for one condition. */
static attnrun_status print_notes(const struct inspect *inspect)
{
    for (int32_t i = 0; i < inspect->info.n_notes; i++) {
        const char *pass, *node, *why;
        TRY_LIB(attnrun_model_note(inspect->model, i, &pass, &node, &why));
        screen_line(i == 0 ? "left" : "", TITLE, "%s at %s: %s", pass, tool_quote(node),
                    why);
    }
    return ATTNRUN_OK;
}

static void print_ops(const struct inspect *inspect)
{
    for (int64_t i = 0; i < inspect->ops.n; i++) {
        const struct op_count *op = &inspect->ops.v[i];
        const char *domain = op->domain[0] == 0 ? "" : tool_quote(op->domain);
        printf("  %6" PRId64 "  %s%s%s-%d", op->n, domain, domain[0] != 0 ? "." : "",
               tool_quote(op->op_type), op->opset);
        if (op->coverage != ATTNRUN_NATIVE || op->function[0] != 0)
            printf("  %s", coverage_names[op->coverage]);
        if (op->function[0] != 0)
            printf(" of %s", tool_quote(op->function));
        putchar('\n');
    }
}

/* Levels of graphs within graphs are shown by two columns each, as far as there is room. */
static int indent_of(const struct inspect_graph *graph)
{
    const int level = graph->depth - 1;
    return TITLE + 2 * (level < 12 ? level : 12);
}

/* "then_branch of If 'x'" */
static void add_place(struct line *line, const struct inspect_graph *graph)
{
    line_add(line, "%s of %s", tool_quote(graph->attribute), tool_quote(graph->op_type));
    if (graph->node[0] != 0)
        line_add(line, " '%s'", tool_quote(graph->node));
}

/* The graphs within nodes as a tree, and the operators of each. */
static void print_subgraphs(const struct inspect *inspect)
{
    for (int32_t g = 1; g < inspect->n_graphs; g++) {
        const struct inspect_graph *graph = &inspect->graphs[g];
        struct line line = { .n = 0 };
        add_place(&line, graph);
        line_add(&line, ":  %s", tool_plural(graph->info.n_nodes, "node"));
        screen_text(g == 1 ? "subgraphs" : "", indent_of(graph), line.text);
        line.n = 0;
        for (int64_t i = 0; i < graph->ops.n; i++) {
            const struct op_count *op = &graph->ops.v[i];
            line_add(&line, "%s%" PRId64 " %s", i > 0 ? "  " : "", op->n,
                     tool_quote(op->op_type));
        }
        if (graph->ops.n > 0)
            screen_text("", indent_of(graph) + 2, line.text);
    }
}

attnrun_status inspect_print(const struct inspect *inspect)
{
    const attnrun_model_info *info = &inspect->info;
    screen_text("model", TITLE, text_file_name(inspect->path));
    if (info->producer[0] != 0)
        screen_text("producer", TITLE, text_producer(info));
    if (info->graph_name[0] != 0)
        screen_text("graph", TITLE, tool_quote(info->graph_name));
    if (info->doc[0] != 0)
        screen_text("doc", TITLE, tool_quote(info->doc));
    screen_line("format", TITLE, "IR %" PRId64 ", opsets %s", info->ir_version,
                text_opsets(inspect->model, info));
    screen_line("weights", TITLE, "%s parameters, %s; files %s",
                text_count(info->n_parameters), tool_plural(info->weights_bytes, "byte"),
                tool_plural(info->file_bytes, "byte"));
    if (strcmp(info->precision, "f32") != 0)
        screen_text("precision", TITLE, info->precision);
    TRY(print_metadata(inspect));
    TRY(print_values(inspect, "inputs", info->n_inputs, attnrun_model_input));
    TRY(print_values(inspect, "outputs", info->n_outputs, attnrun_model_output));
    TRY(print_passes(inspect));
    TRY(print_notes(inspect));
    char inner[64] = "";
    if (inspect->n_graphs > 1)
        snprintf(inner, sizeof inner, ", %" PRId64 " in %s", inspect->n_inner,
                 tool_plural(inspect->n_graphs - 1, "subgraph"));
    screen_line("nodes", TITLE,
                "%d in the file, %d after rewriting%s: %" PRId64 " native, %" PRId64
                " by function body, %" PRId64 " missing",
                info->n_file_nodes, info->n_nodes, inner, inspect->coverage[0],
                inspect->coverage[1], inspect->coverage[2]);
    print_ops(inspect);
    print_subgraphs(inspect);
    return ATTNRUN_OK;
}

void inspect_print_coverage(const struct inspect *inspect)
{
    printf("%" PRId64 " native, %" PRId64 " by function body, %" PRId64 " missing\n",
           inspect->coverage[0], inspect->coverage[1], inspect->coverage[2]);
    for (int32_t c = ATTNRUN_MISSING; c >= ATTNRUN_NATIVE; c--)
        for (int64_t i = 0; i < inspect->ops.n; i++) {
            const struct op_count *op = &inspect->ops.v[i];
            if (op->coverage != c)
                continue;
            printf("%-8s %6" PRId64 "  %s%s%s-%d", coverage_names[c], op->n,
                   tool_quote(op->domain), op->domain[0] != 0 ? "." : "",
                   tool_quote(op->op_type), op->opset);
            if (op->function[0] != 0)
                printf("  in %s", tool_quote(op->function));
            putchar('\n');
        }
}

static void inspect_add_node(struct line *line, const attnrun_graph *graph,
                             const attnrun_node_info *node)
{
    line_add(line, "%s %s:", tool_quote(node->op_type), tool_quote(node->name));
    for (int32_t k = 0; k < node->n_inputs; k++)
        line_add(line, " %s",
                 node->inputs[k][0] != 0 ? tool_quote(node->inputs[k]) : "-");
    line_add(line, " ->");
    for (int32_t k = 0; k < node->n_outputs; k++) {
        attnrun_value_info info = { .struct_size = sizeof info };
        line_add(line, " %s",
                 node->outputs[k][0] != 0 ? tool_quote(node->outputs[k]) : "-");
        if (node->outputs[k][0] == 0 ||
            attnrun_graph_value(graph, node->outputs[k], &info) != ATTNRUN_OK ||
            info.kind == ATTNRUN_ABSENT)
            continue;
        line_add(line, " ");
        add_type(line, &info);
    }
}

/* The nodes of the main graph, then those of each graph within a node. */
attnrun_status inspect_print_layers(const struct inspect *inspect)
{
    for (int32_t g = 0; g < inspect->n_graphs; g++) {
        const struct inspect_graph *graph = &inspect->graphs[g];
        const int indent = g > 0 ? indent_of(graph) - TITLE + 2 : 0;
        if (g > 0) {
            struct line place = { .n = 0 };
            add_place(&place, graph);
            screen_text("", indent - 2, place.text);
        }
        for (int32_t i = 0; i < graph->info.n_nodes; i++) {
            attnrun_node_info node = { .struct_size = sizeof node };
            TRY_LIB(attnrun_graph_node(graph->graph, i, &node));
            struct line line = { .n = 0 };
            char number[64];
            snprintf(number, sizeof number, "%*s%5d", indent, "", i);
            inspect_add_node(&line, graph->graph, &node);
            screen_text(number, indent + 6, line.text);
        }
    }
    return ATTNRUN_OK;
}

static void print_weight(void *user, const attnrun_value_info *info)
{
    (void)user;
    printf("%14" PRId64 "  %s %s\n", attnrun_tensor_bytes(info->constant),
           value_shape(info->constant), tool_quote(info->name));
}

attnrun_status inspect_print_weights(const struct inspect *inspect)
{
    return inspect_weights(inspect, print_weight, NULL);
}
