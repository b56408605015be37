/* compare_reduce.c - the smallest part of a model that still differs between the two ways of
 * attnrun compare.
 *
 * In: a comparison with all values that both ways compute, in which one differs. Out: the part
 * that ends at the first of them that differs, as a model, and its inputs beside it as npz.
 *
 * The part begins at values that both ways compute and that are the same still. It takes 1,
 * 2, 4, ... steps back from its end, a step being from a value to those that it is made of,
 * until it differs by itself; then the smallest such number of steps is looked for. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../io/npz.h"
#include "edit.h"
#include "versus.h"

struct reducer {
    struct cli *cli;
    struct versus *versus;
    attnrun_model *model; /* with the nodes of the file */
    attnrun_model_info info;
    int32_t *seen; /* of each node: the round that has met it */
    struct list cut, next;
    char folder[32], part[64], other[64], values[64];
    int64_t n_nodes; /* of the part that was written last */
};

/* ---- where a part begins ---- */

static bool is_listed(const struct list *list, const char *name)
{
    for (int64_t i = 0; i < list->n; i++)
        if (strcmp(list->v[i], name) == 0)
            return true;
    return false;
}

/* Whether both ways have the value, and a file can hold it, so that a part can begin there. */
static bool is_common(const struct reducer *r, const char *name)
{
    const attnrun_model *model = r->versus->job.model;
    attnrun_value_info info = { .struct_size = sizeof info };
    return attnrun_model_find_input(model, name) >= 0 ||
           (is_listed(&r->versus->names, name) &&
            attnrun_model_output(model, attnrun_model_find_output(model, name), &info) ==
                ATTNRUN_OK &&
            info.kind == ATTNRUN_TENSOR);
}

static int32_t producer_of(const struct reducer *r, const char *name,
                           attnrun_node_info *node)
{
    for (int32_t i = 0; i < r->info.n_nodes; i++) {
        *node = (attnrun_node_info){ .struct_size = sizeof *node };
        if (attnrun_model_node(r->model, i, node) != ATTNRUN_OK)
            continue;
        for (int32_t k = 0; k < node->n_outputs; k++)
            if (strcmp(node->outputs[k], name) == 0)
                return i;
    }
    return -1;
}

/* A value that a node reads goes to `next` if both ways have it, else to `open`. */
static attnrun_status add_read(struct reducer *r, const char *name, struct list *open)
{
    if (name[0] == 0 || is_listed(&r->next, name) || is_listed(open, name))
        return ATTNRUN_OK;
    return list_add(is_common(r, name) ? &r->next : open, name);
}

/* What a node reads, and what the nodes of its subgraphs do, which names of values of the main
 * graph are, too. The limit of nested subgraphs bounds the recursion. */
static attnrun_status add_all_read(struct reducer *r, const attnrun_graph *graph,
                                   int32_t index, struct list *open)
{
    attnrun_node_info node = { .struct_size = sizeof node };
    TRY_LIB(attnrun_graph_node(graph, index, &node));
    for (int32_t k = 0; k < node.n_inputs; k++)
        TRY(add_read(r, node.inputs[k], open));
    for (int32_t g = 0; g < node.n_graphs; g++) {
        attnrun_graph_info info = { .struct_size = sizeof info };
        const attnrun_graph *inner;
        const char *attribute;
        TRY_LIB(attnrun_subgraph(graph, index, g, &attribute, &inner));
        TRY_LIB(attnrun_graph_query(inner, &info));
        for (int32_t n = 0; n < info.n_nodes; n++)
            TRY(add_all_read(r, inner, n, open));
    }
    return ATTNRUN_OK;
}

/* The values that `name` is made of and that both ways have go to `next`, through nodes whose
 * values only one of them has. A name without a node is an input or a constant. */
static attnrun_status step_back(struct reducer *r, const char *name)
{
    struct list open = { 0 };
    attnrun_node_info node;
    const attnrun_graph *graph;
    TRY_LIB(attnrun_model_graph(r->model, &graph));
    attnrun_status status = list_add(&open, name);
    for (int64_t t = 0; t < open.n && status == ATTNRUN_OK; t++) {
        const int32_t at = producer_of(r, open.v[t], &node);
        if (at < 0 && attnrun_model_find_input(r->model, open.v[t]) >= 0 &&
            !is_listed(&r->next, open.v[t]))
            status = list_add(&r->next, open.v[t]);
        if (at < 0 || r->seen[at])
            continue;
        r->seen[at] = 1;
        status = add_all_read(r, graph, at, &open);
    }
    free(open.v);
    return status;
}

/* Where a part of so many steps begins; *whole: it is no larger with more. */
static attnrun_status find_cut(struct reducer *r, const char *end, int64_t steps,
                               bool *whole)
{
    memset(r->seen, 0, (size_t)r->info.n_nodes * sizeof *r->seen);
    r->next.n = 0;
    TRY(step_back(r, end));
    *whole = true;
    for (int64_t s = 1; s <= steps; s++) {
        struct list swap = r->cut;
        r->cut = r->next;
        r->next = swap;
        r->next.n = 0;
        if (s == steps)
            break;
        for (int64_t i = 0; i < r->cut.n; i++)
            TRY(step_back(r, r->cut.v[i]));
    }
    for (int64_t i = 0; i < r->cut.n; i++)
        *whole = *whole && attnrun_model_find_input(r->model, r->cut.v[i]) >= 0;
    return ATTNRUN_OK;
}

/* ---- a part and its inputs ---- */

static attnrun_status add_value(struct reducer *r, struct zip_writer *zip,
                                const char *name)
{
    struct job *job = &r->versus->job;
    for (int32_t i = 0; i < job->inputs.n; i++)
        if (strcmp(job->inputs.v[i].info.name, name) == 0)
            return npz_add(zip, name, &job->inputs.v[i].held.tensor);
    attnrun_tensor tensor;
    struct held copy;
    TRY(output_dense(job, attnrun_model_find_output(job->model, name), &tensor, &copy));
    attnrun_status status = npz_add(zip, name, &tensor);
    held_free(&copy);
    return status;
}

static attnrun_status write_values(struct reducer *r, const char *path)
{
    struct zip_writer zip;
    TRY(zip_create(&zip, path));
    attnrun_status status = ATTNRUN_OK;
    for (int64_t i = 0; i < r->cut.n && status == ATTNRUN_OK; i++)
        status = add_value(r, &zip, r->cut.v[i]);
    if (status == ATTNRUN_OK)
        return zip_commit(&zip);
    zip_abandon(&zip);
    return status;
}

static attnrun_status write_part(struct reducer *r, const char *end, const char *from,
                                 const char *path)
{
    attnrun_onnx_saved saved = { .struct_size = sizeof saved };
    struct edit edit = { .inputs = r->cut };
    TRY(list_add(&edit.outputs, end));
    attnrun_status status = edit_write(r->cli, from, &edit, path, &saved);
    free(edit.outputs.v);
    r->n_nodes = saved.n_nodes;
    return status;
}

/* Whether the part differs by itself. One that does not run does not. */
static attnrun_status try_part(struct reducer *r, const char *end, bool *differs)
{
    const struct side *other = &r->versus->other;
    const char *part = r->part, *values = r->values;
    const bool files = strcmp(other->path, r->versus->job.path) != 0;
    TRY(write_part(r, end, r->versus->job.path, r->part));
    if (files)
        TRY(write_part(r, end, other->path, r->other));
    TRY(write_values(r, r->values));
    struct cli cli = *r->cli;
    cli.sets = cli.shapes = cli.fixed = cli.outputs = cli.owned = (struct list){ 0 };
    cli.paths = (struct list){ &part, 1, 1 };
    cli.inputs = (struct list){ &values, 1, 1 };
    cli.inputs_dir = NULL;
    cli.with = files ? r->other : r->cli->with;
    cli.per_node = 0;
    struct versus trial = { .n_missing = 0 };
    attnrun_status status = versus_run(&trial, &cli);
    *differs = status == ATTNRUN_OK && trial.failed > 0;
    versus_free(&trial);
    for (int64_t i = 0; i < cli.owned.n; i++)
        free((char *)(uintptr_t)cli.owned.v[i]);
    free(cli.owned.v);
    return cli_signal() != 0 ? status : ATTNRUN_OK;
}

/* ---- the search ---- */

static attnrun_status search(struct reducer *r, const char *end, bool *found)
{
    int64_t low = 0, high = 1; /* low: does not differ, or was not tried */
    bool whole = false, differs = false;
    for (;; high *= 2) {
        TRY(find_cut(r, end, high, &whole));
        TRY(try_part(r, end, &differs));
        progress_show(high, 0, "reducing");
        if (differs || whole)
            break;
        low = high;
    }
    *found = differs;
    while (differs && high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        bool smaller = false;
        TRY(find_cut(r, end, middle, &whole));
        TRY(try_part(r, end, &smaller));
        if (smaller)
            high = middle;
        else
            low = middle;
    }
    return differs ? find_cut(r, end, high, &whole) : ATTNRUN_OK;
}

/* "part.npz" for part.onnx. */
static attnrun_status path_beside(const char *path, const char *extension, char *beside,
                                  size_t bytes)
{
    const size_t n = strlen(path) - (file_has_extension(path, ".onnx") ? 5 : 0);
    if (snprintf(beside, bytes, "%.*s%s", (int)n, path, extension) >= (int)bytes)
        return tool_fail(ATTNRUN_E_IO, "the path has more than %zu bytes", bytes - 1);
    return ATTNRUN_OK;
}

static attnrun_status check_writable(const struct cli *cli, const char *path)
{
    struct output_file file;
    if (file_is_special(path))
        return ATTNRUN_OK; /* to open it is to write it */
    if (cli_reads(cli, path))
        return tool_fail(ATTNRUN_E_USAGE,
                         "--reduce %s would replace %s, which is read: name another file",
                         tool_path(cli->reduce), tool_path(path));
    TRY(output_file_open(&file, path));
    output_file_abandon(&file);
    return ATTNRUN_OK;
}

attnrun_status versus_reduce_check(const struct cli *cli)
{
    char values[sizeof((struct versus *)0)->values_path], other[sizeof values];
    if (file_is_special(cli->reduce))
        return tool_fail(ATTNRUN_E_USAGE,
                         "--reduce: %s is not a file, so no file can be beside it",
                         tool_path(cli->reduce));
    TRY(path_beside(cli->reduce, ".npz", values, sizeof values));
    TRY(path_beside(cli->reduce, ".other.onnx", other, sizeof other));
    TRY(check_writable(cli, cli->reduce));
    TRY(check_writable(cli, values));
    return file_exists(cli->with) ? check_writable(cli, other) : ATTNRUN_OK;
}

static attnrun_status reduce_in(struct reducer *r, const char *end)
{
    struct versus *v = r->versus;
    const char *const files[] = { r->folder, r->part, r->other, r->values };
    bool found = false;
    snprintf(r->part, sizeof r->part, "%s/part.onnx", r->folder);
    snprintf(r->other, sizeof r->other, "%s/other.onnx", r->folder);
    snprintf(r->values, sizeof r->values, "%s/values.npz", r->folder);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        output_file_remember(files[i]);
    TRY(cli_open_model(r->cli, v->job.path, ATTNRUN_NO_FUSION, &r->model));
    r->info.struct_size = sizeof r->info;
    TRY_LIB(attnrun_model_query(r->model, &r->info));
    r->seen = calloc((size_t)r->info.n_nodes + 1, sizeof *r->seen);
    if (r->seen == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for %d nodes", r->info.n_nodes);
    TRY(search(r, end, &found));
    if (!found)
        return tool_fail(ATTNRUN_E_RANGE, "no part that ends at '%s' differs by itself",
                         tool_quote(end));
    if (strcmp(v->other.path, v->job.path) != 0) {
        TRY(path_beside(r->cli->reduce, ".other.onnx", v->other_path,
                        sizeof v->other_path));
        TRY(write_part(r, end, v->other.path, v->other_path));
    }
    TRY(path_beside(r->cli->reduce, ".npz", v->values_path, sizeof v->values_path));
    TRY(write_part(r, end, v->job.path, r->cli->reduce));
    v->n_part_nodes = r->n_nodes;
    return write_values(r, v->values_path);
}

attnrun_status versus_reduce(struct versus *versus, struct cli *cli)
{
    struct reducer r = { .cli = cli, .versus = versus, .folder = "/tmp/attnrun.XXXXXX" };
    const char *end = versus->first[0] != 0 ? versus->first : versus->first_output;
    struct list outputs = cli->outputs; /* they are of the whole model */
    if (mkdtemp(r.folder) == NULL)
        return tool_fail_io("cannot make a temporary folder");
    cli->outputs = (struct list){ 0 };
    progress_start(cli, "reducing");
    attnrun_status status = reduce_in(&r, end);
    progress_end();
    cli->outputs = outputs;
    const char *const files[] = { r.part, r.other, r.values, r.folder };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        remove(files[i]);
        output_file_forget(files[i]);
    }
    attnrun_model_release(r.model);
    free(r.seen);
    free(r.cut.v);
    free(r.next.v);
    return status;
}
