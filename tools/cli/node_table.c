/* node_table.c - the nodes of a few runs: time, operations, bytes, and how near they come to what
 * the machine can do.
 *
 * In: a job that has run. Out: a row a node in the order of execution, as JSON, or a table of
 * those that take longest. Bytes are those of the operands, each once: a node whose operands lie
 * in cache may pass the bandwidth of memory. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "screen.h"

enum { TABLE_ROWS = 20, TABLE_RUNS = 5, TABLE_MS = 1000 };

struct node_row {
    int32_t index, threads;
    double ms;
    int64_t flops, read_bytes, written_bytes; /* flops -1: not known */
    char *name, *op_type;
};

static void table_add_node(void *user, const attnrun_node_profile *node)
{
    struct node_table *table = user;
    if (table->n == table->capacity) {
        const int64_t capacity = table->capacity * 2 + 64;
        struct node_row *rows = realloc(table->rows, (size_t)capacity * sizeof *rows);
        table->failed = table->failed || rows == NULL;
        if (rows == NULL)
            return;
        table->rows = rows;
        table->capacity = capacity;
    }
    struct node_row *row = &table->rows[table->n++];
    *row = (struct node_row){ .index = node->node_index,
                              .threads = node->n_threads,
                              .ms = (double)node->ns / 1e6,
                              .flops = node->flops,
                              .read_bytes = node->read_bytes,
                              .written_bytes = node->written_bytes,
                              .name = strdup(node->name),
                              .op_type = strdup(node->op_type) };
    table->failed = table->failed || row->name == NULL || row->op_type == NULL;
}

/* Another process may take the CPU during a node of one run, but hardly during the same node of
 * each. Where data makes a run compute other nodes, the rest of it does not count. */
static void table_time_node(void *user, const attnrun_node_profile *node)
{
    struct node_table *table = user;
    struct node_row *row = table->at < table->n ? &table->rows[table->at++] : NULL;
    const double ms = (double)node->ns / 1e6;
    if (row == NULL || row->index != node->node_index)
        table->at = table->n;
    else if (ms < row->ms)
        row->ms = ms;
}

attnrun_status node_table_run(struct job *job, struct node_table *table)
{
    const double start = cli_now_ms();
    attnrun_run_options options = { .struct_size = sizeof options,
                                    .on_node = table_add_node,
                                    .profile_user = table };
    for (int i = 0; i < TABLE_RUNS && (i == 0 || cli_now_ms() - start < TABLE_MS); i++) {
        table->at = 0;
        TRY(cli_run_context(job->cli, job->context, &options));
        if (table->failed)
            return tool_fail(ATTNRUN_E_MEMORY, "no memory for the figures of the nodes");
        TRY(states_rewind(job, job->context));
        options.on_node = table_time_node;
    }
    table->ms = 0;
    for (int64_t i = 0; i < table->n; i++)
        table->ms += table->rows[i].ms;
    return ATTNRUN_OK;
}

static int by_time(const void *a, const void *b)
{
    const struct node_row *x = a, *y = b;
    return (x->ms < y->ms) - (x->ms > y->ms);
}

/* "12.3" percent of what could be; "-" where one of the two is not known. */
static const char *share_of(double rate, double best, char *text, size_t bytes)
{
    if (rate > 0 && best > 0)
        snprintf(text, bytes, "%.1f%%", 100 * rate / best);
    else
        snprintf(text, bytes, "-");
    return text;
}

/* Names of one model begin alike and end apart: a very long one is cut at its beginning. */
static const char *row_end(const char *name)
{
    enum { NAME_BYTES = 200 };
    const size_t n = strlen(name);
    const char *at = n > NAME_BYTES ? name + n - NAME_BYTES : name;
    while ((*at & 0xc0) == 0x80) /* not the first byte of a character */
        at++;
    return at;
}

enum { NODE_COLUMN = 55 };

void node_table_print(const struct node_table *table, double peak_gflops, double read_gbs)
{
    struct node_row *rows = calloc((size_t)table->n + 1, sizeof *rows);
    if (rows == NULL)
        return;
    memcpy(rows, table->rows, (size_t)table->n * sizeof *rows);
    qsort(rows, (size_t)table->n, sizeof *rows, by_time);
    printf("\n%10s %6s %9s %7s %9s %7s  %s\n", "time", "share", "GFLOP", "of peak",
           "bytes", "of read", "node");
    for (int64_t i = 0; i < table->n && i < TABLE_ROWS; i++) {
        const struct node_row *r = &rows[i];
        const double moved = (double)(r->read_bytes + r->written_bytes);
        char flops[24] = "-", peak[24], read[24], numbers[NODE_COLUMN + 64];
        if (r->flops >= 0)
            snprintf(flops, sizeof flops, "%.3g", (double)r->flops / 1e9);
        snprintf(numbers, sizeof numbers, "%10s %5.1f%% %9s %7s %9s %7s", text_ms(r->ms),
                 table->ms > 0 ? 100 * r->ms / table->ms : 0, flops,
                 share_of((double)r->flops / r->ms / 1e6, peak_gflops, peak, sizeof peak),
                 text_bytes((int64_t)moved),
                 share_of(moved / r->ms / 1e6, read_gbs, read, sizeof read));
        screen_line(numbers, NODE_COLUMN, "%s %s", tool_quote(r->op_type),
                    tool_path(row_end(r->name)));
    }
    if (table->n > TABLE_ROWS)
        printf("%10s %s with shorter times; --json lists all\n", "and",
               tool_plural(table->n - TABLE_ROWS, "node"));
    free(rows);
}

void node_table_json(const struct node_table *table, struct json *json)
{
    json_open(json, "nodes", '[');
    for (int64_t i = 0; i < table->n; i++) {
        const struct node_row *row = &table->rows[i];
        json_open(json, NULL, '{');
        json_int(json, "index", row->index);
        json_text(json, "name", row->name);
        json_text(json, "op_type", row->op_type);
        json_ms(json, "time_ms", row->ms);
        if (row->flops >= 0)
            json_int(json, "flops", row->flops);
        json_int(json, "read_bytes", row->read_bytes);
        json_int(json, "written_bytes", row->written_bytes);
        json_int(json, "threads", row->threads);
        json_close(json, '}');
    }
    json_close(json, ']');
}

void node_table_free(struct node_table *table)
{
    for (int64_t i = 0; i < table->n; i++) {
        free(table->rows[i].name);
        free(table->rows[i].op_type);
    }
    free(table->rows);
    *table = (struct node_table){ 0 };
}
