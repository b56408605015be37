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
struct inspect {
    struct cli *cli;
    const char *path;
    attnrun_model *model;
    attnrun_model_info info;
    struct op_count *ops; /* most frequent first */
    int64_t n_ops;
    int64_t coverage[3]; /* nodes: native, body, missing */
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
