/* fork_join.c - measures the cost of opening and closing a parallel loop, for attnrun doctor.
 *
 * In: a runtime and its number of threads. Out: microseconds for each phase; 0 for one thread.
 *
 * The model is one operator whose phases have one task for each thread. A task ends when all tasks
 * of its phase have begun, so every thread takes one. With an input of one element each phase has
 * one task, which the calling thread computes alone. The result is the difference between the
 * median times of the two. Runs of both kinds alternate every few microseconds, so that the
 * workers still spin when the next loop begins. Cost: RUNS runs of each kind. */
#include "fork_join.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "cli.h"

enum { PHASES = ATTNRUN_MAX_PHASES, RUNS = 1500, TASK_COST_NS = 20000 };
static const double longest_wait_ms = 0.5; /* for a thread that the system holds up */

static _Atomic int64_t begun[PHASES];

static attnrun_status fork_infer(attnrun_step *step)
{
    step->out[0] = step->in[0];
    step->n_phases = PHASES;
    for (int32_t p = 0; p < PHASES && step->concrete; p++)
        step->phases[p] = (attnrun_phase){ .n_tasks = step->in[0].dims[0].value,
                                           .task_cost = TASK_COST_NS };
    return ATTNRUN_OK;
}

static void wait_for_all(int32_t phase, int64_t n)
{
    int64_t all = (atomic_fetch_add(&begun[phase], 1) / n + 1) * n;
    double start = cli_now_ms();
    while (atomic_load(&begun[phase]) < all && cli_now_ms() - start < longest_wait_ms) {
    }
}

static attnrun_status fork_run(const attnrun_step *step, const attnrun_work *work)
{
    for (int64_t task = work->begin; task < work->end; task++) {
        ((float *)step->y[0].data)[task] = 0;
        if (step->x[0].dims[0] > 1)
            wait_for_all(work->phase, step->x[0].dims[0]);
    }
    return ATTNRUN_OK;
}

static const attnrun_op_def fork_op = { .struct_size = sizeof fork_op,
                                        .domain = "attnrun.doctor",
                                        .name = "Fork",
                                        .since = 1,
                                        .inputs = "x:T",
                                        .outputs = "y:T",
                                        .types = "T=f32",
                                        .infer = fork_infer,
                                        .run = fork_run };

/* x f32[N] -> Fork -> y f32[N]: field numbers and lengths of protobuf, as onnx.proto
 * says. */
static const char fork_model[] =
    "\x08\x08" /* ir_version 8 */
    "\x3a\x48" /* graph, 72 bytes */
    "\x0a\x1c\x0a\x01x\x12\x01y\x22\x04"
    "Fork" /* node: inputs, outputs, type */
    "\x3a\x0e"
    "attnrun.doctor" /* its domain */
    "\x12\x04"
    "fork" /* name of the graph */
    "\x5a\x10\x0a\x01x\x12\x0b\x0a\x09\x08\x01\x12\x05\x0a\x03\x12\x01N" /* input x */
    "\x62\x10\x0a\x01y\x12\x0b\x0a\x09\x08\x01\x12\x05\x0a\x03\x12\x01N" /* output y */
    "\x42\x12\x0a\x0e"
    "attnrun.doctor"
    "\x10\x01"                  /* opset of its domain: 1 */
    "\x42\x04\x0a\x00\x10\x12"; /* of ai.onnx: 18 */

static attnrun_status run_once(attnrun_context *context, int64_t n, double *ms)
{
    static float x[ATTNRUN_MAX_PHASES * 256];
    attnrun_tensor tensor;
    if (n > (int64_t)(sizeof x / sizeof *x))
        n = (int64_t)(sizeof x / sizeof *x);
    TRY_LIB(attnrun_tensor_make(ATTNRUN_F32, 1, &n, x, &tensor));
    TRY_LIB(attnrun_set_input(context, 0, &tensor));
    double start = cli_now_ms();
    TRY_LIB(attnrun_run(context, NULL));
    *ms = cli_now_ms() - start;
    return ATTNRUN_OK;
}

static attnrun_status compare(attnrun_context *context, int32_t threads,
                              double *microseconds)
{
    static double alone[RUNS], shared[RUNS];
    double ms;
    for (int i = 0; i < 20; i++) { /* plans, threads */
        TRY(run_once(context, 1, &ms));
        TRY(run_once(context, threads, &ms));
    }
    for (int i = 0; i < RUNS; i++) {
        TRY(run_once(context, 1, &alone[i]));
        TRY(run_once(context, threads, &shared[i]));
    }
    qsort(alone, RUNS, sizeof *alone, cli_numbers_by_size);
    qsort(shared, RUNS, sizeof *shared, cli_numbers_by_size);
    *microseconds = (shared[RUNS / 2] - alone[RUNS / 2]) * 1e3 / PHASES;
    return ATTNRUN_OK;
}

attnrun_status measure_fork_join(attnrun_runtime *runtime, int32_t threads,
                                 double *microseconds)
{
    const attnrun_source source = { .struct_size = sizeof source,
                                    .data = fork_model,
                                    .bytes = sizeof fork_model - 1 };
    attnrun_model *model = NULL;
    attnrun_context *context = NULL;
    *microseconds = 0;
    if (threads < 2)
        return ATTNRUN_OK;
    TRY_LIB(attnrun_register_op(runtime, &fork_op));
    TRY_LIB(attnrun_model_open(runtime, &source, &model));
    attnrun_status status = attnrun_context_create(model, &context);
    if (status == ATTNRUN_OK)
        status = compare(context, threads, microseconds);
    else
        tool_fail_library(status);
    attnrun_context_destroy(context);
    attnrun_model_release(model);
    return status;
}
