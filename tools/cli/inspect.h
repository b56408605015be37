/* inspect.h - what attnrun inspect gathers of a model (inspect.c), and the two forms in which
 * it is shown: for people (inspect_print.c) and as JSON (inspect_json.c). */
#ifndef TOOL_INSPECT_H
#define TOOL_INSPECT_H

#include "cli.h"

struct op_count {
    const char *op_type, *domain, *function;
    int32_t opset, coverage;
    int64_t n;
};
/* Operators, the most frequent first. */
struct op_counts {
    struct op_count *v;
    int64_t n, capacity;
};

/* The main graph, and each graph within a node of another one, which comes before it. */
struct inspect_graph {
    const attnrun_graph *graph;
    attnrun_graph_info info;
    int32_t outer, depth; /* the graph around it; -1 and 0: the main graph */
    int32_t node_index;   /* in that graph: what it is within */
    const char *node, *op_type, *attribute;
    struct op_counts ops;
};

struct inspect {
    struct cli *cli;
    const char *path;
    attnrun_model *model;
    attnrun_model_info info;
    struct inspect_graph *graphs;
    int32_t n_graphs;
    struct op_counts ops; /* of all graphs, as the next two */
    int64_t coverage[3];  /* nodes: native, body, missing */
    int64_t n_inner;      /* nodes that are not of the main graph */
};

typedef void weight_visit(void *user, const attnrun_value_info *info);
attnrun_status inspect_weights(const struct inspect *inspect, weight_visit *visit,
                               void *user);

/* ---- inspect_print.c ---- */
attnrun_status inspect_print(const struct inspect *inspect);
void inspect_print_coverage(const struct inspect *inspect);
attnrun_status inspect_print_layers(const struct inspect *inspect);
attnrun_status inspect_print_weights(const struct inspect *inspect);
/* ---- inspect_json.c ---- */
attnrun_status inspect_json(const struct inspect *inspect);

#endif
