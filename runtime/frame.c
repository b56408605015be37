/* frame.c - running a graph: the loop over the steps of a plan.
 *
 * In: a frame (frame.h) and the tensors of its inputs. Out: the results of the steps, in the
 * arena and the side heap of the frame, until its next run.
 *
 *   context ── frame of the main graph
 *                ├── plans[16], one arena, one side heap
 *                └── children: a frame for each subgraph of If, Loop, Scan
 *
 *   attn_frame_prepare()    takes the plan that fits these dims, or makes one (plan.c), and
 *                           makes the arena at least arena_bytes large
 *   attn_frame_run_plan()   binds the plan: pointers into the arena and the inputs
 *                           copies inputs that are not dense or not aligned
 *                           for each step: a view needs nothing; a planned step runs its
 *                           phases; a dynamic-shape step is inferred, gets memory of the
 *                           side heap, and runs (dynamic_shape.c)
 *                           copies outputs that are constants or inputs
 *
 *   a step   phase 0                   │ phase 1        phases in order, each waits for the
 *            tasks 0 1 2 3 4 … n-1     │ 0 1 …          one before; tasks in any order, on any
 *            └─┬─┘ └───┬───┘           │                worker, in ranges of RANGE_NS or more
 *            worker 0  worker 1        │
 *
 * A phase that is too short to share runs on the thread of the caller. Every worker has its
 * own part of the step's scratch, all of them share shared_bytes. Cancelling and the time
 * limit set control->stop, which workers read between ranges and kernels may read; the first
 * failure stops the others. Without dynamic shapes nothing here allocates or locks. */
#include "frame.h"

#include <stdatomic.h>

#include "fill.h"
#include "infer.h"
#include "node_profile.h"
#include "ragged.h"
#include "range.h"
#include "selection.h"

/* Ranges of tasks shorter than this are not worth handing to another thread. Longer ones than
 * LONGEST_RANGE_NS are not made, whatever the operator does between its own polls: what a range
 * begins with, rows of A that are copied or rounded, say, is done again by the next one. */
enum { RANGE_NS = 5000, LONGEST_RANGE_NS = 16000000 };

static int64_t task_cost(const attnrun_phase *phase)
{
    return phase->task_cost > 1 ? phase->task_cost : 1;
}

/* Too little to share. */
static bool is_small(const attnrun_phase *phase)
{
    return phase->n_tasks <= 1 || phase->n_tasks <= 2 * RANGE_NS / task_cost(phase);
}

bool attn_step_is_alone(const struct attn_step *step)
{
    for (int32_t p = 0; p < step->pub.n_phases; p++)
        if (!is_small(&step->pub.phases[p]))
            return false;
    return true;
}

uint32_t attn_step_shared_phases(const struct attn_step *step)
{
    uint32_t shared = 0;
    for (int32_t p = 0; p < step->pub.n_phases; p++)
        shared |= is_small(&step->pub.phases[p]) ? 0 : UINT32_C(1) << p;
    return shared;
}

/* ---- plans and memory ---- */

/* Not only of dynamic-shape steps: text has its place in the side heap, too. */
static void release_all_dynamic(struct attn_frame *frame, struct attn_plan *plan)
{
    for (int32_t s = 0; frame->heap.used_bytes > 0 && s < plan->n_steps; s++)
        for (int32_t i = 0; i < plan->steps[s]->pub.n_out; i++)
            attn_heap_release(&frame->heap, &plan->steps[s]->lists[i]);
}

int32_t attn_frame_n_inputs(const struct attn_frame *frame)
{
    return frame->graph->n_inputs + frame->n_captures;
}

static struct attn_plan **plan_slot(struct attn_frame *frame)
{
    struct attn_plan **oldest = &frame->plans[0];
    for (int32_t i = 0; i < frame->max_plans; i++) {
        if (frame->plans[i] == NULL)
            return &frame->plans[i];
        if (frame->plans[i]->last_used < (*oldest)->last_used)
            oldest = &frame->plans[i];
    }
    return oldest;
}

static void drop_plan(struct attn_frame *frame, struct attn_plan **slot)
{
    if (*slot == NULL)
        return;
    if (*slot == frame->current)
        frame->current = NULL;
    if (*slot == frame->shown)
        frame->shown = NULL;
    release_all_dynamic(frame, *slot);
    attn_plan_destroy(*slot, frame->planning);
    *slot = NULL;
}

void attn_frame_keep_plans(struct attn_frame *frame, int32_t n)
{
    for (int32_t i = 0; i < n; i++) { /* the plan used last of what is left comes to i */
        int32_t newest = i;
        for (int32_t k = i + 1; k < ATTN_MAX_PLANS; k++)
            if (frame->plans[k] != NULL &&
                (frame->plans[newest] == NULL ||
                 frame->plans[k]->last_used > frame->plans[newest]->last_used))
                newest = k;
        struct attn_plan *plan = frame->plans[newest];
        frame->plans[newest] = frame->plans[i];
        frame->plans[i] = plan;
    }
    for (int32_t i = n; i < ATTN_MAX_PLANS; i++)
        drop_plan(frame, &frame->plans[i]);
    attn_keeper_release(frame->planning, true);
    frame->max_plans = n;
}

/* The memory of a plan that has to go is that of the new one. Where one had to, as in decoding,
 * which plans anew for each token, what this planning is done with is kept for the next. */
static attn_status make_plan(struct attn_frame *frame, const attnrun_tensor *inputs,
                             struct attn_plan **slot, struct attn_plan **plan)
{
    const bool replaces = *slot != NULL;
    drop_plan(frame, slot);
    attn_status status =
        attn_plan_create(frame, inputs, attn_frame_n_inputs(frame), slot);
    attn_keeper_release(frame->planning, !replaces);
    *plan = *slot;
    return status;
}

attn_status attn_frame_plan(struct attn_frame *frame, const attnrun_tensor *inputs,
                            struct attn_plan **plan)
{
    for (int i = 0; i < ATTN_MAX_PLANS; i++)
        if (frame->plans[i] != NULL && attn_plan_fits(frame, frame->plans[i], inputs)) {
            frame->plans[i]->last_used = ++frame->clock;
            *plan = frame->plans[i];
            return ATTNRUN_OK;
        }
    TRY(make_plan(frame, inputs, plan_slot(frame), plan));
    const struct attn_plan *made = *plan;
    (*plan)->last_used = ++frame->clock;
    attn_log(frame->runtime, ATTN_LOG_PLAN,
             "plan: %d steps, %lld bytes of arena, %d of dynamic shape, %lld bytes of "
             "side heap and "
             "what %d steps need that have no bound",
             made->n_steps, (long long)made->arena_bytes, made->n_dynamic,
             (long long)made->heap_bytes, made->n_unbounded);
    return ATTNRUN_OK;
}

attn_status attn_frame_rehearse(struct attn_frame *frame, const attnrun_tensor *inputs)
{
    struct attn_plan **slot = plan_slot(frame), *plan;
    if (*slot == NULL || *slot != frame->shown)
        return ATTNRUN_OK;
    TRY(make_plan(frame, inputs, slot, &plan));
    plan->last_used = ++frame->clock;
    frame->shown = plan;
    return ATTNRUN_OK;
}

/* An arena that has to grow takes an eighth more, where the budget has it: the next token
 * of a decoder needs a little more again. */
static int64_t arena_size(struct attn_frame *frame, int64_t bytes)
{
    struct attn_memory_counts counts;
    int64_t more;
    attn_memory_counts(frame->memory, &counts);
    uint64_t left = counts.max_bytes - counts.used_bytes + (uint64_t)frame->arena_bytes;
    if (frame->arena == NULL || counts.used_bytes > counts.max_bytes ||
        !ck_add(bytes, bytes / 8, &more) || (uint64_t)more > left)
        return bytes;
    return more;
}

/* Plans set their pointers again. */
static void unbind_arena(struct attn_frame *frame)
{
    if (!frame->arena_given)
        attn_free(frame->memory, ATTN_MEM_ARENA, frame->arena, frame->arena_bytes);
    frame->arena = NULL;
    frame->arena_bytes = 0;
    for (int i = 0; i < ATTN_MAX_PLANS; i++)
        if (frame->plans[i] != NULL)
            frame->plans[i]->bound_arena = NULL;
}

void attn_frame_set_arena(struct attn_frame *frame, void *memory, int64_t bytes)
{
    attn_frame_forget(frame);
    unbind_arena(frame);
    frame->arena_given = memory != NULL;
    frame->arena = memory;
    frame->arena_bytes = memory != NULL ? bytes : 0;
}

attn_status attn_frame_reserve(struct attn_frame *frame, const struct attn_plan *plan)
{
    if (frame->arena != NULL && plan->arena_bytes <= frame->arena_bytes)
        return ATTNRUN_OK;
    if (frame->arena_given)
        return attn_fail(ATTNRUN_E_MEMORY,
                         "the arena needs %s for these shapes, and the one that "
                         "attnrun_set_arena() was given has %lld",
                         attn_plural(plan->arena_bytes, "byte"),
                         (long long)frame->arena_bytes);
    const int64_t bytes = arena_size(frame, max64(plan->arena_bytes, ATTN_ARENA_ALIGN));
    attn_frame_forget(frame);
    unbind_arena(frame);
    frame->arena = attn_alloc(frame->memory, ATTN_MEM_ARENA, bytes);
    if (frame->arena == NULL)
        return ATTNRUN_E_MEMORY;
    frame->arena_bytes = bytes;
    return ATTNRUN_OK;
}

/* ---- one step ---- */

enum { MARKED = 1024 }; /* workers that are known to go on */

struct step_run {
    struct attn_frame *frame;
    struct attn_step *step;
    int32_t phase;
    atomic_int failed;
    _Atomic uint64_t begun[MARKED / 64]; /* workers that have run a range: a bit each */
    attnrun_error error;
};

static attn_status run_range(struct attn_frame *frame, struct attn_step *step,
                             int32_t phase, int64_t begin, int64_t end, int32_t worker,
                             bool resumes)
{
    struct attn_range range = { frame->control, resumes };
    attnrun_work work = { .phase = phase,
                          .worker = worker,
                          .begin = begin,
                          .end = end,
                          .scratch = step->own.stride > 0
                                         ? step->own.each + worker * step->own.stride
                                         : step->own.each,
                          .shared = step->own.shared,
                          .cancel = &frame->control->stop,
                          .internal = &range };
    return frame->profiling != NULL && frame->profiling->ranges
               ? attn_profile_tasks(frame->profiling, step, &work)
               : attn_step_run(step, &work);
}

/* Whether the worker has begun before; from now on it has. */
static bool begin_worker(struct step_run *run, int32_t worker)
{
    const uint64_t bit = UINT64_C(1) << worker % 64;
    return worker < MARKED && (atomic_fetch_or_explicit(&run->begun[worker / 64], bit,
                                                        memory_order_relaxed) &
                               bit) != 0;
}

static void run_task(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    struct step_run *run = arg;
    struct attn_control *control = run->frame->control;
    const uint64_t errors = attn_error_count();
    attn_status status = attn_poll();
    if (status == ATTNRUN_OK)
        status = run_range(run->frame, run->step, run->phase, begin, end, worker,
                           begin_worker(run, worker));
    if (status == ATTNRUN_OK || atomic_exchange(&run->failed, 1) != 0)
        return;
    attn_fail_keep(status, errors, &run->error);
    int32_t go = ATTN_GO;
    __atomic_compare_exchange_n(&control->stop, &go, ATTN_STOP_FAILED, false,
                                __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* The most tasks of that cost between two polls. */
static int64_t max_of_range(int64_t cost)
{
    return LONGEST_RANGE_NS / cost > 1 ? LONGEST_RANGE_NS / cost : 1;
}

/* Apart from run_phase(), which runs subgraphs within each other: a struct step_run is
 * large. */
__attribute__((noinline)) static attn_status
share_phase(struct attn_frame *frame, struct attn_step *step, int32_t phase, bool small)
{
    int64_t n = step->pub.phases[phase].n_tasks;
    int64_t cost = task_cost(&step->pub.phases[phase]);
    int64_t max = max_of_range(cost);
    struct step_run run = { .frame = frame, .step = step, .phase = phase };
    int64_t grain = RANGE_NS / cost > 1 ? RANGE_NS / cost : 1;
    if (small) { /* alone, but with polls between */
        for (int64_t begin = 0; begin < n && !run.failed; begin += max)
            run_task(&run, begin, max < n - begin ? begin + max : n, 0);
    } else {
        attn_parallel_for(frame->threads, n, grain, max, run_task, &run);
    }
    if (!atomic_load(&run.failed))
        return ATTNRUN_OK;
    int32_t failed = ATTN_STOP_FAILED;
    __atomic_compare_exchange_n(&frame->control->stop, &failed, ATTN_GO, false,
                                __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return attn_poll_reason(attn_fail_again(&run.error));
}

static attn_status run_phase(struct attn_frame *frame, struct attn_step *step,
                             int32_t phase)
{
    int64_t n = step->pub.phases[phase].n_tasks;
    int64_t cost = task_cost(&step->pub.phases[phase]);
    TRY(attn_step_check_tasks(step, phase));
    if (n == 0)
        return ATTNRUN_OK;
    bool small = step->own.n_workers == 1 || is_small(&step->pub.phases[phase]);
    if (small && n <= max_of_range(cost))
        return run_range(frame, step, phase, 0, n, 0, false);
    return share_phase(frame, step, phase, small);
}

attn_status attn_frame_run_step(struct attn_frame *frame, struct attn_step *step)
{
    if (step->pub.node->op->run == NULL)
        return attn_step_copy_views(step);
    attn_fill_step(step);
    for (int32_t phase = 0; phase < step->pub.n_phases; phase++)
        TRY(run_phase(frame, step, phase));
    return ATTNRUN_OK;
}

/* ---- the loop ---- */

/* A node has copied what its subgraphs left; NULL: nobody will. */
static void release_children(struct attn_frame *frame, const struct attn_node *node)
{
    struct attn_frame *child = frame->children;
    if (child != NULL && node != NULL)
        child = frame->of_nodes[node->pub.index];
    for (; child != NULL; child = node != NULL ? child->sibling : child->next)
        attn_frame_forget(child);
}

/* Bits behind the last element of types under 8 bits are zero, whatever lay there. */
static void clear_padding(const struct attn_plan *plan, const struct attn_step *step)
{
    for (int32_t i = 0; i < step->pub.n_out; i++) {
        int32_t id = step->node->out[i];
        const attnrun_tensor *y = &step->pub.y[i];
        if (id < 0 || dtype_bits(y->dtype) >= 8 || y->kind != ATTNRUN_TENSOR)
            continue;
        enum attn_place place = plan->values[id].place;
        if (place == ATTN_PLACE_ARENA || place == ATTN_PLACE_DYNAMIC)
            attn_tensor_clear_padding(y);
    }
}

static attn_status run_steps(struct attn_frame *frame, struct attn_plan *plan)
{
    struct attn_profiling *profiling = frame->profiling;
    for (int32_t s = 0; s < plan->n_steps; s++) {
        struct attn_step *step = plan->steps[s];
        if (step->is_view && !step->recheck)
            continue;
        int64_t start = profiling != NULL ? attn_profile_step_begin(profiling) : 0;
        TRY(attn_poll());
        TRY(step->dynamic ? attn_frame_run_dynamic(frame, plan, step)
                          : attn_frame_run_planned(frame, plan, step));
        clear_padding(plan, step);
        if (step->pub.node->op->flags & ATTNRUN_OP_GRAPHS)
            release_children(frame, step->node);
        if (plan->has_dynamic)
            attn_frame_release_dynamic(frame, plan, step);
        if (profiling != NULL)
            attn_profile_step_end(profiling, step, start);
    }
    return ATTNRUN_OK;
}

static attn_status copy_in(struct attn_frame *frame, const struct attn_plan *plan,
                           const attnrun_tensor *inputs)
{
    for (int32_t i = 0; i < plan->n_key; i++) {
        if (inputs[i].kind != ATTNRUN_TENSOR || plan->input_copies[i] < 0)
            continue;
        attnrun_tensor dense = inputs[i];
        tensor_set_dense(&dense);
        dense.data = frame->arena + plan->blocks[plan->input_copies[i]].offset;
        TRY(attn_tensor_copy_polled(&dense, &inputs[i]));
    }
    return ATTNRUN_OK;
}

/* Sequences and optionals among the inputs are read by dynamic-shape steps from the value itself.
 */
static void pass_others(struct attn_frame *frame, struct attn_plan *plan,
                        const attnrun_tensor *inputs)
{
    for (int32_t i = 0; i < plan->n_key; i++) {
        if (inputs[i].kind == ATTNRUN_TENSOR)
            continue;
        int32_t formal = frame->graph->n_inputs;
        int32_t id =
            i < formal ? frame->graph->inputs[i] : frame->capture_ids[i - formal];
        plan->values[id].tensor = inputs[i];
    }
}

static attn_status copy_out(struct attn_frame *frame, const struct attn_plan *plan)
{
    for (int32_t i = 0; i < frame->graph->n_outputs; i++) {
        if (plan->copies[i] < 0)
            continue;
        attnrun_tensor to = plan->values[frame->graph->outputs[i]].tensor;
        to.data = frame->arena + plan->blocks[plan->copies[i]].offset;
        TRY(attn_tensor_copy_polled(&to, &plan->values[frame->graph->outputs[i]].tensor));
        attn_tensor_clear_padding(&to);
    }
    return ATTNRUN_OK;
}

void attn_frame_forget(struct attn_frame *frame)
{
    if (frame->current != NULL)
        release_all_dynamic(frame, frame->current);
    frame->current = NULL;
}

attn_status attn_frame_prepare(struct attn_frame *frame, const attnrun_tensor *inputs,
                               struct attn_plan **plan)
{
    attn_frame_forget(frame);
    if (frame->outer == NULL)
        frame->control->heap.peak_bytes = frame->control->heap.used_bytes;
    TRY(attn_frame_plan(frame, inputs, plan));
    TRY(attn_frame_reserve(frame, *plan));
    frame->shown = *plan;
    return ATTNRUN_OK;
}

attn_status attn_frame_run_plan(struct attn_frame *frame, struct attn_plan *plan,
                                const attnrun_tensor *inputs)
{
    attn_plan_bind(plan, frame->arena, inputs, frame->outputs);
    attn_fill(frame->arena, frame->arena_bytes);
    TRY(copy_in(frame, plan, inputs));
    pass_others(frame, plan, inputs);
    struct attn_profiling profiling;
    attn_profile_begin(&profiling, frame);
    attn_status status = run_steps(frame, plan);
    frame->profiling = NULL;
    if (status == ATTNRUN_OK)
        status = copy_out(frame, plan);
    if (status != ATTNRUN_OK) {
        release_children(frame, NULL);
        release_all_dynamic(frame, plan);
        return status;
    }
    frame->current = plan;
    return ATTNRUN_OK;
}

attn_status attn_frame_run(struct attn_frame *frame, const attnrun_tensor *inputs)
{
    struct attn_plan *plan;
    TRY(attn_frame_prepare(frame, inputs, &plan));
    return attn_frame_run_plan(frame, plan, inputs);
}

attn_status attn_frame_output(const struct attn_frame *frame, int32_t index,
                              attnrun_tensor *tensor)
{
    const struct attn_plan *plan = frame->current;
    if (plan == NULL)
        return attn_fail(ATTNRUN_E_USAGE,
                         "there is no successful run to take outputs from");
    if (index < 0 || index >= frame->graph->n_outputs)
        return attn_fail(ATTNRUN_E_USAGE, "output %d is not in 0..%d", index,
                         frame->graph->n_outputs - 1);
    if (plan->modes[index] == ATTN_OUTPUT_SKIPPED)
        return attn_fail(ATTNRUN_E_USAGE, "output %d was not chosen, and not computed",
                         index);
    *tensor = plan->values[frame->graph->outputs[index]].tensor;
    if (plan->copies[index] >= 0)
        tensor->data = frame->arena + plan->blocks[plan->copies[index]].offset;
    return ATTNRUN_OK;
}

/* ---- life ---- */

attn_status attn_frame_create(attnrun_runtime *runtime, struct attn_memory *memory,
                              struct attn_graph *graph, struct attn_control *control,
                              struct attn_frame **frame)
{
    struct attn_frame *made =
        attn_alloc_zeroed(memory, ATTN_MEM_PLAN, (int64_t)sizeof *made);
    if (made == NULL)
        return ATTNRUN_E_MEMORY;
    made->graph = graph;
    made->runtime = runtime;
    made->memory = memory;
    made->threads = attn_runtime_threads(runtime);
    made->max_plans = ATTN_MAX_PLANS;
    made->kernels = attn_model_kernels(graph->model);
    made->control = control;
    made->heap = (struct attn_heap){ .memory = memory,
                                     .kind = ATTN_MEM_HEAP,
                                     .total = &control->heap };
    made->planning = attn_keeper_create(memory);
    if (made->planning == NULL) {
        attn_free(memory, ATTN_MEM_PLAN, made, (int64_t)sizeof *made);
        return ATTNRUN_E_MEMORY;
    }
    if (attn_ragged_n(graph) > 0) { /* they come behind the inputs, as captures do */
        made->capture_ids = attn_alloc_zeroed(
            memory, ATTN_MEM_PLAN,
            ATTN_RAGGED_INPUTS * (int64_t)(2 * sizeof *made->capture_ids));
        if (made->capture_ids == NULL) {
            attn_frame_destroy(made);
            return ATTNRUN_E_MEMORY;
        }
        memcpy(made->capture_ids, graph->ragged->values, sizeof graph->ragged->values);
        made->n_captures = ATTN_RAGGED_INPUTS;
    }
    *frame = made;
    return ATTNRUN_OK;
}

int64_t attn_frame_arena_bytes(const struct attn_frame *frame)
{
    int64_t bytes = frame->arena_bytes;
    for (const struct attn_frame *c = frame->children; c != NULL; c = c->next)
        bytes += attn_frame_arena_bytes(c);
    return bytes;
}

void attn_frame_trim(struct attn_frame *frame)
{
    for (int i = 0; i < ATTN_MAX_PLANS; i++) {
        if (frame->plans[i] != NULL)
            release_all_dynamic(frame, frame->plans[i]);
        attn_plan_destroy(frame->plans[i], frame->planning);
        frame->plans[i] = NULL;
    }
    frame->current = frame->shown = NULL;
    attn_keeper_release(frame->planning, true);
    if (!frame->arena_given)
        unbind_arena(frame);
    for (struct attn_frame *child = frame->children; child != NULL; child = child->next)
        attn_frame_trim(child);
}

void attn_frame_destroy(struct attn_frame *frame)
{
    if (frame == NULL)
        return;
    attn_frame_trim(frame);
    for (struct attn_frame *child = frame->children; child != NULL;) {
        struct attn_frame *next = child->next;
        attn_frame_destroy(child);
        child = next;
    }
    attn_free(frame->memory, ATTN_MEM_PLAN, frame->capture_ids,
              frame->n_captures * (int64_t)(2 * sizeof(int32_t)));
    attn_free(frame->memory, ATTN_MEM_PLAN, frame->call,
              (attn_frame_n_inputs(frame) + 1) * (int64_t)sizeof *frame->call);
    attn_free(frame->memory, ATTN_MEM_PLAN, frame->of_nodes,
              frame->graph->n_nodes * (int64_t)sizeof *frame->of_nodes);
    attn_memory_destroy(frame->planning);
    attn_free(frame->memory, ATTN_MEM_PLAN, frame, (int64_t)sizeof *frame);
}
