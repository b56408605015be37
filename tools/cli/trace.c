/* trace.c - which table the values of an input index, so that made-up token ids lie in the
 * vocabulary. Not for models of so many inputs and nodes that this takes long.
 *
 * In: the name of an input. Out: the smallest table that a Gather reads by it, its name and rows,
 * also behind operators that only move or select values. Cost: a pass over the nodes. */
#include <string.h>

#include "inputs.h"
#include "name_set.h"

/* Nodes that are looked at, for all inputs together. */
#define MAX_LOOKS (INT64_C(1) << 22)

struct trace {
    const struct inputs *inputs;
    struct name_set names; /* values that hold elements of the input */
    int64_t rows;
    char *table;
    size_t table_bytes;
    bool failed; /* there was no memory for a name */
};

static bool carries(const struct trace *trace, const char *name)
{
    return name[0] != 0 && name_set_has(&trace->names, name, NULL);
}

static void add_name(struct trace *trace, const char *name)
{
    if (name[0] != 0 && !name_set_add(&trace->names, name, NULL))
        trace->failed = true;
}

/* Which inputs of an operator come out unchanged: bits, 0 for an operator that computes.
 */
static uint32_t passes(const char *op_type)
{
    static const struct {
        const char *op_type;
        uint32_t inputs;
    } rules[] = {
        { "Cast", 1 },     { "CastLike", 1 },  { "Identity", 1 }, { "Reshape", 1 },
        { "Squeeze", 1 },  { "Unsqueeze", 1 }, { "Flatten", 1 },  { "Transpose", 1 },
        { "Slice", 1 },    { "Split", 1 },     { "Expand", 1 },   { "Tile", 1 },
        { "Clip", 1 },     { "Pad", 1 },       { "Gather", 1 },   { "Where", 6 },
        { "Concat", ~0u }, { "Max", ~0u },     { "Min", ~0u },    { "Trilu", 1 },
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strcmp(rules[i].op_type, op_type) == 0)
            return rules[i].inputs;
    return 0;
}

/* `data` is a table of constant size: its rows bound the indices. */
static void see_table(struct trace *trace, const char *data)
{
    attnrun_value_info info = { .struct_size = sizeof info };
    if (attnrun_model_value(trace->inputs->model, data, &info) != ATTNRUN_OK ||
        info.rank < 1)
        return;
    bool fixed = info.constant != NULL || info.rank == 2;
    for (int32_t d = 0; d < info.rank; d++)
        fixed = fixed && info.dims[d] >= 0;
    if (!fixed || info.dims[0] < 1 || (trace->rows != 0 && trace->rows <= info.dims[0]))
        return;
    trace->rows = info.dims[0];
    snprintf(trace->table, trace->table_bytes, "%s", tool_quote(data));
}

static void see_depth(struct trace *trace, const char *depth)
{
    attnrun_value_info info = { .struct_size = sizeof info };
    if (attnrun_model_value(trace->inputs->model, depth, &info) != ATTNRUN_OK ||
        info.constant == NULL || attnrun_tensor_count(info.constant) != 1)
        return;
    double rows = value_get(info.constant, 0);
    if (rows >= 1 && rows < 1e15 && (trace->rows == 0 || (double)trace->rows > rows)) {
        trace->rows = (int64_t)rows;
        snprintf(trace->table, trace->table_bytes, "%s", tool_quote(depth));
    }
}

static void see_node(struct trace *trace, const attnrun_node_info *node)
{
    uint32_t pass = passes(node->op_type);
    bool through = false;
    for (int32_t i = 0; i < node->n_inputs; i++)
        if (i < 32 && carries(trace, node->inputs[i]))
            through = through || (pass >> i & 1) != 0;
    for (int32_t i = 0; through && i < node->n_outputs; i++)
        add_name(trace, node->outputs[i]);
    if (node->n_inputs >= 2 && strncmp(node->op_type, "Gather", 6) == 0 &&
        strcmp(node->op_type, "GatherElements") != 0 && carries(trace, node->inputs[1]))
        see_table(trace, node->inputs[0]);
    if (node->n_inputs >= 2 && strcmp(node->op_type, "OneHot") == 0 &&
        carries(trace, node->inputs[0]))
        see_depth(trace, node->inputs[1]);
    if (strcmp(node->op_type, "EmbedLayerNormalization") == 0 && node->n_inputs >= 5) {
        if (carries(trace, node->inputs[0]))
            see_table(trace, node->inputs[2]);
        if (carries(trace, node->inputs[1]))
            see_table(trace, node->inputs[4]);
    }
}

attnrun_status trace_table_rows(const struct inputs *inputs, const char *name,
                                int64_t *rows, char *table, size_t bytes)
{
    struct trace trace = { .inputs = inputs, .table = table, .table_bytes = bytes };
    const int64_t n = inputs->model_info.n_nodes;
    add_name(&trace, name);
    for (int32_t i = 0; i < n && n * inputs->n <= MAX_LOOKS; i++) {
        attnrun_node_info node = { .struct_size = sizeof node };
        if (attnrun_model_node(inputs->model, i, &node) == ATTNRUN_OK)
            see_node(&trace, &node);
    }
    name_set_free(&trace.names);
    *rows = trace.rows;
    return trace.failed ? tool_fail(ATTNRUN_E_MEMORY, "no memory for the names of values")
                        : ATTNRUN_OK;
}
