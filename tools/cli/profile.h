/* profile.h - time of each operator in a run. */
#ifndef TOOL_PROFILE_H
#define TOOL_PROFILE_H

#include "../io/json.h"

struct profile_row {
    char op_type[64];
    int64_t calls;
    double us;
    double flops,
        known_us;     /* stated operations, and the time of the nodes that state them */
    double bytes;     /* read and written */
    int32_t threads;  /* max of a node */
    char slowest[80]; /* node */
    double slowest_us;
};
struct profile {
    struct profile_row *rows;
    int64_t n, capacity;
    double us;
};
/* For attnrun_run_options.on_node. */
void profile_node(struct profile *profile, const attnrun_node_profile *node);
void profile_print(const struct profile *profile);
void profile_json(const struct profile *profile, struct json *json);
void profile_free(struct profile *profile);

#endif
