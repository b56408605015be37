/* node_profile.c - the profile of a run, as it goes; see node_profile.h.
 *
 * In: steps and ranges of tasks, with the times at which they began. Out: calls of the caller's
 * functions. Cost: two looks at the clock for a step, and for a range where on_tasks is set;
 * nothing where none is. */
#include "node_profile.h"

void attn_profile_begin(struct attn_profiling *profiling, struct attn_frame *frame)
{
    const attnrun_run_options *options = frame->control->options;
    frame->profiling = NULL;
    if (frame->outer != NULL || options == NULL ||
        (options->on_step == NULL && options->on_node == NULL &&
         options->on_tasks == NULL))
        return;
    profiling->options = options;
    profiling->ranges = options->on_node != NULL || options->on_tasks != NULL;
    profiling->start_ns = attn_poll_now_ns();
    for (int i = 0; i < ATTN_PROFILE_WORDS; i++)
        atomic_init(&profiling->workers[i], 0);
    frame->profiling = profiling;
}

int64_t attn_profile_step_begin(struct attn_profiling *profiling)
{
    for (int i = 0; i < ATTN_PROFILE_WORDS; i++)
        atomic_store_explicit(&profiling->workers[i], 0, memory_order_relaxed);
    return attn_poll_now_ns();
}

static int32_t count_workers(const struct attn_profiling *profiling)
{
    int32_t n = 0;
    for (int i = 0; i < ATTN_PROFILE_WORDS; i++)
        n += __builtin_popcountll(
            atomic_load_explicit(&profiling->workers[i], memory_order_relaxed));
    return n > 0 ? n : 1;
}

/* Sequences and maps have no bytes of their own; a sum that overflows stays where it was. */
static int64_t sum_bytes(const attnrun_tensor *tensors, int32_t n)
{
    int64_t sum = 0, more;
    for (int32_t i = 0; i < n; i++) {
        int64_t bytes = tensors[i].kind == ATTNRUN_TENSOR ? tensor_bytes(&tensors[i]) : 0;
        if (bytes > 0 && ck_add(sum, bytes, &more))
            sum = more;
    }
    return sum;
}

int64_t attn_step_read_bytes(const struct attn_step *step)
{
    return sum_bytes(step->pub.x, step->pub.n_in + step->node->n_captures);
}

int64_t attn_step_written_bytes(const struct attn_step *step)
{
    return step->is_view ? 0 : sum_bytes(step->pub.y, step->pub.n_out);
}

static void report_node(const struct attn_profiling *profiling,
                        const struct attn_step *step, int64_t start_ns, int64_t ns)
{
    const attnrun_node *node = step->pub.node;
    attnrun_node_profile report = {
        .struct_size = sizeof report,
        .node_index = node->index,
        .name = node->name,
        .op_type = node->op_type,
        .domain = node->domain,
        .start_ns = start_ns - profiling->start_ns,
        .ns = ns,
        .read_bytes = attn_step_read_bytes(step),
        .written_bytes = attn_step_written_bytes(step),
        .flops = step->flops,
        .n_phases = step->pub.n_phases,
        .n_threads = count_workers(profiling),
    };
    for (int32_t p = 0; p < step->pub.n_phases; p++)
        report.n_tasks += step->pub.phases[p].n_tasks;
    profiling->options->on_node(profiling->options->profile_user, &report);
}

void attn_profile_step_end(struct attn_profiling *profiling, const struct attn_step *step,
                           int64_t start_ns)
{
    const attnrun_run_options *options = profiling->options;
    const attnrun_node *node = step->pub.node;
    const int64_t ns = attn_poll_now_ns() - start_ns;
    if (options->on_step != NULL)
        options->on_step(options->on_step_user, node->index, node->name, node->op_type,
                         (double)ns * 1e-3);
    if (options->on_node != NULL)
        report_node(profiling, step, start_ns, ns);
}

attn_status attn_profile_tasks(struct attn_profiling *profiling,
                               const struct attn_step *step, attnrun_work *work)
{
    const attnrun_run_options *options = profiling->options;
    const uint32_t worker = (uint32_t)work->worker % (64 * ATTN_PROFILE_WORDS);
    atomic_fetch_or_explicit(&profiling->workers[worker / 64], UINT64_C(1) << worker % 64,
                             memory_order_relaxed);
    if (options->on_tasks == NULL)
        return attn_step_run(step, work);
    const int64_t start_ns = attn_poll_now_ns();
    const attn_status status = attn_step_run(step, work);
    const attnrun_tasks_profile report = { .struct_size = sizeof report,
                                           .node_index = step->pub.node->index,
                                           .phase = work->phase,
                                           .worker = work->worker,
                                           .begin = work->begin,
                                           .end = work->end,
                                           .start_ns = start_ns - profiling->start_ns,
                                           .ns = attn_poll_now_ns() - start_ns };
    options->on_tasks(options->profile_user, &report);
    return status;
}
