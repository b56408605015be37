/* versus.c - attnrun compare: one model in two ways, on the same inputs.
 *
 * In: a model, and with --with the other way: without fusion, by function bodies, on another
 * instruction set, another file, or ONNX Runtime (ort.c). Out: the errors of each output and,
 * with --per-node, of each value that both ways compute, in the order in which they are
 * computed; the first that differs by more than the tolerance is named. */
#include <stdlib.h>
#include <string.h>

#include "difference.h"
#include "screen.h"
#include "versus.h"

/* ---- the two sides ---- */

/* What --with says: the options of the other side. */
static attnrun_status read_side(struct side *side, const struct cli *cli,
                                const char *with)
{
    memset(side, 0, sizeof *side);
    side->cli = *cli;
    side->label = with;
    side->path = cli->paths.v[0];
    if (strcmp(with, "no-fusion") == 0) {
        side->cli.no_fusion = 1;
    } else if (strcmp(with, "bodies") == 0) {
        side->cli.force_bodies = 1;
    } else if (strncmp(with, "isa=", 4) == 0) {
        side->cli.isa = with + 4;
        side->cli.runtime = NULL; /* a runtime has one instruction set */
        side->own_runtime = true;
    } else if (strncmp(with, "precision=", 10) == 0) {
        return cli_set_option(&side->cli, cli_find_option("precision"), with + 10,
                              "--with precision", false);
    } else if (strcmp(with, "ort") == 0) {
        side->ort = true;
    } else if (strchr(with, '.') != NULL || strchr(with, '/') != NULL) {
        side->path = with;
    } else {
        static const char *const names[] = { "no-fusion", "bodies", "isa=base", "ort" };
        tool_fail(ATTNRUN_E_USAGE, "--with: '%s' is not a way to run a model",
                  tool_quote(with));
        if (!tool_suggest(with, names, 4))
            tool_hint("--with no-fusion, bodies, isa=NAME, precision=bf16, ort, or a "
                      "model file");
        return ATTNRUN_E_USAGE;
    }
    return ATTNRUN_OK;
}

static void side_close(struct side *side)
{
    for (int64_t i = 0; i < side->n_outputs; i++)
        held_free(&side->outputs[i]);
    free(side->outputs);
    attnrun_context_destroy(side->context);
    attnrun_model_release(side->model);
    if (side->own_runtime)
        attnrun_runtime_destroy(side->cli.runtime);
}

/* ---- values that both sides compute ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool has_name(const struct list *sorted, const char *name)
{
    return sorted->n > 0 &&
           bsearch(&name, sorted->v, (size_t)sorted->n, sizeof name, by_name) != NULL;
}

/* What all nodes of the file give (`of_file`), or all nodes but the outputs of the model; kept
 * by `cli`. */
static attnrun_status add_names(struct cli *cli, const attnrun_model *model, bool of_file,
                                struct list *names)
{
    attnrun_model_info info = { .struct_size = sizeof info };
    TRY_LIB(attnrun_model_query(model, &info));
    for (int32_t i = 0; i < info.n_nodes; i++) {
        attnrun_node_info node = { .struct_size = sizeof node };
        TRY_LIB(attnrun_model_node(model, i, &node));
        for (int32_t k = 0; k < node.n_outputs; k++) {
            if (node.outputs[k][0] == 0 || (of_file && node.function[0] != 0) ||
                (!of_file && attnrun_model_find_output(model, node.outputs[k]) >= 0))
                continue;
            const char *name = cli_keep(cli, node.outputs[k], strlen(node.outputs[k]));
            if (name == NULL)
                return tool_fail(ATTNRUN_E_MEMORY, "no memory for names");
            TRY(list_add(names, name));
        }
    }
    return ATTNRUN_OK;
}

/* Names of a side as it runs, and as its file has them. */
static attnrun_status names_of(struct cli *owner, struct side *side, struct list *run,
                               struct list *file)
{
    attnrun_model *model = NULL;
    TRY(cli_open_model(&side->cli, side->path, 0, &model));
    attnrun_status status = add_names(owner, model, false, run);
    attnrun_model_release(model);
    TRY(status);
    TRY(cli_open_model(&side->cli, side->path, ATTNRUN_NO_FUSION, &model));
    status = add_names(owner, model, true, file);
    attnrun_model_release(model);
    return status;
}

static void sort_names(struct list *names)
{
    if (names->n > 1)
        qsort(names->v, (size_t)names->n, sizeof *names->v, by_name);
}

static attnrun_status common_names(struct cli *cli, struct side *a, struct side *b,
                                   struct list *common)
{
    struct list run_a = { 0 }, file_a = { 0 }, run_b = { 0 }, file_b = { 0 };
    attnrun_status status = names_of(cli, a, &run_a, &file_a);
    if (status == ATTNRUN_OK && !b->ort)
        status = names_of(cli, b, &run_b, &file_b);
    sort_names(&file_a);
    sort_names(&file_b);
    sort_names(&run_b);
    for (int64_t i = 0; i < run_a.n && status == ATTNRUN_OK; i++)
        if (has_name(&file_a, run_a.v[i]) &&
            (b->ort || (has_name(&file_b, run_a.v[i]) && has_name(&run_b, run_a.v[i]))))
            status = list_add(common, run_a.v[i]);
    free(run_a.v);
    free(run_b.v);
    free(file_a.v);
    free(file_b.v);
    return status;
}

/* ---- is there something to compare? ---- */

static void hash_row(void *user, const attnrun_op_def *row)
{
    uint64_t *hash = user;
    *hash = (*hash ^ (uint64_t)(uintptr_t)row) * UINT64_C(0x100000001b3);
}

/* Whether both models of one runtime run the same rows in the same order, with subgraphs. */
static attnrun_status same_rows(const attnrun_model *a, const attnrun_model *b,
                                bool *same)
{
    uint64_t rows_a = 0, rows_b = 0;
    TRY_LIB(attnrun_model_ops(a, hash_row, &rows_a));
    TRY_LIB(attnrun_model_ops(b, hash_row, &rows_b));
    *same = rows_a == rows_b;
    return ATTNRUN_OK;
}

/* Whether rewrite passes applied as often to both. */
static attnrun_status same_passes(const attnrun_model *a, const attnrun_model *b,
                                  bool *same)
{
    attnrun_model_info info = { .struct_size = sizeof info };
    TRY_LIB(attnrun_model_query(a, &info));
    for (int32_t i = 0; i < info.n_passes && *same; i++) {
        const char *name;
        int32_t applied_a, applied_b;
        TRY_LIB(attnrun_model_pass(a, i, &name, &applied_a));
        TRY_LIB(attnrun_model_pass(b, i, &name, &applied_b));
        *same = applied_a == applied_b;
    }
    return ATTNRUN_OK;
}

/* Why the other side runs the same nodes by the same code; NULL where it does not. */
static attnrun_status why_same(const struct versus *v, const char **why)
{
    const struct side *side = &v->other;
    attnrun_runtime_info here = { .struct_size = sizeof here }, there = here;
    attnrun_model_info a = { .struct_size = sizeof a }, b = a;
    bool same = true;
    *why = NULL;
    if (side->cli.force_bodies != v->job.cli->force_bodies) {
        TRY(same_rows(v->job.model, side->model, &same));
        *why =
            same
                ? "no node of the model runs a native operator instead of a function body"
                : NULL;
    } else if (side->cli.no_fusion != v->job.cli->no_fusion) {
        TRY(same_rows(v->job.model, side->model, &same));
        TRY(same_passes(v->job.model, side->model, &same));
        *why = same ? "no rewrite pass that changes the arithmetic applies to the model"
                    : NULL;
    } else if (side->own_runtime) {
        TRY_LIB(attnrun_runtime_query(v->job.cli->runtime, &here));
        TRY_LIB(attnrun_runtime_query(side->cli.runtime, &there));
        *why = strcmp(here.isa, there.isa) == 0 ? "both runs use the same instruction set"
                                                : NULL;
    } else if (side->cli.precision != v->job.cli->precision) {
        TRY_LIB(attnrun_model_query(v->job.model, &a));
        TRY_LIB(attnrun_model_query(side->model, &b));
        *why = strcmp(a.precision, b.precision) == 0
                   ? "both runs multiply in the same precision"
                   : NULL;
    } else if (side->path == v->job.path && !side->ort) {
        *why = "both runs have the same options";
    }
    return ATTNRUN_OK;
}

/* Two runs of the same code are no comparison. */
static attnrun_status check_differs(const struct versus *v)
{
    const char *why = NULL;
    if (v->other.ort)
        return ATTNRUN_OK;
    TRY(why_same(v, &why));
    if (why == NULL)
        return ATTNRUN_OK;
    return tool_fail(ATTNRUN_E_USAGE, "--with %s: nothing was compared, since %s",
                     tool_quote(v->other.label), why);
}

/* ---- running ---- */

/* The other side, on the inputs of the first one: they go by name. */
static attnrun_status run_side(struct side *side, const struct job *first)
{
    TRY_LIB(attnrun_context_create(side->model, &side->context));
    for (int32_t i = 0; i < first->inputs.n; i++) {
        const struct input *input = &first->inputs.v[i];
        int32_t at = attnrun_model_find_input(side->model, input->info.name);
        if (at < 0)
            return tool_fail(ATTNRUN_E_INPUT, "%s has no input '%s'",
                             tool_path(side->path), tool_quote(input->info.name));
        TRY_LIB(attnrun_set_input(side->context, at, &input->held.tensor));
    }
    return cli_run_context(&side->cli, side->context, NULL);
}

/* The value of the other side for output `index` of the first; absent where it has none. */
static attnrun_status other_value(struct side *side, const char *name, int32_t index,
                                  attnrun_tensor *value, struct held *copy)
{
    struct job job = { .context = side->context };
    memset(value, 0, sizeof *value);
    memset(copy, 0, sizeof *copy);
    if (side->ort) {
        if (index < side->n_outputs)
            *value = side->outputs[index].tensor;
        return ATTNRUN_OK;
    }
    int32_t at = attnrun_model_find_output(side->model, name);
    return at < 0 ? ATTNRUN_OK : output_dense(&job, at, value, copy);
}

/* An output that one of the two lacks, whose `path` it is. */
static attnrun_status note_missing(struct versus *v, const char *path, const char *name,
                                   const attnrun_tensor *value)
{
    const attnrun_tensor none = { .kind = ATTNRUN_ABSENT };
    if (v->n_missing++ == 0) {
        snprintf(v->missing, sizeof v->missing, "%s", name);
        v->missing_in = path;
    }
    v->failed++;
    return compared_note(&v->outputs, "", name, value, &none, false);
}

/* The outputs of the other side that the first one lacks. */
static attnrun_status find_missing(struct versus *v)
{
    attnrun_model_info model = { .struct_size = sizeof model };
    attnrun_value_info info = { .struct_size = sizeof info };
    attnrun_tensor value;
    if (v->other.ort)
        return ATTNRUN_OK;
    TRY_LIB(attnrun_model_query(v->other.model, &model));
    for (int32_t i = 0; i < model.n_outputs; i++) {
        TRY_LIB(attnrun_model_output(v->other.model, i, &info));
        if (attnrun_model_find_output(v->job.model, info.name) >= 0)
            continue;
        TRY_LIB(attnrun_output(v->other.context, i, &value));
        TRY(note_missing(v, v->job.path, info.name, &value));
    }
    return ATTNRUN_OK;
}

static attnrun_status compare_output(struct versus *v, int32_t index)
{
    attnrun_value_info info = { .struct_size = sizeof info };
    attnrun_tensor a, b;
    struct held copy_a, copy_b;
    TRY_LIB(attnrun_model_output(v->job.model, index, &info));
    TRY(output_dense(&v->job, index, &a, &copy_a));
    const bool inner = index >= v->n_file_outputs, must = v->other.ort && !inner;
    attnrun_status status = other_value(&v->other, info.name, index, &b, &copy_b);
    if (status == ATTNRUN_OK && must && a.kind != ATTNRUN_OPTIONAL)
        status = ort_check_kind("output", info.name, &a);
    if (status == ATTNRUN_OK && (must || b.kind != ATTNRUN_ABSENT)) {
        bool same = compare_values(&a, &b, &v->tolerance) == ATTNRUN_OK;
        if (!same && inner && v->first[0] == 0)
            snprintf(v->first, sizeof v->first, "%s", info.name);
        if (!same && !inner && v->first_output[0] == 0)
            snprintf(v->first_output, sizeof v->first_output, "%s", info.name);
        v->failed += !same;
        status =
            compared_note(inner ? &v->inner : &v->outputs, "", info.name, &a, &b, same);
    } else if (status == ATTNRUN_OK && !v->other.ort &&
               attnrun_model_find_output(v->other.model, info.name) < 0) {
        status = note_missing(v, v->other.path, info.name, &a);
    }
    held_free(&copy_a);
    held_free(&copy_b);
    return status;
}

static attnrun_status open_other(struct versus *v)
{
    if (v->other.ort)
        return ATTNRUN_OK;
    progress_start(v->job.cli, "loading");
    attnrun_status status =
        cli_open_model(&v->other.cli, v->other.path, 0, &v->other.model);
    progress_end();
    return status != ATTNRUN_OK ? tool_fail_at("--with %s", tool_quote(v->other.label))
                                : ATTNRUN_OK;
}

static attnrun_status run_other(struct versus *v)
{
    progress_start(v->job.cli, v->other.ort ? "ONNX Runtime" : "the other side");
    attnrun_status status =
        v->other.ort ? ort_run(&v->other, &v->job) : run_side(&v->other, &v->job);
    progress_end();
    return status != ATTNRUN_OK && !v->other.ort
               ? tool_fail_at("--with %s", tool_quote(v->other.label))
               : status;
}

static attnrun_status compare_outputs(struct versus *v)
{
    attnrun_status status = ATTNRUN_OK;
    progress_start(v->job.cli, "comparing");
    for (int32_t i = 0; i < v->job.info.n_outputs && status == ATTNRUN_OK; i++) {
        progress_show(i, v->job.info.n_outputs, "comparing");
        status = compare_output(v, i);
    }
    progress_end();
    return status;
}

/* The node that gives a value: its operator and name. */
static void find_node(const struct versus *v, const char *value, attnrun_node_info *node)
{
    for (int32_t i = 0; i < v->job.info.n_nodes; i++) {
        node->struct_size = sizeof *node;
        if (attnrun_model_node(v->job.model, i, node) != ATTNRUN_OK)
            continue;
        for (int32_t k = 0; k < node->n_outputs; k++)
            if (strcmp(node->outputs[k], value) == 0)
                return;
    }
    node->op_type = node->name = "";
}

/* The comparison of the part alone, with the options of this one that are not of its inputs. In
 * one line, so that it can be copied. */
static void show_next(const struct versus *v)
{
    static const char *const own[] = { "input", "inputs", "set",      "shape",
                                       "fix",   "seed",   "outputs",  "reduce",
                                       "quiet", "with",   "per-node", NULL };
    struct line line = { .n = 0 };
    struct list words = { 0 };
    const char *other = v->other_path[0] != 0 ? v->other_path : v->other.label;
    const char *const first[] = { "attnrun", "compare",      v->job.cli->reduce,
                                  "-i",      v->values_path, "--with",
                                  other };
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        line_add_word(&line, first[i]);
    if (cli_words_of(v->job.cli, CLI_COMPARE, own, &words) == ATTNRUN_OK)
        for (int64_t i = 0; i < words.n; i++)
            line_add_word(&line, words.v[i]);
    printf("%-8s %s\n", "next", line.text);
    free(words.v);
}

static void print_versus(const struct versus *v)
{
    attnrun_node_info node;
    screen_line("compare", 9, "%s with %s", tool_path(v->job.path),
                tool_quote(v->other.label));
    compared_print(&v->outputs);
    if (v->n_missing > 0)
        screen_line("missing", 9, "%s has no output '%s'", tool_path(v->missing_in),
                    tool_quote(v->missing));
    if (v->inner.n > 0)
        screen_line("values", 9, "%lld that both compute, in order",
                    (long long)v->inner.n);
    compared_print(&v->inner);
    if (v->first[0] != 0) {
        find_node(v, v->first, &node);
        screen_line("first", 9, "'%s' is the first to differ: node '%s' (%s)",
                    tool_quote(v->first), tool_quote(node.name),
                    tool_quote(node.op_type));
    }
    if (v->values_path[0] != 0) {
        screen_line("part", 9, "%s: a part of %s, which differs on its own",
                    tool_path(v->job.cli->reduce), tool_plural(v->n_part_nodes, "node"));
        show_next(v);
    } else if (v->job.cli->reduce != NULL) {
        screen_line("part", 9, "nothing differs, so %s is not written",
                    tool_path(v->job.cli->reduce));
    }
    printf("%s\n", v->failed > 0 ? "different"
                   : v->tolerance.of_largest > 0
                       ? "same within the tolerance of bf16, 2 % "
                         "of the largest value of each output"
                       : "same within the tolerance");
}

static void show_json(const struct versus *v)
{
    struct json json = { .out = cli_json_stream() };
    json_open(&json, NULL, '{');
    json_text(&json, "schema", "attnrun/compare/2");
    json_text(&json, "model", v->job.path);
    json_text(&json, "with", v->other.label);
    json_bool(&json, "same", v->failed == 0);
    json_real(&json, "rtol", v->tolerance.rtol);
    json_real(&json, "atol", v->tolerance.atol);
    compared_json(&v->outputs, &json, "outputs");
    compared_json(&v->inner, &json, "values");
    if (v->first[0] != 0)
        json_text(&json, "first", v->first);
    if (v->values_path[0] != 0) {
        json_open(&json, "part", '{');
        json_text(&json, "file", v->job.cli->reduce);
        json_text(&json, "inputs_file", v->values_path);
        if (v->other_path[0] != 0)
            json_text(&json, "other_file", v->other_path);
        json_int(&json, "nodes", v->n_part_nodes);
        json_close(&json, '}');
    }
    json_close(&json, '}');
}

attnrun_status versus_run(struct versus *v, struct cli *cli)
{
    struct side self = { .cli = *cli, .path = cli->paths.v[0] };
    TRY(cli_open_runtime(cli));
    self.cli.runtime = cli->runtime;
    TRY(read_side(&v->other, cli, cli->with));
    if (cli->per_node) {
        progress_start(cli, "loading");
        attnrun_status status = common_names(cli, &self, &v->other, &v->names);
        progress_end();
        TRY(status);
    }
    for (int64_t i = 0; i < v->names.n; i++)
        TRY(list_add(&cli->outputs, v->names.v[i]));
    v->other.cli.outputs = cli->outputs;
    TRY(job_open(&v->job, cli, cli->paths.v[0]));
    TRY(open_other(v));
    TRY(check_differs(v));
    v->tolerance = compare_tolerance(cli, v->job.model);
    if (v->tolerance.of_largest == 0)
        v->tolerance = compare_tolerance(cli, v->other.model);
    TRY(job_first_run(&v->job, NULL));
    TRY(run_other(v));
    v->n_file_outputs = v->job.info.n_outputs - (int32_t)v->names.n;
    TRY(compare_outputs(v));
    TRY(find_missing(v));
    if (v->outputs.n == v->n_missing)
        return tool_fail(ATTNRUN_E_USAGE,
                         "there is nothing to compare: %s has none of the outputs",
                         tool_path(v->other.path));
    return ATTNRUN_OK;
}

void versus_free(struct versus *v)
{
    attnrun_runtime_info there = { .struct_size = sizeof there };
    if (v->other.own_runtime && v->other.cli.runtime != NULL &&
        attnrun_runtime_query(v->other.cli.runtime, &there) == ATTNRUN_OK)
        v->job.cli->other_peak_bytes = (int64_t)there.peak_memory;
    compared_free(&v->outputs);
    compared_free(&v->inner);
    free(v->names.v);
    side_close(&v->other);
    job_close(&v->job);
}

static attnrun_status compare_again(struct cli *cli, void *user)
{
    (void)user;
    struct versus v = { .job = { .cli = cli } };
    const int64_t given = cli->outputs.n;
    const attnrun_status status = versus_run(&v, cli);
    versus_free(&v);
    cli->outputs.n = given;
    return status;
}

attnrun_status command_compare(struct cli *cli, int *exit_code)
{
    struct versus v = { .job = { .cli = cli } };
    if (cli->with == NULL)
        cli->with = "no-fusion";
    cli->per_node |= cli->reduce != NULL;
    if (cli->reduce != NULL)
        TRY(versus_reduce_check(cli));
    const int64_t given = cli->outputs.n;
    attnrun_status status = versus_run(&v, cli), reduced = ATTNRUN_OK;
    if (status == ATTNRUN_E_MEMORY) {
        cli->outputs.n = given; /* without those of --per-node */
        budget_explain_work(cli, compare_again, NULL);
    }
    if (status == ATTNRUN_OK && cli->reduce != NULL && v.failed > v.n_missing)
        reduced = versus_reduce(&v, cli);
    if (reduced != ATTNRUN_OK)
        v.values_path[0] = 0; /* there is no part */
    if (status == ATTNRUN_OK && cli->json)
        show_json(&v);
    else if (status == ATTNRUN_OK)
        print_versus(&v);
    if (status == ATTNRUN_OK)
        status = reduced;
    *exit_code = v.failed > 0 ? 1 : 0;
    versus_free(&v);
    return status;
}
