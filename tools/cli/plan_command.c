/* plan_command.c - attnrun plan: the arena before any run.
 *
 * In: a model and the sizes of its inputs. Out: the bytes of the arena, its blocks and the peak,
 * as a table or JSON; with --svg a drawing; bounds of the speed-up by threads (speedup.c). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../io/file.h"
#include "job.h"
#include "screen.h"
#include "speedup.h"
#include "svg.h"
#include "workers.h"

enum { TABLE_ROWS = 20, TITLE = 9 };

struct blocks {
    attnrun_plan_block *v;
    int64_t n;
};

static attnrun_status read_blocks(struct job *job, struct blocks *blocks)
{
    blocks->n = job->plan.n_blocks;
    blocks->v = calloc((size_t)blocks->n + 1, sizeof *blocks->v);
    if (blocks->v == NULL)
        return tool_fail(ATTNRUN_E_MEMORY, "no memory for the plan");
    for (int32_t i = 0; i < job->plan.n_blocks; i++) {
        blocks->v[i].struct_size = sizeof *blocks->v;
        TRY_LIB(attnrun_plan_get_block(job->context, i, &blocks->v[i]));
    }
    return ATTNRUN_OK;
}

static double ratio(const attnrun_plan_info *plan)
{
    return plan->lower_bound_bytes > 0
               ? (double)plan->arena_bytes / (double)plan->lower_bound_bytes
               : 1;
}

static int by_bytes(const void *a, const void *b)
{
    const attnrun_plan_block *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static void print_blocks(struct blocks *blocks)
{
    qsort(blocks->v, (size_t)blocks->n, sizeof *blocks->v, by_bytes);
    int64_t shown = blocks->n < TABLE_ROWS ? blocks->n : TABLE_ROWS;
    if (shown > 0)
        printf("\n%11s %11s  %-9s %s\n", "bytes", "offset", "steps",
               "tensor, shape, made by");
    for (int64_t i = 0; i < shown; i++) {
        const attnrun_plan_block *b = &blocks->v[i];
        char title[96], steps[32];
        snprintf(steps, sizeof steps, "%d-%d", b->first_step, b->last_step);
        snprintf(title, sizeof title, "%11" PRId64 " %11" PRId64 "  %-9s", b->bytes,
                 b->offset, steps);
        screen_line(title, 35, "%s %s %s", tool_quote(b->name),
                    b->tensor.kind == ATTNRUN_TENSOR ? value_shape(&b->tensor) : "",
                    tool_quote(b->op_type));
    }
    if (blocks->n > shown)
        printf("%14s and %" PRId64 " smaller ones\n", "", blocks->n - shown);
}

/* The plan is that of a batch whose tokens are all there: a run has as many or fewer. */
static bool is_ragged(const attnrun_model *model)
{
    attnrun_model_info info = { .struct_size = sizeof info };
    if (attnrun_model_query(model, &info) != ATTNRUN_OK)
        return false;
    for (int32_t i = 0; i < info.n_passes; i++) {
        const char *name;
        int32_t applied;
        if (attnrun_model_pass(model, i, &name, &applied) == ATTNRUN_OK && applied > 0 &&
            strcmp(name, "ragged") == 0)
            return true;
    }
    return false;
}

static void print_plan(struct job *job, struct blocks *blocks,
                       const struct workers *workers, const struct speedup *speedup)
{
    const attnrun_plan_info *p = &job->plan;
    struct line arena = { .n = 0 }, beside = { .n = 0 };
    screen_text("model", TITLE, tool_path(job->path));
    for (int32_t i = 0; i < job->inputs.n; i++)
        screen_line(i == 0 ? "inputs" : "", TITLE, "%s %s",
                    tool_quote(job->inputs.v[i].info.name),
                    text_input(&job->inputs.v[i]));
    line_add(&arena, "%s (%s), %s", tool_plural(p->arena_bytes, "byte"),
             text_bytes(p->arena_bytes),
             is_ragged(job->model) ? "at most, with all tokens of the batch" : "exact");
    if (p->n_dynamic_steps > 0)
        line_add(&arena, " but for %d of %s whose shapes are known only at run",
                 p->n_dynamic_steps, tool_plural(p->n_steps, "step"));
    screen_text("arena", TITLE, arena.text);
    if (p->side_heap_bytes > 0 || p->n_unbounded_steps > 0)
        line_add(&beside, "at most %s (%s)", tool_plural(p->side_heap_bytes, "byte"),
                 text_bytes(p->side_heap_bytes));
    if (p->n_unbounded_steps > 0)
        line_add(&beside, ", and the memory of %s without a known bound",
                 tool_plural(p->n_unbounded_steps, "step"));
    if (beside.n > 0)
        screen_text("beside", TITLE, beside.text);
    screen_line("bound", TITLE, "%s alive at once; ratio %.4f",
                tool_plural(p->lower_bound_bytes, "byte"), ratio(p));
    if (p->peak_node != NULL && p->n_steps > 0)
        screen_line("peak", TITLE, "step %d of %d: %s%s(%s)", p->peak_step, p->n_steps,
                    tool_quote(p->peak_node), p->peak_node[0] != 0 ? " " : "",
                    tool_quote(p->peak_op));
    screen_line("weights", TITLE, "%s mapped, %" PRId64 " packed, %" PRId64 " folded",
                tool_plural(p->weights_bytes, "byte"), p->packed_bytes, p->folded_bytes);
    if (workers_asked(job->cli))
        workers_print(workers);
    print_blocks(blocks);
    if (speedup->rows != NULL)
        speedup_print(speedup);
    if (job->cli->svg != NULL)
        printf("\nwritten  %s\n", tool_path(job->cli->svg));
}

static void json_blocks(const struct blocks *blocks, struct json *json)
{
    json_open(json, "blocks", '[');
    for (int64_t i = 0; i < blocks->n; i++) {
        const attnrun_plan_block *b = &blocks->v[i];
        json_open(json, NULL, '{');
        json_text(json, "name", b->name);
        json_text(json, "op_type", b->op_type);
        json_int(json, "offset", b->offset);
        json_int(json, "bytes", b->bytes);
        json_int(json, "first_step", b->first_step);
        json_int(json, "last_step", b->last_step);
        json_text(json, "dtype", attnrun_dtype_name(b->tensor.dtype));
        json_dims(json, "shape", &b->tensor);
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void print_json(const struct job *job, const struct blocks *blocks,
                       const struct workers *workers, const struct speedup *speedup)
{
    const attnrun_plan_info *p = &job->plan;
    struct json json = { .out = cli_json_stream() };
    json_open(&json, NULL, '{');
    json_text(&json, "schema", "attnrun/plan/2");
    json_text(&json, "model", job->path);
    json_int(&json, "arena_bytes", p->arena_bytes);
    json_int(&json, "lower_bound_bytes", p->lower_bound_bytes);
    json_real(&json, "arena_over_bound", ratio(p));
    json_int(&json, "steps", p->n_steps);
    json_int(&json, "late_steps", p->n_dynamic_steps);
    json_int(&json, "side_heap_bytes", p->side_heap_bytes);
    json_int(&json, "unbounded_steps", p->n_unbounded_steps);
    json_int(&json, "peak_step", p->peak_step);
    json_text(&json, "peak_node", p->peak_node);
    json_text(&json, "peak_op", p->peak_op);
    json_int(&json, "weights_bytes", p->weights_bytes);
    json_int(&json, "packed_bytes", p->packed_bytes);
    json_int(&json, "folded_bytes", p->folded_bytes);
    if (workers_asked(job->cli))
        workers_json(workers, &json);
    json_open(&json, "inputs", '[');
    for (int32_t i = 0; i < job->inputs.n; i++) {
        json_open(&json, NULL, '{');
        json_text(&json, "name", job->inputs.v[i].info.name);
        json_dims(&json, "shape", &job->inputs.v[i].held.tensor);
        json_close(&json, '}');
    }
    json_close(&json, ']');
    json_blocks(blocks, &json);
    if (speedup->rows != NULL)
        speedup_json(speedup, &json);
    json_close(&json, '}');
}

attnrun_status command_plan(struct cli *cli, int *exit_code)
{
    struct job job;
    struct blocks blocks = { 0 };
    struct workers workers = { 0 };
    struct speedup speedup = { 0 };
    bool drawn = cli->svg != NULL && file_is_stdout(cli->svg);
    *exit_code = 0;
    if (drawn && cli->json)
        return tool_fail(
            ATTNRUN_E_USAGE,
            "--svg - writes the drawing to standard output, so --json cannot be used");
    attnrun_status status = job_open(&job, cli, cli->paths.v[0]);
    if (status == ATTNRUN_OK)
        status = read_blocks(&job, &blocks);
    if (status == ATTNRUN_OK && cli->threads > 0)
        status = speedup_read(&job, &speedup);
    if (status == ATTNRUN_OK && workers_asked(cli))
        status = workers_plan(&job, &workers);
    if (status == ATTNRUN_OK)
        status = workers_fit(&workers);
    if (status == ATTNRUN_OK && cli->svg != NULL)
        status =
            svg_write(cli->svg, text_file_name(job.path), &job.plan, blocks.v, blocks.n);
    if (status == ATTNRUN_OK && cli->json)
        print_json(&job, &blocks, &workers, &speedup);
    else if (status == ATTNRUN_OK && !cli->quiet && !drawn)
        print_plan(&job, &blocks, &workers, &speedup);
    speedup_free(&speedup);
    free(blocks.v);
    job_close(&job);
    return status;
}
