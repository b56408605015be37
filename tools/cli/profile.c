/* profile.c - time of each operator in a run, summed by operator type; see profile.h. In: the
 * nodes of a run as they end, with bytes and operations. Out: a table, the largest sum first, or
 * JSON. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "profile.h"
#include "screen.h"

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

void profile_node(struct profile *profile, const attnrun_node_profile *node)
{
    const double us = (double)node->ns / 1e3;
    struct profile_row *row = find_row(profile, node->op_type);
    profile->us += us;
    if (row == NULL)
        return;
    row->calls++;
    row->us += us;
    row->bytes += (double)node->read_bytes + (double)node->written_bytes;
    if (node->flops >= 0) {
        row->flops += (double)node->flops;
        row->known_us += us;
    }
    if (node->n_threads > row->threads)
        row->threads = node->n_threads;
    if (us <= row->slowest_us)
        return;
    row->slowest_us = us;
    if (node->name[0] != 0)
        snprintf(row->slowest, sizeof row->slowest, "%.79s", node->name);
    else
        snprintf(row->slowest, sizeof row->slowest, "#%d", node->node_index);
}

/* In 1e9 a second; "-" where nothing is known. */
static const char *rate(double amount, double us, char *text, size_t bytes)
{
    if (amount > 0 && us > 0)
        snprintf(text, bytes, "%.1f", amount / us / 1e3);
    else
        snprintf(text, bytes, "-");
    return text;
}

enum { TEXT_COLUMN = 53 };

static int by_time(const void *a, const void *b)
{
    double x = ((const struct profile_row *)a)->us,
           y = ((const struct profile_row *)b)->us;
    return (x < y) - (x > y);
}

void profile_print(const struct profile *profile)
{
    qsort(profile->rows, (size_t)profile->n, sizeof *profile->rows, by_time);
    printf("%10s %7s %6s %8s %8s %7s  %s\n", "ms", "share", "calls", "GFLOP/s", "GB/s",
           "threads", "operator, slowest node");
    for (int64_t i = 0; i < profile->n; i++) {
        const struct profile_row *row = &profile->rows[i];
        char flops[24], bytes[24], numbers[TEXT_COLUMN + 64];
        snprintf(numbers, sizeof numbers, "%10.3f %6.1f%% %6" PRId64 " %8s %8s %7d",
                 row->us / 1e3, profile->us > 0 ? 100 * row->us / profile->us : 0,
                 row->calls, rate(row->flops, row->known_us, flops, sizeof flops),
                 rate(row->bytes, row->us, bytes, sizeof bytes), row->threads);
        screen_line(numbers, TEXT_COLUMN, "%s  %s (%.3f ms)", tool_quote(row->op_type),
                    tool_quote(row->slowest), row->slowest_us / 1e3);
    }
    printf("%10.3f %6.1f%%  in all\n\n", profile->us / 1e3, 100.0);
}

void profile_json(const struct profile *profile, struct json *json)
{
    json_open(json, "profile", '[');
    for (int64_t i = 0; i < profile->n; i++) {
        const struct profile_row *row = &profile->rows[i];
        json_open(json, NULL, '{');
        json_text(json, "op_type", row->op_type);
        json_int(json, "calls", row->calls);
        json_ms(json, "total_ms", row->us / 1e3);
        if (row->known_us > 0)
            json_int(json, "flops", (int64_t)row->flops);
        json_int(json, "bytes", (int64_t)row->bytes);
        json_int(json, "threads", row->threads);
        json_text(json, "slowest", row->slowest);
        json_ms(json, "slowest_ms", row->slowest_us / 1e3);
        json_close(json, '}');
    }
    json_close(json, ']');
}

void profile_free(struct profile *profile)
{
    free(profile->rows);
    memset(profile, 0, sizeof *profile);
}
