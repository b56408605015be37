/* bench.c - attnrun bench: time and memory of a model.
 *
 * In: a model and its inputs (files, or made up). Out: times of loading, packing, the first
 * run and those after it (min, median), and bytes of weights, arena and the process; as text
 * or with --json. */
#include <inttypes.h>

#include "bench.h"
#include "measure.h"
#include "screen.h"

/* Resident memory. The inputs belong to the caller: what they and their reading take is in
 * neither of the two. */
struct resident {
    int64_t base;       /* of the process, before the model is opened */
    int64_t above_base; /* the peak of loading and running above that */
    int64_t runs;       /* what the runs added to the loaded model */
    int64_t mapped;     /* of these, pages of files: code, and weights that no pack has */
    int64_t peak;       /* of the process, inputs and all */
};

static void resident_end(struct resident *resident, const struct job *job,
                         int64_t ready_bytes, int64_t ready_peak_bytes)
{
    const int64_t peak = cli_peak_rss_bytes(), mapped = cli_mapped_rss_bytes();
    int64_t loading = job->load_peak_rss_bytes - resident->base;
    resident->runs = peak > ready_bytes ? peak - ready_bytes : 0;
    resident->mapped = mapped > resident->mapped ? mapped - resident->mapped : 0;
    int64_t running = job->loaded_rss_bytes - resident->base + resident->runs;
    resident->above_base = loading > running ? loading : running;
    resident->peak = peak > ready_peak_bytes ? peak : ready_peak_bytes;
}

int64_t bench_contexts(const struct cli *cli)
{
    return cli->concurrency > 0 ? cli->concurrency : 1;
}

/* The first dim of the first input: what a run works on at once. */
static int64_t items_of(const struct job *job)
{
    const attnrun_tensor *first =
        job->inputs.n > 0 ? &job->inputs.v[0].held.tensor : NULL;
    return first != NULL && first->kind == ATTNRUN_TENSOR && first->rank > 1
               ? first->dims[0]
               : 1;
}

/* What is said beside the times. */
struct beside {
    double fp32_peak_gflops; /* of one thread; 0: not measured */
    struct measured measured;
    struct node_table nodes;
    struct base base; /* text NULL: none */
};

void bench_json_inputs(const struct job *job, struct json *json)
{
    json_open(json, "inputs", '[');
    for (int32_t i = 0; i < job->inputs.n; i++) {
        json_open(json, NULL, '{');
        json_text(json, "name", job->inputs.v[i].info.name);
        json_text(json, "dtype", attnrun_dtype_name(job->inputs.v[i].held.tensor.dtype));
        json_dims(json, "shape", &job->inputs.v[i].held.tensor);
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void json_beside(const struct job *job, const struct beside *beside,
                        struct json *json)
{
    if (beside->fp32_peak_gflops > 0)
        json_real(json, "fp32_peak_gflops", beside->fp32_peak_gflops);
    if (beside->measured.read_all_gbs > 0) {
        json_real(json, "fp32_peak_all_gflops", beside->measured.fp32_peak_all_gflops);
        json_real(json, "read_all_gbs", beside->measured.read_all_gbs);
    }
    if (job->cli->per_node)
        node_table_json(&beside->nodes, json);
    if (beside->base.text != NULL)
        base_json(&beside->base, job, json);
}

static void print_json(const struct job *job, const attnrun_runtime_info *runtime,
                       const struct resident *resident, const struct beside *beside)
{
    const struct timing *t = &job->timing;
    struct json json = { .out = cli_json_stream() };
    json_open(&json, NULL, '{');
    json_text(&json, "schema", "attnrun/bench/3");
    json_text(&json, "model", job->path);
    json_ms(&json, "load_ms", t->load_ms);
    json_ms(&json, "pack_ms", t->pack_ms);
    json_ms(&json, "first_ms", t->first_ms);
    json_ms(&json, "min_ms", t->min_ms);
    json_ms(&json, "median_ms", t->median_ms);
    json_ms(&json, "p90_ms", t->p90_ms);
    json_ms(&json, "p99_ms", t->p99_ms);
    json_real(&json, "runs_per_s", t->per_second);
    json_real(&json, "items_per_s", t->per_second * (double)items_of(job));
    json_real(&json, "spread_fraction", t->spread);
    json_int(&json, "runs", t->n);
    json_int(&json, "arena_bytes", job->plan.arena_bytes);
    json_int(&json, "weights_bytes", job->plan.weights_bytes);
    json_int(&json, "packed_bytes", job->plan.packed_bytes);
    json_int(&json, "folded_bytes", job->plan.folded_bytes);
    json_int(&json, "allocated_peak_bytes", (int64_t)runtime->peak_memory);
    json_int(&json, "base_rss_bytes", resident->base);
    json_int(&json, "loaded_rss_bytes", job->loaded_rss_bytes);
    json_int(&json, "above_base_rss_bytes", resident->above_base);
    json_int(&json, "runs_rss_bytes", resident->runs);
    json_int(&json, "runs_mapped_rss_bytes", resident->mapped);
    json_int(&json, "peak_rss_bytes", resident->peak);
    json_text(&json, "isa", runtime->isa);
    json_text(&json, "blas", runtime->blas);
    json_int(&json, "threads", runtime->threads);
    json_int(&json, "contexts", bench_contexts(job->cli));
    bench_json_inputs(job, &json);
    json_beside(job, beside, &json);
    json_close(&json, '}');
}

static void print_table(const struct job *job, const attnrun_runtime_info *runtime,
                        const struct resident *resident, const struct beside *beside)
{
    const struct timing *t = &job->timing;
    struct line line = { .n = 0 };
    line_add(&line, "%s", text_file_name(job->path));
    for (int32_t i = 0; i < job->inputs.n && i < 4; i++)
        line_add(&line, "  %s %s", tool_quote(job->inputs.v[i].info.name),
                 text_input(&job->inputs.v[i]));
    screen_text("model", 13, line.text);
    screen_line("threads", 13, "%d, %s, BLAS %s", runtime->threads, runtime->isa,
                text_blas(runtime->blas));
    printf("%-12s %s, of that %s packing\n", "load", text_ms(t->load_ms),
           text_ms(t->pack_ms));
    printf("%-12s %s\n", "first", text_ms(t->first_ms));
    printf("%-12s %s\n", "min", text_ms(t->min_ms));
    printf("%-12s %s (%s, ±%.1f%%)\n", "median", text_ms(t->median_ms),
           tool_plural(t->n, "run"), t->spread * 100);
    printf("%-12s %s, p99 %s\n", "p90", text_ms(t->p90_ms), text_ms(t->p99_ms));
    printf("%-12s %s runs/s, %s items/s (batch %" PRId64 ")\n", "rate",
           text_rate(t->per_second), text_rate(t->per_second * (double)items_of(job)),
           items_of(job));
    if (job->cli->concurrency > 1)
        printf("%-12s %" PRId64
               " at once, each with its arena; the times are of one run\n",
               "contexts", job->cli->concurrency);
    printf("%-12s %s\n", "arena", text_bytes(job->plan.arena_bytes));
    printf("%-12s %s, packed %s\n", "weights", text_bytes(job->plan.weights_bytes),
           text_bytes(job->plan.packed_bytes));
    printf("%-12s %s\n", "peak RSS", text_bytes(resident->peak));
    if (beside->base.text != NULL)
        base_print(&beside->base, job);
    if (job->cli->per_node)
        node_table_print(&beside->nodes, beside->measured.fp32_peak_all_gflops,
                         beside->measured.read_all_gbs);
}

/* A first run, --warmup more, then what is timed: --repeat runs, those of --time, or 20. */
static attnrun_status time_runs(struct job *job)
{
    enum { MAX = 1000000 };
    const struct cli *cli = job->cli;
    TRY(job_first_run(job, NULL));
    for (int64_t i = 0; i < cli->warmup; i++) {
        TRY(cli_run_context(cli, job->context, NULL));
        TRY(states_rewind(job, job->context));
    }
    int64_t n = cli->repeat > 0 ? cli->repeat : cli->time_us > 0 ? MAX : 20;
    double max_ms = cli->time_us > 0  ? (double)cli->time_us / 1e3
                    : cli->repeat > 0 ? 0
                                      : 10000;
    return cli->concurrency > 1 ? bench_concurrent(job, cli->concurrency, n, max_ms)
                                : job_repeat(job, n, max_ms);
}

/* What --concurrency takes from the budget: one run of each context. */
static attnrun_status bench_contexts_once(struct cli *cli, void *user)
{
    struct job job = { .cli = cli };
    (void)user;
    attnrun_status status = job_open(&job, cli, cli->paths.v[0]);
    if (status == ATTNRUN_OK)
        status = job_first_run(&job, NULL);
    if (status == ATTNRUN_OK)
        status = bench_concurrent(&job, cli->concurrency, 1, 0);
    job_close(&job);
    return status;
}

/* The hint of a job names what one context needs. */
static attnrun_status explain_contexts(struct cli *cli, attnrun_status status)
{
    if (status != ATTNRUN_OK && cli->concurrency > 1)
        budget_explain_work(cli, bench_contexts_once, NULL);
    return status;
}

attnrun_status bench_job(struct job *job, struct cli *cli)
{
    attnrun_status status = job_open(job, cli, cli->paths.v[0]);
    if (status == ATTNRUN_OK)
        status = time_runs(job);
    return explain_contexts(cli, status);
}

/* After the times: measuring the machine would be in their way. */
static attnrun_status look_beside(struct job *job, const attnrun_runtime_info *runtime,
                                  struct beside *beside)
{
    const struct cli *cli = job->cli;
    if (cli->per_node)
        TRY(node_table_run(job, &beside->nodes));
    attnrun_status status = ATTNRUN_OK;
    progress_start(cli, "peak of this machine");
    if (cli->per_node) {
        status = measure_machine(runtime->isa, runtime->threads, &beside->measured);
        beside->fp32_peak_gflops = beside->measured.fp32_peak_gflops;
    } else if (cli->against != NULL || (cli->json && !against_takes_turns())) {
        beside->fp32_peak_gflops = measure_fp32_peak(runtime->isa);
    }
    progress_end();
    beside->base.peak_gflops = beside->fp32_peak_gflops;
    beside->base.threads = runtime->threads;
    return status;
}

static attnrun_status bench(struct job *job, struct cli *cli, struct beside *beside)
{
    attnrun_runtime_info runtime = { .struct_size = sizeof runtime };
    struct resident resident = { .base = cli_rss_bytes() };
    TRY(job_open(job, cli, cli->paths.v[0]));
    int64_t ready = cli_rss_bytes(), ready_peak = cli_peak_rss_bytes();
    resident.mapped = cli_mapped_rss_bytes();
    cli_reset_peak_rss();
    TRY(time_runs(job));
    TRY_LIB(attnrun_runtime_query(cli->runtime, &runtime));
    resident_end(&resident, job, ready, ready_peak);
    attnrun_status status = look_beside(job, &runtime, beside);
    if (status == ATTNRUN_OK && cli->json)
        print_json(job, &runtime, &resident, beside);
    else if (status == ATTNRUN_OK)
        print_table(job, &runtime, &resident, beside);
    return status;
}

/* Options that do not go together: none is dropped without a word. */
static attnrun_status check_options(const struct cli *cli)
{
    const bool sizes = sweep_of(cli) != NULL;
    TRY(sweep_check(cli));
    if (sizes && cli->against != NULL)
        return tool_fail(ATTNRUN_E_USAGE,
                         "--against compares one size, but --set lists several");
    if (sizes && cli->per_node)
        return tool_fail(ATTNRUN_E_USAGE,
                         "--per-node shows one size, but --set lists several");
    if (cli->against != NULL && !against_is_file(cli) && cli->per_node)
        return tool_fail(ATTNRUN_E_USAGE, "--per-node shows the nodes of one program: "
                                          "--against compares two");
    if (!sizes && cli->svg != NULL)
        return tool_fail(ATTNRUN_E_USAGE, "--svg needs a list of sizes: --set S=128,256");
    return cli_check_stdout(cli, "--svg", cli->svg);
}

attnrun_status command_bench(struct cli *cli, int *exit_code)
{
    struct job job = { .cli = cli };
    struct beside beside = { .fp32_peak_gflops = 0 };
    bool slower = false;
    *exit_code = 0;
    TRY(check_options(cli));
    if (cli->against != NULL && !against_is_file(cli)) {
        attnrun_status compared = bench_against(cli, &slower);
        *exit_code = slower ? 1 : 0;
        return compared;
    }
    if (sweep_of(cli) != NULL)
        return bench_sweep(cli, sweep_of(cli));
    attnrun_status status =
        cli->against != NULL ? base_read(&beside.base, cli) : ATTNRUN_OK;
    if (status == ATTNRUN_OK)
        status = bench(&job, cli, &beside);
    node_table_free(&beside.nodes);
    base_free(&beside.base);
    job_close(&job);
    return explain_contexts(cli, status);
}
