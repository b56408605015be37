/* profile.h - time of each operator in a run. */
#ifndef TOOL_PROFILE_H
#define TOOL_PROFILE_H

#include "../io/json.h"

struct profile_row {
    char op_type[64];
    int64_t calls;
    double us;
    char slowest[80]; /* node */
    double slowest_us;
};
struct profile {
    struct profile_row *rows;
    int64_t n, capacity;
    double us;
};
/* For attnrun_run_options.on_step; `user` is the profile. */
void profile_step(void *user, int32_t node_index, const char *name, const char *op_type,
                  double microseconds);
void profile_print(const struct profile *profile);
void profile_json(const struct profile *profile, struct json *json);
void profile_free(struct profile *profile);

#endif
