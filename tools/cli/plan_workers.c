/* plan_workers.c - attnrun plan --workers, --memory: what processes of one machine take
 * together.
 *
 * In: the plan of one process. Out: bytes of each process and of all, and how many fit.
 *
 *   each   arena + what depends on data, as far as it is bounded + the process itself (--process)
 *          + packed and folded weights, unless they are in a packed file
 *   all    workers * each + the weights in the mapped file, whose pages all of them share: those
 *          of the ONNX file, or all of a packed file */
#include <inttypes.h>

#include "job.h"
#include "workers.h"

enum {
    PROCESS_BYTES = 16 << 20
}; /* a C program; Python with numpy and an engine: 400 MB */

static bool add(int64_t *sum, int64_t bytes)
{
    return !__builtin_add_overflow(*sum, bytes, sum);
}

bool workers_asked(const struct cli *cli) { return cli->workers > 0 || cli->memory > 0; }

attnrun_status workers_plan(const struct job *job, struct workers *workers)
{
    const struct cli *cli = job->cli;
    const attnrun_plan_info *p = &job->plan;
    const bool packed = job->info.packed_for[0] != 0;
    const int64_t shared = packed ? job->info.file_bytes : p->weights_bytes;
    int64_t each = cli->process > 0 ? cli->process : PROCESS_BYTES, all;
    *workers = (struct workers){ .memory_bytes = cli->memory, .shared_bytes = shared };
    bool fits = add(&each, p->arena_bytes) && add(&each, p->side_heap_bytes) &&
                (packed || (add(&each, p->packed_bytes) && add(&each, p->folded_bytes)));
    int64_t left = cli->memory - shared;
    workers->max = cli->memory == 0 || !fits || left < 0 ? 0 : left / each;
    workers->count = cli->workers > 0 ? cli->workers : workers->max;
    fits =
        fits && !__builtin_mul_overflow(each, workers->count, &all) && add(&all, shared);
    if (!fits)
        return tool_fail(ATTNRUN_E_LIMIT, "the bytes of %" PRId64 " workers overflow",
                         workers->count);
    workers->each_bytes = each;
    workers->all_bytes = all;
    return ATTNRUN_OK;
}

attnrun_status workers_fit(const struct workers *workers)
{
    if (workers->memory_bytes == 0 ||
        (workers->count > 0 && workers->count <= workers->max))
        return ATTNRUN_OK;
    int64_t count = workers->count > 0 ? workers->count : 1;
    int64_t all = workers->shared_bytes + count * workers->each_bytes;
    return tool_fail(ATTNRUN_E_MEMORY,
                     "%s %s %s of the %s given, in which %" PRId64 " %s",
                     tool_plural(count, "worker"), count == 1 ? "takes" : "take",
                     text_bytes(all), text_bytes(workers->memory_bytes), workers->max,
                     workers->max == 1 ? "fits" : "fit");
}

void workers_print(const struct workers *workers)
{
    printf("worker   %" PRId64 " bytes (%s) each, %s of mapped weights for all\n",
           workers->each_bytes, text_bytes(workers->each_bytes),
           text_bytes(workers->shared_bytes));
    printf("workers  %" PRId64 ", %" PRId64 " bytes (%s) in all", workers->count,
           workers->all_bytes, text_bytes(workers->all_bytes));
    if (workers->memory_bytes > 0)
        printf("; room for %" PRId64 " in %s", workers->max,
               text_bytes(workers->memory_bytes));
    printf("\n");
}

void workers_json(const struct workers *workers, struct json *json)
{
    json_int(json, "workers", workers->count);
    json_int(json, "worker_bytes", workers->each_bytes);
    json_int(json, "shared_bytes", workers->shared_bytes);
    json_int(json, "workers_bytes", workers->all_bytes);
    if (workers->memory_bytes > 0) {
        json_int(json, "memory_bytes", workers->memory_bytes);
        json_int(json, "max_workers", workers->max);
    }
}
