/* profile.c - time of each operator in a run, summed by operator type; see profile.h. In: the
 * steps of a run as they end. Out: a table, the largest sum first, or JSON. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "profile.h"

static struct profile_row *find_row(struct profile *profile, const char *op_type)
{
    for (int64_t i = 0; i < profile->n; i++)
        if (strncmp(profile->rows[i].op_type, op_type,
                    sizeof profile->rows[i].op_type - 1) == 0)
            return &profile->rows[i];
    if (profile->n == profile->capacity) {
        int64_t capacity = profile->capacity * 2 + 32;
        struct profile_row *rows =
            realloc(profile->rows, (size_t)capacity * sizeof *rows);
        if (rows == NULL)
            return NULL;
        profile->rows = rows;
        profile->capacity = capacity;
    }
    struct profile_row *row = &profile->rows[profile->n++];
    memset(row, 0, sizeof *row);
    snprintf(row->op_type, sizeof row->op_type, "%s", op_type);
    return row;
}

void profile_step(void *user, int32_t node_index, const char *name, const char *op_type,
                  double microseconds)
{
    struct profile *profile = user;
    struct profile_row *row = find_row(profile, op_type);
    profile->us += microseconds;
    if (row == NULL)
        return;
    row->calls++;
    row->us += microseconds;
    if (microseconds <= row->slowest_us)
        return;
    row->slowest_us = microseconds;
    if (name[0] != 0)
        snprintf(row->slowest, sizeof row->slowest, "%.79s", name);
    else
        snprintf(row->slowest, sizeof row->slowest, "#%d", node_index);
}

static int by_time(const void *a, const void *b)
{
    double x = ((const struct profile_row *)a)->us,
           y = ((const struct profile_row *)b)->us;
    return (x < y) - (x > y);
}

void profile_print(const struct profile *profile)
{
    qsort(profile->rows, (size_t)profile->n, sizeof *profile->rows, by_time);
    printf("%-28s %8s %12s %7s  %s\n", "operator", "calls", "ms", "share",
           "slowest node");
    for (int64_t i = 0; i < profile->n; i++) {
        const struct profile_row *row = &profile->rows[i];
        printf("%-28s %8" PRId64 " %12.3f %6.1f%%  %s (%.3f ms)\n",
               tool_quote(row->op_type), row->calls, row->us / 1e3,
               profile->us > 0 ? 100 * row->us / profile->us : 0,
               tool_quote(row->slowest), row->slowest_us / 1e3);
    }
    printf("%-28s %8s %12.3f\n\n", "all", "", profile->us / 1e3);
}

void profile_json(const struct profile *profile, struct json *json)
{
    json_open(json, "profile", '[');
    for (int64_t i = 0; i < profile->n; i++) {
        const struct profile_row *row = &profile->rows[i];
        json_open(json, NULL, '{');
        json_text(json, "op_type", row->op_type);
        json_int(json, "calls", row->calls);
        json_real(json, "total_ms", row->us / 1e3);
        json_text(json, "slowest", row->slowest);
        json_real(json, "slowest_ms", row->slowest_us / 1e3);
        json_close(json, '}');
    }
    json_close(json, ']');
}

void profile_free(struct profile *profile)
{
    free(profile->rows);
    memset(profile, 0, sizeof *profile);
}
