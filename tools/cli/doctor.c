/* doctor.c - attnrun doctor: what attnrun found on this machine.
 *
 * In: the machine and the environment. Out: version, CPU, instruction sets, threads and memory,
 * as text or JSON; with --bench also what the machine can do at best (measure.h). */
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>
#include <yaml.h>
#include <zlib.h>

#include "fork_join.h"
#include "job.h"
#include "measure.h"
#include "screen.h"

static void print_environment(const char *name)
{
    const char *value = getenv(name);
    if (value != NULL)
        printf("%-12s %s=%s\n", "environment", name, tool_quote(value));
}

static void print_peak(const char *name, const char *unit, double one, double all,
                       int32_t threads)
{
    if (one > 0)
        printf("%-12s %.1f %s by one thread, %.1f by %d\n", name, one, unit, all,
               threads);
}

static void print_measured(const struct measured *m, double fork_join_us, int32_t threads)
{
    print_peak("fp32 peak", "GFLOP/s", m->fp32_peak_gflops, m->fp32_peak_all_gflops,
               threads);
    print_peak("bf16 peak", "GFLOP/s", m->bf16_peak_gflops, m->bf16_peak_all_gflops,
               threads);
    print_peak("int8 peak", "GOP/s", m->int8_peak_gops, m->int8_peak_all_gops, threads);
    printf("%-12s %.1f GB/s by one thread, %.1f by %d; from L2 %.1f by one thread\n",
           "read", m->read_gbs, m->read_all_gbs, threads, m->l2_read_gbs);
    if (threads > 1)
        printf("%-12s %.1f us while workers spin, with %d\n", "fork/join", fork_join_us,
               threads);
}

static void write_measured(struct json *json, const struct measured *m,
                           double fork_join_us)
{
    json_real(json, "fp32_peak_gflops", m->fp32_peak_gflops);
    json_real(json, "fp32_peak_all_gflops", m->fp32_peak_all_gflops);
    if (m->bf16_peak_gflops > 0) {
        json_real(json, "bf16_peak_gflops", m->bf16_peak_gflops);
        json_real(json, "bf16_peak_all_gflops", m->bf16_peak_all_gflops);
    }
    if (m->int8_peak_gops > 0) {
        json_real(json, "int8_peak_gops", m->int8_peak_gops);
        json_real(json, "int8_peak_all_gops", m->int8_peak_all_gops);
    }
    json_real(json, "read_gbs", m->read_gbs);
    json_real(json, "read_all_gbs", m->read_all_gbs);
    json_real(json, "l2_read_gbs", m->l2_read_gbs);
    json_real(json, "fork_join_us", fork_join_us);
}

attnrun_status command_doctor(struct cli *cli, int *exit_code)
{
    attnrun_runtime_info info = { .struct_size = sizeof info };
    struct measured measured;
    double fork_join_us = 0;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    TRY(cli_open_runtime(cli));
    TRY_LIB(attnrun_runtime_query(cli->runtime, &info));
    if (cli->bench) {
        progress_start(cli, "measuring this machine");
        attnrun_status status = measure_machine(info.isa, info.threads, &measured);
        if (status == ATTNRUN_OK)
            status = measure_fork_join(cli->runtime, info.threads, &fork_join_us);
        progress_end();
        TRY(status);
    }
    *exit_code = 0;
    if (cli->json) {
        struct json json = { .out = cli_json_stream() };
        json_open(&json, NULL, '{');
        json_text(&json, "schema", "attnrun/doctor/2");
        json_text(&json, "version", attnrun_version());
        json_text(&json, "isa", info.isa);
        json_words(&json, "isas", info.isas, " ");
        json_words(&json, "cpu_features", info.cpu_features, " ");
        json_int(&json, "cpus_online", cpus);
        json_int(&json, "threads", info.threads);
        json_text(&json, "blas", info.blas);
        json_int(&json, "max_memory_bytes", (int64_t)info.max_memory);
        if (cli->bench)
            write_measured(&json, &measured, fork_join_us);
        json_close(&json, '}');
        return ATTNRUN_OK;
    }
    printf("%-12s %s (ABI %" PRId32 ")\n", "attnrun", attnrun_version(),
           attnrun_abi_version());
    screen_line("isa", 13, "%s, of %s; features: %s", info.isa, info.isas,
                info.cpu_features);
    printf("%-12s %d of %ld CPUs online\n", "threads", info.threads, cpus);
    screen_text("blas", 13, info.blas);
    printf("%-12s %s is the budget of a run (--max-memory)\n", "memory",
           text_bytes((int64_t)info.max_memory));
    printf("%-12s libyaml %s, zlib %s\n", "tools", yaml_get_version_string(),
           zlibVersion());
    if (cli->bench)
        print_measured(&measured, fork_join_us, info.threads);
    print_environment("ATTNRUN_NUM_THREADS");
    print_environment("OMP_NUM_THREADS");
    print_environment("ATTNRUN_ISA");
    print_environment("ATTNRUN_LOG");
    return ATTNRUN_OK;
}
